"""Rules on brokers' properties that have no effect, or not the one that is meant.

In Kafka: `DescribeConfigs` with synonyms (KIP-226), `ConfigDef`.
"""

from collections.abc import Callable, Iterator, Mapping
from difflib import get_close_matches

from barnabas.client.admin.configurations import ConfigEntry, ConfigSource
from barnabas.doctor.evidence.cluster import BrokersPart, TopicsPart
from barnabas.doctor.evidence.configs import BrokerConfigsPart, setting_number
from barnabas.doctor.finding import Danger, Finding, MendingCommand
from barnabas.doctor.rules.registration import rule
from barnabas.doctor.rules.single_broker import brokers_with_replicas
from barnabas.doctor.words import brokers_named, first_lines, some

__all__ = [
    "brokers_differ",
    "dynamic_values_of_one_broker",
    "ignored_settings",
    "internal_topics_cannot_be_made",
    "overridden_settings",
    "unknown_settings",
]

_OVERRIDES = (
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.dirs", "log.dir"),
)
"""The first that is set decides; the others are not looked at."""
_UNIT_MS = {"ms": 1, "minutes": 60_000, "hours": 3_600_000}

_MUST_AGREE = (
    "authorizer.class.name",
    "allow.everyone.if.no.acl.found",
    "auto.create.topics.enable",
    "compression.type",
    "default.replication.factor",
    "group.max.session.timeout.ms",
    "group.min.session.timeout.ms",
    "inter.broker.protocol.version",
    "log.cleanup.policy",
    "log.message.timestamp.type",
    "log.retention.bytes",
    "log.retention.ms",
    "log.retention.minutes",
    "log.retention.hours",
    "log.segment.bytes",
    "message.max.bytes",
    "min.insync.replicas",
    "num.partitions",
    "offsets.retention.minutes",
    "offsets.topic.num.partitions",
    "offsets.topic.replication.factor",
    "replica.lag.time.max.ms",
    "super.users",
    "transaction.max.timeout.ms",
    "transaction.state.log.min.isr",
    "transaction.state.log.num.partitions",
    "transaction.state.log.replication.factor",
    "unclean.leader.election.enable",
)
"""What happens to a topic or a client must not depend on which broker leads."""

_DYNAMIC = (ConfigSource.DYNAMIC_BROKER_CONFIG, ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG)
_SET = (*_DYNAMIC, ConfigSource.STATIC_BROKER_CONFIG)
_WITHOUT_EFFECT = "Without effect here: "
_MOST_LINES = 8
_OF_OTHERS = (
    "listener.name.",
    "authorizer.",
    "config.providers",
    "confluent.",
    "client.quota.callback.",
    "principal.builder.",
    "reporter.",
    "rlmm.config.",
    "rsm.config.",
    "zookeeper.",
)
"""Prefixes of properties that plug-ins read, which brokers do not know."""


@rule("settings-without-effect", Danger.UNTIDY, "a property is set that the broker accepts and does not follow")
def ignored_settings(configs: BrokerConfigsPart) -> Iterator[Finding]:
    """Brokers of Barnabas say so in the property's documentation."""
    found: dict[str, dict[int, str]] = {}
    for broker_id, entries in configs.entries.items():
        for entry in entries.values():
            _, is_marked, reason = (entry.documentation or "").partition(_WITHOUT_EFFECT)
            if is_marked and _is_set(entry) and entry.value != _default(entry):
                found.setdefault(entry.name, {})[broker_id] = f"{entry.value}, but {reason.rstrip('.')}"
    if found:
        yield Finding(
            tuple(found),
            f"Properties are set that have no effect on these brokers: {some(found)}.",
            _lines({name: _by_broker(values) for name, values in found.items()}),
            ("remove them from the brokers' properties, or do without what they ask for",),
        )


@rule("overridden-settings", Danger.UNTIDY, "a property has no effect because another one is set")
def overridden_settings(configs: BrokerConfigsPart) -> Iterator[Finding]:
    """As log.retention.hours beside log.retention.ms, with another time, both in the file."""
    found: dict[str, dict[int, str]] = {}
    for broker_id, entries in configs.entries.items():
        for names in _OVERRIDES:
            given = [entries[name] for name in names if name in entries and _is_set(entries[name])]
            for other in given[1:]:
                if other.source is given[0].source and _milliseconds(other) != _milliseconds(given[0]):
                    line = f"{other.value}, and {given[0].name}={given[0].value} decides"
                    found.setdefault(other.name, {})[broker_id] = line
    if found:
        yield Finding(
            tuple(found),
            f"Properties have no effect because another one is set: {some(found)}.",
            _lines({name: _by_broker(values) for name, values in found.items()}),
            ("remove the one that is not meant from the brokers' properties",),
        )


def _milliseconds(entry: ConfigEntry) -> object:
    """The value, in ms if it is a time."""
    unit_ms = _UNIT_MS.get(entry.name.rpartition(".")[2])
    if unit_ms is None or entry.value is None or not entry.value.lstrip("-").isdecimal():
        return entry.value
    value = int(entry.value)
    return value * unit_ms if value >= 0 else value


