"""Writing to a log: a leader's appends of produced batches, a follower's of replicated ones. Kafka: UnifiedLog.append.

The order of an append: check the batch, check its producer, assign offsets in place, begin a leader epoch or a segment
where one is due, write the bytes as they came, move the log end offset, then the producer state. The header of a batch is
unpacked once, here, and handed from check to check.
"""

import logging
from typing import NamedTuple

from barnabas.base.errors import BarnabasError, CorruptDataError
from barnabas.base.files import Buffer
from barnabas.base.ids import TopicPartition
from barnabas.base.tuples import new_tuple
from barnabas.log.append_checks import (
    check_replicated,
    unpack_header,
    validate_batch,
)
from barnabas.log.components import LogComponents, roll
from barnabas.log.conversion import needs_record_validation
from barnabas.log.producer_state import Origin
from barnabas.log.record_checks import AT_ONCE, RecordValidator
from barnabas.log.segment.segment import Segment
from barnabas.log.segment.transaction_index import AbortedTransaction
from barnabas.log.settings import LogConfig
from barnabas.log.truncation import truncate_fully
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.records.batch_header import (
    COMPRESSION_MASK,
    CONTROL,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    LOG_OVERHEAD_BYTES,
    TRANSACTIONAL,
    BatchHeader,
    HeaderFields,
    assign_offsets,
    clear_log_append_time,
    read_header,
    set_log_append_time,
)
from barnabas.wire.kafka.records.control import EndMarker, read_end_marker

__all__ = ["AppendInfo", "Appender", "UnexpectedOffsetError"]


logger = logging.getLogger(__name__)


class UnexpectedOffsetError(BarnabasError):
    """A follower was given batches that do not continue its log."""


class AppendInfo(NamedTuple):
    """The result of an append. A duplicate has the offsets that the batch got the first time."""

    first_offset: int
    last_offset: int
    max_timestamp_ms: int
    log_append_time_ms: int
    """The time of the append on topics with LogAppendTime, else -1."""
    log_start_offset: int
    size_bytes: int
    leader_epoch: int
    duplicate: bool = False


def _end_marker(batch: Buffer) -> EndMarker | None:
    """The marker of a control batch that was accepted; one whose record compaction took away ends nothing."""
    try:
        return read_end_marker(batch)
    except CorruptDataError:
        return None


