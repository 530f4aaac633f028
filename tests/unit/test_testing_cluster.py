"""The cluster inside a test's process, and its pytest fixtures."""

import os
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from kazoo.client import KazooClient

from barnabas.base.errors import BarnabasError
from barnabas.broker.metadata.features import TRANSACTION_VERSION
from barnabas.client.admin.features import describe_features
from barnabas.client.admin.topics import describe_topics
from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.testing import Cluster, ProcessCluster, processes


def produce(cluster: Cluster, topic: str, *values: str) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(60) == 0


def consume(cluster: Cluster, topic: str, count: int) -> list[str]:
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([topic])
    try:
        return [message.value().decode() for message in consumer.consume(count, timeout=60)]
    finally:
        consumer.close()


def test_what_a_client_produces_a_group_consumes() -> None:
    """A cluster of two brokers serves a client of another make."""
    with Cluster(brokers=2) as cluster:
        cluster.create_topic("orders", partitions=2)
        produce(cluster, "orders", "a", "b")
        assert sorted(consume(cluster, "orders", 2)) == ["a", "b"]


@pytest.mark.parametrize(("features", "level"), [(None, 0), ({TRANSACTION_VERSION: 2}, 2)])
def test_a_cluster_has_the_levels_that_a_test_asks_for(features: dict[str, int] | None, level: int) -> None:
    """From its start; none is the default."""
    with Cluster(features=features) as cluster, AdminConnection(cluster.bootstrap_servers) as connection:
        (found,) = describe_features(connection).features
        assert (found.name, found.finalized) == (TRANSACTION_VERSION, level)


def test_a_level_that_is_not_supported_is_refused_before_the_start() -> None:
    """With those that are."""
    with pytest.raises(BarnabasError, match="has the levels 0 to 2, not 9"):
        Cluster(features={TRANSACTION_VERSION: 9})


def test_every_broker_knows_a_topic_when_its_creation_returns() -> None:
    """Each is asked alone, at once, and names all partitions with their leaders; so it is
    with the default number."""
    with Cluster(brokers=3, settings={"num.partitions": "7"}) as cluster:
        for number in range(5):
            for topic, partitions in ((f"given-{number}", 4), (f"default-{number}", -1)):
                cluster.create_topic(topic, partitions, 3)
                for server in cluster.bootstrap_servers.split(","):
                    with AdminConnection(server) as admin:
                        (found,) = describe_topics(admin, [topic])
                    assert len(found.partitions) == (partitions if partitions > 0 else 7)
                    assert all(partition.leader is not None for partition in found.partitions)


def test_a_topics_creation_does_not_wait_for_brokers_that_cannot_hear_of_it() -> None:
    """One that is paused, and one that is cut off from the controller, which is another one."""
    with Cluster(brokers=3, settings={"zookeeper.session.timeout.ms": "30000"}) as cluster:
        with AdminConnection(cluster.bootstrap_servers) as admin:
            controller = admin.describe_cluster().controller_id
        others = sorted({0, 1, 2} - {controller})
        began = time.monotonic()
        cluster.pause(others[0])
        cluster.create_topic("one-is-paused")
        cluster.resume(others[0])
        cluster.partition([controller, others[0]], [others[1]])
        cluster.create_topic("one-is-cut-off")
        assert time.monotonic() - began < 29


def test_a_cluster_started_on_an_old_data_dir_has_its_records(tmp_path: Path) -> None:
    """With data_dir, records outlive the cluster."""
    with Cluster(data_dir=tmp_path) as cluster:
        cluster.create_topic("orders")
        produce(cluster, "orders", "kept")
    with Cluster(data_dir=tmp_path) as cluster:
        assert consume(cluster, "orders", 1) == ["kept"]


def test_a_cluster_with_an_ensemble_loses_one_coordination_server_after_the_other() -> None:
    """Topics are made while each of the three is away in turn, the leader too."""
    with Cluster(zk_servers=3) as cluster:
        addresses = cluster.zookeeper_connect
        assert addresses.count(",") == 2
        for server_id in (1, 2, 3):
            cluster.stop_zookeeper(server_id)
            cluster.create_topic(f"without-{server_id}")
            produce(cluster, f"without-{server_id}", "kept")
            cluster.start_zookeeper(server_id)
            with pytest.raises(BarnabasError, match=f"coordination server {server_id} is running"):
                cluster.start_zookeeper(server_id)
        assert cluster.zookeeper_connect == addresses
        for server_id, address in enumerate(addresses.split(","), 1):
            client = KazooClient(address)
            client.start(60)
            text, stat = client.get("/zookeeper/config")
            client.stop()
            client.close()
            assert f"server.{server_id}=127.0.0.1:".encode() in text
            assert text.endswith(b":participant\nversion=0")
            assert (stat.version, stat.aversion, stat.mzxid) == (-1, -1, 0)
    with pytest.raises(BarnabasError, match="0 coordination servers"):
        Cluster(zk_servers=0)


