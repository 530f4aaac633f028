"""The markers that are to be written, by the broker that leads their partitions.

A transaction's markers are queued at the leaders of its partitions. A request takes what is queued
for a broker, of all transactions. What fails because a leader moved, or cannot append now, is
queued again, at the leader that is known by then. A marker may therefore be written twice; leaders
accept it again, for a transaction that has ended changes nothing.

- A partition without a leader waits until it has one.
- A partition that does not exist any more needs no marker.
- A leader that knows a later coordinator or a later producer ends the work: another
  coordinator does it.

In Kafka: `TransactionMarkerChannelManager`, `TransactionMarkerRequestCompletionHandler`.
"""

import logging
from collections.abc import Callable, Iterable
from typing import NamedTuple

from barnabas.base.ids import NO_BROKER, TopicPartition
from barnabas.base.tasks import Task
from barnabas.broker.transactions.effects import Completion
from barnabas.broker.transactions.states import TransactionState
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

__all__ = ["LeaderOf", "Marker", "MarkerQueues", "request_of"]

logger = logging.getLogger(__name__)

_PARTITIONS_A_STEP = 256
_PARTITIONS_A_REQUEST = 5_000
"""About; the markers of one topic of a transaction are not divided further."""
_OF_A_TOPIC = 4
"""A topic takes as long as this many more partitions."""

_WRITTEN = frozenset((ErrorCode.NONE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION))
"""A partition that cannot have markers cannot have records of the transaction either."""
_SUPERSEDED = frozenset((ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED))

LeaderOf = Callable[[TopicPartition], int | None]
"""The broker that leads a partition; NO_BROKER where none does, None for a partition
that does not exist."""


class Marker(NamedTuple):
    """A transaction's marker for some partitions of a topic, all led by one broker."""

    completion: Completion
    topic: str
    numbers: frozenset[int]


