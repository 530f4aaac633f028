"""The offset index and the time index of one segment, in memory and in their files.

Kafka: LazyIndex, AbstractIndex.

Both are in memory, or neither. `Segment` decides when they are read, and makes them again when
they do not fit its log.
"""

from barnabas.log.names import INDEX, TIME_INDEX, file_name
from barnabas.log.segment.folder import Folder
from barnabas.log.segment.offset_index import MAX_RELATIVE, OFFSET_ENTRY_BYTES, OffsetIndex
from barnabas.log.segment.time_index import TIME_ENTRY_BYTES, TimeIndex

__all__ = ["SegmentIndexes"]


class SegmentIndexes:
    """Offsets are relative to the segment's base offset.

    Every method that touches a file raises `OSError`."""

    __slots__ = ("_base_offset", "_folder", "offsets", "times")

    def __init__(self, folder: Folder, base_offset: int) -> None:
        self._folder = folder
        self._base_offset = base_offset
        self.offsets: OffsetIndex | None = None
        """None while the indexes are not in memory. For reading."""
        self.times: TimeIndex | None = None
        """None while the indexes are not in memory. For reading."""

    def _path(self, suffix: str) -> str:
        return self._folder.path(file_name(self._base_offset, suffix))

    def _loaded(self) -> tuple[tuple[str, OffsetIndex | TimeIndex, int], ...]:
        """(suffix, index, bytes of an entry) of each index in memory."""
        if self.offsets is None or self.times is None:
            return ()
        return (INDEX, self.offsets, OFFSET_ENTRY_BYTES), (TIME_INDEX, self.times, TIME_ENTRY_BYTES)

    # ---- in memory

    def clear(self) -> None:
        """Begin with empty indexes in memory."""
        self.offsets, self.times = OffsetIndex(), TimeIndex()

    def drop(self) -> None:
        """Free the memory."""
        self.offsets = self.times = None

    def read(self, log_bytes: int, most_batches: int, *, may_be_incomplete: bool) -> bool:
        """Read both indexes into memory. Returns False when the files are not what was written.

        ``may_be_incomplete``: the segment is appended to, or was until a crash. Every other segment
        has at least the time entry of its end.
        """
        offsets = self._read_prefix(INDEX, most_batches * OFFSET_ENTRY_BYTES)
        times = self._read_prefix(TIME_INDEX, most_batches * TIME_ENTRY_BYTES)
        if offsets is None or times is None or not (times or may_be_incomplete):
            return False
        self.offsets = OffsetIndex.decode(offsets, log_bytes)
        self.times = TimeIndex.decode(times, MAX_RELATIVE)
        return may_be_incomplete or (
            len(offsets) == len(self.offsets) * OFFSET_ENTRY_BYTES and len(times) == len(self.times) * TIME_ENTRY_BYTES
        )

    def _read_prefix(self, suffix: str, max_bytes: int) -> bytes | None:
        try:
            file = self._folder.files.open(self._path(suffix), read_only=True)
        except FileNotFoundError:
            return None
        try:
            return file.read_at(0, min(max_bytes, file.size()))
        finally:
            file.close()

    # ---- in files

    @property
    def paths(self) -> list[str]:
        """The files to sync: both when the indexes are in memory and not empty.

        Others did not change lately."""
        return [self._path(INDEX), self._path(TIME_INDEX)] if self.times else []

    def write(self) -> None:
        """Bring the files up to the indexes in memory."""
        for suffix, index, entry_bytes in self._loaded():
            if index.persisted == len(index):
                continue
            file = self._folder.files.open(self._path(suffix), create=True)
            try:
                end = index.persisted * entry_bytes
                if file.size() != end:
                    file.truncate(end)
                file.append([index.encode(index.persisted)])
            finally:
                file.close()
            index.mark_persisted()

    def complete_files(self) -> None:
        """Make files that are missing, and cut off what follows the entries."""
        sizes = {suffix: len(index) * entry_bytes for suffix, index, entry_bytes in self._loaded()}
        for suffix in (INDEX, TIME_INDEX):
            path, wanted = self._path(suffix), sizes.get(suffix)
            actual = self._folder.files.size(path) if self._folder.files.exists(path) else None
            if actual is None or (wanted is not None and actual != wanted):
                file = self._folder.files.open(path, create=True)
                file.truncate(wanted or 0)
                file.close()

    def cut_files(self) -> None:
        """Cut off the entries that the indexes in memory do not have."""
        for suffix, index, entry_bytes in self._loaded():
            path, end = self._path(suffix), index.persisted * entry_bytes
            if self._folder.files.exists(path) and self._folder.files.size(path) > end:
                file = self._folder.files.open(path)
                file.truncate(end)
                file.close()
