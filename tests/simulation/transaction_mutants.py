"""Mutants of transactions: defects that the simulation with transactional producers must notice.

``python tests/simulation/transaction_mutants.py [NAME ...]`` runs each mutant on a few seeds.
"""

import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from mutation import patch, rewrite, run_mutants

from simulation.scenarios.runs import Result
from simulation.scenarios.transaction_scenario import TransactionPlan, run_transaction_seed

__all__ = ["TRANSACTION_MUTANTS"]


def commit_before_all_partitions_know() -> None:
    """The coordinator completes a transaction with its first marker, and leaves the others out."""
    from barnabas.broker.transactions.markers import MarkerQueues

    rewrite(
        MarkerQueues, "_is_done", "completion.has_all_markers or completion.transaction.partitions or not",
        "completion.has_all_markers or not",
    )  # fmt: skip
    rewrite(MarkerQueues, "take", "if self._is_wanted(marker.completion):",
        "if self._is_wanted(marker.completion) and not marker.completion.has_all_markers:",
    )  # fmt: skip


def skip_the_markers_at_a_hand_over() -> None:
    """The next coordinator does not complete what the last one has decided."""
    from barnabas.broker.transactions.coordinator import TransactionCoordinator

    rewrite(TransactionCoordinator, "_complete_decided", "if owned.has(transaction):", "if False:")


def ignore_the_producer_epoch() -> None:
    """The coordinator takes requests of producers that were fenced."""
    from barnabas.broker.transactions.coordinator import TransactionCoordinator

    rewrite(
        TransactionCoordinator, "_found", "if transaction.producer_epoch != sender.producer_epoch:", "if False:"
    )  # fmt: skip


def advance_the_last_stable_offset_early() -> None:
    """Open transactions do not hold readers at read_committed back."""
    from barnabas.log.bounds import Bounds

    patch(Bounds, "last_stable_offset", property(lambda self: self.high_watermark))


def lose_the_abort_on_recovery() -> None:
    """A broker that starts again does not know which transactions were aborted."""
    from barnabas.log.segment.transaction_index import TransactionIndex

    patch(TransactionIndex, "entries", property(lambda self: []))


def take_a_late_batch_into_a_transaction() -> None:
    """The coordinator is not asked whether a batch is of an open transaction."""
    from barnabas.broker.replication.transaction_verification import AddPartitionsToTxnManager

    rewrite(AddPartitionsToTxnManager, "begin", "(self.is_enabled and self.can_ask) or adds", "adds")


def commit_offsets_of_a_fenced_member() -> None:
    """A member that the group has lost commits with its transaction."""
    from barnabas.broker.groups import commits
    from barnabas.wire.kafka.errors import ErrorCode

    patch(commits, "check_transactional_sender", lambda group, sender: ErrorCode.NONE)


def forget_the_time_out() -> None:
    """A transaction whose producer is gone stays open for ever."""
    from barnabas.broker.transactions.deadlines import Deadlines

    patch(Deadlines, "pop_timed_out", lambda self, wall_ms: setattr(self, "to_abort", None) or [])


def show_offsets_before_the_commit() -> None:
    """Offsets of a transaction count at once."""
    from barnabas.broker.groups import coordinator

    rewrite(coordinator, "_apply", "if append.transaction is None:", "if True:")


def abort_what_was_to_be_committed() -> None:
    """Markers of a commit are those of an abort."""
    from barnabas.broker.transactions import markers

    rewrite(
        markers, "request_of", "transaction_result=completion.transition.state is TransactionState.COMPLETE_COMMIT",
        "transaction_result=False",
    )  # fmt: skip


def give_a_new_producer_the_same_epoch() -> None:
    """A producer that begins does not fence the one before it."""
    from barnabas.broker.transactions.transaction import TransactionMetadata

    rewrite(
        TransactionMetadata, "prepare_increment", "epoch, last_epoch = self.producer_epoch + 1, NO_PRODUCER_EPOCH",
        "epoch, last_epoch = max(self.producer_epoch, 0), NO_PRODUCER_EPOCH",
    )  # fmt: skip


def answer_a_commit_before_it_is_written() -> None:
    """The producer hears of its commit while the decision is only in memory."""
    from barnabas.broker.transactions.coordinator import TransactionCoordinator

    rewrite(
        TransactionCoordinator, "end", "self._append(owned, transaction, prepared, written)",
        "self._reply(to, ProducerAnswer(ErrorCode.NONE)); to = lambda *_: None; "
        "self._append(owned, transaction, prepared, written)",
    )  # fmt: skip


def forget_aborted_transactions_in_fetch() -> None:
    """Answers do not say which transactions were aborted."""
    from barnabas.log.partition_log import PartitionLog

    patch(PartitionLog, "aborted_transactions", lambda self, from_offset, upto_offset: [])


def drop_offsets_at_the_commit() -> None:
    """The marker of a commit drops the offsets of its transaction."""
    from barnabas.broker.groups.offsets import GroupOffsets

    rewrite(GroupOffsets, "end_transaction", "if committed:", "if False:")


