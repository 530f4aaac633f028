"""The topics that a client may write to, or read.

Each is asked for once in all Produce requests that arrived together on one connection, however many
batches and partitions they have, and once in a Fetch. What Produce is allowed is not asked for
again until rights have changed: this is a thirtieth of a small request. What is denied is, for the
audit log counts denials.

In Kafka: the authorizations of `KafkaApis.handleProduceRequest` and `handleFetchRequest`.
"""

from collections.abc import Callable, Hashable

from barnabas.security.acls import ResourceType

__all__ = ["TopicRights"]

_MAX_KEPT_TOPICS = 1000


class TopicRights:
    """The rights of one client to one operation, as of now."""

    __slots__ = ("_decided", "_has_denied", "is_authorized", "valid_for")

    def __init__(self, is_authorized: Callable[[ResourceType, str], bool], valid_for: Hashable = None) -> None:
        self.is_authorized = is_authorized
        """Whether the client may do the operation on a resource: asks for it each time."""
        self.valid_for = valid_for
        """What the answers depend on: who asks, and the last change of the rights."""
        self._decided: dict[str, bool] = {}
        self._has_denied = False

    def begin(self, *, caches_allowed: bool) -> None:
        """Requests have arrived: ask again for what was denied, or for everything."""
        if self._has_denied or not caches_allowed or len(self._decided) > _MAX_KEPT_TOPICS:
            self._decided.clear()
            self._has_denied = False

    def allows(self, topic: str) -> bool:
        """Whether the client may do the operation on a topic."""
        is_allowed = self._decided.get(topic)
        if is_allowed is None:
            is_allowed = self._decided[topic] = self.is_authorized(ResourceType.TOPIC, topic)
            self._has_denied = self._has_denied or not is_allowed
        return is_allowed
