"""The five codecs: what goes in comes out, other writers are understood, bombs and
lies are refused."""

import contextlib
import gzip
import os
import struct
import tracemalloc
from concurrent.futures import ThreadPoolExecutor

import cramjam
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka import codec as kafka_python

from barnabas.base.errors import CorruptDataError
from barnabas.wire.kafka.records.compression import CompressionType, compress, decompress, decompress_to

MB = 1024 * 1024
CODECS = [kind for kind in CompressionType if kind]


@pytest.mark.parametrize("kind", CompressionType)
@given(data=st.binary(max_size=5000))
def test_data_survives_a_round_trip(kind: CompressionType, data: bytes) -> None:
    """Every codec gives back what it was given, the empty bytes too."""
    assert bytes(decompress(kind, compress(kind, data), MB)) == data


@pytest.mark.parametrize("kind", CODECS)
def test_large_data_survives_in_several_blocks(kind: CompressionType) -> None:
    """More than one block or growth step; half of it does not compress."""
    data = os.urandom(MB) + bytes(MB)
    assert bytes(decompress(kind, compress(kind, data), 2 * MB)) == data


@pytest.mark.parametrize("kind", CODECS)
def test_a_bomb_is_refused_at_the_limit(kind: CompressionType) -> None:
    """One byte over the limit is an error, the limit itself is not."""
    packed = compress(kind, bytes(8 * MB))
    assert len(decompress(kind, packed, 8 * MB)) == 8 * MB
    with pytest.raises(CorruptDataError, match="limit"):
        decompress(kind, packed, 8 * MB - 1)


@pytest.mark.parametrize("kind", CODECS)
def test_damage_raises_one_kind_of_error(kind: CompressionType) -> None:
    """Cut at every byte, and with every byte changed: an error or other bytes, never
    another exception."""
    packed = bytes(compress(kind, b"the quick brown fox " * 20))
    for size in range(len(packed)):
        with contextlib.suppress(CorruptDataError):
            decompress(kind, packed[:size], MB)
    for position in range(len(packed)):
        changed = bytearray(packed)
        changed[position] ^= 0x55
        with contextlib.suppress(CorruptDataError):
            decompress(kind, changed, MB)


def test_both_snappy_framings_are_read() -> None:
    """Java's framing in blocks of another size, and a bare raw block."""
    data = b"snappy " * 10_000
    assert bytes(decompress(CompressionType.SNAPPY, bytes(cramjam.snappy.compress_raw(data)), MB)) == data
    framed = b"\x82SNAPPY\x00" + struct.pack(">ii", 1, 1)
    for start in range(0, len(data), 1000):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + 1000]))
        framed += struct.pack(">i", len(block)) + block
    assert bytes(decompress(CompressionType.SNAPPY, framed, MB)) == data


@pytest.mark.parametrize("size", [-1, 0, 2**31 - 1])
def test_a_snappy_block_length_that_lies_is_refused(size: int) -> None:
    """No length is believed before the bytes are there."""
    framed = b"\x82SNAPPY\x00" + struct.pack(">iii", 1, 1, size) + b"abc"
    with pytest.raises(CorruptDataError):
        decompress(CompressionType.SNAPPY, framed, MB)


def test_a_snappy_block_that_claims_gigabytes_costs_nothing() -> None:
    """The claim is held against what so few bytes can make."""
    with pytest.raises(CorruptDataError):
        decompress(CompressionType.SNAPPY, b"\xff\xff\xff\xff\x07abc", 2**31 - 1)


def test_gzip_is_the_standard_one_in_both_directions() -> None:
    """Python's gzip and kafka-python's read ours, ours reads theirs, several members included."""
    data = b"gzip " * 1000
    assert gzip.decompress(compress(CompressionType.GZIP, data)) == data
    assert decompress(CompressionType.GZIP, kafka_python.gzip_encode(data) + gzip.compress(data), MB) == data + data


@pytest.mark.parametrize("claimed_bytes", [None, 100])
@pytest.mark.parametrize("size", [4 * MB, 4 * MB + 1, 40 * MB])
def test_a_gzip_bomb_is_refused_with_little_memory_whatever_it_claims(size: int, claimed_bytes: int | None) -> None:
    """The end of a member says how much it holds.

    One that lies is unpacked and counted; what fits is damaged then."""
    bomb = bytearray(gzip.compress(bytes(size)))
    if claimed_bytes is not None:
        bomb[-4:] = claimed_bytes.to_bytes(4, "little")
    is_sound = size == 4 * MB and claimed_bytes is None
    tracemalloc.start()
    try:
        with contextlib.nullcontext() if is_sound else pytest.raises(CorruptDataError) as raised:
            assert bytes(decompress(CompressionType.GZIP, bomb, 4 * MB)) == bytes(size)
        most_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    if size > 4 * MB:
        assert ("limit" in str(raised.value)) == (claimed_bytes is None or size > 5 * MB)
        assert most_bytes < 4 * MB


