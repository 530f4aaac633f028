"""`ProcessCluster`: servers as processes, of which single ones are killed, paused
and started again."""

import socket
from pathlib import Path

import confluent_kafka
import pytest

from barnabas.base.errors import BarnabasError
from barnabas.client import DeliveryError, Producer
from barnabas.client.admin.topics import create_topic
from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.testing import ProcessCluster
from support.cluster_faults import QUICK, led_by, read, send, state, transaction_states
from support.servers import command_of
from support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.fault]


def test_a_broker_that_is_killed_and_started_again_has_its_data(tmp_path: Path) -> None:
    """Killed, it takes no connections; started, it is another process on the same port;
    stopped, nothing is left."""
    with ProcessCluster(1, settings={"auto.create.topics.enable": "true"}, data_dir=tmp_path / "data") as cluster:
        client = {"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"}
        with Producer(client) as producer:
            producer.send("t", "kept").result(60)
        first = cluster.pids["0"]
        with pytest.raises(BarnabasError, match="broker 0 is running"):
            cluster.start_broker(0)
        cluster.kill_broker(0)
        assert not cluster.is_running(0)
        address = cluster.bootstrap_servers.split(":")
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((address[0], int(address[1]))).close()
        cluster.start_broker(0)
        assert cluster.is_running(0)
        assert cluster.pids["0"] != first
        with Producer(client) as producer:
            assert producer.send("t", "after").result(60).offset == 1
        cluster.pause_broker(0)  # a paused one is ended, too
        pids = list(cluster.pids.values())
    assert not [pid for pid in pids if str(tmp_path) in command_of(pid)]
    assert (cluster.log_dir(0) / "t-0").is_dir()
    assert "started" in cluster.broker_log(0).read_text()


def test_an_ensembles_servers_are_killed_in_turn_and_no_topic_is_lost(tmp_path: Path) -> None:
    """A broker goes on with the two that are left, whichever they are, and each comes back."""
    with ProcessCluster(1, zk_servers=3, data_dir=tmp_path) as cluster:
        for server_id in (3, 1, 2):
            pid = cluster.pids[f"zookeeper{server_id}"]
            cluster.kill_zookeeper(server_id)
            with AdminConnection(cluster.bootstrap_servers) as admin:
                create_topic(admin, f"without-{server_id}", partitions=1, replication_factor=1)
            cluster.start_zookeeper(server_id)
            assert cluster.pids[f"zookeeper{server_id}"] != pid
            log = cluster.zookeeper_log(server_id)
            eventually(
                lambda log=log: log.read_text().count("Serving as") >= 2, what=f"server {server_id} serves again"
            )


