"""Reading batches out of a log's segments.

Kafka: LocalLog.read, LogSegment.read, and the look-up of aborted transactions.

A read returns a range of one segment's file: whole batches from the one that holds the offset on,
the last one perhaps cut by the size asked for. No byte of a record is copied here.
"""

from typing import NamedTuple

from barnabas.base.errors import CorruptDataError
from barnabas.base.files import FileSlice
from barnabas.log.holes import Holes
from barnabas.log.segment.batches import locate
from barnabas.log.segment.segment import Segment
from barnabas.log.segment.segments import Segments
from barnabas.log.segment.transaction_index import AbortedTransaction
from barnabas.log.segment_checks import MOST_UNCHECKED_BYTES, SegmentChecks
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = ["FetchSlice", "aborted_transactions", "read_segments"]


class FetchSlice(NamedTuple):
    """The result of a read: batches from the one that has the offset, the last
    perhaps cut by ``max_bytes``."""

    records: FileSlice | bytes
    offset: int
    """The offset asked for."""
    upper_offset: int
    """No record at or past this offset begins in the slice: how far aborted
    transactions matter to it."""
    size_bytes: int


def read_segments(
    segments: Segments,
    checks: SegmentChecks,
    holes: Holes,
    log_end_offset: int,
    offset: int,
    max_bytes: int,
    bound: int,
    min_one_batch: bool,
) -> FetchSlice:
    """Batches from the one that holds ``offset``, below ``bound`` (exclusive), out of one segment.

    Raises `OSError`, and `MissingRecordsError` where there is no batch with the
    offset and must be one.
    """
    all_segments, bases = segments.all, segments.bases
    last = len(bases) - 1
    missing_in: Segment | None = None
    for at in range(last if offset >= bases[last] else segments.index_of(offset), last + 1):
        segment = all_segments[at]
        segment_end = bases[at + 1] if at < last else log_end_offset
        if bound >= segment_end:
            end, upper = segment.size, segment_end
        else:
            end, upper = _position_of(segment, bound), bound
        start = None
        if segment.unchecked.size:
            max_bytes = min(max_bytes, MOST_UNCHECKED_BYTES)
            start, last_position, upper_offset = checks.ensure(at, offset, max_bytes, log_end_offset)
            end, upper = min(end, last_position), min(upper, upper_offset)
        first_size = 0
        position = segment.starts.get(offset) if start is None else None
        if position is None:
            located = segment.locate(offset) if start is None else locate(segment.file, start, segment.size, offset)
            if located is None:
                missing_in = segment  # compaction may have taken the last offsets of a segment
                continue
            position, first_size, base_offset = located
            if base_offset > offset:
                holes.check(offset, min(base_offset, bound), missing_in or segment)
        if position >= end:
            if upper == bound:
                break
            continue
        size = end - position
        if size <= max_bytes:
            segment.remember(upper, end)
            return FetchSlice(FileSlice(segment.file, position, size), offset, upper, size)
        first_size = first_size or _size_at(segment, offset)
        if first_size > max_bytes:
            if not min_one_batch:
                break
            max_bytes = first_size
        ceiling = segment.index.ceiling_of_position(position + max_bytes)
        if ceiling is not None:
            upper = min(upper, segment.base_offset + ceiling + 1)
        return FetchSlice(FileSlice(segment.file, position, max_bytes), offset, upper, max_bytes)
    else:
        if missing_in is not None:
            holes.check(offset, bound, missing_in)
    return FetchSlice(b"", offset, offset, 0)


def _position_of(segment: Segment, offset: int) -> int:
    position = segment.starts.get(offset)
    if position is None:
        located = segment.locate(offset)
        position = located.position if located else segment.size
    return position


def _size_at(segment: Segment, offset: int) -> int:
    located = segment.locate(offset)
    return located.size if located else 0


def aborted_transactions(segments: Segments, from_offset: int, upto_offset: int) -> list[AbortedTransaction]:
    """The aborted transactions that touch a range of offsets (``upto_offset``
    exclusive), by their markers.

    Raises `OSError`, and `KafkaError` UNKNOWN_SERVER_ERROR when an index was damaged since the
    start: without it aborted records would pass for committed ones.
    """
    found: list[AbortedTransaction] = []
    for segment in segments[segments.index_of(from_offset) :]:
        try:
            entries, is_done = segment.transactions.collect(from_offset, upto_offset)
        except CorruptDataError as error:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)) from error
        found += entries
        if is_done:
            break
    return found
