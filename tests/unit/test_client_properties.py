"""The translation of property names, as a table."""

import confluent_kafka
import pytest

from barnabas.base.errors import ConfigError
from barnabas.cli.connection.reachability import require_broker
from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.client.errors import AuthenticationError, LibrdkafkaOnlyError
from barnabas.client.properties.translation import EnqueuePolicy, overridden, plan_consumer, plan_producer
from barnabas.client.security.link_security import LinkSecurity
from barnabas.wire.kafka.messages.sasl_authenticate import SaslAuthenticateResponse
from barnabas.wire.kafka.messages.sasl_handshake import SaslHandshakeResponse

SERVERS = {"bootstrap.servers": "localhost:9092"}
LOGIN = {"sasl.username": "ann", "sasl.password": "s3cret"}

PLAIN = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanisms": "PLAIN"}

PRODUCER_TABLE = [
    ({"request.required.acks": 1}, {"acks": "1"}),
    ({"request.required.acks": "-1"}, {"acks": "-1"}),
    ({"acks": "all"}, {"acks": "all"}),
    ({"request.timeout.ms": 1500}, {"request.timeout.ms": "1500"}),
    ({"batch.num.messages": 200}, {"batch.num.messages": "200"}),
    ({"queue.buffering.max.ms": 5000}, {"linger.ms": "5000"}),
    ({"linger.ms": 5, "queue.buffering.max.ms": 5}, {"linger.ms": "5"}),
    ({"queue.buffering.max.messages": 10_000}, {"queue.buffering.max.messages": "10000"}),
    ({"compression.codec": 0}, {"compression.type": "none"}),
    ({"compression.codec": "1"}, {"compression.type": "gzip"}),
    ({"compression.codec": 2}, {"compression.type": "snappy"}),
    ({"compression.codec": "GZIP"}, {"compression.type": "gzip"}),
    ({"compression.type": "zstd"}, {"compression.type": "zstd"}),
    ({"message.send.max.retries": 0}, {"retries": "0"}),
    ({"enable.idempotence": True}, {"enable.idempotence": "true"}),
    ({"buffer.memory": 33_554_432}, {"queue.buffering.max.kbytes": "32768", "queue.buffering.max.messages": "0"}),
    ({"buffer.memory": 1}, {"queue.buffering.max.kbytes": "1", "queue.buffering.max.messages": "0"}),
    ({"max.request.size": 2_000_000}, {"message.max.bytes": "2000000"}),
    ({"send.buffer.bytes": 102_400}, {"socket.send.buffer.bytes": "102400"}),
    ({"producer.type": "sync"}, {"linger.ms": "0"}),
    ({"partitioner.class": "murmur2"}, {"partitioner": "murmur2"}),
    ({"partitioner.class": "org.apache.kafka.clients.producer.UniformStickyPartitioner"}, {"partitioner": "random"}),
    ({"partitioner.ignore.keys": "true"}, {"partitioner": "random"}),
    (
        {
            **PLAIN,
            "sasl.jaas.config": r"""x.PlainLoginModule required username=me password="it's \"so\\"; """,
        },
        {**PLAIN, "sasl.username": "me", "sasl.password": "it's \"so\\"},
    ),
    ({"ssl.truststore.type": "PEM", "ssl.truststore.certificates": "-----BEGIN"}, {"ssl.ca.pem": "-----BEGIN"}),
]


@pytest.mark.parametrize(("given", "expected"), PRODUCER_TABLE, ids=lambda value: next(iter(value)))
def test_producer_properties_arrive_at_librdkafka_under_its_names(given: dict, expected: dict) -> None:
    """Old names, Java's names and librdkafka's own all end as what librdkafka takes."""
    plan = plan_producer({**SERVERS, **given})
    assert plan.librdkafka == {"partitioner": "murmur2_random", **SERVERS, **expected}
    assert plan.warnings == []


