"""Fetching for a consumer in virtual time: a task for each broker asks it for the
partitions that it leads.

Counterpart: ``Fetcher`` of Kafka's consumer.
"""

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

from barnabas.base.ids import TopicPartition
from barnabas.base.record_times import known_time
from barnabas.broker.cluster.channels import ChannelError
from barnabas.client.errors import ClientError, refusal
from barnabas.testing.virtual.link import ClusterLink, by_topic
from barnabas.testing.virtual.properties import VirtualConsumerSettings
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.fetch import AbortedTransaction, FetchPartition, FetchRequest, FetchTopic
from barnabas.wire.kafka.records.batch_header import read_headers
from barnabas.wire.kafka.records.control import AbortedTransactions
from barnabas.wire.kafka.records.records import read_records

__all__ = ["PartitionFetcher", "Position", "WaitingRecord"]

_IDLE_S = 0.05
_BACKOFF_S = 0.1
_MOST_WAITING = 1000
_MAX_BYTES = 1024 * 1024


class WaitingRecord(NamedTuple):
    """A record that waits for the program."""

    offset: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int | None
    timestamp_type: int
    headers: Any
    leader_epoch: int | None


class Position:
    """Where a consumer is in a partition."""

    def __init__(self, offset: int | None, *, is_new: bool = True) -> None:
        self.offset = offset
        """The offset of the next record to be handed out; None until it is known."""
        self.next_fetch = offset
        self.waiting: deque[WaitingRecord] = deque()
        self.is_paused = False
        self.is_new = is_new
        """Whether the group may have a committed offset that was not asked for."""

    def move(self, offset: int | None) -> None:
        """Go on elsewhere; None: where ``auto.offset.reset`` says."""
        self.offset = self.next_fetch = offset
        self.waiting.clear()
        self.is_new = False

    def step_over(self) -> None:
        """Where nothing waits, what is not handed out is behind: markers, aborted transactions."""
        if not self.waiting:
            self.offset = self.next_fetch

    @property
    def has_room(self) -> bool:
        """Whether to fetch more."""
        return self.next_fetch is not None and not self.is_paused and len(self.waiting) < _MOST_WAITING


class PartitionFetcher:
    """Fills the positions' queues."""

    def __init__(
        self, link: ClusterLink, settings: VirtualConsumerSettings, positions: Mapping[TopicPartition, Position]
    ) -> None:
        self._link = link
        self._settings = settings
        self._positions = positions
        self._channels = link.channels()
        self.failure: ClientError | None = None
        """The error that the next poll raises."""

    async def run(self, broker_id: int) -> None:
        """Fetch from one broker until cancelled."""
        while True:
            wanted = {
                topic_partition: position
                for topic_partition, position in self._positions.items()
                if position.has_room and self._link.leader(topic_partition) == broker_id
            }
            if not wanted:
                await asyncio.sleep(_IDLE_S)
                continue
            asked_at = {topic_partition: position.next_fetch for topic_partition, position in wanted.items()}
            try:
                response = await self._channels.send(broker_id, self._request(asked_at))
            except ChannelError:
                for topic_partition in wanted:
                    self._link.forget_leader(topic_partition)
                await asyncio.sleep(_BACKOFF_S)
                continue
            if response.error_code:
                await asyncio.sleep(_BACKOFF_S)
                continue
            names = {topic_id: topic for topic, topic_id in self._link.topic_ids.items()}
            for topic in response.responses:
                for answer in topic.partitions:
                    topic_partition = TopicPartition(topic.topic or names[topic.topic_id], answer.partition_index)
                    position = wanted.get(topic_partition)
                    # The program may have moved on, or given the partition up, while
                    # the broker waited.
                    is_same = position is self._positions.get(topic_partition)
                    if position is not None and is_same and position.next_fetch == asked_at[topic_partition]:
                        self._take(topic_partition, position, answer)

    def _request(self, wanted: Mapping[TopicPartition, int | None]) -> FetchRequest:
        topics = [
            FetchTopic(
                topic=topic,
                topic_id=self._link.topic_ids[topic],
                partitions=[
                    FetchPartition(
                        partition=number,
                        fetch_offset=wanted[TopicPartition(topic, number)] or 0,
                        partition_max_bytes=self._settings.partition_bytes,
                        current_leader_epoch=self._link.leader_epoch(TopicPartition(topic, number)),
                    )
                    for number in numbers
                ],
            )
            for topic, numbers in by_topic(wanted).items()
        ]
        return FetchRequest(
            replica_id=-1,
            max_wait_ms=self._settings.fetch_wait_ms,
            min_bytes=1,
            max_bytes=_MAX_BYTES,
            isolation_level=int(self._settings.read_committed),
            session_epoch=-1,
            topics=topics,
        )

    def _take(self, topic_partition: TopicPartition, position: Position, answer: Any) -> None:
        code = ErrorCode.of(answer.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            position.move(None)
        elif code:
            self._link.forget_leader(topic_partition)
            if not code.retriable:
                self.failure = refusal(code, f"cannot read {topic_partition}: {code.message}")
        elif answer.records:
            aborted = answer.aborted_transactions if self._settings.read_committed else None
            self._add(position, bytes(answer.records), aborted or [])

    @staticmethod
    def _add(position: Position, data: bytes, aborted: list[AbortedTransaction]) -> None:
        """Let the records wait, but for those of aborted transactions (KIP-98)."""
        transactions = AbortedTransactions((each.first_offset, each.producer_id) for each in aborted)
        for at, header in read_headers(data):
            if transactions.shows(data, at, header):
                for record in read_records(data, at):
                    if position.next_fetch is not None and record.offset >= position.next_fetch:
                        is_append_time = header.is_log_append_time
                        position.waiting.append(
                            WaitingRecord(
                                record.offset,
                                record.key,
                                record.value,
                                known_time(header.max_timestamp if is_append_time else record.timestamp),
                                int(is_append_time),
                                record.headers,
                                header.leader_epoch,
                            )
                        )
            position.next_fetch = header.last_offset + 1
        position.step_over()
