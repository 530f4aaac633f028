"""How groups are stored: the records of ``__consumer_offsets``, between the
coordinator and their bytes.

A key is a committed offset's (group, topic, partition) or a group's (group id); a record without a
value is a tombstone. Versions are those that Apache Kafka 3.9 writes: offsets in 3 (in 1 when they
carry an expiry time of their own), groups in 3. Older and newer ones are read, and keys of other
kinds (Kafka 4's coordinator) are skipped.

In Kafka: the encoding and decoding in `GroupMetadataManager` (`offsetCommitKey`,
`groupMetadataValue` and so on).
"""

from collections.abc import Callable, Sequence
from functools import lru_cache
from struct import Struct
from typing import NamedTuple

from barnabas.base.ids import TopicPartition
from barnabas.broker.groups.offsets import NO_EXPIRATION, CommittedOffset
from barnabas.wire.kafka.coordinator_records import (
    OFFSET_VALUE_VERSION,
    PLAIN_OFFSET_BYTES,
    PLAIN_OFFSET_FORMAT,
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_key,
    decode_value,
    encode_key,
    encode_value,
    pack_offset_key_head,
    pack_plain_offset,
    unpack_offset_key,
    unpack_plain_offset,
)
from barnabas.wire.kafka.records.compression import CompressionType
from barnabas.wire.kafka.records.records import Record, build_batch, encode_record_of_batch
from barnabas.wire.kafka.records.varints import varint

__all__ = [
    "MOST_PLAIN_OFFSETS",
    "GroupRecord",
    "GroupValue",
    "MemberValue",
    "OffsetRecord",
    "StoredRecord",
    "add_offset_records",
    "decode_record",
    "encode_batch",
    "encode_plain_offsets",
    "encode_record",
]


_PARTITION = Struct(">i")
_PARTITION_BYTES = _PARTITION.size
_PLAIN_SIZE = varint(PLAIN_OFFSET_BYTES)[0]
_PLAIN_TAIL = Struct(f">iB{PLAIN_OFFSET_FORMAT}B")
"""The end of a record: the key's partition, the value's size as a varint, the value, no headers."""
_MOST_DELTA_BYTES = 6
_KNOWN_DELTAS = 1024
MOST_PLAIN_OFFSETS = 64
"""Offset deltas below have one byte."""
_DELTAS = [varint(delta) for delta in range(_KNOWN_DELTAS)]


class OffsetRecord(NamedTuple):
    """A committed offset, or its tombstone."""

    group_id: str
    topic_partition: TopicPartition
    value: CommittedOffset | None


class MemberValue(NamedTuple):
    """A member as a group's record has it."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


class GroupValue(NamedTuple):
    """A generation with its members and their assignments."""

    protocol_type: str
    generation: int
    protocol: str | None
    leader: str | None
    state_since_ms: int | None
    members: list[MemberValue]


class GroupRecord(NamedTuple):
    """A group's generation, or its tombstone."""

    group_id: str
    value: GroupValue | None


StoredRecord = OffsetRecord | GroupRecord


def encode_record(record: StoredRecord) -> tuple[bytes, bytes | None]:
    """Key and value as Apache Kafka 3.9 writes them; no value for a tombstone."""
    if isinstance(record, OffsetRecord):
        topic, partition = record.topic_partition
        key = pack_offset_key_head(record.group_id, topic) + _PARTITION.pack(partition)
        committed = record.value
        return key, None if committed is None else _offset_value(committed)
    key = encode_key(GroupMetadataKey(group=record.group_id))
    return key, None if record.value is None else encode_value(_group_metadata(record.value))


def _offset_value(committed: CommittedOffset) -> bytes:
    offset, leader_epoch, metadata, commit_timestamp_ms, expire_timestamp_ms = committed
    if not metadata and expire_timestamp_ms == NO_EXPIRATION:
        return pack_plain_offset(offset, leader_epoch, commit_timestamp_ms)
    return encode_value(
        OffsetCommitValue(
            offset=offset,
            leader_epoch=leader_epoch,
            metadata=metadata,
            commit_timestamp=commit_timestamp_ms,
            expire_timestamp=expire_timestamp_ms,
        )
    )


def add_offset_records(
    body: bytearray,
    group_id: str,
    topic: str,
    partitions: Sequence[TopicPartition],
    values: Sequence[CommittedOffset],
    first: int,
) -> None:
    """Add committed offsets of one topic to a body for `build_batch_around`.

    The first of them is its record ``first``. One pass, because consumers commit all the time: of
    the plain records of a topic, which are almost all, only the offset delta, the partition and the
    numbers of the value differ.
    """
    key_head = pack_offset_key_head(group_id, topic)
    fixed = varint(len(key_head) + _PARTITION_BYTES) + key_head
    pack = _PLAIN_TAIL.pack
    heads = [varint(2 + size + len(fixed) + _PLAIN_TAIL.size) + b"\0\0" for size in range(_MOST_DELTA_BYTES)]
    pieces: list[bytes] = []
    for delta, ((_, partition), value) in enumerate(zip(partitions, values, strict=True), first):
        offset, leader_epoch, metadata, commit_ms, expire_ms = value
        if metadata or expire_ms != NO_EXPIRATION:
            key = key_head + _PARTITION.pack(partition)
            pieces.append(encode_record_of_batch(delta, key, _offset_value(value)))
            continue
        delta_bytes = _DELTAS[delta] if delta < _KNOWN_DELTAS else varint(delta)
        tail = pack(partition, _PLAIN_SIZE, OFFSET_VALUE_VERSION, offset, leader_epoch, 0, commit_ms, 0)
        pieces += (heads[len(delta_bytes)], delta_bytes, fixed, tail)
    body += b"".join(pieces)


