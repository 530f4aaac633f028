"""Compacting the segments of one log: of each key only the newest record stays (KIP-58, KIP-354,
KIP-534). Kafka: `Cleaner`.

Two passes over closed segments, which are not written to any more. The first reads the keys of
the dirty range, from where the last compaction ended up to the first segment that must stay,
into an `OffsetMap`; it ends early where the map is full. The second rewrites all segments from
the log's beginning to there, in groups that fit one segment, and drops each record that the
map knows a newer one for.

A step goes through one piece of ``chunk_bytes``, or through some thousand records where the piece
has other than ordinary batches. The cleaner knows the log by its `CleaningPlan` and its files only,
so it may run in any thread, or in a process of its own.

Offsets never change and no batch is merged with another, so followers and consumers
may read on at any offset.

A batch that cannot be read (a wrong CRC, records that do not fill it, more bytes or records than a
leader takes), or that could not be written again, is reported and stays as it is; compaction
continues after it. Only where a header does not say where the next batch begins is there no way on,
and the compaction fails.

numpy is imported with this module, which is why nothing else imports it before there
is something to compact.
"""

from collections.abc import Generator, Iterator

import numpy as np

from barnabas.base.errors import CorruptDataError
from barnabas.base.files import Buffer, Files
from barnabas.log.compaction.batch_filter import BatchFilter, LastRecord, Mapped, damage
from barnabas.log.compaction.cleaned_segment import BatchEntry, CleanedSegment
from barnabas.log.compaction.cleaned_transactions import CleanedTransactions
from barnabas.log.compaction.offset_map import Digests, OffsetMap, digests
from barnabas.log.compaction.ordinary_batches import Block, Unpacker, filter_ordinary, map_ordinary
from barnabas.log.compaction.pieces import Piece, read_pieces
from barnabas.log.compaction.plan import CleaningPlan, ClosedSegment, CompactionOutcome, ReadySegment, StepReport
from barnabas.log.compaction.record_groups import Chunk, read_groups
from barnabas.log.names import INDEX, TIME_INDEX
from barnabas.log.segment.offset_index import MAX_RELATIVE
from barnabas.wire.kafka.records.batch_header import BatchHeader, read_header

__all__ = ["Cleaner"]

_MOST_EXPECTED_KEYS = 1 << 40
_MOST_REPORTS = 10
_MOST_DAMAGED = 10_000
"""With more batches that cannot be read the second pass reads all of them again, for
the memory's sake."""


