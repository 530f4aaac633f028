"""Writing a source's dead letters: each one once, although a micro-batch may run again, and even
those that the topic refuses at first.

Before a micro-batch's letters are written, the ends of the dead letters' topic are noted in
``letters-NAME.json`` beside the checkpoint. If Spark runs the micro-batch again, because the
one before did not reach its end, letters that are behind these ends already are left out:
``barnabas.source`` names their records. Where the topic cannot be read they are sent again,
with a warning.

A letter that the topic refuses is changed until it fits (`barnabas.pipelines.connector.letters`).
"""

import contextlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812  # its name in every Spark program

from barnabas.base.errors import BarnabasError
from barnabas.base.files import OsFiles
from barnabas.base.ids import TopicPartition
from barnabas.pipelines.cluster.kafka_cluster import KafkaCluster
from barnabas.pipelines.cluster.offsets import Offsets, from_spark, to_json, to_spark
from barnabas.pipelines.cluster.options import SourceOptions
from barnabas.pipelines.connector.letters import SOURCE, letters_file
from barnabas.pipelines.frames import transforms
from barnabas.pipelines.specification.spec import Flow, Source

__all__ = ["DeadLetters", "last_header", "write_messages"]

_TIMEOUT_MS = 30_000


def last_header(name: str) -> Column:
    """The last header of that name as text; null where a record has none."""
    found = F.filter("headers", lambda each: each["key"] == name)
    return F.try_element_at(F.transform(found, lambda each: each["value"].cast("string")), F.lit(-1))


def write_messages(messages: DataFrame, source: Source, topic: str | None, on_refusal: str, notes: Path) -> None:
    """Write records to a topic, or to those that they name, in the source's cluster."""
    writer = messages.write.format("barnabas").mode("append")
    for name, text in source.producer_kafka.items():
        writer = writer.option(f"kafka.{name}", text)
    if topic:
        writer = writer.option("topic", topic)
    writer.option("onRefusal", on_refusal).option("lettersFile", str(notes.absolute())).save()


class DeadLetters:
    """The letters of one source of a flow."""

    def __init__(self, flow: Flow, source: Source, say: Callable[[str], None]) -> None:
        assert source.bad_rows_topic is not None
        self._flow = flow
        self._source = source
        self._topic: str = source.bad_rows_topic
        self._say = say
        self._path = Path(flow.checkpoint) / f"letters-{source.name}.json"
        self._notes = letters_file(Path(flow.checkpoint))
        kafka = {**source.kafka, "bootstrap.servers": source.bootstrap_servers, "isolation.level": "read_committed"}
        self._options = {**{f"kafka.{name}": text for name, text in kafka.items()}, "subscribe": self._topic}

    def take(self, marked: DataFrame, epoch: int) -> None:
        """The letters of a micro-batch's bad rows; for ``foreachBatch``."""
        bad = transforms.bad_rows(marked).persist()
        try:
            if not bad.isEmpty():
                self.write(bad, epoch)
        finally:
            bad.unpersist()

    def write(self, marked: DataFrame, epoch: int) -> None:
        """Like `take`, for rows of which some are bad."""
        cluster = KafkaCluster(SourceOptions.parse(self._options, streaming=True), timeout_ms=_TIMEOUT_MS)
        begun = self._begun(epoch)
        if begun is None:
            ends: Offsets = {}
            # There is no such topic yet, or the writer will report the error.
            with contextlib.suppress(BarnabasError):
                ends = cluster.at_marks(dict.fromkeys(cluster.partitions(), -1))
            note = {"epoch": epoch, "ends": to_spark(ends)}
            OsFiles().write_atomically(str(self._path), json.dumps(note).encode())
        else:
            marked = self._unwritten(marked, cluster, begun)
        messages = transforms.bad_messages(marked, self._flow.name)
        write_messages(messages, self._source, self._topic, "letter", self._notes)

    def _begun(self, epoch: int) -> Offsets | None:
        """Where the topic ended before the micro-batch was written for the first time.

        None if this is the first time."""
        try:
            note = json.loads(self._path.read_text(encoding="utf-8"))
            return from_spark(note["ends"]) if note["epoch"] == epoch else None
        except FileNotFoundError:
            return None
        except (OSError, ValueError, KeyError, TypeError, BarnabasError):
            # Letters may come twice then, which is better than none.
            self._say(f"warning: {self._path} is damaged: dead letters of one micro-batch may be sent twice")
            return None

    def _unwritten(self, marked: DataFrame, cluster: KafkaCluster, begun: Offsets) -> DataFrame:
        """The rows whose letters are not behind the noted ends."""
        try:
            found = self._written(marked.sparkSession, cluster, begun)
        except (BarnabasError, PySparkException) as error:
            text = error.args[0] if isinstance(error, BarnabasError) else "it cannot be read"
            self._say(f"warning: dead letters of a micro-batch that broke may be in {self._topic} twice: {text}")
            return marked
        return (
            marked if found is None else marked.join(found, transforms.record_position() == F.col("_at"), "left_anti")
        )

    def _written(self, spark: Any, cluster: KafkaCluster, begun: Offsets) -> DataFrame | None:
        ends = cluster.at_marks(dict.fromkeys(cluster.partitions(), -1))
        begins = cluster.at_marks(dict.fromkeys(ends, -2))
        starts = {name: _start(name, begun, begins[name], end) for name, end in ends.items()}
        if starts == ends:
            return None
        reader = spark.read.format("barnabas").options(
            **self._options, includeHeaders="true", startingOffsets=to_json(starts), endingOffsets=to_json(ends)
        )
        letters = reader.load().where(last_header("barnabas.flow") == self._flow.name)
        positions = letters.select(last_header(SOURCE).alias("_at")).distinct().toArrow()
        frame: DataFrame = spark.createDataFrame(positions)
        return frame


def _start(name: TopicPartition, begun: Offsets, begin: int, end: int) -> int:
    """Where letters of the micro-batch may begin; of a topic that was made again, at
    its beginning."""
    offset = begun.get(name, 0)
    return begin if offset > end else max(begin, offset)
