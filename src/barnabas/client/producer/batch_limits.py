"""How large a batch of a topic may be, and what to say about a record or batch that is larger.

Brokers refuse a batch above the topic's ``max.message.bytes`` (MESSAGE_TOO_LARGE) or
``segment.bytes`` (RECORD_LIST_TOO_LARGE); both have the brokers' ``message.max.bytes`` and
``log.segment.bytes`` as their defaults. Java's producer divides a batch that was refused and sends
its parts. librdkafka does not, and what it sent meanwhile would be overtaken. So the limits are
read before the first record of a topic is sent, with one DescribeConfigs request. Where they cannot
be read (no right to, no broker there, a protection that only librdkafka has) they are unknown.

In Kafka: `ProducerBatch.split`, after a refusal.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.base.errors import BarnabasError
from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.client.errors import RefusedError, UnknownTopicError
from barnabas.client.network.bootstrap import without_protocols
from barnabas.client.properties.translation import CONNECT_TIMEOUT_PROPERTY, security_properties
from barnabas.wire.kafka.records.batch_header import HEADER_BYTES

if TYPE_CHECKING:
    from barnabas.client.admin.configurations import ConfigEntry, Resource

__all__ = [
    "TOO_LARGE",
    "BatchLimit",
    "TopicLimits",
    "batch_bytes",
    "in_any_codec",
    "raise_limit",
    "request_too_large",
    "size_of",
    "too_large",
    "too_large_for_producer",
]

TOO_LARGE: Final = {"MESSAGE_TOO_LARGE": "max.message.bytes", "RECORD_LIST_TOO_LARGE": "segment.bytes"}
"""The codes with which brokers refuse a batch for its size, and the topic's setting
that each is about."""

_ANSWER_MS: Final = 5000
# When brokers did not answer, sends do not wait for them again until this has passed.
_RETRY_AFTER_S: Final = 30.0
# The most that librdkafka counts: attributes, length, two deltas, two lengths and a count.
_RECORD_BYTES: Final = 36
_HEADER_BYTES: Final = 10  # at most: two lengths
_CODEC_BYTES: Final = 32  # of a codec's frame, at most
_CODEC_GROWTH: Final = 16  # what does not compress grows by less than one byte in this many
_OF_TOPICS: Final = {"max.message.bytes": "max.message.bytes", "segment.bytes": "segment.bytes"}
_OF_BROKERS: Final = {"message.max.bytes": "max.message.bytes", "log.segment.bytes": "segment.bytes"}
"""The brokers' settings that are the defaults of those of topics."""
_OF_REQUESTS: Final = {"socket.request.max.bytes": "socket.request.max.bytes"}
_NO_TOPIC: Final = ""


class BatchLimit(NamedTuple):
    """The smallest limit on a topic's batches, and the setting that it comes from."""

    setting: str
    size_bytes: int


