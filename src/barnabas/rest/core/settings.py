"""The proxy's settings, under the names of Confluent's kafka-rest.properties. Pure.

``client.*`` are properties of all clients of the cluster, ``producer.*``, ``consumer.*`` and
``admin.*`` those of one kind, ``schema.registry.*`` those of the registry's client. What protects
and is not supported stops the start; what has no effect is named.

In Confluent's proxy: KafkaRestConfig.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from barnabas.base.errors import ConfigError
from barnabas.base.settings import Definitions, Kind, Setting, Values, at_least, between
from barnabas.net.web_access import WEB_SETTINGS, WebListener, check_unsupported_protection, parse_listeners

__all__ = ["REST_REFUSED", "REST_SETTINGS", "RestSettings", "read_rest_settings"]

_MB = 1 << 20
_DAY_MS = 86_400_000

REST_SETTINGS = Definitions(
    [
        Setting("bootstrap.servers", Kind.LIST, None, "The brokers, HOST:PORT,...", required=True),
        Setting("listeners", Kind.LIST, "http://0.0.0.0:8082", "Where to listen: http://HOST:PORT,https://HOST:PORT"),
        Setting("advertised.listeners", Kind.LIST, "", "The addresses in answers; by default what a request names"),
        Setting(
            "metrics.http.address", Kind.STRING, "", "Where Prometheus gets the metrics, HOST:PORT; by default nowhere"
        ),
        Setting("id", Kind.STRING, "", "A part of the names that consumer instances get"),
        Setting("schema.registry.url", Kind.STRING, "", "The schema registry of AVRO, JSONSCHEMA and PROTOBUF"),
        Setting("api.v2.enable", Kind.BOOLEAN, "true", "Whether version 2 is served"),
        Setting("api.v3.enable", Kind.BOOLEAN, "true", "Whether version 3 is served"),
        Setting(
            "api.v3.produce.batch.maximum.entries",
            Kind.INT,
            "10",
            "The most records of a records:batch",
            between(1, 10_000),
        ),
        Setting(
            "api.v3.produce.request.size.limit.max.bytes",
            Kind.LONG,
            "0",
            "The largest record of a stream, as it stands in the request; 0 for max.request.bytes",
            at_least(0),
        ),
        Setting(
            "consumer.instance.timeout.ms",
            Kind.INT,
            "300000",
            "How long a consumer instance lives without requests",
            at_least(1),
        ),
        Setting(
            "consumer.request.timeout.ms", Kind.INT, "1000", "How long a read waits for records", between(1, 60_000)
        ),
        Setting(
            "consumer.request.max.bytes",
            Kind.LONG,
            str(64 * _MB),
            "The most bytes of keys and values in one read",
            between(1, 1 << 30),
        ),
        Setting(
            "fetch.min.bytes",
            Kind.INT,
            "-1",
            "How many bytes a read waits for; -1: it ends as soon as there are records",
            at_least(-1),
        ),
        Setting(
            "consumer.request.max.records", Kind.INT, "10000", "The most records of one read", between(1, 1_000_000)
        ),
        Setting("consumer.instances.max", Kind.INT, "200", "The most consumer instances at once", between(1, 10_000)),
        Setting(
            "produce.requests.max", Kind.INT, "1000", "The most requests with records at once", between(1, 100_000)
        ),
        Setting("event.streams.max", Kind.INT, "2500", "The most open event streams", between(1, 100_000)),
        Setting(
            "event.stream.keep.alive.ms",
            Kind.INT,
            "15000",
            "How often a quiet event stream gets a comment",
            between(100, 3_600_000),
        ),
        Setting(
            "event.stream.stall.timeout.ms",
            Kind.INT,
            "300000",
            "How long an event stream may stay unread before it is closed",
            between(100, _DAY_MS),
        ),
        Setting("max.request.bytes", Kind.INT, str(32 * _MB), "The largest body of a request", between(1024, 1 << 30)),
        Setting(
            "request.memory.bytes",
            Kind.LONG,
            str(256 * _MB),
            "The most bytes of all bodies that are being received",
            between(1024, 1 << 40),
        ),
        Setting(
            "request.idle.timeout.ms",
            Kind.INT,
            "60000",
            "How long a body may stay away before the request ends; streams of records may stay away longer",
            between(100, _DAY_MS),
        ),
        Setting(
            "streaming.connection.max.duration.ms",
            Kind.LONG,
            str(_DAY_MS),
            "How long a stream of records may last",
            at_least(1),
        ),
        Setting(
            "client.timeout.ms",
            Kind.INT,
            "30000",
            "How long a question to the cluster may take with its repetitions",
            between(100, _DAY_MS),
        ),
        Setting(
            "authentication.propagate",
            Kind.BOOLEAN,
            "false",
            "With BASIC: whether brokers authenticate the user of each request, and see what the user does",
        ),
        Setting(
            "authentication.users.max", Kind.INT, "100", "The most users at once with propagation", between(1, 10_000)
        ),
        Setting(
            "authentication.users.idle.ms",
            Kind.INT,
            "300000",
            "How long a user's connections live without requests, with propagation",
            at_least(1000),
        ),
        *WEB_SETTINGS,
    ]
)
"""What a properties file may have."""

_CLIENT_PREFIXES = ("client.", "producer.", "consumer.", "admin.")
_REGISTRY_PREFIX = "schema.registry."
REST_REFUSED = {
    "zookeeper.connect": "the brokers are in bootstrap.servers",
    "api.endpoints.allowlist": "no endpoint can be left out",
    "api.endpoints.blocklist": "no endpoint can be left out",
    "kafka.rest.resource.extension.class": "extensions are Java classes",
    "rest.resource.extension.class": "extensions are Java classes",
    "client.sasl.kerberos.service.name": "Kerberos is not supported",
}
_IGNORED = frozenset(
    (
        *(
            "consumer.threads",
            "consumer.iterator.timeout.ms",
            "consumer.iterator.backoff.ms",
            "consumer.metadata.timeout.ms",
        ),
        *("producer.threads", "client.init.timeout.ms", "client.zk.session.timeout.ms"),
    )
)
"""Confluent's own settings that begin like those of clients."""
_REFUSED_IF_ON = ("rate.limit.enable", "api.v3.produce.rate.limit.enabled", "compression.enable")
_PROTECTING = (
    "confluent.rest.auth",
    "confluent.metadata",
    "oauth",
    "ldap.",
    "public.key.path",
    "response.http.headers",
)


