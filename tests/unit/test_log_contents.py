"""What a leader finds inside produced batches: damaged records, lying counts, too many objects."""

import random
import struct
from pathlib import Path

import pytest

from barnabas.base.files import FileSlice, OsFiles
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.base.tasks import done_here
from barnabas.log.dirs.log_dirs import LogDirs
from barnabas.log.partition_log import PartitionLog
from barnabas.log.settings import LogConfig
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.records.batch_header import HEADER, HEADER_BYTES, assign_offsets, read_header, seal
from barnabas.wire.kafka.records.compression import CompressionType, compress
from barnabas.wire.kafka.records.contents import MOST_OBJECTS
from barnabas.wire.kafka.records.records import Record, build_batch, read_records
from barnabas.wire.kafka.records.varints import put_varint

NOW = 1_700_000_000_000
COMPACTED = {"cleanup.policy": "compact"}


def new_log(directory: Path, **settings: str) -> PartitionLog:
    config = LogConfig(settings)
    dirs = LogDirs(OsFiles(), [str(directory)], config, broker_id=1, cluster_id="cluster", rng=random.Random(7))
    dirs.load(NOW, {})
    return dirs.get_or_create(TopicPartition("orders", 0), Uuid(bytes(16)), config, NOW)


def refusal(log: PartitionLog, batch: bytearray) -> ErrorCode:
    with pytest.raises(KafkaError) as error:
        log.append_as_leader(batch, leader_epoch=0, now_ms=NOW)
    assert log.log_end_offset == 0
    return error.value.code


def batch_of(body: bytes, count: int, codec: CompressionType) -> bytearray:
    """A batch with a header that agrees with itself, whatever the records are."""
    packed = bytes(compress(codec, body))
    fields = (0, HEADER_BYTES - 12 + len(packed), -1, 2, 0, int(codec), count - 1, NOW, NOW, -1, -1, -1, count)
    batch = bytearray(HEADER.pack(*fields)) + packed
    seal(batch)
    return batch


def plain() -> bytearray:
    return build_batch([Record(number, NOW, b"key", b"value", (("h", b"x"),)) for number in range(3)])


@pytest.mark.parametrize("settings", [{}, COMPACTED, {"compression.type": "zstd"}], ids=["plain", "compacted", "codec"])
@pytest.mark.parametrize(
    ("position", "value"),
    [(0, 0x40), (3, 0x02), (4, 0x01), (4, 0x7E), (8, 0x7E), (14, 0x04), (14, 0x01), (15, 0x01), (15, 0x7E)],
)
def test_records_that_do_not_fill_their_batch_are_refused(
    tmp_path: Path, settings: dict[str, str], position: int, value: int
) -> None:
    """A wrong record length, offset delta, key size, value size, number of headers or
    header size is INVALID_RECORD."""
    batch = plain()
    batch[HEADER_BYTES + position] = value
    seal(batch)
    assert refusal(new_log(tmp_path, **settings), batch) == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("count", [2, 4])
def test_a_record_count_that_only_the_records_disagree_with_is_refused(tmp_path: Path, count: int) -> None:
    """Offsets would be given by the header alone."""
    batch = plain()
    struct.pack_into(">i", batch, 23, count - 1)
    struct.pack_into(">i", batch, 57, count)
    seal(batch)
    assert refusal(new_log(tmp_path), batch) == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", [CompressionType.GZIP, CompressionType.ZSTD])
def test_a_few_kilobytes_that_hold_millions_of_headers_are_refused(tmp_path: Path, codec: CompressionType) -> None:
    """Producers divide a batch at MESSAGE_TOO_LARGE; there is nothing to divide in a forged one."""
    fields = bytearray(b"\0\0\0\1\1")
    put_varint(fields, 2_000_000)
    body = bytearray()
    put_varint(body, len(fields) + 4_000_000)
    batch = batch_of(bytes(body + fields) + bytes(4_000_000), 1, codec)
    assert len(batch) < 5_000
    assert refusal(new_log(tmp_path, **COMPACTED), batch) == ErrorCode.MESSAGE_TOO_LARGE


def test_more_records_than_a_batch_may_have_are_refused(tmp_path: Path) -> None:
    """The header's count is enough to refuse them."""
    batch = batch_of(bytes(7 * (MOST_OBJECTS + 1)), MOST_OBJECTS + 1, CompressionType.GZIP)
    assert refusal(new_log(tmp_path, **COMPACTED), batch) == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("codec", list(CompressionType))
def test_another_codec_leaves_the_records_and_corrects_the_largest_timestamp(
    tmp_path: Path, codec: CompressionType
) -> None:
    """Records are the same bytes in each codec.

    The header's largest timestamp is what the records say."""
    log = new_log(tmp_path, **{"compression.type": "gzip" if codec is not CompressionType.GZIP else "lz4"})
    records = [Record(n, NOW + (7 * n) % 5, b"%d" % n, bytes(n), (("h", None),)) for n in range(400)]
    batch = build_batch(records, compression=codec)
    struct.pack_into(">q", batch, 35, NOW - 5)
    seal(batch)
    log.append_as_leader(batch, leader_epoch=0, now_ms=NOW)
    part = log.read(0, 1 << 20, upper_bound=400, min_one_batch=True)
    assert isinstance(part.records, FileSlice)
    stored = part.records.read()
    assert read_header(stored).max_timestamp == NOW + 4
    assert read_header(stored).compression != codec
    assert [record._replace(headers=tuple(record.headers)) for record in read_records(stored)] == records


