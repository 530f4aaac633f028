"""Compressed bodies of batches: what every consumer can read passes, and nothing else
does, whatever its codec."""

import gzip
import os
import random
import struct

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.errors import CorruptDataError
from barnabas.wire.kafka.records.batch_header import HEADER_BYTES
from barnabas.wire.kafka.records.compression import CompressionType, TooLargeError, compress
from barnabas.wire.kafka.records.contents import MOST_OBJECTS, TooManyObjectsError
from barnabas.wire.kafka.records.packed_contents import check_packed
from barnabas.wire.kafka.records.records import Record, build_batch
from barnabas.wire.kafka.records.varints import read_varint, read_varlong

MB = 1 << 20
RAW_SNAPPY = "raw snappy"
FRAMINGS = [*(kind for kind in CompressionType if kind), RAW_SNAPPY]
LZ4_START = b"\x04\x22\x4d\x18"
GOOD = bytes(build_batch([Record(number, 1000, None, b"value %d" % number) for number in range(3)])[HEADER_BYTES:])


def kind_of(framing: CompressionType | str) -> CompressionType:
    return framing if isinstance(framing, CompressionType) else CompressionType.SNAPPY


def packed(framing: CompressionType | str, body: bytes) -> bytes:
    if isinstance(framing, CompressionType):
        return bytes(compress(framing, body))
    return bytes(cramjam.snappy.compress_raw(body))


def check(framing: CompressionType | str, data: bytes, count: int, limit_bytes: int = 16 * MB) -> None:
    check_packed(kind_of(framing), memoryview(data), count, limit_bytes)


def passes(framing: CompressionType | str, data: bytes, count: int) -> bool:
    try:
        check(framing, data, count)
    except CorruptDataError:
        return False
    return True


def is_readable(body: bytes, count: int) -> bool:
    """The simple model: records one after the other, each field by the specification."""
    position = 0
    try:
        for number in range(count):
            size, position = read_varint(body, position)
            stop = position + size
            _, position = read_varlong(body, position + 1)
            delta, position = read_varint(body, position)
            if size < 0 or delta != number:
                return False
            for _ in ("key", "value"):
                size, position = read_varint(body, position)
                position += max(size, 0)
                if size < -1 or position > stop:
                    return False
            headers, position = read_varint(body, position)
            if not 0 <= headers <= stop - position:
                return False
            for _ in range(headers):
                size, position = read_varint(body, position)
                if size < 0:
                    return False
                size, position = read_varint(body, position + size)
                if size < -1:
                    return False
                position += max(size, 0)
            if position != stop or stop > len(body):
                return False
    except (IndexError, CorruptDataError):
        return False
    return position == len(body)


RECORDS = st.lists(
    st.builds(
        Record,
        st.just(0),
        st.integers(0, 1 << 40),
        st.none() | st.binary(max_size=80),
        st.none() | st.binary(max_size=80),
        st.lists(st.tuples(st.text(max_size=3), st.none() | st.binary(max_size=5)), max_size=2),
    ),
    min_size=1,
    max_size=12,
)


def body_of(records: list[Record]) -> bytes:
    numbered = [record._replace(offset=number) for number, record in enumerate(records)]
    return bytes(build_batch(numbered)[HEADER_BYTES:])


@pytest.mark.parametrize("framing", FRAMINGS)
@given(records=RECORDS)
def test_sound_records_pass(framing: CompressionType | str, records: list[Record]) -> None:
    """With keys or none, nulls, headers; and only under their own number."""
    data = packed(framing, body_of(records))
    check(framing, data, len(records))
    for count in (len(records) - 1, len(records) + 1, 1_000_000, 2**31 - 1):
        assert not passes(framing, data, count)


@pytest.mark.parametrize("framing", FRAMINGS)
@given(records=RECORDS, where=st.integers(0, 10_000), value=st.integers(0, 255), cut=st.booleans())
def test_damaged_records_pass_exactly_where_a_simple_reader_reads_them(
    framing: CompressionType | str, records: list[Record], where: int, value: int, cut: bool
) -> None:
    """A byte that is another one, or the end that is missing, before they are compressed."""
    body = bytearray(body_of(records))
    where %= len(body)
    if cut:
        del body[where:]
    else:
        body[where] = value
    assert passes(framing, packed(framing, bytes(body)), len(records)) == is_readable(bytes(body), len(records))


@pytest.mark.parametrize("framing", FRAMINGS)
def test_junk_is_refused(framing: CompressionType | str) -> None:
    """Nothing, text, noise, and noise behind a sound beginning."""
    noise = random.Random(5).randbytes
    for junk in (b"", b"hello, this is no compressed body" * 5, *(noise(size) for size in (1, 5, 16, 200, 5000))):
        assert not passes(framing, junk, 3)
        assert not passes(framing, packed(framing, GOOD)[:12] + junk, 3)


@pytest.mark.parametrize("framing", FRAMINGS)
def test_a_body_that_is_cut_is_refused_wherever_it_is_cut(framing: CompressionType | str) -> None:
    """The last byte is as needed as the first."""
    data = packed(framing, GOOD)
    assert passes(framing, data, 3)
    assert not any(passes(framing, data[:size], 3) for size in range(len(data)))


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("behind", [b"x", bytes(20), b"more than a few bytes"])
def test_bytes_behind_what_was_compressed_are_refused(framing: CompressionType | str, behind: bytes) -> None:
    """Some consumers would read them as a beginning of more."""
    assert not passes(framing, packed(framing, GOOD) + behind, 3)
    assert not passes(framing, packed(framing, GOOD + behind), 3)


