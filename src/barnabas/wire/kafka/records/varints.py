"""Zigzag varints of up to 64 bits, as records carry them. Kafka: ByteUtils."""

from barnabas.base.errors import CorruptDataError

__all__ = ["put_varint", "read_varint"]


def read_varint(data: memoryview, position: int) -> tuple[int, int]:
    """A zigzag varint of at most ten bytes, and the position after it; raises IndexError when it is cut off."""
    byte = data[position]
    position += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position
    value = byte & 0x7F
    for shift in range(7, 70, 7):
        byte = data[position]
        position += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position
    raise CorruptDataError("a varint of more than ten bytes")


def put_varint(out: bytearray, value: int) -> None:
    """Append a number as a zigzag varint."""
    number = value << 1 if value >= 0 else (-value << 1) - 1
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
