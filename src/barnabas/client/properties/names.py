"""The known names of client properties, to suggest one for a misspelt name.

librdkafka refuses a name that it does not know, and has no list of those that it does.

Kafka has no counterpart.
"""

import re
from collections.abc import Mapping
from typing import Any

from barnabas.base.hints import did_you_mean
from barnabas.base.redaction import is_secret_name
from barnabas.client.errors import ConfigurationError
from barnabas.client.properties.translation import (
    DESERIALIZER_NAMES,
    IGNORED_IN_ALL,
    IGNORED_IN_CONSUMERS,
    IGNORED_IN_PRODUCERS,
    KEY_DESERIALIZER_NAMES,
    KEY_SERIALIZER_NAMES,
    KNOWN_FOR_LOGIN,
    REFUSED,
    RENAMED_IN_ALL,
    RENAMED_IN_CONSUMERS,
    RENAMED_IN_PRODUCERS,
    SERIALIZER_NAMES,
    security_properties,
)

__all__ = [
    "CLIENT_PROPERTIES",
    "check_all_known",
    "check_properties",
    "is_client_property",
    "looks_like_security_property",
    "property_hint",
    "refused_by_librdkafka",
]

_OF_LIBRDKAFKA = [
    "acks",
    "allow.auto.create.topics",
    "api.version.request",
    "auto.commit.interval.ms",
    "auto.offset.reset",
    "batch.num.messages",
    "batch.size",
    "bootstrap.servers",
    "broker.address.family",
    "broker.address.ttl",
    "check.crcs",
    "client.dns.lookup",
    "client.id",
    "client.rack",
    "compression.codec",
    "compression.level",
    "compression.type",
    "connections.max.idle.ms",
    "coordinator.query.interval.ms",
    "debug",
    "delivery.timeout.ms",
    "enable.auto.commit",
    "enable.auto.offset.store",
    "enable.idempotence",
    "enable.metrics.push",
    "enable.partition.eof",
    "fetch.error.backoff.ms",
    "fetch.max.bytes",
    "fetch.message.max.bytes",
    "fetch.min.bytes",
    "fetch.queue.backoff.ms",
    "fetch.wait.max.ms",
    "group.id",
    "group.instance.id",
    "group.protocol",
    "group.remote.assignor",
    "heartbeat.interval.ms",
    "isolation.level",
    "linger.ms",
    "log.connection.close",
    "log_level",
    "max.in.flight",
    "max.in.flight.requests.per.connection",
    "max.partition.fetch.bytes",
    "max.poll.interval.ms",
    "message.copy.max.bytes",
    "message.max.bytes",
    "message.send.max.retries",
    "message.timeout.ms",
    "metadata.max.age.ms",
    "metadata.recovery.strategy",
    "offset.store.method",
    "partition.assignment.strategy",
    "partitioner",
    "plugin.library.paths",
    "queue.buffering.backpressure.threshold",
    "queue.buffering.max.kbytes",
    "queue.buffering.max.messages",
    "queue.buffering.max.ms",
    "queued.max.messages.kbytes",
    "queued.min.messages",
    "receive.message.max.bytes",
    "reconnect.backoff.max.ms",
    "reconnect.backoff.ms",
    "request.required.acks",
    "request.timeout.ms",
    "retries",
    "retry.backoff.max.ms",
    "retry.backoff.ms",
    "session.timeout.ms",
    "socket.connection.setup.timeout.ms",
    "socket.keepalive.enable",
    "socket.max.fails",
    "socket.nagle.disable",
    "socket.receive.buffer.bytes",
    "socket.send.buffer.bytes",
    "socket.timeout.ms",
    "statistics.interval.ms",
    "sticky.partitioning.linger.ms",
    "topic.blacklist",
    "topic.metadata.propagation.max.ms",
    "topic.metadata.refresh.fast.interval.ms",
    "topic.metadata.refresh.interval.ms",
    "topic.metadata.refresh.sparse",
    "transaction.timeout.ms",
    "transactional.id",
]
_OURS = [
    "buffer.memory",
    "consumer.timeout.ms",
    "auto.commit.enable",
    "max.block.ms",
    "metrics.http.address",
    "partitioner.class",
    "partitioner.ignore.keys",
    "producer.type",
    "queue.enqueue.timeout.ms",
    "zookeeper.connect",
    "zookeeper.connection.timeout.ms",
]
_NO_CLIENT = {"builtin.features": "none"}
"""librdkafka goes by the order of the names: this last one, whose value is wrong, keeps
it from making a client."""
_NO_PROPERTY = "No such configuration property:"
CLIENT_PROPERTIES = frozenset(
    [
        *_OF_LIBRDKAFKA,
        *_OURS,
        *KNOWN_FOR_LOGIN,
        *RENAMED_IN_ALL,
        *RENAMED_IN_CONSUMERS,
        *RENAMED_IN_PRODUCERS,
        *IGNORED_IN_ALL,
        *IGNORED_IN_CONSUMERS,
        *IGNORED_IN_PRODUCERS,
        *SERIALIZER_NAMES,
        *KEY_SERIALIZER_NAMES,
        *DESERIALIZER_NAMES,
        *KEY_DESERIALIZER_NAMES,
    ]
)
"""All that `Producer` and `Consumer` take, except callbacks."""


