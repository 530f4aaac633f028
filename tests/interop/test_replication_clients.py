"""Replicated topics seen by librdkafka and Apache's tools: stops, refusals, and
replicas that come back."""

import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from barnabas.base.ids import TopicPartition as Name
from barnabas.testing import Cluster
from support.embedded import brokers_of
from support.load import PARTITIONS, Load, assert_exactly_once_in_order, read_all
from support.needs import needs_reference
from support.reference import apache_tool
from support.waiting import eventually

pytestmark = pytest.mark.interop
SETTINGS = {"min.insync.replicas": "2", "replica.lag.time.max.ms": "2000"}


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(3, settings=SETTINGS) as running:
        yield running


def replicas(cluster: Cluster, topic: str, partition: int = 0) -> dict[int, object]:
    """Each running broker's replica of a partition."""
    found = {
        number: server.components.replicas.get(Name(topic, partition)) for number, server in brokers_of(cluster).items()
    }
    return {number: replica for number, replica in found.items() if replica is not None}


def leader_of(cluster: Cluster, topic: str) -> int | None:
    for number, replica in replicas(cluster, topic).items():
        if replica.is_leader:
            return number
    return None


def in_sync(cluster: Cluster, topic: str, count: int) -> bool:
    leader = leader_of(cluster, topic)
    return leader is not None and len(replicas(cluster, topic)[leader].role.isr) == count


def segment_bytes(data: Path, number: int, topic: str, partition: int) -> bytes:
    folder = data / f"kafka-logs-{number}" / f"{topic}-{partition}"
    return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))


def producer(cluster: Cluster, **settings: object) -> Producer:
    return Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "acks": "all",
            "linger.ms": 0,
            "log_level": 0,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            **settings,
        }
    )


