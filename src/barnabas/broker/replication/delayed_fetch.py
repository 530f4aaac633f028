"""One Fetch from its first read to its answer (Kafka's ReplicaManager.fetchMessages
and DelayedFetch).

An answer waits until min_bytes can be read, something went wrong, or max_wait_ms is over. It is
bounded by max_bytes and by each partition's limit, but the first batch is whole, however large
(KIP-74). What a reader may see depends on its replica id:

- -1, a consumer: up to the high watermark, or to the last stable offset with aborted transactions
  listed (read_committed). Followers serve those that know of it (version 11); the leader may send
  a consumer to a follower.
- a broker's id, a follower: up to the end, from the leader alone. Its offset says how far it has
  come. While it is out of sync it may be throttled (KIP-73).
- -2, a tool that compares replicas: up to the end, from any replica.

With a fetch session only the partitions that may have changed are looked at (see `fetch_sessions`),
so a request costs what changed and not what exists.
"""

import logging
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass

from barnabas.base.clock import Clock
from barnabas.base.ids import NO_LEADER_EPOCH, TopicPartition, Uuid
from barnabas.base.tasks import Task
from barnabas.broker.replication.fetch_sessions import FetchContext, FetchPartitionData, PartitionFetch, PartitionKey
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.quotas import ReplicationQuota
from barnabas.broker.replication.reads import Isolation, ReadResult, read_log, upper_bound
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.replication.selection import PreferredReadReplica
from barnabas.broker.replication.topic_rights import TopicRights
from barnabas.broker.requests.purgatory import DelayedOperation, Purgatory
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.records.compression import CompressionType

__all__ = ["CONSUMER", "FetchHandler", "FetchParams"]

logger = logging.getLogger(__name__)

CONSUMER = -1
_NO_RECORDS = b""
_PARTITIONS_A_STEP = 32
"""Some 1 ms. A count, because it must be known before the first is read whether others may have
their turn meanwhile: then each is watched first, which a small fetch does without."""


@dataclass(slots=True)
class FetchParams:
    """Who reads, and how much (Kafka's class of this name).

    Not changed once the fetch begins; a frozen dataclass costs more to make."""

    replica_id: int
    replica_epoch: int
    max_wait_ms: int
    min_bytes: int
    max_bytes: int
    isolation: Isolation
    only_leader: bool
    rack: str | None
    """The reader's rack; None where it must not be sent to another replica."""
    listener: str
    knows_zstd: bool = True
    """Whether the reader can decode zstd: such topics are refused otherwise."""
    rights: TopicRights | None = None
    """None for a reader that may read everything."""

    @property
    def is_from_follower(self) -> bool:
        return self.replica_id >= 0


Respond = Callable[[list[FetchPartitionData]], None]


class FetchHandler:
    """Serves Fetch from the replicas of one broker."""

    def __init__(
        self,
        replicas: ReplicaManager,
        purgatory: Purgatory,
        clock: Clock,
        quota: ReplicationQuota,
        topic_name: Callable[[Uuid], str | None],
        preferred_read_replica: PreferredReadReplica | None,
    ) -> None:
        """``quota`` throttles what followers out of sync read.

        ``topic_name`` is the name of a topic id."""
        self.replicas = replicas
        self.purgatory = purgatory
        self.clock = clock
        self.quota = quota
        self.topic_name = topic_name
        self.preferred_read_replica = preferred_read_replica

    def fetch(self, params: FetchParams, context: FetchContext, respond: Respond) -> Task[DelayedOperation | None]:
        """Call ``respond`` with the partitions of the response: now, or later.

        In that case return the delayed operation."""
        fetch = _DelayedFetch(self, params, context, respond)
        asked = context.to_look_at()
        has_parts = len(asked) > _PARTITIONS_A_STEP
        if not has_parts:
            fetch.read_part(asked)
        else:
            # Others may have their turn between two parts. The partitions of each are watched
            # before they are read, so that what changes meanwhile is known.
            for first in range(0, len(asked), _PARTITIONS_A_STEP):
                some = asked[first : first + _PARTITIONS_A_STEP]
                context.watch_some(some)
                fetch.read_part(some)
                yield None
            fetch.keep()
        if (
            fetch.have_read()
            or params.max_wait_ms <= 0
            or not len(context)
            or (has_parts and fetch.has_changed_since())
        ):
            fetch.complete()
            return None
        return fetch.wait()

    def refuse(self, context: FetchContext, code: ErrorCode, respond: Respond) -> Task[None]:
        """Answer for all partitions with an error, and look at none of them."""
        found = []
        for wanted in context:
            found.append(_not_read(wanted, code))
            yield None
        respond(context.finish(found))


