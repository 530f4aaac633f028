"""All replicas of a broker: role changes from the controller, appends, reads, and
waiting for the commit.

Kafka: `ReplicaManager`. It decides and uses logs; it knows no connection and no clock. A request
that waits for a partition is in the `Purgatory` under its `TopicPartition`. Every append, change of
a watermark and change of role is reported there, so waits end by events, never by polling.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from barnabas.base.ids import NO_LEADER_EPOCH, ZERO_UUID, TopicPartition, Uuid
from barnabas.base.tasks import Beside, Task, one_by_one
from barnabas.broker.replication.alter_partition_manager import AlterPartitionManager
from barnabas.broker.replication.partition import FetchSessionActivity, Leader, Partition, StateChange, always_alive
from barnabas.broker.replication.reads import Isolation, ReadResult, read_log
from barnabas.broker.replication.topic_stats import BrokerTopicStats
from barnabas.broker.requests.purgatory import Purgatory
from barnabas.log.dirs.log_dirs import LogDirs
from barnabas.log.dirs.new_folders import FolderTask
from barnabas.log.leader_epochs import EpochsToWrite
from barnabas.log.partition_log import AppendInfo, Origin, PartitionLog
from barnabas.log.producer_state import VerificationGuard
from barnabas.log.record_checks import AT_ONCE, RecordValidator
from barnabas.log.settings import LogConfig
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.alter_partition import AlterPartitionResponse

__all__ = ["AppendInfo", "LeadershipOutcome", "ReplicaManager", "append_batch", "new_folders", "write_leader_epochs"]

logger = logging.getLogger(__name__)

LeadershipCallback = Callable[[Sequence[Partition], Sequence[Partition]], None]


@dataclass(slots=True)
class LeadershipOutcome:
    """The changes that one request of the controller made here."""

    codes: list[ErrorCode] = field(default_factory=list)
    """The error codes of its partitions, in their order."""
    gained: list[Partition] = field(default_factory=list)
    lost: list[Partition] = field(default_factory=list)
    following: list[Partition] = field(default_factory=list)
    """Followers that must fetch in a new epoch."""
    stopped: list[TopicPartition] = field(default_factory=list)
    """Partitions that this broker no longer serves or copies."""
    unwritten: list[PartitionLog] = field(default_factory=list)
    """Logs whose leader epochs are to be written; see `write_leader_epochs`."""


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
        is_alive: Callable[[int], bool] = always_alive,
        alter_partition: AlterPartitionManager | None = None,
        sync: Callable[[PartitionLog], None] = lambda log: log.flusher.flush(),
    ) -> None:
        """``log_config`` gives a topic's log configuration, asked for when a replica's log is made.

        ``is_known`` whether the metadata has a partition, ``is_alive`` whether it has a broker.
        ``alter_partition`` takes the in-sync sets that we ask for. ``sync`` has a log brought to
        stable storage, now or soon; `synced` is called when that is done."""
        self.broker_id = broker_id
        self.controller_epoch = -1
        self._log_dirs = log_dirs
        self._purgatory = purgatory
        self._log_config = log_config
        self._is_known = is_known
        self._lag_time_max_ms = lag_time_max_ms
        self._lag_max_messages = lag_max_messages
        self.topic_stats = BrokerTopicStats()
        self._partitions: dict[TopicPartition, Partition] = {}
        self._by_topic: dict[str, dict[int, Partition]] = {}
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

    def get(self, topic_partition: TopicPartition) -> Partition | None:
        return self._partitions.get(topic_partition)

    def partition(self, topic_partition: TopicPartition) -> Partition:
        """Our replica; raises `KafkaError`.

        NOT_LEADER_OR_FOLLOWER when only other brokers have it, UNKNOWN_TOPIC_OR_PARTITION when no
        broker has it, KAFKA_STORAGE_ERROR when its log dir is lost.
        """
        found = self._partitions.get(topic_partition)
        if found is None:
            if self._is_known(topic_partition):
                raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if found.offline:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"Partition {topic_partition} is in an offline log directory"
            )
        return found

    def on_leadership(self, callback: LeadershipCallback) -> None:
        """Call ``callback(gained, lost)`` after each request of the controller that
        changed a leader."""
        self._on_leadership.append(callback)

    def on_roles(self, callback: Callable[["LeadershipOutcome"], None]) -> None:
        """Call ``callback`` with the outcome of each request of the controller."""
        self._on_roles.append(callback)

    def configure(self, topic: str, config: LogConfig) -> None:
        """A topic's configuration changed."""
        for partition in self._by_topic.get(topic, {}).values():
            partition.log.configure(config)

    # Appending

    def append(
        self,
        topic_partition: TopicPartition,
        records: memoryview | bytes | bytearray,
        *,
        acks: int,
        now_ms: int,
        origin: int = Origin.CLIENT,
        guard: VerificationGuard | None = None,
    ) -> AppendInfo:
        """Append one batch to a partition that we lead.

        ``now_ms`` is wall time (for LogAppendTime). Raises `KafkaError` as `appendable` and
        `append_batch` do.
        """
        return append_batch(self, self.appendable(topic_partition, acks), records, now_ms, origin, guard=guard)

    def appendable(self, topic_partition: TopicPartition, acks: int, topic_id: Uuid = ZERO_UUID) -> Partition:
        """Our replica, if it takes appends now. ``topic_id`` is that of the topic; `ZERO_UUID`
        stands for any.

        Raises `KafkaError`: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS
        (acks -1 and an ISR below min.insync.replicas), KAFKA_STORAGE_ERROR; UNKNOWN_TOPIC_ID for
        the id of another topic of this name.
        """
        partition = self._partitions.get(topic_partition)
        if partition is None or partition.log.availability.reason is not None:
            partition = self.partition(topic_partition)
        if topic_id is not ZERO_UUID:
            partition.check_topic_id(topic_id, ErrorCode.UNKNOWN_TOPIC_ID)
        partition.check_append(acks)
        return partition

    def appended(
        self, partition: Partition, batches: int, last_offset: int, count: int, size_bytes: int, now_ms: int
    ) -> bool:
        """Batches are in the log: count them, sync them if they need that, and
        complete what waited for them.

        Returns whether they are as durable as the topic asks for before they are acknowledged.
        """
        counters = partition.counters
        counters.total_produce_requests += batches
        counters.messages_in += count
        counters.bytes_in += size_bytes
        log = partition.log
        is_durable = not log.awaits_sync(last_offset)
        if not is_durable:
            self._sync(log)
            is_durable = not log.awaits_sync(last_offset)
        partition.advance_high_watermark(now_ms, self._lag_time_max_ms, self._is_alive)
        self._purgatory.check_and_complete(partition.topic_partition)
        return is_durable

    def synced(self, log: PartitionLog, now_ms: int) -> None:
        """A log's ``durable_offset`` has moved: raise the high watermark, and
        complete requests that waited."""
        partition = self._partitions.get(log.topic_partition)
        if partition is not None and partition.log is log:
            self._advance(partition, now_ms)
            self._purgatory.check_and_complete(partition.topic_partition)

    def log_replaced(self, log: PartitionLog, now_ms: int) -> None:
        """A replica has moved to another log dir: this is its log now."""
        partition = self._partitions[log.topic_partition]
        partition.log = log
        self._sync_role(partition)
        self._advance(partition, now_ms)
        self._purgatory.check_and_complete(partition.topic_partition)

    def lose_offline(self) -> None:
        """Drop the roles of replicas whose log dir is lost."""
        outcome = LeadershipOutcome()
        for partition in self._partitions.values():
            if partition.offline and partition.role is not None:
                if partition.is_leader:
                    outcome.lost.append(partition)
                partition.role = None
                outcome.stopped.append(partition.topic_partition)
                self._purgatory.check_and_complete(partition.topic_partition)
        self._announce(outcome)

    # Reading

    def read(
        self,
        topic_partition: TopicPartition,
        offset: int,
        max_bytes: int,
        *,
        isolation: Isolation,
        min_one_batch: bool,
    ) -> ReadResult:
        """Batches of a partition that we lead, from ``offset`` on: at most ``max_bytes`` of them
        (but one whole batch with ``min_one_batch``).

        Raises `KafkaError`: UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER,
        OFFSET_OUT_OF_RANGE, KAFKA_STORAGE_ERROR.
        """
        log = self.partition(topic_partition).readable_log(NO_LEADER_EPOCH, only_leader=True)
        return read_log(log, offset, max_bytes, isolation, min_one_batch=min_one_batch)

    def follower_fetched(
        self,
        topic_partition: TopicPartition,
        replica_id: int,
        offset: int,
        log_start_offset: int,
        now_ms: int,
        broker_epoch: int = -1,
        session_activity: FetchSessionActivity | None = None,
    ) -> None:
        """Note how far a follower has come, and raise the high watermark if that allows it.

        ``session_activity`` is that of the fetch session in which it fetched.
        """
        partition = self._partitions.get(topic_partition)
        if partition is None or type(partition.role) is not Leader:
            return
        follower = partition.role.followers.get(replica_id)
        if follower is None:
            return
        log = partition.log
        has_moved_start = follower.log_start_offset != log_start_offset
        follower.broker_epoch = broker_epoch
        follower.fetched(offset, log_start_offset, log.log_end_offset, now_ms, session_activity)
        role = partition.role
        if role.can_join(replica_id, log.high_watermark) and self._is_alive(replica_id):
            self.alter_partition.submit(partition, role.isr | {replica_id})
        if self._advance(partition, now_ms) or has_moved_start:
            self._purgatory.check_and_complete(topic_partition)

    def follower_left(
        self, topic_partition: TopicPartition, replica_id: int, session_activity: FetchSessionActivity
    ) -> None:
        """A follower no longer fetches this partition in the session of ``session_activity``.

        It may fetch others."""
        partition = self._partitions.get(topic_partition)
        if partition is not None and type(partition.role) is Leader:
            follower = partition.role.followers.get(replica_id)
            if follower is not None and follower.session_activity is session_activity:
                follower.last_caught_up_ms = follower.caught_up_ms
                follower.session_activity = None

    def _advance(self, partition: Partition, now_ms: int) -> bool:
        return partition.advance_high_watermark(now_ms, self._lag_time_max_ms, self._is_alive)

    def topics(self) -> list[str]:
        """The topics of which this broker has partitions."""
        return list(self._by_topic)

    def shrink_isrs(self, now_ms: int) -> Task[None]:
        """Propose to remove followers that were not caught up for replica.lag.time.max.ms.

        Call it every half of that. A caught-up follower outside the set also holds back the high
        watermark; it stops doing so after the same time.
        """
        for partition in one_by_one(self._partitions.values()):
            yield None
            role = partition.role
            if type(role) is not Leader or not role.followers or partition.offline:
                continue
            log = partition.log
            if log.high_watermark < log.log_end_offset and self._advance(partition, now_ms):
                self._purgatory.check_and_complete(partition.topic_partition)
            isr = role.shrunk_isr(log.log_end_offset, now_ms, self._lag_time_max_ms, self._lag_max_messages)
            if isr is not None:
                topic_partition = partition.topic_partition
                logger.info("Shrinking ISR of %s from %s to %s", topic_partition, sorted(role.isr), sorted(isr))
                self.alter_partition.submit(partition, isr)

    def handle_alter_partition_response(self, response: AlterPartitionResponse, version: int, now_ms: int) -> bool:
        """Take the controller's response to AlterPartition.

        False when the request must be repeated after a pause."""
        settled = self.alter_partition.handle_response(response, version)
        if settled is None:
            return False
        for partition in settled:
            self._advance(partition, now_ms)
            self._purgatory.check_and_complete(partition.topic_partition)
        return not self.alter_partition.must_pause

    def delete_records(self, topic_partition: TopicPartition, offset: int) -> int:
        """Move the log start offset to ``offset`` (-1: the high watermark), and return it.

        Raises `KafkaError`: NOT_LEADER_OR_FOLLOWER, POLICY_VIOLATION for topics that are compacted
        only, OFFSET_OUT_OF_RANGE.
        """
        partition = self.partition(topic_partition)
        partition.leading()
        log = partition.log
        if not log.config.cleanup_delete:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"Records of partition {topic_partition} can not be deleted due to the configured policy",
            )
        wanted: int = log.high_watermark if offset == -1 else offset
        if not 0 <= wanted <= log.high_watermark:
            raise KafkaError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"Cannot delete before offset {wanted} of partition {topic_partition}, which ends at {log.high_watermark}",
            )
        log.delete_records_before(wanted)
        self._purgatory.check_and_complete(topic_partition)
        return wanted

    # Requests of the controller

    def accept_controller_epoch(self, epoch: int) -> bool:
        """Whether a request of a controller of this epoch is accepted: it is if no
        later epoch is known."""
        if epoch < self.controller_epoch:
            return False
        self.controller_epoch = epoch
        return True

    def become_leader_or_follower(
        self, changes: Iterable[tuple[TopicPartition, Uuid, StateChange]], now_ms: int
    ) -> LeadershipOutcome:
        """Apply LeaderAndIsr to partitions, and inform the subscribers of what changed."""
        outcome = LeadershipOutcome()
        outcome.codes = [self._change_state(*change, now_ms, outcome) for change in changes]
        self._announce(outcome)
        return outcome

    def _change_state(
        self,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        change: StateChange,
        now_ms: int,
        outcome: LeadershipOutcome,
    ) -> ErrorCode:
        """Apply LeaderAndIsr to one partition; the changes are added to ``outcome``."""
        partition = self._partitions.get(topic_partition)
        if partition is not None:
            error = self._check_change(partition, topic_id, change)
            if error is not None:
                return error
        if self.broker_id not in change.replicas:
            logger.warning(
                "Partition %s is not meant for this broker but for %s", topic_partition, list(change.replicas)
            )
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        try:
            if partition is None:
                config = self._log_config(topic_partition.topic)
                log = self._log_dirs.get_or_create(topic_partition, topic_id, config, now_ms, is_new=change.is_new)
                partition = self._partitions[topic_partition] = Partition(
                    topic_partition, self.broker_id, log, self.topic_stats.of(topic_partition.topic)
                )
                self._by_topic.setdefault(topic_partition.topic, {})[topic_partition.partition] = partition
            self._change_role(partition, change, now_ms, outcome)
        except KafkaError as failure:
            logger.error("Partition %s cannot take its role: %s", topic_partition, failure)
            return failure.code
        self._purgatory.check_and_complete(topic_partition)
        return ErrorCode.NONE

    def _check_change(self, partition: Partition, topic_id: Uuid, change: StateChange) -> ErrorCode | None:
        """The error, or NONE, when the change is not applied; None when it is."""
        if partition.offline:
            return ErrorCode.KAFKA_STORAGE_ERROR
        if topic_id != ZERO_UUID and partition.topic_id not in (ZERO_UUID, topic_id):
            logger.error(
                "The log of %s belongs to another topic of this name than the one received", partition.topic_partition
            )
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
            if partition.log.leader_epochs.unwritten is not None:
                outcome.unwritten.append(partition.log)
            _accept_loss(partition)
            self._sync_role(partition)
            self._advance(partition, now_ms)
        elif partition.follow(change):
            if change.leader >= 0:
                self._log_dirs.copy_again(partition.topic_partition)
            outcome.following.append(partition)
            if led:
                outcome.lost.append(partition)

    def _sync_role(self, partition: Partition) -> None:
        """Sync what a new leader has from earlier epochs, where records count only
        when they are synced."""
        log = partition.log
        if partition.is_leader and log.config.flush_before_ack and log.durability.durable_offset < log.log_end_offset:
            self._sync(log)

    def stop_replicas(self, stops: Iterable[tuple[TopicPartition, int, bool]], now_ms: int) -> LeadershipOutcome:
        """Apply StopReplica to partitions, and inform the subscribers: (partition, leader
        epoch, whether to delete it).

        A leader epoch of -1 (old versions) or -2 (the topic is being deleted) passes any check.
        """
        outcome = LeadershipOutcome()
        outcome.codes = [
            self._stop(topic_partition, leader_epoch, now_ms, delete=delete, outcome=outcome)
            for topic_partition, leader_epoch, delete in stops
        ]
        self._announce(outcome)
        return outcome

    def _stop(
        self,
        topic_partition: TopicPartition,
        leader_epoch: int,
        now_ms: int,
        *,
        delete: bool,
        outcome: LeadershipOutcome,
    ) -> ErrorCode:
        partition = self._partitions.get(topic_partition)
        if partition is not None:
            if partition.offline:
                return ErrorCode.KAFKA_STORAGE_ERROR
            if leader_epoch not in (-1, -2) and leader_epoch < partition.leader_epoch:
                return ErrorCode.FENCED_LEADER_EPOCH
            if partition.is_leader and (delete or leader_epoch > 0):
                outcome.lost.append(partition)
        if delete:
            self._forget(topic_partition)
            outcome.stopped.append(topic_partition)
            try:
                self._log_dirs.delete(topic_partition, now_ms)
            except KafkaError as error:
                logger.error("The log of %s cannot be deleted: %s", topic_partition, error)
                self._purgatory.check_and_complete(topic_partition)
                return error.code
        elif partition is not None:
            outcome.stopped.append(topic_partition)
        self._purgatory.check_and_complete(topic_partition)
        return ErrorCode.NONE

    def _forget(self, topic_partition: TopicPartition) -> None:
        if self._partitions.pop(topic_partition, None) is not None:
            siblings = self._by_topic[topic_partition.topic]
            del siblings[topic_partition.partition]
            if not siblings:
                del self._by_topic[topic_partition.topic]
                self.topic_stats.remove(topic_partition.topic)

    def _announce(self, outcome: LeadershipOutcome) -> None:
        """Call the subscribers of `on_roles` and `on_leadership`."""
        for callback in self._on_roles:
            callback(outcome)
        if outcome.gained or outcome.lost:
            for leadership_callback in self._on_leadership:
                leadership_callback(outcome.gained, outcome.lost)


