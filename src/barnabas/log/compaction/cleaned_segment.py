"""A segment that compaction writes, and how it takes the place of those it was made from. Kafka: UnifiedLog.replaceSegments.

1. Its files are written under ``.cleaned`` names and synced. A crash leaves nothing but these: recovery removes them.
2. They are renamed to ``.swap``, the .log last: the point of no return. From here recovery completes the swap: it
   removes the old segments that begin within the range of offsets of the .log, and gives the files their plain names.
3. The files of the old segments are renamed to ``.deleted``, oldest first. What a crash leaves of them is the newer end, whole, so that no delete
   marker is gone before the value it deletes.
4. The .swap files get their plain names, the .log first.

Nothing waits for the disk in 2 to 4; the folder is synced afterwards, before another group of the same log is swapped,
for groups depend on one another in their order.
"""

from barnabas.base.files import Buffer, File, Files
from barnabas.log.deletions import remove_files
from barnabas.log.names import CLEANED, INDEX, LOG, SWAP, TIME_INDEX, TXN_INDEX, file_name
from barnabas.log.segment.offset_index import OffsetIndex
from barnabas.log.segment.time_index import TimeIndex
from barnabas.log.segment.transaction_index import AbortedTransaction, encode_transactions
from barnabas.wire.kafka.records.batch_header import BatchHeader

__all__ = ["CleanedSegment"]


class CleanedSegment:
    """One group's new segment: written in any thread, installed on the log's own."""

    __slots__ = (
        "_base_offset",
        "_bytes_since_entry",
        "_directory",
        "_file",
        "_files",
        "_index",
        "_index_interval_bytes",
        "_largest",
        "_suffixes",
        "_time_index",
        "size",
    )

    def __init__(self, files: Files, directory: str, base_offset: int, index_interval_bytes: int) -> None:
        """Raises `OSError`."""
        self._files = files
        self._directory = directory
        self._base_offset = base_offset
        self._index_interval_bytes = index_interval_bytes
        self._suffixes: list[str] = [TXN_INDEX, TIME_INDEX, INDEX, LOG]
        remove_files(files, [self._path(suffix + CLEANED) for suffix in self._suffixes])
        self._file: File = files.open(self._path(LOG + CLEANED), create=True)
        self._index, self._time_index = OffsetIndex(), TimeIndex()
        self._largest = (-1, base_offset)
        self._bytes_since_entry = 0
        self.size = 0

    def _path(self, suffix: str) -> str:
        return f"{self._directory}/{file_name(self._base_offset, suffix)}"

    def append(self, batches: list[Buffer], headers: list[BatchHeader]) -> None:
        """Write batches at the end; the headers are theirs. Raises `OSError`."""
        if not batches:
            return
        self._file.append(batches)
        for batch, header in zip(batches, headers, strict=True):
            relative = header.last_offset - self._base_offset
            if header.max_timestamp > self._largest[0]:
                self._largest = (header.max_timestamp, relative)
            if self._bytes_since_entry > self._index_interval_bytes:
                self._index.append(relative, self.size)
                self._time_index.append(*self._largest)
                self._bytes_since_entry = 0
            self._bytes_since_entry += len(batch)
            self.size += len(batch)

    def finish(self, aborted: list[AbortedTransaction]) -> None:
        """Complete all files and sync them. Raises `OSError`."""
        if self._largest[0] >= 0:
            self._time_index.append(*self._largest)
        self._file.sync()
        self._file.close()
        self._write(INDEX, self._index.encode())
        self._write(TIME_INDEX, self._time_index.encode())
        if aborted:
            self._write(TXN_INDEX, encode_transactions(aborted))
        else:
            self._suffixes.remove(TXN_INDEX)

    def _write(self, suffix: str, data: bytes) -> None:
        file = self._files.open(self._path(suffix + CLEANED), create=True)
        try:
            file.append([data])
            file.sync()
        finally:
            file.close()

    def discard(self) -> None:
        """Remove the files. Raises `OSError`."""
        self._file.close()
        remove_files(self._files, [self._path(suffix + CLEANED) for suffix in (LOG, INDEX, TIME_INDEX, TXN_INDEX)])

    def rename_to_swap(self) -> None:
        """Pass the point of no return. Raises `OSError`."""
        for suffix in self._suffixes:
            self._files.rename(self._path(suffix + CLEANED), self._path(suffix + SWAP))

    def rename_to_plain(self) -> None:
        """Take the names of the segments that were replaced. Raises `OSError`."""
        for suffix in reversed(self._suffixes):
            self._files.rename(self._path(suffix + SWAP), self._path(suffix))
