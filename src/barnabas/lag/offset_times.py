"""From an offset to a timestamp, by what is known of a partition's records.

Three things are known of a partition, and each is a point: an offset, and the greatest timestamp
up to there.

- ListOffsets by time: the first record that is as young as asked. All before it are older.
- ListOffsets for MAX_TIMESTAMP: the newest record. Asked with each sample, this is the sample of
  (end, time) that stays when the records are gone.
- Fetch: a record's own timestamp, for some offsets only.

Between two points the timestamp is interpolated, and cannot be wrong by more than the points
differ, as long as timestamps rise with offsets. Where they do not (CreateTime of several
producers), a point is the greatest timestamp so far, which never goes back.

In Kafka: the time index of a segment (`TimeIndex`), which has the same kind of entries.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable
from itertools import islice
from typing import NamedTuple

import numpy as np

from barnabas.lag.values import TimeSource

__all__ = ["OffsetTimes", "TimeEstimate", "TimePoint"]

_MOST_POINTS = 96
_MOST_RECORDS = 2048


class TimePoint(NamedTuple):
    """The greatest timestamp of all records up to an offset, and what those before it are
    below."""

    offset: int
    timestamp_ms: int
    before_ms: int
    """No record before the offset has a timestamp above this."""


class TimeEstimate(NamedTuple):
    """The timestamp of a record, and by how much it may be wrong."""

    timestamp_ms: int | None
    error_ms: int | None
    source: TimeSource


_UNKNOWN = TimeEstimate(None, None, TimeSource.UNKNOWN)


class OffsetTimes:
    """The points of one partition.

    Invariant: offsets rise, and timestamps with them.
    """

    def __init__(self) -> None:
        self._points: list[TimePoint] = []
        self._offsets: list[int] = []  # of the points
        self._records: dict[int, int] = {}
        self._asked: set[int] = set()
        self.newest_ms: int | None = None
        """The greatest timestamp of the partition."""

    @property
    def points(self) -> list[TimePoint]:
        return list(self._points)

    def add_newest(self, offset: int, timestamp_ms: int) -> None:
        """The record with the greatest timestamp, where there is one."""
        if timestamp_ms >= 0:
            self.newest_ms = timestamp_ms
            self._add(TimePoint(offset, timestamp_ms, timestamp_ms))

    def add_found(self, asked_ms: int, offset: int, timestamp_ms: int) -> None:
        """The answer to ListOffsets by time: the first record of this time or later."""
        self._asked.add(asked_ms)
        if offset >= 0 and timestamp_ms >= 0:
            self._add(TimePoint(offset, timestamp_ms, asked_ms - 1))

    def add_point(self, point: TimePoint) -> None:
        """A point from the history."""
        self._add(point)

    def add_record(self, offset: int, timestamp_ms: int) -> None:
        """The timestamp of the record that a group reads next which has committed ``offset``;
        negative for a record without one."""
        self._records[offset] = timestamp_ms
        if len(self._records) > _MOST_RECORDS:
            del self._records[next(iter(self._records))]

    def has_record(self, offset: int) -> bool:
        return offset in self._records

    def _add(self, point: TimePoint) -> None:
        points = self._points
        place = bisect_left(points, point.offset, key=lambda each: each.offset)
        if place < len(points) and points[place].offset == point.offset:
            known = points[place]
            if known.timestamp_ms != point.timestamp_ms:
                self._remove_contradicting(point)
                points.insert(bisect_left(points, point.offset, key=lambda each: each.offset), point)
            elif point.before_ms < known.before_ms:
                points[place] = point
        else:
            points.insert(place, point)
            self._remove_contradicting(point)
        if len(points) > _MOST_POINTS:
            self._thin()
        self._offsets = [each.offset for each in points]

    def _remove_contradicting(self, point: TimePoint) -> None:
        """Later answers hold: a topic that was made again, or truncated."""
        self._points[:] = [
            each
            for each in self._points
            if each is point
            or (each.offset < point.offset and each.timestamp_ms <= point.timestamp_ms)
            or (each.offset > point.offset and each.timestamp_ms >= point.timestamp_ms)
        ]

    def _thin(self) -> None:
        """Remove the point whose neighbours are nearest to each other in time, relative to how
        long ago that was: never the first and the last."""
        newest = self._points[-1].timestamp_ms
        place = min(
            range(1, len(self._points) - 1),
            key=lambda at: (
                (self._points[at + 1].timestamp_ms - self._points[at - 1].timestamp_ms)
                / (1000 + newest - self._points[at].timestamp_ms)
            ),
        )
        del self._points[place]

    def estimate(self, offset: int, begin: int) -> TimeEstimate:
        """The timestamp of the record at an offset, or of the next one that is there.

        ``begin`` is the partition's first offset."""
        if (exact := self._records.get(offset, -1)) >= 0:
            return TimeEstimate(exact, 0, TimeSource.RECORD)
        points = self._points
        place = bisect_right(self._offsets, offset)
        if place == 0:
            if offset < begin and points:
                return TimeEstimate(points[0].timestamp_ms, None, TimeSource.AT_LEAST)
            return _UNKNOWN
        low = points[place - 1]
        if low.offset == offset and offset >= begin and low.before_ms < low.timestamp_ms:
            return TimeEstimate(low.timestamp_ms, 0, TimeSource.RECORD)
        if place == len(points):
            # Behind the newest record nothing is younger.
            return TimeEstimate(low.timestamp_ms, 0, TimeSource.INTERPOLATED)
        high = points[place]
        above_ms = max(high.before_ms, low.timestamp_ms)
        part = (offset - low.offset) / (high.offset - low.offset)
        found = low.timestamp_ms + round(part * (above_ms - low.timestamp_ms))
        return TimeEstimate(found, max(found - low.timestamp_ms, above_ms - found), TimeSource.INTERPOLATED)

    def questions(self, offsets: Iterable[int], begin: int, most: int, tolerated_ms: int = 500) -> list[int]:
        """Up to ``most`` times for ListOffsets, after which these offsets are known better.

        First the time of the first record; then times between the points around the offsets whose
        time may be most wrong in proportion to the lag. An error below ``tolerated_ms``, or a
        fiftieth of the lag, is no reason to ask.
        """
        newest = self.newest_ms
        if newest is None:
            return []
        first = self._points[0].offset
        # Of a record that is gone, and older than all that is known, the first one that is left.
        wanted = sorted(
            {
                max(offset, begin)
                for offset in offsets
                if self._records.get(offset, -1) < 0 and (offset >= begin or first > offset)
            }
        )
        if not wanted:
            return []
        if first > wanted[0]:
            return [] if 0 in self._asked else [0]  # 0 finds the first record
        found = (self._between(place, middle_ms) for place, middle_ms in self._gaps(wanted, newest, tolerated_ms))
        return list(islice((question for question in found if question is not None), most))

    def _gaps(self, offsets: list[int], newest_ms: int, tolerated_ms: int) -> list[tuple[int, int]]:
        """The places of the points before gaps that are too wide for some of these offsets, the
        worst first, each with the middle one of the estimates in it. As `estimate`, for many."""
        points = np.array(self._points, dtype=np.int64)
        wanted = np.array(offsets, dtype=np.int64)
        place = np.searchsorted(points[:, 0], wanted, side="right")
        is_inside = (place > 0) & (place < len(points))
        wanted, place = wanted[is_inside], place[is_inside]
        low, above = points[place - 1, 1], np.maximum(points[place, 2], points[place - 1, 1])
        span = points[place, 0] - points[place - 1, 0]
        estimates = low + ((above - low) * ((wanted - points[place - 1, 0]) / span)).astype(np.int64)
        error = np.maximum(estimates - low, above - estimates)
        part = error / np.maximum(tolerated_ms, (newest_ms - estimates) / 50)
        worst: dict[int, tuple[float, int]] = {}
        for gap in np.unique(place[part > 1]).tolist():
            is_here = place == gap
            worst[gap - 1] = float(part[is_here].max()), int(np.median(estimates[is_here]))
        return [(gap, middle_ms) for gap, (_, middle_ms) in sorted(worst.items(), key=lambda item: -item[1][0])]

    def _between(self, place: int, middle_ms: int) -> int | None:
        """A time between two points that was not asked: the middle of the estimates, so that it
        divides them, but not near to the ends, so that the gap becomes smaller by a quarter."""
        low, high = self._points[place].timestamp_ms, self._points[place + 1].before_ms
        quarter = (high - low) // 4
        for guess in (min(max(middle_ms, low + quarter), high - quarter), (low + high) // 2, high):
            if low < guess <= high and guess not in self._asked:
                return guess
        return None