def append_batch(
    replicas: ReplicaManager,
    partition: Partition,
    records: memoryview | bytes | bytearray,
    now_ms: int,
    origin: int = Origin.CLIENT,
    checks: RecordValidator = AT_ONCE,
    guard: VerificationGuard | None = None,
) -> AppendInfo:
    """Append one batch, in a write of its own, to a partition that is `ReplicaManager.appendable`.

    ``checks`` decides when the records are checked. With `SHORT_CHECKS`, a check that takes long
    raises `LongCheckError`. ``guard`` is the verification of a transaction's first batch. Raises
    `KafkaError` KAFKA_STORAGE_ERROR, and what the log finds wrong with the batch.
    """
    info: AppendInfo = partition.log.append_as_leader(
        records, leader_epoch=partition.leader_epoch, now_ms=now_ms, origin=origin, checks=checks, guard=guard
    )
    count = 0 if info.duplicate else info.last_offset - info.first_offset + 1
    replicas.appended(partition, 1, info.last_offset, count, len(records) if count else 0, now_ms)
    return info


def new_folders(
    log_dirs: LogDirs, broker_id: int, changes: Iterable[tuple[TopicPartition, Uuid, StateChange]]
) -> list[FolderTask]:
    """Folders that `ReplicaManager.become_leader_or_follower` will need.

    Run them in a thread, then call `NewFolders.take`.
    """
    wanted: dict[bool, list[tuple[TopicPartition, Uuid]]] = {True: [], False: []}
    for topic_partition, topic_id, change in changes:
        if broker_id in change.replicas:
            wanted[change.is_new].append((topic_partition, topic_id))
    found = [log_dirs.new_folders.prepare(logs, is_new=is_new) for is_new, logs in wanted.items()]
    return [folders for folders in found if folders is not None]


