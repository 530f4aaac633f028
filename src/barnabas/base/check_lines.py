"""A checksum as the last line of a small text file, where the file's other readers look at
the lines before it only.

A file of a few bytes has no redundancy: one changed digit is another valid number. With the line, a
changed byte is noticed. A file without the line was written by another program, Apache's for
instance, and is as good as its contents.

The line is ``crc32 XXXXXXXX``, of the file's name and the lines before it: a file that was copied
over another is noticed, too.
"""

import re
import zlib
from enum import Enum

__all__ = ["LineCheck", "add_check_line", "split_check_line"]

_CHECK_LINE = re.compile(rb"crc32 ([0-9a-f]{8})\n")


class LineCheck(Enum):
    """What the check line of a file says."""

    RIGHT = "the contents are as they were written"
    WRONG = "the contents changed since they were written"
    MISSING = "there is no check line"


def add_check_line(name: str, content: bytes) -> bytes:
    """The contents of a file, which end with a line break, with their check line."""
    return b"%scrc32 %08x\n" % (content, _checksum(name, content))


def split_check_line(name: str, data: bytes, lines: int) -> tuple[bytes, LineCheck]:
    """The first ``lines`` lines of a file, and whether their check line confirms them.

    Nothing else may follow it."""
    parts = data.split(b"\n", lines)
    if len(parts) <= lines or not parts[lines].strip():
        return data, LineCheck.MISSING
    content = b"".join(part + b"\n" for part in parts[:lines])
    match = _CHECK_LINE.fullmatch(parts[lines])
    is_right = match is not None and int(match[1], 16) == _checksum(name, content)
    return content, LineCheck.RIGHT if is_right else LineCheck.WRONG


def _checksum(name: str, content: bytes) -> int:
    return zlib.crc32(content, zlib.crc32(name.encode()))
