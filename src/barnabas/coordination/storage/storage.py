"""A server's two directories: snapshots in ``dataDir/version-2``, transaction logs in
``dataLogDir/version-2``.

At the start the newest valid snapshot is read and the log after it is replayed (`replay`).
Where something is missing, the server does not start. Log files stay as long as a retained
snapshot needs them.

In ZooKeeper: FileTxnSnapLog, and PurgeTxnLog for `Storage.purge`.
"""

import contextlib
import logging
import posixpath
from collections.abc import Callable, Mapping
from typing import NamedTuple

from barnabas.base.errors import CorruptDataError
from barnabas.base.files import File, Files, make_dirs_durably
from barnabas.coordination.core.database import Database
from barnabas.coordination.storage.log_history import LoggedHistory
from barnabas.coordination.storage.replay import REMEDY, Replay
from barnabas.coordination.storage.restoration import Restoration, complete_restoration
from barnabas.coordination.storage.snapshot import SNAPSHOT_END, encode_snapshot, read_snapshot, snapshot_name
from barnabas.coordination.storage.transaction_log import (
    TransactionLog,
    cut_transaction_log,
    logs_from,
    zxid_of_name,
)

__all__ = ["SnapshotFile", "SnapshotWriter", "Storage"]

logger = logging.getLogger(__name__)
_VERSION_DIR = "version-2"
_TEMPORARY = ".barnabas-tmp"
_CHUNK_BYTES = 1 << 20
_SYNC_BYTES = 4 << 20
"""A snapshot is synced after this many bytes: one sync of a large file at its end would hold up
those of the log."""
_MAX_COUNTER = 0xFFFFFFFF
"""A server alone stays in epoch 0."""


