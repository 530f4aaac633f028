"""The source's stream reader as Spark's driver and workers call it, against a running
cluster, without Spark itself."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.spark
pytest.importorskip("pyspark")

from pyspark.sql.streaming.datasource import ReadAllAvailable  # noqa: E402

from barnabas.base.errors import ConfigError  # noqa: E402
from barnabas.pipelines.cluster.options import SourceOptions  # noqa: E402
from barnabas.pipelines.connector.data_source import SCHEMA, TopicReader, TopicStreamReader  # noqa: E402
from barnabas.pipelines.connector.lost_records import LostRecords, lost_file  # noqa: E402
from barnabas.pipelines.errors import DataLossError  # noqa: E402

ALL = ReadAllAvailable()


def stream(cluster: Any, topic: str, **options: str) -> TopicStreamReader:
    given = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": topic, "startingOffsets": "earliest", **options}
    return TopicStreamReader(SourceOptions.parse(given, streaming=True), SCHEMA)


def lax_flow(checkpoint: Path) -> dict[str, str]:
    """Options of a flow that may lose records."""
    return {"flowSource": "source", "failOnDataLoss": "false", "lostFile": str(lost_file(checkpoint))}


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
    program = "import sys, barnabas.pipelines.connector.data_source; sys.exit('pandas' in sys.modules)"
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
    monkeypatch.setattr("barnabas.pipelines.connector.data_source._IDS_EVERY_S", 0.0)
    topic = cluster.topic(1)
    cluster.produce(topic, numbers(0, 5))
    strict, lax = stream(cluster, topic), stream(cluster, topic, failOnDataLoss="false")
    end = {topic: {"0": 5}}
    assert strict.latestOffset(end, ALL) == lax.latestOffset(end, ALL) == end
    cluster.make_again(topic)
    cluster.produce(topic, numbers(0, 9))
    with pytest.raises(DataLossError, match=f"topic {topic} was deleted and made again"):
        strict.latestOffset(end, ALL)
    moved = lax.latestOffset(end, ALL)
    assert moved == {topic: {"0": 0}}
    assert read(lax, end, moved) == []
    assert lax.latestOffset(moved, ALL) == {topic: {"0": 9}}
    assert read(lax, moved, {topic: {"0": 9}}) == list(range(9))
    assert f"topic {topic} was deleted and made again" in caplog.text


def test_a_flow_moves_positions_in_a_topic_that_was_made_again_to_its_beginning(cluster: Any, tmp_path: Path) -> None:
    """What was planned before is of records that are gone, and is counted, once
    however often it is planned."""
    topic, other = cluster.topic(1), cluster.topic(1)
    cluster.produce(topic, numbers(0, 9))
    cluster.produce(other, numbers(0, 3))
    both = f"{topic},{other}"
    reader = stream(cluster, both, madeAgain=topic, **lax_flow(tmp_path))
    planned = {topic: {"0": 7}, other: {"0": 2}}
    for _ in range(2):
        assert read(reader, {topic: {"0": 5}, other: {"0": 1}}, planned) == [1]
    assert LostRecords(tmp_path).by_partition() == {f"{topic}-0": 2}
    moved = reader.latestOffset(planned, ALL)
    assert moved == {topic: {"0": 0}, other: {"0": 2}}
    end = reader.latestOffset(moved, ALL)
    assert end == {topic: {"0": 9}, other: {"0": 3}}
    assert sorted(read(reader, moved, end)) == sorted([*range(9), 2])


def test_a_topic_that_is_shorter_than_what_was_read_is_read_on(cluster: Any, caplog: pytest.LogCaptureFixture) -> None:
    """If records may be lost: what it has by then is left out, as Spark's connector does;
    the next records are not."""
    topic = cluster.topic(1)
    cluster.produce(topic, numbers(0, 3))
    reader = stream(cluster, topic, failOnDataLoss="false")
    assert reader.latestOffset({topic: {"0": 10}}, ALL) == {topic: {"0": 3}}
    assert read(reader, {topic: {"0": 10}}, {topic: {"0": 3}}) == []
    cluster.produce(topic, numbers(3, 6))
    assert read(reader, {topic: {"0": 3}}, reader.latestOffset({topic: {"0": 3}}, ALL)) == [3, 4, 5]
    assert f"{topic}-0 was read up to 10 and now ends at 3" in caplog.text


def test_records_that_were_seen_and_are_gone_before_they_are_read_are_lost(
    cluster: Any, tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log's end falls back, behind what is read or before it, as after an unclean election: a
    query ends, or counts them."""
    monkeypatch.setattr("barnabas.pipelines.connector.data_source._SETTLE_S", 0.0)
    topic = cluster.topic(1)
    cluster.produce(topic, numbers(0, 9))
    strict, lax, other = stream(cluster, topic), *(stream(cluster, topic, **lax_flow(tmp_path)) for _ in range(2))
    for each in (strict, lax, other):
        # This would be the first to see it.
        monkeypatch.setattr(each, "_notice_new_topics", lambda _: None)
        assert each.latestOffset({topic: {"0": 2}}, ALL) == {topic: {"0": 9}}
    cluster.make_again(topic)
    cluster.produce(topic, numbers(0, 4))
    with pytest.raises(DataLossError, match=f"{topic}-0 ended at 9 and now ends before: records from 4 on are gone"):
        strict.latestOffset({topic: {"0": 2}}, ALL)
    assert lax.latestOffset({topic: {"0": 2}}, ALL) == {topic: {"0": 4}}
    assert LostRecords(tmp_path).by_partition() == {f"{topic}-0": 5}
    assert "records 4 to 8 are gone" in caplog.text
    assert other.latestOffset({topic: {"0": 6}}, ALL) == {topic: {"0": 4}}, (
        "the same records are lost to the second query"
    )
    assert LostRecords(tmp_path).by_partition() == {f"{topic}-0": 5}
    assert lax.latestOffset({topic: {"0": 4}}, ALL) == {topic: {"0": 4}}
    assert LostRecords(tmp_path).by_partition() == {f"{topic}-0": 5}


