"""Rights that a consumer lacks, found out where librdkafka waits for what does not come, or says
that something is not there.

In Kafka: the checks of errors in `ConsumerCoordinator` and `OffsetFetcher`.
"""

import contextlib
from collections.abc import Iterable, Mapping
from typing import Any

import confluent_kafka

from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.client.errors import AuthorizationError, ClientError, from_librdkafka
from barnabas.client.properties.translation import security_properties

__all__ = ["ConsumerRights"]

_LIMIT_MS = "5000"
_NOT_THERE = frozenset(("_UNKNOWN_PARTITION", "_UNKNOWN_TOPIC", "UNKNOWN_TOPIC_OR_PART"))
_REFUSED_TOPIC, _REFUSED_GROUP = "TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED"


class ConsumerRights:
    """What one consumer may do. Its properties are librdkafka's."""

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self._properties = properties
        self._group = str(properties.get("group.id") or "")
        self._is_checked = False

    def check_group(self, librdkafka: Any) -> None:
        """Raise `AuthorizationError` where the group's coordinator is not named to this consumer.

        librdkafka asks for the coordinator again and again, and a commit waits for it. A
        member knows its coordinator.
        """
        if self._is_checked or not self._group or librdkafka.memberid():
            return
        security = {name: str(value) for name, value in security_properties(self._properties).items()}
        servers = str(self._properties["bootstrap.servers"])
        try:
            with AdminConnection(servers, {**security, "default.api.timeout.ms": _LIMIT_MS}) as connection:
                connection.find_coordinator(self._group)
        except AuthorizationError:
            raise
        except ClientError:
            return  # librdkafka may do better, and says so if not
        self._is_checked = True

    def is_of_no_group(self, error: Any) -> bool:
        """Whether an error is about the group of a consumer that has none: librdkafka looks for a
        coordinator all the same."""
        return not self._group and error.name() == _REFUSED_GROUP

    def reading_error(self, error: Any, topic: str) -> ClientError:
        """Why nothing can be read."""
        what = f"topic {topic}" if topic else "records"
        if error.name() == _REFUSED_GROUP:
            what = f"as a member of group {self._group}"
        return from_librdkafka(error, f"cannot read {what}")

    def lookup_error(self, error: Any, what: str, librdkafka: Any, topics: Iterable[str]) -> ClientError:
        """Why offsets of a topic cannot be looked up.

        librdkafka does not distinguish a refused topic from a missing one."""
        for topic in topics if error.name() in _NOT_THERE else ():
            with contextlib.suppress(confluent_kafka.KafkaException):
                found = librdkafka.list_topics(topic, timeout=int(_LIMIT_MS) / 1000).topics.get(topic)
                if found is not None and found.error is not None and found.error.name() == _REFUSED_TOPIC:
                    return from_librdkafka(found.error, f"{what}: topic {topic}")
        return from_librdkafka(error, what)
