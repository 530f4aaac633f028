"""kill -9 of leaders and coordinators at each moment of a transaction, and of these and the client
in a copy job: a transaction is there whole or not at all.

``BARNABAS_RUNS`` clusters (default 1) see ``BARNABAS_KILLS`` kills each (default 2), while a job
copies ``BARNABAS_RECORDS`` records (default 3,000). A full trial is 20 runs of 5 kills and 100,000
records.
"""

import os
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from barnabas.base.errors import BarnabasError
from barnabas.broker.metadata.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, partition_of
from barnabas.client import Admin
from barnabas.client.admin.topics import PartitionDescription, describe_topics
from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.testing.processes import ProcessCluster
from support.copy_job import CopyJob, Feed, LogFacts
from support.copy_program import INPUT, NAME, OUTPUT, repeated
from support.transaction_copies import committed, read_committed
from support.waiting import eventually

RUNS = int(os.environ.get("BARNABAS_RUNS", "1"))
KILLS = int(os.environ.get("BARNABAS_KILLS", "2"))
RECORDS = int(os.environ.get("BARNABAS_RECORDS", "3000"))
A_TRANSACTION = min(750, RECORDS // 30)
PARTITIONS = 3
STANDSTILL_S = 240
"""A job that copies nothing for so long hangs: an open transaction is aborted after a minute."""
SETTINGS = {"min.insync.replicas": "2", "zookeeper.session.timeout.ms": "6000"}
pytestmark = [pytest.mark.interop, pytest.mark.fault, pytest.mark.timeout(600 + 120 * KILLS)]

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
            lambda: (
                (read_committed(cluster.bootstrap_servers, topic, 0), committed(cluster.bootstrap_servers, name, topic))
                == expected
            ),
            timeout_s=60,
            what="the transaction is whole",
        )
    finally:
        consumer.close()
        cluster.start_broker(killed)


def kill_a_leader(cluster: ProcessCluster, topic: str, partition: int) -> Callable[[], None]:
    """Find the broker that leads a partition; what is returned kills it, and starts it again."""
    killed = leader(cluster, topic, partition)

    def kill() -> None:
        cluster.kill(killed)
        # librdkafka asks a dead group coordinator until it is back, so it comes back.
        eventually(partial(is_led_by_another, cluster, topic, partition, killed), what="another broker leads")
        cluster.start_broker(killed)

    return kill


VICTIMS = ("coordinator in a commit", "client", "leader", "group coordinator", "transaction coordinator")


def attack(cluster: ProcessCluster, job: CopyJob, feed: Feed, victim: str, up_to: int) -> None:
    """Let the job copy more, and kill one meanwhile."""
    partitions = {"leader": (OUTPUT, 0), "group coordinator": (OFFSETS_TOPIC, partition_of(NAME, 50))}
    coordinator = (TRANSACTIONS_TOPIC, partition_of(NAME, 50))
    for topic, partition in (*partitions.values(), coordinator):
        leader(cluster, topic, partition)  # all replicas are in sync
    before = job.copied
    if victim == "coordinator in a commit":
        with cluster.killing_coordinator(NAME, restart=True) as kill:
            feed.allow(up_to)
            eventually(lambda: kill.is_done, timeout_s=STANDSTILL_S, what=f"a commit: {job.lines[-9:]}")
        return
    kill_it = (
        partial(job.kill, timeout_s=STANDSTILL_S)
        if victim == "client"
        else kill_a_leader(cluster, *partitions.get(victim, coordinator))
    )
    feed.allow(up_to)
    job.goes_on(before, timeout_s=STANDSTILL_S)
    kill_it()


@pytest.mark.parametrize("run", range(RUNS))
def test_a_copy_job_copies_each_record_once_while_brokers_and_it_are_killed(
    tmp_path: Path, run: int, record_property: Callable[[str, object], None]
) -> None:
    """None is missing, none is there twice, and each partition is in order."""
    with ProcessCluster(3, settings=SETTINGS, data_dir=tmp_path, faults=True) as cluster:
        for topic in (INPUT, OUTPUT):
            create(cluster, topic, PARTITIONS)
        servers = cluster.bootstrap_servers
        share = RECORDS // (KILLS + 2)
        with (
            Feed(servers, PARTITIONS, RECORDS) as feed,
            CopyJob(servers, PARTITIONS, RECORDS, A_TRANSACTION) as job,
        ):
            feed.allow(share)
            job.goes_on(0, timeout_s=STANDSTILL_S)
            victims = [VICTIMS[(run + number) % len(VICTIMS)] for number in range(KILLS)]
            for number, victim in enumerate(victims, 2):
                attack(cluster, job, feed, victim, number * share)
            feed.finish()
            while job.copied < RECORDS:
                job.goes_on(job.copied, timeout_s=STANDSTILL_S)
            job.finish(timeout_s=STANDSTILL_S)
        facts = [
            LogFacts.of(cluster.log_dir(leader(cluster, OUTPUT, partition)), OUTPUT, partition)
            for partition in range(PARTITIONS)
        ]
        record_property("killed", ", ".join(victims))
        record_property("transactions", dict(sum((each.markers for each in facts), Counter())))
        record_property("clients that hung, and where", dict(Counter(job.hung)))
        record_property("the job said", job.lines)
        assert [each.appended_twice for each in facts] == [[]] * PARTITIONS
        for partition in range(PARTITIONS):
            expected = list(map(str, range(partition, RECORDS, PARTITIONS)))
            assert read_committed(cluster.bootstrap_servers, INPUT, partition) == expected
            assert differences(expected, read_committed(cluster.bootstrap_servers, OUTPUT, partition)) == ([], [], True)


def differences(expected: list[str], found: list[str]) -> tuple[list[str], list[str], bool]:
    """What is missing, what is there too often, and whether the rest is in order."""
    missing, too_many = Counter(expected) - Counter(found), Counter(found) - Counter(expected)
    known = set(expected)
    order = [value for value in dict.fromkeys(found) if value in known]
    return (
        sorted(missing, key=int),
        sorted(too_many, key=int),
        order == [value for value in expected if value in set(found)],
    )


@pytest.mark.parametrize(
    ("found", "result"),
    [
        (["1", "2", "3"], ([], [], True)),
        (["1", "3"], (["2"], [], True)),
        (["1", "2", "2", "3", "1"], ([], ["1", "2"], True)),
        (["1", "3", "2"], ([], [], False)),
    ],
)
def test_the_trial_sees_what_is_missing_doubled_or_out_of_order(
    found: list[str], result: tuple[list[str], list[str], bool]
) -> None:
    """Each is a failure."""
    assert differences(["1", "2", "3"], found) == result
