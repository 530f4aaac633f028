"""PartitionLog: appends, reads, producers, epochs, retention, truncation and
recovery, on real files."""

import contextlib
import errno
import random
import struct
from pathlib import Path

import pytest
from crc32c import crc32c

from barnabas.base.errors import BarnabasError
from barnabas.base.files import FileSlice, OsFiles
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.base.tasks import done_here
from barnabas.log import timestamps
from barnabas.log.dirs.log_dirs import LogDirs
from barnabas.log.partition_log import Origin, PartitionLog, UnexpectedOffsetError
from barnabas.log.producer_state import WITHOUT_VERIFICATION
from barnabas.log.settings import LogConfig
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.records.batch_header import read_header, read_headers
from barnabas.wire.kafka.records.compression import CompressionType
from barnabas.wire.kafka.records.control import EndMarker, build_end_marker
from barnabas.wire.kafka.records.records import Record, build_batch, read_records

TP = TopicPartition("topic", 0)
TOPIC_ID = Uuid(bytes(range(16)))
NOW = 1_700_000_000_000


def open_dirs(directory: Path, defaults: LogConfig | None = None, **options: object) -> LogDirs:
    dirs = LogDirs(
        OsFiles(),
        [str(directory)],
        defaults or LogConfig(),
        broker_id=1,
        cluster_id="cluster",
        rng=random.Random(7),
        **options,  # type: ignore[arg-type]
    )
    dirs.load(NOW, {})
    return dirs


def new_log(directory: Path, **overrides: str) -> PartitionLog:
    config = LogConfig({name.replace("_", "."): value for name, value in overrides.items()})
    return open_dirs(directory, config).get_or_create(TP, TOPIC_ID, config, NOW)


def batch(count: int = 1, *, timestamp: int = NOW, size: int = 10, **options: object) -> bytearray:
    records = [Record(number, timestamp + number, b"k%d" % number, b"v" * size) for number in range(count)]
    return build_batch(records, **options)  # type: ignore[arg-type]


def append(log: PartitionLog, data: bytearray | None = None, **options: int) -> tuple[int, int]:
    options.setdefault("guard", WITHOUT_VERIFICATION)
    info = log.append_as_leader(data or batch(), leader_epoch=options.pop("leader_epoch", 0), now_ms=NOW, **options)
    log.update_high_watermark(log.log_end_offset)
    return info.first_offset, info.last_offset


def offsets(
    log: PartitionLog, start: int | None = None, upper: int | None = None, max_bytes: int = 1 << 20
) -> list[int]:
    """Every record's offset from ``start`` on, by reads one after another."""
    found = []
    at = log.log_start_offset if start is None else start
    upper = log.log_end_offset if upper is None else upper
    while True:
        part = log.read(at, max_bytes, upper_bound=upper, min_one_batch=True)
        if not part.size_bytes:
            return found
        assert isinstance(part.records, FileSlice)
        data = part.records.read()
        for position, header in read_headers(data):
            found += [record.offset for record in read_records(data, position) if record.offset >= at]
            at = header.last_offset + 1


def code_of(error: pytest.ExceptionInfo[KafkaError]) -> ErrorCode:
    return error.value.code


def test_appended_batches_read_back_with_rising_offsets_and_the_leader_epoch(tmp_path: Path) -> None:
    """Offsets and epoch are set in place; the rest of the bytes stays as produced."""
    log = new_log(tmp_path)
    produced = batch(3)
    untouched = bytes(produced)
    assert append(log, produced, leader_epoch=4) == (0, 2)
    assert append(log, batch(2), leader_epoch=4) == (3, 4)
    part = log.read(0, 1 << 20, upper_bound=5, min_one_batch=True)
    assert isinstance(part.records, FileSlice)
    stored = part.records.read()
    assert read_header(stored).leader_epoch == 4
    assert stored[16 : len(untouched)] == untouched[16:]
    assert offsets(log) == [0, 1, 2, 3, 4]
    assert log.leader_epochs.latest_epoch == 4


