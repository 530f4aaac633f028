#!/usr/bin/env python3
"""The Spark format ``barnabas`` beside Spark's own Kafka connector, and beside
confluent-kafka with Polars and pandas.

usage: bench/pipelines.py
     [--only raw,json,window,sink,partitions,small,begin,latency,jobs,commands,brokers,bad,start]
     [--rows 1000000] [--bytes 100] [--warm-up 6] [--minutes 60]
     [--bootstrap HOST:PORT] [--jars FOLDER] [--here] [--output json]

It measures in an environment of its own (`bench_environment`): PySpark and the connector of one
version, and the rivals. ``--here`` uses the packages that are installed. The cluster is
``barnabas up`` unless another is named; the connector's jars come from ``--jars``, from Maven's
repository, or by Maven.

The contestants take turns in one run. The rounds that warm up do not count; then come five and
more, until the medians are stable, or the figure's share of ``--minutes`` is used. All is tuned
alike (`pipeline_queries`): lz4, batches of 512 KB, fetches of 4 MiB, checksums checked.

- raw, json, window, sink: streaming queries over all rows in five micro-batches, of which the first
  does not count; two partitions, two cores. ``window`` has a watermark and the mode update;
  ``sink`` reads files, for both alike.
- partitions: raw from 500 partitions. small: raw in 20 micro-batches of 1,000 rows. begin: a whole
  query of one row, with its start.
- latency: the median micro-batch of one record, and the CPU seconds of a query with eight of them.
- jobs, commands: the same windows, in programs that run already, and as commands from start to
  table (`pipeline_jobs`).
- brokers: what our format reads from our broker and writes to it beside Apache's, where
  ``../shared`` has that one.
- bad: a flow with 1% undecodable records beside the same flow without. start: seconds of a check,
  and until a first result.

A row is printed when it is measured: rows a second, CPU seconds of the process tree without the
clusters', and the others' cost in parts of ours, by time and by CPU: above 1 we are ahead. On a
machine that does other things as well, the ratios by CPU are better.
"""

import argparse
import contextlib
import datetime
import importlib.metadata
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import bench_environment
import systems
from bench_environment import skipped
from rounds import Taken, Turns, take_turns

QUERIES = ("raw", "window", "sink", "partitions", "small", "json", "begin")
FIGURES = (*QUERIES, "latency", "jobs", "commands", "brokers", "bad", "start")
_COMMAND_WARM_UP = 1
"""A command starts cold each time; one round brings its files into memory."""


class Report:
    """Rows as they are measured; with ``--output json`` they go to standard error, and all of
    them to standard output."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self.rows: dict[str, dict[str, Any]] = {}
        self._is_json = arguments.output == "json"
        self._ends_s = time.monotonic() + arguments.minutes * 60
        self._left = len(arguments.only)
        packages = ("pyspark", "pyarrow", "confluent-kafka", "polars", "pandas")
        found = {each: _version(each) for each in packages}
        self.row(
            "begun",
            {
                "at": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M"),
                "cores": os.cpu_count(),
                "load": os.getloadavg()[0],
                "rows": arguments.rows,
                **{name: version for name, version in found.items() if version},
            },
        )

    def until_s(self) -> float:
        """When the next figure has to be measured, so that all have their share of the time."""
        now = time.monotonic()
        share = max(0.0, self._ends_s - now) / max(1, self._left)
        self._left -= 1
        return now + share

    def turns(self, name: str, rows: int, turns: Turns, ours: str) -> None:
        """Rates and CPU seconds of all contestants, and the others' cost in parts of ours."""
        row: dict[str, Any] = {}
        for each in turns.taken:
            row[f"{each}, s"] = turns.seconds(each)
            row[f"{each}, thousand rows/s"] = rows / turns.seconds(each) / 1000
            row[f"{each}, CPU s"] = turns.cpu_s(each)
        for each in turns.taken:
            if each != ours:
                row[f"{each} / {ours}, time"], row[f"{each} / {ours}, CPU"] = turns.ratio(ours, each)
        row["rounds"] = len(turns.taken[ours])
        row["stable"] = turns.is_stable
        row["load"] = sum(turns.loads) / len(turns.loads)
        self.row(name, row)

    def row(self, name: str, figures: dict[str, Any]) -> None:
        """Print it."""
        self.rows[name] = figures
        shown = (
            f"{each} {value:.3g}" if isinstance(value, float) else f"{each} {value}" for each, value in figures.items()
        )
        print(f"{name:<12} {'   '.join(shown)}", file=sys.stderr if self._is_json else sys.stdout, flush=True)


def _version(package: str) -> str | None:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(package)
    return None


def main() -> int:
    arguments = parsed()
    if not arguments.here:
        bench_environment.enter()
    # What was started then ends, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("ended by a signal"))
    report = Report(arguments)
    with cluster(arguments.bootstrap) as (bootstrap, process):
        measure(arguments, bootstrap, [] if process is None else [process], report)
    if arguments.output == "json":
        print(json.dumps(report.rows, indent=2))
    return 0


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--bytes", type=int, default=100)
    parser.add_argument("--warm-up", type=int, default=6)
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--bootstrap")
    parser.add_argument("--jars", type=Path, default=bench_environment.MAVEN)
    parser.add_argument("--only", type=lambda text: text.split(","), default=list(FIGURES))
    parser.add_argument("--here", action="store_true")
    parser.add_argument("--output", choices=["text", "json"], default="text")
    arguments = parser.parse_args()
    if unknown := set(arguments.only) - set(FIGURES):
        parser.error(f"unknown in --only: {', '.join(sorted(unknown))}; there are {', '.join(FIGURES)}")
    return arguments


