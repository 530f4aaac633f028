"""Reading from followers: consumers in a follower's rack, and the tools that compare replicas."""

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from crc32c import crc32c

from barnabas.base.ids import TopicPartition as Name
from barnabas.testing import Cluster
from barnabas.wire.kafka.records.batch_header import read_header
from support.embedded import brokers_of
from support.needs import needs_reference
from support.reference import apache_command
from support.waiting import eventually

pytestmark = pytest.mark.interop
SELECTOR = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
COUNT = 2000
VALUE_BYTES = 500


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(3, racks=3, settings={"replica.selector.class": SELECTOR}) as running:
        yield running


def fill(cluster: Cluster, topic: str) -> None:
    """One partition of three replicas with records that all replicas have and know
    to be committed."""
    cluster.create_topic(topic, 1, 3)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "log_level": 0})
    for n in range(COUNT):
        producer.produce(topic, b"%d" % n + b"x" * VALUE_BYTES)
        producer.poll(0)
    assert producer.flush(30) == 0
    nodes = [server.components for server in brokers_of(cluster).values()]
    eventually(
        lambda: all(node.replicas.partition(Name(topic, 0)).log.high_watermark == COUNT for node in nodes),
        what="all replicas know what is committed",
    )


def leader_and_follower(cluster: Cluster, topic: str) -> tuple[int, int]:
    leader = next(
        number
        for number, server in brokers_of(cluster).items()
        if server.components.replicas.partition(Name(topic, 0)).is_leader
    )
    return leader, (leader + 1) % 3


def test_librdkafka_reads_from_the_follower_in_its_rack(cluster: Cluster) -> None:
    """The leader names the follower, the bytes come from there, and new records go on to come."""
    fill(cluster, "near")
    leader, follower = leader_and_follower(cluster, "near")
    received: dict[int, int] = {}

    def statistics(text: str) -> None:
        for broker in json.loads(text)["brokers"].values():
            received[broker["nodeid"]] = broker["rxbytes"]

    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "g",
            "client.rack": f"R{follower + 1}",
            "statistics.interval.ms": 100,
            "stats_cb": statistics,
            "fetch.message.max.bytes": 50_000,
            "log_level": 0,
        }
    )
    consumer.assign([TopicPartition("near", 0, 0)])
    seen = 0

    def read_up_to(count: int) -> bool:
        nonlocal seen
        for message in consumer.consume(500, 0.5):
            assert message.error() is None, message.error()
            assert message.offset() == seen
            seen += 1
        return seen >= count

    eventually(lambda: read_up_to(COUNT), what="all records are read")
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "log_level": 0})
    producer.produce("near", b"later")
    assert producer.flush(30) == 0
    eventually(lambda: read_up_to(COUNT + 1), what="a new record comes from the follower, too")

    def all_bytes_are_counted() -> bool:
        consumer.poll(0.2)
        return received.get(follower, 0) > COUNT * VALUE_BYTES

    eventually(all_bytes_are_counted, what="the follower served the records")
    assert received.get(leader, 0) < COUNT * VALUE_BYTES / 4
    consumer.close()


@needs_reference
@pytest.mark.java
def test_javas_consumer_reads_from_the_follower_in_its_rack(cluster: Cluster) -> None:
    """Its fetch session at the follower comes to the end of the records, the one at
    the leader does not."""
    fill(cluster, "near")
    leader, follower = leader_and_follower(cluster, "near")

    def reached(broker: int) -> int:
        sessions = tuple(brokers_of(cluster)[broker].components.fetch_sessions._sessions.values())
        offsets = [
            wanted.fetch_offset
            for session in sessions
            if not session.privileged
            for wanted in tuple(session.partitions.values())
        ]
        return max(offsets, default=0)

    command = apache_command("tool", "org.apache.kafka.tools.consumer.ConsoleConsumer")
    command += ["--bootstrap-server", cluster.bootstrap_servers, "--topic", "near", "--from-beginning"]
    for setting in (f"client.rack=R{follower + 1}", "max.partition.fetch.bytes=50000"):
        command += ["--consumer-property", setting]
    running = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        eventually(lambda: reached(follower) == COUNT, what="the follower has served everything", timeout_s=120)
        assert reached(leader) < COUNT / 2
    finally:
        running.terminate()
        running.wait(30)


def corrupt(cluster: Cluster, broker: int, topic: str) -> None:
    """Give the first record of a replica another value, with a CRC that holds."""
    (path,) = (cluster.data_dir / f"kafka-logs-{broker}" / f"{topic}-0").glob("*.log")
    data = bytearray(path.read_bytes())
    size_bytes = read_header(data).size_bytes
    at = data.index(b"xxxx")
    assert at < size_bytes
    data[at] = ord("y")
    data[17:21] = crc32c(data[21:size_bytes]).to_bytes(4, "big")
    with path.open("r+b") as file:
        file.write(data[:size_bytes])


@needs_reference
@pytest.mark.java
def test_apaches_replica_verification_finds_equal_replicas_and_a_corrupt_one(cluster: Cluster, tmp_path: Path) -> None:
    """As replica -2 it reads all three replicas: no lag, no difference; then one
    that was tampered with."""
    fill(cluster, "sound")
    fill(cluster, "tampered")
    _, follower = leader_and_follower(cluster, "tampered")
    corrupt(cluster, follower, "tampered")
    command = apache_command("tool", "org.apache.kafka.tools.ReplicaVerificationTool")
    command += ["--broker-list", cluster.bootstrap_servers, "--time", "-2", "--report-interval-ms", "500"]

    def report(topic: str, found: re.Pattern[str]) -> str:
        out = tmp_path / f"{topic}.txt"
        with out.open("w") as file:
            running = subprocess.Popen([*command, "--topics-include", topic], stdout=file, stderr=subprocess.STDOUT)
        try:
            eventually(
                lambda: found.search(out.read_text()), what=f"a report on {topic}: {found.pattern}", timeout_s=120
            )
        finally:
            running.terminate()
            running.wait(30)
        return out.read_text()

    text = report("sound", re.compile(rf"max lag is 0 for partition sound-0 at offset {COUNT} among 1 partitions"))
    assert "doesn't match" not in text
    report(
        "tampered",
        re.compile(rf"partition tampered-0 has unmatched checksum at offset .*replica {follower}'s checksum"),
    )
