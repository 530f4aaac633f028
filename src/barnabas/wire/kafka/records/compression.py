"""The codecs of record batches: none, gzip, snappy, lz4 and zstd (attributes 0 to 4).

Kafka: CompressionType.

`decompress` takes a limit and never makes more than that many bytes: whatever the input claims
about its size, output is made into a buffer that grows with what really comes, so a bomb costs at
most the limit. `decompress_to` uses a buffer of the caller's. `decompress_produced` also refuses
what only some consumers can read.

Snappy comes in two framings. Java clients write blocks after the header of the xerial library
(magic, version, least compatible version; then per block its length and raw snappy); some others
write one bare raw block. Both are read, the first is written.
"""

import struct
import zlib
from collections.abc import Callable, Iterator
from enum import IntEnum

import cramjam

from barnabas.base.errors import CorruptDataError
from barnabas.base.files import Buffer
from barnabas.base.memory import new_buffer

__all__ = [
    "LARGE_BYTES",
    "NO_LIMIT",
    "CompressionType",
    "TooLargeError",
    "compress",
    "decompress",
    "decompress_produced",
    "decompress_to",
]


class CompressionType(IntEnum):
    """The low three bits of a batch's attributes.

    lower-case names are those of `compression.type`."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


_MOST_GZIP_MEMBERS = 64
"""Clients write one; each costs a copy of what follows it, so thousands of empty
ones would stall a broker."""
_GZIP_START = b"\x1f\x8b\x08"
_GZIP_SIZE_BYTES = 4
"""The end of a member: how many bytes it holds, modulo 2^32. What it says may be a lie, but
then the member is damaged."""
_GZIP_PIECE_BYTES = 1 << 20
_COUNTED_BYTES = 1 << 18
_LARGE_RATIO = 20
"""Records are hardly ever compressed so much."""
_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + struct.pack(">ii", 1, 1)
_XERIAL_BLOCK_BYTES = 32 * 1024
_LENGTH = struct.Struct(">i")
_LZ4_HEADER = b"\x04\x22\x4d\x18\x60\x40\x82"
"""A frame of independent blocks of up to 64 KiB, without checksums: Java's reader refuses
blocks that depend on others."""
_LZ4_HEADERS = {
    _LZ4_HEADER,
    b"\x04\x22\x4d\x18\x60\x50\xfb",
    b"\x04\x22\x4d\x18\x60\x60\x51",
    b"\x04\x22\x4d\x18\x60\x70\x73",
}
"""The headers of such frames with blocks of up to 64 KiB, 256 KiB, 1 MiB and 4 MiB; the last byte
is a checksum of the two before it."""
_LZ4_BLOCK_BYTES = 64 * 1024
_LZ4_STORED = 0x80000000
_LZ4_LENGTH = struct.Struct("<I")
_LZ4_START = b"\x04\x22\x4d\x18"
_LZ4_VERSION, _LZ4_VERSION_1 = 0xC0, 0x40
_LZ4_INDEPENDENT, _LZ4_BLOCK_CHECKSUMS, _LZ4_CONTENT_SIZE, _LZ4_CONTENT_CHECKSUM, _LZ4_DICTIONARY = 0x20, 0x10, 8, 4, 1
"""Flags of a frame, in the byte behind its start."""
_FIRST_OUTPUT_BYTES = 64 * 1024
LARGE_BYTES = 1 << 20
"""More is read where it is: a copy of it would stay with the thread that made it."""
_MOST_LARGE_ROOMS = 2
NO_LIMIT = 1 << 63
_OUTPUT_FULL = "failed to write whole buffer"
_small_rooms: list[bytearray] = []
_large_rooms: list[bytearray] = []
"""Room for what most batches hold, one for each thread that unpacks: new memory for each
batch costs more than a copy."""


class TooLargeError(CorruptDataError):
    """There are more bytes, or more blocks, than the caller allows.

    What comes behind them is not known."""


class _OutputFullError(Exception):
    """The output needs more room."""


def compress(kind: CompressionType, data: Buffer, *, level: int | None = None) -> Buffer:
    """``data`` compressed; ``level`` is the codec's own (None: its default) and is
    not used by snappy."""
    match kind:
        case CompressionType.NONE:
            return data
        case CompressionType.GZIP:
            packer = zlib.compressobj(-1 if level is None else level, wbits=31)
            return packer.compress(data) + packer.flush()
        case CompressionType.SNAPPY:
            return _compress_xerial(memoryview(data))
        case CompressionType.LZ4:
            return _compress_lz4(memoryview(data), level)
        case CompressionType.ZSTD:
            return bytes(cramjam.zstd.compress(data, level=3 if level is None else level))


def decompress(kind: CompressionType, data: Buffer, limit_bytes: int) -> Buffer:
    """The bytes that were compressed.

    Raises `CorruptDataError` for damaged input and for more than the limit."""
    match kind:
        case CompressionType.NONE:
            return data
        case CompressionType.GZIP:
            return _decompress_gzip(data, limit_bytes)
        case CompressionType.SNAPPY:
            return _decompress_snappy(data, limit_bytes)
        case CompressionType.LZ4:
            return _decompress_into(_lz4_into, data, limit_bytes)
        case CompressionType.ZSTD:
            return _decompress_into(cramjam.zstd.decompress_into, data, limit_bytes)


def decompress_produced(kind: CompressionType, data: Buffer, limit_bytes: int, most_blocks: int = NO_LIMIT) -> Buffer:
    """Like `decompress`, for what a producer sends: every consumer must be able to read it.

    Java's consumers read one lz4 frame, and only blocks that do not depend on others. Each block
    takes a microsecond: there may be ``most_blocks``. Raises `TooLargeError` for more bytes or
    blocks, and `CorruptDataError`.
    """
    if kind == CompressionType.LZ4:
        _check_lz4_frame(memoryview(data), most_blocks)
    elif kind == CompressionType.SNAPPY and most_blocks < NO_LIMIT:
        for number, _ in enumerate(_snappy_blocks(memoryview(data))):
            if number == most_blocks:
                raise TooLargeError(f"snappy: more than {most_blocks} blocks")
    return decompress(kind, data, limit_bytes)


def decompress_to(kind: CompressionType, data: Buffer, room: memoryview) -> int | None:
    """Decompress to the front of ``room``.

    Returns how many bytes; None if that cannot be done there, as `decompress` does."""
    try:
        match kind:
            case CompressionType.SNAPPY:
                return _snappy_into(data, room)
            case CompressionType.LZ4:
                return _lz4_into(data, room)
            case CompressionType.ZSTD:
                return int(cramjam.zstd.decompress_into(data, room))
    except (cramjam.DecompressionError, CorruptDataError):
        return None
    return None


def _too_large(limit_bytes: int) -> TooLargeError:
    return TooLargeError(f"compressed records grow beyond the limit of {limit_bytes} bytes")


def _decompress_gzip(data: Buffer, limit_bytes: int) -> Buffer:
    if len(data) <= LARGE_BYTES and bytes(data).count(_GZIP_START) <= _MOST_GZIP_MEMBERS:
        output = _into_room(cramjam.gzip.decompress_into, data, min(limit_bytes, LARGE_BYTES))
        if output is not None:
            return output
        if limit_bytes <= LARGE_BYTES:
            raise _too_large(limit_bytes)
    return _decompress_members(data, limit_bytes)


def _decompress_members(data: Buffer, limit_bytes: int) -> Buffer:
    if int.from_bytes(data[-_GZIP_SIZE_BYTES:], "little") > limit_bytes:
        # A bomb says so itself, and no byte of it needs to be kept. But the end of
        # damaged data says anything.
        _count_gzip(data, limit_bytes)
    parts: list[Buffer] = []
    left = limit_bytes
    rest: Buffer = data
    while len(rest):
        if len(parts) == _MOST_GZIP_MEMBERS:
            raise CorruptDataError(f"gzip: more than {_MOST_GZIP_MEMBERS} members")
        member = zlib.decompressobj(31)
        try:
            part = _gzip_member(member, rest, left + 1)
        except zlib.error as error:
            raise CorruptDataError(f"gzip: {error}") from error
        if part is None or len(part) > left:
            raise _too_large(limit_bytes)
        left -= len(part)
        if not member.eof:
            raise CorruptDataError("gzip: the data ends early")
        parts.append(part)
        rest = member.unused_data
    return parts[0] if len(parts) == 1 else b"".join(parts)


def _count_gzip(data: Buffer, limit_bytes: int) -> None:
    """Raise `TooLargeError` if the first member holds more than the limit, `CorruptDataError`
    if it is damaged before."""
    member = zlib.decompressobj(31)
    try:
        part = member.decompress(data, 1)
        if part and 1 + _count(member, limit_bytes) > limit_bytes:
            raise _too_large(limit_bytes)
    except zlib.error as error:
        raise CorruptDataError(f"gzip: {error}") from error


def _gzip_member(member: "zlib._Decompress", data: Buffer, most_bytes: int) -> Buffer | None:
    """What a member holds. If that is ``most_bytes`` or more, None or exactly that many bytes.

    zlib itself would need twice as much memory for large ones. A member that unpacks to far more
    than its size is counted before it is kept, so most bombs need no memory.
    """
    part = member.decompress(data, min(most_bytes, _GZIP_PIECE_BYTES))
    if member.eof or len(part) < _GZIP_PIECE_BYTES or len(part) == most_bytes:
        return part
    is_suspect = (len(data) - len(member.unconsumed_tail)) * _LARGE_RATIO < len(part)
    if is_suspect and _count(member.copy(), most_bytes - len(part)) == most_bytes - len(part):
        return None
    output = bytearray(part)
    while part and not member.eof and len(output) < most_bytes:
        part = member.decompress(member.unconsumed_tail, min(most_bytes - len(output), _GZIP_PIECE_BYTES))
        output += part
    return output


def _count(member: "zlib._Decompress", most_bytes: int) -> int:
    """How many bytes are left in a member, at most ``most_bytes``."""
    counted = 0
    part = b" "
    while part and not member.eof and counted < most_bytes:
        part = member.decompress(member.unconsumed_tail, min(most_bytes - counted, _COUNTED_BYTES))
        counted += len(part)
    return counted


def _lz4_into(data: Buffer, output: memoryview) -> int:
    """Unpack one frame. Most are unpacked block by block, which takes half the time."""
    if bytes(data[: len(_LZ4_HEADER)]) in _LZ4_HEADERS:
        try:
            return _lz4_blocks_into(memoryview(data), memoryview(output))
        except (cramjam.DecompressionError, struct.error, ValueError):
            pass  # the library says what is wrong, or reads frames that follow
    return int(cramjam.lz4.decompress_into(data, output))


def _lz4_blocks_into(data: memoryview, output: memoryview) -> int:
    """Unpack a frame without checksums.

    Raises `DecompressionError`, `struct.error` and `ValueError`."""
    position, at = len(_LZ4_HEADER), 0
    into, read_length = cramjam.lz4.decompress_block_into, _LZ4_LENGTH.unpack_from
    most_bytes = 1 << 8 + 2 * (data[5] >> 4)
    is_full = True
    while length := read_length(data, position)[0]:
        position += 4
        end = position + (length & ~_LZ4_STORED)
        if end > len(data) or not is_full:  # of many small blocks each costs a microsecond here
            raise ValueError
        room = output[at : at + most_bytes]
        if length & _LZ4_STORED:
            size = end - position
            room[:size] = data[position:end]
        else:
            size = into(data[position:end], room, output_len=len(room))
        is_full = size == most_bytes
        at += size
        position = end
    if position + 4 != len(data):
        raise ValueError
    return at


def _check_lz4_frame(data: memoryview, most_blocks: int) -> None:
    """Raise `CorruptDataError` unless ``data`` is one frame whose blocks stand for themselves, and
    `TooLargeError` for many."""
    if len(data) < len(_LZ4_HEADER) or data[:4] != _LZ4_START:
        raise CorruptDataError("lz4: the data is not a frame")
    flags = data[4]
    if flags & _LZ4_VERSION != _LZ4_VERSION_1 or flags & _LZ4_DICTIONARY:
        raise CorruptDataError(f"lz4: a frame with flags {flags:#x}")
    if not flags & _LZ4_INDEPENDENT:
        raise CorruptDataError("lz4: blocks that depend on others, which Java's consumers do not read")
    position = len(_LZ4_HEADER) + (8 if flags & _LZ4_CONTENT_SIZE else 0)
    behind = 4 if flags & _LZ4_BLOCK_CHECKSUMS else 0
    read_length = _LZ4_LENGTH.unpack_from
    number = 0
    try:
        while length := read_length(data, position)[0]:
            position += 4 + (length & ~_LZ4_STORED) + behind
            number += 1
            if number > most_blocks:
                raise TooLargeError(f"lz4: more than {most_blocks} blocks")
    except struct.error:
        raise CorruptDataError("lz4: the frame is cut off") from None
    rest = len(data) - position - (8 if flags & _LZ4_CONTENT_CHECKSUM else 4)
    if rest:
        raise CorruptDataError(f"lz4: {rest} bytes behind the frame" if rest > 0 else "lz4: the frame is cut off")


def _decompress_into(into: Callable[[Buffer, memoryview], int], data: Buffer, limit_bytes: int) -> Buffer:
    """Decompress with room that grows up to the limit.

    Most batches fit at the first or second try."""
    if 4 * len(data) <= _FIRST_OUTPUT_BYTES or limit_bytes <= _FIRST_OUTPUT_BYTES:
        output = _into_room(into, data, min(limit_bytes, _FIRST_OUTPUT_BYTES))
        if output is not None:
            return output
    if _FIRST_OUTPUT_BYTES < limit_bytes <= LARGE_BYTES or (limit_bytes > LARGE_BYTES >= len(data)):
        output = _into_room(into, data, min(limit_bytes, LARGE_BYTES))
        if output is not None:
            return output
    room = 4 * max(LARGE_BYTES, len(data)) if limit_bytes > LARGE_BYTES else 0
    while room:
        large = new_buffer(min(limit_bytes, room))
        try:
            return large[: _decompressed_size(into, data, large)]
        except _OutputFullError:
            room = 4 * room if room < limit_bytes else 0
    raise _too_large(limit_bytes)


def _into_room(into: Callable[[Buffer, memoryview], int], data: Buffer, size_bytes: int) -> bytes | None:
    """Decompress to at most ``size_bytes``; None if there are more. The memory is used again."""
    is_small = size_bytes <= _FIRST_OUTPUT_BYTES
    rooms = _small_rooms if is_small else _large_rooms
    try:
        room = rooms.pop()
    except IndexError:  # all are in use by other threads
        room = bytearray(_FIRST_OUTPUT_BYTES if is_small else LARGE_BYTES)
    view = memoryview(room)[:size_bytes]
    try:
        return bytes(view[: _decompressed_size(into, data, view)])
    except _OutputFullError:
        return None
    finally:
        if is_small or len(rooms) < _MOST_LARGE_ROOMS:
            rooms.append(room)


def _decompressed_size(into: Callable[[Buffer, memoryview], int], data: Buffer, output: memoryview) -> int:
    try:
        return into(data, output)
    except cramjam.DecompressionError as error:
        if str(error) == _OUTPUT_FULL:
            raise _OutputFullError from None
        raise CorruptDataError(str(error)) from error


def _compress_xerial(data: memoryview) -> bytes:
    parts = [_XERIAL_HEADER]
    for start in range(0, len(data), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + _XERIAL_BLOCK_BYTES]))
        parts += [_LENGTH.pack(len(block)), block]
    return b"".join(parts)


def _compress_lz4(data: memoryview, level: int | None) -> bytes:
    parts = [_LZ4_HEADER]
    for start in range(0, len(data), _LZ4_BLOCK_BYTES):
        plain = data[start : start + _LZ4_BLOCK_BYTES]
        if level is None:
            block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
        else:
            block = bytes(
                cramjam.lz4.compress_block(plain, mode="high_compression", compression=level, store_size=False)
            )
        if len(block) < len(plain):
            parts += [_LZ4_LENGTH.pack(len(block)), block]
        else:
            parts += [_LZ4_LENGTH.pack(len(plain) | _LZ4_STORED), bytes(plain)]
    parts.append(_LZ4_LENGTH.pack(0))
    return b"".join(parts)


def _decompress_snappy(data: Buffer, limit_bytes: int) -> Buffer:
    size = sum(size for _, size in _snappy_blocks(memoryview(data)))
    if size > limit_bytes:
        raise _too_large(limit_bytes)
    if size <= LARGE_BYTES:
        output = _into_room(_snappy_into, data, size)
        assert output is not None  # there is room for all that was counted
        return output
    large = new_buffer(size)
    _snappy_into(data, large)
    return large


def _snappy_into(data: Buffer, room: memoryview) -> int:
    at = 0
    for block, size in _snappy_blocks(memoryview(data)):
        try:
            written = cramjam.snappy.decompress_raw_into(block, room[at : at + size])
        except cramjam.DecompressionError as error:
            raise CorruptDataError(str(error)) from error
        if written != size:
            raise CorruptDataError(f"snappy: a block holds {written} bytes and claims {size}")
        at += size
    return at


def _snappy_blocks(data: memoryview) -> Iterator[tuple[memoryview, int]]:
    """Raw blocks, and how many bytes each claims to hold. Raises `CorruptDataError`."""
    if data[: len(_XERIAL_MAGIC)] != _XERIAL_MAGIC:
        yield data, _snappy_block_size(data)
        return
    position = len(_XERIAL_HEADER)
    while position < len(data):
        if position + 4 > len(data):
            raise CorruptDataError("snappy: a block's length is cut off")
        (size,) = _LENGTH.unpack_from(data, position)
        position += 4
        if not 0 < size <= len(data) - position:
            raise CorruptDataError(f"snappy: a block of {size} bytes, {len(data) - position} are left")
        block = data[position : position + size]
        yield block, _snappy_block_size(block)
        position += size


def _snappy_block_size(block: memoryview) -> int:
    try:
        size = int(cramjam.snappy.decompress_raw_len(block))
    except cramjam.DecompressionError as error:
        raise CorruptDataError(str(error)) from error
    if size > 64 * len(block) + 64:  # three bytes make at most 64
        raise CorruptDataError(f"snappy: a block of {len(block)} bytes claims to hold {size}")
    return size
