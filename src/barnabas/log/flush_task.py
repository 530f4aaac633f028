"""A sync of a log, as a task for any thread. Kafka: UnifiedLog.flush, LocalLog.flush."""

from collections.abc import Iterable
from typing import NamedTuple

from barnabas.log.checkpoints import PARTITION_METADATA
from barnabas.log.segment.folder import Folder
from barnabas.log.segment.segment import Segment

__all__ = ["FlushTask", "SyncCounts"]


class SyncCounts(NamedTuple):
    """The state of a log when a task was made. A task does not cover what came later."""

    cuts: int
    """How often the log had been cut."""
    changes: int
    """How many changes of small files and names had been counted."""


class FlushTask:
    """Files and folders to sync, so that a log is on stable storage up to an offset."""

    __slots__ = ("_directories", "_files", "_paths", "counts", "is_full", "upto_offset")

    def __init__(
        self,
        folder: Folder,
        paths: list[str],
        directories: list[str],
        upto_offset: int,
        counts: SyncCounts,
        *,
        is_full: bool,
    ) -> None:
        self._files = folder.files
        self._paths = paths
        self._directories = directories
        self.upto_offset = upto_offset
        self.is_full = is_full
        """Whether all files are meant, not the records alone."""
        self.counts = counts

    @staticmethod
    def of_records(
        folder: Folder, segments: Iterable[Segment], upto_offset: int, counts: SyncCounts, *, names: bool
    ) -> "FlushTask":
        """The records alone, and with ``names`` the folder: recovery makes
        everything else from them."""
        paths = [segment.path for segment in segments]
        return FlushTask(folder, paths, [folder.directory] if names else [], upto_offset, counts, is_full=False)

    @staticmethod
    def of(
        folder: Folder, segments: Iterable[Segment], small_files: Iterable[str], upto_offset: int, counts: SyncCounts
    ) -> "FlushTask":
        """The files of a log that changed: those of ``segments`` up to an offset, and
        small ones by their names.

        Raises `OSError`.
        """
        paths = []
        for segment in segments:
            if segment.base_offset > upto_offset or (segment.base_offset == upto_offset and segment.size):
                break
            segment.write_indexes()
            paths.append(segment.path)
            paths += segment.indexes.paths
            if segment.transactions.is_in_use:
                paths.append(segment.transactions.path)
        names = sorted(small_files)
        paths += [folder.path(name) for name in names]
        directories = [folder.directory]
        if PARTITION_METADATA in names:
            directories.append(_parent_of(folder.directory))
        return FlushTask(folder, paths, directories, upto_offset, counts, is_full=True)

    @property
    def has_names(self) -> bool:
        """Whether the folder's names are synced too."""
        return bool(self._directories)

    def run(self) -> None:
        """Sync.

        Raises `OSError`; after that the files' state is unknown and the log dir must
        be given up."""
        for path in self._paths:
            try:
                file = self._files.open(path)
            except FileNotFoundError:
                continue  # not every segment has every file, and retention may have taken it since
            try:
                file.sync()
            finally:
                file.close()
        for directory in self._directories:
            try:
                self._files.sync_dir(directory)
            except FileNotFoundError:
                continue  # the partition was deleted since


def _parent_of(directory: str) -> str:
    """The folder above."""
    return directory.rpartition("/")[0] or "/"
