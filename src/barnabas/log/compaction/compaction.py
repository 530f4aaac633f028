"""Compacting one log: of each key only the newest record stays (KIP-58, KIP-354, KIP-534). Kafka: Cleaner.

Two passes over closed segments, which are not written to any more. The first reads the keys of the dirty range, from where
the last compaction ended up to the first segment that must stay, into an `OffsetMap`; it ends early where the map is
full. The second rewrites all segments from the log's beginning to there, in groups that fit one segment, and drops each
record that the map knows a newer one for.

The work is cut into steps of at most about ``chunk_bytes`` and 250 records. A step may run in another thread than the
log's: it reads closed segments through files of its own and writes ``.cleaned`` files; what it needs of the log's state
was taken when the `Compaction` was made. Only `swap`, a few renames, touches the log, and belongs to the log's thread, as
does `is_possible`, to be asked before each step. Apache's cleaner thread and its locks are this split of ownership here.

Offsets never change and no batch is merged with another, so followers and consumers may read on at any offset.
"""

from collections.abc import Generator, Iterator
from itertools import pairwise
from typing import NamedTuple

from barnabas.base.errors import CorruptDataError
from barnabas.base.files import Buffer
from barnabas.log.compaction.batch_filter import STEP_RECORDS, BatchFilter, LastRecord, check_whole, unpack
from barnabas.log.compaction.cleaned_segment import CleanedSegment
from barnabas.log.compaction.cleaned_transactions import CleanedTransactions
from barnabas.log.compaction.offset_map import OffsetMap
from barnabas.log.compaction.record_slices import scan_records
from barnabas.log.names import INDEX, TIME_INDEX
from barnabas.log.partition_log import PartitionLog
from barnabas.log.segment.offset_index import MAX_RELATIVE
from barnabas.log.segment.segment import Segment
from barnabas.wire.kafka.records.batch_header import BatchHeader, read_header, read_headers

__all__ = ["Compaction", "CompactionLimits"]

_LEAST_CHUNK_BYTES = 4096
_Batches = list[tuple[memoryview, BatchHeader]]


class CompactionLimits(NamedTuple):
    """What one compaction may use."""

    map_bytes: int
    map_load_factor: float
    chunk_bytes: int


class _Closed(NamedTuple):
    """A closed segment, and the offset at which the next begins."""

    segment: Segment
    end_offset: int


def _in_steps(batches: _Batches) -> Iterator[_Batches]:
    """The batches, divided where their records are enough for a step."""
    step: _Batches = []
    records = 0
    for batch, header in batches:
        step.append((batch, header))
        records += header.record_count
        if records >= STEP_RECORDS:
            yield step
            step, records = [], 0
    if step:
        yield step


