"""The records of several batches, unpacked and found together, so that columns have many rows.

A piece of a segment holds hundreds of small batches, or a few large ones. Neighbours are read as
one group, up to some thousands of records: plain ones where they are in the piece, compressed ones
one after another in a buffer.

A batch whose records cannot be read is reported and left out: one that is damaged, or that has more
bytes or records than a leader takes. Memory is bounded by those limits, whatever a batch claims.

Kafka has no counterpart: its `Cleaner` reads batch by batch.
"""

from collections.abc import Callable, Generator, Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from barnabas.base.errors import CorruptDataError
from barnabas.base.files import Buffer
from barnabas.wire.kafka.errors import KafkaError
from barnabas.wire.kafka.records.batch_header import COMPRESSION_MASK, HEADER_BYTES, BatchHeader
from barnabas.wire.kafka.records.columns import Body, Integers, RecordColumns, RecordRows, find_records, read_columns
from barnabas.wire.kafka.records.contents import MOST_OBJECTS
from barnabas.wire.kafka.records.records import unpack_records

__all__ = ["STEP_RECORDS", "Chunk", "Found", "RecordGroup", "read_groups"]

STEP_RECORDS = 4_096
"""How many records are handled in one step: about 2 ms. Other threads get the interpreter meanwhile
whenever they ask for it (see `cli.servers.server_start`)."""

_GROUP_BYTES = 1 << 20

Report = Callable[[BatchHeader, str], None]


class Found(NamedTuple):
    """A batch, its header, and where it begins in its chunk."""

    position: int
    header: BatchHeader


class Chunk(NamedTuple):
    """Whole batches of a segment."""

    data: bytes
    batches: list[Found]

    def batch(self, found: Found) -> memoryview:
        return memoryview(self.data)[found.position : found.position + found.header.size_bytes]


class RecordGroup:
    """The records of some batches of a chunk, a row each, and the columns that
    compaction asks of them."""

    __slots__ = ("batch_of_row", "columns", "data", "ends", "headers", "numbers", "rows")

    def __init__(self, data: bytes, bodies: list[Body], numbers: list[int], headers: list[BatchHeader], report: Report):
        self.data = data
        self.numbers = numbers
        """Which batches of the chunk these are."""
        self.headers = headers
        self.rows: RecordRows = find_records(data, bodies)
        self.ends = self.rows.ends
        for number, problem in self.rows.damaged:
            report(headers[number], problem)

    @property
    def offsets(self) -> Integers:
        """Each row's offset."""
        bases = np.array([header.base_offset for header in self.headers], np.int64)
        offsets: Integers = bases[self.batch_of_row] + self.columns.offset_delta
        return offsets

    def rows_of(self, batch: int) -> slice:
        """The rows of a batch of the group; none where it is damaged."""
        return slice(self.ends[batch - 1] if batch else 0, self.ends[batch])

    def keys(self, rows: Integers) -> tuple[bytes, Integers, Integers]:
        """The keys of these rows, which have one: a buffer, and where each begins in
        it and its size."""
        return self.data, self.columns.key_start[rows], self.columns.key_size[rows]

    def read(self, report: Report) -> Generator[None, None, None]:
        """Read the columns; yields after each `STEP_RECORDS`.

        Batches with a damaged record lose their rows."""
        start, stop = self.rows.start, self.rows.stop
        pieces: list[RecordColumns] = []
        damaged: list[int] = []
        for first in range(0, max(len(start), 1), STEP_RECORDS):
            if first:
                yield
            last = first + STEP_RECORDS
            piece, bad = read_columns(self.data, start[first:last], stop[first:last])
            pieces.append(piece)
            damaged += [first + row for row in bad]
        columns = pieces[0] if len(pieces) == 1 else RecordColumns(*map(np.concatenate, zip(*pieces, strict=True)))
        ends = np.array([0, *self.ends])
        sizes = ends[1:] - ends[:-1]
        batch_of_row = np.arange(len(sizes)).repeat(sizes)
        last_deltas = np.array([header.last_offset_delta for header in self.headers], np.int64)[batch_of_row]
        is_outside = (columns.offset_delta < 0) | (columns.offset_delta > last_deltas)
        if is_outside.any():
            damaged += is_outside.nonzero()[0].tolist()
        if damaged:
            batches = np.unique(batch_of_row[damaged])
            for batch in batches.tolist():
                report(
                    self.headers[batch],
                    "a record does not fill its length as it says, or has an offset outside its batch",
                )
            stays: npt.NDArray[np.bool_] = ~np.isin(batch_of_row, batches)
            sizes[batches] = 0
            self.ends = np.cumsum(sizes).tolist()
            self.rows = self.rows._replace(start=start[stays], stop=stop[stays])
            columns = RecordColumns(*(column[stays] for column in columns))
            batch_of_row = batch_of_row[stays]
        self.columns = columns
        self.batch_of_row: Integers = batch_of_row


def read_groups(
    chunk: Chunk, wanted: Sequence[int], limit_bytes: int, report: Report
) -> Generator[RecordGroup | None, None, None]:
    """Groups of the wanted batches of a chunk, in their order, their columns read.

    None is a place to pause. A compressed batch may have ``limit_bytes`` unpacked. Batches with
    nothing readable are reported, and are in no group.
    """
    pending = _Pending(chunk)
    for number in wanted:
        position, header = chunk.batches[number]
        try:
            if header.record_count > MOST_OBJECTS:
                raise CorruptDataError(f"{header.record_count} records, more than {MOST_OBJECTS}")
            is_plain = not header.attributes & COMPRESSION_MASK
            body = None if is_plain else unpack_records(chunk.data, header, position, limit_bytes=limit_bytes)
        except (CorruptDataError, KafkaError) as error:
            report(header, str(error))
            continue
        if pending.is_full(header, is_plain):
            yield from pending.take(report)
        pending.add(number, position, header, body)
    yield from pending.take(report)


class _Pending:
    """The batches of the next group."""

    def __init__(self, chunk: Chunk) -> None:
        self._chunk = chunk
        self._clear()

    def _clear(self) -> None:
        self._numbers: list[int] = []
        self._headers: list[BatchHeader] = []
        self._bodies: list[Body] = []
        self._unpacked: list[Buffer] = []
        self._size_bytes = 0
        self._record_count = 0

    def is_full(self, header: BatchHeader, is_plain: bool) -> bool:
        return bool(self._numbers) and (
            is_plain == bool(self._unpacked)
            or self._size_bytes > _GROUP_BYTES
            or self._record_count + header.record_count > STEP_RECORDS
        )

    def add(self, number: int, position: int, header: BatchHeader, body: Buffer | None) -> None:
        self._numbers.append(number)
        self._headers.append(header)
        self._record_count += header.record_count
        if body is None:
            self._bodies.append(Body(position + HEADER_BYTES, position + header.size_bytes, header.record_count))
            return
        self._bodies.append(Body(self._size_bytes, self._size_bytes + len(body), header.record_count))
        self._unpacked.append(body)
        self._size_bytes += len(body)

    def take(self, report: Report) -> Generator[RecordGroup | None, None, None]:
        if not self._numbers:
            return
        data = b"".join(self._unpacked) if self._unpacked else self._chunk.data
        numbers, headers, bodies = self._numbers, self._headers, self._bodies
        self._clear()
        group = RecordGroup(data, bodies, numbers, headers, report)
        for _ in group.read(report):
            yield None
        yield group
