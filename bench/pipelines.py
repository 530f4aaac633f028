#!/usr/bin/env python3
"""Rows a second of the Spark format ``barnabas`` beside Spark's own Kafka connector, on one Spark and one cluster.

usage: bench/pipelines.py [--rows 1000000] [--bytes 100] [--rounds 2] [--bootstrap HOST:PORT]
                          [--only raw,json,window,sink,latency,bad,start] [--output json]

The cluster is ``barnabas up`` unless another is named. Spark's connector needs its jars, which Maven gives:

    for name in org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0 org.apache.commons:commons-pool2:2.13.1 \\
        org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.1.0-preview1 org.apache.kafka:kafka-clients:3.9.2; do
      mvn dependency:get -Dtransitive=false -Dartifact=$name; done

They are looked for in ~/.m2; without them only ours is measured. Both read and write the same records in turns; the best
round counts. Each of the first four is a batch query on two cores: so is what micro-batches do. `latency` is the median micro-batch of
one record, `bad` a flow with 1% undecodable records beside the same flow without, `start` the seconds of a check and until a
flow's first result.
"""

import argparse
import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic
from pipeline_flows import flow_rate, latency_s, start_seconds

from barnabas.pipelines.session import open_session

JARS = (
    "org/apache/spark/spark-sql-kafka-0-10_2.13/4.2.0/spark-sql-kafka-0-10_2.13-4.2.0.jar",
    "org/apache/spark/spark-token-provider-kafka-0-10_2.13/4.1.0-preview1/"
    "spark-token-provider-kafka-0-10_2.13-4.1.0-preview1.jar",
    "org/apache/kafka/kafka-clients/3.9.2/kafka-clients-3.9.2.jar",
    "org/apache/commons/commons-pool2/2.13.1/commons-pool2-2.13.1.jar",
)
FIGURES = ("raw", "json", "window", "sink", "latency", "bad", "start")
RATES = FIGURES[:4]
SCHEMA = "id long, airline string, delay int, at timestamp"


class Measured:
    """The queries that are measured, by either source and sink."""

    def __init__(self, spark: Any, bootstrap: str, rows: int, row_bytes: int) -> None:
        self._spark = spark
        self._bootstrap = bootstrap
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._topics = 0
        self._topic = self._new_topic()
        head = "to_json(struct(id, concat('A', id % 20) airline, int(id % 90) delay, timestamp_seconds(id div 100) at))"
        frame = spark.range(0, rows, 1, 2).selectExpr(
            "cast(concat('key-', id % 1000) as binary) key", f"cast(rpad({head}, {row_bytes}, ' ') as binary) value"
        )
        self._frame = frame.cache()
        self._frame.count()
        self._write("barnabas", self._topic)

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

    def run(self, figure: str, kind: str) -> float:
        """Seconds of one query."""
        if figure == "sink":
            topic = self._new_topic()
            begun = time.perf_counter()
            self._write(kind, topic)
            taken = time.perf_counter() - begun
            self._admin.delete_topics([topic])[topic].result(30)
            return taken
        frame = self._read(kind)
        if figure == "json":
            frame = frame.selectExpr(f"from_json(cast(value as string), '{SCHEMA}') r").select("r.*")
        if figure == "window":
            frame = frame.selectExpr(f"from_json(cast(value as string), '{SCHEMA}') r").select("r.*")
            frame = self._windows(frame)
        begun = time.perf_counter()
        frame.write.format("noop").mode("overwrite").save()
        return time.perf_counter() - begun

    @property
    def topic(self) -> str:
        """The topic that is read."""
        return self._topic

    def flows(self, figures: Sequence[str], kinds: Sequence[str]) -> dict[str, float]:
        """Seconds of small micro-batches, and the rate of a flow with bad records in parts of that without."""
        found: dict[str, float] = {}
        for kind in kinds if "latency" in figures else ():
            found[f"micro-batch of one record, {kind}, s"] = latency_s(
                self._spark, self._bootstrap, self._new_topic(), kind
            )
        if "bad" in figures:
            bad = self._new_topic()
            value = "if(id % 100 = 0, cast('no JSON' as binary), value) value"
            frame = self._frame.selectExpr("key", value.replace("id", "monotonically_increasing_id()"))
            options = {"kafka.bootstrap.servers": self._bootstrap, "topic": bad}
            frame.write.format("barnabas").options(**options).mode("append").save()
            rows = self._frame.count()
            flow_rate(self._spark, self._bootstrap, self._topic, rows, "warm")
            good = flow_rate(self._spark, self._bootstrap, self._topic, rows, "good")
            found["flow with dead letters, thousand rows/s"] = good / 1000
            found["the same with 1% bad records, ratio"] = (
                flow_rate(self._spark, self._bootstrap, bad, rows, "bad") / good
            )
        return found

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
    parser.add_argument("--only", default=",".join(FIGURES))
    parser.add_argument("--output", choices=["text", "json"], default="text")
    arguments = parser.parse_args()
    if unknown := set(arguments.only.split(",")) - set(FIGURES):
        parser.error(f"unknown in --only: {', '.join(sorted(unknown))}; there are {', '.join(FIGURES)}")
    with_cluster(arguments.bootstrap, lambda bootstrap: measure(arguments, bootstrap))
    return 0


