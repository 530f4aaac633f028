"""Folders of deleted partitions: renamed to ``...-delete``, removed after file.delete.delay.ms.

Kafka: LogManager.asyncDelete, deleteLogs.
"""

import contextlib

from barnabas.base.files import Files, is_descriptor_shortage
from barnabas.base.randomness import Random
from barnabas.base.tasks import Beside, Task
from barnabas.log.dirs.dir_set import DirSet
from barnabas.log.dirs.log_dir import LogDir
from barnabas.log.names import delete_folder
from barnabas.log.partition_log import PartitionLog
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = ["DeletedFolders"]

_FOLDERS_A_PART = 64
"""Some 20 ms of a disk."""


class DeletedFolders:
    """The folders that wait for their removal."""

    __slots__ = ("_dirs", "_rng", "_waiting")

    def __init__(self, dirs: DirSet, rng: Random) -> None:
        self._dirs = dirs
        self._rng = rng
        self._waiting: list[tuple[int, str]] = []

    def add(self, directory: str, due_ms: int) -> None:
        """Remove a folder that has such a name already, from a time on."""
        self._waiting.append((due_ms, directory))

    def throw_away(self, log: PartitionLog, now_ms: int, reason: str, *, sync: bool = False) -> None:
        """Rename a log's folder and take the log offline.

        Raises `KafkaError` KAFKA_STORAGE_ERROR; the dir is offline then.
        """
        log_dir = self._dirs.dir_of(log)
        directory = log_dir.file_path(delete_folder(log.topic_partition, self._rng.randbytes(16)))
        try:
            log.leader_epochs.complete()
            self._dirs.files.rename(log.directory, directory)
            if sync:
                self._dirs.files.sync_dir(log_dir.path)
        except OSError as error:
            if is_descriptor_shortage(error):
                with contextlib.suppress(OSError):
                    self._dirs.files.rename(directory, log.directory)
            self._dirs.disk_failed(log_dir, error, f"renaming {log.directory}")
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        self._dirs.count(log_dir, -1)
        log.move_to(directory)
        log.availability.take_offline(reason)
        self.add(directory, now_ms + log.config.file_delete_delay_ms)

    def take_back(self, log: PartitionLog, directory: str) -> None:
        """A log that was thrown away is needed again."""
        log_dir = self._dirs.dir_of(log)
        self._waiting = [(due_ms, path) for due_ms, path in self._waiting if path != log.directory]
        try:
            self._dirs.files.rename(log.directory, directory)
        except OSError as error:
            self._dirs.disk_failed(log_dir, error, f"renaming {log.directory}")
            return
        log.move_to(directory)
        log.availability.bring_back()
        self._dirs.count(log_dir, 1)

    def due(self, now_ms: int) -> Task[list[LogDir]]:
        """The dirs with folders whose time has come."""
        due = set()
        for due_ms, directory in tuple(self._waiting):
            if due_ms <= now_ms:
                due.add(self._dirs.parent_of(directory))
                yield None
        return [log_dir for log_dir in self._dirs if log_dir in due]

    def purge(self, now_ms: int) -> Task[None]:
        """Remove the folders whose time has come, beside the event loop.

        A stop comes between two of some folders."""
        due = [directory for due_ms, directory in self._waiting if due_ms <= now_ms]
        self._waiting = [(due_ms, directory) for due_ms, directory in self._waiting if due_ms > now_ms]
        try:
            while due:
                some = [due.pop() for _ in range(min(_FOLDERS_A_PART, len(due)))]
                removal = _Removal(self._dirs.files, [d for d in some if self._dirs.parent_of(d).error is None])
                yield Beside(removal.run)
                for directory, error in removal.failed:
                    self._dirs.disk_failed(self._dirs.parent_of(directory), error, f"removing {directory}")
                    self.add(directory, now_ms)  # for the next time, if there is one
        finally:
            for directory in due:  # the broker stops: the next start finds them
                self.add(directory, now_ms)


class _Removal:
    """Folders to remove, and those that could not be."""

    def __init__(self, files: Files, directories: list[str]) -> None:
        self._files = files
        self._directories = directories
        self.failed: list[tuple[str, OSError]] = []

    def run(self) -> None:
        for directory in self._directories:
            try:
                self._files.remove_tree(directory)
            except OSError as error:
                self.failed.append((directory, error))
