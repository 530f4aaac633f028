"""The keys of a flow's rows, compared from run to run."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

pa = pytest.importorskip("pyarrow")
duckdb = pytest.importorskip("duckdb")
deltalake = pytest.importorskip("deltalake")

from barnabas.pipelines.checkpoints.checkpoint import Checkpoint  # noqa: E402
from barnabas.pipelines.errors import PipelineError  # noqa: E402
from barnabas.pipelines.flows import declare, fields, topic  # noqa: E402
from barnabas.pipelines.running.key_notes import settle_keys  # noqa: E402
from barnabas.pipelines.specification.spec import Flow  # noqa: E402

TYPES = {"k": "string", "d": "double", "v": "int"}


def flow_in(folder: Path, key: list[str], *sinks: dict[str, Any], record_columns: tuple[str, ...] = ()) -> Flow:
    return declare(
        "f",
        checkpoint=str(folder / "state"),
        source=topic(
            "t",
            bootstrap_servers="localhost:9092",
            record_columns=list(record_columns),
            format=fields("json", k="string", d="double", v="int"),
        ),
        sinks=[{**each, "key": key} for each in sinks],
    )


@pytest.fixture
def begun(tmp_path: Path) -> Path:
    """A folder whose checkpoint has planned a micro-batch."""
    (tmp_path / "state" / "main" / "offsets").mkdir(parents=True)
    (tmp_path / "state" / "main" / "offsets" / "0").touch()
    return tmp_path


def said(flow: Flow, types: dict[str, str] = TYPES) -> list[str]:
    found: list[str] = []
    settle_keys(flow, Checkpoint(flow), types, found.append)
    return found


def test_another_key_or_type_of_a_sink_ends_the_start(begun: Path) -> None:
    """Delta, topics and indexes would take rows of both; wider whole numbers are the same key."""
    sinks = [{"type": "delta", "path": str(begun / "lake")}, {"type": "topic", "topic": "out"}]
    assert said(flow_in(begun, ["v"], sinks[1])) == []
    assert said(flow_in(begun, ["v"], sinks[1]), {**TYPES, "v": "bigint"}) == []
    assert said(flow_in(begun, ["k"], sinks[0])) == [], "another sink"
    with pytest.raises(
        PipelineError,
        match=r"the key of delta table .*lake was k \(string\), and is k \(string\), v \(bigint\): .* rewind",
    ):
        said(flow_in(begun, ["k", "v"], *sinks))
    with pytest.raises(PipelineError, match=r"was k \(string\), and is k \(decimal\(9,2\)\)"):
        said(flow_in(begun, ["k"], *sinks), {**TYPES, "k": "decimal(9,2)"})
    (begun / "state" / "main" / "offsets" / "0").unlink()
    assert said(flow_in(begun, ["k", "v"], *sinks)) == [], "rewound"
    (begun / "state" / "keys.json").write_text("{")
    with pytest.raises(PipelineError, match=r"keys.json is damaged"):
        said(flow_in(begun, ["k"], *sinks))


def test_rows_of_the_earlier_rule_are_named_once(begun: Path) -> None:
    """U+FFFD, NaN as NULL, -0.0, and a null before other columns of a key."""
    with closing(sqlite3.connect(begun / "out.db")) as connection:
        connection.execute("CREATE TABLE t (k TEXT, d REAL, v INTEGER)")
        connection.executemany("INSERT INTO t VALUES (?, ?, 1)", [("a\ufffd", None), ("\ufffd", 1.0), ("b", 0.0)])
        connection.commit()
    with duckdb.connect(str(begun / "out.duckdb")) as connection:
        connection.execute("CREATE TABLE t (k VARCHAR, d DOUBLE, v INTEGER)")
        connection.execute("INSERT INTO t VALUES ('a\ufffd', 'NaN', 1), ('b', '-0.0', 1), ('c', '0.0', 1)")
    rows = pa.table({"k": ["a\ufffd", "b", None], "d": [1.0, -0.0, 0.0], "v": [1, 1, 1]})
    deltalake.write_deltalake(str(begun / "lake"), rows)
    sinks: list[dict[str, Any]] = [
        {"type": "sqlite", "path": str(begun / "out.db"), "table": "t"},
        {"type": "duckdb", "path": str(begun / "out.duckdb"), "table": "t"},
        {"type": "delta", "path": str(begun / "lake")},
    ]
    flow = flow_in(begun, ["k", "d"], *sinks, record_columns=("key",))
    found = said(flow)
    assert [each.split(". Keys")[0] for each in found[:-1]] == [
        "warning: sqlite table t has 2 rows whose k has U+FFFD, as which bytes that are not UTF-8 were kept: a row may be of several keys",
        "warning: sqlite table t has 1 row whose d is NULL, as which NaN was kept; it is a key of its own now, the text NaN",
        "warning: duckdb table t has 1 row whose k has U+FFFD, as which bytes that are not UTF-8 were kept: a row may be of several keys",
        "warning: duckdb table t has 1 row whose d is -0.0, which is 0.0 now",
        f"warning: delta table {begun}/lake has 1 row whose k has U+FFFD, as which bytes that are not UTF-8 were kept: a row may be of several keys",
        f"warning: delta table {begun}/lake has 1 row whose d is -0.0, which is 0.0 now",
        f"warning: delta table {begun}/lake has 1 row whose k is null in front of other columns of the key: such a row may have replaced others",
    ]
    assert "source_key and source_headers show bytes that are not UTF-8 by their digits" in found[-1]
    assert all("--to earliest --yes" in each for each in found)
    assert said(flow) == []
    assert json.loads((begun / "state" / "keys.json").read_text())["rule"] == 2


def test_a_new_checkpoint_and_a_table_that_cannot_be_searched_end_nothing(begun: Path, tmp_path: Path) -> None:
    """The one has no rows of before; of the other the reason is said."""
    sink = {"type": "sqlite", "path": str(tmp_path / "none" / "out.db"), "table": "t"}
    (found,) = said(flow_in(begun, ["k"], sink))
    assert found.startswith("warning: sqlite table t cannot be searched for keys of an earlier version: unable to open")
    (begun / "state" / "keys.json").unlink()
    (begun / "state" / "main" / "offsets" / "0").unlink()
    assert said(flow_in(begun, ["k"], sink)) == []
