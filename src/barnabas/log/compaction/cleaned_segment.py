"""A segment that compaction writes, and how it takes the place of those it was made from.

Kafka: UnifiedLog.replaceSegments.

1. Its files are written under ``.cleaned`` names and synced. A crash leaves nothing but
   these: recovery removes them.
2. They are renamed to ``.swap``, the .log last: the point of no return. From here recovery
   completes the swap: it removes the old segments that begin within the range of offsets of the
   .log, and gives the files their plain names.
3. The files of the old segments are renamed to ``.deleted``, oldest first. What a crash leaves of
   them is the newer end, whole, so that no delete marker is gone before the value it deletes.
4. The .swap files get their plain names, the .log first.

Nothing waits for the disk in 2 to 4; the folder is synced afterwards, before another group of the
same log is swapped, for groups depend on one another in their order.
"""

from collections.abc import Iterable, Sequence

from barnabas.base.files import Buffer, File, Files
from barnabas.log.deletions import remove_files
from barnabas.log.names import CLEANED, INDEX, LOG, SWAP, TIME_INDEX, TXN_INDEX, file_name
from barnabas.log.segment.offset_index import OffsetIndex
from barnabas.log.segment.time_index import TimeIndex
from barnabas.log.segment.transaction_index import AbortedTransaction, encode_transactions

__all__ = ["BatchEntry", "CleanedFiles", "CleanedSegment", "remove_cleaned"]

BatchEntry = tuple[int, int, int]
"""What the indexes ask of a batch: its bytes, its last offset and its largest timestamp."""


class CleanedSegment:
    """One group's new segment, as it is written."""

    __slots__ = (
        "_base_offset",
        "_bytes_since_entry",
        "_directory",
        "_file",
        "_files",
        "_index",
        "_index_interval_bytes",
        "_largest",
        "_time_index",
        "size",
    )

    def __init__(self, files: Files, directory: str, base_offset: int, index_interval_bytes: int) -> None:
        """Raises `OSError`."""
        self._files = files
        self._directory = directory
        self._base_offset = base_offset
        self._index_interval_bytes = index_interval_bytes
        remove_files(files, [self._path(suffix + CLEANED) for suffix in (TXN_INDEX, TIME_INDEX, INDEX, LOG)])
        self._file: File = files.open(self._path(LOG + CLEANED), create=True)
        self._index, self._time_index = OffsetIndex(), TimeIndex()
        self._largest = (-1, base_offset)
        self._bytes_since_entry = 0
        self.size = 0

    def _path(self, suffix: str) -> str:
        return f"{self._directory}/{file_name(self._base_offset, suffix)}"

    def append(self, batches: Sequence[Buffer], entries: Iterable[BatchEntry]) -> None:
        """Write batches at the end, of which these are the entries. Raises `OSError`."""
        if not batches:
            return
        self._file.append(batches)
        position, since_entry = self.size, self._bytes_since_entry
        base_offset, interval = self._base_offset, self._index_interval_bytes
        largest, entered = self._largest[0], -1
        for size_bytes, last_offset, max_timestamp in entries:
            if max_timestamp > largest:
                largest = max_timestamp
                self._largest = (largest, last_offset - base_offset)
            if since_entry > interval:
                self._index.append(last_offset - base_offset, position)
                if largest > entered:
                    entered = largest
                    self._time_index.append(*self._largest)
                since_entry = 0
            since_entry += size_bytes
            position += size_bytes
        self.size, self._bytes_since_entry = position, since_entry

    def sync(self) -> None:
        """Sync the batches, which takes long, and write no more of them. Raises `OSError`."""
        self._file.sync()
        self._file.close()

    def finish(self, aborted: list[AbortedTransaction]) -> tuple[str, ...]:
        """Write and sync the indexes.

        Returns the suffixes of all files, the .log last. Raises `OSError`."""
        if self._largest[0] >= 0:
            self._time_index.append(*self._largest)
        self._write(INDEX, self._index.encode())
        self._write(TIME_INDEX, self._time_index.encode())
        if not aborted:
            return (TIME_INDEX, INDEX, LOG)
        self._write(TXN_INDEX, encode_transactions(aborted))
        return (TXN_INDEX, TIME_INDEX, INDEX, LOG)

    def _write(self, suffix: str, data: bytes) -> None:
        file = self._files.open(self._path(suffix + CLEANED), create=True)
        try:
            file.append([data])
            file.sync()
        finally:
            file.close()

    def close(self) -> None:
        """Write no more. Raises `OSError`."""
        self._file.close()


class CleanedFiles:
    """A segment that is written, and takes the place of others. On the log's thread."""

    __slots__ = ("_base_offset", "_directory", "_files", "_suffixes", "size")

    def __init__(self, files: Files, directory: str, base_offset: int, suffixes: Sequence[str], size: int) -> None:
        """``suffixes`` are those of its files, the .log last."""
        self._files = files
        self._directory = directory
        self._base_offset = base_offset
        self._suffixes = suffixes
        self.size = size

    def _path(self, suffix: str) -> str:
        return f"{self._directory}/{file_name(self._base_offset, suffix)}"

    def rename_to_swap(self) -> None:
        """Pass the point of no return. Raises `OSError`."""
        for suffix in self._suffixes:
            self._files.rename(self._path(suffix + CLEANED), self._path(suffix + SWAP))

    def rename_to_plain(self) -> None:
        """Take the names of the segments that were replaced. Raises `OSError`."""
        for suffix in reversed(self._suffixes):
            self._files.rename(self._path(suffix + SWAP), self._path(suffix))


def remove_cleaned(files: Files, directory: str) -> None:
    """Remove what a compaction wrote and did not swap in. Raises `OSError`."""
    try:
        names = files.list(directory)
    except FileNotFoundError:
        return  # the folder was deleted or moved, and they with it
    remove_files(files, [f"{directory}/{name}" for name in names if name.endswith(CLEANED)])
