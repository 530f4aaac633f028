"""This broker's replica of a partition, and the role that the controller gave it.

Kafka: `kafka.cluster.Partition`.

A `Partition` is a log and a role. The role is a `Leader`, which takes appends and moves the high
watermark, or a `Follower`, which knows the broker to fetch from. LeaderAndIsr changes the role.
Three epochs fence stale requests:

- the leader epoch grows with every election; requests of clients and followers with
  another one are refused,
- the partition epoch (the version of the state znode) grows with every write of leader or ISR,
- the controller epoch grows with every new controller (checked by the
  `ReplicaManager` for whole requests).

Every member of the ISR has all records below the high watermark. It is the smallest log end offset
of the leader, the followers in the ISR (including those of a proposed ISR, so the set only becomes
stricter while a change is in flight), and the followers that are caught up and will join. It never
falls while a leader leads. With one replica it is the log end offset.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

from barnabas.base.ids import NO_BROKER, NO_LEADER_EPOCH, ZERO_UUID, TopicPartition, Uuid
from barnabas.broker.replication.topic_stats import TopicCounters
from barnabas.log.partition_log import PartitionLog
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = [
    "ALL_IN_SYNC",
    "FetchSessionActivity",
    "Follower",
    "FollowerProgress",
    "Leader",
    "Partition",
    "StateChange",
]

ALL_IN_SYNC = -1
"""acks of a producer that waits for all in-sync replicas."""
_NO_EPOCH = -1


def always_alive(_: int) -> bool:
    """The default check, for which every broker is alive."""
    return True


@dataclass(frozen=True, slots=True)
class StateChange:
    """The state of one partition in LeaderAndIsr."""

    leader: int
    leader_epoch: int
    partition_epoch: int
    controller_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    is_new: bool = False


@dataclass(slots=True)
class FetchSessionActivity:
    """When a follower last fetched in a session, for any partition.

    A fetch session skips partitions that have not changed. A follower that had all of such a
    partition still has all of it at each later fetch that skips it, because an append is a change.
    So this one time holds for all of them.
    """

    last_fetch_ms: int = 0


@dataclass(slots=True)
class FollowerProgress:
    """The progress of one follower, as its leader knows it from fetches."""

    log_start_offset: int = -1
    log_end_offset: int = -1
    last_caught_up_ms: int = 0
    """When it last had all that the leader had, by the fetches that included this
    partition; see `caught_up_ms`."""
    last_fetch_ms: int = 0
    last_fetch_leader_end_offset: int = 0
    broker_epoch: int = -1
    session_activity: FetchSessionActivity | None = None
    """The activity of the fetch session in which its last fetch of this partition reached the
    leader's end."""

    @property
    def caught_up_ms(self) -> int:
        """When it last had all that the leader had at the time of its fetch."""
        session_activity = self.session_activity
        return (
            self.last_caught_up_ms
            if session_activity is None
            else max(self.last_caught_up_ms, session_activity.last_fetch_ms)
        )

    def fetched(
        self,
        offset: int,
        log_start_offset: int,
        leader_end_offset: int,
        now_ms: int,
        session_activity: FetchSessionActivity | None = None,
    ) -> None:
        """Note a fetch from ``offset``: the follower has everything before it."""
        self.last_caught_up_ms = self.caught_up_ms
        if offset >= leader_end_offset:
            self.last_caught_up_ms = max(self.last_caught_up_ms, now_ms)
            self.session_activity = session_activity
        else:
            if offset >= self.last_fetch_leader_end_offset:
                # It now has what the leader had at its previous fetch, so it was caught up then.
                self.last_caught_up_ms = max(self.last_caught_up_ms, self.last_fetch_ms)
            self.session_activity = None
        self.log_start_offset = log_start_offset
        self.log_end_offset = offset
        self.last_fetch_leader_end_offset = leader_end_offset
        self.last_fetch_ms = now_ms

    def begin_epoch(self, *, in_sync: bool, leader_end_offset: int, now_ms: int) -> None:
        """Keep what is known of the follower's log when the same leader has a new epoch.

        Reset the time it was caught up."""
        self.last_caught_up_ms = self.last_fetch_ms = now_ms if in_sync else 0
        self.last_fetch_leader_end_offset = leader_end_offset
        self.session_activity = None

    def is_caught_up(self, leader_end_offset: int, now_ms: int, lag_time_max_ms: int) -> bool:
        return self.log_end_offset == leader_end_offset or now_ms - self.caught_up_ms <= lag_time_max_ms


