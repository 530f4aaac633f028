"""A kind of output that is one module and one registration: all that needs no Spark.

On Spark: test_spark_new_output.py."""

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("confluent_kafka")

import pyarrow as pa

from barnabas.cli.main import main
from barnabas.pipelines.checkpoints.checkpoint import Checkpoint, describe_flow, sink_files
from barnabas.pipelines.checkpoints.rereading import what_repeats
from barnabas.pipelines.checks.local_places import find_place_problems
from barnabas.pipelines.dashboard.results import ResultReader, readable_sinks
from barnabas.pipelines.flows import output
from barnabas.pipelines.outputs.kind import OutputKind
from barnabas.pipelines.outputs.registry import (
    inspect_output,
    open_output,
    output_kinds,
    register_output,
    unregister_output,
)
from barnabas.pipelines.specification import spec
from barnabas.pipelines.specification.templates import flow_template
from support.lines_output import LINES, LinesSink

FLOW = """\
name = "f"
checkpoint = "state"
source = { bootstrap_servers = "localhost:9092", topics = ["t"], format = { type = "json", columns = { id = "int", n = "int" } } }
[[sinks]]
type = "lines"
path = "out.lines"
key = ["id"]
delete_when = "n < 0"
"""
TYPES = {"id": "int", "n": "int"}


@pytest.fixture(autouse=True)
def lines() -> Iterator[None]:
    """The kind is registered."""
    register_output(LINES)
    yield
    unregister_output(LINES)


def flow_in(folder: Path, text: str = FLOW) -> spec.Flow:
    return spec.parse(text, file=str(folder / "flow.toml"))


def test_a_flow_names_a_new_kind_with_its_fields(tmp_path: Path) -> None:
    """A field that it does not have, and one that is missing, are refused as those
    of other kinds are."""
    path = str(tmp_path / "out.lines")
    assert flow_in(tmp_path).sinks == (LinesSink(path, ("id",), "n < 0"),)
    for wrong, words in (
        (FLOW + 'table = "t"\n', "table"),
        (FLOW.replace('path = "out.lines"', ""), "path: is missing: the file of lines"),
    ):
        with pytest.raises(spec.SpecError, match=words):
            flow_in(tmp_path, wrong)
    assert output("lines", path="out.lines", key=["id"]) == {"type": "lines", "path": "out.lines", "key": ["id"]}


def test_a_kind_that_is_not_registered_is_refused_with_those_that_are(tmp_path: Path) -> None:
    """A name can be registered once only."""
    with pytest.raises(spec.SpecError, match="must be one of sqlite, .*function, lines"):
        flow_in(tmp_path, FLOW.replace('"lines"', '"other"'))
    with pytest.raises(ValueError, match="lines"):
        register_output(LINES)


def test_only_kinds_of_tables_can_be_registered() -> None:
    """Topics and functions are Spark's to write: another kind like them is refused
    when it is registered."""

    class Other(OutputKind[LinesSink]):
        type: ClassVar[str] = "other"

    with pytest.raises(TypeError, match="TableKind"):
        register_output(Other())  # type: ignore[arg-type]
    assert "other" not in output_kinds()


def test_two_outputs_in_one_place_are_refused_for_a_new_kind_too(tmp_path: Path) -> None:
    """So is its file in the checkpoint's folder, and one whose folder cannot be made."""
    with pytest.raises(spec.SpecError, match="the same place"):
        flow_in(tmp_path, FLOW + FLOW[FLOW.index("[[sinks]]") :])
    with pytest.raises(spec.SpecError, match="state"):
        flow_in(tmp_path, FLOW.replace("out.lines", "state/out.lines"))
    (problem,) = find_place_problems(flow_in(tmp_path, FLOW.replace("out.lines", "none/out.lines")))
    assert (problem.field, "there is no folder" in problem.message) == ("sinks[0].path", True)


def test_a_checkpoint_and_a_rewind_name_a_new_kind(tmp_path: Path) -> None:
    """As its type, its place, and what it makes of rows that come again."""
    flow = flow_in(tmp_path)
    name = f"lines table {tmp_path}/out.lines"
    assert describe_flow(flow)["sinks"] == [name]
    assert sink_files(flow) == {name: tmp_path / "out.lines"}
    assert what_repeats(flow) == [f"{name} keeps one row for each id, so rows that come again replace their like"]
    assert Checkpoint(flow).required_batches(flow.sinks[0]) is None


def test_batches_are_applied_once_inspected_and_read_back(tmp_path: Path) -> None:
    """As a run, a dry run and the dashboard do it."""
    (sink,) = flow_in(tmp_path).sinks
    assert isinstance(sink, LinesSink)
    assert inspect_output(sink, "f", "q") is None
    assert readable_sinks([sink]) == [(0, sink)]
    rows = pa.table({"id": [1, 2], "n": [5, 6]})
    before = ResultReader(sink).mark()
    table = open_output(sink, TYPES, rows.schema, rows_change=True)
    assert [table.apply(rows, "f", "q", 0), table.apply(rows, "f", "q", 0)] == [True, False]
    table.close()
    state = inspect_output(sink, "f", "q")
    assert state is not None
    assert (state.columns, state.last_epoch) == (("id", "n"), 0)
    assert ResultReader(sink).mark() != before
    assert ResultReader(sink).read().to_pylist() == rows.to_pylist()


def test_a_new_flow_is_written_for_a_new_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its template is a flow, and `barnabas pipeline new` and `check` take it."""
    text = flow_template("f", "f.toml", "f-test.toml", "json", "lines", "localhost:9092", "t")
    assert flow_in(tmp_path, text).sinks[0].type == "lines"
    file = str(tmp_path / "new.toml")
    assert main(["pipeline", "new", file, "--to", "lines", "--topic", "t", "--bootstrap-server", "localhost:9092"]) == 0
    capsys.readouterr()
    assert spec.load(file).sinks[0].type == "lines"
