"""What a broker copies from one other broker: every partition that it follows there, in one fetch at a time.

Each partition goes through these states::

    FETCHING -> LOCATING     the leader's log does not hold our offset: ask where it begins and ends
    FETCHING, LOCATING, ALIGNING -> DELAYED -> FETCHING or ALIGNING    an error that may pass: the back-off, then again
    FETCHING -> WAITING      the leader is in a later epoch than ours (only LeaderAndIsr can help), or our disk failed
    FETCHING -> ALIGNING -> FETCHING    at the begin of an epoch, where the source knows no Fetch of version 12

A fetch names the epoch of our last record; a leader whose log parted from ours there says where (KIP-595), we cut, and
the next fetch goes on from the new end. A source that does not know of that (Kafka before 2.7) is asked where our last
epoch ended before the first fetch of each leader epoch (OffsetForLeaderEpoch, KIP-101 and KIP-279), again and again
until both logs are known to agree. So no record is ever appended after one that the leader does not have, and nothing is
cut that it does have. The high watermark comes with each answer and is kept within our own log.

A partition that is behind may be held back by a throttle (KIP-73): it is not asked for while the quota is exceeded.

A `Fetcher` decides and touches logs, never the network: `request` and `offsets_request` say what to send, `answered`,
`offsets_answered` and `failed` take what came of it. News of roles come in between (`follow`, `unfollow`); an answer to
what was asked before such a change is not applied, for each partition remembers what it asked.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from barnabas.base.files import Buffer, FileSlice
from barnabas.base.ids import ZERO_UUID, TopicPartition, Uuid
from barnabas.broker.replication.fetch_session_handler import FollowerSession
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.quotas import ReplicationQuota
from barnabas.broker.replication.truncation import truncation_for
from barnabas.log.partition_log import PartitionLog, UnexpectedOffsetError
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)
from barnabas.wire.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas.wire.kafka.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

__all__ = ["FetchLimits", "Fetcher", "Replicating"]

logger = logging.getLogger(__name__)

DIVERGING_EPOCHS_VERSION = 12
TOPIC_IDS_VERSION = 13
REPLICA_STATE_VERSION = 15
LATEST, EARLIEST = -1, -2
_NOTHING = -1
_THROTTLED_PAUSE_MS = 50
_FIRST_BACKOFF_MS = 20  # right after an election a follower often hears of it before the leader does


class Replicating(Enum):
    """What a followed partition is doing."""

    FETCHING = "fetching"
    ALIGNING = "aligning"
    LOCATING = "locating"
    DELAYED = "delayed"
    WAITING = "waiting"


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """The broker's settings for its followers."""

    partition_bytes: int
    response_bytes: int
    min_bytes: int
    wait_ms: int
    backoff_ms: int


class _Followed:
    """One partition that is copied, in one leader epoch."""

    __slots__ = (
        "asked_epoch",
        "asked_offset",
        "asked_start",
        "backoff_ms",
        "is_aligned",
        "is_in_sync",
        "last_epoch",
        "leader_epoch",
        "leader_start",
        "partition",
        "state",
        "until_ms",
    )

    def __init__(self, partition: Partition) -> None:
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.last_epoch = partition.log.latest_epoch
        self.state = Replicating.FETCHING
        self.backoff_ms = 0
        self.until_ms = 0
        self.asked_offset = _NOTHING
        """The offset of the fetch under way."""
        self.asked_start = _NOTHING
        """The begin of our log as the source knows it."""
        self.asked_epoch = _NOTHING
        """The epoch whose end the source was asked for, while we are aligning."""
        self.is_aligned = False
        """Whether our log is known to agree with an old source's, as far as it goes."""
        self.is_in_sync = True
        """Whether the last answer left us at the high watermark. Until the first answer we may be there: a throttle that
        kept us from asking would push members out of the in-sync set after an election."""
        self.leader_start = _NOTHING
        """Where the leader's log begins, while we are locating."""


