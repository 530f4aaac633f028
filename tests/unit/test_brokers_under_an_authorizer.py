"""Brokers of one cluster among themselves where there is an authorizer: what their principal
needs, and what happens without it."""

import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from barnabas.base.ids import TopicPartition
from barnabas.client import Consumer, Producer
from barnabas.client.admin.acls import Acl, create_acls
from barnabas.client.admin.topics import create_topic
from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.client.errors import RefusedError
from barnabas.testing import Cluster
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from barnabas.wire.kafka.records.records import Record, build_batch
from support.waiting import eventually

BROKER = "User:barnabas-broker"
SETTINGS = {
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.min.isr": "1",
    "replica.lag.time.max.ms": "2000",
    "replica.fetch.wait.max.ms": "100",
}
NOBODY_ELSE = [Acl(kind, "*", "User:nobody", "READ") for kind in ("TOPIC", "GROUP")] + [
    Acl("TRANSACTIONAL_ID", "*", "User:nobody", "WRITE")
]
"""With entries for all names, what is not allowed is denied: see `cluster`."""
ON_CLUSTER = Acl("CLUSTER", "kafka-cluster", BROKER, "CLUSTER_ACTION")


@contextmanager
def cluster(acls: Sequence[Acl], super_users: str = "User:ann") -> Iterator[Cluster]:
    """Two brokers whose principal has these rights from when both have started."""
    settings = {**SETTINGS, "super.users": super_users, "allow.everyone.if.no.acl.found": "true"}
    with Cluster(brokers=2, security="SASL_PLAINTEXT", users={"ann": "pw"}, settings=settings) as made:
        with admin(made) as connection:
            create_acls(connection, acls)
        yield made


def admin(of: Cluster) -> AdminConnection:
    return AdminConnection(of.bootstrap_servers, properties(of))


def properties(of: Cluster) -> dict[str, str]:
    properties = of.client_properties("ann", "PLAIN")
    properties.pop("bootstrap.servers", None)
    return properties


def write_in_transaction(of: Cluster, value: str) -> None:
    """A record, and the offset of a group, in one transaction."""
    settings = {**of.client_properties("ann", "PLAIN"), "transactional.id": "pay", "acks": "all"}
    with Producer(settings) as producer:
        producer.init_transactions(120)
        producer.begin_transaction()
        producer.send("orders", value)
        group = {**of.client_properties("ann", "PLAIN"), "group.id": "kitchen"}
        with Consumer(group) as consumer:
            consumer.assign([TopicPartition("orders", 0)])
            producer.send_offsets_to_transaction({TopicPartition("orders", 0): 1}, consumer.group_metadata())
        producer.commit_transaction(120)


def committed_values(of: Cluster, count: int) -> list[str]:
    settings = {
        **of.client_properties("ann", "PLAIN"),
        "group.id": f"reader-{count}",
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
    }
    found = []
    with Consumer(settings) as consumer:
        consumer.subscribe(["orders"])
        for record in consumer:
            found.append(record.value)
            if len(found) == count:
                break
    return found


def isr(of: Cluster, broker: int) -> list[int]:
    """The in-sync replicas of the topic's partition, as a broker knows them."""
    with AdminConnection(of.bootstrap_servers.split(",")[broker], properties(of)) as connection:
        (topic,) = connection.metadata(["orders"]).topics
        return sorted(topic.partitions[0].isr_nodes) if topic.partitions else []


def in_sync(of: Cluster) -> bool:
    """Whether both brokers have all of the topic, and know it."""
    return isr(of, 0) == isr(of, 1) == [0, 1]


def run_through(of: Cluster) -> None:
    """Records in transactions before, while and after each of the brokers is away."""
    with admin(of) as connection:
        create_topic(connection, "orders", partitions=1, replication_factor=2, configs={})
    write_in_transaction(of, "first")
    for broker in (0, 1):
        eventually(lambda: in_sync(of), what="both brokers are in sync")
        of.stop_broker(broker)
        write_in_transaction(of, f"without {broker}")
        of.start_broker(broker)
    eventually(lambda: in_sync(of), what="both brokers are in sync again")
    assert committed_values(of, 3) == ["first", "without 0", "without 1"]


def test_brokers_need_cluster_action_and_nothing_else() -> None:
    """Replication, elections, transactions, and topics that are created for clients. Only a
    follower that is behind the leader's log start needs more: DESCRIBE, for ListOffsets."""
    with cluster([ON_CLUSTER, *NOBODY_ELSE]) as made:
        with (
            AdminConnection(made.bootstrap_servers, made._own_properties) as broker,
            pytest.raises(RefusedError) as refused,
        ):
            create_topic(broker, "orders", partitions=1, replication_factor=2, configs={})
        assert refused.value.code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        run_through(made)


def test_brokers_that_are_super_users_need_no_entry() -> None:
    """Whatever entries there are for others."""
    others = [Acl("CLUSTER", "kafka-cluster", "User:nobody", "CLUSTER_ACTION"), *NOBODY_ELSE]
    with cluster(others, super_users=f"{BROKER};User:ann") as made:
        run_through(made)


def test_a_broker_without_the_right_follows_nobody_and_its_log_says_why(caplog: pytest.LogCaptureFixture) -> None:
    """The controller's requests are refused, so that no replica begins to copy; clients are served
    by the brokers that have their roles."""
    caplog.set_level(logging.ERROR)
    with cluster([Acl("CLUSTER", "kafka-cluster", "User:nobody", "CLUSTER_ACTION"), *NOBODY_ELSE]) as made:
        with admin(made) as connection:
            controller = connection.describe_cluster().controller_id
            other = 1 - controller
            create_topic(connection, "orders", assignment=[[controller, other]])
            records = bytes(build_batch([Record(0, 0, None, b"kept")]))
            data = TopicProduceData(name="orders", partition_data=[PartitionProduceData(index=0, records=records)])
            request = ProduceRequest(acks=1, timeout_ms=30_000, topic_data=[data])
            answer = connection.send(request, ProduceResponse, broker_id=controller, max_version=9)
            assert answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        eventually(
            lambda: (
                f"Broker {other} refused UpdateMetadata: the principal of this broker needs ClusterAction on the cluster"
                in caplog.text
            ),
            what="the controller's log says what is missing",
        )
        eventually(lambda: isr(made, controller) == [controller], what="the replica is not in sync")
        with admin(made) as connection:
            create_acls(connection, [ON_CLUSTER])
        made.stop_broker(other)
        made.start_broker(other)
        eventually(lambda: in_sync(made), what="the replica is copied with the right")
