"""Transactions in a cluster of one broker of ours and one of Apache's: either kind coordinates,
both write markers, and each continues what the other began. And features, which Apache's lack.

The partitions of ``__transaction_state`` and ``__consumer_offsets`` are led by broker 0, ours, and
by broker 1, Apache's; names of groups and of producers are chosen by the partition they fall into.
"""

import itertools
from collections.abc import Iterator

import confluent_kafka
import pytest
from confluent_kafka.admin import NewTopic

from barnabas.broker.metadata.internal_topics import partition_of
from support.mixed import APACHES, LIMIT_S, OURS, MixedCluster, mixed_cluster
from support.needs import needs_reference
from support.servers import barnabas
from support.transaction_copies import committed, read_committed, repeat
from support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.java, pytest.mark.fault, needs_reference, pytest.mark.timeout(600)]

BROKERS = {OURS: 0, APACHES: 1}
OTHER = {OURS: APACHES, APACHES: OURS}
either_coordinates = pytest.mark.parametrize("coordinating", [OURS, APACHES])


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedCluster]:
    settings = {
        "auto.create.topics.enable": "false",
        "auto.leader.rebalance.enable": "false",
        "controlled.shutdown.max.retries": "1",
        "offsets.topic.num.partitions": "2",
        "offsets.topic.replication.factor": "2",
        "transaction.state.log.min.isr": "1",
        "transaction.state.log.num.partitions": "2",
        "transaction.state.log.replication.factor": "2",
        "zookeeper.session.timeout.ms": "6000",
    }
    with mixed_cluster(tmp_path_factory.mktemp("mixed"), [OURS, APACHES], settings=settings) as running:
        eventually(lambda: len(running.admin.list_topics(timeout=10).brokers) == 2, timeout_s=LIMIT_S)
        for internal in ("__transaction_state", "__consumer_offsets"):
            create(running, internal, cleanup_policy="compact")
        yield running


def create(cluster: MixedCluster, topic: str, **config: str) -> str:
    """A topic whose partition 0 ours leads, and 1 Apache's; both have a replica of each."""
    named = {name.replace("_", "."): value for name, value in config.items()}
    eventually(lambda: cluster.admin.list_topics(timeout=30).controller_id == cluster.controller, timeout_s=LIMIT_S)
    wanted = NewTopic(topic, 2, replica_assignment=[[0, 1], [1, 0]], config=named)
    for done in cluster.admin.create_topics([wanted]).values():
        done.result(LIMIT_S)
    cluster.await_leader(topic, 0, 0)
    cluster.await_leader(topic, 1, 1)
    return topic


def give_leaders_back(cluster: MixedCluster) -> None:
    """After a restart each partition is led by its first replica again."""
    cluster.await_whole()
    done = barnabas(
        *("leader-election", "--election-type", "preferred", "--all-topic-partitions"),
        *("--bootstrap-server", cluster.bootstrap),
        timeout_s=LIMIT_S,
    )
    assert done.returncode == 0, done.stderr
    for topic in cluster.topics():
        for partition in (0, 1):
            cluster.await_leader(topic, partition, partition)


def named_for(kind: str, prefix: str) -> str:
    """A group or a transactional id that a broker of this kind coordinates."""
    names = (f"{prefix}-{number}" for number in itertools.count())
    return next(name for name in names if partition_of(name, 2) == BROKERS[kind])


def producer_of(cluster: MixedCluster, name: str) -> confluent_kafka.Producer:
    made = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap, "transactional.id": name, "log_level": 0}
        | {"transaction.timeout.ms": 120_000, "reconnect.backoff.max.ms": 500, "linger.ms": 2}
    )
    repeat(lambda: made.init_transactions(30))
    return made


def write(producer: confluent_kafka.Producer, topic: str, *values: str) -> None:
    for value, partition in itertools.product(values, (0, 1)):
        producer.produce(topic, value, partition=partition)


