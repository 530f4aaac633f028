"""What consumers exchange through the group coordinator: subscriptions and assignments.

Both are an int16 version and a message of that version, opaque to the protocol itself. A newer
version than we know is read as the newest that we do: versions only append fields.
"""

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
    int32,
    string,
)

__all__ = [
    "PROTOCOL_TYPE",
    "AssignedPartitions",
    "Assignment",
    "OwnedPartitions",
    "Subscription",
    "begins_with_topics",
    "decode_assignment",
    "decode_subscription",
    "encode_assignment",
    "encode_subscription",
    "encode_topics",
]

PROTOCOL_TYPE = "consumer"
"""The protocol type of consumer groups."""

_VERSION = Packer(">h")
_SIZE = Packer(">i")
_HIGHEST = 3


class OwnedPartitions(Struct):
    """``owned_partitions[]`` of `Subscription`."""

    topic: str = string("1+")
    partitions: list[int] = array_of("int32", "1+")


class Subscription(Message, versions="0-3"):
    """What a member wants, and holds from before the rebalance (ConsumerProtocolSubscription)."""

    topics: list[str] = array_of("string")
    user_data: bytes | None = byte_string(nullable="0+", default=None)
    owned_partitions: list[OwnedPartitions] = array_of(OwnedPartitions, "1+", ignorable=True)
    generation_id: int = int32("2+", default=-1, ignorable=True)
    rack_id: str | None = string("3+", nullable="3+", default=None, ignorable=True)


class AssignedPartitions(Struct):
    """``assigned_partitions[]`` of `Assignment`."""

    topic: str = string()
    partitions: list[int] = array_of("int32")


class Assignment(Message, versions="0-3"):
    """What a member got (ConsumerProtocolAssignment)."""

    assigned_partitions: list[AssignedPartitions] = array_of(AssignedPartitions)
    user_data: bytes | None = byte_string(nullable="0+", default=None)


def encode_subscription(subscription: Subscription, version: int = _HIGHEST) -> bytes:
    """A member's metadata for JoinGroup."""
    return _VERSION.pack(version) + encode(subscription, version)


def decode_subscription(data: Buffer, as_version: int | None = None) -> Subscription:
    """A member's metadata; raises MalformedMessageError if it is not a subscription.

    ``as_version`` reads the fields of that version only, whatever version the data says: a
    broker that wants the topics reads version 0, and so does not mind what clients do with
    the fields after them.
    """
    return _decode(Subscription, data, as_version)


def encode_topics(topics: list[str]) -> bytes:
    """The part of a member's metadata that says its topics, for `begins_with_topics`."""
    return encode_subscription(Subscription(topics=topics), 0)[_VERSION.size : -_SIZE.size]


def begins_with_topics(data: bytes, topics: bytes) -> bool:
    """Whether `decode_subscription` as version 0 finds exactly these topics, from
    `encode_topics`, in a member's metadata."""
    end = _VERSION.size + len(topics)
    if not data.startswith(topics, _VERSION.size) or data[0] > 0x7F or len(data) < end + _SIZE.size:
        return False
    size: int = _SIZE.unpack_from(data, end)[0]
    return size <= len(data) - end - _SIZE.size  # less than 0 for none


def encode_assignment(assignment: Assignment, version: int = _HIGHEST) -> bytes:
    """A member's assignment for SyncGroup."""
    return _VERSION.pack(version) + encode(assignment, version)


def decode_assignment(data: Buffer) -> Assignment:
    """A member's assignment; raises MalformedMessageError if it is not an assignment.

    Bytes that follow are a newer version's."""
    return _decode(Assignment, data)


def _decode(message_type: type[MessageType], data: Buffer, as_version: int | None = None) -> MessageType:
    if len(data) < 2:
        raise MalformedMessageError(f"{message_type.__name__} ends within its version")
    (version,) = _VERSION.unpack_from(data)
    if version < 0:
        raise MalformedMessageError(f"{message_type.__name__} has the version {version}")
    read_as = min(version, _HIGHEST) if as_version is None else as_version
    message: MessageType = reader(message_type, read_as)(data, 2)[0]
    return message