@rule("unknown-settings", Danger.UNTIDY, "a property is set that no broker knows, with nearly the name of one that is")
def unknown_settings(configs: BrokerConfigsPart) -> Iterator[Finding]:
    """A misspelled name: the broker starts, and the property has no effect.

    Brokers show what they do not know without a type."""
    found: dict[str, dict[int, str]] = {}
    for broker_id, entries in configs.entries.items():
        known = [name for name, entry in entries.items() if entry.type]
        if not known:
            continue  # a broker before Kafka 2.6 shows no types
        for name, entry in entries.items():
            if not entry.type and entry.source in _SET and not name.startswith(_OF_OTHERS):
                for other in get_close_matches(name, known, n=1, cutoff=0.85):
                    found.setdefault(name, {})[broker_id] = f"not a property of brokers; {other} is one"
    if found:
        yield Finding(
            tuple(found),
            f"Properties are set that brokers do not know: {some(found)}. A name is misspelled.",
            _lines({name: _by_broker(values) for name, values in found.items()}),
            ("correct the name in the brokers' properties, and restart them one after the other",),
        )


@rule("brokers-differ", Danger.COMING, "brokers have different values of a property that all must share")
def brokers_differ(configs: BrokerConfigsPart) -> Iterator[Finding]:
    """What happens to a topic depends on the broker that leads it."""
    yield from _differing(
        configs,
        lambda entry: not _is_dynamic(entry),
        "Brokers have different values of {names}: what happens depends on the broker that leads.",
        ("give all brokers the same value in their properties, and restart them one after the other",),
    )


@rule("dynamic-values-differ", Danger.COMING, "a dynamic value is set for one broker, and others have another one")
def dynamic_values_of_one_broker(configs: BrokerConfigsPart) -> Iterator[Finding]:
    """A value of one broker comes before that of all, and is easily forgotten."""
    found = list(
        _differing(
            configs,
            _is_dynamic,
            "Dynamic values make brokers differ in {names}: what happens depends on the broker that leads.",
            (),
        )
    )
    for each in found:
        name = each.subjects[0]
        owners = [
            broker_id
            for broker_id, entries in configs.entries.items()
            if (entry := entries.get(name)) is not None and entry.source is ConfigSource.DYNAMIC_BROKER_CONFIG
        ]
        yield Finding(
            each.subjects,
            each.sentence,
            each.evidence,
            (
                "take the value of one broker back, or set it for all (--entity-default):",
                *(
                    MendingCommand.of(
                        *("configs", "--alter", "--entity-type", "brokers", "--entity-name", broker_id),
                        *("--delete-config", name),
                    )
                    for broker_id in owners[:1]
                ),
            ),
        )


def _differing(
    configs: BrokerConfigsPart, chooses: Callable[[ConfigEntry], bool], sentence: str, mends: tuple[str, ...]
) -> Iterator[Finding]:
    """``chooses`` says of an entry whether a difference with it is meant."""
    found: dict[str, dict[int, str]] = {}
    for name in _MUST_AGREE:
        entries = {broker_id: each[name] for broker_id, each in configs.entries.items() if name in each}
        values = {entry.value for entry in entries.values() if not entry.is_sensitive}
        is_dynamic = any(_is_dynamic(entry) for entry in entries.values())
        if len(values) > 1 and all(chooses(entry) for entry in entries.values() if _is_dynamic(entry) is is_dynamic):
            found[name] = {broker_id: f"{entry.value}" for broker_id, entry in entries.items()}
    if found:
        lines = {
            name: ", ".join(f"{value} on broker {each}" for each, value in values.items())
            for name, values in found.items()
        }
        yield Finding(tuple(found), sentence.format(names=some(found)), _lines(lines), mends)


_INTERNAL = (
    ("__consumer_offsets", "offsets.topic.replication.factor", "no consumer group can commit or start"),
    ("__transaction_state", "transaction.state.log.replication.factor", "no transaction can begin"),
)


@rule("internal-topics", Danger.UNAVAILABLE, "an internal topic needs more brokers than there are, and cannot be made")
def internal_topics_cannot_be_made(
    configs: BrokerConfigsPart, brokers: BrokersPart, topics: TopicsPart
) -> Iterator[Finding]:
    """It is made when the first group, or the first transaction, needs it."""
    count = len(brokers.views)
    away = sorted(brokers_with_replicas(topics) - brokers.views.keys())
    for topic, name, effect in _INTERNAL:
        wanted = max((setting_number(each, name) or 0 for each in configs.entries.values()), default=0)
        if topic not in topics.by_name and wanted > count:
            yield Finding(
                (topic,),
                f"{topic} cannot be made, for there are fewer brokers than its replicas: {effect}.",
                (f"{name}={wanted}, and there {'is 1 broker' if count == 1 else f'are {count} brokers'}",),
                (
                    f"start {brokers_named(away)} again"
                    if away
                    else f"start more brokers, or set {name}={count} in the brokers' properties and restart them",
                ),
                danger=None if topic == "__consumer_offsets" else Danger.COMING,
            )


def _is_set(entry: ConfigEntry) -> bool:
    return entry.source in _SET


def _is_dynamic(entry: ConfigEntry) -> bool:
    return entry.source in _DYNAMIC


def _default(entry: ConfigEntry) -> str | None:
    """The default, as the last synonym has it."""
    return next((each.value for each in entry.synonyms if each.source is ConfigSource.DEFAULT_CONFIG), None)


def _by_broker(values: Mapping[int, str]) -> str:
    """What brokers say, those that say the same together."""
    by_text: dict[str, list[int]] = {}
    for broker_id, text in values.items():
        by_text.setdefault(text, []).append(broker_id)
    return "; ".join(f"{text} ({brokers_named(ids)})" for text, ids in by_text.items())


def _lines(found: Mapping[str, str]) -> tuple[str, ...]:
    return first_lines((f"{name}: {text}" for name, text in found.items()), _MOST_LINES)
