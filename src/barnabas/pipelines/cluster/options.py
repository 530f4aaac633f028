"""Options of the ``barnabas`` format: those of Spark's Kafka connector, typed and
checked, without Spark.

Spark hands a Python source its options in a dictionary that ignores case, and whose plain
copy has lower-case keys: names are therefore compared in lower case here. An unknown option
is an error at once.
"""

import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field

from barnabas.base.errors import ConfigError
from barnabas.base.ids import TopicPartition
from barnabas.base.json_text import parse_json
from barnabas.base.numbers import LARGEST_INT32, whole_number
from barnabas.client.errors import ConfigurationError, LibrdkafkaOnlyError
from barnabas.client.properties.translation import security_properties, translate_login
from barnabas.pipelines.cluster.offsets import EARLIEST, LATEST, Offsets, from_json, times_from_json

__all__ = [
    "SinkOptions",
    "SourceOptions",
    "Start",
    "client_config",
    "connection_properties",
    "has_own_client",
    "translated",
    "why_refused",
]

_NAMES = {
    name.lower(): name
    for name in (
        "subscribe",
        "subscribePattern",
        "assign",
        "startingOffsets",
        "endingOffsets",
        "startingTimestamp",
        "endingTimestamp",
        "startingOffsetsByTimestamp",
        "endingOffsetsByTimestamp",
        "maxOffsetsPerTrigger",
        "minOffsetsPerTrigger",
        "maxTriggerDelay",
        "minPartitions",
        "failOnDataLoss",
        "includeHeaders",
        "fetchTimeoutMs",
        "admissionFile",
        "flowSource",
        "lostFile",
        "madeAgain",
    )
}
_SINK_NAMES = {name.lower(): name for name in ("topic", "includeHeaders", "flushTimeoutMs", "onRefusal", "lettersFile")}
_SPARKS_OWN = {"path", "checkpointlocation", "queryname"}
"""What Spark itself may add to the options."""

_UNITS_MS = {"ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}
_REFUSED = {
    "key.deserializer": "keys and values are bytes; convert them in the query",
    "value.deserializer": "keys and values are bytes; convert them in the query",
    "key.serializer": "give the column key as text or bytes",
    "value.serializer": "give the column value as text or bytes",
    "enable.auto.commit": "the checkpoint keeps the position",
    "auto.offset.reset": "use startingOffsets",
    "interceptor.classes": "librdkafka has no interceptors",
}


@dataclass(frozen=True)
class Start:
    """Where to begin, or to end: a mark for all partitions, with exceptions; or a
    time in milliseconds.

    ``mark`` is `EARLIEST` or `LATEST`. A partition's offset in ``offsets`` goes before its time in
    ``times_ms``, that before ``time_ms``, and all before the mark.
    """

    mark: int
    offsets: Offsets = field(default_factory=dict)
    times_ms: Offsets = field(default_factory=dict)
    time_ms: int | None = None


@dataclass(frozen=True)
class SourceOptions:
    """What to read and how; see docs/reference/pipelines.md for each."""

    kafka: dict[str, str]
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[TopicPartition, ...] = ()
    start: Start = Start(LATEST)
    end: Start = Start(LATEST)
    max_offsets_per_trigger: int | None = None
    min_offsets_per_trigger: int | None = None
    max_trigger_delay_ms: int = 15 * 60_000
    min_partitions: int | None = None
    fail_on_data_loss: bool = True
    include_headers: bool = False
    fetch_timeout_ms: int = 120_000
    admission_file: str | None = None
    lost_file: str | None = None
    flow_source: str | None = None
    """The name of the source of a flow; None for a query of a user's own program."""
    made_again: tuple[str, ...] = ()
    """Topics that were deleted and made again: the query's position in each is one
    in the topic before."""

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool) -> "SourceOptions":
        """Typed options; raises `ConfigError` for the first that is unknown, missing or wrong."""
        kafka, own = _sort(options, _NAMES, "the barnabas source")
        topics, pattern, assigned = _subscription(own)
        if streaming:
            for name in own:
                if name.startswith("ending"):
                    raise ConfigError(f"{name} is for batch queries; a stream has no end")
        start = _bound(own, "starting", LATEST if streaming else EARLIEST)
        end = _bound(own, "ending", LATEST)
        if not streaming and (start.mark == LATEST or LATEST in start.offsets.values()):
            raise ConfigError("startingOffsets: a batch query that starts at the latest offset would read nothing")
        if end.mark == EARLIEST or EARLIEST in end.offsets.values():
            raise ConfigError("endingOffsets: a query that ends at the earliest offset would read nothing")
        least, most = _positive(own, "minOffsetsPerTrigger"), _positive(own, "maxOffsetsPerTrigger")
        if least and most and least > most:
            raise ConfigError(f"minOffsetsPerTrigger is {least}, which is above maxOffsetsPerTrigger, {most}")
        return cls(
            kafka=kafka,
            topics=topics,
            pattern=pattern,
            assigned=assigned,
            start=start,
            end=end,
            max_offsets_per_trigger=most,
            min_offsets_per_trigger=least,
            max_trigger_delay_ms=_duration_ms(own, "maxTriggerDelay", default=15 * 60_000),
            min_partitions=_positive(own, "minPartitions"),
            fail_on_data_loss=_boolean(own, "failOnDataLoss", default=True),
            include_headers=_boolean(own, "includeHeaders", default=False),
            fetch_timeout_ms=_positive(own, "fetchTimeoutMs") or 120_000,
            admission_file=own.get("admissionFile"),
            lost_file=own.get("lostFile"),
            flow_source=own.get("flowSource"),
            made_again=tuple(filter(None, own.get("madeAgain", "").split(","))),
        )


