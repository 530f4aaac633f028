"""Property names of three generations of clients, translated for librdkafka.

A user's dictionary, or .properties file, may hold today's names of the Java clients
(``buffer.memory``, ``max.block.ms``), librdkafka's own (``queue.buffering.max.kbytes``), or the
names of Kafka's first clients (``producer.type``, ``metadata.broker.list``,
``queue.enqueue.timeout.ms``). `plan_producer` and `plan_consumer` sort them into what librdkafka
takes and what our own `Producer` and `Consumer` do themselves.

The translation is complete, and pure but for the stores of keys, which it reads
(`barnabas.client.properties.stores`): a name is passed on, renamed, taken over by us, ignored with
a warning that says why, or refused. Nothing is dropped silently; an unknown name is passed to
librdkafka, which refuses it.

In Kafka: `ProducerConfig`, `ConsumerConfig`.
"""

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from barnabas.base.errors import ConfigError
from barnabas.base.hints import did_you_mean
from barnabas.client.errors import ConfigurationError, LibrdkafkaOnlyError
from barnabas.client.librdkafka.clients import FREE_TEXT, refuse_lost_blanks
from barnabas.client.properties.config_providers import resolved
from barnabas.client.properties.stores import STORE_PROPERTIES, translate_stores
from barnabas.net.metrics_address import METRICS_ADDRESS, parse_metrics_address
from barnabas.security.jaas import login_module
from barnabas.security.mechanisms import LOGIN_MODULES

__all__ = [
    "CONNECT_TIMEOUT_PROPERTY",
    "KNOWN_FOR_LOGIN",
    "RENAMED_IN_ALL",
    "ConsumerPlan",
    "EnqueuePolicy",
    "ProducerPlan",
    "overridden",
    "plan_consumer",
    "plan_producer",
    "property_text",
    "refuse_other_names",
    "refuse_unprotected",
    "renamed_for_all",
    "require_servers",
    "security_properties",
    "translate_login",
]

CONNECT_TIMEOUT_PROPERTY = "socket.connection.setup.timeout.ms"
RENAMED_IN_ALL = {
    "metadata.broker.list": "bootstrap.servers",
    "send.buffer.bytes": "socket.send.buffer.bytes",
    "receive.buffer.bytes": "socket.receive.buffer.bytes",
    "socket.connection.setup.timeout.max.ms": CONNECT_TIMEOUT_PROPERTY,
    "sasl.mechanism": "sasl.mechanisms",
}
RENAMED_IN_PRODUCERS = {
    "request.required.acks": "acks",
    "message.send.max.retries": "retries",
    "queue.buffering.max.ms": "linger.ms",
    "message.timeout.ms": "delivery.timeout.ms",
    "compression.codec": "compression.type",
    "max.request.size": "message.max.bytes",
    "max.in.flight": "max.in.flight.requests.per.connection",
    "compression.gzip.level": "compression.level",
    "compression.lz4.level": "compression.level",
    "compression.zstd.level": "compression.level",
}
RENAMED_IN_CONSUMERS = {
    "request.timeout.ms": "socket.timeout.ms",
    "fetch.max.wait.ms": "fetch.wait.max.ms",
    "refresh.leader.backoff.ms": "topic.metadata.refresh.fast.interval.ms",
}

