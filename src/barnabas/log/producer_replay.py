"""Rebuilds a log's producer state from its newest usable snapshot and the batches after it.

Kafka: UnifiedLog.rebuildProducerState, ProducerStateManager.truncateAndReload; `add_control_batch`:
ProducerAppendInfo.append, appendEndTxnMarker.
"""

from bisect import bisect_right
from collections.abc import Iterator, Sequence

from barnabas.base.errors import CorruptDataError
from barnabas.base.files import Buffer
from barnabas.log.names import TXN_INDEX, file_name
from barnabas.log.producer_snapshots import ProducerSnapshots
from barnabas.log.producer_state import ProducerState, decode_snapshot
from barnabas.log.segment.folder import Folder
from barnabas.log.segment.segment import Segment
from barnabas.log.segment.segments import Segments
from barnabas.log.segment.transaction_index import AbortedTransaction
from barnabas.wire.kafka.records.batch_header import CONTROL, HEADER_BYTES, TRANSACTIONAL, BatchHeader, read_header
from barnabas.wire.kafka.records.control import EndMarker, read_end_marker

__all__ = ["add_control_batch", "load_producers", "rebuild_transaction_indexes"]

_MOST_HEADERS = 500
"""How many batch headers of a log are read at a start, at most, to confirm its transaction
indexes: a few milliseconds."""


def load_producers(
    folder: Folder,
    producers: ProducerState,
    snapshots: ProducerSnapshots,
    segments: Segments,
    end_offset: int,
    believed_offset: int | None = None,
) -> bool:
    """Bring ``producers`` to the state at the end of the log.

    Returns whether batches had to be read. Snapshots past the end, past ``believed_offset`` or
    below the first segment are removed, and so are corrupt ones. The transaction indexes of the
    segments that are read are rebuilt with them. Raises `OSError`.

    ``believed_offset`` is the recovery point after a crash, and None otherwise. Snapshots and
    transaction indexes past it were not synced: one may be there without the other, and without
    its index aborted records would be shown. Apache's brokers recover these segments with their
    producers.

    The state begins with the first segment, not at the log start offset: DeleteRecords hides
    records, but their batches stay until their segment is deleted. So a retry of such a batch is
    a duplicate after a restart as before it, and is not appended again. Apache's brokers begin at
    the log start offset.
    """
    most = end_offset if believed_offset is None else max(segments.start_offset, min(believed_offset, end_offset))
    start = _load_snapshot(folder, producers, snapshots, segments.start_offset, most)
    if start >= end_offset:
        return False
    for at, segment in enumerate(segments):
        if segments.end_of(at, end_offset) > start and segment.size:
            if at + 2 >= len(segments):
                snapshots.take(producers, segment.base_offset)  # a truncation may need the last two
            _replay(producers, segment, start)
    return True


def rebuild_transaction_indexes(
    folder: Folder, snapshots: ProducerSnapshots, segments: Sequence[Segment], names: list[str]
) -> None:
    """Make the transaction indexes again that cannot be read, or that the batches contradict.

    Raises `OSError`. A start must not take longer for a log with many transactions: the newest
    entries are compared with the batches, up to a number of headers, and the others are believed.
    """
    headers = iter(range(_MOST_HEADERS))
    for at, segment in reversed(list(enumerate(segments))):
        if file_name(segment.base_offset, TXN_INDEX) not in names:
            continue
        try:
            newest_first = reversed(segment.transactions.entries)
            is_right = all(_is_confirmed(entry, segments[: at + 1], headers) for entry in newest_first)
        except CorruptDataError:
            is_right = False
        if not is_right:
            _rebuild_transactions(folder, snapshots, segments[: at + 1])


def _is_confirmed(entry: AbortedTransaction, segments: Sequence[Segment], headers: Iterator[int]) -> bool:
    """Whether an aborted transaction has its marker and its first batch, as far as
    compaction has left them.

    A wrong entry would hide committed records from read_committed, or show aborted ones.
    ``headers`` has as many elements as headers may be read; without any the entry is believed.
    """
    if next(headers, None) is None:
        return True
    marker, first = _batch_with(entry.last_offset, segments[-1:]), _batch_with(entry.first_offset, segments)
    if marker is not None and not (marker.attributes & CONTROL and marker.producer_id == entry.producer_id):
        return False
    if first is not None and (
        first.attributes & CONTROL or (first.base_offset, first.producer_id) != (entry.first_offset, entry.producer_id)
    ):
        return False
    if first is not None and any(marker < entry.last_offset for marker in _markers_of(entry, segments, headers)):
        return False  # the first batch is one of an earlier transaction
    return entry.last_stable_offset <= entry.last_offset + 1


