"""Fetch: records for consumers and followers, at once or when there are enough.

Versions 4 to 17: fetch sessions from 7 (KIP-227), leader epochs from 9 (KIP-320), reading from followers from 11
(KIP-392), diverging epochs from 12 (KIP-595), topic ids from 13 (KIP-516), new leaders in the answer from 16 (KIP-951).

An answer waits until min_bytes can be read, something went wrong, or max_wait_ms is over. It is bounded by max_bytes,
by fetch.max.bytes and by each partition's limit, but the first batch is whole, however large (KIP-74). Records leave as
ranges of segment files. Who reads is told by the replica id:

- -1, a consumer: up to the high watermark, or to the last stable offset with aborted transactions listed
  (read_committed). Followers serve those that know of it (version 11); the leader may send a consumer to one.
- a broker's id, a follower: up to the end, from the leader alone. Its offset tells how far it has come. While it is out
  of sync it may be throttled (KIP-73).
- -2, a tool that compares replicas: up to the end, from any replica.

With a fetch session only the partitions that may have news are looked at (see `fetch_sessions`), so a request costs what
changed and not what exists.
"""

import logging
from collections.abc import Hashable
from dataclasses import dataclass
from typing import Any

from barnabas.base.ids import ZERO_UUID, TopicPartition
from barnabas.broker.metadata.leader_hints import LeaderHints
from barnabas.broker.replication.fetch_sessions import FetchContext, PartitionFetch
from barnabas.broker.replication.partition import Leader
from barnabas.broker.replication.replica_manager import LOG_END, NO_EPOCH, READ_COMMITTED, READ_UNCOMMITTED
from barnabas.broker.replication.selection import ReplicaSelector, ReplicaView
from barnabas.broker.requests.api_handler import ApiHandler
from barnabas.broker.requests.request import Node, Request
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

logger = logging.getLogger(__name__)

_LEADER_HINTS = 16
_REPLICA_STATE = 15
_TOPIC_IDS = 13
_RACKS = 11
_CONSUMER = -1
_MOVED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
_UNKNOWN = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID)
_NO_RECORDS = b""


def handle(node: Node, request: Request) -> None:
    """Open the session's context, read, and answer or park."""
    message: FetchRequest = request.message
    replica_id = message.replica_id
    if request.version >= _REPLICA_STATE and message.replica_state is not None:
        replica_id = message.replica_state.replica_id
    asked, forgotten = _partitions(node, request)
    context = node.fetch_sessions.open(
        message.session_id,
        message.session_epoch,
        asked,
        forgotten,
        request.received_ms,
        privileged=replica_id >= 0,
        uses_topic_ids=request.version >= _TOPIC_IDS,
    )
    if not isinstance(context, FetchContext):
        request.fail(context)
        return
    fetch = _Fetch(node, request, context, replica_id)
    if not fetch.read() and message.max_wait_ms > 0 and len(context):
        fetch.park()
    else:
        fetch.reply()


def _partitions(node: Node, request: Request) -> tuple[list[PartitionFetch], list[Any]]:
    """What the request asks for and what it forgets, by key."""
    message: FetchRequest = request.message
    by_id = request.version >= _TOPIC_IDS
    asked = []
    for topic in message.topics:
        name = node.metadata.topic_name(topic.topic_id) if by_id else topic.topic
        topic_key = topic.topic_id if by_id else topic.topic
        topic_id = topic.topic_id if by_id else ZERO_UUID
        for data in topic.partitions:
            index = data.partition
            asked.append(
                PartitionFetch(
                    (topic_key, index),
                    topic_id,
                    None if name is None else TopicPartition(name, index),
                    data.fetch_offset,
                    data.partition_max_bytes,
                    data.current_leader_epoch,
                    data.last_fetched_epoch,
                    data.log_start_offset,
                )
            )
    forgotten = [
        (topic.topic_id if by_id else topic.topic, index)
        for topic in message.forgotten_topics_data
        for index in topic.partitions
    ]
    return asked, forgotten


