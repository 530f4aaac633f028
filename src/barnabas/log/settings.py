"""Topic configuration: every name Kafka 3.9 knows, and the typed values that a log reads. Kafka: LogConfig, TopicConfig.

A topic's configuration is its own overrides over the broker's defaults over Kafka's. The broker's defaults come from
broker properties under other names (`message.max.bytes` for `max.message.bytes`), some of them in other units
(`log.retention.hours`); `BROKER_SYNONYMS` lists them by precedence and `defaults_from_broker` applies them.

Three features of Kafka are missing: preallocated segment files (``preallocate`` is kept and without effect), tiered
storage (``remote.storage.enable=true`` is refused, as Apache's broker refuses it while its remote log storage is off)
and message formats below 2 (``message.format.version`` and ``message.downconversion.enable`` are kept and shown, and
change nothing, as in Apache's since 3.0).
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from barnabas.base.errors import ConfigError
from barnabas.base.settings import Definitions, Kind, Setting, Values, at_least, between, one_of

__all__ = [
    "BROKER_SYNONYMS",
    "CODECS",
    "TOPIC_REFUSED",
    "TOPIC_SETTINGS",
    "TOPIC_WITHOUT_EFFECT",
    "BrokerSynonym",
    "LogConfig",
    "defaults_from_broker",
]

_MAX_LONG = "9223372036854775807"
_HOUR_MS = 3_600_000
_WEEK_MS = str(7 * 24 * _HOUR_MS)
_THROTTLED = re.compile(r"([0-9]+:[0-9]+)?")
_FORMAT_VERSION = re.compile(r"[0-9]+\.[0-9]+(\.[0-9]+){0,2}(-IV[0-9]+)?")

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
"""Names of compression codecs; the index is the number in a batch's attributes."""


def _gzip_level(level: int) -> str | None:
    if level == -1 or 1 <= level <= 9:
        return None
    return "Value must be between 1 and 9 or equal to -1"


def _throttled_replicas(replicas: list[str]) -> str | None:
    if "".join(replicas) == "*" or all(_THROTTLED.fullmatch(replica) for replica in replicas):
        return None
    return "must be the literal '*' or a list of replicas [partitionId]:[brokerId],[partitionId]:[brokerId],..."


def _format_version(version: str) -> str | None:
    return None if _FORMAT_VERSION.fullmatch(version) else "is not a version such as 3.0-IV1"


def _no_tiered_storage(enabled: bool) -> str | None:
    if enabled:
        return "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage."
    return None


def _off(enabled: bool) -> str | None:
    return "it takes effect with remote log storage only, which this broker does not have" if enabled else None