def test_leaders_that_stop_and_come_back_cost_no_record_and_end_with_equal_bytes(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Every broker is stopped once under an idempotent load; each rejoins before the next goes."""
    cluster.create_topic("trial", PARTITIONS, 3)
    load = Load(cluster.bootstrap_servers, "trial")
    for victim in range(3):
        before = len(load.acknowledged)
        eventually(lambda before=before: len(load.acknowledged) > before + 500, what="the load goes on")
        cluster.stop_broker(victim)
        before = len(load.acknowledged)
        eventually(lambda before=before: len(load.acknowledged) > before + 500, what="the others take over")
        cluster.start_broker(victim)
        eventually(
            lambda: all(
                any(
                    replica.is_leader and len(replica.role.isr) == 3
                    for replica in replicas(cluster, "trial", partition).values()
                )
                for partition in range(PARTITIONS)
            ),
            what="it is in sync again",
        )
    load.finish()
    assert load.failed == []
    assert_exactly_once_in_order(load, read_all(cluster.bootstrap_servers, "trial"), cluster.data_dir, tmp_path)
    for partition in range(PARTITIONS):
        eventually(
            lambda partition=partition: (
                len({segment_bytes(cluster.data_dir, number, "trial", partition) for number in range(3)}) == 1
            ),
            what="the replicas' files are equal",
        )


def test_below_min_insync_replicas_the_leader_is_read_only_until_one_comes_back(cluster: Cluster) -> None:
    """NOT_ENOUGH_REPLICAS for acks=all, served still for reading; with a second
    replica all goes on."""
    cluster.create_topic("t", 1, 3)
    results: list[KafkaError | None] = []

    def delivered(error: KafkaError | None, _: Message) -> None:
        results.append(error)

    writer = producer(cluster, retries=0)
    writer.produce("t", b"kept", on_delivery=delivered)
    assert writer.flush(60) == 0
    assert results == [None]
    leader = leader_of(cluster, "t")
    others = [number for number in range(3) if number != leader]
    for number in others:
        cluster.stop_broker(number)
    eventually(lambda: in_sync(cluster, "t", 1), what="the leader is alone in the set")
    writer.produce("t", b"refused", on_delivery=delivered)
    assert writer.flush(60) == 0
    assert results[1].code() == KafkaError.NOT_ENOUGH_REPLICAS
    reader = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "log_level": 0})
    reader.assign([TopicPartition("t", 0, 0)])
    assert eventually(lambda: reader.poll(0.5), what="reading goes on").value() == b"kept"
    reader.close()
    cluster.start_broker(others[0])
    eventually(lambda: in_sync(cluster, "t", 2), what="the second replica is in sync")
    writer.produce("t", b"taken", on_delivery=delivered)
    assert writer.flush(60) == 0
    assert results[2] is None


def test_a_group_goes_on_when_its_coordinators_broker_stops(cluster: Cluster) -> None:
    """__consumer_offsets has three replicas: commits survive, and nothing is read
    twice or left out."""
    cluster.create_topic("t", 1, 3)
    writer = producer(cluster)
    for n in range(20):
        writer.produce("t", str(n).encode())
    assert writer.flush(60) == 0
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    reader = Consumer({**settings, "enable.auto.commit": False, "log_level": 0})
    reader.subscribe(["t"])
    seen = [eventually(lambda: reader.poll(0.5), timeout_s=60).value() for _ in range(10)]
    reader.commit(asynchronous=False)
    coordinator = next(
        number
        for number, server in brokers_of(cluster).items()
        if any(
            replica.is_leader and replica.topic_partition.topic == "__consumer_offsets" and replica.log.log_end_offset
            for replica in server.components.replicas
        )
    )
    cluster.stop_broker(coordinator)
    seen += [eventually(lambda: reader.poll(0.5), timeout_s=60).value() for _ in range(10)]

    def committed() -> bool:
        try:
            reader.commit(asynchronous=False)
        except Exception:  # the new coordinator is not found yet, or loads
            return False
        return True

    eventually(committed, timeout_s=60, what="the new coordinator takes commits")
    assert seen == [str(n).encode() for n in range(20)]
    assert reader.committed([TopicPartition("t", 0)], timeout=60)[0].offset == 20
    reader.close()


def test_a_throttled_replica_catches_up_no_faster_than_its_rate() -> None:
    """KIP-73 through librdkafka's admin: lists in the topic, rates of the brokers;
    without them it goes at once."""
    size_bytes, rate = 16_000_000, 4_000_000
    with Cluster(3, settings=SETTINGS) as cluster:
        cluster.create_topic("moved", 1, 3)
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})

        def alter(kind: ResourceType, name: str, **values: str) -> None:
            entries = [
                ConfigEntry(key.replace("_", "."), value, incremental_operation=AlterConfigOpType.SET)
                for key, value in values.items()
            ]
            resource = ConfigResource(kind, name, incremental_configs=entries)
            for done in admin.incremental_alter_configs([resource]).values():
                done.result(60)

        alter(
            ResourceType.TOPIC,
            "moved",
            leader_replication_throttled_replicas="*",
            follower_replication_throttled_replicas="0:0,0:1,0:2",
        )
        for broker in range(3):
            alter(ResourceType.BROKER, str(broker), follower_replication_throttled_rate=str(rate))
        last = next(number for number in range(3) if number != leader_of(cluster, "moved"))
        cluster.stop_broker(last)
        writer = producer(cluster)
        for _ in range(size_bytes // 100_000):
            writer.produce("moved", b"x" * 100_000)
            writer.poll(0)
        assert writer.flush(60) == 0
        start = time.monotonic()
        cluster.start_broker(last)
        eventually(lambda: in_sync(cluster, "moved", 3), what="it is in sync again", timeout_s=60)
        assert time.monotonic() - start > size_bytes / rate / 2
        assert brokers_of(cluster)[last].components.replication_quotas.follower.is_limited


@needs_reference
@pytest.mark.java
def test_apaches_tool_lists_a_partition_as_under_replicated_while_a_broker_is_away(cluster: Cluster) -> None:
    """TopicCommand --describe --under-replicated-partitions, before, during and after."""
    cluster.create_topic("t", 1, 3)

    def under_replicated() -> str:
        return apache_tool(
            "org.apache.kafka.tools.TopicCommand",
            *("--bootstrap-server", cluster.bootstrap_servers, "--describe", "--under-replicated-partitions"),
        ).stdout

    assert "Topic: t" not in under_replicated()
    cluster.stop_broker(2)
    shown = re.compile(r"Topic: t\s+Partition: 0\s+Leader: [01]\s+Replicas: [\d,]+\s+Isr: [01],[01]")
    eventually(lambda: shown.search(under_replicated()), timeout_s=60, what="two of three are in sync")
    cluster.start_broker(2)
    eventually(lambda: in_sync(cluster, "t", 3), timeout_s=60, what="it is in sync again")
    eventually(lambda: "Topic: t" not in under_replicated(), timeout_s=60, what="the tool shows it, too")