@pytest.mark.parametrize(("given", "expected"), PRODUCER_TABLE, ids=lambda value: next(iter(value)))
def test_librdkafka_accepts_every_translation(given: dict, expected: dict) -> None:
    """No translation ends in a name or value that the library refuses."""
    settings = {k: v for k, v in plan_producer({**SERVERS, **given}).librdkafka.items() if k != "ssl.ca.location"}
    confluent_kafka.Producer({**settings, "bootstrap.servers": ""})


def test_the_brokers_may_be_named_as_in_the_notes() -> None:
    """metadata.broker.list is bootstrap.servers."""
    assert plan_producer({"metadata.broker.list": "a:1,b:2"}).librdkafka["bootstrap.servers"] == "a:1,b:2"


def test_without_brokers_the_error_says_what_to_give() -> None:
    """Missing brokers are found before anything is sent."""
    with pytest.raises(ConfigError, match="name at least one broker"):
        plan_producer({"acks": 1})


@pytest.mark.parametrize(
    ("given", "policy"),
    [
        ({}, EnqueuePolicy(60_000, drops=False)),
        ({"max.block.ms": 5}, EnqueuePolicy(5, drops=False)),
        ({"queue.enqueue.timeout.ms": 0}, EnqueuePolicy(0, drops=True)),
        ({"queue.enqueue.timeout.ms": "-1"}, EnqueuePolicy(None, drops=True)),
        ({"queue.enqueue.timeout.ms": 250}, EnqueuePolicy(250, drops=True)),
    ],
)
def test_a_full_queue_is_met_as_the_properties_say(given: dict, policy: EnqueuePolicy) -> None:
    """0 drops, -1 waits for ever, N waits and drops; without it max.block.ms waits and fails."""
    assert plan_producer({**SERVERS, **given}).enqueue == policy


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"producer.type": "batch"}, "sync or async"),
        ({"compression.codec": "9"}, "0 to 4"),
        ({"acks": "al"}, "Invalid value al for configuration acks: all"),
        ({"request.required.acks": 7}, "Invalid value 7 for configuration request.required.acks: all"),
        ({"queue.enqueue.timeout.ms": -2}, "wait for ever"),
        ({"queue.enqueue.timeout.ms": "soon"}, "whole number"),
        ({"max.block.ms": -1}, "at least 0"),
        ({"buffer.memory": 0}, "at least 1"),
        ({"interceptor.classes": "x.Y"}, "Java interceptors"),
        ({"serializer.class": "a.B", "value.serializer": "a.C"}, "mean the same"),
        ({"security.protocol": "SSL", "ssl.truststore.location": "/x.jks"}, "/x.jks cannot be read"),
        ({**PLAIN, "sasl.jaas.config": "x.Krb5LoginModule required;"}, "PlainLoginModule"),
        ({**PLAIN, "sasl.jaas.config": "x.PlainLoginModule required password=x"}, "semicolon"),
        ({**PLAIN, "sasl.jaas.config": "x.PlainLoginModule required; x.PlainLoginModule required;"}, "more than one"),
    ],
)
def test_a_producer_property_that_cannot_be_used_is_refused_with_what_it_takes(given: dict, message: str) -> None:
    """Nothing wrong passes, and the message helps."""
    with pytest.raises(ConfigError, match=message):
        plan_producer({**SERVERS, **given})


UNPROTECTED = [
    ({"security.protocl": "SASL_SSL", **LOGIN}, "security.protocl is not a setting .*did you mean security.protocol"),
    ({"Security.Protocol": "SASL_SSL"}, "did you mean security.protocol"),
    ({"security.providers": "x"}, "security.providers is not a setting"),
    (LOGIN, "sasl.password is given, but security.protocol is PLAINTEXT"),
    ({"security.protocol": "plaintext", "sasl.jaas.config": "x"}, "sasl.jaas.config is given"),
    ({**PLAIN, **LOGIN, "sasl.mechanism": "SCRAM-SHA-512"}, "mean the same"),
    ({**LOGIN, "sasl.mechanism": "SCRAM-SHA-512", **PLAIN}, "mean the same"),
    ({**PLAIN, **LOGIN, "sasl.password": "\udcff"}, "lone surrogate"),
]