_OF_KAFKA_PYTHON = {
    "ssl_cafile": "ssl.ca.location",
    "ssl_certfile": "ssl.certificate.location",
    "ssl_check_hostname": "ssl.endpoint.identification.algorithm",
    "ssl_ciphers": "ssl.cipher.suites",
    "ssl_crlfile": "ssl.crl.location",
    "ssl_keyfile": "ssl.key.location",
    "ssl_password": "ssl.key.password",
    "sasl_plain_password": "sasl.password",
    "sasl_plain_username": "sasl.username",
}
"""Arguments of kafka-python whose names differ in more than the underscores."""


def check_properties(properties: object, client: str) -> None:
    """Raise `ConfigurationError` if it is not a mapping, and for a known name in another
    spelling, such as kafka-python's.

    librdkafka refuses other names that it does not know; see `property_hint`.
    """
    if not isinstance(properties, Mapping):
        servers = properties if isinstance(properties, str) and properties else "localhost:9092"
        raise ConfigurationError(
            f"{client} takes a mapping of properties, not {properties!r:.100}",
            remedy=f'give {{"bootstrap.servers": "{servers:.100}"}}',
        )
    for name in properties:
        if not isinstance(name, str):
            raise ConfigurationError(f"{name!r:.100} is not the name of a property: a text is expected")
        meant = _OF_KAFKA_PYTHON.get(name) or _plainly_spelled(name)
        if name not in CLIENT_PROPERTIES and meant in CLIENT_PROPERTIES:
            raise ConfigurationError(f"{name} is not a property of clients; did you mean {meant}?")


def check_all_known(properties: Mapping[str, Any]) -> None:
    """Raise `ConfigurationError` for a name that no client knows: a setting with a
    typing error would be none."""
    for name in properties:
        if not is_client_property(name):
            raise ConfigurationError(
                f"{name} is not a property of clients{did_you_mean(_plainly_spelled(name), CLIENT_PROPERTIES)}"
            )


def _plainly_spelled(name: str) -> str:
    """``bootstrap.servers`` for bootstrap_servers, bootstrap-servers,
    bootstrapServers and BOOTSTRAP.SERVERS."""
    return re.sub("[_-]|(?<=[a-z])(?=[A-Z])", ".", name.strip()).lower()


def property_hint(reason: object) -> str:
    """``; did you mean NAME?`` for librdkafka's refusal of a name; empty for another one."""
    unknown = re.search(r'No such configuration property: "([^"]+)"', str(reason))
    return did_you_mean(_plainly_spelled(unknown[1]), CLIENT_PROPERTIES) if unknown else ""


def refused_by_librdkafka(name: str, text: str) -> str | None:
    """Why librdkafka refuses a property or its value, with the nearest name; None if it takes both.

    Makes no client. Protection is judged by
    `barnabas.client.properties.translation.translate_login`, which also knows Java's names.
    """
    if name in KNOWN_FOR_LOGIN or name == "plugin.library.paths":  # the latter would be loaded
        return None
    import confluent_kafka

    try:
        confluent_kafka.Producer({name: text, **_NO_CLIENT})
    except confluent_kafka.KafkaException as error:
        reason = error.args[0].str().strip()
        if _NO_PROPERTY in reason:
            hint = did_you_mean(_plainly_spelled(name), {*_OF_LIBRDKAFKA, *KNOWN_FOR_LOGIN})
            return f"is no property of librdkafka's clients{hint}"
        if text and is_secret_name(name):
            reason = reason.replace(text, "***")
        return None if next(iter(_NO_CLIENT)) in reason else f"is refused by librdkafka: {reason}"
    except (TypeError, AttributeError):
        return "is for functions of programs"
    return None


def is_client_property(name: str) -> bool:
    """Whether `Producer` or `Consumer` know the name, if only to refuse it.

    librdkafka has the last word."""
    if name in CLIENT_PROPERTIES or name in REFUSED:
        return True
    import confluent_kafka

    try:
        confluent_kafka.Producer({name: "", **_NO_CLIENT})
    except confluent_kafka.KafkaException as error:
        return f'{_NO_PROPERTY} "{name}"' not in str(error)
    except TypeError:  # a callback
        return True
    return True


def looks_like_security_property(name: str) -> bool:
    """Whether a name is one of protection, or looks most like one: without it a connection would
    have less than is meant."""
    from difflib import get_close_matches

    plain = name.lower()
    close = get_close_matches(plain, CLIENT_PROPERTIES, n=1)
    return bool(security_properties({plain: ""})) or (bool(close) and close[0] in KNOWN_FOR_LOGIN)
