"""Defects of replication, each of which the simulation must notice; `mutants` runs them.

The docstring says what is wrong; the faults beside it (in `REPLICATION_MUTANTS`) are
those that can show it.
"""

from collections.abc import Callable

from mutation import patch, rewrite


def acknowledge_before_the_isr_has_it() -> None:
    """acks=all is answered when the leader alone has the record."""
    from barnabas.broker.replication.partition import Partition

    rewrite(Partition, "acknowledgement", "log.high_watermark <= last_offset", "False")


def acknowledge_without_waiting() -> None:
    """What was appended is acknowledged at once, although its partition says that it must wait."""
    from barnabas.broker.replication.delayed_produce import DelayedProduce

    old = "code = self._acknowledgement(topic_partition, last_offset, acks)"
    rewrite(DelayedProduce, "add", old, "code = ErrorCode.NONE")


def acknowledge_several_partitions_with_the_first() -> None:
    """A request for several partitions is answered when the in-sync replicas have what
    it brought to one of them."""
    from barnabas.broker.replication.delayed_produce import DelayedProduce

    rewrite(
        DelayedProduce, "add_request", "if appended.error is None and", "if not number and appended.error is None and"
    )


def acknowledge_what_a_lost_leadership_left() -> None:
    """Who waits for the commit hears of success when another broker became leader."""
    from barnabas.broker.replication.partition import Partition

    old = "return ErrorCode.NOT_LEADER_OR_FOLLOWER"
    rewrite(Partition, "acknowledgement", old, old.replace("NOT_LEADER_OR_FOLLOWER", "NONE"))


def advance_the_watermark_early() -> None:
    """The high watermark is the leader's own end."""
    from barnabas.broker.replication.partition import Leader

    patch(Leader, "committable_offset", lambda self, log_end_offset, *_: log_end_offset)


def take_what_is_sent_for_received() -> None:
    """A follower counts as having what the answer to its fetch will bring."""
    from barnabas.broker.replication.partition import FollowerProgress

    rewrite(FollowerProgress, "fetched", "self.log_end_offset = offset", "self.log_end_offset = leader_end_offset")


def forget_the_set_asked_for() -> None:
    """While an in-sync set is asked for, only its members are waited for: the znode
    still has the old ones."""
    from barnabas.broker.replication.partition import Leader

    rewrite(
        Leader, "maximal_isr", "return self.isr | self.pending_isr if self.pending_isr else self.isr",
        "return self.pending_isr or self.isr",
    )  # fmt: skip


def drop_from_the_isr_without_the_znode() -> None:
    """A follower that lags leaves the set in the leader's memory alone."""
    from barnabas.broker.replication.replica_manager import ReplicaManager

    rewrite(
        ReplicaManager, "shrink_isrs", "self.alter_partition.submit(partition, isr)",
        "role.isr = isr; self._advance(partition, now_ms)",
    )  # fmt: skip


def join_the_isr_without_catching_up() -> None:
    """Any follower that fetches is asked into the set, and is not waited for."""
    from barnabas.broker.replication.partition import Leader

    rewrite(Leader, "can_join", "return end >= high_watermark and end >= self.epoch_start_offset", "return True")


def truncate_to_the_watermark() -> None:
    """A follower of a new leader goes back to its own high watermark, as before KIP-101."""
    from barnabas.broker.replication.fetcher import Fetcher

    rewrite(
        Fetcher, "follow", "if log.leader_epochs.latest_epoch < 0 and log.log_end_offset > log.high_watermark:",
        "if log.log_end_offset > log.high_watermark:",
    )  # fmt: skip


def append_without_truncation() -> None:
    """The leader does not say where a follower's log left its own, and the follower
    goes on behind it."""
    from barnabas.broker.replication import reads

    patch(reads, "_divergence", lambda *_: None)


def ignore_the_leader_epoch_of_a_fetch() -> None:
    """Requests of followers and clients of another epoch are served."""
    from barnabas.broker.replication.partition import Partition

    patch(Partition, "check_leader_epoch", lambda *_: None)