class Appender:
    """Appends to one log. Every method raises `OSError` when the disk fails."""

    __slots__ = ("_bounds", "_components", "_epochs", "_producers", "_segments", "_topic_partition")

    def __init__(self, components: LogComponents, topic_partition: TopicPartition) -> None:
        self._components = components
        self._bounds = components.bounds
        self._epochs = components.epochs
        self._producers = components.producers
        self._segments = components.segments
        self._topic_partition = topic_partition

    # ---- leaders

    def append_as_leader(
        self,
        records: Buffer,
        config: LogConfig,
        leader_epoch: int,
        now_ms: int,
        origin: int,
        checks: RecordValidator = AT_ONCE,
    ) -> AppendInfo:
        """See `PartitionLog.append_as_leader`."""
        header = unpack_header(records)
        validate_batch(records, header, config, origin, now_ms)
        if needs_record_validation(header, config, origin, now_ms):
            records, header = self._convert(records, header, config, now_ms, checks)
        elif origin == Origin.CLIENT and not header[5] & COMPRESSION_MASK:
            checks.validate_plain_records(records, header)
        _, length, _, _, _, attributes, delta, _, max_timestamp, producer_id, epoch, sequence, _ = header
        if producer_id >= 0 and origin == Origin.CLIENT:
            duplicate = self._duplicate(header, config, leader_epoch)
            if duplicate is not None:
                return duplicate
        size = length + LOG_OVERHEAD_BYTES
        if size > config.segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"The batch has {size} bytes, more than segment.bytes allows ({config.segment_bytes})",
            )
        if producer_id >= 0:
            self._check_producer(records, producer_id, epoch, sequence, attributes, origin)
        batch = memoryview(records)[:size]
        if batch.readonly:
            batch = memoryview(bytearray(batch))
        bounds = self._bounds
        first_offset = bounds.log_end_offset
        last_offset = first_offset + delta
        assign_offsets(batch, 0, first_offset, leader_epoch)
        log_append_time = -1
        if config.log_append_time:
            max_timestamp = log_append_time = now_ms
            set_log_append_time(batch, attributes, now_ms)
        elif attributes & LOG_APPEND_TIME:
            clear_log_append_time(batch, attributes)
        self._write(batch, header, first_offset, leader_epoch, max_timestamp, config, now_ms)
        info: AppendInfo = new_tuple(
            AppendInfo,
            (
                first_offset,
                last_offset,
                max_timestamp,
                log_append_time,
                bounds.log_start_offset,
                size,
                leader_epoch,
                False,
            ),
        )
        return info

    def _convert(
        self, records: Buffer, header: HeaderFields, config: LogConfig, now_ms: int, checks: RecordValidator
    ) -> tuple[Buffer, HeaderFields]:
        converted = checks.validate_and_convert(records, header, config, now_ms)
        if converted is not records:
            header = unpack_header(converted)
        validate_batch(converted, header, config, Origin.COORDINATOR, now_ms)
        return converted, header

    def _duplicate(self, header: HeaderFields, config: LogConfig, leader_epoch: int) -> AppendInfo | None:
        entry = self._producers.entries.get(header[9])
        batch = entry.duplicate_of(header[10], header[11], header[6]) if entry else None
        if batch is None:
            return None
        time_ms = batch.timestamp_ms if config.log_append_time else -1
        return AppendInfo(
            batch.first_offset,
            batch.last_offset,
            batch.timestamp_ms,
            time_ms,
            self._bounds.log_start_offset,
            0,
            leader_epoch,
            duplicate=True,
        )

    def _check_producer(
        self, records: Buffer, producer_id: int, epoch: int, sequence: int, attributes: int, origin: int
    ) -> None:
        if attributes & CONTROL:
            try:
                marker = read_end_marker(records)
            except CorruptDataError as error:
                raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from error
            if marker is not None:
                self._producers.check_marker(producer_id, epoch, marker.coordinator_epoch)
            return
        self._producers.check(
            producer_id, epoch, sequence, is_transactional=bool(attributes & TRANSACTIONAL), origin=origin
        )

    # ---- followers

    def append_as_follower(
        self, records: Buffer, config: LogConfig, now_ms: int, leader_epoch: int | None = None
    ) -> AppendInfo:
        """See `PartitionLog.append_as_follower`."""
        view = memoryview(records)
        bounds = self._bounds
        first_offset, expected = -1, bounds.log_end_offset
        max_timestamp, position, latest_epoch = -1, 0, -1
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
            self._write(batch, header, header.base_offset, header.leader_epoch, header.max_timestamp, config, now_ms)
            if first_offset < 0:
                first_offset = header.base_offset
            max_timestamp = max(max_timestamp, header.max_timestamp)
            latest_epoch = header.leader_epoch
            expected = bounds.log_end_offset
            position = stop
        return AppendInfo(
            first_offset, expected - 1, max_timestamp, -1, bounds.log_start_offset, position, latest_epoch
        )

    def _check_epoch(self, header: BatchHeader, leader_epoch: int) -> None:
        """Epochs never go back in a log, and none is later than the leader's. Raises `KafkaError` CORRUPT_MESSAGE."""
        if header.leader_epoch >= 0:  # batches from before Kafka 0.11 have none
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE,
                f"the batch with offsets {header.base_offset} to {header.last_offset} has leader epoch "
                f"{header.leader_epoch}, behind records of epoch {self._epochs.latest_epoch} and from a leader of epoch "
                f"{leader_epoch}",
            )

    def _accept_gap(self, start: int, end: int) -> None:
        """The leader has no records there: compaction took them, or its operator stepped over a loss.

        Before the batch is written, and for good: what the leader lacks is no loss of this replica's.
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

    # ---- both

    def _write(
        self,
        batch: memoryview,
        header: HeaderFields,
        first_offset: int,
        leader_epoch: int,
        max_timestamp_ms: int,
        config: LogConfig,
        now_ms: int,
    ) -> None:
        """Write a batch that is complete. ``header`` is as it came, and may have other offsets and timestamps."""
        size = len(batch)
        attributes = header[5]
        last_offset = first_offset + header[6]
        if leader_epoch != self._epochs.latest_epoch:
            self._epochs.begin_unwritten(leader_epoch, first_offset)
        segment = self._segments.active
        if segment.must_roll(
            size,
            last_offset,
            max_timestamp_ms,
            now_ms,
            config.segment_bytes,
            config.segment_ms,
            config.max_index_bytes,
        ):
            segment = roll(self._components, config, first_offset, now_ms)
        if attributes & CONTROL:
            segment.transactions.load()  # what can fail comes before the batch is written
        segment.append(batch, size, first_offset, last_offset, max_timestamp_ms, config.index_interval_bytes)
        self._bounds.extend(last_offset + 1)
        if header[9] >= 0:
            self._update_producer(batch, header, first_offset, last_offset, segment, max_timestamp_ms)

    def _update_producer(
        self,
        batch: Buffer,
        header: HeaderFields,
        first_offset: int,
        last_offset: int,
        segment: Segment,
        max_timestamp_ms: int,
    ) -> None:
        """Take an appended batch into the producer state and, when it ends an aborted transaction, into its index."""
        attributes = header[5]
        producer_id, epoch, sequence = header[9:12]
        if attributes & CONTROL:
            marker = _end_marker(batch)
            if marker is not None:
                completed = self._producers.add_marker(
                    producer_id, epoch, marker.coordinator_epoch, first_offset, max_timestamp_ms, marker.is_abort
                )
                if completed is not None:
                    if completed.is_aborted:
                        stable = self._producers.last_stable_offset_after(completed)
                        segment.transactions.append(
                            AbortedTransaction(producer_id, completed.first_offset, completed.last_offset, stable)
                        )
                    self._producers.complete(completed)
        else:
            self._producers.add_batch(
                producer_id,
                epoch,
                sequence,
                first_offset,
                last_offset,
                max_timestamp_ms,
                bool(attributes & TRANSACTIONAL),
            )
        if attributes & TRANSACTIONAL:
            self._components.update_stable()
