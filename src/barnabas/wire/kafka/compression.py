"""The codecs of record batches, as Kafka's clients write and read them.

Framing, where it is not the library's default:

- gzip: RFC 1952, any number of members.
- snappy: snappy-java's stream, ``82 'SNAPPY' 00``, version int32, compatible version int32, then blocks of an int32
  length and raw snappy. Raw snappy without framing (librdkafka writes it) is read too.
- lz4: the frame format, with independent blocks of at most 64 KiB and no checksums of content; Java reads no others.
- zstd: its frames.

What comes out is bounded by the caller's limit, whatever lengths the data claims; nothing near the limit is allocated
before data has asked for it. Bad data raises KafkaError (CORRUPT_MESSAGE), too much of it MESSAGE_TOO_LARGE.
"""

import zlib
from collections.abc import Callable
from enum import IntEnum
from struct import Struct

import cramjam

from barnabas.base.files import Buffer
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = ["Compression", "compress", "decompress"]


class Compression(IntEnum):
    """The lowest three bits of a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


_SNAPPY_MAGIC = b"\x82SNAPPY\x00"
_SNAPPY_HEADER = _SNAPPY_MAGIC + b"\0\0\0\1\0\0\0\1"
_SNAPPY_BLOCK_BYTES = 32 * 1024
_SNAPPY_MOST_RATIO = 22  # the shortest element that copies 64 bytes takes 3
_LZ4_BLOCK_BYTES = 64 * 1024
# Magic, FLG (version 1, independent blocks), BD (blocks of 64 KiB), and the second byte of the xxHash32 of the two.
_LZ4_HEADER = b"\x04\x22\x4d\x18\x60\x40\x82"
_LZ4_STORED = 0x80000000
_BIG_ENDIAN = Struct(">i")
_LITTLE_ENDIAN = Struct("<I")
_FIRST_GUESS_BYTES = 64 * 1024


def compress(kind: Compression, data: Buffer, level: int | None = None) -> bytes:
    """The data compressed; ``level`` is for gzip (1 to 9) and zstd (1 to 22)."""
    if kind is Compression.GZIP:
        compressor = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, 31)
        return compressor.compress(data) + compressor.flush()
    if kind is Compression.SNAPPY:
        return _compress_snappy(data)
    if kind is Compression.LZ4:
        return _compress_lz4(data)
    if kind is Compression.ZSTD:
        return bytes(cramjam.zstd.compress(data, 3 if level is None else level))
    return bytes(data)


def decompress(kind: int, data: Buffer, limit_bytes: int) -> Buffer:
    """At most ``limit_bytes`` of decompressed data; for `Compression.NONE` the data itself."""
    if kind == Compression.NONE:
        if len(data) > limit_bytes:
            raise _too_large(limit_bytes)
        return data
    try:
        decompressor = _DECOMPRESSORS[kind]
    except KeyError:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{kind} is no compression type") from None
    return decompressor(data, limit_bytes)


def _too_large(limit_bytes: int) -> KafkaError:
    return KafkaError(ErrorCode.MESSAGE_TOO_LARGE, f"a batch holds more than {limit_bytes} bytes uncompressed")


def _corrupt(codec: str, why: object) -> KafkaError:
    return KafkaError(ErrorCode.CORRUPT_MESSAGE, f"compressed records are no valid {codec}: {why}")


def _decompress_gzip(data: Buffer, limit_bytes: int) -> bytes:
    out = []
    size = 0
    rest = bytes(data)
    try:
        while rest:
            member = zlib.decompressobj(31)
            chunk = member.decompress(rest, limit_bytes + 1 - size)
            size += len(chunk)
            if size > limit_bytes:
                raise _too_large(limit_bytes)
            if not member.eof:
                raise _corrupt("gzip", "it ends early")
            out.append(chunk)
            rest = member.unused_data
    except zlib.error as error:
        raise _corrupt("gzip", error) from None
    return b"".join(out)


def _compress_snappy(data: Buffer) -> bytes:
    view = memoryview(data)
    out = [_SNAPPY_HEADER]
    for start in range(0, len(view), _SNAPPY_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(view[start : start + _SNAPPY_BLOCK_BYTES]))
        out += (_BIG_ENDIAN.pack(len(block)), block)
    return b"".join(out)


def _decompress_snappy(data: Buffer, limit_bytes: int) -> bytes:
    view = memoryview(data)
    if view[:8] != _SNAPPY_MAGIC:
        return _snappy_block(view, limit_bytes)
    out = []
    size = 0
    position = 16
    end = len(view)
    while position < end:
        if end - position < 4:
            raise _corrupt("snappy", "it ends early")
        (length,) = _BIG_ENDIAN.unpack_from(view, position)
        position += 4
        if not 0 <= length <= end - position:
            raise _corrupt("snappy", "a block is longer than the data")
        block = _snappy_block(view[position : position + length], limit_bytes - size)
        size += len(block)
        out.append(block)
        position += length
    return b"".join(out)


def _snappy_block(block: memoryview, limit_bytes: int) -> bytes:
    try:
        size = cramjam.snappy.decompress_raw_len(block)
        if size > limit_bytes:
            raise _too_large(limit_bytes)
        if size > _SNAPPY_MOST_RATIO * len(block):
            raise _corrupt("snappy", "it claims to hold more than it can")
        return bytes(cramjam.snappy.decompress_raw(block))
    except cramjam.DecompressionError as error:
        raise _corrupt("snappy", error) from None


def _compress_lz4(data: Buffer) -> bytes:
    view = memoryview(data)
    out = [_LZ4_HEADER]
    for start in range(0, len(view), _LZ4_BLOCK_BYTES):
        plain = view[start : start + _LZ4_BLOCK_BYTES]
        block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
        if len(block) < len(plain):
            out += (_LITTLE_ENDIAN.pack(len(block)), block)
        else:
            out += (_LITTLE_ENDIAN.pack(len(plain) | _LZ4_STORED), bytes(plain))
    out.append(_LITTLE_ENDIAN.pack(0))
    return b"".join(out)


def _growing(codec: str, decompress_into: Callable[[Buffer, bytearray], int]) -> Callable[[Buffer, int], Buffer]:
    """Decompression into a buffer that grows as the data asks, up to the limit."""

    def run(data: Buffer, limit_bytes: int) -> Buffer:
        size = min(limit_bytes, max(_FIRST_GUESS_BYTES, 4 * len(data)))
        while True:
            out = bytearray(size)
            try:
                filled = decompress_into(data, out)
            except cramjam.DecompressionError as error:
                if "whole buffer" not in str(error):
                    raise _corrupt(codec, error) from None
            else:
                del out[filled:]
                return out
            if size == limit_bytes:
                raise _too_large(limit_bytes)
            size = min(limit_bytes, 4 * size)

    return run


_DECOMPRESSORS: dict[int, Callable[[Buffer, int], Buffer]] = {
    Compression.GZIP: _decompress_gzip,
    Compression.SNAPPY: _decompress_snappy,
    Compression.LZ4: _growing("lz4", cramjam.lz4.decompress_into),
    Compression.ZSTD: _growing("zstd", cramjam.zstd.decompress_into),
}