def test_a_stopped_broker_comes_back_at_its_port() -> None:
    """stop_broker and start_broker keep the address and the records; starting one
    that runs is refused."""
    with Cluster() as cluster:
        cluster.create_topic("orders")
        produce(cluster, "orders", "before")
        before = cluster.bootstrap_servers
        cluster.stop_broker(0)
        cluster.start_broker(0)
        assert cluster.bootstrap_servers == before
        assert consume(cluster, "orders", 1) == ["before"]
        with pytest.raises(BarnabasError, match="broker 0 is running"):
            cluster.start_broker(0)


def test_settings_reach_every_broker() -> None:
    """Properties given to the cluster are the brokers'."""
    with Cluster(brokers=2, settings={"num.partitions": "7"}) as cluster:
        Producer({"bootstrap.servers": cluster.bootstrap_servers}).list_topics("made-by-asking", timeout=60)
        produce(cluster, "made-by-asking", "a")
        with AdminConnection(cluster.bootstrap_servers) as admin:
            (topic,) = describe_topics(admin, ["made-by-asking"])
        assert len(topic.partitions) == 7


def test_nothing_of_a_temporary_cluster_stays() -> None:
    """Without data_dir the folder goes with the cluster."""
    with Cluster() as cluster:
        assert cluster.data_dir.exists()
    assert not cluster.data_dir.exists()


def test_a_cluster_without_brokers_is_refused() -> None:
    """At least one broker is needed."""
    with pytest.raises(BarnabasError, match="at least one"):
        Cluster(brokers=0)


def test_pytest_finds_the_fixtures_where_the_package_is_installed(tmp_path: Path) -> None:
    """The entry point registers them, and the broker is imported only when a test
    asks for a cluster."""
    (tmp_path / "test_user.py").write_text(
        """
import sys

def test_no_cluster_no_import():
    assert "barnabas.broker.server" not in sys.modules

def test_each(barnabas_cluster):
    assert barnabas_cluster.bootstrap_servers

def test_shared(barnabas_session_cluster):
    assert barnabas_session_cluster.bootstrap_servers
"""
    )
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(tmp_path)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, timeout=120)
    assert "3 passed" in done.stdout, done.stdout + done.stderr


def test_usual_ports_are_taken_all_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Any ports will do, for all servers, where one of the usual ones belongs to somebody else."""
    with socket.create_server(("127.0.0.1", 0)) as first, socket.create_server(("127.0.0.1", 0)) as second:
        ports = first.getsockname()[1], second.getsockname()[1]
        monkeypatch.setattr(processes, "_USUAL_PORT", ports[0])
        monkeypatch.setattr(processes, "_USUAL_ZK_PORT", ports[1])
        first.close()
        assert ProcessCluster.usual_ports(1) == (0, 0)
        second.close()
        assert ProcessCluster.usual_ports(1) == ports


INTERRUPTED = """
import asyncio, signal, threading
from barnabas.broker.server import BrokerServer
from barnabas.testing import Cluster

start = BrokerServer.start

async def interrupted(self):
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)
    await asyncio.sleep(0.2)
    await start(self)

BrokerServer.start = interrupted
try:
    Cluster().start()
except KeyboardInterrupt:
    print("interrupted")
"""


def test_an_interrupted_start_leaves_no_folder(tmp_path: Path) -> None:
    """What was still starting is stopped before the folder is removed."""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    command = [sys.executable, "-c", INTERRUPTED]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=60)
    assert done.stdout == "interrupted\n", done.stderr
    assert list(tmp_path.iterdir()) == []


@pytest.mark.barnabas(brokers=2, settings={"num.partitions": "4"})
class TestMarkedCluster:
    """The mark of a class, and one of a test that changes a part of it."""

    @pytest.mark.barnabas(brokers=1)
    def test_the_closest_mark_of_the_fixture_counts(self, barnabas_cluster: Cluster) -> None:
        """One broker by the test's mark, four partitions by that of the class."""
        assert barnabas_cluster.bootstrap_servers.count(":") == 1
        barnabas_cluster.create_topic("marked", partitions=-1)
        with AdminConnection(barnabas_cluster.bootstrap_servers) as connection:
            assert len(describe_topics(connection, ["marked"])[0].partitions) == 4


@pytest.mark.parametrize(
    ("fault", "arguments"), [("partition", ()), ("slow_disk", (0, 1.0)), ("clock", (0, 1.0)), ("full_disk", (0,))]
)
def test_processes_as_users_run_them_say_how_to_get_faults(
    fault: str, arguments: tuple[float, ...], tmp_path: Path
) -> None:
    """No signal does this."""
    cluster = ProcessCluster(1, data_dir=tmp_path)
    cluster.pids["0"] = 0
    with pytest.raises(BarnabasError, match=r"start them with ProcessCluster\(\.\.\., faults=True\)"):
        getattr(cluster, fault)(*arguments)
