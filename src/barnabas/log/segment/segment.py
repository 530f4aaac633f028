"""One segment of a log: the .log file with its indexes, named by the offset of its first record.

Kafka: LogSegment.

A segment knows its size and the largest timestamp; its file is opened when it is used, its
indexes are read when they are needed. The indexes of the active segment live in memory. They
reach their files a few entries at a time, and wholly when the segment is closed, rolled or
flushed. A crash before that may lose them; recovery checks every batch past the recovery point
anyway, and makes them again.

An index that does not fit its log is never trusted: a look-up verifies that a batch begins where
the entry says, and a segment whose index is wrong is indexed again from its batches.
"""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from barnabas.base.files import Buffer, File, is_descriptor_shortage
from barnabas.log.names import LOG, SEGMENT_SUFFIXES, file_name
from barnabas.log.segment.batches import Located, MisplacedEntryError, is_batch_at, locate, scan_headers
from barnabas.log.segment.folder import Folder
from barnabas.log.segment.indexes import SegmentIndexes
from barnabas.log.segment.offset_index import MAX_RELATIVE, OFFSET_ENTRY_BYTES, OffsetIndex
from barnabas.log.segment.open_files import OpenFiles
from barnabas.log.segment.time_index import TIME_ENTRY_BYTES, TimeIndex
from barnabas.log.segment.transaction_index import TransactionIndex
from barnabas.log.segment.unchecked import Unchecked
from barnabas.log.settings import LogConfig
from barnabas.wire.kafka.records.batch_header import HEADER_BYTES, BatchHeader

__all__ = ["NO_ROOM", "AppendedBatch", "Room", "Segment", "SegmentEnd", "TimestampedOffset"]

_MAX_POSITION = (1 << 31) - 1
_PENDING_ENTRIES = 64
_REMEMBERED_BATCHES = 32
_ANY_TIME = (1 << 63) - 1


AppendedBatch = tuple[int, int, int, int]
"""Size, first and last offset, largest timestamp."""


Room = tuple[int, int, int]
"""What may still be appended to a segment: bytes, offsets and timestamps, each up to
and with these."""
NO_ROOM: Room = (-1, -1, -1)


class TimestampedOffset(NamedTuple):
    """A largest timestamp and the last offset of the batch that brought it."""

    timestamp_ms: int
    offset: int


class SegmentEnd(NamedTuple):
    """Where the whole batches of a segment end, as far as headers show."""

    next_offset: int
    """The offset after the last record; the base offset when there is none."""
    position: int


