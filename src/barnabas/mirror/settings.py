"""What to mirror, and the properties that make it lose nothing. Pure.

The user's properties are kept; where they are silent, the safe choice is made: the source's offsets
are committed by the mirror and not behind its back, new topics are read from their first record,
and the target acknowledges with all replicas, without an end to retries and without reordering.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from barnabas.base.errors import ConfigError
from barnabas.mirror.replication_policy import ReplicationPolicy

__all__ = [
    "_INTERNAL_TOPICS",
    "LinkSettings",
    "MirrorSettings",
    "TopicFilter",
    "bootstrap_servers",
    "consumer_properties",
    "ignored_properties",
    "producer_properties",
]

_INTERNAL_TOPICS = frozenset(("__consumer_offsets", "__transaction_state", "__share_group_state"))

_FOR_EVER_MS = "2147483647"
_BLOCK_MS = "1000"
# One character, and then only slashes if anything: what a reader who thinks of file
# patterns writes for "all".
_ONE_LETTER = re.compile(r"\.(?:/[*+?])?")
_SERIALIZERS = (
    "serializer.class",
    "key.serializer.class",
    "key.serializer",
    "value.serializer",
    "key.deserializer",
    "value.deserializer",
)


class TopicFilter:
    """Which topics are mirrored: those whose whole name matches ``include`` and not ``exclude``.

    Both are regular expressions in which a comma means "or", as in Kafka's whitelists. The
    clusters' own topics are never mirrored.
    """

    def __init__(self, include: str, exclude: str | None = None) -> None:
        self._include = _pattern(include, "include")
        self._exclude = _pattern(exclude, "exclude") if exclude else None
        self.warnings = [
            f"{part} matches no topic of more than one letter; .* matches all topics"
            for pattern in (self._include, self._exclude)
            for part in (pattern.pattern.split("|") if pattern else ())
            if _ONE_LETTER.fullmatch(part)
        ]
        """What is probably not meant."""

    def __str__(self) -> str:
        return self._include.pattern

    def matches(self, topic: str) -> bool:
        """Whether the topic is mirrored."""
        if topic in _INTERNAL_TOPICS or not self._include.fullmatch(topic):
            return False
        return self._exclude is None or not self._exclude.fullmatch(topic)

    def choose(self, topics: Iterable[str]) -> frozenset[str]:
        """The ``topics`` that are mirrored."""
        return frozenset(filter(self.matches, topics))


def _pattern(text: str, option: str) -> "re.Pattern[str]":
    plain = text.strip().strip("\"'").replace(",", "|").replace(" ", "")
    try:
        return re.compile(plain)
    except re.error as error:
        meant = re.escape(plain).replace(r"\*", ".*").replace(r"\?", ".").replace(r"\|", "|")
        hint = f"; the shell pattern (glob) would be {meant}" if plain.startswith(("*", "?")) else ""
        raise ConfigError(f"--{option} {text}: this is not a regular expression ({error}){hint}") from error


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """A mirror between two named clusters: what it does beside copying records."""

    policy: ReplicationPolicy
    sync_topic_configs: bool = False
    sync_group_offsets: bool = False
    """Whether checkpoints are committed at the target, for groups without members there."""
    groups: "re.Pattern[str]" = re.compile(".*")
    """Groups that get checkpoints."""
    heartbeat_interval_ms: int = 1_000
    checkpoint_interval_ms: int = 60_000
    offset_lag_max: int = 100


@dataclass(frozen=True, slots=True)
class MirrorSettings:
    """All that a mirror needs to run; the properties are as the user wrote them."""

    consumer: Mapping[str, Any]
    producer: Mapping[str, Any]
    topics: TopicFilter
    streams: int = 1
    abort_on_send_failure: bool = True
    commit_interval_ms: int = 60_000
    topic_refresh_ms: int = 5_000
    """How often the source is asked for new topics."""
    link: LinkSettings | None = None
    """Set if both clusters have names."""
    metrics_http_address: tuple[str, int] | None = None
    """Where the metrics page is, as a broker's metrics.http.address; None for nowhere."""