@pytest.mark.parametrize(("given", "message"), UNPROTECTED)
def test_what_would_be_less_protected_than_it_is_meant_is_refused_by_all_clients(given: dict, message: str) -> None:
    """By librdkafka's side and by ours alike, and no error shows the password."""
    for client in (plan_producer, plan_consumer, LinkSecurity, lambda given: AdminConnection("localhost:9092", given)):
        with pytest.raises(ConfigError, match=message) as refused:
            client({**SERVERS, **given})
        assert "s3cret" not in str(refused.value)


def test_names_that_are_nothing_to_protection_harm_no_connection_without_it() -> None:
    """A file may be shared with other programs; one mechanism may have both names."""
    others = {
        "my.setting": "x",
        "ssl.truststore.location": "/x.jks",
        "sasl.mechanism": "GSSAPI",
        "sasl.username": "ann",
    }
    AdminConnection("localhost:9092", {**others, "security.protocol": "PLAINTEXT"}).close()
    twice = {**PLAIN, **LOGIN, "sasl.mechanism": "plain"}
    assert plan_producer({**SERVERS, **twice}).librdkafka["sasl.mechanisms"] == "PLAIN"
    assert LinkSecurity(twice).protocol == "SASL_PLAINTEXT"


@pytest.mark.parametrize(
    ("properties", "stronger", "merged"),
    [
        ({"sasl.mechanisms": "PLAIN"}, {"sasl.mechanism": "SCRAM-SHA-512"}, {"sasl.mechanism": "SCRAM-SHA-512"}),
        ({"sasl.mechanism": "PLAIN"}, {"sasl.mechanisms": "SCRAM-SHA-512"}, {"sasl.mechanisms": "SCRAM-SHA-512"}),
        ({**LOGIN, "client.id": "c"}, {"sasl.jaas.config": "x"}, {"client.id": "c", "sasl.jaas.config": "x"}),
        ({"ssl.ca.location": "/a"}, {"ssl.truststore.location": "/b"}, {"ssl.truststore.location": "/b"}),
    ],
)
def test_a_stronger_property_replaces_what_means_the_same(properties: dict, stronger: dict, merged: dict) -> None:
    """Whichever of the names each side has."""
    assert overridden(properties, stronger) == merged


@pytest.mark.parametrize("mechanism", ["GSSAPI", "OAUTHBEARER"])
def test_only_what_librdkafka_alone_has_is_left_to_it(mechanism: str) -> None:
    """Other errors are the user's, and would be hidden."""
    with pytest.raises(LibrdkafkaOnlyError):
        LinkSecurity({"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": mechanism})
    with pytest.raises(LibrdkafkaOnlyError):
        LinkSecurity({"security.protocol": "SSL", "ssl.crl.location": "x"})
    for wrong in (
        {"security.protocol": "SASL_TLS"},
        {"security.protocol": "SSL", "ssl.ca.location": "/no/such/file"},
        {**PLAIN, "sasl.mechanisms": "PLIAN"},
    ):
        with pytest.raises(ConfigError) as refused:
            LinkSecurity({**LOGIN, **wrong})
        assert not isinstance(refused.value, LibrdkafkaOnlyError)
        with pytest.raises(ConfigError):
            require_broker("localhost:1", {**LOGIN, **wrong}, 1)


def test_what_a_hostile_broker_sends_before_the_authentication_is_shown_in_part() -> None:
    """100,000 mechanisms, or an error of a megabyte, do not fill the user's terminal."""
    security = LinkSecurity({**LOGIN, **PLAIN})
    many = SaslHandshakeResponse(error_code=33, mechanisms=[f"M{number}" for number in range(100_000)])
    with pytest.raises(AuthenticationError, match="M4 and 99995 more") as refused:
        security.authenticate(lambda request, answer: many, "broker")
    long = SaslAuthenticateResponse(error_code=58, error_message="x" * 1_000_000)
    answers = iter([SaslHandshakeResponse(), long])
    with pytest.raises(AuthenticationError, match="1000000 characters") as also:
        security.authenticate(lambda request, answer: next(answers), "broker")
    assert len(str(refused.value)) + len(str(also.value)) < 1000


