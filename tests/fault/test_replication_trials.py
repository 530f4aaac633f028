"""Three brokers as processes, RF 3, min ISR 2, an idempotent acks=all load, and kills with 9.

``BARNABAS_KILLS`` sets how many kills there are (default 3, so that a test run stays short; 20 for a full trial).
"""

import os
import random
import time
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from support.load import PARTITIONS, Load, assert_exactly_once_in_order, read_all
from support.ports import free_ports
from support.servers import Server
from support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.fault]
KILLS = int(os.environ.get("BARNABAS_KILLS", "3"))
TOPIC = "trial"


class Trio:
    """A coordination server and three brokers, each a process of its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        zk_port, *ports = free_ports(4)
        (directory / "zoo.cfg").write_text(
            f"tickTime=2000\ndataDir={directory}/zk\nclientPort={zk_port}\nclientPortAddress=127.0.0.1\n"
        )
        self.zookeeper = Server(["zookeeper-server-start", str(directory / "zoo.cfg")], directory / "zk.log", zk_port)
        self.brokers = []
        for number, port in enumerate(ports):
            path = directory / f"server{number}.properties"
            path.write_text(
                f"broker.id={number}\nlisteners=PLAINTEXT://127.0.0.1:{port}\nlog.dirs={directory}/logs{number}\n"
                f"zookeeper.connect=127.0.0.1:{zk_port}\noffsets.topic.replication.factor=3\n"
                "min.insync.replicas=2\nreplica.lag.time.max.ms=3000\nlog.segment.bytes=2000000\n"
            )
            self.brokers.append(Server(["server-start", str(path)], directory / f"broker{number}.log", port))

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{broker.port}" for broker in self.brokers)

    def log_bytes(self, number: int, partition: int) -> bytes:
        """All of a replica's segments, joined."""
        folder = self.directory / f"logs{number}" / f"{TOPIC}-{partition}"
        return b"".join(path.read_bytes() for path in sorted(folder.glob("*.log")))


@pytest.fixture
def trio(tmp_path: Path):
    """All four processes; stopped at the end."""
    cluster = Trio(tmp_path)
    cluster.zookeeper.start()
    for broker in cluster.brokers:
        broker.start()
    yield cluster
    for broker in cluster.brokers:
        broker.stop()
    cluster.zookeeper.stop()


def partitions(admin: AdminClient) -> list:
    found = admin.list_topics(TOPIC, timeout=10).topics[TOPIC].partitions
    return [found[index] for index in sorted(found)]


def test_brokers_killed_with_9_lose_and_double_nothing_and_their_logs_end_equal(trio: Trio, record_property) -> None:
    """Leader or controller, whoever it hits: the load goes on, the dead broker comes back, catches up and rejoins."""
    admin = AdminClient({"bootstrap.servers": trio.bootstrap, "log_level": 0})

    def created() -> bool:
        if len(admin.list_topics(timeout=10).brokers) < 3:
            return False
        (made,) = admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)], request_timeout=10).values()
        try:
            made.result(15)
        except Exception as error:  # whatever it is, the next try tells
            return "TOPIC_ALREADY_EXISTS" in str(error)
        return True

    def whole() -> bool:
        return all(len(partition.isrs) == 3 for partition in partitions(admin))

    eventually(created, timeout_s=30, what="the topic is created")
    load = Load(trio.bootstrap, TOPIC)
    rng = random.Random(7)
    gaps = []
    for kill in range(KILLS):
        before = len(load.acknowledged)
        eventually(lambda before=before: len(load.acknowledged) > before + 1000, timeout_s=60, what="the load goes on")
        eventually(whole, timeout_s=60, what="all replicas are in sync")
        time.sleep(rng.uniform(0, 0.3))  # the moment of the kill is the trial's chance, not a wait
        victim = trio.brokers[kill % 3]
        victim.kill()
        start, before = time.monotonic(), len(load.acknowledged)
        eventually(
            lambda before=before: len(load.acknowledged) > before + 1000, timeout_s=60, what="the others take over"
        )
        gaps.append(round(time.monotonic() - start, 2))
        victim.start()
    eventually(whole, timeout_s=60, what="all replicas are in sync at the end")
    load.finish()
    record_property("acknowledged", len(load.acknowledged))
    record_property("seconds until the load went on", gaps)
    assert load.failed == []
    assert_exactly_once_in_order(load, read_all(trio.bootstrap, TOPIC))
    eventually(
        lambda: all(
            len({trio.log_bytes(number, partition) for number in range(3)}) == 1 for partition in range(PARTITIONS)
        ),
        timeout_s=20,
        what="all replicas have the same bytes",
    )
