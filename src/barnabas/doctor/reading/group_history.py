"""Reads the last records of ``__consumer_offsets``: when offsets were committed, and groups came
into their states.

No API shows these times. The topic is read from near its end, a bounded number of records of each
partition that has a group of interest; what happened before is not known, and said so.

In Kafka: what ``kafka-console-consumer --topic __consumer_offsets`` with
`GroupMetadataMessageFormatter` and `OffsetsMessageFormatter` print.
"""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from barnabas.base.errors import CorruptDataError
from barnabas.base.files import FileSlice
from barnabas.base.ids import TopicPartition
from barnabas.broker.metadata.internal_topics import OFFSETS_TOPIC, partition_of
from barnabas.client.admin.offsets import bounds_in_part
from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.client.cluster.each_broker import ask_each
from barnabas.client.errors import ClientError, refusal
from barnabas.doctor.evidence.cluster import TopicsPart
from barnabas.doctor.evidence.groups import GroupHistoryPart, GroupsPart, GroupTimes, GroupView
from barnabas.doctor.evidence.part import Gap, Why
from barnabas.doctor.reading.registration import ClusterReading, UnreadError, absent_for, reads
from barnabas.wire.kafka.coordinator_records import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_key,
    decode_value,
)
from barnabas.wire.kafka.errors import KafkaError
from barnabas.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from barnabas.wire.kafka.records.batch_header import read_headers
from barnabas.wire.kafka.records.records import Record, read_records

__all__ = ["read_group_history"]

_RIGHT = f"Read on the topic {OFFSETS_TOPIC}"
_MOST_OFFSETS = 30_000
"""In all partitions: a third of a second."""
_LEAST_OFFSETS = 500
"""In each partition."""
_FETCHED_BYTES = 1 << 20
_NO_SESSION = -1
_NAMES_UNTIL = 12  # the last version of Fetch that names topics rather than their ids


@dataclass(slots=True)
class _Commit:
    """The last commit of a partition, and the first one of the same offset."""

    offset: int
    first_ms: int
    last_ms: int


@dataclass(slots=True)
class _Seen:
    """What the records of one partition of the topic say."""

    since_ms: int | None = None
    commits: dict[tuple[str, TopicPartition], _Commit] = field(default_factory=dict)
    states_ms: dict[str, int] = field(default_factory=dict)

    def add(self, record: Record) -> None:
        """Raises `CorruptDataError` for what is not a coordinator's record."""
        key = decode_key(record.key) if record.key is not None else None
        if isinstance(key, OffsetCommitKey):
            at = (key.group, TopicPartition(key.topic, key.partition))
            value = None if record.value is None else decode_value(key, record.value)
            if isinstance(value, OffsetCommitValue):
                before = self.commits.get(at)
                first_ms = before.first_ms if before and before.offset == value.offset else value.commit_timestamp
                self.commits[at] = _Commit(value.offset, first_ms, value.commit_timestamp)
            else:
                self.commits.pop(at, None)
        elif isinstance(key, GroupMetadataKey):
            value = None if record.value is None else decode_value(key, record.value)
            if isinstance(value, GroupMetadataValue):
                state_ms = value.current_state_timestamp
                self.states_ms[key.group] = state_ms if state_ms >= 0 else record.timestamp
            else:
                self.states_ms.pop(key.group, None)


@reads(right=_RIGHT)
def read_group_history(reading: ClusterReading) -> GroupHistoryPart:
    """The times of groups that lag with members, or have offsets and no member."""
    wanted = [each for each in reading.require(GroupsPart).groups if _is_of_interest(each)]
    if not wanted:
        return GroupHistoryPart(times={})
    topic = reading.require(TopicsPart).by_name.get(OFFSETS_TOPIC)
    if topic is None:
        raise UnreadError(Why.NO_RIGHT, f"the right {_RIGHT} is missing")
    by_partition: dict[int, list[GroupView]] = defaultdict(list)
    for group in wanted:
        by_partition[partition_of(group.group_id, len(topic.partitions))].append(group)
    seen, gaps = _read(
        reading.connection, {each.partition: each.leader for each in topic.partitions}, list(by_partition)
    )
    if gaps and not seen:
        raise UnreadError(gaps[0].absent.why, gaps[0].absent.reason)
    times = {
        group.group_id: _times(group, seen[number])
        for number, groups in by_partition.items()
        if number in seen
        for group in groups
    }
    return GroupHistoryPart(times=times, gaps=tuple(gaps))


