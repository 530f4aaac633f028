"""The Spark format ``barnabas`` against a running cluster."""

import datetime
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from barnabas.pipelines.cluster.kafka_cluster import ClusterError, KafkaCluster
from barnabas.pipelines.cluster.options import SourceOptions

pytestmark = pytest.mark.spark


def reader(frame: Any, cluster: Any, topic: str, source: str = "barnabas", **options: str) -> Any:
    """A reader of one topic, batch or streaming."""
    configured = frame.format(source).option("kafka.bootstrap.servers", cluster.bootstrap)
    for name, text in {"subscribe": topic, **options}.items():
        configured = configured.option(name, text)
    return configured


def values(rows: list[Any]) -> list[bytes]:
    return sorted(bytes(row.value) for row in rows)


def test_a_batch_has_every_record_with_all_its_columns(spark: Any, cluster: Any) -> None:
    """Keys and values, nulls among them, place, time and headers."""
    topic = cluster.topic(2)
    cluster.produce(topic, [(b"k", b"v"), (None, b""), (b"gone", None)], partition=1)
    rows = reader(spark.read, cluster, topic, includeHeaders="true").load().orderBy("offset").collect()
    assert [(row.key, row.value, row.topic, row.partition, row.offset) for row in rows] == [
        (b"k", b"v", topic, 1, 0),
        (None, b"", topic, 1, 1),
        (b"gone", None, topic, 1, 2),
    ]
    assert all(abs((row.timestamp - datetime.datetime.now()).total_seconds()) < 86_400 for row in rows)  # noqa: DTZ005
    assert all(row.timestampType == 0 and row.headers is None for row in rows)


def test_bounds_and_splits_choose_exactly_the_records_between_them(spark: Any, cluster: Any) -> None:
    """Offsets by partition, cut into more tasks than partitions."""
    topic = cluster.topic(1)
    cluster.produce(topic, [(None, str(n).encode()) for n in range(1000)])
    frame = reader(
        spark.read,
        cluster,
        topic,
        startingOffsets=json.dumps({topic: {"0": 100}}),
        endingOffsets=json.dumps({topic: {"0": 900}}),
        minPartitions="4",
    ).load()
    assert frame.rdd.getNumPartitions() == 4
    assert values(frame.collect()) == sorted(str(n).encode() for n in range(100, 900))


def test_a_time_starts_at_the_first_record_not_before_it(spark: Any, cluster: Any) -> None:
    """startingTimestamp is in milliseconds; a time after the last record gives nothing."""
    topic = cluster.topic(1)
    cluster.produce(topic, [(None, b"a"), (None, b"b")])
    late = str(2**41)
    assert reader(spark.read, cluster, topic, startingTimestamp="1").load().count() == 2
    assert reader(spark.read, cluster, topic, startingTimestamp=late).load().count() == 0


def test_a_query_adds_no_name_to_the_environment_that_all_queries_share(
    spark: Any, cluster: Any, run_query: Callable[..., list[Any]]
) -> None:
    """Java cannot write a map down for one query while another makes it larger."""
    from barnabas.pipelines.connector.data_source import BarnabasDataSource

    class UnreadSource(BarnabasDataSource):
        @classmethod
        def name(cls) -> str:
            return "unread"

    spark.dataSource.register(UnreadSource)
    sources = spark._jsparkSession.sessionState().dataSourceManager()
    environment = sources.lookupDataSource("unread").dataSourceCls().envVars()
    before = set(environment)
    topic = cluster.topic(1)
    cluster.produce(topic, [(None, b"a")])
    run_query(reader(spark.readStream, cluster, topic, "unread", startingOffsets="earliest").load())
    assert environment["SPARK_PYTHON_RUNTIME"] == "PYTHON_WORKER"
    assert set(environment) == before


def test_a_stream_reads_what_is_there_in_batches_of_the_limit(
    spark: Any, cluster: Any, run_query: Callable[..., list[Any]]
) -> None:
    """maxOffsetsPerTrigger holds under availableNow, which needs Spark's mixin."""
    topic = cluster.topic(3)
    cluster.produce(topic, [(str(n).encode(), str(n).encode()) for n in range(900)])
    stream = reader(spark.readStream, cluster, topic, startingOffsets="earliest", maxOffsetsPerTrigger="300").load()
    batches = run_query(stream)
    assert len(batches) == 3
    assert values([row for batch in batches for row in batch]) == sorted(str(n).encode() for n in range(900))


def test_a_restarted_stream_goes_on_where_its_checkpoint_ends(
    spark: Any, cluster: Any, run_query: Callable[..., list[Any]], tmp_path: Path
) -> None:
    """New records only; and the checkpoint holds offsets in the form of Spark's connector."""
    topic = cluster.topic(1)
    cluster.produce(topic, [(None, b"1")])
    stream = reader(spark.readStream, cluster, topic, startingOffsets="earliest").load()
    run_query(stream)
    cluster.produce(topic, [(None, b"2")])
    batches = run_query(stream)
    assert [values(batch) for batch in batches] == [[b"2"]]
    noted = (tmp_path / "checkpoint" / "offsets" / "1").read_text().splitlines()[-1]
    assert json.loads(noted) == {topic: {"0": 2}}