@dataclass(slots=True)
class Leader:
    """The role of the replica that takes appends."""

    epoch_start_offset: int
    """The log end offset when this broker became leader in the current epoch."""
    isr: frozenset[int]
    """As the controller last confirmed it."""
    pending_isr: frozenset[int] | None = None
    """The proposed set, while AlterPartition is in flight."""
    followers: dict[int, FollowerProgress] = field(default_factory=dict)
    leaving: dict[int, int] = field(default_factory=dict)
    """The log end offsets of members of the ISR that are no replicas any more.

    At the end of a reassignment the controller takes them out of the replicas first and out of the
    ISR in its next write. What commits in between must be in their logs too: a new controller could
    still elect one of them. (Kafka's leader forgets them at once.)"""

    @property
    def maximal_isr(self) -> frozenset[int]:
        """The members of the set and of the proposed set: acknowledgements wait for all of them."""
        return self.isr | self.pending_isr if self.pending_isr else self.isr

    def can_join(self, broker_id: int, high_watermark: int) -> bool:
        """Whether a follower outside the set has all committed records and all
        records from before this epoch."""
        if self.pending_isr is not None or broker_id in self.isr:
            return False
        end = self.followers[broker_id].log_end_offset
        return end >= high_watermark and end >= self.epoch_start_offset

    def shrunk_isr(
        self, log_end_offset: int, now_ms: int, lag_time_max_ms: int, lag_max_messages: int | None = None
    ) -> frozenset[int] | None:
        """The set without the members that lag; None when all may stay (Kafka's maybeShrinkIsr).

        `ReplicaManager.shrink_isrs` calls this every half of replica.lag.time.max.ms,
        `AlterPartitionManager` sends the result to the controller, and `controller.isr_change`
        writes it. So no set changes before the znode does.

        A member also leaves the set without its leader: the controller removes a broker that died
        (`controller.replica_state_machine`) or shuts down (`elect_for_shutdown`), and an election
        for an offline partition keeps live members only, or the unclean leader alone
        (`elect_offline`). A broker that lost records removes itself before it registers
        (`membership.isr_withdrawal`).
        """
        if len(self.isr) < 2 or self.pending_isr is not None:
            return None
        lagging = self.lagging(log_end_offset, now_ms, lag_time_max_ms, lag_max_messages)
        return self.isr - lagging if lagging else None

    def lagging(
        self, log_end_offset: int, now_ms: int, lag_time_max_ms: int, lag_max_messages: int | None = None
    ) -> frozenset[int]:
        """Members of the ISR that have been behind for too long, or by too many records."""
        return frozenset(
            broker_id
            for broker_id, follower in self.followers.items()
            if broker_id in self.isr
            and (
                not follower.is_caught_up(log_end_offset, now_ms, lag_time_max_ms)
                or (lag_max_messages is not None and log_end_offset - follower.log_end_offset > lag_max_messages)
            )
        )

    def committable_offset(
        self, log_end_offset: int, now_ms: int, lag_time_max_ms: int, is_alive: Callable[[int], bool] = always_alive
    ) -> int:
        """The offset up to which every replica that counts has the log."""
        lowest = min((log_end_offset, *self.leaving.values())) if self.leaving else log_end_offset
        if self.followers:
            in_sync = self.maximal_isr
            for broker_id, follower in self.followers.items():
                if follower.log_end_offset < lowest and (
                    broker_id in in_sync
                    or (follower.is_caught_up(log_end_offset, now_ms, lag_time_max_ms) and is_alive(broker_id))
                ):
                    lowest = follower.log_end_offset
        return lowest


@dataclass(slots=True)
class Follower:
    """The role of a replica that copies another broker's log."""

    leader: int


