"""How large a batch of a topic may be, and what to say about a record or batch that is larger.

Brokers refuse a batch above the topic's ``max.message.bytes`` (MESSAGE_TOO_LARGE) or ``segment.bytes``
(RECORD_LIST_TOO_LARGE); both have the brokers' ``message.max.bytes`` and ``log.segment.bytes`` as their defaults. Java's
producer divides a batch that was refused and sends its parts. librdkafka does not, and what it sent meanwhile would be
overtaken. So the limits are read before the first record of a topic is sent, with one DescribeConfigs request. Where they
cannot be read (no right to, no broker there, a protection that only librdkafka has) they are unknown.

In Kafka: `ProducerBatch.split`, after a refusal.
"""

import time
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from barnabas.base.errors import BarnabasError
from barnabas.client.admin_connection import AdminConnection
from barnabas.client.bootstrap import without_protocols
from barnabas.client.errors import RefusedError, UnknownTopicError
from barnabas.client.properties import security_properties

__all__ = ["TOO_LARGE", "BatchLimit", "TopicLimits", "raise_limit", "size_of", "too_large", "too_large_for_producer"]

TOO_LARGE: Final = {"MESSAGE_TOO_LARGE": "max.message.bytes", "RECORD_LIST_TOO_LARGE": "segment.bytes"}
"""The codes with which brokers refuse a batch for its size, and the topic's setting that each is about."""

_ANSWER_MS: Final = 5000
_RETRY_AFTER_S: Final = 30.0  # after brokers that did not answer, sends do not wait for the same again
_FRAMING_BYTES: Final = 90  # of a batch's header and a record's lengths, at most
_OF_TOPICS: Final = ("max.message.bytes", "segment.bytes")
_OF_BROKERS: Final = ("message.max.bytes", "log.segment.bytes")


class BatchLimit(NamedTuple):
    """The smallest limit on a topic's batches, and the setting that it comes from."""

    setting: str
    size_bytes: int


class TopicLimits:
    """The limits of topics, from a cluster's brokers."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self._servers = without_protocols(str(properties["bootstrap.servers"]))
        self._properties = {
            **{name: str(value) for name, value in security_properties(properties).items()},
            **{name: str(properties[name]) for name in ("client.id",) if name in properties},
            "request.timeout.ms": str(_ANSWER_MS),
            "socket.connection.setup.timeout.ms": str(_ANSWER_MS),
        }
        self._known: dict[str, tuple[BatchLimit | None, float]] = {}
        self._silent_until = 0.0

    def of(self, topic: str, max_age_s: float = 0.0) -> BatchLimit | None:
        """A topic's limit, at most ``max_age_s`` old; None where it cannot be known. Blocks for the request."""
        now = time.monotonic()
        known = self._known.get(topic)
        if known is not None and now - known[1] < max_age_s:
            return known[0]
        if now < self._silent_until:
            return None
        try:
            limit = self._ask(topic)
        except RefusedError:
            limit = None
        except (BarnabasError, ValueError):  # librdkafka reports what is wrong, in its own time
            self._silent_until = time.monotonic() + _RETRY_AFTER_S
            return None
        self._known[topic] = limit, time.monotonic()
        return limit

    def _ask(self, topic: str) -> BatchLimit | None:
        from barnabas.client.configurations import Resource, ResourceType, describe_configs

        with AdminConnection(self._servers, self._properties) as connection:
            resource, names = Resource(ResourceType.TOPIC, topic), _OF_TOPICS
            try:
                found = describe_configs(connection, [resource], names=names)
            except UnknownTopicError:  # if brokers create it, then with their defaults
                brokers = connection.describe_cluster().brokers
                if not brokers:
                    return None
                resource, names = Resource(ResourceType.BROKER, str(brokers[0].id)), _OF_BROKERS
                found = describe_configs(connection, [resource], names=names)
        setting_of = dict(zip(names, _OF_TOPICS, strict=True))
        limits = [
            BatchLimit(setting_of[entry.name], int(entry.value))
            for entry in found.get(resource, [])
            if entry.name in setting_of and entry.value and entry.value.isdecimal()
        ]
        return min(limits, key=lambda limit: limit.size_bytes, default=None)


def size_of(key: bytes | None, value: bytes | None, headers: Sequence[tuple[str, bytes | None]] | None) -> int:
    """The bytes of a record's key, value and headers; what cannot be a header counts for nothing."""
    size_bytes = len(key or b"") + len(value or b"")
    for name, content in headers or ():
        size_bytes += len(str(name).encode(errors="replace"))
        size_bytes += len(content) if isinstance(content, bytes | str) else 0
    return size_bytes


def too_large(code: str, topic: str, size_bytes: int, limit: BatchLimit | None, batch_size: str) -> tuple[str, str]:
    """What a broker refused, and the remedy. ``batch_size`` is the producer's own setting, empty where it has none."""
    if limit is not None and size_bytes + _FRAMING_BYTES > limit.size_bytes:
        return (
            f"it has {_bytes(size_bytes)}, and the topic's {limit.setting}={limit.size_bytes} allows no larger batch",
            f"make it smaller, or raise the limit: {raise_limit(limit.setting, topic, size_bytes + _FRAMING_BYTES)}",
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


def _bytes(count: int) -> str:
    return f"{count} byte{'' if count == 1 else 's'}"


def raise_limit(setting: str, topic: str, least: int | str = "BYTES") -> str:
    """The command that raises a topic's limit."""
    return f"barnabas configs --alter --topic {topic} --add-config {setting}={least}"
