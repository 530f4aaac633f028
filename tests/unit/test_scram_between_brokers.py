"""Brokers that authenticate to each other with SCRAM, whose credentials the brokers read from
the coordination service."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from barnabas.cli.main import main
from barnabas.client import Admin, Producer
from barnabas.testing import Cluster
from support.waiting import eventually

USER, PASSWORD = "replicator", "the-brokers-password"
LISTENER = "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config"
SCRAM = {
    "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
    LISTENER: "org.apache.kafka.common.security.scram.ScramLoginModule required "
    f'username="{USER}" password="{PASSWORD}";',
    "min.insync.replicas": "2",
}


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    """Two brokers; their user was there before they started."""
    security = {"security": "SASL_PLAINTEXT", "users": {"ann": "pw"}, "data_dir": tmp_path}
    with Cluster(**security) as earlier:
        set_password(earlier, PASSWORD)
    with Cluster(2, settings=SCRAM, **security) as cluster:
        yield cluster


def set_password(cluster: Cluster, password: str) -> None:
    """As an operator does it without a broker."""
    command = ["configs", "--zookeeper", cluster.zookeeper_connect, "--alter", "--entity-type", "users"]
    assert main([*command, "--entity-name", USER, "--add-config", f"SCRAM-SHA-512=[password={password}]"]) == 0


def test_a_follower_joins_only_with_the_right_scram_password(
    cluster: Cluster, caplog: pytest.LogCaptureFixture
) -> None:
    """While its password is a changed one, a broker that comes back joins nothing;
    with the right one it does."""
    cluster.create_topic("t", replication_factor=2)
    properties = {**cluster.client_properties("ann"), "acks": "all", "retries": "0"}
    with Admin(properties) as admin, Producer(properties) as producer, ThreadPoolExecutor(1) as beside:

        def in_sync() -> list[int]:
            return sorted(admin.describe_topics(["t"])[0].partitions[0].isr)

        producer.send("t", "first").result(30)
        leader = admin.describe_topics(["t"])[0].partitions[0].leader
        cluster.stop_broker(1 - leader)
        set_password(cluster, "another one")
        starting = beside.submit(cluster.start_broker, 1 - leader)
        refusal = "do not authenticate: Authentication failed during authentication due to invalid credentials"
        eventually(lambda: refusal in caplog.text, what="the wrong password is refused")
        assert not starting.done()
        set_password(cluster, PASSWORD)
        starting.result(30)
        eventually(lambda: in_sync() == [0, 1], timeout_s=30, what="the follower has caught up")
        producer.send("t", "second").result(30)
