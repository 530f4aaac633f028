"""Keys and values of ``__consumer_offsets`` and ``__transaction_state``, byte for byte as
Apache Kafka 3.9 keeps them.

Each is an int16 version and a message of that version. The version of a key in
``__consumer_offsets`` identifies its kind::

    0, 1   OffsetCommitKey      group, topic, partition     value OffsetCommitValue
    2      GroupMetadataKey     group                       value GroupMetadataValue
    3 ...  records of Kafka 4's coordinator, passed over

``__transaction_state`` has keys of version 0 only. A record without a value deletes. ``*_VERSION``
are the versions that Apache Kafka 3.9 writes in ZooKeeper mode; all others are read.
"""

import struct
from struct import Struct as Packer

from barnabas.base.files import Buffer
from barnabas.wire.kafka.codec import encode, reader
from barnabas.wire.kafka.errors import MalformedMessageError
from barnabas.wire.kafka.schema import (
    Message,
    MessageType,
    Struct,
    array_of,
    byte_string,
    int8,
    int16,
    int32,
    int64,
    string,
)

__all__ = [
    "EXPIRING_OFFSET_VALUE_VERSION",
    "FLEXIBLE_TRANSACTION_VALUE_VERSION",
    "GROUP_KEY_VERSION",
    "GROUP_VALUE_VERSION",
    "OFFSET_KEY_VERSION",
    "OFFSET_VALUE_VERSION",
    "PLAIN_OFFSET_BYTES",
    "PLAIN_OFFSET_FORMAT",
    "TRANSACTION_KEY_VERSION",
    "TRANSACTION_VALUE_VERSION",
    "GroupMetadataKey",
    "GroupMetadataValue",
    "MemberMetadata",
    "OffsetCommitKey",
    "OffsetCommitValue",
    "TransactionLogKey",
    "TransactionLogValue",
    "TransactionPartitions",
    "decode_key",
    "decode_transaction_key",
    "decode_transaction_value",
    "decode_value",
    "encode_key",
    "encode_transaction_value",
    "encode_value",
    "pack_offset_key_head",
    "pack_plain_offset",
    "unpack_offset_key",
    "unpack_plain_offset",
]

OFFSET_KEY_VERSION = 1
GROUP_KEY_VERSION = 2
OFFSET_VALUE_VERSION = 3
EXPIRING_OFFSET_VALUE_VERSION = 1
"""For offsets with an expiry time of their own, which old clients' retention times give."""
GROUP_VALUE_VERSION = 3
TRANSACTION_KEY_VERSION = 0
TRANSACTION_VALUE_VERSION = 0
FLEXIBLE_TRANSACTION_VALUE_VERSION = 1
"""Written while the feature transaction.version is finalized."""

_VERSION = Packer(">h")
_OFFSET_KEY_HEAD = Packer(">hh")
_INT16 = Packer(">h")
_INT32 = Packer(">i")
PLAIN_OFFSET_FORMAT = "hqihq"
_PLAIN_OFFSET = Packer(f">{PLAIN_OFFSET_FORMAT}")
PLAIN_OFFSET_BYTES = _PLAIN_OFFSET.size
"""An `OffsetCommitValue` of version 3 with empty metadata: version, offset, leader epoch, a
length of 0, commit timestamp."""


class OffsetCommitKey(Message, versions="0-1"):
    """Which partition's offset of which group."""

    group: str = string()
    topic: str = string()
    partition: int = int32()


class OffsetCommitValue(Message, versions="0-4", flexible="4+"):
    """A committed offset.

    Timestamps in milliseconds since the epoch; ``expire_timestamp`` -1 for the group's rule."""

    offset: int = int64()
    leader_epoch: int = int32("3+", default=-1, ignorable=True)
    metadata: str = string()
    commit_timestamp: int = int64()
    expire_timestamp: int = int64("1", default=-1, ignorable=True)


class GroupMetadataKey(Message, versions="2"):
    """Which group."""

    group: str = string()


