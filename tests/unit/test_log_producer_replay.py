"""What a log knows of its producers and their transactions again after a restart."""

import random
import struct
from pathlib import Path

import pytest
from crc32c import crc32c

from barnabas.base.files import OsFiles
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.base.tasks import done_here
from barnabas.log.dirs.log_dirs import LogDirs
from barnabas.log.partition_log import PartitionLog
from barnabas.log.producer_state import WITHOUT_VERIFICATION, Origin
from barnabas.log.settings import LogConfig
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.records.batch_header import HEADER_BYTES, read_headers
from barnabas.wire.kafka.records.control import AbortedTransactions, EndMarker, build_end_marker
from barnabas.wire.kafka.records.records import Record, build_batch

TP = TopicPartition("t", 0)
NOW = 1_700_000_000_000
CONFIG = LogConfig({"file.delete.delay.ms": "0"})
BATCH = 4
"""Records in a batch: producer n writes the offsets 4n to 4n + 3."""


def loaded(directory: Path) -> LogDirs:
    dirs = LogDirs(OsFiles(), [str(directory)], CONFIG, broker_id=0, cluster_id="c", rng=random.Random(1))
    dirs.load(NOW, {})
    return dirs


def send(log: PartitionLog, producer_id: int) -> tuple[int, bool]:
    """A producer's first batch, or a retry: its first offset, and whether it was a duplicate."""
    records = [Record(number, NOW, None, b"value") for number in range(BATCH)]
    data = build_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=0)
    info = log.append_as_leader(data, leader_epoch=0, now_ms=NOW)
    return info.first_offset, info.duplicate


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("rolled", [True, False])
@pytest.mark.parametrize("start", range(3 * BATCH + 1))
def test_a_retry_after_delete_records_and_a_restart_is_a_duplicate(
    tmp_path: Path, start: int, rolled: bool, clean: bool
) -> None:
    """Wherever the log starts now: inside a batch, between two, or at its end."""
    dirs = loaded(tmp_path)
    log = dirs.get_or_create(TP, Uuid(bytes(16)), CONFIG, NOW)
    for producer_id in range(3):
        if rolled:
            log.roll(NOW)
        send(log, producer_id)
    log.update_high_watermark(log.log_end_offset)
    log.delete_records_before(start)
    log.apply_retention(NOW)
    done_here(log.purge_deleted(NOW))
    dirs.checkpoint_log_start_offsets()
    dirs.close(clean)
    dirs = loaded(tmp_path)
    log = dirs.get(TP)
    assert log is not None
    assert log.log_start_offset == start
    assert [send(log, producer_id) for producer_id in range(3)] == [(0, True), (BATCH, True), (2 * BATCH, True)]
    dirs.close(clean=False)


def abort_marker(producer_id: int, *, epoch: int = 0) -> bytearray:
    return build_end_marker(
        EndMarker(is_abort=True, coordinator_epoch=1),
        offset=0,
        timestamp_ms=NOW,
        producer_id=producer_id,
        producer_epoch=epoch,
        leader_epoch=0,
    )


def without_its_record(batch: bytearray) -> bytearray:
    """A batch as compaction leaves the last one of a producer: its header alone."""
    emptied = batch[:HEADER_BYTES]
    struct.pack_into(">i", emptied, 8, HEADER_BYTES - 12)
    struct.pack_into(">i", emptied, HEADER_BYTES - 4, 0)
    struct.pack_into(">I", emptied, 17, crc32c(emptied[21:]))
    return emptied


@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("left", [None, b""])
def test_aborted_transactions_are_known_after_a_crash_that_lost_their_index_but_no_snapshot(
    tmp_path: Path, left: bytes | None, closed: bool
) -> None:
    """Neither was synced, so each may be lost without the other."""
    dirs = loaded(tmp_path)
    log = dirs.get_or_create(TP, Uuid(bytes(16)), CONFIG, NOW)
    data = build_batch(
        [Record(0, NOW, None, b"value")], producer_id=5, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    log.append_as_leader(data, leader_epoch=0, now_ms=NOW, guard=WITHOUT_VERIFICATION)
    log.append_as_leader(abort_marker(5), leader_epoch=0, now_ms=NOW, origin=Origin.COORDINATOR)
    log.update_high_watermark(log.log_end_offset)
    if closed:
        log.roll(NOW)
        send(log, 6)
    aborted = log.aborted_transactions(0, log.log_end_offset)
    assert [(each.first_offset, each.last_offset) for each in aborted] == [(0, 1)]
    index = Path(log.segments[0].transactions.path)
    dirs.checkpoint_log_start_offsets()
    dirs.close(clean=False)
    if left is None:
        index.unlink()
    else:
        index.write_bytes(left)
    dirs = loaded(tmp_path)
    log = dirs.get(TP)
    assert log is not None
    assert log.aborted_transactions(0, log.log_end_offset) == aborted
    dirs.close(clean=False)


def test_the_last_two_segments_have_snapshots_again_after_a_crash(tmp_path: Path) -> None:
    """A truncation finds the producers whose batches were in segments that are gone."""
    dirs = loaded(tmp_path)
    log = dirs.get_or_create(TP, Uuid(bytes(16)), CONFIG, NOW)
    for producer_id in range(3):
        send(log, producer_id)
        log.roll(NOW)
    dirs.checkpoint_log_start_offsets()
    dirs.close(clean=False)
    for path in Path(log.directory).glob("*.snapshot"):
        path.unlink()
    dirs = loaded(tmp_path)
    log = dirs.get(TP)
    assert log is not None
    log.update_high_watermark(2 * BATCH)
    log.delete_records_before(2 * BATCH)
    log.apply_retention(NOW)
    dirs.truncate({TP: 2 * BATCH})
    assert [send(log, producer_id) for producer_id in range(3)] == [(0, True), (BATCH, True), (2 * BATCH, False)]
    dirs.close(clean=False)


@pytest.mark.parametrize("clean", [True, False])
def test_a_marker_that_compaction_has_emptied_fences_its_producers_earlier_epochs(tmp_path: Path, clean: bool) -> None:
    """It is all that the log has of the epoch. Readers pass over it."""
    dirs = loaded(tmp_path)
    log = dirs.get_or_create(TP, Uuid(bytes(16)), CONFIG, NOW)
    emptied = without_its_record(abort_marker(5, epoch=3))
    assert not AbortedTransactions([]).shows(emptied, 0, next(read_headers(emptied))[1])
    log.append_as_follower(emptied, now_ms=NOW, leader_epoch=0)
    for is_restarted in (False, True):
        if is_restarted:
            dirs.checkpoint_log_start_offsets()
            dirs.close(clean)
            for path in Path(log.directory).glob("*.snapshot"):
                path.unlink()
            dirs = loaded(tmp_path)
            log = dirs.get(TP)
            assert log is not None
        with pytest.raises(KafkaError) as error:
            log.append_as_leader(
                build_batch([Record(0, NOW, None, b"late")], producer_id=5, producer_epoch=2, base_sequence=0),
                leader_epoch=0,
                now_ms=NOW,
            )
        assert error.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
    dirs.close(clean=False)
