"""Topic configuration: every name Kafka 3.9 knows, and the typed values that a log reads.

Kafka: LogConfig, TopicConfig.

A topic's configuration is its own overrides over the broker's defaults over Kafka's. The broker's
defaults come from broker properties under other names (`message.max.bytes` for
`max.message.bytes`), some of them in other units (`log.retention.hours`); `BROKER_SYNONYMS` lists
them by precedence and `defaults_from_broker` applies them.

Three features of Kafka are missing: preallocated segment files (``preallocate`` is kept and without
effect), tiered storage (``remote.storage.enable=true`` is refused, as Apache's broker refuses it
while its remote log storage is off) and message formats below 2 (``message.format.version`` and
``message.downconversion.enable`` are kept and shown, and change nothing, as in Apache's since 3.0).
"""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from barnabas.base.errors import ConfigError
from barnabas.base.setting_tables import Row, read_table
from barnabas.base.settings import Definitions, Kind, Setting, ValueCheck, Values

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


_CHECKS: dict[str, ValueCheck] = {
    "gzip-level": _gzip_level,
    "throttled-replicas": _throttled_replicas,
    "format-version": _format_version,
    "no-tiered-storage": _no_tiered_storage,
    "off": _off,
}
# The column of these tables names the broker properties that give a topic's default, the strongest
# first (KIP-226's synonyms), with the factor from their unit to the topic's.
_WITH_EFFECT = """
cleanup.policy list [compact,delete] log.cleanup.policy delete
    What becomes of old data: whole segments are deleted by age and size, or only the last record of
    each key is kept (compact), or both.
compression.check boolean - log.compression.check true
    Ours: whether the leader opens compressed batches that it stores as they came. Without it, a batch
    of junk is acknowledged, and consumers stop in front of it. For a megabyte of records the check
    takes 0.3 to 0.6 ms of the processor where they compress well; of noise 0.5 ms with lz4 and snappy,
    2.5 ms with zstd, 9 ms with gzip.
compression.gzip.level int gzip-level compression.gzip.level -1
    Level for topics the broker compresses with gzip.
compression.lz4.level int [1,...,17] compression.lz4.level 9
    Level for topics the broker compresses with lz4.
compression.type string [uncompressed,zstd,lz4,snappy,gzip,producer] compression.type producer
    The codec of stored batches; 'producer' keeps each batch as its producer made it.
compression.zstd.level int [-131072,...,22] compression.zstd.level 3
    Level for topics the broker compresses with zstd.
delete.retention.ms long [0,...] log.cleaner.delete.retention.ms 86400000
    How long a compacted topic keeps delete markers after they were compacted.
file.delete.delay.ms long [0,...] log.segment.delete.delay.ms 60000
    How long files of deleted segments stay under a .deleted name before they are removed.
flush.before.ack boolean - log.flush.before.ack false
    Ours: sync every record to disk before it is acknowledged: to producers with acks=1 and
    acks=all, and by a follower to its leader. With it a loss of power of all brokers loses nothing
    that was acknowledged. Many producers share one sync.
flush.messages long [1,...] log.flush.interval.messages 9223372036854775807
    Sync the log to disk after this many records, before the append is answered; 1 for every append.
flush.ms long [0,...] log.flush.interval.ms,log.flush.scheduler.interval.ms 9223372036854775807
    Sync the log to disk at least this often.
follower.replication.throttled.replicas list throttled-replicas - ''
    Replicas whose fetching is throttled when they follow.
index.interval.bytes int [0,...] log.index.interval.bytes 4096
    Log bytes between two entries of the offset index.
leader.replication.throttled.replicas list throttled-replicas - ''
    Replicas whose replication is throttled when they lead.
max.compaction.lag.ms long [1,...] log.cleaner.max.compaction.lag.ms 9223372036854775807
    The longest a record may stay uncompacted in a compacted topic.
max.message.bytes int [0,...] message.max.bytes 1048588
    The largest record batch taken, compressed.
message.timestamp.after.max.ms long [0,...] log.message.timestamp.after.max.ms 9223372036854775807
    How far a CreateTime timestamp may be after the broker's time.
message.timestamp.before.max.ms long [0,...] log.message.timestamp.before.max.ms 9223372036854775807
    How far a CreateTime timestamp may be before the broker's time.
message.timestamp.difference.max.ms long [0,...] log.message.timestamp.difference.max.ms 9223372036854775807
    Deprecated: both of the limits before and after, where they are not set.
message.timestamp.type string [CreateTime,LogAppendTime] log.message.timestamp.type CreateTime
    Whether records carry the producer's time or the time of the append.
min.cleanable.dirty.ratio double [0,...,1] log.cleaner.min.cleanable.ratio 0.5
    The share of uncompacted bytes at which a log is compacted.
min.compaction.lag.ms long [0,...] log.cleaner.min.compaction.lag.ms 0
    The least time a record stays uncompacted in a compacted topic.
min.insync.replicas int [1,...] min.insync.replicas 1
    Replicas that must hold a write before acks=all is answered; fewer in sync refuse the write.
retention.bytes long - log.retention.bytes -1
    Bytes a partition keeps before its oldest segments are deleted; -1 for no limit.
retention.ms long [-1,...] log.retention.ms,log.retention.minutes*60000,log.retention.hours*3600000 604800000
    Time a partition keeps its segments; -1 for no limit.
segment.bytes int [14,...] log.segment.bytes 1073741824
    The size at which a new segment begins.
segment.index.bytes int [4,...] log.index.size.max.bytes 10485760
    The largest index file of a segment.
segment.jitter.ms long [0,...] log.roll.jitter.ms,log.roll.jitter.hours*3600000 0
    Up to this much is taken off segment.ms at random, so that logs do not roll together.
segment.ms long [1,...] log.roll.ms,log.roll.hours*3600000 604800000
    The age at which a new segment begins.
unclean.leader.election.enable boolean - unclean.leader.election.enable false
    Whether a replica out of sync may lead, losing data, when no other can.
"""
_WITHOUT_EFFECT = {
    "there is no tiered storage": """
local.retention.bytes long [-2,...] log.local.retention.bytes -2
    Tiered storage: bytes kept locally; -2 follows retention.bytes.
local.retention.ms long [-2,...] log.local.retention.ms -2
    Tiered storage: time kept locally; -2 follows retention.ms.
""",
    "there are no record formats below 2": """
message.downconversion.enable boolean - log.message.downconversion.enable true
    Whether batches are converted for very old clients.
message.format.version string format-version log.message.format.version 3.0-IV1
    Deprecated: the record format of the topic.
""",
    "segment files grow as they are written": """
preallocate boolean - log.preallocate false
    Whether segment files are allocated in full when they are made.
""",
}
_REFUSED = {
    "there is no tiered storage": """
remote.log.copy.disable boolean off - false
    Tiered storage: stop copying.
remote.log.delete.on.disable boolean off - false
    Tiered storage: delete when disabled.
remote.storage.enable boolean no-tiered-storage - false
    Tiered storage for the topic.
""",
}