def test_unread_records_of_a_topic_that_is_made_again_while_a_flow_runs_are_counted(
    cluster: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As far as its queries had seen them; they end, and the flow starts them again."""
    monkeypatch.setattr("barnabas.pipelines.connector.data_source._IDS_EVERY_S", 0.0)
    topic = cluster.topic(1)
    cluster.produce(topic, numbers(0, 9))
    reader = stream(cluster, topic, **lax_flow(tmp_path))
    assert reader.latestOffset({topic: {"0": 3}}, ALL) == {topic: {"0": 9}}
    cluster.make_again(topic)
    cluster.produce(topic, numbers(0, 20))
    with pytest.raises(DataLossError, match="was deleted and made again"):
        reader.latestOffset({topic: {"0": 3}}, ALL)
    assert LostRecords(tmp_path).by_partition() == {f"{topic}-0": 6}


def test_offsets_that_do_not_fit_are_refused(cluster: Any) -> None:
    """Of a topic or partition that is not read, and beyond the end: they are no reason
    to read all, or nothing."""
    topic = cluster.topic(2)
    cluster.produce(topic, numbers(0, 5), partition=0)
    other, far, beyond = (
        json.dumps({topic + "x": {"0": 3}}),
        json.dumps({topic: {"7": 3}}),
        json.dumps({topic: {"0": 99}}),
    )
    for option, text, reason in (
        ("startingOffsets", other, f"startingOffsets: the query does not read {topic}x-0; did you mean {topic}"),
        ("startingOffsets", far, f"startingOffsets: the query does not read {topic}-7"),
        ("startingOffsetsByTimestamp", other, "startingOffsetsByTimestamp: the query does not read"),
        ("endingOffsets", far, f"endingOffsets: the query does not read {topic}-7"),
        ("startingOffsets", beyond, f"startingOffsets: {topic}-0 ends at offset 5, and 99 lies beyond it"),
        ("endingOffsets", beyond, f"endingOffsets: {topic}-0 ends at offset 5, and 99 lies beyond it"),
    ):
        given = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": topic, option: text}
        with pytest.raises(ConfigError, match=reason):
            TopicReader(SourceOptions.parse(given, streaming=False), SCHEMA).partitions()
        if option.startswith("starting"):
            with pytest.raises(ConfigError, match=reason):
                TopicStreamReader(SourceOptions.parse(given, streaming=True), SCHEMA).initialOffset()
    start, end = json.dumps({topic: {"0": 4, "1": -2}}), json.dumps({topic: {"0": 2, "1": -1}})
    given = {
        "kafka.bootstrap.servers": cluster.bootstrap,
        "subscribe": topic,
        "startingOffsets": start,
        "endingOffsets": end,
    }
    with pytest.raises(
        ConfigError, match=f"startingOffsets: {topic}-0 begins at offset 4, and endingOffsets ends it at 2"
    ):
        TopicReader(SourceOptions.parse(given, streaming=False), SCHEMA).partitions()


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
