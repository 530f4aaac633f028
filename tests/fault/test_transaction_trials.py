"""kill -9 of leaders and coordinators at each moment of a transaction, and under a copy job: a
transaction is there whole or not at all.

``BARNABAS_COPIES`` sets how many records the job copies (default 5,000; 100,000 for a full trial).
"""

import os
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from barnabas.base.errors import BarnabasError
from barnabas.broker.metadata.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, partition_of
from barnabas.client import Admin
from barnabas.client.admin.topics import PartitionDescription, describe_topics
from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.testing.processes import ProcessCluster
from support.waiting import eventually

COPIES = int(os.environ.get("BARNABAS_COPIES", "5000"))
A_TRANSACTION = 250
PARTITIONS = 3
SETTINGS = {"min.insync.replicas": "2", "zookeeper.session.timeout.ms": "6000"}
pytestmark = [pytest.mark.interop, pytest.mark.fault, pytest.mark.timeout(600)]

Victim = Callable[[ProcessCluster, str], int]


def described(cluster: ProcessCluster, topic: str, partition: int) -> PartitionDescription | None:
    """A partition; None while no broker answers."""
    try:
        with AdminConnection(cluster.bootstrap_servers, {"request.timeout.ms": "2000"}) as admin:
            return describe_topics(admin, [topic])[0].partitions[partition]
    except (BarnabasError, OSError, IndexError):
        return None


def leader(cluster: ProcessCluster, topic: str, partition: int) -> int:
    """The broker that leads a partition, once all its replicas are in sync."""

    def led_by() -> list[int]:
        found = described(cluster, topic, partition)
        if found is None or found.leader is None or len(found.isr) < len(found.replicas):
            return []
        return [found.leader]

    return eventually(led_by, timeout_s=60, what=f"{topic}-{partition} has a leader and all replicas")[0]


def is_led_by_another(cluster: ProcessCluster, topic: str, partition: int, broker_id: int) -> bool:
    found = described(cluster, topic, partition)
    return found is not None and found.leader not in (None, broker_id)


def leader_of_records(cluster: ProcessCluster, name: str) -> int:
    return leader(cluster, f"out-{name}", 0)


def transaction_coordinator(cluster: ProcessCluster, name: str) -> int:
    return leader(cluster, TRANSACTIONS_TOPIC, partition_of(name, 50))


def group_coordinator(cluster: ProcessCluster, name: str) -> int:
    return leader(cluster, OFFSETS_TOPIC, partition_of(name, 50))


@pytest.fixture(scope="module")
def cluster() -> Iterator[ProcessCluster]:
    with ProcessCluster(3, settings=SETTINGS) as running:
        yield running


def create(cluster: ProcessCluster, topic: str, partitions: int) -> None:
    """Make a topic with three replicas, as soon as there are three brokers again."""

    def is_created() -> bool:
        try:
            with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
                admin.create_topic(topic, partitions=partitions, replication_factor=3)
        except BarnabasError:
            return False
        return True

    eventually(is_created, timeout_s=60, what=f"{topic} is made")


def transactional_producer(cluster: ProcessCluster, name: str) -> Producer:
    settings = {"transactional.id": name, "transaction.timeout.ms": 30_000, "log_level": 0}
    settings |= {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200}
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, **settings})
    repeated(lambda: producer.init_transactions(60))
    return producer


def repeated(call: Callable[[], object]) -> None:
    """Call again after errors that pass."""
    deadline = time.monotonic() + 60
    while True:
        try:
            call()
            return
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > deadline:
                raise


def read_committed(cluster: ProcessCluster, topic: str, partition: int) -> list[str]:
    """The values of a partition up to its last stable offset."""
    settings = {"group.id": "reader", "isolation.level": "read_committed", "enable.partition.eof": True}
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0, **settings})
    consumer.assign([TopicPartition(topic, partition, 0)])
    values: list[str] = []
    try:
        while (message := consumer.poll(60)) is not None and message.error() is None:
            values.append(message.value().decode())
        return values
    finally:
        consumer.close()


def committed_offset(cluster: ProcessCluster, group: str, topic: str) -> int:
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": group, "log_level": 0})
    try:
        return consumer.committed([TopicPartition(topic, 0)], timeout=60)[0].offset
    finally:
        consumer.close()


MOMENTS = ("after Produce", "after TxnOffsetCommit", "after EndTxn")


