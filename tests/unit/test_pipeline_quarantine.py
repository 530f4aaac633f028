"""What a flow that quarantines may read, without Spark."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.errors import ConfigError
from barnabas.base.ids import TopicPartition
from barnabas.pipelines.checkpoints.checkpoint import Checkpoint
from barnabas.pipelines.cluster.offsets import Range
from barnabas.pipelines.connector.admission import Admission, admission_file, subtract_ranges
from barnabas.pipelines.specification.spec import Flow, SpecError, parse

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)
FLOW = """\
name = "f"
checkpoint = "state"
[source]
bootstrap_servers = "localhost:9092"
topics = ["t"]
max_bad = "1%"
bad_rows_topic = "t.bad"
format = { type = "json", columns = { id = "bigint" } }
[[sinks]]
type = "sqlite"
path = "out.db"
table = "t"
"""
QUARANTINE = FLOW.replace("max_bad", 'on_max_bad = "quarantine"\nmax_bad')


def ranges_of(partitions: st.SearchStrategy[int]) -> st.SearchStrategy[list[Range]]:
    one = st.tuples(partitions, st.integers(0, 30), st.integers(0, 10))
    return st.lists(one.map(lambda each: Range("t", each[0], each[1], each[1] + each[2])), max_size=6)


@given(ranges_of(st.integers(0, 1)), ranges_of(st.integers(0, 2)))
def test_what_is_left_of_ranges_is_every_offset_that_is_not_refused(wanted: list[Range], refused: list[Range]) -> None:
    """In the order of the ranges, none of them empty."""

    def offsets(ranges: list[Range]) -> list[tuple[int, int]]:
        return [(each.partition, offset) for each in ranges for offset in range(each.start, each.end)]

    left = subtract_ranges(wanted, refused)
    holes = set(offsets(refused))
    assert offsets(left) == [each for each in offsets(wanted) if each not in holes]
    assert all(each.size for each in left)


def test_nothing_is_admitted_before_it_is_decided(tmp_path: Path) -> None:
    """A partition that no decision names stays where it is, and what was read stays read."""
    admission = Admission.load(admission_file(tmp_path, "orders"))
    assert admission.limit({P0: 3, P1: 4}, {P0: 9, P1: 9}) == {P0: 3, P1: 4}
    admission = admission.decided(0, {P0: 7}, [], {})
    assert admission.limit({P0: 3, P1: 4}, {P0: 9, P1: 9}) == {P0: 7, P1: 4}
    assert admission.limit({P0: 8}, {P0: 9}) == {P0: 8}
    assert admission.limit({P0: 3}, {P0: 5}) == {P0: 5}


def test_decisions_survive_a_restart_until_the_flow_is_past_them(tmp_path: Path) -> None:
    """A refused range stays as long as a micro-batch that holds some of it may run again."""
    path = admission_file(tmp_path, "orders")
    first, second = Range("t", 0, 2, 5), Range("t", 1, 0, 4)
    Admission().decided(0, {P0: 5}, [first], {}).save(path)
    assert Admission.load(path) == Admission(0, {P0: 5}, (first,))
    kept = Admission.load(path).decided(1, {P1: 4}, [second], {P0: 4})
    assert kept == Admission(1, {P0: 5, P1: 4}, (first, second))
    assert kept.decided(2, {}, [], {P0: 5}).refused == (second,)


@pytest.mark.parametrize(
    "text", ["", "{}", '{"epoch": 1, "end": 5, "refused": []}', '{"epoch": 1, "end": {}, "refused": [[]]}']
)
def test_a_damaged_file_of_decisions_is_named(tmp_path: Path, text: str) -> None:
    """Rather than read as one without decisions."""
    path = admission_file(tmp_path, "orders")
    path.write_text(text)
    with pytest.raises(ConfigError, match=r"admitted-orders\.json is damaged"):
        Admission.load(path)


def test_quarantine_without_a_bad_rows_topic_is_refused() -> None:
    """Whole micro-batches go to the topic of dead letters, so there must be one."""
    with pytest.raises(SpecError, match=r'source\.bad_rows_topic: is missing: on_max_bad = "quarantine" puts whole'):
        parse(QUARANTINE.replace('bad_rows_topic = "t.bad"\n', ""))


@pytest.mark.parametrize(("before", "after"), [(FLOW, QUARANTINE), (QUARANTINE, FLOW)])
def test_a_checkpoint_does_not_fit_a_flow_that_quarantines_otherwise(tmp_path: Path, before: str, after: str) -> None:
    """What was read up to now was judged, or was not."""

    def flow(text: str) -> Flow:
        return parse(text, file=str(tmp_path / "flow.toml"))

    offsets = tmp_path / "state" / "main" / "offsets"
    offsets.mkdir(parents=True)
    (offsets / "0").write_text('v1\n{}\n{"t":{"0":5}}')
    Checkpoint(flow(before)).note_flow()
    assert Checkpoint(flow(before)).changes() == []
    assert [(each.field, each.fits) for each in Checkpoint(flow(after)).changes()] == [("source.on_max_bad", False)]
