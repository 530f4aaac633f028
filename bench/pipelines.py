#!/usr/bin/env python3
"""Rows a second of the Spark format ``barnabas`` beside Spark's own Kafka connector, on one Spark and one cluster.

usage: bench/pipelines.py [--rows 1000000] [--bytes 100] [--rounds 2] [--bootstrap HOST:PORT] [--jars FOLDER]
                          [--only raw,json,window,sink,latency,brokers,bad,start] [--output json]

The cluster is ``barnabas up`` unless another is named. Spark's connector needs its jars, which Maven gives:

    for name in org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0 org.apache.commons:commons-pool2:2.13.1 \\
        org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.1.0-preview1 org.apache.kafka:kafka-clients:3.9.2; do
      mvn dependency:get -Dtransitive=false -Dartifact=$name; done

They are looked for in Maven's repository and in the folder that `--jars` names; without them only ours is measured. Both read and
write the same records in turns; the best round counts. Each of the first four is a batch query on two cores: so is what
micro-batches do. `latency` is the median micro-batch of one record, `brokers` what our format reads from our broker and writes to it
beside Apache's, where `../shared` has that one, `bad` a flow with 1% undecodable records beside the same flow without, `start` the
seconds of a check and until a flow's first result.

A row is printed when it is measured. Beside seconds it has the CPU seconds of Spark and its Python workers, without the
cluster's: on a machine that does other things as well, compare those.
"""

import argparse
import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import systems
from confluent_kafka.admin import AdminClient, NewTopic
from pipeline_flows import CpuClock, Taken, flow_taken, latency_s, measure_starts

from barnabas.pipelines.session import open_session

JARS = (
    "org/apache/spark/spark-sql-kafka-0-10_2.13/4.2.0/spark-sql-kafka-0-10_2.13-4.2.0.jar",
    "org/apache/spark/spark-token-provider-kafka-0-10_2.13/4.1.0-preview1/"
    "spark-token-provider-kafka-0-10_2.13-4.1.0-preview1.jar",
    "org/apache/kafka/kafka-clients/3.9.2/kafka-clients-3.9.2.jar",
    "org/apache/commons/commons-pool2/2.13.1/commons-pool2-2.13.1.jar",
)
MAVEN = Path.home() / ".m2/repository"
FIGURES = ("raw", "json", "window", "sink", "latency", "brokers", "bad", "start")
RATES = FIGURES[:4]
SCHEMA = "id long, airline string, delay int, at timestamp"