class Storage:
    """Loads the state, opens the log, writes and purges snapshots."""

    def __init__(
        self,
        files: Files,
        data_dir: str,
        data_log_dir: str,
        *,
        preallocate_bytes: int,
        sync: bool = True,
        max_log_file_bytes: int = 0,
    ) -> None:
        self._files = self.files = files
        self._data_dir = data_dir
        self.snapshots_dir = posixpath.join(data_dir, _VERSION_DIR)
        self.logs_dir = posixpath.join(data_log_dir, _VERSION_DIR)
        self.log = TransactionLog(
            files, self.logs_dir, preallocate_bytes=preallocate_bytes, sync=sync, max_file_bytes=max_log_file_bytes
        )
        self._sync = sync
        self._reserve_bytes = 2 * preallocate_bytes
        self._lock = contextlib.ExitStack()
        self._snapshots_begun = 0

    def open(self) -> None:
        """Make the directories and lock them.

        Raises BlockingIOError when another server uses them."""
        for directory in (self.snapshots_dir, self.logs_dir):
            # By itself, for it must not be another user's.
            make_dirs_durably(self._files, posixpath.dirname(directory))
            make_dirs_durably(self._files, directory)
        self._lock.enter_context(self._files.lock(posixpath.join(self._data_dir, ".lock")))

    def close(self) -> None:
        """Close the log and unlock the directories."""
        self.log.close()
        self._lock.close()

    # Loading

    def load(self, on_replayed: Callable[[int, bytes], None] | None = None) -> tuple[Database, int]:
        """The state, and how many transactions were replayed for it. Raises `CorruptDataError`.

        ``on_replayed`` gets the zxid and the bytes of each transaction that is replayed.
        """
        for name in self._files.list(self.snapshots_dir):
            if name.endswith(_TEMPORARY):
                self._files.remove(posixpath.join(self.snapshots_dir, name))
        complete_restoration(self._files, self.snapshots_dir, self.logs_dir)
        self._check_files()
        database, damaged = self._newest_snapshot()
        names = self._files.list(self.logs_dir)
        has_snapshot = database is not None
        if database is None:
            database = Database()
            if damaged and not any(first == 1 for first, _ in logs_from(names, 0)):
                raise CorruptDataError(
                    f"no snapshot in {self.snapshots_dir} can be read: {'; '.join(damaged.values())}. {REMEDY}"
                )
        snapshot_zxid = database.last_zxid
        replay = Replay(self._files, self.logs_dir, database, on_replayed, has_snapshot=has_snapshot)
        replay.run(logs_from(names, snapshot_zxid))
        self._check_reach(database, damaged, snapshot_zxid, replay.last_logged)
        replay.repair()
        return database, replay.replayed

    def _check_files(self) -> None:
        """Raises `CorruptDataError` for a directory in the place of a file, also of one that is
        only to be removed later."""
        for directory, prefix in ((self.snapshots_dir, "snapshot"), (self.logs_dir, "log")):
            for name in self._files.list(directory):
                path = posixpath.join(directory, name)
                if zxid_of_name(name, prefix) is not None and self._files.is_dir(path):
                    raise CorruptDataError(f"{path} is a directory, and a file is expected. {REMEDY}")

    def _check_reach(
        self, database: Database, damaged: Mapping[int, str], snapshot_zxid: int, last_logged: int | None
    ) -> None:
        """Raises `CorruptDataError` if a snapshot shows that the log went further
        than it does now."""
        newest_damaged = max(damaged, default=0)
        if newest_damaged > database.last_zxid:
            raise CorruptDataError(
                f"{damaged[newest_damaged]}; without it the state ends with 0x{database.last_zxid:x}, and transactions up to "
                f"0x{newest_damaged:x} were in it. {REMEDY}"
            )
        is_of_server_alone = snapshot_zxid <= _MAX_COUNTER
        if self._sync and is_of_server_alone and last_logged is not None and last_logged < snapshot_zxid:
            raise CorruptDataError(
                f"the log in {self.logs_dir} ends with the transaction 0x{last_logged:x}, before the snapshot 0x{snapshot_zxid:x}: "
                f"it was cut, or files of it are missing, and with them what came after the snapshot. {REMEDY}; or, if nothing "
                "was written after the snapshot, move the log files away."
            )

    def _snapshots(self) -> list[tuple[int, str]]:
        """Zxids and names, the newest first."""
        names = self._files.list(self.snapshots_dir)
        return sorted(
            ((zxid, name) for name in names if (zxid := zxid_of_name(name, "snapshot")) is not None), reverse=True
        )

    def _newest_snapshot(self) -> tuple[Database | None, dict[int, str]]:
        """The state in the newest one that can be read, and the zxids of those that
        cannot, with the reasons."""
        damaged: dict[int, str] = {}
        for zxid, name in self._snapshots():
            path = posixpath.join(self.snapshots_dir, name)
            logger.info("Reading snapshot %s", path)
            try:
                return read_snapshot(self._files.read(path), path, zxid), damaged
            except CorruptDataError as error:
                logger.warning("%s; an older snapshot and more of the log are needed", error)
                damaged[zxid] = str(error)
        return None, damaged

    # What a leader gives a learner, and makes it do

    def history_behind(self, zxid: int, size_factor: float) -> LoggedHistory:
        """The log behind a learner's last zxid, of at most ``size_factor`` times the newest
        snapshot's size; 0 for no limit."""
        sizes = [
            (name, self._files.size(posixpath.join(self.logs_dir, name)))
            for _, name in logs_from(self._files.list(self.logs_dir), zxid - 1)
        ]
        used_bytes = self.log.used_bytes
        if used_bytes is not None and sizes:
            sizes[-1] = sizes[-1][0], used_bytes
        snapshot = next((name for _, name in self._snapshots()), None)
        max_bytes: int | None = None
        if size_factor and snapshot is not None:
            max_bytes = int(self._files.size(posixpath.join(self.snapshots_dir, snapshot)) * size_factor)
        return LoggedHistory(self._files, self.logs_dir, sizes, zxid, max_bytes)

    def truncate(self, zxid: int) -> None:
        """Remove all transactions after ``zxid``, and the snapshots that hold some of them.

        `load` comes next. Raises `CorruptDataError` if only such snapshots hold the beginning.
        """
        self.log.roll()
        names = self._files.list(self.logs_dir)
        above = [name for newer, name in self._snapshots() if newer > zxid]
        if above and len(above) == len(self._snapshots()) and not any(first == 1 for first, _ in logs_from(names, 0)):
            raise CorruptDataError(
                f"the leader's history ends at 0x{zxid:x}, and every snapshot in {self.snapshots_dir} is newer: move "
                "this server's data directory away and let it copy the state from the other servers"
            )
        for name in above:
            logger.warning("Removing %s/%s: the leader's history ends at 0x%x", self.snapshots_dir, name, zxid)
            self._remove(posixpath.join(self.snapshots_dir, name))
        self._files.sync_dir(self.snapshots_dir)
        for first, name in reversed([each for each in logs_from(names, 0) if each[0] > zxid]):
            logger.info("Removing %s/%s: it begins after 0x%x", self.logs_dir, name, zxid)
            del first
            self._remove(posixpath.join(self.logs_dir, name))
        self._files.sync_dir(self.logs_dir)
        for _, name in logs_from(self._files.list(self.logs_dir), zxid)[:1]:
            cut_transaction_log(self._files, posixpath.join(self.logs_dir, name), zxid)

    def replace(self, database: Database) -> None:
        """Make the state that a leader has sent the one that a restart finds. Durable at return.

        No older file stays: between its transactions and the new state there is a gap, and a
        restart from it, or a learner that is given its transactions, would miss some in silence.
        """
        self.log.roll()
        for newer, name in self._snapshots():
            if newer > database.last_zxid:
                self._remove(posixpath.join(self.snapshots_dir, name))
        self.save_snapshot(database)
        for older, name in self._snapshots():
            if older < database.last_zxid:
                self._remove(posixpath.join(self.snapshots_dir, name))
        self._files.sync_dir(self.snapshots_dir)
        for _, name in reversed(logs_from(self._files.list(self.logs_dir), 0)):
            self._remove(posixpath.join(self.logs_dir, name))
        self._files.sync_dir(self.logs_dir)

    # What an operator gives in the place of the state

    def new_restoration(self) -> Restoration:
        """Takes the snapshot as it comes."""
        return Restoration(self._files, self.snapshots_dir, self.logs_dir, self._reserve_bytes)

    def restore(self, restoration: Restoration, zxid: int) -> None:
        """Make a snapshot, which ends with ``zxid``, the state that a restart finds.

        Durable at return."""
        self.log.roll()
        restoration.commit(zxid)
        complete_restoration(self._files, self.snapshots_dir, self.logs_dir)

    def _remove(self, path: str) -> None:
        with contextlib.suppress(FileNotFoundError):  # purging may have removed it
            self._files.remove(path)

    # Snapshots

    def begin_snapshot(self, database: Database) -> "SnapshotWriter":
        """A writer of the present state, which the caller runs to its end."""
        self._snapshots_begun += 1
        return SnapshotWriter(self._files, self.snapshots_dir, database, self._snapshots_begun)

    def save_snapshot(self, database: Database) -> None:
        """Write a snapshot at once."""
        writer = self.begin_snapshot(database)
        while (part := writer.next_part()) is not None:
            writer.write(part)
        writer.finish()

    def sizes(self) -> tuple[int, int]:
        """Bytes in the directory of snapshots, and in the directory of logs."""
        return self._bytes_in(self.snapshots_dir), self._bytes_in(self.logs_dir)

    def _bytes_in(self, directory: str) -> int:
        total = 0
        for name in self._files.list(directory):
            with contextlib.suppress(OSError):  # a file that was removed meanwhile
                total += self._files.size(posixpath.join(directory, name))
        return total

    def any_snapshot(self) -> bool:
        """Whether there is a snapshot; Apache's server does not read a log without one."""
        return bool(self._snapshots())

    def purge(self, retain: int) -> list[str]:
        """Remove all but the newest snapshots, and the log files that only older ones need.

        Returns the removed paths. A snapshot without its end, which no server can read, is not
        counted as one that is kept.
        """
        snapshots = self._snapshots()
        whole = [zxid for zxid, name in snapshots if self._is_whole(name)]
        if not whole:
            return []
        oldest = whole[:retain][-1]
        removed = [posixpath.join(self.snapshots_dir, name) for zxid, name in snapshots if zxid < oldest]
        names = self._files.list(self.logs_dir)
        needed = {name for _, name in logs_from(names, oldest)}
        removed += [
            posixpath.join(self.logs_dir, name)
            for name in names
            if zxid_of_name(name, "log") is not None and name not in needed
        ]
        for path in removed:
            with contextlib.suppress(
                FileNotFoundError
            ):  # a member that takes over its leader's state removes files, too
                self._files.remove(path)
        return removed

    def _is_whole(self, name: str) -> bool:
        """Whether a snapshot has its end."""
        file = self._files.open(posixpath.join(self.snapshots_dir, name), read_only=True)
        try:
            return file.read_at(max(file.size() - len(SNAPSHOT_END), 0), len(SNAPSHOT_END)) == SNAPSHOT_END
        finally:
            file.close()


