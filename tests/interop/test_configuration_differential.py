"""The same questions about configuration to Apache's broker and to ours: the answers are equal, or
the difference is listed."""

from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.base.randomness import new_random
from barnabas.broker.cluster.znodes import config_path, decode_config, encode_config
from barnabas.coordination.client import BlockingClient
from barnabas.net.sockets import SocketNetwork
from barnabas.wire.kafka.messages.alter_configs import AlterableConfig as PlainConfig
from barnabas.wire.kafka.messages.alter_configs import AlterConfigsRequest
from barnabas.wire.kafka.messages.alter_configs import AlterConfigsResource as PlainResource
from barnabas.wire.kafka.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.wire.kafka.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from support.needs import needs_reference
from support.raw import ask
from support.reference import Reference, apache_cluster
from support.servers import Up, up
from support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.java, needs_reference]

BROKER, BROKER_LOGGER = 4, 8
SET, DELETE, APPEND, SUBTRACT = range(4)
DEFAULT_SOURCE = 5

OUR_OWN = {
    "log.compression.check",
    "log.flush.before.ack",
    "metrics.http.address",
    "metrics.http.topics",
    "new.cluster.features",
    "replica.lag.max.messages",
}
OTHER_DEFAULTS = {"max.connections", "max.connections.per.ip"}
READ_ONLY_HERE = {"listeners", "advertised.listeners", "listener.security.protocol.map"}


@pytest.fixture(scope="module")
def clusters(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Reference, Up]]:
    """An Apache broker and one of ours; both have id 0."""
    with (
        apache_cluster(tmp_path_factory.mktemp("apache")) as apache,
        up(tmp_path_factory.mktemp("ours") / "data") as ours,
    ):
        yield apache, ours


@pytest.fixture(scope="module")
def ports(clusters: tuple[Reference, Up]) -> tuple[int, ...]:
    """The ports of both brokers."""
    return tuple(int(cluster.bootstrap.rpartition(":")[2]) for cluster in clusters)


def describe(port: int, kind: int, name: str, keys: list[str] | None = None) -> Any:
    """One resource, with synonyms and documentation."""
    resource = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=keys)
    request = DescribeConfigsRequest(resources=[resource], include_synonyms=True, include_documentation=True)
    return ask(port, request, 4).results[0]


def alter(port: int, kind: int, entity: str, *operations: tuple[str, int, str | None], validate_only: bool = False):
    """The error code and message of IncrementalAlterConfigs for one resource."""
    configs = [AlterableConfig(name=name, config_operation=op, value=value) for name, op, value in operations]
    resource = AlterConfigsResource(resource_type=kind, resource_name=entity, configs=configs)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    answer = ask(port, request, 1).responses[0]
    return answer.error_code, answer.error_message or None


def test_brokers_list_the_same_properties_with_the_same_defaults(ports: tuple[int, int]) -> None:
    """Names, types, defaults, and whether they are read-only or sensitive; each has
    a documentation."""
    theirs, ours = ({entry.name: entry for entry in describe(port, BROKER, "0").configs} for port in ports)
    assert set(ours) - set(theirs) == OUR_OWN
    assert set(theirs) - set(ours) == set()
    differing = []
    for name, entry in theirs.items():
        mine = ours[name]
        assert mine.documentation
        facts = [
            (each.config_type, each.is_sensitive, each.read_only or name in READ_ONLY_HERE, default_of(each, name))
            for each in (entry, mine)
        ]
        if facts[0] != facts[1]:
            differing.append((name, facts))
    assert differing == []


def default_of(entry: Any, name: str) -> str | None:
    if name in OTHER_DEFAULTS:
        return "ours is lower"
    return next((synonym.value for synonym in entry.synonyms if synonym.source == DEFAULT_SOURCE), None)