def write_leader_epochs(logs: Sequence[PartitionLog]) -> Task[None]:
    """Write the leader epochs of logs beside the event loop.

    A disk that fails takes the log dir offline."""
    waiting: list[tuple[PartitionLog, EpochsToWrite]] = []
    for log in logs:
        epochs = log.leader_epochs.unwritten  # what a later change replaces cancels it
        if epochs is not None:
            waiting.append((log, epochs))
        yield None
    failed: list[tuple[PartitionLog, OSError]] = []

    def write() -> None:
        while waiting:  # what is written is freed here, not all of it on the loop
            log, epochs = waiting.pop()
            try:
                epochs.run()
            except OSError as error:
                failed.append((log, error))

    yield Beside(write)
    for log, error in failed:
        log.availability.fail(error, "writing the leader epochs of")
        yield None


def _accept_loss(partition: Partition) -> None:
    """The leader's log is the partition, so its lost records are lost unless an
    operator restores them."""
    log = partition.log
    if log.lost_data is not None:
        logger.error(
            "Leading %s from offset %d, although its log has lost records: %s",
            partition.topic_partition,
            log.log_end_offset,
            log.lost_data.reason,
        )
        # Otherwise reads do not step over what is missing, and a follower can still supply it.
        if log.lost_data.copy_from is None:
            log.forget_lost_data()
