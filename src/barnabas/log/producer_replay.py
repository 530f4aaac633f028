"""Making a log's producer state again from its newest usable snapshot and the batches after it."""

from barnabas.base.errors import CorruptDataError
from barnabas.base.files import Files
from barnabas.log.names import SNAPSHOT, TXN_INDEX, file_name
from barnabas.log.producer_state import ProducerState, decode_snapshot
from barnabas.log.segment.segment import Segment
from barnabas.log.segment.transaction_index import AbortedTransaction
from barnabas.wire.kafka.records.batch_header import CONTROL, TRANSACTIONAL, BatchHeader
from barnabas.wire.kafka.records.control import read_end_marker

__all__ = ["load_producers", "rebuild_transaction_indexes"]


def load_producers(
    files: Files,
    directory: str,
    producers: ProducerState,
    snapshots: list[int],
    segments: list[Segment],
    log_start_offset: int,
    end_offset: int,
) -> bool:
    """Bring ``producers`` to the state as of ``end_offset``; whether any batch had to be read for it.

    Snapshots past the end, at or below the log's start, and corrupt ones are removed from disk and from ``snapshots``.
    Transaction indexes of the segments that are read again are made again with them. Raises `OSError`.
    """
    start = _load_snapshot(files, directory, producers, snapshots, log_start_offset, end_offset)
    if start >= end_offset:
        producers.end_offset = end_offset
        return False
    for at, segment in enumerate(segments):
        segment_end = segments[at + 1].base_offset if at + 1 < len(segments) else end_offset
        if segment_end > start and segment.size:
            _replay(producers, segment, start)
    producers.end_offset = end_offset
    return True


def rebuild_transaction_indexes(
    files: Files, directory: str, snapshots: list[int], segments: list[Segment], names: list[str]
) -> None:
    """Make the transaction indexes again that cannot be read, from the batches. Raises `OSError`."""
    for at, segment in enumerate(segments):
        if file_name(segment.base_offset, TXN_INDEX) not in names:
            continue
        try:
            segment.transactions.entries  # noqa: B018  # reading is the check
        except CorruptDataError:
            _rebuild_transactions(files, directory, snapshots, segments[: at + 1])


def _rebuild_transactions(files: Files, directory: str, snapshots: list[int], segments: list[Segment]) -> None:
    """The last segment's index, with the producers as of its first record."""
    producers = ProducerState()
    start = segments[0].base_offset
    for offset in sorted(snapshots, reverse=True):
        if start < offset <= segments[-1].base_offset:
            try:
                producers.reset(offset, decode_snapshot(files.read(f"{directory}/{file_name(offset, SNAPSHOT)}")))
            except (CorruptDataError, FileNotFoundError):
                continue  # an older one covers less, and the log has the rest
            start = offset
            break
    for at, segment in enumerate(segments):
        is_last = at + 1 == len(segments)
        if segment.size and (is_last or segments[at + 1].base_offset > start):
            _replay(producers, segment, start)


def _load_snapshot(
    files: Files,
    directory: str,
    producers: ProducerState,
    snapshots: list[int],
    log_start_offset: int,
    end_offset: int,
) -> int:
    while snapshots:
        offset = max(snapshots)
        path = f"{directory}/{file_name(offset, SNAPSHOT)}"
        if log_start_offset < offset <= end_offset:
            try:
                producers.reset(offset, decode_snapshot(files.read(path)))
            except (CorruptDataError, FileNotFoundError):
                pass  # the one before is older and covers less; the log has the rest
            else:
                return offset
        elif offset <= log_start_offset:
            break
        snapshots.remove(offset)
        try:
            files.remove(path)
        except FileNotFoundError:
            continue
    producers.reset(log_start_offset)
    return log_start_offset


def _replay(producers: ProducerState, segment: Segment, start: int) -> None:
    first = segment.locate(start)
    if first is None:
        return
    segment.transactions.truncate(max(start, segment.base_offset))
    for position, header in segment.headers(first.position):
        if header.producer_id >= 0 and header.base_offset >= start:
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
    try:
        marker = read_end_marker(segment.file.read_at(position, header.size_bytes))
    except CorruptDataError:
        return  # compaction took its record away: no transaction ends here
    if marker is None:
        return
    completed = producers.add_marker(
        header.producer_id,
        header.producer_epoch,
        marker.coordinator_epoch,
        header.base_offset,
        header.max_timestamp,
        marker.is_abort,
    )
    if completed is None:
        return
    if completed.is_aborted:
        stable = producers.last_stable_offset_after(completed)
        segment.transactions.append(
            AbortedTransaction(completed.producer_id, completed.first_offset, completed.last_offset, stable)
        )
    producers.complete(completed)
