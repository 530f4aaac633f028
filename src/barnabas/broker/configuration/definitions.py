"""Every broker property of Kafka 3.9, with its default and what it does here (Kafka's `KafkaConfig`).

What has an effect is defined here; `inert` has what is accepted without effect, `protective` what is refused. A name that
is in none of them is kept, shown by DescribeConfigs and reported. `UPDATE_MODES` says which may change while the broker
runs (KIP-226).
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from barnabas.base.errors import ConfigError
from barnabas.base.settings import Check, Definitions, Kind, Setting, Values, at_least, between, one_of
from barnabas.broker.configuration.inert import DYNAMIC_THREADS, INERT, WITHOUT_EFFECT
from barnabas.broker.configuration.protective import NOT_LISTED, PROTECTIVE, refuse_protection, wrong_unlisted
from barnabas.broker.configuration.table import UpdateMode

__all__ = [
    "DEFINITIONS",
    "NOT_DESCRIBED",
    "UPDATE_MODES",
    "WITHOUT_EFFECT",
    "ListenerAddress",
    "UpdateMode",
    "advertised_listeners",
    "check_thread_counts",
    "connection_caps",
    "ineffective",
    "inter_broker_listener",
    "listeners",
    "log_dirs",
]

BOOLEAN, STRING, INT, LONG, SHORT, DOUBLE, LIST = (
    Kind.BOOLEAN,
    Kind.STRING,
    Kind.INT,
    Kind.LONG,
    Kind.SHORT,
    Kind.DOUBLE,
    Kind.LIST,
)
MAX_INT = str((1 << 31) - 1)
MAX_LONG = str((1 << 63) - 1)
POSITIVE = at_least(1)
NOT_NEGATIVE = at_least(0)


def _a(name: str, kind: Kind, default: str | int | None, doc: str, check: Check | None = None) -> Setting:
    return Setting(name, kind, None if default is None else str(default), doc, check)


def _gzip_level(level: int) -> str | None:
    return None if level == -1 or 1 <= level <= 9 else "Value must be between 1 and 9 or equal to -1"


def _wrong_caps(text: str) -> str | None:
    for item in filter(None, map(str.strip, text.split(","))):
        host, _, count = item.rpartition(":")
        if not host or not count.isdigit():
            return f"{item!r} is not host:count"
    return None


_COORDINATION = (
    Setting(
        "zookeeper.connect",
        STRING,
        None,
        "Addresses of the coordination ensemble, host:port separated by commas; a chroot path may follow the last.",
        required=True,
    ),
    _a(
        "zookeeper.session.timeout.ms",
        INT,
        18000,
        "How long coordination may not hear from us before we count as dead.",
    ),
    _a(
        "zookeeper.connection.timeout.ms",
        INT,
        None,
        "How long to try to reach the ensemble at start; zookeeper.session.timeout.ms unless set.",
    ),
)

_IDENTITY = (
    _a("broker.id", INT, -1, "This broker's id; -1 takes a generated one.", at_least(-1)),
    _a("node.id", INT, -1, "The same as broker.id."),
    _a("broker.id.generation.enable", BOOLEAN, "true", "Whether ids above reserved.broker.max.id may be generated."),
    _a("reserved.broker.max.id", INT, 1000, "The largest id that broker.id may name.", NOT_NEGATIVE),
    _a("broker.rack", STRING, None, "The rack of this broker, for placing replicas and for nearest replica reads."),
    _a("delete.topic.enable", BOOLEAN, "true", "Whether topics can be deleted."),
    _a("auto.create.topics.enable", BOOLEAN, "true", "Whether asking for the metadata of a missing topic creates it."),
)

_NETWORK = (
    _a("listeners", STRING, "PLAINTEXT://:9092", "Where to listen: NAME://host:port, separated by commas."),
    _a("advertised.listeners", STRING, None, "What clients are told to connect to; the listeners unless set."),
    _a(
        "listener.security.protocol.map",
        STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "The security protocol of each listener name.",
    ),
    _a("inter.broker.listener.name", STRING, None, "The listener that brokers use among themselves."),
    _a(
        "security.inter.broker.protocol",
        STRING,
        "PLAINTEXT",
        "Names the inter-broker listener where its name is not.",
        refuse_protection(
            "security.inter.broker.protocol",
            "connections between brokers are neither encrypted nor authenticated",
            "PLAINTEXT",
        ),
    ),
    _a("socket.send.buffer.bytes", INT, 102400, "SO_SNDBUF of client connections; -1 leaves it to the system."),
    _a("socket.receive.buffer.bytes", INT, 102400, "SO_RCVBUF of client connections; -1 leaves it to the system."),
    _a("socket.request.max.bytes", INT, 104857600, "The largest request.", POSITIVE),
    _a(
        "max.connections",
        INT,
        10000,
        "Connections that the broker accepts, from all addresses together. Kafka has no limit: 2147483647 lifts it.",
        NOT_NEGATIVE,
    ),
    _a(
        "max.connections.per.ip",
        INT,
        2000,
        "Connections that the broker accepts from one address. Kafka has no limit: 2147483647 lifts it, and "
        "max.connections.per.ip.overrides lifts it for the address of a proxy or of a NAT gateway.",
        NOT_NEGATIVE,
    ),
    _a(
        "max.connections.per.ip.overrides",
        STRING,
        "",
        "Caps for single addresses: host:count, separated by commas.",
        _wrong_caps,
    ),
    _a("connections.max.idle.ms", LONG, 600000, "Connections that were silent for so long are closed."),
    _a("request.timeout.ms", INT, 30000, "How long requests of this broker to others may take."),
)

_LOG = (
    _a("log.dir", STRING, "/tmp/kafka-logs", "Where partitions are kept, if log.dirs is not set."),  # noqa: S108 - Kafka's default
    _a("log.dirs", STRING, None, "Folders in which partitions are kept, separated by commas."),
    _a("num.partitions", INT, 1, "Partitions of topics that are created automatically.", POSITIVE),
    _a("message.max.bytes", INT, 1048588, "The largest record batch.", NOT_NEGATIVE),
    _a("log.segment.bytes", INT, 1073741824, "A segment of this size is closed.", at_least(14)),
    _a("log.roll.ms", LONG, None, "A segment of this age is closed; log.roll.hours unless set.", POSITIVE),
    _a("log.roll.hours", INT, 168, "A segment of this age is closed.", POSITIVE),
    _a("log.roll.jitter.ms", LONG, None, "At most so much is taken off log.roll.ms.", NOT_NEGATIVE),
    _a("log.roll.jitter.hours", INT, 0, "At most so much is taken off log.roll.hours.", NOT_NEGATIVE),
    _a("log.retention.ms", LONG, None, "Segments of this age are deleted; -1 for never."),
    _a("log.retention.minutes", INT, None, "Segments of this age are deleted, if log.retention.ms is not set."),
    _a("log.retention.hours", INT, 168, "Segments of this age are deleted, if neither of the finer ones is set."),
    _a("log.retention.bytes", LONG, -1, "Old segments of partitions larger than this are deleted; -1 for no limit."),
    _a("log.retention.check.interval.ms", LONG, 300000, "How often retention is applied.", POSITIVE),
    _a("log.cleanup.policy", LIST, "delete", "What happens to old segments.", one_of("compact", "delete")),
    _a("log.segment.delete.delay.ms", LONG, 60000, "How long deleted files stay for readers.", NOT_NEGATIVE),
    _a("log.index.size.max.bytes", INT, 10485760, "The largest offset index.", at_least(4)),
    _a("log.index.interval.bytes", INT, 4096, "Bytes of records between two index entries.", NOT_NEGATIVE),
    _a(
        "log.flush.before.ack",
        BOOLEAN,
        "false",
        "Whether records are synced to disk before anyone hears that they are there (ours; not in Kafka).",
    ),
    _a("log.flush.interval.messages", LONG, MAX_LONG, "Records after which a partition is synced to disk.", POSITIVE),
    _a("log.flush.interval.ms", LONG, None, "Time after which a partition is synced to disk."),
    _a("log.flush.scheduler.interval.ms", LONG, MAX_LONG, "How often to look for partitions that are due for a sync."),
    _a("log.flush.offset.checkpoint.interval.ms", INT, 60000, "How often recovery points are written.", NOT_NEGATIVE),
    _a(
        "log.flush.start.offset.checkpoint.interval.ms",
        INT,
        60000,
        "How often log start offsets are written.",
        NOT_NEGATIVE,
    ),
    _a(
        "log.message.timestamp.type",
        STRING,
        "CreateTime",
        "Whose clock stamps records.",
        one_of("CreateTime", "LogAppendTime"),
    ),
    _a("log.message.timestamp.before.max.ms", LONG, MAX_LONG, "How far in the past timestamps may lie.", NOT_NEGATIVE),
    _a("log.message.timestamp.after.max.ms", LONG, MAX_LONG, "How far ahead timestamps may lie.", NOT_NEGATIVE),
    _a(
        "compression.type",
        STRING,
        "producer",
        "The codec that topics are stored in; producer keeps what comes.",
        one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    ),
    _a(
        "compression.gzip.level",
        INT,
        -1,
        "Level for topics that the broker compresses with gzip; -1 is the codec's own default.",
        _gzip_level,
    ),
    _a("compression.lz4.level", INT, 9, "Level for topics that the broker compresses with lz4.", between(1, 17)),
    _a(
        "compression.zstd.level", INT, 3, "Level for topics that the broker compresses with zstd.", between(-131072, 22)
    ),
    _a(
        "log.message.timestamp.difference.max.ms",
        LONG,
        MAX_LONG,
        "Deprecated: both of the timestamp limits, before and after, where they are not set.",
        NOT_NEGATIVE,
    ),
    _a(
        "log.local.retention.bytes",
        LONG,
        -2,
        "Bytes kept locally under tiered storage; -2 follows log.retention.bytes.",
        at_least(-2),
    ),
    _a(
        "log.local.retention.ms",
        LONG,
        -2,
        "Time kept locally under tiered storage; -2 follows log.retention.ms.",
        at_least(-2),
    ),
    _a("log.message.downconversion.enable", BOOLEAN, "true", "Default of message.downconversion.enable for topics."),
    _a(
        "log.message.format.version",
        STRING,
        "3.0-IV1",
        "Deprecated: the default of message.format.version for topics, which is always 3.0 or later.",
    ),
    _a("log.cleaner.enable", BOOLEAN, "true", "Whether topics with cleanup.policy=compact are compacted."),
    _a("log.cleaner.threads", INT, 1, "How many logs are compacted at a time.", NOT_NEGATIVE),
    _a("log.cleaner.backoff.ms", LONG, 15000, "How often to look for logs to compact.", NOT_NEGATIVE),
    _a(
        "log.cleaner.io.max.bytes.per.second",
        DOUBLE,
        "1.7976931348623157E308",
        "Bytes that all compactions together may read and write a second.",
        POSITIVE,
    ),
    _a(
        "log.cleaner.dedupe.buffer.size",
        LONG,
        134217728,
        "Memory for the keys of all compactions, 24 bytes a key; taken only as far as there are keys.",
        at_least(1 << 20),
    ),
    _a(
        "log.cleaner.io.buffer.load.factor",
        DOUBLE,
        "0.9",
        "How full that memory may become: more keys at a time, and more probes for each.",
        between(0.01, 0.95),
    ),
    _a("log.cleaner.io.buffer.size", INT, 524288, "Memory for the batches of all compactions.", NOT_NEGATIVE),
    _a("log.cleaner.delete.retention.ms", LONG, 86400000, "How long compacted topics keep tombstones.", NOT_NEGATIVE),
    _a("log.cleaner.min.compaction.lag.ms", LONG, 0, "Records younger than this are not compacted.", NOT_NEGATIVE),
    _a("log.cleaner.max.compaction.lag.ms", LONG, MAX_LONG, "Records older than this are compacted.", POSITIVE),
    _a("log.cleaner.min.cleanable.ratio", DOUBLE, "0.5", "Dirty share at which a log is compacted.", between(0, 1)),
)

_REPLICATION = (
    _a("default.replication.factor", INT, 1, "Replicas of topics that are created automatically."),
    _a("min.insync.replicas", INT, 1, "Replicas that must have a record before acks=all is answered.", POSITIVE),
    _a("replica.lag.time.max.ms", LONG, 30000, "A follower that was not caught up for so long leaves the ISR."),
    _a(
        "replica.lag.max.messages",
        LONG,
        None,
        "Historic (Kafka before 0.9, KIP-16): a follower more records behind than this leaves the ISR too, so that a "
        "burst of records throws followers out that keep up; unset, time alone decides.",
        POSITIVE,
    ),
    _a("replica.fetch.max.bytes", INT, 1048576, "Bytes a follower asks of a partition.", NOT_NEGATIVE),
    _a("replica.fetch.response.max.bytes", INT, 10485760, "Bytes a follower asks of a leader.", NOT_NEGATIVE),
    _a("replica.fetch.min.bytes", INT, 1, "Bytes a follower waits for."),
    _a("replica.fetch.wait.max.ms", INT, 500, "How long a follower waits for them."),
    _a("replica.fetch.backoff.ms", INT, 1000, "How long a follower waits after a failed fetch.", NOT_NEGATIVE),
    _a("replica.socket.timeout.ms", INT, 30000, "How long a follower's request may take."),
    _a(
        "replica.selector.class",
        STRING,
        None,
        "Who may serve a consumer that names its rack: the leader alone, or with "
        "org.apache.kafka.common.replica.RackAwareReplicaSelector an in-sync follower in that rack.",
    ),
    _a(
        "leader.replication.throttled.rate",
        LONG,
        MAX_LONG,
        "Bytes a second that this broker sends of the replicas in its topics' leader.replication.throttled.replicas.",
        NOT_NEGATIVE,
    ),
    _a(
        "follower.replication.throttled.rate",
        LONG,
        MAX_LONG,
        "Bytes a second that this broker copies of the replicas in its topics' follower.replication.throttled.replicas.",
        NOT_NEGATIVE,
    ),
    _a("replication.quota.window.num", INT, 11, "Over how many samples these two rates are measured.", POSITIVE),
    _a("replication.quota.window.size.seconds", INT, 1, "How long each of the samples is.", POSITIVE),
    _a(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        LONG,
        MAX_LONG,
        "Bytes a second that all moves of replicas between log dirs together may copy.",
        NOT_NEGATIVE,
    ),
    _a(
        "num.replica.alter.log.dirs.threads",
        INT,
        None,
        "How many replicas move between log dirs at a time; as many as there are log dirs unless set.",
    ),
    _a(
        "replica.high.watermark.checkpoint.interval.ms",
        LONG,
        5000,
        "How often high watermarks are written to disk.",
        POSITIVE,
    ),
    _a("unclean.leader.election.enable", BOOLEAN, "false", "Whether a replica outside the ISR may become leader."),
    _a(
        "auto.leader.rebalance.enable", BOOLEAN, "true", "Whether leadership goes back to preferred replicas by itself."
    ),
    _a("leader.imbalance.per.broker.percentage", INT, 10, "Share of misplaced leaders at which that happens."),
    _a("leader.imbalance.check.interval.seconds", LONG, 300, "How often that is looked at.", POSITIVE),
    _a("controller.socket.timeout.ms", INT, 30000, "How long the controller's requests to brokers may take."),
    _a("controlled.shutdown.enable", BOOLEAN, "true", "Whether leadership is handed over before a stop."),
    _a("controlled.shutdown.max.retries", INT, 3, "Attempts at that."),
    _a("controlled.shutdown.retry.backoff.ms", LONG, 5000, "Time between them."),
)

_GROUPS = (
    _a("group.min.session.timeout.ms", INT, 6000, "The shortest session time-out of a consumer."),
    _a("group.max.session.timeout.ms", INT, 1800000, "The longest session time-out of a consumer."),
    _a("group.initial.rebalance.delay.ms", INT, 3000, "How long a new group waits for more members."),
    _a("group.max.size", INT, MAX_INT, "Most members of a group.", POSITIVE),
    _a("offset.metadata.max.bytes", INT, 4096, "Most bytes of metadata beside a committed offset."),
    _a("offsets.load.buffer.size", INT, 5242880, "Bytes read at a time when offsets are loaded.", POSITIVE),
    _a("offsets.retention.minutes", INT, 10080, "How long offsets of an empty group are kept.", POSITIVE),
    _a("offsets.retention.check.interval.ms", LONG, 600000, "How often to look for offsets to forget.", POSITIVE),
    _a("offsets.topic.num.partitions", INT, 50, "Partitions of __consumer_offsets.", POSITIVE),
    _a("offsets.topic.replication.factor", SHORT, 3, "Replicas of __consumer_offsets.", POSITIVE),
    _a("offsets.topic.segment.bytes", INT, 104857600, "Segment size of __consumer_offsets.", POSITIVE),
    _a("offsets.topic.compression.codec", INT, 0, "Codec number of __consumer_offsets."),
    _a("offsets.commit.timeout.ms", INT, 5000, "How long a commit waits for replicas.", POSITIVE),
)

_SERVING = (
    _a("fetch.max.bytes", INT, 57671680, "Most bytes of a fetch answer.", at_least(1024)),
    _a("max.incremental.fetch.session.cache.slots", INT, 1000, "Most fetch sessions kept.", NOT_NEGATIVE),
    _a("producer.id.expiration.ms", INT, 86400000, "How long a silent producer's state is kept.", POSITIVE),
)

_MIB = 1 << 20


def _check_all(values: Values) -> None:
    threads = values["log.cleaner.threads"]
    if values["log.cleaner.enable"] and values["log.cleaner.dedupe.buffer.size"] < threads * _MIB:
        raise ConfigError("requirement failed: log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.")
    if values["max.connections.per.ip"] == 0 and not values["max.connections.per.ip.overrides"]:
        raise ConfigError(
            "requirement failed: max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides property is set."
        )
    if values.is_set("node.id") and values["node.id"] != values["broker.id"]:
        raise ConfigError("node.id must be equal to broker.id: set broker.id, or leave node.id out")


_TABLES = (*INERT, *PROTECTIVE, *NOT_LISTED)

DEFINITIONS = Definitions(
    (
        *(*_COORDINATION, *_IDENTITY, *_NETWORK, *_LOG, *_REPLICATION, *_GROUPS, *_SERVING),
        *(row.setting for row in _TABLES),
    ),
    check_unknown=wrong_unlisted,
    check_all=_check_all,
)
"""All properties."""

NOT_DESCRIBED = frozenset(
    (
        *(row.setting.name for row in NOT_LISTED),
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    )
)
"""Properties that Kafka's DescribeConfigs lists only while they are set, as it does unknown ones; none is updatable."""