def test_thousands_of_empty_gzip_members_are_refused() -> None:
    """Members cost time, not room: the limit on what comes out does not hold them back."""
    member = compress(CompressionType.GZIP, b"")
    assert bytes(decompress(CompressionType.GZIP, member * 10 + compress(CompressionType.GZIP, b"end"), MB)) == b"end"
    with pytest.raises(CorruptDataError, match="members"):
        decompress(CompressionType.GZIP, member * 5000, MB)


@pytest.mark.parametrize("kind", list(CompressionType))
def test_what_was_unpacked_stays_as_it_is_while_more_is_unpacked(kind: CompressionType) -> None:
    """By the same thread and by others, which share no room."""
    inputs = [bytes([number]) * (1000 * number + 1) for number in range(1, 60)]
    packed = [bytes(compress(kind, data)) for data in inputs]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda data: decompress(kind, data, 1 << 20), packed * 4))
    assert [bytes(data) for data in found] == inputs * 4


@pytest.mark.parametrize("kind", [kind for kind in CompressionType if kind is not CompressionType.NONE])
@pytest.mark.parametrize("size", [1000, 65_535, 65_536, 65_537, 300_000])
def test_the_limit_is_exact(kind: CompressionType, size: int) -> None:
    """A limit of exactly these bytes lets them be unpacked, and a limit of one fewer
    refuses them."""
    data = os.urandom(size // 2) * 2 + b"x" * (size % 2)
    packed = bytes(compress(kind, data))
    assert bytes(decompress(kind, packed, size)) == data
    with pytest.raises(CorruptDataError):
        decompress(kind, packed, size - 1)


@pytest.mark.parametrize("kind", [CompressionType.SNAPPY, CompressionType.LZ4, CompressionType.ZSTD])
@pytest.mark.parametrize("size", [0, 1, 65_536, 300_000])
def test_data_is_unpacked_to_the_front_of_a_room_that_is_large_enough(kind: CompressionType, size: int) -> None:
    """And nowhere else; damaged data, or too little room, is nothing that can be done there."""
    data = os.urandom(size // 2) * 2 + b"x" * (size % 2)
    packed = bytes(compress(kind, data))
    room = bytearray(b"-" * (size + 10))
    assert decompress_to(kind, packed, memoryview(room)[5 : size + 5]) == size
    assert room == b"-" * 5 + data + b"-" * 5
    if size:
        assert decompress_to(kind, packed[:-1], memoryview(room)) is None
        assert decompress_to(kind, packed, memoryview(room)[: size - 1]) is None


def lz4_block(data: bytes) -> bytes:
    block = bytes(cramjam.lz4.compress_block(data, store_size=False))
    return struct.pack("<I", len(block)) + block


def test_lz4_frames_of_every_kind_are_read() -> None:
    """Blocks of each size, stored and short ones, checksums, several frames; an end too
    early or too late is damage."""
    data = os.urandom(40_000) * 5
    for header in (b"\x40\x82", b"\x50\xfb", b"\x60\x51", b"\x70\x73"):
        start = b"\x04\x22\x4d\x18\x60" + header
        most = 1 << 8 + 2 * (header[0] >> 4)
        blocks = [lz4_block(data[at : at + most]) for at in range(0, len(data), most)]
        frame = start + b"".join(blocks) + bytes(4)
        assert bytes(decompress(CompressionType.LZ4, frame, MB)) == data
        short = start + lz4_block(b"first") + struct.pack("<I", 0x80000000 | 6) + b"second" + bytes(4)
        assert bytes(decompress(CompressionType.LZ4, short, MB)) == b"firstsecond"
        assert bytes(decompress(CompressionType.LZ4, frame + short, MB)) == data + b"firstsecond"
        for damaged in (frame[:-4], frame[:-1], frame + b"\x01", start + b"\xff\xff\xff\x7f" + bytes(9)):
            with pytest.raises(CorruptDataError):
                decompress(CompressionType.LZ4, damaged, MB)
    assert bytes(decompress(CompressionType.LZ4, bytes(cramjam.lz4.compress(data)), MB)) == data
