"""Checks what a start has not looked at, before it is read for the first time: that the batches of
a file follow each other.

The CRC of a batch does not cover its base offset, length and leader epoch, and a consumer skips
batches with offsets that it did not ask for, without an error. So before bytes that were in a file
at the start are sent, their headers are walked once, from the index entry before the offset on,
over as many bytes as the read may take. What is appended later needs no check.

What is wrong is put right where that is certain (`barnabas.log.sound_batches`). Else the batch is
broken: reads end before it, and a read of its offsets fails. Kafka: no counterpart.
"""

import logging
from typing import NamedTuple

from barnabas.log.holes import Holes
from barnabas.log.leader_epochs import LeaderEpochCache
from barnabas.log.segment.batches import is_batch_at, scan_headers
from barnabas.log.segment.damage import valid_batch_behind
from barnabas.log.segment.mending import BatchPlace, following, mended
from barnabas.log.segment.segment import Segment
from barnabas.log.segment.segments import Segments
from barnabas.log.segment.unchecked import BrokenBatch
from barnabas.log.sound_batches import mend_batch, write_mended
from barnabas.wire.kafka.records.batch_header import HEADER_BYTES, BatchHeader, read_header

__all__ = ["MOST_UNCHECKED_BYTES", "ReadLimits", "SegmentChecks"]

logger = logging.getLogger(__name__)
_MORE_BYTES = 1 << 16
MOST_UNCHECKED_BYTES = 1 << 18
"""A read of what was not checked before gets no more: the headers of small batches in more
of it would take too long."""


class ReadLimits(NamedTuple):
    """Where a read may look for its first batch (None: anywhere), and where it must end."""

    start: int | None
    end: int
    upper_offset: int
    """The first offset that it must not have."""


