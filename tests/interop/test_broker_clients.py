"""The data path with clients that are not ours: librdkafka, kafka-python and aiokafka,
every codec, and restarts."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from kafka import KafkaConsumer, KafkaProducer

from support.ports import free_ports
from support.servers import Server, Up, up
from support.waiting import eventually

pytestmark = pytest.mark.interop

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("cluster"), "--override", "offsets.topic.num.partitions=3") as running:
        yield running


def create(bootstrap: str, topic: str, partitions: int = 1, **config: str) -> str:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for done in admin.create_topics([NewTopic(topic, partitions, 1, config=config)]).values():
        done.result(60)
    return topic


def send(bootstrap: str, topic: str, values: list[bytes], **config: object) -> None:
    errors: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 5, **config})
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: errors.append(error) if error else None)
    assert producer.flush(60) == 0
    assert errors == []


def consume(bootstrap: str, topic: str, count: int, partitions: int = 1, **config: object) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False, **config})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    found: list[bytes] = []
    end = time.monotonic() + 60
    while len(found) < count and time.monotonic() < end:
        for message in consumer.consume(1000, 0.2):
            assert message.error() is None
            found.append(message.value())
    consumer.close()
    return found


@pytest.mark.parametrize("codec", CODECS)
def test_librdkafka_reads_what_it_wrote_with_every_codec(cluster: Up, codec: str) -> None:
    """Idempotent, acks=all, compressed by the client; the broker keeps the batches as they came."""
    topic = create(cluster.bootstrap, f"rd-{codec}")
    values = [b"%d" % n * 50 for n in range(2000)]
    send(cluster.bootstrap, topic, values, **{"compression.type": codec, "enable.idempotence": True})
    assert consume(cluster.bootstrap, topic, len(values)) == values


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
def test_a_topic_with_a_codec_of_its_own_is_recompressed(cluster: Up, codec: str) -> None:
    """compression.type of the topic wins over the producer's."""
    topic = create(cluster.bootstrap, f"topic-{codec}", **{"compression.type": codec})
    values = [b"%d" % n * 50 for n in range(500)]
    send(cluster.bootstrap, topic, values)
    assert consume(cluster.bootstrap, topic, len(values)) == values


@pytest.mark.parametrize("codec", [None, "gzip"])
def test_kafka_python_writes_what_librdkafka_reads_and_the_reverse(cluster: Up, codec: str | None) -> None:
    """Both agree on the bytes."""
    topic = create(cluster.bootstrap, f"kp-{codec}")
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap, compression_type=codec, acks="all")
    values = [b"%d" % n for n in range(300)]
    for value in values:
        producer.send(topic, value)
    producer.flush(60)
    producer.close()
    assert consume(cluster.bootstrap, topic, 300) == values
    reader = KafkaConsumer(
        topic, bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest", consumer_timeout_ms=60_000
    )
    found = []
    for record in reader:
        found.append(record.value)
        if len(found) == 300:
            break
    reader.close()
    assert found == values


def test_aiokafka_writes_idempotently_and_reads_in_a_group(cluster: Up) -> None:
    """A third implementation of the protocol."""
    topic = create(cluster.bootstrap, "aio", 3)

    async def run() -> list[bytes]:
        producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, enable_idempotence=True)
        await producer.start()
        try:
            for n in range(200):
                await producer.send_and_wait(topic, b"%d" % n)
        finally:
            await producer.stop()
        consumer = AIOKafkaConsumer(
            topic, bootstrap_servers=cluster.bootstrap, group_id="aio", auto_offset_reset="earliest"
        )
        await consumer.start()
        found: list[bytes] = []
        try:
            while len(found) < 200:
                batches = await consumer.getmany(timeout_ms=60_000)
                if not batches:
                    break
                found += [record.value for records in batches.values() for record in records]
        finally:
            await consumer.stop()
        return found

    assert sorted(asyncio.run(run())) == sorted(b"%d" % n for n in range(200))


def test_offsets_are_found_by_time(cluster: Up) -> None:
    """ListOffsets through librdkafka: earliest, latest, largest timestamp, and a time between."""
    topic = create(cluster.bootstrap, "times")
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    start_ms = int(time.time() * 1000) - 100_000
    for n in range(10):
        producer.produce(topic, b"x", timestamp=start_ms + n * 1000)
        assert producer.flush(60) == 0
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    partition = TopicPartition(topic, 0)

    def listed(spec: OffsetSpec) -> int:
        (found,) = admin.list_offsets({partition: spec}).values()
        return found.result(60).offset

    assert listed(OffsetSpec.earliest()) == 0
    assert listed(OffsetSpec.latest()) == 10
    assert listed(OffsetSpec.max_timestamp()) == 9
    assert listed(OffsetSpec.for_timestamp(start_ms + 4500)) == 5


def test_a_record_larger_than_the_fetch_limits_is_delivered(cluster: Up) -> None:
    """KIP-74 with a real client."""
    topic = create(cluster.bootstrap, "large")
    value = b"x" * 900_000
    send(cluster.bootstrap, topic, [value])
    limits = {"fetch.message.max.bytes": 1000, "fetch.max.bytes": 1_000_000, "message.max.bytes": 1_000_000}
    assert consume(cluster.bootstrap, topic, 1, **limits) == [value]


@pytest.mark.fault
def test_what_was_acknowledged_is_there_after_a_clean_and_an_unclean_stop(tmp_path: Path) -> None:
    """A broker is stopped with SIGTERM, then with kill -9; the producer goes on with
    its sequence numbers."""
    ports = free_ports(2)
    (tmp_path / "zoo.cfg").write_text(
        f"tickTime=500\ndataDir={tmp_path}/zk\nclientPort={ports[0]}\nclientPortAddress=127.0.0.1\n"
    )
    (tmp_path / "server.properties").write_text(
        f"broker.id=0\nlisteners=PLAINTEXT://127.0.0.1:{ports[1]}\nlog.dirs={tmp_path}/logs\n"
        f"zookeeper.connect=127.0.0.1:{ports[0]}\n"
    )
    coordination = Server(["zookeeper-server-start", str(tmp_path / "zoo.cfg")], tmp_path / "zk.log", ports[0])
    broker = Server(["server-start", str(tmp_path / "server.properties")], tmp_path / "broker.log", ports[1])
    bootstrap = f"127.0.0.1:{ports[1]}"
    coordination.start()
    broker.start()
    try:
        topic = eventually(lambda: _created(bootstrap, "kept"), timeout_s=60, what="the topic is created")
        producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5, "log_level": 0}
        )
        acknowledged: list[bytes] = []
        for n in range(3000):
            if n in (1000, 2000):
                assert producer.flush(60) == 0
                if n == 1000:
                    assert broker.stop() == 0
                else:
                    broker.kill()
                broker.start()
            producer.produce(
                topic, b"%d" % n, on_delivery=lambda error, message: error or acknowledged.append(message.value())
            )
        assert producer.flush(60) == 0
        assert len(acknowledged) == 3000
        assert consume(bootstrap, topic, 3000) == [b"%d" % n for n in range(3000)]
        assert broker.stop() == 0
    finally:
        for server in (broker, coordination):
            if server.process is not None and server.process.poll() is None:
                server.kill()


def _created(bootstrap: str, topic: str) -> str | None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    (done,) = admin.create_topics([NewTopic(topic, 1, 1)], request_timeout=10).values()
    try:
        done.result(15)
    except KafkaException as error:
        return topic if error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS else None
    return topic