class SnapshotFile(NamedTuple):
    """A snapshot on disk."""

    path: str
    zxid: int
    size_bytes: int


class SnapshotWriter:
    """Writes one snapshot in parts, under a temporary name of its own until it is
    whole and synced."""

    def __init__(self, files: Files, directory: str, database: Database, number: int) -> None:
        self._files = files
        self._directory = directory
        self.path = posixpath.join(directory, snapshot_name(database.last_zxid))
        self._temporary_path = f"{self.path}.{number}{_TEMPORARY}"
        self._parts = encode_snapshot(database)
        self._first: bytes | None = next(self._parts)  # from here on the state is fixed
        self._file: File | None = None
        self._unsynced_bytes = 0

    def next_part(self) -> bytes | None:
        """The next part to write; None at the end. Cheap enough to be called between requests."""
        part, self._first = self._first, None
        return part if part is not None else next(self._parts, None)

    def write(self, part: bytes) -> None:
        """Write a part; may run on another thread."""
        if self._file is None:
            if self._files.exists(self._temporary_path):
                self._files.remove(self._temporary_path)
            self._file = self._files.open(self._temporary_path, create=True)
        self._file.append([part])
        self._unsynced_bytes += len(part)
        if self._unsynced_bytes >= _SYNC_BYTES:
            self._file.sync()
            self._unsynced_bytes = 0

    def abandon(self) -> None:
        """Remove what is written, after an error; may run on another thread.

        Raises nothing: the disk may have failed."""
        file, self._file = self._file, None
        with contextlib.suppress(OSError):
            if file is not None:
                file.close()
            self._files.remove(self._temporary_path)

    def finish(self) -> None:
        """Sync the file and give it its name; may run on another thread."""
        assert self._file is not None
        self._file.sync()
        self._file.close()
        self._files.rename(self._temporary_path, self.path)
        self._files.sync_dir(self._directory)
