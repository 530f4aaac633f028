"""All replicas of a broker: role changes from the controller, appends, reads, and waiting for the commit.

The `ReplicaManager` decides and touches logs; it knows no connection and no clock. Whoever waits for a partition parks
under its `TopicPartition` in the `Purgatory`; every append, move of a watermark and change of role is noted there, so waits
end by events, never by polling.
"""

import logging
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field

from barnabas.base.ids import NO_LEADER_EPOCH, ZERO_UUID, TopicPartition, Uuid
from barnabas.broker.replication.alter_partition_manager import AlterPartitionManager
from barnabas.broker.replication.partition import Leader, Partition, Presence, StateChange, anyone
from barnabas.broker.replication.reads import Isolation, ReadResult, read_log
from barnabas.broker.requests.purgatory import DelayedOperation, Purgatory
from barnabas.log.dirs.log_dirs import LogDirs
from barnabas.log.partition_log import AppendInfo, Origin, PartitionLog
from barnabas.log.settings import LogConfig
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.alter_partition import AlterPartitionResponse

__all__ = ["AppendInfo", "LeadershipOutcome", "ReplicaManager"]

logger = logging.getLogger(__name__)

LeadershipCallback = Callable[[Sequence[Partition], Sequence[Partition]], None]


@dataclass(slots=True)
class LeadershipOutcome:
    """What one request of the controller changed here."""

    gained: list[Partition] = field(default_factory=list)
    lost: list[Partition] = field(default_factory=list)
    following: list[Partition] = field(default_factory=list)
    """Followers that must fetch in a new epoch."""
    stopped: list[TopicPartition] = field(default_factory=list)
    """Partitions that this broker is to serve and to copy no longer."""


