"""What compiled readers and writers call: variable-length integers, runs of numbers,
and their errors.

Kafka writes unsigned variable-length integers as base-128 groups, the lowest first, the top bit set
on all but the last; signed ones zigzag first (KIP-482 for messages, record batches v2 for records).
"""

from functools import cache
from struct import Struct as Packer
from typing import Any

from barnabas.base.files import Buffer
from barnabas.wire.kafka.errors import MalformedMessageError

__all__ = [
    "MOST_TAGGED_FIELDS",
    "number_reader",
    "number_writer",
    "packer",
    "read_uvarint",
    "skip_tagged_fields",
    "uvarint",
]

packer = cache(Packer)
"""Compiled formats, kept: a declaration's formats are few."""

_SMALL = [bytes([value]) for value in range(128)]
_CACHED_COUNTS = 64
MOST_TAGGED_FIELDS = 1_000
"""Most tagged fields in one place. Clients send few; millions of empty ones fit into a request."""


def uvarint(value: int) -> bytes:
    """An unsigned variable-length integer."""
    if 0 <= value < 128:
        return _SMALL[value]
    if value < 0:
        raise ValueError(f"{value} is negative")
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_uvarint(data: Buffer, position: int) -> tuple[int, int]:
    """An unsigned variable-length integer of at most 31 bits, and the position after it.

    Raises MalformedMessageError when it is longer, IndexError when the bytes end.
    """
    byte = data[position]
    if byte < 128:
        return byte, position + 1
    value = byte & 127
    for shift in (7, 14, 21, 28):
        position += 1
        byte = data[position]
        value |= (byte & 127) << shift
        if byte < 128:
            if value > 0x7FFFFFFF:
                break
            return value, position + 1
    raise MalformedMessageError("a variable-length integer is too long")


def skip_tagged_fields(data: Buffer, position: int, end: int) -> int:
    """The position after a section of unknown tagged fields.

    ``position`` is where their count stands."""
    count, position = read_uvarint(data, position)
    if count > MOST_TAGGED_FIELDS:
        raise MalformedMessageError(f"{count} tagged fields, more than {MOST_TAGGED_FIELDS}, are in one place")
    for _ in range(count):
        _, position = read_uvarint(data, position)
        size, position = read_uvarint(data, position)
        position += size
        if position > end:
            raise MalformedMessageError("a tagged field is longer than the message")
    return position


def number_reader(character: str) -> Any:
    """A function ``(data, position, count) -> list`` for numbers of one type.

    The caller has checked the bounds."""
    small = [Packer(f">{count}{character}").unpack_from for count in range(_CACHED_COUNTS)]

    def read(data: Buffer, position: int, count: int) -> list[Any]:
        if count < _CACHED_COUNTS:
            return list(small[count](data, position))
        return list(Packer(f">{count}{character}").unpack_from(data, position))

    return read


def number_writer(character: str) -> Any:
    """A function ``list -> bytes`` for numbers of one type."""
    small = [Packer(f">{count}{character}").pack for count in range(_CACHED_COUNTS)]

    def write(values: list[Any]) -> bytes:
        count = len(values)
        if count < _CACHED_COUNTS:
            return small[count](*values)
        return Packer(f">{count}{character}").pack(*values)

    return write


number_reader = cache(number_reader)
number_writer = cache(number_writer)