def test_a_checkpoint_written_by_sparks_connector_is_taken_over(
    spark: Any, cluster: Any, run_query: Callable[..., list[Any]], tmp_path: Path
) -> None:
    """The connector's form has no blanks; its offsets are ours."""
    topic = cluster.topic(1)
    cluster.produce(topic, [(None, b"1")])
    stream = reader(spark.readStream, cluster, topic, startingOffsets="earliest").load()
    run_query(stream)
    noted = tmp_path / "checkpoint" / "offsets" / "0"
    lines = noted.read_text().splitlines()
    noted.write_text("\n".join([*lines[:-1], json.dumps(json.loads(lines[-1]), separators=(",", ":"))]))
    (noted.parent / ".0.crc").unlink(missing_ok=True)
    cluster.produce(topic, [(None, b"2")])
    assert [values(batch) for batch in run_query(stream)] == [[b"2"]]


def test_a_pattern_takes_in_every_topic_that_matches(spark: Any, cluster: Any) -> None:
    """The whole name must match, as in Java."""
    first, second = cluster.topic(1), cluster.topic(1)
    cluster.produce(first, [(None, b"1")])
    cluster.produce(second, [(None, b"2")])
    plain = spark.read.format("barnabas").option("kafka.bootstrap.servers", cluster.bootstrap)
    assert values(plain.option("subscribePattern", f"{first}|{second}").load().collect()) == [b"1", b"2"]
    assert values(plain.option("subscribePattern", second).load().collect()) == [b"2"]


def test_rows_written_are_rows_read(spark: Any, cluster: Any) -> None:
    """The sink's columns: key, value, headers, partition; text or bytes."""
    topic = cluster.topic(2)
    frame = spark.sql(
        "select cast(id as string) key, concat('v', id) value, cast(id % 2 as int) partition, "
        "array(struct('h' as key, cast('x' as binary) as value)) headers from range(100)"
    )
    frame.write.format("barnabas").mode("append").option("kafka.bootstrap.servers", cluster.bootstrap).option(
        "topic", topic
    ).save()
    messages = cluster.read(topic)
    assert sorted(int(each.key()) for each in messages) == list(range(100))
    assert all(each.value() == b"v" + each.key() for each in messages)
    assert all(each.partition() == int(each.key()) % 2 for each in messages)
    assert all(each.headers() == [("h", b"x")] for each in messages)


def test_a_stream_can_be_written_to_a_topic(spark: Any, cluster: Any, tmp_path: Path) -> None:
    """``writeStream.format("barnabas")``."""
    source, target = cluster.topic(1), cluster.topic(1)
    cluster.produce(source, [(None, b"1"), (None, b"2")])
    stream = reader(spark.readStream, cluster, source, startingOffsets="earliest").load().selectExpr("key", "value")
    writer = stream.writeStream.format("barnabas").option("kafka.bootstrap.servers", cluster.bootstrap)
    query = writer.option("topic", target).option("checkpointLocation", str(tmp_path / "c")).trigger(availableNow=True)
    assert query.start().awaitTermination(120)
    assert sorted(each.value() for each in cluster.read(target)) == [b"1", b"2"]


def test_a_missing_topic_is_reported(spark: Any, cluster: Any) -> None:
    """By name, without a long wait."""
    with pytest.raises(Exception, match="topic never-made does not exist"):
        reader(spark.read, cluster, "never-made").load().collect()


def test_deleted_records_are_an_error_unless_the_options_allow_them(spark: Any, cluster: Any) -> None:
    """failOnDataLoss as in Spark's connector."""
    from confluent_kafka import TopicPartition
    from confluent_kafka.admin import AdminClient

    topic = cluster.topic(1)
    cluster.produce(topic, [(None, str(n).encode()) for n in range(10)])
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for future in admin.delete_records([TopicPartition(topic, 0, 4)]).values():
        future.result(30)
    gone = {"startingOffsets": json.dumps({topic: {"0": 0}})}
    with pytest.raises(Exception, match="has no offset 0 any more"):
        reader(spark.read, cluster, topic, **gone).load().collect()
    left = reader(spark.read, cluster, topic, failOnDataLoss="false", **gone).load().collect()
    assert values(left) == [str(n).encode() for n in range(4, 10)]


def test_the_topic_that_was_meant_is_suggested(cluster: Any) -> None:
    """The nearest name that there is."""
    topic = cluster.topic(1)
    options = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": f"{topic}x"}
    with pytest.raises(ClusterError, match=rf"topic {topic}x does not exist on .*; did you mean {topic}\?"):
        KafkaCluster(SourceOptions.parse(options, streaming=True)).partitions()


def test_an_address_without_a_broker_is_reported_with_what_to_look_at() -> None:
    """In place of librdkafka's words."""
    options = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}
    cluster = KafkaCluster(SourceOptions.parse(options, streaming=True), timeout_ms=0)

    def ask() -> None:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    with pytest.raises(ClusterError, match=r"no broker answers at 127\.0\.0\.1:1 \(.*is the address right"):
        cluster._until_done("list the topics", ask)
