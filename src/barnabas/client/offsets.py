"""Offsets of partitions by time over an `AdminConnection`."""

from collections.abc import Mapping
from typing import NamedTuple

from barnabas.base.ids import TopicPartition
from barnabas.client.admin import ROUTING_ERRORS, AdminConnection
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

__all__ = ["EARLIEST", "EARLIEST_LOCAL", "LATEST", "LATEST_TIERED", "MAX_TIMESTAMP", "FoundOffset", "list_offsets"]

LATEST = -1
"""The offset that the next record will get (at read_committed: the last stable offset)."""
EARLIEST = -2
MAX_TIMESTAMP = -3
"""The record with the largest timestamp (KIP-734)."""
EARLIEST_LOCAL = -4
LATEST_TIERED = -5

_MIN_VERSIONS = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}
_NO_REPLICA = -1


class FoundOffset(NamedTuple):
    """An offset and its record's timestamp; both -1 where no record is as young as asked."""

    offset: int
    timestamp_ms: int


def list_offsets(
    connection: AdminConnection, wanted: Mapping[TopicPartition, int], *, read_committed: bool = False
) -> dict[TopicPartition, FoundOffset | KafkaError]:
    """For each partition the first offset at or after a time in ms, or one of the constants; each leader is asked.

    Partitions whose leader moves are asked again; what stays wrong is a `KafkaError` in place of the offset.
    """
    found: dict[TopicPartition, FoundOffset | KafkaError] = {}
    left = dict(wanted)

    def attempt() -> ListOffsetsResponse:
        """One round over all leaders; its combined response holds the partitions that may yet come right."""
        unsettled = ListOffsetsResponse(topics=[])
        for leader, partitions in _by_leader(connection, left, found).items():
            request = _request(
                {partition: wanted[partition] for partition in partitions}, read_committed=read_committed
            )
            response = connection.send(request, ListOffsetsResponse, leader)
            for topic in response.topics:
                for item in topic.partitions:
                    partition = TopicPartition(topic.name, item.partition_index)
                    if item.error_code:
                        found[partition] = KafkaError(item.error_code)
                    else:
                        found[partition] = FoundOffset(item.offset, item.timestamp)
                    if item.error_code not in ROUTING_ERRORS:
                        left.pop(partition, None)
            unsettled.topics += response.topics
        for partition in left:
            error = found.get(partition)
            if isinstance(error, KafkaError) and error.code in ROUTING_ERRORS:
                raise error
        return unsettled

    try:
        connection.retry(attempt, lambda _: ())
    except KafkaError as error:
        if error.code not in ROUTING_ERRORS:
            raise
    return {partition: found[partition] for partition in wanted}


def _request(wanted: Mapping[TopicPartition, int], *, read_committed: bool) -> ListOffsetsRequest:
    topics: dict[str, ListOffsetsTopic] = {}
    for (topic, partition), timestamp in wanted.items():
        entry = topics.setdefault(topic, ListOffsetsTopic(name=topic))
        entry.partitions.append(ListOffsetsPartition(partition_index=partition, timestamp=timestamp))
    return ListOffsetsRequest(
        replica_id=_NO_REPLICA, isolation_level=int(read_committed), topics=list(topics.values()), timeout_ms=30_000
    )


def _by_leader(
    connection: AdminConnection,
    wanted: Mapping[TopicPartition, int],
    found: dict[TopicPartition, FoundOffset | KafkaError],
) -> dict[int, list[TopicPartition]]:
    """The partitions by their leaders; what has none, or is not there, is an error in ``found``."""
    leaders: dict[TopicPartition, int] = {}
    for topic in connection.metadata(sorted({partition.topic for partition in wanted})).topics:
        for item in topic.partitions:
            leaders[TopicPartition(topic.name or "", item.partition_index)] = item.leader_id
    groups: dict[int, list[TopicPartition]] = {}
    for partition in wanted:
        leader = leaders.get(partition)
        if leader is None:
            found[partition] = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"partition {partition} does not exist")
        elif leader < 0:
            found[partition] = KafkaError(ErrorCode.LEADER_NOT_AVAILABLE, f"partition {partition} has no leader")
        else:
            groups.setdefault(leader, []).append(partition)
    return groups
