"""Control batches: the marker that ends a transaction (KIP-98).

Kafka: ControlRecordType, EndTransactionMarker."""

import struct
from collections.abc import Iterable
from typing import NamedTuple

from barnabas.base.errors import CorruptDataError
from barnabas.base.files import Buffer
from barnabas.wire.kafka.records.batch_header import BatchHeader
from barnabas.wire.kafka.records.records import Record, build_batch, read_records

__all__ = ["AbortedTransactions", "EndMarker", "build_end_marker", "read_end_marker"]

_MARKER_KEY = struct.Struct(">hh")
_MARKER_VALUE = struct.Struct(">hi")


class EndMarker(NamedTuple):
    """The record of a control batch that ends a transaction (KIP-98)."""

    is_abort: bool
    coordinator_epoch: int


def build_end_marker(
    marker: EndMarker, *, offset: int, timestamp_ms: int, producer_id: int, producer_epoch: int, leader_epoch: int
) -> bytearray:
    """The control batch that commits or aborts a producer's transaction in a partition."""
    key = _MARKER_KEY.pack(0, 0 if marker.is_abort else 1)
    value = _MARKER_VALUE.pack(0, marker.coordinator_epoch)
    return build_batch(
        [Record(offset, timestamp_ms, key, value)],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        leader_epoch=leader_epoch,
        is_transactional=True,
        is_control=True,
    )


def read_end_marker(buffer: Buffer, offset: int = 0) -> EndMarker | None:
    """The marker of a control batch.

    None for control records of other kinds, and where compaction has removed the marker: a
    producer's last batch stays as a header. Raises `CorruptDataError`.
    """
    record = next(read_records(buffer, offset), None)
    if record is None:
        return None
    if record.key is None or len(record.key) < _MARKER_KEY.size:
        raise CorruptDataError("a control batch without a control record")
    _, kind = _MARKER_KEY.unpack_from(record.key)
    if kind not in (0, 1):
        return None
    if record.value is None or len(record.value) < _MARKER_VALUE.size:
        raise CorruptDataError("an end marker without a coordinator epoch")
    _, coordinator_epoch = _MARKER_VALUE.unpack_from(record.value)
    return EndMarker(kind == 0, coordinator_epoch)


class AbortedTransactions:
    """What a reader at read_committed leaves out of the batches that a fetch has brought: ask for
    each of them, in their order."""

    def __init__(self, aborted: Iterable[tuple[int, int]]) -> None:
        """The first offset and the producer id of each transaction that the response names."""
        self._next = sorted(aborted, reverse=True)
        self._open: set[int] = set()

    def shows(self, buffer: Buffer, position: int, header: BatchHeader) -> bool:
        """Whether readers see a batch: not a control batch, nor one of an aborted transaction.

        Raises `CorruptDataError`."""
        while self._next and self._next[-1][0] <= header.last_offset:
            self._open.add(self._next.pop()[1])
        if header.is_control:
            marker = read_end_marker(buffer, position)
            if marker is not None and marker.is_abort:
                self._open.discard(header.producer_id)
            return False
        return not (header.is_transactional and header.producer_id in self._open)
