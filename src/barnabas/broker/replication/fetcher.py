"""Copies partitions from one other broker, with one fetch at a time (Kafka's
`AbstractFetcherThread`).

Each partition goes through the states of `partition_fetch_state`. A fetch names the epoch of our
last record; a leader whose log diverged from ours before that answers where (KIP-595), we truncate,
and the next fetch continues from the new end. A source that cannot do that (Kafka before 2.7) is
asked where our last epoch ended before the first fetch of each leader epoch (OffsetForLeaderEpoch,
KIP-101 and KIP-279), again and again until both logs are known to agree. So no record is ever
appended after one that the leader does not have, and nothing is truncated that it does have. The
high watermark comes with each answer and is kept within our own log.

A partition that is behind may be held back by a throttle (KIP-73): it is not asked for
while the quota is exceeded.

A `Fetcher` decides and touches logs, never the network: `request` says what to send,
`handle_response` and `failed` take what came of it, and so do those of its parts `epochs` and
`offsets`. Changes of roles come in between (`follow`, `unfollow`); an answer to what was asked
before such a change is not applied, because each partition remembers what it asked.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from itertools import islice

from barnabas.base.files import Buffer, FileSlice
from barnabas.base.ids import ZERO_UUID, TopicPartition
from barnabas.base.tasks import Task
from barnabas.broker.replication.fetch_session_handler import MAX_NEW_PARTITIONS
from barnabas.broker.replication.fetch_transitions import FetchTransitions
from barnabas.broker.replication.leader_start import held_start
from barnabas.broker.replication.log_alignment import EpochAlignment, OffsetAlignment
from barnabas.broker.replication.offset_truncation import truncation_for
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.partition_fetch_state import (
    UNKNOWN,
    FetchEvent,
    FetchState,
    PartitionFetchState,
)
from barnabas.broker.replication.quotas import ReplicationQuota
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

__all__ = ["FetchLimits", "Fetcher"]

logger = logging.getLogger(__name__)

DIVERGING_EPOCHS_VERSION = 12
_TOPIC_IDS_VERSION = 13
REPLICA_STATE_VERSION = 15
_THROTTLED_PAUSE_MS = 50


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """The broker's settings for its followers."""

    partition_bytes: int
    response_bytes: int
    min_bytes: int
    wait_ms: int
    backoff_ms: int