_CLUSTER_WIDE = (
    "message.max.bytes",
    "log.segment.bytes",
    "log.roll.ms",
    "log.roll.jitter.ms",
    "log.retention.ms",
    "log.retention.bytes",
    "log.cleanup.policy",
    "log.segment.delete.delay.ms",
    "log.index.size.max.bytes",
    "log.index.interval.bytes",
    "log.flush.before.ack",
    "log.flush.interval.messages",
    "log.flush.interval.ms",
    "log.message.timestamp.type",
    "log.message.timestamp.before.max.ms",
    "log.message.timestamp.after.max.ms",
    "log.cleaner.threads",
    "log.cleaner.backoff.ms",
    "log.cleaner.io.max.bytes.per.second",
    "log.cleaner.dedupe.buffer.size",
    "log.cleaner.io.buffer.load.factor",
    "log.cleaner.io.buffer.size",
    "log.cleaner.delete.retention.ms",
    "log.cleaner.min.compaction.lag.ms",
    "log.cleaner.max.compaction.lag.ms",
    "log.cleaner.min.cleanable.ratio",
    "compression.type",
    "min.insync.replicas",
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "unclean.leader.election.enable",
    "max.connections",
    "max.connections.per.ip",
    "max.connections.per.ip.overrides",
    "producer.id.expiration.ms",
    "replica.alter.log.dirs.io.max.bytes.per.second",
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.zstd.level",
    "log.local.retention.bytes",
    "log.local.retention.ms",
    "log.message.downconversion.enable",
    "log.message.timestamp.difference.max.ms",
)
UPDATE_MODES: dict[str, UpdateMode] = {
    **dict.fromkeys(_CLUSTER_WIDE, UpdateMode.CLUSTER_WIDE),
    **{row.setting.name: row.mode for row in _TABLES if row.mode is not UpdateMode.READ_ONLY},
}
"""Properties that are not read-only. Cluster-wide ones may be set for one broker too."""


