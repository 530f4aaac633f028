"""The two indexes of a segment, in memory as arrays and on disk as Apache Kafka's files.

``.index``: 8 bytes an entry, big-endian: the last offset of a batch relative to the segment's base offset (4), the
batch's position in the .log (4). ``.timeindex``: 12 bytes: the largest timestamp so far (8), the relative offset of
the batch that brought it (4). Entries are sparse: one when more than ``index.interval.bytes`` of log were appended
since the last; a time entry only when the largest timestamp grew. Both columns of both indexes rise from entry to entry.

A file may end in zeros: Apache's broker gives the active segment's indexes their full size in advance, and a crash
leaves them so. Reading keeps the longest prefix of entries that rise and lie inside the log.
"""

import operator
from array import array
from bisect import bisect_left, bisect_right
from itertools import islice

__all__ = ["OFFSET_ENTRY_BYTES", "TIME_ENTRY_BYTES", "OffsetIndex", "TimeIndex"]

OFFSET_ENTRY_BYTES = 8
TIME_ENTRY_BYTES = 12
_MAX_RELATIVE = (1 << 31) - 1
_LITTLE_ENDIAN = array("H", [1]).tobytes()[0] == 1


def _rising(column: "array[int]") -> bool:
    return all(map(operator.lt, column, islice(column, 1, None)))


def _rising_prefix(column: "array[int]") -> int:
    """How many entries rise before the first that does not."""
    if _rising(column):
        return len(column)
    for entry in range(1, len(column)):
        if column[entry] <= column[entry - 1]:
            return entry
    return len(column)


class OffsetIndex:
    """Relative offset -> position of batches, sparse. Offsets here are relative to the segment's base offset."""

    __slots__ = ("offsets", "persisted", "positions")

    def __init__(self) -> None:
        self.offsets = array("I")
        self.positions = array("I")
        self.persisted = 0
        """How many entries the file holds."""

    def __len__(self) -> int:
        return len(self.offsets)

    def append(self, relative_offset: int, position: int) -> None:
        """Add an entry; one that does not rise is left out (a batch that was retried into the same place)."""
        if not self.offsets or relative_offset > self.offsets[-1]:
            self.offsets.append(relative_offset)
            self.positions.append(position)

    def floor(self, relative_offset: int) -> tuple[int, int]:
        """The last entry at or before an offset, as (offset, position); (0, 0), the segment's start, before the first."""
        entry = bisect_right(self.offsets, relative_offset) - 1
        return (self.offsets[entry], self.positions[entry]) if entry >= 0 else (0, 0)

    def ceiling_of_position(self, position: int) -> int | None:
        """The offset of the first entry whose position is ``position`` or later."""
        entry = bisect_left(self.positions, position)
        return self.offsets[entry] if entry < len(self.offsets) else None

    def truncate(self, relative_offset: int) -> None:
        """Drop the entries at and after an offset."""
        entries = bisect_left(self.offsets, relative_offset)
        del self.offsets[entries:]
        del self.positions[entries:]
        self.persisted = min(self.persisted, entries)

    def encode(self, first_entry: int = 0) -> bytes:
        """The file's bytes from an entry on."""
        entries = array("I", bytes(OFFSET_ENTRY_BYTES * (len(self.offsets) - first_entry)))
        entries[0::2] = self.offsets[first_entry:]
        entries[1::2] = self.positions[first_entry:]
        if _LITTLE_ENDIAN:
            entries.byteswap()
        return entries.tobytes()

    @classmethod
    def decode(cls, data: bytes, log_bytes: int) -> "OffsetIndex":
        """The sound prefix of a file's entries, for a log of ``log_bytes``."""
        index = cls()
        entries = array("I", data[: len(data) // OFFSET_ENTRY_BYTES * OFFSET_ENTRY_BYTES])
        if _LITTLE_ENDIAN:
            entries.byteswap()
        offsets, positions = entries[0::2], entries[1::2]
        count = min(_rising_prefix(offsets), _rising_prefix(positions))
        count = min(count, bisect_left(positions, log_bytes, 0, count))
        count = min(count, bisect_right(offsets, _MAX_RELATIVE, 0, count))
        index.offsets, index.positions, index.persisted = offsets[:count], positions[:count], count
        return index


class TimeIndex:
    """Largest timestamp so far -> relative offset of the batch that brought it."""

    __slots__ = ("offsets", "persisted", "timestamps")

    def __init__(self) -> None:
        self.timestamps = array("q")
        self.offsets = array("I")
        self.persisted = 0
        """How many entries the file holds."""

    def __len__(self) -> int:
        return len(self.timestamps)

    def append(self, timestamp_ms: int, relative_offset: int) -> None:
        """Add an entry if the timestamp is larger than the last entry's."""
        if timestamp_ms > (self.timestamps[-1] if self.timestamps else -1):
            self.timestamps.append(timestamp_ms)
            self.offsets.append(relative_offset)

    def floor(self, timestamp_ms: int) -> int:
        """The relative offset of the last entry at or before a timestamp; 0 before the first."""
        entry = bisect_right(self.timestamps, timestamp_ms) - 1
        return self.offsets[entry] if entry >= 0 else 0

    def truncate(self, relative_offset: int) -> None:
        """Drop the entries at and after an offset."""
        entries = bisect_left(self.offsets, relative_offset)
        del self.timestamps[entries:]
        del self.offsets[entries:]
        self.persisted = min(self.persisted, entries)

    def encode(self, first_entry: int = 0) -> bytes:
        """The file's bytes from an entry on."""
        count = len(self.timestamps) - first_entry
        timestamps, offsets = self.timestamps[first_entry:], self.offsets[first_entry:]
        if _LITTLE_ENDIAN:
            timestamps.byteswap()
            offsets.byteswap()
        high_and_low = memoryview(timestamps.tobytes()).cast("I")
        entries = memoryview(bytearray(TIME_ENTRY_BYTES * count)).cast("I")
        merged = array("I", entries.tobytes())
        merged[0::3] = array("I", high_and_low[0::2].tobytes())
        merged[1::3] = array("I", high_and_low[1::2].tobytes())
        merged[2::3] = offsets
        return merged.tobytes()

    @classmethod
    def decode(cls, data: bytes, max_relative_offset: int) -> "TimeIndex":
        """The sound prefix of a file's entries, for a segment whose offsets end at ``max_relative_offset``."""
        index = cls()
        words = array("I", data[: len(data) // TIME_ENTRY_BYTES * TIME_ENTRY_BYTES])
        timestamps_words = array("I", bytes(len(words) // 3 * 8))
        timestamps_words[0::2] = words[0::3]
        timestamps_words[1::2] = words[1::3]
        timestamps = array("q", timestamps_words.tobytes())
        offsets = words[2::3]
        if _LITTLE_ENDIAN:
            timestamps.byteswap()
            offsets.byteswap()
        count = min(_rising_prefix(timestamps), _rising_prefix(offsets))
        count = min(count, bisect_right(offsets, max_relative_offset, 0, count))
        if count and timestamps[0] < 0:
            count = 0
        index.timestamps, index.offsets, index.persisted = timestamps[:count], offsets[:count], count
        return index
