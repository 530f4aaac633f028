"""Batches that do not fit their neighbours are put right, where it is certain what they were.
Kafka: no counterpart.

`barnabas.log.segment.mending` says what a batch must have been; here the file is written, and an
error line names it. Two walks use it, which differ in what they read and in what they do where a
batch cannot be put right:

- `sound_batches`, for recovery: reads every byte, because what was being written at a crash may be
  anything. The batches end there.
- `barnabas.log.segment_checks`, before old records are read for the first time: reads headers only,
  from any batch on. The offsets cannot be read, and the walk goes on behind them.
"""

import logging
from collections.abc import Iterator

from barnabas.log.leader_epochs import LeaderEpochs
from barnabas.log.segment.batches import scan_valid
from barnabas.log.segment.mending import BatchPlace, following, is_doubtful, mended, mended_epoch
from barnabas.log.segment.segment import Segment
from barnabas.wire.kafka.records.batch_header import HEADER, HEADER_BYTES, BatchHeader, read_header

__all__ = ["mend_batch", "sound_batches", "write_mended"]

logger = logging.getLogger(__name__)


def sound_batches(
    segment: Segment, position: int, place: BatchPlace, epochs: LeaderEpochs, *, is_entry: bool
) -> Iterator[tuple[int, BatchHeader]]:
    """(position, header) of the batches from a position on.

    Raises `OSError`, `CorruptDataError` (see `scan_valid`). ``place`` describes the first one. With
    ``is_entry`` an index entry points to it, and it is not known where the batch before it ended.
    ``epochs`` may grow meanwhile.
    """
    file, end = segment.file, segment.size
    while position < end:
        for at, found in scan_valid(file, position, end, place.next_offset, place.max_offset):
            header = None
            if not is_entry and is_doubtful(file, at, end, found, place):
                header = mend_batch(segment, at, found, place, epochs)
            if header is None:
                header = _with_epoch(segment, at, found, epochs, place)
                if header != found:
                    write_mended(segment, at, found, header)
            is_entry = False
            position = at + header.size_bytes
            place = place._replace(next_offset=header.last_offset + 1)
            yield at, header
            if header.base_offset != found.base_offset:
                break  # the scan goes on from where the batch seemed to end
        else:
            if end - position < HEADER_BYTES or is_entry:
                return
            found = read_header(file.read_at(position, HEADER_BYTES))
            if mend_batch(segment, position, found, place, epochs) in (None, found):
                return


def mend_batch(
    segment: Segment, position: int, found: BatchHeader, place: BatchPlace, epochs: LeaderEpochs
) -> BatchHeader | None:
    """The header of the batch at a position as it must have been, which the file has from now on;
    None if that is not certain.

    ``found`` is what stands there. Raises `OSError`.
    """
    header = mended(segment.file, position, segment.size, place)
    if header is None or not segment.base_offset <= header.base_offset <= header.last_offset <= place.max_offset:
        return None
    header = _with_epoch(segment, position, header, epochs, place)
    if header != found:
        write_mended(segment, position, found, header)
    return header


def _with_epoch(segment: Segment, at: int, header: BatchHeader, epochs: LeaderEpochs, place: BatchPlace) -> BatchHeader:
    known = epochs.epoch_for(header.base_offset)
    if header.leader_epoch == known:
        return header
    position = at + header.size_bytes
    behind = following(segment.file, position, segment.size, place)
    second = None
    if behind is not None and position < segment.size:
        second = following(segment.file, position + behind.size_bytes, segment.size, place)
    epoch = mended_epoch(header.leader_epoch, known, behind, second, may_be_stale=place.may_be_stale)
    return header if epoch is None else header._replace(leader_epoch=epoch)


def write_mended(segment: Segment, position: int, found: BatchHeader, header: BatchHeader) -> None:
    """Write a header again, synced. Raises `OSError`."""
    fields = (
        ("base offset", found.base_offset, header.base_offset),
        ("length", found.length, header.length),
        ("leader epoch", found.leader_epoch, header.leader_epoch),
        ("magic", found.magic, header.magic),
    )
    changes = ", ".join(f"{name} {is_now} in place of {was}" for name, is_now, was in fields if is_now != was)
    logger.error(
        "%s is damaged at byte %d, in the header of the batch with offsets %d to %d: %s. "
        "The batch's checksum and its neighbours show what was there, and it is written again",
        segment.path,
        position,
        header.base_offset,
        header.last_offset,
        changes,
    )
    segment.file.write_at(position, HEADER.pack(*header))
    segment.file.sync()
