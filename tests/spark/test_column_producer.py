"""The sink's producer of columns against a running cluster, without Spark itself."""

import os
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.spark
pa = pytest.importorskip("pyarrow")

from barnabas.base.errors import BarnabasError  # noqa: E402
from barnabas.client.cluster.admin_connection import ConnectError  # noqa: E402
from barnabas.pipelines.cluster.options import SinkOptions  # noqa: E402
from barnabas.pipelines.connector.column_producer import ColumnProducer, can_write  # noqa: E402
from barnabas.pipelines.connector.letters import noted_letters  # noqa: E402
from barnabas.pipelines.connector.sink import BatchTopicWriter  # noqa: E402
from barnabas.wire.kafka.messages.produce import ProduceRequest  # noqa: E402


def producer(cluster: Any, topic: str, **options: str) -> ColumnProducer:
    return ColumnProducer(SinkOptions.parse({"kafka.bootstrap.servers": cluster.bootstrap, "topic": topic, **options}))


def numbers(count: int, keys: int = 7) -> Any:
    """Rows of a few keys; each value is the row's number."""
    key = pa.array([b"k%d" % (n % keys) for n in range(count)], pa.binary())
    return pa.RecordBatch.from_pydict({"key": key, "value": pa.array([b"%06d" % n for n in range(count)], pa.binary())})


def read(cluster: Any, topic: str) -> dict[bytes, list[int]]:
    """The values of each key in the order of its partition."""
    found: dict[bytes, list[int]] = {}
    for message in cluster.read(topic):
        found.setdefault(message.key(), []).append(int(message.value()))
    return found


def expected(count: int, keys: int = 7) -> dict[bytes, list[int]]:
    return {b"k%d" % key: list(range(key, count, keys)) for key in range(keys)}


def test_rows_go_where_javas_producer_sends_them_and_keep_their_order(cluster: Any) -> None:
    """Keys by murmur2, as librdkafka's murmur2_random has it too; two tasks, one
    producer, small batches."""
    from confluent_kafka import Producer

    topic, other = cluster.topic(5), cluster.topic(5)
    writer = producer(cluster, topic, **{"kafka.batch.size": "3000"})
    assert writer.write([numbers(2000), numbers(0)]) == 2000
    assert writer.write(iter([])) == 0
    writer.close()
    assert read(cluster, topic) == expected(2000)
    java = Producer({"bootstrap.servers": cluster.bootstrap, "partitioner": "murmur2_random"})
    for key in range(7):
        java.produce(other, b"0", b"k%d" % key)
    assert java.flush(30) == 0
    places = {message.key(): message.partition() for message in cluster.read(other)}
    assert {message.key(): message.partition() for message in cluster.read(topic)} == places


def test_batches_that_a_topic_does_not_take_are_cut_until_it_does(cluster: Any) -> None:
    """A topic's max.message.bytes is not known before; a row that is larger is an error."""
    topic = cluster.topic(1, {"max.message.bytes": "2000"})
    writer = producer(cluster, topic, **{"kafka.compression.type": "none"})
    assert writer.write([numbers(3000)]) == 3000
    assert read(cluster, topic) == expected(3000)
    large = pa.RecordBatch.from_pydict({"value": pa.array([b"v" * 5000], pa.binary())})
    remedy = f"--topic {topic} --add-config max.message.bytes=BYTES"
    with pytest.raises(BarnabasError, match=f"cannot write to {topic}, partition 0: .*allows 2000.*{remedy}"):
        writer.write([large])
    writer.close()


def test_rows_that_librdkafka_writes_go_in_batches_that_the_topic_takes(cluster: Any) -> None:
    """The options ask for what only librdkafka has; a row that is larger is an error with
    the setting and its value."""
    from pyspark.sql.types import BinaryType, StructType

    topic = cluster.topic(1, {"max.message.bytes": "2000"})
    options = {"kafka.bootstrap.servers": cluster.bootstrap, "topic": topic, "kafka.linger.ms": "5"}
    schema = StructType().add("key", BinaryType()).add("value", BinaryType())
    writer = BatchTopicWriter(SinkOptions.parse(options), schema)
    assert writer.write(iter([numbers(3000)])).rows == 3000
    assert read(cluster, topic) == expected(3000)
    large = pa.RecordBatch.from_pydict({"key": pa.array([b"k"]), "value": pa.array([os.urandom(5000)])})
    with pytest.raises(BarnabasError, match=r"it has 5001 bytes, .*; the topic's max\.message\.bytes=2000 is smaller"):
        writer.write(iter([large]))