class Partition:
    """A partition of which this broker has a replica."""

    __slots__ = (
        "adding_replicas",
        "broker_id",
        "controller_epoch",
        "counters",
        "leader_epoch",
        "log",
        "partition_epoch",
        "removing_replicas",
        "replicas",
        "role",
        "topic_partition",
    )

    def __init__(
        self, topic_partition: TopicPartition, broker_id: int, log: PartitionLog, counters: TopicCounters | None = None
    ) -> None:
        """``counters`` are those of the topic."""
        self.topic_partition = topic_partition
        self.counters = counters or TopicCounters()
        self.broker_id = broker_id
        self.log = log
        self.role: Leader | Follower | None = None
        """None until the first LeaderAndIsr."""
        self.leader_epoch = NO_LEADER_EPOCH
        self.partition_epoch = _NO_EPOCH
        self.controller_epoch = _NO_EPOCH
        self.replicas: tuple[int, ...] = ()
        self.adding_replicas: tuple[int, ...] = ()
        self.removing_replicas: tuple[int, ...] = ()

    @property
    def topic_id(self) -> Uuid:
        """`ZERO_UUID` while none is known."""
        return self.log.topic_id

    @property
    def offline(self) -> bool:
        """Whether the log dir is offline."""
        return self.log.offline is not None

    @property
    def leader_id(self) -> int:
        match self.role:
            case Leader():
                return self.broker_id
            case Follower(leader):
                return leader
            case _:
                return NO_BROKER

    @property
    def is_leader(self) -> bool:
        return type(self.role) is Leader

    # Changes of role

    def lead(self, change: StateChange, now_ms: int) -> bool:
        """Become or remain the leader. True when this broker did not lead before."""
        if change.partition_epoch < self.partition_epoch:
            return False
        before = self.role
        new_epoch = change.leader_epoch > self.leader_epoch
        self._note(change)
        isr = frozenset(change.isr)
        followers: dict[int, FollowerProgress] = {}
        if isinstance(before, Leader) and not new_epoch:
            before.isr = isr
            before.pending_isr = None
            role = before
        else:
            start_offset = self.log.log_end_offset
            self.log.leader_epochs.begin_unwritten(change.leader_epoch, start_offset)
            role = Leader(start_offset, isr)
        known = before.followers if isinstance(before, Leader) else {}
        left = before.leaving if isinstance(before, Leader) else {}
        for broker_id in change.replicas:
            if broker_id == self.broker_id:
                continue
            progress = known.get(broker_id)
            if progress is None:
                progress = FollowerProgress(last_caught_up_ms=now_ms if broker_id in isr else 0)
            elif new_epoch:
                progress.begin_epoch(in_sync=broker_id in isr, leader_end_offset=self.log.log_end_offset, now_ms=now_ms)
            followers[broker_id] = progress
        role.followers = followers
        role.leaving = {
            broker_id: known[broker_id].log_end_offset
            if broker_id in known
            else left.get(broker_id, self.log.high_watermark)
            for broker_id in isr.difference(change.replicas)
        }
        self.role = role
        return not isinstance(before, Leader)

    def follow(self, change: StateChange) -> bool:
        """Become or remain a follower. True when there is a new leader epoch to fetch in."""
        if change.partition_epoch < self.partition_epoch:
            return False
        new_epoch = change.leader_epoch > self.leader_epoch
        self._note(change)
        self.role = Follower(change.leader)
        return new_epoch

    def _note(self, change: StateChange) -> None:
        self.leader_epoch = change.leader_epoch
        self.partition_epoch = change.partition_epoch
        self.controller_epoch = change.controller_epoch
        self.replicas = change.replicas
        self.adding_replicas = change.adding_replicas
        self.removing_replicas = change.removing_replicas

    # Checks before the log is used

    def check_leader_epoch(self, epoch: int) -> None:
        """Reject requests with a different leader epoch (KIP-320).

        -1 means that the client does not know the epoch."""
        if epoch != NO_LEADER_EPOCH and epoch != self.leader_epoch:
            if epoch < self.leader_epoch:
                raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    def check_topic_id(self, topic_id: Uuid, refusal: ErrorCode = ErrorCode.INCONSISTENT_TOPIC_ID) -> None:
        """Raise ``refusal`` for the id of another topic of this name; `ZERO_UUID` is none."""
        if topic_id != ZERO_UUID and self.log.topic_id not in (ZERO_UUID, topic_id):
            raise KafkaError(refusal)

    def check_follower(self, replica_id: int, leader_epoch: int) -> bool:
        """Raise `KafkaError` unless this broker leads and the replica is one, in this leader epoch.

        Returns whether it is in the ISR."""
        self.check_leader_epoch(leader_epoch)
        role = self.leading()
        if replica_id not in role.followers:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER if leader_epoch == NO_LEADER_EPOCH else ErrorCode.UNKNOWN_LEADER_EPOCH,
                f"Replica {replica_id} is not recognized as a valid replica of {self.topic_partition} in leader epoch "
                f"{self.leader_epoch}",
            )
        return replica_id in role.isr

    def leading(self) -> Leader:
        """The leader's role; raises NOT_LEADER_OR_FOLLOWER where another broker leads."""
        role = self.role
        if type(role) is not Leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, self.not_leader_text())
        return role

    def readable_log(self, leader_epoch: int, *, only_leader: bool) -> PartitionLog:
        """The log, for a reader that knows ``leader_epoch`` (-1: none)."""
        self.check_leader_epoch(leader_epoch)
        if only_leader and not self.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, self.not_leader_text())
        return self.log

    def not_leader_text(self) -> str:
        return f"Leader not local for partition {self.topic_partition} on broker {self.broker_id}"

    # What acks=all asks of the in-sync set

    def check_append(self, acks: int) -> None:
        """Whether this replica takes appends now. Raises `KafkaError`.

        NOT_LEADER_OR_FOLLOWER; NOT_ENOUGH_REPLICAS for acks -1 and an in-sync set below
        min.insync.replicas. In Kafka: `Partition.appendRecordsToLeader`.
        """
        role = self.role
        if type(role) is not Leader:
            role = self.leading()  # raises
        if acks == ALL_IN_SYNC and self.is_under_min_isr(role):
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"The size of the current ISR {sorted(role.isr)} is insufficient to satisfy the min.isr requirement of "
                f"{self.log.config.min_insync_replicas} for partition {self.topic_partition}",
            )

    def acknowledgement(self, last_offset: int, acks: int) -> ErrorCode | None:
        """NONE when records up to an offset may be acknowledged, None while that must wait,
        else why they never will be.

        acks -1 waits until all in-sync replicas have them, -1 and 1 for this broker's own disk
        where the topic's settings ask for a sync. In Kafka:
        `Partition.checkEnoughReplicasReachOffset`.
        """
        role, log = self.role, self.log
        if log.offline is not None:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if type(role) is not Leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        if log.awaits_sync(last_offset):
            return None
        if acks != ALL_IN_SYNC:
            return ErrorCode.NONE
        if log.high_watermark <= last_offset:
            return None
        return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND if self.is_under_min_isr(role) else ErrorCode.NONE

    def is_under_min_isr(self, role: Leader) -> bool:
        """Whether the in-sync set is smaller than min.insync.replicas, or than all replicas if
        there are fewer of them."""
        return self.above_min_isr(role) < 0

    def above_min_isr(self, role: Leader) -> int:
        """How many members may leave the in-sync set before it is too small; below 0 if it is."""
        return len(role.isr) - min(self.log.config.min_insync_replicas, len(role.followers) + 1)

    # The high watermark

    def advance_high_watermark(
        self, now_ms: int, lag_time_max_ms: int, is_alive: Callable[[int], bool] = always_alive
    ) -> bool:
        """Raise the high watermark as far as the in-sync replicas allow; True when it moved.

        Leaders only."""
        role = self.role
        if type(role) is not Leader:
            return False
        log = self.log
        bounds = log.bounds
        end = bounds.log_end_offset
        if role.followers or role.leaving:
            if self.is_under_min_isr(role):
                return False
            end = role.committable_offset(end, now_ms, lag_time_max_ms, is_alive)
        if log.config.flush_before_ack:
            # Records that must survive a power failure count only when they are on
            # stable storage here, too.
            end = min(end, log.durability.durable_offset)
        if end <= bounds.high_watermark:
            return False
        log.update_high_watermark(end)
        return True

    def all_in_sync_have(self, end_offset: int) -> bool:
        """Whether all in-sync replicas have all records below an offset, so that the
        next leader has them, too.

        The high watermark says less: it stays where it is below min.insync.replicas. False
        where another broker leads.
        """
        role, log = self.role, self.log
        if type(role) is not Leader:
            return False
        if log.high_watermark >= end_offset:
            return True
        if log.config.flush_before_ack and log.durability.durable_offset < end_offset:
            return False
        in_sync = role.maximal_isr
        return all(end >= end_offset for end in role.leaving.values()) and all(
            follower.log_end_offset >= end_offset
            for broker_id, follower in role.followers.items()
            if broker_id in in_sync
        )

    def low_watermark(self, alive: frozenset[int] | set[int]) -> int:
        """The smallest log start offset of the live replicas, which DeleteRecords waits for.

        Leaders only."""
        role = self.leading()
        lowest = self.log.log_start_offset
        for broker_id, follower in role.followers.items():
            if broker_id in alive:
                lowest = min(lowest, follower.log_start_offset)
        return lowest

    def __repr__(self) -> str:
        return f"Partition({self.topic_partition}, {self.role!r}, leader_epoch={self.leader_epoch})"