TOPIC_SETTINGS = Definitions(
    [
        Setting("cleanup.policy", Kind.LIST, "delete",
                "What becomes of old data: whole segments are deleted by age and size, or only the last record of "
                "each key is kept (compact), or both.",
                one_of("compact", "delete")),
        Setting("compression.gzip.level", Kind.INT, "-1", "Level for topics the broker compresses with gzip.", _gzip_level),
        Setting("compression.lz4.level", Kind.INT, "9", "Level for topics the broker compresses with lz4.", between(1, 17)),
        Setting("compression.type", Kind.STRING, "producer",
                "The codec of stored batches; 'producer' keeps each batch as its producer made it.",
                one_of("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")),
        Setting("compression.zstd.level", Kind.INT, "3", "Level for topics the broker compresses with zstd.",
                between(-131072, 22)),
        Setting("delete.retention.ms", Kind.LONG, "86400000",
                "How long a compacted topic keeps delete markers after they were compacted.", at_least(0)),
        Setting("file.delete.delay.ms", Kind.LONG, "60000",
                "How long files of deleted segments stay under a .deleted name before they are removed.", at_least(0)),
        Setting("flush.before.ack", Kind.BOOLEAN, "false",
                "Ours: sync every record to disk before it is acknowledged: to producers with acks=1 and "
                "acks=all, and by a follower to its leader. With it a loss of power of all brokers loses nothing that was "
                "acknowledged. Many producers share one sync."),
        Setting("flush.messages", Kind.LONG, _MAX_LONG,
                "Sync the log to disk after this many records, before the append is answered; 1 for every append.", at_least(1)),
        Setting("flush.ms", Kind.LONG, _MAX_LONG, "Sync the log to disk at least this often.", at_least(0)),
        Setting("follower.replication.throttled.replicas", Kind.LIST, "",
                "Replicas whose fetching is throttled when they follow.", _throttled_replicas),
        Setting("index.interval.bytes", Kind.INT, "4096",
                "Log bytes between two entries of the offset index.", at_least(0)),
        Setting("leader.replication.throttled.replicas", Kind.LIST, "",
                "Replicas whose replication is throttled when they lead.", _throttled_replicas),
        Setting("local.retention.bytes", Kind.LONG, "-2",
                "Tiered storage: bytes kept locally; -2 follows retention.bytes.", at_least(-2)),
        Setting("local.retention.ms", Kind.LONG, "-2",
                "Tiered storage: time kept locally; -2 follows retention.ms.", at_least(-2)),
        Setting("max.compaction.lag.ms", Kind.LONG, _MAX_LONG,
                "The longest a record may stay uncompacted in a compacted topic.", at_least(1)),
        Setting("max.message.bytes", Kind.INT, "1048588", "The largest record batch taken, compressed.", at_least(0)),
        Setting("message.downconversion.enable", Kind.BOOLEAN, "true",
                "Whether batches are converted for very old clients."),
        Setting("message.format.version", Kind.STRING, "3.0-IV1", "Deprecated: the record format of the topic.",
                _format_version),
        Setting("message.timestamp.after.max.ms", Kind.LONG, _MAX_LONG,
                "How far a CreateTime timestamp may be after the broker's time.", at_least(0)),
        Setting("message.timestamp.before.max.ms", Kind.LONG, _MAX_LONG,
                "How far a CreateTime timestamp may be before the broker's time.", at_least(0)),
        Setting("message.timestamp.difference.max.ms", Kind.LONG, _MAX_LONG,
                "Deprecated: both of the limits before and after, where they are not set.", at_least(0)),
        Setting("message.timestamp.type", Kind.STRING, "CreateTime",
                "Whether records carry the producer's time or the time of the append.",
                one_of("CreateTime", "LogAppendTime")),
        Setting("min.cleanable.dirty.ratio", Kind.DOUBLE, "0.5",
                "The share of uncompacted bytes at which a log is compacted.", between(0, 1)),
        Setting("min.compaction.lag.ms", Kind.LONG, "0",
                "The least time a record stays uncompacted in a compacted topic.", at_least(0)),
        Setting("min.insync.replicas", Kind.INT, "1",
                "Replicas that must hold a write before acks=all is answered; fewer in sync refuse the write.",
                at_least(1)),
        Setting("preallocate", Kind.BOOLEAN, "false", "Whether segment files are allocated in full when they are made."),
        Setting("remote.log.copy.disable", Kind.BOOLEAN, "false", "Tiered storage: stop copying.", _off),
        Setting("remote.log.delete.on.disable", Kind.BOOLEAN, "false", "Tiered storage: delete when disabled.", _off),
        Setting("remote.storage.enable", Kind.BOOLEAN, "false", "Tiered storage for the topic.", _no_tiered_storage),
        Setting("retention.bytes", Kind.LONG, "-1",
                "Bytes a partition keeps before its oldest segments are deleted; -1 for no limit."),
        Setting("retention.ms", Kind.LONG, _WEEK_MS,
                "Time a partition keeps its segments; -1 for no limit.", at_least(-1)),
        Setting("segment.bytes", Kind.INT, str(1 << 30), "The size at which a new segment begins.", at_least(14)),
        Setting("segment.index.bytes", Kind.INT, str(10 << 20), "The largest index file of a segment.", at_least(4)),
        Setting("segment.jitter.ms", Kind.LONG, "0",
                "Up to this much is taken off segment.ms at random, so that logs do not roll together.", at_least(0)),
        Setting("segment.ms", Kind.LONG, _WEEK_MS, "The age at which a new segment begins.", at_least(1)),
        Setting("unclean.leader.election.enable", Kind.BOOLEAN, "false",
                "Whether a replica out of sync may lead, losing data, when no other can."),
    ]
)  # fmt: skip
"""Every topic configuration of Kafka 3.9 by name, and one of our own: flush.before.ack."""

TOPIC_WITHOUT_EFFECT: Mapping[str, str] = {
    "local.retention.bytes": "there is no tiered storage",
    "local.retention.ms": "there is no tiered storage",
    "message.downconversion.enable": "there are no record formats below 2",
    "message.format.version": "there are no record formats below 2",
    "preallocate": "segment files grow as they are written",
}
"""Names that are accepted and change nothing, with the reason."""

TOPIC_REFUSED: Mapping[str, str] = {
    "remote.log.copy.disable": "there is no tiered storage",
    "remote.log.delete.on.disable": "there is no tiered storage",
    "remote.storage.enable": "there is no tiered storage",
}
"""Names of which any value but the default is an error, with the reason."""


