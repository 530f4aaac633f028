"""The source's stream reader as Spark's driver and workers call it, against a running cluster, without Spark itself."""

import subprocess
import sys
from typing import Any

import pytest

pytestmark = pytest.mark.spark
pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable  # noqa: E402

from barnabas.pipelines.errors import DataLossError  # noqa: E402
from barnabas.pipelines.options import SourceOptions  # noqa: E402
from barnabas.pipelines.source import SCHEMA, TopicStreamReader  # noqa: E402

ALL = ReadAllAvailable()


def stream(cluster: Any, topic: str, **options: str) -> TopicStreamReader:
    given = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": topic, "startingOffsets": "earliest", **options}
    return TopicStreamReader(SourceOptions.parse(given, streaming=True), SCHEMA)


def read(reader: TopicStreamReader, start: Any, end: Any) -> list[int]:
    """The values, which are numbers, of a micro-batch."""
    found: list[int] = []
    for partition in reader.partitions(start, end):
        for batch in reader.read(partition):
            found += [int(value) for value in batch["value"].to_pylist()]
    return found


def numbers(first: int, end: int) -> list[tuple[None, bytes]]:
    return [(None, b"%06d" % n) for n in range(first, end)]


def test_the_source_does_without_pandas() -> None:
    """Each of Spark's workers imports the source, and would spend a quarter of a second more."""
    program = "import sys, barnabas.pipelines.source; sys.exit('pandas' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_fetching_ahead_keeps_every_record_in_order(cluster: Any) -> None:
    """A range of hundreds of fetches; a second range goes over the same connection."""
    topic = cluster.topic(1)
    cluster.produce(topic, numbers(0, 30_000))
    reader = stream(cluster, topic, **{"kafka.max.partition.fetch.bytes": "1000"})
    start = reader.initialOffset()
    assert read(reader, start, {topic: {"0": 20_000}}) == list(range(20_000))
    assert read(reader, {topic: {"0": 20_000}}, reader.latestOffset(start, ALL)) == list(range(20_000, 30_000))


def test_a_reader_that_is_left_early_does_not_hang(cluster: Any) -> None:
    """As under LIMIT."""
    topic = cluster.topic(1)
    cluster.produce(topic, numbers(0, 5_000))
    reader = stream(cluster, topic, **{"kafka.max.partition.fetch.bytes": "1000"})
    (partition,) = reader.partitions(reader.initialOffset(), {topic: {"0": 5_000}})
    batches = reader.read(partition)
    assert next(iter(batches)).num_rows
    batches.close()  # type: ignore[attr-defined]  # it is a generator
    assert read(reader, {topic: {"0": 4_990}}, {topic: {"0": 5_000}}) == list(range(4_990, 5_000))


def test_a_micro_batch_waits_for_enough_records_but_not_beyond_the_delay(cluster: Any) -> None:
    """Until then the offsets stay where they are; AvailableNow does not wait."""
    topic = cluster.topic(1)
    cluster.produce(topic, numbers(0, 10))
    reader = stream(cluster, topic, minOffsetsPerTrigger="20", maxTriggerDelay="1h")
    start = reader.initialOffset()
    assert reader.latestOffset(start, ALL) == start
    cluster.produce(topic, numbers(10, 20))
    assert reader.latestOffset(start, ALL) == {topic: {"0": 20}}
    at_once = stream(cluster, topic, minOffsetsPerTrigger="1000", maxTriggerDelay="0")
    assert at_once.latestOffset(start, ALL) == {topic: {"0": 20}}
    ends = stream(cluster, topic, minOffsetsPerTrigger="1000", maxTriggerDelay="1h")
    ends.prepareForTriggerAvailableNow()
    assert ends.latestOffset(start, ALL) == {topic: {"0": 20}}


def test_a_topic_that_is_made_again_is_noticed_though_it_is_longer(
    cluster: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Its id says so; the query ends, or warns if it may lose records."""
    monkeypatch.setattr("barnabas.pipelines.source._IDS_EVERY_S", 0.0)
    topic = cluster.topic(1)
    cluster.produce(topic, numbers(0, 5))
    strict, lax = stream(cluster, topic), stream(cluster, topic, failOnDataLoss="false")
    end = {topic: {"0": 5}}
    assert strict.latestOffset(end, ALL) == lax.latestOffset(end, ALL) == end
    cluster.make_again(topic)
    cluster.produce(topic, numbers(0, 9))
    with pytest.raises(DataLossError, match=f"topic {topic} was deleted and made again"):
        strict.latestOffset(end, ALL)
    assert lax.latestOffset(end, ALL) == {topic: {"0": 9}}
    assert f"topic {topic} was deleted and made again" in caplog.text


def test_partitions_that_are_added_are_read_from_their_first_record(
    cluster: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """And reported once."""
    topic = cluster.topic(1)
    reader = stream(cluster, topic)
    start = reader.latestOffset(reader.initialOffset(), ALL)
    cluster.add_partitions(topic, 2)
    cluster.produce(topic, numbers(0, 3), partition=1)
    end = reader.latestOffset(start, ALL)
    assert end == {topic: {"0": 0, "1": 3}}
    assert read(reader, start, end) == [0, 1, 2]
    assert f"new partitions, read from their first record: {topic}-1" in caplog.text
