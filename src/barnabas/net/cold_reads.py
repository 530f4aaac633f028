"""Ranges of files that are not in memory are read into it beside the event loop,
before they are sent.

sendfile takes pages from the page cache. Where they are not there it waits for the disk, and so
would every client: a replica that is far behind, and a consumer that begins with old records, read
what has long been dropped from memory. So a connection looks first, by reads of one byte that do
not wait (RWF_NOWAIT), and has a thread read what is missing. The look is not exact, and it begins
to read what is missing, which takes time too; so the next ranges are left to the thread without it.

In Kafka: network threads wait for the disk in `transferTo`, and with each of them the clients
that it serves (KAFKA-7504).
"""

import asyncio
import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import takewhile
from typing import TypeVar

from barnabas.base.files import FileSlice
from barnabas.base.network import Part

__all__ = [
    "READ_AHEAD_BYTES",
    "ColdReads",
    "is_for_sendfile",
    "is_in_memory",
    "read_at_once",
    "read_into_memory",
    "read_ranges",
    "read_whole",
    "small_ranges",
]

P = TypeVar("P")
T = TypeVar("T")

READ_AHEAD_BYTES = 1 << 20
"""How much is looked at, and read, before it is sent."""
_STEP_BYTES = 64 * 1024
"""What is read from a disk, and dropped from memory again, is mostly this much and
more at a time."""
_FROM_DISK_S = 0.001
"""From memory it takes 0.04 ms."""
_THREADS = 4
_HAS_NOWAIT = hasattr(os, "RWF_NOWAIT") and sys.platform == "linux"
_BYTE = bytearray(1)
_SENDFILE_FROM_BYTES = 32 * 1024
_HAS_SENDFILE = hasattr(os, "sendfile")


class ColdReads:
    """The threads of one network that wait for disks."""

    def __init__(self) -> None:
        self._executor: ThreadPoolExecutor | None = None

    def begin(self, loop: asyncio.AbstractEventLoop, read: Callable[[P], T], what: P) -> "asyncio.Future[T]":
        """Call ``read`` of `read_into_memory` and `read_ranges` in a thread."""
        if self._executor is None:
            self._executor = ThreadPoolExecutor(_THREADS, "cold-reads")
        return loop.run_in_executor(self._executor, read, what)


def is_for_sendfile(piece: FileSlice) -> bool:
    """Whether a range leaves by sendfile.

    Small ones are read, and leave with what stands between them."""
    return piece.size >= _SENDFILE_FROM_BYTES and _HAS_SENDFILE and piece.file.fileno() is not None


def small_ranges(parts: Iterable[Part]) -> list[FileSlice]:
    """The ranges of files before the first that is for sendfile."""
    small = takewhile(lambda part: not isinstance(part, FileSlice) or not is_for_sendfile(part), parts)
    return [part for part in small if isinstance(part, FileSlice)]


def is_in_memory(descriptor: int, offset: int, size: int) -> bool:
    """Whether a range of a file can be read without waiting for a disk, as far as a
    look at every 64 KiB shows.

    True also where the system does not say. What is missing begins to be read.
    """
    if not _HAS_NOWAIT:
        return True
    last = offset + size - 1
    try:
        for at in range(offset, last, _STEP_BYTES):
            os.preadv(descriptor, (_BYTE,), at, os.RWF_NOWAIT)
        os.preadv(descriptor, (_BYTE,), last, os.RWF_NOWAIT)
    except BlockingIOError:
        return False
    except OSError:
        return True  # this file system cannot say; what else is wrong, sendfile reports
    return True


def read_at_once(piece: FileSlice) -> bytes | bytearray | None:
    """A small range, or None where a disk must be waited for. Raises `OSError`."""
    descriptor = piece.file.fileno()
    if descriptor is None or not _HAS_NOWAIT:
        return read_whole(piece)
    data = bytearray(piece.size)
    try:
        return data if os.preadv(descriptor, (data,), piece.offset, os.RWF_NOWAIT) == piece.size else None
    except BlockingIOError:
        return None
    except OSError:
        return read_whole(piece)


def read_whole(piece: FileSlice) -> bytes:
    """A range; raises `OSError` when the file ends before it does."""
    data = piece.read()
    if len(data) < piece.size:
        raise OSError(f"{piece.file!r} ended {piece.size - len(data)} bytes early")
    return data


def read_ranges(pieces: Sequence[FileSlice]) -> list[bytes]:
    """Small ranges, in a thread. Raises `OSError`."""
    return [read_whole(piece) for piece in pieces]


def read_into_memory(piece: FileSlice) -> bool:
    """Return when a range of a file is in memory, or cannot be read: whether that
    took long enough for a disk."""
    descriptor = piece.file.fileno()
    if descriptor is None:
        return False
    offset, end = piece.offset, piece.offset + piece.size
    began_s = time.perf_counter()
    # sendfile reports what is wrong.
    with contextlib.suppress(OSError), open(os.devnull, "wb", buffering=0) as nowhere:
        # This and what a reader asks for next, all at once: the system itself reads 128 KiB ahead.
        os.posix_fadvise(descriptor, offset, piece.size + READ_AHEAD_BYTES, os.POSIX_FADV_WILLNEED)
        while offset < end and (sent := os.sendfile(nowhere.fileno(), descriptor, offset, end - offset)):
            offset += sent  # nothing was copied
    return time.perf_counter() - began_s > _FROM_DISK_S