class MemberMetadata(Struct):
    """``members[]`` of `GroupMetadataValue`; times in milliseconds."""

    member_id: str = string()
    group_instance_id: str | None = string("3+", nullable="3+", default=None, ignorable=True)
    client_id: str = string()
    client_host: str = string()
    rebalance_timeout: int = int32("1+", default=-1, ignorable=True)
    session_timeout: int = int32()
    subscription: bytes = byte_string()
    assignment: bytes = byte_string()


class GroupMetadataValue(Message, versions="0-4", flexible="4+"):
    """A generation of a group with its members."""

    protocol_type: str = string()
    generation: int = int32()
    protocol: str | None = string(nullable="0+")
    leader: str | None = string(nullable="0+")
    current_state_timestamp: int = int64("2+", default=-1, ignorable=True)
    members: list[MemberMetadata] = array_of(MemberMetadata)


class TransactionLogKey(Message, versions="0"):
    """Which transactional id."""

    transactional_id: str = string()


class TransactionPartitions(Struct):
    """``transaction_partitions[]`` of `TransactionLogValue`."""

    topic: str = string()
    partition_ids: list[int] = array_of("int32")


class TransactionLogValue(Message, versions="0-1", flexible="1+"):
    """The state of a transactional id's newest transaction.

    The tagged fields are Kafka 4's, for transaction version 2."""

    producer_id: int = int64()
    previous_producer_id: int = int64("1+", default=-1, tag=0, ignorable=True)
    next_producer_id: int = int64("1+", default=-1, tag=1, ignorable=True)
    producer_epoch: int = int16()
    transaction_timeout_ms: int = int32()
    transaction_status: int = int8()
    transaction_partitions: list[TransactionPartitions] | None = array_of(TransactionPartitions, nullable="0+")
    transaction_last_update_timestamp_ms: int = int64()
    transaction_start_timestamp_ms: int = int64()
    client_transaction_version: int = int16("1+", default=0, tag=2, ignorable=True)


Key = OffsetCommitKey | GroupMetadataKey | TransactionLogKey
Value = OffsetCommitValue | GroupMetadataValue | TransactionLogValue

_WRITTEN: dict[type[Message], int] = {
    OffsetCommitKey: OFFSET_KEY_VERSION,
    GroupMetadataKey: GROUP_KEY_VERSION,
    GroupMetadataValue: GROUP_VALUE_VERSION,
    TransactionLogKey: TRANSACTION_KEY_VERSION,
    TransactionLogValue: TRANSACTION_VALUE_VERSION,
}


def encode_key(key: Key) -> bytes:
    """A key's bytes, in the version that Apache Kafka 3.9 writes."""
    return _encode(key, _WRITTEN[type(key)])


def encode_value(value: Value) -> bytes:
    """A value's bytes, in the version that Apache Kafka 3.9 writes."""
    if isinstance(value, OffsetCommitValue):
        expires = value.expire_timestamp != -1
        return _encode(value, EXPIRING_OFFSET_VALUE_VERSION if expires else OFFSET_VALUE_VERSION)
    return _encode(value, _WRITTEN[type(value)])


def encode_transaction_value(value: TransactionLogValue, *, is_flexible: bool) -> bytes:
    """A value's bytes, in the version that has tagged fields or in the one that
    Apache Kafka 3.9 writes."""
    return _encode(value, FLEXIBLE_TRANSACTION_VALUE_VERSION if is_flexible else TRANSACTION_VALUE_VERSION)


def decode_key(data: Buffer) -> OffsetCommitKey | GroupMetadataKey | None:
    """A key of ``__consumer_offsets``; None for the kinds that only newer coordinators write.

    Raises MalformedMessageError.
    """
    version = _version(data, "the key of an offsets record")
    if version in OffsetCommitKey.VERSIONS:
        return _decode(OffsetCommitKey, version, data)
    if version == GROUP_KEY_VERSION:
        return _decode(GroupMetadataKey, version, data)
    return None


