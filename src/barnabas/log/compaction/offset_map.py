"""The newest offset of each key, in memory of a fixed size: what compaction looks up for every
record. Kafka: SkimpyOffsetMap.

Open addressing in three columns of 8 bytes a slot: the two halves of a digest of the key, and twice
the offset plus one (0: a free slot), with the lowest bit set for a delete marker. Keys themselves
are not kept, so a map costs 24 bytes a slot whatever keys there are, and 8 more for
`NewestOffsets`. The second half of the digest gives the step of a probe, odd and so without common
factor with the number of slots, a power of two: every slot is reached, and chains stay short up to
a load of 0.9. Keys are put and looked up many at once, with numpy.

Two keys of equal digests would be one key. A digest has 128 bits: four strongly universal hashes of
32 (multilinear hashing, Lemire and Kaser, "Strongly universal string hashing is fast"), each with
multipliers of its own. So whatever two keys are, their digests are equal with a probability of
2^-128. The multipliers are a secret of the process, and so clients who share a topic, such as
``__consumer_offsets``, cannot make a key of theirs look like another's. All keys of a group are
hashed together, eight bytes at a time. Long keys get digests of BLAKE2b.
"""

from collections.abc import Generator
from hashlib import blake2b
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from barnabas.base.files import Buffer
from barnabas.base.randomness import new_random

__all__ = ["MOST_HASHED_BYTES", "SLOT_BYTES", "Digests", "NewestOffsets", "OffsetMap", "digests"]

SLOT_BYTES = 32
_LEAST_SLOTS = 64
_DIGEST_BYTES = 16
_SLOTS_A_STEP = 1 << 16
"""Under 1 ms. A count, because numpy takes them in one call."""
_SPARSE = 16
"""Offsets with this many gaps are looked up one by one."""
_WORD_BYTES = 8
MOST_HASHED_BYTES = 256
"""Longer keys get digests of BLAKE2b, which then cost less than they do to read."""
_HASHES = 4
_LOW = np.uint64(0xFFFFFFFF)
_HALF = np.uint64(32)
_ODD = np.uint64(0x9E3779B97F4A7C15)
_MASKS = np.array([(1 << 8 * size) - 1 for size in range(_WORD_BYTES + 1)], np.uint64)
"""The bytes of a word that belong to a key, by their number."""

_Integers = npt.NDArray[np.int64]
_Halves = npt.NDArray[np.uint64]


class Digests(NamedTuple):
    """The digests of keys, a row each."""

    first: _Halves
    second: _Halves


_BLAKE2_KEY_BYTES = 32
_HASHED_WORDS = MOST_HASHED_BYTES // _WORD_BYTES
_secret = new_random().randbytes(_BLAKE2_KEY_BYTES + (1 + _HASHED_WORDS) * _HASHES * 2 * _WORD_BYTES)
_BLAKE2_KEY = _secret[:_BLAKE2_KEY_BYTES]
_multipliers = np.frombuffer(_secret[_BLAKE2_KEY_BYTES:], np.uint64).reshape(1 + _HASHED_WORDS, _HASHES, 2)
_OF_SIZES, _OF_WORDS = _multipliers[0], _multipliers[1:]


def digests(data: Buffer, start: _Integers, size: _Integers) -> Digests:
    """The digests of keys, a row each, which lie in ``data``."""
    sums = [base + factor * size.view(np.uint64) for base, factor in _OF_SIZES]
    is_long = size > MOST_HASHED_BYTES
    if is_long.any():
        rows: _Integers | None = (~is_long).nonzero()[0]
        at, left = start[rows], size[rows]
    else:
        rows, at, left = None, start, size
    for factors in _OF_WORDS:
        if left.size and left.min() <= 0:
            more = (left > 0).nonzero()[0]
            rows = more if rows is None else rows[more]
            at, left = at[more], left[more]
        if not left.size:
            break
        words = _words(data, at)
        if left.min() < _WORD_BYTES:
            words &= _MASKS.take(left, mode="clip")
        low, high = words & _LOW, words >> _HALF
        for number, (of_low, of_high) in enumerate(factors):
            product = (low + of_low) * (high + of_high)
            if rows is None:
                sums[number] += product
            else:
                sums[number][rows] += product
        at, left = at + _WORD_BYTES, left - _WORD_BYTES
    first, second = (sums[0] & ~_LOW | sums[1] >> _HALF), (sums[2] & ~_LOW | sums[3] >> _HALF)
    for row in is_long.nonzero()[0].tolist():
        key = data[start[row] : start[row] + size[row]]
        digest = blake2b(key, digest_size=_DIGEST_BYTES, key=_BLAKE2_KEY).digest()
        first[row], second[row] = np.frombuffer(digest, np.uint64)
    # Similar keys have hashes that are spread less evenly than random numbers. The slots are
    # taken from the lowest bits.
    first ^= first >> _HALF
    first *= _ODD
    first ^= first >> _HALF
    return Digests(first, second)


