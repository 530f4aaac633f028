"""Filters the records of batches that are compacted.

Kafka: Cleaner.cleanInto, MemoryRecords.filterTo.

A record stays while it is the newest of its key, or lies past the range that was read into
the offset map. A delete marker (a null value) that is the newest stays until the delete
horizon of its batch: the first pass that meets it writes now + ``delete.retention.ms`` into
the batch's base timestamp and sets bit 6 of its attributes (KIP-534). At least the header of the
last batch of each producer stays, because it carries the last sequence. Whatever goes, a batch
keeps its base and last offset, leader epoch, producer fields, codec and timestamp type; records
keep offsets and timestamps.

For the range that the map was read from, the offsets of the newest records decide: a batch
that stays or goes as a whole is not read again. Keys are looked up only for records in front
of this range.

A batch that is damaged stays as it is, byte for byte. Its keys are not in the map, so no
record goes because of it.
"""

import struct
from collections.abc import Collection, Generator, Mapping
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from crc32c import crc32c

from barnabas.base.files import Buffer
from barnabas.log.compaction.cleaned_transactions import CleanedTransactions
from barnabas.log.compaction.offset_map import NewestOffsets, OffsetMap, digests
from barnabas.log.compaction.record_groups import STEP_RECORDS, Chunk, RecordGroup, Report, read_groups
from barnabas.wire.kafka.records.batch_header import (
    CONTROL,
    CRC_START,
    DELETE_HORIZON,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    LOG_OVERHEAD_BYTES,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
    seal,
)
from barnabas.wire.kafka.records.compression import CompressionType, compress
from barnabas.wire.kafka.records.varints import put_varint

_INT64 = np.iinfo(np.int64)
_TOO_FAR = "timestamps so far apart that it cannot be written again"

__all__ = ["BatchFilter", "LastRecord", "Mapped", "damage"]


class LastRecord(NamedTuple):
    """A producer's last data batch by its last offset (-1: none), and the producer's epoch."""

    last_offset: int
    epoch: int


def damage(batch: memoryview, header: BatchHeader) -> str | None:
    """The reason why a batch must not be written again; None if it may."""
    if header.magic != 2:
        return f"format {header.magic}"
    if crc32c(batch[CRC_START:]) != header.crc:
        return "a wrong CRC"
    return None


class Mapped(NamedTuple):
    """What is known of the records that were put into the map."""

    first_offset: int
    newest: NewestOffsets
    damaged: Collection[int]
    """The base offsets of batches that could not be read."""


