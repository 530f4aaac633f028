"""The leader's side of fetch sessions (KIP-227; Kafka's FetchSession,
FetchSessionCache, FetchContext).

A session holds what a client asked for before, so that a request names changes only, and so does
the answer: partitions with what the client last asked and what it was last sent. Its epoch counts
requests: 0 asks for a new session, -1 ends one, any other must be the one after the last. An answer
leaves out partitions that have not changed; those with records move to the end of the order, so
that none starves under a byte limit.

A request does not look at all of a session's partitions either, for a follower has thousands.
`_Session.changed` holds those that may have changed, in the order in which they are looked at:

- what the request names, and what changed since it was looked at last (the purgatory reports that),
- what had an error, more records than there was room for, or anything else that a
  later look may find changed.

A partition leaves the list when an answer was given and there is nothing more to report: its reader
has all of it, and knows that. A watch at the partition brings it back at the first change.

The cache holds max.incremental.fetch.session.cache.slots sessions, with 100,000 partitions in all,
of some 450 bytes each, because a client may name partitions by ten thousands. A new one gets in by
pushing out those that were not used for two minutes, or, when all are in use, those that are older
than that and smaller than the new one. A follower's counts as larger than any consumer's, and need
not wait for these to be old. Where that does not make enough room the client is served without a
session; one that grows too large ends.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from barnabas.base.ids import TopicPartition, Uuid
from barnabas.base.randomness import Random
from barnabas.broker.replication.partition import FetchSessionActivity
from barnabas.broker.replication.reads import ReadResult
from barnabas.broker.requests.purgatory import Purgatory
from barnabas.wire.kafka.errors import ErrorCode

__all__ = ["NO_SESSION", "FetchContext", "FetchPartitionData", "FetchSessions", "PartitionFetch", "PartitionKey"]

EVICTION_AGE_MS = 120_000
NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
_MAX_EPOCH = (1 << 31) - 1
_MAX_PARTITIONS = 100_000

PartitionKey = tuple[str | Uuid, int]
"""(topic name, or topic id where the client speaks of ids; partition)"""


@dataclass(slots=True, eq=False)
class PartitionFetch:
    """What a client fetches of one partition, and the state that it last received."""

    key: PartitionKey
    topic_id: Uuid
    topic_partition: TopicPartition | None
    """None while the topic id is not known here."""
    fetch_offset: int
    max_bytes: int
    leader_epoch: int
    last_fetched_epoch: int
    follower_log_start_offset: int
    sent_high_watermark: int = -1
    sent_log_start_offset: int = -1
    session: "_Session | None" = None
    is_watched: bool = False

    def key_changed(self) -> "_Session | None":
        """The partition changed since it was watched.

        The session it belongs to looks at it again."""
        self.is_watched = False
        session = self.session
        if session is not None:
            session.changed[self.key] = self
        return session

    def ask(self, other: "PartitionFetch") -> None:
        """Take over what a later request asks."""
        if other.fetch_offset == self.fetch_offset or other.leader_epoch != self.leader_epoch:
            # The answer was dropped, because the reader had another role by then.
            self.sent_high_watermark = -1
        self.fetch_offset = other.fetch_offset
        self.max_bytes = other.max_bytes
        self.leader_epoch = other.leader_epoch
        self.last_fetched_epoch = other.last_fetched_epoch
        self.follower_log_start_offset = other.follower_log_start_offset

    def must_be_named(
        self,
        *,
        size_bytes: int,
        high_watermark: int,
        log_start_offset: int,
        error: bool,
        is_urgent: bool,
    ) -> bool:
        """Whether an incremental answer names the partition; notes what it then says."""
        has_changed = is_urgent or size_bytes > 0
        if high_watermark != self.sent_high_watermark:
            has_changed = True
            self.sent_high_watermark = high_watermark
        if log_start_offset != self.sent_log_start_offset:
            has_changed = True
            self.sent_log_start_offset = log_start_offset
        if error or is_urgent:
            # The reader acts on this and takes nothing else: send the rest again,
            # and report when it is over.
            self.sent_high_watermark = -1
            has_changed = True
        return has_changed


@dataclass(slots=True)
class FetchPartitionData:
    """What was read of one partition (Kafka's class of this name)."""

    wanted: PartitionFetch
    read: ReadResult
    error_code: ErrorCode = ErrorCode.NONE
    preferred_read_replica: int = -1
    can_rest: bool = False
    """Whether it need not be looked at again before it changes."""
    is_urgent: bool = False
    """Whether the response must be sent at once, although there are no records."""
    is_throttled: bool = False
    """Whether its bytes count for the replication throttle."""


class _Session:
    __slots__ = (
        "changed",
        "created_ms",
        "epoch",
        "id",
        "last_used_ms",
        "owner",
        "partitions",
        "privileged",
        "session_activity",
        "uses_topic_ids",
    )

    def __init__(
        self,
        session_id: int,
        partitions: dict[PartitionKey, PartitionFetch],
        now_ms: int,
        *,
        privileged: bool,
        uses_topic_ids: bool,
    ) -> None:
        self.id = session_id
        self.partitions = partitions
        self.epoch = 1
        self.created_ms = self.last_used_ms = now_ms
        self.privileged = privileged
        self.uses_topic_ids = uses_topic_ids
        self.changed = dict(partitions)
        self.owner: object = None
        self.session_activity = FetchSessionActivity()
        for partition in partitions.values():
            partition.session = self

    @property
    def weight(self) -> tuple[bool, int]:
        return self.privileged, len(self.partitions)


class FetchContext:
    """One request's view: the partitions to look at, those that left, and whether
    the answer is incremental."""

    __slots__ = ("_partitions", "_purgatory", "_session", "forgotten", "incremental", "session_id")

    def __init__(
        self,
        partitions: dict[PartitionKey, PartitionFetch],
        purgatory: Purgatory,
        session: _Session | None = None,
        *,
        incremental: bool = False,
        forgotten: Sequence[PartitionFetch] = (),
    ) -> None:
        self.forgotten = forgotten
        self._partitions = partitions
        self._purgatory = purgatory
        self._session = session
        self.incremental = incremental
        self.session_id = NO_SESSION if session is None else session.id

    def __iter__(self) -> Iterator[PartitionFetch]:
        return iter(self._partitions.values())

    def __len__(self) -> int:
        return len(self._partitions)

    def belongs_to(self, owner: object) -> FetchSessionActivity | None:
        """Note who asks; when that is another one than before, all partitions are looked at.

        None without a session."""
        session = self._session
        if session is None:
            return None
        if session.owner != owner:
            if session.owner is not None:
                session.session_activity = FetchSessionActivity()
                session.changed.update(session.partitions)
            session.owner = owner
        return session.session_activity

    def to_look_at(self) -> list[PartitionFetch]:
        """The partitions that may have changed, in the order in which they get room
        in the answer."""
        session = self._session
        return list(self._partitions.values() if session is None else session.changed.values())

    def unwatched(self) -> list[PartitionFetch]:
        """What changed since `watch` or `watch_some`, of a session; all partitions without one."""
        session = self._session
        if session is None:
            return self.to_look_at()
        return [found for found in session.changed.values() if not found.is_watched]

    def watch_some(self, partitions: Iterable[PartitionFetch]) -> None:
        """Note every change of these partitions from now on, of a session."""
        if self._session is not None:
            for partition in partitions:
                if partition.session is self._session:
                    self._watch(partition)

    def watch(self) -> object:
        """Note every change of a partition from now on.

        Return the key to wait under; None without a session."""
        session = self._session
        if session is not None:
            for partition in session.changed.values():
                self._watch(partition)
        return session

    def _watch(self, partition: PartitionFetch) -> None:
        if not partition.is_watched and partition.topic_partition is not None:
            partition.is_watched = True
            self._purgatory.listen(partition.topic_partition, partition)

    def rest(self, partition: PartitionFetch) -> None:
        """There is no more to say of a partition: look at it again when it changes, or
        when it is asked for again."""
        session = self._session
        if (
            session is not None
            and partition.topic_partition is not None
            and session.changed.pop(partition.key, None) is not None
        ):
            self._watch(partition)

    def finish(self, found: Sequence[FetchPartitionData]) -> list[FetchPartitionData]:
        """What the answer names of all that was found (Kafka's updateAndGenerateResponseData)."""
        if not self.session_id:
            return list(found)
        served, named = [], []
        for data in found:
            wanted, read = data.wanted, data.read
            if read.size_bytes:
                served.append(wanted.key)
            must_be_named = wanted.must_be_named(
                size_bytes=read.size_bytes,
                high_watermark=read.high_watermark,
                log_start_offset=read.log_start_offset,
                error=data.error_code is not ErrorCode.NONE,
                is_urgent=data.is_urgent,
            )
            if data.can_rest:
                self.rest(wanted)
            if must_be_named or not self.incremental:
                named.append(data)
        self.served(served)
        return named

    def served(self, keys: Iterable[PartitionKey]) -> None:
        """Partitions whose records the answer carries go to the end of the order."""
        session = self._session
        if session is not None and len(session.changed) > 1:
            for key in keys:
                found = session.changed.pop(key, None)
                if found is not None:
                    session.changed[key] = found


class FetchSessions:
    """The session cache of one broker."""

    def __init__(
        self, max_sessions: int, rng: Random, purgatory: Purgatory, *, max_partitions: int = _MAX_PARTITIONS
    ) -> None:
        """``purgatory`` informs of changes of partitions.

        ``max_partitions`` is for all sessions together."""
        self._max_sessions = max_sessions
        self._max_partitions = max_partitions
        self._rng = rng
        self._purgatory = purgatory
        self._sessions: dict[int, _Session] = {}  # in the order of their last use
        self._partition_count = 0

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        """The partitions of all sessions."""
        return self._partition_count

    def open(
        self,
        session_id: int,
        epoch: int,
        asked: list[PartitionFetch],
        forgotten: Iterable[PartitionKey],
        now_ms: int,
        *,
        privileged: bool,
        uses_topic_ids: bool,
    ) -> FetchContext | ErrorCode:
        """The context of a request, or FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH,
        FETCH_SESSION_TOPIC_ID_ERROR."""
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            replaced = self._sessions.get(session_id)
            if replaced is not None:
                self._end(replaced)
            partitions = {partition.key: partition for partition in asked}
            if epoch == FINAL_EPOCH or not partitions:
                return FetchContext(partitions, self._purgatory)
            session = self._create(partitions, now_ms, privileged=privileged, uses_topic_ids=uses_topic_ids)
            return FetchContext(partitions, self._purgatory, session)
        found = self._sessions.get(session_id)
        if found is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if found.epoch != epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if found.uses_topic_ids != uses_topic_ids:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        return self._continue(found, asked, forgotten, now_ms)

    def _continue(
        self, session: _Session, asked: list[PartitionFetch], forgotten: Iterable[PartitionKey], now_ms: int
    ) -> FetchContext | ErrorCode:
        known_before = len(session.partitions)
        added = sum(partition.key not in session.partitions for partition in asked)
        if added and not self._make_room((session.privileged, known_before + added), added, now_ms, growing=session):
            self._end(session)  # the client asks for all it wants again, and is served without one
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        for partition in asked:
            known = session.partitions.get(partition.key)
            if known is None:
                known = session.partitions[partition.key] = partition
                partition.session = session
            else:
                known.ask(partition)
            session.changed[partition.key] = known
        left = []
        for key in forgotten:
            dropped = session.partitions.pop(key, None)
            if dropped is not None:
                session.changed.pop(key, None)
                self._drop(dropped)
                left.append(dropped)
        del self._sessions[session.id]
        self._partition_count += len(session.partitions) - known_before
        if not session.partitions:
            return FetchContext({}, self._purgatory)
        self._sessions[session.id] = session
        session.last_used_ms = now_ms
        session.epoch = 1 if session.epoch == _MAX_EPOCH else session.epoch + 1
        return FetchContext(session.partitions, self._purgatory, session, incremental=True, forgotten=left)

    def _end(self, session: _Session) -> None:
        del self._sessions[session.id]
        self._partition_count -= len(session.partitions)
        for partition in session.partitions.values():
            self._drop(partition)

    def _drop(self, partition: PartitionFetch) -> None:
        partition.session = None
        if partition.is_watched and partition.topic_partition is not None:
            partition.is_watched = False
            self._purgatory.unlisten(partition.topic_partition, partition)

    def _create(
        self, partitions: dict[PartitionKey, PartitionFetch], now_ms: int, *, privileged: bool, uses_topic_ids: bool
    ) -> _Session | None:
        if not self._make_room((privileged, len(partitions)), len(partitions), now_ms):
            return None
        session_id = NO_SESSION
        while session_id == NO_SESSION or session_id in self._sessions:
            session_id = self._rng.randrange(1, 1 << 31)
        session = _Session(session_id, partitions, now_ms, privileged=privileged, uses_topic_ids=uses_topic_ids)
        self._sessions[session_id] = session
        self._partition_count += len(partitions)
        return session

    def _make_room(self, weight: tuple[bool, int], added: int, now_ms: int, *, growing: _Session | None = None) -> bool:
        """Make room for a new session of this weight, or for one that is ``growing`` to it.

        False when others have a better right. ``added`` partitions are new."""
        slots = len(self._sessions) + (growing is None) - self._max_sessions
        partitions = self._partition_count + added - self._max_partitions
        if slots <= 0 and partitions <= 0:
            return True
        evicted = []
        for session in self._evictable(weight, now_ms):
            if session is not growing:
                evicted.append(session)
                slots -= 1
                partitions -= len(session.partitions)
                if slots <= 0 and partitions <= 0:
                    break
        else:
            return False
        for session in evicted:
            self._end(session)
        return True

    def _evictable(self, weight: tuple[bool, int], now_ms: int) -> list[_Session]:
        """The sessions that one of this weight may push out, in the order in which they go."""
        unused, used = [], []
        for session in self._sessions.values():
            if now_ms - session.last_used_ms > EVICTION_AGE_MS:
                unused.append(session)
            elif session.weight < weight and (
                now_ms - session.created_ms > EVICTION_AGE_MS or weight[0] > session.privileged
            ):
                used.append(session)
        return unused + sorted(used, key=lambda session: session.weight)
