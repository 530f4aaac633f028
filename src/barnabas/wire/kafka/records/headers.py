"""The headers of a record, which has as many as it says: skipped, as the check of a
produced batch does."""

from barnabas.base.errors import CorruptDataError
from barnabas.base.files import Buffer
from barnabas.wire.kafka.records.varints import read_varint

__all__ = ["skip_headers"]


def skip_headers(data: Buffer, position: int, stop: int, count: int) -> int:
    """Where ``count`` headers end: at ``stop``. Raises `CorruptDataError` where they do not."""
    if not 0 <= 2 * count <= stop - position:
        raise CorruptDataError(f"{count} headers in {stop - position} bytes")
    try:
        for _ in range(count):
            byte = data[position]
            position += 1
            if byte >= 0x80:
                size, position = read_varint(data, position - 1)
                byte = size << 1 if size >= 0 else 1
            if byte & 1:
                raise CorruptDataError("a record header without a key")
            position += byte >> 1
            byte = data[position]
            position += 1
            if byte >= 0x80:
                size, position = read_varint(data, position - 1)
                byte = size << 1 if size >= 0 else 2 * -size - 1
            if not byte & 1:
                position += byte >> 1
            elif byte != 1:
                raise CorruptDataError("a header's value of a negative size")
    except IndexError:
        raise CorruptDataError("a header is cut off") from None
    if position != stop:
        raise CorruptDataError(f"headers end {stop - position} bytes before their record")
    return position
