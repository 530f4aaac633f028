"""What README's table says of Python's clients and of kcat beyond the data path: offsets,
idempotence, admin calls."""

import asyncio
import subprocess
import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka import TopicPartition as AioTopicPartition
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewPartitions as AioNewPartitions
from aiokafka.admin import NewTopic as AioNewTopic
from aiokafka.admin.config_resource import ConfigResource as AioConfigResource
from aiokafka.admin.config_resource import ConfigResourceType as AioConfigResourceType
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic
from kafka import KafkaConsumer, KafkaProducer, TopicPartition
from kafka.admin import ConfigResource as PythonConfigResource
from kafka.admin import ConfigResourceType, KafkaAdminClient

from support.needs import needs
from support.servers import Up, up
from support.waiting import eventually

pytestmark = pytest.mark.interop
RETENTION_MS = "123456"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Up]:
    with up(tmp_path_factory.mktemp("cluster")) as running:
        yield running


def create(bootstrap: str, name: str, partitions: int = 1) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(30)


@pytest.fixture
def topic(cluster: Up) -> str:
    """The name of a new topic with one partition and ten records, a second apart."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    create(cluster.bootstrap, name)
    producer = Producer({"bootstrap.servers": cluster.bootstrap})
    for number in range(10):
        producer.produce(name, str(number), timestamp=START_MS + 1000 * number)
        assert producer.flush(30) == 0
    return name


START_MS = int(time.time() * 1000) - 100_000


def test_librdkafkas_admin_client_takes_a_topic_through_its_life(cluster: Up) -> None:
    """Created with a setting, described, grown and deleted."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    config = {"retention.ms": RETENTION_MS}
    admin.create_topics([NewTopic("life-rd", 1, 1, config=config)])["life-rd"].result(30)
    resource = ConfigResource(ConfigResource.Type.TOPIC, "life-rd")
    assert admin.describe_configs([resource])[resource].result(30)["retention.ms"].value == RETENTION_MS
    admin.create_partitions([NewPartitions("life-rd", 3)])["life-rd"].result(30)
    eventually(lambda: len(admin.list_topics("life-rd", timeout=30).topics["life-rd"].partitions) == 3)
    admin.delete_topics(["life-rd"])["life-rd"].result(30)
    eventually(lambda: "life-rd" not in admin.list_topics(timeout=30).topics)


def test_kafka_pythons_admin_client_takes_a_topic_through_its_life(cluster: Up) -> None:
    """Created with a setting, described, grown and deleted."""
    admin = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    try:
        wanted = {"num_partitions": 1, "replication_factor": 1, "configs": {"retention.ms": RETENTION_MS}}
        admin.create_topics({"life-kp": wanted})
        resource = PythonConfigResource(ConfigResourceType.TOPIC, "life-kp")
        assert RETENTION_MS in str(admin.describe_configs([resource]))
        admin.create_partitions({"life-kp": 3})
        eventually(lambda: len(admin.describe_topics(["life-kp"])[0]["partitions"]) == 3)
        admin.delete_topics(["life-kp"])
        eventually(lambda: "life-kp" not in str(admin.list_topics()))
    finally:
        admin.close()


def test_aiokafkas_admin_client_takes_a_topic_through_its_life(cluster: Up) -> None:
    """Created with a setting, described, grown and deleted."""

    async def run() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=cluster.bootstrap)
        await admin.start()
        try:
            config = {"retention.ms": RETENTION_MS}
            await admin.create_topics([AioNewTopic("life-aio", 1, 1, topic_configs=config)])
            resource = AioConfigResource(AioConfigResourceType.TOPIC, "life-aio")
            assert RETENTION_MS in str(await admin.describe_configs([resource]))
            await admin.create_partitions({"life-aio": AioNewPartitions(3)})
            await until(lambda: admin.describe_topics(["life-aio"]), lambda found: len(found[0]["partitions"]) == 3)
            await admin.delete_topics(["life-aio"])
            await until(admin.list_topics, lambda found: "life-aio" not in found)
        finally:
            await admin.close()

    asyncio.run(run())


async def until(ask: Any, holds: Any) -> None:
    """`eventually` for a coroutine."""
    async with asyncio.timeout(60):
        while not holds(await ask()):  # noqa: ASYNC110  # nothing in this process sets an event
            await asyncio.sleep(0.05)