class Fetcher:
    """All that this broker copies from one source."""

    def __init__(
        self,
        broker_id: int,
        limits: FetchLimits,
        truncate: Callable[[TopicPartition, int], None],
        changed: Callable[[TopicPartition], None],
        quota: ReplicationQuota | None = None,
        *,
        for_in_sync: bool | None = None,
    ) -> None:
        """``truncate`` cuts a log and notes it on disk; ``changed`` wakes those who wait for a partition.

        ``for_in_sync`` says that another fetcher takes what is behind (True), or what is in sync (False); see `leaving`.
        """
        self._broker_id = broker_id
        self._limits = limits
        self._truncate = truncate
        self._changed = changed
        self._quota = quota or ReplicationQuota(1, 1000)
        self._for_in_sync = for_in_sync
        self._leaving: dict[TopicPartition, None] = {}
        self._followed: dict[TopicPartition, _Followed] = {}
        self._active: dict[TopicPartition, _Followed] = {}  # FETCHING
        self._moved: dict[TopicPartition, None] = {}  # active ones whose offset the session does not know
        self._left: dict[TopicPartition, Uuid] = {}  # no longer active, and perhaps in the session
        self._delayed: dict[TopicPartition, _Followed] = {}
        self._locating: dict[TopicPartition, _Followed] = {}
        self._unsynced: dict[TopicPartition, None] = {}  # those whose log may have to be synced before it is told of
        self._fresh: dict[TopicPartition, _Followed] = {}  # active ones that were not fetched in their epoch yet
        self._aligning: dict[TopicPartition, _Followed] = {}
        self._without_id: set[TopicPartition] = set()
        self._ids: dict[TopicPartition, Uuid] = {}
        self._names: dict[Uuid, str] = {}
        self._session: FollowerSession[TopicPartition] = FollowerSession()

    def __len__(self) -> int:
        return len(self._followed)

    def __contains__(self, name: object) -> bool:
        return name in self._followed

    def state_of(self, name: TopicPartition) -> Replicating:
        """What a followed partition is doing."""
        return self._followed[name].state

    # Roles

    def follow(self, partition: Partition) -> None:
        """Copy a partition in its present leader epoch.

        A log without any epoch holds records that cannot be compared: it goes back to its high watermark.
        """
        name = partition.name
        self.unfollow(name)
        log = partition.log
        if log.latest_epoch < 0 and log.log_end_offset > log.high_watermark:
            self._truncate(name, log.high_watermark)
        self._admit(name, _Followed(partition))

    def take_over(self, other: "Fetcher", name: TopicPartition) -> None:
        """Copy what ``other`` copied from the same source until now. An answer on its way there is not applied."""
        followed = other._followed[name]
        other.unfollow(name)
        followed.asked_offset = _NOTHING
        self._admit(name, followed)

    def _admit(self, name: TopicPartition, followed: _Followed) -> None:
        partition = followed.partition
        self._followed[name] = followed
        if partition.log.awaits_sync(partition.log.log_end_offset - 1):
            self._unsynced[name] = None
        if self._ids.get(name, partition.topic_id) != partition.topic_id:
            self._session.lost()  # the other side knows the partition by the id of a topic that was deleted
        self._ids[name] = partition.topic_id
        self._names[partition.topic_id] = name.topic
        if partition.topic_id == ZERO_UUID:
            self._without_id.add(name)
        self._activate(name, followed)

    def unfollow(self, name: TopicPartition) -> None:
        """Copy a partition no longer."""
        followed = self._followed.pop(name, None)
        if followed is not None:
            self._deactivate(name)
            self._without_id.discard(name)
            self._delayed.pop(name, None)
            self._locating.pop(name, None)
            self._aligning.pop(name, None)

    def _activate(self, name: TopicPartition, followed: _Followed) -> None:
        followed.state = Replicating.FETCHING
        followed.last_epoch = followed.partition.log.latest_epoch
        self._active[name] = followed
        self._moved[name] = None
        self._left.pop(name, None)
        if not followed.is_aligned:
            self._fresh[name] = followed

    def _deactivate(self, name: TopicPartition) -> None:
        if self._active.pop(name, None) is not None:
            self._moved.pop(name, None)
            self._fresh.pop(name, None)
            self._leaving.pop(name, None)
            self._left[name] = self._ids[name]

    def _delay(self, name: TopicPartition, followed: _Followed, now_ms: int) -> None:
        followed.backoff_ms = min(max(2 * followed.backoff_ms, _FIRST_BACKOFF_MS), self._limits.backoff_ms)
        self._set_aside(name, followed, now_ms + followed.backoff_ms)

    def _set_aside(self, name: TopicPartition, followed: _Followed, until_ms: int) -> None:
        self._deactivate(name)
        self._locating.pop(name, None)
        self._aligning.pop(name, None)
        followed.state = Replicating.DELAYED
        followed.until_ms = until_ms
        self._delayed[name] = followed

    def _suspend(self, name: TopicPartition, followed: _Followed) -> None:
        """Until the controller says something new about the partition."""
        self._deactivate(name)
        self._locating.pop(name, None)
        self._aligning.pop(name, None)
        followed.state = Replicating.WAITING

    # Time

    def wake(self, now_ms: int) -> int | None:
        """Bring back what was delayed long enough; how long until the next is due (None: nothing is delayed).

        What is behind and throttled is set aside while too much was copied.
        """
        next_ms = None
        for name, followed in tuple(self._delayed.items()):
            if followed.until_ms <= now_ms:
                del self._delayed[name]
                self._activate(name, followed)
            else:
                wait_ms = followed.until_ms - now_ms
                next_ms = wait_ms if next_ms is None else min(next_ms, wait_ms)
        if self._quota.is_exceeded(now_ms):
            for name in tuple(self._moved):
                followed = self._active[name]
                if not followed.is_in_sync and self._quota.is_throttled(name):
                    self._set_aside(name, followed, now_ms + _THROTTLED_PAUSE_MS)
                    next_ms = _THROTTLED_PAUSE_MS if next_ms is None else min(next_ms, _THROTTLED_PAUSE_MS)
        return next_ms

    # Fetching

    def leaving(self) -> list[TopicPartition]:
        """What the other fetcher of the same source is to take over."""
        return list(self._leaving)

    @property
    def wants_fetch(self) -> bool:
        return bool(self._active)

    @property
    def wants_offsets(self) -> bool:
        return bool(self._locating)

    def unsynced(self) -> list[PartitionLog]:
        """The logs to sync before the next `request`: it says that we have what the topic wants on stable storage."""
        logs = []
        for name in tuple(self._unsynced):
            followed = self._followed.get(name)
            log = None if followed is None else followed.partition.log
            if log is None or log.offline is not None or not log.awaits_sync(log.log_end_offset - 1):
                del self._unsynced[name]
            else:
                logs.append(log)
        return logs

    @property
    def has_topic_ids(self) -> bool:
        """Whether every partition's topic id is known, as `request` from version 13 on needs."""
        return not self._without_id

    def request(self, version: int, broker_epoch: int, wait_ms: int) -> FetchRequest:
        """The next fetch, parked there for ``wait_ms`` at most. One call of `answered` or `failed` follows."""
        limits = self._limits
        step = self._session.next(self._active, self._moved, self._left)
        topics: dict[str, FetchTopic] = {}
        for name in step.ask:
            followed = self._active[name]
            log = followed.partition.log
            followed.asked_offset = log.log_end_offset
            followed.asked_start = log.log_start_offset
            topic = topics.get(name.topic)
            if topic is None:
                topic = topics[name.topic] = FetchTopic(topic=name.topic, topic_id=self._ids[name], partitions=[])
            topic.partitions.append(
                FetchPartition(
                    partition=name.partition,
                    current_leader_epoch=followed.leader_epoch,
                    fetch_offset=followed.asked_offset,
                    last_fetched_epoch=followed.last_epoch if version >= DIVERGING_EPOCHS_VERSION else _NOTHING,
                    log_start_offset=log.log_start_offset,
                    partition_max_bytes=limits.partition_bytes,
                )
            )
        forgotten: dict[str, ForgottenTopic] = {}
        for name in step.forget:
            if name.topic not in forgotten:
                forgotten[name.topic] = ForgottenTopic(topic=name.topic, topic_id=self._left[name], partitions=[])
            forgotten[name.topic].partitions.append(name.partition)
        self._moved.clear()
        self._left.clear()
        request = FetchRequest(
            max_wait_ms=min(limits.wait_ms, wait_ms),
            min_bytes=limits.min_bytes,
            max_bytes=limits.response_bytes,
            session_id=step.session_id,
            session_epoch=step.epoch,
            topics=list(topics.values()),
            forgotten_topics_data=list(forgotten.values()),
        )
        if version >= REPLICA_STATE_VERSION:
            request.replica_state = ReplicaState(replica_id=self._broker_id, replica_epoch=broker_epoch)
        else:
            request.replica_id = self._broker_id
        return request

    def answered(self, response: FetchResponse, version: int, now_ms: int, wall_ms: int) -> bool:
        """Append what came. False when the source refused the session: the next request goes without it."""
        if not self._session.answered(response.session_id, response.error_code):
            return False
        for topic in response.responses:
            topic_name = self._names.get(topic.topic_id) if version >= TOPIC_IDS_VERSION else topic.topic
            if topic_name is None:
                self._session.lost()  # it still has what we never asked for, or forgot
                continue
            for data in topic.partitions:
                name = TopicPartition(topic_name, data.partition_index)
                followed = self._active.get(name)
                if followed is None or followed.asked_offset != followed.partition.log.log_end_offset:
                    continue  # its role changed since we asked
                if data.error_code:
                    self._refused(name, followed, ErrorCode(data.error_code), now_ms)
                else:
                    self._take(name, followed, data, now_ms, wall_ms)
        return True

    def failed(self) -> None:
        """No answer came: the session's state is unknown, the partitions stay as they are."""
        self._session.lost()

    def _take(self, name: TopicPartition, followed: _Followed, data: PartitionData, now_ms: int, wall_ms: int) -> None:
        log = followed.partition.log
        followed.backoff_ms = 0
        try:
            diverging = data.diverging_epoch
            if diverging is not None and diverging.epoch >= 0:
                self._cut(name, followed, diverging.epoch, diverging.end_offset)
                return
            records = data.records
            if records is not None and len(records):
                followed.last_epoch = _append(followed.partition, _bytes(records), wall_ms)
                if log.awaits_sync(log.log_end_offset - 1):
                    self._unsynced[name] = None
                self._moved[name] = None
                if self._quota.is_throttled(name):
                    self._quota.record(len(records), now_ms)
            followed.is_in_sync = log.log_end_offset >= data.high_watermark
            if self._for_in_sync is not None and followed.is_in_sync != self._for_in_sync:
                self._leaving[name] = None
            elif self._leaving:
                self._leaving.pop(name, None)
            before = log.high_watermark, log.log_start_offset
            log.update_high_watermark(data.high_watermark)
            if data.log_start_offset > log.log_start_offset:
                log.raise_start(min(data.log_start_offset, log.high_watermark))
            if log.log_start_offset != followed.asked_start:
                self._moved[name] = None  # those who wait for records to be deleted everywhere want to know
            if before != (log.high_watermark, log.log_start_offset):
                self._changed(name)
        except KafkaError as error:
            if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
                logger.error("Partition %s is followed no longer: %s", name, error)
                self._suspend(name, followed)
            else:
                logger.error("Partition %s: what the leader sent cannot be appended: %s", name, error)
                self._delay(name, followed, now_ms)
        except UnexpectedOffsetError as error:
            logger.error("Partition %s is asked for anew: %s", name, error)
            self._delay(name, followed, now_ms)

    def _cut(self, name: TopicPartition, followed: _Followed, epoch: int, end_offset: int) -> None:
        log = followed.partition.log
        offset, _ = truncation_for(log, epoch, end_offset)
        if offset < log.high_watermark:
            logger.warning("Truncating %s to offset %d below high watermark %d", name, offset, log.high_watermark)
        else:
            logger.info("Truncating %s to offset %d, where its log left the leader's", name, offset)
        self._truncate(name, offset)
        followed.last_epoch = log.latest_epoch
        self._moved[name] = None
        self._changed(name)

    def _refused(self, name: TopicPartition, followed: _Followed, code: ErrorCode, now_ms: int) -> None:
        match code:
            case ErrorCode.OFFSET_OUT_OF_RANGE:
                self._deactivate(name)
                followed.state = Replicating.LOCATING
                followed.leader_start = _NOTHING
                self._locating[name] = followed
            case ErrorCode.FENCED_LEADER_EPOCH:
                logger.info(
                    "Partition %s has a later leader epoch than %d: waiting for it", name, followed.leader_epoch
                )
                self._suspend(name, followed)
            case _:
                # The leader does not know yet that it leads, or no longer does: the controller's word is under way.
                logger.debug("Partition %s cannot be fetched: %s", name, code.name)
                self._delay(name, followed, now_ms)

    # Aligning with a source that speaks an old Fetch

    def speak(self, version: int) -> None:
        """The next fetch is to be of this version."""
        if version < DIVERGING_EPOCHS_VERSION:
            for name, followed in tuple(self._fresh.items()):
                if followed.partition.log.latest_epoch >= 0:
                    self._deactivate(name)
                    followed.state = Replicating.ALIGNING
                    followed.asked_epoch = followed.partition.log.latest_epoch
                    self._aligning[name] = followed
        self._fresh.clear()

    @property
    def wants_epochs(self) -> bool:
        return bool(self._aligning)

    def epochs_request(self) -> OffsetForLeaderEpochRequest:
        """Where the epochs of our last records ended in the leaders' logs."""
        topics: dict[str, OffsetForLeaderTopic] = {}
        for name, followed in self._aligning.items():
            topic = topics.setdefault(name.topic, OffsetForLeaderTopic(topic=name.topic, partitions=[]))
            topic.partitions.append(
                OffsetForLeaderPartition(
                    partition=name.partition,
                    current_leader_epoch=followed.leader_epoch,
                    leader_epoch=followed.asked_epoch,
                )
            )
        return OffsetForLeaderEpochRequest(replica_id=self._broker_id, topics=list(topics.values()))

    def epochs_answered(self, response: OffsetForLeaderEpochResponse, now_ms: int) -> None:
        """Cut what the leaders do not have; what is not certain yet is asked for again."""
        left_out = dict(self._aligning)
        for topic in response.topics:
            for data in topic.partitions:
                name = TopicPartition(topic.topic, data.partition)
                followed = self._aligning.get(name)
                left_out.pop(name, None)
                if followed is None:
                    continue
                if data.error_code == ErrorCode.FENCED_LEADER_EPOCH:
                    self._suspend(name, followed)
                elif data.error_code:
                    self._delay(name, followed, now_ms)
                else:
                    self._align(name, followed, data.leader_epoch, data.end_offset)
        for name, followed in left_out.items():
            self._delay(name, followed, now_ms)

    def epochs_failed(self, now_ms: int) -> None:
        """No answer came: later again."""
        for name, followed in tuple(self._aligning.items()):
            self._delay(name, followed, now_ms)

    def _align(self, name: TopicPartition, followed: _Followed, epoch: int, end_offset: int) -> None:
        log = followed.partition.log
        try:
            offset, is_final = truncation_for(log, epoch, end_offset)
            if offset < log.log_end_offset:
                logger.info("Truncating %s to offset %d, where its log left the leader's", name, offset)
                self._truncate(name, offset)
                self._changed(name)
        except KafkaError as error:
            logger.error("Partition %s is followed no longer: %s", name, error)
            self._suspend(name, followed)
            return
        if is_final or log.latest_epoch < 0:
            del self._aligning[name]
            followed.is_aligned = True
            self._activate(name, followed)
        else:
            followed.asked_epoch = log.latest_epoch  # an earlier one than before: the cut took that away

    # Locating

    def offsets_request(self, timestamp: int) -> ListOffsetsRequest:
        """Where the leaders' logs end (`LATEST`) or begin (`EARLIEST`); ask in the reverse order of these two."""
        topics: dict[str, ListOffsetsTopic] = {}
        for name, followed in self._locating.items():
            topic = topics.setdefault(name.topic, ListOffsetsTopic(name=name.topic, partitions=[]))
            topic.partitions.append(
                ListOffsetsPartition(
                    partition_index=name.partition, current_leader_epoch=followed.leader_epoch, timestamp=timestamp
                )
            )
        return ListOffsetsRequest(replica_id=self._broker_id, topics=list(topics.values()))

    def offsets_answered(self, timestamp: int, response: ListOffsetsResponse, now_ms: int) -> None:
        """With the leader's start noted before and its end here, go where fetching can go on."""
        for topic in response.topics:
            for data in topic.partitions:
                name = TopicPartition(topic.name, data.partition_index)
                followed = self._locating.get(name)
                if followed is None:
                    continue
                if data.error_code:
                    if data.error_code == ErrorCode.FENCED_LEADER_EPOCH:
                        self._suspend(name, followed)
                    else:
                        self._delay(name, followed, now_ms)
                elif timestamp == EARLIEST:
                    followed.leader_start = data.offset
                elif followed.leader_start != _NOTHING:
                    self._relocate(name, followed, data.offset)

    def offsets_failed(self, now_ms: int) -> None:
        """No answer came: later again."""
        for name, followed in tuple(self._locating.items()):
            self._delay(name, followed, now_ms)

    def _relocate(self, name: TopicPartition, followed: _Followed, leader_end: int) -> None:
        """A leader that ends before us lost records, or was elected out of sync: cut. One that begins after: start there."""
        log = followed.partition.log
        self._locating.pop(name)
        try:
            if leader_end < log.log_end_offset:
                logger.warning("Truncating %s from %d to the leader's end %d", name, log.log_end_offset, leader_end)
                self._truncate(name, leader_end)
                if followed.leader_start > log.log_end_offset or leader_end < log.log_start_offset:
                    log.truncate_fully_and_start_at(max(followed.leader_start, 0))
            elif followed.leader_start > log.log_end_offset:
                logger.warning("Restarting %s at the leader's start %d", name, followed.leader_start)
                log.truncate_fully_and_start_at(followed.leader_start)
        except KafkaError as error:
            logger.error("Partition %s is followed no longer: %s", name, error)
            self._suspend(name, followed)
            return
        self._changed(name)
        self._activate(name, followed)


def _bytes(records: "Buffer | FileSlice") -> Buffer:
    return records.read() if isinstance(records, FileSlice) else records


def _append(partition: Partition, records: Buffer, wall_ms: int) -> int:
    """Append a leader's batches; returns the epoch of the last. Raises `KafkaError`, `UnexpectedOffsetError`."""
    log = partition.log
    info = log.append_as_follower(records, now_ms=wall_ms)
    if info.last_offset < info.first_offset or info.first_offset < 0:
        return log.latest_epoch
    return info.leader_epoch