def test_records_without_keys_are_named_when_a_compacted_topic_refuses_them(tmp_path: Path) -> None:
    """Their indexes in the batch are in the response."""
    batch = build_batch([Record(number, NOW, None if number % 3 == 1 else b"k", b"v") for number in range(7)])
    with pytest.raises(KafkaError) as error:
        new_log(tmp_path, **COMPACTED).append_as_leader(batch, leader_epoch=0, now_ms=NOW)
    assert error.value.code == ErrorCode.INVALID_RECORD
    assert [index for index, _ in error.value.record_errors] == [1, 4]  # type: ignore[attr-defined]


@pytest.mark.parametrize("codec", [CompressionType.NONE, CompressionType.LZ4])
@pytest.mark.parametrize("size", [3, None, 20_000], ids=["one size", "sizes that differ", "megabytes"])
def test_a_compacted_topic_takes_records_with_keys_and_refuses_one_without(
    tmp_path: Path, codec: CompressionType, size: int | None
) -> None:
    """And one from the future; which checks the sizes of the records allow to leave
    out changes nothing."""
    log = new_log(
        tmp_path, **COMPACTED, **{"message.timestamp.after.max.ms": "3600000", "max.message.bytes": "4000000"}
    )
    records = [Record(n, NOW, b"%03d" % n, b"v" * (size or n % 5)) for n in range(100)]
    batch = build_batch(records, compression=codec)
    keyless = [*records[:50], records[50]._replace(key=None), *records[51:]]
    assert refusal(log, build_batch(keyless, compression=codec)) == ErrorCode.INVALID_RECORD
    late = [record._replace(timestamp=NOW + 4_000_000) for record in records]
    assert refusal(log, build_batch(late, compression=codec)) == ErrorCode.INVALID_TIMESTAMP
    assert log.append_as_leader(bytearray(batch), leader_epoch=0, now_ms=NOW).last_offset == 99


@pytest.mark.parametrize("codec", [CompressionType.NONE, CompressionType.ZSTD])
def test_offsets_by_time_are_those_that_the_records_say(tmp_path: Path, codec: CompressionType) -> None:
    """The first record of the batch whose timestamp is at least the one asked for; keys
    and values do not matter."""
    log = new_log(tmp_path)
    times = [NOW, NOW + 500, NOW + 100, NOW + 9_000, NOW + 700_000]
    records = [Record(n, at, None, bytes(100), (("h", b"x"),) * n) for n, at in enumerate(times)]
    log.append_as_leader(build_batch(records, compression=codec), leader_epoch=0, now_ms=NOW)
    for wanted in range(0, 700_001, 50):
        expected = next((at, n, 0) for n, at in enumerate(times) if at >= NOW + wanted)
        assert done_here(log.offset_for_timestamp(NOW + wanted)) == expected


@pytest.mark.parametrize("codec", [CompressionType.NONE, CompressionType.GZIP])
def test_large_batches_are_looked_through_beside_the_event_loop(tmp_path: Path, codec: CompressionType) -> None:
    """Of two whose headers say that they may have the record; segments may go meanwhile."""
    log = new_log(tmp_path)
    forged = build_batch([Record(n, NOW, None, b"%d" % n) for n in range(2000)], compression=codec)
    header = read_header(forged)._replace(max_timestamp=NOW + 10)
    HEADER.pack_into(forged, 0, *header)
    seal(forged)
    log.append_as_leader(forged, leader_epoch=0, now_ms=NOW)
    log.roll(NOW)
    records = [Record(n, NOW + n // 1500, None, b"v") for n in range(2000)]
    log.append_as_leader(build_batch(records, compression=codec), leader_epoch=0, now_ms=NOW)
    log.update_high_watermark(log.log_end_offset)
    work = log.offset_for_timestamp(NOW + 1)
    first = next(work)
    assert first is not None
    first.work()
    log.delete_records_before(2000)
    assert log.apply_retention(NOW) == 1
    second = next(work)
    assert second is not None
    second.work()
    with pytest.raises(StopIteration) as end:
        next(work)
    assert end.value.value == (NOW + 1, 3500, 0)


@pytest.mark.parametrize(
    ("body", "count"),
    [
        (b"\x80\x80\x80\x01" + bytes(30 << 20), 1),
        (bytes(7 * (MOST_OBJECTS + 1)), MOST_OBJECTS + 1),
        (b"\x0c\0\0\0\1\1\0", 2),
    ],
    ids=["too large", "too many", "cut off"],
)
def test_a_batch_that_cannot_be_read_answers_offsets_by_time_with_its_first(
    tmp_path: Path, body: bytes, count: int
) -> None:
    """A decompression bomb that another leader took is not unpacked any further than
    this one would."""
    log = new_log(tmp_path)
    log.append_as_leader(build_batch([Record(0, NOW - 5, None, b"v")]), leader_epoch=0, now_ms=NOW)
    taken = batch_of(body, count, CompressionType.GZIP)
    assign_offsets(taken, 0, 1, 0)
    log.append_as_follower(taken, now_ms=NOW)
    assert done_here(log.offset_for_timestamp(NOW - 1)) == (NOW, 1, 0)
