"""A stored batch that consumers cannot read: what is wrong with it, and where the next one begins.

In Kafka: what `DumpLogSegments` shows, asked of the leader.
"""

from typing import NamedTuple

from barnabas.base.errors import CorruptDataError
from barnabas.base.files import FileSlice
from barnabas.base.ids import TopicPartition
from barnabas.client.admin.topics import no_leader
from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.client.errors import UnknownTopicError, refusal
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from barnabas.wire.kafka.records.batch_header import check_batch, read_headers
from barnabas.wire.kafka.records.records import read_records

__all__ = ["StoredBatch", "batch_at", "fetched_records"]

_NO_SESSION = -1
_NAMES_UNTIL = 12  # the last version of Fetch that names topics rather than their ids
_FETCHED_BYTES = 64 * 1024


class StoredBatch(NamedTuple):
    """A batch as its leader sends it."""

    first_offset: int
    last_offset: int
    size_bytes: int
    codec: str
    damage: str | None
    """Why no consumer can read it; None for a sound one, or one that only some
    consumers cannot read."""


def batch_at(connection: AdminConnection, topic_partition: TopicPartition, offset: int) -> StoredBatch | None:
    """The batch that holds ``offset``, or the next one; None at the end of the partition.

    Raises `RefusedError` with what its leader answers, and `ConnectError`.
    """
    records = fetched_records(connection, topic_partition, offset)
    for position, header in read_headers(records):
        if header.last_offset < offset:
            continue
        batch = memoryview(records)[position : position + header.size_bytes]
        return StoredBatch(
            header.base_offset,
            header.last_offset,
            header.size_bytes,
            header.compression.name.lower(),
            _damage(batch),
        )
    return None


def fetched_records(
    connection: AdminConnection, topic_partition: TopicPartition, offset: int
) -> bytes | bytearray | memoryview:
    """Up to 64 KiB of batches from the one that holds ``offset`` on, as their leader sends them: at
    least one batch, unless the partition ends there.

    Raises `RefusedError` with what its leader answers, and `ConnectError`.
    """
    topic, partition = topic_partition

    def attempt() -> FetchResponse:
        request = FetchRequest(
            max_wait_ms=0,
            min_bytes=0,
            session_epoch=_NO_SESSION,
            topics=[
                FetchTopic(
                    topic=topic,
                    partitions=[
                        FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=_FETCHED_BYTES)
                    ],
                )
            ],
        )
        return connection.send(request, FetchResponse, _leader(connection, topic_partition), max_version=_NAMES_UNTIL)

    response = connection.retry(attempt, lambda answer: [item.error_code for item in answer.responses[0].partitions])
    answer = response.responses[0].partitions[0]
    if answer.error_code:
        raise refusal(answer.error_code, about=f"topic {topic}")
    records = answer.records
    if records is None or isinstance(records, FileSlice):  # only what is sent may be one
        return b""
    return records


def _leader(connection: AdminConnection, topic_partition: TopicPartition) -> int:
    (topic,) = connection.metadata([topic_partition.topic]).topics
    if topic.error_code:
        raise refusal(topic.error_code, about=f"topic {topic_partition.topic}")
    for item in topic.partitions:
        if item.partition_index == topic_partition.partition:
            if item.leader_id < 0:
                raise no_leader(topic_partition, item.replica_nodes)
            leader_id: int = item.leader_id
            return leader_id
    raise UnknownTopicError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"{topic_partition} is not there")


def _damage(batch: memoryview) -> str | None:
    try:
        check_batch(batch, 0, len(batch))
        for _ in read_records(batch):
            pass
    except (CorruptDataError, KafkaError) as error:
        return str(error)
    return None