class TopicLimits:
    """The limits of topics, from a cluster's brokers."""

    def __init__(self, properties: Mapping[str, Any], clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._servers = without_protocols(str(properties["bootstrap.servers"]))
        self._properties = {
            **{name: str(value) for name, value in security_properties(properties).items()},
            **{name: str(properties[name]) for name in ("client.id",) if name in properties},
            "request.timeout.ms": str(_ANSWER_MS),
            CONNECT_TIMEOUT_PROPERTY: str(_ANSWER_MS),
        }
        self._known: dict[str, tuple[BatchLimit | None, float]] = {}
        self._silent_until = 0.0

    def of(self, topic: str, max_age_s: float = 0.0) -> BatchLimit | None:
        """A topic's limit, at most ``max_age_s`` old; None where it cannot be known.

        Blocks for the request. Without an age it is asked for, and not kept: a batch that is
        refused later shows that it may have changed.
        """
        return self._recent(topic, max_age_s, self._ask)

    def of_requests(self, max_age_s: float = 0.0) -> BatchLimit | None:
        """The brokers' limit on whole requests: they close the connection of a client
        that sends a larger one."""
        return self._recent(_NO_TOPIC, max_age_s, lambda _: self._ask_broker(_OF_REQUESTS))

    def _recent(self, topic: str, max_age_s: float, ask: Callable[[str], BatchLimit | None]) -> BatchLimit | None:
        now = self._clock()
        known = self._known.get(topic)
        if known is not None and now - known[1] < max_age_s:
            return known[0]
        if now < self._silent_until:
            return None
        try:
            limit = ask(topic)
        except RefusedError:
            limit = None
        except (BarnabasError, ValueError):  # librdkafka reports what is wrong, in its own time
            self._silent_until = self._clock() + _RETRY_AFTER_S
            return None
        if max_age_s:
            self._known[topic] = limit, self._clock()
        return limit

    def _ask(self, topic: str) -> BatchLimit | None:
        from barnabas.client.admin.configurations import Resource, ResourceType, describe_configs

        with AdminConnection(self._servers, self._properties) as connection:
            resource = Resource(ResourceType.TOPIC, topic)
            try:
                return _smallest(describe_configs(connection, [resource], names=list(_OF_TOPICS)), _OF_TOPICS)
            except UnknownTopicError:
                pass
        return self._ask_broker(_OF_BROKERS)  # which create it with their defaults, if they do

    def _ask_broker(self, settings: Mapping[str, str]) -> BatchLimit | None:
        from barnabas.client.admin.configurations import Resource, ResourceType, describe_configs

        with AdminConnection(self._servers, self._properties) as connection:
            brokers = connection.describe_cluster().brokers
            if not brokers:
                return None
            resource = Resource(ResourceType.BROKER, str(brokers[0].id))
            return _smallest(describe_configs(connection, [resource], names=list(settings)), settings)


def _smallest(found: "Mapping[Resource, list[ConfigEntry]]", settings: Mapping[str, str]) -> BatchLimit | None:
    limits = [
        BatchLimit(settings[entry.name], int(entry.value))
        for entries in found.values()
        for entry in entries
        if entry.name in settings and entry.value and entry.value.isdecimal()
    ]
    return min(limits, key=lambda limit: limit.size_bytes, default=None)


def size_of(key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]] | None) -> int:
    """The bytes of a record's key, value and headers, with the headers' lengths.

    What cannot be a header counts for nothing. librdkafka compares this with its
    ``message.max.bytes``.
    """
    size_bytes = len(key or b"") + len(value or b"")
    for name, content in headers or ():
        size_bytes += _HEADER_BYTES + len(str(name).encode(errors="replace"))
        size_bytes += len(content) if isinstance(content, bytes | str) else 0
    return size_bytes


def batch_bytes(size_bytes: int, records: int = 1) -> int:
    """The largest size of an uncompressed batch with this many records, whose sizes
    (`size_of`) have this sum."""
    return HEADER_BYTES + records * _RECORD_BYTES + size_bytes


def in_any_codec(uncompressed_bytes: int) -> int:
    """The bytes at most of a batch that the producer or the broker (``compression.type``)
    compresses with any codec."""
    return uncompressed_bytes + uncompressed_bytes // _CODEC_GROWTH + _CODEC_BYTES


def too_large(code: str, topic: str, size_bytes: int, limit: BatchLimit | None, batch_size: str) -> tuple[str, str]:
    """What a broker refused, and the remedy.

    ``batch_size`` is the producer's own setting, empty where it has none. To send a record again is
    a remedy only if its batch fits when the record is alone in it, whatever the codec.
    """
    least_bytes = in_any_codec(batch_bytes(size_bytes))
    if limit is not None and least_bytes > limit.size_bytes:
        return (
            f"it has {_bytes(size_bytes)}, and a batch of its own up to {least_bytes}; "
            f"the topic's {limit.setting}={limit.size_bytes} is smaller",
            f"make it smaller, or raise the limit: {raise_limit(limit.setting, topic, least_bytes)}",
        )
    setting = TOO_LARGE[code] if limit is None else limit.setting
    value = "" if limit is None else f"={limit.size_bytes}"
    what = f"it has {_bytes(size_bytes)}, but its batch was larger than the topic's {setting}{value}"
    if batch_size or limit is None:
        now = f", which is {batch_size} now" if batch_size else ""
        return what, f"set the producer's batch.size below the topic's {setting}{now}, or raise {setting}"
    return what, "send it again: the next batches of this producer are small enough"


def too_large_for_producer(size_bytes: int, limit: str) -> tuple[str, str]:
    """What librdkafka refuses for the producer's own limit, and the remedy."""
    return (
        f"it has {_bytes(size_bytes)}, and the producer's max.request.size={limit} allows no larger record",
        "make it smaller, or raise max.request.size, and with it the topic's max.message.bytes if need be",
    )


def request_too_large(limit: BatchLimit) -> tuple[str, str]:
    """Why brokers close the connection, and the remedy."""
    return (
        f"brokers close the connection of a producer whose requests are larger than their {limit.setting}={limit.size_bytes}",
        f"set the producer's batch.size below it, or raise {limit.setting} in the brokers' files",
    )


def _bytes(count: int) -> str:
    return f"{count} byte{'' if count == 1 else 's'}"


def raise_limit(setting: str, topic: str, least: int | str = "BYTES") -> str:
    """The command that raises a topic's limit."""
    return f"barnabas configs --alter --topic {topic} --add-config {setting}={least}"