@dataclass(frozen=True, slots=True)
class RestSettings:
    """What the proxy is started with."""

    values: Values
    listeners: list[WebListener]
    advertised: list[WebListener]
    clients: Mapping[str, Mapping[str, str]] = field(repr=False)
    """The properties of clients, by producer, consumer and admin."""
    registry: Mapping[str, str] = field(repr=False)
    """The properties of the registry's client; none where there is no registry."""
    warnings: list[str]
    login: tuple[str, str] | None = field(default=None, repr=False)
    """The user of requests and the password, with propagation."""

    def __getitem__(self, name: str) -> Any:
        return self.values[name]

    def of_user(self, user: str, password: str) -> "RestSettings":
        """The same with another login at the cluster."""
        dropped = ("sasl.jaas.config", "sasl.username", "sasl.password")
        login = {"sasl.username": user, "sasl.password": password}
        clients = {
            kind: {name: text for name, text in properties.items() if name not in dropped} | login
            for kind, properties in self.clients.items()
        }
        return replace(self, clients=clients, login=(user, password))

    def seconds(self, name: str) -> float:
        """A setting that is in milliseconds."""
        return float(self.values[name]) / 1000


def read_rest_settings(texts: Mapping[str, str]) -> RestSettings:
    """The settings of a properties file. Raises `ConfigError`."""
    for name, reason in REST_REFUSED.items():
        if texts.get(name, "").strip():
            raise ConfigError(f"{name} is not supported: {reason}")
    for name in _REFUSED_IF_ON:
        if texts.get(name, "false").strip().lower() != "false":
            raise ConfigError(f"{name} is not supported: the server does not start without it")
    for name in texts:
        if name.startswith(_PROTECTING):
            raise ConfigError(f"{name} is not supported, and protects: the server does not start without it")
    own = {name: text for name, text in texts.items() if not _is_of_a_client(name)}
    values = REST_SETTINGS.parse(own)
    if values["authentication.propagate"]:
        _check_propagation(texts, values)
    listeners = parse_listeners("listeners", values["listeners"])
    advertised = values["advertised.listeners"]
    return RestSettings(
        values,
        listeners,
        parse_listeners("advertised.listeners", advertised) if advertised else [],
        _clients(texts, values),
        _registry(texts, values),
        [
            f"{name} has no effect here"
            for name in (*check_unsupported_protection(values), *sorted(_IGNORED & texts.keys()))
        ],
    )


def _check_propagation(texts: Mapping[str, str], values: Values) -> None:
    """Brokers authenticate by SASL, with the password that a request has."""
    if values["authentication.method"] != "BASIC" or values["authentication.users.file"]:
        raise ConfigError(
            "authentication.propagate needs authentication.method=BASIC without authentication.users.file: the brokers know "
            "the users"
        )
    if not texts.get("client.security.protocol", "").upper().startswith("SASL"):
        raise ConfigError("authentication.propagate needs client.security.protocol=SASL_SSL or SASL_PLAINTEXT")
    if not texts.get("client.sasl.mechanism", texts.get("client.sasl.mechanisms", "")):
        raise ConfigError("authentication.propagate needs client.sasl.mechanism")


def _is_of_a_client(name: str) -> bool:
    return name not in REST_SETTINGS and name.startswith((*_CLIENT_PREFIXES, _REGISTRY_PREFIX))


def _clients(texts: Mapping[str, str], values: Values) -> dict[str, dict[str, str]]:
    """Those of one kind are stronger than those of all."""
    servers = _servers(values["bootstrap.servers"], texts.get("client.security.protocol", "PLAINTEXT").strip().upper())
    found = {}
    for kind in ("producer", "consumer", "admin"):
        made: dict[str, str] = {}
        for prefix in ("client.", f"{kind}."):
            for name, text in texts.items():
                if name.startswith(prefix) and name not in REST_SETTINGS and name not in _IGNORED:
                    made[name.removeprefix(prefix)] = text
        found[kind] = made | {"bootstrap.servers": servers}
    return found


def _servers(addresses: list[str], protocol: str) -> str:
    """The brokers without the protocols that Confluent's addresses may begin with."""
    found = []
    for address in addresses:
        given, sign, rest = address.rpartition("://")
        if sign and given.upper() != protocol:
            raise ConfigError(f"bootstrap.servers: {address} is not of client.security.protocol={protocol}")
        found.append(rest)
    return ",".join(found)


def _registry(texts: Mapping[str, str], values: Values) -> dict[str, str]:
    url = values["schema.registry.url"].strip()
    rest = {
        name.removeprefix(_REGISTRY_PREFIX): text
        for name, text in texts.items()
        if name.startswith(_REGISTRY_PREFIX) and name != "schema.registry.url"
    }
    if not url:
        if rest:
            raise ConfigError(f"schema.registry.{next(iter(rest))} is set, and schema.registry.url is not")
        return {}
    return {"url": url, **rest}
