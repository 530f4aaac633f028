"""What changes while a flow runs or between its runs: tables, positions, rows that
an expression cannot bear."""

import contextlib
import json
import sqlite3
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
duckdb = pytest.importorskip("duckdb")
deltalake = pytest.importorskip("deltalake")
pq = pytest.importorskip("pyarrow.parquet")

from barnabas.base.errors import BarnabasError  # noqa: E402
from barnabas.cli.main import main  # noqa: E402
from barnabas.pipelines.checkpoints.checkpoint import Checkpoint  # noqa: E402
from barnabas.pipelines.checks.trial import try_flow  # noqa: E402
from barnabas.pipelines.flows import declare, fields, foreach_batch, topic  # noqa: E402
from barnabas.pipelines.running.run import run_on  # noqa: E402
from barnabas.pipelines.specification import spec  # noqa: E402

SOURCE = """\
name = "{topic}"
checkpoint = "state"
[source]
bootstrap_servers = "{bootstrap}"
topics = ["{topic}"]
group = "{topic}"
format = {{ type = "json", columns = {{ id = "bigint", price = "double" }} }}
"""


def ids_in(path: Path) -> list[int]:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return [row[0] for row in connection.execute("SELECT id FROM t ORDER BY id")]


def test_a_table_that_is_replaced_while_the_flow_runs_is_seen_by_the_next_micro_batch(
    spark: Any, cluster: Any, tmp_path: Path
) -> None:
    """Within one run, which reads it again because the file was replaced."""
    name, table = cluster.topic(1), tmp_path / "names.csv"
    table.write_text("id,name\n1,one\n2,two\n")
    seen: list[tuple[int, str]] = []

    def take(rows: Any, number: int) -> None:
        seen.extend((row["id"], row["name"]) for row in rows.collect())
        other = tmp_path / "other.csv"
        other.write_text(f"id,name\n1,one {number}\n2,two {number}\n")
        other.replace(table)

    flow = declare(
        name,
        checkpoint=str(tmp_path / "state"),
        source=topic(
            name, bootstrap_servers=cluster.bootstrap, max_offsets_per_trigger=1, format=fields("json", id="int")
        ),
        tables={"names": {"type": "csv", "path": str(table), "columns": {"id": "int", "name": "string"}}},
        steps=[{"name": "named", "sql": "select s.id, n.name from source s join names n on n.id = s.id"}],
        sinks=[foreach_batch(take, key=["id"])],
    )
    cluster.produce(name, [(None, b'{"id": %d}' % each) for each in (1, 2, 1)])
    assert run_on(spark, flow)["batches"] == 3
    assert seen == [(1, "one"), (2, "two 0"), (1, "one 1")]


def test_a_row_that_an_expression_cannot_bear_is_bad_where_it_is_a_record_and_ends_the_flow_elsewhere(
    spark: Any, cluster: Any, tmp_path: Path
) -> None:
    """With the field and the records; a JSON object with none of the columns is bad, and dry-run
    names the column that was meant."""
    name = cluster.topic(1)
    text = SOURCE.format(topic=name, bootstrap=cluster.bootstrap).replace("price = ", "prise = ") + (
        '[[steps]]\nname = "shares"\nderive = { share = "prise / id" }\n'
        '[[sinks]]\ntype = "sqlite"\npath = "out.db"\ntable = "t"\n'
    )
    flow = spec.parse(text, file=str(tmp_path / "flow.toml"))
    values = [{"id": 1, "price": 5}, {"ID": 2}]
    cluster.produce(name, [(None, json.dumps(each).encode()) for each in values])
    found = {each.what: each.message for each in try_flow(spark, flow)}
    assert (
        "1 of the newest 2 are bad; for example: the value has none of the columns, but ID"
        in found["records of source"]
    )
    assert (
        "column prise is null in all of the newest 2; no value has it; did you mean price?"
        in found["records of source"]
    )
    flow = spec.parse(text.replace("prise", "price"), file=str(tmp_path / "flow.toml"))
    summary = run_on(spark, flow)
    assert (summary["rows"], summary["bad"]) == (2, {"MALFORMED": 1, "MALFORMED, no known column": 1})
    cluster.produce(name, [(None, b'{"id": 3, "price": 1}'), (None, b'{"id": 0, "price": 1}')])
    summary = run_on(spark, flow)
    assert (summary["rows"], summary["bad"]) == (2, {"EXPRESSION": 1})
    assert summary["bad_examples"] == {
        "EXPRESSION": f"steps[0].derive.share cannot be computed: price / id ({name}-0-3)"
    }
    assert ids_in(tmp_path / "out.db") == [1, 3]
    of_query = text.replace("prise", "price").replace(
        'derive = { share = "price / id" }', 'sql = "select *, price / id as share from source"'
    )
    flow = spec.parse(of_query, file=str(tmp_path / "flow.toml"))
    cluster.produce(name, [(None, b'{"id": 4, "price": 1}'), (None, b'{"id": 0, "price": 1}')])
    with pytest.raises(BarnabasError) as raised:
        run_on(spark, flow)
    assert str(raised.value).startswith(f"{tmp_path}/flow.toml:10: steps[0].sql: ")
    assert f"({name}-0 offsets 4 to 5)" in str(raised.value)
    assert Checkpoint(flow).last_run()["reason"] == str(raised.value)
    run_on(spark, spec.parse(of_query.replace("price / id", "try_divide(price, id)"), file=str(tmp_path / "flow.toml")))
    assert ids_in(tmp_path / "out.db") == [0, 1, 3, 4]