class Measured:
    """The queries that are measured, by either source and sink."""

    def __init__(self, spark: Any, bootstrap: str, clusters: Collection[int], rows: int, frame: Any) -> None:
        """``clusters`` are the processes of clusters that are children of this one."""
        self._spark = spark
        self._bootstrap = bootstrap
        self._clusters = clusters
        self._rows = rows
        self._frame = frame
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._topics = 0
        self._topic = self._new_topic()
        self._write("barnabas", self._topic)

    @staticmethod
    def records(spark: Any, rows: int, row_bytes: int) -> Any:
        """The records, in memory."""
        head = "to_json(struct(id, concat('A', id % 20) airline, int(id % 90) delay, timestamp_seconds(id div 100) at))"
        frame = spark.range(0, rows, 1, 2).selectExpr(
            "cast(concat('key-', id % 1000) as binary) key", f"cast(rpad({head}, {row_bytes}, ' ') as binary) value"
        )
        frame.cache().count()
        return frame

    def _new_topic(self) -> str:
        self._topics += 1
        name = f"bench-{int(time.time())}-{self._topics}"
        self._admin.create_topics([NewTopic(name, 2, 1)])[name].result(30)
        return name

    def _read(self, kind: str) -> Any:
        reader = self._spark.read.format(kind).option("kafka.bootstrap.servers", self._bootstrap)
        return reader.option("subscribe", self._topic).load()

    def _write(self, kind: str, topic: str) -> None:
        writer = self._frame.write.format(kind).option("kafka.bootstrap.servers", self._bootstrap)
        writer.option("topic", topic).mode("append").save()

    def run(self, figure: str, kind: str) -> Taken:
        """What one query takes."""
        if figure == "sink":
            topic = self._new_topic()
            clock = CpuClock(os.getpid(), without=self._clusters)
            self._write(kind, topic)
            taken = clock.taken()
            self._admin.delete_topics([topic])[topic].result(30)
            return taken
        frame = self._read(kind)
        if figure == "json":
            frame = frame.selectExpr(f"from_json(cast(value as string), '{SCHEMA}') r").select("r.*")
        if figure == "window":
            frame = frame.selectExpr(f"from_json(cast(value as string), '{SCHEMA}') r").select("r.*")
            frame = self._windows(frame)
        clock = CpuClock(os.getpid(), without=self._clusters)
        frame.write.format("noop").mode("overwrite").save()
        return clock.taken()

    def latency_s(self, kind: str) -> float:
        """The median seconds of small micro-batches."""
        return latency_s(self._spark, self._bootstrap, self._new_topic(), kind)

    def flows_taken(self, rounds: int, folder: Path) -> Iterator[tuple[str, Taken]]:
        """What a flow takes for the records, and for as many of which 1% are bad, in turns; the first run warms up."""
        bad = self._new_topic()
        is_bad = "get_json_object(cast(value as string), '$.id') % 100 = 0"
        frame = self._frame.selectExpr("key", f"if({is_bad}, cast('no JSON' as binary), value) value")
        count = (self._rows + 99) // 100
        options = {"kafka.bootstrap.servers": self._bootstrap, "topic": bad}
        frame.write.format("barnabas").options(**options).mode("append").save()
        for number in range(rounds + 1):
            for name, topic, bad_rows in (("no bad records", self._topic, 0), ("1% bad records", bad, count)):
                place = folder / f"{topic}-{number}"
                place.mkdir()
                clock = CpuClock(os.getpid(), without=self._clusters)
                taken = flow_taken(self._spark, self._bootstrap, topic, self._rows, bad_rows, place, clock)
                if number:
                    yield name, taken

    @staticmethod
    def _windows(frame: Any) -> Any:
        from pyspark.sql import functions as F  # noqa: N812  # Spark's habit

        return frame.groupBy("airline", F.window("at", "1 minute")).agg(F.avg("delay"), F.count("*"))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--bytes", type=int, default=100)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--bootstrap")
    parser.add_argument("--jars", type=Path, default=MAVEN)
    parser.add_argument("--only", default=",".join(FIGURES))
    parser.add_argument("--output", choices=["text", "json"], default="text")
    arguments = parser.parse_args()
    if unknown := set(arguments.only.split(",")) - set(FIGURES):
        parser.error(f"unknown in --only: {', '.join(sorted(unknown))}; there are {', '.join(FIGURES)}")
    figures = arguments.only.split(",")
    with cluster(arguments.bootstrap) as (bootstrap, process):
        found = measure(arguments, figures, bootstrap, process)
    if arguments.output == "json":
        print(json.dumps(found, indent=2))
    return 0


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


class Report:
    """Rows as they are measured; with ``--output json`` they go to standard error, and all of them to standard output."""

    def __init__(self, *, is_json: bool) -> None:
        self.rows: dict[str, dict[str, float]] = {}
        self._out = sys.stderr if is_json else sys.stdout

    def rates(self, name: str, rows: int, taken: Mapping[str, Taken], of: tuple[str, str]) -> None:
        """A row of rates, and ours in parts of the other's: by time and by CPU seconds."""
        row = {}
        for each, figures in taken.items():
            row[f"{each}, thousand rows/s"] = rows / figures.seconds / 1000
            row[f"{each}, CPU s"] = figures.cpu_s
        if all(each in taken for each in of):
            ours, theirs = (taken[each] for each in of)
            row["ratio of rates"] = theirs.seconds / ours.seconds
            row["ratio by CPU"] = theirs.cpu_s / ours.cpu_s
        self.row(name, row)

    def row(self, name: str, figures: dict[str, float]) -> None:
        self.rows[name] = figures
        text = "   ".join(f"{each} {value:.3g}" for each, value in figures.items())
        print(f"{name:<20} {text}", file=self._out, flush=True)


