"""Finds, at a start, segments that are out of place, and records that are missing
before the end of a log.

The rules are those of `barnabas.log.arrangement`, what a loss means is in `barnabas.log.lost_data`.
A file that is out of place is set aside, with an error line. Whether a log that seems to have lost
records once was compacted, and so has legal holes, is looked for in its batches only when it
matters: all headers are read then. Kafka: no counterpart.
"""

import logging
from collections.abc import Iterable, Sequence

from barnabas.base.files import Files
from barnabas.log.arrangement import Arrangement, Hole, Stray, arrange
from barnabas.log.holes import OffsetSpan, covers
from barnabas.log.lost_data import LostData
from barnabas.log.names import INDEX, SEGMENT_SUFFIXES, file_name
from barnabas.log.segment.batches import lacks_records, scan_headers
from barnabas.log.segment.extent import Extent, survey
from barnabas.log.segment.folder import Folder
from barnabas.log.segment.segment import Segment
from barnabas.log.set_aside import set_aside

__all__ = ["Inspection", "lost_by", "remove_from_log", "shows_compaction"]

logger = logging.getLogger(__name__)


class Inspection:
    """The segments of one log at a start, compared with each other."""

    def __init__(self, folder: Folder, segments: list[Segment], start_offset: int | None, *, is_dense: bool) -> None:
        """``segments`` is kept, and loses what is out of place.

        ``start_offset`` is where the log began, if that is known."""
        self.folder = folder
        """For reading."""
        self._segments = segments
        self._start_offset = start_offset
        self.is_dense = is_dense
        """Whether every offset of the log has a record: it never was compacted."""
        self.extents: list[Extent] = []
        """The extents of the segments that are in their place."""
        self.holes: list[Hole] = []
        self.has_strays = False
        """Whether files were set aside."""

    def remove_strays(self) -> None:
        """Set aside what is out of place. Raises `OSError`."""
        for stray in self.look().strays:
            self._set_aside(stray)
            self.has_strays = True

    def look_again(self, *, has_gaps: bool) -> None:
        """Compare the segments as recovery left them.

        ``has_gaps``: it found signs of compaction. Raises `OSError`."""
        self.is_dense = self.is_dense and not has_gaps
        self.look()

    def look(self) -> Arrangement:
        """Compare the segments as they are; changes no file. Raises `OSError`."""
        arrangement = self._arrange()
        if self.is_dense and shows_compaction(self._suspects(arrangement)):
            self.is_dense = False
            arrangement = self._arrange()
        self.extents, self.holes = arrangement.kept, arrangement.holes
        return arrangement

    def _suspects(self, arrangement: Arrangement) -> Sequence[Segment]:
        """The segments to look through for signs of compaction: none while all fit together."""
        if arrangement.strays or arrangement.holes:
            return self._segments
        odd = {extent.base_offset for extent in arrangement.kept if not extent.is_whole}
        return [segment for segment in self._segments if segment.base_offset in odd] if odd else ()

    def _arrange(self) -> Arrangement:
        extents = [survey_segment(self.folder, segment, is_dense=self.is_dense) for segment in self._segments]
        start_offset = self._start_offset
        if start_offset is None:
            start_offset = extents[0].base_offset if extents else 0
        return arrange(extents, start_offset, is_dense=self.is_dense)

    def _set_aside(self, stray: Stray) -> None:
        (segment,) = (each for each in self._segments if each.base_offset == stray.extent.base_offset)
        self._segments.remove(segment)
        kept = remove_from_log(self.folder, segment)
        logger.error("A segment is out of place and is set aside as %s: %s", kept, stray.reason)
        if self._segments:
            self._segments[-1].activate()


def survey_segment(folder: Folder, segment: Segment, *, is_dense: bool) -> Extent:
    """See `survey`."""
    index_path = folder.path(file_name(segment.base_offset, INDEX))
    return survey(folder.files, segment.path, index_path, segment.base_offset, segment.size, is_dense=is_dense)


def remove_from_log(folder: Folder, segment: Segment) -> str:
    """Set a segment's file aside and remove its indexes; returns the new path. Raises `OSError`."""
    segment.forget()
    kept = set_aside(folder.files, segment.path)
    _remove_indexes(folder.files, segment)
    return kept


def _remove_indexes(files: Files, segment: Segment) -> None:
    for suffix in SEGMENT_SUFFIXES[1:]:
        path = segment.file_path(suffix)
        if files.exists(path):
            files.remove(path)


def shows_compaction(segments: Iterable[Segment]) -> bool:
    """Whether a log was compacted once, by what only compaction leaves.

    Reads all headers up to the first sign. That is a batch with fewer records than offsets,
    or offsets that are missing between two batches that follow each other in one file: bytes
    do not vanish from the middle of a file. A single damaged offset is no sign, for the batch
    after it goes back.
    """
    for segment in segments:
        next_offset = segment.base_offset
        has_gap = False
        for _, header in scan_headers(segment.file, 0, segment.size):
            if header.base_offset < next_offset:
                break
            if has_gap or lacks_records(header):
                return True
            has_gap = header.base_offset > next_offset and next_offset > segment.base_offset
            next_offset = header.last_offset + 1
    return False


def lost_by(holes: Sequence[Hole], accepted: Iterable[OffsetSpan], end_offset: int) -> LostData | None:
    """What holes mean for a log that ends at an offset, but for those that an
    operator stepped over."""
    ranges = list(accepted)
    lost = [hole for hole in holes if not covers(ranges, hole.start, hole.end)]
    if not lost:
        return None
    more = f" (and {len(lost) - 1} more)" if len(lost) > 1 else ""
    copy_from = min(hole.copy_from for hole in lost)
    return LostData(lost[0].reason + more, lost[0].start, end_offset, copy_from, is_damage=True)
