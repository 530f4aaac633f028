"""The record that a consumer reads next at an offset, and its timestamp, for many partitions in one
request. Needs the right to read.

In Kafka: `KafkaConsumer.seek` and one `poll`.
"""

from collections.abc import Iterator, Mapping
from typing import NamedTuple

from barnabas.base.errors import CorruptDataError
from barnabas.base.files import FileSlice
from barnabas.base.ids import TopicPartition
from barnabas.client.admin.offsets import ask_leaders
from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.client.errors import ClientError, refusal
from barnabas.wire.kafka.errors import KafkaError
from barnabas.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from barnabas.wire.kafka.records.batch_header import read_headers
from barnabas.wire.kafka.records.records import read_times

__all__ = ["NextRecord", "next_record_of", "next_records_in_part"]

_NO_SESSION = -1
_NAMES_UNTIL = 12  # the last version of Fetch that names topics rather than their ids
_FETCHED_BYTES = 32 * 1024
"""For each partition. A batch that is longer comes whole for one partition of a request, and not
at all for the others."""
_MOST_PARTITIONS = 64


class NextRecord(NamedTuple):
    """What comes at an offset. Control batches (transactions' markers) are no records."""

    offset: int | None
    """The offset of the first record at or after the one that was asked for; None if it was not
    sent: at the end, or because its batch is too long."""
    timestamp_ms: int | None
    markers_until: int
    """The offset after the markers that stand before it, or the one that was asked for."""


def next_records_in_part(
    connection: AdminConnection, wanted: Mapping[TopicPartition, int]
) -> dict[TopicPartition, NextRecord | ClientError]:
    """The next record at the offset of each partition. Leaders are asked as by
    `offsets_in_part`."""

    def ask(
        asking: AdminConnection, leader: int, partitions: list[TopicPartition]
    ) -> Iterator[tuple[TopicPartition, NextRecord | ClientError]]:
        for start in range(0, len(partitions), _MOST_PARTITIONS):
            request = _request({each: wanted[each] for each in partitions[start : start + _MOST_PARTITIONS]})
            response = asking.send(request, FetchResponse, leader, max_version=_NAMES_UNTIL)
            for topic in response.responses:
                for item in topic.partitions:
                    partition = TopicPartition(topic.topic, item.partition_index)
                    if item.error_code:
                        yield partition, refusal(item.error_code, about=f"topic {topic.topic}")
                    else:
                        data = b"" if item.records is None or isinstance(item.records, FileSlice) else item.records
                        yield partition, next_record_of(data, wanted[partition])

    return ask_leaders(connection, wanted, ask, in_part=True)


def next_record_of(data: bytes | bytearray | memoryview, offset: int) -> NextRecord:
    """The first record at or after ``offset`` in batches that a broker sent.

    Damaged batches hold none that can be read.
    """
    markers_until = offset
    try:
        for position, header in read_headers(data):
            if header.last_offset < offset:
                continue
            if header.is_control:
                markers_until = header.last_offset + 1
                continue
            for record_offset, timestamp_ms in read_times(data, position):
                if record_offset >= offset:
                    found = header.max_timestamp if header.is_log_append_time else timestamp_ms
                    return NextRecord(record_offset, found, markers_until)
    except (CorruptDataError, KafkaError):
        pass
    return NextRecord(None, None, markers_until)


def _request(wanted: Mapping[TopicPartition, int]) -> FetchRequest:
    topics: dict[str, FetchTopic] = {}
    for (topic, partition), offset in wanted.items():
        entry = topics.setdefault(topic, FetchTopic(topic=topic))
        entry.partitions.append(
            FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=_FETCHED_BYTES)
        )
    return FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=_FETCHED_BYTES * len(wanted),
        session_epoch=_NO_SESSION,
        topics=list(topics.values()),
    )
