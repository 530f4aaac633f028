"""A leader's appends: batches of producers and coordinators that came together, taken one by one
and appended in one write.

There is no other append by a leader: `PartitionLog.append_as_leader` is a run of one batch. What is
wrong with a batch is decided in one place for each rule:

    append_checks    header, sizes, CRC
    conversion       records: sound, with keys, timestamps in range, in the topic's codec
    producer_state   epoch, sequence number, transaction; which batch is a duplicate
    segment          when a new segment begins
    local_log        what is written, and what follows from it

A run is one batch of any kind (`AppendRun.add_alone`): it may be converted, begin a segment, carry
the log's timestamps, belong to a transaction or end one, or be a duplicate, which is not written.
Or a run is ordinary batches of producers, which need nothing but offsets (`AppendRun.add`): plain
or in the topic's own codec, with the producer's own timestamps, in sequence, with room in the
segment. `add` is one condition, which repeats six facts of a header (magic, size, count, base
offset, codec, CRC), max.message.bytes and the limits of timestamps. It decides no error:
`add_alone` takes the other batches.

Invariants:

- Nothing is changed before `write`. A batch that is not taken changes nothing at all.
- The bytes of the log, the indexes and the producer state are those that the batches would have
  left one by one. A test compares them.
- If the write fails, the log has none of the batches, and is offline unless only file descriptors
  were short. If an index cannot be written afterwards, the file is cut to where it ended before. If
  the disk does not let it be cut, the next start may recover batches whose producers got
  KAFKA_STORAGE_ERROR: as after a timeout, they cannot know.

In Kafka: `UnifiedLog.appendAsLeader`; its brokers write each batch by itself.
"""

from collections.abc import Callable

from crc32c import crc32c

from barnabas.base.errors import CorruptDataError
from barnabas.base.files import Buffer
from barnabas.base.tuples import new_tuple
from barnabas.log.append_checks import latest_timestamp_ms, unpack_header, validate_batch
from barnabas.log.availability import Availability
from barnabas.log.components import LogComponents
from barnabas.log.conversion import needs_record_validation
from barnabas.log.local_log import AppendInfo, must_roll, write_batches
from barnabas.log.producer_state import Origin, ProducerBatch, VerificationGuard, advance_sequence
from barnabas.log.record_checks import AT_ONCE, SHORT_CHECKS, DeferredCheck, LongCheckError, RecordValidator
from barnabas.log.segment.segment import AppendedBatch
from barnabas.log.settings import CODECS, LogConfig
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.records.batch_header import (
    CONTROL,
    CRC_START,
    LOG_APPEND_TIME,
    LOG_OVERHEAD_BYTES,
    MAGIC,
    TRANSACTIONAL,
    HeaderFields,
    assign_offsets,
    clear_log_append_time,
    set_log_append_time,
)
from barnabas.wire.kafka.records.control import read_end_marker

__all__ = ["MOST_BATCHES", "AppendRun"]

MOST_BATCHES = 64
"""Most batches in one run."""
_MANY_RECORDS = 4_096
"""A batch of this many records or more is added alone: more of it is checked."""


