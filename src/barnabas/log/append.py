"""Writing to a log: a leader's appends of produced batches, a follower's of replicated ones."""

from typing import NamedTuple

from barnabas.base.errors import BarnabasError, CorruptDataError
from barnabas.base.files import Buffer
from barnabas.log.append_checks import check_batch, check_replicated, clear_log_append_time
from barnabas.log.conversion import convert_batch, must_look_inside
from barnabas.log.log_state import LogState
from barnabas.log.producer_state import CompletedTransaction, Origin
from barnabas.log.retention import truncate_fully
from barnabas.log.segment.segment import Segment
from barnabas.log.segment.transaction_index import AbortedTransaction
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.records.batch_header import (
    CONTROL,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    LOG_OVERHEAD_BYTES,
    TRANSACTIONAL,
    BatchHeader,
    assign_offsets,
    read_header,
    set_log_append_time,
)
from barnabas.wire.kafka.records.control import EndMarker, read_end_marker

__all__ = ["AppendInfo", "Appends", "UnexpectedOffsetError"]


class UnexpectedOffsetError(BarnabasError):
    """A follower was given batches that do not continue its log."""


class AppendInfo(NamedTuple):
    """What an append did. A duplicate has the offsets that the batch got the first time."""

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


class Appends(LogState):
    """The writing half of a `barnabas.log.partition_log.PartitionLog`."""

    __slots__ = ()

    def append_as_leader(
        self, records: Buffer, *, leader_epoch: int, now_ms: int, origin: int = Origin.CLIENT
    ) -> AppendInfo:
        """Append the one batch in ``records`` (writable, changed in place, not kept) at the end of the log.

        What the topic's settings want synced before the answer, `awaits_sync` says: the caller has it done.
        Raises `KafkaError` with Kafka's code for what is wrong with the batch (see `append_checks.check_batch` and
        `ProducerState.check`), RECORD_LIST_TOO_LARGE for more than a segment may hold, KAFKA_STORAGE_ERROR.
        """
        if self.offline is not None:
            self.check_online()
        config = self.config
        fields = check_batch(records, config, origin, now_ms)
        if must_look_inside(fields, config, origin, now_ms):
            records = convert_batch(records, fields, config, now_ms)
            fields = check_batch(records, config, Origin.COORDINATOR, now_ms)
        _, length, _, _, _, attributes, delta, _, max_timestamp, producer_id, epoch, sequence, _ = fields
        if producer_id >= 0 and origin == Origin.CLIENT:
            duplicate = self._duplicate(producer_id, epoch, sequence, delta, leader_epoch)
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
        first_offset = self.log_end_offset
        last_offset = first_offset + delta
        assign_offsets(batch, 0, first_offset, leader_epoch)
        log_append_time = -1
        if config.log_append_time:
            max_timestamp = log_append_time = now_ms
            set_log_append_time(batch, 0, read_header(batch), now_ms)
        elif attributes & LOG_APPEND_TIME:
            clear_log_append_time(batch, attributes)
        try:
            if leader_epoch != self.epochs.latest_epoch:
                self.begin_epoch(leader_epoch, first_offset)
            segment = self.segment_for(size, first_offset, last_offset, max_timestamp, now_ms)
            segment.append(
                [batch], size, first_offset, last_offset, max_timestamp, last_offset, config.index_interval_bytes
            )
            self.log_end_offset = last_offset + 1
            self.producers.end_offset = last_offset + 1
            if producer_id >= 0:
                self._update_producer(batch, first_offset, last_offset, attributes, fields, segment, max_timestamp)
        except OSError as error:
            raise self.fail(error, "appending to") from error
        return AppendInfo(
            first_offset, last_offset, max_timestamp, log_append_time, self.log_start_offset, size, leader_epoch
        )

    def _duplicate(
        self, producer_id: int, epoch: int, sequence: int, delta: int, leader_epoch: int
    ) -> AppendInfo | None:
        entry = self.producers.entries.get(producer_id)
        batch = entry.duplicate_of(epoch, sequence, delta) if entry else None
        if batch is None:
            return None
        time_ms = batch.timestamp_ms if self.config.log_append_time else -1
        return AppendInfo(
            batch.first_offset,
            batch.last_offset,
            batch.timestamp_ms,
            time_ms,
            self.log_start_offset,
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
                self.producers.check_marker(producer_id, epoch, marker.coordinator_epoch)
            return
        self.producers.check(
            producer_id, epoch, sequence, is_transactional=bool(attributes & TRANSACTIONAL), origin=origin
        )

    def _update_producer(
        self,
        batch: Buffer,
        first_offset: int,
        last_offset: int,
        attributes: int,
        fields: tuple[int, ...],
        segment: Segment,
        max_timestamp_ms: int,
    ) -> None:
        """Take an appended batch into the producer state and, when it ends an aborted transaction, into its index."""
        producer_id, epoch, sequence = fields[9:12]
        completed = None
        if attributes & CONTROL:
            marker = _end_marker(batch)
            if marker is not None:
                completed = self.producers.add_marker(
                    producer_id, epoch, marker.coordinator_epoch, first_offset, max_timestamp_ms, marker.is_abort
                )
        else:
            self.producers.add_batch(
                producer_id,
                epoch,
                sequence,
                first_offset,
                last_offset,
                max_timestamp_ms,
                bool(attributes & TRANSACTIONAL),
            )
        if completed is not None:
            self._complete(completed, segment)
        if attributes & TRANSACTIONAL:
            self.update_stable()

    def _complete(self, completed: CompletedTransaction, segment: Segment) -> None:
        if completed.is_aborted:
            stable = self.producers.last_stable_offset_after(completed)
            segment.transactions.append(
                AbortedTransaction(completed.producer_id, completed.first_offset, completed.last_offset, stable)
            )
        self.producers.complete(completed)

    def append_as_follower(self, records: Buffer, *, now_ms: int) -> AppendInfo:
        """Append a leader's batches as they are: offsets, epochs and timestamps are kept, a cut last batch is left out.

        An empty log may have to begin inside a batch, where the leader's start was moved to: it takes the batch whole,
        so its start goes back to the batch's first offset.

        Raises `UnexpectedOffsetError` when they do not continue the log, `KafkaError` CORRUPT_MESSAGE.
        """
        self.check_online()
        view = memoryview(records)
        first_offset, expected = -1, self.log_end_offset
        max_timestamp, position, latest_epoch = -1, 0, -1
        while len(view) - position >= HEADER_BYTES:
            fields = read_header(view, position)
            if position + fields.size_bytes > len(view) and fields.length > 0:
                break
            check_replicated(view[position : position + fields.size_bytes], fields)
            if fields.base_offset < expected:
                self._begin_at(fields)
            self._append_replicated(view[position : position + fields.size_bytes], fields, now_ms)
            if first_offset < 0:
                first_offset = fields.base_offset
            max_timestamp = max(max_timestamp, fields.max_timestamp)
            latest_epoch = fields.leader_epoch
            expected = fields.last_offset + 1
            position += fields.size_bytes
        return AppendInfo(first_offset, expected - 1, max_timestamp, -1, self.log_start_offset, position, latest_epoch)

    def skip_to(self, offset: int, now_ms: int) -> None:
        """Let the log go on at a later offset: compaction left no records before it.

        Raises `KafkaError` KAFKA_STORAGE_ERROR.
        """
        with self.disk("rolling"):
            self.log_end_offset = offset
            self.roll_at(offset, now_ms)

    def _begin_at(self, fields: BatchHeader) -> None:
        """Let an empty log begin with a batch that its end lies in."""
        end_offset = self.log_end_offset
        if self.log_start_offset != end_offset or fields.last_offset < end_offset:
            raise UnexpectedOffsetError(
                f"{self.topic_partition}: batch with offsets {fields.base_offset} to {fields.last_offset} "
                f"does not continue a log that ends at {end_offset}"
            )
        with self.disk("truncating"):
            truncate_fully(self, fields.base_offset)

    def _append_replicated(self, batch: memoryview, fields: BatchHeader, now_ms: int) -> None:
        last_offset = fields.last_offset
        try:
            if fields.leader_epoch != self.epochs.latest_epoch:
                self.begin_epoch(fields.leader_epoch, fields.base_offset)
            segment = self.segment_for(fields.size_bytes, fields.base_offset, last_offset, fields.max_timestamp, now_ms)
            segment.append(
                [batch],
                fields.size_bytes,
                fields.base_offset,
                last_offset,
                fields.max_timestamp,
                last_offset,
                self.config.index_interval_bytes,
            )
            self.log_end_offset = last_offset + 1
            self.producers.end_offset = last_offset + 1
            if fields.producer_id >= 0:
                self._update_producer(
                    batch, fields.base_offset, last_offset, fields.attributes, fields, segment, fields.max_timestamp
                )
        except OSError as error:
            raise self.fail(error, "appending to") from error
