"""Files with secrets, which only their owner can read at any moment, and folders that
only their owner can enter.

Kafka has no counterpart.
"""

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path

__all__ = ["is_trusted", "make_private_dirs", "require_own_folder", "write_private"]


def make_private_dirs(path: str | os.PathLike[str]) -> None:
    """Make a folder with mode 0700, because it will hold records or credentials, and its missing
    parents with the default mode.

    A folder that is there keeps its mode: its owner has chosen it. Raises `PermissionError`
    as `require_own_folder`.
    """
    path = os.path.abspath(path)  # without a slash at the end, of which there is no parent
    if os.path.isdir(path):
        require_own_folder(path)
        return
    parent = there = os.path.dirname(path)
    while not os.path.exists(there):
        there = os.path.dirname(there)
    require_own_folder(there)
    if there != parent:
        os.makedirs(parent, exist_ok=True)
    with contextlib.suppress(FileExistsError):  # another process has made it meanwhile
        os.mkdir(path, 0o700)
        return
    if not os.path.isdir(path):
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
    require_own_folder(path)  # the other process may be somebody else's


def is_trusted(found: os.stat_result) -> bool:
    """Whether a file is this user's or root's.

    The owner of any other could change where it leads at any moment."""
    return not hasattr(os, "geteuid") or found.st_uid in (0, os.geteuid())


def require_own_folder(path: str) -> None:
    """Raises `PermissionError` if a folder, or a folder or link on the way to it, is another user's
    and lies where anybody can put it.

    That is a sticky folder or one that all can write in, such as /tmp with the default of log.dirs:
    another user can make the folder first, and then put links in it through which this user's other
    files are overwritten. Elsewhere the owner of the parent has let it be there. It may be another
    user's: shared storage gives files owners of its own, and root starts on what a user has made.
    """
    for place in _way_to(os.path.abspath(path)):
        found, parent = os.lstat(place), os.stat(os.path.dirname(place))
        if not is_trusted(found) and parent.st_mode & (stat.S_ISVTX | stat.S_IWOTH):
            why = (
                f"it belongs to another user (uid {found.st_uid}), in a folder where anybody can make it: give it to the user who "
                "starts this (chown), or choose one in a folder that others cannot write in"
            )
            raise PermissionError(errno.EPERM, why, place)


def _way_to(path: str) -> Iterator[str]:
    """A folder and those around it, also those that links on the way lead to."""
    seen: set[str] = set()
    ahead = [path]
    while ahead:
        place = ahead.pop()
        while place not in seen:
            seen.add(place)
            yield place
            if os.path.islink(place):
                ahead.append(os.path.abspath(os.path.join(os.path.dirname(place), os.readlink(place))))
            place = os.path.dirname(place)


def write_private(path: Path, data: bytes) -> None:
    """Write a file of mode 0600 in the place of what is there."""
    written = path.with_name(f"{path.name}.new")
    written.unlink(missing_ok=True)
    with os.fdopen(os.open(written, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(data)
    written.replace(path)
