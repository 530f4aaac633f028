"""A log's producers and transactions against a dumb model: the list of what was appended.

Whatever becomes of the log meanwhile (restarts, lost files, DeleteRecords, rolls, truncations,
compaction), a batch that a producer sends again is never appended twice, the last stable offset is
where the oldest open transaction begins, and a reader at read_committed sees what was committed.
"""

import random
import shutil
import tempfile
from pathlib import Path
from typing import NamedTuple

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from barnabas.base.files import FileSlice, OsFiles
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.base.tasks import done_here
from barnabas.log.compaction.cleanable import cleanable
from barnabas.log.compaction.compaction import Compaction
from barnabas.log.compaction.plan import CompactionLimits
from barnabas.log.dirs.log_dirs import LogDirs
from barnabas.log.local_log import AppendInfo
from barnabas.log.partition_log import PartitionLog
from barnabas.log.producer_state import WITHOUT_VERIFICATION, Origin
from barnabas.log.settings import LogConfig
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.records.batch_header import read_headers
from barnabas.wire.kafka.records.control import AbortedTransactions, EndMarker, build_end_marker
from barnabas.wire.kafka.records.records import Record, build_batch, read_records

TP = TopicPartition("t", 3)
NOW = 1_700_000_000_000
CONFIG = LogConfig(
    {
        "cleanup.policy": "compact,delete",
        "segment.bytes": "500",
        "index.interval.bytes": "120",
        "file.delete.delay.ms": "0",
        "min.cleanable.dirty.ratio": "0",
        "delete.retention.ms": "0",
        "retention.ms": "-1",
    }
)
LIMITS = CompactionLimits(map_bytes=1 << 16, map_load_factor=0.9, chunk_bytes=4096)
KEYS = 3
KNOWN_BATCHES = 5
PRODUCERS = st.integers(1, 3)
PLAIN = 1
"""The producer without transactions; the others write in transactions only."""


class Entry(NamedTuple):
    """A batch or a marker that was appended."""

    producer_id: int
    epoch: int
    base_sequence: int
    """-1 for a marker."""
    first: int
    last: int
    is_abort: bool = False

    @property
    def is_marker(self) -> bool:
        return self.base_sequence < 0

    @property
    def is_transactional(self) -> bool:
        return self.producer_id != PLAIN


class State(NamedTuple):
    """What is known of a producer."""

    epoch: int
    batches: list[Entry]
    """All of the epoch."""
    open_from: int
    """Where its open transaction begins, or -1."""

    @property
    def next_sequence(self) -> int:
        last = self.batches[-1] if self.batches else None
        return last.base_sequence + last.last - last.first + 1 if last else 0


def state_of(producer_id: int, entries: list[Entry]) -> State | None:
    """What the entries say of a producer."""
    found: State | None = None
    for entry in entries:
        if entry.producer_id != producer_id:
            continue
        if found is None or found.epoch != entry.epoch:
            found = State(entry.epoch, [], found.open_from if found else -1)
        if entry.is_marker:
            found = found._replace(open_from=-1)
        else:
            found.batches.append(entry)
            if entry.is_transactional and found.open_from < 0:
                found = found._replace(open_from=entry.first)
    return found


class ProducersMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.mkdtemp(prefix="producers-model-")
        self.entries: list[Entry] = []
        self.start = self.end = 0
        self.compacted_at = 0
        """Where the log ended at the last compaction; 0 before the first."""
        self.loaded_at = 0
        """Where the log ended when its producers were last read from files."""
        self.now = NOW

    @initialize()
    def open(self) -> None:
        self._open()
        self.log = self.dirs.get_or_create(TP, Uuid(bytes(16)), CONFIG, self.now)

    def _open(self) -> None:
        self.dirs = LogDirs(
            OsFiles(), [self.directory], CONFIG, broker_id=0, cluster_id="c", rng=random.Random(3), max_open_files=4
        )
        self.dirs.load(self.now, {})

    def _reopen(self) -> None:
        self._open()
        log = self.dirs.get(TP)
        assert log is not None
        self.log: PartitionLog = log
        self.log.update_high_watermark(self.end)
        self.loaded_at = self.end

    def teardown(self) -> None:
        self.dirs.close(clean=False)
        shutil.rmtree(self.directory)

    # Appends

    def _append(self, producer_id: int, epoch: int, base_sequence: int, first: int, count: int) -> AppendInfo | int:
        """Send the batch that belongs at an offset; a retry gets the same bytes."""
        data = build_batch(
            [Record(i, NOW + first + i, b"%d" % ((first + i) % KEYS), b"%d" % (first + i)) for i in range(count)],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=base_sequence,
            is_transactional=producer_id != PLAIN,
        )
        try:
            return self.log.append_as_leader(data, leader_epoch=0, now_ms=self.now, guard=WITHOUT_VERIFICATION)
        except KafkaError as error:
            return error.code

    def _state(self, producer_id: int) -> State:
        return state_of(producer_id, self.entries) or State(0, [], -1)

    @rule(producer_id=PRODUCERS, count=st.integers(1, 3), raises_epoch=st.booleans())
    def append(self, producer_id: int, count: int, raises_epoch: bool) -> None:
        state = self._state(producer_id)
        epoch, sequence = state.epoch, state.next_sequence
        if raises_epoch and producer_id == PLAIN:
            epoch, sequence = epoch + 1, 0
        info = self._append(producer_id, epoch, sequence, self.end, count)
        assert isinstance(info, AppendInfo)
        assert (info.first_offset, info.last_offset, info.duplicate) == (self.end, self.end + count - 1, False)
        self.entries.append(Entry(producer_id, epoch, sequence, self.end, self.end + count - 1))
        self.end += count
        self.log.update_high_watermark(self.end)

    @rule(producer_id=st.integers(2, 3), is_abort=st.booleans(), raises_epoch=st.booleans())
    def end_transaction(self, producer_id: int, is_abort: bool, raises_epoch: bool) -> None:
        epoch = self._state(producer_id).epoch + raises_epoch
        marker = build_end_marker(
            EndMarker(is_abort, 1),
            offset=0,
            timestamp_ms=self.now,
            producer_id=producer_id,
            producer_epoch=epoch,
            leader_epoch=0,
        )
        self.log.append_as_leader(marker, leader_epoch=0, now_ms=self.now, origin=Origin.COORDINATOR)
        self.entries.append(Entry(producer_id, epoch, -1, self.end, self.end, is_abort))
        self.end += 1
        self.log.update_high_watermark(self.end)

    @rule(producer_id=PRODUCERS, back=st.integers(0, 6))
    def send_again(self, producer_id: int, back: int) -> None:
        """A retry of one of the last batches is a duplicate where it must be known, and is
        refused otherwise."""
        sent = [entry for entry in self.entries if entry.producer_id == producer_id and not entry.is_marker]
        if back >= len(sent):
            return
        entry, state = sent[-1 - back], self._state(producer_id)
        info = self._append(producer_id, entry.epoch, entry.base_sequence, entry.first, entry.last - entry.first + 1)
        if isinstance(info, AppendInfo):
            assert (info.first_offset, info.last_offset, info.duplicate) == (entry.first, entry.last, True)
        elif entry.epoch != state.epoch:
            assert info == ErrorCode.INVALID_PRODUCER_EPOCH
        else:
            assert info == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            assert back > 0, "the last batch is always known"
            assert back >= KNOWN_BATCHES or entry.first < self.loaded_at

    @rule(producer_id=PRODUCERS, ahead=st.integers(1, 3))
    def leave_a_sequence_out(self, producer_id: int, ahead: int) -> None:
        """A gap is refused, in the epoch of before and in a new one."""
        state = state_of(producer_id, self.entries)
        if state is None:
            return
        for epoch, sequence in ((state.epoch, state.next_sequence + ahead), (state.epoch + 1, ahead)):
            assert self._append(producer_id, epoch, sequence, self.end, 1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    # What becomes of the log

    @rule(back=st.integers(0, 10))
    def truncate(self, back: int) -> None:
        """Not below the end that a compaction knew: it has kept the last batches of then."""
        offset = max(self.compacted_at, self.start, self.end - back)
        self.dirs.truncate({TP: offset})
        if offset < self.end:
            cut = [entry.first for entry in self.entries if entry.last >= offset]
            self.end = min(offset, cut[0]) if cut else offset
            self.loaded_at = self.end
        self.entries = [entry for entry in self.entries if entry.last < self.end]
        self.start = min(self.start, self.end)
        self.log.update_high_watermark(self.end)

    @rule(forward=st.integers(0, 12))
    def delete_records(self, forward: int) -> None:
        self.start = self.log.delete_records_before(min(self.end, self.start + forward))
        self.log.apply_retention(self.now)
        done_here(self.log.purge_deleted(self.now))

    @rule()
    def roll(self) -> None:
        self.log.roll(self.now)

    @rule()
    def compact(self) -> None:
        found = cleanable(self.log, self.now)
        if found.upto_offset <= found.first_dirty_offset:
            return
        compaction = Compaction(self.log, found.first_dirty_offset, found.upto_offset, LIMITS, self.now)
        while compaction.outcome is None:
            assert compaction.is_possible()
            compaction.step()
            if compaction.wants_swap:
                compaction.swap(self.now)
        self.dirs.compacted(self.log, compaction.outcome.end_offset)
        done_here(self.log.purge_deleted(self.now))
        self.compacted_at = self.end
        self.now += 10

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        self._close(clean)
        self._reopen()

    def _close(self, clean: bool) -> None:
        self.dirs.checkpoint_log_start_offsets()
        self.dirs.checkpoint_high_watermarks()
        self.dirs.close(clean)

    @rule(which=st.integers(0, 30), how=st.sampled_from(["remove", "cut", "flip", "remove all"]))
    def lose_what_can_be_made_again(self, which: int, how: str) -> None:
        """Snapshots and transaction indexes of a stopped log. The recovery points go with them, so
        that the next start reads everything."""
        self._close(clean=False)
        Path(self.directory, "recovery-point-offset-checkpoint").unlink(missing_ok=True)
        folder = Path(self.directory, str(TP))
        paths = sorted(path for path in folder.iterdir() if path.suffix in (".snapshot", ".txnindex"))
        for path in paths if how == "remove all" else paths[which % len(paths) :][:1] if paths else []:
            data = bytearray(path.read_bytes())
            if how == "cut":
                path.write_bytes(data[: len(data) // 2])
            elif how == "flip" and data:
                data[which % len(data)] ^= 0x41
                path.write_bytes(data)
            else:
                path.unlink()
        self._reopen()
        self._forget_what_was_lost()

    def _forget_what_was_lost(self) -> None:
        """What only a snapshot said is forgotten with it: all before the first segment, or
        nothing."""
        first = self.log.segments.start_offset
        left = [entry for entry in self.entries if entry.last >= first]
        if {producer_id: self._logs_state(producer_id) for producer_id in (1, 2, 3)} != {
            producer_id: self._models_state(producer_id) for producer_id in (1, 2, 3)
        }:
            self.entries = left

    def _logs_state(self, producer_id: int) -> tuple[int, int, int] | None:
        entry = self.log.producers.entries.get(producer_id)
        return (entry.epoch, entry.last_sequence + 1, entry.transaction_first_offset) if entry else None

    def _models_state(self, producer_id: int) -> tuple[int, int, int] | None:
        state = state_of(producer_id, self.entries)
        return (state.epoch, state.next_sequence, state.open_from) if state else None

    # What must hold

    @invariant()
    def producers_are_known(self) -> None:
        assert (self.log.log_start_offset, self.log.log_end_offset) == (self.start, self.end)
        for producer_id in (1, 2, 3):
            assert self._logs_state(producer_id) == self._models_state(producer_id), producer_id

    @invariant()
    def the_last_stable_offset_is_where_the_first_open_transaction_begins(self) -> None:
        opened = [state.open_from for number in (2, 3) if (state := self._state(number)).open_from >= 0]
        assert self.log.last_stable_offset == min([max(self.start, first) for first in opened], default=self.end)

    @invariant()
    def readers_see_what_was_committed(self) -> None:
        stable = self.log.last_stable_offset
        seen = self._seen(stable)
        expected = [
            offset
            for at, entry in enumerate(self.entries)
            if not entry.is_marker and not self._is_aborted(at)
            for offset in range(entry.first, entry.last + 1)
            if self.start <= offset < stable
        ]
        if not self.compacted_at:
            assert seen == expected
        assert set(seen) <= set(expected)
        newest = {offset % KEYS: offset for offset in expected}
        assert set(newest.values()) <= set(seen)

    def _is_aborted(self, at: int) -> bool:
        entry = self.entries[at]
        if not entry.is_transactional:
            return False
        ends = (later for later in self.entries[at:] if later.is_marker and later.producer_id == entry.producer_id)
        return next((marker.is_abort for marker in ends), True)

    def _seen(self, stable: int) -> list[int]:
        """The offsets of what a reader at read_committed sees."""
        aborted = AbortedTransactions(
            (each.first_offset, each.producer_id) for each in self.log.aborted_transactions(self.start, stable)
        )
        seen: list[int] = []
        at = self.start
        while True:
            part = self.log.read(at, 1 << 20, upper_bound=stable)
            if not part.size_bytes:
                return seen
            assert isinstance(part.records, FileSlice)
            data = part.records.read()
            for position, header in read_headers(data):
                if aborted.shows(data, position, header):
                    seen += [record.offset for record in read_records(data, position) if record.offset >= self.start]
                at = header.last_offset + 1


TestProducersMachine = ProducersMachine.TestCase
TestProducersMachine.settings = settings(
    max_examples=60, stateful_step_count=30, deadline=None, suppress_health_check=list(HealthCheck)
)
