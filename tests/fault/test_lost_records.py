"""All brokers are killed, and one has lost half of its logs: it does not lead while an
intact member may return."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from barnabas.base.errors import BarnabasError
from barnabas.client.admin.admin import AdminConnection
from barnabas.client.admin.topics import PartitionDescription, describe_topics
from barnabas.testing import ProcessCluster
from support.servers import barnabas
from support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.fault]

RECORDS = 2000
DAMAGED = 0
SETTINGS = {"zookeeper.session.timeout.ms": "6000", "replica.high.watermark.checkpoint.interval.ms": "500"}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[ProcessCluster]:
    """2,000 acknowledged records in each topic; then all brokers are killed, and broker
    0's logs are cut by half."""
    with ProcessCluster(3, data_dir=tmp_path, settings=SETTINGS) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        topics = [
            NewTopic("orders", num_partitions=1, replica_assignment=[[0, 1, 2]], config={"min.insync.replicas": "2"}),
            NewTopic("alone", num_partitions=1, replica_assignment=[[DAMAGED]]),
        ]
        for future in admin.create_topics(topics).values():
            future.result(30)
        eventually(lambda: leader(cluster, "orders") == DAMAGED, what="all brokers know the topic")
        for topic in ("orders", "alone"):
            fill(cluster, topic)
            cut_after = 1 if topic == "alone" else 3
            eventually(
                lambda t=topic, n=cut_after: all(checkpoint(cluster, b, t) == RECORDS for b in range(n)),
                what="the high watermark is checkpointed",
            )
        for broker in range(3):
            cluster.pause_broker(broker)  # none of them sees another one die
        for broker in range(3):
            cluster.kill_broker(broker)
        for topic in ("orders", "alone"):
            log = max((cluster.log_dir(DAMAGED) / f"{topic}-0").glob("*.log"))
            os.truncate(log, log.stat().st_size // 2)
        yield cluster


def fill(cluster: ProcessCluster, topic: str) -> None:
    """Small batches, all of them acknowledged by all."""
    options = {"acks": "all", "enable.idempotence": True, "batch.num.messages": 10, "linger.ms": 1}
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, **options})
    acknowledged = []
    for number in range(RECORDS):
        producer.produce(topic, f"{number:04}", on_delivery=lambda error, _: acknowledged.append(error))
        producer.poll(0)
    assert producer.flush(30) == 0
    assert acknowledged == [None] * RECORDS


def checkpoint(cluster: ProcessCluster, broker: int, topic: str) -> int:
    path = cluster.log_dir(broker) / "replication-offset-checkpoint"
    lines = path.read_text().splitlines() if path.exists() else []
    return next((int(line.split()[2]) for line in lines if line.startswith(f"{topic} 0 ")), 0)


def described(cluster: ProcessCluster, topic: str) -> PartitionDescription | None:
    """The topic's only partition; None while no broker answers, or knows the topic."""
    try:
        with AdminConnection(cluster.bootstrap_servers, {"request.timeout.ms": "2000"}) as admin:
            (partition,) = describe_topics(admin, [topic])[0].partitions
            return partition
    except (BarnabasError, OSError):
        return None


def describe(cluster: ProcessCluster, topic: str) -> PartitionDescription:
    return eventually(lambda: described(cluster, topic), what=f"a broker describes {topic}")


def leader(cluster: ProcessCluster, topic: str) -> int | None:
    partition = described(cluster, topic)
    return partition and partition.leader


def read(cluster: ProcessCluster, topic: str) -> list[bytes]:
    settings = {"group.id": "none", "enable.auto.commit": False, "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, **settings})
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        values: list[bytes] = []
        while True:
            for message in consumer.consume(1000, 1):
                if message.error() is None:
                    values.append(message.value())
                elif message.error().code() == KafkaError._PARTITION_EOF:
                    return values
    finally:
        consumer.close()


def log_of(cluster: ProcessCluster, broker: int) -> str:
    return cluster.broker_log(broker).read_text()


def test_nothing_is_lost_though_the_damaged_broker_starts_first(cluster: ProcessCluster) -> None:
    """An intact replica leads when it returns; a partition without another replica is
    led at once, with an error."""
    cluster.start_broker(DAMAGED)
    eventually(lambda: leader(cluster, "alone") == DAMAGED, timeout_s=60, what="the partition without another replica")
    assert "Leading alone-0" in log_of(cluster, DAMAGED)
    assert 0 < len(read(cluster, "alone")) < RECORDS
    orders = describe(cluster, "orders")
    assert orders.leader != DAMAGED
    assert DAMAGED not in orders.isr
    for broker in (1, 2):
        cluster.start_broker(broker)
    eventually(lambda: leader(cluster, "orders") in (1, 2), timeout_s=60, what="an intact replica leads")
    assert read(cluster, "orders") == [b"%04d" % number for number in range(RECORDS)]
    eventually(lambda: set(describe(cluster, "orders").isr) == {0, 1, 2}, timeout_s=60, what="all in sync again")
    logs = {max((cluster.log_dir(broker) / "orders-0").glob("*.log")).read_bytes() for broker in range(3)}
    assert len(logs) == 1
    # The leader counts the replica as in sync by its fetch; the replica forgets the
    # loss by the response.
    note = cluster.log_dir(DAMAGED) / "orders-0" / "barnabas-lost-data"
    eventually(lambda: not note.exists(), what="the note of the loss is gone")


def test_an_operator_may_let_the_damaged_broker_lead(cluster: ProcessCluster) -> None:
    """No other broker returns: an unclean election on demand gives up what is missing."""
    cluster.start_broker(DAMAGED)
    eventually(lambda: leader(cluster, "alone") == DAMAGED, timeout_s=60, what="broker 0 in service")
    eventually(lambda: describe(cluster, "orders").offline == [1, 2], what="the registrations of the others are gone")
    assert describe(cluster, "orders").leader is None
    options = ["--topic", "orders", "--partition", "0", "--election-type", "unclean"]
    done = barnabas("leader-election", "--bootstrap-server", cluster.bootstrap_servers, *options)
    assert done.returncode == 0, done.stdout + done.stderr
    eventually(lambda: leader(cluster, "orders") == DAMAGED, what="broker 0 leads")
    values = read(cluster, "alone")
    assert values == [b"%04d" % number for number in range(len(values))]
    assert "Leading orders-0" in log_of(cluster, DAMAGED)