_STATISTICS_MS = "5000"
_NO_ZOOKEEPER = "clients no longer talk to ZooKeeper; the brokers are taken from bootstrap.servers"
IGNORED_IN_ALL = {
    "zookeeper.connection.timeout.ms": _NO_ZOOKEEPER,
    "zookeeper.session.timeout.ms": _NO_ZOOKEEPER,
    "zookeeper.sync.time.ms": _NO_ZOOKEEPER,
    "metric.reporters": "there is no JVM to load reporters into",
    "metrics.num.samples": "metrics are librdkafka's (statistics.interval.ms)",
    "metrics.sample.window.ms": "metrics are librdkafka's (statistics.interval.ms)",
    "metrics.recording.level": "metrics are librdkafka's (statistics.interval.ms)",
    "auto.include.jmx.reporter": "there is no JVM",
    "default.api.timeout.ms": "each call takes a timeout of its own",
}
_ASKED_ONCE = "ZooKeeper is asked for the brokers' addresses once, and not needed after that"
_IGNORED_BESIDE_ZOOKEEPER = {"zookeeper.session.timeout.ms": _ASKED_ONCE, "zookeeper.sync.time.ms": _ASKED_ONCE}
IGNORED_IN_PRODUCERS = {
    "partitioner.availability.timeout.ms": "librdkafka chooses among available partitions by itself",
    "partitioner.adaptive.partitioning.enable": "librdkafka chooses among available partitions by itself",
}
IGNORED_IN_CONSUMERS = {
    "zookeeper.connect": _NO_ZOOKEEPER,
    "offsets.storage": "offsets are always stored by the brokers",
    "dual.commit.enabled": "offsets are always stored by the brokers",
    "rebalance.max.retries": "the group coordinator leads rebalances",
    "rebalance.backoff.ms": "the group coordinator leads rebalances",
    "max.poll.records": "records are handed out one at a time, or as many as consume() asks for",
    "exclude.internal.topics": "a pattern finds the topics it matches, internal ones included",
    "num.consumer.fetchers": "librdkafka has one fetcher for each broker",
    "queued.max.message.chunks": "use queued.max.messages.kbytes",
}
REFUSED = {
    "interceptor.classes": "Java interceptors cannot run here; wrap the calls instead",
    "compressed.topics": "compression is a producer's, not a topic's: use one producer for each",
}

_CODECS = {"0": "none", "1": "gzip", "2": "snappy", "3": "lz4", "4": "zstd"}
CODEC_ALIASES = {"defaultcompressioncodec": "gzip", "gzipcompressioncodec": "gzip", "snappycompressioncodec": "snappy",
                 "nocompressioncodec": "none"}  # fmt: skip
OFFSET_RESETS = {"smallest": "earliest", "largest": "latest", "none": "error"}

SERIALIZER_NAMES = ("serializer.class", "value.serializer")
KEY_SERIALIZER_NAMES = ("key.serializer.class", "key.serializer")
DESERIALIZER_NAMES = ("deserializer.class", "value.deserializer")
KEY_DESERIALIZER_NAMES = ("key.deserializer.class", "key.deserializer")

# Java's partitioners and those of the first clients, as ours are called.
PARTITIONERS = {
    "org.apache.kafka.clients.producer.internals.DefaultPartitioner": "default",
    "org.apache.kafka.clients.producer.UniformStickyPartitioner": "sticky",
    "org.apache.kafka.clients.producer.RoundRobinPartitioner": "round_robin",
    "kafka.producer.DefaultPartitioner": "keyed_round_robin",
    "kafka.producer.ByteArrayPartitioner": "keyed_round_robin",
}
LIBRDKAFKA_PARTITIONERS = frozenset(
    ("random", "consistent", "consistent_random", "murmur2", "murmur2_random", "fnv1a", "fnv1a_random")
)

ASSIGNORS = {
    "rangeassignor": "range",
    "roundrobinassignor": "roundrobin",
    "cooperativestickyassignor": "cooperative-sticky",
    "stickyassignor": "cooperative-sticky",
}


KNOWN_FOR_LOGIN = frozenset(
    (
        *("security.protocol", "enable.ssl.certificate.verification", "ssl.endpoint.identification.algorithm"),
        *("ssl.ca.location", "ssl.ca.pem", "ssl.certificate.location", "ssl.certificate.pem", "ssl.cipher.suites"),
        *("ssl.key.location", "ssl.key.password", "ssl.key.pem", "ssl.crl.location", "ssl.curves.list"),
        *("ssl.sigalgs.list", "ssl.providers", "ssl.engine.id", "ssl.engine.location", *STORE_PROPERTIES),
        *("sasl.mechanism", "sasl.mechanisms", "sasl.username", "sasl.password", "sasl.jaas.config"),
        *("sasl.kerberos.service.name", "sasl.kerberos.principal", "sasl.kerberos.kinit.cmd", "sasl.kerberos.keytab"),
        *("sasl.kerberos.min.time.before.relogin", "enable.sasl.oauthbearer.unsecure.jwt"),
        *("sasl.oauthbearer.config", "sasl.oauthbearer.method", "sasl.oauthbearer.client.id", "sasl.oauthbearer.scope"),
        *("sasl.oauthbearer.client.secret", "sasl.oauthbearer.extensions", "sasl.oauthbearer.token.endpoint.url"),
    )
)
"""What a client may be given for its protection: librdkafka's names, and those of the Java
clients that are translated."""


