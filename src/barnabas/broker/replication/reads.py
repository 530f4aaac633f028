"""Reading a replica's log for a consumer, a follower or a tool (Kafka's
Partition.fetchRecords and FetchIsolation)."""

from collections.abc import Sequence
from dataclasses import dataclass

from barnabas.base.files import FileSlice
from barnabas.base.ids import NO_LEADER_EPOCH
from barnabas.log.partition_log import PartitionLog
from barnabas.log.segment.transaction_index import AbortedTransaction
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = ["LOG_END", "READ_COMMITTED", "READ_UNCOMMITTED", "Isolation", "ReadResult", "read_log", "upper_bound"]

READ_UNCOMMITTED = 0
READ_COMMITTED = 1
LOG_END = 2
Isolation = int
"""How far a reader may look: READ_UNCOMMITTED to the high watermark, READ_COMMITTED to the last
stable offset, LOG_END (followers) to the end of the log."""


@dataclass(slots=True)
class ReadResult:
    """The result of a read of one partition (Kafka's LogReadInfo)."""

    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    log_end_offset: int
    records: FileSlice | bytes
    size_bytes: int
    aborted_transactions: Sequence[AbortedTransaction] | None = None
    """For READ_COMMITTED."""
    diverging_epoch: tuple[int, int] | None = None
    """(epoch, its end offset) where the reader's log left ours (KIP-595's way of KIP-101)."""


def upper_bound(of: PartitionLog | ReadResult, isolation: Isolation) -> int:
    """How far a reader may look into a log, or into what was read of it."""
    if isolation == READ_UNCOMMITTED:
        return of.high_watermark
    return of.last_stable_offset if isolation == READ_COMMITTED else of.log_end_offset


def read_log(
    log: PartitionLog,
    offset: int,
    max_bytes: int,
    isolation: Isolation,
    last_fetched_epoch: int = NO_LEADER_EPOCH,
    *,
    min_one_batch: bool,
) -> ReadResult:
    """Batches from ``offset`` on, at most ``max_bytes`` of them (but one whole batch
    with ``min_one_batch``).

    A reader that names the epoch of its last record is sent to where its log left ours, if it did.
    Raises `KafkaError`: OFFSET_OUT_OF_RANGE, KAFKA_STORAGE_ERROR.
    """
    result = ReadResult(log.high_watermark, log.last_stable_offset, log.log_start_offset, log.log_end_offset, b"", 0)
    if last_fetched_epoch != NO_LEADER_EPOCH:
        diverging = _divergence(log, offset, last_fetched_epoch)
        if diverging is not None:
            result.diverging_epoch = diverging
            return result
    piece = log.read(offset, max_bytes, upper_bound=upper_bound(result, isolation), min_one_batch=min_one_batch)
    result.records = piece.records
    result.size_bytes = piece.size_bytes
    if isolation == READ_COMMITTED:
        result.aborted_transactions = log.aborted_transactions(offset, piece.upper_offset)
    return result


def _divergence(log: PartitionLog, offset: int, last_fetched_epoch: int) -> tuple[int, int] | None:
    """Where a follower's or a consumer's log left ours, if it did: (epoch, its end offset)."""
    epoch, end_offset = log.end_offset_for_epoch(last_fetched_epoch)
    if epoch == -1:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"Could not determine the end offset of the last fetched epoch {last_fetched_epoch} from the request",
        )
    if offset < log.log_start_offset:
        raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
    if epoch < last_fetched_epoch or end_offset < offset:
        return epoch, end_offset
    return None