def with_cluster(bootstrap: str | None, run: Callable[[str], None]) -> None:
    """Run with the named cluster, or with one of ours that lives as long."""
    if bootstrap:
        run(bootstrap)
        return
    command = [sys.executable, "-m", "barnabas", "up", "--port", "0", "--zk-port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    try:
        run(process.stdout.readline().split()[1])
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(30)


def measure(arguments: argparse.Namespace, bootstrap: str) -> None:
    jars = [Path.home() / ".m2/repository" / each for each in JARS]
    kinds = ["barnabas", "kafka"] if all(each.exists() for each in jars) else ["barnabas"]
    if len(kinds) == 1:
        print("not measured: Spark's connector, whose jars are not in ~/.m2 (see --help)", file=sys.stderr)
    conf = {"spark.jars": ",".join(map(str, jars))} if len(kinds) == 2 else {}
    session = open_session("bench", cores=2, memory="1536m", conf=conf)
    best: dict[str, dict[str, float]] = {}
    try:
        measured = Measured(session.spark, bootstrap, arguments.rows, arguments.bytes)
        for _ in range(arguments.rounds):
            for figure in [each for each in arguments.only.split(",") if each in RATES]:
                for kind in kinds:
                    rate = arguments.rows / measured.run(figure, kind)
                    print(f"{figure} {kind}: {rate / 1000:.0f}k rows/s", file=sys.stderr, flush=True)
                    rates = best.setdefault(figure, {})
                    rates[kind] = max(rates.get(kind, 0.0), rate)
        seconds = measured.flows(arguments.only.split(","), kinds)
    finally:
        session.close()
    if "start" in arguments.only.split(","):
        seconds |= start_seconds(bootstrap, measured.topic, wait_until)
    if arguments.output == "json":
        print(json.dumps({**best, **seconds}, indent=2))
        return
    print(f"{'thousand rows/s':<20}{'barnabas':>12}{'connector':>12}{'ratio':>8}")
    for figure, rates in best.items():
        row = f"{figure:<20}{rates['barnabas'] / 1000:>12.0f}"
        print(
            row
            + (f"{rates['kafka'] / 1000:>12.0f}{rates['barnabas'] / rates['kafka']:>8.2f}" if "kafka" in rates else "")
        )
    for name, value in seconds.items():
        print(f"{name:<48}{value:>10.3f}")


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 300
    while not condition():
        if time.monotonic() > deadline:
            sys.exit("no result within 300 s")
        time.sleep(0.02)


if __name__ == "__main__":
    sys.exit(main())
