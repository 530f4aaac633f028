"""Where files of the user lie, as the XDG base directory specification has it, and
where there is no such place.

A home need not be there: the user of a container may have a number and no name, a service has a
home that it cannot write, and `sudo -u` leaves the home of another user in the environment.
"""

import os
import stat
from pathlib import Path

from barnabas.base.errors import BarnabasError

__all__ = ["user_folder", "writable_user_folder"]

_NO_HOME = "/nonexistent"
"""As Debian has it for users without a home."""


def user_folder(variable: str, default: str) -> Path:
    """Our folder in the one that a variable such as XDG_CONFIG_HOME names, or in a
    folder of the user's home.

    It need not exist, nor be such that it can be read or written.
    """
    named = os.environ.get(variable, "")
    if os.path.isabs(named):  # the specification: a relative one has no effect
        return Path(named) / "barnabas"
    home = os.path.expanduser("~")
    return Path(home if os.path.isabs(home) else _NO_HOME) / default / "barnabas"


def writable_user_folder(variable: str, default: str) -> Path:
    """The same where it can be written, or made; else a folder of the user's below the
    one for temporary files.

    Raises `BarnabasError` where another user has made that one.
    """
    folder = place = user_folder(variable, default)
    while not os.path.exists(place):
        place = place.parent
    if os.path.isdir(place) and os.access(place, os.W_OK | os.X_OK):
        return folder
    return _temporary(variable) / default


def _temporary(variable: str) -> Path:
    import tempfile  # most users have a home

    user = os.getuid() if hasattr(os, "getuid") else 0
    folder = Path(tempfile.gettempdir()) / f"barnabas-{user}"
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != user or found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        raise BarnabasError(f"{folder} is not a folder that only you can write: set {variable} to one")
    return folder
