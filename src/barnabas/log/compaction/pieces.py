"""The closed segments of a log, read piece by piece: whole batches and their headers,
without an object for each.

Kafka has no counterpart: its `Cleaner` reads into a buffer and iterates over batches.
"""

import struct
from collections.abc import Iterator

from barnabas.base.errors import CorruptDataError
from barnabas.base.files import Files
from barnabas.log.compaction.ordinary_batches import HeaderColumns, read_header_columns
from barnabas.log.compaction.plan import ClosedSegment
from barnabas.log.compaction.record_groups import STEP_RECORDS, Chunk, Found
from barnabas.wire.kafka.records.batch_header import HEADER_BYTES, LOG_OVERHEAD_BYTES, read_header

__all__ = ["Piece", "read_pieces"]

_LEAST_BYTES = 4096
_STEP_BATCHES = 128
_LENGTH = struct.Struct(">i")
_LENGTH_AT = 8


class Piece:
    """Whole batches that follow one another."""

    __slots__ = ("_positions", "data", "headers", "size_bytes")

    def __init__(self, data: bytes, positions: list[int], size_bytes: int) -> None:
        self.data = data
        self.size_bytes = size_bytes
        self._positions = positions
        self.headers: HeaderColumns = read_header_columns(data, positions)

    @property
    def first_offset(self) -> int:
        return int(self.headers.base_offset[0])

    @property
    def last_offset(self) -> int:
        return int(self.headers.last_offset[-1])

    def chunks(self) -> Iterator[Chunk]:
        """The batches one by one, divided where they are enough for a step."""
        step: list[Found] = []
        records = 0
        for position in self._positions:
            header = read_header(self.data, position)
            # A group of records has no more than these either.
            if step and (records + header.record_count > STEP_RECORDS or len(step) >= _STEP_BATCHES):
                yield Chunk(self.data, step)
                step, records = [], 0
            step.append(Found(position, header))
            records += header.record_count
        yield Chunk(self.data, step)


def read_pieces(files: Files, path: str, segment: ClosedSegment, position: int, wanted_bytes: int) -> Iterator[Piece]:
    """A segment's batches from a position on, in pieces of about ``wanted_bytes``.

    Raises `OSError` and `CorruptDataError`."""
    if position >= segment.size_bytes:
        return
    least = wanted = max(wanted_bytes, _LEAST_BYTES)
    next_offset = segment.base_offset
    file = files.open(path, read_only=True)
    try:
        while position < segment.size_bytes:
            data = bytes(file.read_at(position, min(wanted, segment.size_bytes - position)))
            positions, end = _find_batches(data)
            if not positions:
                size = read_header(data).size_bytes if len(data) >= HEADER_BYTES else 0
                if not wanted < size <= segment.size_bytes - position:
                    raise CorruptDataError(f"{path}: no batch at position {position}")
                wanted = size  # one batch that is larger than a piece
                continue
            wanted = least
            piece = Piece(data, positions, end)
            _check_places(piece.headers, next_offset, segment.end_offset, f"{path}, from position {position} on")
            next_offset = piece.last_offset + 1
            position += end
            yield piece
    finally:
        file.close()


def _find_batches(data: bytes) -> tuple[list[int], int]:
    """Where each whole batch begins, and where the last one ends.

    Raises `CorruptDataError` for an impossible length."""
    positions: list[int] = []
    unpack, add = _LENGTH.unpack_from, positions.append
    at, last = 0, len(data) - HEADER_BYTES
    while at <= last:
        size = unpack(data, at + _LENGTH_AT)[0] + LOG_OVERHEAD_BYTES
        if size < HEADER_BYTES:
            raise CorruptDataError(f"a batch of {size} bytes at byte {at}")
        if at + size > len(data):
            break
        add(at)
        at += size
    return positions, at


def _check_places(headers: HeaderColumns, next_offset: int, end_offset: int, where: str) -> None:
    """The offsets of batches rise, and are the segment's."""
    first, last = headers.base_offset, headers.last_offset
    is_wrong = (last < first) | (last >= end_offset)
    is_wrong[0] |= first[0] < next_offset
    is_wrong[1:] |= first[1:] <= last[:-1]
    if is_wrong.any():
        number = int(is_wrong.argmax())
        raise CorruptDataError(
            f"{where}: a batch with offsets {first[number]} to {last[number]}, where offsets from {next_offset} to "
            f"{end_offset - 1} are left"
        )
