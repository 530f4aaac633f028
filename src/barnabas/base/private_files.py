"""Files with secrets, which only their owner can read at any moment, and folders that only their owner can enter.

Kafka has no counterpart.
"""

import contextlib
import errno
import os
import stat
from pathlib import Path

__all__ = ["is_trusted", "make_private_dirs", "require_own_folder", "write_private"]


def make_private_dirs(path: str | os.PathLike[str]) -> None:
    """Make a folder and its missing parents with mode 0700, for they will hold records or credentials.

    A folder that is there keeps its mode: its owner has chosen it. Raises `PermissionError` as `require_own_folder`.
    """
    path = os.path.abspath(path)  # without a slash at the end, of which there is no parent
    if os.path.isdir(path):
        require_own_folder(path)
        return
    parent = os.path.dirname(path)
    if not os.path.exists(parent):
        make_private_dirs(parent)
    with contextlib.suppress(FileExistsError):  # another process has made it meanwhile
        os.mkdir(path, 0o700)
        return
    if not os.path.isdir(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
    require_own_folder(path)  # the other process may be somebody else's


def is_trusted(found: os.stat_result) -> bool:
    """Whether a file is this user's or root's. The owner of any other could change where it leads at any moment."""
    return not hasattr(os, "geteuid") or found.st_uid in (0, os.geteuid())


def require_own_folder(path: str) -> None:
    """Raises `PermissionError` for a folder of another user, and for a link of another user on the way to it.

    In a shared folder, such as /tmp with the default of log.dirs, anybody can make it first, and then put links in it
    through which this user's other files are overwritten.
    """
    place = os.path.abspath(path)
    _require_own(place, os.stat(place))
    while True:
        found = os.lstat(place)
        if stat.S_ISLNK(found.st_mode):
            _require_own(place, found)
        place, below = os.path.dirname(place), place
        if place == below:
            return


def _require_own(place: str, found: os.stat_result) -> None:
    if not is_trusted(found):
        why = f"it belongs to another user (uid {found.st_uid}): give it to the user who starts this (chown)"
        raise PermissionError(errno.EPERM, why, place)


def write_private(path: Path, data: bytes) -> None:
    """Write a file of mode 0600 in the place of what is there."""
    written = path.with_name(f"{path.name}.new")
    written.unlink(missing_ok=True)
    with os.fdopen(os.open(written, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
    written.replace(path)
