"""From offsets to timestamps: what is estimated is held against the records themselves."""

from itertools import accumulate, pairwise

from hypothesis import given
from hypothesis import strategies as st

from barnabas.client.admin.next_records import next_record_of
from barnabas.lag.offset_times import OffsetTimes, TimePoint
from barnabas.lag.values import TimeSource
from barnabas.wire.kafka.records.records import Record, build_batch

BASE_MS = 1_700_000_000_000
gaps = st.lists(st.integers(0, 500_000), min_size=1, max_size=60)


class Partition:
    """Records with rising offsets, and the answers of ListOffsets about them."""

    def __init__(self, timestamps: list[int], begin: int = 0) -> None:
        self.timestamps = timestamps
        self.greatest = list(accumulate(timestamps, max))
        self.begin = begin

    def newest(self) -> tuple[int, int]:
        """The record with the greatest timestamp."""
        place = self.timestamps.index(max(self.timestamps))
        return self.begin + place, self.timestamps[place]

    def first_from(self, at_ms: int) -> tuple[int, int]:
        """The first record of this time or later."""
        for place, timestamp_ms in enumerate(self.timestamps):
            if timestamp_ms >= at_ms:
                return self.begin + place, timestamp_ms
        return -1, -1


def learned(partition: Partition, offsets: list[int], rounds: int = 8, most: int = 2) -> OffsetTimes:
    """What is known after these rounds of questions."""
    times = OffsetTimes()
    times.add_newest(*partition.newest())
    for _ in range(rounds):
        for asked_ms in times.questions(offsets, partition.begin, most):
            times.add_found(asked_ms, *partition.first_from(asked_ms))
    return times


@given(gaps, st.data(), st.integers(0, 8), st.integers(0, 1000))
def test_an_estimate_is_wrong_by_no_more_than_it_says(
    steps: list[int], data: st.DataObject, rounds: int, begin: int
) -> None:
    """With timestamps that rise, whatever was asked."""
    partition = Partition([BASE_MS + passed for passed in accumulate(steps)], begin)
    offset = data.draw(st.integers(begin, begin + len(steps) - 1))
    estimate = learned(partition, [offset], rounds).estimate(offset, begin)
    if estimate.timestamp_ms is None:
        assert rounds == 0 or offset == begin
        return
    wrong_ms = abs(estimate.timestamp_ms - partition.timestamps[offset - begin])
    assert estimate.error_ms is not None
    assert wrong_ms <= estimate.error_ms
    assert estimate.source is not TimeSource.RECORD or wrong_ms == 0


@given(gaps, st.data())
def test_questions_bring_the_error_below_a_fiftieth_of_the_lag(steps: list[int], data: st.DataObject) -> None:
    """Or below half a second; more rounds ask nothing then."""
    partition = Partition([BASE_MS + passed for passed in accumulate(steps)])
    offset = data.draw(st.integers(0, len(steps) - 1))
    times = learned(partition, [offset], rounds=60)
    estimate = times.estimate(offset, 0)
    assert estimate.timestamp_ms is not None
    assert estimate.error_ms is not None
    lag_ms = partition.newest()[1] - estimate.timestamp_ms
    assert estimate.error_ms <= max(500, lag_ms // 50)
    assert times.questions([offset], 0, 2) == []


@given(st.lists(st.integers(0, 10_000_000), min_size=1, max_size=40), st.data())
def test_timestamps_out_of_order_are_estimated_by_the_greatest_so_far(
    timestamps: list[int], data: st.DataObject
) -> None:
    """What CreateTime of several producers gives: an estimate never goes back with the offset."""
    partition = Partition([BASE_MS + each for each in timestamps])
    offset = data.draw(st.integers(0, len(timestamps) - 1))
    times = learned(partition, [offset], rounds=60)
    found = [times.estimate(each, 0).timestamp_ms for each in range(len(timestamps))]
    known = [each for each in found if each is not None]
    assert known == sorted(known)
    estimate = times.estimate(offset, 0)
    if estimate.timestamp_ms is not None and estimate.error_ms is not None:
        assert abs(estimate.timestamp_ms - partition.greatest[offset]) <= estimate.error_ms


def test_a_record_that_retention_removed_is_interpolated_from_samples_of_the_end() -> None:
    """Each sample left a point; between two of them the time is interpolated."""
    times = OffsetTimes()
    for offset, at_ms in ((99, BASE_MS), (199, BASE_MS + 10_000), (299, BASE_MS + 20_000)):
        times.add_newest(offset, at_ms)
    estimate = times.estimate(149, begin=250)
    assert (estimate.timestamp_ms, estimate.source) == (BASE_MS + 5_000, TimeSource.INTERPOLATED)
    before = times.estimate(50, begin=250)
    assert (before.timestamp_ms, before.error_ms, before.source) == (BASE_MS, None, TimeSource.AT_LEAST)


def test_a_record_without_a_timestamp_is_not_of_1969() -> None:
    """Its time is that of the records around it, or not known before the first one with a time."""
    partition = Partition([-1, BASE_MS, -1, BASE_MS + 2000])
    times = learned(partition, [0, 2])
    for offset in (0, 2):
        times.add_record(offset, -1)
    assert times.estimate(0, 0).source is TimeSource.UNKNOWN
    assert (times.estimate(2, 0).timestamp_ms or 0) >= BASE_MS
    assert times.has_record(2)


def test_a_records_own_timestamp_wins() -> None:
    """What was fetched is exact."""
    times = OffsetTimes()
    times.add_newest(100, BASE_MS)
    times.add_found(0, 0, BASE_MS - 100_000)
    times.add_record(50, BASE_MS - 77)
    assert times.estimate(50, 0) == (BASE_MS - 77, 0, TimeSource.RECORD)


@given(st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 10_000)), max_size=300))
def test_points_are_bounded_and_rise_whatever_brokers_answer(answers: list[tuple[int, int]]) -> None:
    """Truncated and recreated logs contradict what was known: the later answer holds."""
    times = OffsetTimes()
    for offset, at_ms in answers:
        times.add_point(TimePoint(offset, at_ms, at_ms - 1))
        points = times.points
        assert len(points) <= 96
        assert all(a.offset < b.offset and a.timestamp_ms <= b.timestamp_ms for a, b in pairwise(points))
        assert any(point.offset == offset and point.timestamp_ms == at_ms for point in points) or len(points) == 96


def test_the_next_record_passes_over_markers_and_removed_records() -> None:
    """The first data record at or after the offset, with its own timestamp; damaged bytes have
    none."""
    control = build_batch([Record(10, BASE_MS, b"\0\0\0\1", b"\0\0\0\0\0\0")], base_offset=10, is_transactional=True)
    control = bytes(control)
    marker = bytearray(control)
    marker[22] |= 0x20  # the attribute of a control batch; the CRC is not looked at
    data = build_batch([Record(11, BASE_MS + 5, None, b"a"), Record(15, BASE_MS + 9, None, b"b")], base_offset=11)
    whole = bytes(marker) + bytes(data)
    assert next_record_of(whole, 10) == (11, BASE_MS + 5, 11)
    assert next_record_of(whole, 13) == (15, BASE_MS + 9, 13)
    assert next_record_of(bytes(marker), 10) == (None, None, 11)
    assert next_record_of(whole[:-3], 12) == (None, None, 12)
    assert next_record_of(b"\xff" * 200, 12) == (None, None, 12)
