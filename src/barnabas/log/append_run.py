"""Batches of usual producers that came together, appended to one log in one write.

Any batch can be appended by `append`. A run takes those for which nothing has to be decided but their offsets: plain or in the
topic's own codec, with the producer's own timestamps, neither transactional nor a duplicate, into a segment and a leader epoch
that have begun. It is the short way through the same checks.

Invariants:

- Nothing is changed before `write`. What `add` does not take is left to the general path, which knows the reason and the error.
- The bytes of the log, the indexes and the producer state are those that the batches would have left one by one. A test
  compares them.
- If the write fails, the log has none of the batches. If an index cannot be written afterwards, the log goes offline, as it does
  in the general path, and all are answered with the error; the file is cut to where it ended before. If the disk does not let it
  be cut, the next start may recover batches whose producers got KAFKA_STORAGE_ERROR: as after a timeout, they cannot know.

In Kafka: `UnifiedLog.append` and `LogValidator`, for these cases; its brokers write each batch by itself.
"""

import contextlib

from crc32c import crc32c

from barnabas.log.append_checks import unpacked_limit_bytes
from barnabas.log.availability import Availability
from barnabas.log.components import LogComponents
from barnabas.log.conversion import validate_and_convert, validate_plain_records
from barnabas.log.producer_state import MAX_SEQUENCE
from barnabas.log.segment.segment import AppendedBatch, Room, Segment, room_in
from barnabas.log.settings import CODECS, LogConfig
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.records.batch_header import (
    COMPRESSION_MASK,
    CRC_START,
    HEADER_BYTES,
    LOG_OVERHEAD_BYTES,
    HeaderFields,
    assign_offsets,
)
from barnabas.wire.kafka.records.records import SMALLEST_RECORD_BYTES

__all__ = ["MOST_BATCHES", "AppendRun", "begin_run"]

MOST_BATCHES = 64
"""Most batches in one run."""
_MANY_RECORDS = 4_096
"""Plain batches of so many take long to check."""
_MOST_UNPACKED_BYTES = 32 * 1024
"""Of a batch for a compacted topic, whose records are looked at."""
_NO_LIMIT = (1 << 63) - 1
_NO_PRODUCER = -1

_Origin = tuple[int, int, int, int]
"""Of a batch the leader epoch as it came, producer id, epoch and sequence."""


def begin_run(
    components: LogComponents, availability: Availability, config: LogConfig, leader_epoch: int, now_ms: int
) -> "AppendRun | None":
    """A run of appends by the leader of an epoch; None if the log or its topic are not usual."""
    if (
        availability.reason is not None
        or config.log_append_time
        or config.flush_before_ack
        or config.timestamp_before_max_ms != _NO_LIMIT
        or components.epochs.latest_epoch != leader_epoch
    ):
        return None
    room = room_in(
        components.segments.active,
        now_ms,
        config.segment_bytes,
        config.segment_ms,
        config.max_index_bytes,
        MOST_BATCHES,
    )
    return None if room is None else AppendRun(components, availability, config, leader_epoch, now_ms, room)


