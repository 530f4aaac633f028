"""Every broker property of Kafka 3.9, with its default and what it does here (Kafka's `KafkaConfig`).

What has an effect is defined here; `without_effect` has the names that are accepted and change nothing, `refused` those that
are refused. A name that is in none of them is kept, shown by DescribeConfigs and reported. `UPDATE_MODES` says which may change while the broker
runs (KIP-226).
"""

from collections.abc import Collection, Mapping

from barnabas.base.errors import ConfigError
from barnabas.base.settings import Definitions, Kind, Setting, ValueCheck, Values, at_least, between, one_of
from barnabas.broker.configuration.listener_security import check_listener_security, security_without_effect
from barnabas.broker.configuration.refused import NOT_LISTED, ROWS_REFUSED, wrong_unlisted
from barnabas.broker.configuration.security_settings import ROWS_SECURITY, listener_setting
from barnabas.broker.configuration.table import UpdateMode
from barnabas.broker.configuration.without_effect import DYNAMIC_THREADS, ROWS_WITHOUT_EFFECT, WITHOUT_EFFECT
from barnabas.security.jaas import JAAS_FILE

__all__ = [
    "DEFINITIONS",
    "NOT_DESCRIBED",
    "UPDATE_MODES",
    "WITHOUT_EFFECT",
    "UpdateMode",
    "check_thread_counts",
    "connection_caps",
    "log_dirs",
    "settings_without_effect",
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


def _a(name: str, kind: Kind, default: str | int | None, doc: str, check: ValueCheck | None = None) -> Setting:
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
        "Addresses of the coordination ensemble, host:port separated by commas. A chroot path may follow the last.",
        required=True,
    ),
    _a(
        "zookeeper.session.timeout.ms",
        INT,
        18000,
        "Time without contact after which the coordination service takes the broker for dead.",
    ),
    _a(
        "zookeeper.connection.timeout.ms",
        INT,
        None,
        "How long the broker tries to reach the ensemble at its start. Unset: zookeeper.session.timeout.ms.",
    ),
)

_IDENTITY = (
    _a("broker.id", INT, -1, "The id of this broker; -1 generates one.", at_least(-1)),
    _a("node.id", INT, -1, "The same as broker.id."),
    _a("broker.id.generation.enable", BOOLEAN, "true", "Whether ids above reserved.broker.max.id may be generated."),
    _a("reserved.broker.max.id", INT, 1000, "The largest value of broker.id; generated ids are larger.", NOT_NEGATIVE),
    _a(
        "broker.rack",
        STRING,
        None,
        "The rack of this broker, for the placement of replicas and for reads from the nearest replica.",
    ),
    _a("delete.topic.enable", BOOLEAN, "true", "Whether topics can be deleted."),
    _a("auto.create.topics.enable", BOOLEAN, "true", "Whether a metadata request for a missing topic creates it."),
)