@pytest.mark.parametrize(
    "name", ["leader.replication.throttled.rate", "replica.alter.log.dirs.io.max.bytes.per.second"]
)
def test_throttles_are_listed_while_they_are_set(ports: tuple[int, int], name: str) -> None:
    """For one broker and for all; after the deletion they are gone from the list."""

    def shown(port: int) -> list[tuple[Any, ...]]:
        return [
            (entry.name, entry.value, entry.read_only, entry.config_source, entry.config_type,
             [(synonym.name, synonym.value, synonym.source) for synonym in entry.synonyms])
            for entry in describe(port, BROKER, "0", [name]).configs
        ]  # fmt: skip

    for entity in ("0", ""):
        for port in ports:
            assert shown(port) == []
            assert alter(port, BROKER, entity, (name, SET, "1000")) == (0, None)
        set_there = eventually(lambda: shown(ports[0]), what="Apache's broker knows the throttle")
        eventually(lambda there=set_there: shown(ports[1]) == there, what="ours knows it, and shows the same")
        for port in ports:
            assert alter(port, BROKER, entity, (name, DELETE, None)) == (0, None)
            eventually(lambda port=port: shown(port) == [], what="the throttle is gone")


@pytest.mark.parametrize(
    "name",
    ["num.io.threads", "num.network.threads", "background.threads", "num.replica.fetchers",
     "num.recovery.threads.per.data.dir", "log.cleaner.threads"],
)  # fmt: skip
def test_numbers_of_threads_have_the_same_bounds(ports: tuple[int, int], name: str) -> None:
    """Half and double of the present value, with the same words."""
    tried = ("1000000", "-1", *map(str, range(1, 23)))
    for value in tried:
        theirs, ours = (alter(port, BROKER, "0", (name, SET, value), validate_only=True) for port in ports)
        assert ours == theirs, value


@pytest.mark.parametrize(
    ("entity", "operation"),
    [
        ("0", ("no.such.thing", SET, "5")),
        ("", ("no.such.thing", SET, "5")),
        ("0", ("compression.zstd.level", SET, "5")),
        ("0", ("compression.zstd.level", SET, "99")),
        ("0", ("compression.gzip.level", SET, "0")),
        ("0", ("max.connections", SET, "-1")),
        ("0", ("max.connections.per.ip", SET, "0")),
        ("0", ("inter.broker.protocol.version", SET, "3.0")),
        ("0", ("authorizer.class.name", SET, "x")),
        ("0", ("zookeeper.set.acl", SET, "true")),
        ("0", ("log.preallocate", SET, "true")),
        ("", ("log.retention.ms", SET, "soon")),
        ("", ("transaction.partition.verification.enable", SET, "false")),
        ("0", ("remote.log.storage.system.enable", SET, "true")),
    ],
)
def test_changes_of_a_broker_are_answered_alike(
    ports: tuple[int, int], entity: str, operation: tuple[str, int, str | None]
) -> None:
    """What is accepted, what is refused, and in which words."""
    theirs, ours = (alter(port, BROKER, entity, operation, validate_only=True) for port in ports)
    assert ours == theirs


@pytest.mark.parametrize(
    ("entity", "operation"),
    [
        ("0", ("root", SET, "DEBUG")),
        ("0", ("root", SET, "debug")),
        ("0", ("root", SET, "OFF")),
        ("0", ("root", SET, "")),
        ("0", ("root", SET, None)),
        ("0", ("root", DELETE, None)),
        ("0", ("root", APPEND, "INFO")),
        ("0", ("root", SUBTRACT, "INFO")),
        ("0", ("no.such.logger", SET, "INFO")),
        ("0", ("no.such.logger", DELETE, None)),
        ("", ("root", SET, "INFO")),
        ("x", ("root", SET, "INFO")),
    ],
)
def test_changes_of_log_levels_are_answered_alike(
    ports: tuple[int, int], entity: str, operation: tuple[str, int, str | None]
) -> None:
    """Codes and words; Apache's message for another broker's id names its own id twice,
    so that one is left out."""
    theirs, ours = (alter(port, BROKER_LOGGER, entity, operation, validate_only=True) for port in ports)
    assert ours == theirs


