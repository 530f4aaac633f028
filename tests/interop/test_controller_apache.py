"""Our brokers and Apache's in one cluster, and both kinds' znodes side by side."""

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
)
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError

from barnabas.client.admin.groups import prepare_groups
from support.knowing import topic_known
from support.needs import needs_reference
from support.reference import apache_cluster
from support.servers import up
from support.waiting import eventually

pytestmark = [pytest.mark.interop]

OFFSETS_PARTITIONS = "/brokers/topics/__consumer_offsets/partitions/"


def settle(futures: dict[Any, Any]) -> None:
    for future in futures.values():
        future.result()


def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap})


def operate(bootstrap: str) -> None:
    """The same day at both: topics, partitions, configurations, a deletion."""
    client = admin(bootstrap)
    eventually(lambda: client.list_topics(timeout=10).controller_id >= 0, what="there is a controller")
    settle(client.create_topics([NewTopic("plain", 2, 1), NewTopic("set", 1, 1, config={"retention.ms": "1000"})]))
    settle(client.create_topics([NewTopic("gone", 1, 1)]))
    settle(client.create_partitions([NewPartitions("plain", 3)]))
    entry = ConfigEntry("max.message.bytes", "7777", incremental_operation=AlterConfigOpType.SET)
    settle(client.incremental_alter_configs([ConfigResource("topic", "set", incremental_configs=[entry])]))
    entry = ConfigEntry("log.retention.ms", "8888", incremental_operation=AlterConfigOpType.SET)
    settle(client.incremental_alter_configs([ConfigResource("broker", "0", incremental_configs=[entry])]))
    settle(client.delete_topics(["gone"]))


def tree(address: str) -> dict[str, Any]:
    """All znodes as JSON where they are JSON, without what must differ."""
    client = KazooClient(address)
    client.start()
    found: dict[str, Any] = {}

    def walk(path: str) -> None:
        data, stat = client.get(path)
        text = None if data is None else re.sub(rb'"(timestamp|topic_id|id)":"[^"]*"', rb'"\1":"*"', data)
        text = None if text is None else re.sub(rb"127\.0\.0\.1:\d+|(?<=\"port\":)\d+", b"*", text)
        value: Any = text
        if text and text[:1] == b"{":
            value = list(json.loads(text.replace(b":*", b":0")).items())
        found[path] = (value, stat.version, bool(stat.ephemeralOwner))
        for child in client.get_children(path):
            if path != "/" or child != "zookeeper":
                walk(f"{path.rstrip('/')}/{child}")

    walk("/")
    client.stop()
    client.close()
    return found


def attempt(condition: Callable[[], bool]) -> bool:
    """A client whose broker just died may time out once."""
    try:
        return condition()
    except KafkaException:
        return False


def is_deleted(address: str, topic: str) -> bool:
    client = KazooClient(address)
    client.start()
    try:
        return not client.exists(f"/brokers/topics/{topic}") and not client.exists(f"/admin/delete_topics/{topic}")
    finally:
        client.stop()
        client.close()


def has_offsets_topic(address: str) -> bool:
    """All of its partitions have a leader."""
    return sum(path.startswith(OFFSETS_PARTITIONS) and path.endswith("/state") for path in tree(address)) == 50


def features_of(found: dict[str, Any]) -> Any:
    """What the broker says that it supports; empty in the tree from then on."""
    path = "/brokers/ids/0"
    items, *others = found[path]
    found[path] = ([(key, {} if key == "features" else value) for key, value in items], *others)
    return dict(items)["features"]


@needs_reference
@pytest.mark.java
def test_the_same_operations_leave_the_same_znodes_as_apaches(tmp_path: Path) -> None:
    """Paths, keys in their order, values, versions and owners; times, ids and ports aside. Our
    brokers support a feature that Apache's do not have here."""
    trees = []
    with apache_cluster(tmp_path / "apache") as theirs:
        operate(theirs.bootstrap)
        prepare_groups(theirs.bootstrap)  # as `up` does
        eventually(lambda: is_deleted(theirs.zookeeper, "gone") and has_offsets_topic(theirs.zookeeper))
        trees.append(tree(theirs.zookeeper))
    with up(tmp_path / "ours") as ours:
        operate(ours.bootstrap)
        eventually(lambda: is_deleted(ours.zookeeper, "gone") and has_offsets_topic(ours.zookeeper))
        trees.append(tree(ours.zookeeper))
    assert [features_of(each) for each in trees] == [
        {},
        {"transaction.version": {"min_version": 1, "max_version": 2}},
    ]
    assert trees[1] == trees[0]


