"""The follower's side of a fetch session (KIP-227; Kafka's FetchSessionHandler): name only what
changed since last time.

The leader's broker keeps what we asked for; a request names partitions that are new or moved on,
and those it may forget. The session's epoch counts requests. After an error, a lost answer or a
broken connection it is not known what the other side has: the next request begins again, and names
the old session so that it is dropped.

A request names 1,000 partitions at most that the other side does not know yet, so that thousands
cost both sides several short steps instead of a long one. Only where the other side keeps no
session, or ends the one that grows, does a request name all.
"""

from itertools import islice
from typing import NamedTuple

from barnabas.base.ids import TopicPartition, Uuid
from barnabas.broker.replication.fetch_sessions import NO_SESSION
from barnabas.wire.kafka.errors import ErrorCode

__all__ = ["MAX_NEW_PARTITIONS", "FetchSessionHandler", "SessionRequest"]

_INITIAL_EPOCH = 0
_MAX_EPOCH = (1 << 31) - 1
MAX_NEW_PARTITIONS = 1_000


class SessionRequest(NamedTuple):
    """The contents of one request."""

    session_id: int
    epoch: int
    to_send: list[TopicPartition]
    to_forget: list[tuple[TopicPartition, Uuid]]
    names_all: bool
    """Whether nothing is left that the other side does not know yet."""


class FetchSessionHandler:
    """The partitions that we want, and those that the other side knows."""

    def __init__(self) -> None:
        self._id = NO_SESSION
        self._epoch = _INITIAL_EPOCH
        self._wanted: dict[TopicPartition, Uuid] = {}
        self._changed: dict[TopicPartition, None] = {}
        self._removed: dict[TopicPartition, Uuid] = {}
        self._known: dict[TopicPartition, Uuid] = {}
        self._topic_names: dict[Uuid, str] = {}
        self._is_refused = False
        """Whether the other side has no room for our session."""
        self._has_grown = False
        """Whether the last request named partitions that the session did not have."""

    def add(self, topic_partition: TopicPartition, topic_id: Uuid) -> None:
        """Want a partition from the next request on."""
        if self._known.get(topic_partition, topic_id) != topic_id:
            self.lost()  # the other side knows it under the id of a topic that was deleted
        self._wanted[topic_partition] = topic_id
        self._topic_names[topic_id] = topic_partition.topic
        self._changed[topic_partition] = None
        self._removed.pop(topic_partition, None)

    def remove(self, topic_partition: TopicPartition) -> None:
        """Want a partition no longer."""
        self._removed[topic_partition] = self._wanted.pop(topic_partition)
        self._changed.pop(topic_partition, None)

    def change(self, topic_partition: TopicPartition) -> None:
        """Name a wanted partition in the next request."""
        self._changed[topic_partition] = None

    def changed_partitions(self) -> list[TopicPartition]:
        """The wanted partitions that the next request names, if it is incremental."""
        return list(self._changed)

    def topic_name(self, topic_id: Uuid) -> str | None:
        """The name of a topic that was asked for."""
        return self._topic_names.get(topic_id)

    def next(self) -> SessionRequest:
        """The next request for all that is wanted."""
        if self._epoch == _INITIAL_EPOCH:
            count = len(self._wanted) if self._is_refused else MAX_NEW_PARTITIONS
            self._known = dict(islice(self._wanted.items(), count))
            self._changed = dict.fromkeys(islice(self._wanted, count, None))
            self._topic_names = {topic_id: wanted.topic for wanted, topic_id in self._wanted.items()}
            step = SessionRequest(self._id, _INITIAL_EPOCH, list(self._known), [], not self._changed)
            self._has_grown = False
        else:
            to_forget = [(removed, topic_id) for removed, topic_id in self._removed.items() if removed in self._known]
            for removed, _ in to_forget:
                del self._known[removed]
            to_send: list[TopicPartition] = []
            new: list[TopicPartition] = []
            for changed in self._changed:
                (to_send if changed in self._known else new).append(changed)
            to_send += new[:MAX_NEW_PARTITIONS]
            self._has_grown = bool(new)
            for changed in to_send:
                self._known[changed] = self._wanted[changed]
            self._changed = dict.fromkeys(new[MAX_NEW_PARTITIONS:])
            step = SessionRequest(self._id, self._epoch, to_send, to_forget, not self._changed)
        self._removed.clear()
        return step

    def handle_response(self, session_id: int, error: int) -> bool:
        """An answer came.

        False when it is an error of the session: the next request is whole, and can go at once."""
        if error == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
            self._id, self._epoch = NO_SESSION, _INITIAL_EPOCH
            # Otherwise it would grow and end again and again.
            self._is_refused = self._is_refused or self._has_grown
            return False
        if error != ErrorCode.NONE:
            self.lost()
            return False
        if session_id == NO_SESSION:  # the other side keeps none for us
            self._id, self._epoch = NO_SESSION, _INITIAL_EPOCH
            self._is_refused = True
        else:
            self._is_refused = False
            self._id = session_id
            self._epoch = 1 if self._epoch == _MAX_EPOCH else self._epoch + 1
        return True

    def lost(self) -> None:
        """No answer came."""
        self._epoch = _INITIAL_EPOCH
