"""The end of a log: where batches that are complete are written, with all that follows from them.

A leader's run (`append_run`) and a follower (`append`) have checked the batches, and they have
their offsets. Here a leader epoch begins, the bytes reach the active segment, the log end offset
moves, then the producer state.

In Kafka: `LocalLog.append`, and around it the second half of `UnifiedLog.append`.
"""

from collections.abc import Sequence
from typing import NamedTuple

from barnabas.base.files import Buffer
from barnabas.log.components import LogComponents, roll
from barnabas.log.producer_replay import add_control_batch
from barnabas.log.segment.segment import AppendedBatch, Segment
from barnabas.log.settings import LogConfig
from barnabas.wire.kafka.records.batch_header import CONTROL, TRANSACTIONAL, HeaderFields

__all__ = ["AppendInfo", "must_roll", "write_batches"]


class AppendInfo(NamedTuple):
    """The result of an append.

    A duplicate has the offsets that the batch got the first time. Kafka: LogAppendInfo."""

    first_offset: int
    last_offset: int
    log_append_time_ms: int
    """The time of the append on topics with LogAppendTime, else -1."""
    log_start_offset: int
    leader_epoch: int
    duplicate: bool = False


def must_roll(components: LogComponents, config: LogConfig, batch: AppendedBatch, now_ms: int) -> bool:
    """Whether a batch needs a new segment. Raises `OSError`."""
    size, _, last_offset, timestamp_ms = batch
    room_bytes, room_offset, room_ms = components.segments.active.room(config, 1, now_ms)
    return size > room_bytes or last_offset > room_offset or timestamp_ms > room_ms


def write_batches(
    components: LogComponents,
    config: LogConfig,
    parts: Sequence[memoryview],
    batches: Sequence[AppendedBatch],
    headers: Sequence[HeaderFields],
    leader_epoch: int,
    now_ms: int,
    *,
    rolls: bool,
) -> None:
    """Write batches in one write: their bytes, where they stand, and their headers, which may have
    other offsets and timestamps.

    ``rolls`` lets the first one begin a new segment. More than one are plain ones without a
    transaction. Raises `OSError`; then the log has none of them, as far as the disk lets them
    be cut off.
    """
    first_offset = batches[0][1]
    if leader_epoch != components.epochs.latest_epoch:
        components.epochs.begin_unwritten(leader_epoch, first_offset)
    segment = components.segments.active
    if rolls:
        segment = roll(components, config, first_offset, now_ms)
    if headers[0][5] & CONTROL:
        segment.transactions.load()  # what can fail comes before the batches are written
    segment.append(parts, batches, config.index_interval_bytes)
    components.bounds.extend(batches[-1][2] + 1)
    for number, header in enumerate(headers):
        if header[9] >= 0:
            _update_producer(components, segment, parts[number], batches[number], header)


def _update_producer(
    components: LogComponents, segment: Segment, part: Buffer, batch: AppendedBatch, header: HeaderFields
) -> None:
    """Take an appended batch into the producer state and, when it ends an aborted
    transaction, into its index."""
    _, first_offset, last_offset, timestamp_ms = batch
    _, _, _, _, _, attributes, _, _, _, producer_id, epoch, sequence, count = header
    is_transactional = bool(attributes & TRANSACTIONAL)
    if attributes & CONTROL:
        add_control_batch(
            components.producers, segment, part, producer_id, epoch, first_offset, timestamp_ms, is_emptied=not count
        )
    else:
        components.producers.add_batch(
            producer_id, epoch, sequence, first_offset, last_offset, timestamp_ms, is_transactional
        )
    if is_transactional:
        components.update_stable()