class BrokerSynonym(NamedTuple):
    """A broker property that sets a topic default: its name, and the factor from its unit to the topic's."""

    name: str
    factor: int = 1


BROKER_SYNONYMS: Mapping[str, tuple[BrokerSynonym, ...]] = {
    "cleanup.policy": (BrokerSynonym("log.cleanup.policy"),),
    "compression.gzip.level": (BrokerSynonym("compression.gzip.level"),),
    "compression.lz4.level": (BrokerSynonym("compression.lz4.level"),),
    "compression.type": (BrokerSynonym("compression.type"),),
    "compression.zstd.level": (BrokerSynonym("compression.zstd.level"),),
    "delete.retention.ms": (BrokerSynonym("log.cleaner.delete.retention.ms"),),
    "file.delete.delay.ms": (BrokerSynonym("log.segment.delete.delay.ms"),),
    "flush.before.ack": (BrokerSynonym("log.flush.before.ack"),),
    "flush.messages": (BrokerSynonym("log.flush.interval.messages"),),
    "flush.ms": (BrokerSynonym("log.flush.interval.ms"), BrokerSynonym("log.flush.scheduler.interval.ms")),
    "index.interval.bytes": (BrokerSynonym("log.index.interval.bytes"),),
    "local.retention.bytes": (BrokerSynonym("log.local.retention.bytes"),),
    "local.retention.ms": (BrokerSynonym("log.local.retention.ms"),),
    "max.compaction.lag.ms": (BrokerSynonym("log.cleaner.max.compaction.lag.ms"),),
    "max.message.bytes": (BrokerSynonym("message.max.bytes"),),
    "message.downconversion.enable": (BrokerSynonym("log.message.downconversion.enable"),),
    "message.format.version": (BrokerSynonym("log.message.format.version"),),
    "message.timestamp.after.max.ms": (BrokerSynonym("log.message.timestamp.after.max.ms"),),
    "message.timestamp.before.max.ms": (BrokerSynonym("log.message.timestamp.before.max.ms"),),
    "message.timestamp.difference.max.ms": (BrokerSynonym("log.message.timestamp.difference.max.ms"),),
    "message.timestamp.type": (BrokerSynonym("log.message.timestamp.type"),),
    "min.cleanable.dirty.ratio": (BrokerSynonym("log.cleaner.min.cleanable.ratio"),),
    "min.compaction.lag.ms": (BrokerSynonym("log.cleaner.min.compaction.lag.ms"),),
    "min.insync.replicas": (BrokerSynonym("min.insync.replicas"),),
    "preallocate": (BrokerSynonym("log.preallocate"),),
    "retention.bytes": (BrokerSynonym("log.retention.bytes"),),
    "retention.ms": (
        BrokerSynonym("log.retention.ms"),
        BrokerSynonym("log.retention.minutes", 60_000),
        BrokerSynonym("log.retention.hours", _HOUR_MS),
    ),
    "segment.bytes": (BrokerSynonym("log.segment.bytes"),),
    "segment.index.bytes": (BrokerSynonym("log.index.size.max.bytes"),),
    "segment.jitter.ms": (BrokerSynonym("log.roll.jitter.ms"), BrokerSynonym("log.roll.jitter.hours", _HOUR_MS)),
    "segment.ms": (BrokerSynonym("log.roll.ms"), BrokerSynonym("log.roll.hours", _HOUR_MS)),
    "unclean.leader.election.enable": (BrokerSynonym("unclean.leader.election.enable"),),
}
"""Topic configuration -> broker properties that give its default, the strongest first (KIP-226's synonyms)."""


def defaults_from_broker(properties: Mapping[str, str]) -> dict[str, str]:
    """Topic defaults as texts, from the broker properties that were given. A negative retention means no limit.

    Raises `ConfigError` when a property in another unit is not a number.
    """
    defaults = {}
    for topic_name, synonyms in BROKER_SYNONYMS.items():
        for synonym in synonyms:
            text = properties.get(synonym.name)
            if text is None:
                continue
            if topic_name == "retention.ms" or synonym.factor != 1:
                number = Setting(synonym.name, Kind.LONG, None).parse(text) * synonym.factor
                text = str(-1 if number < 0 and topic_name == "retention.ms" else number)
            defaults[topic_name] = text
            break
    return defaults


