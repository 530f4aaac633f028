"""The names of nodes: absolute, ``/`` between the parts, no ``.`` or ``..``, no
control or private characters.

In ZooKeeper: PathUtils.
"""

import re

from barnabas.wire.jute.errors import ErrorCode, KeeperError

__all__ = ["CONFIG_PATH", "QUOTA_PATH", "SYSTEM_PATH", "SYSTEM_PATHS", "checked_path", "parent_of"]

SYSTEM_PATH = "/zookeeper"
QUOTA_PATH = "/zookeeper/quota"
CONFIG_PATH = "/zookeeper/config"
SYSTEM_PATHS = frozenset(("/", SYSTEM_PATH, QUOTA_PATH, CONFIG_PATH))
"""Nodes that every tree has and that cannot be deleted."""

_VALID = re.compile(
    r"/|(?:/(?!\.{1,2}(?:/|\Z))[^/\x00-\x1f\x7f-\x9f\ud800-\uf8ff\ufff0-\uffff\U00010000-\U0010ffff]+)+"
)
# Characters beyond U+FFFF are surrogate pairs to the Java servers, which refuse them.


def checked_path(path: str) -> str:
    """The path, or BAD_ARGUMENTS."""
    if (
        path.isascii()
        and path.isprintable()
        and path[:1] == "/"
        and path[-1:] != "/"
        and "//" not in path
        and "/." not in path
    ):
        return path  # the common case, which needs no closer look
    if _VALID.fullmatch(path) is None:
        raise KeeperError(ErrorCode.BAD_ARGUMENTS, path)
    return path


def parent_of(path: str) -> str:
    """The path above; BAD_ARGUMENTS for a path without a slash or with a NUL.

    `checked_path` checks the other rules."""
    slash = path.rfind("/")
    if slash == -1 or "\0" in path:
        raise KeeperError(ErrorCode.BAD_ARGUMENTS, path)
    return path[:slash] or "/"
