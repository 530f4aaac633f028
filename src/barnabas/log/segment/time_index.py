"""The ``.timeindex`` file of a segment: the largest timestamp so far, and its offset.

Kafka: TimeIndex.

12 bytes an entry, big-endian: the largest timestamp so far (8), the relative offset of the batch
that has it (4). An entry is added together with one of the offset index, and only when the largest
timestamp grew. Both columns rise.
"""

from array import array
from bisect import bisect_left, bisect_right

from barnabas.log.segment.columns import LITTLE_ENDIAN, rising_prefix

__all__ = ["TIME_ENTRY_BYTES", "TimeIndex"]

TIME_ENTRY_BYTES = 12


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

    def mark_persisted(self) -> None:
        """The file holds all entries."""
        self.persisted = len(self)

    def encode(self, first_entry: int = 0) -> bytes:
        """The file's bytes from an entry on."""
        count = len(self.timestamps) - first_entry
        timestamps, offsets = self.timestamps[first_entry:], self.offsets[first_entry:]
        if LITTLE_ENDIAN:
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
        """The sound prefix of a file's entries, for a segment whose offsets end at
        ``max_relative_offset``."""
        index = cls()
        words = array("I", data[: len(data) // TIME_ENTRY_BYTES * TIME_ENTRY_BYTES])
        timestamps_words = array("I", bytes(len(words) // 3 * 8))
        timestamps_words[0::2] = words[0::3]
        timestamps_words[1::2] = words[1::3]
        timestamps = array("q", timestamps_words.tobytes())
        offsets = words[2::3]
        if LITTLE_ENDIAN:
            timestamps.byteswap()
            offsets.byteswap()
        count = min(rising_prefix(timestamps), rising_prefix(offsets))
        count = min(count, bisect_right(offsets, max_relative_offset, 0, count))
        if count and timestamps[0] < 0:
            count = 0
        index.timestamps, index.offsets, index.persisted = timestamps[:count], offsets[:count], count
        return index
