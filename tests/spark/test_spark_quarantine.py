"""Flows that put whole micro-batches aside, and flows whose Python workers start too late."""

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
pytest.importorskip("pyspark")

from barnabas.pipelines.dead_letters.replay import replay_dead_letters  # noqa: E402
from barnabas.pipelines.running.run import run_on  # noqa: E402
from barnabas.pipelines.specification import spec  # noqa: E402

FLOW = """\
name = "{topic}"
checkpoint = "state"
[source]
bootstrap_servers = "{bootstrap}"
topics = ["{topic}"]
max_offsets_per_trigger = 100
group = "{topic}"
bad_rows_topic = "{topic}-bad"
max_bad = "10%"
on_max_bad = "quarantine"
format = {{ type = "csv", columns = {{ id = "int", kind = "string" }} }}
[[expectations]]
name = "known_kind"
check = "kind in ('a', 'b')"
on_fail = "quarantine"
[[expectations]]
name = "has_kind"
check = "kind <> 'x'"
on_fail = "quarantine"
[aggregate]
group_by = ["kind"]
compute = {{ n = "count(*)", total = "sum(id)" }}
[[sinks]]
type = "sqlite"
path = "out.db"
table = "kinds"
"""


def rows(folder: Path) -> list[tuple[Any, ...]]:
    connection = sqlite3.connect(folder / "out.db")
    try:
        return connection.execute("SELECT kind, n, total FROM kinds ORDER BY kind").fetchall()
    finally:
        connection.close()


def test_a_micro_batch_with_too_many_bad_rows_is_put_aside_whole(spark: Any, cluster: Any, tmp_path: Path) -> None:
    """No aggregate has seen its rows; all are dead letters, which go through once
    they are repaired."""
    topic = cluster.topic(1)
    flow = spec.parse(FLOW.format(topic=topic, bootstrap=cluster.bootstrap), file=str(tmp_path / "flow.toml"))

    def line(number: int) -> bytes:
        if 100 <= number < 200 and number % 2:
            return b"a,%d" % number  # swapped columns
        return b"%d,%s" % (number, b"x" if number == 7 else b"a" if number < 250 else b"b")

    cluster.produce(topic, [(None, line(number)) for number in range(300)])
    said: list[str] = []
    summary = run_on(spark, flow, say=said.append)
    assert rows(tmp_path) == [
        ("a", 149, sum(range(100)) - 7 + sum(range(200, 250))),
        ("b", 50, sum(range(250, 300))),
    ]
    assert (summary["rows"], summary["bad_rows"]) == (300, 51)
    assert (summary["quarantined_rows"], summary["quarantined_batches"]) == (100, 1)
    assert summary["bad"] == {"WRONG_TYPE": 50, "NOT_EXPECTED": 1, "column id": 50}
    assert summary["expectations"] == {"known_kind": 1, "has_kind": 1}
    assert any("50 of 100 rows of a micro-batch are bad, more than max_bad = 10%" in each for each in said)
    assert any(f"{topic}-0 offsets 100 to 199" in each for each in said)
    assert cluster.committed(topic, topic, 1) == [300]
    letters = cluster.read(f"{topic}-bad")
    classes = [dict(each.headers())["barnabas.error"] for each in letters]
    assert [classes.count(each) for each in (b"QUARANTINED", b"WRONG_TYPE", b"NOT_EXPECTED")] == [50, 50, 1]

    again = run_on(spark, flow)
    assert (again["rows"], again["quarantined_rows"]) == (0, 0)
    # Repaired, they fit; the one that is not expected stays a dead letter.
    repair = "regexp_replace(value, '^a,(.*)$', '$1,a')"
    replayed = replay_dead_letters(spark, flow, flow.source, value=repair)
    assert (replayed.sent, replayed.still_bad) == (100, 1)
    run_on(spark, flow)
    assert rows(tmp_path) == [("a", 249, sum(range(250)) - 7), ("b", 50, sum(range(250, 300)))]


LATE_WORKER = """\
import os, sys, time
marker = os.environ["LATE_WORKERS"]
if any(each.endswith("fork_server.py") for each in sys.orig_argv):
    os._exit(1)  # so that Spark starts each process by itself, which takes a busy machine longest
if "streaming_source" in " ".join(sys.orig_argv):
    number = len(os.listdir(marker))
    open(os.path.join(marker, str(number)), "w").close()
    if number == 0:
        os._exit(1)  # Spark waits for its connection all the same
"""


def test_a_flow_goes_on_when_a_worker_did_not_connect_in_time(cluster: Any, tmp_path: Path) -> None:
    """The query starts again from the checkpoint, with a line that says so; each
    record counts once."""
    topic = cluster.topic(1)
    cluster.produce(topic, [(None, b"%d,a" % number) for number in range(300)])
    (tmp_path / "workers").mkdir()
    (tmp_path / "sitecustomize.py").write_text(LATE_WORKER)
    text = FLOW.format(topic=topic, bootstrap=cluster.bootstrap).replace('on_max_bad = "quarantine"', "")
    (tmp_path / "flow.toml").write_text(
        text.replace(f'bad_rows_topic = "{topic}-bad"', "").replace('"quarantine"', '"drop"')
    )
    path = os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-m", "barnabas", "pipeline", "run", str(tmp_path / "flow.toml"), "--once", "--output", "json"],
        env={**os.environ, "PYTHONPATH": path, "LATE_WORKERS": str(tmp_path / "workers")},
        capture_output=True, text=True, timeout=300, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("Starting again from the checkpoint, 1 of 15") == 1, done.stderr
    assert json.loads(done.stdout)["rows"] == 300
    assert rows(tmp_path) == [("a", 300, sum(range(300)))]
    assert cluster.committed(topic, topic, 1) == [300]