@either_coordinates
def test_a_transaction_spans_partitions_and_groups_of_both_kinds(cluster: MixedCluster, coordinating: str) -> None:
    """Committed records and offsets are seen, aborted ones are not, whichever kind leads."""
    topic = create(cluster, f"spans-{coordinating}")
    producer = producer_of(cluster, named_for(coordinating, "spans"))
    groups = [named_for(kind, f"group-{coordinating}") for kind in BROKERS]
    expected: list[str] = []
    for number in range(20):
        producer.begin_transaction()
        write(producer, topic, *(f"{number}-{part}" for part in range(3)))
        for group in groups:
            reader = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": group})
            offsets = [confluent_kafka.TopicPartition(topic, 0, number)]
            metadata = reader.consumer_group_metadata()
            repeat(lambda: producer.send_offsets_to_transaction(offsets, metadata, 30))  # noqa: B023
            reader.close()
        if number % 3 == 2:
            producer.flush(LIMIT_S)
            repeat(lambda: producer.abort_transaction(30))
        else:
            repeat(lambda: producer.commit_transaction(30))
            expected += [f"{number}-{part}" for part in range(3)]
    for partition in (0, 1):
        assert read_committed(cluster.bootstrap, topic, partition) == expected
        assert len(read_committed(cluster.bootstrap, topic, partition, "read_uncommitted")) == 60
    assert [committed(cluster.bootstrap, group, topic) for group in groups] == [19, 19]


@either_coordinates
def test_the_other_kind_continues_what_a_coordinator_began(cluster: MixedCluster, coordinating: str) -> None:
    """The coordinator's broker stops in the middle of a transaction; the other one ends it."""
    topic = create(cluster, f"continues-{coordinating}")
    name = named_for(coordinating, "continues")
    producer = producer_of(cluster, name)
    producer.begin_transaction()
    write(producer, topic, "aborted")
    producer.flush(LIMIT_S)
    repeat(lambda: producer.abort_transaction(30))
    producer.begin_transaction()
    write(producer, topic, "before")
    assert producer.flush(LIMIT_S) == 0
    broker = BROKERS[coordinating]
    cluster.await_whole()
    cluster.stop(broker)
    write(producer, topic, "after")
    repeat(lambda: producer.commit_transaction(30))
    for partition in (0, 1):
        assert read_committed(cluster.bootstrap, topic, partition) == ["before", "after"]
    cluster.start(broker, coordinating)
    give_leaders_back(cluster)
    for partition in (0, 1):
        assert read_committed(cluster.bootstrap, topic, partition) == ["before", "after"]
    assert barnabas("transactions", "list", "--bootstrap-server", cluster.bootstrap).returncode == 0
    fence = producer_of(cluster, name)
    fence.begin_transaction()
    write(fence, topic, "by the next")
    repeat(lambda: fence.commit_transaction(30))
    assert read_committed(cluster.bootstrap, topic, 1) == ["before", "after", "by the next"]
    producer.begin_transaction()
    write(producer, topic, "fenced")
    with pytest.raises(confluent_kafka.KafkaException) as failure:
        producer.commit_transaction(30)
    assert failure.value.args[0].fatal()


def test_apaches_broker_keeps_out_of_a_cluster_with_a_feature_until_it_is_taken_back(cluster: MixedCluster) -> None:
    """While it is a member no feature can be finalized; it stops at its start while one is."""

    def features(*arguments: str) -> tuple[int, str]:
        done = barnabas("features", *arguments, "--bootstrap-server", f"127.0.0.1:{cluster.members[0].port}")
        return done.returncode, done.stdout

    cluster.give_office_to(0)
    eventually(lambda: cluster.admin.list_topics(timeout=10).controller_id == 0, timeout_s=LIMIT_S)
    code, text = features("upgrade", "--feature", "transaction.version=1")
    assert (code, "brokers were found to have incompatible versions" in text) == (1, True)
    cluster.stop(1)
    eventually(lambda: features("upgrade", "--feature", "transaction.version=1")[0] == 0, timeout_s=LIMIT_S)
    assert cluster.read("/feature")["features"] == {"transaction.version": {"max_version_level": 1}}
    cluster.launch(1, APACHES)
    assert cluster.members[1].process.wait(LIMIT_S) != 0
    assert cluster.znodes.exists("/brokers/ids/1") is None
    assert features("disable", "--feature", "transaction.version")[0] == 0
    cluster.start(1, APACHES)
    give_leaders_back(cluster)