def ineffective(values: Values) -> dict[str, str]:
    """The given properties that have no effect, each with the reason."""
    return {
        name: WITHOUT_EFFECT.get(name, "it is not known")
        for name in values.texts
        if name in WITHOUT_EFFECT or name not in DEFINITIONS
    }


def check_thread_counts(before: Values, after: Values, changed: Collection[str]) -> None:
    """Refuse to change a number of threads by more than Kafka does in one step; raises `ConfigError`."""
    for name in changed:
        if name == "log.cleaner.threads":
            too_few, too_many = (
                "Log cleaner threads cannot be reduced to less than half the current value {old}",
                "Log cleaner threads cannot be increased to more than double the current value {old}",
            )
            none = "Log cleaner threads should be at least 1"
        elif name in DYNAMIC_THREADS:
            failed = f"Dynamic thread count update validation failed for {name}={after[name]}, value "
            none = f"{failed}should be at least 1"
            too_few = failed + "should be at least half the current value {old}"
            too_many = failed + "should not be greater than double the current value {old}"
        else:
            continue
        old, new = before[name], after[name]
        wrong = none if new < 1 else too_few if new < old // 2 else too_many if new > old * 2 else None
        if wrong is not None and new != old:
            raise _invalid_change(wrong.format(old=old))


def _invalid_change(wrong: str) -> ConfigError:
    """The words of Kafka, which has the class of its exception in them."""
    wrong = f"org.apache.kafka.common.config.ConfigException: {wrong}"
    return ConfigError(f"Invalid value {wrong} for configuration Invalid dynamic configuration")