class BrokerSynonym(NamedTuple):
    """A broker property that sets a topic default: its name, and the factor from its
    unit to the topic's."""

    name: str
    factor: int = 1


def _synonyms(column: str) -> tuple[BrokerSynonym, ...]:
    named = (each.partition("*") for each in column.split(","))
    return tuple(BrokerSynonym(name, int(factor or 1)) for name, _, factor in named)


def _by_reason(tables: Mapping[str, str]) -> list[tuple[str, Row]]:
    """The rows of tables that stand by their reasons, each with its reason."""
    return [(reason, row) for reason, text in tables.items() for row in read_table(text, _CHECKS)]


_ROWS_WITHOUT_EFFECT, _ROWS_REFUSED = _by_reason(_WITHOUT_EFFECT), _by_reason(_REFUSED)
_ROWS = sorted(
    (*read_table(_WITH_EFFECT, _CHECKS), *(row for _, row in (*_ROWS_WITHOUT_EFFECT, *_ROWS_REFUSED))),
    key=lambda row: row.setting.name,
)

TOPIC_SETTINGS = Definitions(row.setting for row in _ROWS)
"""Every topic configuration of Kafka 3.9 by name, and two of our own:
compression.check, flush.before.ack."""

TOPIC_WITHOUT_EFFECT: Mapping[str, str] = {row.setting.name: reason for reason, row in _ROWS_WITHOUT_EFFECT}
"""Names that are accepted and change nothing, with the reason."""

TOPIC_REFUSED: Mapping[str, str] = {row.setting.name: reason for reason, row in _ROWS_REFUSED}
"""Names of which any value but the default is an error, with the reason."""

BROKER_SYNONYMS: Mapping[str, tuple[BrokerSynonym, ...]] = {
    row.setting.name: _synonyms(row.column) for row in _ROWS if row.column != "-"
}
"""Topic configuration -> broker properties that give its default, the strongest first."""


def defaults_from_broker(properties: Mapping[str, str]) -> dict[str, str]:
    """Topic defaults as texts, from the broker properties that were given.

    A negative retention means no limit. Raises `ConfigError` when a property in
    another unit is not a number.
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
    """A topic's configuration: texts for the tools, and typed attributes for the log.

    Immutable; compare by value. ``overrides`` are the topic's own settings, ``defaults`` the
    broker's (see `defaults_from_broker`). Raises `ConfigError` for an unknown name or a bad value.
    """

    __slots__ = (
        "cleanup_compact",
        "cleanup_delete",
        "codec",
        "compression_check",
        "compression_level",
        "defaults",
        "delete_retention_ms",
        "file_delete_delay_ms",
        "flush_before_ack",
        "flush_messages",
        "flush_ms",
        "index_interval_bytes",
        "log_append_time",
        "looks_at_records",
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
        self.compression_check: bool = values["compression.check"]
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
        self.looks_at_records: bool = self.cleanup_compact or self.timestamp_before_max_ms != unset
        """Whether every record of a batch is looked at: it needs a key, or must not be too old."""
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
