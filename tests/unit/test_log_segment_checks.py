"""What a start has not looked at is checked before it is read for the first time:
nothing is skipped in silence."""

import logging
import random
from pathlib import Path

import pytest

from barnabas.base.files import FileSlice, OsFiles
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.log.dirs.log_dirs import LogDirs
from barnabas.log.holes import OffsetSpan, write_accepted
from barnabas.log.partition_log import PartitionLog
from barnabas.log.segment.unchecked import Unchecked
from barnabas.log.settings import LogConfig
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.records.batch_header import check_batch
from barnabas.wire.kafka.records.records import Record, build_batch

TP = TopicPartition("topic", 0)
BATCHES = 12
"""In each of three segments; two records each."""
END = BATCHES * 2 * 3
COMPACTED = {"cleanup.policy": "compact"}


def open_log(directory: Path, settings: dict[str, str]) -> tuple[LogDirs, PartitionLog]:
    config = LogConfig({"index.interval.bytes": "300", **settings})
    dirs = LogDirs(OsFiles(), [str(directory)], config, broker_id=0, cluster_id="c", rng=random.Random(1))
    dirs.load(0, {})
    return dirs, dirs.get_or_create(TP, Uuid(bytes(range(16))), config, 0)


def write_log(directory: Path, settings: dict[str, str]) -> list[Path]:
    """A log of three segments after a clean stop; their files."""
    dirs, log = open_log(directory, settings)
    for number in range(3 * BATCHES):
        if number and number % BATCHES == 0:
            log.roll(0)
        records = [Record(0, 0, b"%02d" % number, b"v" * 30), Record(1, 0, b"k%02d" % number, b"v")]
        log.append_as_leader(build_batch(records), leader_epoch=number // 7, now_ms=0)
    log.leader_epochs.complete()
    log.update_high_watermark(END)
    dirs.close(clean=True)
    return sorted((directory / str(TP)).glob("*.log"))


def consume(log: PartitionLog, max_bytes: int, offset: int = 0) -> tuple[set[int], set[int]]:
    """What a consumer gets that skips what it cannot read: the offsets of its
    records, and those of errors."""
    got: set[int] = set()
    errors: set[int] = set()
    while offset < log.log_end_offset:
        data = read(log, offset, max_bytes)
        position = 0
        while position < len(data):
            try:
                header = check_batch(data, position, len(data))
            except KafkaError:
                break
            found = range(header.base_offset, header.last_offset + 1)
            got.update(each for each in found if each >= offset)
            position += header.size_bytes
            offset = max(offset, header.last_offset + 1)
        if not position:
            errors.add(offset)  # as a consumer that finds a wrong checksum
            offset += 1
    return got, errors


def read(log: PartitionLog, offset: int, max_bytes: int) -> bytes:
    """The bytes that come; none for KAFKA_STORAGE_ERROR."""
    try:
        part = log.read(offset, max_bytes, upper_bound=log.log_end_offset)
    except KafkaError as error:
        if error.code is not ErrorCode.KAFKA_STORAGE_ERROR:
            raise
        return b""
    return part.records.read() if isinstance(part.records, FileSlice) else part.records


@pytest.mark.parametrize("settings", [{}, COMPACTED], ids=["delete", "compact"])
@pytest.mark.parametrize("segment", [0, 1, 2])
@pytest.mark.parametrize("batch", [0, 5, BATCHES - 1])
@pytest.mark.parametrize("byte", [0, 3, 6, 7, 8, 10, 11, 14, 15, 16, 40])
def test_no_bit_of_a_header_makes_a_consumer_skip_records_in_silence(
    tmp_path: Path, settings: dict[str, str], segment: int, batch: int, byte: int
) -> None:
    """All records come, or there is an error where they do not, in each segment and
    at both ends of it."""
    path = write_log(tmp_path, settings)[segment]
    data = bytearray(path.read_bytes())
    data[batch * len(data) // BATCHES + byte] ^= 1 << (byte % 7)
    path.write_bytes(data)
    dirs, log = open_log(tmp_path, settings)
    got, errors = consume(log, 200 if byte % 2 else 1 << 20)
    lost = set(range(END)) - got
    assert lost <= errors
    assert got <= set(range(END))
    if byte < 17 and not settings and lost:
        assert segment == 2  # the last batch of the log has no neighbour that says what it was
        assert batch == BATCHES - 1
    dirs.close(clean=False)


def test_a_healthy_log_is_read_as_it_is(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """From any offset, in pieces of any size, and nothing is logged."""
    write_log(tmp_path, {})
    for max_bytes in (100, 333, 1 << 20):
        dirs, log = open_log(tmp_path, {})
        for offset in range(0, END, 5):
            assert consume(log, max_bytes, offset) == (set(range(offset, END)), set())
        assert not any(segment.unchecked.size for segment in log.segments)
        dirs.close(clean=True)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_reads_go_on_behind_a_broken_batch_once_it_was_stepped_over(tmp_path: Path) -> None:
    """Its header says nothing that is true, so the batches behind it are found by their own."""
    path = write_log(tmp_path, {})[1]
    data = bytearray(path.read_bytes())
    size = len(data) // BATCHES
    data[5 * size : 6 * size] = b"\xff" * size
    path.write_bytes(data)
    first = (BATCHES + 5) * 2
    dirs, log = open_log(tmp_path, {})
    assert consume(log, 1 << 20) == (set(range(END)) - {first, first + 1}, {first, first + 1})
    dirs.close(clean=True)
    write_accepted(OsFiles(), str(path.parent), [OffsetSpan(first, first + 2)])
    dirs, log = open_log(tmp_path, {})
    assert consume(log, 1 << 20) == (set(range(END)) - {first, first + 1}, set())
    dirs.close(clean=False)


def test_ranges_that_touch_are_one_and_few_are_kept() -> None:
    """Whatever is forgotten is only looked at again."""
    rng = random.Random(3)
    unchecked, looked_at = Unchecked(10_000), set[int]()
    for _ in range(300):
        begin = rng.randrange(9_900)
        end = begin + rng.randrange(1, 100)
        unchecked.checked(begin, end)
        looked_at.update(range(begin, end))
        start = rng.randrange(9_900)
        if unchecked.covers(start, start + 50):
            assert looked_at.issuperset(range(start, start + 50))
    unchecked.checked(0, 10_000)
    assert unchecked.covers(0, 10_000)