class Segment:
    """See the module.

    Positions are bytes in the .log file; offsets are absolute unless named relative."""

    __slots__ = (
        "_bytes_since_entry",
        "_first_timestamp_ms",
        "_folder",
        "_max_timestamp",
        "_open_files",
        "base_offset",
        "created_ms",
        "indexes",
        "is_active",
        "jitter_ms",
        "path",
        "size",
        "starts",
        "transactions",
        "unchecked",
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
        """``name_suffix`` follows the name of the .log file while a compaction is under way."""
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
        self.indexes = SegmentIndexes(folder, base_offset)
        self._max_timestamp: TimestampedOffset | None = None
        self._first_timestamp_ms: int | None = None
        self._bytes_since_entry = 0
        self.unchecked = Unchecked(size)
        """What was in the file before this process wrote to it, and was not looked at yet."""
        self.starts: dict[int, int] = {}
        """Base offset -> position of the last few batches, where the next reads will
        begin. For reading."""

    def __repr__(self) -> str:
        return f"Segment({self.path!r}, size={self.size})"

    # ---- files

    def file_path(self, suffix: str) -> str:
        """The path of one of the segment's files."""
        return self._folder.path(file_name(self.base_offset, suffix))

    @property
    def file(self) -> File:
        """The open .log file. Raises FileNotFoundError where it is lost."""
        return self._open_files.get(self.path)

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
        """The segment is closed: no append reaches it any more, and reads look where
        its batches are."""
        self.is_active = False
        self.starts.clear()

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

    def append(self, parts: Sequence[Buffer], batches: Sequence[AppendedBatch], index_interval_bytes: int) -> None:
        """Write batches, whose bytes are ``parts``, at the end, and an index entry when enough
        was written since the last.

        Raises `OSError`; the segment ends then where it ended before, as far as the
        disk lets it be cut.
        """
        known = self._max_timestamp
        if known is None or self.indexes.offsets is None:
            known = self._max_timestamp = (
                self.max_timestamp
            )  # what has to be read, and may fail, comes before the write
            self._load_indexes()
        begun = self.size
        self._open_files.get(self.path).append(parts)
        try:
            if not begun:
                self._first_timestamp_ms = batches[0][3]
            latest_ms, starts = known.timestamp_ms, self.starts
            for size, first_offset, last_offset, timestamp_ms in batches:
                position = self.size
                self.size = position + size
                if timestamp_ms > latest_ms:
                    latest_ms = timestamp_ms
                    self._max_timestamp = TimestampedOffset(timestamp_ms, last_offset)
                if len(starts) >= _REMEMBERED_BATCHES:
                    starts.clear()
                starts[first_offset] = position
                if self._bytes_since_entry > index_interval_bytes:
                    self._bytes_since_entry = 0
                    index = _add_entry(self, last_offset, position)
                    if len(index.offsets) - index.persisted >= _PENDING_ENTRIES:
                        _unless_descriptors_are_short(self.write_indexes)
                self._bytes_since_entry += size
            if not begun:
                # Tools read the indexes of a log in use, so the files are there as
                # soon as there are records.
                _unless_descriptors_are_short(self.finish_indexes)
        except OSError:
            self._take_back(begun, batches[0][1])
            raise

    def _take_back(self, position: int, offset: int) -> None:
        """Cut off batches of which an index could not be written, as far as the disk lets it."""
        try:
            self.truncate(position, offset)
        except OSError:  # the indexes; recovery makes them from the file
            with contextlib.suppress(OSError):
                self.file.truncate(position)

    def write_indexes(self) -> None:
        """Bring the index files up to the indexes in memory. Raises `OSError`."""
        self.transactions.write()
        self.indexes.write()

    def finish_indexes(self) -> None:
        """Complete both index files: the time index ends with the segment's largest timestamp.

        Raises `OSError`."""
        if self.size:
            largest = self.max_timestamp
            if largest.timestamp_ms >= 0:
                self.time_index.append(largest.timestamp_ms, largest.offset - self.base_offset)
        self.write_indexes()
        self.indexes.complete_files()

    def truncate(self, position: int, offset: int) -> None:
        """Cut the log at a position; ``offset`` is the first that goes. Raises `OSError`.

        What needs a file descriptor comes first: without one nothing is cut, and the
        indexes are only sparser.
        """
        index, time_index, file = self.index, self.time_index, self.file
        index.truncate(max(0, offset - self.base_offset))
        time_index.truncate(max(0, offset - self.base_offset))
        self.indexes.cut_files()
        self.transactions.truncate(offset)
        file.truncate(position)
        self.size = position
        self.unchecked.cut(position)
        self.starts.clear()
        self._max_timestamp = None
        self._bytes_since_entry = 0
        if position == 0:
            self._first_timestamp_ms = None
        self._max_timestamp = self._find_max_timestamp()

    # ---- indexes

    @property
    def index(self) -> OffsetIndex:
        """The offset index, read or made if it is not in memory."""
        if self.indexes.offsets is None:
            self._load_indexes()
            assert self.indexes.offsets is not None
        return self.indexes.offsets

    @property
    def time_index(self) -> TimeIndex:
        """The time index, read or made if it is not in memory."""
        if self.indexes.times is None:
            self._load_indexes()
            assert self.indexes.times is not None
        return self.indexes.times

    def _load_indexes(self) -> None:
        """Read or make both indexes, unless they are in memory. Raises `OSError`."""
        indexes = self.indexes
        if indexes.offsets is not None:
            return
        if not self.size:
            indexes.clear()
            return
        most_batches = self.size // HEADER_BYTES + 2
        if not indexes.read(self.size, most_batches, may_be_incomplete=self.is_active):
            self.rebuild_indexes()
        else:
            last_offset, position = self.index.floor(MAX_RELATIVE)
            file = _file_to_search(self) if position else None
            if file is not None and not is_batch_at(file, position, self.base_offset + last_offset):
                self.rebuild_indexes()
        if not self.is_active:
            self._open_files.indexes_loaded(self)

    def rebuild_indexes(self, index_interval_bytes: int = 4096) -> None:
        """Make both indexes from the batches' headers and replace their files."""
        self.indexes.clear()
        self._max_timestamp = TimestampedOffset(-1, self.base_offset)
        self._bytes_since_entry = 0
        for position, header in self.headers(0):
            self.index_batch(position, header, index_interval_bytes)
        self.indexes.cut_files()
        self.finish_indexes()

    def index_batch(self, position: int, header: BatchHeader, index_interval_bytes: int) -> None:
        """Take a batch that is in the file already into the indexes (recovery)."""
        if position == 0:
            self._first_timestamp_ms = header.max_timestamp
        if header.max_timestamp > self.max_timestamp.timestamp_ms:
            self._max_timestamp = TimestampedOffset(header.max_timestamp, header.last_offset)
        if self._bytes_since_entry > index_interval_bytes:
            _add_entry(self, header.last_offset, position)
            self._bytes_since_entry = 0
        self._bytes_since_entry += header.size_bytes

    def restart_indexes_at(self, position: int, offset: int) -> None:
        """Keep the entries before a batch; the batches from there on will be indexed again."""
        self.index.truncate(max(0, offset - self.base_offset))
        self.time_index.truncate(max(0, offset - self.base_offset))
        self.indexes.cut_files()
        if position == 0:
            self._max_timestamp = TimestampedOffset(-1, self.base_offset)
        else:
            self._max_timestamp = self._find_max_timestamp(position)
        self._bytes_since_entry = 0

    def drop_indexes(self) -> None:
        """Free the memory of the indexes; they are read again when needed."""
        if not self.is_active:
            self.indexes.drop()

    # ---- reading

    def headers(self, position: int) -> "Iterator[tuple[int, BatchHeader]]":
        """(position, header) of the batches from a position on, without checks of their contents.

        Ends where the bytes are no batch, or one with offsets that cannot stand in this segment.
        """
        base_offset, max_offset = self.base_offset, self.base_offset + MAX_RELATIVE
        file = _file_to_search(self)
        if file is None:
            return
        for at, header in scan_headers(file, position, self.size):
            if not base_offset <= header.base_offset <= header.last_offset <= max_offset:
                return
            yield at, header

    def locate(self, offset: int) -> Located | None:
        """The first batch whose last offset is ``offset`` or later, None when the
        segment ends before."""
        file = _file_to_search(self)
        if file is None:
            return None
        position = self.starts.get(offset)
        if position is not None and position < self.size:
            return locate(file, position, self.size, offset)
        relative, position = self.index.floor(offset - self.base_offset)
        if not position:
            return locate(file, 0, self.size, offset)
        try:
            return locate(file, position, self.size, offset, entry_offset=self.base_offset + relative)
        except MisplacedEntryError:
            self.rebuild_indexes()
            return locate(file, self.index.floor(offset - self.base_offset)[1], self.size, offset)

    def remember(self, offset: int, position: int) -> None:
        """A batch begins, or the next will begin, at a position."""
        if len(self.starts) >= _REMEMBERED_BATCHES:
            self.starts.clear()
        self.starts[offset] = position

    def end(self) -> SegmentEnd:
        """Where the last whole batch ends.

        A segment whose file ends there is whole, as far as headers show."""
        position = self.index.floor(MAX_RELATIVE)[1] if self.size else 0
        next_offset = self.base_offset
        for at, header in self.headers(position):
            next_offset, position = header.last_offset + 1, at + header.size_bytes
        return SegmentEnd(next_offset, position)

    @property
    def max_timestamp(self) -> TimestampedOffset:
        """The largest timestamp and its batch's last offset; -1 when the segment has none."""
        if self._max_timestamp is None:
            self._max_timestamp = self._find_max_timestamp()
        return self._max_timestamp

    def _find_max_timestamp(self, end: int | None = None) -> TimestampedOffset:
        """Find it in the time index and, because the end of the index may be missing, in the
        batches after its last entry.

        If the batch of that entry has another timestamp, the indexes are made again.
        """
        largest = TimestampedOffset(-1, self.base_offset)
        if not self.size:
            return largest
        time_index = self.time_index
        position, is_confirmed = 0, not len(time_index)
        if len(time_index):
            largest = TimestampedOffset(time_index.timestamps[-1], self.base_offset + time_index.offsets[-1])
            position = self.index.floor(largest.offset - self.base_offset)[1]
        indexed_ms, indexed_offset = largest
        for at, header in self.headers(position):
            if end is not None and at >= end:
                break
            if header.base_offset <= indexed_offset <= header.last_offset and header.max_timestamp == indexed_ms:
                is_confirmed = True
            if header.max_timestamp > largest.timestamp_ms:
                largest = TimestampedOffset(header.max_timestamp, header.last_offset)
        if is_confirmed:
            return largest
        # Retention goes by this: an entry that no batch confirms would delete records that are not
        # old, or keep them for ever.
        self.rebuild_indexes()
        assert self._max_timestamp is not None
        return self._max_timestamp

    def last_write_ms(self) -> int:
        """The largest timestamp, or the file's time where records carry none: what
        retention goes by."""
        timestamp_ms = self.max_timestamp.timestamp_ms
        return timestamp_ms if timestamp_ms >= 0 else self._folder.files.modified_ms(self.path)

    # ---- rolling

    def room(self, config: LogConfig, batches: int, now_ms: int) -> Room:
        """What this many batches may have together without a new segment.

        Each may get an index entry. In an empty segment there is room for one, with which its time
        begins; and for one where something has to be read, which may raise `OSError`.
        """
        latest_ms = _ANY_TIME
        if self.size:
            first_ms = self._first_timestamp_ms
            if first_ms is None:
                if batches > 1:
                    return NO_ROOM  # as it has to be read
                first_ms = self.first_timestamp_ms()
            # By record timestamps where there are any.
            if first_ms >= 0:
                latest_ms = first_ms + config.segment_ms - self.jitter_ms
            elif now_ms - self.created_ms > config.segment_ms - self.jitter_ms:
                return NO_ROOM
        elif batches > 1:
            return NO_ROOM
        offsets, times = self.indexes.offsets, self.indexes.times
        if offsets is None or times is None:
            if batches > 1:
                return NO_ROOM
        elif (
            len(offsets.offsets) + batches > config.max_index_bytes // OFFSET_ENTRY_BYTES
            or len(times.offsets) + batches >= config.max_index_bytes // TIME_ENTRY_BYTES
        ):
            return NO_ROOM
        size_bytes = min(config.segment_bytes, _MAX_POSITION) - self.size
        return size_bytes, self.base_offset + MAX_RELATIVE, latest_ms

    def first_timestamp_ms(self) -> int:
        """The largest timestamp of the first batch, -1 when there is none."""
        if self._first_timestamp_ms is None:
            if not self.size:
                return -1
            self._first_timestamp_ms = next((header.max_timestamp for _, header in self.headers(0)), -1)
        return self._first_timestamp_ms


def _add_entry(segment: Segment, last_offset: int, position: int) -> OffsetIndex:
    index = segment.index
    index.append(last_offset - segment.base_offset, position)
    timestamp_ms, offset = segment.max_timestamp
    segment.time_index.append(timestamp_ms, offset - segment.base_offset)
    return index


def _file_to_search(segment: Segment) -> File | None:
    """The open .log file.

    None if the file of a closed segment is lost; the segment has no batches then. The others of the
    log, and of its disk, can be used. An active one that is lost is an error: it is written to.
    """
    try:
        return segment.file
    except FileNotFoundError:
        if segment.is_active:
            raise
        return None


def _unless_descriptors_are_short(write: Callable[[], None]) -> None:
    """Write index files, or leave that to the next time: the batch is written already.

    Raises `OSError`."""
    try:
        write()
    except OSError as error:
        if not is_descriptor_shortage(error):
            raise