class SegmentChecks:
    """The checks of one log's segments."""

    __slots__ = ("_epochs", "_holes", "_segments")

    def __init__(self, segments: Segments, holes: Holes, epochs: LeaderEpochCache) -> None:
        self._segments = segments
        self._holes = holes
        self._epochs = epochs

    def ensure(self, at: int, offset: int, max_bytes: int, log_end_offset: int) -> "ReadLimits":
        """Check what a read of segment number ``at`` from an offset on may take.

        Raises `OSError`, `MissingRecordsError` for an offset of a broken batch.
        """
        segment = self._segments[at]
        unchecked = segment.unchecked
        if not unchecked.size:
            return ReadLimits(None, segment.size, log_end_offset)
        begin = _entry_before(segment, offset)
        stop = min(begin + max_bytes + _MORE_BYTES, unchecked.size)
        if not unchecked.covers(begin, stop):
            limit = self._segments.end_of(at, log_end_offset)
            unchecked.checked(begin, self._walk(segment, begin, stop, limit))
            if unchecked.covers(0, unchecked.size) and not unchecked.broken:
                unchecked.done()
        start, end, upper = None, segment.size, log_end_offset
        for broken in unchecked.broken.values():
            if broken.first <= offset < broken.after:
                self._holes.check(offset, broken.after, segment)
            if broken.first <= offset:
                start = max(start or 0, broken.behind)
            elif broken.position < end:
                end, upper = broken.position, broken.first
        return ReadLimits(start if start is None or start > begin else None, end, upper)

    def _walk(self, segment: Segment, position: int, stop: int, limit: int) -> int:
        """Look at the batches up to a position, at least; returns how far they were looked at."""
        expected = segment.base_offset if position == 0 else None
        before: tuple[int, int | None] | None = None
        end = segment.size
        while position < stop:
            for at, header in scan_headers(segment.file, position, end):
                position = at
                if not self._is_sound(segment, at, header, expected, limit):
                    break
                before = at, expected
                position, expected = at + header.size_bytes, header.last_offset + 1
                if position >= stop:
                    break
            if position >= stop:
                return position
            if before is not None and self._mend_length(segment, *before, limit):
                position, expected = before
                before = None
                continue
            before = None
            found = (
                read_header(segment.file.read_at(position, HEADER_BYTES)) if end - position >= HEADER_BYTES else None
            )
            sound = self._mended(segment, position, found, expected, limit)
            if sound is None:
                position, expected = self._skip_broken(segment, position, found, expected, limit)
            else:
                position, expected = position + sound.size_bytes, sound.last_offset + 1
        return min(position, end)

    def _mend_length(self, segment: Segment, position: int, expected: int | None, limit: int) -> bool:
        """Behind a batch there is none: its length may be too small.

        Returns whether it was put right."""
        found = read_header(segment.file.read_at(position, HEADER_BYTES))
        header = mended(segment.file, position, segment.size, self._place(segment, expected, limit))
        if header is None or header.length == found.length:
            return False
        write_mended(segment, position, found, header._replace(base_offset=found.base_offset))
        return True

    def _is_sound(self, segment: Segment, at: int, header: BatchHeader, expected: int | None, limit: int) -> bool:
        base_offset, last_offset = header.base_offset, header.last_offset
        if expected is not None and base_offset != expected and not (base_offset > expected and self._holes.are_legal):
            return False
        if not segment.base_offset <= base_offset <= last_offset < limit:
            return False
        epoch = self._epochs.epochs.epoch_for(base_offset)
        if epoch >= 0 and header.leader_epoch not in (epoch, -1):
            return False
        if base_offset == expected:
            return True
        behind = following(segment.file, at + header.size_bytes, segment.size, self._place(segment, base_offset, limit))
        return behind is None or behind.base_offset > last_offset

    def _place(self, segment: Segment, expected: int | None, limit: int) -> BatchPlace:
        return BatchPlace(
            segment.base_offset if expected is None else expected,
            limit - 1,
            not self._holes.are_legal and expected is not None,
            limit,
            may_be_stale=False,
        )

    def _mended(
        self, segment: Segment, position: int, found: BatchHeader | None, expected: int | None, limit: int
    ) -> BatchHeader | None:
        """The batch at a position, put right if it has to be; None if it is broken."""
        if found is None:
            return None
        header = mend_batch(segment, position, found, self._place(segment, expected, limit), self._epochs.epochs)
        if header is None:
            return None
        if expected is not None and header.base_offset > expected and not self._holes.are_legal:
            # The batches on both sides are sound: only compaction leaves that.
            self._holes.show_compaction()
        if header != found:
            segment.starts.clear()
        return header

    def _skip_broken(
        self, segment: Segment, position: int, found: BatchHeader | None, expected: int | None, limit: int
    ) -> tuple[int, int | None]:
        """Note a broken batch; returns where the next sound one begins, or the file's end."""
        unchecked, end = segment.unchecked, segment.size
        start = expected if expected is not None else found.base_offset if found is not None else segment.base_offset
        behind = valid_batch_behind(segment.file, position, end, start, max(start, limit - 1))
        next_offset = limit
        if behind is not None:
            next_offset = read_header(segment.file.read_at(behind, HEADER_BYTES)).base_offset
        if start < next_offset:
            unchecked.note_broken(BrokenBatch(position, start, next_offset, end if behind is None else behind))
            logger.error(
                "%s is damaged at byte %d: offsets %d to %d cannot be read",
                segment.path,
                position,
                start,
                next_offset - 1,
            )
        return (end if behind is None else behind), (None if behind is None else next_offset)


def _entry_before(segment: Segment, offset: int) -> int:
    """The position of the batch that the index has at or before an offset.

    Makes an index that does not fit again."""
    relative, position = segment.index.floor(offset - segment.base_offset)
    if position and not is_batch_at(segment.file, position, segment.base_offset + relative):
        segment.rebuild_indexes()
        relative, position = segment.index.floor(offset - segment.base_offset)
    return position