def test_a_read_only_buffer_is_copied_before_offsets_are_set(tmp_path: Path) -> None:
    """Callers may pass bytes."""
    log = new_log(tmp_path)
    append(log)
    info = log.append_as_leader(bytes(batch()), leader_epoch=0, now_ms=NOW)
    assert info.first_offset == 1


def test_reads_respect_bounds_and_sizes(tmp_path: Path) -> None:
    """Nothing at the bound, OFFSET_OUT_OF_RANGE outside the log, one whole batch
    even when it is too large."""
    log = new_log(tmp_path)
    for _ in range(5):
        append(log, batch(2, size=100))
    size = read_header(batch(2, size=100)).size_bytes
    assert log.read(10, 100, upper_bound=10).size_bytes == 0
    assert log.read(4, 1 << 20, upper_bound=6).size_bytes == size
    assert log.read(4, 1 << 20, upper_bound=7).size_bytes == size, "a batch that crosses the bound is left out"
    assert log.read(5, 10, upper_bound=10, min_one_batch=True).size_bytes == size
    assert log.read(5, 10, upper_bound=10, min_one_batch=False).size_bytes == 0
    assert log.read(0, size + 20, upper_bound=10).size_bytes == size + 20
    for outside in (-1, 11):
        with pytest.raises(KafkaError) as error:
            log.read(outside, 100, upper_bound=10)
        assert code_of(error) == ErrorCode.OFFSET_OUT_OF_RANGE


def lying_count(count: int) -> bytearray:
    """A compressed batch of one record that claims to hold more, with a right CRC."""
    data = bytearray(batch(compression=CompressionType.ZSTD))
    struct.pack_into(">i", data, 23, count - 1)
    struct.pack_into(">i", data, 57, count)
    struct.pack_into(">I", data, 17, crc32c(data[21:]))
    return data


def corrupted(data: bytearray, at: int, value: int) -> bytearray:
    data[at] ^= value
    return data


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (bytearray(), ErrorCode.INVALID_RECORD),
        (batch()[:60], ErrorCode.INVALID_RECORD),
        (batch()[:-1], ErrorCode.INVALID_RECORD),
        (batch() + batch(), ErrorCode.INVALID_RECORD),
        (corrupted(batch(), 16, 3), ErrorCode.INVALID_RECORD),
        (corrupted(batch(), 70, 1), ErrorCode.CORRUPT_MESSAGE),
        (corrupted(batch(), 8, 0x80), ErrorCode.CORRUPT_MESSAGE),
        (batch(is_control=True), ErrorCode.INVALID_RECORD),
        (batch(producer_id=5, producer_epoch=0), ErrorCode.INVALID_RECORD),
        (batch(base_offset=-1), ErrorCode.INVALID_RECORD),
        (build_batch([Record(0, NOW, None, b"a"), Record(5, NOW, None, b"b")]), ErrorCode.INVALID_RECORD),
        (lying_count(2**31 - 1), ErrorCode.INVALID_RECORD),
        (lying_count(3_000_000), ErrorCode.INVALID_RECORD),
        (batch(size=2_000_000), ErrorCode.MESSAGE_TOO_LARGE),
    ],
    ids=["empty", "header cut", "cut", "two batches", "magic", "crc", "length", "control", "sequence", "base", "count",
         "all offsets", "impossible count", "large"],
)  # fmt: skip
def test_a_batch_that_breaks_a_rule_is_refused_and_leaves_no_trace(
    tmp_path: Path, data: bytearray, code: ErrorCode
) -> None:
    """Each with the code that Kafka answers."""
    log = new_log(tmp_path)
    append(log)
    with pytest.raises(KafkaError) as error:
        log.append_as_leader(bytearray(data), leader_epoch=0, now_ms=NOW)
    assert code_of(error) == code
    assert log.log_end_offset == 1
    assert offsets(log) == [0]