_NETWORK = (
    _a("listeners", STRING, "PLAINTEXT://:9092", "Where the broker listens: NAME://host:port, separated by commas."),
    _a("advertised.listeners", STRING, None, "The addresses that clients connect to. Unset: those of listeners."),
    _a(
        "listener.security.protocol.map",
        STRING,
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "The security protocol of each listener name.",
    ),
    _a("inter.broker.listener.name", STRING, None, "The listener that brokers use between themselves."),
    _a(
        "security.inter.broker.protocol",
        STRING,
        "PLAINTEXT",
        "Selects the inter-broker listener where inter.broker.listener.name is not set.",
        one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    ),
    _a(
        "socket.send.buffer.bytes",
        INT,
        102400,
        "SO_SNDBUF of client connections; -1 lets the system size it as the reader takes the bytes. The default cuts an answer "
        "of a megabyte into five pieces, and gives a distant reader 200 KB in each round trip.",
    ),
    _a("socket.receive.buffer.bytes", INT, 102400, "SO_RCVBUF of client connections; -1 leaves it to the system."),
    _a("socket.request.max.bytes", INT, 104857600, "The largest request, in bytes.", POSITIVE),
    _a(
        "queued.max.request.bytes",
        LONG,
        -1,
        "Bytes that may wait in memory for all clients together: requests that have not come to their end or are being decoded, and "
        "answers that are not read. Near the limit large requests wait in their sockets, and clients that stand still are "
        "disconnected. A request that is larger than the limit is served all the same. -1 for 128 MiB; in Kafka, for no limit.",
    ),
    _a(
        "max.connections",
        INT,
        10000,
        "Connections that the broker accepts, from all addresses together. Where there are several listeners, the one of "
        "the brokers goes beyond it. If not set, at most half of the limit of open files. Kafka has no limit: 2147483647 lifts it.",
        NOT_NEGATIVE,
    ),
    _a(
        "max.connections.per.ip",
        INT,
        2000,
        "Connections that the broker accepts from one address. If not set, at most a quarter of the limit of open files. Kafka has no limit: 2147483647 lifts it, and "
        "max.connections.per.ip.overrides lifts it for the address of a proxy or of a NAT gateway.",
        NOT_NEGATIVE,
    ),
    _a(
        "max.connections.per.ip.overrides",
        STRING,
        "",
        "Limits for single addresses: host:count, separated by commas. A host name stands for its first address.",
        _wrong_caps,
    ),
    _a(
        "metrics.http.address",
        STRING,
        None,
        "Where Prometheus gets the metrics of the broker, in the path /metrics: host:port. Unset: nowhere (ours; not in Kafka).",
    ),
    _a(
        "metrics.http.topics",
        INT,
        100,
        "The number of topics that have metrics of their own (not in Kafka).",
        NOT_NEGATIVE,
    ),
    _a("connections.max.idle.ms", LONG, 600000, "Connections without a request for this long are closed."),
    _a("request.timeout.ms", INT, 30000, "Timeout of this broker's requests to other brokers."),
)

