"""The ``.index`` file of a segment: where batches begin, sparse. Kafka: OffsetIndex.

8 bytes an entry, big-endian: the last offset of a batch relative to the segment's base offset (4),
the batch's position in the .log (4). One entry is added when more than ``index.interval.bytes`` of
log were appended since the last. Both columns rise from entry to entry.
"""

from array import array
from bisect import bisect_left, bisect_right

from barnabas.log.segment.columns import LITTLE_ENDIAN, rising_prefix

__all__ = ["MAX_RELATIVE", "OFFSET_ENTRY_BYTES", "OffsetIndex"]

OFFSET_ENTRY_BYTES = 8
MAX_RELATIVE = (1 << 31) - 1
"""The largest offset relative to the segment's base that an index holds."""


class OffsetIndex:
    """Relative offset -> position of batches, sparse.

    Offsets here are relative to the segment's base offset."""

    __slots__ = ("offsets", "persisted", "positions")

    def __init__(self) -> None:
        self.offsets = array("I")
        self.positions = array("I")
        self.persisted = 0
        """How many entries the file holds."""

    def __len__(self) -> int:
        return len(self.offsets)

    def append(self, relative_offset: int, position: int) -> None:
        """Add an entry; one that does not rise is left out (a batch that was retried
        into the same place)."""
        if not self.offsets or relative_offset > self.offsets[-1]:
            self.offsets.append(relative_offset)
            self.positions.append(position)

    def floor(self, relative_offset: int) -> tuple[int, int]:
        """The last entry at or before an offset, as (offset, position).

        (0, 0), the segment's start, before the first."""
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

    def mark_persisted(self) -> None:
        """The file holds all entries."""
        self.persisted = len(self)

    def encode(self, first_entry: int = 0) -> bytes:
        """The file's bytes from an entry on."""
        entries = array("I", bytes(OFFSET_ENTRY_BYTES * (len(self.offsets) - first_entry)))
        entries[0::2] = self.offsets[first_entry:]
        entries[1::2] = self.positions[first_entry:]
        if LITTLE_ENDIAN:
            entries.byteswap()
        return entries.tobytes()

    @classmethod
    def decode(cls, data: bytes, log_bytes: int) -> "OffsetIndex":
        """The sound prefix of a file's entries, for a log of ``log_bytes``."""
        index = cls()
        entries = array("I", data[: len(data) // OFFSET_ENTRY_BYTES * OFFSET_ENTRY_BYTES])
        if LITTLE_ENDIAN:
            entries.byteswap()
        offsets, positions = entries[0::2], entries[1::2]
        count = min(rising_prefix(offsets), rising_prefix(positions))
        count = min(count, bisect_left(positions, log_bytes, 0, count))
        count = min(count, bisect_right(offsets, MAX_RELATIVE, 0, count))
        index.offsets, index.positions, index.persisted = offsets[:count], positions[:count], count
        return index
