"""Deleting records, and the wait until every living replica has done so (Kafka's `DelayedDeleteRecords`, KIP-107)."""

from collections.abc import Callable, Hashable, Mapping, Sequence

from barnabas.base.ids import TopicPartition
from barnabas.broker.metadata.cache import INTERNAL_TOPICS, MetadataCache
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
    wanted: Sequence[tuple[TopicPartition, int]],
    respond: Callable[[Mapping[TopicPartition, LowWatermark]], None],
    timeout_ms: int,
) -> DelayedOperation | None:
    """Move log start offsets, and call ``respond`` with the low watermarks when all living replicas begin there.

    An offset of -1 stands for the high watermark. Returns the wait, None when it is over.
    """
    outcomes: dict[TopicPartition, LowWatermark] = {}
    pending: dict[TopicPartition, int] = {}
    for topic_partition, offset in wanted:
        try:
            if topic_partition.topic in INTERNAL_TOPICS:
                raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
            pending[topic_partition] = replicas.delete_records(topic_partition, offset)
        except KafkaError as error:
            outcomes[topic_partition] = error.code

    def try_complete(_: Hashable) -> bool:
        alive = {broker.broker_id for broker in metadata.alive_brokers()}
        for topic_partition, offset in tuple(pending.items()):
            try:
                low_watermark = replicas.partition(topic_partition).low_watermark(alive)
            except KafkaError as error:
                outcomes[topic_partition] = error.code
                del pending[topic_partition]
            else:
                if low_watermark >= offset:
                    outcomes[topic_partition] = low_watermark
                    del pending[topic_partition]
        if not pending:
            respond(outcomes)
        return not pending

    def on_expiration() -> None:
        outcomes.update(dict.fromkeys(pending, ErrorCode.REQUEST_TIMED_OUT))
        respond(outcomes)

    if try_complete(None):
        return None
    return purgatory.watch(tuple(pending), try_complete, on_expiration, timeout_ms)