def _words(data: Buffer, at: _Integers) -> _Halves:
    """The eight bytes at each position, the first in the lowest bits.

    Zeros behind the end of the data."""
    last = len(data) - _WORD_BYTES
    if last < 0:
        return _words(bytes(data).ljust(_WORD_BYTES, b"\0"), at)
    words = np.ndarray((last + 1,), "<u8", data, strides=(1,))
    late = at - last
    if late.max() <= 0:
        found: _Halves = words[at].astype(np.uint64, copy=False)
        return found
    shifts = (np.maximum(late, 0) * 8).view(np.uint64)
    return words[np.minimum(at, last)].astype(np.uint64, copy=False) >> shifts


class NewestOffsets:
    """Where the newest record of each key is: a record that was put into the map stays if
    its offset is among them.

    So the second pass looks up offsets alone. It reads no keys, and no batch of
    which all records stay or go.
    """

    __slots__ = ("_markers", "_offsets")

    def __init__(self, offsets: _Integers, markers: _Integers) -> None:
        """Both are sorted; ``markers`` are those of delete markers."""
        self._offsets = offsets
        self._markers = markers

    def holds(self, offsets: _Integers) -> npt.NDArray[np.bool_]:
        """Whether each offset is among them."""
        if not offsets.size:
            return np.zeros(0, np.bool_)
        first, last = offsets.min(), offsets.max()
        known = self._offsets[self._offsets.searchsorted(first) : self._offsets.searchsorted(last, "right")]
        if last - first < _SPARSE * len(offsets):
            is_known = np.zeros(last - first + 1, np.bool_)
            is_known[known - first] = True
            found: npt.NDArray[np.bool_] = is_known[offsets - first]
        elif known.size:
            found = known.take(known.searchsorted(offsets), mode="clip") == offsets
        else:
            found = np.zeros(len(offsets), np.bool_)
        return found

    def count(self, first: _Integers, last: _Integers) -> tuple[_Integers, _Integers]:
        """For each range of offsets, ends included: how many there are, and how many of
        them are delete markers."""
        return _count(self._offsets, first, last), _count(self._markers, first, last)


def _count(column: _Integers, first: _Integers, last: _Integers) -> _Integers:
    counts: _Integers = column.searchsorted(last, "right") - column.searchsorted(first)
    return counts


class OffsetMap:
    """Key -> offset, for at most ``max_keys`` keys. Memory pages are touched only as keys come."""

    __slots__ = ("_first", "_mask", "_offsets", "_second", "latest_offset", "max_keys", "size")

    def __init__(self, max_bytes: int, load_factor: float, expected_keys: int) -> None:
        """Room for ``expected_keys``, or for as many as ``max_bytes`` hold when they are
        filled to ``load_factor``."""
        slots = _LEAST_SLOTS
        while slots * load_factor < expected_keys and slots * 2 * SLOT_BYTES <= max_bytes:
            slots *= 2
        self.max_keys = max(1, min(slots - 1, int(slots * load_factor)))
        self._mask = np.uint64(slots - 1)
        # The columns of a slot lie together, so that a probe usually touches one line
        # of the processor's cache.
        table = np.zeros((slots, 3), np.uint64)
        self._first, self._second = table[:, 0], table[:, 1]
        self._offsets: _Integers = table[:, 2].view(np.int64)
        self.size = 0
        self.latest_offset = -1
        """Every record up to this offset is in the map: see `cover`."""

    def put(self, keys: Digests, offsets: _Integers, is_marker: npt.NDArray[np.bool_]) -> bool:
        """The newest records of keys are at these rising offsets.

        False, and nothing is put, when there is no room for all."""
        slots = self._slots(keys)
        new = (self._offsets[slots] == 0).nonzero()[0]
        if new.size:
            if self.size + new.size > self.max_keys:
                distinct = len(set(zip(keys.first[new].tolist(), keys.second[new].tolist(), strict=True)))
                if self.size + distinct > self.max_keys:
                    return False
            self._take_slots(keys, slots, new)
        # Where a key comes twice, its last offset stays.
        self._offsets[slots] = (offsets + 1 << 1) + is_marker
        return True

    def _take_slots(self, keys: Digests, slots: _Integers, new: _Integers) -> None:
        """Give each key of the rows ``new`` a free slot.

        Where keys meet at a slot, one takes it, and the others probe on."""
        while new.size:
            wanted = slots[new]
            first, second = keys.first[new], keys.second[new]
            self._first[wanted] = first
            self._second[wanted] = second
            marks = np.arange(1, len(wanted) + 1)
            self._offsets[wanted] = marks
            # Each slot has the last mark.
            self.size += int(np.count_nonzero(self._offsets[wanted] == marks))
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
        """The slot of each key, or the free one where it would be put.

        There is always a free one."""
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
