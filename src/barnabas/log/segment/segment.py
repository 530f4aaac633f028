"""One segment of a log: the .log file with its indexes, named by the offset of its first record. Kafka: LogSegment.

A segment knows its size and the largest timestamp; its file is opened when it is used, its indexes are read when they
are needed. Of the active segment the indexes live in memory and reach their files a few entries at a time, and wholly
when the segment is closed, rolled or flushed: until then a crash may take them, and recovery, which checks every batch
past the recovery point anyway, makes them again.

An index that does not fit its log is never trusted: a look-up verifies that a batch begins where the entry says, and a
segment whose index is wrong is indexed again from its batches.
"""

from collections.abc import Callable, Iterator
from typing import NamedTuple

from barnabas.base.files import Buffer, File, is_descriptor_shortage
from barnabas.log.names import INDEX, LOG, SEGMENT_SUFFIXES, TIME_INDEX, file_name
from barnabas.log.segment.batches import LOCATOR, Located, MisplacedEntryError, locate, scan_headers
from barnabas.log.segment.folder import Folder
from barnabas.log.segment.offset_index import MAX_RELATIVE, OFFSET_ENTRY_BYTES, OffsetIndex
from barnabas.log.segment.open_files import OpenFiles
from barnabas.log.segment.time_index import TIME_ENTRY_BYTES, TimeIndex
from barnabas.log.segment.transaction_index import TransactionIndex
from barnabas.wire.kafka.records.batch_header import HEADER_BYTES, BatchHeader

__all__ = ["Segment", "TimestampedOffset"]

_MAX_POSITION = (1 << 31) - 1
_PENDING_ENTRIES = 64
_REMEMBERED_BATCHES = 32


class TimestampedOffset(NamedTuple):
    """A largest timestamp and the last offset of the batch that brought it."""

    timestamp_ms: int
    offset: int