@pytest.mark.parametrize("kafka", [{}, {"kafka.linger.ms": "5"}], ids=["ours", "librdkafka"])
def test_letters_that_a_topic_does_not_take_are_changed_until_it_does(
    cluster: Any, tmp_path: Path, kafka: dict[str, str]
) -> None:
    """A compacted topic with a small limit gets one letter for each record, in both ways of
    writing; each is noted once."""
    from pyspark.sql.types import ArrayType, BinaryType, StringType, StructType

    topic = cluster.topic(1, {"max.message.bytes": "2000", "cleanup.policy": "compact"})
    headers = StructType().add("key", StringType()).add("value", BinaryType())
    schema = StructType().add("key", BinaryType()).add("value", BinaryType()).add("headers", ArrayType(headers))
    options = {"kafka.bootstrap.servers": cluster.bootstrap, "topic": topic, **kafka}
    options |= {"onRefusal": "letter", "lettersFile": str(tmp_path / "notes")}
    large = os.urandom(1_100_000)
    values = [b"small", large, None, b"other", os.urandom(1600)]
    rows = pa.RecordBatch.from_pydict(
        {
            "key": pa.array([None, None, b"k", b"k", b"k"], pa.binary()),
            "value": pa.array(values, pa.binary()),
            "headers": pa.array(
                [[{"key": "barnabas.source", "value": b"t-0-%d" % n}, {"key": "own", "value": None}] for n in range(5)],
                pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
            ),
        }
    )
    assert BatchTopicWriter(SinkOptions.parse(options), schema).write(iter([rows])).rows == 5
    found = {dict(each.headers())["barnabas.source"]: each for each in cluster.read(topic)}
    assert len(cluster.read(topic)) == len(found) == 5
    assert found[b"t-0-0"].key() == b"t-0-0"
    assert [found[b"t-0-%d" % n].value() for n in (0, 2, 3, 4)] == [b"small", None, b"other", values[4]]
    cut = found[b"t-0-1"]
    assert len(cut.value()) > 100
    assert large.startswith(cut.value())
    assert int(dict(cut.headers())["barnabas.cut"]) - len("own") == len(large) - len(cut.value())
    assert [each.position for each in noted_letters(tmp_path / "notes").values()] == ["t-0-1"]


def test_a_lost_answer_adds_no_record(cluster: Any) -> None:
    """The broker knows the sequence of a batch that is sent again."""
    topic = cluster.topic(2)
    writer = producer(cluster, topic, **{"kafka.batch.size": "3000"})
    send, lost = writer._connection.send, []

    def lose_every_second(request: Any, *rest: Any, **options: Any) -> Any:
        answer = send(request, *rest, **options)
        if isinstance(request, ProduceRequest):
            lost.append(len(lost) % 2 == 0)
            if lost[-1]:
                raise ConnectError("the connection broke")
        return answer

    writer._connection.send = lose_every_second  # type: ignore[method-assign]
    assert writer.write([numbers(1000)]) == 1000
    writer.close()
    assert sum(lost) >= 3
    assert read(cluster, topic) == expected(1000)


def test_rows_name_their_topics_and_headers(cluster: Any) -> None:
    """Some rows for each of two topics."""
    topics = [cluster.topic(1), cluster.topic(2)]
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    rows = pa.RecordBatch.from_pydict(
        {
            "value": pa.array([f"{n}" for n in range(100)]),
            "topic": pa.array([topics[n % 2] for n in range(100)]),
            "headers": pa.array([[{"key": "n", "value": b"%d" % n}] for n in range(100)], headers),
        }
    )
    writer = ColumnProducer(SinkOptions.parse({"kafka.bootstrap.servers": cluster.bootstrap}))
    assert writer.write([rows]) == 100
    writer.close()
    for number, topic in enumerate(topics):
        messages = cluster.read(topic)
        assert sorted(int(each.value()) for each in messages) == list(range(number, 100, 2))
        assert all(each.headers() == [("n", each.value())] for each in messages)


def test_a_topic_whose_name_is_wrong_is_refused_at_once(cluster: Any) -> None:
    """With the broker's reason."""
    writer = producer(cluster, "no topic/name")
    with pytest.raises(BarnabasError, match="cannot write to no topic/name"):
        writer.write([numbers(1)])
    writer.close()


@pytest.mark.parametrize(
    ("option", "value", "ours"),
    [
        ("compression.type", "zstd", True),
        ("acks", "1", False),
        ("linger.ms", "5", False),
        ("partitioner", "consistent", False),
        ("security.protocol", "SSL", True),
        ("ssl.providers", "default", False),
        ("sasl.mechanisms", "GSSAPI", False),
    ],
)
def test_options_that_only_librdkafka_has_are_left_to_it(option: str, value: str, ours: bool) -> None:
    """None is taken and not heeded."""
    protocol = "SASL_SSL" if option.startswith("sasl") else "SSL" if option.startswith("ssl") else "PLAINTEXT"
    given = {"bootstrap.servers": "localhost:9092", "security.protocol": protocol, option: value}
    assert can_write(given) is ours