class LogConfig:
    """A topic's configuration: texts for the tools, and typed attributes for the log. Immutable; compare by value.

    ``overrides`` are the topic's own settings, ``defaults`` the broker's (see `defaults_from_broker`).
    Raises `ConfigError` for an unknown name or a bad value.
    """

    __slots__ = (
        "cleanup_compact",
        "cleanup_delete",
        "codec",
        "compression_level",
        "defaults",
        "delete_retention_ms",
        "file_delete_delay_ms",
        "flush_before_ack",
        "flush_messages",
        "flush_ms",
        "index_interval_bytes",
        "log_append_time",
        "max_compaction_lag_ms",
        "max_index_bytes",
        "max_message_bytes",
        "min_cleanable_dirty_ratio",
        "min_compaction_lag_ms",
        "min_insync_replicas",
        "overrides",
        "preallocate",
        "retention_bytes",
        "retention_ms",
        "segment_bytes",
        "segment_jitter_ms",
        "segment_ms",
        "timestamp_after_max_ms",
        "timestamp_before_max_ms",
        "unclean_leader_election",
        "values",
    )

    def __init__(self, overrides: Mapping[str, str] | None = None, defaults: Mapping[str, str] | None = None) -> None:
        self.overrides = dict(overrides or {})
        self.defaults = dict(defaults or {})
        for name in self.overrides:
            if name not in TOPIC_SETTINGS:
                raise ConfigError(f"Unknown topic config name: {name}")
        values = self.values = TOPIC_SETTINGS.parse({**self.defaults, **self.overrides})
        self._set_sizes_and_times(values)
        self._set_policies(values)

    def _set_sizes_and_times(self, values: Values) -> None:
        self.segment_bytes: int = values["segment.bytes"]
        self.segment_jitter_ms: int = values["segment.jitter.ms"]
        self.max_index_bytes: int = values["segment.index.bytes"]
        self.index_interval_bytes: int = values["index.interval.bytes"]
        self.flush_messages: int = values["flush.messages"]
        self.flush_before_ack: bool = values["flush.before.ack"] or self.flush_messages == 1
        self.flush_ms: int = values["flush.ms"]
        self.retention_bytes: int = values["retention.bytes"]
        self.retention_ms: int = values["retention.ms"]
        self.max_message_bytes: int = values["max.message.bytes"]
        self.file_delete_delay_ms: int = values["file.delete.delay.ms"]
        self.delete_retention_ms: int = values["delete.retention.ms"]
        self.min_compaction_lag_ms: int = values["min.compaction.lag.ms"]
        self.max_compaction_lag_ms: int = values["max.compaction.lag.ms"]
        if self.min_compaction_lag_ms > self.max_compaction_lag_ms:
            raise ConfigError(
                f"conflict topic config setting min.compaction.lag.ms ({self.min_compaction_lag_ms}) > "
                f"max.compaction.lag.ms ({self.max_compaction_lag_ms})"
            )

    def _set_policies(self, values: Values) -> None:
        policy: list[str] = values["cleanup.policy"]
        self.cleanup_compact = "compact" in policy
        self.cleanup_delete = "delete" in policy
        # A compacted log rolls early enough for its records to be compacted in time.
        self.segment_ms: int = values["segment.ms"]
        if self.cleanup_compact:
            self.segment_ms = min(self.segment_ms, self.max_compaction_lag_ms)
        self.min_cleanable_dirty_ratio: float = values["min.cleanable.dirty.ratio"]
        self.min_insync_replicas: int = values["min.insync.replicas"]
        self.preallocate: bool = values["preallocate"]
        self.unclean_leader_election: bool = values["unclean.leader.election.enable"]
        self.log_append_time: bool = values["message.timestamp.type"] == "LogAppendTime"
        either: int = values["message.timestamp.difference.max.ms"]
        unset = int(_MAX_LONG)
        before: int = values["message.timestamp.before.max.ms"]
        after: int = values["message.timestamp.after.max.ms"]
        self.timestamp_before_max_ms = before if before != unset else either
        self.timestamp_after_max_ms = after if after != unset else either
        name: str = values["compression.type"]
        self.codec: int | None = (
            None if name == "producer" else CODECS.index("none" if name == "uncompressed" else name)
        )
        """The codec that batches are stored with, None for the producer's choice."""
        self.compression_level: int | None = (
            values[f"compression.{name}.level"] if name in ("gzip", "lz4", "zstd") else None
        )

    def __getitem__(self, name: str) -> Any:
        """The typed value of a topic configuration by its name."""
        return self.values[name]

    def replace(self, overrides: Mapping[str, str]) -> "LogConfig":
        """The same broker defaults under other topic overrides (all of them, not a change)."""
        return LogConfig(overrides, self.defaults)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, LogConfig) and self.values.texts == other.values.texts

    def __hash__(self) -> int:
        return hash(tuple(sorted(self.values.texts.items())))

    def __repr__(self) -> str:
        return f"LogConfig({self.overrides!r})"
