"""PartitionLog against a dumb model: a list of batches, through rolls, truncations,
deletions, crashes and reloads."""

import random
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from barnabas.base.files import FileSlice, OsFiles
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.base.tasks import done_here
from barnabas.log.dirs.log_dirs import LogDirs
from barnabas.log.partition_log import PartitionLog
from barnabas.log.settings import LogConfig
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.records.batch_header import read_headers
from barnabas.wire.kafka.records.records import Record, build_batch, read_records

TP = TopicPartition("t", 3)
NOW = 1_700_000_000_000
CONFIG = LogConfig({"segment.bytes": "700", "index.interval.bytes": "120", "file.delete.delay.ms": "0"})


def stored(log: PartitionLog) -> list[tuple[int, int, bytes]]:
    """(offset, leader epoch, value) of every record in the log."""
    found = []
    at = log.log_start_offset
    while True:
        part = log.read(at, 1 << 20, upper_bound=log.log_end_offset)
        if not part.size_bytes:
            return found
        assert isinstance(part.records, FileSlice)
        data = part.records.read()
        for position, header in read_headers(data):
            found += [
                (record.offset, header.leader_epoch, record.value or b"")
                for record in read_records(data, position)
                if record.offset >= log.log_start_offset
            ]
            at = header.last_offset + 1


