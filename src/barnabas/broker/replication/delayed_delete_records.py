"""Deleting records, and the wait until every living replica has done so (Kafka's
`DelayedDeleteRecords`, KIP-107)."""

from collections.abc import Callable, Hashable, Iterable, Mapping

from barnabas.base.ids import TopicPartition
from barnabas.base.tasks import Task
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.metadata.internal_topics import INTERNAL_TOPICS
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.requests.purgatory import DelayedOperation, Purgatory
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = ["LowWatermark", "delete_records"]

LowWatermark = int | ErrorCode
"""The least log start offset of the living replicas, or why it is not known."""


def delete_records(
    replicas: ReplicaManager,
    metadata: MetadataCache,
    purgatory: Purgatory,
    wanted: Iterable[tuple[TopicPartition, int]],
    respond: Callable[[Mapping[TopicPartition, LowWatermark]], None],
    timeout_ms: int,
) -> Task[DelayedOperation | None]:
    """Move log start offsets, and call ``respond`` with the low watermarks when all
    living replicas begin there.

    An offset of -1 stands for the high watermark. Returns the wait, None when it is over.
    """
    waiting = _Deletion(replicas, metadata, respond)
    for topic_partition, offset in wanted:
        yield None
        waiting.delete(topic_partition, offset)
    if waiting.try_complete(None):
        return None
    return purgatory.watch(
        tuple(waiting.pending), waiting.try_complete, waiting.on_expiration, timeout_ms, "DeleteRecords"
    )


class _Deletion:
    """The partitions of a request, as far as they are known to begin where they should."""

    __slots__ = ("_alive", "_metadata", "_outcomes", "_replicas", "_respond", "pending")

    def __init__(
        self,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        respond: Callable[[Mapping[TopicPartition, LowWatermark]], None],
    ) -> None:
        self._replicas = replicas
        self._metadata = metadata
        self._respond = respond
        self._outcomes: dict[TopicPartition, LowWatermark] = {}
        self._alive: set[int] = set()
        """The live brokers when all partitions were looked at last."""
        self.pending: dict[TopicPartition, int] = {}
        """Where the replicas should begin."""

    def delete(self, topic_partition: TopicPartition, offset: int) -> None:
        try:
            if topic_partition.topic in INTERNAL_TOPICS:
                raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
            self.pending[topic_partition] = self._replicas.delete_records(topic_partition, offset)
        except KafkaError as error:
            self._outcomes[topic_partition] = error.code
        else:
            self._look_at(topic_partition, self._alive_brokers())  # without followers that is all

    def try_complete(self, key: Hashable) -> bool:
        """Look at the partition that changed, and at all of them when other brokers
        live than before."""
        alive = self._alive_brokers()
        if key is None or alive != self._alive:
            self._alive = alive
            for topic_partition in tuple(self.pending):
                self._look_at(topic_partition, alive)
        elif isinstance(key, TopicPartition) and key in self.pending:
            self._look_at(key, alive)
        if not self.pending:
            self._respond(self._outcomes)
        return not self.pending

    def on_expiration(self) -> None:
        self._outcomes.update(dict.fromkeys(self.pending, ErrorCode.REQUEST_TIMED_OUT))
        self._respond(self._outcomes)

    def _alive_brokers(self) -> set[int]:
        return {broker.broker_id for broker in self._metadata.alive_brokers()}

    def _look_at(self, topic_partition: TopicPartition, alive: set[int]) -> None:
        try:
            low_watermark = self._replicas.partition(topic_partition).low_watermark(alive)
        except KafkaError as error:
            self._outcomes[topic_partition] = error.code
            del self.pending[topic_partition]
        else:
            if low_watermark >= self.pending[topic_partition]:
                self._outcomes[topic_partition] = low_watermark
                del self.pending[topic_partition]