class AppendRun:
    """See the module. Used up by `write`."""

    __slots__ = (
        "_availability",
        "_batches",
        "_came_bytes",
        "_codec",
        "_components",
        "_config",
        "_has_room",
        "_headers",
        "_is_alone",
        "_leader_epoch",
        "_looks",
        "_most_bytes",
        "_next_of_producer",
        "_next_offset",
        "_now_ms",
        "_room_bytes",
        "_room_ms",
        "_room_offset",
        "_views",
        "long_check",
    )

    def __init__(
        self, components: LogComponents, availability: Availability, config: LogConfig, leader_epoch: int, now_ms: int
    ) -> None:
        """Begin at the end of the log."""
        self._components = components
        self._availability = availability
        self._config = config
        self._leader_epoch = leader_epoch
        self._now_ms = now_ms
        self._next_offset = components.bounds.log_end_offset
        self._views: list[memoryview] = []
        self._batches: list[AppendedBatch] = []
        self._headers: list[HeaderFields] = []
        self._came_bytes = 0
        """The size of what was taken, before a batch was converted."""
        self._is_alone = self._has_room = False
        """Whether the run is one batch of any kind, and whether the room for
        ordinary batches is known."""
        self._next_of_producer: tuple[int, int, int] | None = None
        """The producer whose batches are here, with the epoch and the sequence of its next one."""
        self.long_check: Callable[[Buffer], DeferredCheck] | None = None
        """Set by an `add` that has taken no batch: its records take long to check. See
        `LongCheckError`.
        """

    def __len__(self) -> int:
        return len(self._views)

    # ---- a batch of any kind

    def add_alone(
        self,
        records: memoryview,
        header: HeaderFields,
        origin: int = Origin.CLIENT,
        checks: RecordValidator = AT_ONCE,
        guard: VerificationGuard | None = None,
    ) -> AppendInfo:
        """Take the one batch in ``records``, whose header this is, as the only one.

        What is returned is true once it is written. The memory is written to and must stay as
        it is until `write`; read-only memory is copied. A duplicate is not taken: the result
        says where it stands.

        Raises `KafkaError` with Kafka's code for what is wrong with the batch (see
        `append_checks.validate_batch` and `ProducerState.check`), RECORD_LIST_TOO_LARGE for more
        than a segment may hold; `LongCheckError` where ``checks`` does.
        """
        config, now_ms, first_offset = self._config, self._now_ms, self._next_offset
        came_bytes = len(records)
        validate_batch(records, header, config, origin, now_ms)
        if needs_record_validation(header, config, origin, now_ms):
            records, header = self._convert(records, header, checks)
        elif origin == Origin.CLIENT:
            checks.validate_records(records, header, config)
        size = header[1] + LOG_OVERHEAD_BYTES
        if size > config.segment_bytes:
            raise KafkaError(
                ErrorCode.RECORD_LIST_TOO_LARGE,
                f"The batch has {size} bytes, more than segment.bytes allows ({config.segment_bytes})",
            )
        if header[9] >= 0:
            duplicate = self._check_producer(header, origin, records, guard)
            if duplicate is not None:
                return self._duplicate(duplicate)
        timestamp_ms, log_append_time_ms = header[8], -1
        if config.log_append_time:
            timestamp_ms = log_append_time_ms = now_ms
        last_offset = first_offset + header[6]
        if size != len(records):
            records = records[:size]
        if records.readonly:
            records = memoryview(bytearray(records))
        self._views.append(records)
        self._batches.append((size, first_offset, last_offset, timestamp_ms))
        self._headers.append(header)
        self._next_offset = last_offset + 1
        self._came_bytes = came_bytes
        self._is_alone = True
        start_offset, leader_epoch = self._components.bounds.log_start_offset, self._leader_epoch
        info: AppendInfo = new_tuple(
            AppendInfo,
            (first_offset, last_offset, log_append_time_ms, start_offset, leader_epoch, False),
        )
        return info

    def _convert(
        self, records: memoryview, header: HeaderFields, checks: RecordValidator
    ) -> tuple[memoryview, HeaderFields]:
        config, now_ms = self._config, self._now_ms
        converted = checks.validate_and_convert(records, header, config, now_ms)
        if converted is records:
            return records, header
        records, header = memoryview(converted), unpack_header(converted)
        validate_batch(records, header, config, Origin.COORDINATOR, now_ms)
        return records, header

    def _check_producer(
        self, header: HeaderFields, origin: int, records: memoryview, guard: VerificationGuard | None = None
    ) -> ProducerBatch | None:
        """Check a producer's batch against the state of the log's producers.

        Returns the batch that it repeats.

        In Kafka: `UnifiedLog.analyzeAndValidateProducerState`.
        """
        _, _, _, _, _, attributes, delta, _, _, producer_id, epoch, sequence, _ = header
        producers = self._components.producers
        if not attributes & CONTROL:
            return producers.check(
                producer_id,
                epoch,
                sequence,
                delta,
                is_transactional=bool(attributes & TRANSACTIONAL),
                origin=origin,
                guard=guard,
            )
        try:
            marker = read_end_marker(records)
        except CorruptDataError as error:
            raise KafkaError(ErrorCode.INVALID_RECORD, str(error)) from error
        if marker is not None:
            producers.check_marker(producer_id, epoch, marker.coordinator_epoch)
        return None

    def _duplicate(self, batch: ProducerBatch) -> AppendInfo:
        return AppendInfo(
            batch.first_offset,
            batch.last_offset,
            batch.timestamp_ms if self._config.log_append_time else -1,
            self._components.bounds.log_start_offset,
            self._leader_epoch,
            duplicate=True,
        )

    # ---- ordinary batches

    def add(self, batch: memoryview, header: HeaderFields) -> int:
        """Take a writable batch of a producer, whose header this is, at the end: its first offset.

        The memory must stay as it is until `write`. -1 if more is to be decided than its offsets,
        or it belongs to another run. Batches that were taken are written first.
        """
        if not self._has_room:
            self._find_room()
        base_offset, length, _, magic, crc, attributes, delta, _, timestamp_ms, producer_id, epoch, sequence, count = (
            header
        )
        size = length + LOG_OVERHEAD_BYTES
        first_offset = self._next_offset
        last_offset = first_offset + delta
        if (
            magic != MAGIC
            or size != len(batch)
            or not 0 <= attributes < len(CODECS)
            or delta < 0
            or delta + 1 != count
            or base_offset
            or size > self._room_bytes
            or size > self._most_bytes
            or last_offset > self._room_offset
            or timestamp_ms > self._room_ms
            or (self._codec is not None and attributes != self._codec)
            or count >= _MANY_RECORDS
            or len(self._views) == MOST_BATCHES
        ):
            return -1
        if crc32c(batch[CRC_START:]) != crc:
            return -1
        try:
            if producer_id >= 0 and not self._follows(header, batch):
                return -1
            if self._looks:
                SHORT_CHECKS.validate_and_convert(batch, header, self._config, self._now_ms)
            else:
                SHORT_CHECKS.validate_records(batch, header, self._config)
        except LongCheckError as unchecked:
            self.long_check = unchecked.check_of
            return -1
        except KafkaError:
            return -1
        if producer_id >= 0:
            self._next_of_producer = producer_id, epoch, advance_sequence(sequence, count)
        self._next_offset = last_offset + 1
        self._room_bytes -= size
        self._came_bytes += size
        self._views.append(batch)
        self._batches.append((size, first_offset, last_offset, timestamp_ms))
        self._headers.append(header)
        return first_offset

    def _follows(self, header: HeaderFields, batch: memoryview) -> bool:
        """Whether a batch is the next one of the producer whose batches are here or, as the first,
        of a producer in the log.

        Raises `KafkaError` as `ProducerState.check`.
        """
        if self._next_of_producer is not None:
            return self._next_of_producer == header[9:12]
        return self._check_producer(header, Origin.CLIENT, batch) is None

    def _find_room(self) -> None:
        """Find the limits within which batches can be added to the run."""
        config, now_ms = self._config, self._now_ms
        room_bytes, self._room_offset, room_ms = self._components.segments.active.room(config, MOST_BATCHES, now_ms)
        self._room_bytes = -1 if config.log_append_time or self._is_alone else room_bytes
        self._room_ms = min(room_ms, latest_timestamp_ms(config, now_ms))
        self._most_bytes = config.max_message_bytes
        self._codec = config.codec
        self._looks = config.looks_at_records
        self._has_room = True

    # ---- writes

    def write(self) -> tuple[int, int, int, int]:
        """Append all that was taken.

        Returns how many batches that is, the last one's last offset, and how many records they
        have in how many bytes as they came. Raises `KafkaError` KAFKA_STORAGE_ERROR.
        """
        components, config, leader_epoch = self._components, self._config, self._leader_epoch
        views, batches, headers = self._views, self._batches, self._headers
        if not views:
            return 0, 0, 0, 0
        if self._availability.reason is not None:  # since the run began
            self._availability.check()
        for view, batch in zip(views, batches, strict=True):
            assign_offsets(view, 0, batch[1], leader_epoch)
        if config.log_append_time or headers[0][5] & LOG_APPEND_TIME:
            self._set_time_types()
        try:
            rolls = self._is_alone and must_roll(components, config, batches[0], self._now_ms)
            write_batches(components, config, views, batches, headers, leader_epoch, self._now_ms, rolls=rolls)
        except OSError as error:
            raise self._availability.fail(error, "appending to") from error
        next_offset = self._next_offset
        appended = len(views), next_offset - 1, next_offset - batches[0][1], self._came_bytes
        # The run lives on while its requests wait for followers; the memory in which
        # they came does not.
        views.clear()
        batches.clear()
        headers.clear()
        return appended

    def _set_time_types(self) -> None:
        for view, header in zip(self._views, self._headers, strict=True):
            if self._config.log_append_time:
                set_log_append_time(view, header[5], self._now_ms)
            else:
                clear_log_append_time(view, header[5])