def test_a_cluster_that_cannot_start_says_why(tmp_path: Path) -> None:
    """What `barnabas up` complained of is in the error; to stop it again does nothing."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        cluster = ProcessCluster(1, port=port, data_dir=tmp_path)
        with pytest.raises(BarnabasError, match=f"port {port} on 127.0.0.1 cannot be used"):
            cluster.start()
        cluster.stop()  # a second stop does nothing
    with pytest.raises(BarnabasError, match="brokers 0"):
        ProcessCluster(0, data_dir=tmp_path).start()


def test_processes_have_the_faults_of_a_cluster(tmp_path: Path) -> None:
    """One is cut off, also after it was started again; its disk is slow; its clock
    is wrong; heal ends each."""
    settings = {**QUICK, "log.message.timestamp.type": "LogAppendTime"}
    with ProcessCluster(3, settings=settings, data_dir=tmp_path, faults=True) as cluster:
        topic = led_by(cluster, "orders", 1)
        with pytest.raises(BarnabasError, match="broker 0 is in two groups"):
            cluster.partition([0, 1], [0])
        cluster.partition([1], [0, 2, "zookeeper"])
        eventually(lambda: state(cluster, topic)[0] in {0, 2}, timeout_s=60, what="another leader")
        cluster.kill(1)
        cluster.start_broker(1)
        eventually(
            lambda: "Waiting for" in cluster.broker_log(1).read_text(), timeout_s=60, what="it finds no coordination"
        )
        send(cluster, topic, "by two")
        assert 1 not in state(cluster, topic)[1]
        cluster.heal()
        eventually(lambda: state(cluster, topic)[1] == {0, 1, 2}, timeout_s=60, what="all in sync again")

        slow = led_by(cluster, "slow", 2)
        cluster.slow_disk(2, 0.3)
        assert send(cluster, slow, "late") >= 0.3
        cluster.heal()
        cluster.clock(2, 3600)
        send(cluster, slow, "from the future")
        cluster.heal()
        send(cluster, slow, "from now")
        _, (_, future_ms), (_, now_ms) = read(cluster, slow, 3)
        assert 3_500_000 < future_ms - now_ms < 3_700_000


def test_a_coordinators_process_is_killed_between_the_decision_and_the_markers(tmp_path: Path) -> None:
    """Another one completes the commit or the abort; one that was started again in the block dies
    as well, and after a block that killed none, none dies."""
    with ProcessCluster(3, settings=QUICK, data_dir=tmp_path, faults=True) as cluster:
        topic = led_by(cluster, "orders", 1)
        settings = {"transactional.id": "till", "log_level": 0, "reconnect.backoff.max.ms": 200}
        producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers, **settings})
        producer.init_transactions(60)

        def begin(value: str) -> None:
            producer.begin_transaction()
            producer.produce(topic, value)
            assert producer.flush(60) == 0

        begin("one")
        with cluster.killing_coordinator("till") as kill:
            producer.commit_transaction(60)
        killed = kill.broker_id
        assert killed is not None
        assert not cluster.is_running(killed)
        assert transaction_states(cluster.log_dir(killed), "till")[-1] == "PrepareCommit"

        begin("two")
        with cluster.killing_coordinator("till", during="abort", restart=True) as kill:
            cluster.start_broker(killed)
            eventually(lambda: state(cluster, topic)[1] == {0, 1, 2}, timeout_s=60, what="all in sync again")
            producer.abort_transaction(60)
        assert kill.broker_id is not None
        assert cluster.is_running(kill.broker_id)

        begin("three")
        with pytest.raises(BarnabasError, match="no commit of another"), cluster.killing_coordinator("another"):
            pass
        producer.commit_transaction(60)
        assert all(map(cluster.is_running, range(3)))
        consumer = confluent_kafka.Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "reader"})
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        assert [message.value() for message in consumer.consume(2, timeout=60)] == [b"one", b"three"]
        consumer.close()


def test_only_a_cluster_with_faults_kills_a_coordinator_in_a_commit(tmp_path: Path) -> None:
    """The other's servers are what users run."""
    cluster = ProcessCluster(3, data_dir=tmp_path)
    with pytest.raises(BarnabasError, match="faults=True"), cluster.killing_coordinator("till"):
        pass


def test_processes_record_what_clients_need(tmp_path: Path) -> None:
    """All brokers do, a killed one too; under these lists the same works, and not under fewer."""

    def work(properties: dict[str, str], topic: str) -> None:
        with Producer({**properties, "delivery.timeout.ms": "60000"}) as producer:
            producer.send(topic, "one").result(60)

    with ProcessCluster(2, record_acls=True, data_dir=tmp_path / "recorded") as cluster:
        app = cluster.client_properties("app")
        with AdminConnection(cluster.bootstrap_servers, cluster.client_properties("admin")) as admin:
            for broker_id in (0, 1):
                create_topic(admin, f"on-{broker_id}", assignment=[[broker_id]])
        work(app, "on-1")
        cluster.kill_broker(1)
        work(app, "on-0")
        with pytest.raises(BarnabasError, match="faults=True"):
            cluster.partition([0], [1])
        needed = cluster.suggested_acls()
    assert {(acl.operation, acl.resource_name) for acl in needed if acl.operation == "WRITE"} == {
        ("WRITE", "on-0"),
        ("WRITE", "on-1"),
    }
    fewer = [acl for acl in needed if acl.resource_name != "on-1"]
    with ProcessCluster(1, acls=fewer, users={"app": "secret"}, data_dir=tmp_path / "secured") as cluster:
        with AdminConnection(cluster.bootstrap_servers, cluster.client_properties("admin")) as admin:
            for broker_id in (0, 1):
                create_topic(admin, f"on-{broker_id}", partitions=1, replication_factor=1)
        work(cluster.client_properties("app"), "on-0")
        with pytest.raises(DeliveryError):
            work(cluster.client_properties("app"), "on-1")
        with pytest.raises(BarnabasError, match="record_acls=True"):
            cluster.suggested_acls()
