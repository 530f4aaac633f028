"""Parts of requests, for readers that make no objects of them.

They raise `MalformedMessageError`, `IndexError`, `struct.error` or `UnicodeDecodeError` where the
general decoder has to decide.

In Kafka: `ByteBufferAccessor`.
"""

import struct
from collections.abc import Callable

from barnabas.base.ids import ZERO_UUID, Uuid
from barnabas.wire.kafka.errors import MalformedMessageError
from barnabas.wire.kafka.primitives import read_uvarint

__all__ = [
    "REQUEST_START",
    "UNREADABLE_PARTS",
    "read_client_id",
    "read_count",
    "read_string",
    "read_topic",
    "skip_no_tags",
]

UNREADABLE_PARTS = (struct.error, IndexError, UnicodeDecodeError, MalformedMessageError)
"""What the functions here raise."""
REQUEST_START = struct.Struct(">hhih")
"""API key, version, correlation id and the size of the client id."""
_INT = struct.Struct(">i")
_SHORT = struct.Struct(">h")
_UUID_BYTES = 16


def skip_no_tags(data: memoryview, at: int) -> int:
    """The position behind a section of tagged fields that is empty."""
    if data[at]:
        raise MalformedMessageError("tagged fields are read by the general decoder")
    return at + 1


def read_count(data: memoryview, at: int, is_flexible: bool) -> tuple[int, int]:
    """How many elements or bytes follow, -1 for null, and where."""
    if is_flexible:
        count, at = read_uvarint(data, at)
        return count - 1, at
    return _INT.unpack_from(data, at)[0], at + _INT.size


def read_string(data: memoryview, at: int, is_flexible: bool) -> tuple[str | None, int]:
    """A string, which may be null, and what is behind it."""
    if is_flexible:
        size, at = read_uvarint(data, at)
        size -= 1
    else:
        (size,) = _SHORT.unpack_from(data, at)
        at += _SHORT.size
    if size < 0:
        if size < -1:
            raise MalformedMessageError(f"a string cannot have {size} bytes")
        return None, at
    return str(data[at : at + size], "utf-8"), at + size


def read_topic(
    data: memoryview, at: int, is_flexible: bool, topic_name: Callable[[Uuid], str | None] | None
) -> tuple[str | None, Uuid, int]:
    """A topic's name, which may be null, and id, and what is behind them.

    ``topic_name`` is given where requests have ids: the name is empty for one that is not known.
    """
    if topic_name is None:
        name, at = read_string(data, at, is_flexible)
        return name, ZERO_UUID, at
    end = at + _UUID_BYTES
    topic_id = Uuid(bytes(data[at:end]))
    return topic_name(topic_id) or "", topic_id, end


def read_client_id(data: memoryview, start: int, is_flexible: bool) -> tuple[str | None, int]:
    """The client id of the request that begins at ``start``, and where its body begins."""
    client_id, at = read_string(data, start + REQUEST_START.size - _SHORT.size, False)
    return client_id, skip_no_tags(data, at) if is_flexible else at
