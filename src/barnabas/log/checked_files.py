"""Small files with a checked copy beside each, so that a changed byte is noticed.

Kafka: no counterpart.

Apache's checkpoints have no room for a checksum, and one changed digit is another valid offset. So
this broker keeps a copy of what it writes in ``NAME.barnabas``: the same bytes, and a line
``crc32 NEW OLDER ...`` with the checksum of these bytes and those of the last few contents.
Apache's broker leaves the copy where it is, and writes none.

The copy is written before its file. So whenever a crash comes, the file has one of the
contents that the copy names:

    the file is one of these        as written: the copy's contents were about to replace it, or did
    the file is anything else       changed: damaged, edited, or written by another broker
    there is no valid copy          unknown: written by another broker or an earlier
                                    version, or the copy is damaged

The copy is not synced. After a loss of power it may be an older one, or none. So a file that
changed is no alarm by itself; its reader asks what else shows which of the two is right: the log,
or the other files of its folder.
"""

import posixpath
import re
import zlib
from typing import NamedTuple

from barnabas.base.files import Files

__all__ = ["CheckedFile", "copy_of", "read_checked", "was_written_later", "write_checked"]

_COPY = ".barnabas"
_KEPT = 3
"""Checksums of earlier contents: a write beside the event loop may have given way to
one of the loop's."""
_TRAILER = re.compile(rb"crc32((?: [0-9a-f]{8}){1,8})\n")
_TRAILER_BYTES = 96
_SLACK_MS = 1000
"""A file is written after its copy; a sync may take so long."""


class CheckedFile(NamedTuple):
    """A small file, as it is and as this broker wrote it."""

    path: str
    data: bytes | None
    """None when there is no file."""
    copy: bytes | None
    """What this broker wrote last; None when that is unknown."""
    is_as_written: bool
    """Whether the file has contents that this broker wrote."""
    is_first: bool
    """Whether the copy is of the first contents that this broker wrote: the file need not exist."""

    @property
    def is_changed(self) -> bool:
        """Whether the file is known to have other contents than this broker wrote."""
        return self.copy is not None and not self.is_as_written


def copy_of(path: str) -> str:
    """The path of a file's checked copy."""
    return path + _COPY


def write_checked(files: Files, path: str, data: bytes, *, sync: bool, name: str = "") -> None:
    """Replace a small file and its copy. Raises `OSError`.

    ``name``: both will be renamed so, the copy first.
    """
    name = name or posixpath.basename(path)
    known = _read_copy(files, posixpath.join(posixpath.dirname(path), copy_of(name)), name)
    checksums = [_checksum(name, data)]
    if known is not None:
        checksums += known[1][:_KEPT]
    trailer = b"crc32" + b"".join(b" %08x" % checksum for checksum in checksums) + b"\n"
    files.write_atomically(copy_of(path), data + trailer, sync=False)
    files.write_atomically(path, data, sync=sync)


def read_checked(files: Files, path: str) -> CheckedFile:
    """Read a small file and its copy. Raises `OSError`, but for files that are missing."""
    name = posixpath.basename(path)
    known = _read_copy(files, copy_of(path), name)
    try:
        data = files.read(path)
    except FileNotFoundError:
        data = None
    if known is None:
        return CheckedFile(path, data, None, False, False)
    copy, checksums = known
    is_as_written = data is not None and (data == copy or _checksum(name, data) in checksums)
    return CheckedFile(path, data, copy, is_as_written, len(checksums) == 1)


def was_written_later(files: Files, path: str) -> bool:
    """Whether a file was written after its copy, which another program does. Raises `OSError`."""
    try:
        return files.modified_ms(path) > files.modified_ms(copy_of(path)) + _SLACK_MS
    except FileNotFoundError:
        return False


def _read_copy(files: Files, path: str, name: str) -> tuple[bytes, list[int]] | None:
    """The contents in a copy, and the checksums that it names, newest first.

    None when there is no valid one."""
    try:
        data = files.read(path)
    except FileNotFoundError:
        return None
    start = data.rfind(b"crc32", max(0, len(data) - _TRAILER_BYTES))
    match = _TRAILER.fullmatch(data, start) if start >= 0 else None
    if match is None:
        return None
    content = data[:start]
    checksums = [int(checksum, 16) for checksum in match[1].split()]
    return (content, checksums) if checksums[0] == _checksum(name, content) else None


def _checksum(name: str, data: bytes) -> int:
    return zlib.crc32(data, zlib.crc32(name.encode()))