def exchange(bootstrap: str, other: str, topic: str, partitions: int) -> None:
    """Records produced through one broker are consumed through another, each once."""
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for number in range(600):
        producer.produce(topic, str(number), partition=number % partitions)
    assert producer.flush(60) == 0
    consumer = Consumer({"bootstrap.servers": other, "group.id": "exchange", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(topic, index, 0) for index in range(partitions)])
    values: list[int] = []

    def take() -> bool:
        values.extend(int(message.value()) for message in consumer.consume(200, 1) if message.error() is None)
        return len(values) >= 600

    eventually(take, timeout_s=60, what="all records")
    consumer.close()
    assert sorted(values) == list(range(600))


def leaders(client: AdminClient, topic: str) -> set[int]:
    found = client.list_topics(topic, timeout=10).topics[topic].partitions.values()
    return {partition.leader for partition in found}


@needs_reference
@pytest.mark.java
@pytest.mark.fault
def test_apaches_broker_works_under_our_controller_and_ours_under_apaches(tmp_path: Path) -> None:
    """One ensemble, both kinds of brokers: topics lie on all of them under a controller of
    either kind; so does deletion."""
    single = {"offsets.topic.replication.factor": "1"}
    with (
        up(tmp_path / "ours", brokers=2) as ours,
        apache_cluster(tmp_path / "apache", zookeeper=ours.zookeeper, first_id=7, settings=single) as theirs,
    ):
        client = admin(ours.bootstrap)
        eventually(lambda: set(client.list_topics(timeout=10).brokers) == {0, 1, 7}, timeout_s=90)
        assert client.list_topics(timeout=10).controller_id in (0, 1)
        settle(client.create_topics([NewTopic("under-ours", 6, 1)]))
        topic_known(f"{ours.bootstrap},{theirs.bootstrap}", "under-ours", 6)
        assert leaders(client, "under-ours") == {0, 1, 7}
        exchange(ours.bootstrap, theirs.bootstrap, "under-ours", 6)
        settle(client.delete_topics(["under-ours"]))
        eventually(lambda: is_deleted(ours.zookeeper, "under-ours"))

        remote = KazooClient(ours.zookeeper)
        remote.start()

        def apache_rules() -> bool:
            """End the controller's term until Apache's broker wins it."""
            holder = None
            with contextlib.suppress(NoNodeError):  # it ends by itself, too
                holder = json.loads(remote.get("/controller")[0])["brokerid"]
                if holder != 7:
                    remote.delete("/controller")
            return holder == 7

        eventually(apache_rules, timeout_s=60)
        remote.stop()
        remote.close()
        eventually(lambda: client.list_topics(timeout=10).controller_id == 7)
        settle(client.create_topics([NewTopic("under-apache", 6, 1)]))
        topic_known(f"{ours.bootstrap},{theirs.bootstrap}", "under-apache", 6)
        assert leaders(client, "under-apache") == {0, 1, 7}
        exchange(ours.bootstrap, theirs.bootstrap, "under-apache", 6)
        settle(client.delete_topics(["under-apache"]))
        eventually(lambda: is_deleted(ours.zookeeper, "under-apache"))


@pytest.fixture
def three(tmp_path: Path) -> Iterator[Any]:
    with up(tmp_path, brokers=3) as cluster:
        yield cluster


@pytest.mark.fault
def test_the_controllers_death_interrupts_only_the_partitions_that_it_led(three: Any) -> None:
    """Another broker takes over within the session's time, and topics can be created again."""
    client = admin(three.bootstrap)
    settle(client.create_topics([NewTopic("before", 6, 1)]))
    topic_known(three.bootstrap, "before", 6)
    first = client.list_topics(timeout=10).controller_id
    three.kill(str(first))

    survivors = {0, 1, 2} - {first}

    def succeeded() -> bool:
        found = client.list_topics(timeout=10)
        return found.controller_id in survivors and set(found.brokers) == survivors

    eventually(lambda: attempt(succeeded), timeout_s=60)
    settle(client.create_topics([NewTopic("after", 4, 1)]))
    eventually(lambda: leaders(client, "after") == survivors)
    eventually(lambda: leaders(client, "before") == {*survivors, -1}, what="partitions of the dead have no leader")
