"""The state of a group by Burrow's rules, held against one partition at a time in plain Python."""

import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.lag.judge import NOT_KNOWN, STATES, MemberPresence, SampleWindow, judge, movement
from barnabas.lag.values import LagState, worst

WINDOW_MS = 60_000
Sample = tuple[int, int, int]
"""Time, committed offset, end; `NOT_KNOWN` for what is not known."""


def state_of(
    samples: list[Sample], membership: MemberPresence = MemberPresence.PRESENT, *, owned: bool = True
) -> LagState:
    """The state of one partition after these samples."""
    return _judged(samples, membership, owned)[0]


def _judged(samples: list[Sample], membership: MemberPresence, owned: bool) -> tuple[LagState, SampleWindow]:
    window = SampleWindow(WINDOW_MS)
    for at_ms, committed, end in samples:
        window.add(at_ms, np.array([committed]), np.array([end]))
    return STATES[judge(window, np.array([owned]), membership)[0]], window


def model(samples: list[Sample], membership: MemberPresence, owned: bool, is_whole: bool) -> LagState:
    """The rules, one after the other, as the module's docstring has them."""
    known = [(committed, end) for _, committed, end in samples if committed >= 0 and end >= 0]
    _, now, last_end = samples[-1]
    if now < 0 or last_end < 0:
        return LagState.UNKNOWN
    if now >= last_end:
        return LagState.WELL
    is_whole = is_whole and samples[0][1] >= 0 and samples[0][2] >= 0
    has_moved = any(committed != now for committed, _ in known)
    was_the_end = any(now >= end for _, end in known)
    if not has_moved and not was_the_end:
        if membership is MemberPresence.LEFT:
            return LagState.STOPPED
        if is_whole and not owned and membership is not MemberPresence.UNKNOWN:
            return LagState.STOPPED
    lags = [max(0, end - committed) for committed, end in known]
    if 0 in lags:
        return LagState.WELL
    offsets = [committed for committed, _ in known]
    for before, after in itertools.pairwise(offsets):
        if after < before and now < before:
            return LagState.REWINDING
    has_shrunk = any(after < before for before, after in itertools.pairwise(lags))
    if is_whole:
        if not has_moved:
            return LagState.STALLED
        return LagState.WELL if has_shrunk else LagState.LAGGING
    return LagState.WELL if has_shrunk else LagState.UNKNOWN


offsets = st.one_of(st.just(NOT_KNOWN), st.integers(0, 6))
steps = st.lists(st.tuples(st.integers(1, 40_000), offsets, offsets), min_size=1, max_size=15)


@given(steps, st.sampled_from(MemberPresence), st.booleans())
def test_partitions_judged_together_are_as_each_judged_alone(
    drawn: list[tuple[int, int, int]], membership: MemberPresence, owned: bool
) -> None:
    """The columns of numpy say what the rules say, for whatever samples the window keeps."""
    samples, at_ms = [], 1_000_000
    for passed_ms, committed, end in drawn:
        at_ms += passed_ms
        samples.append((at_ms, committed, end))
    found, window = _judged(samples, membership, owned and membership is MemberPresence.PRESENT)
    kept = [sample for sample in samples if sample[0] in window.times_ms]
    assert len(kept) == len(window.times_ms) <= 12
    owned = owned and membership is MemberPresence.PRESENT
    assert found is model(kept, membership, owned, window.is_complete)


@given(st.lists(st.integers(-5_000, 30_000), min_size=1, max_size=200))
def test_a_window_stays_small_and_spans_its_length(passed: list[int]) -> None:
    """However often samples come, and though the clock is set back, at most twelve are kept, in
    their order, and as soon as there is a whole window it stays whole."""
    window, at_ms, was_complete = SampleWindow(WINDOW_MS), 10_000_000, False
    for step in passed:
        at_ms += step
        window.add(at_ms, np.array([0]), np.array([1]))
        assert window.times_ms == sorted(set(window.times_ms))
        assert window.times_ms[-1] == at_ms or step <= 0
        assert len(window.times_ms) <= 12
        if step > 0:
            assert not was_complete or window.is_complete or window.span_ms < WINDOW_MS
        was_complete = window.is_complete and step > 0