class BatchFilter:
    """Decides and writes, chunk after chunk in the order of the log."""

    __slots__ = (
        "_last_records",
        "_limit_bytes",
        "_mapped",
        "_new_horizon_ms",
        "_now_ms",
        "_offsets",
        "_report",
        "_transactions",
    )

    def __init__(
        self,
        offsets: OffsetMap,
        mapped: Mapped | None,
        transactions: CleanedTransactions,
        last_records: Mapping[int, LastRecord],
        report: Report,
        *,
        now_ms: int,
        delete_retention_ms: int,
        limit_bytes: int,
    ) -> None:
        """``report`` is called with a batch that stays because it cannot be read.

        `read_groups` has ``limit_bytes``."""
        self._offsets = offsets
        self._mapped = mapped
        self._transactions = transactions
        self._last_records = last_records
        self._report = report
        self._now_ms = now_ms
        self._new_horizon_ms = now_ms + delete_retention_ms
        self._limit_bytes = limit_bytes

    def filter(self, chunk: Chunk) -> Generator[None, None, list[Buffer | None]]:
        """What stays of each batch: itself, one with fewer records, a header without any, or None.

        Yields as it goes."""
        stays: list[Buffer | None] = []
        wanted: list[int] = []
        markers: list[int] = []
        is_due: list[bool] = []
        for number, found in enumerate(chunk.batches):
            batch, header = chunk.batch(found), found.header
            problem = damage(batch, header)
            if problem is not None:
                self._report(header, problem)
                stays.append(batch)
                is_due.append(False)
                continue
            can_discard = self._transactions.can_discard(batch, header)
            horizon_ms = header.delete_horizon_ms
            is_due.append(horizon_ms is not None and horizon_ms <= self._now_ms)
            if not header.record_count or (can_discard and (is_due[number] or not header.is_control)):
                stays.append(None)
                continue
            stays.append(batch)
            if not header.is_control:
                wanted.append(number)
            elif can_discard and horizon_ms is None:
                markers.append(number)  # of an empty transaction, which goes after its horizon
        wanted = self._without_whole_batches(chunk, wanted, stays)
        for number, group in enumerate(read_groups(chunk, wanted, self._limit_bytes, self._report)):
            if number:
                yield
            if group is not None:
                yield from self._filter_group(group, is_due, stays)
        yield from self._give_horizons(chunk, markers, stays)
        for number, found in enumerate(chunk.batches):
            if stays[number] is None and self._is_last_of_producer(found.header):
                stays[number] = _empty(found.header)
        return stays

    def _give_horizons(
        self, chunk: Chunk, markers: list[int], stays: list[Buffer | None]
    ) -> Generator[None, None, None]:
        """Markers of empty transactions go when their horizon has passed."""
        for group in read_groups(chunk, markers, self._limit_bytes, self._report):
            if group is None:
                continue
            for batch, (number, header) in enumerate(zip(group.numbers, group.headers, strict=True)):
                rows = group.rows_of(batch)
                if rows.start == rows.stop:
                    continue  # damaged
                try:
                    stays[number] = yield from self._with_horizon(group, batch, rows)
                except (OverflowError, struct.error):
                    self._report(header, _TOO_FAR)

    def _without_whole_batches(self, chunk: Chunk, wanted: list[int], stays: list[Buffer | None]) -> list[int]:
        """The batches that must be read; of the others it is known that all records
        stay, or none."""
        mapped = self._mapped
        if mapped is None or not wanted:
            return wanted
        headers = [chunk.batches[number].header for number in wanted]
        first = np.array([header.base_offset for header in headers], np.int64)
        last = np.array([header.last_offset for header in headers], np.int64)
        counts, markers = mapped.newest.count(first, last)
        is_mapped = (first >= mapped.first_offset) & (last <= self._offsets.latest_offset)
        unknown = []
        fields = zip(wanted, headers, is_mapped.tolist(), counts.tolist(), markers.tolist(), strict=True)
        for number, header, known, count, marker_count in fields:
            if not known or marker_count or 0 < count != header.record_count or header.base_offset in mapped.damaged:
                unknown.append(number)
            elif not count:
                stays[number] = None
        return unknown

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        last = self._last_records.get(header.producer_id)
        if last is None:
            return False
        if last.last_offset >= 0:
            return header.last_offset == last.last_offset
        # Only a marker is left of the producer: it has the epoch that fences older ones.
        return header.is_control and header.producer_epoch == last.epoch

    def _filter_group(
        self, group: RecordGroup, is_due: list[bool], stays: list[Buffer | None]
    ) -> Generator[None, None, None]:
        if not len(group.rows.start):
            return
        keep = self._is_newest(group)
        markers = keep & (group.columns.value_size < 0) & (group.offsets <= self._offsets.latest_offset)
        needs_horizon: set[int] = set()
        if markers.any():
            due = np.array([is_due[number] for number in group.numbers])
            keep &= ~(markers & due[group.batch_of_row])
            needs_horizon.update(group.batch_of_row[markers & keep].tolist())
        kept = _Kept(group, keep)
        for batch, (number, header) in enumerate(zip(group.numbers, group.headers, strict=True)):
            rows = group.rows_of(batch)
            if rows.start == rows.stop:
                continue  # damaged
            try:
                if batch in needs_horizon and header.delete_horizon_ms is None:
                    stays[number] = yield from self._with_horizon(group, batch, rows, keep[rows])
                elif kept.counts[batch] < header.record_count:
                    stays[number] = kept.rebuilt(batch)
            except (OverflowError, struct.error):
                self._report(header, _TOO_FAR)

    def _is_newest(self, group: RecordGroup) -> npt.NDArray[np.bool_]:
        """Which rows stay: those past the map, and the newest record of each key."""
        offsets = group.offsets
        keep: npt.NDArray[np.bool_] = offsets > self._offsets.latest_offset
        has_key = group.columns.key_size >= 0
        if self._mapped is None:
            looked_up = (~keep & has_key).nonzero()[0]
        else:
            keep |= has_key & (offsets >= self._mapped.first_offset) & self._mapped.newest.holds(offsets)
            looked_up = (has_key & (offsets < self._mapped.first_offset)).nonzero()[0]
            if not looked_up.size:
                return keep
        newest = self._offsets.get(digests(*group.keys(looked_up)))
        keep[looked_up] = offsets[looked_up] >= newest
        return keep

    def _with_horizon(
        self, group: RecordGroup, batch: int, rows: slice, keep: npt.NDArray[np.bool_] | None = None
    ) -> Generator[None, None, Buffer]:
        """A batch of these rows, or of those to keep, that carries the delete horizon.

        The base timestamp gives its place to the horizon: every record's delta changes. Raises
        `OverflowError` and `struct.error` where that takes more than 64 bits.
        """
        header, data, columns = group.headers[batch], group.data, group.columns
        shift = header.base_timestamp - self._new_horizon_ms
        deltas = columns.timestamp_delta[rows]
        starts, stops = columns.offset_start[rows], group.rows.stop[rows]
        if keep is not None:
            deltas, starts, stops = deltas[keep], starts[keep], stops[keep]
        if not _INT64.min <= int(deltas.min()) + shift <= int(deltas.max()) + shift <= _INT64.max:
            raise OverflowError
        deltas = deltas + shift
        body = bytearray()
        fields = zip(deltas.tolist(), starts.tolist(), stops.tolist(), strict=True)
        for number, (delta, after_timestamp, stop) in enumerate(fields, 1):
            _append_with_timestamp(body, delta, data[after_timestamp:stop])
            if not number % STEP_RECORDS:
                yield
        header = header._replace(
            base_timestamp=self._new_horizon_ms, attributes=header.attributes | DELETE_HORIZON, record_count=len(deltas)
        )
        return _rebuilt(header, body, self._new_horizon_ms + int(deltas.max()))


