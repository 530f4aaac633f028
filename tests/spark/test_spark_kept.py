"""Flows go on from checkpoints and outputs that an earlier version left."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
pytest.importorskip("pyspark")
deltalake = pytest.importorskip("deltalake")

from barnabas.pipelines.checkpoints.topic_ids import TopicIds  # noqa: E402
from barnabas.pipelines.checks.trial import source_cluster  # noqa: E402
from barnabas.pipelines.running.run import run_on  # noqa: E402
from support.kept_checkpoints import FIRST, TOPICS, kept_flows, unpack  # noqa: E402

MORE = {
    "kept-counts": [(None, b'{"id": 7, "kind": "a"}'), (None, b"no JSON again")],
    "kept-latest": [(None, b"1,a,2026-01-01T00:00:04Z"), (None, b"2,b,2026-01-01T00:00:09Z")],
}


def rows(path: Path, statement: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(statement).fetchall()


def test_flows_go_on_from_what_an_earlier_version_left(cluster: Any, spark: Any, tmp_path: Path) -> None:
    """Counts go on from their state.

    Of rows with an older time than the key had before, none is taken."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for future in admin.create_topics([NewTopic(each, 1, 1) for each in TOPICS]).values():
        future.result(60)
    for topic, values in FIRST.items():
        cluster.produce(topic, [(None, value) for value in values])
        cluster.produce(topic, MORE[topic])
    unpack(tmp_path)
    flows = kept_flows(cluster.bootstrap, tmp_path)
    for name, flow in flows.items():
        # Its topics are ours now.
        (tmp_path / name / "topics.json").write_text(TopicIds.of_today(flow, source_cluster))
        summary = run_on(spark, flow)
        assert (summary["rows"], summary["status"]) == (2, "done")
    assert rows(tmp_path / "counts.db", "SELECT kind, n FROM counts ORDER BY kind") == [("a", 4), ("b", 2)]
    changed = {json.loads(each.value())["kind"]: json.loads(each.value())["n"] for each in cluster.read("kept-results")}
    assert changed == {"a": 4}
    expected = [(1, "2026-01-01T00:00:05"), (2, "2026-01-01T00:00:09"), (3, "2026-01-01T00:00:02")]
    found = rows(tmp_path / "latest.db", "SELECT id, substr(at, 1, 19) FROM latest ORDER BY id")
    assert found == expected
    lake = deltalake.DeltaTable(str(tmp_path / "latest-delta")).to_pyarrow_table().sort_by("id").to_pylist()
    assert [(each["id"], f"{each['at']:%Y-%m-%dT%H:%M:%S}") for each in lake] == expected