class Cleaner:
    """One cleaning under way. Kafka: `Cleaner`."""

    __slots__ = (
        "_bytes_read",
        "_bytes_written",
        "_cleaned",
        "_files",
        "_must_wait",
        "_offsets",
        "_plan",
        "_steps",
        "_unpacker",
        "_unreadable",
        "_unreadable_count",
    )

    def __init__(self, files: Files, plan: CleaningPlan) -> None:
        self._files = files
        self._plan = plan
        self._cleaned: CleanedSegment | None = None
        self._steps = self._run()
        self._must_wait = False
        self._bytes_read = 0
        self._bytes_written = 0
        self._unreadable: list[str] = []
        self._unreadable_count = 0
        self._unpacker = Unpacker(plan.unpacked_limit_bytes)

    def step(self) -> StepReport:
        """Go on for a while; not after the outcome. See `CleaningWork.step`."""
        try:
            ready = next(self._steps)
        except StopIteration as end:
            return StepReport(self._bytes_read, self._bytes_written, outcome=end.value)
        must_wait, self._must_wait = self._must_wait, False
        return StepReport(self._bytes_read, self._bytes_written, ready, must_wait=must_wait)

    def finish(self) -> None:
        """See `CleaningWork.finish`."""

    def close(self) -> None:
        """End it. Raises `OSError`."""
        self._steps.close()
        if self._cleaned is not None:
            self._cleaned.close()

    def _run(self) -> Generator[ReadySegment | None, None, CompactionOutcome]:
        plan = self._plan
        expected_keys = min(plan.upto_offset - plan.first_dirty_offset, _MOST_EXPECTED_KEYS)
        offsets = self._offsets = OffsetMap(plan.limits.map_bytes, plan.limits.map_load_factor, expected_keys)
        yield None
        damaged = yield from self._map_keys()
        end_offset = offsets.latest_offset + 1
        if end_offset <= plan.first_dirty_offset:
            raise CorruptDataError(
                f"{plan.topic_partition}: one batch at offset {plan.first_dirty_offset} has more keys than "
                f"log.cleaner.dedupe.buffer.size has room for ({offsets.max_keys})"
            )
        transactions = CleanedTransactions(plan.aborted)
        mapped = None
        if len(damaged) < _MOST_DAMAGED:
            newest = yield from offsets.newest()
            mapped = Mapped(plan.first_dirty_offset, newest, damaged)
        batch_filter = BatchFilter(
            offsets,
            mapped,
            transactions,
            {producer_id: LastRecord(last_offset, epoch) for producer_id, last_offset, epoch in plan.last_producers},
            self._report,
            now_ms=plan.now_ms,
            delete_retention_ms=plan.delete_retention_ms,
            limit_bytes=plan.unpacked_limit_bytes,
        )
        ordinary_filter = _OrdinaryFilter(plan, offsets, mapped, self._unpacker)
        for group in self._groups(end_offset):
            yield from self._rewrite(group, batch_filter, ordinary_filter, transactions)
        return CompactionOutcome(end_offset, self._unreadable_count, tuple(self._unreadable))

    def _report(self, header: BatchHeader, problem: str) -> None:
        """A batch stays as it is. Both passes meet it, so it counts in the second."""
        self._unreadable_count += 1
        if len(self._unreadable) < _MOST_REPORTS:
            self._unreadable.append(f"offset {header.base_offset}: {problem}")

    def _pieces(self, segment: ClosedSegment, position: int = 0) -> Iterator[Piece]:
        plan = self._plan
        for piece in read_pieces(self._files, plan.path(segment), segment, position, plan.limits.chunk_bytes):
            self._bytes_read += piece.size_bytes
            yield piece

    # ---- the first pass

    def _map_keys(self) -> Generator[None, None, set[int]]:
        """Read the dirty range into the map, up to its end or until the map is full.

        Returns the base offsets of batches that cannot be read; of many only the first.
        """
        plan, offsets = self._plan, self._offsets
        damaged: set[int] = set()
        transactions = CleanedTransactions(plan.aborted)
        position = plan.first_position
        for segment in plan.closed:
            if segment.end_offset <= plan.first_dirty_offset:
                continue
            for piece in self._pieces(segment, position):
                if map_ordinary(piece.data, piece.headers, offsets, plan.first_dirty_offset, self._unpacker):
                    self._cover(piece.last_offset)
                    yield
                    continue
                for chunk in piece.chunks():
                    has_room = yield from self._map_chunk(chunk, transactions, damaged)
                    if not has_room:
                        return damaged
                    self._cover(chunk.batches[-1].header.last_offset)
                    yield
            position = 0
            offsets.cover(segment.end_offset - 1)
        return damaged

    def _cover(self, last_offset: int) -> None:
        if last_offset >= self._plan.first_dirty_offset:
            self._offsets.cover(last_offset)

    def _map_chunk(
        self, chunk: Chunk, transactions: CleanedTransactions, damaged: set[int]
    ) -> Generator[None, None, bool]:
        """Whether all keys of a chunk found room.

        If not, the map covers what precedes the first batch that has no room."""
        first_dirty_offset, offsets = self._plan.first_dirty_offset, self._offsets

        def note(header: BatchHeader, _: str) -> None:
            if len(damaged) < _MOST_DAMAGED:
                damaged.add(header.base_offset)

        wanted = []
        for number, found in enumerate(chunk.batches):
            batch, header = chunk.batch(found), found.header
            problem = damage(batch, header)
            if problem is not None:
                note(header, problem)
            elif not transactions.can_discard(batch, header) and not header.is_control:
                wanted.append(number)
        for number, group in enumerate(read_groups(chunk, wanted, self._plan.unpacked_limit_bytes, note)):
            if number:
                yield
            if group is None:
                continue
            offsets_of_rows = group.offsets
            rows = ((group.columns.key_size >= 0) & (offsets_of_rows >= first_dirty_offset)).nonzero()[0]
            keys, at, batch_of_row = digests(*group.keys(rows)), offsets_of_rows[rows], group.batch_of_row[rows]
            is_marker = group.columns.value_size[rows] < 0
            if offsets.put(keys, at, is_marker):
                continue
            for batch_number, header in enumerate(group.headers):
                its = batch_of_row == batch_number
                some = Digests(keys.first[its], keys.second[its])
                if not offsets.put(some, at[its], is_marker[its]):
                    if header.base_offset > first_dirty_offset:
                        offsets.cover(header.base_offset - 1)
                    return False
        return True

    # ---- the second pass

    def _groups(self, end_offset: int) -> Iterator[list[ClosedSegment]]:
        """Segments up to the end of the map, together as many as fit one segment and
        its indexes."""
        plan = self._plan
        group: list[ClosedSegment] = []
        size = index_size = 0
        for segment in plan.closed:
            if segment.base_offset >= end_offset:
                break
            segment_index_size = self._index_bytes(segment)
            if group and (
                size + segment.size_bytes > plan.segment_bytes
                or index_size + segment_index_size > plan.max_index_bytes
                or (segment.size_bytes and segment.end_offset - 1 - group[0].base_offset > MAX_RELATIVE)
            ):
                yield group
                group, size, index_size = [], 0, 0
            group.append(segment)
            size += segment.size_bytes
            index_size += segment_index_size
        if group:
            yield group

    def _index_bytes(self, segment: ClosedSegment) -> int:
        """The larger of the two index files."""
        largest = 0
        for suffix in (INDEX, TIME_INDEX):
            try:
                largest = max(largest, self._files.size(self._plan.path(segment, suffix)))
            except FileNotFoundError:
                continue  # it is made again when it is needed
        return largest

    def _rewrite(
        self,
        group: list[ClosedSegment],
        batch_filter: BatchFilter,
        ordinary_filter: "_OrdinaryFilter",
        transactions: CleanedTransactions,
    ) -> Generator[ReadySegment | None, None, None]:
        files, directory = self._files, self._plan.directory
        transactions.retained.clear()
        cleaned = self._cleaned = CleanedSegment(
            files, directory, group[0].base_offset, self._plan.index_interval_bytes
        )
        for segment in group:
            for piece in self._pieces(segment):
                written = cleaned.size
                block = ordinary_filter.filter(piece)
                if block is not None:
                    cleaned.append(
                        [block.data], zip(block.sizes, block.last_offsets, block.max_timestamps, strict=True)
                    )
                    self._bytes_written += cleaned.size - written
                    yield None
                    continue
                for chunk in piece.chunks():
                    kept: list[Buffer] = []
                    entries: list[BatchEntry] = []
                    stays = yield from batch_filter.filter(chunk)
                    for batch, (_, header) in zip(stays, chunk.batches, strict=True):
                        if batch is not None:
                            kept.append(batch)
                            new = read_header(batch) if isinstance(batch, bytearray) else header
                            entries.append((len(batch), new.last_offset, new.max_timestamp))
                    written = cleaned.size
                    cleaned.append(kept, entries)
                    self._bytes_written += cleaned.size - written
                    yield None
        cleaned.sync()
        # Here a process ends whose broker has died meanwhile, before it writes under names
        # that a new broker may use.
        self._must_wait = True
        yield None
        suffixes = cleaned.finish(transactions.retained)
        self._cleaned = None
        yield ReadySegment(tuple(segment.base_offset for segment in group), suffixes, cleaned.size)
        files.sync_dir(directory)
        yield None


class _OrdinaryFilter:
    """The short way through a piece of the log, if all of its records are in the map."""

    def __init__(self, plan: CleaningPlan, offsets: OffsetMap, mapped: Mapped | None, unpacker: Unpacker) -> None:
        self._mapped = mapped
        self._latest_offset = offsets.latest_offset
        self._unpacker = unpacker
        self._last_offsets = np.array([last_offset for _, last_offset, _ in plan.last_producers], np.int64)
        self._damaged = np.array(sorted(mapped.damaged) if mapped else (), np.int64)

    def filter(self, piece: Piece) -> Block | None:
        mapped = self._mapped
        if mapped is None:
            return None
        if piece.first_offset < mapped.first_offset or piece.last_offset > self._latest_offset:
            return None
        if self._damaged.size and np.isin(piece.headers.base_offset, self._damaged).any():
            return None
        return filter_ordinary(piece.data, piece.headers, mapped.newest, self._last_offsets, self._unpacker)