_LOG = (
    _a("log.dir", STRING, "/tmp/kafka-logs", "The folder for partitions, if log.dirs is not set."),  # noqa: S108 - Kafka's default
    _a("log.dirs", STRING, None, "The folders for partitions, separated by commas."),
    _a("num.partitions", INT, 1, "Partitions of topics that are created automatically.", POSITIVE),
    _a("message.max.bytes", INT, 1048588, "The largest record batch, in bytes.", NOT_NEGATIVE),
    _a("log.segment.bytes", INT, 1073741824, "Size at which a new segment begins.", at_least(14)),
    _a("log.roll.ms", LONG, None, "Age at which a new segment begins. Unset: log.roll.hours.", POSITIVE),
    _a("log.roll.hours", INT, 168, "Age at which a new segment begins.", POSITIVE),
    _a(
        "log.roll.jitter.ms",
        LONG,
        None,
        "The largest random time that is subtracted from log.roll.ms. Unset: log.roll.jitter.hours.",
        NOT_NEGATIVE,
    ),
    _a(
        "log.roll.jitter.hours", INT, 0, "The largest random time that is subtracted from log.roll.hours.", NOT_NEGATIVE
    ),
    _a("log.retention.ms", LONG, None, "Age at which segments are deleted; -1 for never."),
    _a("log.retention.minutes", INT, None, "Age at which segments are deleted, if log.retention.ms is not set."),
    _a(
        "log.retention.hours",
        INT,
        168,
        "Age at which segments are deleted, if neither log.retention.ms nor log.retention.minutes is set.",
    ),
    _a(
        "log.retention.bytes",
        LONG,
        -1,
        "Size of a partition above which its oldest segments are deleted; -1 for no limit.",
    ),
    _a("log.retention.check.interval.ms", LONG, 300000, "How often retention is applied.", POSITIVE),
    _a(
        "log.cleanup.policy",
        LIST,
        "delete",
        "What happens to old segments: they are deleted, or only the last record of each key is kept "
        "(compact), or both.",
        one_of("compact", "delete"),
    ),
    _a(
        "log.segment.delete.delay.ms",
        LONG,
        60000,
        "How long the files of deleted segments stay for readers.",
        NOT_NEGATIVE,
    ),
    _a("log.index.size.max.bytes", INT, 10485760, "The largest offset index, in bytes.", at_least(4)),
    _a("log.index.interval.bytes", INT, 4096, "Bytes of records between two entries of an index.", NOT_NEGATIVE),
    _a(
        "log.flush.before.ack",
        BOOLEAN,
        "false",
        "Whether records are synced to disk before they are acknowledged or visible (ours; not in Kafka).",
    ),
    _a("log.flush.interval.messages", LONG, MAX_LONG, "Records after which a partition is synced to disk.", POSITIVE),
    _a(
        "log.flush.interval.ms",
        LONG,
        None,
        "Time after which a partition is synced to disk. Unset: log.flush.scheduler.interval.ms.",
    ),
    _a("log.flush.scheduler.interval.ms", LONG, MAX_LONG, "How often the broker looks for partitions to sync."),
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
        "Whether records have the producer's timestamp or that of the append.",
        one_of("CreateTime", "LogAppendTime"),
    ),
    _a(
        "log.message.timestamp.before.max.ms",
        LONG,
        MAX_LONG,
        "How far a producer's timestamp may lie behind the broker's clock.",
        NOT_NEGATIVE,
    ),
    _a(
        "log.message.timestamp.after.max.ms",
        LONG,
        MAX_LONG,
        "How far a producer's timestamp may lie ahead of the broker's clock.",
        NOT_NEGATIVE,
    ),
    _a(
        "compression.type",
        STRING,
        "producer",
        "The codec in which topics are stored; producer keeps the codec of each batch.",
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
    _a("log.cleaner.enable", BOOLEAN, "true", "Whether topics with cleanup.policy=compact are compacted."),
    _a("log.cleaner.threads", INT, 1, "How many logs are compacted at a time.", NOT_NEGATIVE),
    _a("log.cleaner.backoff.ms", LONG, 15000, "How often the broker looks for logs to compact.", NOT_NEGATIVE),
    _a(
        "log.cleaner.io.max.bytes.per.second",
        DOUBLE,
        "1.7976931348623157E308",
        "Bytes a second that all compactions together may read and write.",
        POSITIVE,
    ),
    _a(
        "log.cleaner.dedupe.buffer.size",
        LONG,
        134217728,
        "Memory for the keys of all compactions, 32 bytes for each key. It is allocated as keys come.",
        at_least(1 << 20),
    ),
    _a(
        "log.cleaner.io.buffer.load.factor",
        DOUBLE,
        "0.9",
        "How full that memory may become. A higher value takes more keys at a time and needs more probes for each.",
        between(0.01, 0.95),
    ),
    _a(
        "log.cleaner.io.buffer.size",
        INT,
        524288,
        "Bytes that all compactions read at a time; in processes of their own eight times as many.",
        NOT_NEGATIVE,
    ),
    _a(
        "log.cleaner.delete.retention.ms",
        LONG,
        86400000,
        "How long compacted topics keep delete markers.",
        NOT_NEGATIVE,
    ),
    _a("log.cleaner.min.compaction.lag.ms", LONG, 0, "Records younger than this are not compacted.", NOT_NEGATIVE),
    _a("log.cleaner.max.compaction.lag.ms", LONG, MAX_LONG, "Age at which records must have been compacted.", POSITIVE),
    _a(
        "log.cleaner.min.cleanable.ratio",
        DOUBLE,
        "0.5",
        "Share of bytes not yet compacted at which a log is compacted.",
        between(0, 1),
    ),
)

