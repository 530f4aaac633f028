"""Bringing a log to stable storage: what must be synced is decided here and can be done in any thread."""

from collections.abc import Iterable

from barnabas.base.files import Files
from barnabas.log.checkpoints import PARTITION_METADATA
from barnabas.log.names import INDEX, TIME_INDEX
from barnabas.log.segment.segment import Segment

__all__ = ["FlushTask"]


class FlushTask:
    """Files and folders to sync, so that a log is on stable storage up to an offset."""

    __slots__ = ("_directories", "_files", "_paths", "cuts", "is_full", "upto_offset")

    def __init__(
        self,
        files: Files,
        paths: list[str],
        directories: list[str],
        upto_offset: int,
        cuts: int,
        *,
        is_full: bool = True,
    ) -> None:
        self._files = files
        self._paths = paths
        self._directories = directories
        self.upto_offset = upto_offset
        self.cuts = cuts
        """`LogState.cuts` at that time."""
        self.is_full = is_full
        """Whether all files are meant, not the records alone."""

    @staticmethod
    def of_records(
        files: Files, directory: str, segments: Iterable[Segment], upto_offset: int, cuts: int, *, names: bool
    ) -> "FlushTask":
        """The records alone, and with ``names`` the folder: recovery makes everything else from them."""
        paths = [segment.path for segment in segments]
        return FlushTask(files, paths, [directory] if names else [], upto_offset, cuts, is_full=False)

    @staticmethod
    def of(
        files: Files, directory: str, segments: Iterable[Segment], small_files: set[str], upto_offset: int, cuts: int
    ) -> "FlushTask":
        """The files of a log that changed: those of ``segments`` up to an offset, and small ones by their names."""
        paths = []
        for segment in segments:
            if segment.base_offset > upto_offset or (segment.base_offset == upto_offset and segment.size):
                break
            segment.write_indexes()
            paths.append(segment.path)
            if segment.has_index_entries:
                paths += [segment.file_path(INDEX), segment.file_path(TIME_INDEX)]
            if segment.transactions.is_in_use:
                paths.append(segment.transactions.path)
        paths += [f"{directory}/{name}" for name in sorted(small_files)]
        directories = [directory]
        if PARTITION_METADATA in small_files:
            directories.append(parent_of(directory))
        return FlushTask(files, paths, directories, upto_offset, cuts)

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
