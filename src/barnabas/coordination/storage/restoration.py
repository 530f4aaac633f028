"""A state that an operator gives a server in the place of its own: the ``restore``
command of the admin server.

    restore.barnabas-tmp     the snapshot as it comes; removed at the next start
    restore.<zxid in hex>.N  the whole snapshot, checked and synced: from here on it is the state
    snapshot.<zxid in hex>   the same, once the files of the state before are in
                             ``before-restore.N``

A crash between the last two steps is completed at the next start, so there is either the old state
or the new one. Nothing is deleted: ``before-restore.1``, ``before-restore.2`` and so on beside
``version-2`` are for the operator to remove. Each holds the files of one state: the commit decides
its number, which no folder has beside the snapshots or beside the logs.

What comes must leave free what the server needs itself: a server that cannot write its log stops.

Apache's server keeps a restored state in memory alone, until its next snapshot; ours is
durable before the answer.

In ZooKeeper: ZooKeeperServer.restoreFromSnapshot.
"""

import contextlib
import logging
import posixpath

from barnabas.base.errors import BarnabasError, CorruptDataError
from barnabas.base.files import File, Files, make_dirs_durably
from barnabas.coordination.core.database import Database
from barnabas.coordination.storage.snapshot import read_snapshot_with_zxid, snapshot_name
from barnabas.coordination.storage.transaction_log import zxid_of_name

__all__ = ["NoRoomError", "Restoration", "complete_restoration"]

logger = logging.getLogger(__name__)
_NAME = "restore"
_TEMPORARY = f"{_NAME}.barnabas-tmp"
_ASIDE = "before-restore"


class NoRoomError(BarnabasError):
    """The disk has no room for a snapshot that comes."""


class Restoration:
    """A snapshot on its way into a server.

    All methods write or read files, so an edge calls them in a thread."""

    def __init__(self, files: Files, snapshots_dir: str, logs_dir: str, reserve_bytes: int) -> None:
        """``reserve_bytes`` of the disk stay free."""
        self._files = files
        self._directory = snapshots_dir
        self._logs_dir = logs_dir
        self._reserve_bytes = reserve_bytes
        self._path = posixpath.join(snapshots_dir, _TEMPORARY)
        self._file: File | None = None

    def check_room(self, size_bytes: int) -> None:
        """Raises `NoRoomError` if the disk has no room for this many bytes."""
        _, free_bytes = self._files.disk_space(self._directory)
        if size_bytes + self._reserve_bytes > free_bytes:
            raise NoRoomError(
                f"the disk has no room for {size_bytes} bytes more of the snapshot: {free_bytes} are free, and the server "
                f"keeps {self._reserve_bytes} for its log. Remove files that nothing needs, for example before-restore.1 "
                f"of an older restore, from the disk of {self._directory}"
            )

    def write(self, part: bytes) -> None:
        """The next bytes of the snapshot. Raises `NoRoomError`, and OSError."""
        self.check_room(len(part))
        if self._file is None:
            with contextlib.suppress(FileNotFoundError):
                self._files.remove(self._path)
            self._file = self._files.open(self._path, create=True)
        self._file.append([part])

    def read(self) -> Database:
        """The whole snapshot's state. Raises `CorruptDataError` if it cannot be one."""
        if self._file is None:
            raise CorruptDataError("the snapshot is empty")
        self._file.sync()
        return read_snapshot_with_zxid(self._files.read(self._path), "that was sent")

    def commit(self, zxid: int) -> None:
        """From now on this is the server's state; `complete_restoration` comes next.

        Durable at return."""
        self._close()
        parents = {posixpath.dirname(self._directory), posixpath.dirname(self._logs_dir)}
        numbers = (_number_of_aside(name) for parent in parents for name in self._files.list(parent))
        name = f"{_NAME}.{zxid:x}.{max(numbers, default=0) + 1}"
        self._files.rename(self._path, posixpath.join(self._directory, name))
        self._files.sync_dir(self._directory)

    def abandon(self) -> None:
        """Remove what came, unless it is committed. Raises nothing: the disk may have failed."""
        with contextlib.suppress(OSError):
            self._close()
            self._files.remove(self._path)

    def _close(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            file.close()


def complete_restoration(files: Files, snapshots_dir: str, logs_dir: str) -> None:
    """If a restored state is committed, move the files of the state before aside and
    give it its name.

    The log must not be open.
    """
    restored = [(name, found) for name in files.list(snapshots_dir) if (found := _restored_from_name(name)) is not None]
    if not restored:
        return
    restored_name, (zxid, number) = restored[0]
    for directory, prefix in ((logs_dir, "log"), (snapshots_dir, "snapshot")):
        old = [name for name in files.list(directory) if zxid_of_name(name, prefix) is not None]
        if old:
            _move_aside(files, directory, old, number)
    path = posixpath.join(snapshots_dir, snapshot_name(zxid))
    files.rename(posixpath.join(snapshots_dir, restored_name), path)
    files.sync_dir(snapshots_dir)
    logger.warning("The state is the restored snapshot %s", path)


def _restored_from_name(name: str) -> tuple[int, int] | None:
    """The zxid and the number of the folder in the name of a committed snapshot.

    None for other files."""
    start, _, number = name.rpartition(".")
    zxid = zxid_of_name(start, _NAME)
    return (zxid, int(number)) if zxid is not None and number.isdecimal() else None


def _number_of_aside(name: str) -> int:
    """0 for any other folder."""
    start, _, number = name.partition(".")
    return int(number) if start == _ASIDE and number.isdecimal() else 0


def _move_aside(files: Files, directory: str, names: list[str], number: int) -> None:
    aside = posixpath.join(posixpath.dirname(directory), f"{_ASIDE}.{number}")
    make_dirs_durably(files, aside)
    for name in names:
        files.rename(posixpath.join(directory, name), posixpath.join(aside, name))
    files.sync_dir(aside)
    files.sync_dir(directory)
    logger.warning("Moved %d files of the state before the restore from %s to %s", len(names), directory, aside)
