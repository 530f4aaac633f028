"""What stands around the fields of records, for thousands of records at once: the counterpart
of `columns` for writing.

A record is its length, attributes, timestamp delta, offset delta and key size; the key; the value's
size; the value; the number of headers; the headers. `frame_records` makes the parts that are not
fields with numpy, for all records in one pass. A caller joins them with keys, values and encoded
headers, which it holds as columns. `murmur2` hashes keys as columns.

numpy takes 60 ms and 12 MiB to import, so this module is imported where there is work for it.

Kafka: DefaultRecord.writeTo, and Utils.murmur2.
"""

from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt

from barnabas.base.files import Buffer
from barnabas.wire.kafka.records.columns import Integers

__all__ = ["Pieces", "RecordFrames", "frame_fields", "frame_records", "murmur2"]

_MURMUR_FACTOR = np.uint32(0x5BD1E995)
_MURMUR_SEED = np.uint32(0x9747B28C)

_ZERO: Final = None
_LOW, _MORE = np.uint8(0x7F), np.uint8(0x80)

_Bytes = npt.NDArray[np.uint8]


class Pieces(NamedTuple):
    """A byte string for each row, one after the other."""

    data: _Bytes
    bounds: npt.NDArray[np.int32]
    """Where each begins, and where the last ends."""


class RecordFrames(NamedTuple):
    """What stands before the key, before the value and before the headers of each record."""

    before_key: Pieces
    before_value: Pieces
    before_headers: Pieces


def frame_records(
    offset_delta: Integers, key_size: Integers, value_size: Integers, header_count: Integers, headers_size: Integers
) -> RecordFrames:
    """The frames of records whose timestamps are their batch's. A size of -1 is a null.

    ``headers_size`` is the size of all encoded headers of a record, without their number.
    """
    key, value, offset = _Varints(key_size), _Varints(value_size), _Varints(offset_delta)
    headers = _Varints(header_count)
    # Attributes and timestamp delta are 0, which is also the varint of 0.
    inner: Integers = np.maximum(key_size, 0) + np.maximum(value_size, 0) + headers_size + 2
    for each in (key, value, offset, headers):
        inner += each.width
    before_key = _lay_out([_Varints(inner), _ZERO, _ZERO, offset, key], len(inner))
    return RecordFrames(before_key, _lay_out([value], len(inner)), _lay_out([headers], len(inner)))


def frame_fields(size: Integers) -> Pieces:
    """The sizes that stand before fields, as before a header's key and value. -1 is a null."""
    return _lay_out([_Varints(size)], len(size))


class _Varints:
    """Numbers of 32 bits, in zigzag, and how many bytes each has as a varint: one
    number if all have the same."""

    def __init__(self, values: Integers) -> None:
        few = values.astype(np.int32)
        self.raw = ((few << 1) ^ (few >> 31)).view(np.uint32)
        least, most = (int(self.raw.min()), int(self.raw.max())) if len(values) else (0, 0)
        self.most = _width(most)
        self.width: int | npt.NDArray[np.int64] = self.most
        if _width(least) < self.most:
            self.width = np.ones(len(values), np.int64)
            for number in range(1, self.most):
                self.width += self.raw >= np.uint32(1 << (7 * number))

    def bytes(self) -> Iterator[tuple[npt.NDArray[np.uint8], npt.NDArray[np.bool_] | bool]]:
        """The first byte of each, the second, and so on; and of which numbers it is."""
        for number in range(self.most):
            shifted = self.raw >> np.uint32(7 * number) if number else self.raw
            byte = shifted.astype(np.uint8)
            if number == self.most - 1 == 0:
                yield byte, True
            elif isinstance(self.width, int):
                yield byte & _LOW if number == self.most - 1 else byte | _MORE, True
            else:
                # A byte is followed by another where something is left.
                yield (byte & _LOW) | ((shifted > _LOW) * _MORE), self.width > number


def _width(raw: int) -> int:
    return max(1, -(-raw.bit_length() // 7))


def _lay_out(columns: Sequence[_Varints | None], count: int) -> Pieces:
    """For each row its numbers, one after the other; None is a zero."""
    breadth = sum(1 if each is None else each.most for each in columns)
    table = np.empty((breadth, count), np.uint8)
    is_there: npt.NDArray[np.bool_] | None = None
    bounds = np.zeros(count + 1, np.int32)
    at = 0
    width: int | npt.NDArray[np.int64] = 0
    for each in columns:
        if each is None:
            table[at] = 0
            at += 1
            width = width + 1
            continue
        width = width + each.width
        for byte, rows in each.bytes():
            table[at] = byte
            if rows is not True:
                if is_there is None:
                    is_there = np.ones((breadth, count), np.bool_)
                is_there[at] = rows
            at += 1
    data = table.T.reshape(-1)
    if isinstance(width, int):
        bounds[:] = np.arange(0, (count + 1) * width, width)
    else:
        np.cumsum(width, out=bounds[1:])
    return Pieces(data if is_there is None else data[is_there.T.reshape(-1)], bounds)


def murmur2(data: Buffer, start: Integers, size: Integers) -> npt.NDArray[np.uint32]:
    """The hash by which Java's producers choose a partition, of each key in ``data``."""
    view = np.frombuffer(data, np.uint8)
    # The words at every position, aligned or not.
    words_at = np.ndarray(max(len(view) - 3, 0), "<u4", view, strides=(1,))
    result = _MURMUR_SEED ^ size.astype(np.uint32)
    words = size >> 2
    rows = words.nonzero()[0]
    for number in range(int(words.max()) if len(words) else 0):
        if number:
            rows = rows[words[rows] > number]
        word = words_at[start[rows] + 4 * number] * _MURMUR_FACTOR
        word = (word ^ (word >> np.uint32(24))) * _MURMUR_FACTOR
        result[rows] = (result[rows] * _MURMUR_FACTOR) ^ word
    rest, last = size & 3, start + 4 * words
    for number in (2, 1, 0):
        rows = (rest > number).nonzero()[0]
        result[rows] ^= view[last[rows] + number].astype(np.uint32) << np.uint32(8 * number)
    rows = rest.nonzero()[0]
    result[rows] *= _MURMUR_FACTOR
    result ^= result >> np.uint32(13)
    result *= _MURMUR_FACTOR
    result ^= result >> np.uint32(15)
    return result
