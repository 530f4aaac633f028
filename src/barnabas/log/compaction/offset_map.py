"""The newest offset of each key, in memory of a fixed size: what compaction looks up for every record. Kafka: SkimpyOffsetMap.

Open addressing in three columns of 8 bytes a slot: the two halves of a 16-byte BLAKE2b digest of the key, and the offset
plus one (0: a free slot). Keys themselves are not kept, so a map costs 24 bytes a slot whatever keys there are; two keys
of equal digests would be one key, which 128 bits rule out in practice. A second part of the digest gives the step of a
probe, odd and so without common factor with the number of slots, a power of two: every slot is reached, and chains stay
short up to a load of 0.9.
"""

import struct
from hashlib import blake2b

from barnabas.base.files import Buffer

__all__ = ["SLOT_BYTES", "OffsetMap"]

SLOT_BYTES = 24
_LEAST_SLOTS = 64
_DIGEST_BYTES = 16
_HALVES = struct.Struct("<QQ").unpack


def _column(slots: int) -> memoryview:
    return memoryview(bytearray(8 * slots)).cast("Q")


class OffsetMap:
    """Key -> offset, for at most ``max_keys`` keys. Memory pages are touched only as keys come."""

    __slots__ = ("_first", "_mask", "_offsets", "_second", "latest_offset", "max_keys", "size")

    def __init__(self, max_bytes: int, load_factor: float, expected_keys: int) -> None:
        """Room for ``expected_keys``, or for as many as ``max_bytes`` hold when they are filled to ``load_factor``."""
        slots = _LEAST_SLOTS
        while slots * load_factor < expected_keys and slots * 2 * SLOT_BYTES <= max_bytes:
            slots *= 2
        self.max_keys = max(1, min(slots - 1, int(slots * load_factor)))
        self._mask = slots - 1
        self._first, self._second, self._offsets = _column(slots), _column(slots), _column(slots)
        self.size = 0
        self.latest_offset = -1
        """Every record up to this offset is in the map: see `cover`."""

    def put(self, key: Buffer, offset: int) -> bool:
        """The key's newest record is at an offset. False when the key is new and there is no room."""
        first, second = _HALVES(blake2b(key, digest_size=_DIGEST_BYTES).digest())
        slot = self._slot(first, second)
        if not self._offsets[slot]:
            if self.size >= self.max_keys:
                return False
            self.size += 1
            self._first[slot] = first
            self._second[slot] = second
        self._offsets[slot] = offset + 1
        return True

    def cover(self, offset: int) -> None:
        """Every record up to an offset is in the map."""
        self.latest_offset = max(self.latest_offset, offset)

    def get(self, key: Buffer) -> int:
        """The newest offset of a key, -1 when it has none."""
        first, second = _HALVES(blake2b(key, digest_size=_DIGEST_BYTES).digest())
        return self._offsets[self._slot(first, second)] - 1

    def _slot(self, first: int, second: int) -> int:
        """The slot of a digest, or the free one where it would be put; there is always a free one."""
        firsts, seconds, offsets, mask = self._first, self._second, self._offsets, self._mask
        slot = first & mask
        step = second | 1
        while offsets[slot] and (firsts[slot] != first or seconds[slot] != second):
            slot = (slot + step) & mask
        return slot
