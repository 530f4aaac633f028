"""Whether the segments of a log fit together: which files belong to another place, and
where records are missing.

The segments of a log follow each other. In a log that never was compacted each begins where the one
before ends, and the first begins where the log did. What does not fit is one of two things:

- A *stray* does not belong where it is: its first batch has another offset than its name says (a
  copied or renamed file, a file of another partition), or its offsets are those of another segment,
  too. It is set aside, under another name.
- A *hole* is a range of offsets without records: a segment that is missing, empty, or ends early.

Compaction leaves holes. So only a segment that does not end with a whole batch shows
one in a compacted log.

The rules here are pure. `barnabas.log.missing_records` applies them to files. Kafka:
no counterpart.
"""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

from barnabas.log.segment.extent import Extent

__all__ = ["Arrangement", "Hole", "Stray", "arrange"]


class Hole(NamedTuple):
    """Offsets ``start`` to ``end`` (exclusive) of a log have no records, and had some."""

    start: int
    end: int
    reason: str
    """For people: the file, the byte, and the offsets."""
    copy_from: int
    """Where a copy of the leader's records begins that leaves nothing of what may be
    wrong: at a segment's start."""


class Stray(NamedTuple):
    """A segment's file that is not where it belongs."""

    extent: Extent
    reason: str


class Arrangement(NamedTuple):
    """The segments that make the log, in order, and what is wrong with them."""

    kept: list[Extent]
    strays: list[Stray]
    holes: list[Hole]


def arrange(extents: Sequence[Extent], start_offset: int, *, is_dense: bool) -> Arrangement:
    """Compare segments, in the order of their names, with each other and with the
    offset where the log begins.

    ``is_dense`` says that the log never was compacted.
    """
    kept: list[Extent] = []
    strays: list[Stray] = []
    for extent in extents:
        if kept and _is_last_batch_wrong(kept[-1], extent):
            kept[-1] = kept[-1].without_last()
        reason = _misplaced(extent, is_dense=is_dense) or (_overlap(kept[-1], extent) if kept else None)
        if reason is None:
            kept.append(extent)
        else:
            strays.append(Stray(extent, reason))
    return Arrangement(kept, strays, _holes(kept, start_offset, is_dense=is_dense))


def _misplaced(extent: Extent, *, is_dense: bool) -> str | None:
    """Compaction keeps a segment's name though its first batches go.

    Nothing lets it begin before its name."""
    named, found = extent.base_offset, extent.first_offset
    if found < named or (is_dense and found != named):
        return f"{extent.path} begins with offset {found} at byte 0, not with {named} as its name says"
    return None


def _is_last_batch_wrong(before: Extent, extent: Extent) -> bool:
    """Whether only the last batch of a segment reaches into the next one, which begins as it
    should: it is damaged then."""
    return before.before_last <= extent.base_offset < before.next_offset and (
        extent.size > 0 and extent.first_offset >= extent.base_offset and before.last_position > 0
    )


def _overlap(before: Extent, extent: Extent) -> str | None:
    if extent.base_offset >= before.next_offset:
        return None
    return (
        f"{extent.path} begins inside {before.path}, which has the offsets "
        f"{before.base_offset} to {before.next_offset - 1}"
    )


def _holes(kept: Sequence[Extent], start_offset: int, *, is_dense: bool) -> list[Hole]:
    holes = []
    if is_dense and kept and start_offset < kept[0].base_offset:
        end = kept[0].base_offset
        reason = (
            f"the log began at offset {start_offset}, and its first segment is {kept[0].path}: "
            f"offsets {start_offset} to {end - 1} are missing"
        )
        holes.append(Hole(start_offset, end, reason, start_offset))
    for before, after in itertools.pairwise(kept):
        start, end = before.next_offset, after.base_offset
        if start < end and (is_dense or not before.is_whole):
            reason = (
                f"{before.path} ends at byte {before.position} with offset {start - 1}, "
                f"and the next segment begins with {end}: offsets {start} to {end - 1} are missing"
            )
            holes.append(Hole(start, end, reason, before.base_offset))
    return holes
