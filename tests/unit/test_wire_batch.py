"""Record batches: round trips, other writers and readers, and every kind of damage."""

import contextlib
import struct

import pytest
from aiokafka.record.default_records import DefaultRecordBatch, DefaultRecordBatchBuilder
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.base.errors import CorruptDataError
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.records.batch_header import (
    HEADER_BYTES,
    assign_offsets,
    check_batch,
    read_header,
    read_headers,
    set_log_append_time,
)
from barnabas.wire.kafka.records.compression import CompressionType
from barnabas.wire.kafka.records.contents import check_contents
from barnabas.wire.kafka.records.control import EndMarker, build_end_marker, read_end_marker
from barnabas.wire.kafka.records.records import Record, build_batch, read_records, unpack_records

CODECS = list(CompressionType)

headers = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=10)), max_size=3)
contents = st.lists(
    st.tuples(st.integers(0, 2**42), st.none() | st.binary(max_size=50), st.none() | st.binary(max_size=200), headers),
    min_size=1,
    max_size=8,
)


def numbered(rows, base_offset: int = 0) -> list[Record]:
    return [Record(base_offset + n, *row[:3], tuple(row[3])) for n, row in enumerate(rows)]


def code_of(buffer: bytes | bytearray) -> ErrorCode | None:
    try:
        check_batch(buffer, 0, len(buffer))
    except KafkaError as error:
        return error.code
    return None


@pytest.mark.parametrize("compression", CompressionType)
@given(rows=contents, base_offset=st.integers(0, 2**60))
def test_records_survive_a_round_trip(compression: CompressionType, rows, base_offset: int) -> None:
    """Offsets, timestamps, keys, values and headers, nulls included; the checks of a
    leader pass."""
    records = numbered(rows, base_offset)
    batch = build_batch(records, compression=compression)
    header = check_batch(batch, 0, len(batch))
    assert header.size_bytes == len(batch)
    assert header.last_offset == records[-1].offset
    assert header.max_timestamp == max(record.timestamp for record in records)
    check_contents(unpack_records(batch, header), header.record_count)
    assert [record._replace(headers=tuple(record.headers)) for record in read_records(batch)] == records


@pytest.mark.parametrize("compression", CODECS)
def test_aiokafka_reads_what_we_write(compression: CompressionType) -> None:
    """Another implementation finds the same records and a valid CRC."""
    records = [Record(5 + n, 1000 + n, b"k%d" % n, b"v" * n, (("h", b"x"), ("n", None))) for n in range(20)]
    theirs = DefaultRecordBatch(bytes(build_batch(records, compression=compression)))
    assert theirs.validate_crc()
    found = [(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in theirs]
    assert found == [tuple(record) for record in records]


@pytest.mark.parametrize("compression", CODECS)
def test_what_aiokafka_writes_is_read(compression: CompressionType) -> None:
    """The reverse, with a producer's id, epoch and sequence."""
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=int(compression),
        is_transactional=0,
        producer_id=77,
        producer_epoch=3,
        base_sequence=9,
        batch_size=100_000,
    )
    for n in range(20):
        builder.append(n, 1000 + n, b"k%d" % n, b"v" * n, [("h", b"x")])
    batch = bytes(builder.build())
    header = check_batch(batch, 0, len(batch))
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (77, 3, 9, 28)
    check_contents(unpack_records(batch, header), header.record_count)
    assert [record.value for record in read_records(batch)] == [b"v" * n for n in range(20)]


def test_assigning_offsets_leaves_the_crc_valid() -> None:
    """The leader's offset and epoch stand outside the CRC."""
    batch = build_batch(numbered([(5, None, b"a", ()), (6, None, b"b", ())]))
    assign_offsets(batch, 0, 1_000_000_000_000, 42)
    header = check_batch(batch, 0, len(batch))
    assert (header.base_offset, header.leader_epoch) == (1_000_000_000_000, 42)
    assert [record.offset for record in read_records(batch)] == [1_000_000_000_000, 1_000_000_000_001]


