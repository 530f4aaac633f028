"""Zigzag varints as records carry them: lengths, counts and offset deltas of 32 bits, timestamp
deltas of 64. Kafka: ByteUtils."""

from functools import lru_cache

from barnabas.base.errors import CorruptDataError
from barnabas.base.files import Buffer

__all__ = [
    "MOST_VARINT_BYTES",
    "MOST_VARLONG_BYTES",
    "put_varint",
    "read_varint",
    "read_varlong",
    "read_zigzag",
    "varint",
]

MOST_VARINT_BYTES = 5
MOST_VARLONG_BYTES = 10


def read_varint(data: Buffer, position: int) -> tuple[int, int]:
    """A zigzag varint of 32 bits, and the position after it.

    Raises IndexError when it is cut off."""
    byte = data[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    second = data[position + 1]
    if second < 0x80:
        value = byte & 0x7F | second << 7
        return (value >> 1) ^ -(value & 1), position + 2
    value, position = read_zigzag(data, position)
    return (value >> 1) ^ -(value & 1), position


def read_zigzag(data: Buffer, position: int) -> tuple[int, int]:
    """A varint of 32 bits as it stands: 2n for a number n, 2|n| - 1 for a negative one.

    Raises IndexError when it is cut off."""
    value = 0
    for shift in range(0, 7 * MOST_VARINT_BYTES, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                break
            return value, position
    raise CorruptDataError("a varint of more than 32 bits")


def read_varlong(data: Buffer, position: int) -> tuple[int, int]:
    """A zigzag varint of 64 bits, and the position after it.

    Raises IndexError when it is cut off."""
    byte = data[position]
    position += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position
    value = byte & 0x7F
    for shift in range(7, 7 * MOST_VARLONG_BYTES, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            value &= 0xFFFFFFFFFFFFFFFF  # bits past the 64th are dropped, as Java does
            return (value >> 1) ^ -(value & 1), position
    raise CorruptDataError("a varint of more than ten bytes")


@lru_cache(maxsize=16_384)
def varint(value: int) -> bytes:
    """A number as a zigzag varint. Lengths and deltas are few numbers, again and again."""
    out = bytearray()
    put_varint(out, value)
    return bytes(out)


def put_varint(out: bytearray, value: int) -> None:
    """Append a number as a zigzag varint."""
    number = value << 1 if value >= 0 else (-value << 1) - 1
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