def moving(*places: tuple[int, int], each_ms: int = 10_000) -> list[Sample]:
    """Samples of (committed, end) at equal distances."""
    return [(1_000_000 + number * each_ms, *place) for number, place in enumerate(places)]


@pytest.mark.parametrize(
    ("samples", "membership", "owned", "expected"),
    [
        (moving((5, 5)), MemberPresence.LEFT, False, LagState.WELL),
        (moving((5, 9)), MemberPresence.LEFT, False, LagState.STOPPED),
        (moving((5, 9)), MemberPresence.NEVER, False, LagState.UNKNOWN),
        (moving((5, 9)), MemberPresence.PRESENT, True, LagState.UNKNOWN),
        (moving((5, 5), (5, 9)), MemberPresence.LEFT, False, LagState.WELL),
        (moving(*[(5, 9 + step) for step in range(8)]), MemberPresence.PRESENT, True, LagState.STALLED),
        (moving(*[(5, 9 + step) for step in range(8)]), MemberPresence.PRESENT, False, LagState.STOPPED),
        (moving(*[(5, 9 + step) for step in range(8)]), MemberPresence.NEVER, False, LagState.STOPPED),
        (moving(*[(5 + step, 9 + 2 * step) for step in range(8)]), MemberPresence.PRESENT, True, LagState.LAGGING),
        (moving(*[(5 + 2 * step, 90 + step) for step in range(8)]), MemberPresence.PRESENT, True, LagState.WELL),
        (moving((50, 90), (10, 91), (20, 92)), MemberPresence.PRESENT, True, LagState.REWINDING),
        (moving((50, 90), (10, 91), (51, 92)), MemberPresence.PRESENT, True, LagState.WELL),
    ],
)
def test_a_group_is_judged_as_burrow_does(
    samples: list[Sample], membership: MemberPresence, owned: bool, expected: LagState
) -> None:
    """Each rule by an example."""
    assert state_of(samples, membership, owned=owned) is expected


def test_a_partition_that_came_later_has_no_whole_window() -> None:
    """Its state is unknown until it has been seen for as long as a window is."""
    window = SampleWindow(WINDOW_MS)
    for number in range(8):
        if number == 5:
            window.arrange([0, -1])
        ends = np.array([9, 9] if number >= 5 else [9])
        window.add(1_000_000 + 10_000 * number, np.array([5, 5] if number >= 5 else [5]), ends)
    states = judge(window, np.array([True, True]), MemberPresence.PRESENT)
    assert [STATES[state] for state in states] == [LagState.STALLED, LagState.UNKNOWN]


def test_a_topic_that_was_made_again_is_no_rewind() -> None:
    """What was sampled before does not count for it."""
    window = SampleWindow(WINDOW_MS)
    for number, (committed, end) in enumerate([(500, 900), (3, 9)]):
        window.add(1_000_000 + 10_000 * number, np.array([committed]), np.array([end]))
    window.forget(np.array([True]))
    assert STATES[judge(window, np.array([True]), MemberPresence.PRESENT)[0]] is LagState.UNKNOWN


def test_rates_and_the_time_to_catch_up_follow_from_the_window() -> None:
    """30 records in 10 s against 10 that come: the lag of 60 is gone in 30 s."""
    _, window = _judged(moving((0, 80), (30, 90)), MemberPresence.PRESENT, True)
    moved = movement(window)
    assert (moved.consumed_per_s[0], moved.produced_per_s[0], moved.catch_up_s[0]) == (3.0, 1.0, 30.0)
    _, window = _judged(moving((0, 80), (10, 100)), MemberPresence.PRESENT, True)
    assert math.isinf(movement(window).catch_up_s[0])
    _, window = _judged(moving((0, 80)), MemberPresence.PRESENT, True)
    assert math.isnan(movement(window).catch_up_s[0])
    _, window = _judged(moving((50, 80), (0, 80)), MemberPresence.PRESENT, True)
    assert math.isnan(movement(window).consumed_per_s[0])


def test_the_worst_state_of_partitions_is_the_groups() -> None:
    """A stopped partition is worse than a lagging one, and an unknown one worse than a well one."""
    assert worst([LagState.WELL, LagState.STOPPED, LagState.LAGGING]) is LagState.STOPPED
    assert worst([LagState.UNKNOWN, LagState.WELL]) is LagState.UNKNOWN
    assert worst([]) is LagState.WELL
