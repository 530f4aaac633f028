"""What one client in virtual time knows of the cluster: its brokers, the leaders of
partitions, topics.

Counterpart: ``NetworkClient`` and ``Metadata`` of Kafka's clients.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from barnabas.base.ids import ZERO_UUID, TopicPartition, Uuid
from barnabas.base.network import Network
from barnabas.base.randomness import Random
from barnabas.broker.cluster.channels import ChannelError, Channels
from barnabas.client.errors import TimedOutError, UnknownTopicError, refusal
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.find_coordinator import FindCoordinatorRequest
from barnabas.wire.kafka.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic

__all__ = ["Answered", "ClusterLink", "OnRequest", "by_topic"]

T = TypeVar("T")

Answered = Callable[[Any], None]
OnRequest = Callable[[int, Any, int | None], Answered | None]
"""Called with a broker's id, a request and its version (None: the last) before it leaves; what it
returns is called with the response, if one comes."""

_REQUEST_TIMEOUT_MS = 5000
_RETRY_S = 0.1
_BEING_MADE_S = 2.0  # a new topic reaches all brokers within this time
_MISSING = frozenset((ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID))


class ClusterLink:
    """Connections to all brokers, and what they say about topics.

    Methods try again until their time is over."""

    def __init__(
        self,
        network: Network,
        endpoints: Mapping[int, tuple[str, int]],
        rng: Random,
        now_ms: Callable[[], int],
        *,
        request_timeout_ms: int = _REQUEST_TIMEOUT_MS,
        on_request: OnRequest | None = None,
    ) -> None:
        self.rng = rng
        self.now_ms = now_ms
        """The machine's wall clock."""
        self.brokers = list(endpoints)
        self.topic_ids: dict[str, Uuid] = {}
        self.controller_id = -1
        """The controller, by the last metadata."""
        self._request_timeout_ms = request_timeout_ms
        self._on_request = on_request
        self._leaders: dict[TopicPartition, int] = {}
        self._epochs: dict[TopicPartition, int] = {}
        self._network = network
        self._endpoints = endpoints
        self._all: list[Channels] = []
        self._metadata = self.channels()

    def channels(self) -> Channels:
        """Connections of their own: a broker answers the requests of a connection one after the
        other."""
        if self._on_request is None:
            made = Channels(-1, self._network, request_timeout_ms=self._request_timeout_ms)
        else:
            made = _WatchedChannels(self._network, self._request_timeout_ms, self._on_request)
        made.set_brokers(self._endpoints)
        self._all.append(made)
        return made

    def close(self) -> None:
        """Close all connections."""
        for channels in self._all:
            channels.close()

    async def ask_any(self, message: Any) -> Any:
        """The answer of any broker. Raises `ChannelError`."""
        return await self._metadata.send(self.rng.choice(self.brokers), message)

    async def find_coordinator(self, key_type: int, key: str) -> tuple[ErrorCode, int]:
        """The broker that coordinates a group or a transactional id, or why none is known.

        Raises `ChannelError`."""
        found = await self.ask_any(FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]))
        answer = found.coordinators[0]
        return ErrorCode.of(answer.error_code), answer.node_id

    async def retry(self, attempt: Callable[[], Awaitable[T | None]], timeout_s: float, what: str) -> T:
        """What ``attempt`` returns in the end; None and `ChannelError` mean to try again.

        Raises `TimedOutError`."""
        loop = asyncio.get_running_loop()
        end = loop.time() + timeout_s
        problem = ""
        while True:
            try:
                found = await attempt()
            except ChannelError as error:
                found, problem = None, f": {error}"
            if found is not None:
                return found
            if loop.time() >= end:
                raise TimedOutError(f"{what}: not within {timeout_s:g} s of virtual time{problem}")
            await asyncio.sleep(_RETRY_S)

    # Topics

    async def refresh(self, topics: Sequence[str] | None) -> dict[str, ErrorCode]:
        """Ask for metadata of these topics (None: of all); returns each one's error.

        Raises `ChannelError`."""
        wanted = None if topics is None else [MetadataRequestTopic(topic_id=ZERO_UUID, name=topic) for topic in topics]
        response = await self.ask_any(MetadataRequest(topics=wanted, allow_auto_topic_creation=False))
        self.controller_id = response.controller_id
        errors = {}
        for topic in response.topics:
            errors[topic.name] = ErrorCode.of(topic.error_code)
            if topic.error_code:
                continue
            if self.topic_ids.get(topic.name) != topic.topic_id:
                self.topic_ids[topic.name] = topic.topic_id
                for known in [each for each in self._epochs if each.topic == topic.name]:
                    del self._epochs[known]
            for partition in topic.partitions:
                topic_partition = TopicPartition(topic.name, partition.partition_index)
                # Otherwise the answer is outdated (KIP-320)
                if partition.leader_epoch >= self._epochs.get(topic_partition, -1):
                    self._epochs[topic_partition] = partition.leader_epoch
                    self._leaders[topic_partition] = -1 if partition.error_code else partition.leader_id
        return errors

    async def partitions_of(self, topic: str, timeout_s: float) -> int:
        """How many partitions a topic has; raises `UnknownTopicError`."""
        loop = asyncio.get_running_loop()
        made_by = loop.time() + _BEING_MADE_S

        async def attempt() -> int | None:
            code = (await self.refresh([topic])).get(topic, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            if code in _MISSING and loop.time() >= made_by:
                raise unknown_topic(topic)
            return self._count(topic) or None

        return await self.retry(attempt, timeout_s, f"cannot learn the partitions of {topic}")

    async def topics(self, timeout_s: float) -> dict[str, int]:
        """All topics, internal ones included, with their numbers of partitions."""

        async def attempt() -> dict[str, int]:
            errors = await self.refresh(None)
            return {topic: self._count(topic) for topic in sorted(errors)}

        return await self.retry(attempt, timeout_s, "cannot list the topics")

    def _count(self, topic: str) -> int:
        return sum(1 for topic_partition in self._epochs if topic_partition.topic == topic)

    # Leaders

    def leader(self, topic_partition: TopicPartition) -> int:
        """The broker that leads a partition, as far as is known; -1 for none."""
        return self._leaders.get(topic_partition, -1)

    def leader_epoch(self, topic_partition: TopicPartition) -> int:
        """The leader epoch in which it does."""
        return self._epochs.get(topic_partition, -1)

    def forget_leader(self, topic_partition: TopicPartition) -> None:
        """It was wrong, or does not answer."""
        self._leaders.pop(topic_partition, None)

    async def find_leader(self, topic_partition: TopicPartition) -> int | None:
        """The leader, asked for if need be; None while there is none.

        Raises `ChannelError`, `UnknownTopicError`."""
        if self.leader(topic_partition) < 0:
            await self.refresh([topic_partition.topic])
            if topic_partition not in self._epochs and self._count(topic_partition.topic):
                raise unknown_topic(str(topic_partition))
        return None if self.leader(topic_partition) < 0 else self.leader(topic_partition)

    async def list_offsets(
        self,
        channels: Channels,
        times_ms: Mapping[TopicPartition, int],
        timeout_s: float,
        *,
        read_committed: bool = False,
    ) -> dict[TopicPartition, int | None]:
        """The first offset at or after a time, of each partition; -2 is for the first, -1 for the
        end.

        With ``read_committed`` a partition ends where a transaction is open.
        """
        return {
            topic_partition: await self._list_offset(channels, topic_partition, when, timeout_s, int(read_committed))
            for topic_partition, when in times_ms.items()
        }

    async def _list_offset(
        self, channels: Channels, topic_partition: TopicPartition, time_ms: int, timeout_s: float, isolation_level: int
    ) -> int | None:
        async def attempt() -> tuple[int | None] | None:
            leader = await self.find_leader(topic_partition)
            if leader is None:
                return None
            wanted = ListOffsetsPartition(
                partition_index=topic_partition.partition,
                current_leader_epoch=self.leader_epoch(topic_partition),
                timestamp=time_ms,
            )
            topic = ListOffsetsTopic(name=topic_partition.topic, partitions=[wanted])
            try:
                response = await channels.send(
                    leader, ListOffsetsRequest(replica_id=-1, isolation_level=isolation_level, topics=[topic])
                )
            except ChannelError:
                self.forget_leader(topic_partition)
                raise
            answer = response.topics[0].partitions[0]
            if not answer.error_code:
                return (answer.offset if answer.offset >= 0 else None,)
            self.forget_leader(topic_partition)
            return self.check(answer.error_code, f"cannot look offsets of {topic_partition} up")

        return (await self.retry(attempt, timeout_s, f"cannot look offsets of {topic_partition} up"))[0]

    @staticmethod
    def check(code: int, what: str) -> None:
        """Raise the error of a code with which it makes no sense to try again."""
        error = ErrorCode.of(code)
        if code and not error.retriable:
            raise refusal(error, f"{what}: {error.message}")


class _WatchedChannels(Channels):
    """Connections whose requests and responses somebody else sees, too."""

    def __init__(self, network: Network, request_timeout_ms: int, on_request: OnRequest) -> None:
        super().__init__(-1, network, request_timeout_ms=request_timeout_ms)
        self._on_request = on_request

    async def send(
        self, broker_id: int, message: Any, *, timeout_ms: int | None = None, version: int | None = None
    ) -> Any:
        answered = self._on_request(broker_id, message, version)
        response = await super().send(broker_id, message, timeout_ms=timeout_ms, version=version)
        if answered is not None:
            answered(response)
        return response


def unknown_topic(topic: str) -> UnknownTopicError:
    """The error for a topic that does not exist."""
    return UnknownTopicError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic}: there is no such topic or partition")


def by_topic(topic_partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """The partitions' numbers under their topics."""
    found: dict[str, list[int]] = {}
    for topic_partition in topic_partitions:
        found.setdefault(topic_partition.topic, []).append(topic_partition.partition)
    return found