def _is_of_interest(group: GroupView) -> bool:
    return bool(group.partitions) and (not group.description.members or group.lag > 0)


def _times(group: GroupView, seen: _Seen) -> GroupTimes:
    commits = {
        partition: commit
        for partition in group.partitions
        if (commit := seen.commits.get((group.group_id, partition))) is not None
    }
    return GroupTimes(
        commits={partition: commit.last_ms for partition, commit in commits.items()},
        unmoved_ms={
            partition: commit.first_ms
            for partition, commit in commits.items()
            if commit.offset == group.partitions[partition].committed
        },
        state_ms=seen.states_ms.get(group.group_id),
        since_ms=seen.since_ms,
    )


def _read(
    connection: AdminConnection, leaders: Mapping[int, int | None], numbers: list[int]
) -> tuple[dict[int, _Seen], list[Gap]]:
    """What the last records of these partitions say; their leaders are asked at the same time."""
    bounds = bounds_in_part(connection, [TopicPartition(OFFSETS_TOPIC, number) for number in numbers])
    most = max(_LEAST_OFFSETS, _MOST_OFFSETS // len(numbers))
    gaps: list[Gap] = []
    by_leader: dict[int, list[tuple[int, int, int]]] = defaultdict(list)
    for partition, found in bounds.items():
        leader = leaders[partition.partition]
        if isinstance(found, ClientError):
            gaps.append(Gap(str(partition), absent_for(found, _RIGHT)))
        elif leader is not None:
            by_leader[leader].append((partition.partition, *found))

    def ask(asking: AdminConnection, leader: int) -> dict[int, _Seen | ClientError]:
        return {number: _tail(asking, leader, number, first, end, most) for number, first, end in by_leader[leader]}

    seen: dict[int, _Seen] = {}
    for leader, answer in ask_each(connection, by_leader, ask).items():
        found_here = {number: answer for number, *_ in by_leader[leader]} if isinstance(answer, ClientError) else answer
        for number, found_one in found_here.items():
            if isinstance(found_one, ClientError):
                gaps.append(Gap(f"{OFFSETS_TOPIC}-{number}", absent_for(found_one, _RIGHT)))
            else:
                seen[number] = found_one
    return seen, gaps


def _tail(
    connection: AdminConnection, leader: int, number: int, first: int, end: int, most: int
) -> "_Seen | ClientError":
    """The records from ``most`` offsets before the end on."""
    seen = _Seen()
    start = max(first, end - most)
    position = start
    try:
        while position < end:
            before = position
            for record in _fetched(connection, leader, number, position):
                if record.offset >= position:
                    position = record.offset + 1
                    if seen.since_ms is None and start > first:
                        seen.since_ms = record.timestamp
                    seen.add(record)
            if position == before:
                break  # what follows is not to be had: markers, or records that are gone
    except ClientError as error:
        return error
    except (CorruptDataError, KafkaError) as error:
        return ClientError(f"{OFFSETS_TOPIC}-{number} cannot be read at offset {position}: {error}")
    return seen


def _fetched(connection: AdminConnection, leader: int, number: int, offset: int) -> Iterator[Record]:
    """The records of the batches that one request brings, control records left out. After each
    batch comes its end as a record without a key: what it held may be compacted."""
    partition = FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=_FETCHED_BYTES)
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        session_epoch=_NO_SESSION,
        topics=[FetchTopic(topic=OFFSETS_TOPIC, partitions=[partition])],
    )
    response = connection.send(request, FetchResponse, leader, max_version=_NAMES_UNTIL)
    answer = response.responses[0].partitions[0]
    if answer.error_code:
        raise refusal(answer.error_code, about=f"topic {OFFSETS_TOPIC}")
    records = answer.records
    if records is None or isinstance(records, FileSlice):  # only what is sent may be one
        return
    for position, header in read_headers(records):
        batch = memoryview(records)[position : position + header.size_bytes]
        if not header.is_control:
            yield from read_records(batch)
        yield Record(header.last_offset, header.max_timestamp, None, None)