def ignore_the_leader_epoch_of_leader_and_isr() -> None:
    """A role of an earlier leader epoch is taken all the same."""
    from barnabas.broker.replication.partition import Partition
    from barnabas.broker.replication.replica_manager import ReplicaManager

    rewrite(
        ReplicaManager, "_check_change", "if change.leader_epoch > partition.leader_epoch:\n        return None",
        "return None",
    )  # fmt: skip
    for name in ("lead", "follow"):
        rewrite(Partition, name, "if change.partition_epoch < self.partition_epoch:", "if False:")


def forget_to_fence_by_the_broker_epoch() -> None:
    """What was meant for an earlier life of a broker counts."""
    from barnabas.broker.apis.control_requests import ControlRequests

    rewrite(
        ControlRequests,
        "check_epochs",
        "broker_epoch != _NO_EPOCH and broker_epoch < self._broker_epoch()",
        "False",
    )


def elect_from_outside_the_isr() -> None:
    """Any live replica may lead."""
    from barnabas.broker.controller import elections

    rewrite(
        elections, "elect_offline",
        "if replica in live and replica in current.isr:\n            return current.with_leader(replica, "
        "[member for member in current.isr if member in live])",
        "if replica in live and replica != current.leader:\n            return current.with_leader(replica, "
        "[member for member in {replica, *current.isr} if member in live])",
    )  # fmt: skip


def keep_the_leader_epoch_at_an_election() -> None:
    """A new leader goes on in the epoch of the last one."""
    from barnabas.broker.cluster.znodes import LeaderAndIsr

    rewrite(LeaderAndIsr, "with_leader", "leader_epoch=self.leader_epoch + 1", "leader_epoch=self.leader_epoch")


def take_every_epoch_for_the_last() -> None:
    """Asked where an epoch ended, a leader says: at the end of the log."""
    from barnabas.log.leader_epochs import EpochEndOffset, LeaderEpochs

    patch(LeaderEpochs, "end_offset_for", lambda self, epoch, log_end_offset: EpochEndOffset(epoch, log_end_offset))


def lead_with_lost_records() -> None:
    """A broker whose logs have lost records registers as if they had not."""
    from barnabas.log.dirs.log_dirs import LogDirs

    patch(LogDirs, "lost_data", lambda self: {})


def take_damage_for_a_torn_batch() -> None:
    """Recovery cuts a damaged batch off, and thinks that a crash has left it."""
    from barnabas.log.segment import damage

    patch(damage, "damaged_upto", lambda *_: None)


_LEADERS_FAIL = ("leader", "kill", "partition")

REPLICATION_MUTANTS: dict[Callable[[], None], tuple[str, ...]] = {
    acknowledge_before_the_isr_has_it: _LEADERS_FAIL,
    acknowledge_without_waiting: _LEADERS_FAIL,
    acknowledge_several_partitions_with_the_first: _LEADERS_FAIL,
    acknowledge_what_a_lost_leadership_left: ("partition", "split"),
    advance_the_watermark_early: (),
    take_what_is_sent_for_received: _LEADERS_FAIL,
    forget_the_set_asked_for: ("partition", "split", "controller"),
    drop_from_the_isr_without_the_znode: ("pause", "partition"),
    join_the_isr_without_catching_up: ("kill", "split"),
    truncate_to_the_watermark: ("two leaders",),
    append_without_truncation: ("leader", "partition", "split"),
    ignore_the_leader_epoch_of_a_fetch: ("stale orders", "leader", "partition"),
    ignore_the_leader_epoch_of_leader_and_isr: ("stale orders", "leader"),
    forget_to_fence_by_the_broker_epoch: ("stale orders", "kill"),
    elect_from_outside_the_isr: ("split", "partition", "leader"),
    keep_the_leader_epoch_at_an_election: ("leader",),
    take_every_epoch_for_the_last: ("leader", "partition", "split"),
    lead_with_lost_records: ("damage",),
    take_damage_for_a_torn_batch: ("damage",),
}
