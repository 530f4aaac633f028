"""Control batches: the marker that ends a transaction (KIP-98).

Kafka: ControlRecordType, EndTransactionMarker."""

import struct
from typing import NamedTuple

from barnabas.base.errors import CorruptDataError
from barnabas.base.files import Buffer
from barnabas.wire.kafka.records.records import Record, build_batch, read_records

__all__ = ["EndMarker", "build_end_marker", "read_end_marker"]

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
    """The marker of a control batch; None for control records of other kinds.

    Raises `CorruptDataError`."""
    record = next(read_records(buffer, offset), None)
    if record is None or record.key is None or len(record.key) < _MARKER_KEY.size:
        raise CorruptDataError("a control batch without a control record")
    _, kind = _MARKER_KEY.unpack_from(record.key)
    if kind not in (0, 1):
        return None
    if record.value is None or len(record.value) < _MARKER_VALUE.size:
        raise CorruptDataError("an end marker without a coordinator epoch")
    _, coordinator_epoch = _MARKER_VALUE.unpack_from(record.value)
    return EndMarker(kind == 0, coordinator_epoch)