_OWN_COMMITS = "the mirror commits what the target has acknowledged, every --offset.commit.interval.ms"
_IGNORED_IN_CONSUMER = {
    "enable.auto.commit": _OWN_COMMITS,
    "auto.commit.enable": _OWN_COMMITS,
    "auto.commit.interval.ms": _OWN_COMMITS,
    "consumer.timeout.ms": "a quiet source does not end the mirror",
}
_IGNORED_IN_PRODUCER = {
    "queue.enqueue.timeout.ms": "a full buffer makes the source wait, so that nothing is dropped",
    "max.block.ms": "a full buffer makes the source wait, as long as it takes",
}
_BYTES = "keys and values are copied as bytes"


def bootstrap_servers(properties: Mapping[str, Any]) -> str:
    """The brokers that the properties name, under either name.

    Empty where they are found in ZooKeeper."""
    return str(properties.get("bootstrap.servers") or properties.get("metadata.broker.list") or "")


def ignored_properties(settings: MirrorSettings) -> list[str]:
    """A warning for each property that the mirror does not follow, with the reason."""
    warnings = [*settings.topics.warnings]
    for role, given, ignored in (
        ("consumer", settings.consumer, _IGNORED_IN_CONSUMER),
        ("producer", settings.producer, _IGNORED_IN_PRODUCER),
    ):
        reasons = {**ignored, **dict.fromkeys(_SERIALIZERS, _BYTES)}
        asks_for_ours = {"enable.auto.commit": "false", "auto.commit.enable": "false"}
        for name, value in given.items():
            if name in reasons and str(value).strip().lower() != asks_for_ours.get(name, ""):
                warnings.append(f"{name} of the {role} is ignored: {reasons[name]}")
    return warnings


def consumer_properties(given: Mapping[str, Any], stream: int) -> dict[str, Any]:
    """One stream's consumer of the source; raises `ConfigError` without a group."""
    properties = {name: value for name, value in given.items() if name not in _SERIALIZERS}
    group = properties.get("group.id")
    if not group:
        raise ConfigError("the consumer's group.id is missing: the mirror keeps its place under it")
    # Only the mirror knows when the target has a record.
    properties.pop("auto.commit.enable", None)
    properties.pop("auto.commit.interval.ms", None)
    properties["enable.auto.commit"] = "false"
    properties.pop("consumer.timeout.ms", None)  # a quiet source is no end
    properties["client.id"] = f"{properties.get('client.id', group)}-{stream}"
    # A topic that is found while running is copied from its first record.
    properties.setdefault("auto.offset.reset", "earliest")
    # Topics of few partitions then keep all streams busy.
    properties.setdefault("partition.assignment.strategy", "roundrobin")
    return properties


def producer_properties(given: Mapping[str, Any]) -> dict[str, Any]:
    """The producer to the target."""
    properties = {name: value for name, value in given.items() if name not in _SERIALIZERS}
    if not {"acks", "request.required.acks"} & properties.keys():
        properties["acks"] = "all"
    acks = str(properties.get("acks", properties.get("request.required.acks")))
    if acks in ("all", "-1") and not {"retries", "message.send.max.retries"} & properties.keys():
        # Retries neither reorder nor double.
        properties.setdefault("enable.idempotence", "true")
    if str(properties.get("enable.idempotence", "false")) != "true":
        properties.setdefault("max.in.flight.requests.per.connection", "1")
    properties.setdefault("delivery.timeout.ms", _FOR_EVER_MS)
    # A full buffer makes the source wait; the send only comes back now and then to
    # see whether it shall stop.
    properties.pop("queue.enqueue.timeout.ms", None)
    properties["max.block.ms"] = _BLOCK_MS
    return properties
