"""Figures of whole flows, for bench/pipelines.py: the latency of small micro-batches, what 1% bad records cost, seconds until a
first result and of a check."""

import contextlib
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from barnabas.pipelines import spec
from barnabas.pipelines.run import run_on

_WARM_UP = 5
_TIMEOUT_S = 60
FLOW = """\
name = "{name}"
checkpoint = "{name}"
[source]
bootstrap_servers = "{bootstrap}"
topics = ["{topic}"]
bad_rows_topic = "{topic}-bad"
format = {{ type = "json", columns = {{ id = "bigint", airline = "string", delay = "int", at = "timestamp" }} }}
[aggregate]
group_by = ["airline"]
compute = {{ flights = "count(*)" }}
[[sinks]]
type = "sqlite"
path = "{name}.db"
table = "t"
"""


def latency_s(spark: Any, bootstrap: str, topic: str, kind: str, batches: int = 15) -> float:
    """The median time of micro-batches of one record each; the first ones warm up."""
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic, "startingOffsets": "earliest"}
    frame = spark.readStream.format(kind).options(**options).load()
    taken: list[float] = []
    with tempfile.TemporaryDirectory() as checkpoint:
        writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = writer.start()
        producer = Producer({"bootstrap.servers": bootstrap})
        try:
            done = -1
            while len(taken) < batches + _WARM_UP:
                producer.produce(topic, b"{}")
                if producer.flush(_TIMEOUT_S):
                    sys.exit(f"the record for {topic} was not acknowledged within {_TIMEOUT_S} s")
                progress = _report(query, done)
                done = progress["batchId"]
                taken.append(progress["batchDuration"] / 1000)
        finally:
            query.stop()
    return statistics.median(taken[_WARM_UP:])


def _report(query: Any, done: int) -> Any:
    """Spark's report of the next micro-batch with rows. The last report may be of an idle moment after it."""
    deadline = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline:
        for progress in query.recentProgress:
            if progress["batchId"] > done and progress["numInputRows"]:
                return progress
        if query.exception() is not None:
            sys.exit(f"the query broke: {query.exception()}")
        time.sleep(0.005)
    sys.exit(f"no micro-batch took the record within {_TIMEOUT_S} s; the last report: {query.lastProgress}")


def flow_rate(spark: Any, bootstrap: str, topic: str, rows: int, name: str) -> float:
    """Rows a second of a flow with dead letters, from its first micro-batch to its end."""
    with tempfile.TemporaryDirectory() as folder:
        text = FLOW.format(name=name, bootstrap=bootstrap, topic=topic)
        summary = run_on(spark, spec.parse(text, file=str(Path(folder) / "flow.toml")))
    assert summary["rows"] == rows, summary
    return rows / float(summary["seconds"])


def start_seconds(bootstrap: str, topic: str, wait: Callable[[Callable[[], bool]], None]) -> dict[str, float]:
    """Seconds of ``pipeline check``, without Spark and whole, and until a flow's first row is in its database."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "flow.toml"
        path.write_text(FLOW.format(name="first", bootstrap=bootstrap, topic=topic))
        command = [sys.executable, "-m", "barnabas", "pipeline"]
        found = {}
        for name, *words in (("check --without-spark", "check", "--without-spark"), ("check", "check")):
            begun = time.perf_counter()
            subprocess.run([*command, *words, str(path)], check=True, stdout=subprocess.DEVNULL)
            found[name] = time.perf_counter() - begun

        def has_row() -> bool:
            with (
                contextlib.suppress(sqlite3.Error),
                contextlib.closing(sqlite3.connect(f"{folder}/first.db")) as database,
            ):
                return bool(database.execute("SELECT count(*) FROM t").fetchone()[0])
            return False

        begun = time.perf_counter()
        with subprocess.Popen([*command, "run", str(path), "--quiet"], stdout=subprocess.DEVNULL) as process:
            wait(has_row)
            found["first result"] = time.perf_counter() - begun
            process.terminate()
        return found