def measure(
    arguments: argparse.Namespace, figures: Sequence[str], bootstrap: str, process: int | None
) -> dict[str, dict[str, float]]:
    jars = find_jars((arguments.jars, MAVEN))
    kinds = ["barnabas", "kafka"] if jars else ["barnabas"]
    report = Report(is_json=arguments.output == "json")
    if "start" in figures:
        for name, taken in measure_starts(bootstrap, wait_until):
            report.row(name, {"s": taken.seconds, "CPU s": taken.cpu_s})
    if set(figures) == {"start"}:
        return report.rows
    conf = {"spark.jars": ",".join(map(str, jars))} if jars else {}
    own = [] if process is None else [process]
    with (
        tempfile.TemporaryDirectory() as folder,
        contextlib.closing(open_session("bench", cores=2, memory="1536m", conf=conf)) as session,
    ):
        frame = Measured.records(session.spark, arguments.rows, arguments.bytes)
        measured = Measured(session.spark, bootstrap, own, arguments.rows, frame)
        if "latency" in figures:
            taken_s = {f"{kind}, s": measured.latency_s(kind) for kind in kinds}
            report.row("latency of 1 record", taken_s)
        for figure in [each for each in figures if each in RATES]:
            taken: dict[str, Taken] = {}
            for _ in range(arguments.rounds):
                for kind in kinds:
                    taken[kind] = measured.run(figure, kind).least(taken.get(kind))
            report.rates(figure, arguments.rows, taken, of=("barnabas", "kafka"))
        if "brokers" in figures and bootstrap_is_ours(arguments):
            compare_brokers(session.spark, frame, bootstrap, own, arguments, f"{folder}/apache", report)
        if "bad" in figures:
            best: dict[str, Taken] = {}
            for name, each in measured.flows_taken(arguments.rounds, Path(folder)):
                best[name] = each.least(best.get(name))
            report.rates("flow", arguments.rows, best, of=("1% bad records", "no bad records"))
    return report.rows


def compare_brokers(
    spark: Any,
    frame: Any,
    bootstrap: str,
    own: Collection[int],
    arguments: argparse.Namespace,
    folder: str,
    report: Report,
) -> None:
    """Rows of what our format reads and writes, from our broker and from Apache's. CPU seconds are without the brokers'."""
    with systems.cluster(systems.THEIRS, folder) as running:
        clusters = [*own, running.process.pid]
        places = {systems.OURS: bootstrap, systems.THEIRS: running.bootstrap}
        of_each = {name: Measured(spark, address, clusters, arguments.rows, frame) for name, address in places.items()}
        for figure in ("raw", "sink"):
            taken: dict[str, Taken] = {}
            for _ in range(arguments.rounds):
                for name, of_one in of_each.items():
                    taken[name] = of_one.run(figure, "barnabas").least(taken.get(name))
            report.rates(f"{figure}, brokers", arguments.rows, taken, of=(systems.OURS, systems.THEIRS))
        del of_one
        of_each.clear()  # their clients would complain of a cluster that has ended


def find_jars(folders: Sequence[Path]) -> list[Path]:
    """The connector's jars, in Maven's folders or side by side; none, with a word about it, if one is missing."""
    found: list[Path] = []
    for jar in JARS:
        places = [folder / name for folder in folders for name in (jar, Path(jar).name)]
        there = next((place for place in places if place.is_file()), None)
        if there is None:
            where = " and ".join(dict.fromkeys(map(str, folders)))
            print(
                f"not measured: Spark's connector, for {Path(jar).name} is not in {where} (see --help)", file=sys.stderr
            )
            return []
        found.append(there)
    return found


def bootstrap_is_ours(arguments: argparse.Namespace) -> bool:
    """Whether brokers can be compared: the cluster is ours, and Apache's is at hand."""
    reason = (
        "the cluster may be any" if arguments.bootstrap else "" if systems.HAS_REFERENCE else "needs ../shared, Java"
    )
    if reason:
        print(f"not measured: our broker beside Apache's: {reason}", file=sys.stderr)
    return not reason


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 300
    while not condition():
        if time.monotonic() > deadline:
            sys.exit("no result within 300 s")
        time.sleep(0.02)


if __name__ == "__main__":
    sys.exit(main())