_OF_SECURITY = ("security.", "sasl.", "ssl.", "enable.ssl.", "enable.sasl.")
_PROTOCOL = "security.protocol"
_SERVERS = "bootstrap.servers"
_LOGIN_MODULES = tuple(name.rpartition(".")[2] for name in LOGIN_MODULES.values())
_CREDENTIALS = ("sasl.password", "sasl.jaas.config", "sasl.oauthbearer.client.secret")
_SURROGATE = re.compile("[\ud800-\udfff]")
_SAME_TWICE = ("sasl.mechanisms",)  # and two values would be two ways to send a password
_OWN_CERTIFICATE = ("ssl.certificate.location", "ssl.certificate.pem", "ssl.key.location", "ssl.key.pem")
_STRONGER = {
    "sasl.jaas.config": ("sasl.username", "sasl.password"),
    "ssl.truststore.location": ("ssl.ca.location", "ssl.ca.pem"),
    "ssl.truststore.certificates": ("ssl.ca.location", "ssl.ca.pem"),
    "ssl.keystore.location": _OWN_CERTIFICATE,
    "ssl.keystore.certificate.chain": _OWN_CERTIFICATE,
}
"""Properties of the Java clients, and those of librdkafka that they replace when
they are given over them."""


@dataclass(frozen=True, slots=True)
class EnqueuePolicy:
    """What a send does while the producer's queue is full.

    It waits up to ``wait_ms`` (None: for ever) for room, and then drops the record
    and counts it, or fails.
    """

    wait_ms: int | None
    drops: bool


@dataclass(slots=True)
class ProducerPlan:
    """A producer's properties, sorted."""

    librdkafka: dict[str, Any] = field(default_factory=dict)
    sync: bool = False
    enqueue: EnqueuePolicy = EnqueuePolicy(60_000, drops=False)
    serializer: Any = None
    key_serializer: Any = None
    # A name of PARTITIONERS, a dotted path, a callable, or None for librdkafka's.
    partitioner: Any = None
    metrics_address: tuple[str, int] | None = None
    warnings: list[str] = field(default_factory=list)


@dataclass(slots=True)
class ConsumerPlan:
    """A consumer's properties, sorted. ``iteration_timeout_ms`` None: iterate for ever."""

    librdkafka: dict[str, Any] = field(default_factory=dict)
    iteration_timeout_ms: int | None = None
    deserializer: Any = None
    key_deserializer: Any = None
    zookeeper_connect: str | None = None
    zookeeper_timeout_ms: int = 10_000
    metrics_address: tuple[str, int] | None = None
    warnings: list[str] = field(default_factory=list)


def plan_producer(properties: Mapping[str, Any]) -> ProducerPlan:
    """Sort a producer's properties; raises `ConfigurationError` for one that cannot be used."""
    plan = ProducerPlan()
    given = _renamed(resolved(properties), {**RENAMED_IN_ALL, **RENAMED_IN_PRODUCERS}, plan.warnings)
    _ignore(given, {**IGNORED_IN_ALL, **IGNORED_IN_PRODUCERS}, plan.warnings)
    plan.metrics_address = _metrics_address(given)
    plan.sync = _producer_type(given.pop("producer.type", "async"))
    plan.enqueue = _enqueue_policy(given)
    plan.serializer = _one_of(given, SERIALIZER_NAMES)
    plan.key_serializer = _one_of(given, KEY_SERIALIZER_NAMES)
    plan.partitioner = _partitioner(given)
    _buffer_memory(given)
    if "acks" in given:
        _check_acks(given["acks"], next(name for name in ("acks", "request.required.acks") if name in properties))
    if "compression.type" in given:
        given["compression.type"] = _codec(given["compression.type"])
    if plan.sync:
        # Each send waits for its own record: waiting for company would only cost time.
        given.setdefault("linger.ms", "0")
    translate_login(given)
    require_servers(given)
    plan.librdkafka = given
    return plan


