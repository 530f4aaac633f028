"""Compacting one log: of each key only the newest record stays (KIP-58, KIP-354, KIP-534). Kafka: `Cleaner`.

Two passes over closed segments, which are not written to any more. The first reads the keys of the dirty range, from where
the last compaction ended up to the first segment that must stay, into an `OffsetMap`; it ends early where the map is
full. The second rewrites all segments from the log's beginning to there, in groups that fit one segment, and drops each
record that the map knows a newer one for.

The work is cut into steps of at most about ``chunk_bytes`` and some thousand records. A step may run in another thread than the
log's: it reads closed segments through files of its own and writes ``.cleaned`` files; what it needs of the log's state
was taken when the `Compaction` was made. Only `swap`, a few renames, touches the log, and belongs to the log's thread, as
does `is_possible`, to be asked before each step. Apache's cleaner thread and its locks are this split of ownership here.

Offsets never change and no batch is merged with another, so followers and consumers may read on at any offset.

A batch that cannot be read (a wrong CRC, records that do not fill it, more bytes or records than a leader takes) is reported
and stays as it is; compaction continues after it. Only where a header does not say where the next batch begins is there no
way on, and the compaction fails.
"""

from collections.abc import Generator, Iterator
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from barnabas.base.errors import CorruptDataError
from barnabas.base.files import Buffer
from barnabas.log.append_checks import unpacked_limit_bytes
from barnabas.log.compaction.cleaned_segment import CleanedSegment
from barnabas.log.compaction.cleaned_transactions import CleanedTransactions
from barnabas.log.names import INDEX, TIME_INDEX
from barnabas.log.partition_log import PartitionLog
from barnabas.log.segment.offset_index import MAX_RELATIVE
from barnabas.log.segment.segment import Segment
from barnabas.wire.kafka.records.batch_header import BatchHeader, read_header, read_headers
from barnabas.wire.kafka.records.contents import load_columns

if TYPE_CHECKING:  # numpy is imported by the first step
    from barnabas.log.compaction.batch_filter import BatchFilter
    from barnabas.log.compaction.offset_map import OffsetMap
    from barnabas.log.compaction.record_groups import Chunk

__all__ = ["Compaction", "CompactionLimits"]

_LEAST_CHUNK_BYTES = 4096
_STEP_BATCHES = 128
_MOST_REPORTS = 10
_MOST_DAMAGED = 10_000
"""With more batches that cannot be read the second pass reads all of them again, for the memory's sake."""


class CompactionLimits(NamedTuple):
    """The limits of one compaction."""

    map_bytes: int
    map_load_factor: float
    chunk_bytes: int


class _Closed(NamedTuple):
    """A closed segment, and the offset at which the next begins."""

    segment: Segment
    end_offset: int