def _markers_of(entry: AbortedTransaction, segments: Sequence[Segment], headers: Iterator[int]) -> Iterator[int]:
    """The offsets of the producer's markers from the transaction's first batch to its end, or until
    the headers are used up."""
    at = bisect_right(segments, entry.first_offset, key=lambda segment: segment.base_offset) - 1
    for segment in segments[max(0, at) :]:
        located = segment.locate(entry.first_offset) if segment.size else None
        for _, header in segment.headers(located.position) if located is not None else ():
            if header.base_offset > entry.last_offset or next(headers, None) is None:
                return
            if header.attributes & CONTROL and header.producer_id == entry.producer_id:
                yield header.base_offset


def _batch_with(offset: int, segments: Sequence[Segment]) -> BatchHeader | None:
    """The header of the batch that has an offset; None where there is none."""
    at = bisect_right(segments, offset, key=lambda segment: segment.base_offset) - 1
    if at < 0 or not segments[at].size:
        return None
    segment = segments[at]
    located = segment.locate(offset)
    if located is None or located.base_offset > offset:
        return None
    return read_header(segment.file.read_at(located.position, HEADER_BYTES))


def _rebuild_transactions(folder: Folder, snapshots: ProducerSnapshots, segments: Sequence[Segment]) -> None:
    """The last segment's index, with the producers as of its first record."""
    producers = ProducerState()
    start = segments[0].base_offset
    for offset in snapshots.offsets():
        if start < offset <= segments[-1].base_offset:
            try:
                producers.reset(decode_snapshot(folder.files.read(snapshots.path(offset))))
            except (CorruptDataError, FileNotFoundError):
                continue  # an older one covers less, and the log has the rest
            start = offset
            break
    for at, segment in enumerate(segments):
        is_last = at + 1 == len(segments)
        if segment.size and (is_last or segments[at + 1].base_offset > start):
            _replay(producers, segment, start)


def _load_snapshot(
    folder: Folder, producers: ProducerState, snapshots: ProducerSnapshots, first_offset: int, end_offset: int
) -> int:
    """Load the newest usable snapshot at or past the first segment's base offset.

    Returns the offset from which batches must be read."""
    for offset in snapshots.offsets():
        if first_offset <= offset <= end_offset:
            try:
                producers.reset(decode_snapshot(folder.files.read(snapshots.path(offset))))
            except (CorruptDataError, FileNotFoundError):
                pass  # the one before is older and covers less; the log has the rest
            else:
                snapshots.loaded(offset)
                return offset
        elif offset < first_offset:
            break  # the batches between it and the first segment are gone
        snapshots.remove(offset)
    producers.reset()
    snapshots.loaded(first_offset)
    return first_offset


def _replay(producers: ProducerState, segment: Segment, start: int) -> None:
    first = segment.locate(start)
    if first is None:
        return
    segment.transactions.truncate(max(start, segment.base_offset))
    for position, header in segment.headers(first.position):
        if header.producer_id >= 0:
            _replay_batch(producers, segment, position, header)


def _replay_batch(producers: ProducerState, segment: Segment, position: int, header: BatchHeader) -> None:
    if not header.attributes & CONTROL:
        producers.add_batch(
            header.producer_id,
            header.producer_epoch,
            header.base_sequence,
            header.base_offset,
            header.last_offset,
            header.max_timestamp,
            bool(header.attributes & TRANSACTIONAL),
        )
        return
    add_control_batch(
        producers,
        segment,
        segment.file.read_at(position, header.size_bytes),
        header.producer_id,
        header.producer_epoch,
        header.base_offset,
        header.max_timestamp,
        is_emptied=not header.record_count,
    )


def add_control_batch(
    producers: ProducerState,
    segment: Segment,
    batch: Buffer,
    producer_id: int,
    epoch: int,
    offset: int,
    timestamp_ms: int,
    *,
    is_emptied: bool,
) -> None:
    """Apply the control batch at an offset to the producer state.

    An aborted transaction is added to the segment's transaction index, too. Raises `OSError`.
    """
    if is_emptied:
        producers.add_emptied_marker(producer_id, epoch, timestamp_ms)
        return
    try:
        marker = read_end_marker(batch)
    except CorruptDataError:
        return  # another broker has accepted it; it ends no transaction
    if marker is not None:
        _add_marker(producers, segment, producer_id, epoch, marker, offset, timestamp_ms)


def _add_marker(
    producers: ProducerState,
    segment: Segment,
    producer_id: int,
    epoch: int,
    marker: EndMarker,
    offset: int,
    timestamp_ms: int,
) -> None:
    completed = producers.add_marker(
        producer_id, epoch, marker.coordinator_epoch, offset, timestamp_ms, marker.is_abort
    )
    if completed is None:
        return
    if completed.is_aborted:
        stable = producers.last_stable_offset_after(completed)
        segment.transactions.append(
            AbortedTransaction(completed.producer_id, completed.first_offset, completed.last_offset, stable)
        )
    producers.complete(completed)
