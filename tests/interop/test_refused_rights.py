"""Apache's broker with an authorizer: errors for missing rights name the resource and a remedy,
soon; ``barnabas acls`` says what Apache's tool says."""

import io
import os
import shlex
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from barnabas.cli.main import main
from barnabas.client import (
    Admin,
    AuthorizationError,
    ClientError,
    Consumer,
    DeliveryError,
    Producer,
    TopicPartition,
)
from barnabas.client.admin.acls import Acl, AclFilter
from support.needs import needs_reference
from support.ports import free_ports
from support.reference import apache_cluster, apache_tool

pytestmark = [pytest.mark.interop, pytest.mark.java, needs_reference]

AT_ONCE_S = 20  # a time-out would be 30 s or more; a busy machine takes a second or two
SECRET = TopicPartition("secret", 0)
Login = dict[str, Any]


INVOCATIONS = (
    "--add --allow-principal User:a --deny-principal User:b --allow-host 10.0.0.1 --operation Read --operation "
    "DescribeConfigs --topic t1 --topic t2",
    "--list --topic t1",
    "--add --allow-principal User:a --producer --idempotent --topic t3 --transactional-id x",
    "--add --allow-principal User:a --consumer --topic t3 --group g",
    "--add --allow-principal User:CN=a,O=b --operation All --cluster",
    "--add --allow-principal User:* --topic t3- --resource-pattern-type PREFIXED --operation Alter",
    "--add --allow-principal User:a --user-principal User:c --operation CreateTokens --force",
    "--list",
    "--list --principal User:a --principal User:nobody",
    "--list --topic t3-x --resource-pattern-type match",
    "--list --topic t3- --resource-pattern-type any",
    "--list --topic nothing",
    "--remove --allow-principal User:a --allow-host 10.0.0.1 --operation Read --topic t1 --force",
    "--remove --topic t2 --force",
    "--list --topic t1 --topic t2 --group g",
    "--remove --topic t3 --group g",
    "--remove --cluster --transactional-id x --resource-pattern-type any --force",
    "--add --allow-principal User:a --topic t --operation Reed",
    "--add --allow-principal a --topic t",
    "--add --topic t",
    "--add --allow-principal User:a --operation Read",
    "--add --allow-principal User:a --group g --operation Write",
    "--list --remove",
    "--list --producer --topic t",
    "--add --allow-principal User:a --topic t --resource-pattern-type match",
)
"""Of ``acls``; those of the end are refused."""
COMPARED = INVOCATIONS if os.environ.get("BARNABAS_LONG") else INVOCATIONS[:2]
TOOL = "kafka.admin.AclCommand"


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    """The address of everybody's listener, and the port of that with users."""
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
        yield cluster.bootstrap, port


@pytest.fixture(scope="module")
def ann(apache: tuple[str, int]) -> Login:
    """The login of a user who may do nothing but belong to the group `hers`."""
    bootstrap, port = apache
    with Admin({"bootstrap.servers": bootstrap}) as admin:
        admin.create_topic("secret", partitions=1, replication_factor=1)
        admin.create_acls([Acl("GROUP", "hers", "User:ann", "READ")])
    login = {"sasl.mechanism": "PLAIN", "sasl.username": "ann", "sasl.password": "pw"}
    return {"bootstrap.servers": f"127.0.0.1:{port}", "security.protocol": "SASL_PLAINTEXT", **login}


def test_acls_prints_what_apaches_tool_prints(
    apache: tuple[str, int], capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Line by line, in whatever order; what it refuses is refused. Each change is made by Apache's
    tool, undone, and made by ours."""
    at = ["--bootstrap-server", apache[0]]
    for invocation in COMPARED:
        words = [*at, *shlex.split(invocation)]
        with Admin({"bootstrap.servers": apache[0]}) as admin:
            before = set(admin.list_acls())
            theirs = apache_tool(TOOL, *words, text="y\ny\n")
            wanted = set(admin.list_acls())
            for acl in wanted - before:
                admin.delete_acls(_only(acl))
            admin.create_acls(sorted(before - wanted, key=str))
            monkeypatch.setattr("sys.stdin", io.StringIO("y\ny\n"))
            capfd.readouterr()
            code = main(["acls", *words])
            ours = capfd.readouterr().out
            assert set(admin.list_acls()) == wanted, invocation
        assert (code == 0) is (theirs.returncode == 0), invocation
        if code == 0:
            assert _lines(ours) == _lines(theirs.stdout), invocation


def _lines(text: str) -> list[str]:
    """The first entry of a resource has a blank before it, and the last one behind it, whichever
    they are."""
    return sorted(line.strip(" ") for line in text.split("\n"))


def _only(acl: Acl) -> AclFilter:
    return AclFilter(
        *(
            acl.resource_type,
            acl.resource_name,
            acl.principal,
            acl.operation,
            acl.permission,
            acl.host,
            acl.pattern_type,
        )
    )


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