def _append_with_timestamp(body: bytearray, timestamp_delta: int, after_timestamp: bytes) -> None:
    delta = bytearray()
    put_varint(delta, timestamp_delta)
    put_varint(body, 1 + len(delta) + len(after_timestamp))
    body.append(0)  # attributes, unused in format 2
    body += delta
    body += after_timestamp


class _Kept:
    """The records of a group that stay, in runs of neighbours within their batch,
    which are copied together."""

    __slots__ = ("_first_runs", "_group", "_latest", "_run_starts", "_run_stops", "counts")

    def __init__(self, group: RecordGroup, keep: npt.NDArray[np.bool_]) -> None:
        self._group = group
        ends = np.array(group.ends)
        starts = np.concatenate(([0], ends[:-1]))
        has_rows = ends > starts
        firsts, lasts = starts[has_rows], ends[has_rows] - 1
        begins_run, ends_run = keep.copy(), keep.copy()
        begins_run[1:] &= ~keep[:-1]
        begins_run[firsts] = keep[firsts]
        ends_run[:-1] &= ~keep[1:]
        ends_run[lasts] = keep[lasts]
        self._run_starts: list[int] = group.rows.start[begins_run].tolist()
        self._run_stops: list[int] = group.rows.stop[ends_run].tolist()
        self._first_runs: list[int] = np.concatenate(([0], np.cumsum(begins_run)))[[0, *ends]].tolist()
        total = np.concatenate(([0], np.cumsum(keep)))
        self.counts: list[int] = (total[ends] - total[starts]).tolist()
        """How many stay of each batch."""
        deltas = np.where(keep, group.columns.timestamp_delta, np.iinfo(np.int64).min)
        latest = np.zeros(len(ends), np.int64)
        latest[has_rows] = np.maximum.reduceat(deltas, firsts)
        self._latest: list[int] = latest.tolist()

    def rebuilt(self, batch: int) -> Buffer | None:
        """A batch of the records that stay; None without any.

        As it keeps its base offset and timestamp, the bytes of these records are right as they are.
        """
        if not self.counts[batch]:
            return None
        data = self._group.data
        runs = slice(self._first_runs[batch], self._first_runs[batch + 1])
        parts = [data[start:stop] for start, stop in zip(self._run_starts[runs], self._run_stops[runs], strict=True)]
        header = self._group.headers[batch]
        return _rebuilt(
            header._replace(record_count=self.counts[batch]),
            b"".join(parts),
            header.base_timestamp + self._latest[batch],
        )


def _rebuilt(header: BatchHeader, body: Buffer, max_timestamp: int) -> bytearray:
    packed = compress(header.compression, body)
    return _sealed(
        header._replace(
            length=HEADER_BYTES - LOG_OVERHEAD_BYTES + len(packed),
            max_timestamp=header.max_timestamp if header.is_log_append_time else max_timestamp,
        ),
        packed,
    )


def _empty(header: BatchHeader) -> Buffer:
    kept_attributes = LOG_APPEND_TIME | TRANSACTIONAL | CONTROL
    return _sealed(
        header._replace(
            length=HEADER_BYTES - LOG_OVERHEAD_BYTES,
            attributes=header.attributes & kept_attributes | CompressionType.NONE,
            base_timestamp=NO_TIMESTAMP,
            record_count=0,
        ),
        b"",
    )


def _sealed(header: BatchHeader, body: Buffer) -> bytearray:
    batch = bytearray(HEADER.pack(*header))
    batch += body
    seal(batch)
    return batch
