"""What compaction leaves of one record batch. Kafka: Cleaner.cleanInto, MemoryRecords.filterTo.

A record stays while it is the newest of its key, or lies past the range that was read into the offset map. A delete
marker (a null value) that is the newest stays until the delete horizon of its batch: the first pass that meets it writes
now + ``delete.retention.ms`` into the batch's base timestamp and sets bit 6 of its attributes (KIP-534). Of the last
batch of each producer at least the header stays, for it carries the last sequence. Whatever goes, a batch keeps its
base and last offset, leader epoch, producer fields, codec and timestamp type; records keep offsets and timestamps.
"""

from collections.abc import Generator, Mapping
from typing import NamedTuple

from crc32c import crc32c

from barnabas.base.errors import CorruptDataError
from barnabas.base.files import Buffer
from barnabas.log.compaction.cleaned_transactions import CleanedTransactions
from barnabas.log.compaction.offset_map import OffsetMap
from barnabas.log.compaction.record_slices import RecordSlice, scan_records, with_timestamp_delta
from barnabas.wire.kafka.records.batch_header import (
    CONTROL,
    CRC_START,
    DELETE_HORIZON,
    HEADER,
    HEADER_BYTES,
    LOG_APPEND_TIME,
    LOG_OVERHEAD_BYTES,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
    seal,
)
from barnabas.wire.kafka.records.compression import CompressionType, compress, decompress

__all__ = ["STEP_RECORDS", "BatchFilter", "LastRecord", "check_whole", "unpack"]

STEP_RECORDS = 250
"""So many take about 1 ms, less than the interpreter lets one thread keep others waiting."""

_MAX_UNPACKED_BYTES = 256 << 20


class LastRecord(NamedTuple):
    """A producer's last data batch by its last offset (-1: none), and the producer's epoch."""

    last_offset: int
    epoch: int


def check_whole(batch: memoryview, header: BatchHeader) -> None:
    """Raises `CorruptDataError` unless the batch is of format 2 and its CRC right: others must not be written again."""
    if header.magic != 2:
        raise CorruptDataError(f"the batch at offset {header.base_offset} has format {header.magic}")
    if crc32c(batch[CRC_START:]) != header.crc:
        raise CorruptDataError(f"the CRC of the batch at offset {header.base_offset} is wrong")


def unpack(batch: memoryview, header: BatchHeader) -> memoryview:
    """The batch's records, decompressed."""
    return memoryview(decompress(header.compression, batch[HEADER_BYTES:], _MAX_UNPACKED_BYTES))


class BatchFilter:
    """Decides and writes, batch after batch in the order of the log."""

    __slots__ = ("_last_records", "_new_horizon_ms", "_now_ms", "_offsets", "_transactions")

    def __init__(
        self,
        offsets: OffsetMap,
        transactions: CleanedTransactions,
        last_records: Mapping[int, LastRecord],
        *,
        now_ms: int,
        delete_retention_ms: int,
    ) -> None:
        self._offsets = offsets
        self._transactions = transactions
        self._last_records = last_records
        self._now_ms = now_ms
        self._new_horizon_ms = now_ms + delete_retention_ms

    def filter(self, batch: memoryview, header: BatchHeader) -> Generator[None, None, Buffer | None]:
        """The batch as it stays: itself, one with fewer records, a header without any, or None.

        Yields after every `STEP_RECORDS` records.
        Raises `CorruptDataError`, and `KafkaError` for an unknown codec.
        """
        check_whole(batch, header)
        can_discard = self._transactions.can_discard(batch, header)
        horizon_ms = header.delete_horizon_ms
        is_due = horizon_ms is not None and horizon_ms <= self._now_ms
        drop_records = can_discard and (is_due or not header.is_control)
        out = None
        if not drop_records and header.record_count:
            marks_empty_transaction = can_discard and header.is_control
            out = yield from self._keep(batch, header, is_due=is_due, needs_horizon=marks_empty_transaction)
        if out is None and self._is_last_of_producer(header):
            return _empty(header)
        return out

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        last = self._last_records.get(header.producer_id)
        if last is None:
            return False
        if last.last_offset >= 0:
            return header.last_offset == last.last_offset
        # Only a marker is left of the producer: it has the epoch that fences older ones.
        return header.is_control and header.producer_epoch == last.epoch

    def _keep(
        self, batch: memoryview, header: BatchHeader, *, is_due: bool, needs_horizon: bool
    ) -> Generator[None, None, Buffer | None]:
        data = unpack(batch, header)
        if header.is_control:
            kept = list(scan_records(data, header.record_count))
        else:
            kept = []
            get, latest, base_offset = self._offsets.get, self._offsets.latest_offset, header.base_offset
            for number, record in enumerate(scan_records(data, header.record_count), 1):
                if not number % STEP_RECORDS:
                    yield
                offset = base_offset + record.offset_delta
                if offset <= latest:
                    if record.key is None or offset < get(record.key):
                        continue
                    if not record.has_value:
                        if is_due:
                            continue
                        needs_horizon = True
                kept.append(record)
        if not kept:
            return None
        if header.delete_horizon_ms is None and needs_horizon:
            return _rebuild(header, data, kept, self._new_horizon_ms)
        if len(kept) == header.record_count:
            return batch
        return _rebuild(header, data, kept, None)


def _rebuild(header: BatchHeader, data: memoryview, kept: list[RecordSlice], new_horizon_ms: int | None) -> Buffer:
    base_timestamp = header.base_timestamp
    max_timestamp = header.max_timestamp
    attributes = header.attributes
    if not header.is_log_append_time:
        max_timestamp = base_timestamp + max(record.timestamp_delta for record in kept)
    if new_horizon_ms is None:
        body = b"".join([data[record.start : record.stop] for record in kept])
    else:
        # The base timestamp gives its place to the horizon: every record's delta changes.
        shift = base_timestamp - new_horizon_ms
        body = b"".join([with_timestamp_delta(data, record, record.timestamp_delta + shift) for record in kept])
        base_timestamp = new_horizon_ms
        attributes |= DELETE_HORIZON
    packed = compress(header.compression, body)
    return _seal(
        header._replace(
            length=HEADER_BYTES - LOG_OVERHEAD_BYTES + len(packed),
            attributes=attributes,
            base_timestamp=base_timestamp,
            max_timestamp=max_timestamp,
            record_count=len(kept),
        ),
        packed,
    )


def _empty(header: BatchHeader) -> Buffer:
    kept_attributes = LOG_APPEND_TIME | TRANSACTIONAL | CONTROL
    return _seal(
        header._replace(
            length=HEADER_BYTES - LOG_OVERHEAD_BYTES,
            attributes=header.attributes & kept_attributes | CompressionType.NONE,
            base_timestamp=NO_TIMESTAMP,
            record_count=0,
        ),
        b"",
    )


def _seal(header: BatchHeader, body: Buffer) -> bytearray:
    batch = bytearray(HEADER.pack(*header))
    batch += body
    seal(batch)
    return batch
