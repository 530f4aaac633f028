"""When an append may be acknowledged, and the wait until then (Kafka's `DelayedProduce`).

acks -1 waits until all in-sync replicas have the records, acks 1 for this broker's own disk where the topic's settings
ask for a sync, acks 0 for nothing.
"""

from collections.abc import Callable, Hashable, Mapping

from barnabas.base.ids import TopicPartition
from barnabas.broker.replication.partition import Leader, Partition
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.requests.purgatory import DelayedOperation, Purgatory
from barnabas.wire.kafka.errors import ErrorCode

__all__ = ["ALL_IN_SYNC", "acknowledgement", "commit_error", "wait_for_acknowledgements", "when_committed"]

ALL_IN_SYNC = -1
"""acks of a producer that waits for all in-sync replicas."""


def acknowledgement(
    replicas: ReplicaManager, topic_partition: TopicPartition, last_offset: int, acks: int
) -> ErrorCode | None:
    """NONE when an append may be acknowledged now, None when that must wait, otherwise why it never will be."""
    if acks == 0:
        return ErrorCode.NONE
    partition = replicas.get(topic_partition)
    if acks == ALL_IN_SYNC:
        return commit_error(partition, last_offset)
    return None if partition is not None and partition.log.awaits_sync(last_offset) else ErrorCode.NONE


def commit_error(partition: Partition | None, last_offset: int) -> ErrorCode | None:
    """None while all in-sync replicas do not have ``last_offset`` yet; NONE when they do; else the error that prevents it.

    In Kafka: `Partition.checkEnoughReplicasReachOffset`.
    """
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    role = partition.role
    if partition.offline:
        return ErrorCode.KAFKA_STORAGE_ERROR
    if type(role) is not Leader:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    log = partition.log
    if log.high_watermark <= last_offset or log.awaits_sync(last_offset):
        return None
    if partition.is_under_min_isr(role):
        return ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    return ErrorCode.NONE


def _sync_error(partition: Partition | None, last_offset: int) -> ErrorCode | None:
    """As `commit_error`, for a request that waits only for this broker's disk (acks 1)."""
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if partition.offline:
        return ErrorCode.KAFKA_STORAGE_ERROR
    if type(partition.role) is not Leader:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER
    return None if partition.log.awaits_sync(last_offset) else ErrorCode.NONE


def wait_for_acknowledgements(
    replicas: ReplicaManager,
    purgatory: Purgatory,
    last_offsets: dict[TopicPartition, int],
    acks: int,
    respond: Callable[[Mapping[TopicPartition, ErrorCode]], None],
    timeout_ms: int,
) -> DelayedOperation:
    """Call ``respond`` with the errors by partition, when every append is acknowledged or failed, or at the timeout."""
    error_of = commit_error if acks == ALL_IN_SYNC else _sync_error
    errors: dict[TopicPartition, ErrorCode] = {}

    def try_complete(key: Hashable) -> bool:
        assert isinstance(key, TopicPartition)
        last_offset = last_offsets.get(key)
        if last_offset is not None:
            code = error_of(replicas.get(key), last_offset)
            if code is not None:
                del last_offsets[key]
                if code is not ErrorCode.NONE:
                    errors[key] = code
        if not last_offsets:
            respond(errors)
        return not last_offsets

    def on_expiration() -> None:
        errors.update(dict.fromkeys(last_offsets, ErrorCode.REQUEST_TIMED_OUT))
        respond(errors)

    return purgatory.watch(last_offsets, try_complete, on_expiration, timeout_ms, "Produce")


def when_committed(
    replicas: ReplicaManager,
    purgatory: Purgatory,
    topic_partition: TopicPartition,
    last_offset: int,
    callback: Callable[[ErrorCode], None],
    timeout_ms: int,
) -> DelayedOperation | None:
    """Call ``callback`` with NONE once all in-sync replicas have one append, or with the error that prevents it.

    If the result is known already, the callback runs before this returns None.
    """
    code = acknowledgement(replicas, topic_partition, last_offset, ALL_IN_SYNC)
    if code is not None:
        callback(code)
        return None
    return wait_for_acknowledgements(
        replicas,
        purgatory,
        {topic_partition: last_offset},
        ALL_IN_SYNC,
        lambda errors: callback(errors.get(topic_partition, ErrorCode.NONE)),
        timeout_ms,
    )
