"""Record batches as they come from a broker, turned into Arrow columns without a
Python object for each record.

`barnabas.wire.kafka.records.columns` finds where the fields of thousands of records stand; here
they become columns of the source. Keys and values are gathered by Arrow: an array over the whole
buffer whose even elements are the fields and whose odd ones are the bytes between them, of which
the even ones are taken.

Kafka: the consumer's CompletedFetch, which skips control batches and, at
read_committed, aborted transactions.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from barnabas.base.errors import CorruptDataError
from barnabas.base.files import Buffer
from barnabas.base.record_times import FIRST_MS, LAST_MS, NO_TIME
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.fetch import AbortedTransaction
from barnabas.wire.kafka.records.batch_header import HEADER_BYTES, MAGIC, BatchHeader, check_batch, read_headers
from barnabas.wire.kafka.records.columns import Body, Integers, RecordColumns, RecordRows, find_records, read_columns
from barnabas.wire.kafka.records.compression import CompressionType
from barnabas.wire.kafka.records.control import AbortedTransactions
from barnabas.wire.kafka.records.records import read_records, unpack_records

__all__ = ["ArrowRecords", "arrow_records"]

_MAX_BATCH_BYTES = 1 << 30
_MAGIC_AT = 16
_NO_TIME_TYPE, _CREATE_TIME, _LOG_APPEND_TIME = -1, 0, 1
_HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


class ArrowRecords(NamedTuple):
    """What one fetch brought of a partition."""

    columns: pa.RecordBatch | None
    """None if no record of the range is among what came."""
    next_offset: int
    """The offset behind the last batch that came; where the next fetch begins."""


class _Batches(NamedTuple):
    """Batches whose records are wanted, in one buffer."""

    data: Buffer
    bodies: list[Body]
    headers: list[BatchHeader]
    positions: list[int]
    """Where each batch begins in what was fetched."""


def arrow_records(
    fetched: Buffer,
    aborted: Sequence[AbortedTransaction],
    topic: str,
    partition: int,
    first_offset: int,
    end_offset: int,
    schema: pa.Schema,
) -> ArrowRecords:
    """The records from ``first_offset`` up to ``end_offset`` among the whole batches
    in ``fetched``.

    ``aborted`` are the transactions that read_committed leaves out. ``schema`` has some of the
    source's columns. Raises `CorruptDataError`, and `KafkaError` for a batch with a wrong checksum
    or of a format before 2.
    """
    batches, next_offset = _wanted(fetched, aborted, first_offset, end_offset)
    if not batches.bodies:
        return ArrowRecords(None, next_offset)
    rows = find_records(batches.data, batches.bodies)
    fields, damaged = read_columns(batches.data, rows.start, rows.stop)
    if rows.damaged or damaged:
        number = rows.damaged[0][0] if rows.damaged else int(np.searchsorted(rows.ends, damaged[0], side="right"))
        header = batches.headers[number]
        raise CorruptDataError(
            f"{topic}-{partition}: the batch with offsets {header.base_offset} to {header.last_offset} is damaged"
        )
    records = _Records(fetched, batches, rows, fields)
    chosen = np.flatnonzero((records.offset >= first_offset) & (records.offset < end_offset))
    if not chosen.size:
        return ArrowRecords(None, next_offset)
    arrays = []
    for field in schema:
        column = records.column(field.name, topic, partition)
        if chosen.size < len(column):
            column = column.take(pa.array(chosen))
        arrays.append(column.cast(field.type))
    return ArrowRecords(pa.RecordBatch.from_arrays(arrays, schema=schema), next_offset)


def _wanted(
    fetched: Buffer, aborted: Sequence[AbortedTransaction], first_offset: int, end_offset: int
) -> tuple[_Batches, int]:
    """The batches that may have records of the range, checked, and the offset behind
    all that came."""
    next_offset = first_offset
    if len(fetched) > _MAGIC_AT and fetched[_MAGIC_AT] < MAGIC:
        # This raises: such a record may be shorter than a header of today.
        check_batch(fetched, 0, _MAGIC_AT + 1)
    last_offset = -1
    headers: list[BatchHeader] = []
    positions: list[int] = []
    transactions = AbortedTransactions((each.first_offset, each.producer_id) for each in aborted)
    for position, header in read_headers(fetched):
        check_batch(fetched, position, position + header.size_bytes)
        if header.base_offset <= last_offset:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE, f"a batch from offset {header.base_offset} on behind offset {last_offset}"
            )
        last_offset = header.last_offset
        if header.last_offset >= first_offset:
            next_offset = header.last_offset + 1
        if not transactions.shows(fetched, position, header):
            continue
        if header.record_count and header.last_offset >= first_offset and header.base_offset < end_offset:
            headers.append(header)
            positions.append(position)
    if all(header.compression is CompressionType.NONE for header in headers):
        bodies = [
            Body(position + HEADER_BYTES, position + header.size_bytes, header.record_count)
            for position, header in zip(positions, headers, strict=True)
        ]
        return _Batches(fetched, bodies, headers, positions), next_offset
    unpacked = [
        unpack_records(fetched, header, position, limit_bytes=_MAX_BATCH_BYTES)
        for position, header in zip(positions, headers, strict=True)
    ]
    ends = np.cumsum([len(data) for data in unpacked]).tolist()
    bodies = [
        Body(end - len(data), end, header.record_count)
        for end, data, header in zip(ends, unpacked, headers, strict=True)
    ]
    return _Batches(unpacked[0] if len(unpacked) == 1 else b"".join(unpacked), bodies, headers, positions), next_offset


class _Records:
    """The records of several batches, as columns that are made when they are asked for."""

    def __init__(self, fetched: Buffer, batches: _Batches, rows: RecordRows, fields: RecordColumns) -> None:
        self._fetched = fetched
        self._batches = batches
        self._fields = fields
        self._counts = np.diff(rows.ends, prepend=0)
        self.offset = self._of_batch([header.base_offset for header in batches.headers]) + fields.offset_delta

    def column(self, name: str, topic: str, partition: int) -> pa.Array:
        """A column of the source, all its rows."""
        fields, count = self._fields, len(self.offset)
        match name:
            case "key":
                return _gather(self._batches.data, fields.key_start, fields.key_size)
            case "value":
                return _gather(self._batches.data, fields.value_start, fields.value_size)
            case "topic":
                return pa.repeat(pa.scalar(topic, pa.string()), count)
            case "partition":
                return pa.array(np.full(count, partition, np.int32))
            case "offset":
                return pa.array(self.offset)
            case "timestamp":
                return _times(self._timestamp_ms())
            case "timestampType":
                kinds = [
                    _LOG_APPEND_TIME if each.is_log_append_time else _CREATE_TIME for each in self._batches.headers
                ]
                has_time = self._timestamp_ms() != NO_TIME
                return pa.array(np.where(has_time, self._of_batch(kinds), _NO_TIME_TYPE).astype(np.int32))
            case _:
                return pa.array(self._headers(), _HEADERS)

    def _timestamp_ms(self) -> Integers:
        headers = self._batches.headers
        base = self._of_batch(
            [each.max_timestamp if each.is_log_append_time else each.base_timestamp for each in headers]
        )
        delta = self._fields.timestamp_delta
        if any(each.is_log_append_time for each in headers):
            delta = np.where(self._of_batch([each.is_log_append_time for each in headers]) != 0, 0, delta)
        return base + delta

    def _headers(self) -> list[list[dict[str, object]] | None]:
        """One by one: few queries ask for them."""
        records = (record for position in self._batches.positions for record in read_records(self._fetched, position))
        return [[{"key": key, "value": value} for key, value in record.headers] or None for record in records]

    def _of_batch(self, values: Sequence[int]) -> Integers:
        """A value of each batch, for each of its records."""
        return np.repeat(np.array(values, np.int64), self._counts)


def _times(timestamp_ms: Integers) -> pa.Array:
    """`barnabas.base.record_times.microseconds` of each."""
    is_null = (timestamp_ms == NO_TIME) | (timestamp_ms < FIRST_MS) | (timestamp_ms > LAST_MS)
    in_range = np.where(is_null, 0, timestamp_ms) * 1000
    return pa.array(in_range, mask=is_null).cast(pa.timestamp("us", "UTC"))


def _gather(data: Buffer, start: Integers, size: Integers) -> pa.Array:
    """Fields of a buffer as an array of bytes, null where the size is -1.

    They rise in the buffer and do not overlap."""
    count = len(start)
    is_null = size < 0
    bounds = np.empty(2 * count, np.int32)
    bounds[::2] = start
    bounds[1::2] = start + np.maximum(size, 0)
    fields_and_gaps = pa.Array.from_buffers(
        pa.binary(), 2 * count - 1, [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    )
    taken = np.arange(0, 2 * count, 2)
    return fields_and_gaps.take(pa.array(taken, mask=is_null if is_null.any() else None))
