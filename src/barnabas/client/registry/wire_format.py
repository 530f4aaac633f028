"""The first bytes of a value that belongs to a registry, in the format of Confluent's serializers.

    0          one byte
    id         four bytes, big endian: the schema's, in the registry
    1, GUID    instead of both: one byte, and the sixteen of the schema's GUID, which is the same in
               all registries. It may stand in a header (__value_schema_id) instead of the value
    indexes    Protobuf alone: which message of its file, as zigzag varints: how many numbers, then
               each. The first number is the index of a message in the file, the next the index of a
               message inside that one. One zero byte stands for [0], the first message
    value

Kafka has no counterpart; Confluent's client has AbstractKafkaSchemaSerDe and MessageIndexes.
"""

import struct

from barnabas.client.errors import ClientError

__all__ = [
    "GUID_MAGIC",
    "encode_schema_id",
    "header_of_id",
    "may_have_id",
    "split_guid",
    "split_message_indexes",
    "split_schema_id",
]

_HEADER = struct.Struct(">bI")
_MAGIC = 0
GUID_MAGIC = b"\1"
_GUID_BYTES = 16
_MOST_INDEXES = 1000
_LONGEST_VARINT_BITS = 28
_FIRST_MESSAGE = (0,)


def header_of_id(*, is_key: bool) -> str:
    """The header in which a record may have the id of its key's schema, or its value's."""
    return "__key_schema_id" if is_key else "__value_schema_id"


def may_have_id(data: bytes) -> bool:
    """Whether a value may begin with an id: other values can begin with the same bytes."""
    if data.startswith(GUID_MAGIC):
        return len(data) >= len(GUID_MAGIC) + _GUID_BYTES
    return len(data) >= _HEADER.size and data[0] == _MAGIC


def encode_schema_id(schema_id: int) -> bytes:
    """The header that each value has."""
    return _HEADER.pack(_MAGIC, schema_id)


def split_schema_id(data: bytes) -> tuple[int, bytes]:
    """The schema's id, and what follows it. Raises `ClientError` for a value without one."""
    if len(data) < _HEADER.size or data[0] != _MAGIC:
        raise ClientError("it does not begin with a schema's id, as values of a registry do")
    return _HEADER.unpack_from(data)[1], data[_HEADER.size :]


def split_guid(data: bytes) -> tuple[bytes, bytes]:
    """The schema's GUID, and what follows it. Raises `ClientError` for a value without one."""
    end = len(GUID_MAGIC) + _GUID_BYTES
    if len(data) < end or not data.startswith(GUID_MAGIC):
        raise ClientError("it does not begin with a schema's id, as values of a registry do")
    return data[len(GUID_MAGIC) : end], data[end:]


def split_message_indexes(data: bytes) -> tuple[tuple[int, ...], bytes]:
    """The indexes of a Protobuf message, and its value.

    Raises `ClientError` if they are cut off or negative."""
    count, at = _read_varint(data, 0)
    if count == 0:
        return _FIRST_MESSAGE, data[at:]
    if count > _MOST_INDEXES:
        raise ClientError(f"it names a message by {count} indexes")
    indexes = []
    for _ in range(count):
        index, at = _read_varint(data, at)
        indexes.append(index)
    return tuple(indexes), data[at:]


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        if at >= len(data) or shift > _LONGEST_VARINT_BITS:
            raise ClientError("the indexes of its message are cut off")
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            break
    if number & 1:
        raise ClientError("an index of its message is negative")
    return number >> 1, at