def test_of_two_names_for_one_thing_todays_wins_and_the_other_is_warned_about() -> None:
    """A contradiction is settled in the open."""
    plan = plan_producer({**SERVERS, "acks": "all", "request.required.acks": 0})
    assert plan.librdkafka["acks"] == "all"
    assert plan.warnings == ["request.required.acks=0 is ignored, for acks=all is given too"]


CONSUMER_TABLE = [
    ({"auto.offset.reset": "smallest"}, {"auto.offset.reset": "earliest"}),
    ({"auto.offset.reset": "largest"}, {"auto.offset.reset": "latest"}),
    ({"auto.offset.reset": "none"}, {"auto.offset.reset": "error"}),
    ({"auto.commit.enable": "false"}, {"enable.auto.commit": "false"}),
    ({"fetch.max.wait.ms": 10}, {"fetch.wait.max.ms": "10"}),
    ({"request.timeout.ms": 40_000}, {"socket.timeout.ms": "40000"}),
    (
        {"partition.assignment.strategy": "org.apache.kafka.clients.consumer.RoundRobinAssignor"},
        {"partition.assignment.strategy": "roundrobin"},
    ),
    (
        {
            "partition.assignment.strategy": "org.apache.kafka.clients.consumer.RangeAssignor,"
            "org.apache.kafka.clients.consumer.CooperativeStickyAssignor"
        },
        {"partition.assignment.strategy": "range"},
    ),
]


@pytest.mark.parametrize(("given", "expected"), CONSUMER_TABLE, ids=lambda value: next(iter(value), "nothing"))
def test_consumer_properties_arrive_at_librdkafka_under_its_names(given: dict, expected: dict) -> None:
    """The consumer's names, translated and accepted."""
    plan = plan_consumer({**SERVERS, "group.id": "g", **given})
    assert plan.librdkafka == {"auto.offset.reset": "latest", "group.id": "g", **SERVERS, **expected}
    confluent_kafka.Consumer({**plan.librdkafka, "bootstrap.servers": ""}).close()


def test_the_notes_consumer_properties_need_no_bootstrap_servers() -> None:
    """With zookeeper.connect alone the plan says where to look for brokers, and nothing
    is passed to librdkafka."""
    plan = plan_consumer(
        {
            "zookeeper.connect": "localhost:2181/kafka",
            "zookeeper.connection.timeout.ms": 6000,
            "zookeeper.sync.time.ms": 2000,
            "group.id": "mirror",
            "consumer.timeout.ms": 5000,
        }
    )
    assert plan.zookeeper_connect == "localhost:2181/kafka"
    assert plan.zookeeper_timeout_ms == 6000
    assert plan.warnings == [
        "zookeeper.sync.time.ms is ignored: ZooKeeper is asked for the brokers' addresses once, and not needed after that"
    ]
    assert plan.iteration_timeout_ms == 5000
    assert plan.librdkafka == {"group.id": "mirror", "auto.offset.reset": "latest"}


def test_beside_bootstrap_servers_zookeeper_is_ignored_with_a_warning() -> None:
    """Clients no longer talk to ZooKeeper, and say so."""
    plan = plan_consumer({**SERVERS, "zookeeper.connect": "localhost:2181", "consumer.timeout.ms": "-1"})
    assert plan.zookeeper_connect is None
    assert plan.iteration_timeout_ms is None
    assert plan.warnings == [
        "zookeeper.connect is ignored: clients no longer talk to ZooKeeper; the brokers are taken from bootstrap.servers"
    ]
