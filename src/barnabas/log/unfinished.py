"""Undoes or completes what the last stop of a broker interrupted in a partition's folder.

Deletions (``.deleted``), compactions before (``.cleaned``) and after (``.swap``)
their point of no return.

In Kafka: `LogLoader.removeTempFilesAndCollectSwapFiles`, `completeSwapOperations`.
"""

from collections.abc import Iterable

from barnabas.log.names import CLEANED, DELETED, LOG, SEGMENT_SUFFIXES, SWAP, UNFINISHED, base_offset_of
from barnabas.log.segment.folder import Folder
from barnabas.log.segment.open_files import OpenFiles
from barnabas.log.segment.segment import Segment

__all__ = ["finish_interrupted", "remove_deleted"]


def finish_interrupted(folder: Folder, open_files: OpenFiles, names: list[str], now_ms: int) -> list[str]:
    """Undo or complete what was compacted; returns the names that are there then.

    What was deleted stays for `remove_deleted`."""
    files, directory = folder.files, folder.directory
    odd = [name for name in names if name.endswith((*UNFINISHED, ".tmp"))]
    if not odd:
        return names
    cleaned = [offset for name in odd if name.endswith(CLEANED) and (offset := base_offset_of(name)) is not None]
    # A compaction is past its point of no return when its last .cleaned became .swap.
    undone = min(cleaned, default=1 << 63)
    swaps = []
    for name in odd:
        if name.endswith(SWAP) and (base_offset_of(name) or 0) < undone:
            swaps.append(name)
        elif not name.endswith(DELETED):
            files.remove(f"{directory}/{name}")
    for name in swaps:
        if name.endswith(LOG + SWAP):
            _remove_compacted(folder, open_files, name, now_ms)
    for name in swaps:
        files.rename(f"{directory}/{name}", f"{directory}/{name.removesuffix(SWAP)}")
    return files.list(directory)


def _remove_compacted(folder: Folder, open_files: OpenFiles, swap: str, now_ms: int) -> None:
    """Remove the segments that a swapped one stands for: those that begin in its
    range of offsets."""
    base_offset = base_offset_of(swap)
    assert base_offset is not None
    files = folder.files
    size = files.size(folder.path(swap))
    segment = Segment(folder, open_files, base_offset, size, created_ms=now_ms, name_suffix=SWAP)
    end = base_offset + 1
    for _, header in segment.headers(0):
        end = header.last_offset + 1
    segment.forget()
    for name in files.list(folder.directory):
        offset = base_offset_of(name)
        if offset is not None and base_offset <= offset < end and name.endswith(SEGMENT_SUFFIXES):
            files.remove(folder.path(name))


def remove_deleted(folder: Folder, names: Iterable[str]) -> None:
    """Remove what was deleted before this start.

    It explains where the log begins until the leader epochs say so."""
    for name in names:
        if name.endswith(DELETED):
            folder.files.remove(folder.path(name))