class _Fetch:
    """One request on its way."""

    __slots__ = (
        "_answers",
        "_context",
        "_failed",
        "_follower",
        "_isolation",
        "_max_bytes",
        "_min_bytes",
        "_node",
        "_offsets",
        "_only_leader",
        "_presence",
        "_replica_epoch",
        "_replica_id",
        "_request",
        "_told_followers",
    )

    def __init__(self, node: Node, request: Request, context: FetchContext, replica_id: int) -> None:
        message: FetchRequest = request.message
        self._node = node
        self._request = request
        self._context = context
        self._replica_id = replica_id
        state = message.replica_state
        self._replica_epoch = -1 if state is None else state.replica_epoch
        self._max_bytes = min(message.max_bytes, node.settings["fetch.max.bytes"])
        self._min_bytes = min(message.min_bytes, self._max_bytes)
        follower = self._follower = replica_id >= 0
        self._only_leader = follower or (replica_id == _CONSUMER and request.version < _RACKS)
        if replica_id != _CONSUMER:
            self._isolation = LOG_END
        else:
            self._isolation = READ_COMMITTED if message.isolation_level == READ_COMMITTED else READ_UNCOMMITTED
        self._presence = context.belongs_to((replica_id, self._replica_epoch)) if follower else None
        for left in context.forgotten:
            self._is_absent_from(left)
        self._answers: list[_Answer] = []
        self._offsets: dict[TopicPartition | None, PartitionFetch] = {}
        self._failed = False
        self._told_followers = False

    def read(self) -> bool:
        """Read what may have news. True when there is something to answer now: enough bytes, or an error."""
        room = self._max_bytes
        min_one_batch = True
        urgent = False
        answers: list[_Answer] = []
        for wanted in self._context.to_look_at():
            try:
                found = self._read_partition(wanted, min(wanted.max_bytes, room), min_one_batch)
                urgent = urgent or found.is_urgent
            except KafkaError as error:
                self._is_absent_from(wanted)
                found = _Answer(wanted, _refusal(wanted, error.code))
                urgent = self._failed = True
            if found.size_bytes:
                min_one_batch = False
                room = max(room - found.size_bytes, 0)
            answers.append(found)
        self._answers = answers
        if not self._told_followers:
            self._told_followers = True
            if self._presence is not None:
                self._presence.last_fetch_ms = self._node.clock.wall_ms()
        return urgent or self._max_bytes - room >= self._min_bytes

    def _read_partition(self, wanted: PartitionFetch, max_bytes: int, min_one_batch: bool) -> "_Answer":
        node = self._node
        replicas = node.replicas
        name = wanted.name
        if name is None:
            topic = node.metadata.topic_name(wanted.topic_id)
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID)
            name = wanted.name = TopicPartition(topic, wanted.key[1])
        is_throttled = False
        if self._follower:
            is_in_sync = replicas.check_follower(name, self._replica_id, wanted.leader_epoch)
            quota = node.replication_quotas.leader
            is_throttled = quota.is_throttled(name)
            if is_throttled and not is_in_sync and quota.is_exceeded(node.clock.monotonic_ms()):
                max_bytes, min_one_batch = 0, False
        elif node.replica_selector is not None and self._replica_id == _CONSUMER and self._request.version >= _RACKS:
            nearer = self._nearer_replica(node.replica_selector, name, wanted)
            if nearer is not None:
                return nearer
        found = replicas.read(
            name,
            wanted.fetch_offset,
            max_bytes,
            isolation=self._isolation,
            min_one_batch=min_one_batch,
            only_leader=self._only_leader,
            leader_epoch=wanted.leader_epoch,
            last_fetched_epoch=wanted.last_fetched_epoch,
            topic_id=wanted.topic_id,
        )
        answer = PartitionData(
            partition_index=name.partition,
            high_watermark=found.high_watermark,
            last_stable_offset=found.last_stable_offset,
            log_start_offset=found.log_start_offset,
            aborted_transactions=None,
            records=found.records,
        )
        if found.aborted_transactions is not None:
            answer.aborted_transactions = [
                AbortedTransaction(producer_id=aborted.producer_id, first_offset=aborted.first_offset)
                for aborted in found.aborted_transactions
            ]
        if found.diverging_epoch is not None:
            self._is_absent_from(wanted)
            answer.diverging_epoch = EpochEndOffset(epoch=found.diverging_epoch[0], end_offset=found.diverging_epoch[1])
            return _Answer(wanted, answer, is_urgent=True)
        if not self._follower:
            can_rest = not found.size_bytes and self._bound(found) <= wanted.fetch_offset
            return _Answer(wanted, answer, found.size_bytes, can_rest)
        if not self._told_followers:
            replicas.follower_fetched(
                name,
                self._replica_id,
                wanted.fetch_offset,
                wanted.follower_log_start_offset,
                node.clock.wall_ms(),
                self._replica_epoch,
                self._presence,
            )
            # What this very fetch committed, the follower learns at once.
            answer.high_watermark = replicas.partition(name).log.high_watermark
        # One out of sync is looked at again and again, for it may join at any time; so is what is not committed, for
        # the passing of time alone may commit it.
        can_rest = is_in_sync and answer.high_watermark == found.log_end_offset == wanted.fetch_offset
        return _Answer(wanted, answer, found.size_bytes, can_rest, is_throttled=is_throttled)

    def _is_absent_from(self, wanted: PartitionFetch) -> None:
        """A follower no longer fetches a partition, or cannot: that it goes on with others says nothing about this one."""
        if self._presence is not None and wanted.name is not None:
            self._node.replicas.follower_left(wanted.name, self._replica_id, self._presence)

    def _nearer_replica(
        self, selector: ReplicaSelector, name: TopicPartition, wanted: PartitionFetch
    ) -> "_Answer | None":
        """The answer that sends a consumer to another replica; None when it is served here."""
        node = self._node
        partition = node.replicas.partition(name)
        role = partition.role
        if not isinstance(role, Leader):
            return None
        now_ms = node.clock.wall_ms()
        listener = self._request.client.listener
        followers = []
        for broker_id, progress in role.followers.items():
            broker = node.metadata.alive_broker(broker_id)
            if (
                broker is not None
                and broker.endpoint(listener) is not None
                and broker_id in role.isr
                and progress.log_start_offset <= wanted.fetch_offset <= progress.log_end_offset
            ):
                since_ms = now_ms - progress.caught_up_ms
                followers.append(ReplicaView(broker_id, broker.rack, progress.log_end_offset, since_ms))
        leader = ReplicaView(node.broker_id, node.rack, partition.log.log_end_offset, 0)
        chosen = selector(self._request.message.rack_id, leader, followers)
        if chosen == node.broker_id:
            return None
        log = partition.readable_log(wanted.leader_epoch, only_leader=False)
        answer = PartitionData(
            partition_index=name.partition,
            high_watermark=log.high_watermark,
            last_stable_offset=log.last_stable_offset,
            log_start_offset=log.log_start_offset,
            aborted_transactions=None,
            preferred_read_replica=chosen,
            records=_NO_RECORDS,
        )
        return _Answer(wanted, answer, is_urgent=True)

    # Waiting

    def park(self) -> None:
        """Wait for bytes, for trouble, or for max_wait_ms."""
        session = self._context.watch()
        keys: list[Hashable]
        if session is not None:
            keys = [session]
        else:
            self._offsets = {wanted.name: wanted for wanted in self._context if wanted.name is not None}
            keys = list(self._offsets)
        self._request.waiter = self._node.parked.park(
            keys, self._attempt, self._expire, self._request.message.max_wait_ms
        )

    def _attempt(self, key: Hashable) -> bool:
        # Most changes concern one partition of many: look at those before reading them all again.
        changed = self._context.unwatched() if not self._offsets else [self._offsets[key]]  # type: ignore[index]  # see park
        if all(map(self._has_nothing, changed)) or not self.read():
            self._context.watch()
            return False
        self.reply()
        return True

    def _has_nothing(self, wanted: PartitionFetch) -> bool:
        """Whether a partition can be read as before, and there is nothing to read."""
        name = wanted.name
        partition = None if name is None else self._node.replicas.get(name)
        return (
            partition is not None
            and not partition.offline
            and (partition.is_leader or not self._only_leader)
            and partition.log.log_start_offset <= wanted.fetch_offset
            and self._bound(partition.log) <= wanted.fetch_offset
            and wanted.leader_epoch in (NO_EPOCH, partition.leader_epoch)
        )

    def _bound(self, log: Any) -> int:
        """How far we may look into a log, or into what was read of it."""
        if self._isolation == READ_UNCOMMITTED:
            bound = log.high_watermark
        else:
            bound = log.last_stable_offset if self._isolation == READ_COMMITTED else log.log_end_offset
        return int(bound)

    def _expire(self) -> None:
        try:
            self.read()
        except Exception:
            logger.exception("[%s] failed", self._request)
            self._request.fail(ErrorCode.UNKNOWN_SERVER_ERROR)
        else:
            self.reply()

    # Answering

    def reply(self) -> None:
        """Answer with what was read last."""
        context = self._context
        topics: dict[Any, FetchableTopicResponse] = {}
        served = []
        throttled_bytes = 0
        for found in self._answers:
            wanted, answer = found.wanted, found.data
            if found.size_bytes:
                served.append(wanted.key)
                if found.is_throttled:
                    throttled_bytes += found.size_bytes
            if context.session_id:
                news = wanted.has_news(
                    size_bytes=found.size_bytes,
                    high_watermark=answer.high_watermark,
                    log_start_offset=answer.log_start_offset,
                    error=answer.error_code != ErrorCode.NONE,
                    must_tell=found.is_urgent,
                )
                if found.can_rest:
                    context.rest(wanted)
                if context.incremental and not news:
                    continue
            topic_key, _ = wanted.key
            topic = topics.get(topic_key)
            if topic is None:
                name = "" if wanted.name is None else wanted.name.topic
                topic = topics[topic_key] = FetchableTopicResponse(topic=name, topic_id=wanted.topic_id, partitions=[])
            topic.partitions.append(answer)
        context.served(served)
        if throttled_bytes:
            self._node.replication_quotas.leader.record(throttled_bytes, self._node.clock.monotonic_ms())
        response = FetchResponse(session_id=context.session_id, responses=list(topics.values()))
        if self._failed and self._request.version >= _LEADER_HINTS:
            self._hint(response)
        self._request.reply(response)

    def _hint(self, response: FetchResponse) -> None:
        hints = LeaderHints(self._node, self._request.client.listener)
        for found in self._answers:
            name = found.wanted.name
            if found.data.error_code in _MOVED and name is not None:
                leader = hints.leader(name)
                if leader is not None:
                    found.data.current_leader = LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1])
        response.node_endpoints = [
            NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack)
            for node_id, host, port, rack in hints.endpoints()
        ]


@dataclass(slots=True)
class _Answer:
    """What was read of one partition."""

    wanted: PartitionFetch
    data: PartitionData
    size_bytes: int = 0
    can_rest: bool = False
    """Whether it need not be looked at again before it changes."""
    is_urgent: bool = False
    """Whether the reader must hear of it at once, though no records are there."""
    is_throttled: bool = False
    """Whether its bytes count for the replication throttle."""


def _refusal(wanted: PartitionFetch, code: ErrorCode) -> PartitionData:
    return PartitionData(
        partition_index=wanted.key[1],
        error_code=code,
        high_watermark=-1,
        last_stable_offset=-1,
        log_start_offset=-1,
        aborted_transactions=[] if code in _UNKNOWN else None,  # as Apache's brokers answer
        records=_NO_RECORDS,
    )


API = ApiHandler(ApiKey.FETCH, 4, 17, handle)