@dataclass(frozen=True, slots=True)
class ListenerAddress:
    """One listener: its name, its security protocol, and where it is."""

    name: str
    protocol: str
    host: str
    """Empty for all interfaces."""
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.name}://{host}:{self.port}"


_SUPPORTED_PROTOCOLS = ("PLAINTEXT",)


def _protocols(values: Values) -> dict[str, str]:
    found = {}
    for item in values["listener.security.protocol.map"].split(","):
        name, separator, protocol = item.strip().partition(":")
        if not name or not separator:
            raise ConfigError(f"listener.security.protocol.map: {item!r} is not NAME:PROTOCOL")
        found[name.strip().upper()] = protocol.strip().upper()
    return found


def _parse_listeners(values: Values, setting: str) -> list[ListenerAddress]:
    protocols = _protocols(values)
    found: list[ListenerAddress] = []
    for item in values[setting].split(","):
        if not item.strip():
            continue
        name, separator, address = item.strip().partition("://")
        host, colon, port = address.rpartition(":")
        name = name.upper()
        if not separator or not colon or not port.isdigit() or int(port) > 65535:
            raise ConfigError(f"{setting}: {item.strip()!r} is not NAME://host:port")
        protocol = protocols.get(name)
        if protocol is None:
            raise ConfigError(f"{setting}: listener.security.protocol.map names no security protocol for {name}")
        if protocol not in _SUPPORTED_PROTOCOLS:
            raise ConfigError(
                f"{setting}: {name} uses {protocol}, which this version does not speak; use a PLAINTEXT listener"
            )
        found.append(ListenerAddress(name, protocol, host.strip("[]"), int(port)))
    if not found:
        raise ConfigError(f"{setting} names no listener")
    for what, kept in (("name", [a.name for a in found]), ("port", [a.port for a in found if a.port])):
        if setting == "listeners" and len(set(kept)) != len(kept):
            raise ConfigError(f"{setting}: each listener must have a {what} of its own: {values[setting]}")
    return found