def decode_transaction_key(data: Buffer) -> TransactionLogKey | None:
    """A key of ``__transaction_state``; None for a kind that we do not know.

    Raises MalformedMessageError."""
    version = _version(data, "the key of a transaction record")
    return _decode(TransactionLogKey, version, data) if version == TRANSACTION_KEY_VERSION else None


def decode_transaction_value(data: Buffer) -> TransactionLogValue | None:
    """A value of ``__transaction_state``; None for a version that we do not know.

    Raises MalformedMessageError."""
    version = _version(data, "the value of a transaction record")
    return _decode(TransactionLogValue, version, data) if version in TransactionLogValue.VERSIONS else None


def decode_value(key: Key, data: Buffer) -> Value:
    """The value that belongs to ``key``.

    Raises MalformedMessageError, also for versions that we do not know."""
    value_type: type[Value]
    if isinstance(key, OffsetCommitKey):
        value_type = OffsetCommitValue
    elif isinstance(key, GroupMetadataKey):
        value_type = GroupMetadataValue
    else:
        value_type = TransactionLogValue
    return _decode(value_type, _version(data, value_type.__name__), data)


def _encode(message: Message, version: int) -> bytes:
    return _VERSION.pack(version) + encode(message, version)


def _version(data: Buffer, what: str) -> int:
    if len(data) < 2:
        raise MalformedMessageError(f"{what} ends within its version")
    version: int = _VERSION.unpack_from(data)[0]
    return version


def _decode(message_type: type[MessageType], version: int, data: Buffer) -> MessageType:
    if version not in message_type.VERSIONS:
        raise MalformedMessageError(f"{message_type.__name__} of version {version} is not known")
    message: MessageType = reader(message_type, version)(data, 2)[0]
    return message


# Almost all records are committed offsets without metadata: these functions read and write
# them three times as fast.


def unpack_offset_key(data: bytes) -> tuple[str, str, int] | None:
    """Group, topic and partition of an `OffsetCommitKey`; None where `decode_key` must look."""
    try:
        version, group_size = _OFFSET_KEY_HEAD.unpack_from(data)
        group_end = 4 + group_size
        topic_start = group_end + 2
        topic_end = topic_start + _INT16.unpack_from(data, group_end)[0]
        if version not in (0, 1) or group_size < 0 or topic_end < topic_start or topic_end + 4 != len(data):
            return None
        partition: int = _INT32.unpack_from(data, topic_end)[0]
        return data[4:group_end].decode(), data[topic_start:topic_end].decode(), partition
    except (struct.error, UnicodeDecodeError):
        return None


def unpack_plain_offset(data: bytes) -> tuple[int, int, int] | None:
    """Offset, leader epoch and commit timestamp of an `OffsetCommitValue` without metadata.

    None where `decode_value` must look."""
    if len(data) != _PLAIN_OFFSET.size:
        return None
    version, offset, leader_epoch, metadata_size, commit_timestamp = _PLAIN_OFFSET.unpack(data)
    return (offset, leader_epoch, commit_timestamp) if version == OFFSET_VALUE_VERSION and not metadata_size else None


def pack_offset_key_head(group: str, topic: str) -> bytes:
    """An `OffsetCommitKey` up to its partition, an int32.

    Raises ValueError for a name that is too long."""
    group_bytes, topic_bytes = group.encode(), topic.encode()
    try:
        head = _OFFSET_KEY_HEAD.pack(OFFSET_KEY_VERSION, len(group_bytes)) + group_bytes
        return head + _INT16.pack(len(topic_bytes)) + topic_bytes
    except struct.error as error:
        raise ValueError(f"a name of {max(len(group_bytes), len(topic_bytes))} bytes") from error


def pack_plain_offset(offset: int, leader_epoch: int, commit_timestamp: int) -> bytes:
    """An `OffsetCommitValue` without metadata and expiry."""
    return _PLAIN_OFFSET.pack(OFFSET_VALUE_VERSION, offset, leader_epoch, 0, commit_timestamp)