@dataclass(frozen=True)
class SinkOptions:
    """Where to write; without ``topic`` the rows must name theirs."""

    kafka: dict[str, str]
    topic: str | None = None
    flush_timeout_ms: int = 120_000
    on_refusal: str | None = None
    """For a flow's dead letters: what becomes of records that the topic refuses
    (`barnabas.pipelines.connector.letters`)."""
    letters_file: str | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> "SinkOptions":
        """Typed options; raises `ConfigError` for the first that is unknown or wrong."""
        kafka, own = _sort(options, _SINK_NAMES, "the barnabas sink")
        # Taken as Spark's connector takes it: headers go when there.
        _boolean(own, "includeHeaders", default=False)
        flush_timeout_ms = _positive(own, "flushTimeoutMs") or 120_000
        return cls(kafka, own.get("topic"), flush_timeout_ms, own.get("onRefusal"), own.get("lettersFile"))


def why_refused(name: str) -> str | None:
    """Why a flow or a query may not set this property of Kafka's clients; None if it may."""
    return _REFUSED.get(name)


def client_config(kafka: Mapping[str, str], **ours: object) -> dict[str, object]:
    """A librdkafka configuration: ours first, then the user's ``kafka.`` options over it.

    librdkafka logs every failed connection, twenty a second while a broker is away; we say what
    is wrong once, ourselves.
    """
    return {"log_level": 0, "reconnect.backoff.ms": 250, "client.id": "barnabas-spark", **ours, **translated(kafka)}


def translated(kafka: Mapping[str, str]) -> dict[str, str]:
    """Properties under librdkafka's names, for those of Java's clients that protect a connection.

    Raises `ConfigError` for what would be less protection than is meant.
    """
    given = dict(kafka)
    try:
        translate_login(given)
    except ConfigurationError as error:
        raise ConfigError(f"kafka.{error}") from error
    return given


def connection_properties(kafka: Mapping[str, str]) -> dict[str, str]:
    """What `AdminConnection` takes of the properties."""
    names = ("client.id", "request.timeout.ms")
    own = {name: kafka[name] for name in names if name in kafka}
    return {"client.id": "barnabas-spark", **own, **security_properties(kafka)}


def has_own_client(kafka: Mapping[str, str], understood: Collection[str]) -> bool:
    """Whether our connections do all that the properties ask for: those that are
    understood, and TLS and SASL.

    librdkafka is needed for others, among them the mechanisms that only it has. Raises
    `ConfigError` for a file that cannot be read, say.
    """
    security = security_properties(kafka)
    if kafka.keys() - security.keys() - set(understood):
        return False
    if not security:
        return True
    # librdkafka's own word for the system's certificates.
    if security.get("ssl.ca.location") == "probe":
        return False
    from barnabas.client.security.link_security import LinkSecurity

    try:
        LinkSecurity(security)
    except LibrdkafkaOnlyError:
        return False
    except ConfigurationError as error:
        raise ConfigError(f"kafka.{error}") from error
    return True


