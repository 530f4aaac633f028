"""Arrow columns turned into record batches without a Python object for each record:
`arrow_records` the other way round.

Rows are put in order of their partitions, cut into batches, framed by
`barnabas.wire.kafka.records.framing`, and joined by Arrow. What comes out is one buffer with all
records, of which each batch is a slice.

Kafka: RecordAccumulator and MemoryRecordsBuilder; the partitioner is Java's: keys by murmur2,
records without a key stay with one partition until a batch of it is full.
"""

import time
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from barnabas.base.errors import BarnabasError
from barnabas.wire.kafka.records.columns import Integers
from barnabas.wire.kafka.records.compression import CompressionType
from barnabas.wire.kafka.records.framing import Pieces, frame_fields, frame_records, murmur2
from barnabas.wire.kafka.records.records import build_batch_around

__all__ = ["EncodedRows", "RowBatch", "Rows", "choose_partitions", "encode_rows", "pieces_of"]

_MOST_ROWS = 8192
_FRAME_BYTES = 24
"""About what a record has around key, value and headers."""
_NOTHING = pa.Array.from_buffers(pa.binary(), 1, [None, pa.py_buffer(bytes(8)), pa.py_buffer(b"")])[0]
"""An empty text. Made of buffers: `pa.scalar` would import pandas, a quarter of a second in
each of Spark's workers."""


class Rows(NamedTuple):
    """Rows of one topic.

    Keys and values are binary arrays, headers None or lists of key and value."""

    key: pa.Array
    value: pa.Array
    headers: pa.Array | None

    def take(self, order: pa.Array) -> "Rows":
        headers = None if self.headers is None else self.headers.take(order)
        return Rows(self.key.take(order), self.value.take(order), headers)

    def slice(self, first: int, count: int) -> "Rows":
        headers = None if self.headers is None else self.headers.slice(first, count)
        return Rows(self.key.slice(first, count), self.value.slice(first, count), headers)

    def sizes(self) -> Integers:
        """About how many bytes each row has as a record; headers by their average."""
        total = np.maximum(_sizes(self.key), 0) + np.maximum(_sizes(self.value), 0) + _FRAME_BYTES
        if self.headers is not None and len(self.headers):
            total += self.headers.nbytes // len(self.headers)
        return total


class RowBatch(NamedTuple):
    """Rows of `EncodedRows` that become one batch."""

    partition: int
    first_row: int
    row_count: int


class EncodedRows:
    """Records in one buffer, and the batches that they make."""

    def __init__(self, rows: Rows, batches: Sequence[RowBatch]) -> None:
        self.rows = rows
        self.batches = batches
        first = np.repeat([each.first_row for each in batches], [each.row_count for each in batches])
        self._body, self._bounds = _encode(rows, np.arange(len(rows.value), dtype=np.int64) - first)
        self._time_ms = int(time.time() * 1000)

    def pack(
        self, batch: RowBatch, compression: CompressionType, producer_id: int, producer_epoch: int, sequence: int
    ) -> bytearray:
        """The batch as it goes over the wire."""
        start, stop = self._bounds[batch.first_row], self._bounds[batch.first_row + batch.row_count]
        return build_batch_around(
            self._body[start:stop],
            batch.row_count,
            self._time_ms,
            compression,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            base_sequence=sequence,
        )

    def halves(self, batch: RowBatch) -> "EncodedRows":
        """The rows of a batch that a broker finds too large, as two batches."""
        half = batch.row_count // 2
        parts = [RowBatch(batch.partition, 0, half), RowBatch(batch.partition, half, batch.row_count - half)]
        return EncodedRows(self.rows.slice(batch.first_row, batch.row_count), parts)


def encode_rows(rows: Rows, partitions: npt.NDArray[np.int32], batch_bytes: int) -> EncodedRows:
    """The rows in batches of about ``batch_bytes`` at most.

    Within a partition they keep their order."""
    if (partitions[1:] < partitions[:-1]).any():
        order = np.argsort(partitions, kind="stable")
        partitions = partitions[order]
        rows = rows.take(pa.array(order))
    ends = np.cumsum(rows.sizes())
    batches = []
    cuts = [*(np.flatnonzero(np.diff(partitions)) + 1).tolist(), len(partitions)]
    first = 0
    for cut in cuts:
        partition = int(partitions[first])
        while first < cut:
            before = int(ends[first - 1]) if first else 0
            last = int(np.searchsorted(ends, before + batch_bytes, side="right"))
            last = min(max(last, first + 1), cut, first + _MOST_ROWS)
            batches.append(RowBatch(partition, first, last - first))
            first = last
    return EncodedRows(rows, batches)


