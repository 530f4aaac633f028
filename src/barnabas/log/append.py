"""A follower's appends: replicated batches, as the leader has them.

Kafka: UnifiedLog.appendAsFollower.

The order of an append: check the header and the CRC, check that the batch continues the log,
then write it (`local_log`).
"""

import logging

from barnabas.base.errors import BarnabasError
from barnabas.base.files import Buffer
from barnabas.base.ids import TopicPartition
from barnabas.log.append_checks import check_replicated
from barnabas.log.components import LogComponents
from barnabas.log.local_log import AppendInfo, must_roll, write_batches
from barnabas.log.settings import LogConfig
from barnabas.log.truncation import truncate_fully
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.records.batch_header import HEADER_BYTES, BatchHeader, read_header

__all__ = ["FollowerAppender", "UnexpectedOffsetError"]


logger = logging.getLogger(__name__)


class UnexpectedOffsetError(BarnabasError):
    """A follower was given batches that do not continue its log."""


class FollowerAppender:
    """Appends to one log. Every method raises `OSError` when the disk fails."""

    __slots__ = ("_bounds", "_components", "_epochs", "_topic_partition")

    def __init__(self, components: LogComponents, topic_partition: TopicPartition) -> None:
        self._components = components
        self._bounds = components.bounds
        self._epochs = components.epochs
        self._topic_partition = topic_partition

    def append_as_follower(
        self, records: Buffer, config: LogConfig, now_ms: int, leader_epoch: int | None = None
    ) -> AppendInfo:
        """See `PartitionLog.append_as_follower`."""
        view = memoryview(records)
        bounds = self._bounds
        first_offset, expected = -1, bounds.log_end_offset
        position, latest_epoch = 0, -1
        while len(view) - position >= HEADER_BYTES:
            header = read_header(view, position)
            stop = position + header.size_bytes
            if stop > len(view) and header.length > 0:
                break
            batch = view[position:stop]
            check_replicated(batch, header)
            if leader_epoch is not None and not self._epochs.latest_epoch <= header.leader_epoch <= leader_epoch:
                self._check_epoch(header, leader_epoch)
            if header.base_offset < expected:
                self._begin_at(header)
            elif header.base_offset > expected and leader_epoch is not None:
                self._accept_gap(expected, header.base_offset)
            where = len(batch), header.base_offset, header.last_offset, header.max_timestamp
            rolls = must_roll(self._components, config, where, now_ms)
            write_batches(
                self._components, config, (batch,), (where,), (header,), header.leader_epoch, now_ms, rolls=rolls
            )
            if first_offset < 0:
                first_offset = header.base_offset
            latest_epoch = header.leader_epoch
            expected = bounds.log_end_offset
            position = stop
        return AppendInfo(first_offset, expected - 1, -1, bounds.log_start_offset, latest_epoch)

    def _check_epoch(self, header: BatchHeader, leader_epoch: int) -> None:
        """Epochs never go back in a log, and none is later than the leader's.

        Raises `KafkaError` CORRUPT_MESSAGE."""
        if header.leader_epoch >= 0:  # batches from before Kafka 0.11 have none
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE,
                f"the batch with offsets {header.base_offset} to {header.last_offset} has leader epoch "
                f"{header.leader_epoch}, behind records of epoch {self._epochs.latest_epoch} and from a leader of epoch "
                f"{leader_epoch}",
            )

    def _accept_gap(self, start: int, end: int) -> None:
        """The leader has no records there: compaction took them, or its operator
        stepped over a loss.

        Before the batch is written, and for good: what the leader lacks is no loss
        of this replica's.
        """
        holes = self._components.holes
        if not holes.are_legal:
            logger.warning(
                "%s: the leader has no records at offsets %d to %d, and this replica has none then. More gaps are not reported",
                self._topic_partition,
                start,
                end - 1,
            )
            holes.show_compaction()

    def _begin_at(self, header: BatchHeader) -> None:
        """Let an empty log begin with a batch that its end lies in."""
        end_offset = self._bounds.log_end_offset
        if self._bounds.log_start_offset != end_offset or header.last_offset < end_offset:
            raise UnexpectedOffsetError(
                f"{self._topic_partition}: batch with offsets {header.base_offset} to {header.last_offset} "
                f"does not continue a log that ends at {end_offset}"
            )
        truncate_fully(self._components, header.base_offset)