def _not_read(wanted: PartitionFetch, code: ErrorCode) -> FetchPartitionData:
    return FetchPartitionData(wanted, ReadResult(-1, -1, -1, -1, _NO_RECORDS, 0), code, is_urgent=True)


class _DelayedFetch:
    __slots__ = (
        "_context",
        "_found",
        "_handler",
        "_has_noted_progress",
        "_is_from_follower",
        "_is_urgent",
        "_isolation",
        "_kept",
        "_min_one_batch",
        "_offsets",
        "_params",
        "_respond",
        "_room",
        "_session_activity",
    )

    def __init__(self, handler: FetchHandler, params: FetchParams, context: FetchContext, respond: Respond) -> None:
        self._handler = handler
        self._params = params
        self._context = context
        self._respond = respond
        self._isolation = params.isolation
        self._is_from_follower = params.is_from_follower
        owner = (params.replica_id, params.replica_epoch)
        self._session_activity = context.belongs_to(owner) if self._is_from_follower else None
        if params.rights is not None:
            # After a change of the rights the session looks at all its partitions again.
            context.belongs_to(params.rights.valid_for)
        for left in context.forgotten:
            self._is_absent_from(left)
        self._found: list[FetchPartitionData] = []
        self._offsets: dict[TopicPartition | None, PartitionFetch] = {}
        self._has_noted_progress = False
        self._room, self._min_one_batch, self._is_urgent = params.max_bytes, True, False
        self._kept: dict[PartitionKey, FetchPartitionData] = {}
        """For a large fetch: results without data. Each partition is watched before it is read, so
        its result holds until it changes."""

    # Reading

    def _read_again(self) -> bool:
        """Read all that may have changed; with many partitions, what has not changed is kept."""
        self._room, self._min_one_batch, self._is_urgent = self._params.max_bytes, True, False
        self._found = []
        self.read_part(self._context.to_look_at())
        return self.have_read()

    def keep(self) -> None:
        """All of many partitions were read: keep what has no records until it changes."""
        found = self._found
        for data in found:
            if data.can_rest and not data.wanted.is_watched:  # it has changed since it was read
                data.can_rest = False
        self._kept = {
            data.wanted.key: data for data in found if data.can_rest and not data.is_urgent and not data.read.size_bytes
        }

    def has_changed_since(self) -> bool:
        """Whether there is an answer now because something changed while others had their turn."""
        return not all(map(self._has_nothing, self._context.unwatched())) and self._read_again()

    def read_part(self, asked: Iterable[PartitionFetch]) -> None:
        """Read some of what may have changed."""
        room, min_one_batch, is_urgent = self._room, self._min_one_batch, self._is_urgent
        found = self._found
        kept = self._kept
        for wanted in asked:
            if kept and wanted.is_watched and wanted.key in kept:
                found.append(kept[wanted.key])
                continue
            try:
                data = self._read_partition(wanted, min(wanted.max_bytes, room), min_one_batch)
            except KafkaError as error:
                data = self._refused(wanted, error.code)
            except Exception:
                logger.exception("Partition %s cannot be read", wanted.topic_partition)
                topic = None if wanted.topic_partition is None else wanted.topic_partition.topic
                self._handler.replicas.topic_stats.find(topic).failed_fetch_requests += 1
                data = self._refused(wanted, ErrorCode.UNKNOWN_SERVER_ERROR)
            is_urgent = is_urgent or data.is_urgent
            size_bytes = data.read.size_bytes
            if size_bytes:
                min_one_batch = False
                room = max(room - size_bytes, 0)
            found.append(data)
        self._room, self._min_one_batch, self._is_urgent = room, min_one_batch, is_urgent

    def have_read(self) -> bool:
        """All is read. True when there is something to answer now: enough bytes, or an error."""
        params = self._params
        if not self._has_noted_progress:
            self._has_noted_progress = True
            if self._session_activity is not None:
                self._session_activity.last_fetch_ms = self._handler.clock.wall_ms()
        return self._is_urgent or params.max_bytes - self._room >= params.min_bytes

    def _refused(self, wanted: PartitionFetch, code: ErrorCode) -> FetchPartitionData:
        self._is_absent_from(wanted)
        return _not_read(wanted, code)

    def _read_partition(self, wanted: PartitionFetch, max_bytes: int, min_one_batch: bool) -> FetchPartitionData:
        handler, params = self._handler, self._params
        topic_partition = wanted.topic_partition
        if topic_partition is None:
            topic = handler.topic_name(wanted.topic_id)
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
            topic_partition = wanted.topic_partition = TopicPartition(topic, wanted.key[1])
        if params.rights is not None and not params.rights.allows(topic_partition.topic):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        partition = handler.replicas.partition(topic_partition)
        partition.counters.total_fetch_requests += 1
        is_throttled = False
        is_follower = self._is_from_follower
        if is_follower:
            is_in_sync = partition.check_follower(params.replica_id, wanted.leader_epoch)
            quota = handler.quota
            is_throttled = quota.is_throttled(topic_partition)
            if is_throttled and not is_in_sync and quota.is_exceeded(handler.clock.monotonic_ms()):
                max_bytes, min_one_batch = 0, False
        elif params.rack is not None and handler.preferred_read_replica is not None:
            elsewhere = self._elsewhere(handler.preferred_read_replica, partition, wanted, params.rack)
            if elsewhere is not None:
                return elsewhere
        partition.check_topic_id(wanted.topic_id)
        log = partition.readable_log(wanted.leader_epoch, only_leader=params.only_leader)
        read = read_log(
            log, wanted.fetch_offset, max_bytes, self._isolation, wanted.last_fetched_epoch, min_one_batch=min_one_batch
        )
        data = FetchPartitionData(wanted, read, is_throttled=is_throttled)
        if read.diverging_epoch is not None:
            self._is_absent_from(wanted)
            data.is_urgent = True
        elif not is_follower:
            data.can_rest = not read.size_bytes and upper_bound(read, self._isolation) <= wanted.fetch_offset
        else:
            if not self._has_noted_progress:
                self._note_progress(topic_partition, wanted)
                # Return the high watermark that this fetch has advanced.
                read.high_watermark = log.high_watermark
            # Keep checking a follower outside the ISR, because it may join at any time; also
            # uncommitted records, because they may be committed when a replica leaves the ISR.
            data.can_rest = is_in_sync and read.high_watermark == read.log_end_offset == wanted.fetch_offset
        return data

    def _note_progress(self, topic_partition: TopicPartition, wanted: PartitionFetch) -> None:
        """Note that the follower has all records before its fetch offset."""
        self._handler.replicas.follower_fetched(
            topic_partition,
            self._params.replica_id,
            wanted.fetch_offset,
            wanted.follower_log_start_offset,
            self._handler.clock.wall_ms(),
            self._params.replica_epoch,
            self._session_activity,
        )

    def _is_absent_from(self, wanted: PartitionFetch) -> None:
        """A follower no longer fetches a partition, or cannot: its fetches of others
        say nothing about this one."""
        if self._session_activity is not None and wanted.topic_partition is not None:
            self._handler.replicas.follower_left(
                wanted.topic_partition, self._params.replica_id, self._session_activity
            )

    def _elsewhere(
        self, preferred: PreferredReadReplica, partition: Partition, wanted: PartitionFetch, rack: str
    ) -> FetchPartitionData | None:
        """The answer that sends a consumer to another replica; None when it is served here."""
        now_ms = self._handler.clock.wall_ms()
        chosen = preferred.find(partition, wanted.fetch_offset, rack, self._params.listener, now_ms)
        if chosen is None:
            return None
        log = partition.readable_log(wanted.leader_epoch, only_leader=False)
        read = ReadResult(
            log.high_watermark, log.last_stable_offset, log.log_start_offset, log.log_end_offset, _NO_RECORDS, 0
        )
        return FetchPartitionData(wanted, read, preferred_read_replica=chosen, is_urgent=True)

    # Waiting

    def wait(self) -> DelayedOperation:
        """Wait for bytes, for an error, or for max_wait_ms."""
        session = self._context.watch()
        keys: list[Hashable]
        if session is not None:
            keys = [session]
        else:
            self._offsets = {
                wanted.topic_partition: wanted for wanted in self._context if wanted.topic_partition is not None
            }
            keys = list(self._offsets)
        return self._handler.purgatory.watch(
            keys, self._try_complete, self._on_expiration, self._params.max_wait_ms, "Fetch"
        )

    def _try_complete(self, key: Hashable) -> bool:
        # Most changes concern one partition of many: look at those before reading them all again.
        changed = self._context.unwatched() if not self._offsets else [self._offsets[key]]  # type: ignore[index]  # see wait
        if all(map(self._has_nothing, changed)) or not self._read_again():
            if self._kept:
                for wanted in changed:
                    self._kept.pop(wanted.key, None)
            self._context.watch()
            return False
        self.complete()
        return True

    def _has_nothing(self, wanted: PartitionFetch) -> bool:
        """Whether a partition can be read as before, and there is nothing to read."""
        topic_partition = wanted.topic_partition
        partition = None if topic_partition is None else self._handler.replicas.get(topic_partition)
        return (
            partition is not None
            and not partition.offline
            and (partition.is_leader or not self._params.only_leader)
            and partition.log.log_start_offset <= wanted.fetch_offset
            and upper_bound(partition.log, self._isolation) <= wanted.fetch_offset
            and wanted.leader_epoch in (NO_LEADER_EPOCH, partition.leader_epoch)
        )

    def _on_expiration(self) -> None:
        self._read_again()
        self.complete()

    def complete(self) -> None:
        """Answer with what was read last."""
        if self._is_from_follower:
            throttled_bytes = sum([data.read.size_bytes for data in self._found if data.is_throttled])
            if throttled_bytes:
                self._handler.quota.record(throttled_bytes, self._handler.clock.monotonic_ms())
        answers = self._context.finish(self._found)
        if not self._params.knows_zstd:
            answers = list(map(self._without_zstd, answers))
        self._count_bytes_out(answers)
        self._respond(answers)

    def _count_bytes_out(self, answers: list[FetchPartitionData]) -> None:
        find = self._handler.replicas.topic_stats.find
        for data in answers:
            size_bytes = data.read.size_bytes
            if size_bytes and data.wanted.topic_partition is not None:
                counters = find(data.wanted.topic_partition.topic)
                if self._is_from_follower:
                    counters.replication_bytes_out += size_bytes
                else:
                    counters.bytes_out += size_bytes

    def _without_zstd(self, data: FetchPartitionData) -> FetchPartitionData:
        """Refuse a topic with compression.type=zstd, whatever its batches are, as
        Apache's brokers do (KIP-110), except to readers that must not know how it is compressed."""
        if data.error_code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            return data
        topic_partition = data.wanted.topic_partition
        partition = None if topic_partition is None else self._handler.replicas.get(topic_partition)
        if partition is None or partition.log.config.codec != CompressionType.ZSTD:
            return data
        return FetchPartitionData(
            data.wanted, ReadResult(-1, -1, -1, -1, _NO_RECORDS, 0), ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        )