def plan_consumer(properties: Mapping[str, Any]) -> ConsumerPlan:
    """Sort a consumer's properties; raises `ConfigurationError` for one that cannot be used.

    Without ``bootstrap.servers`` but with ``zookeeper.connect``, as the first consumers had it, the
    plan says so in ``zookeeper_connect`` and it is the caller's to find the brokers there.
    """
    plan = ConsumerPlan()
    given = _renamed(resolved(properties), {**RENAMED_IN_ALL, **RENAMED_IN_CONSUMERS}, plan.warnings)
    if "bootstrap.servers" not in given and "zookeeper.connect" in given:
        plan.zookeeper_connect = property_text(given.pop("zookeeper.connect"))
        plan.zookeeper_timeout_ms = _int(given, "zookeeper.connection.timeout.ms", plan.zookeeper_timeout_ms)
        _ignore(given, _IGNORED_BESIDE_ZOOKEEPER, plan.warnings)
    _ignore(given, {**IGNORED_IN_ALL, **IGNORED_IN_CONSUMERS}, plan.warnings)
    plan.metrics_address = _metrics_address(given)
    reset = property_text(given.get("auto.offset.reset", "latest"))
    given["auto.offset.reset"] = OFFSET_RESETS.get(reset, reset)
    wait_ms = _int(given, "consumer.timeout.ms", -1)
    plan.iteration_timeout_ms = None if wait_ms < 0 else wait_ms
    if "auto.commit.enable" in given:
        given["enable.auto.commit"] = given.pop("auto.commit.enable")
    if "partition.assignment.strategy" in given:
        given["partition.assignment.strategy"] = _assignors(property_text(given["partition.assignment.strategy"]))
    plan.deserializer = _one_of(given, DESERIALIZER_NAMES)
    plan.key_deserializer = _one_of(given, KEY_DESERIALIZER_NAMES)
    translate_login(given)
    if plan.zookeeper_connect is None:
        require_servers(given)
    plan.librdkafka = given
    return plan


def _metrics_address(given: dict[str, Any]) -> tuple[str, int] | None:
    """Where the client shows its metrics, which then are measured."""
    address = given.pop(METRICS_ADDRESS, None)
    if address is None:
        return None
    given.setdefault("statistics.interval.ms", _STATISTICS_MS)
    try:
        return parse_metrics_address(property_text(address))
    except ConfigError as error:
        raise ConfigurationError(str(error)) from None


def property_text(value: Any, name: str = "") -> str:
    """The text of a property's value, with commas for a list.

    Blanks around it belong to the value of `FREE_TEXT` alone."""
    if isinstance(value, list | tuple):
        return ",".join(map(property_text, value))
    text = str(value).lower() if isinstance(value, bool) else str(value)
    return text if name in FREE_TEXT else text.strip()


def security_properties(properties: Mapping[str, Any]) -> dict[str, Any]:
    """The properties that say how a connection is protected, and who the client is."""
    return {name: value for name, value in properties.items() if name.startswith(_OF_SECURITY)}


def renamed_for_all(properties: Mapping[str, Any]) -> dict[str, str]:
    """The properties as text, under librdkafka's names where all clients have two; of two
    names librdkafka's wins.

    Raises `ConfigurationError` for two mechanisms.
    """
    _refuse_two_values(properties)
    given = {name: property_text(value, name) for name, value in properties.items() if name not in RENAMED_IN_ALL}
    for name, new in RENAMED_IN_ALL.items():
        if name in properties:
            given.setdefault(new, property_text(properties[name], new))
    return given


def overridden(properties: Mapping[str, str], stronger: Mapping[str, str]) -> dict[str, str]:
    """Properties with others over them; what means the same under another name is replaced, too."""
    _refuse_two_values(properties)
    _refuse_two_values(stronger)
    new = {RENAMED_IN_ALL.get(name, name) for name in stronger}
    new.update(weaker for name in stronger for weaker in _STRONGER.get(name, ()))
    kept = {name: value for name, value in properties.items() if RENAMED_IN_ALL.get(name, name) not in new}
    return kept | dict(stronger)


def _refuse_two_values(properties: Mapping[str, Any]) -> None:
    for name, new in RENAMED_IN_ALL.items():
        if new in _SAME_TWICE and name in properties and new in properties:
            one, other = property_text(properties[name]), property_text(properties[new])
            if one.upper() != other.upper():
                raise ConfigurationError(f"{name}={one} and {new}={other} mean the same: give one of them")