def test_the_root_logger_has_the_level_that_was_set(ports: tuple[int, int]) -> None:
    """DescribeConfigs shows it at once, as a resource of its own type and source."""
    for level in ("WARN", "TRACE", "INFO"):
        shown = []
        for port in ports:
            assert alter(port, BROKER_LOGGER, "0", ("root", SET, level)) == (0, None)
            (entry,) = describe(port, BROKER_LOGGER, "0", ["root"]).configs
            shown.append((entry.name, entry.value, entry.read_only, entry.config_source, entry.config_type,
                          entry.is_sensitive, entry.synonyms))  # fmt: skip
        assert shown[0] == shown[1]
        assert shown[1][1] == level


@pytest.mark.parametrize(
    ("kind", "name"), [(0, "x"), (1, "x"), (3, "x"), (8, ""), (8, "7"), (8, "x"), (16, "x"), (32, "x"), (99, "x")]
)
def test_resources_that_cannot_be_described_are_answered_alike(ports: tuple[int, int], kind: int, name: str) -> None:
    """Types that do not exist, for which Apache only has words about any invalid
    request, and loggers of others."""
    theirs, ours = (describe(port, kind, name) for port in ports)
    assert ours.error_code == theirs.error_code
    if kind in (8, 16):
        assert ours.error_message == theirs.error_message


@pytest.mark.parametrize("kind", [0, 1, 3, 8, 16, 32, 99])
def test_resources_that_cannot_be_altered_are_answered_alike(ports: tuple[int, int], kind: int) -> None:
    """AlterConfigs, which knows no loggers, and IncrementalAlterConfigs."""
    answers = []
    for port in ports:
        resource = PlainResource(resource_type=kind, resource_name="0", configs=[PlainConfig(name="a", value="b")])
        plain = ask(port, AlterConfigsRequest(resources=[resource], validate_only=False), 2).responses[0]
        answers.append(((plain.error_code, plain.error_message), alter(port, kind, "0", ("a", SET, "b"))))
    assert answers[0] == answers[1]


ENCRYPTED = "keyFactory=PBKDF2WithHmacSHA512,cipherAlgorithm=AES/CBC/PKCS5Padding,keyLength=128,iterations=4096,passwordLength=6"


@pytest.mark.parametrize(
    ("entity", "name", "text"),
    [
        ("0", "listener.name.external.ssl.key.password", ENCRYPTED),
        ("0", "listener.name.plaintext.ssl.keystore.password", "secret"),
        ("0", "listener.name.external.scram-sha-512.sasl.jaas.config", ENCRYPTED),
        ("", "ssl.keystore.password", ENCRYPTED),
        ("0", "ssl.keystore.type", "PEM"),
        ("0", "listener.name.external.ssl.keystore.type", "PEM"),
        ("0", "broker.rack", "r"),
        ("0", "log.cleaner.threads", "many"),
        ("", "log.retention.ms", "soon"),
        ("0", "no.such.thing", "5"),
        ("", "listeners", "PLAINTEXT://h:1"),
    ],
)
def test_what_a_brokers_znode_holds_without_effect_keeps_no_change_from_being_made(
    clusters: tuple[Reference, Up], ports: tuple[int, int], entity: str, name: str, text: str
) -> None:
    """Such as a password under another secret: Apache's broker removes what can have no
    effect, and so does ours."""
    path = config_path("brokers", entity or "<default>")
    left = []
    for cluster, port in zip(clusters, ports, strict=True):
        with BlockingClient(SocketNetwork, cluster.zookeeper, rng=new_random()) as client:
            client.start(10_000)
            client.call(lambda keeper: keeper.ensure_path(path))
            client.call(lambda keeper: keeper.set_data(path, encode_config({name: text})))
            answer = alter(port, BROKER, entity, ("log.cleaner.io.buffer.load.factor", SET, "0.8"))
            data, _ = client.call(lambda keeper: keeper.get(path))
            left.append((answer, decode_config(path, data)))
            client.call(lambda keeper: keeper.set_data(path, encode_config({})))
    assert left[0][0] == (0, None)
    assert left[1] == left[0]
