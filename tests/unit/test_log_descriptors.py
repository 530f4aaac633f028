"""Out of file descriptors: nothing goes offline or is lost, and everything goes on when
descriptors are free again."""

import contextlib
import errno
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from barnabas.base.errors import BarnabasError
from barnabas.base.files import File, OsFiles, is_descriptor_shortage
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.replication.transaction_verification import TransactionalProducer
from barnabas.log.dirs.log_dirs import LogDirs
from barnabas.log.partition_log import Origin, PartitionLog
from barnabas.log.producer_state import WITHOUT_VERIFICATION
from barnabas.log.segment.open_files import OpenFiles
from barnabas.log.settings import LogConfig
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.records.control import EndMarker, build_end_marker
from barnabas.wire.kafka.records.records import Record, build_batch
from support.transaction_coordinators import Coordinators

TP = TopicPartition("topic", 0)
TOPIC_ID = Uuid(bytes(range(16)))
NOW = 1_700_000_000_000
CONFIG = LogConfig({"segment.bytes": "400", "index.interval.bytes": "0"})


class FewDescriptors(OsFiles):
    """Lets a number of files be opened, then none."""

    __slots__ = ("left",)

    def __init__(self) -> None:
        self.left = 1 << 30

    def take(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    def open(self, path: str, *, create: bool = False, read_only: bool = False, keep: bool = False) -> File:
        self.take()
        return super().open(path, create=create, read_only=read_only, keep=keep)

    def read(self, path: str) -> bytes:
        self.take()
        return super().read(path)

    def write_atomically(self, path: str, data: bytes, *, sync: bool = True) -> None:  # type: ignore[override]
        self.take()
        super().write_atomically(path, data, sync=sync)


def open_dirs(directory: Path, files: OsFiles | None = None) -> LogDirs:
    dirs = LogDirs(
        files or OsFiles(),
        [str(directory)],
        CONFIG,
        broker_id=0,
        cluster_id="c",
        rng=random.Random(1),
        max_open_files=2,
    )
    dirs.load(NOW, {})
    return dirs


def steps(dirs: LogDirs) -> list[Callable[[], object]]:
    """Something of everything that a log does, one call each."""

    def log() -> PartitionLog:
        found = dirs.get(TP)
        assert found is not None
        return found

    def append(number: int, epoch: int) -> None:
        records = [Record(0, NOW, b"k", b"%d" % number * 40)]
        log().append_as_leader(build_batch(records), leader_epoch=epoch, now_ms=NOW)

    def transaction(producer_id: int) -> None:
        records = [Record(0, NOW, b"k", b"aborted")]
        batch = build_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=0, is_transactional=True)
        log().append_as_leader(batch, leader_epoch=2, now_ms=NOW, origin=Origin.COORDINATOR, guard=WITHOUT_VERIFICATION)

    def abort(producer_id: int) -> None:
        marker = build_end_marker(
            EndMarker(True, 0), offset=0, timestamp_ms=NOW, producer_id=producer_id, producer_epoch=0, leader_epoch=2
        )
        log().append_as_leader(marker, leader_epoch=2, now_ms=NOW, origin=Origin.COORDINATOR)

    def read() -> None:
        assert log().read(log().log_start_offset, 1 << 20, upper_bound=log().log_end_offset).size_bytes

    return [
        lambda: dirs.get_or_create(TP, TOPIC_ID, CONFIG, NOW),
        *(lambda number=number: append(number, 1) for number in range(8)),
        lambda: transaction(7),
        lambda: abort(7),
        *(lambda number=number: append(number, 2) for number in range(8, 12)),
        read,
        lambda: log().truncate_to(11),
        lambda: log().update_high_watermark(11),
        lambda: log().flusher.flush(NOW),
        lambda: log().delete_records_before(5),
        lambda: log().apply_retention(NOW),
        *(lambda number=number: append(number, 3) for number in range(12, 18)),
        read,
        dirs.checkpoint_recovery_points,
    ]


def state(log: PartitionLog) -> object:
    content = b"".join(segment.file.read_at(0, segment.size) for segment in log.segments)
    bounds = (log.log_start_offset, log.log_end_offset)
    aborted = log.aborted_transactions(log.log_start_offset, log.log_end_offset)
    return content, bounds, aborted, log.leader_epochs.epochs.entries, [segment.base_offset for segment in log.segments]


def run(files: FewDescriptors, dirs: LogDirs, left: int) -> int:
    """Run all steps with this many opens allowed; a step that fails runs again with descriptors.

    The number that failed."""
    failed = 0
    files.left = left
    for step in steps(dirs):
        try:
            step()
        except KafkaError as error:
            code = error.code
        else:
            continue
        assert code == ErrorCode.KAFKA_STORAGE_ERROR
        assert not dirs.offline
        failed += 1
        files.left = 1 << 30
        step()
    return failed