def keep_the_epoch_in_version_2() -> None:
    """The next transaction has the epoch of the last one."""
    from barnabas.broker.transactions.transaction import TransactionMetadata

    rewrite(TransactionMetadata, "prepare_end", "if version < TRANSACTION_V2:", "if True:")


def discard_markers_of_records_that_stay() -> None:
    """Compaction drops every end marker when its time has come."""
    from barnabas.log.compaction.cleaned_transactions import CleanedTransactions

    patch(CleanedTransactions, "_can_discard_marker", lambda self, batch, header: True)


def keep_aborted_records_in_compaction() -> None:
    """Compaction keeps the records of aborted transactions, and drops the proof of the abort."""
    from barnabas.log.compaction.cleaned_transactions import CleanedTransactions

    rewrite(CleanedTransactions, "can_discard", "ongoing.seen = True", "return False")


def forget_producers_when_a_log_dir_changes() -> None:
    """A replica that has moved to another log dir knows neither producers nor open transactions."""
    from barnabas.log.dirs.moves import Moves

    rewrite(
        Moves, "promote", "future.holes.adopt(log.holes)",
        "future.holes.adopt(log.holes); future.producers.reset()",
    )  # fmt: skip


TRANSACTION_MUTANTS: dict[Callable[[], None], tuple[str, ...]] = {
    commit_before_all_partitions_know: ("partition",),
    skip_the_markers_at_a_hand_over: ("coordinator",),
    ignore_the_producer_epoch: (),
    advance_the_last_stable_offset_early: (),
    lose_the_abort_on_recovery: ("kill", "restart"),
    take_a_late_batch_into_a_transaction: (),
    commit_offsets_of_a_fenced_member: (),
    forget_the_time_out: (),
    show_offsets_before_the_commit: (),
    abort_what_was_to_be_committed: (),
    give_a_new_producer_the_same_epoch: ("coordinator",),
    answer_a_commit_before_it_is_written: ("coordinator",),
    forget_aborted_transactions_in_fetch: (),
    drop_offsets_at_the_commit: (),
    keep_the_epoch_in_version_2: (),
    discard_markers_of_records_that_stay: (),
    keep_aborted_records_in_compaction: (),
    forget_producers_when_a_log_dir_changes: (),
}
_OF_VERSION_2 = {keep_the_epoch_in_version_2}
_OF_COMPACTION = {discard_markers_of_records_that_stay, keep_aborted_records_in_compaction}
_OF_LOG_DIRS = {forget_producers_when_a_log_dir_changes}
"""Noticed only where the leader's replica moves while a transaction is open: so there are few
replicas, and they move all the time."""


_MANY_HAND_OVERS: dict[str, Any] = {
    "producers": 4, "copiers": 0, "mean_pause_s": 0.03, "mean_fault_gap_s": 0.8,
}  # fmt: skip
_CHANGES: dict[Callable[[], None], dict[str, Any]] = {
    answer_a_commit_before_it_is_written: _MANY_HAND_OVERS,
    skip_the_markers_at_a_hand_over: _MANY_HAND_OVERS,
    give_a_new_producer_the_same_epoch: _MANY_HAND_OVERS,
    take_a_late_batch_into_a_transaction: {
        "producers": 4, "copiers": 0, "partitions": 4, "mean_pause_s": 0.5, "repeated_share": 0.0,
        "held_share": 0.6,
    },
    commit_offsets_of_a_fenced_member: {
        "producers": 1, "copiers": 4, "partitions": 3, "mean_pause_s": 0.1,
    },
}  # fmt: skip
"""Changes of the plan, where a small cluster has too few of the moments in which a mutant shows:
commits under way when a coordinator is killed, batches that come for the first time after the end
of their transaction, copiers that the group has removed."""


def plan_for(mutant: Callable[[], None]) -> TransactionPlan:
    """A small cluster under the faults that can show the defect."""
    moves = mutant in _OF_LOG_DIRS
    plan = TransactionPlan(
        producers=2,
        copiers=0 if moves or mutant in _OF_COMPACTION else 2,
        partitions=1 if moves else 2,
        duration_s=20.0,
        faults=TRANSACTION_MUTANTS[mutant],
        mean_fault_gap_s=2.5,
        mean_pause_s=0.15,
        repeated_share=0.3,
        levels=(2,) if mutant in _OF_VERSION_2 else (0,),
        chores=("move dir",) if moves else (),
        mean_chore_gap_s=0.08,
        is_compacted=mutant in _OF_COMPACTION,
    )
    return replace(plan, **_CHANGES.get(mutant, {}))


def run(mutant: Callable[[], None], seed: int) -> Result:
    """One run under the faults that can show the defect."""
    return run_transaction_seed(seed, plan=plan_for(mutant))


if __name__ == "__main__":
    sys.exit(run_mutants(TRANSACTION_MUTANTS, run))