def test_every_bit_of_a_batch_may_flip_without_harm(tmp_path: Path) -> None:
    """A flipped bit is refused, or lies in the fields that the leader sets itself."""
    log = new_log(tmp_path)
    good = batch(2)
    for bit in range(len(good) * 8):
        data = bytearray(good)
        data[bit // 8] ^= 1 << bit % 8
        try:
            log.append_as_leader(data, leader_epoch=0, now_ms=NOW)
        except KafkaError:
            continue
        assert 12 <= bit // 8 < 16, f"byte {bit // 8}"
    assert len(offsets(log)) == log.log_end_offset == 4 * 8 * 2


def test_a_batch_larger_than_a_segment_is_refused(tmp_path: Path) -> None:
    """RECORD_LIST_TOO_LARGE, as segment.bytes is the limit of what a segment can hold."""
    log = new_log(tmp_path, segment_bytes="1000")
    with pytest.raises(KafkaError) as error:
        append(log, batch(size=2000))
    assert code_of(error) == ErrorCode.RECORD_LIST_TOO_LARGE


def test_log_append_time_stamps_the_batch(tmp_path: Path) -> None:
    """The broker's time replaces the producer's, with a CRC that holds."""
    log = new_log(tmp_path, message_timestamp_type="LogAppendTime")
    info = log.append_as_leader(batch(2, timestamp=5), leader_epoch=0, now_ms=NOW)
    assert info.log_append_time_ms == NOW
    part = log.read(0, 1 << 20, upper_bound=2)
    assert isinstance(part.records, FileSlice)
    assert [record.timestamp for record in read_records(part.records.read())] == [NOW, NOW]
    log.append_as_follower(part.records.read()[:0], now_ms=NOW)
    assert log.log_end_offset == 2


def test_timestamps_out_of_range_are_refused(tmp_path: Path) -> None:
    """message.timestamp.before.max.ms and after.max.ms, by each record."""
    log = new_log(tmp_path, **{"message.timestamp.after.max.ms": "1000", "message.timestamp.before.max.ms": "1000"})
    append(log, batch(timestamp=NOW))
    old_inside = build_batch([Record(0, NOW, None, b""), Record(1, NOW - 1001, None, b"")])
    for bad in (batch(timestamp=NOW + 1001), batch(timestamp=NOW - 1001), old_inside):
        with pytest.raises(KafkaError) as error:
            append(log, bad)
        assert code_of(error) == ErrorCode.INVALID_TIMESTAMP


def test_a_compacted_topic_refuses_records_without_keys(tmp_path: Path) -> None:
    """INVALID_RECORD, since compaction could not place them."""
    log = new_log(tmp_path, cleanup_policy="compact")
    append(log)
    with pytest.raises(KafkaError) as error:
        append(log, build_batch([Record(0, NOW, None, b"v")]))
    assert code_of(error) == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", list(CompressionType))
def test_the_topics_codec_replaces_the_producers(tmp_path: Path, codec: CompressionType) -> None:
    """compression.type other than 'producer' stores every batch with that codec,
    records unchanged."""
    name = "uncompressed" if codec is CompressionType.NONE else codec.name.lower()
    log = new_log(tmp_path, compression_type=name)
    produced = batch(5, compression=CompressionType.LZ4, producer_id=3, producer_epoch=0, base_sequence=0)
    expected = list(read_records(produced))
    append(log, produced)
    part = log.read(0, 1 << 20, upper_bound=5)
    assert isinstance(part.records, FileSlice)
    stored = part.records.read()
    assert read_header(stored).compression == codec
    assert list(read_records(stored)) == expected
    assert next(iter(log.producers.entries.values())).last_sequence == 4


# ---- producers


def from_producer(sequence: int, count: int = 1, epoch: int = 0, producer_id: int = 9, **options: object) -> bytearray:
    return batch(count, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence, **options)


def test_a_retried_batch_gets_its_first_offsets_and_is_not_stored_again(tmp_path: Path) -> None:
    """Any of the last five batches; older ones are out of order."""
    log = new_log(tmp_path)
    for sequence in range(0, 14, 2):
        append(log, from_producer(sequence, 2))
    for sequence in range(4, 14, 2):
        info = log.append_as_leader(from_producer(sequence, 2), leader_epoch=0, now_ms=NOW)
        assert info.duplicate
        assert (info.first_offset, info.last_offset) == (sequence, sequence + 1)
    with pytest.raises(KafkaError) as error:
        append(log, from_producer(2, 2))
    assert code_of(error) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.log_end_offset == 14


def test_gaps_and_old_epochs_of_a_producer_are_refused(tmp_path: Path) -> None:
    """A gap is OUT_OF_ORDER_SEQUENCE_NUMBER, an older epoch INVALID_PRODUCER_EPOCH,
    a new epoch begins at 0."""
    log = new_log(tmp_path)
    append(log, from_producer(100, epoch=3))
    cases = [
        (from_producer(102, epoch=3), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
        (from_producer(101, epoch=2), ErrorCode.INVALID_PRODUCER_EPOCH),
        (from_producer(101, epoch=4), ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER),
    ]
    for data, code in cases:
        with pytest.raises(KafkaError) as error:
            append(log, data)
        assert code_of(error) == code
    append(log, from_producer(0, epoch=4))
    assert log.log_end_offset == 2


def test_sequences_go_round_after_the_largest(tmp_path: Path) -> None:
    """2^31 - 1 is followed by 0, inside a batch too."""
    log = new_log(tmp_path)
    append(log, from_producer((1 << 31) - 2, 4))
    assert log.append_as_leader(from_producer((1 << 31) - 2, 4), leader_epoch=0, now_ms=NOW).duplicate
    assert append(log, from_producer(2)) == (4, 4)


def test_producer_state_survives_a_clean_and_an_unclean_stop(tmp_path: Path) -> None:
    """A retry after the restart is still a duplicate, a gap still refused."""
    for clean in (True, False):
        directory = tmp_path / str(clean)
        dirs = open_dirs(directory)
        log = dirs.get_or_create(TP, TOPIC_ID, LogConfig(), NOW)
        for sequence in range(3):
            append(log, from_producer(sequence))
        dirs.close(clean)
        reloaded = open_dirs(directory).get(TP)
        assert reloaded is not None
        assert reloaded.append_as_leader(from_producer(2), leader_epoch=0, now_ms=NOW).duplicate
        with pytest.raises(KafkaError):
            append(reloaded, from_producer(4))
        assert append(reloaded, from_producer(3)) == (3, 3)


def end_transaction(log: PartitionLog, *, abort: bool, producer_id: int = 9, coordinator_epoch: int = 1) -> None:
    marker = build_end_marker(
        EndMarker(abort, coordinator_epoch),
        offset=0,
        timestamp_ms=NOW,
        producer_id=producer_id,
        producer_epoch=0,
        leader_epoch=0,
    )
    append(log, marker, origin=Origin.COORDINATOR)


def test_open_transactions_hold_the_last_stable_offset_back(tmp_path: Path) -> None:
    """Until their markers are below the high watermark; aborted ones are listed for readers."""
    dirs = open_dirs(tmp_path)
    log = dirs.get_or_create(TP, TOPIC_ID, LogConfig(), NOW)
    append(log)
    append(log, from_producer(0, is_transactional=True))
    append(log, from_producer(0, producer_id=10, is_transactional=True))
    append(log)
    assert (log.last_stable_offset, log.high_watermark) == (1, 4)
    end_transaction(log, abort=True)
    assert log.last_stable_offset == 2
    end_transaction(log, abort=False, producer_id=10)
    assert log.last_stable_offset == log.high_watermark == 6
    aborted = log.aborted_transactions(0, 6)
    assert [(entry.producer_id, entry.first_offset, entry.last_offset) for entry in aborted] == [(9, 1, 4)]
    assert log.aborted_transactions(5, 6) == []
    dirs.close(clean=False)
    reloaded = open_dirs(tmp_path).get(TP)
    assert reloaded is not None
    assert reloaded.aborted_transactions(0, 6) == aborted


@pytest.mark.parametrize("clean", [True, False])
def test_a_damaged_transaction_index_is_made_again_from_the_log(tmp_path: Path, clean: bool) -> None:
    """In a closed segment and in the active one; else aborted records would be taken
    for committed ones."""
    dirs = open_dirs(tmp_path)
    log = dirs.get_or_create(TP, TOPIC_ID, LogConfig({"segment.bytes": "700"}), NOW)
    for number in range(12):
        append(log, from_producer(number, is_transactional=True))
        end_transaction(log, abort=number % 2 == 0)
    assert len(log.segments) > 2
    expected = log.aborted_transactions(0, log.log_end_offset)
    assert len(expected) == 6
    log.flusher.flush()
    dirs.checkpoint_recovery_points()
    paths = [Path(log.segments[0].transactions.path), Path(log.segments[-1].transactions.path)]
    dirs.close(clean)
    for path in paths:
        data = bytearray(path.read_bytes())
        data[1] = 9
        path.write_bytes(data)
    reloaded = open_dirs(tmp_path).get(TP)
    assert reloaded is not None
    assert reloaded.aborted_transactions(0, reloaded.log_end_offset) == expected


@pytest.mark.parametrize("how", ["remove", "cut", "zeros", "positions", "times"])
def test_damaged_indexes_of_closed_segments_are_made_again_when_they_are_used(tmp_path: Path, how: str) -> None:
    """Below the recovery point nothing is scanned at a start; look-ups by offset and
    time must still be right."""
    dirs = open_dirs(tmp_path)
    config = LogConfig({"segment.bytes": "2000", "index.interval.bytes": "150"})
    log = dirs.get_or_create(TP, TOPIC_ID, config, NOW)
    for number in range(60):
        append(log, batch(timestamp=NOW + number))
    dirs.close(clean=True)
    for path in sorted((tmp_path / "topic-0").iterdir()):
        if path.suffix not in (".index", ".timeindex"):
            continue
        data = bytearray(path.read_bytes())
        if how == "remove":
            path.unlink()
        elif how == "cut":
            path.write_bytes(data[: len(data) // 2])
        elif how == "zeros":
            path.write_bytes(data + bytes(240))
        elif path.suffix == ".index" and how == "positions":
            for at in range(7, len(data) - 8, 8):
                data[at] ^= 1
            path.write_bytes(data)
        elif path.suffix == ".timeindex" and how == "times":
            path.write_bytes(data[:12])
    reloaded = open_dirs(tmp_path).get(TP)
    assert reloaded is not None
    for offset in range(60):
        assert offsets(reloaded, offset)[:1] == [offset]
        assert done_here(reloaded.offset_for_timestamp(NOW + offset)) == (NOW + offset, offset, 0)


def test_a_marker_of_a_fenced_coordinator_is_refused(tmp_path: Path) -> None:
    """TRANSACTION_COORDINATOR_FENCED for an older coordinator epoch; clients may not
    mix in plain batches."""
    log = new_log(tmp_path)
    append(log, from_producer(0, is_transactional=True))
    with pytest.raises(KafkaError) as error:
        append(log, from_producer(1))
    assert code_of(error) == ErrorCode.INVALID_TXN_STATE
    end_transaction(log, abort=False, coordinator_epoch=5)
    with pytest.raises(KafkaError) as error:
        end_transaction(log, abort=False, coordinator_epoch=4)
    assert code_of(error) == ErrorCode.TRANSACTION_COORDINATOR_FENCED


# ---- followers and leader epochs


def leaders_batches(log: PartitionLog, start: int) -> bytes:
    part = log.read(start, 1 << 20, upper_bound=log.log_end_offset)
    assert isinstance(part.records, FileSlice)
    return part.records.read()


def test_a_follower_takes_a_leaders_batches_byte_for_byte(tmp_path: Path) -> None:
    """Offsets and epochs are kept, a batch that is cut off is left for the next fetch."""
    leader = new_log(tmp_path / "leader")
    follower = new_log(tmp_path / "follower")
    for epoch in (0, 0, 2, 5):
        append(leader, batch(3), leader_epoch=epoch)
    data = leaders_batches(leader, 0)
    info = follower.append_as_follower(data[:-1], now_ms=NOW)
    assert (info.first_offset, info.last_offset) == (0, 8)
    follower.append_as_follower(leaders_batches(leader, 9), now_ms=NOW)
    assert leaders_batches(follower, 0) == data
    assert follower.leader_epochs.epochs.entries == leader.leader_epochs.epochs.entries == [(0, 0), (2, 6), (5, 9)]
    with pytest.raises(UnexpectedOffsetError):
        follower.append_as_follower(data, now_ms=NOW)
    with pytest.raises(KafkaError):
        follower.append_as_follower(corrupted(bytearray(data), 90, 1), now_ms=NOW)


def test_an_empty_log_that_begins_inside_a_batch_takes_it_whole(tmp_path: Path) -> None:
    """A leader's start may be moved into a batch; what lies wholly before it is still refused."""
    leader = new_log(tmp_path / "leader")
    for epoch in (0, 2):
        append(leader, batch(3), leader_epoch=epoch)
    data = leaders_batches(leader, 3)
    follower = new_log(tmp_path / "follower")
    follower.truncate_fully_and_start_at(6)
    with pytest.raises(UnexpectedOffsetError):
        follower.append_as_follower(data, now_ms=NOW)
    follower.truncate_fully_and_start_at(4)
    info = follower.append_as_follower(data, now_ms=NOW)
    assert (info.first_offset, info.last_offset) == (3, 5)
    assert (follower.log_start_offset, follower.high_watermark, follower.log_end_offset) == (3, 3, 6)
    assert leaders_batches(follower, 3) == data


def test_epochs_show_where_logs_diverge(tmp_path: Path) -> None:
    """OffsetForLeaderEpoch: the end of the largest epoch at or below the one asked for."""
    log = new_log(tmp_path)
    for epoch in (1, 1, 4, 6):
        append(log, leader_epoch=epoch)
    answers = {epoch: tuple(log.end_offset_for_epoch(epoch)) for epoch in (-1, 0, 1, 3, 4, 5, 6, 7)}
    assert answers == {
        -1: (-1, -1),
        0: (0, 0),
        1: (1, 2),
        3: (1, 2),
        4: (4, 3),
        5: (4, 3),
        6: (6, 4),
        7: (-1, -1),
    }


# ---- time


def test_offsets_are_found_by_timestamp(tmp_path: Path) -> None:
    """The first record at or after a time, across segments; and the protocol's special places."""
    log = new_log(tmp_path, segment_bytes="1000", index_interval_bytes="100")
    for number in range(50):
        append(log, batch(3, timestamp=NOW + 10 * number), leader_epoch=number // 25)
    assert done_here(log.offset_for_timestamp(NOW - 5)) == (NOW, 0, 0)
    assert done_here(log.offset_for_timestamp(NOW + 101)) == (NOW + 101, 31, 0)
    assert done_here(log.offset_for_timestamp(NOW + 103)) == (NOW + 110, 33, 0)
    assert done_here(log.offset_for_timestamp(NOW + 492)) == (NOW + 492, 149, 1)
    assert done_here(log.offset_for_timestamp(NOW + 493)) is None
    assert done_here(log.offset_for_timestamp(timestamps.EARLIEST)) == (-1, 0, 0)
    assert done_here(log.offset_for_timestamp(timestamps.LATEST)) == (-1, 150, 1)
    assert done_here(log.offset_for_timestamp(timestamps.MAX_TIMESTAMP)) == (NOW + 492, 149, 1)
    log.delete_records_before(32)
    assert done_here(log.offset_for_timestamp(NOW)) == (NOW + 102, 32, 0)
    assert done_here(log.offset_for_timestamp(timestamps.EARLIEST_LOCAL)) == (-1, 32, 0)


# ---- segments and retention


def test_a_closed_segment_that_is_lost_while_the_broker_runs_stays_lost(tmp_path: Path) -> None:
    """No reader puts an empty file in its place, and the others, and their disk, can be used."""
    log = new_log(tmp_path, segment_bytes="300")
    for number in range(12):
        append(log, batch(3, timestamp=NOW + number))
    lost = log.segments.all[1]
    upto = log.segments.all[2].base_offset
    for segment in log.segments.all:
        segment.forget()
        segment.drop_indexes()
    Path(lost.path).unlink()
    for offset in range(lost.base_offset, upto):
        with contextlib.suppress(KafkaError):
            log.read(offset, 10_000, upper_bound=upto)
    with contextlib.suppress(KafkaError):
        done_here(log.offset_for_timestamp(NOW + 4))
    assert not Path(lost.path).exists()
    assert log.availability.reason is None
    assert len(log.read(upto, 10_000, upper_bound=log.log_end_offset).records)


def test_an_active_segment_that_is_lost_while_the_broker_runs_fails_the_next_append(tmp_path: Path) -> None:
    """What would be written into a new file in its place could never be read back."""
    log = new_log(tmp_path)
    append(log)
    active = log.segments.active
    active.forget()
    Path(active.path).unlink()
    with pytest.raises(KafkaError) as failed:
        append(log, batch(1, timestamp=NOW + 99))
    assert failed.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    assert active.path in str(log.availability.reason)
    assert not Path(active.path).exists()


def test_both_index_files_are_there_with_the_first_record_of_a_segment(tmp_path: Path) -> None:
    """Tools read the indexes of a log that is in use."""
    log = new_log(tmp_path)
    append(log)
    folder = tmp_path / "topic-0"
    assert (folder / "00000000000000000000.index").stat().st_size == 0
    assert (folder / "00000000000000000000.timeindex").stat().st_size == 12


def test_segments_roll_by_size_time_and_full_indexes(tmp_path: Path) -> None:
    """Each named by its first offset, with a producer snapshot beside it."""
    by_size = new_log(tmp_path / "size", segment_bytes="300")
    for _ in range(9):
        append(by_size)
    assert [segment.base_offset for segment in by_size.segments] == [0, 3, 6]
    names = OsFiles().list(by_size.directory)
    assert "00000000000000000003.log" in names
    assert "00000000000000000003.snapshot" in names
    by_time = new_log(tmp_path / "time", segment_ms="100")
    for moment in (0, 50, 100, 101, 300):
        append(by_time, batch(timestamp=NOW + moment))
    assert [segment.base_offset for segment in by_time.segments] == [0, 3, 4]
    by_index = new_log(tmp_path / "index", segment_index_bytes="40", index_interval_bytes="0")
    for number in range(8):
        append(by_index, batch(timestamp=NOW + number))
    assert len(by_index.segments) > 2
    assert offsets(by_index) == list(range(8))


def test_retention_deletes_whole_segments_by_size_and_by_time(tmp_path: Path) -> None:
    """Whichever comes first, files renamed at once and removed after the delay."""
    log = new_log(tmp_path, segment_bytes="300", retention_bytes="450", file_delete_delay_ms="1000")
    for _ in range(12):
        append(log)
    assert log.apply_retention(NOW) == 2
    assert log.log_start_offset == 6
    assert log.segments.size_bytes >= 450
    assert any(name.endswith(".deleted") for name in OsFiles().list(log.directory))
    done_here(log.purge_deleted(NOW + 999))
    assert any(name.endswith(".deleted") for name in OsFiles().list(log.directory))
    done_here(log.purge_deleted(NOW + 1000))
    assert not any(name.endswith(".deleted") for name in OsFiles().list(log.directory))
    log.configure(LogConfig({"retention.ms": "1000"}))
    assert log.apply_retention(NOW + 1000) == 0
    assert log.apply_retention(NOW + 5000) == 2
    assert (log.log_start_offset, log.log_end_offset) == (12, 12)
    assert append(log) == (12, 12)


def test_retention_keeps_what_is_not_replicated(tmp_path: Path) -> None:
    """No segment with offsets at or past the high watermark goes."""
    log = new_log(tmp_path, segment_bytes="100", retention_ms="0")
    for _ in range(5):
        log.append_as_leader(batch(), leader_epoch=0, now_ms=NOW)
    log.update_high_watermark(2)
    assert log.apply_retention(NOW + 99) == 2
    assert log.log_start_offset == 2


def test_deleted_records_are_gone_and_their_segments_follow(tmp_path: Path) -> None:
    """DeleteRecords raises the log start offset; past the high watermark it is refused."""
    dirs = open_dirs(tmp_path)
    log = dirs.get_or_create(TP, TOPIC_ID, LogConfig({"segment.bytes": "300", "cleanup.policy": "compact"}), NOW)
    for _ in range(9):
        append(log)
    assert log.delete_records_before(4) == 4
    assert log.delete_records_before(2) == 4
    with pytest.raises(KafkaError):
        log.read(3, 100, upper_bound=9)
    with pytest.raises(KafkaError):
        log.delete_records_before(10)
    assert log.apply_retention(NOW) == 1
    assert offsets(log) == [4, 5, 6, 7, 8]
    dirs.checkpoint_log_start_offsets()
    dirs.close(clean=False)
    reloaded = open_dirs(tmp_path).get(TP)
    assert reloaded is not None
    assert reloaded.log_start_offset == 4
    assert reloaded.delete_records_before(-1) == 4, "-1 is the high watermark, which was not checkpointed"


@pytest.mark.parametrize("at", range(10))
def test_truncation_drops_batches_from_an_offset_on(tmp_path: Path, at: int) -> None:
    """Records, epochs, producers and segments; the next append continues there."""
    log = new_log(tmp_path, segment_bytes="300", index_interval_bytes="50")
    for number in range(9):
        append(log, from_producer(number), leader_epoch=number)
    assert log.truncate_to(at) == (at < 9)
    assert offsets(log) == list(range(min(at, 9)))
    assert log.leader_epochs.latest_epoch == min(at, 9) - 1
    assert append(log, from_producer(min(at, 9)), leader_epoch=20) == (min(at, 9), min(at, 9))


def test_a_log_can_start_again_elsewhere(tmp_path: Path) -> None:
    """truncate_fully_and_start_at: a follower whose leader has deleted all it knew."""
    log = new_log(tmp_path, segment_bytes="300")
    for number in range(9):
        append(log, from_producer(number))
    log.truncate_fully_and_start_at(1000)
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark) == (1000, 1000, 1000)
    assert not log.producers.entries
    assert append(log) == (1000, 1000)


# ---- failing disks


class FailingFiles(OsFiles):
    """Real files whose appends or syncs fail from a moment on."""

    __slots__ = ()
    broken: str | None = None

    def open(self, path, *, create=False, read_only=False, keep=False):  # type: ignore[no-untyped-def]  # as OsFiles'
        file = super().open(path, create=create, read_only=read_only)
        owner = self

        class Failing:
            def __getattr__(self, name: str) -> object:
                if type(owner).broken == name:
                    raise OSError(errno.EIO, "Input/output error", path)
                return getattr(file, name)

        return Failing()


@pytest.mark.parametrize("operation", ["append", "sync", "read_at"])
def test_a_failing_disk_takes_its_log_dir_offline_and_no_other(tmp_path: Path, operation: str) -> None:
    """KAFKA_STORAGE_ERROR for its partitions from then on; partitions of other dirs serve on."""

    class Files(FailingFiles):
        __slots__ = ()

    heard = []
    dirs = LogDirs(
        Files(), [str(tmp_path / "a"), str(tmp_path / "b")], LogConfig(), broker_id=1, cluster_id="c",
        rng=random.Random(1),
    )  # fmt: skip
    dirs.on_offline(lambda directory, reason: heard.append(directory))
    dirs.load(NOW, {})
    first = dirs.get_or_create(TP, TOPIC_ID, LogConfig(), NOW)
    second = dirs.get_or_create(TopicPartition("topic", 1), TOPIC_ID, LogConfig(), NOW)
    append(first)
    append(first)
    append(second)
    Files.broken = operation
    actions = {
        "append": lambda: append(first),
        "sync": first.flusher.flush,
        "read_at": lambda: done_here(first.offset_for_timestamp(NOW)),
    }
    with pytest.raises(KafkaError) as error:
        actions[operation]()
    assert code_of(error) == ErrorCode.KAFKA_STORAGE_ERROR
    Files.broken = None
    assert heard == [str(tmp_path / "a")]
    assert dirs.get(TP) is None
    with pytest.raises(KafkaError):
        append(first)
    append(second)
    assert list(dirs.offline) == [str(tmp_path / "a")]
    assert first.offline is not None


def test_a_broker_without_a_usable_log_dir_does_not_start(tmp_path: Path) -> None:
    """The error names each dir and its reason."""
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(BarnabasError, match="No log dir can be used"):
        open_dirs(tmp_path / "file")