_REPLICATION = (
    _a("default.replication.factor", INT, 1, "Replicas of topics that are created automatically."),
    _a(
        "min.insync.replicas",
        INT,
        1,
        "Replicas that must have a record before acks=all is answered; with fewer in sync the record is refused.",
        POSITIVE,
    ),
    _a("replica.lag.time.max.ms", LONG, 30000, "A follower that has not caught up for this long leaves the ISR."),
    _a(
        "replica.lag.max.messages",
        LONG,
        None,
        "Historic (Kafka before 0.9, KIP-16): a follower that is more records behind than this leaves the "
        "ISR too, even one that keeps up, after a burst of records. Unset: time alone decides.",
        POSITIVE,
    ),
    _a(
        "replica.fetch.max.bytes",
        INT,
        1048576,
        "Bytes that a follower fetches of one partition at a time.",
        NOT_NEGATIVE,
    ),
    _a(
        "replica.fetch.response.max.bytes",
        INT,
        10485760,
        "Bytes that a follower fetches of one leader at a time.",
        NOT_NEGATIVE,
    ),
    _a("replica.fetch.min.bytes", INT, 1, "Bytes for which a leader lets a follower wait."),
    _a("replica.fetch.wait.max.ms", INT, 500, "How long a leader lets a follower wait for them."),
    _a("replica.fetch.backoff.ms", INT, 1000, "How long a follower waits after a failed fetch.", NOT_NEGATIVE),
    _a("replica.socket.timeout.ms", INT, 30000, "Timeout of a follower's requests."),
    _a(
        "replica.selector.class",
        STRING,
        None,
        "Which replica serves a consumer that gives its rack: the leader, or with "
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
    _a(
        "replication.quota.window.num",
        INT,
        11,
        "Samples over which the two replication throttles are measured.",
        POSITIVE,
    ),
    _a("replication.quota.window.size.seconds", INT, 1, "Length of each of these samples.", POSITIVE),
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
        "auto.leader.rebalance.enable",
        BOOLEAN,
        "true",
        "Whether preferred replicas become leaders again without a request.",
    ),
    _a(
        "leader.imbalance.per.broker.percentage",
        INT,
        10,
        "Share of a broker's partitions with another leader than the preferred one, at which that happens.",
    ),
    _a("leader.imbalance.check.interval.seconds", LONG, 300, "How often that share is checked.", POSITIVE),
    _a("controller.socket.timeout.ms", INT, 30000, "Timeout of the controller's requests to brokers."),
    _a(
        "controlled.shutdown.enable",
        BOOLEAN,
        "true",
        "Whether a broker moves its leaderships to others before it stops.",
    ),
    _a("controlled.shutdown.max.retries", INT, 3, "Attempts to move them."),
    _a("controlled.shutdown.retry.backoff.ms", LONG, 5000, "Pause between two attempts."),
)

_GROUPS = (
    _a("group.min.session.timeout.ms", INT, 6000, "The shortest session timeout that a consumer may ask for."),
    _a("group.max.session.timeout.ms", INT, 1800000, "The longest session timeout that a consumer may ask for."),
    _a("group.initial.rebalance.delay.ms", INT, 3000, "How long a new group waits for more members."),
    _a("group.max.size", INT, MAX_INT, "Members that a group may have.", POSITIVE),
    _a("offset.metadata.max.bytes", INT, 4096, "Bytes of metadata that a committed offset may have."),
    _a("offsets.load.buffer.size", INT, 5242880, "Bytes read at a time when offsets are loaded.", POSITIVE),
    _a("offsets.retention.minutes", INT, 10080, "How long offsets of an empty group are kept.", POSITIVE),
    _a("offsets.retention.check.interval.ms", LONG, 600000, "How often expired offsets are looked for.", POSITIVE),
    _a("offsets.topic.num.partitions", INT, 50, "Partitions of __consumer_offsets.", POSITIVE),
    _a("offsets.topic.replication.factor", SHORT, 3, "Replicas of __consumer_offsets.", POSITIVE),
    _a("offsets.topic.segment.bytes", INT, 104857600, "Segment size of __consumer_offsets.", POSITIVE),
    _a("offsets.topic.compression.codec", INT, 0, "Codec of __consumer_offsets, by its number."),
    _a("offsets.commit.timeout.ms", INT, 5000, "How long an offset commit waits for replicas.", POSITIVE),
)