def _renamed(properties: Mapping[str, Any], names: Mapping[str, str], warnings: list[str]) -> dict[str, Any]:
    """The properties under the names that librdkafka knows; of two names for one
    thing today's wins."""
    _refuse_two_values(properties)
    given: dict[str, Any] = {}
    for name, value in properties.items():
        if name in REFUSED:
            raise ConfigurationError(f"{name} cannot be used: {REFUSED[name]}")
        new = names.get(name)
        if new is None:
            given[name] = value
        elif new in properties:
            if property_text(properties[new]) != property_text(value):
                warnings.append(
                    f"{name}={property_text(value)} is ignored, for {new}={property_text(properties[new])} is given too"
                )
        else:
            given[new] = value
    return {
        name: value if callable(value) or name.endswith("_cb") else _plain(value, name) for name, value in given.items()
    }


def _plain(value: Any, name: str) -> Any:
    if isinstance(value, bool | int | float | str | list | tuple):
        return property_text(value, name)
    return value  # objects: serializers, loggers, callbacks


def _ignore(given: dict[str, Any], names: Mapping[str, str], warnings: list[str]) -> None:
    for name in [name for name in given if name in names]:
        del given[name]
        warnings.append(f"{name} is ignored: {names[name]}")


def require_servers(given: Mapping[str, Any]) -> None:
    """Raise `ConfigurationError` without ``bootstrap.servers``, with the name that
    may have been meant for it."""
    if given.get(_SERVERS):
        return
    for name in given:
        if hint := did_you_mean(name, (_SERVERS,)):
            raise ConfigurationError(f"{name} is not a property of clients{hint}")
    raise ConfigurationError(f"{_SERVERS} is missing: name at least one broker, such as localhost:9092")


def _int(given: dict[str, Any], name: str, default: int) -> int:
    value = given.pop(name, None)
    if value is None:
        return default
    try:
        return int(value)
    except (TypeError, ValueError):
        raise ConfigurationError(
            f"Invalid value {value} for configuration {name}: a whole number is expected"
        ) from None


def _producer_type(value: Any) -> bool:
    kind = property_text(value)
    if kind not in ("sync", "async"):
        raise ConfigurationError(f"Invalid value {kind} for configuration producer.type: sync or async is expected")
    return kind == "sync"


def _enqueue_policy(given: dict[str, Any]) -> EnqueuePolicy:
    """``queue.enqueue.timeout.ms`` drops what finds no room in time (-1: waits for
    ever); ``max.block.ms`` fails."""
    block_ms = _int(given, "max.block.ms", 60_000)
    if block_ms < 0:
        raise ConfigurationError(f"Invalid value {block_ms} for configuration max.block.ms: Value must be at least 0")
    if "queue.enqueue.timeout.ms" not in given:
        return EnqueuePolicy(block_ms, drops=False)
    wait_ms = _int(given, "queue.enqueue.timeout.ms", -1)
    if wait_ms < -1:
        raise ConfigurationError(
            f"Invalid value {wait_ms} for configuration queue.enqueue.timeout.ms: "
            "-1 (wait for ever), 0 (drop at once) or a number of milliseconds is expected"
        )
    return EnqueuePolicy(None if wait_ms == -1 else wait_ms, drops=True)


