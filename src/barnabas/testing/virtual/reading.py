"""What a consumer in virtual time reads and how far: positions, turns among
partitions, where to begin.

Counterpart: ``SubscriptionState`` and ``OffsetFetcher`` of Kafka's consumer.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import Any

from barnabas.base.ids import TopicPartition
from barnabas.broker.cluster.channels import ChannelError, Channels
from barnabas.client.codecs import Decoder, decoded
from barnabas.client.errors import ClientError, ConfigurationError, DeserializationError, RefusedError, refusal
from barnabas.client.records import Record
from barnabas.testing.virtual.fetching import PartitionFetcher, Position, WaitingRecord
from barnabas.testing.virtual.link import ClusterLink
from barnabas.testing.virtual.properties import VirtualConsumerSettings
from barnabas.wire.kafka.errors import ErrorCode

__all__ = ["SubscriptionState", "deserialize_waiting"]

_WAKE_S = 0.05
_LOOK_UP_S = 60.0
_RESETS = {"earliest": -2, "latest": -1}

FetchCommitted = Callable[[TopicPartition], Awaitable[int | None]]
"""The group's committed offset of a partition."""


class SubscriptionState:
    """The partitions that are assigned, each with its position and the records that wait."""

    def __init__(
        self,
        link: ClusterLink,
        channels: Channels,
        settings: VirtualConsumerSettings,
        fetch_committed: FetchCommitted,
    ) -> None:
        self._link = link
        self._channels = channels
        self._settings = settings
        self._fetch_committed = fetch_committed
        self.positions: dict[TopicPartition, Position] = {}
        self._turns: deque[TopicPartition] = deque()
        self._left_in_turn = 0
        self._fetcher = PartitionFetcher(link, settings, self.positions)

    def tasks(self) -> list[Any]:
        """What runs while there is something to read."""
        return [self._find_positions(), *(self._fetcher.run(broker_id) for broker_id in self._link.brokers)]

    def add(self, topic_partition: TopicPartition, position: Position) -> None:
        """Read a partition."""
        self.positions[topic_partition] = position
        self._turns.append(topic_partition)

    def clear(self) -> None:
        """Read nothing."""
        self.positions.clear()
        self._turns.clear()
        self._left_in_turn = 0

    def position(self, topic_partition: TopicPartition) -> Position:
        """The position in a partition; raises `ConfigurationError` if it is not assigned."""
        try:
            return self.positions[TopicPartition(*topic_partition)]
        except KeyError:
            raise ConfigurationError(
                f"{topic_partition[0]}-{topic_partition[1]} is not assigned to this consumer"
            ) from None

    def next(self) -> tuple[TopicPartition, WaitingRecord] | None:
        """The next record to hand out; raises what made reading fail.

        A turn hands out what waits in a partition at its begin. What is fetched
        meanwhile comes in the next turn.
        """
        if self._fetcher.failure is not None:
            failure, self._fetcher.failure = self._fetcher.failure, None
            raise failure
        for _ in range(len(self._turns)):
            topic_partition = self._turns[0]
            position = self.positions[topic_partition]
            if position.waiting and not position.is_paused:
                self._left_in_turn = (self._left_in_turn or len(position.waiting)) - 1
                if not self._left_in_turn:
                    self._turns.rotate(-1)
                return topic_partition, position.waiting.popleft()
            self._turns.rotate(-1)
            self._left_in_turn = 0
        return None

    async def _find_positions(self) -> None:
        """Find the leaders, and where to begin in partitions without an offset."""
        while True:
            for topic_partition, position in list(self.positions.items()):
                try:
                    await self._find_position(topic_partition, position)
                except RefusedError as error:
                    self._fetcher.failure = error
                except (ClientError, ChannelError):
                    await asyncio.sleep(_WAKE_S)
            await asyncio.sleep(_WAKE_S)

    async def _find_position(self, topic_partition: TopicPartition, position: Position) -> None:
        await self._link.find_leader(topic_partition)
        if position.offset is not None:
            return
        offset = await self._fetch_committed(topic_partition) if position.is_new and self._settings.group else None
        if offset is None:
            when = _RESETS.get(self._settings.reset)
            if when is None:
                raise refusal(
                    ErrorCode.OFFSET_OUT_OF_RANGE,
                    f"{topic_partition}: there is no committed offset, and auto.offset.reset says to fail",
                )
            found = await self._link.list_offsets(
                self._channels, {topic_partition: when}, _LOOK_UP_S, read_committed=self._settings.read_committed
            )
            offset = found[topic_partition] or 0
        if position.offset is None:
            position.move(offset)


def deserialize_waiting(
    topic_partition: TopicPartition, waiting: WaitingRecord, decode_key: Decoder | None, decode: Decoder | None
) -> Record[Any, Any]:
    """A record as the program gets it; raises `DeserializationError`."""
    raw: Record[Any, Any] = Record(
        topic_partition.topic,
        topic_partition.partition,
        waiting.offset,
        waiting.key,
        waiting.value,
        waiting.timestamp_ms,
        waiting.timestamp_type,
        waiting.headers,
        waiting.leader_epoch,
    )
    what = "key"
    try:
        key = decoded(decode_key, raw.key, raw.topic, raw.headers)
        what = "value"
        value = decoded(decode, raw.value, raw.topic, raw.headers)
    except Exception as error:  # the user's code may raise anything
        raise DeserializationError(
            f"the {what} of {topic_partition} offset {raw.offset} cannot be read: {error}", raw
        ) from error
    return raw if key is raw.key and value is raw.value else replace(raw, key=key, value=value)