def _sort(options: Mapping[str, str], names: Mapping[str, str], whose: str) -> tuple[dict[str, str], dict[str, str]]:
    """Splits options into ``kafka.`` ones, without the prefix, and our own under
    their proper names."""
    kafka: dict[str, str] = {}
    own: dict[str, str] = {}
    for given, text in options.items():
        name = given.lower()
        if name.startswith("kafka."):
            kafka[name.removeprefix("kafka.")] = text
        elif name in names:
            own[names[name]] = text
        elif name not in _SPARKS_OWN:
            known = ", ".join(sorted(names.values()))
            raise ConfigError(f"unknown option {given} of {whose}; it knows kafka.* and {known}")
    if not kafka.get("bootstrap.servers"):
        raise ConfigError(f"option kafka.bootstrap.servers of {whose} is missing")
    for name in kafka:
        if why := why_refused(name):
            raise ConfigError(f"option kafka.{name} cannot be set: {why}")
    return translated(kafka), own


def _subscription(own: Mapping[str, str]) -> tuple[tuple[str, ...], str | None, tuple[TopicPartition, ...]]:
    given = [name for name in ("subscribe", "subscribePattern", "assign") if name in own]
    if len(given) != 1:
        raise ConfigError("give exactly one of subscribe, subscribePattern and assign")
    text = own[given[0]]
    if given[0] == "subscribe":
        topics = tuple(dict.fromkeys(each.strip() for each in text.split(",") if each.strip()))
        if not topics:
            raise ConfigError("subscribe names no topic")
        return topics, None, ()
    if given[0] == "subscribePattern":
        try:
            re.compile(text)
        except re.error as error:
            raise ConfigError(f"subscribePattern is no regular expression: {error}: {text}") from error
        return (), text, ()
    return (), None, _assigned(text)


def _assigned(text: str) -> tuple[TopicPartition, ...]:

    try:
        value = parse_json(text)
        names = [TopicPartition(topic, each) for topic, partitions in value.items() for each in partitions]
    except (ValueError, TypeError, AttributeError) as error:
        raise ConfigError(f'assign looks like {{"topic": [0, 1]}}, not like {text}') from error
    if not all(type(each.partition) is int and 0 <= each.partition <= LARGEST_INT32 for each in names):
        raise ConfigError(f'assign looks like {{"topic": [0, 1]}}, not like {text}')
    if not names:
        raise ConfigError("assign names no partition")
    return tuple(dict.fromkeys(names))


def _bound(own: Mapping[str, str], which: str, default: int) -> Start:
    """Spark's order: a time for all, times by partition, then offsets."""
    if (text := own.get(f"{which}Timestamp")) is not None:
        return Start(default, time_ms=_number(f"{which}Timestamp", text))
    if (text := own.get(f"{which}OffsetsByTimestamp")) is not None:
        return Start(default, times_ms=_named(f"{which}OffsetsByTimestamp", text, times_from_json))
    text = own.get(f"{which}Offsets", "").strip()
    if not text:
        return Start(default)
    if text.lower() in ("earliest", "latest"):
        return Start(EARLIEST if text.lower() == "earliest" else LATEST)
    # A partition that the offsets leave out came later: it is read from its first record.
    return Start(EARLIEST if which == "starting" else LATEST, offsets=_named(f"{which}Offsets", text, from_json))


def _named(name: str, text: str, parse: Callable[[str], Offsets]) -> Offsets:
    try:
        return parse(text)
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from error


def _number(name: str, text: str) -> int:
    try:
        value = whole_number(text.strip())
    except ValueError as error:
        raise ConfigError(f"{name} is a number, not {text!r}") from error
    if value < 0:
        raise ConfigError(f"{name} is {value}, and cannot be negative")
    return value


def _positive(own: Mapping[str, str], name: str) -> int | None:
    if name not in own:
        return None
    value = _number(name, own[name])
    if value == 0:
        raise ConfigError(f"{name} must be above 0")
    return value


def _duration_ms(own: Mapping[str, str], name: str, *, default: int) -> int:
    """A time as Spark's connector takes it, such as 90s or 15m; a number alone is milliseconds."""
    if name not in own:
        return default
    found = re.fullmatch(r"([0-9]{1,12})\s*([a-z]*)", own[name].strip().lower())
    if found is None or (found[2] or "ms") not in _UNITS_MS:
        raise ConfigError(f"{name} is a time such as 90s, 15m or 1h, not {own[name]!r}")
    return int(found[1]) * _UNITS_MS[found[2] or "ms"]


def _boolean(own: Mapping[str, str], name: str, *, default: bool) -> bool:
    text = own.get(name, str(default)).strip().lower()
    if text not in ("true", "false"):
        raise ConfigError(f"{name} is true or false, not {own[name]!r}")
    return text == "true"
