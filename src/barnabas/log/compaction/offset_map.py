"""The newest offset of each key, in memory of a fixed size: what compaction looks up for every record. Kafka: SkimpyOffsetMap.

Open addressing in three columns of 8 bytes a slot: the two halves of a digest of the key, and twice the offset plus one (0: a
free slot), with the lowest bit set for a delete marker. Keys themselves are not kept, so a map costs 24 bytes a slot whatever
keys there are, and 8 more for `NewestOffsets`. The second half of the digest
gives the step of a probe, odd and so without common factor with the number of slots, a power of two: every slot is reached,
and chains stay short up to a load of 0.9. Keys are put and looked up many at once, with numpy.

Two keys of equal digests would be one key. A digest has 128 bits: Python's hash of the key, and of the key with a byte more.
That is SipHash under a secret of the process, so clients who share a topic, such as ``__consumer_offsets``, cannot make a key
of theirs look like another's. Where pointers, and so hashes, have 32 bits it is BLAKE2b.
"""

import struct
from collections.abc import Generator, Sequence
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

__all__ = ["SLOT_BYTES", "Digests", "NewestOffsets", "OffsetMap", "digests"]

SLOT_BYTES = 32
_LEAST_SLOTS = 64
_DIGEST_BYTES = 16
_SLOTS_A_STEP = 1 << 16
_HAS_LONG_HASHES = struct.calcsize("P") == 8

_Integers = npt.NDArray[np.int64]
_Halves = npt.NDArray[np.uint64]


class Digests(NamedTuple):
    """Of keys, a row each."""

    first: _Halves
    second: _Halves


def digests(keys: Sequence[bytes]) -> Digests:
    """The digests of keys, in their order."""
    return siphashes(keys) if _HAS_LONG_HASHES else blake2_digests(keys)


def siphashes(keys: Sequence[bytes]) -> Digests:
    """Digests of Python's own hash, which must have 64 bits."""
    count = len(keys)
    first = np.fromiter(map(hash, keys), np.int64, count).view(np.uint64)
    second = np.fromiter([hash(key + b"\0") for key in keys], np.int64, count).view(np.uint64)
    return Digests(first, second)


def blake2_digests(keys: Sequence[bytes]) -> Digests:
    """Digests of BLAKE2b: three times as long."""
    halves = np.frombuffer(b"".join([blake2b(key, digest_size=_DIGEST_BYTES).digest() for key in keys]), np.uint64)
    return Digests(halves[0::2], halves[1::2])


class NewestOffsets:
    """Where the newest record of each key is: a record that was put into the map stays if its offset is among them.

    So the second pass looks up offsets alone. It reads no keys, and no batch of which all records stay or go.
    """

    __slots__ = ("_markers", "_offsets")

    def __init__(self, offsets: _Integers, markers: _Integers) -> None:
        """Both are sorted; ``markers`` are those of delete markers."""
        self._offsets = offsets
        self._markers = markers

    def holds(self, offsets: _Integers) -> npt.NDArray[np.bool_]:
        """Whether each offset is among them."""
        if not self._offsets.size:
            return np.zeros(len(offsets), np.bool_)
        at = self._offsets.searchsorted(offsets)
        found: npt.NDArray[np.bool_] = self._offsets.take(at, mode="clip") == offsets
        return found

    def count(self, first: _Integers, last: _Integers) -> tuple[_Integers, _Integers]:
        """For each range of offsets, ends included: how many there are, and how many of them are delete markers."""
        return _count(self._offsets, first, last), _count(self._markers, first, last)


def _count(column: _Integers, first: _Integers, last: _Integers) -> _Integers:
    counts: _Integers = column.searchsorted(last, "right") - column.searchsorted(first)
    return counts


class OffsetMap:
    """Key -> offset, for at most ``max_keys`` keys. Memory pages are touched only as keys come."""

    __slots__ = ("_first", "_mask", "_offsets", "_second", "latest_offset", "max_keys", "size")

    def __init__(self, max_bytes: int, load_factor: float, expected_keys: int) -> None:
        """Room for ``expected_keys``, or for as many as ``max_bytes`` hold when they are filled to ``load_factor``."""
        slots = _LEAST_SLOTS
        while slots * load_factor < expected_keys and slots * 2 * SLOT_BYTES <= max_bytes:
            slots *= 2
        self.max_keys = max(1, min(slots - 1, int(slots * load_factor)))
        self._mask = np.uint64(slots - 1)
        self._first, self._second = np.zeros(slots, np.uint64), np.zeros(slots, np.uint64)
        self._offsets = np.zeros(slots, np.int64)
        self.size = 0
        self.latest_offset = -1
        """Every record up to this offset is in the map: see `cover`."""

    def put(self, keys: Digests, offsets: _Integers, is_marker: npt.NDArray[np.bool_]) -> bool:
        """The newest records of keys are at these rising offsets. False, and nothing is put, when there is no room for all."""
        slots = self._slots(keys)
        new = (self._offsets[slots] == 0).nonzero()[0]
        if new.size:
            if self.size + new.size > self.max_keys:
                distinct = len(set(zip(keys.first[new].tolist(), keys.second[new].tolist(), strict=True)))
                if self.size + distinct > self.max_keys:
                    return False
            self._take_slots(keys, slots, new)
        self._offsets[slots] = (offsets + 1 << 1) + is_marker  # where a key comes twice, its last offset stays
        return True

    def _take_slots(self, keys: Digests, slots: _Integers, new: _Integers) -> None:
        """Give each key of the rows ``new`` a free slot. Of keys that meet at a slot one stays, and the others probe on."""
        while new.size:
            wanted = slots[new]
            first, second = keys.first[new], keys.second[new]
            self._first[wanted] = first
            self._second[wanted] = second
            self._offsets[wanted] = 1
            self.size += len(set(wanted.tolist()))
            new = new[(self._first[wanted] != first) | (self._second[wanted] != second)]
            if new.size:
                slots[new] = self._slots(Digests(keys.first[new], keys.second[new]))
                new = new[self._offsets[slots[new]] == 0]

    def cover(self, offset: int) -> None:
        """Every record up to an offset is in the map."""
        self.latest_offset = max(self.latest_offset, offset)

    def get(self, keys: Digests) -> _Integers:
        """The newest offset of each key, -1 for one that has none."""
        found: _Integers = (self._offsets[self._slots(keys)] >> 1) - 1
        return found

    def newest(self) -> Generator[None, None, "NewestOffsets"]:
        """All offsets in the map; yields as it goes."""
        parts: list[_Integers] = []
        for first in range(0, len(self._offsets), _SLOTS_A_STEP):
            part = self._offsets[first : first + _SLOTS_A_STEP]
            parts.append(part[part != 0])
            yield
        values = np.concatenate(parts)
        del parts
        values.sort()  # lets other threads run
        yield
        markers = (values & 1).nonzero()[0]
        values >>= 1
        yield
        values -= 1
        return NewestOffsets(values, values[markers])

    def _slots(self, keys: Digests) -> _Integers:
        """The slot of each key, or the free one where it would be put; there is always a free one."""
        slots: _Integers = (keys.first & self._mask).astype(np.int64)
        rows, first, second = None, keys.first, keys.second
        here = slots
        while True:
            is_other = ((self._first[here] != first) | (self._second[here] != second)) & (self._offsets[here] != 0)
            others = is_other.nonzero()[0]
            if not others.size:
                return slots
            rows = others if rows is None else rows[others]
            first, second = first[others], second[others]
            here = ((here[others].astype(np.uint64) + (second | np.uint64(1))) & self._mask).astype(np.int64)
            slots[rows] = here
