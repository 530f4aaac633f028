"""Finding offsets by time (ListOffsets, KIP-79 and KIP-734).

Kafka: UnifiedLog.fetchOffsetByTimestamp."""

from typing import NamedTuple

from barnabas.base.errors import CorruptDataError
from barnabas.log.bounds import Bounds
from barnabas.log.leader_epochs import LeaderEpochs
from barnabas.log.segment.segment import Segment
from barnabas.log.segment.segments import Segments
from barnabas.wire.kafka.errors import KafkaError
from barnabas.wire.kafka.offset_specs import EARLIEST, EARLIEST_LOCAL, LATEST, LATEST_TIERED, MAX_TIMESTAMP
from barnabas.wire.kafka.records.batch_header import BatchHeader
from barnabas.wire.kafka.records.contents import MOST_OBJECTS
from barnabas.wire.kafka.records.records import read_times

__all__ = [
    "EARLIEST",
    "EARLIEST_LOCAL",
    "LATEST",
    "LATEST_TIERED",
    "MAX_TIMESTAMP",
    "BatchSearch",
    "TimestampOffset",
    "find",
]

_LEAST_LIMIT_BYTES = 16 << 20
_MOST_RECORDS_AT_ONCE = 1_000
_MOST_PACKED_BYTES_AT_ONCE = 4096
"""More compressed bytes may hold megabytes."""
_GROWTH = 16
"""A batch may unpack to 16 times its size, at least 16 MiB. Most compressed batches were not opened
when they were produced."""


class TimestampOffset(NamedTuple):
    """A record's timestamp (-1 for the log's ends), its offset and its leader epoch
    (-1 if unknown)."""

    timestamp_ms: int
    offset: int
    leader_epoch: int


class BatchSearch:
    """A batch that may have the record, and takes long to look through.

    It shares nothing with the log."""

    __slots__ = ("_batch", "_header", "_start_offset", "_timestamp_ms", "found")

    def __init__(self, batch: bytes, header: BatchHeader, timestamp_ms: int, start_offset: int) -> None:
        self._batch = batch
        self._header = header
        self._timestamp_ms = timestamp_ms
        self._start_offset = start_offset
        self.found: TimestampOffset | None = None
        """What `run` found."""

    @property
    def next_offset(self) -> int:
        """Where to go on if it was not here."""
        return self._header.last_offset + 1

    def run(self) -> None:
        """Look for it. In any thread."""
        header = self._header
        try:
            if header.record_count > MOST_OBJECTS:
                raise CorruptDataError(f"{header.record_count} records in one batch")
            limit_bytes = max(_LEAST_LIMIT_BYTES, _GROWTH * header.size_bytes)
            for offset, found_ms in read_times(self._batch, limit_bytes=limit_bytes):
                if found_ms >= self._timestamp_ms and offset >= self._start_offset:
                    self.found = TimestampOffset(found_ms, offset, header.leader_epoch)
                    return
        except (CorruptDataError, KafkaError):
            # Its records cannot be read, or would take too long: the batch's first
            # offset is the nearest answer.
            self.found = _start_of(header, self._start_offset)


def _start_of(header: BatchHeader, start_offset: int) -> TimestampOffset:
    return TimestampOffset(header.max_timestamp, max(header.base_offset, start_offset), header.leader_epoch)


def find(
    segments: Segments, bounds: Bounds, epochs: LeaderEpochs, timestamp_ms: int, from_offset: int = 0
) -> TimestampOffset | BatchSearch | None:
    """The first record whose timestamp is at least the given one; None when there is none.

    A `BatchSearch` is to be run first; if it finds nothing, call again with its ``next_offset`` as
    ``from_offset``. The negative timestamps of the protocol name places: the log's start and end,
    and the record with the largest timestamp. Nothing is tiered here, so the latest tiered offset
    is -1. Raises `OSError`.
    """
    start_offset = max(bounds.log_start_offset, from_offset)
    if timestamp_ms in (EARLIEST, EARLIEST_LOCAL):
        return TimestampOffset(-1, bounds.log_start_offset, epochs.epoch_for(bounds.log_start_offset))
    if timestamp_ms == LATEST:
        return TimestampOffset(-1, bounds.log_end_offset, epochs.latest_epoch)
    if timestamp_ms == LATEST_TIERED:
        return TimestampOffset(-1, -1, -1)
    if timestamp_ms == MAX_TIMESTAMP:
        segment = max(segments, key=lambda candidate: candidate.max_timestamp.timestamp_ms)
        timestamp_ms = segment.max_timestamp.timestamp_ms
        return _find_in(segment, timestamp_ms, start_offset) if timestamp_ms >= 0 else None
    for segment in segments:
        if segment.max_timestamp.timestamp_ms >= timestamp_ms:
            found = _find_in(segment, timestamp_ms, start_offset)
            if found is not None:
                return found
    return None


def _find_in(segment: Segment, timestamp_ms: int, start_offset: int) -> TimestampOffset | BatchSearch | None:
    relative = max(segment.time_index.floor(timestamp_ms), start_offset - segment.base_offset, 0)
    position = segment.index.floor(relative)[1]
    for at, header in segment.headers(position):
        if header.max_timestamp < timestamp_ms or header.last_offset < start_offset:
            continue
        if header.is_log_append_time:
            return _start_of(header, start_offset)
        search = BatchSearch(segment.file.read_at(at, header.size_bytes), header, timestamp_ms, start_offset)
        if header.record_count > _MOST_RECORDS_AT_ONCE or (
            header.compression and header.size_bytes > _MOST_PACKED_BYTES_AT_ONCE
        ):
            return search
        search.run()
        if search.found is not None:
            return search.found
    return None
