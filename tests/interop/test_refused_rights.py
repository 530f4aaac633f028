"""Errors for missing rights, from Apache's broker with an authorizer: they name the
resource and a remedy, soon."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from barnabas.client import (
    Admin,
    AuthorizationError,
    ClientError,
    Consumer,
    DeliveryError,
    Producer,
    TopicPartition,
)
from barnabas.client.admin.acls import Acl
from support.needs import needs_reference
from support.ports import free_ports
from support.reference import apache_cluster

pytestmark = [pytest.mark.interop, pytest.mark.java, needs_reference]

AT_ONCE_S = 20  # a time-out would be 30 s or more; a busy machine takes a second or two
SECRET = TopicPartition("secret", 0)
Login = dict[str, Any]


@pytest.fixture(scope="module")
def ann(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Login]:
    """The login of a user who may do nothing but belong to the group `hers`."""
    (port,) = free_ports(1)
    listener = "listener.name.sasl_plaintext."
    settings = {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:ANONYMOUS",
        f"{listener}sasl.enabled.mechanisms": "PLAIN",
        f"{listener}plain.sasl.jaas.config": 'org.apache.kafka.common.security.plain.PlainLoginModule required user_ann="pw";',
    }
    folder = tmp_path_factory.mktemp("authorizer")
    with apache_cluster(folder, settings=settings, listeners={"SASL_PLAINTEXT": port}) as cluster:
        with Admin({"bootstrap.servers": cluster.bootstrap}) as admin:
            admin.create_topic("secret", partitions=1, replication_factor=1)
            admin.create_acls([Acl("GROUP", "hers", "User:ann", "READ")])
        login = {"sasl.mechanism": "PLAIN", "sasl.username": "ann", "sasl.password": "pw"}
        yield {"bootstrap.servers": f"127.0.0.1:{port}", "security.protocol": "SASL_PLAINTEXT", **login}


@pytest.mark.parametrize(
    ("call", "resource"),
    [
        (lambda admin: admin.describe_topics(["secret"]), "topic secret"),
        (lambda admin: admin.create_topic("mine"), "topic mine"),
        (lambda admin: admin.delete_topics(["secret"]), "secret"),
        (lambda admin: admin.create_partitions("secret", 3), "topic secret"),
        (lambda admin: admin.alter_topic_configs("secret", {"retention.ms": "5"}), "topic secret"),
        (lambda admin: admin.describe_group("g"), "group g"),
        (lambda admin: admin.group_offsets("g"), "group g"),
        (lambda admin: admin.delete_group("g"), "group g"),
        (lambda admin: admin.broker_configs(0), "broker 0"),
        (lambda admin: admin.alter_broker_configs(0, {"log.cleaner.threads": "1"}), "broker 0"),
        (lambda admin: admin.describe_log_dirs(0), "cluster"),
        (lambda admin: admin.list_acls(), "cluster"),
        (lambda admin: admin.client_quotas(), "cluster"),
    ],
)
def test_the_admin_names_what_it_may_not_do(ann: Login, call: Callable[[Admin], object], resource: str) -> None:
    """Brokers say that a right is missing, and mostly not to what."""
    with Admin(ann) as admin:
        refused(lambda: call(admin), resource)


def test_offsets_of_a_topic_that_may_not_be_described_are_refused_and_not_missing(ann: Login) -> None:
    """Metadata says so; the partitions only look as if they were not there."""
    with Admin(ann) as admin:
        error = admin.list_offsets({SECRET: -1})[SECRET]
    assert isinstance(error, AuthorizationError)
    assert "topic secret" in str(error)
    with Consumer(ann) as consumer:
        refused(lambda: consumer.watermarks(*SECRET), "secret")
        refused(lambda: consumer.offsets_for_times({SECRET: 1}), "topic secret")


def test_a_producer_names_the_topic_and_the_transactional_id(ann: Login) -> None:
    """The record fails, whether its fate is asked for or not; after the fatal error of a
    transaction the end is clean."""
    with Producer(ann) as producer:
        receipt = producer.send("secret", "x")
        with pytest.raises(DeliveryError, match="a record for secret") as failed:
            receipt.result(30)
        assert isinstance(failed.value.__cause__, AuthorizationError)
        assert "ask for the right" in failed.value.remedy
    with pytest.raises(DeliveryError, match="a record for secret") as failed, Producer(ann) as producer:
        producer.send("secret", "x")
    assert "ask for the right" in failed.value.remedy

    def begin() -> None:
        with Producer({**ann, "transactional.id": "her-tx"}) as producer:
            producer.init_transactions()

    refused(begin, "her-tx")


@pytest.mark.parametrize(
    ("group", "use", "resource"),
    [
        ("g", lambda consumer: subscribed(consumer), "group g"),
        ("g", lambda consumer: consumer.commit({SECRET: 1}), "group g"),
        ("g", lambda consumer: consumer.committed([SECRET]), "group g"),
        ("hers", lambda consumer: subscribed(consumer), "topic secret"),
        ("", lambda consumer: assigned(consumer), "topic secret"),
    ],
)
def test_a_consumer_names_the_group_or_the_topic(
    ann: Login, group: str, use: Callable[[Consumer[str, str]], object], resource: str
) -> None:
    """A commit without a membership, too, for which librdkafka would wait for a coordinator; a
    consumer without a group needs none."""
    with Consumer({**ann, **({"group.id": group} if group else {})}) as consumer:
        refused(lambda: use(consumer), resource)


def subscribed(consumer: Consumer[str, str]) -> object:
    consumer.subscribe(["secret"])
    return consumer.poll(AT_ONCE_S)


def assigned(consumer: Consumer[str, str]) -> object:
    consumer.assign([SECRET])
    return consumer.poll(AT_ONCE_S)


def refused(call: Callable[[], object], resource: str) -> None:
    """It is refused at once, and the error names the resource and the remedy."""
    began = time.monotonic()
    with pytest.raises(ClientError, match=resource) as error:
        call()
    assert isinstance(error.value, AuthorizationError)
    assert "ask for the right" in error.value.remedy
    assert time.monotonic() - began < AT_ONCE_S
