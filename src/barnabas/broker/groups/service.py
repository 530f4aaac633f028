"""The edge of the group coordinator: requests, effects, one timer, and loading.

`GroupService` passes each request to the pure `GroupCoordinator` with the time, and performs the
effects that it returns. Records are appended to the local replica of ``__consumer_offsets`` with
acks -1, and count when they are committed. One timer serves all timeouts. When the controller makes
this broker leader of a partition, the partition's log is read and its groups are built in steps,
between which the event loop is free. They are served when all in-sync replicas have what was read.
Meanwhile requests get COORDINATOR_LOAD_IN_PROGRESS.

In Kafka: `GroupCoordinatorAdapter`, and the loading and appending of `GroupMetadataManager`.
"""

import logging
from collections.abc import Callable, Container, Coroutine, Sequence
from typing import Any

from barnabas.base.clock import CallLater, Clock, Now
from barnabas.base.files import Buffer
from barnabas.base.ids import TopicPartition
from barnabas.base.randomness import Random
from barnabas.base.tasks import Beside, Runner, Task
from barnabas.broker.configuration.broker_config import BrokerConfig
from barnabas.broker.coordinators.deadline_timer import DeadlineTimer
from barnabas.broker.coordinators.service import CoordinatorLoader
from barnabas.broker.groups.commits import CommitTransaction, OffsetCommit, commit_error
from barnabas.broker.groups.coordinator import GroupCoordinator
from barnabas.broker.groups.deletion import GroupDeletion, delete_offsets, prepare_offset_deletion
from barnabas.broker.groups.effects import Append, Effect, GroupSettings, Replies, Reply
from barnabas.broker.groups.loading import Loader
from barnabas.broker.groups.records import encode_batch
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.metadata.internal_topics import OFFSETS_TOPIC
from barnabas.broker.replication.delayed_produce import DelayedProduce
from barnabas.broker.replication.partition import ALL_IN_SYNC, Partition
from barnabas.broker.replication.produce_append import AppendTask
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.replication.transaction_verification import AddPartitionsToTxnManager, TransactionalProducer
from barnabas.broker.requests.purgatory import Purgatory
from barnabas.log.partition_log import AppendInfo, Origin
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.delete_groups import DeleteGroupsRequest
from barnabas.wire.kafka.messages.heartbeat import HeartbeatRequest
from barnabas.wire.kafka.messages.join_group import JoinGroupRequest
from barnabas.wire.kafka.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from barnabas.wire.kafka.messages.offset_delete import OffsetDeleteRequest
from barnabas.wire.kafka.messages.sync_group import SyncGroupRequest
from barnabas.wire.kafka.records.batch_header import NO_SEQUENCE
from barnabas.wire.kafka.records.compression import CompressionType
from barnabas.wire.kafka.records.records import build_batch_around

__all__ = ["GroupService"]

logger = logging.getLogger(__name__)

_LATE_COMMIT_TIMEOUT_MS = 3_600_000
_GRACE_MS = 200
_LEAVING_A_STEP = 64

ReplyTo = Callable[[Any], None]