class Compaction:
    """One compaction of one log. `step` until `is_done`, with `swap` whenever `wants_swap`."""

    __slots__ = (
        "_aborted",
        "_cleaned",
        "_closed",
        "_config",
        "_cuts",
        "_first_dirty_offset",
        "_first_position",
        "_group",
        "_last_records",
        "_limits",
        "_now_ms",
        "_offsets",
        "_steps",
        "_upto_offset",
        "bytes_read",
        "bytes_written",
        "end_offset",
        "is_done",
        "log",
        "wants_swap",
    )

    def __init__(
        self, log: PartitionLog, first_dirty_offset: int, upto_offset: int, limits: CompactionLimits, now_ms: int
    ) -> None:
        """``upto_offset`` is the base offset of the first segment that stays. On the log's thread.

        Raises `KafkaError` KAFKA_STORAGE_ERROR, or UNKNOWN_SERVER_ERROR for a damaged transaction index.
        """
        self.log = log
        self._first_dirty_offset = first_dirty_offset
        self._upto_offset = upto_offset
        self._limits = limits
        self._now_ms = now_ms
        self._config = log.config
        self._cuts = log.durability.cuts
        self._closed = [
            _Closed(segment, following.base_offset)
            for segment, following in pairwise(log.segments)
            if segment.base_offset < upto_offset
        ]
        with log.availability.guard("reading the index of"):
            located = log.segments[log.segments.index_of(first_dirty_offset)].locate(first_dirty_offset)
        self._first_position = located.position if located else 0
        self._aborted = log.aborted_transactions(self._closed[0].segment.base_offset, upto_offset)
        self._last_records = {
            entry.producer_id: LastRecord(entry.batches[-1].last_offset if entry.batches else -1, entry.epoch)
            for entry in log.producers.entries.values()
        }
        expected = min(upto_offset - first_dirty_offset, 1 << 40)
        self._offsets = OffsetMap(limits.map_bytes, limits.map_load_factor, expected)
        self._group: list[Segment] = []
        self._cleaned: CleanedSegment | None = None
        self._steps = self._run()
        self.end_offset = first_dirty_offset
        """Where the next compaction begins, once this one is done."""
        self.is_done = False
        self.wants_swap = False
        self.bytes_read = 0
        self.bytes_written = 0

    # ---- on the log's thread

    def is_possible(self) -> bool:
        """Whether the log is still what it was: not offline, deleted or cut, and the group's segments are its own."""
        log = self.log
        if log.offline is not None or log.durability.cuts != self._cuts:
            return False
        return all(segment in log.segments for segment in self._group)

    def swap(self, now_ms: int) -> None:
        """Let the new segment take the place of its group. Raises `KafkaError` KAFKA_STORAGE_ERROR."""
        assert self.wants_swap
        assert self._cleaned is not None
        self.log.replace_segments(self._group, self._cleaned, now_ms)
        self._cleaned = None
        self._group = []
        self.wants_swap = False

    def abandon(self) -> None:
        """Remove what was written and not swapped; the log is as it was. Raises `OSError`."""
        self._steps.close()
        if self._cleaned is not None:
            self._cleaned.discard()
            self._cleaned = None

    # ---- in any thread, one at a time

    def step(self) -> None:
        """Go on for a while.

        Raises `OSError`, and `CorruptDataError` or `KafkaError` for batches that cannot be read.
        """
        next(self._steps, None)

    def _run(self) -> Generator[None, None, None]:
        yield from self._map_keys()
        self.end_offset = self._offsets.latest_offset + 1
        if self.end_offset <= self._first_dirty_offset:
            raise CorruptDataError(
                f"{self.log.topic_partition}: one batch at offset {self._first_dirty_offset} has more keys than "
                f"log.cleaner.dedupe.buffer.size has room for ({self._offsets.max_keys})"
            )
        transactions = CleanedTransactions(self._aborted)
        batch_filter = BatchFilter(
            self._offsets,
            transactions,
            self._last_records,
            now_ms=self._now_ms,
            delete_retention_ms=self._config.delete_retention_ms,
        )
        for group in self._groups():
            yield from self._rewrite(group, batch_filter, transactions)
        self._offsets = OffsetMap(0, 1.0, 0)  # its memory is not needed any more
        self.is_done = True

    def _map_keys(self) -> Generator[None, None, None]:
        """Read the dirty range into the map, up to its end or until the map is full."""
        offsets = self._offsets
        transactions = CleanedTransactions(self._aborted)
        position = self._first_position
        for segment, end_offset in self._closed:
            if end_offset <= self._first_dirty_offset:
                continue
            for batches in self._chunks(segment, position):
                for batch, header in batches:
                    check_whole(batch, header)
                    if not transactions.can_discard(batch, header) and not header.is_control:
                        has_room = yield from self._map_batch(batch, header)
                        if not has_room:
                            return
                    if header.last_offset >= self._first_dirty_offset:
                        offsets.cover(header.last_offset)
                yield
            position = 0
            offsets.cover(end_offset - 1)

    def _map_batch(self, batch: memoryview, header: BatchHeader) -> Generator[None, None, bool]:
        """Whether all of the batch's keys found room. A large batch takes several steps."""
        put, base_offset, first_dirty = self._offsets.put, header.base_offset, self._first_dirty_offset
        for number, record in enumerate(scan_records(unpack(batch, header), header.record_count), 1):
            if not number % STEP_RECORDS:
                yield
            offset = base_offset + record.offset_delta
            if record.key is not None and offset >= first_dirty and not put(record.key, offset):
                return False
        return True

    def _groups(self) -> Iterator[list[Segment]]:
        """Segments up to the end of the map, together as many as fit one segment and its indexes."""
        config = self._config
        group: list[Segment] = []
        size = index_size = 0
        for segment, end_offset in self._closed:
            if segment.base_offset >= self.end_offset:
                break
            segment_index_size = self._index_bytes(segment)
            if group and (
                size + segment.size > config.segment_bytes
                or index_size + segment_index_size > config.max_index_bytes
                or (segment.size and end_offset - 1 - group[0].base_offset > MAX_RELATIVE)
            ):
                yield group
                group, size, index_size = [], 0, 0
            group.append(segment)
            size += segment.size
            index_size += segment_index_size
        if group:
            yield group

    def _index_bytes(self, segment: Segment) -> int:
        """The larger of the two index files."""
        largest = 0
        for suffix in (INDEX, TIME_INDEX):
            try:
                largest = max(largest, self.log.folder.files.size(segment.file_path(suffix)))
            except FileNotFoundError:
                continue  # it is made again when it is needed
        return largest

    def _rewrite(
        self, group: list[Segment], batch_filter: BatchFilter, transactions: CleanedTransactions
    ) -> Generator[None, None, None]:
        files, directory = self.log.folder.files, self.log.directory
        transactions.retained.clear()
        self._group = group
        cleaned = self._cleaned = CleanedSegment(
            files, directory, group[0].base_offset, self._config.index_interval_bytes
        )
        for segment in group:
            for batches in self._chunks(segment, 0):
                kept: list[Buffer] = []
                headers: list[BatchHeader] = []
                for batch, header in batches:
                    stays = yield from batch_filter.filter(batch, header)
                    if stays is not None:
                        kept.append(stays)
                        headers.append(header if stays is batch else read_header(stays))
                written = cleaned.size
                cleaned.append(kept, headers)
                self.bytes_written += cleaned.size - written
                yield
        cleaned.finish(transactions.retained)
        self.wants_swap = True
        yield
        files.sync_dir(directory)
        yield

    def _chunks(self, segment: Segment, position: int) -> Iterator[_Batches]:
        """The segment's batches from a position on, by about a chunk. Raises `CorruptDataError`."""
        if position >= segment.size:
            return
        wanted = chunk_bytes = max(self._limits.chunk_bytes, _LEAST_CHUNK_BYTES)
        file = self.log.folder.files.open(segment.path, read_only=True)
        try:
            while position < segment.size:
                chunk = memoryview(file.read_at(position, min(wanted, segment.size - position)))
                batches = [(chunk[at : at + header.size_bytes], header) for at, header in read_headers(chunk)]
                if not batches:
                    size = read_header(chunk).size_bytes if len(chunk) >= 61 else 0
                    if not wanted < size <= segment.size - position:
                        raise CorruptDataError(f"{segment.path}: no batch at position {position}")
                    wanted = size  # one batch that is larger than a chunk
                    continue
                wanted = chunk_bytes
                used = sum(len(batch) for batch, _ in batches)
                position += used
                self.bytes_read += used
                yield from _in_steps(batches)
        finally:
            file.close()
