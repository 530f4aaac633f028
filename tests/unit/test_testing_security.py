"""Clusters for tests that are secured: what clients connect with, who is let in, and
what cannot be."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.base.errors import BarnabasError
from barnabas.client import Admin, AuthenticationError, ClientError, ConnectError, Consumer, Producer
from barnabas.client.librdkafka.clients import new_client
from barnabas.testing import Cluster, ProcessCluster
from support.needs import needs

pytestmark = needs("openssl")

USERS = {"ann": 'one, "two"\\three', "bob.b-1@x": "b"}


@pytest.fixture(scope="module")
def secured() -> Iterator[Cluster]:
    """Two brokers that copy from each other."""
    with Cluster(brokers=2, security="SASL_SSL", users=USERS) as cluster:
        cluster.create_topic("t", partitions=2, replication_factor=2)
        yield cluster


def topics(properties: dict[str, str]) -> list[str]:
    with Admin({"request.timeout.ms": "10000", **properties}) as admin:
        return sorted(admin.list_topics())


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"])
@pytest.mark.parametrize("user", [None, *USERS])
@pytest.mark.parametrize("java", [False, True])
def test_each_user_is_let_in_by_each_mechanism(secured: Cluster, mechanism: str, user: str | None, java: bool) -> None:
    """With the properties that the cluster gives, in either spelling, from the
    moment that it is started."""
    assert "t" in topics(secured.client_properties(user, mechanism, java=java))


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
@pytest.mark.parametrize("change", [{"sasl.password": "wrong"}, {"sasl.username": "eve"}])
def test_a_wrong_password_and_an_unknown_user_are_refused(
    secured: Cluster, mechanism: str, change: dict[str, str]
) -> None:
    """The client gets an error that does not say which."""
    with pytest.raises(AuthenticationError, match="does not accept the credentials"):
        topics({**secured.client_properties(mechanism=mechanism), **change})


def test_a_password_of_any_characters_is_accepted_from_every_client() -> None:
    """Letters beyond ASCII, quotes, a backslash, and a blank at its end."""
    password = 's\u00e9cret "\\\u20ac '
    with Cluster(security="SASL_PLAINTEXT", users={"ann": password}) as cluster:
        cluster.create_topic("t")
        for mechanism in ("PLAIN", "SCRAM-SHA-512"):
            for java in (False, True):
                properties = cluster.client_properties(mechanism=mechanism, java=java)
                with Producer(properties) as producer:
                    producer.send("t", mechanism).result(30)
                with Consumer(
                    {**properties, "group.id": f"{mechanism} {java} ", "auto.offset.reset": "earliest"}
                ) as consumer:
                    consumer.subscribe(["t"])
                    assert next(iter(consumer)).value == "PLAIN"
        with Admin(properties) as admin:
            assert {group.group_id[-1] for group in admin.list_groups()} == {" "}


def test_a_password_keeps_whitespace_at_its_start() -> None:
    """librdkafka's configuration drops it, so the password is set once more when the
    client is there."""
    made = new_client(LoginOfLibrdkafka, {"sasl.username": "ann", "sasl.password": " secret"})
    assert made.login == ("ann", " secret")
    made = new_client(LoginOfLibrdkafka, {"sasl.username": "ann", "sasl.password": "secret "})
    assert made.login == ("ann", "secret ")


class LoginOfLibrdkafka:
    """A client that drops whitespace as librdkafka does, and connects to nothing: a real
    one may connect too early."""

    def __init__(self, settings: dict[str, str]) -> None:
        self.login = (settings["sasl.username"].lstrip(), settings["sasl.password"].lstrip())

    def set_sasl_credentials(self, user: str, password: str) -> None:
        self.login = (user, password)


def test_a_client_that_does_not_trust_the_certificate_does_not_connect(secured: Cluster, tmp_path: Path) -> None:
    """Another cluster's certificate is not this one's."""
    with Cluster(security="SSL", data_dir=tmp_path) as other:
        stranger = other.client_properties()["ssl.ca.location"]
        with pytest.raises(AuthenticationError, match="certificate is not accepted"):
            topics({**secured.client_properties(), "ssl.ca.location": stranger})


def test_a_client_that_speaks_another_protocol_gets_an_error(secured: Cluster) -> None:
    """Without TLS the connection ends; with TLS and without SASL it ends at the first request."""
    plain = {"bootstrap.servers": secured.bootstrap_servers, "request.timeout.ms": "5000"}
    with pytest.raises(ConnectError):
        topics({**plain, "default.api.timeout.ms": "5000"})
    tls = {"security.protocol": "SSL", "ssl.ca.location": secured.client_properties()["ssl.ca.location"]}
    with pytest.raises(ClientError):
        topics({**plain, **tls, "default.api.timeout.ms": "5000"})


def test_followers_copy_over_the_secured_listener(secured: Cluster) -> None:
    """Both replicas are in sync, and the death of one is noticed."""
    with Admin(secured.client_properties()) as admin:
        assert [sorted(p.isr) for p in admin.describe_topics(["t"])[0].partitions] == [[0, 1], [0, 1]]


def test_with_ssl_a_client_shows_the_certificate_of_its_properties() -> None:
    """Without it the broker refuses; where the settings ask for none, it is let in."""
    with Cluster(security="SSL") as cluster:
        properties = cluster.client_properties()
        assert topics(properties) is not None
        without = {name: value for name, value in properties.items() if "certificate" not in name and "key" not in name}
        with pytest.raises(ClientError):
            topics({**without, "default.api.timeout.ms": "5000"})
    with Cluster(security="SSL", settings={"ssl.client.auth": "none"}) as cluster:
        properties = cluster.client_properties()
        assert topics({name: value for name, value in properties.items() if "key" not in name}) is not None


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"security": "SASL-SSL"}, "did you mean SASL_SSL"),
        ({"security": "SASL_SSL"}, "needs users"),
        ({"security": "SSL", "users": USERS}, "has no users"),
        ({"users": USERS}, "users need security"),
        ({"security": "SASL_SSL", "users": {"a b": "x"}}, "the user 'a b' cannot be"),
        ({"security": "SASL_SSL", "users": {"a": ""}}, "the user 'a' cannot be"),
    ],
)
def test_what_cannot_be_secured_so_is_refused(options: dict[str, object], words: str) -> None:
    """Before anything starts; for clusters of either kind."""
    for kind in (Cluster, ProcessCluster):
        with pytest.raises(BarnabasError, match=words):
            kind(**options)


def test_users_and_mechanisms_that_are_not_there_are_named(secured: Cluster) -> None:
    """As are those that are."""
    with pytest.raises(BarnabasError, match="there is no user eve: they are ann, bob"):
        secured.client_properties("eve")
    with pytest.raises(BarnabasError, match="there is no mechanism GSSAPI"):
        secured.client_properties(mechanism="GSSAPI")


@pytest.mark.barnabas(security="SASL_PLAINTEXT", users={"ann": "x"})
def test_the_mark_of_a_test_secures_its_cluster(barnabas_cluster: Cluster) -> None:
    """The fixture takes what `Cluster` does."""
    properties = barnabas_cluster.client_properties()
    assert properties["security.protocol"] == "SASL_PLAINTEXT"
    assert topics(properties) is not None
