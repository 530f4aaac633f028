"""Appends the markers with which a transaction coordinator ends transactions, and waits
until they are replicated.

A marker is a control batch of one record in each partition of the transaction. A log refuses one of
a producer epoch or a coordinator epoch below those that it knows. From transaction.version 2 on
each transaction has an epoch of its own, and its marker a later one: there a marker with the epoch
of the open transaction is late, and belongs to an earlier one (KIP-1228).

In Kafka: the appends of `KafkaApis.handleWriteTxnMarkersRequest`.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from barnabas.base.ids import NO_LEADER_EPOCH, TopicPartition
from barnabas.broker.metadata.features import TRANSACTION_V2
from barnabas.broker.replication.delayed_produce import DelayedProduce
from barnabas.broker.replication.partition import ALL_IN_SYNC
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.requests.purgatory import DelayedOperation, Purgatory
from barnabas.log.partition_log import Origin, refresh_producers
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.records.control import EndMarker, build_end_marker

__all__ = ["TransactionMarker", "TransactionMarkers"]


class TransactionMarker(NamedTuple):
    """The end of a producer's transaction."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int
    transaction_version: int = 0


Replicated = Callable[[TransactionMarker, TopicPartition, int], None]
"""Called when a marker is replicated, with its offset."""


class TransactionMarkers:
    """The markers of one request."""

    __slots__ = ("_delayed", "_replicas", "_replicated", "codes")

    def __init__(self, replicas: ReplicaManager, replicated: Replicated) -> None:
        self._replicas = replicas
        self._replicated = replicated
        self._delayed = DelayedProduce(replicas)
        self.codes: dict[int, dict[TopicPartition, ErrorCode]] = {}
        """The outcomes that are known, by producer id."""

    @property
    def are_written(self) -> bool:
        """Whether all outcomes are known."""
        return self._delayed.is_over

    def append(self, marker: TransactionMarker, topic_partition: TopicPartition, now_ms: int) -> None:
        """Append a marker to a partition, unless this request has had it for the same producer.

        ``now_ms`` is wall time."""
        codes = self.codes.setdefault(marker.producer_id, {})
        if topic_partition in codes:
            return
        codes[topic_partition] = ErrorCode.REQUEST_TIMED_OUT  # until it is settled
        try:
            offset = self._append(marker, topic_partition, now_ms)
        except KafkaError as error:
            codes[topic_partition] = error.code
        else:
            settle = partial(self._settle, marker, topic_partition, offset)
            self._delayed.add(topic_partition, offset, ALL_IN_SYNC, settle)

    def wait(self, purgatory: Purgatory, timeout_ms: int, done: Callable[[], None]) -> DelayedOperation:
        """Call ``done`` when all outcomes are known, at the timeout at the latest."""
        return self._delayed.wait(purgatory, timeout_ms, lambda: done() if self.are_written else None)

    def _append(self, marker: TransactionMarker, topic_partition: TopicPartition, now_ms: int) -> int:
        producer_id, epoch, is_commit, coordinator_epoch, transaction_version = marker
        partition = self._replicas.get(topic_partition)
        if partition is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if producer_id < 0 or epoch < 0 or coordinator_epoch < 0:
            raise KafkaError(ErrorCode.INVALID_REQUEST)
        refresh_producers(partition.log)
        if transaction_version >= TRANSACTION_V2 and partition.log.producers.has_open_transaction(producer_id, epoch):
            raise KafkaError(ErrorCode.INVALID_PRODUCER_EPOCH)
        batch = build_end_marker(
            EndMarker(not is_commit, coordinator_epoch),
            offset=0,
            timestamp_ms=now_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
            leader_epoch=NO_LEADER_EPOCH,
        )
        info = self._replicas.append(topic_partition, batch, acks=ALL_IN_SYNC, now_ms=now_ms, origin=Origin.COORDINATOR)
        return info.first_offset

    def _settle(self, marker: TransactionMarker, topic_partition: TopicPartition, offset: int, code: ErrorCode) -> None:
        self.codes[marker.producer_id][topic_partition] = code
        if code in (ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND):
            self._replicated(marker, topic_partition, offset)
