"""Figures of whole flows, for bench/pipelines.py: the latency of small micro-batches, what 1% bad
records cost, seconds until a first result and of a check."""

import contextlib
import itertools
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from pipeline_queries import Queries
from rounds import CpuClock, Taken, Turns, take_turns

from barnabas.pipelines.running.run import run_on
from barnabas.pipelines.specification import spec

_START_ROWS = 1000
_WARM_UP = 3
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


def latency(queries: Queries, kind: str, batches: int = 5) -> Taken:
    """The median time of micro-batches of one record each, and the CPU seconds of a query with that
    many; the first ones warm up."""
    taken: list[float] = []
    topic = queries.new_topic(1)
    writer = queries.read(kind, topic, _START_ROWS).writeStream.format("noop")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as checkpoint:
        clock = queries.clock()
        query = writer.option("checkpointLocation", checkpoint).start()
        producer = Producer({"bootstrap.servers": queries.bootstrap})
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
    queries.delete(topic)
    return Taken(statistics.median(taken[_WARM_UP:]), clock.taken().cpu_s)


def _report(query: Any, done: int) -> Any:
    """Spark's report of the next micro-batch with rows.

    The last report may be of an idle moment after it."""
    deadline = time.monotonic() + _TIMEOUT_S
    while time.monotonic() < deadline:
        for progress in query.recentProgress:
            if progress["batchId"] > done and progress["numInputRows"]:
                return progress
        if query.exception() is not None:
            sys.exit(f"the query broke: {query.exception()}")
        time.sleep(0.005)
    sys.exit(f"no micro-batch took the record within {_TIMEOUT_S} s; the last report: {query.lastProgress}")


def flows_turns(queries: Queries, folder: Path, *, warm_up: int, until_s: float) -> Turns:
    """What a flow with dead letters takes for the records, and for as many of which 1% are bad."""
    rows = queries.rows
    is_bad = "get_json_object(cast(value as string), '$.id') % 100 = 0"
    bad = queries.new_topic(2)
    queries.fill(bad, queries.stored.selectExpr("key", f"if({is_bad}, cast('no JSON' as binary), value) value"))
    numbers = itertools.count()

    def flow(topic: str, bad_rows: int) -> Taken:
        # The folder stays there: Spark tidies state up in the background.
        place = folder / f"flow-{next(numbers)}"
        place.mkdir()
        clock = queries.clock()
        text = FLOW.format(name="flow", bootstrap=queries.bootstrap, topic=topic)
        summary = run_on(queries.spark, spec.parse(text, file=str(place / "flow.toml")))
        assert (summary["rows"], summary["bad_rows"]) == (rows, bad_rows), summary
        return clock.taken()

    contestants = {
        "no bad records": lambda: flow(queries.topic(), 0),
        "1% bad records": lambda: flow(bad, -(-rows // 100)),
    }
    return take_turns(contestants, warm_up=warm_up, until_s=until_s)


def measure_starts(bootstrap: str, wait: Callable[[Callable[[], bool]], None]) -> Iterator[tuple[str, Taken]]:
    """``pipeline check``, without Spark and whole, and a small flow until its first
    row is in its database."""
    topic = f"bench-start-{time.time_ns()}"
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(_START_ROWS):
        producer.produce(topic, f'{{"id": {number}, "airline": "A{number % 20}", "delay": {number % 90}}}')
    if producer.flush(_TIMEOUT_S):
        sys.exit(f"the records for {topic} were not acknowledged within {_TIMEOUT_S} s")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "flow.toml"
        path.write_text(FLOW.format(name="first", bootstrap=bootstrap, topic=topic))
        command = [sys.executable, "-m", "barnabas", "pipeline"]
        for name, *words in (("check without Spark", "check", "--without-spark"), ("check", "check")):
            with _process([*command, *words, str(path)]) as (process, clock):
                wait(lambda: os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None)
                yield name, clock.taken()
            if process.returncode:
                sys.exit(f"barnabas pipeline {' '.join(words)} exited with {process.returncode}")

        def has_row() -> bool:
            # Read-only: a connection that may write would make the file.
            address = f"{(Path(folder) / 'first.db').as_uri()}?mode=ro"
            with (
                contextlib.suppress(sqlite3.Error),
                contextlib.closing(sqlite3.connect(address, uri=True)) as database,
            ):
                return bool(database.execute("SELECT count(*) FROM t").fetchone()[0])
            return False

        with _process([*command, "run", str(path), "--quiet"]) as (process, clock):
            wait(lambda: has_row() or process.poll() is not None)
            if process.returncode is not None:
                sys.exit(f"the flow ended before its first row was there, with {process.returncode}")
            yield "first result", clock.taken()
            process.terminate()


@contextlib.contextmanager
def _process(command: list[str]) -> Iterator[tuple["subprocess.Popen[bytes]", CpuClock]]:
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        yield process, CpuClock(process.pid)