@pytest.mark.parametrize("framing", FRAMINGS)
@pytest.mark.parametrize("size", [1 * MB, 4 * MB, 16 * MB])
def test_a_body_is_opened_as_far_as_the_limit(framing: CompressionType | str, size: int) -> None:
    """One byte more is too large, which is another error than damage."""
    record = bytes(build_batch([Record(0, 0, None, bytes(size))])[HEADER_BYTES:])
    data = packed(framing, record)
    check(framing, data, 1, len(record))
    with pytest.raises(TooLargeError):
        check(framing, data, 1, len(record) - 1)
    with pytest.raises(TooLargeError):
        check(framing, data, 1, MB // 2)


@pytest.mark.parametrize("framing", FRAMINGS)
def test_more_records_than_a_batch_may_have_are_too_many(framing: CompressionType | str) -> None:
    """Which producers answer by dividing the batch."""
    with pytest.raises(TooManyObjectsError):
        check(framing, packed(framing, bytes(7 * (MOST_OBJECTS + 1))), MOST_OBJECTS + 1)


@pytest.mark.parametrize(
    "records",
    [
        [Record(number, 1000, None, b"%01000d" % number) for number in range(3000)],
        [Record(number, number, b"%d" % number, os.urandom(number % 2000)) for number in range(3000)],
        [Record(number, number, b"%d" % number, b"x", (("h", b"y"),)) for number in range(50_000)],
    ],
    ids=["uniform", "noise", "headers"],
)
@pytest.mark.parametrize("framing", FRAMINGS)
def test_large_bodies_are_checked_to_their_end(framing: CompressionType | str, records: list[Record]) -> None:
    """The last record is as needed as the first."""
    body = bytearray(body_of(records))
    check(framing, packed(framing, bytes(body)), len(records))
    last = len(body_of(records[:-1]))
    assert last < len(body)
    body[last] ^= 2  # its length
    assert not passes(framing, packed(framing, bytes(body)), len(records))


def lz4_frame(flags: int, blocks: list[bytes], checksum: bytes = b"") -> bytes:
    """A frame by the library, with other flags: of these only those that say nothing
    of its content are set."""
    block = b"".join(struct.pack("<I", 0x80000000 | len(each)) + each for each in blocks)
    return LZ4_START + bytes([flags, 0x40]) + {0x60: b"\x82", 0x40: b"\xc0"}[flags] + block + bytes(4) + checksum


def test_lz4_frames_that_java_does_not_read_are_refused() -> None:
    """Blocks that depend on others, and a second frame.

    Other consumers read both, and a group may have consumers of all kinds."""
    assert passes(CompressionType.LZ4, lz4_frame(0x60, [GOOD]), 3)
    assert passes(CompressionType.LZ4, lz4_frame(0x60, [GOOD[:9], GOOD[9:]]), 3)
    assert not passes(CompressionType.LZ4, lz4_frame(0x40, [GOOD]), 3)
    assert not passes(CompressionType.LZ4, lz4_frame(0x60, [GOOD[:9]]) + lz4_frame(0x60, [GOOD[9:]]), 3)
    linked = bytes(cramjam.lz4.compress(GOOD * 30_000))
    with pytest.raises(CorruptDataError, match="depend"):
        check(CompressionType.LZ4, linked, 90_000)


@pytest.mark.parametrize("checksum", [False, True])
def test_lz4_frames_of_other_libraries_pass(checksum: bool) -> None:
    """With the content's checksum and without it."""
    packer = cramjam.lz4.Compressor(content_checksum=checksum, block_linked=False)
    packer.compress(GOOD)
    data = bytearray(bytes(packer.finish()))
    check(CompressionType.LZ4, bytes(data), 3)
    data[6] ^= 1  # the checksum of the frame's header
    assert not passes(CompressionType.LZ4, bytes(data), 3)


def test_several_gzip_members_and_zstd_frames_pass() -> None:
    """Java's consumers read them as one."""
    half = len(GOOD) // 2
    check(CompressionType.GZIP, gzip.compress(GOOD[:half]) + gzip.compress(GOOD[half:]), 3)
    frames = (bytes(cramjam.zstd.compress(part)) for part in (GOOD[:half], GOOD[half:]))
    check(CompressionType.ZSTD, b"".join(frames), 3)


@pytest.mark.parametrize("kind", [CompressionType.LZ4, CompressionType.SNAPPY])
def test_more_blocks_than_are_asked_for_are_refused_as_too_large(kind: CompressionType) -> None:
    """Each takes time of the caller, however small it is."""
    record = bytes(build_batch([Record(0, 0, None, bytes(100))])[HEADER_BYTES:])
    parts = [record[at : at + 2] for at in range(0, len(record), 2)]
    if kind is CompressionType.LZ4:
        data = lz4_frame(0x60, parts)
    else:
        blocks = (bytes(cramjam.snappy.compress_raw(part)) for part in parts)
        data = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
        data += b"".join(struct.pack(">i", len(block)) + block for block in blocks)
    check_packed(kind, memoryview(data), 1, MB, len(parts))
    with pytest.raises(TooLargeError):
        check_packed(kind, memoryview(data), 1, MB, len(parts) - 1)