def test_a_shortage_at_any_open_costs_one_call_and_nothing_else(tmp_path: Path) -> None:
    """The same steps leave the same log, whichever open found no descriptor; so does
    a restart after a crash."""
    files = FewDescriptors()
    dirs = open_dirs(tmp_path / "expected", files)
    plenty = 1 << 20
    assert run(files, dirs, plenty) == 0
    opens = plenty - files.left
    log = dirs.get(TP)
    assert log is not None
    expected = state(log)
    failures = 0
    for left in range(opens):
        files = FewDescriptors()
        dirs = open_dirs(tmp_path / str(left), files)
        failed = run(files, dirs, left)
        failures += failed
        files.left = plenty
        log = dirs.get(TP)
        assert log is not None
        assert state(log) == expected, f"the shortage came after {left} opens"
        dirs.close(clean=False)
        again = open_dirs(tmp_path / str(left))
        loaded = again.get(TP)
        assert loaded is not None
        assert state(loaded)[0] == expected[0]  # type: ignore[index]
        assert state(loaded)[2:4] == expected[2:4]  # type: ignore[index]
        assert loaded.lost_data is None
        again.close(clean=False)
    assert failures > opens // 2


@pytest.mark.parametrize("leads", [True, False])
def test_a_truncation_that_found_no_descriptor_for_its_producers_leaves_none_of_what_it_cut(
    tmp_path: Path, leads: bool
) -> None:
    """The replica leads or follows before it is truncated again: what was cut is no duplicate."""

    def sent(number: int, offset: int = 0) -> bytearray:
        return build_batch([Record(offset, NOW, None, b"v")], producer_id=5, producer_epoch=0, base_sequence=number)

    opens, outdated = 0, 0
    while True:
        files = FewDescriptors()
        dirs = open_dirs(tmp_path / str(opens), files)
        log = dirs.get_or_create(TP, TOPIC_ID, CONFIG, NOW)
        for number in range(3):
            log.append_as_leader(sent(number), leader_epoch=0, now_ms=NOW)
            log.roll(NOW)
        log.segments.forget()
        files.left = opens
        with contextlib.suppress(KafkaError):
            log.truncate_to(1)
            break
        files.left = 1 << 30
        if log.log_end_offset == 1 and log.producers.entries[5].last_sequence == 2:
            outdated += 1
            if not leads:
                log.append_as_follower(sent(1, offset=1), now_ms=NOW)
            info = log.append_as_leader(sent(1), leader_epoch=1, now_ms=NOW)
            assert (info.first_offset, info.duplicate) == (1, not leads)
        dirs.close(clean=False)
        opens += 1
    files.left = 1 << 30
    dirs.close(clean=False)
    assert outdated


def test_a_replica_that_leads_after_such_a_truncation_decides_by_the_producers_that_its_log_has(tmp_path: Path) -> None:
    """A transaction that was cut off is verified when it comes again, as if it were new."""

    def sent(number: int) -> bytearray:
        return build_batch(
            [Record(0, NOW, None, b"v")],
            producer_id=5,
            producer_epoch=0,
            base_sequence=number,
            is_transactional=True,
        )

    producer = TransactionalProducer("pay", 5, 0, knows_abortable=True)
    opens, outdated = 0, 0
    is_done = False
    while not is_done:
        files = FewDescriptors()
        dirs = open_dirs(tmp_path / str(opens), files)
        log = dirs.get_or_create(TP, TOPIC_ID, CONFIG, NOW)
        log.append_as_leader(
            build_batch([Record(0, NOW, None, b"v")], producer_id=6, producer_epoch=0, base_sequence=0),
            leader_epoch=0,
            now_ms=NOW,
        )
        log.roll(NOW)
        log.append_as_leader(sent(0), leader_epoch=0, now_ms=NOW, guard=WITHOUT_VERIFICATION)
        log.segments.forget()
        files.left = opens
        with contextlib.suppress(KafkaError):
            log.truncate_to(1)
            is_done = True
        files.left = 0
        if log.log_end_offset == 1 and log.producers.has_open_transaction(5, 0):
            outdated += 1
            verification = Coordinators(MetadataCache()).verifier.begin(producer)
            verification.start(log, 0, NOW)
            assert not verification.is_needed
            assert verification.error_of(TP) == ErrorCode.KAFKA_STORAGE_ERROR
            files.left = 1 << 30
            verification = Coordinators(MetadataCache()).verifier.begin(producer)
            verification.start(log, 0, NOW)
            assert verification.is_needed
        files.left = 1 << 30
        dirs.close(clean=False)
        opens += 1
    assert outdated