class Compaction:
    """One compaction of one log. `step` until `is_done`, with `swap` whenever `wants_swap`."""

    __slots__ = (
        "_aborted",
        "_cleaned",
        "_closed",
        "_config",
        "_cuts",
        "_expected_keys",
        "_first_dirty_offset",
        "_first_position",
        "_group",
        "_last_producers",
        "_limits",
        "_now_ms",
        "_offsets",
        "_steps",
        "bytes_read",
        "bytes_written",
        "end_offset",
        "is_done",
        "log",
        "unreadable",
        "unreadable_count",
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
        self._last_producers = [
            (entry.producer_id, entry.batches[-1].last_offset if entry.batches else -1, entry.epoch)
            for entry in log.producers.entries.values()
        ]
        self._expected_keys = min(upto_offset - first_dirty_offset, 1 << 40)
        self._group: list[Segment] = []
        self._cleaned: CleanedSegment | None = None
        self._steps = self._run()
        self.end_offset = first_dirty_offset
        """Where the next compaction begins, once this one is done."""
        self.is_done = False
        self.wants_swap = False
        self.bytes_read = 0
        self.bytes_written = 0
        self.unreadable: list[str] = []
        """The first batches that stay as they are because they cannot be read, and why."""
        self.unreadable_count = 0

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
        load_columns()
        from barnabas.log.compaction.batch_filter import BatchFilter, LastRecord, Mapped
        from barnabas.log.compaction.offset_map import OffsetMap

        yield
        offsets = OffsetMap(self._limits.map_bytes, self._limits.map_load_factor, self._expected_keys)
        damaged = yield from self._map_keys(offsets)
        self.end_offset = offsets.latest_offset + 1
        if self.end_offset <= self._first_dirty_offset:
            raise CorruptDataError(
                f"{self.log.topic_partition}: one batch at offset {self._first_dirty_offset} has more keys than "
                f"log.cleaner.dedupe.buffer.size has room for ({offsets.max_keys})"
            )
        transactions = CleanedTransactions(self._aborted)
        mapped = None
        if len(damaged) < _MOST_DAMAGED:
            newest = yield from offsets.newest()
            mapped = Mapped(self._first_dirty_offset, newest, damaged)
        batch_filter = BatchFilter(
            offsets,
            mapped,
            transactions,
            {producer_id: LastRecord(last_offset, epoch) for producer_id, last_offset, epoch in self._last_producers},
            self._report,
            now_ms=self._now_ms,
            delete_retention_ms=self._config.delete_retention_ms,
            limit_bytes=unpacked_limit_bytes(self._config),
        )
        for group in self._groups():
            yield from self._rewrite(group, batch_filter, transactions)
        self.is_done = True

    def _report(self, header: BatchHeader, problem: str) -> None:
        """A batch stays as it is. Both passes meet it, so it counts in the second."""
        self.unreadable_count += 1
        if len(self.unreadable) < _MOST_REPORTS:
            self.unreadable.append(f"offset {header.base_offset}: {problem}")

    def _map_keys(self, offsets: "OffsetMap") -> Generator[None, None, set[int]]:
        """Read the dirty range into the map, up to its end or until the map is full.

        Returns the base offsets of batches that cannot be read; of many only the first.
        """
        from barnabas.log.compaction.batch_filter import damage

        damaged: set[int] = set()
        transactions = CleanedTransactions(self._aborted)
        position = self._first_position
        for segment, end_offset in self._closed:
            if end_offset <= self._first_dirty_offset:
                continue
            for chunk in self._chunks(segment, end_offset, position):
                wanted = [
                    number
                    for number, (batch, header) in enumerate(
                        (chunk.batch(found), found.header) for found in chunk.batches
                    )
                    if damage(batch, header) is None
                    and not transactions.can_discard(batch, header)
                    and not header.is_control
                ]
                has_room = yield from self._map_chunk(chunk, wanted, offsets, damaged)
                if not has_room:
                    return damaged
                last_offset = chunk.batches[-1].header.last_offset
                if last_offset >= self._first_dirty_offset:
                    offsets.cover(last_offset)
                yield
            position = 0
            offsets.cover(end_offset - 1)
        return damaged

    def _map_chunk(
        self, chunk: "Chunk", wanted: list[int], offsets: "OffsetMap", damaged: set[int]
    ) -> Generator[None, None, bool]:
        """Whether all keys of the wanted batches found room. If not, the map covers what is in front of the first without."""
        from barnabas.log.compaction.offset_map import Digests, digests
        from barnabas.log.compaction.record_groups import read_groups

        def note(header: BatchHeader, _: str) -> None:
            if len(damaged) < _MOST_DAMAGED:
                damaged.add(header.base_offset)

        limit_bytes = unpacked_limit_bytes(self._config)
        for number, group in enumerate(read_groups(chunk, wanted, limit_bytes, note)):
            if number:
                yield
            if group is not None:
                found = group.offsets
                rows = ((group.columns.key_size >= 0) & (found >= self._first_dirty_offset)).nonzero()[0]
                keys, found, batch_of_row = digests(*group.keys(rows)), found[rows], group.batch_of_row[rows]
                is_marker = group.columns.value_size[rows] < 0
                if not offsets.put(keys, found, is_marker):
                    for batch, header in enumerate(group.headers):
                        its = batch_of_row == batch
                        some = Digests(keys.first[its], keys.second[its])
                        if not offsets.put(some, found[its], is_marker[its]):
                            if header.base_offset > self._first_dirty_offset:
                                offsets.cover(header.base_offset - 1)
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
        self, group: list[Segment], batch_filter: "BatchFilter", transactions: CleanedTransactions
    ) -> Generator[None, None, None]:
        files, directory = self.log.folder.files, self.log.directory
        transactions.retained.clear()
        self._group = group
        cleaned = self._cleaned = CleanedSegment(
            files, directory, group[0].base_offset, self._config.index_interval_bytes
        )
        end_offsets = {closed.segment: closed.end_offset for closed in self._closed}
        for segment in group:
            for chunk in self._chunks(segment, end_offsets[segment], 0):
                kept: list[Buffer] = []
                headers: list[BatchHeader] = []
                stays = yield from batch_filter.filter(chunk)
                for batch, (_, header) in zip(stays, chunk.batches, strict=True):
                    if batch is not None:
                        kept.append(batch)
                        headers.append(read_header(batch) if isinstance(batch, bytearray) else header)
                written = cleaned.size
                cleaned.append(kept, headers)
                self.bytes_written += cleaned.size - written
                yield
        cleaned.finish(transactions.retained)
        self.wants_swap = True
        yield
        files.sync_dir(directory)
        yield

    def _chunks(self, segment: Segment, end_offset: int, position: int) -> "Iterator[Chunk]":
        """The segment's batches from a position on, by about a chunk. Raises `CorruptDataError`."""
        if position >= segment.size:
            return
        wanted = chunk_bytes = max(self._limits.chunk_bytes, _LEAST_CHUNK_BYTES)
        next_offset = segment.base_offset
        file = self.log.folder.files.open(segment.path, read_only=True)
        try:
            while position < segment.size:
                data = bytes(file.read_at(position, min(wanted, segment.size - position)))
                batches = list(read_headers(data))
                if not batches:
                    size = read_header(data).size_bytes if len(data) >= 61 else 0
                    if not wanted < size <= segment.size - position:
                        raise CorruptDataError(f"{segment.path}: no batch at position {position}")
                    wanted = size  # one batch that is larger than a chunk
                    continue
                wanted = chunk_bytes
                for at, header in batches:
                    if not next_offset <= header.base_offset <= header.last_offset < end_offset:
                        raise CorruptDataError(
                            f"{segment.path}: a batch with offsets {header.base_offset} to {header.last_offset} at "
                            f"position {position + at}, where offsets {next_offset} to {end_offset - 1} are left"
                        )
                    next_offset = header.last_offset + 1
                at, header = batches[-1]
                used = at + header.size_bytes
                position += used
                self.bytes_read += used
                yield from _in_steps(data, batches)
        finally:
            file.close()


def _in_steps(data: bytes, batches: list[tuple[int, BatchHeader]]) -> "Iterator[Chunk]":
    """The batches, divided where they are enough for a step."""
    from barnabas.log.compaction.record_groups import STEP_RECORDS, Chunk, Found

    step: list[Found] = []
    records = 0
    for position, header in batches:
        # A group of records has no more than these either.
        if step and (records + header.record_count > STEP_RECORDS or len(step) >= _STEP_BATCHES):
            yield Chunk(data, step)
            step, records = [], 0
        step.append(Found(position, header))
        records += header.record_count
    yield Chunk(data, step)
