"""Brokers of both kinds in one cluster with an authorizer, whose principal has CLUSTER_ACTION
alone: replication, elections and transactions, with either kind as the controller.

CI has no time for it: see ``tests/conftest.py``."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.client import Consumer, Producer
from barnabas.client.admin.acls import Acl, create_acls
from barnabas.client.admin.topics import create_topic
from barnabas.client.cluster.admin_connection import AdminConnection
from support.mixed import APACHES, OURS, Coordination, MixedCluster
from support.needs import needs_reference
from support.ports import free_ports
from support.waiting import eventually

pytestmark = [
    pytest.mark.interop,
    pytest.mark.java,
    needs_reference,
    pytest.mark.timeout(900),
]

KINDS = [OURS, APACHES, OURS]
LOGIN = (
    "org.apache.kafka.common.security.plain.PlainLoginModule required "
    'username="broker" password="bp" user_broker="bp" user_ann="ap";'
)
SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT",
    "inter.broker.listener.name": "PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.plaintext.plain.sasl.jaas.config": LOGIN,
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ann",
    "allow.everyone.if.no.acl.found": "true",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "replica.lag.time.max.ms": "5000",
}
RIGHTS = [
    Acl("CLUSTER", "kafka-cluster", "User:broker", "CLUSTER_ACTION"),
    Acl("TOPIC", "*", "User:nobody", "READ"),
    Acl("GROUP", "*", "User:nobody", "READ"),
    Acl("TRANSACTIONAL_ID", "*", "User:nobody", "WRITE"),
]
"""With entries for all names, what is not allowed is denied."""
ANN = {
    "security.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism": "PLAIN",
    "sasl.username": "ann",
    "sasl.password": "ap",
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedCluster]:
    """Two brokers of ours and one of Apache's."""
    directory: Path = tmp_path_factory.mktemp("rights")
    coordination = Coordination(directory)
    coordination.start(OURS)
    running = MixedCluster(directory, coordination, free_ports(len(KINDS)), SETTINGS)
    try:
        for number, kind in enumerate(KINDS):
            running.launch(number, kind)
        for number in range(len(KINDS)):
            running.await_registered(number)
        eventually(lambda: knows_all(running), timeout_s=120, what="each broker knows all")
        with AdminConnection(running.bootstrap, ANN) as connection:
            create_acls(connection, RIGHTS)
            create_topic(connection, "orders", partitions=3, replication_factor=3)
        yield running
    finally:
        running.close()
        coordination.stop()


def knows_all(running: MixedCluster) -> bool:
    for server in running.bootstrap.split(","):
        with AdminConnection(server, ANN) as connection:
            if len(connection.metadata([]).brokers) < len(KINDS):
                return False
    return True


def write(running: MixedCluster, values: list[str]) -> None:
    """Records in one transaction."""
    settings = {**ANN, "bootstrap.servers": running.bootstrap, "transactional.id": "pay", "acks": "all"}
    with Producer(settings) as producer:
        producer.init_transactions(120)
        producer.begin_transaction()
        for value in values:
            producer.send("orders", value)
        producer.commit_transaction(120)


def read(running: MixedCluster, group: str, count: int) -> list[str]:
    """All committed records, sorted."""
    settings = {
        **ANN,
        "bootstrap.servers": running.bootstrap,
        "group.id": group,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
    }
    found = []
    with Consumer(settings) as consumer:
        consumer.subscribe(["orders"])
        for record in consumer:
            found.append(record.value)
            if len(found) == count:
                return sorted(found)
    return found


def test_brokers_of_both_kinds_work_with_cluster_action_alone(cluster: MixedCluster) -> None:
    """Each kind holds the controller's office once, and each broker is away once."""
    values = ["before"]
    write(cluster, values)  # all must be there to make the topic of transactions
    for controller in (0, 1):
        cluster.give_office_to(controller)
        for broker, kind in enumerate(KINDS):
            cluster.await_whole()
            cluster.stop(broker)
            more = [f"{controller}{broker}{number}" for number in range(6)]
            write(cluster, more)
            values += more
            cluster.start(broker, kind)
        cluster.await_whole()
    assert read(cluster, "all", len(values)) == sorted(values)
    cluster.await_equal_logs("orders", 3)
