"""Which offset a reader finds by time (Kafka's `Partition.fetchOffsetForTimestamp`)."""

from barnabas.base.tasks import Task
from barnabas.broker.replication.partition import Leader, Partition
from barnabas.broker.replication.reads import LOG_END, Isolation, upper_bound
from barnabas.log.timestamps import EARLIEST, EARLIEST_LOCAL, LATEST, LATEST_TIERED, TimestampOffset
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = ["offset_for_timestamp"]


def offset_for_timestamp(
    partition: Partition,
    timestamp_ms: int,
    *,
    current_leader_epoch: int,
    isolation: Isolation,
    only_leader: bool,
) -> Task[TimestampOffset | None]:
    """The record that a reader finds; None when there is none that it may see.

    Right after an election, while the high watermark has not reached the new epoch, only replicas
    (LOG_END) can know the end. Raises `KafkaError`: OFFSET_NOT_AVAILABLE, NOT_LEADER_OR_FOLLOWER,
    FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH.
    """
    log = partition.readable_log(current_leader_epoch, only_leader=only_leader)
    found = None
    if timestamp_ms not in (LATEST, LATEST_TIERED):
        found = yield from log.offset_for_timestamp(timestamp_ms)
        # Raises if this broker no longer leads.
        log = partition.readable_log(current_leader_epoch, only_leader=only_leader)
    role = partition.role
    is_behind = isolation != LOG_END and isinstance(role, Leader) and role.epoch_start_offset > log.high_watermark
    end = upper_bound(log, isolation)
    if timestamp_ms == LATEST:
        if is_behind:
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
        return TimestampOffset(-1, end, partition.leader_epoch)
    if timestamp_ms == LATEST_TIERED:
        return None
    if found is not None and (timestamp_ms in (EARLIEST, EARLIEST_LOCAL) or found.offset < end):
        return found
    if is_behind:
        raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
    return None
