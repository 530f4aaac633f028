"""Rows of keys that lie in several partitions: which one is the last, in micro-batches, after
rewinds, and in tables of topics."""

import json
import random
import sqlite3
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
pytest.importorskip("pyspark")

from barnabas.pipelines.checkpoints.checkpoint import Checkpoint  # noqa: E402
from barnabas.pipelines.frames.topic_table import read_topic_table  # noqa: E402
from barnabas.pipelines.running.run import run_on  # noqa: E402
from barnabas.pipelines.specification import spec  # noqa: E402

FLOW = """\
name = "{topic}"
checkpoint = "state"
[source]
bootstrap_servers = "{bootstrap}"
topics = ["{topic}"]
max_offsets_per_trigger = 40
format = {{ type = "json", columns = {{ id = "int", version = "bigint", gone = "boolean" }} }}
[[sinks]]
type = "sqlite"
path = "out.db"
table = "t"
key = ["id"]
order_by = "version"
delete_when = "gone"
[[sinks]]
type = "duckdb"
path = "out.duckdb"
table = "t"
key = ["id"]
"""


def test_after_partitions_were_added_a_rewind_brings_no_old_row_back(spark: Any, cluster: Any, tmp_path: Path) -> None:
    """With a column that orders them; where there is none, keys in several
    partitions are counted and named."""
    topic = cluster.topic(1)
    flow = spec.parse(FLOW.format(topic=topic, bootstrap=cluster.bootstrap), file=str(tmp_path / "flow.toml"))
    draw = random.Random(5)
    last: dict[int, tuple[int, bool]] = {}

    def produce(count: int) -> None:
        records = []
        for _ in range(count):
            key = draw.randrange(30)
            last[key] = (last.get(key, (0, False))[0] + 1, draw.random() < 0.2)
            value = {"id": key, "version": last[key][0], "gone": last[key][1]}
            records.append((b"%d" % key, json.dumps(value).encode()))
        cluster.produce(topic, records)

    def rows() -> list[tuple[int, int]]:
        found = sqlite3.connect(tmp_path / "out.db").execute("select id, version from t order by id").fetchall()
        assert found == sorted((key, version) for key, (version, gone) in last.items() if not gone)
        return found

    produce(100)
    run_on(spark, flow)
    assert rows()
    cluster.add_partitions(topic, 4)
    produce(100)
    run_on(spark, flow)
    before = rows()
    checkpoint = Checkpoint(flow)
    starts = dict.fromkeys([*checkpoint.position()[0]], 0)
    checkpoint.rewind([starts])
    said: list[str] = []
    summary = run_on(spark, flow, say=said.append)
    assert rows() == before
    assert summary["rows"] == 200
    assert summary["mixed_keys"] > 0
    assert any("Declare order_by" in each for each in said)


def test_a_table_of_a_topic_takes_the_latest_record_of_a_key_of_several_partitions(cluster: Any) -> None:
    """Values, and deletions; what came in between is read alone."""
    topic = cluster.topic(1)
    source = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": topic}

    def values() -> dict[bytes, bytes]:
        return {row["key"]: row["value"] for row in read_topic_table(topic, source).to_pylist()}

    cluster.produce(topic, [(b"%d" % key, b"old") for key in range(8)])
    assert values() == {b"%d" % key: b"old" for key in range(8)}
    cluster.add_partitions(topic, 3)
    for key in range(8):
        cluster.produce(topic, [(b"%d" % key, None if key % 2 else b"new")], partition=1 + key % 2)
    assert values() == {b"%d" % key: b"new" for key in range(0, 8, 2)}
    assert {
        **{row["key"]: row["value"] for row in read_topic_table("from the beginning", source).to_pylist()}
    } == values()