class LogMachine(RuleBasedStateMachine):
    """The model: records as (offset, epoch, value), and where batches begin."""

    def __init__(self) -> None:
        super().__init__()
        self.directory = tempfile.mkdtemp(prefix="log-model-")
        self.records: list[tuple[int, int, bytes]] = []
        self.batch_of: dict[int, int] = {}
        self.start = self.end = 0
        self.epoch = 0
        self.sequence = 0
        self.sequences: dict[int, int] = {}
        self.now = NOW

    @initialize()
    def open(self) -> None:
        self._open()
        self.log = self.dirs.get_or_create(TP, Uuid(bytes(16)), CONFIG, self.now)

    def _open(self) -> None:
        self.dirs = LogDirs(
            OsFiles(), [self.directory], CONFIG, broker_id=0, cluster_id="c", rng=random.Random(3), max_open_files=2
        )
        self.dirs.load(self.now, {})

    def teardown(self) -> None:
        self.dirs.close(clean=False)
        shutil.rmtree(self.directory)

    @rule(count=st.integers(1, 4), size=st.integers(0, 90), new_epoch=st.booleans(), idempotent=st.booleans())
    def append(self, count: int, size: int, new_epoch: bool, idempotent: bool) -> None:
        self.epoch += new_epoch
        self.now += 7
        values = [b"%d" % (self.end + number) + b"x" * size for number in range(count)]
        options = {"producer_id": 5, "producer_epoch": 0, "base_sequence": self.sequence} if idempotent else {}
        data = build_batch([Record(i, self.now + i, None, value) for i, value in enumerate(values)], **options)
        info = self.log.append_as_leader(data, leader_epoch=self.epoch, now_ms=self.now)
        assert (info.first_offset, info.last_offset) == (self.end, self.end + count - 1)
        for number, value in enumerate(values):
            self.records.append((self.end + number, self.epoch, value))
            self.batch_of[self.end + number] = self.end
        self.end += count
        if idempotent:
            self.sequence += count
        self.sequences[self.end] = self.sequence
        self.log.update_high_watermark(self.end)

    @rule(back=st.integers(0, 12))
    def truncate(self, back: int) -> None:
        offset = max(0, self.end - back)
        first_segment = self.log.segments[0].base_offset
        self.dirs.truncate({TP: offset})
        if offset < self.end:
            self.end = min(offset, self.batch_of.get(offset, offset))
            if offset < first_segment:
                self.end = offset
        self.records = [record for record in self.records if record[0] < self.end]
        self.start = min(self.start, self.end)
        self.sequence = max((sequence for end, sequence in self.sequences.items() if end <= self.end), default=0)
        self.sequences = {end: sequence for end, sequence in self.sequences.items() if end <= self.end}
        # Where all of the producer's batches went, anything may follow; the model follows the log.
        entry = self.log.producers.entries.get(5)
        self.sequence = entry.last_sequence + 1 if entry and entry.batches else 0

    @rule(forward=st.integers(0, 8))
    def delete_records(self, forward: int) -> None:
        offset = min(self.end, self.start + forward)
        self.start = self.log.delete_records_before(offset)
        assert self.start == offset
        self.log.apply_retention(self.now)
        done_here(self.log.purge_deleted(self.now))
        self.records = [record for record in self.records if record[0] >= self.start]

    @rule()
    def roll(self) -> None:
        self.log.roll(self.now)

    @rule()
    def flush(self) -> None:
        self.log.flusher.flush(self.now)
        assert self.log.durability.recovery_point == self.end

    @rule()
    def checkpoint(self) -> None:
        self.dirs.checkpoint_recovery_points()
        self.dirs.checkpoint_log_start_offsets()
        self.dirs.checkpoint_high_watermarks()

    @rule(clean=st.booleans())
    def restart(self, clean: bool) -> None:
        self.dirs.checkpoint_log_start_offsets()
        self.dirs.checkpoint_high_watermarks()
        self.dirs.close(clean)
        self._open()
        log = self.dirs.get(TP)
        assert log is not None
        self.log = log
        self.log.update_high_watermark(self.end)

    @rule(tail=st.binary(max_size=200))
    def crash_with_a_torn_tail(self, tail: bytes) -> None:
        self.dirs.checkpoint_log_start_offsets()
        self.dirs.checkpoint_high_watermarks()
        path = self.log.segments.active.path
        self.dirs.close(clean=False)
        with Path(path).open("ab") as file:
            file.write(tail)
        self._open()
        log = self.dirs.get(TP)
        assert log is not None
        self.log = log
        self.log.update_high_watermark(self.end)

    @rule(which=st.integers(0, 30), how=st.sampled_from(["remove", "cut", "flip", "zeros", "empty"]))
    def damage_what_can_be_made_again(self, which: int, how: str) -> None:
        """An index, a snapshot or the epochs of a stopped log.

        The recovery points are forgotten with it."""
        self.dirs.checkpoint_log_start_offsets()
        self.dirs.close(clean=False)
        Path(self.directory, "recovery-point-offset-checkpoint").unlink(missing_ok=True)
        folder = Path(self.directory, str(TP))
        names = sorted(path for path in folder.iterdir() if path.suffix != ".log" and path.name != "partition.metadata")
        if names:
            path = names[which % len(names)]
            data = bytearray(path.read_bytes())
            if how == "remove":
                path.unlink()
            elif how == "cut":
                path.write_bytes(data[: len(data) // 2])
            elif how == "flip" and data:
                data[which % len(data)] ^= 0x41
                path.write_bytes(data)
            elif how == "zeros":
                path.write_bytes(data + bytes(100))
            elif how == "empty":
                path.write_bytes(b"")
        self._open()
        log = self.dirs.get(TP)
        assert log is not None
        self.log = log
        self.log.update_high_watermark(self.end)

    @invariant()
    def log_equals_model(self) -> None:
        assert (self.log.log_start_offset, self.log.log_end_offset) == (self.start, self.end)
        assert stored(self.log) == self.records
        for offset, _, _ in self.records[:: max(1, len(self.records) // 3)]:
            part = self.log.read(offset, 1, upper_bound=self.end, min_one_batch=True)
            assert isinstance(part.records, FileSlice)
            _, header = next(read_headers(part.records.read()))
            assert header.base_offset <= offset <= header.last_offset

    @invariant()
    def size_is_that_of_all_segments(self) -> None:
        segments = self.log.segments
        assert segments.size_bytes == sum(segment.size for segment in segments)
        assert segments.size_bytes == sum(Path(segment.path).stat().st_size for segment in segments)

    @invariant()
    def epochs_equal_model(self) -> None:
        last = -1
        for offset, epoch, _ in self.records:
            if epoch != last:
                assert self.log.leader_epochs.epochs.epoch_for(offset) == epoch
                last = epoch

    @invariant()
    def times_are_found(self) -> None:
        found = done_here(self.log.offset_for_timestamp(-3))
        times = {}
        at = self.start
        if self.records and found is not None:
            part = self.log.read(at, 1 << 20, upper_bound=self.end)
            assert isinstance(part.records, FileSlice)
            for position, _ in read_headers(data := part.records.read()):
                times.update({record.offset: record.timestamp for record in read_records(data, position)})
            first = min(offset for offset in times if offset >= at)
            earliest = done_here(self.log.offset_for_timestamp(times[first]))
            assert earliest is not None
            assert earliest.offset <= first or earliest.timestamp_ms >= times[first]


TestLogMachine = LogMachine.TestCase
TestLogMachine.settings = settings(
    max_examples=60, stateful_step_count=25, deadline=None, suppress_health_check=list(HealthCheck)
)


def test_a_tail_cut_at_any_byte_leaves_the_longest_valid_prefix(tmp_path: Path) -> None:
    """Three batches, every cut: whole batches before the cut come back, and appends
    go on after them."""
    dirs = LogDirs(OsFiles(), [str(tmp_path)], CONFIG, broker_id=0, cluster_id="c", rng=random.Random(1))
    dirs.load(NOW, {})
    log = dirs.get_or_create(TP, Uuid(bytes(16)), CONFIG, NOW)
    ends = [0]
    for number in range(3):
        data = build_batch([Record(i, NOW, None, b"value") for i in range(number + 1)], producer_id=4,
                           producer_epoch=0, base_sequence=[0, 1, 3][number])  # fmt: skip
        log.append_as_leader(data, leader_epoch=number, now_ms=NOW)
        ends.append(log.segments.active.size)
    path = Path(log.segments.active.path)
    whole = path.read_bytes()
    dirs.close(clean=False)
    end_offsets = [0, 1, 3, 6]
    for cut in range(len(whole) + 1):
        path.write_bytes(whole[:cut])
        for name in path.parent.iterdir():
            if name.suffix in (".index", ".timeindex", ".snapshot"):
                name.unlink()
        dirs = LogDirs(OsFiles(), [str(tmp_path)], CONFIG, broker_id=0, cluster_id="c", rng=random.Random(1))
        dirs.load(NOW, {})
        reloaded = dirs.get(TP)
        assert reloaded is not None
        batches = sum(end <= cut for end in ends) - 1
        assert reloaded.log_end_offset == end_offsets[batches]
        assert path.read_bytes() == whole[: ends[batches]]
        assert reloaded.leader_epochs.latest_epoch == batches - 1
        assert sum(entry.last_sequence + 1 for entry in reloaded.producers.entries.values()) == end_offsets[batches]
        dirs.close(clean=False)


@pytest.mark.parametrize("byte", range(0, 200, 3))
def test_a_flipped_byte_past_the_recovery_point_ends_the_log_there_or_is_put_right(tmp_path: Path, byte: int) -> None:
    """Where no CRC covers it (base offset, length, leader epoch, magic) nothing is
    lost: the batch is put right."""
    dirs = LogDirs(OsFiles(), [str(tmp_path)], CONFIG, broker_id=0, cluster_id="c", rng=random.Random(1))
    dirs.load(NOW, {})
    log = dirs.get_or_create(TP, Uuid(bytes(16)), CONFIG, NOW)
    for _ in range(3):
        log.append_as_leader(build_batch([Record(0, NOW, None, b"v")]), leader_epoch=0, now_ms=NOW)
    path = Path(log.segments.active.path)
    dirs.close(clean=False)
    data = bytearray(path.read_bytes())
    data[byte] ^= 0x10
    path.write_bytes(data)
    dirs = LogDirs(OsFiles(), [str(tmp_path)], CONFIG, broker_id=0, cluster_id="c", rng=random.Random(1))
    dirs.load(NOW, {})
    reloaded = dirs.get(TP)
    assert reloaded is not None
    size = len(data) // 3
    is_last_epoch = byte // size == 2 and 12 <= byte % size < 16
    assert reloaded.log_end_offset == (byte // size if byte % size >= 17 else 3)
    data[byte] ^= 0x10
    if not is_last_epoch:  # nothing behind it says what it was
        assert path.read_bytes() == data[: reloaded.log_end_offset * size]
    offsets = [offset for offset, _, _ in stored(reloaded)]
    assert offsets == sorted(set(offsets))
    reloaded.append_as_leader(build_batch([Record(0, NOW, None, b"v")]), leader_epoch=9, now_ms=NOW)


def test_a_log_that_ends_below_its_start_offset_begins_there_and_is_empty(tmp_path: Path) -> None:
    """Segments that vanished below the checkpointed start: the log is empty there."""
    dirs = LogDirs(OsFiles(), [str(tmp_path)], CONFIG, broker_id=0, cluster_id="c", rng=random.Random(1))
    dirs.load(NOW, {})
    log = dirs.get_or_create(TP, Uuid(bytes(16)), CONFIG, NOW)
    for _ in range(5):
        log.append_as_leader(build_batch([Record(0, NOW, None, b"v")]), leader_epoch=0, now_ms=NOW)
    log.update_high_watermark(5)
    log.delete_records_before(4)
    dirs.checkpoint_log_start_offsets()
    path = Path(log.segments.active.path)
    dirs.close(clean=False)
    path.write_bytes(b"")
    dirs = LogDirs(OsFiles(), [str(tmp_path)], CONFIG, broker_id=0, cluster_id="c", rng=random.Random(1))
    dirs.load(NOW, {})
    reloaded = dirs.get(TP)
    assert reloaded is not None
    assert (reloaded.log_start_offset, reloaded.log_end_offset) == (4, 4)
    with pytest.raises(KafkaError) as error:
        reloaded.read(0, 10, upper_bound=4)
    assert error.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
