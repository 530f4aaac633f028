"""Files with secrets, which only their owner can read at any moment, and folders that only their owner can enter.

Kafka has no counterpart.
"""

import contextlib
import errno
import os
from pathlib import Path

__all__ = ["make_private_dirs", "write_private"]


def make_private_dirs(path: str | os.PathLike[str]) -> None:
    """Make a folder and its missing parents with mode 0700, for they will hold records or credentials.

    A folder that is there keeps its mode: its owner has chosen it.
    """
    path = os.path.abspath(path)  # without a slash at the end, of which there is no parent
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path)
    if not os.path.exists(parent):
        make_private_dirs(parent)
    with contextlib.suppress(FileExistsError):  # another process has made it meanwhile
        os.mkdir(path, 0o700)
        return
    if not os.path.isdir(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)


def write_private(path: Path, data: bytes) -> None:
    """Write a file of mode 0600 in the place of what is there."""
    written = path.with_name(f"{path.name}.new")
    written.unlink(missing_ok=True)
    with os.fdopen(os.open(written, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
    written.replace(path)
