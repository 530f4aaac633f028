"""kill -9 of a broker and of the coordination server under an idempotent acks=all load.

``BARNABAS_KILLS`` sets how often each is killed (default 3, so that a test run stays
short; 20 for a full trial).
"""

import os
import random
import time
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from support.load import PARTITIONS, Load, assert_exactly_once_in_order, read_all
from support.ports import free_ports
from support.servers import Server
from support.waiting import eventually

KILLS = int(os.environ.get("BARNABAS_KILLS", "3"))
SEED = 7
pytestmark = [pytest.mark.interop, pytest.mark.fault, pytest.mark.timeout(600 + 60 * KILLS)]


@dataclass
class Pair:
    """A coordination server and a broker on it."""

    zookeeper: Server
    broker: Server

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.broker.port}"


@pytest.fixture
def pair(tmp_path: Path):
    """Both servers as processes of their own, stopped at the end."""
    zk_port, port = free_ports(2)
    (tmp_path / "zoo.cfg").write_text(
        f"tickTime=2000\ndataDir={tmp_path}/zk\nclientPort={zk_port}\nclientPortAddress=127.0.0.1\n"
    )
    (tmp_path / "server.properties").write_text(
        f"broker.id=0\nlisteners=PLAINTEXT://127.0.0.1:{port}\nlog.dirs={tmp_path}/logs\n"
        f"zookeeper.connect=127.0.0.1:{zk_port}\noffsets.topic.replication.factor=1\n"
        "log.segment.bytes=2000000\nlog.retention.check.interval.ms=1000\n"
    )
    servers = Pair(
        Server(["zookeeper-server-start", str(tmp_path / "zoo.cfg")], tmp_path / "zk.log", zk_port),
        Server(["server-start", str(tmp_path / "server.properties")], tmp_path / "broker.log", port),
    )
    servers.zookeeper.start()
    servers.broker.start()
    yield servers
    servers.broker.stop()
    servers.zookeeper.stop()


@pytest.mark.parametrize("victim", ["broker", "zookeeper"])
def test_killed_with_9_nothing_acknowledged_is_lost_or_doubled(
    pair: Pair, victim: str, tmp_path: Path, record_property
) -> None:
    """After every restart the same producer goes on; at the end each acknowledged
    number is there exactly once."""
    admin = AdminClient({"bootstrap.servers": pair.bootstrap, "log_level": 0})
    topic = NewTopic("trial", PARTITIONS, 1)

    def created() -> bool:
        (made,) = admin.create_topics([topic], request_timeout=10).values()
        try:
            made.result(15)
        except Exception as error:  # a later try shows whether it lasts
            return "TOPIC_ALREADY_EXISTS" in str(error)
        return True

    eventually(created, timeout_s=60, what="the topic is created")
    load = Load(pair.bootstrap, "trial")
    rng = random.Random(SEED)
    server = getattr(pair, victim)
    for _ in range(KILLS):
        before = len(load.acknowledged)
        eventually(lambda before=before: len(load.acknowledged) > before + 1000, timeout_s=60, what="the load goes on")
        time.sleep(rng.uniform(0, 0.3))  # the moment of the kill is the trial's chance, not a wait
        server.kill()
        server.start()
    before = len(load.acknowledged)
    eventually(
        lambda: len(load.acknowledged) > before + 1000, timeout_s=60, what="the load goes on after the last kill"
    )
    load.finish()
    assert load.failed == []
    record_property("acknowledged", len(load.acknowledged))
    record_property("kills, their moments from seed", [KILLS, SEED])
    assert_exactly_once_in_order(load, read_all(pair.bootstrap, "trial"), tmp_path)