class ReplicaManager:
    """The partitions of one broker."""

    def __init__(
        self,
        broker_id: int,
        log_dirs: LogDirs,
        purgatory: Purgatory,
        *,
        log_config: Callable[[str], LogConfig],
        is_known: Callable[[TopicPartition], bool],
        lag_time_max_ms: int,
        lag_max_messages: int | None = None,
        is_alive: Callable[[int], bool] = anyone,
        alter_partition: AlterPartitionManager | None = None,
        sync: Callable[[PartitionLog], None] = PartitionLog.flush,
    ) -> None:
        """``log_config`` gives a topic's log configuration, asked for when a replica's log is made; ``is_known`` whether
        the metadata has a partition, ``is_alive`` whether it has a broker. ``alter_partition`` takes the in-sync sets that
        we ask for. ``sync`` has a log brought to stable storage, now or soon; `synced` is called when that is done."""
        self.broker_id = broker_id
        self.controller_epoch = -1
        self._log_dirs = log_dirs
        self._purgatory = purgatory
        self._log_config = log_config
        self._is_known = is_known
        self._lag_time_max_ms = lag_time_max_ms
        self._lag_max_messages = lag_max_messages
        self._partitions: dict[TopicPartition, Partition] = {}
        self._on_leadership: list[LeadershipCallback] = []
        self._on_roles: list[Callable[[LeadershipOutcome], None]] = []
        self._is_alive = is_alive
        self._sync = sync
        self.alter_partition = alter_partition or AlterPartitionManager(broker_id)

    # Looking up

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._partitions.values())

    def __len__(self) -> int:
        return len(self._partitions)

    def get(self, name: TopicPartition) -> Partition | None:
        return self._partitions.get(name)

    def partition(self, name: TopicPartition) -> Partition:
        """Our replica; raises `KafkaError`.

        NOT_LEADER_OR_FOLLOWER when others have it, UNKNOWN_TOPIC_OR_PARTITION when nobody does, KAFKA_STORAGE_ERROR
        when its log dir is lost.
        """
        found = self._partitions.get(name)
        if found is None:
            if self._is_known(name):
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if found.offline:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"Partition {name} is in an offline log directory")
        return found

    def on_leadership(self, callback: LeadershipCallback) -> None:
        """Have ``callback(gained, lost)`` called after each request of the controller that changed who leads."""
        self._on_leadership.append(callback)

    def on_roles(self, callback: Callable[["LeadershipOutcome"], None]) -> None:
        """Have ``callback`` called with the outcome of each request of the controller."""
        self._on_roles.append(callback)

    def configure(self, topic: str, config: LogConfig) -> None:
        """A topic's configuration changed."""
        for partition in self._partitions.values():
            if partition.name.topic == topic:
                partition.log.configure(config)

    # Appending

    def append(
        self,
        name: TopicPartition,
        records: memoryview | bytes | bytearray,
        *,
        acks: int,
        now_ms: int,
        origin: int = Origin.CLIENT,
    ) -> AppendInfo:
        """Append batches to a partition that we lead. ``now_ms`` is wall time (for LogAppendTime).

        Raises `KafkaError`: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS (acks -1 and an ISR
        below min.insync.replicas), KAFKA_STORAGE_ERROR, and what the log finds wrong with the batches.
        """
        partition = self._partitions.get(name)
        if partition is None or partition.offline:
            partition = self.partition(name)
        role = partition.leading()
        log = partition.log
        if acks == -1 and len(role.isr) < min(log.config.min_insync_replicas, len(role.followers) + 1):
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"The size of the current ISR {sorted(role.isr)} is insufficient to satisfy the min.isr requirement of "
                f"{log.config.min_insync_replicas} for partition {name}",
            )
        info: AppendInfo = log.append_as_leader(
            records, leader_epoch=partition.leader_epoch, now_ms=now_ms, origin=origin
        )
        if log.awaits_sync(info.last_offset):
            self._sync(log)
        self._advance(partition, now_ms)
        self._purgatory.check_and_complete(name)
        return info

    def commit_error(self, name: TopicPartition, last_offset: int) -> ErrorCode | None:
        """None while ``last_offset`` is not committed yet; NONE when it is; else why it will not be from here."""
        partition = self._partitions.get(name)
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        role = partition.role
        if partition.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if type(role) is not Leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        log = partition.log
        if log.high_watermark <= last_offset or log.awaits_sync(last_offset):
            return None
        if len(role.isr) < min(log.config.min_insync_replicas, len(role.followers) + 1):
            return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
        return ErrorCode.NONE

    def awaits_sync(self, name: TopicPartition, last_offset: int) -> bool:
        """Whether an append of ours must not be answered before a sync, whatever its acks."""
        partition = self._partitions.get(name)
        return partition is not None and partition.log.awaits_sync(last_offset)

    def sync_error(self, name: TopicPartition, last_offset: int) -> ErrorCode | None:
        """As `commit_error`, for those who wait for our own disk alone (acks 1)."""
        partition = self._partitions.get(name)
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if partition.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if type(partition.role) is not Leader:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        return None if partition.log.awaits_sync(last_offset) else ErrorCode.NONE

    def synced(self, log: PartitionLog, now_ms: int) -> None:
        """A log's ``durable_offset`` has moved: the high watermark may follow, and those who wait may be answered."""
        partition = self._partitions.get(log.topic_partition)
        if partition is not None and partition.log is log:
            self._advance(partition, now_ms)
            self._purgatory.check_and_complete(partition.name)

    def log_replaced(self, log: PartitionLog, now_ms: int) -> None:
        """A replica has moved to another log dir: this is its log now."""
        partition = self._partitions[log.topic_partition]
        partition.log = log
        self._sync_role(partition)
        self._advance(partition, now_ms)
        self._purgatory.check_and_complete(partition.name)

    def lose_offline(self) -> LeadershipOutcome:
        """Give up the roles of replicas whose log dir is lost; tell others with `announce`."""
        outcome = LeadershipOutcome()
        for partition in self._partitions.values():
            if partition.offline and partition.role is not None:
                if partition.is_leader:
                    outcome.lost.append(partition)
                partition.role = None
                outcome.stopped.append(partition.name)
                self._purgatory.check_and_complete(partition.name)
        return outcome

    def wait_for_commit(
        self, name: TopicPartition, last_offset: int, callback: Callable[[ErrorCode], None], *, timeout_ms: int
    ) -> DelayedOperation | None:
        """Call ``callback`` once all in-sync replicas have ``last_offset``: with NONE, or with what came between.

        That is REQUEST_TIMED_OUT, NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS_AFTER_APPEND or a lost log dir. What is
        known already is told before this returns (None is returned then).
        """
        error = self.commit_error(name, last_offset)
        if error is not None:
            callback(error)
            return None

        def attempt(_: Hashable) -> bool:
            found = self.commit_error(name, last_offset)
            if found is None:
                return False
            callback(found)
            return True

        return self._purgatory.watch((name,), attempt, lambda: callback(ErrorCode.REQUEST_TIMED_OUT), timeout_ms)

    # Reading

    def read(
        self,
        name: TopicPartition,
        offset: int,
        max_bytes: int,
        *,
        isolation: Isolation,
        min_one_batch: bool,
        only_leader: bool = True,
        leader_epoch: int = NO_LEADER_EPOCH,
        last_fetched_epoch: int = NO_LEADER_EPOCH,
        topic_id: Uuid = ZERO_UUID,
    ) -> ReadResult:
        """Batches from ``offset`` on, at most ``max_bytes`` of them (but one whole batch with ``min_one_batch``).

        Raises `KafkaError`: UNKNOWN_TOPIC_OR_PARTITION, INCONSISTENT_TOPIC_ID, NOT_LEADER_OR_FOLLOWER,
        FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, OFFSET_OUT_OF_RANGE, KAFKA_STORAGE_ERROR.
        """
        partition = self.partition(name)
        partition.check_topic_id(topic_id)
        log = partition.readable_log(leader_epoch, only_leader=only_leader)
        return read_log(log, offset, max_bytes, isolation, last_fetched_epoch, min_one_batch=min_one_batch)

    def follower_fetched(
        self,
        name: TopicPartition,
        replica_id: int,
        offset: int,
        log_start_offset: int,
        now_ms: int,
        broker_epoch: int = -1,
        presence: Presence | None = None,
    ) -> None:
        """Note how far a follower has come, and raise the high watermark if that allows it.

        ``presence`` is that of the fetch session in which it fetched.
        """
        partition = self._partitions.get(name)
        if partition is None or type(partition.role) is not Leader:
            return
        follower = partition.role.followers.get(replica_id)
        if follower is None:
            return
        log = partition.log
        news = follower.log_start_offset != log_start_offset
        follower.broker_epoch = broker_epoch
        follower.fetched(offset, log_start_offset, log.log_end_offset, now_ms, presence)
        role = partition.role
        if role.can_join(replica_id, log.high_watermark) and self._is_alive(replica_id):
            self.alter_partition.submit(partition, role.isr | {replica_id})
        if self._advance(partition, now_ms) or news:
            self._purgatory.check_and_complete(name)

    def follower_left(self, name: TopicPartition, replica_id: int, presence: Presence) -> None:
        """A follower does not fetch a partition any more in the session of this ``presence``, though others perhaps."""
        partition = self._partitions.get(name)
        if partition is not None and type(partition.role) is Leader:
            follower = partition.role.followers.get(replica_id)
            if follower is not None and follower.presence is presence:
                follower.last_caught_up_ms = follower.caught_up_ms
                follower.presence = None

    def _advance(self, partition: Partition, now_ms: int) -> bool:
        return partition.advance_high_watermark(now_ms, self._lag_time_max_ms, self._is_alive)

    def shrink_isrs(self, now_ms: int) -> None:
        """Ask to leave out followers that were not caught up for replica.lag.time.max.ms; call it every half of that.

        One that is not in the set, but was as good as in it until it went silent, holds the high watermark up no longer.
        """
        for partition in self._partitions.values():
            role = partition.role
            if type(role) is not Leader or not role.followers or partition.offline:
                continue
            log = partition.log
            if log.high_watermark < log.log_end_offset and self._advance(partition, now_ms):
                self._purgatory.check_and_complete(partition.name)
            if len(role.isr) > 1 and role.pending_isr is None:
                lagging = role.lagging(log.log_end_offset, now_ms, self._lag_time_max_ms, self._lag_max_messages)
                if lagging:
                    logger.info(
                        "Shrinking ISR of %s from %s to %s",
                        partition.name,
                        sorted(role.isr),
                        sorted(role.isr - lagging),
                    )
                    self.alter_partition.submit(partition, role.isr - lagging)

    def isr_answered(self, response: AlterPartitionResponse, version: int, now_ms: int) -> bool:
        """The controller answered what `alter_partition` asked; False when it must be asked again after a pause."""
        settled = self.alter_partition.answered(response, version)
        if settled is None:
            return False
        for partition in settled:
            self._advance(partition, now_ms)
            self._purgatory.check_and_complete(partition.name)
        return not self.alter_partition.must_pause

    def delete_records(self, name: TopicPartition, offset: int) -> int:
        """Let a partition begin at ``offset`` (-1: the high watermark); the offset that was meant.

        Raises `KafkaError`: NOT_LEADER_OR_FOLLOWER, POLICY_VIOLATION for topics that are compacted only,
        OFFSET_OUT_OF_RANGE.
        """
        partition = self.partition(name)
        partition.leading()
        log = partition.log
        if not log.config.cleanup_delete:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"Records of partition {name} can not be deleted due to the configured policy",
            )
        wanted: int = log.high_watermark if offset == -1 else offset
        if not 0 <= wanted <= log.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Cannot delete before offset {wanted} of partition {name}, which ends at {log.high_watermark}",
            )
        log.delete_records_before(wanted)
        self._purgatory.check_and_complete(name)
        return wanted

    # What the controller says

    def accept_controller_epoch(self, epoch: int) -> bool:
        """Whether a request of a controller of this epoch may be followed; it may if we know no later one."""
        if epoch < self.controller_epoch:
            return False
        self.controller_epoch = epoch
        return True

    def change_state(
        self, name: TopicPartition, topic_id: Uuid, change: StateChange, now_ms: int, outcome: LeadershipOutcome
    ) -> ErrorCode:
        """Do what LeaderAndIsr says about one partition; what changed is added to ``outcome``."""
        partition = self._partitions.get(name)
        if partition is not None:
            error = self._check_change(partition, topic_id, change)
            if error is not None:
                return error
        if self.broker_id not in change.replicas:
            logger.warning("Partition %s is not meant for this broker but for %s", name, list(change.replicas))
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        try:
            if partition is None:
                config = self._log_config(name.topic)
                log = self._log_dirs.get_or_create(name, topic_id, config, now_ms, is_new=change.is_new)
                partition = self._partitions[name] = Partition(name, self.broker_id, log)
            self._change_role(partition, change, now_ms, outcome)
        except KafkaError as failure:
            logger.error("Partition %s cannot take its role: %s", name, failure)
            return failure.code
        self._purgatory.check_and_complete(name)
        return ErrorCode.NONE

    def _check_change(self, partition: Partition, topic_id: Uuid, change: StateChange) -> ErrorCode | None:
        """The answer when there is nothing to change, or nothing that may be."""
        if partition.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if topic_id != ZERO_UUID and partition.topic_id not in (ZERO_UUID, topic_id):
            logger.error("The log of %s belongs to another topic of this name than the one received", partition.name)
            return ErrorCode.INCONSISTENT_TOPIC_ID
        if change.leader_epoch > partition.leader_epoch:
            return None
        if change.leader_epoch == partition.leader_epoch and partition.topic_id == ZERO_UUID != topic_id:
            partition.log.assign_topic_id(topic_id)
            return ErrorCode.NONE
        return ErrorCode.STALE_CONTROLLER_EPOCH

    def _change_role(self, partition: Partition, change: StateChange, now_ms: int, outcome: LeadershipOutcome) -> None:
        led = partition.is_leader
        if change.leader == self.broker_id:
            if partition.lead(change, now_ms):
                outcome.gained.append(partition)
            _accept_loss(partition)
            self._sync_role(partition)
            self._advance(partition, now_ms)
        elif partition.follow(change):
            outcome.following.append(partition)
            if led:
                outcome.lost.append(partition)

    def _sync_role(self, partition: Partition) -> None:
        """What a leader has from before counts once it is synced."""
        log = partition.log
        if partition.is_leader and log.config.flush_before_ack and log.durable_offset < log.log_end_offset:
            self._sync(log)

    def stop(
        self, name: TopicPartition, leader_epoch: int, now_ms: int, *, delete: bool, outcome: LeadershipOutcome
    ) -> ErrorCode:
        """Do what StopReplica says about one partition: stop serving it, or delete it.

        A leader epoch of -1 (old versions) or -2 (the topic is being deleted) passes any check.
        """
        partition = self._partitions.get(name)
        if partition is not None:
            if partition.offline:
                return ErrorCode.KAFKA_STORAGE_ERROR
            if leader_epoch not in (-1, -2) and leader_epoch < partition.leader_epoch:
                return ErrorCode.FENCED_LEADER_EPOCH
            if partition.is_leader and (delete or leader_epoch > 0):
                outcome.lost.append(partition)
        if delete:
            self._partitions.pop(name, None)
            outcome.stopped.append(name)
            try:
                self._log_dirs.delete(name, now_ms)
            except KafkaError as error:
                logger.error("The log of %s cannot be deleted: %s", name, error)
                self._purgatory.check_and_complete(name)
                return error.code
        elif partition is not None:
            outcome.stopped.append(name)
        self._purgatory.check_and_complete(name)
        return ErrorCode.NONE

    def announce(self, outcome: LeadershipOutcome) -> None:
        """Tell those who asked with `on_leadership` and `on_roles`."""
        for told in self._on_roles:
            told(outcome)
        if outcome.gained or outcome.lost:
            for callback in self._on_leadership:
                callback(outcome.gained, outcome.lost)


def _accept_loss(partition: Partition) -> None:
    """A leader's log is the partition: what it has lost is lost, unless an operator restores it from elsewhere."""
    log = partition.log
    if log.lost_data is not None:
        logger.error(
            "Leading %s from offset %d on, although its log has lost records: %s",
            partition.name,
            log.log_end_offset,
            log.lost_data.reason,
        )
        log.forget_lost_data()
