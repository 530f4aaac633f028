"""Whether segments fit together: the pure rules, against healthy logs and single damages."""

from hypothesis import given
from hypothesis import strategies as st

from barnabas.log.arrangement import arrange
from barnabas.log.holes import OffsetSpan, covers
from barnabas.log.missing_records import lost_by
from barnabas.log.segment.extent import Extent


def whole(base_offset: int, next_offset: int, first_offset: int | None = None) -> Extent:
    size = 100 * (next_offset - base_offset)
    return Extent(
        base_offset, base_offset if first_offset is None else first_offset, next_offset, size, size, f"/d/{base_offset}"
    )


LENGTHS = st.lists(st.integers(1, 50), min_size=3, max_size=12)


def dense_log(start: int, lengths: list[int]) -> list[Extent]:
    extents = []
    for length in lengths:
        extents.append(whole(start, start + length))
        start += length
    return [*extents, Extent(start, start, start, 0, 0, f"/d/{start}")]


@given(st.integers(0, 1 << 40), LENGTHS, st.booleans())
def test_segments_that_follow_each_other_are_the_log(start: int, lengths: list[int], is_dense: bool) -> None:
    """No stray and no hole, with an empty active segment at the end."""
    extents = dense_log(start, lengths)
    found = arrange(extents, start, is_dense=is_dense)
    assert (found.kept, found.strays, found.holes) == (extents, [], [])


@given(
    st.integers(0, 1 << 40),
    st.lists(st.tuples(st.integers(0, 9), st.integers(1, 50), st.integers(0, 9)), min_size=1, max_size=12),
)
def test_holes_of_compaction_are_no_alarm_in_a_log_that_was_compacted(
    start: int, segments: list[tuple[int, int, int]]
) -> None:
    """A cleaned segment keeps its name, though its first and its last batches may be gone."""
    extents, base = [], start
    for before, length, after in segments:
        first = base + before
        extents.append(whole(base, first + length, first))
        base = first + length + after
    found = arrange(extents, start, is_dense=False)
    assert (found.kept, found.strays, found.holes) == (extents, [], [])


@given(st.integers(0, 1 << 40), LENGTHS, st.data())
def test_a_missing_segment_is_one_hole_with_its_offsets(start: int, lengths: list[int], data: st.DataObject) -> None:
    """The first one, too, where it is known where the log began."""
    extents = dense_log(start, lengths)
    at = data.draw(st.integers(0, len(lengths) - 1))
    gone = extents.pop(at)
    (hole,) = arrange(extents, start, is_dense=True).holes
    assert (hole.start, hole.end) == (gone.base_offset, gone.next_offset)
    assert hole.copy_from <= hole.start
    assert f"offsets {gone.base_offset} to {gone.next_offset - 1} are missing" in hole.reason


@given(st.integers(0, 1 << 40), LENGTHS, st.data())
def test_a_segment_that_ends_early_is_a_hole_and_is_copied_from_its_start(
    start: int, lengths: list[int], data: st.DataObject
) -> None:
    """What is left of it may be wrong as well."""
    extents = dense_log(start, lengths)
    at = data.draw(st.integers(0, len(lengths) - 1))
    cut = extents[at]
    end = data.draw(st.integers(cut.base_offset, cut.next_offset - 1))
    extents[at] = whole(cut.base_offset, end)
    (hole,) = arrange(extents, start, is_dense=True).holes
    assert (hole.start, hole.end, hole.copy_from) == (end, cut.next_offset, cut.base_offset)


@given(st.integers(0, 1 << 40), LENGTHS, st.data())
def test_a_copy_of_a_segment_under_another_name_is_a_stray(start: int, lengths: list[int], data: st.DataObject) -> None:
    """Whichever segment is copied, and wherever its new name lies, the log is the
    one without it."""
    extents = dense_log(start, lengths)
    source = data.draw(st.sampled_from(extents[:-1]))
    names = {extent.base_offset for extent in extents}
    name = data.draw(st.integers(start, extents[-1].base_offset).filter(lambda each: each not in names))
    copy = source._replace(base_offset=name, path=f"/d/{name}")
    found = arrange(sorted([*extents, copy]), start, is_dense=True)
    assert found.kept == extents
    assert [stray.extent for stray in found.strays] == [copy]
    assert f"/d/{name}" in found.strays[0].reason


def test_a_closed_segment_without_a_whole_batch_at_its_end_is_a_hole_in_any_log() -> None:
    """Compaction leaves holes, but no half batches."""
    cut = Extent(0, 0, 5, 500, 520, "/d/0")
    (hole,) = arrange([cut, whole(10, 20)], 0, is_dense=False).holes
    assert (hole.start, hole.end) == (5, 10)


@given(st.sets(st.integers(0, 30)), st.integers(0, 30), st.integers(0, 30))
def test_accepted_ranges_cover_what_every_offset_of_them_covers(accepted: set[int], start: int, length: int) -> None:
    """However the ranges are cut."""
    ranges = [OffsetSpan(offset, offset + 1) for offset in accepted]
    assert covers(ranges, start, start + length) == all(start + n in accepted for n in range(length))


def test_a_hole_that_was_stepped_over_is_no_loss() -> None:
    """The others still are."""
    extents = [whole(0, 5), whole(10, 20), whole(25, 30)]
    holes = arrange(extents, 0, is_dense=True).holes
    lost = lost_by(holes, [OffsetSpan(5, 10)], 30)
    assert lost is not None
    assert (lost.end_offset, lost.expected_offset, lost.copy_from) == (20, 30, 10)
    assert lost_by(holes, [OffsetSpan(5, 10), OffsetSpan(20, 25)], 30) is None