def test_kafka_python_finds_offsets_by_time_and_at_both_ends(cluster: Up, topic: str) -> None:
    """ListOffsets of the third client."""
    partition = TopicPartition(topic, 0)
    consumer = KafkaConsumer(bootstrap_servers=cluster.bootstrap)
    try:
        assert consumer.beginning_offsets([partition]) == {partition: 0}
        assert consumer.end_offsets([partition]) == {partition: 10}
        assert consumer.offsets_for_times({partition: START_MS + 4500})[partition].offset == 5
    finally:
        consumer.close()


def test_aiokafka_finds_offsets_by_time_and_at_both_ends(cluster: Up, topic: str) -> None:
    """ListOffsets of the fourth."""
    partition = AioTopicPartition(topic, 0)

    async def run() -> None:
        consumer = AIOKafkaConsumer(bootstrap_servers=cluster.bootstrap)
        await consumer.start()
        try:
            assert await consumer.beginning_offsets([partition]) == {partition: 0}
            assert await consumer.end_offsets([partition]) == {partition: 10}
            assert (await consumer.offsets_for_times({partition: START_MS + 4500}))[partition].offset == 5
        finally:
            await consumer.stop()

    asyncio.run(run())


def test_kafka_python_writes_idempotently(cluster: Up, topic: str) -> None:
    """With acks=all; each record is there once, in its order."""
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap, acks="all", enable_idempotence=True)
    sent = [producer.send(topic, b"%d" % number) for number in range(100)]
    producer.flush(60)
    offsets = [future.get(60).offset for future in sent]
    producer.close()
    assert offsets == list(range(10, 110))


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
def test_aiokafka_reads_what_it_wrote_with_every_codec(cluster: Up, codec: str | None) -> None:
    """Compressed by the client, and taken apart by it."""
    name = f"aio-{codec}"
    values = [b"%d" % number * 50 for number in range(300)]

    async def run() -> list[bytes]:
        producer = AIOKafkaProducer(bootstrap_servers=cluster.bootstrap, compression_type=codec, linger_ms=20)
        await producer.start()
        for done in [await producer.send(name, value, partition=0) for value in values]:
            await done
        await producer.stop()
        consumer = AIOKafkaConsumer(name, bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest")
        await consumer.start()
        found: list[bytes] = []
        async with asyncio.timeout(60):
            while len(found) < len(values):
                batches = await consumer.getmany(timeout_ms=1000)
                found += [record.value for records in batches.values() for record in records]
        await consumer.stop()
        return found

    create(cluster.bootstrap, name)
    assert asyncio.run(run()) == values


@needs("kcat")
def test_kcat_writes_idempotently(cluster: Up, topic: str) -> None:
    """Its librdkafka gets a producer id; each line is there once, in its order."""
    lines = "\n".join(map(str, range(100)))
    command = ["kcat", "-b", cluster.bootstrap, "-X", "enable.idempotence=true", "-P", "-t", topic]
    subprocess.run(command, input=lines, text=True, timeout=60, check=True)
    command = ["kcat", "-b", cluster.bootstrap, "-C", "-t", topic, "-o", "10", "-e", "-q"]
    read = subprocess.run(command, stdout=subprocess.PIPE, text=True, timeout=60, check=True).stdout
    assert read.splitlines() == [str(number) for number in range(100)]


@needs("kcat")
def test_kcats_group_goes_on_with_one_member_when_the_other_leaves(cluster: Up) -> None:
    """Two share four partitions; one ends with SIGTERM, and the other gets all."""
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    create(cluster.bootstrap, "shared", 4)
    settings = ("-X", "auto.offset.reset=earliest", "-X", "session.timeout.ms=6000")
    command = ["kcat", "-b", cluster.bootstrap, "-q", *settings, "-G", "kcats", "shared"]
    members = [subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) for _ in range(2)]

    def shares() -> list[int]:
        described = admin.describe_consumer_groups(["kcats"])["kcats"].result(30)
        return sorted(len(member.assignment.topic_partitions) for member in described.members)

    try:
        eventually(lambda: shares() == [2, 2], timeout_s=60, what="two members share")
        members[0].terminate()
        eventually(lambda: shares() == [4], timeout_s=60, what="one member has all")
    finally:
        for member in members:
            member.kill()
            member.wait()