class AppendRun:
    """See the module. Used up by `write`."""

    __slots__ = (
        "_availability",
        "_batches",
        "_codec",
        "_compacted",
        "_components",
        "_index_interval_bytes",
        "_last_offset",
        "_latest_ms",
        "_leader_epoch",
        "_max_message_bytes",
        "_most_packed_records",
        "_next_offset",
        "_next_sequence",
        "_now_ms",
        "_origins",
        "_producer_epoch",
        "_producer_id",
        "_room_bytes",
        "_views",
    )

    def __init__(
        self,
        components: LogComponents,
        availability: Availability,
        config: LogConfig,
        leader_epoch: int,
        now_ms: int,
        room: Room,
    ) -> None:
        self._availability = availability
        self._components = components
        self._leader_epoch = leader_epoch
        self._codec = config.codec
        self._compacted = config if config.cleanup_compact else None
        self._now_ms = now_ms
        self._max_message_bytes = config.max_message_bytes
        self._most_packed_records = unpacked_limit_bytes(config) // SMALLEST_RECORD_BYTES
        self._index_interval_bytes = config.index_interval_bytes
        self._next_offset = components.bounds.log_end_offset
        self._room_bytes = room.size_bytes
        # Not so many records that they would have to be synced.
        self._last_offset = min(room.last_offset, components.durability.durable_offset + config.flush_messages - 2)
        self._latest_ms = min(room.max_timestamp_ms, now_ms + config.timestamp_after_max_ms)
        self._views: list[memoryview] = []
        self._batches: list[AppendedBatch] = []
        self._origins: list[_Origin] = []
        self._producer_id = _NO_PRODUCER
        self._producer_epoch = self._next_sequence = 0

    def __len__(self) -> int:
        return len(self._batches)

    @property
    def last_offset(self) -> int:
        """The offset of the last record taken."""
        return self._next_offset - 1

    def add(self, batch: memoryview, header: HeaderFields) -> int:
        """Take a writable batch, whose header this is, at the end: its first offset. -1 if that is left to the general path,
        or to another run. The memory must stay as it is until `write`."""
        (
            base_offset,
            length,
            epoch_then,
            magic,
            crc,
            attributes,
            delta,
            _,
            timestamp_ms,
            producer_id,
            epoch,
            sequence,
            count,
        ) = header
        size = length + LOG_OVERHEAD_BYTES
        first_offset = self._next_offset
        last_offset = first_offset + delta
        if (
            magic != 2
            or size != len(batch)
            or attributes & ~COMPRESSION_MASK
            or delta < 0
            or delta + 1 != count
            or base_offset
            or size > self._room_bytes
            or size > self._max_message_bytes
            or last_offset > self._last_offset
            or timestamp_ms > self._latest_ms
            or (self._codec is not None and attributes != self._codec)
            or len(self._batches) == MOST_BATCHES
        ):
            return -1
        if producer_id >= 0 and not self._follows(producer_id, epoch, sequence):
            return -1
        if crc32c(batch[CRC_START:]) != crc:
            return -1
        if attributes and (attributes >= len(CODECS) or count > self._most_packed_records):
            return -1
        if not attributes and (count >= _MANY_RECORDS or count * SMALLEST_RECORD_BYTES > size - HEADER_BYTES):
            return -1
        try:
            if self._compacted is not None:
                self._validate_keys(batch, header, self._compacted)
            elif not attributes:
                validate_plain_records(batch, header)
        except KafkaError:
            return -1
        if producer_id >= 0:
            self._producer_id, self._producer_epoch = producer_id, epoch
            self._next_sequence = (sequence + count) & MAX_SEQUENCE
        self._next_offset = last_offset + 1
        self._room_bytes -= size
        self._views.append(batch)
        self._batches.append((size, first_offset, last_offset, timestamp_ms))
        self._origins.append((epoch_then, producer_id, epoch, sequence))
        return first_offset

    def _validate_keys(self, batch: memoryview, header: HeaderFields, config: LogConfig) -> None:
        """Check a batch for a compacted topic, in whose codec it is. Raises `KafkaError`, also where that takes long."""
        if header[12] >= _MANY_RECORDS or header[1] > _MOST_UNPACKED_BYTES:
            raise KafkaError(ErrorCode.INVALID_RECORD, "left to the general path")
        validate_and_convert(batch, header, config, self._now_ms, limit_bytes=_MOST_UNPACKED_BYTES)

    def remove_last(self) -> None:
        """Take back the last batch: the request that has it is left to the general path."""
        self._views.pop()
        size, self._next_offset, _, _ = self._batches.pop()
        _, producer_id, _, sequence = self._origins.pop()
        self._room_bytes += size
        if producer_id >= 0:
            self._next_sequence = sequence
            if all(origin[1] < 0 for origin in self._origins):
                self._producer_id = _NO_PRODUCER

    def _follows(self, producer_id: int, epoch: int, sequence: int) -> bool:
        """Whether a batch is the next one of its producer, in the log or in this run."""
        if producer_id == self._producer_id:
            return epoch == self._producer_epoch and sequence == self._next_sequence
        if sequence < 0 or self._producer_id >= 0:
            return False  # a run holds the batches of one idempotent producer
        entry = self._components.producers.entries.get(producer_id)
        return entry is None or (
            epoch == entry.epoch
            and sequence == (entry.last_sequence + 1) & MAX_SEQUENCE
            and entry.transaction_first_offset < 0
        )

    def write(self) -> tuple[int, int, int]:
        """Append all that was taken. Returns how many batches, records and bytes that is.

        Raises `KafkaError` KAFKA_STORAGE_ERROR; then the batches in memory are as they came."""
        components, views, leader_epoch = self._components, self._views, self._leader_epoch
        segment, bounds = components.segments.active, components.bounds
        for batch, (_, first_offset, _, _) in zip(views, self._batches, strict=True):
            assign_offsets(batch, 0, first_offset, leader_epoch)
        position = segment.size
        is_written = False
        try:
            segment.file.append(views)
            is_written = True
            segment.note_appended(self._batches, self._index_interval_bytes)
        except OSError as error:
            if is_written:
                _cut(segment, position, bounds.log_end_offset)
            for batch, (epoch_then, _, _, _) in zip(views, self._origins, strict=True):
                assign_offsets(batch, 0, 0, epoch_then)
            raise self._availability.fail(error, "appending to") from error
        appended = len(views), self._next_offset - bounds.log_end_offset, segment.size - position
        bounds.extend(self._next_offset)
        if self._producer_id >= 0:
            self._note_producer()
        # The run lives on while its requests wait for followers; the memory in which they came does not.
        views.clear()
        self._batches.clear()
        self._origins.clear()
        return appended

    def _note_producer(self) -> None:
        add_batch = self._components.producers.add_batch
        for (_, first_offset, last_offset, timestamp_ms), (_, producer_id, epoch, sequence) in zip(
            self._batches, self._origins, strict=True
        ):
            if producer_id >= 0:
                add_batch(producer_id, epoch, sequence, first_offset, last_offset, timestamp_ms, False)


def _cut(segment: Segment, position: int, offset: int) -> None:
    """Take a failed run out of its segment, as far as the disk lets it."""
    try:
        segment.truncate(position, offset)
    except OSError:  # the indexes; recovery makes them from the file
        with contextlib.suppress(OSError):
            segment.file.truncate(position)