@pytest.mark.parametrize("is_commit", [True, False], ids=["commit", "abort"])
@pytest.mark.parametrize("moment", MOMENTS)
@pytest.mark.parametrize("victim", [leader_of_records, transaction_coordinator, group_coordinator])
def test_a_transaction_survives_the_death_of_a_broker(
    cluster: ProcessCluster, victim: Victim, moment: str, is_commit: bool
) -> None:
    """Its records and its offsets are there, or neither is."""
    name = f"{victim.__name__}-{MOMENTS.index(moment)}-{is_commit}"
    topic = f"out-{name}"
    create(cluster, topic, 1)
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": name, "log_level": 0})
    producer = transactional_producer(cluster, name)
    producer.begin_transaction()
    producer.produce(topic, "one")
    assert producer.flush(60) == 0
    killed = victim(cluster, name)
    offsets = [TopicPartition(topic, 0, 17)]

    def kill(now: str) -> None:
        if now == moment:
            cluster.kill_broker(killed)

    try:
        kill("after Produce")
        repeated(lambda: producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), 60))
        kill("after TxnOffsetCommit")
        repeated(lambda: producer.commit_transaction(60) if is_commit else producer.abort_transaction(60))
        kill("after EndTxn")
        expected = (["one"], 17) if is_commit else ([], -1001)
        eventually(
            lambda: (read_committed(cluster, topic, 0), committed_offset(cluster, name, topic)) == expected,
            timeout_s=60,
            what="the transaction is whole",
        )
    finally:
        consumer.close()
        cluster.start_broker(killed)


class Copy:
    """A job that copies a topic in transactions, until it has copied all."""

    def __init__(self, cluster: ProcessCluster) -> None:
        self._cluster = cluster
        self.copied = 0
        self.starts = 0
        self.error: Exception | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def is_done(self) -> bool:
        if self.error is not None:
            raise self.error
        return self.copied >= COPIES

    def _run(self) -> None:
        try:
            while self.copied < COPIES:
                self.starts += 1
                self._copy()
        except Exception as error:
            self.error = error

    def _copy(self) -> None:
        """Copy until an error that ends a producer."""
        settings = {"group.id": "copy", "auto.offset.reset": "earliest", "isolation.level": "read_committed"}
        servers = self._cluster.bootstrap_servers
        consumer = Consumer({"bootstrap.servers": servers, "enable.auto.commit": False, "log_level": 0, **settings})
        producer = transactional_producer(self._cluster, "copy")
        all_of_it = [TopicPartition("copy-in", partition) for partition in range(PARTITIONS)]
        try:
            while self.copied < COPIES:
                committed = consumer.committed(all_of_it, timeout=60)
                self.copied = sum(max(each.offset, 0) for each in committed)
                consumer.assign([TopicPartition(each.topic, each.partition, max(each.offset, 0)) for each in committed])
                self._copy_from_here(consumer, producer)
        except KafkaException:
            return  # the next producer fences this one
        finally:
            consumer.close()

    def _copy_from_here(self, consumer: Consumer, producer: Producer) -> None:
        """Copy until a transaction is aborted."""
        while self.copied < COPIES:
            messages = [each for each in consumer.consume(A_TRANSACTION, timeout=1) if each.error() is None]
            if not messages:
                continue
            producer.begin_transaction()
            for message in messages:
                producer.produce("copy-out", message.value(), partition=message.partition())
            try:
                positions = consumer.position(consumer.assignment())
                known = [each for each in positions if each.offset >= 0]
                group = consumer.consumer_group_metadata()
                repeated(partial(producer.send_offsets_to_transaction, known, group, 30))
                repeated(partial(producer.commit_transaction, 30))
            except KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    raise
                repeated(partial(producer.abort_transaction, 30))
                return
            self.copied += len(messages)


def test_a_copy_job_copies_each_record_once_while_brokers_die(cluster: ProcessCluster) -> None:
    """None is missing, none is there twice, and each partition is in order."""
    for topic in ("copy-in", "copy-out"):
        create(cluster, topic, PARTITIONS)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    for number in range(COPIES):
        producer.produce("copy-in", str(number), partition=number % PARTITIONS)
        producer.poll(0)
    assert producer.flush(60) == 0
    transactional_producer(cluster, "first")  # the topic of transactions needs three brokers to be made
    copy = Copy(cluster)
    for number, topic in enumerate(("copy-out", TRANSACTIONS_TOPIC, OFFSETS_TOPIC, "copy-out", TRANSACTIONS_TOPIC)):
        wanted = number * COPIES // 6
        eventually(lambda wanted=wanted: copy.is_done or copy.copied >= wanted, timeout_s=120, what="the job goes on")
        partition = 0 if topic == "copy-out" else partition_of("copy", 50)
        killed = leader(cluster, topic, partition)
        cluster.kill_broker(killed)
        # librdkafka asks a dead group coordinator until it is back, so it comes back.
        eventually(partial(is_led_by_another, cluster, topic, partition, killed), what="another broker leads")
        cluster.start_broker(killed)
    eventually(lambda: copy.is_done, timeout_s=240, what="all is copied")
    for partition in range(PARTITIONS):
        expected = [str(number) for number in range(partition, COPIES, PARTITIONS)]
        assert read_committed(cluster, "copy-out", partition) == expected
