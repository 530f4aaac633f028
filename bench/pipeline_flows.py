"""Figures of whole flows, for bench/pipelines.py: the latency of small micro-batches, what 1% bad records cost, seconds until a
first result and of a check; and the clock for time and CPU seconds."""

import contextlib
import os
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from barnabas.pipelines import spec
from barnabas.pipelines.run import run_on

_TICK = os.sysconf("SC_CLK_TCK")
_START_ROWS = 1000
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


@dataclass(frozen=True, slots=True)
class Taken:
    """What a piece of work took: on a clock, and of processors."""

    seconds: float
    cpu_s: float

    def least(self, other: "Taken | None") -> "Taken":
        """The best of two rounds in each."""
        return self if other is None else Taken(min(self.seconds, other.seconds), min(self.cpu_s, other.cpu_s))


class CpuClock:
    """Time, and CPU seconds of a process and its descendants, from the moment it is made."""

    def __init__(self, root: int, *, without: Collection[int] = ()) -> None:
        """``without`` are descendants that do not count, nor do their own."""
        self._root = root
        self._without = without
        self._cpu_s = self._used_s()
        self._begun = time.perf_counter()

    def taken(self) -> Taken:
        return Taken(time.perf_counter() - self._begun, self._used_s() - self._cpu_s)

    def _used_s(self) -> float:
        parents: dict[int, list[int]] = {}
        used: dict[int, int] = {}
        for path in Path("/proc").glob("[0-9]*/stat"):
            with contextlib.suppress(OSError):
                fields = path.read_text().rpartition(")")[2].split()
                pid = int(path.parent.name)
                parents.setdefault(int(fields[1]), []).append(pid)
                used[pid] = sum(map(int, fields[11:15]))  # with those of children that ended
        total, waiting = 0, [self._root]
        while waiting:
            pid = waiting.pop()
            if pid not in self._without:
                total += used.get(pid, 0)
                waiting += parents.get(pid, [])
        return total / _TICK


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


def flow_taken(
    spark: Any, bootstrap: str, topic: str, rows: int, bad_rows: int, folder: Path, clock: CpuClock
) -> Taken:
    """What a flow with dead letters takes: the seconds from its first micro-batch to its end, the CPU seconds of the whole run.

    The ``folder`` gets the checkpoint, and may be removed when Spark has ended: state is tidied up in the background.
    """
    text = FLOW.format(name="flow", bootstrap=bootstrap, topic=topic)
    summary = run_on(spark, spec.parse(text, file=str(folder / "flow.toml")))
    assert (summary["rows"], summary["bad_rows"]) == (rows, bad_rows), summary
    return Taken(float(summary["seconds"]), clock.taken().cpu_s)


def measure_starts(bootstrap: str, wait: Callable[[Callable[[], bool]], None]) -> Iterator[tuple[str, Taken]]:
    """``pipeline check``, without Spark and whole, and a small flow until its first row is in its database."""
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