class Fetcher:
    """Copies the partitions that one other broker leads."""

    def __init__(
        self,
        broker_id: int,
        limits: FetchLimits,
        truncate: Callable[[TopicPartition, int], None],
        on_change: Callable[[TopicPartition], None],
        quota: ReplicationQuota | None = None,
        *,
        for_in_sync: bool | None = None,
    ) -> None:
        """``truncate`` truncates a log and records that on disk.

        ``on_change`` wakes requests that wait for a partition. With ``for_in_sync`` another fetcher
        takes the partitions that are behind (True) or in sync (False); see `leaving`.
        """
        self._broker_id = broker_id
        self._limits = limits
        self._on_change = on_change
        self._quota = quota or ReplicationQuota(1, 1000)
        self._for_in_sync = for_in_sync
        transitions = self._transitions = FetchTransitions(limits.backoff_ms, truncate, on_change)
        self._states = transitions.states
        self._session = transitions.session
        self._leaving = transitions.leaving
        self.epochs = EpochAlignment(broker_id, transitions)
        self.offsets = OffsetAlignment(broker_id, transitions)
        # A work list, so that a fetch looks at what has changed only: those whose log may
        # have to be synced before it.
        self._unsynced: dict[TopicPartition, None] = {}
        self._with_new_epochs: list[PartitionLog] = []
        self._without_id: set[TopicPartition] = set()
        # The high watermark that the leader named last.
        self._with_loss: dict[TopicPartition, int] = {}

    def __len__(self) -> int:
        return len(self._states)

    def __contains__(self, topic_partition: object) -> bool:
        return topic_partition in self._states

    @property
    def copies_what_is_behind(self) -> bool:
        """Whether another fetcher takes the partitions that are in sync."""
        return self._for_in_sync is False

    def state_of(self, topic_partition: TopicPartition) -> FetchState:
        """The fetch state of a followed partition; raises `KeyError` for others."""
        fetch_state = self._states.get(topic_partition)
        if fetch_state is None:
            raise KeyError(topic_partition)
        return fetch_state.state

    # Roles

    def follow(self, partition: Partition) -> None:
        """Copy a partition in its present leader epoch.

        A log without any epoch holds records that cannot be compared: it goes back to its high
        watermark. No record can be of a later epoch than the partition: those that say so are
        damaged, and are copied again.
        """
        topic_partition = partition.topic_partition
        self.unfollow(topic_partition)
        log = partition.log
        while log.leader_epochs.latest_epoch > partition.leader_epoch:
            epoch, start_offset = log.leader_epochs.epochs.entries[-1]
            logger.error(
                "Partition %s: the records from offset %d on say that they are of leader epoch %d, and the partition is in "
                "epoch %d. They are damaged, and copied again",
                topic_partition,
                start_offset,
                epoch,
                partition.leader_epoch,
            )
            self._transitions.truncate_log(topic_partition, start_offset)
            if log.leader_epochs.latest_epoch == epoch:
                break  # the log is offline
        if log.leader_epochs.latest_epoch < 0 and log.log_end_offset > log.high_watermark:
            self._transitions.truncate_log(topic_partition, log.high_watermark)
        self._admit(PartitionFetchState(partition))

    def take_over(self, other: "Fetcher", topic_partition: TopicPartition) -> None:
        """Copy what ``other`` copied from the same source until now.

        An answer on its way there is not applied."""
        fetch_state = other.unfollow(topic_partition)
        if fetch_state is None:
            raise KeyError(topic_partition)
        fetch_state.requested_offset = UNKNOWN
        fetch_state.topic_id = fetch_state.partition.topic_id
        self._admit(fetch_state)

    def _admit(self, fetch_state: PartitionFetchState) -> None:
        topic_partition, log = fetch_state.topic_partition, fetch_state.partition.log
        self._states.add(fetch_state)
        if log.awaits_sync(log.log_end_offset - 1):
            self._unsynced[topic_partition] = None
        if fetch_state.topic_id == ZERO_UUID:
            self._without_id.add(topic_partition)

    def unfollow(self, topic_partition: TopicPartition) -> PartitionFetchState | None:
        """Copy a partition no longer; returns its state until now."""
        fetch_state = self._states.remove(topic_partition)
        if fetch_state is not None:
            self._without_id.discard(topic_partition)
            if fetch_state.state is FetchState.FETCHING:
                self._transitions.no_longer_fetched(topic_partition)
        return fetch_state

    # Time

    def wake(self, now_ms: int) -> int | None:
        """End the delays that are over.

        Returns how long until the next is (None: nothing is delayed). A partition that is behind
        and throttled is delayed while the quota is exceeded.
        """
        next_ms = None
        for fetch_state in tuple(self._states.within(FetchState.DELAYED).values()):
            if fetch_state.until_ms <= now_ms:
                self._transitions.move(fetch_state, FetchEvent.DELAY_IS_OVER)
            else:
                wait_ms = fetch_state.until_ms - now_ms
                next_ms = wait_ms if next_ms is None else min(next_ms, wait_ms)
        if self._quota.is_exceeded(now_ms) and self._throttle(now_ms):
            next_ms = _THROTTLED_PAUSE_MS if next_ms is None else min(next_ms, _THROTTLED_PAUSE_MS)
        return next_ms

    def _throttle(self, now_ms: int) -> bool:
        """Delay what the next fetch would name and the quota forbids.

        False when there is nothing of that kind."""
        found = False
        for topic_partition in (*self._states.within(FetchState.STARTING), *self._session.changed_partitions()):
            fetch_state = self._states.get(topic_partition)
            if fetch_state is not None and not fetch_state.is_in_sync and self._quota.is_throttled(topic_partition):
                fetch_state.until_ms = now_ms + _THROTTLED_PAUSE_MS
                self._transitions.move(fetch_state, FetchEvent.THROTTLED)
                found = True
        return found

    # Fetching

    @property
    def has_leaving(self) -> bool:
        return bool(self._leaving)

    def leaving(self) -> list[TopicPartition]:
        """The partitions that the other fetcher of the same source should take over."""
        return list(self._leaving)

    @property
    def wants_fetch(self) -> bool:
        return bool(self._states.within(FetchState.FETCHING) or self._states.within(FetchState.STARTING))

    def unsynced(self) -> list[PartitionLog]:
        """The logs to sync before the next `request`: it says that we have what the topic
        wants on stable storage."""
        logs = []
        for topic_partition in tuple(self._unsynced):
            fetch_state = self._states.get(topic_partition)
            log = None if fetch_state is None else fetch_state.partition.log
            if log is None or log.offline is not None or not log.awaits_sync(log.log_end_offset - 1):
                del self._unsynced[topic_partition]
            else:
                logs.append(log)
        return logs

    def take_logs_with_new_epochs(self) -> list[PartitionLog]:
        """The logs to which records of another leader epoch came since the last call: their
        epochs are to be written."""
        logs, self._with_new_epochs = self._with_new_epochs, []
        return logs

    def fetch_version(self, highest: int) -> int:
        """The version of the next fetch, from the highest that the source knows.

        From version 13 on a fetch names topics by their ids, so it needs the id of
        every partition's topic.
        """
        return min(highest, _TOPIC_IDS_VERSION - 1) if self._without_id else highest

    def speak(self, version: int) -> None:
        """The next fetch has this version: begin with the partitions that are STARTING, by fetching
        or by truncating. Only the first thousand begin at once: see `FetchSessionHandler`.
        """
        for fetch_state in tuple(islice(self._states.within(FetchState.STARTING).values(), MAX_NEW_PARTITIONS)):
            epoch = fetch_state.partition.log.leader_epochs.latest_epoch
            if version >= DIVERGING_EPOCHS_VERSION:
                self._transitions.move(fetch_state, FetchEvent.DIVERGENCE_IS_REPORTED)
            elif fetch_state.is_aligned or epoch < 0:
                self._transitions.move(fetch_state, FetchEvent.LOGS_AGREE)
            else:
                fetch_state.requested_epoch = epoch
                self._transitions.move(fetch_state, FetchEvent.DIVERGENCE_IS_UNKNOWN)

    def request(self, version: int, broker_epoch: int, wait_ms: int) -> Task[FetchRequest]:
        """The next fetch, delayed by the leader for ``wait_ms`` at most, or not at all if
        there is more to ask for.

        What leaves between two partitions is not named, and forgotten with the next request. One
        call of `handle_response` or `failed` follows.
        """
        self.speak(version)
        limits = self._limits
        step = self._session.next()
        if not step.names_all or self._states.within(FetchState.STARTING):
            wait_ms = 0
        fetching = self._states.within(FetchState.FETCHING)
        topics: dict[str, FetchTopic] = {}
        for topic_partition in step.to_send:
            yield None
            fetch_state = fetching.get(topic_partition)
            if fetch_state is None:
                continue
            log = fetch_state.partition.log
            fetch_state.requested_offset = log.log_end_offset
            fetch_state.requested_start = log.log_start_offset
            name = topic_partition.topic
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = FetchTopic(topic=name, topic_id=fetch_state.topic_id, partitions=[])
            topic.partitions.append(
                FetchPartition(
                    partition=topic_partition.partition,
                    current_leader_epoch=fetch_state.leader_epoch,
                    fetch_offset=fetch_state.requested_offset,
                    last_fetched_epoch=fetch_state.last_epoch if version >= DIVERGING_EPOCHS_VERSION else UNKNOWN,
                    log_start_offset=fetch_state.requested_start,
                    partition_max_bytes=limits.partition_bytes,
                )
            )
        if self._states.within(FetchState.STARTING):
            wait_ms = 0  # it came between two slices
        forgotten: dict[str, ForgottenTopic] = {}
        for (name, index), topic_id in step.to_forget:
            if name not in forgotten:
                forgotten[name] = ForgottenTopic(topic=name, topic_id=topic_id, partitions=[])
            forgotten[name].partitions.append(index)
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

    def handle_response(self, response: FetchResponse, version: int, now_ms: int, wall_ms: int) -> Task[bool]:
        """Append what came; roles may change between two partitions.

        False when the source refused the session: the next request goes without it."""
        if not self._session.handle_response(response.session_id, response.error_code):
            return False
        fetching = self._states.within(FetchState.FETCHING)
        for topic in response.responses:
            name = self._session.topic_name(topic.topic_id) if version >= _TOPIC_IDS_VERSION else topic.topic
            if name is None:
                self._session.lost()  # it still has what we never asked for, or forgot
                continue
            for data in topic.partitions:
                yield None
                fetch_state = fetching.get(TopicPartition(name, data.partition_index))
                if fetch_state is None or fetch_state.requested_offset != fetch_state.partition.log.log_end_offset:
                    continue  # its role changed since we asked
                if data.error_code:
                    self._transitions.handle_error(fetch_state, data.error_code, now_ms)
                else:
                    self._take(fetch_state, data, now_ms, wall_ms)
                    if fetch_state.partition.log.lost_data is not None:
                        self._reconsider_loss(fetch_state, data)
        self._transitions.report_many()
        if self._with_loss:
            self._reconsider_losses(response)
        return True

    def failed(self) -> None:
        """No answer came: the session's state is unknown, the partitions stay as they are."""
        self._session.lost()

    def _take(self, fetch_state: PartitionFetchState, data: PartitionData, now_ms: int, wall_ms: int) -> None:
        topic_partition, log = fetch_state.topic_partition, fetch_state.partition.log
        try:
            if self._truncate(fetch_state, data):
                return
            records = data.records
            if records is not None and len(records):
                last_epoch = _append(fetch_state.partition, _bytes(records), wall_ms, fetch_state.leader_epoch)
                if last_epoch != fetch_state.last_epoch:
                    self._with_new_epochs.append(log)
                fetch_state.last_epoch = last_epoch
                if log.awaits_sync(log.log_end_offset - 1):
                    self._unsynced[topic_partition] = None
                self._session.change(topic_partition)
                if self._quota.is_throttled(topic_partition):
                    self._quota.record(len(records), now_ms)
            fetch_state.is_in_sync = log.log_end_offset >= data.high_watermark
            if self._for_in_sync is not None and fetch_state.is_in_sync != self._for_in_sync:
                self._leaving[topic_partition] = None
            elif self._leaving:
                self._leaving.pop(topic_partition, None)
            self._follow_bounds(fetch_state, data, wall_ms)
        except KafkaError as error:
            if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
                self._transitions.log_failed(fetch_state, error)
            else:
                self._transitions.refused(fetch_state, str(error), now_ms)
        except UnexpectedOffsetError as error:
            self._transitions.refused(fetch_state, str(error), now_ms)
        else:
            self._transitions.succeeded(fetch_state)

    def _truncate(self, fetch_state: PartitionFetchState, data: PartitionData) -> bool:
        """Truncate to where the leader says that our log left its own.

        Returns whether it says so. Raises `KafkaError`."""
        diverging, log = data.diverging_epoch, fetch_state.partition.log
        if diverging is None or diverging.epoch < 0:
            return False
        self._transitions.truncate(fetch_state, truncation_for(log, diverging.epoch, diverging.end_offset).offset)
        fetch_state.last_epoch = log.leader_epochs.latest_epoch
        self._session.change(fetch_state.topic_partition)
        self._transitions.succeeded(fetch_state)
        return True

    def _follow_bounds(self, fetch_state: PartitionFetchState, data: PartitionData, wall_ms: int) -> None:
        """Follow the leader's high watermark and log start. Raises `KafkaError`."""
        topic_partition, log = fetch_state.topic_partition, fetch_state.partition.log
        before = log.high_watermark, log.log_start_offset
        log.update_high_watermark(data.high_watermark)
        if fetch_state.held_start is None:
            fetch_state.held_start = held_start(log, data.log_start_offset, data.high_watermark, wall_ms)
        if data.log_start_offset > max(log.log_start_offset, fetch_state.held_start):
            log.raise_start(min(data.log_start_offset, log.high_watermark))
        if log.log_start_offset != fetch_state.requested_start:
            self._session.change(topic_partition)  # DeleteRecords waits for our log start offset
        if before != (log.high_watermark, log.log_start_offset):
            self._on_change(topic_partition)

    def _reconsider_loss(self, fetch_state: PartitionFetchState, data: PartitionData) -> None:
        """Forget what a log has lost, if the leader's high watermark shows that the
        log has it again.

        The leader's high watermark alone does not say so: one that was elected or started just now
        may not know it yet. But whenever the high watermark moves, each member of the in-sync set
        has all below it. So a log that is as long as it once was is whole at a high watermark that
        has moved since we follow.
        """
        log, high_watermark = fetch_state.partition.log, data.high_watermark
        if fetch_state.state is not FetchState.FETCHING or log.lost_data is None or _is_diverging(data):
            self._with_loss.pop(fetch_state.topic_partition, None)
            return
        self._with_loss[fetch_state.topic_partition] = high_watermark
        if fetch_state.first_high_watermark is None:
            fetch_state.first_high_watermark = high_watermark
        elif high_watermark > fetch_state.first_high_watermark and log.log_end_offset >= max(
            high_watermark, log.lost_data.expected_offset
        ):
            self._forget_loss(fetch_state)

    def _reconsider_losses(self, response: FetchResponse) -> None:
        """Forget what logs have lost that end where their leader ends: it had no records for them,
        and for no other partition.

        Records of other partitions may have left no room for theirs. In a fetch session the
        response need not name such a log: then its leader's high watermark is the one that
        the session named last.
        """
        if any(data.records for topic in response.responses for data in topic.partitions):
            return
        for topic_partition, high_watermark in tuple(self._with_loss.items()):
            fetch_state = self._states.within(FetchState.FETCHING).get(topic_partition)
            if fetch_state is None:
                del self._with_loss[topic_partition]
            elif fetch_state.requested_offset == fetch_state.partition.log.log_end_offset == high_watermark:
                self._forget_loss(fetch_state)

    def _forget_loss(self, fetch_state: PartitionFetchState) -> None:
        self._with_loss.pop(fetch_state.topic_partition, None)
        logger.info("Partition %s has copied again what it had lost", fetch_state.topic_partition)
        try:
            fetch_state.partition.log.forget_lost_data()
        except KafkaError as error:
            self._transitions.log_failed(fetch_state, error)


def _is_diverging(data: PartitionData) -> bool:
    return data.diverging_epoch is not None and data.diverging_epoch.epoch >= 0


def _bytes(records: "Buffer | FileSlice") -> Buffer:
    return records.read() if isinstance(records, FileSlice) else records


def _append(partition: Partition, records: Buffer, wall_ms: int, leader_epoch: int) -> int:
    """Append a leader's batches; returns the epoch of the last.

    Raises `KafkaError`, `UnexpectedOffsetError`."""
    log = partition.log
    info = log.append_as_follower(records, now_ms=wall_ms, leader_epoch=leader_epoch)
    partition.counters.replication_bytes_in += len(records)
    if info.last_offset < info.first_offset or info.first_offset < 0:
        return log.leader_epochs.latest_epoch
    return info.leader_epoch
