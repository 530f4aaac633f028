"""Clusters for tests with access control lists: who may do what from the first second, and what
a program needs."""

import shlex
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import pytest
from confluent_kafka import KafkaError, KafkaException

from barnabas.base.errors import BarnabasError
from barnabas.client import Admin, AuthorizationError, Consumer, DeliveryError, Producer
from barnabas.client.admin import Acl, AclFilter
from barnabas.client.admin.acl_options import acl_commands
from barnabas.testing import Cluster
from support.needs import needs

ORDERS = "--allow-principal User:ann --producer --consumer --topic orders --group kitchen"


@pytest.mark.barnabas(acls=[ORDERS, Acl("TOPIC", "public-", "User:*", "READ", pattern_type="PREFIXED")])
def test_users_may_do_what_their_lists_allow(barnabas_cluster: Cluster) -> None:
    """And nothing else; the cluster's own methods go on working."""
    ann = barnabas_cluster.client_properties("ann")
    barnabas_cluster.create_topic("prices")
    with Producer(ann) as producer:
        producer.send("orders", "one").result(30)
        with pytest.raises(DeliveryError) as failed:
            producer.send("prices", "one").result(30)
        assert isinstance(failed.value.__cause__, AuthorizationError)
    with Consumer({**ann, "group.id": "kitchen", "auto.offset.reset": "earliest"}) as consumer:
        consumer.subscribe(["orders"])
        assert next(iter(consumer)).value == "one"
    with Admin(ann) as admin, pytest.raises(AuthorizationError):
        admin.list_acls()


def test_a_cluster_with_no_lists_allows_nothing() -> None:
    """There is an authorizer, and a user without a right."""
    with Cluster(security="scram", acls=[]) as cluster:
        cluster.create_topic("orders")
        with Admin(cluster.client_properties()) as admin, pytest.raises(AuthorizationError):
            admin.describe_topics(["orders"])


@needs("openssl")
def test_with_certificates_lists_name_their_subject() -> None:
    """Brokers have certificates of their own, and rights."""
    client = "User:CN=client,O=Barnabas test cluster"
    with Cluster(security="SSL", acls=[Acl("TOPIC", "orders", client, "DESCRIBE")]) as cluster:
        for topic in ("orders", "prices"):
            cluster.create_topic(topic)
        with Admin(cluster.client_properties()) as admin:
            assert admin.list_topics() == ["orders"]


@pytest.mark.parametrize(
    ("acls", "words"),
    [
        (ORDERS, "acls is a list"),
        (["--allow-principal User:ann --topik t"], "--topik"),
        ([Acl("TOPIC", "t", "ann", "READ")], "principalType:principalName"),
        ([Acl("TOPIC", "t", "User:ann", "REED")], "did you mean READ"),
    ],
)
def test_lists_that_cannot_be_are_refused(acls: object, words: str) -> None:
    """Before anything starts."""
    with pytest.raises(BarnabasError, match=words):
        Cluster(acls=acls)


def test_a_cluster_that_does_not_record_has_no_suggestions(tmp_path: Path) -> None:
    """The error says how to record."""
    with pytest.raises(BarnabasError, match="record_acls=True"):
        Cluster(acls=[], data_dir=tmp_path).suggested_acls()


def copy(properties: dict[str, str]) -> str:
    """An application on librdkafka: it reads what it wrote, and copies it in a transaction.

    Raises `KafkaException`."""
    failures: list[KafkaError] = []
    plain = confluent_kafka.Producer({**properties, "enable.idempotence": True})
    plain.produce("orders", "one", on_delivery=lambda error, _: error and failures.append(error))
    assert plain.flush(30) == 0
    if failures:
        raise KafkaException(failures[0])
    reading = {**properties, "group.id": "copiers", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = confluent_kafka.Consumer(reading)
    try:
        producer = confluent_kafka.Producer({**properties, "transactional.id": "copier"})
        producer.init_transactions(30)
        consumer.subscribe(["orders"])
        message = consumer.poll(30)
        assert message is not None, "no record within 30 s"
        if message.error():
            raise KafkaException(message.error())
        producer.begin_transaction()
        producer.produce("copies", message.value())
        position = [confluent_kafka.TopicPartition("orders", message.partition(), message.offset() + 1)]
        producer.send_offsets_to_transaction(position, consumer.consumer_group_metadata(), 30)
        producer.commit_transaction(30)
        return message.value().decode()
    finally:
        consumer.close()


COPIES = [
    ("READ", "GROUP", "copiers"),
    ("READ", "TOPIC", "orders"),
    ("WRITE", "TOPIC", "copies"),
    ("WRITE", "TOPIC", "orders"),
    ("WRITE", "TRANSACTIONAL_ID", "copier"),
]


@pytest.fixture(scope="module")
def suggested() -> Iterator[list[Acl]]:
    """What the application needs, from a run with all rights."""
    with Cluster(record_acls=True) as cluster:
        for topic in ("orders", "copies"):
            cluster.create_topic(topic)
        assert copy(cluster.client_properties()) == "one"
        yield cluster.suggested_acls()


def test_what_an_application_needs_is_suggested(suggested: list[Acl]) -> None:
    """No more than it asked for, and nothing that follows of another right."""
    assert sorted((acl.operation, acl.resource_type, acl.resource_name) for acl in suggested) == COPIES
    assert {(acl.principal, acl.host, acl.permission) for acl in suggested} == {("User:app", "*", "ALLOW")}
    assert "--add --allow-principal User:app --operation Read --group copiers" in [
        shlex.join(words) for words in acl_commands(suggested)
    ]


def test_under_the_suggested_lists_the_application_works_and_under_fewer_it_fails(suggested: list[Acl]) -> None:
    """Each of them is needed."""
    with Cluster(acls=suggested) as cluster:
        for topic in ("orders", "copies"):
            cluster.create_topic(topic)
        properties = cluster.client_properties("app")
        assert copy(properties) == "one"
        with Admin(cluster.client_properties("admin")) as admin:
            for acl in suggested:
                wanted = AclFilter(acl.resource_type, acl.resource_name, acl.principal, acl.operation)
                assert admin.delete_acls(wanted) == [acl]
                with pytest.raises(KafkaException, match="(?i)authoriz|failed delivery"):
                    copy(properties)
                admin.create_acls([acl])
        assert copy(properties) == "one"