class GroupService:
    """The group coordinator of one broker."""

    def __init__(
        self,
        config: BrokerConfig,
        replicas: ReplicaManager,
        purgatory: Purgatory,
        metadata: MetadataCache,
        *,
        clock: Clock,
        call_later: CallLater,
        rng: Random,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        runner: Runner,
        verifier: AddPartitionsToTxnManager,
    ) -> None:
        self._config = config
        self._replicas = replicas
        self._purgatory = purgatory
        self._metadata = metadata
        self._clock = clock
        self._runner = runner
        self._verifier = verifier
        self._encoding = runner.lane()
        """Appends that wait for a large batch to be encoded."""
        self._commit_timeout_ms: int = config["offsets.commit.timeout.ms"]
        self._compression = CompressionType(config["offsets.topic.compression.codec"])
        self._stored_partitions = 0
        self.coordinator = GroupCoordinator(GroupSettings.of(config.values), rng)
        self._timer = DeadlineTimer(
            "groups", clock.monotonic_ms, call_later, self.coordinator.next_deadline_ms, self._tick, grace_ms=_GRACE_MS
        )
        self._loader = CoordinatorLoader(
            self.coordinator,
            "groups",
            config["offsets.load.buffer.size"],
            replicas=replicas,
            purgatory=purgatory,
            clock=clock,
            runner=runner,
            spawn=spawn,
        )
        self._update_partition_count()

    def start(self, stored_partitions: int = 0) -> None:
        """Follow the controller's elections from now on.

        ``stored_partitions`` is how many partitions the offsets topic has, 0 when there is none.
        The first metadata that a broker receives may contain only some of them, but a group's
        partition must be the same on all brokers.
        """
        self._stored_partitions = stored_partitions
        self._update_partition_count()
        self.coordinator.start_expiring(self._now())
        self._timer.set()

    def stop(self) -> None:
        """Answer with COORDINATOR_NOT_AVAILABLE from now on."""
        self.coordinator.is_active = False
        self._timer.stop()

    # Requests

    def join(self, request: JoinGroupRequest, version: int, client_id: str, client_host: str, to: ReplyTo) -> None:
        self._perform(self.coordinator.join(request, version, client_id, client_host, to, self._now()))

    def sync(self, request: SyncGroupRequest, to: ReplyTo) -> None:
        self._perform(self.coordinator.sync(request, to, self._now()))

    def heartbeat(self, request: HeartbeatRequest) -> ErrorCode:
        return self.coordinator.heartbeat(request, self._clock.monotonic_ms())

    def leave(self, request: LeaveGroupRequest, to: ReplyTo) -> Task[None]:
        response = LeaveGroupResponse(error_code=ErrorCode.NONE, members=[])
        leaving = request.members
        for first in range(0, max(len(leaving), 1), _LEAVING_A_STEP):
            some = leaving[first : first + _LEAVING_A_STEP]
            self._perform(self.coordinator.leave(request.group_id, some, response, self._now()))
            if response.error_code:
                break
            yield None
        to(response)

    def commit_offsets(self, commit: OffsetCommit, to: Callable[[OffsetCommit], None]) -> Task[None]:
        """Write what a request commits, if its group allows it.

        ``to`` gets the commit with its outcome."""
        max_metadata_bytes = self.coordinator.settings.offset_metadata_max_bytes
        yield from commit.prepare(self._metadata.partitions, max_metadata_bytes, self._clock.wall_ms())
        self._perform(self.coordinator.commit_offsets(commit, to, self._now()))

    def commit_in_transaction(
        self, commit: OffsetCommit, producer: TransactionalProducer, to: Callable[[OffsetCommit], None]
    ) -> AppendTask[None]:
        """Like `commit_offsets` of what a transaction commits, after its coordinator has
        confirmed the transaction."""
        coordinator = self.coordinator
        max_metadata_bytes = coordinator.settings.offset_metadata_max_bytes
        yield from commit.prepare(self._metadata.partitions, max_metadata_bytes, self._clock.wall_ms())
        group_id = commit.sender.group_id
        error = coordinator.check(group_id)
        if commit.partitions and not error:
            topic_partition = TopicPartition(OFFSETS_TOPIC, coordinator.partition_for(group_id))
            partition = self._replicas.get(topic_partition)
            verification = self._verifier.begin(producer)
            if partition is not None and partition.is_leader:  # else the append is refused
                verification.start(partition.log, NO_SEQUENCE, self._clock.wall_ms())
            if verification.is_needed:
                yield verification.wait
            error = commit_error(verification.error_of(topic_partition))
            commit.transaction = CommitTransaction(
                producer.producer_id, producer.epoch, verification.guard_of(topic_partition)
            )
        if error:
            commit.refuse(error)
            to(commit)
        else:
            self._perform(coordinator.commit_offsets(commit, to, self._now()))

    def transaction_ended(self, number: int, producer_id: int, marker_offset: int, *, is_commit: bool) -> None:
        """A transaction's marker is in a partition of the offsets topic, and replicated."""
        self.coordinator.transactions.ended(number, producer_id, marker_offset, is_commit=is_commit)

    def delete_offsets(self, request: OffsetDeleteRequest, allowed: Container[str], to: ReplyTo) -> Task[None]:
        """Delete a group's offsets in the topics that are allowed."""
        deletion = yield from prepare_offset_deletion(request, allowed, self._metadata.partitions)
        self._perform(delete_offsets(self.coordinator, deletion, to, self._now()))

    def delete_groups(self, request: DeleteGroupsRequest, allowed: Container[str], to: ReplyTo) -> Task[None]:
        """Delete the groups that are allowed."""
        deletion = GroupDeletion(self.coordinator, to)
        # A group is deleted once, however often it is named: the response stays as
        # small as what exists.
        seen = set()
        for group_id in request.groups_names:
            yield None
            if group_id not in seen:
                seen.add(group_id)
                if group_id in allowed:
                    self._perform(deletion.delete(group_id, self._now()))
                else:
                    deletion.refuse(group_id, ErrorCode.GROUP_AUTHORIZATION_FAILED)
        self._perform(deletion.end())

    # Effects

    def _now(self) -> Now:
        return Now.of(self._clock)

    def _perform(self, effects: list[Effect]) -> None:
        if len(effects) == 1 and isinstance(effects[0], Append):  # a commit
            self._append(effects[0])
            self._timer.set()
            return
        replies = [effect for effect in effects if not isinstance(effect, Append)]
        for effect in effects:
            if isinstance(effect, Append):
                self._append(effect)
        if replies:
            self._runner.start(_send(replies))
        self._timer.set()

    def _append(self, append: Append) -> None:
        if self._encoding.is_busy or append.is_large:
            self._encoding.start(self._append_in_turn(append))
        else:
            wall_ms = self._clock.wall_ms()
            self._write(append, self._encode(append, wall_ms), wall_ms)

    def _append_in_turn(self, append: Append) -> Task[None]:
        """Encode a large batch in a thread.

        What is to be appended after it waits for its turn, so records keep their order."""
        wall_ms = self._clock.wall_ms()
        made: list[Buffer] = []
        try:
            if append.is_large:
                yield Beside(lambda: made.append(self._encode(append, wall_ms)))
            else:
                made.append(self._encode(append, wall_ms))
        except Exception:  # without an answer its members would wait for ever
            logger.exception("A record of the group %r cannot be made", append.group.group_id)
            self._perform(self.coordinator.failed(append, ErrorCode.UNKNOWN_SERVER_ERROR, self._now()))
            return
        if self.coordinator.find(append.group.group_id) is append.group:
            self._write(append, made[0], wall_ms)
        else:  # another broker may coordinate it by now, or this one again
            self._perform(self.coordinator.failed(append, ErrorCode.NOT_COORDINATOR, self._now()))

    def _encode(self, append: Append, wall_ms: int) -> Buffer:
        if append.encoded is None or append.offsets is None:
            return encode_batch(append.records, wall_ms, self._compression)
        count, transaction = len(append.offsets[0]), append.transaction
        if transaction is None:
            return build_batch_around(append.encoded, count, wall_ms, self._compression)
        return build_batch_around(
            append.encoded,
            count,
            wall_ms,
            self._compression,
            producer_id=transaction.producer_id,
            producer_epoch=transaction.producer_epoch,
            base_sequence=0,
            is_transactional=True,
        )

    def _write(self, append: Append, batch: Buffer, wall_ms: int) -> None:
        topic_partition = TopicPartition(OFFSETS_TOPIC, append.partition)
        try:
            result = self._replicas.append(
                topic_partition,
                batch,
                acks=ALL_IN_SYNC,
                now_ms=wall_ms,
                origin=Origin.COORDINATOR,
                guard=None if append.transaction is None else append.transaction.guard,
            )
        except KafkaError as error:
            # As in Kafka.
            self._replicas.topic_stats.find(OFFSETS_TOPIC).total_produce_requests += 1
            self._perform(self.coordinator.failed(append, error.code, self._now()))
            return
        self.coordinator.transactions.appended(append, result.first_offset)
        self._await_commit(append, topic_partition, result, self._commit_timeout_ms)

    def _await_commit(
        self, append: Append, topic_partition: TopicPartition, result: AppendInfo, timeout_ms: int
    ) -> None:
        def outcome(error: ErrorCode) -> None:
            if error:
                self._perform(self.coordinator.failed(append, error, self._now()))
            if error == ErrorCode.REQUEST_TIMED_OUT:
                # The records are in the log all the same. Once committed they count,
                # here as after a reload.
                self._await_commit(append, topic_partition, result, _LATE_COMMIT_TIMEOUT_MS)
            elif error in (ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND):
                self._perform(self.coordinator.committed(append, result.first_offset, self._now()))

        delayed = DelayedProduce(self._replicas)
        delayed.add(topic_partition, result.last_offset, ALL_IN_SYNC, outcome)
        if not delayed.is_over:
            delayed.wait(self._purgatory, timeout_ms, lambda: None)

    def _tick(self) -> None:
        self._perform(self.coordinator.tick(self._now()))

    # Partitions coming and going

    def metadata_changed(self, changed: set[str], deleted: list[TopicPartition]) -> None:
        """Go by the partition count of the offsets topic, and forget offsets of
        deleted partitions."""
        if OFFSETS_TOPIC in changed:
            self._update_partition_count()
        if deleted:
            self._perform(self.coordinator.partitions_deleted(deleted, self._end_offset_of, self._now()))

    def _end_offset_of(self, number: int) -> int:
        partition = self._replicas.get(TopicPartition(OFFSETS_TOPIC, number))
        return 0 if partition is None else partition.log.log_end_offset

    def _update_partition_count(self) -> None:
        """The partition count of the offsets topic.

        Before it exists, the count that it will get."""
        self.coordinator.partition_count = (
            max(self._metadata.partition_count(OFFSETS_TOPIC), self._stored_partitions)
            or self._config["offsets.topic.num.partitions"]
        )

    def leadership_changed(self, gained: Sequence[Partition], lost: Sequence[Partition]) -> None:
        """Load groups of partitions that this broker leads from now on, and unload those of
        partitions that it lost."""
        for partition in lost:
            if partition.topic_partition.topic == OFFSETS_TOPIC:
                logger.debug("Unloading groups of %s", partition.topic_partition)
                self._perform(
                    self.coordinator.unload(partition.topic_partition.partition, partition.leader_epoch, self._now())
                )
        for partition in gained:
            if partition.topic_partition.topic == OFFSETS_TOPIC:
                self._update_partition_count()
                self._load(partition)

    def _load(self, partition: Partition) -> None:
        """Load a partition's groups (`GroupMetadataManager.loadGroupsAndOffsets`)."""
        topic_partition, leader_epoch = partition.topic_partition, partition.leader_epoch
        number = topic_partition.partition
        if not self.coordinator.start_loading(number, leader_epoch):
            return
        loader = Loader(number)

        def serve(took_ms: int) -> None:
            self._perform(self.coordinator.finish_loading(number, leader_epoch, loader, self._now()))
            logger.log(
                logging.INFO if loader.groups else logging.DEBUG,
                "Loaded %d groups of %s in %d ms",
                len(loader.groups),
                topic_partition,
                took_ms,
            )

        self._loader.load(partition, loader, serve)


def _send(replies: Sequence[Reply | Replies]) -> Task[None]:
    for reply in replies:
        if isinstance(reply, Reply):
            _answer(reply.to, lambda response: response, reply.response)
            yield None
            continue
        for to, about in reply.waiting:
            _answer(to, reply.respond, about)
            yield None


def _answer(to: ReplyTo, respond: Callable[[Any], Any], about: Any) -> None:
    """One that fails takes no answer of another member or group with it."""
    try:
        to(respond(about))
    except Exception:
        logger.exception("A member of a group could not be answered")