def encode_plain_offsets(
    group_id: str,
    topic: str,
    partitions: Sequence[int],
    offsets: Sequence[int],
    leader_epochs: Sequence[int],
    commit_timestamp_ms: int,
    first: int,
) -> list[bytes]:
    """The records that `add_offset_records` adds for offsets without metadata, of short names.

    ``first`` and their number are together at most `MOST_PLAIN_OFFSETS`.
    """
    head, fixed, pack = _plain_record(group_id, topic)
    deltas = range(2 * first, 2 * (first + len(partitions)), 2)  # one byte each, as zigzag varints
    return [
        pack(head, delta, fixed, partition, _PLAIN_SIZE, OFFSET_VALUE_VERSION, offset, epoch, 0, commit_timestamp_ms, 0)
        for delta, partition, offset, epoch in zip(deltas, partitions, offsets, leader_epochs, strict=True)
    ]


@lru_cache(1024)
def _plain_record(group_id: str, topic: str) -> tuple[bytes, bytes, Callable[..., bytes]]:
    """What stands before a record's offset delta and behind it, and how all of the
    record is packed."""
    key_head = pack_offset_key_head(group_id, topic)
    fixed = varint(len(key_head) + _PARTITION_BYTES) + key_head
    head = varint(3 + len(fixed) + _PLAIN_TAIL.size) + b"\0\0"
    return head, fixed, Struct(f">{len(head)}sB{len(fixed)}s{_PLAIN_TAIL.format[1:]}").pack


def _group_metadata(value: GroupValue) -> GroupMetadataValue:
    return GroupMetadataValue(
        protocol_type=value.protocol_type,
        generation=value.generation,
        protocol=value.protocol,
        leader=value.leader,
        current_state_timestamp=-1 if value.state_since_ms is None else value.state_since_ms,
        members=[
            MemberMetadata(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                rebalance_timeout=member.rebalance_timeout_ms,
                session_timeout=member.session_timeout_ms,
                subscription=member.subscription,
                assignment=member.assignment,
            )
            for member in value.members
        ],
    )


def decode_record(key_bytes: bytes, value_bytes: bytes | None) -> StoredRecord | None:
    """A record from its key and value; None for kinds that we do not know.

    Raises `MalformedMessageError`."""
    offset_key = unpack_offset_key(key_bytes)
    if offset_key is not None:
        plain = None if value_bytes is None else unpack_plain_offset(value_bytes)
        if plain is not None:
            group_id, topic, number = offset_key
            offset, leader_epoch, commit_timestamp_ms = plain
            committed = CommittedOffset(offset, leader_epoch, "", commit_timestamp_ms)
            return OffsetRecord(group_id, TopicPartition(topic, number), committed)
    key = decode_key(key_bytes)
    if key is None:
        return None
    value = None if value_bytes is None else decode_value(key, value_bytes)
    if isinstance(key, OffsetCommitKey):
        assert value is None or isinstance(value, OffsetCommitValue)
        return OffsetRecord(
            key.group,
            TopicPartition(key.topic, key.partition),
            None
            if value is None
            else CommittedOffset(
                value.offset, value.leader_epoch, value.metadata, value.commit_timestamp, value.expire_timestamp
            ),
        )
    assert value is None or isinstance(value, GroupMetadataValue)
    return GroupRecord(key.group, None if value is None else _group_value(value))


def _group_value(value: GroupMetadataValue) -> GroupValue:
    return GroupValue(
        protocol_type=value.protocol_type,
        generation=value.generation,
        protocol=value.protocol,
        leader=value.leader,
        state_since_ms=None if value.current_state_timestamp == -1 else value.current_state_timestamp,
        members=[
            MemberValue(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                # Version 0 has the session timeout alone.
                rebalance_timeout_ms=(
                    member.rebalance_timeout if member.rebalance_timeout >= 0 else member.session_timeout
                ),
                session_timeout_ms=member.session_timeout,
                subscription=member.subscription,
                assignment=member.assignment,
            )
            for member in value.members
        ],
    )


def encode_batch(records: Sequence[StoredRecord], timestamp_ms: int, compression: CompressionType) -> bytearray:
    """One batch with all records, their offsets still to be assigned."""
    return build_batch(
        (Record(index, timestamp_ms, *encode_record(record)) for index, record in enumerate(records)),
        compression=compression,
    )