@contextlib.contextmanager
def cluster(bootstrap: str | None) -> Iterator[tuple[str, int | None]]:
    """The named cluster, or one of ours with its process."""
    if bootstrap:
        yield bootstrap, None
        return
    command = [sys.executable, "-m", "barnabas", "up", "--port", "0", "--zk-port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        yield process.stdout.readline().split()[1], process.pid
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def measure(arguments: argparse.Namespace, bootstrap: str, clusters: list[int], report: Report) -> None:
    """The figures that are asked for, one after the other."""
    from pipeline_flows import measure_starts

    if "start" in arguments.only:
        report.until_s()
        for name, taken in measure_starts(bootstrap, wait_until):
            report.row(name, {"s": taken.seconds, "CPU s": taken.cpu_s, "load": os.getloadavg()[0]})
    if set(arguments.only) == {"start"}:
        return
    from pipeline_queries import OURS, THEIRS, Queries

    from barnabas.pipelines.spark.session import open_session

    jars = bench_environment.find_jars(arguments.jars)
    kinds = [OURS, THEIRS] if jars else [OURS]
    conf = {"spark.jars": ",".join(map(str, jars))} if jars else {}
    with (
        tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder,
        contextlib.closing(open_session("bench", cores=2, memory="1536m", conf=conf)) as session,
    ):
        spark, place = session.spark, Path(folder)
        queries = Queries(spark, bootstrap, place, rows=arguments.rows, row_bytes=arguments.bytes)
        queries.without_clusters(clusters)
        for figure in [each for each in QUERIES if each in arguments.only]:
            turns = take_turns(
                {kind: bound(queries.run, figure, kind) for kind in kinds},
                warm_up=arguments.warm_up,
                until_s=report.until_s(),
            )
            report.turns(figure, queries.rows_of(figure), turns, OURS)
        measure_others(arguments, queries, kinds, place, report)


def measure_others(arguments: argparse.Namespace, queries: Any, kinds: list[str], place: Path, report: Report) -> None:
    """What is no single query."""
    import pipeline_jobs
    from pipeline_flows import flows_turns
    from pipeline_queries import OURS

    asked, rows, warm_up = arguments.only, arguments.rows, arguments.warm_up
    if "latency" in asked:
        contestants = {kind: bound_latency(queries, kind) for kind in kinds}
        turns = take_turns(contestants, warm_up=1, until_s=report.until_s())
        report.turns("latency", 1, turns, OURS)
    if "jobs" in asked:
        with pipeline_jobs.running_jobs(queries) as jobs:
            report.turns("jobs", rows, take_turns(jobs, warm_up=warm_up, until_s=report.until_s()), OURS)
    if "commands" in asked:
        commands = pipeline_jobs.commands(queries)
        turns = take_turns(commands, warm_up=_COMMAND_WARM_UP, until_s=report.until_s(), least=3)
        report.turns("commands", rows, turns, OURS)
    if "brokers" in asked and brokers_are_at_hand(arguments):
        compare_brokers(arguments, queries, place, report)
    if "bad" in asked:
        turns = flows_turns(queries, place, warm_up=1, until_s=report.until_s())
        report.turns("bad", rows, turns, "no bad records")


def bound(run: Callable[[str, str], Taken], figure: str, kind: str) -> Callable[[], Taken]:
    """The query of a figure by one side."""
    return lambda: run(figure, kind)


def bound_latency(queries: Any, kind: str) -> Callable[[], Taken]:
    """Micro-batches of one record by one side."""
    from pipeline_flows import latency

    return lambda: latency(queries, kind)


def compare_brokers(arguments: argparse.Namespace, queries: Any, place: Path, report: Report) -> None:
    """Rows of what our format reads and writes, from our broker and from Apache's.

    CPU seconds are without the brokers'."""
    from pipeline_queries import OURS, Queries

    until_s = report.until_s()
    with systems.cluster(systems.THEIRS, str(place / "apache")) as running:
        (place / "theirs").mkdir()
        theirs = Queries(
            queries.spark, running.bootstrap, place / "theirs", rows=arguments.rows, row_bytes=arguments.bytes
        )
        of_each: Mapping[str, Any] = {systems.OURS: queries, systems.THEIRS: theirs}
        clusters = [*queries.clusters, running.process.pid]
        for each in of_each.values():
            each.without_clusters(clusters)
        for figure in ("raw", "sink"):
            runs = {name: bound(each.run, figure, OURS) for name, each in of_each.items()}
            turns = take_turns(runs, warm_up=2, until_s=until_s)
            report.turns(f"{figure}, brokers", arguments.rows, turns, systems.OURS)


def brokers_are_at_hand(arguments: argparse.Namespace) -> bool:
    """Whether brokers can be compared: the cluster is ours, and Apache's is at hand."""
    reason = (
        "the cluster may be any" if arguments.bootstrap else "" if systems.HAS_REFERENCE else "needs ../shared, Java"
    )
    if reason:
        skipped(f"our broker beside Apache's: {reason}")
    return not reason


def wait_until(condition: Callable[[], bool]) -> None:
    """Until the condition holds."""
    deadline = time.monotonic() + 300
    while not condition():
        if time.monotonic() > deadline:
            sys.exit("no result within 300 s")
        time.sleep(0.02)


if __name__ == "__main__":
    sys.exit(main())