class MarkerQueues:
    """What is to be sent."""

    def __init__(self, leader_of: LeaderOf, is_wanted: Callable[[Completion], bool]) -> None:
        self._leader_of = leader_of
        self._is_wanted = is_wanted
        self._queues: dict[int, list[Marker]] = {}
        self._waiting: list[Marker] = []
        """Those that are queued again later: see `requeue`."""

    @property
    def brokers(self) -> list[int]:
        """The brokers for which something is queued."""
        return list(self._queues)

    @property
    def has_waiting(self) -> bool:
        return bool(self._waiting)

    def counts(self) -> dict[int, int]:
        """How many partitions wait for their marker, by broker.

        NO_BROKER for those without a leader, or that failed."""
        found = {broker: sum(len(marker.numbers) for marker in queue) for broker, queue in self._queues.items()}
        if self._waiting:
            found[NO_BROKER] = sum(len(marker.numbers) for marker in self._waiting)
        return found

    def add(self, completion: Completion) -> Task[bool]:
        """Queue the markers of a transaction; whether it needs none."""
        for topic, numbers in tuple(completion.transaction.partitions.items()):
            yield None
            yield from self._add(completion, topic, numbers)
        return self._is_done(completion)

    def requeue(self) -> Task[list[Completion]]:
        """Queue again what had failed or was without a leader.

        The transactions that need no more markers."""
        waiting, self._waiting = self._waiting, []
        done: dict[Completion, None] = {}
        for marker in waiting:
            yield None
            yield from self._add(*marker)
            if self._is_done(marker.completion):
                done[marker.completion] = None
        return list(done)

    def _add(self, completion: Completion, topic: str, numbers: frozenset[int]) -> Task[None]:
        by_leader: dict[int | None, set[int]] = {}
        for at, number in enumerate(numbers):
            by_leader.setdefault(self._leader_of(TopicPartition(topic, number)), set()).add(number)
            if at % _PARTITIONS_A_STEP == _PARTITIONS_A_STEP - 1:
                yield None
        if not self._is_wanted(completion):
            return
        for leader, led in by_leader.items():
            marker = Marker(completion, topic, frozenset(led))
            if leader is None:
                logger.info(
                    "Partitions of %s in the transaction of %r do not exist any more, and need no marker",
                    topic,
                    completion.transaction.transactional_id,
                )
                completion.transaction.remove_partitions(topic, marker.numbers)
            elif leader == NO_BROKER:
                self._waiting.append(marker)
            else:
                self._queues.setdefault(leader, []).append(marker)

    def _is_done(self, completion: Completion) -> bool:
        """Whether the transaction needs no more markers; true once."""
        if completion.has_all_markers or completion.transaction.partitions or not self._is_wanted(completion):
            return False
        completion.has_all_markers = True
        return True

    # Requests

    def take(self, broker_id: int) -> list[Marker]:
        """What a request to a broker is to have.

        Nothing if nothing is left that is still wanted."""
        queue = self._queues.pop(broker_id, [])
        taken: list[Marker] = []
        size = at = 0
        while at < len(queue) and size < _PARTITIONS_A_REQUEST:
            marker = queue[at]
            at += 1
            if self._is_wanted(marker.completion):
                taken.append(marker)
                size += _OF_A_TOPIC + len(marker.numbers)
        if at < len(queue):
            self._queues[broker_id] = queue[at:]
        return taken

    def failed(self, markers: Iterable[Marker]) -> None:
        """A request was not answered: its markers may have been written or not."""
        self._waiting += [marker for marker in markers if self._is_wanted(marker.completion)]

    def answered(self, markers: list[Marker], response: WriteTxnMarkersResponse) -> Task[list[Completion]]:
        """Take a response; the transactions that need no more markers.

        It takes from ``markers`` what it has settled."""
        outcomes: dict[tuple[int, str], dict[int, int]] = {}
        for result in response.markers:
            for topic in result.topics:
                yield None
                known = outcomes.setdefault((result.producer_id, topic.name), {})
                known.update({each.partition_index: each.error_code for each in topic.partitions})
        done: dict[Completion, None] = {}
        markers.reverse()
        while markers:
            yield None
            marker = markers.pop()
            completion = marker.completion
            if not self._is_wanted(completion):
                continue
            codes = outcomes.get((completion.transaction.producer_id, marker.topic), {})
            self._settle(marker, codes)
            if self._is_done(completion):
                done[completion] = None
        return list(done)

    def _settle(self, marker: Marker, codes: dict[int, int]) -> None:
        completion = marker.completion
        written, again = set(), set()
        for number in marker.numbers:
            code = codes.get(number, ErrorCode.UNKNOWN_SERVER_ERROR)
            if code in _WRITTEN:
                written.add(number)
            elif code in _SUPERSEDED:
                logger.info(
                    "The transaction of %r is completed by another coordinator, or has been: %s-%d answered %s",
                    *(completion.transaction.transactional_id, marker.topic, number, ErrorCode.of(code).name),
                )
                completion.is_cancelled = True
                return
            else:
                again.add(number)
        if written:
            completion.transaction.remove_partitions(marker.topic, frozenset(written))
        if again:
            self._waiting.append(marker._replace(numbers=frozenset(again)))


def request_of(markers: Iterable[Marker]) -> WriteTxnMarkersRequest:
    """One request with some markers, of each transaction one."""
    topics: dict[Completion, list[WritableTxnMarkerTopic]] = {}
    for completion, topic, numbers in markers:
        topics.setdefault(completion, []).append(WritableTxnMarkerTopic(name=topic, partition_indexes=sorted(numbers)))
    return WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=completion.transaction.producer_id,
                producer_epoch=completion.transaction.producer_epoch,
                transaction_result=completion.transition.state is TransactionState.COMPLETE_COMMIT,
                topics=named,
                coordinator_epoch=completion.owned.coordinator_epoch,
                transaction_version=completion.transaction.client_version,
            )
            for completion, named in topics.items()
        ]
    )
