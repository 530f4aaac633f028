"""Bringing a log to stable storage: what must be synced is decided here and can be done in any thread."""

from typing import TYPE_CHECKING

from barnabas.base.files import Files
from barnabas.log.checkpoints import PARTITION_METADATA
from barnabas.log.names import INDEX, TIME_INDEX

if TYPE_CHECKING:
    from barnabas.log.log_state import LogState

__all__ = ["FlushTask"]


class FlushTask:
    """Files and folders to sync, so that a log is on stable storage up to an offset."""

    __slots__ = ("_directories", "_files", "_paths", "cuts", "upto_offset")

    def __init__(self, files: Files, paths: list[str], directories: list[str], upto_offset: int, cuts: int) -> None:
        self._files = files
        self._paths = paths
        self._directories = directories
        self.upto_offset = upto_offset
        self.cuts = cuts
        """`LogState.cuts` at that time."""

    @staticmethod
    def of(log: "LogState", upto_offset: int) -> "FlushTask":
        """All of a log's files that changed past its recovery point."""
        paths = []
        for segment in log.segments[log.segment_index(log.recovery_point) :]:
            if segment.base_offset > upto_offset or (segment.base_offset == upto_offset and segment.size):
                break
            segment.write_indexes()
            paths.append(segment.path)
            if segment.has_index_entries:
                paths += [segment.file_path(INDEX), segment.file_path(TIME_INDEX)]
            if segment.transactions.is_in_use:
                paths.append(segment.transactions.path)
        paths += [f"{log.directory}/{name}" for name in log.unsynced]
        directories = [log.directory]
        if PARTITION_METADATA in log.unsynced:
            directories.append(parent_of(log.directory))
        log.unsynced = set()
        return FlushTask(log.files, paths, directories, upto_offset, log.cuts)

    def run(self) -> None:
        """Sync. Raises `OSError`; after that the files' state is unknown and the log dir must be given up."""
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


def parent_of(directory: str) -> str:
    """The folder above."""
    return directory.rpartition("/")[0] or "/"