def test_a_clean_stop_after_such_a_truncation_keeps_no_producers_of_what_was_cut(tmp_path: Path) -> None:
    """The next start reads them from the log: it knows what is there, not what was cut."""

    def sent(number: int) -> bytearray:
        return build_batch([Record(0, NOW, None, b"v")], producer_id=5, producer_epoch=0, base_sequence=number)

    opens, outdated = 0, 0
    is_done = False
    while not is_done:
        files = FewDescriptors()
        dirs = open_dirs(tmp_path / str(opens), files)
        log = dirs.get_or_create(TP, TOPIC_ID, CONFIG, NOW)
        for number in range(4):
            log.append_as_leader(sent(number), leader_epoch=0, now_ms=NOW)
            if not number:
                log.roll(NOW)
        log.segments.forget()
        files.left = opens
        with contextlib.suppress(KafkaError):
            log.truncate_to(2)
            is_done = True
        files.left = 1 << 30
        outdated += log.log_end_offset == 2 and log.producers.entries[5].last_sequence != 1
        dirs.close(clean=True)
        dirs = open_dirs(tmp_path / str(opens))
        loaded = dirs.get(TP)
        assert loaded is not None
        end_offset = loaded.log_end_offset
        assert end_offset in (2, 4)
        for number, is_known in ((end_offset - 1, True), (end_offset, False)):
            assert loaded.append_as_leader(sent(number), leader_epoch=1, now_ms=NOW).duplicate == is_known
        dirs.close(clean=False)
        opens += 1
    assert outdated


def test_a_start_without_descriptors_ends_with_an_error_that_says_what_to_do(tmp_path: Path) -> None:
    """A dir that could be loaded in part only must not pass for one with a broken disk."""
    dirs = open_dirs(tmp_path)
    dirs.get_or_create(TP, TOPIC_ID, CONFIG, NOW)
    dirs.close(clean=True)
    files = FewDescriptors()
    files.left = 3
    with pytest.raises(BarnabasError, match="ulimit -n"):
        open_dirs(tmp_path, files)


def test_a_stop_without_descriptors_leaves_no_marker_of_a_clean_one(tmp_path: Path) -> None:
    """What could not be synced is checked by the next start."""
    files = FewDescriptors()
    dirs = open_dirs(tmp_path, files)
    log = dirs.get_or_create(TP, TOPIC_ID, CONFIG, NOW)
    log.append_as_leader(build_batch([Record(0, NOW, None, b"v")]), leader_epoch=0, now_ms=NOW)
    files.left = 0
    dirs.close(clean=True)
    assert not dirs.offline
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    loaded = open_dirs(tmp_path).get(TP)
    assert loaded is not None
    assert loaded.log_end_offset == 1


def test_a_file_that_is_missing_is_not_made_by_a_reader(tmp_path: Path) -> None:
    """An empty one in its place would say that it never held anything."""
    open_files = OpenFiles(OsFiles())
    path = str(tmp_path / "00000000000000000000.log")
    with pytest.raises(FileNotFoundError, match="00000000000000000000.log"):
        open_files.get(path)
    assert list(tmp_path.iterdir()) == []
    open_files.get(path, create=True).append([b"x"])
    assert open_files.get(path).read_at(0, 5) == b"x"


def test_open_files_are_let_go_when_no_descriptor_is_free(tmp_path: Path) -> None:
    """The oldest quarter makes room; with none open the shortage is the caller's."""
    files = FewDescriptors()
    open_files = OpenFiles(files)
    for number in range(8):
        open_files.get(str(tmp_path / str(number)), create=True)
    (tmp_path / "another").touch()
    files.left = 0

    def let_go(path: str) -> None:
        with pytest.raises(OSError) as error:
            open_files.get(path)
        assert is_descriptor_shortage(error.value)

    let_go(str(tmp_path / "another"))
    assert len(open_files) == 0
    files.left = 1
    open_files.get(str(tmp_path / "another"))
    assert len(open_files) == 1


_SHORTAGE = """
import logging, os, resource, sys
from barnabas.base.files import OsFiles
logging.basicConfig(stream=sys.stdout, format="%(message)s")
files = OsFiles()
directory = sys.argv[1]
files.write_atomically(directory + "/a", b"1")
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
taken = []
try:
    while True:
        taken.append(os.open(os.devnull, os.O_RDONLY))
except OSError:
    pass
for number in range(20):
    files.write_atomically(directory + "/a", b"%d" % number)
    files.open(directory + "/a").close()
    files.list(directory)
kept = []
try:
    while True:
        kept.append(files.open(directory + "/a", keep=True))
except OSError as error:
    print("kept files wait:", error.errno)
files.write_atomically(directory + "/a", b"19")
while taken:
    os.close(taken.pop())
print(files.read(directory + "/a"), flush=True)
"""


def test_the_file_system_completes_short_work_from_its_reserve_and_logs_a_shortage_once(tmp_path: Path) -> None:
    """With every descriptor of the process taken; the end of the shortage is logged, too."""
    done = subprocess.run(
        [sys.executable, "-c", _SHORTAGE, str(tmp_path)], capture_output=True, text=True, timeout=60, check=True
    )
    assert done.stdout.splitlines() == [
        "No file descriptor is free (Too many open files): raise the limit of open files (ulimit -n)",
        f"kept files wait: {errno.EMFILE}",
        "File descriptors are free again",
        "b'19'",
    ]
