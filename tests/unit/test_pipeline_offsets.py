"""The arithmetic of offsets and micro-batches, without Spark."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.errors import ConfigError
from barnabas.base.ids import TopicPartition
from barnabas.pipelines.cluster.offsets import (
    Range,
    from_json,
    is_due,
    limit_rows,
    plan_ranges,
    require_known,
    split_ranges,
    to_json,
)

NAMES = st.builds(TopicPartition, st.sampled_from(["a", "b", "topic.with-dots"]), st.integers(0, 20))
STARTS = st.dictionaries(NAMES, st.integers(0, 2**62), min_size=1)


@st.composite
def spans(draw: st.DrawFn) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int]]:
    start = draw(STARTS)
    return start, {name: offset + draw(st.integers(0, 10_000)) for name, offset in start.items()}


@given(STARTS)
def test_offsets_come_back_from_their_json(offsets: dict[TopicPartition, int]) -> None:
    """The text form loses nothing."""
    assert from_json(to_json(offsets)) == offsets


def test_json_has_the_form_of_sparks_connector() -> None:
    """Topics and partitions in order, no blanks: the form in which Spark's own
    source writes checkpoints."""
    offsets = {TopicPartition("b", 0): 3, TopicPartition("a", 10): 2, TopicPartition("a", 2): 1}
    assert to_json(offsets) == '{"a":{"2":1,"10":2},"b":{"0":3}}'


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "no JSON"),
        ("[1]", "look like"),
        ('{"t": 5}', "no object of partitions"),
        ('{"t": {"x": 5}}', "no partition"),
        ('{"t": {"-1": 5}}', "no partition"),
        ('{"t": {"0": -3}}', "no offset"),
        ('{"t": {"0": true}}', "no offset"),
        ('{"t": {"0": 1.5}}', "no offset"),
        ('{"t": {"0": "5"}}', "no offset"),
        ('{"t": {"0": 9223372036854775808}}', "no offset"),
        ('{"t": {"00": 5}}', "no partition"),
        ('{"t": {"2147483648": 5}}', "no partition"),
        ('{"t": {"\u0663": 5}}', "no partition"),
        ('{"t": {"0": 5, "0": 6}}', "offsets name '0' twice"),
        ('{"t": {"0": 5}, "t": {"1": 6}}', "offsets name 't' twice"),
    ],
)
def test_wrong_offsets_are_refused_with_what_is_wrong(text: str, problem: str) -> None:
    """Each refusal says what was expected."""
    with pytest.raises(ConfigError, match=problem):
        from_json(text)


@given(spans(), st.integers(1, 5_000))
def test_limited_batches_reach_the_end_in_steps_of_the_limit(
    span: tuple[dict[TopicPartition, int], dict[TopicPartition, int]], max_rows: int
) -> None:
    """Whatever the limit, a batch moves forward, never past the end, and exceeds the
    limit by rounding only."""
    start, end = span
    total = sum(end.values()) - sum(start.values())
    here, batches = dict(start), 0
    while here != end and batches < 50:
        step = limit_rows(here, end, max_rows)
        moved = {name: step[name] - here[name] for name in step}
        assert all(count >= 0 for count in moved.values())
        assert all(step[name] <= end[name] for name in step)
        assert 0 < sum(moved.values()) <= max_rows + len(start)
        here, batches = step, batches + 1
    assert here == end or total > max_rows


def test_a_limit_is_shared_in_proportion_to_what_waits() -> None:
    """A partition with three quarters of the backlog gets three quarters of the batch."""
    start = {TopicPartition("t", 0): 0, TopicPartition("t", 1): 100}
    end = {TopicPartition("t", 0): 3000, TopicPartition("t", 1): 1100}
    assert limit_rows(start, end, 400) == {TopicPartition("t", 0): 300, TopicPartition("t", 1): 200}


@given(spans(), st.integers(0, 40))
def test_split_ranges_cover_exactly_what_was_planned(
    span: tuple[dict[TopicPartition, int], dict[TopicPartition, int]], min_partitions: int
) -> None:
    """Cutting ranges neither loses nor repeats an offset, and gives enough pieces where
    there are enough records."""
    planned = plan_ranges(*span)
    pieces = split_ranges(planned, min_partitions)
    glued: list[Range] = []
    for piece in pieces:
        assert piece.size > 0
        if glued and glued[-1][:2] == piece[:2] and glued[-1].end == piece.start:
            glued[-1] = glued[-1]._replace(end=piece.end)
        else:
            glued.append(piece)
    assert glued == planned
    total = sum(each.size for each in planned)
    assert len(pieces) >= min(min_partitions, total) or not planned


def test_a_batch_is_due_when_enough_records_wait_or_some_for_long_enough() -> None:
    """Without a record it never is."""
    start = {TopicPartition("t", 0): 5, TopicPartition("t", 1): 0}
    waiting = {TopicPartition("t", 0): 9, TopicPartition("t", 1): 6}
    assert is_due(start, waiting, min_rows=10, waited_ms=0, max_delay_ms=1000)
    assert not is_due(start, waiting, min_rows=11, waited_ms=999, max_delay_ms=1000)
    assert is_due(start, waiting, min_rows=11, waited_ms=1000, max_delay_ms=1000)
    assert not is_due(start, start, min_rows=1, waited_ms=5000, max_delay_ms=1000)


def test_offsets_for_partitions_that_are_not_read_are_refused() -> None:
    """A misspelled topic would be passed over, and the flow would begin elsewhere."""
    known = [TopicPartition("orders", 0), TopicPartition("orders", 1)]
    require_known(known[1:], known)
    with pytest.raises(ConfigError, match="does not read order-0; did you mean orders"):
        require_known([TopicPartition("order", 0)], known)
    with pytest.raises(ConfigError, match="does not read orders-7: it reads orders-0, orders-1"):
        require_known([TopicPartition("orders", 7)], known)
