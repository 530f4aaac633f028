"""The segments of one log, in the order of their base offsets. Kafka: LogSegments.

There is always at least one segment. The last one is active: only it is appended to.
"""

from bisect import bisect_right
from collections.abc import Iterator
from typing import overload

from barnabas.base.randomness import Random
from barnabas.log.segment.folder import Folder
from barnabas.log.segment.open_files import OpenFiles
from barnabas.log.segment.segment import Segment

__all__ = ["Segments"]


class Segments:
    """The segments of one log.

    ``rng`` spreads the times at which segments roll (segment.jitter.ms)."""

    __slots__ = ("_folder", "_open_files", "_rng", "active", "all", "bases", "closed_bytes")

    def __init__(self, folder: Folder, open_files: OpenFiles, segments: list[Segment], rng: Random) -> None:
        self._folder = folder
        self._open_files = open_files
        self._rng = rng
        self._replace(segments)

    def _replace(self, segments: list[Segment]) -> None:
        self.all = segments
        """For reading, where speed counts: this object is a sequence of them."""
        self.bases = [segment.base_offset for segment in segments]
        """The base offsets of all segments. For reading."""
        self.active = segments[-1]
        """The segment that is appended to."""
        self.closed_bytes = 0
        """Bytes of the .log files of all others, which do not change. For reading, where speed
        counts: see `size_bytes`."""
        for segment in segments[:-1]:
            segment.deactivate()
            self.closed_bytes += segment.size
        self.active.activate()

    # ---- as a sequence

    def __len__(self) -> int:
        return len(self.all)

    def __iter__(self) -> Iterator[Segment]:
        return iter(self.all)

    def __contains__(self, segment: Segment) -> bool:
        return segment in self.all

    @overload
    def __getitem__(self, at: int) -> Segment: ...

    @overload
    def __getitem__(self, at: slice) -> list[Segment]: ...

    def __getitem__(self, at: int | slice) -> Segment | list[Segment]:
        return self.all[at]

    def index_of(self, offset: int) -> int:
        """The number of the segment that holds an offset; 0 for offsets before the first."""
        return max(0, bisect_right(self.bases, offset) - 1)

    def end_of(self, at: int, log_end_offset: int) -> int:
        """Where a segment's offsets end: at the base offset of the next segment, or
        at the log's end."""
        return self.bases[at + 1] if at + 1 < len(self.bases) else log_end_offset

    @property
    def start_offset(self) -> int:
        """The base offset of the first segment."""
        return self.bases[0]

    @property
    def size_bytes(self) -> int:
        """Bytes of all .log files."""
        return self.closed_bytes + self.active.size

    # ---- changes

    def set_jitter(self, jitter_ms: int) -> None:
        """Let the active segment roll up to ``jitter_ms`` early."""
        self.active.set_jitter(self._rng.randrange(jitter_ms) if jitter_ms else 0)

    def roll(self, base_offset: int, now_ms: int) -> Segment:
        """Begin a new active segment at an offset past the active one's base. Raises `OSError`."""
        segment = self._new(base_offset, now_ms)
        self.all.append(segment)
        self.bases.append(base_offset)
        self.active.deactivate()
        self.closed_bytes += self.active.size
        self._open_files.indexes_loaded(self.active)
        self.active = segment
        segment.activate()
        return segment

    def _new(self, base_offset: int, now_ms: int) -> Segment:
        segment = Segment(self._folder, self._open_files, base_offset, 0, created_ms=now_ms)
        # What a crash may have left under this name was cut off by recovery, and is
        # not part of the log.
        self._open_files.get(segment.path, create=True).truncate(0)
        return segment

    def drop_first(self, count: int) -> list[Segment]:
        """Take out the oldest segments, but not the active one. Returns them."""
        dropped = self.all[:count]
        self.all, self.bases = self.all[count:], self.bases[count:]
        self.closed_bytes -= sum(segment.size for segment in dropped)
        return dropped

    def drop_last(self) -> None:
        """Take out the active segment; the one before is active then."""
        self._replace(self.all[:-1])

    def restart(self, base_offset: int) -> None:
        """Replace all segments, whose files are gone, by an empty one. Raises `OSError`."""
        self._replace([self._new(base_offset, self.active.created_ms)])

    def replace(self, group: list[Segment], size: int) -> None:
        """Compaction wrote one segment of ``size`` bytes in place of several, under
        the first one's name."""
        first = self.all.index(group[0])
        segment = Segment(self._folder, self._open_files, group[0].base_offset, size, created_ms=group[0].created_ms)
        self._replace([*self.all[:first], segment, *self.all[first + len(group) :]])

    def moved(self) -> None:
        """The folder was renamed."""
        for segment in self.all:
            segment.moved()

    def use_open_files(self, open_files: OpenFiles) -> None:
        """Keep open files and loaded indexes among those of other logs from now on."""
        self._open_files = open_files
        for segment in self.all:
            segment.use_open_files(open_files)

    def forget(self) -> None:
        """Let go of open files."""
        for segment in self.all:
            segment.forget()
