"""Mutants: defects put into the production code, each of which the simulation must notice.

``python tests/simulation/mutants.py [NAME ...]`` (``make mutants``) runs each mutant on a few
seeds whose faults can show it, and fails if one survives. A mutant patches the code in memory,
for one process; where the code is not as it expects, `mutation` fails. Those of replication are
in `replication_mutants`.
"""

import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from mutation import patch, rewrite, run_mutants
from replication_mutants import REPLICATION_MUTANTS, acknowledge_several_partitions_with_the_first

from simulation.scenarios.plan import RunPlan, TopicPlan
from simulation.scenarios.producers import ProducerKind
from simulation.scenarios.runs import Result
from simulation.scenarios.scenario import run_seed


def skip_the_fsync() -> None:
    """The coordination server acknowledges what is only in the page cache."""
    from barnabas.coordination.storage.transaction_log import TransactionLog

    original = TransactionLog.append

    def append(self: TransactionLog, first_zxid: int, entries: list[bytes]) -> None:
        self._sync = False
        original(self, first_zxid, entries)

    patch(TransactionLog, "append", append)


def answer_before_the_log() -> None:
    """The coordination server acknowledges while the thread has not written yet."""
    from barnabas.coordination.core.processor import Processor
    from barnabas.coordination.server.sync_request_processor import SyncRequestProcessor

    def write(self: SyncRequestProcessor) -> None:
        self._is_planned = False
        processor = self.source
        assert isinstance(processor, Processor)
        while processor.unlogged:
            first_zxid = processor.first_unlogged_zxid
            entries, processor.unlogged = processor.unlogged, []
            self._beside(partial(self._append, first_zxid, entries, False), lambda _: None)
            processor.commit(len(entries), self._now_ms())

    patch(SyncRequestProcessor, "write", write)


def retry_a_failed_fsync() -> None:
    """The coordination server believes the second fsync."""
    from barnabas.testing.simulation.disk import _SimulatedFile  # where every production sync ends

    original = _SimulatedFile.sync

    def sync(self: _SimulatedFile) -> None:
        try:
            original(self)
        except OSError:
            original(self)

    patch(_SimulatedFile, "sync", sync)


def leave_directories_unsynced() -> None:
    """New data directories are not made durable."""
    from barnabas.coordination.storage import storage

    patch(storage, "make_dirs_durably", lambda files, path: files.make_dirs(path))


def number_nodes_by_children() -> None:
    """Sequential nodes are numbered by the children there are, so numbers come again."""
    from barnabas.coordination.core.znode import DataNode

    class Counting(int):
        """A cversion that prints as the number of children."""

        children = 0

        def __format__(self, spec: str) -> str:
            return format(self.children, spec)

    plain = DataNode.__dict__["cversion"]

    def get(self: DataNode) -> int:
        found = Counting(plain.__get__(self))
        found.children = self.num_children
        return found

    patch(DataNode, "cversion", property(get, lambda self, value: plain.__set__(self, int(value))))


def forget_watches() -> None:
    """Watches never fire."""
    from barnabas.coordination.core.watches import Watches

    patch(Watches, "fire", lambda self, events: (0, 0))


def never_expire_sessions() -> None:
    """A session lives for ever, and its ephemerals with it."""
    from barnabas.coordination.core.sessions import SessionTracker

    patch(SessionTracker, "expire", lambda self, now_ms: [])


def forget_producers() -> None:
    """Producer state is not brought back at a restart, so a batch sent again is stored again."""
    from barnabas.log import recovery

    patch(recovery, "load_producers", lambda *_args, **_options: False)


def store_duplicates() -> None:
    """A batch that is sent again is taken for a new one."""
    from barnabas.log.producer_state import ProducerState

    patch(ProducerState, "check", lambda self, *_args, **_options: None)


def keep_the_torn_tail() -> None:
    """After a crash the log is taken as it is."""
    from barnabas.log import recovery

    def recover_log(inspection, segments, _epochs, checkpointed, _config):
        inspection.remove_strays()
        return (inspection.extents[-1].next_offset if segments else checkpointed.log_start_offset), False

    patch(recovery, "recover_log", recover_log)


def obey_a_stale_controller() -> None:
    """A broker listens to a controller of an earlier epoch."""
    from barnabas.broker.replication.replica_manager import ReplicaManager

    def accept(self: ReplicaManager, epoch: int) -> bool:
        self.controller_epoch = epoch
        return True

    patch(ReplicaManager, "accept_controller_epoch", accept)


def forget_commits() -> None:
    """Groups are not read from their partition after a restart."""
    from barnabas.broker.groups.loading import Loader

    patch(Loader, "_add_batch", lambda self, *_args: None)


def begin_a_generation_again() -> None:
    """A coordinator that reads a group from its log gives the last generation's
    number once more."""
    from barnabas.broker.groups.group import Group

    rewrite(Group, "load", "self.generation_id = value.generation", "self.generation_id = value.generation - 1")


SINGLE_REPLICA_MUTANTS: dict[Callable[[], None], tuple[str, ...]] = {
    skip_the_fsync: ("power",),
    answer_before_the_log: ("power", "kill"),
    retry_a_failed_fsync: ("failed sync",),
    leave_directories_unsynced: ("power",),
    number_nodes_by_children: (),
    forget_watches: (),
    never_expire_sessions: ("kill",),
    forget_producers: ("kill", "loss"),
    store_duplicates: ("loss",),
    keep_the_torn_tail: ("power",),
    obey_a_stale_controller: ("zombie controller",),
    forget_commits: ("kill",),
}

GROUP_MUTANTS: dict[Callable[[], None], tuple[str, ...]] = {
    begin_a_generation_again: ("restart",),
}
"""With several members, on replicas."""
_OF_GROUPS: dict[str, Any] = {
    "topics": {"topic0": TopicPlan(6)},
    "producers": (ProducerKind(),),
    "members": 4,
    "mean_stay_s": 3.0,
    "duration_s": 40.0,
    "mean_fault_gap_s": 3.5,
    "mean_produce_pause_s": 0.3,
}
"""Members come and go, and the coordinator moves at times: between two moves there must be new
generations, with other owners."""

MUTANTS = SINGLE_REPLICA_MUTANTS | REPLICATION_MUTANTS | GROUP_MUTANTS


def plan_for(mutant: Callable[[], None]) -> RunPlan:
    """A small cluster under the faults that can show the defect."""
    replicated = mutant not in SINGLE_REPLICA_MUTANTS
    joins = mutant is acknowledge_several_partitions_with_the_first
    plan = RunPlan(
        brokers=3 if replicated else 2,
        topics={"topic0": TopicPlan(6 if joins else 2)},
        producers=(
            ProducerKind(joins_partitions=joins),
            *((ProducerKind(1, is_idempotent=False),) if replicated else ()),
        ),
        users=0 if replicated else 2,
        members=1,
        duration_s=25.0,
        faults=MUTANTS[mutant],
        mean_fault_gap_s=1.5,
        replication=3 if replicated else 1,
        mean_produce_pause_s=0.06,
    )
    return replace(plan, **_OF_GROUPS) if mutant in GROUP_MUTANTS else plan


def run(mutant: Callable[[], None], seed: int) -> Result:
    """One run under the faults that can show the defect."""
    return run_seed(seed, plan=plan_for(mutant))


if __name__ == "__main__":
    sys.exit(run_mutants(MUTANTS, run))