def choose_partitions(
    rows: Rows, wanted: pa.Array | None, count: int, turn: int, batch_bytes: int
) -> tuple[npt.NDArray[np.int32], int]:
    """A partition for each row, of ``count``: the wanted one, or by the key, or from
    ``turn`` on; and the next turn.

    Raises `BarnabasError` for a wanted partition that the topic does not have.
    """
    result = np.empty(len(rows.value), np.int32)
    is_left = np.ones(len(result), np.bool_)
    if wanted is not None:
        is_left = np.asarray(wanted.is_null())
        given = np.asarray(wanted.fill_null(0)).astype(np.int32)
        wrong = ~is_left & ((given < 0) | (given >= count))
        if wrong.any():
            raise BarnabasError(f"a row wants partition {given[wrong][0]}, and the topic has {count}")
        result[~is_left] = given[~is_left]
    has_key = is_left & np.asarray(rows.key.is_valid())
    if has_key.any():
        data, bounds = _content(rows.key)
        size = np.diff(bounds)
        hashes = murmur2(data, bounds[:-1][has_key], size[has_key])
        result[has_key] = (hashes & np.uint32(0x7FFFFFFF)) % np.uint32(count)
    free = (is_left & ~has_key).nonzero()[0]
    if free.size:
        ends = np.cumsum(rows.sizes()[free])
        pieces = max(1, -(-int(ends[-1]) // batch_bytes))
        result[free] = (turn + (ends - 1) * pieces // int(ends[-1])) % count
        turn += pieces
    return result, turn % count


def pieces_of(batch: pa.RecordBatch, most_bytes: int) -> Iterator[pa.RecordBatch]:
    """A batch in slices of about ``most_bytes``, at least a row each."""
    rows = batch.num_rows
    step = max(1, rows * most_bytes // max(batch.nbytes, 1))
    for first in range(0, rows, step):
        yield batch.slice(first, step)


def _encode(rows: Rows, offset_delta: Integers) -> tuple[memoryview, Integers]:
    """All records one after the other, and where each begins and the last ends."""
    count = len(offset_delta)
    if rows.headers is None:
        header_count = headers_size = np.zeros(count, np.int64)
        headers: pa.Array | pa.Scalar = _NOTHING
    else:
        headers, header_count = _encode_headers(rows.headers)
        headers_size = _sizes(headers)
    frames = frame_records(offset_delta, _sizes(rows.key), _sizes(rows.value), header_count, headers_size)
    records = _join(
        _array(frames.before_key),
        rows.key,
        _array(frames.before_value),
        rows.value,
        _array(frames.before_headers),
        headers,
    )
    data, bounds = _content(records)
    return memoryview(data), bounds


def _encode_headers(headers: pa.Array) -> tuple[pa.Array, Integers]:
    """For each row its headers as one byte string, and how many there are.

    Raises `BarnabasError` for one without a key."""
    counts = np.asarray(pc.fill_null(pc.list_value_length(headers), 0)).astype(np.int64)
    # Only what lists hold: a null list, and rows before a slice, may stand over values too.
    fields = headers.flatten()
    key, value = fields.field("key").cast(pa.binary()), fields.field("value").cast(pa.binary())
    if key.null_count or fields.null_count:
        raise BarnabasError("a row has a header without a key")
    encoded = _join(_array(frame_fields(_sizes(key))), key, _array(frame_fields(_sizes(value))), value)
    data, bounds = _content(encoded)
    ends = np.zeros(len(counts) + 1, np.int64)
    np.cumsum(counts, out=ends[1:])
    return _array(Pieces(np.frombuffer(data, np.uint8), bounds[ends].astype(np.int32))), counts


def _join(*parts: pa.Array | pa.Scalar) -> pa.Array:
    return pc.binary_join_element_wise(*parts, _NOTHING, null_handling="replace", null_replacement=b"")


def _array(pieces: Pieces) -> pa.Array:
    count = len(pieces.bounds) - 1
    return pa.Array.from_buffers(
        pa.binary(), count, [None, pa.py_buffer(pieces.bounds), pa.py_buffer(np.ascontiguousarray(pieces.data))]
    )


def _content(array: pa.Array) -> tuple[pa.Buffer, Integers]:
    """An array's bytes, and where each element begins and the last ends."""
    _, bounds, data = array.buffers()
    offsets = np.frombuffer(bounds, np.int32, len(array) + 1, 4 * array.offset).astype(np.int64)
    return data if data is not None else pa.py_buffer(b""), offsets


def _sizes(array: pa.Array) -> Integers:
    """The size of each element, -1 of a null."""
    sizes: Integers = np.asarray(pc.fill_null(pc.binary_length(array), -1)).astype(np.int64)
    return sizes
