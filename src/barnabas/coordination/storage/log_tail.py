"""The end of a transaction log: whether what follows the last valid entry is torn, or damaged.

A batch of entries is written into zeros, or at the end of the file, and is acknowledged when it is
synced. So a crash leaves of an entry that was not acknowledged a beginning, or a part of its
sectors, with zeros in the place of the rest. Such an entry is *torn*; it is cut off, and the server
starts. Anything else is *damage* to bytes that may have been acknowledged, and the server must not
start as if they had never been:

    whole: the size leads to the end byte, the checksum is wrong        damaged, unless a whole
                                                                        sector in it is zeros
    the checksum is right, the end byte is another one but zero         damaged
    the checksum is right for another size than the one that is named   damaged
    a checksum or a size that no entry has, and no zeros                damaged
    the size leads to a byte that is neither the end byte nor zero      damaged
    a valid entry follows somewhere                                     damaged
    cut off, or zeros where the end byte should be                      torn
    zeros in the place of its first sector, or of a part of its head    torn

A znode's data may hold the bytes of an entry. So a valid entry within the size that the bad
one names does not count, unless it ends where the file's data end: then a wrong size may hide
the rest of the log.

ZooKeeper's FileTxnLog refuses to start on a wrong checksum too. It takes a wrong end byte, and
a wrong size that leads to no end byte, for the end of the log, and drops what follows. Two
cases cannot be decided:

- A whole entry whose data has a sector of zeros of its own, and which is damaged
  elsewhere, counts as torn.
- A crash can lose a sector of one entry in a batch, and keep later entries of the same batch. The
  file does not show where a batch begins, so this looks like a lost sector in the middle of the
  log, with acknowledged entries behind it. It counts as damaged: the operator decides. So does an
  entry that lost its head, and whose data hold an entry.
"""

import re
import struct
import zlib
from collections.abc import Iterable

from barnabas.base.errors import CorruptDataError
from barnabas.base.files import File

__all__ = ["ENTRY_HEAD", "check_tail", "encode_entries", "payload_at"]

ENTRY_HEAD = struct.Struct(">qi")
_END = b"B"
_CHECKSUM_BYTES = 8
_SECTOR_BYTES = 512
_CHUNK_BYTES = 1 << 20
_TXN_HEADER_BYTES = 32
_POSSIBLE_ENTRY = re.compile(rb"(?s)(?=\0{4}.{4}(?!\0{3}[\0-\x1f])[\0-\x3f].{3})")
"""The checksum fills half of its Long, and a payload has more than 31 bytes; zeros
are not an entry."""


def encode_entries(payloads: Iterable[bytes | bytearray]) -> bytes:
    """Transactions as their bytes in the file."""
    pack, checksum = ENTRY_HEAD.pack, zlib.adler32
    parts: list[bytes | bytearray] = []
    for payload in payloads:
        parts += (pack(checksum(payload), len(payload)), payload, _END)
    return b"".join(parts)


def payload_at(data: bytes, offset: int) -> bytes | None:
    """The payload of a whole and valid entry at ``offset``, else None."""
    start = offset + ENTRY_HEAD.size
    if start > len(data):
        return None
    checksum, size = ENTRY_HEAD.unpack_from(data, offset)
    end = start + size
    if size < _TXN_HEADER_BYTES or data[end : end + 1] != _END:
        return None
    payload = data[start:end]
    return payload if zlib.adler32(payload) == checksum else None


def check_tail(file: File, path: str, position: int) -> bool:
    """Whether there is a torn entry at ``position``, after the last valid one.

    False for nothing but zeros. Raises `CorruptDataError` for damage.
    """
    data_end = _end_of_data(file, position)
    if data_end == position:
        return False
    wrong = _valid_entry_behind(file, position, data_end) or _damage(file, position, data_end)
    if wrong:
        raise CorruptDataError(
            f"{path} is damaged at byte {position}: {wrong}. The server does not start, because it could lose "
            "acknowledged transactions. Restore the file from a backup; or, in an ensemble, move this server's data "
            "directory away and let it copy the state from the other servers; or accept the loss of this transaction "
            f"and all later ones: cut the file (truncate -s {position} {path}) and move later log files away."
        )
    return True


def _end_of_data(file: File, position: int) -> int:
    """The offset after the last byte that is not zero, at least ``position``."""
    end = offset = position
    while data := file.read_at(offset, _CHUNK_BYTES):
        if kept := len(data.rstrip(b"\0")):
            end = offset + kept
        offset += len(data)
    return end