def listeners(values: Values) -> list[ListenerAddress]:
    """Where to listen; raises `ConfigError`."""
    return _parse_listeners(values, "listeners")


def advertised_listeners(
    values: Values, bound: list[ListenerAddress], own_host: Callable[[], str]
) -> list[ListenerAddress]:
    """What other brokers and clients are to connect to, given the listeners with their real ports.

    The answer of ``own_host`` stands for listeners on all interfaces; a port of 0 stands for the real one.
    """
    if values["advertised.listeners"] is None:
        told = bound
    else:
        told = _parse_listeners(values, "advertised.listeners")
    ports = {listener.name: listener.port for listener in bound}
    found = []
    for listener in told:
        if listener.name not in ports:
            raise ConfigError(f"advertised.listeners: there is no listener {listener.name}")
        if listener.host in ("0.0.0.0", "::"):  # noqa: S104 - compared, not bound
            if values["advertised.listeners"] is not None:
                raise ConfigError(
                    f"advertised.listeners: nobody can connect to {listener.host}; name an address or a host"
                )
            raise ConfigError(
                f"listeners: {listener.host} cannot be told to clients; set advertised.listeners, or leave the host out"
            )
        found.append(
            ListenerAddress(
                listener.name, listener.protocol, listener.host or own_host(), listener.port or ports[listener.name]
            )
        )
    return found


def inter_broker_listener(values: Values) -> str:
    """The name of the listener that brokers use among themselves; raises `ConfigError` when there is none."""
    name = values["inter.broker.listener.name"]
    if name is not None and values.is_set("security.inter.broker.protocol"):
        raise ConfigError("Only one of inter.broker.listener.name and security.inter.broker.protocol should be set.")
    chosen: str = (name or values["security.inter.broker.protocol"]).upper()
    if chosen not in [listener.name for listener in listeners(values)]:
        raise ConfigError(f"There is no listener {chosen} for the brokers among themselves: {values['listeners']}")
    return chosen


def log_dirs(values: Values) -> list[str]:
    """The log dirs, in order, each once; raises `ConfigError`."""
    text = values["log.dirs"] or values["log.dir"]
    found = list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not found:
        raise ConfigError("At least one log directory must be defined via log.dirs or log.dir.")
    return found


def connection_caps(values: Values) -> Mapping[str, int]:
    """Caps of max.connections.per.ip.overrides by address."""
    items = filter(None, map(str.strip, values["max.connections.per.ip.overrides"].split(",")))
    return {host: int(count) for host, _, count in (item.rpartition(":") for item in items)}
