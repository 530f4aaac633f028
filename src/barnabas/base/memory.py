"""Memory that goes back to the system when it is freed.

The C library keeps what was freed for the thread that took it: a broker whose threads each unpacked
15 MiB kept 130 MiB. Only pages that are written to are taken, and their zeros are not written by
Python, which would hold the interpreter.
"""

import contextlib
import mmap

__all__ = ["new_buffer", "rest_of", "return_memory"]

_COPIED_FROM_BYTES = 64 * 1024


def new_buffer(size_bytes: int) -> memoryview:
    """A buffer of zeros that can be overwritten; ``size_bytes`` is at least 1."""
    return memoryview(mmap.mmap(-1, size_bytes))


def rest_of(view: memoryview, start: int) -> memoryview:
    """The bytes from ``start`` on.

    If less than half of a large buffer is left, they are copied, because a view
    would keep the whole buffer."""
    rest = view[start:]
    whole_bytes = len(view.obj) if isinstance(view.obj, bytes | bytearray) else 0
    if whole_bytes >= _COPIED_FROM_BYTES and 2 * len(rest) < whole_bytes:
        return memoryview(bytes(rest))
    return rest


def return_memory() -> None:
    """Return freed memory to the system where the C library would keep it.

    That takes a millisecond for some megabytes."""
    with contextlib.suppress(ImportError, OSError, AttributeError):
        import ctypes

        ctypes.CDLL(None).malloc_trim(0)