def _valid_entry_behind(file: File, position: int, data_end: int) -> str | None:
    claimed_end = _claimed_end(file, position)
    window = b""
    offset = position
    while data := file.read_at(offset + len(window), _CHUNK_BYTES):
        window += data
        if not window.strip(b"\0"):
            offset += len(window)
            window = b""
            continue
        for match in _POSSIBLE_ENTRY.finditer(window):
            found = match.start() + offset
            if found == position or (payload := payload_at(window, match.start())) is None:
                continue
            if found >= claimed_end or found + ENTRY_HEAD.size + len(payload) + 1 == data_end:
                return f"valid transactions follow at byte {found}"
        # An entry may straddle the chunks: keep what could be its beginning.
        keep = min(len(window), _CHUNK_BYTES)
        offset += len(window) - keep
        window = window[len(window) - keep :]
    return None


def _claimed_end(file: File, position: int) -> int:
    """The offset after the invalid entry at ``position`` by its own size.

    ``position`` if its head is no entry's."""
    head = file.read_at(position, ENTRY_HEAD.size)
    if len(head) < ENTRY_HEAD.size:
        return position
    checksum, size = ENTRY_HEAD.unpack(head)
    if not 0 <= checksum < 1 << 32 or size < _TXN_HEADER_BYTES:
        return position
    return position + ENTRY_HEAD.size + int(size) + 1


def _damage(file: File, position: int, data_end: int) -> str | None:
    """What is wrong with the invalid entry at ``position``, if a crash cannot explain it."""
    head = file.read_at(position, ENTRY_HEAD.size)
    if len(head) < ENTRY_HEAD.size or not any(head) or _has_lost_size(file, position, head):
        return None
    checksum, size = ENTRY_HEAD.unpack(head)
    start = position + ENTRY_HEAD.size
    if (real_size := _size_with_checksum(file, start, data_end, checksum)) is not None and real_size != size:
        return f"the entry names a size of {size} bytes, and its checksum is that of {real_size}"
    if not 0 <= checksum < 1 << 32:
        return f"0x{checksum & (1 << 64) - 1:x} is not the checksum of an entry"
    if size == 0:
        return None  # the sector with the size, or with its last bytes, was not written
    if size < _TXN_HEADER_BYTES:
        return f"{size} is not the size of an entry"
    entry = file.read_at(start, min(size + 1, data_end - start))
    if len(entry) <= size:
        return None
    payload, end_byte = entry[:size], entry[size:]
    if end_byte == b"\0":
        return None
    if end_byte != _END:
        return f"the entry ends with 0x{end_byte.hex()} instead of 0x{_END.hex()}"
    if _has_empty_sector(payload, start) or _has_lost_checksum_bytes(position, checksum, payload):
        return None
    return f"the entry is whole ({size} bytes), and its checksum is wrong"


def _has_lost_size(file: File, position: int, head: bytes) -> bool:
    """Whether a sector boundary is in the size or before it, and the sector on one
    side of it was not written."""
    boundary = -position % _SECTOR_BYTES
    if not _CHECKSUM_BYTES <= boundary < ENTRY_HEAD.size:
        return False
    if not any(head[:boundary]):
        return True  # no payload has the checksum 0
    return not any(file.read_at(position + boundary, _SECTOR_BYTES))


def _has_lost_checksum_bytes(position: int, checksum: int, payload: bytes) -> bool:
    """Whether the checksum is right after the sector boundary in it, and zeros
    before the boundary."""
    boundary = -position % _SECTOR_BYTES
    if not 0 < boundary < _CHECKSUM_BYTES:
        return False
    written = (1 << 8 * (_CHECKSUM_BYTES - boundary)) - 1
    return checksum == zlib.adler32(payload) & written


def _size_with_checksum(file: File, start: int, data_end: int, checksum: int) -> int | None:
    """The size of a payload that begins at ``start``, has the checksum, and is
    followed by the end byte."""
    running = 1
    size = 0
    offset = start
    while offset < data_end:
        data = file.read_at(offset, min(_CHUNK_BYTES, data_end - offset))
        pieces = data.split(_END)
        for piece in pieces[:-1]:
            running = zlib.adler32(piece, running)
            size += len(piece)
            if running == checksum and size >= _TXN_HEADER_BYTES:
                return size
            running = zlib.adler32(_END, running)
            size += 1
        running = zlib.adler32(pieces[-1], running)
        size += len(pieces[-1])
        offset += len(data)
    return None


def _has_empty_sector(payload: bytes, start: int) -> bool:
    """Whether a whole sector of the file lies in the payload and is zeros."""
    first = -start % _SECTOR_BYTES
    zeros = bytes(_SECTOR_BYTES)
    return any(
        payload[offset : offset + _SECTOR_BYTES] == zeros
        for offset in range(first, len(payload) - _SECTOR_BYTES + 1, _SECTOR_BYTES)
    )
