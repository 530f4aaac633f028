"""Large buffers for a moment, whose memory goes back to the system when they are freed.

The C library keeps what was freed for the thread that took it: a broker whose threads each unpacked 15 MiB kept 130 MiB.
Only pages that are written to are taken, and their zeros are not written by Python, which would hold the interpreter.
"""

import mmap

__all__ = ["new_buffer"]


def new_buffer(size_bytes: int) -> memoryview:
    """So many zeros, at least one, that can be overwritten."""
    return memoryview(mmap.mmap(-1, size_bytes))