def test_a_flow_that_its_bad_rows_ended_goes_on_when_they_are_accepted(cluster: Any, tmp_path: Path) -> None:
    """By the command: the run that ends, the one that is refused before Spark starts, and one
    that only warns of others."""
    name, path = cluster.topic(1), tmp_path / "flow.toml"
    path.write_text(
        SOURCE.format(topic=name, bootstrap=cluster.bootstrap).replace("group =", "max_bad = 1\ngroup =")
        + '[[sinks]]\ntype = "sqlite"\npath = "out.db"\ntable = "t"\n'
    )
    cluster.produce(name, [(None, each) for each in (b'{"id": 1}', b"{", b'{"id": 2}', b"no JSON")])

    def run(*options: str) -> "subprocess.CompletedProcess[str]":
        command = [sys.executable, "-m", "barnabas", "pipeline", "run", str(path), "--once", *options]
        return subprocess.run(command, capture_output=True, text=True, timeout=400, check=False)

    ended = run()
    assert ended.returncode == 1
    assert "2 of 4 rows of source are bad, more than max_bad = 1 rows (MALFORMED: 2, " in ended.stderr
    assert ids_in(tmp_path / "out.db") == [1, 2]
    refused = run()
    assert (refused.returncode, "starting Spark" in refused.stderr) == (1, False)
    assert f"pipeline run {path} --accept-bad-rows" in refused.stderr
    cluster.produce(name, [(None, each) for each in (b"{", b'{"id": 3}', b"no JSON")])
    done = run("--accept-bad-rows", "--set", "source.on_max_bad=warn")
    assert done.returncode == 0, done.stderr
    assert "warning: 2 of 3 rows of source are bad, more than max_bad = 1 rows" in done.stderr
    assert ids_in(tmp_path / "out.db") == [1, 2, 3]


