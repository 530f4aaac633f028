"""Which parts of a segment's file were looked at since the start, and what was found broken there.

Kafka: no counterpart."""

from bisect import bisect_right
from typing import NamedTuple

from barnabas.log.segment.offset_index import MAX_RELATIVE

__all__ = ["BrokenBatch", "Unchecked"]

_MOST_RANGES = 64


class BrokenBatch(NamedTuple):
    """Bytes that are no batch of this place."""

    position: int
    first: int
    """The first offset that is missing."""
    after: int
    """The first offset behind it that can be read."""
    behind: int
    """Where the next sound batch begins, or the file ends."""


class Unchecked:
    """The first ``size`` bytes of a file, which were there at the start."""

    __slots__ = ("_ranges", "broken", "size")

    def __init__(self, size: int) -> None:
        self.size = min(size, MAX_RELATIVE)
        self._ranges: list[tuple[int, int]] = []
        """Disjoint and in order: what was looked at."""
        self.broken: dict[int, BrokenBatch] = {}
        """By position. For reading."""

    def covers(self, begin: int, end: int) -> bool:
        """Whether all bytes of a range were looked at."""
        at = bisect_right(self._ranges, (begin, 1 << 63)) - 1
        return begin >= end or (at >= 0 and self._ranges[at][1] >= end)

    def checked(self, begin: int, end: int) -> None:
        """These bytes were looked at.

        When there are many separate ranges, the smallest is forgotten."""
        apart = []
        for low, high in self._ranges:
            if high < begin or low > end:
                apart.append((low, high))
            else:
                begin, end = min(begin, low), max(end, high)
        self._ranges = sorted([*apart, (begin, end)])
        if len(self._ranges) > _MOST_RANGES:
            self._ranges.remove(min(self._ranges, key=lambda each: each[1] - each[0]))

    def note_broken(self, broken: BrokenBatch) -> None:
        """A batch can neither be read nor put right."""
        self.broken[broken.position] = broken

    def done(self) -> None:
        """All was looked at, and is sound."""
        self.size = 0

    def cut(self, position: int) -> None:
        """The file ends there now."""
        self.size = min(self.size, position)
        self.broken = {at: broken for at, broken in self.broken.items() if at < position}
