"""Finding offsets by time (ListOffsets, KIP-79 and KIP-734). Kafka: UnifiedLog.fetchOffsetByTimestamp."""

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

__all__ = ["EARLIEST", "EARLIEST_LOCAL", "LATEST", "LATEST_TIERED", "MAX_TIMESTAMP", "TimestampOffset", "find"]

_LEAST_LIMIT_BYTES = 16 << 20
_GROWTH = 16
"""A batch may unpack to 16 times its size, at least 16 MiB. Most compressed batches were not opened when they were produced."""


class TimestampOffset(NamedTuple):
    """A record's timestamp (-1 for the log's ends), its offset and its leader epoch (-1 if unknown)."""

    timestamp_ms: int
    offset: int
    leader_epoch: int


def find(segments: Segments, bounds: Bounds, epochs: LeaderEpochs, timestamp_ms: int) -> TimestampOffset | None:
    """The first record whose timestamp is at least the given one; None when there is none.

    The negative timestamps of the protocol name places: the log's start and end, and the record with the largest
    timestamp. Nothing is tiered here, so the latest tiered offset is -1. Raises `OSError`.
    """
    if timestamp_ms in (EARLIEST, EARLIEST_LOCAL):
        return TimestampOffset(-1, bounds.log_start_offset, epochs.epoch_for(bounds.log_start_offset))
    if timestamp_ms == LATEST:
        return TimestampOffset(-1, bounds.log_end_offset, epochs.latest_epoch)
    if timestamp_ms == LATEST_TIERED:
        return TimestampOffset(-1, -1, -1)
    if timestamp_ms == MAX_TIMESTAMP:
        segment = max(segments, key=lambda candidate: candidate.max_timestamp.timestamp_ms)
        timestamp_ms = segment.max_timestamp.timestamp_ms
        return _find_in(segment, timestamp_ms, bounds.log_start_offset) if timestamp_ms >= 0 else None
    for segment in segments:
        if segment.max_timestamp.timestamp_ms >= timestamp_ms:
            found = _find_in(segment, timestamp_ms, bounds.log_start_offset)
            if found is not None:
                return found
    return None


def _find_in(segment: Segment, timestamp_ms: int, start_offset: int) -> TimestampOffset | None:
    relative = max(segment.time_index.floor(timestamp_ms), start_offset - segment.base_offset, 0)
    position = segment.index.floor(relative)[1]
    for at, header in segment.headers(position):
        if header.max_timestamp >= timestamp_ms and header.last_offset >= start_offset:
            found = _find_in_batch(segment, at, header, timestamp_ms, start_offset)
            if found is not None:
                return found
    return None


def _find_in_batch(
    segment: Segment, position: int, header: BatchHeader, timestamp_ms: int, start_offset: int
) -> TimestampOffset | None:
    if header.is_log_append_time:
        return TimestampOffset(header.max_timestamp, max(header.base_offset, start_offset), header.leader_epoch)
    try:
        if header.record_count > MOST_OBJECTS:
            raise CorruptDataError(f"{header.record_count} records in one batch")
        batch = segment.file.read_at(position, header.size_bytes)
        for offset, found_ms in read_times(batch, limit_bytes=max(_LEAST_LIMIT_BYTES, _GROWTH * header.size_bytes)):
            if found_ms >= timestamp_ms and offset >= start_offset:
                return TimestampOffset(found_ms, offset, header.leader_epoch)
    except (CorruptDataError, KafkaError):
        # Its records cannot be read, or would take too long: the batch's first offset is the nearest answer.
        return TimestampOffset(header.max_timestamp, max(header.base_offset, start_offset), header.leader_epoch)
    return None
