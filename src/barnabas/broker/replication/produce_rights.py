"""What the sender of Produce requests may write to.

Each resource is asked for once in all requests that arrived together on one connection, however
many batches and partitions they have. A topic that is allowed is not asked for again until rights
have changed: this is a thirtieth of a small request. One that is denied is, for the audit log
counts denials.

In Kafka: the authorizations of `KafkaApis.handleProduceRequest`.
"""

from collections.abc import Callable, Iterable

from barnabas.security.acls import ResourceType
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.records.batch_header import TRANSACTIONAL, HeaderFields

__all__ = ["ProduceRights"]

_MAX_KEPT_TOPICS = 1000


class ProduceRights:
    """The rights of one sender, as of now."""

    __slots__ = ("_decided", "_has_denied", "_may_write", "valid_for")

    def __init__(self, may_write: Callable[[ResourceType, str], bool], valid_for: object = None) -> None:
        """``may_write`` says whether the sender has WRITE on a resource. ``valid_for`` is what its
        answers depend on."""
        self._may_write = may_write
        self.valid_for = valid_for
        self._decided: dict[str, bool] = {}
        self._has_denied = False

    def begin(self, *, keeps_allowed: bool) -> None:
        """Requests have arrived: ask again for what was denied, or for everything."""
        if self._has_denied or not keeps_allowed or len(self._decided) > _MAX_KEPT_TOPICS:
            self._decided.clear()
            self._has_denied = False

    def may_write(self, topic: str) -> bool:
        """Whether the sender may append to a topic."""
        is_allowed = self._decided.get(topic)
        if is_allowed is None:
            is_allowed = self._decided[topic] = self._may_write(ResourceType.TOPIC, topic)
            self._has_denied = self._has_denied or not is_allowed
        return is_allowed

    def check_transactional_id(self, transactional_id: str, headers: Iterable[HeaderFields]) -> None:
        """Whether the sender may append batches with these headers in a transaction.

        Raises `KafkaError` TRANSACTIONAL_ID_AUTHORIZATION_FAILED, for the whole request.
        """
        if any(header[5] & TRANSACTIONAL for header in headers) and not self._may_write(
            ResourceType.TRANSACTIONAL_ID, transactional_id
        ):
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