def test_log_append_time_replaces_every_timestamp() -> None:
    """The attribute, the max timestamp and the CRC change; readers see one time for all records."""
    batch = build_batch(numbered([(5, None, b"a", ()), (6, None, b"b", ())]))
    set_log_append_time(batch, read_header(batch).attributes, 999)
    header = check_batch(batch, 0, len(batch))
    assert header.is_log_append_time
    assert [record.timestamp for record in read_records(batch)] == [999, 999]


def test_every_flipped_bit_behind_the_epoch_is_noticed() -> None:
    """Length, magic, CRC and all that the CRC covers: no single bit can change unseen."""
    batch = build_batch(numbered([(5, b"key", b"value", ())]), producer_id=1, producer_epoch=0, base_sequence=0)
    for position in [*range(8, 12), *range(16, len(batch))]:
        for bit in range(8):
            changed = bytearray(batch)
            changed[position] ^= 1 << bit
            assert code_of(changed) in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT)


def test_a_batch_cut_at_any_byte_is_refused() -> None:
    """No prefix of a batch passes for a batch."""
    batch = build_batch(numbered([(5, b"key", b"value", ())]))
    assert all(code_of(batch[:size]) == ErrorCode.CORRUPT_MESSAGE for size in range(len(batch)))


@pytest.mark.parametrize("length", [-(2**31), -1, 0, 48, 2**31 - 1])
def test_a_length_that_lies_is_refused(length: int) -> None:
    """Whatever the header says about its length, nothing past the buffer is read."""
    batch = build_batch(numbered([(5, b"key", b"value", ())]))
    struct.pack_into(">i", batch, 8, length)
    assert code_of(batch) == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("magic", [0, 1])
def test_formats_before_kafka_0_11_get_their_own_error(magic: int) -> None:
    """A client learns that its record format is not kept, even from a message
    shorter than our header."""
    assert code_of(bytes(16) + bytes([magic]) + bytes(10)) == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
    assert code_of(bytes(16) + bytes([magic]) + bytes(100)) == ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT


@pytest.mark.parametrize("count", [-1, 0, 1, 3, 2**31 - 1])
def test_a_record_count_that_lies_is_refused(count: int) -> None:
    """With a CRC that is right, the look inside still finds the lie."""
    batch = build_batch(numbered([(5, None, b"a", ()), (6, None, b"b", ())]))
    struct.pack_into(">i", batch, 57, count)
    header = read_header(batch)
    with pytest.raises(CorruptDataError):
        check_contents(unpack_records(batch, header), header.record_count)
    with pytest.raises(CorruptDataError):
        list(read_records(batch))


@settings(max_examples=300)
@given(data=st.data())
def test_damaged_records_raise_one_kind_of_error(data) -> None:
    """Any byte of the records changed or the whole replaced: records or
    CorruptDataError, nothing else."""
    batch = build_batch(numbered([(5, b"key", b"value", (("h", b"1"),))] * 3))
    for _ in range(data.draw(st.integers(1, 4))):
        batch[data.draw(st.integers(HEADER_BYTES, len(batch) - 1))] = data.draw(st.integers(0, 255))
    with contextlib.suppress(CorruptDataError):
        list(read_records(batch))


def test_batches_of_a_buffer_are_walked_up_to_the_torn_one() -> None:
    """A fetch answer may end within a batch."""
    one = build_batch(numbered([(5, None, b"a", ())]))
    two = build_batch(numbered([(5, None, b"bb", ())], 1))
    walked = [(offset, header.base_offset) for offset, header in read_headers(one + two + one[:30])]
    assert walked == [(0, 0), (len(one), 1)]


@pytest.mark.parametrize("is_abort", [True, False])
def test_end_markers_are_control_batches_of_their_producer(is_abort: bool) -> None:
    """What is written for a commit or an abort is read as such."""
    marker = EndMarker(is_abort, 4)
    batch = build_end_marker(marker, offset=9, timestamp_ms=1, producer_id=5, producer_epoch=2, leader_epoch=0)
    header = check_batch(batch, 0, len(batch))
    assert header.is_control
    assert header.is_transactional
    assert read_end_marker(batch) == marker