_SERVING = (
    _a("fetch.max.bytes", INT, 57671680, "Bytes that one answer to a fetch may have.", at_least(1024)),
    _a("max.incremental.fetch.session.cache.slots", INT, 1000, "Fetch sessions that the broker keeps.", NOT_NEGATIVE),
    _a("producer.id.expiration.ms", INT, 86400000, "How long the state of an inactive producer is kept.", POSITIVE),
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
    if 0 < values["queued.max.request.bytes"] < values["socket.request.max.bytes"]:
        raise ConfigError(
            "requirement failed: queued.max.request.bytes must be larger or equal to socket.request.max.bytes"
        )
    if values.is_set("node.id") and values["node.id"] != values["broker.id"]:
        raise ConfigError("node.id must be equal to broker.id: set broker.id, or leave node.id out")
    if values["connection.failed.authentication.delay.ms"] >= values["connections.max.idle.ms"] >= 0:
        raise ConfigError(
            "requirement failed: connection.failed.authentication.delay.ms="
            f"{values['connection.failed.authentication.delay.ms']} must be less than connections.max.idle.ms="
            f"{values['connections.max.idle.ms']} to prevent failed authentication responses from timing out"
        )
    check_listener_security(values)


_TABLES = (*ROWS_WITHOUT_EFFECT, *ROWS_SECURITY, *ROWS_REFUSED, *NOT_LISTED)
_JAAS_FILE = Setting(
    JAAS_FILE,
    STRING,
    None,
    "A JAAS file with the section KafkaServer, for SASL: Java's system property, which Kafka does not have among its own.",
)

DEFINITIONS = Definitions(
    (
        *(*_COORDINATION, *_IDENTITY, *_NETWORK, *_LOG, *_REPLICATION, *_GROUPS, *_SERVING),
        *(row.setting for row in _TABLES),
        _JAAS_FILE,
    ),
    check_unknown=wrong_unlisted,
    check_all=_check_all,
)
"""All properties."""

NOT_DESCRIBED = frozenset(
    (
        *(row.setting.name for row in NOT_LISTED),
        JAAS_FILE,
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
    "log.message.timestamp.difference.max.ms",
)
UPDATE_MODES: dict[str, UpdateMode] = {
    **dict.fromkeys(_CLUSTER_WIDE, UpdateMode.CLUSTER_WIDE),
    **{row.setting.name: row.mode for row in _TABLES if row.mode is not UpdateMode.READ_ONLY},
}
"""Properties that are not read-only. Cluster-wide ones may be set for one broker too."""


def settings_without_effect(values: Values) -> dict[str, str]:
    """The given properties that have no effect, each with the reason."""
    return {
        name: WITHOUT_EFFECT.get(name, "it is not known")
        for name in values.texts
        if name in WITHOUT_EFFECT or (name not in DEFINITIONS and listener_setting(name) is None)
    } | security_without_effect(values)


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


def log_dirs(values: Values) -> list[str]:
    """The log dirs, in order, each once; raises `ConfigError`."""
    text = values["log.dirs"] or values["log.dir"]
    found = list(dict.fromkeys(part.strip() for part in text.split(",") if part.strip()))
    if not found:
        raise ConfigError("At least one log directory must be defined via log.dirs or log.dir.")
    return found


def connection_caps(values: Values) -> Mapping[str, int]:
    """Caps of max.connections.per.ip.overrides by host name or address, as they are spelled there."""
    items = filter(None, map(str.strip, values["max.connections.per.ip.overrides"].split(",")))
    return {host: int(count) for host, _, count in (item.rpartition(":") for item in items)}