class Segment:
    """See the module. Positions are bytes in the .log file; offsets are absolute unless named relative."""

    __slots__ = (
        "_bytes_since_entry",
        "_first_timestamp_ms",
        "_folder",
        "_index",
        "_max_timestamp",
        "_open_files",
        "_starts",
        "_time_index",
        "base_offset",
        "created_ms",
        "is_active",
        "jitter_ms",
        "path",
        "size",
        "transactions",
    )

    def __init__(
        self,
        folder: Folder,
        open_files: OpenFiles,
        base_offset: int,
        size: int,
        *,
        created_ms: int,
        name_suffix: str = "",
    ) -> None:
        """``name_suffix`` follows the name of the .log file: that of a compaction under way."""
        self._folder = folder
        self._open_files = open_files
        self.base_offset = base_offset
        self.path = folder.path(file_name(base_offset, LOG) + name_suffix)
        self.size = size
        self.created_ms = created_ms
        self.jitter_ms = 0
        self.is_active = False
        """Whether the segment may be appended to: its index files need not be complete."""
        self.transactions = TransactionIndex(folder, base_offset)
        self._index: OffsetIndex | None = None
        self._time_index: TimeIndex | None = None
        self._max_timestamp: TimestampedOffset | None = None
        self._first_timestamp_ms: int | None = None
        self._bytes_since_entry = 0
        self._starts: dict[int, int] = {}
        """Base offset -> position of the last few batches, where the next reads will begin."""

    def __repr__(self) -> str:
        return f"Segment({self.path!r}, size={self.size})"

    # ---- files

    def file_path(self, suffix: str) -> str:
        """The path of one of the segment's files."""
        return self._folder.path(file_name(self.base_offset, suffix))

    @property
    def file(self) -> File:
        """The open .log file."""
        return self._open_files.get(self.path)

    @property
    def max_offset(self) -> int:
        """The largest offset that the indexes can hold."""
        return self.base_offset + MAX_RELATIVE

    def moved(self) -> None:
        """The folder was renamed."""
        self._open_files.forget(self.path)
        self.path = self.file_path(LOG)

    def use_open_files(self, open_files: OpenFiles) -> None:
        """Keep the open file and the loaded indexes among others from now on."""
        self.forget()
        self.drop_indexes()
        self._open_files = open_files

    def activate(self) -> None:
        """The segment is appended to from now on."""
        self.is_active = True

    def deactivate(self) -> None:
        """The segment is closed: no append reaches it any more."""
        self.is_active = False

    def set_jitter(self, jitter_ms: int) -> None:
        """Roll earlier than segment.ms by so much."""
        self.jitter_ms = jitter_ms

    def remove_files(self) -> None:
        """Remove all files of the segment. Raises `OSError`."""
        self.forget()
        files = self._folder.files
        for suffix in SEGMENT_SUFFIXES:
            path = self.file_path(suffix)
            if files.exists(path):
                files.remove(path)

    def forget(self) -> None:
        """The files are about to be renamed or removed."""
        self._open_files.forget(self.path)
        self._open_files.forget_segment(self)

    # ---- writing

    def append(
        self,
        batch: Buffer,
        size: int,
        first_offset: int,
        last_offset: int,
        max_timestamp_ms: int,
        index_interval_bytes: int,
    ) -> None:
        """Write a batch at the end, and an index entry when enough was written since the last. Raises `OSError`."""
        known = self._max_timestamp
        if known is None or self._index is None:
            known = self.max_timestamp  # what has to be read, and may fail, comes before the batch is written
            self._load_indexes()
        position = self.size
        self._open_files.get(self.path).append((batch,))
        self.size = position + size
        if position == 0:
            self._first_timestamp_ms = max_timestamp_ms
        if max_timestamp_ms > known.timestamp_ms:
            self._max_timestamp = TimestampedOffset(max_timestamp_ms, last_offset)
        starts = self._starts
        if len(starts) >= _REMEMBERED_BATCHES:
            starts.clear()
        starts[first_offset] = position
        if self._bytes_since_entry > index_interval_bytes:
            self._add_entry(last_offset, position)
            self._bytes_since_entry = 0
        self._bytes_since_entry += size
        if position == 0:
            # Tools read the indexes of a log in use, so the files are there as soon as there are records.
            self._unless_descriptors_are_short(self.finish_indexes)

    def _add_entry(self, last_offset: int, position: int) -> None:
        index, time_index = self.index, self.time_index
        index.append(last_offset - self.base_offset, position)
        timestamp_ms, offset = self.max_timestamp
        time_index.append(timestamp_ms, offset - self.base_offset)
        if len(index.offsets) - index.persisted >= _PENDING_ENTRIES:
            self._unless_descriptors_are_short(self.write_indexes)

    @staticmethod
    def _unless_descriptors_are_short(write: Callable[[], None]) -> None:
        """Write index files, or leave that to the next time: the batch is written already. Raises `OSError`."""
        try:
            write()
        except OSError as error:
            if not is_descriptor_shortage(error):
                raise

    def write_indexes(self) -> None:
        """Bring the index files up to the indexes in memory. Raises `OSError`."""
        self.transactions.write()
        for suffix, index, entry_bytes in (
            (INDEX, self._index, OFFSET_ENTRY_BYTES),
            (TIME_INDEX, self._time_index, TIME_ENTRY_BYTES),
        ):
            if index is None or index.persisted == len(index):
                continue
            file = self._folder.files.open(self.file_path(suffix), create=True)
            try:
                end = index.persisted * entry_bytes
                if file.size() != end:
                    file.truncate(end)
                file.append([index.encode(index.persisted)])
            finally:
                file.close()
            index.mark_persisted()

    @property
    def has_index_entries(self) -> bool:
        """Whether the indexes are in memory and not empty; others did not change lately."""
        return bool(self._time_index)

    def finish_indexes(self) -> None:
        """Complete both index files: the time index ends with the segment's largest timestamp."""
        if self.size:
            largest = self.max_timestamp
            if largest.timestamp_ms >= 0:
                self.time_index.append(largest.timestamp_ms, largest.offset - self.base_offset)
        self.write_indexes()
        for suffix, index, entry_bytes in (
            (INDEX, self._index, OFFSET_ENTRY_BYTES),
            (TIME_INDEX, self._time_index, TIME_ENTRY_BYTES),
        ):
            path = self.file_path(suffix)
            wanted = len(index) * entry_bytes if index is not None else None
            actual = self._folder.files.size(path) if self._folder.files.exists(path) else None
            if actual is None or (wanted is not None and actual != wanted):
                file = self._folder.files.open(path, create=True)
                file.truncate(wanted or 0)
                file.close()

    def truncate(self, position: int, offset: int) -> None:
        """Cut the log at a position; ``offset`` is the first that goes. Raises `OSError`.

        What needs a file descriptor comes first: without one nothing is cut, and the indexes are only sparser.
        """
        index, time_index, file = self.index, self.time_index, self.file
        index.truncate(max(0, offset - self.base_offset))
        time_index.truncate(max(0, offset - self.base_offset))
        self._cut_index_files()
        self.transactions.truncate(offset)
        file.truncate(position)
        self.size = position
        self._starts.clear()
        self._max_timestamp = None
        self._bytes_since_entry = 0
        if position == 0:
            self._first_timestamp_ms = None
        self._max_timestamp = self._find_max_timestamp()

    def _cut_index_files(self) -> None:
        for suffix, index, entry_bytes in (
            (INDEX, self._index, OFFSET_ENTRY_BYTES),
            (TIME_INDEX, self._time_index, TIME_ENTRY_BYTES),
        ):
            path = self.file_path(suffix)
            if (
                index is not None
                and self._folder.files.exists(path)
                and self._folder.files.size(path) > index.persisted * entry_bytes
            ):
                file = self._folder.files.open(path)
                file.truncate(index.persisted * entry_bytes)
                file.close()

    # ---- indexes

    @property
    def index(self) -> OffsetIndex:
        """The offset index, read or made if it is not in memory."""
        if self._index is None:
            self._load_indexes()
        assert self._index is not None
        return self._index

    @property
    def time_index(self) -> TimeIndex:
        """The time index, read or made if it is not in memory."""
        if self._time_index is None:
            self._load_indexes()
        assert self._time_index is not None
        return self._time_index

    def _read_prefix(self, suffix: str, max_bytes: int) -> bytes | None:
        path = self.file_path(suffix)
        try:
            file = self._folder.files.open(path, read_only=True)
        except FileNotFoundError:
            return None
        try:
            return file.read_at(0, min(max_bytes, file.size()))
        finally:
            file.close()

    def _load_indexes(self) -> None:
        """Read or make both indexes, unless they are in memory. Raises `OSError`."""
        if self._index is not None and self._time_index is not None:
            return
        if not self.size:
            self._index, self._time_index = OffsetIndex(), TimeIndex()
            return
        most_batches = self.size // HEADER_BYTES + 2
        offsets = self._read_prefix(INDEX, most_batches * OFFSET_ENTRY_BYTES)
        times = self._read_prefix(TIME_INDEX, most_batches * TIME_ENTRY_BYTES)
        if offsets is None or times is None or (not times and not self.is_active):
            # A closed segment has at least the time entry of its end: these files are not what was written.
            self.rebuild_indexes()
        else:
            self._index = OffsetIndex.decode(offsets, self.size)
            self._time_index = TimeIndex.decode(times, MAX_RELATIVE)
            last_offset, position = self._index.floor(MAX_RELATIVE)
            is_whole = self.is_active or (
                len(offsets) == len(self._index) * OFFSET_ENTRY_BYTES
                and len(times) == len(self._time_index) * TIME_ENTRY_BYTES
            )
            if not is_whole or (position and not self._is_batch_at(position, last_offset)):
                self.rebuild_indexes()
        if not self.is_active:
            self._open_files.indexes_loaded(self)

    def _is_batch_at(self, position: int, relative_last_offset: int) -> bool:
        header = self.file.read_at(position, LOCATOR.size)
        if len(header) < LOCATOR.size:
            return False
        base_offset, _, delta = LOCATOR.unpack(header)
        return bool(base_offset + delta == self.base_offset + relative_last_offset)

    def rebuild_indexes(self, index_interval_bytes: int = 4096) -> None:
        """Make both indexes from the batches' headers and replace their files."""
        self._index, self._time_index = OffsetIndex(), TimeIndex()
        self._max_timestamp = TimestampedOffset(-1, self.base_offset)
        self._bytes_since_entry = 0
        for position, header in self.headers(0):
            self.index_batch(position, header, index_interval_bytes)
        self._cut_index_files()
        self.finish_indexes()

    def index_batch(self, position: int, header: BatchHeader, index_interval_bytes: int) -> None:
        """Take a batch that is in the file already into the indexes (recovery)."""
        if position == 0:
            self._first_timestamp_ms = header.max_timestamp
        if header.max_timestamp > self.max_timestamp.timestamp_ms:
            self._max_timestamp = TimestampedOffset(header.max_timestamp, header.last_offset)
        if self._bytes_since_entry > index_interval_bytes:
            self.index.append(header.last_offset - self.base_offset, position)
            timestamp_ms, offset = self.max_timestamp
            self.time_index.append(timestamp_ms, offset - self.base_offset)
            self._bytes_since_entry = 0
        self._bytes_since_entry += header.size_bytes

    def restart_indexes_at(self, position: int, offset: int) -> None:
        """Keep the entries before a batch; the batches from there on will be indexed again."""
        self.index.truncate(max(0, offset - self.base_offset))
        self.time_index.truncate(max(0, offset - self.base_offset))
        self._cut_index_files()
        if position == 0:
            self._max_timestamp = TimestampedOffset(-1, self.base_offset)
        else:
            self._max_timestamp = self._find_max_timestamp(position)
        self._bytes_since_entry = 0

    def drop_indexes(self) -> None:
        """Free the memory of the indexes; they are read again when needed."""
        if not self.is_active:
            self._index = self._time_index = None

    # ---- reading

    def headers(self, position: int) -> "Iterator[tuple[int, BatchHeader]]":
        """(position, header) of the batches from a position on, without checks of their contents.

        Ends where the bytes are no batch, or one with offsets that cannot stand in this segment.
        """
        base_offset, max_offset = self.base_offset, self.max_offset
        for at, header in scan_headers(self.file, position, self.size):
            if not base_offset <= header.base_offset <= header.last_offset <= max_offset:
                return
            yield at, header

    def locate(self, offset: int) -> Located | None:
        """The first batch whose last offset is ``offset`` or later, None when the segment ends before."""
        position = self._starts.get(offset)
        if position is not None and position < self.size:
            return locate(self.file, position, self.size, offset)
        relative, position = self.index.floor(offset - self.base_offset)
        if not position:
            return locate(self.file, 0, self.size, offset)
        try:
            return locate(self.file, position, self.size, offset, entry_offset=self.base_offset + relative)
        except MisplacedEntryError:
            self.rebuild_indexes()
            return locate(self.file, self.index.floor(offset - self.base_offset)[1], self.size, offset)

    def start_of(self, offset: int) -> int | None:
        """The position of the batch that begins exactly at an offset, if it is remembered."""
        return self._starts.get(offset)

    def remember(self, offset: int, position: int) -> None:
        """A batch begins, or the next will begin, at a position."""
        if len(self._starts) >= _REMEMBERED_BATCHES:
            self._starts.clear()
        self._starts[offset] = position

    def next_offset(self) -> int:
        """The offset after the segment's last record; its base offset when it is empty."""
        return self._last_end()[0]

    def ends_whole(self) -> bool:
        """Whether the file ends with a whole batch, as far as headers show."""
        return self._last_end()[1] == self.size

    def _last_end(self) -> tuple[int, int]:
        """The offset and the position after the last batch."""
        position = self.index.floor(MAX_RELATIVE)[1] if self.size else 0
        next_offset = self.base_offset
        for at, header in self.headers(position):
            next_offset, position = header.last_offset + 1, at + header.size_bytes
        return next_offset, position

    @property
    def max_timestamp(self) -> TimestampedOffset:
        """The largest timestamp and its batch's last offset; -1 when the segment has none."""
        if self._max_timestamp is None:
            self._max_timestamp = self._find_max_timestamp()
        return self._max_timestamp

    def _find_max_timestamp(self, end: int | None = None) -> TimestampedOffset:
        """From the time index, and from the batches after its last entry (to a position): its end may be missing."""
        largest = TimestampedOffset(-1, self.base_offset)
        if not self.size:
            return largest
        time_index = self.time_index
        position = 0
        if len(time_index):
            largest = TimestampedOffset(time_index.timestamps[-1], self.base_offset + time_index.offsets[-1])
            position = self.index.floor(largest.offset - self.base_offset)[1]
        for at, header in self.headers(position):
            if end is not None and at >= end:
                break
            if header.max_timestamp > largest.timestamp_ms:
                largest = TimestampedOffset(header.max_timestamp, header.last_offset)
        return largest

    def last_write_ms(self) -> int:
        """The largest timestamp, or the file's time where records carry none: what retention goes by."""
        timestamp_ms = self.max_timestamp.timestamp_ms
        return timestamp_ms if timestamp_ms >= 0 else self._folder.files.modified_ms(self.path)

    # ---- rolling

    def must_roll(
        self,
        size: int,
        last_offset: int,
        max_timestamp_ms: int,
        now_ms: int,
        segment_bytes: int,
        segment_ms: int,
        max_index_bytes: int,
    ) -> bool:
        """Whether batches of ``size`` bytes up to ``last_offset`` must begin a new segment."""
        if self.size > segment_bytes - size or last_offset - self.base_offset > MAX_RELATIVE:
            return True
        if self.size > _MAX_POSITION - size:
            return True
        if self.size and self._waited_ms(max_timestamp_ms, now_ms) > segment_ms - self.jitter_ms:
            return True
        index = self._index
        return index is not None and (
            len(index.offsets) >= max_index_bytes // OFFSET_ENTRY_BYTES
            or len(self.time_index.offsets) >= max_index_bytes // TIME_ENTRY_BYTES - 1
        )

    def _waited_ms(self, max_timestamp_ms: int, now_ms: int) -> int:
        """How far time has come since the first batch, by record timestamps where there are any."""
        first = self._first_timestamp_ms
        if first is None and self.size:
            first = next((header.max_timestamp for _, header in self.headers(0)), -1)
            self._first_timestamp_ms = first
        if first is not None and first >= 0:
            return max_timestamp_ms - first
        return now_ms - self.created_ms

    def first_timestamp_ms(self) -> int:
        """The largest timestamp of the first batch, -1 when there is none."""
        self._waited_ms(0, 0)
        return -1 if self._first_timestamp_ms is None else self._first_timestamp_ms
