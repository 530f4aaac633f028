"""The producer that all requests share, and which topics are there.

In Confluent's proxy: `ProducerPool`.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Mapping

from barnabas.client.admin.topics import describe_topics
from barnabas.client.aio.producer import AsyncProducer
from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.client.codecs import BYTES
from barnabas.client.errors import ClientError, UnknownTopicError
from barnabas.client.records import Delivery
from barnabas.rest.clients.admin_pool import AdminPool
from barnabas.rest.core.produce_requests import ProducedRecord
from barnabas.rest.errors import RestCode, RestError
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

__all__ = ["RecordProducer"]

_DEFAULTS = {"client.id": "barnabas-rest", "delivery.timeout.ms": "30000", "buffer.memory": "67108864"}
_KNOWN_FOR_S = 30.0
_MOST_TOPICS = 10_000
_LOOKS_AT_NEW_TOPIC = 10
_LOOK_S = 0.1
_CLOSE_S = 10.0


class RecordProducer:
    """Sends records whose bytes are made."""

    def __init__(self, properties: Mapping[str, str], admin: AdminPool) -> None:
        self._properties = {**_DEFAULTS, **properties}
        self._admin = admin
        self._producer: AsyncProducer[bytes, bytes] | None = None
        self._topics: OrderedDict[str, tuple[float, int]] = OrderedDict()
        """When a topic was seen, and its number of partitions."""

    async def send(
        self, topic: str, record: ProducedRecord, key: bytes | None, value: bytes | None
    ) -> "asyncio.Future[Delivery]":
        """Put a record in the queue, waiting for room; the future says where it went.

        Raises `ClientError`, and `RestError` for a topic or partition that is not there."""
        seen = self._topics.get(topic)
        if seen is None or time.monotonic() > seen[0] + _KNOWN_FOR_S or (record.partition or 0) >= seen[1]:
            seen = await self._see(topic)
        if record.partition is not None and record.partition >= seen[1]:
            raise RestError(RestCode.PARTITION_NOT_FOUND, "Partition not found.")
        if self._producer is None:
            self._producer = AsyncProducer(self._properties, serializer=BYTES, key_serializer=BYTES)
        return await self._producer.submit(
            topic,
            value,
            key,
            partition=record.partition,
            timestamp_ms=record.timestamp_ms,
            headers=record.headers or None,
        )

    async def _see(self, topic: str) -> tuple[float, int]:
        """Look a topic up; librdkafka would wait for one that is not there."""
        try:
            count = await self._admin.run(lambda connection: _partitions(connection, topic))
        except ClientError:
            self._topics.pop(topic, None)
            raise
        found = self._topics[topic] = time.monotonic(), count
        if len(self._topics) > _MOST_TOPICS:
            self._topics.popitem(last=False)
        return found

    def forget(self, topic: str) -> None:
        """Look a topic up before its next record: one was refused."""
        self._topics.pop(topic, None)

    async def close(self) -> None:
        """Wait for the records under way, and let go."""
        if self._producer is not None:
            await self._producer.close(_CLOSE_S)


def _partitions(connection: AdminConnection, topic: str) -> int:
    """How many partitions a topic has.

    One that is not there is asked for as producers do, so that brokers may make it."""
    try:
        return len(describe_topics(connection, [topic])[0].partitions)
    except UnknownTopicError:
        request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=True)
        connection.send(request, MetadataResponse)
    for _ in range(_LOOKS_AT_NEW_TOPIC):
        found = connection.metadata([topic]).topics[0]
        if not found.error_code and found.partitions:
            return len(found.partitions)
        if connection.deadline is not None and connection.deadline.left_s() < 2 * _LOOK_S:
            break
        if found.error_code not in (0, ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            break
        time.sleep(_LOOK_S)
    return len(describe_topics(connection, [topic])[0].partitions)
