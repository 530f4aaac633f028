"""Streaming queries by either source and sink, for bench/pipelines.py: ours, and Spark's Kafka
connector tuned as ours is.

Both read the same topics and write the same rows. A query reads all that is there
(``Trigger.AvailableNow``) in some micro-batches. The first one, with the start of the query, does
not count: streams run for long. What a start costs is a figure of its own.
"""

import itertools
import os
import tempfile
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

from confluent_kafka.admin import AdminClient, NewTopic
from rounds import CpuClock, Taken

OURS, THEIRS = "barnabas", "kafka"
SCHEMA = "id long, airline string, delay int, at timestamp"
SOURCE_OPTIONS = {
    OURS: {"kafka.max.partition.fetch.bytes": "4194304"},
    THEIRS: {
        "kafka.max.partition.fetch.bytes": "4194304",
        "kafka.fetch.max.bytes": "52428800",
        "kafka.max.poll.records": "10000",
    },
}
"""Ours takes 4 MiB of a partition by itself; the connector 1 MiB, and 500 records at a time."""
SINK_OPTIONS = {
    OURS: {"kafka.compression.type": "lz4", "kafka.batch.size": "524288"},
    THEIRS: {"kafka.compression.type": "lz4", "kafka.batch.size": "524288", "kafka.linger.ms": "20"},
}
"""Ours has lz4 and full batches by itself, and no linger; the connector no
compression, 16 KB, and no linger."""
_MICRO_BATCHES = 5
_POLL_S = 0.02
_SMALL_BATCHES = 20
_SMALL_ROWS = 1000
_PARTITIONS = 500
_TIMEOUT_S = 600


class Queries:
    """The topics, and the queries over them."""

    def __init__(self, spark: Any, bootstrap: str, folder: Path, *, rows: int, row_bytes: int) -> None:
        """``folder`` gets checkpoints and files."""
        self.spark = spark
        self.bootstrap = bootstrap
        self.rows = rows
        self._folder = folder
        self.clusters: Collection[int] = ()
        self._admin = AdminClient({"bootstrap.servers": bootstrap})
        self._numbers = itertools.count()
        self._files = str(folder / "records")
        records(spark, rows, row_bytes).repartition(2 * _MICRO_BATCHES).write.parquet(self._files)
        self.stored = spark.read.parquet(self._files)
        self._topics: dict[str, str] = {}

    def without_clusters(self, processes: Collection[int]) -> None:
        """These children of this process do not count."""
        self.clusters = processes

    def clock(self) -> CpuClock:
        """For this process, Spark and its workers."""
        return CpuClock(os.getpid(), without=self.clusters)

    def new_topic(self, partitions: int) -> str:
        """A topic of this run."""
        name = f"bench-{os.getpid()}-{time.time_ns()}-{next(self._numbers)}"
        self._admin.create_topics([NewTopic(name, partitions, 1)])[name].result(60)
        return name

    def delete(self, topic: str) -> None:
        """Free its disk."""
        self._admin.delete_topics([topic])[topic].result(60)

    def fill(self, topic: str, frame: Any) -> None:
        """Rows in batches as the sinks write them."""
        options = {"kafka.bootstrap.servers": self.bootstrap, "topic": topic, **SINK_OPTIONS[OURS]}
        frame.write.format(OURS).options(**options).mode("append").save()

    def topic(self, figure: str = "raw") -> str:
        """The topic that the query of a figure reads; made and filled for the first one."""
        kind = figure if figure in ("partitions", "small", "begin") else "raw"
        if kind not in self._topics:
            self._topics[kind] = topic = self.new_topic(_PARTITIONS if kind == "partitions" else 2)
            rows = self.rows_of(figure)
            frame = self.stored if rows == self.rows else self.stored.limit(rows)
            if kind == "partitions":
                frame = frame.selectExpr(
                    "key", "value", f"cast(monotonically_increasing_id() % {_PARTITIONS} as int) partition"
                )
            self.fill(topic, frame)
        return self._topics[kind]

    def rows_of(self, figure: str) -> int:
        """How many rows the query of a figure takes."""
        most = {"small": _SMALL_BATCHES * _SMALL_ROWS, "begin": 1}
        return min(self.rows, most.get(figure, self.rows))

    def run(self, figure: str, kind: str) -> Taken:
        """What one query takes. Ends the program if it did not take every row."""
        if figure == "sink":
            return self._write(kind)
        limit = _SMALL_ROWS if figure == "small" else -(-self.rows // _MICRO_BATCHES)
        frame = self.read(kind, self.topic(figure), limit)
        if figure in ("json", "window"):
            frame = frame.selectExpr(f"from_json(cast(value as string), '{SCHEMA}') r").select("r.*")
        if figure == "window":
            frame = windows(frame.withWatermark("at", "10 minutes"))
        writer = frame.writeStream.outputMode("update" if figure == "window" else "append").format("noop")
        return self._timed(writer, self.rows_of(figure), whole=figure == "begin")

    def read(self, kind: str, topic: str, limit: int) -> Any:
        """A stream of the topic, in micro-batches of at most this many records."""
        options = {
            "kafka.bootstrap.servers": self.bootstrap,
            "subscribe": topic,
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": str(limit),
            **SOURCE_OPTIONS[kind],
        }
        return self.spark.readStream.format(kind).options(**options).load()

    def _write(self, kind: str) -> Taken:
        topic = self.new_topic(2)
        files = self.spark.readStream.schema("key binary, value binary").option("maxFilesPerTrigger", 2)
        frame = files.parquet(self._files)
        options = {"kafka.bootstrap.servers": self.bootstrap, "topic": topic, **SINK_OPTIONS[kind]}
        taken = self._timed(frame.writeStream.format(kind).options(**options), self.rows)
        self.delete(topic)
        return taken

    def _timed(self, writer: Any, rows: int, *, whole: bool = False) -> Taken:
        """For all rows, by what the micro-batches after the first one take; or the
        whole query, with its start."""
        with tempfile.TemporaryDirectory(dir=self._folder, ignore_cleanup_errors=True) as checkpoint:
            writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
            clock, before = self.clock(), 0
            query = writer.start()
            while not whole and not before and query.isActive:
                time.sleep(_POLL_S)
                if 0 < (seen := _rows(query)) < rows:
                    clock, before = self.clock(), seen
            if not query.awaitTermination(_TIMEOUT_S):
                raise SystemExit(f"a query did not end within {_TIMEOUT_S} s")
            taken, found = clock.taken(), _rows(query)
        if found != rows:
            raise SystemExit(f"a query took {found} of {rows} rows")
        scale = rows / (rows - before)
        return Taken(taken.seconds * scale, taken.cpu_s * scale)


def _rows(query: Any) -> int:
    """How many rows its micro-batches had so far."""
    return sum(each["numInputRows"] for each in query.recentProgress)


def records(spark: Any, rows: int, row_bytes: int) -> Any:
    """Keys and values: JSON of flights, padded to a size."""
    head = "to_json(struct(id, concat('A', id % 20) airline, int(id % 90) delay, timestamp_seconds(id div 100) at))"
    return spark.range(0, rows, 1, 2).selectExpr(
        "cast(concat('key-', id % 1000) as binary) key", f"cast(rpad({head}, {row_bytes}, ' ') as binary) value"
    )


def windows(frame: Any) -> Any:
    """The mean delay and the number of flights for each airline and minute."""
    from pyspark.sql import functions as F  # noqa: N812  # Spark's habit

    return frame.groupBy("airline", F.window("at", "1 minute")).agg(F.avg("delay"), F.count("*"))