def test_a_rewound_flow_repeats_in_each_kind_of_sink_what_was_said_before(
    spark: Any, cluster: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """To a time, and to a group's offsets; nothing is changed without --yes, and nothing that
    is not there is accepted."""
    monkeypatch.chdir(tmp_path)
    name, target = cluster.topic(1), cluster.topic(1)
    sinks = {
        "sqlite": 'path = "sqlite"\ntable = "t"',
        "duckdb": 'path = "duckdb"\ntable = "t"',
        "search": 'path = "search"\ntable = "t"\ntext = ["word"]',
        "delta": 'path = "delta"',
        "parquet": 'path = "lake"',
        "topic": f'topic = "{target}"',
    }
    text = SOURCE.format(topic=name, bootstrap=cluster.bootstrap) + '[transform]\nderive = { word = "string(id)" }\n'
    text += "".join(f'[[sinks]]\ntype = "{kind}"\n{rest}\n' for kind, rest in sinks.items())
    Path("flow.toml").write_text(text)
    now = int(time.time() * 1000)
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(6):
        producer.produce(name, b'{"id": %d}' % number, timestamp=now - (60_000 if number < 4 else 0))
    assert producer.flush(60) == 0
    run_on(spark, spec.load("flow.toml"))
    half = datetime.fromtimestamp(now / 1000 - 30, UTC).isoformat()

    def rewind(to: str, *options: str) -> dict[str, Any]:
        capsys.readouterr()
        code = main(["pipeline", "rewind", "flow.toml", "--to", to, "--output", "json", *options])
        assert code == (0 if "--yes" in options else 2)
        return dict(json.loads(capsys.readouterr().out))

    def counts() -> dict[str, int]:
        with duckdb.connect("duckdb", read_only=True) as connection:
            in_duckdb = len(connection.execute("SELECT id FROM t").fetchall())
        return {
            "sqlite": len(ids_in(Path("sqlite"))),
            "duckdb": in_duckdb,
            "search": len(ids_in(Path("search"))),
            "delta": deltalake.DeltaTable("delta").to_pyarrow_table().num_rows,
            "parquet": pq.read_table("lake").num_rows,
            "topic": len(cluster.read(target)),
        }

    all_once = dict.fromkeys(sinks, 6)
    assert counts() == all_once
    plan = rewind(half)
    assert (plan["repeated"], plan["skipped"], plan["done"], len(plan["sinks"])) == (2, 0, False, 6)
    assert (plan["plan"][0]["from"], plan["plan"][0]["to"]) == (6, 4)
    assert run_on(spark, spec.load("flow.toml"))["rows"] == 0
    assert rewind(half, "--yes")["done"]
    with pytest.raises(BarnabasError, match="has rows of the flow .* from another checkpoint.*Move the folder away"):
        run_on(spark, spec.load("flow.toml"))
    Path("lake").rename("before")
    assert run_on(spark, spec.load("flow.toml"))["rows"] == 2
    # The topic got the results of a run that Parquet had stopped, too.
    assert counts() == {**all_once, "parquet": 2, "topic": 8}

    consumer = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "other"})
    consumer.commit(offsets=[TopicPartition(name, 0, 1)], asynchronous=False)
    consumer.close()
    assert rewind("group:other")["repeated"] == 5
    assert main(["pipeline", "rewind", "flow.toml", "--to", json.dumps({name: {"0": 99}}), "--yes"]) == 1
    assert f"{name}-0 has offsets from 0 to its end, 6, and not 99" in capsys.readouterr().err
    assert rewind("group:other", "--yes")["done"]
    assert rewind("group:other")["repeated"] == 5, "since the sinks have come to the end"
    Path("lake").rename("before again")
    assert run_on(spark, spec.load("flow.toml"))["rows"] == 5
    assert counts() == {**all_once, "parquet": 5, "topic": 13}


def test_a_keyed_topic_of_changes_becomes_a_table_and_a_topic_of_what_is_left(
    spark: Any, cluster: Any, tmp_path: Path
) -> None:
    """A record without a value deletes its key in both; one that comes again after its deletion,
    also within a micro-batch, is there."""
    name, copy = cluster.topic(1), cluster.topic(1)
    sinks: list[dict[str, Any]] = [
        {"type": "duckdb", "path": str(tmp_path / "out.duckdb"), "table": "t"},
        {"type": "topic", "topic": copy},
        {"type": "delta", "path": str(tmp_path / "delta")},
        {"type": "search", "path": str(tmp_path / "out.db"), "table": "t", "text": ["source_key"]},
    ]
    flow = declare(
        name,
        checkpoint=str(tmp_path / "state"),
        source=topic(
            name,
            bootstrap_servers=cluster.bootstrap,
            max_offsets_per_trigger=4,
            record_columns=["key"],
            format=fields("json", price="int") | {"required": ["price"], "no_value": "row"},
        ),
        sinks=[{**each, "key": ["source_key"], "delete_when": "price is null"} for each in sinks],
    )
    changes = [("a", 1), ("b", 2), ("c", 3), ("a", None), ("b", None), ("d", None), ("b", 4), ("c", 5)]
    records = [(key.encode(), None if price is None else b'{"price": %d}' % price) for key, price in changes]
    cluster.produce(name, records)
    summary = run_on(spark, flow)
    assert (summary["rows"], summary["bad_rows"], summary["batches"]) == (8, 0, 2)
    with duckdb.connect(str(tmp_path / "out.duckdb")) as connection:
        assert connection.execute("SELECT * FROM t ORDER BY source_key").fetchall() == [(4, "b"), (5, "c")]
    delta = deltalake.DeltaTable(str(tmp_path / "delta")).to_pyarrow_table().to_pylist()
    assert sorted((row["price"], row["source_key"]) for row in delta) == [(4, "b"), (5, "c")]
    with contextlib.closing(sqlite3.connect(tmp_path / "out.db")) as found:
        assert found.execute("SELECT price, source_key FROM t ORDER BY source_key").fetchall() == [(4, "b"), (5, "c")]
    left: dict[str, int] = {}
    for message in cluster.read(copy):
        key = json.loads(message.key())["source_key"]
        if message.value() is None:
            left.pop(key, None)
        else:
            left[key] = json.loads(message.value())["price"]
    assert left == {"b": 4, "c": 5}