def _buffer_memory(given: dict[str, Any]) -> None:
    """Java bounds the bytes that wait and not their number.

    librdkafka bounds both, in KiB and records."""
    size_bytes = _int(given, "buffer.memory", -1)
    if size_bytes == -1:
        return
    if size_bytes <= 0:
        raise ConfigurationError(
            f"Invalid value {size_bytes} for configuration buffer.memory: Value must be at least 1"
        )
    given.setdefault("queue.buffering.max.kbytes", str(-(-size_bytes // 1024)))
    given.setdefault("queue.buffering.max.messages", "0")


def _check_acks(value: Any, name: str) -> None:
    text = property_text(value)
    if text.lower() != "all" and text not in ("-1", "0", "1"):
        raise ConfigurationError(f"Invalid value {text} for configuration {name}: all (or -1), 1 or 0 is expected")


def _codec(value: Any) -> str:
    name = property_text(value).lower()
    codec = _CODECS.get(name) or CODEC_ALIASES.get(name, name)
    if codec not in _CODECS.values():
        raise ConfigurationError(
            f"Invalid value {value} for configuration compression.codec: "
            "none, gzip, snappy, lz4, zstd or their numbers 0 to 4 are expected"
        )
    return codec


def _partitioner(given: dict[str, Any]) -> Any:
    """Decide what chooses partitions: librdkafka, which hashes keys as Java does, or
    a partitioner in Python."""
    chosen = given.pop("partitioner.class", None)
    ignore_keys = property_text(given.pop("partitioner.ignore.keys", "false")) == "true"
    if isinstance(chosen, str):
        chosen = PARTITIONERS.get(chosen, chosen)
    if chosen in (None, "", "default") and ignore_keys:
        chosen = "sticky"
    if chosen == "sticky":
        # librdkafka sticks only records without a key; "random" never looks at the key.
        given.setdefault("partitioner", "random")
        return None
    if isinstance(chosen, str) and chosen in LIBRDKAFKA_PARTITIONERS:
        given["partitioner"] = chosen
        return None
    given.setdefault("partitioner", "murmur2_random")
    return None if chosen in (None, "", "default") else chosen


def _assignors(value: str) -> str:
    """Java's class names as librdkafka's names; both lists are comma separated, first preferred."""
    names = []
    for part in value.split(","):
        name = part.strip().rsplit(".", 1)[-1]
        known = ASSIGNORS.get(name.lower(), name)
        if known not in names:
            names.append(known)
    if len(names) > 1 and "cooperative-sticky" in names:
        # librdkafka does not mix eager and cooperative; the one that came first was preferred.
        names = names[:1] if names[0] == "cooperative-sticky" else [n for n in names if n != "cooperative-sticky"]
    return ",".join(names)


def _one_of(given: dict[str, Any], names: tuple[str, ...]) -> Any:
    values = [given.pop(name) for name in names if name in given]
    if len(values) > 1 and values[0] != values[1]:
        raise ConfigurationError(f"{names[0]} and {names[1]} mean the same: give one of them")
    return values[0] if values else None


def translate_login(given: dict[str, Any]) -> None:
    """Java's properties for credentials and trusted certificates, as those of librdkafka.

    Raises `ConfigurationError`, also for what would be a connection without the
    protection that is meant.
    """
    refuse_unprotected(given)
    jaas = given.pop("sasl.jaas.config", None)
    if jaas is not None:
        options = _login_options(str(jaas))
        given.setdefault("sasl.username", options.get("username", ""))
        given.setdefault("sasl.password", options.get("password", ""))
    for name in ("sasl.username", "sasl.password"):
        if _SURROGATE.search(str(given.get(name, ""))):
            raise ConfigurationError(f"{name} holds half a character (a lone surrogate), which UTF-8 cannot hold")
    translate_stores(given)
    refuse_lost_blanks(given)
    if property_text(given.get("ssl.endpoint.identification.algorithm", "https")) == "":
        given["ssl.endpoint.identification.algorithm"] = "none"


def refuse_unprotected(given: Mapping[str, Any]) -> None:
    """A setting with a typing error would be no setting, and credentials that are
    not used are not meant."""
    for name in given:
        if name.lower().startswith("security.") and name != _PROTOCOL:
            raise ConfigurationError(
                f"{name} is not a setting of clients{did_you_mean(name, (_PROTOCOL,))}", remedy="leave it out"
            )
    if property_text(given.get(_PROTOCOL, "PLAINTEXT")).upper() == "PLAINTEXT":
        for name in _CREDENTIALS:
            if given.get(name):
                raise ConfigurationError(
                    f"{name} is given, but security.protocol is PLAINTEXT, which has no credentials",
                    remedy="set security.protocol=SASL_SSL or SASL_PLAINTEXT, or leave it out",
                )


def refuse_other_names(given: Mapping[str, str], prefix: str, known: Collection[str]) -> None:
    """Refuse names that this client does not support, so that no protection is silently ignored."""
    for name in given:
        if name.startswith(prefix) and name not in known:
            raise LibrdkafkaOnlyError(
                f"{name} is not supported by this client{did_you_mean(name, known)}", remedy="leave it out"
            )


def _login_options(jaas: str) -> dict[str, str]:
    """The options of the login module in ``sasl.jaas.config``."""
    try:
        module = login_module(jaas, "sasl.jaas.config")
    except ConfigError as error:
        raise ConfigurationError(str(error)) from None
    if not module.name.endswith(_LOGIN_MODULES):  # shaded libraries put a prefix before the package
        raise ConfigurationError(
            "sasl.jaas.config is supported for PlainLoginModule and ScramLoginModule; "
            "set librdkafka's sasl.* properties for other mechanisms"
        )
    return module.options
