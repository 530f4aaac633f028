"""Files of a log that wait for their removal: renamed to ``.deleted``, removed after
file.delete.delay.ms.

Kafka: LocalLog.deleteSegmentFiles. Readers that hold an open file read on until then. The removal
runs beside the event loop, in parts; meanwhile the folder may be renamed, and what was not found
is then looked for again.
"""

from collections.abc import Iterable

from barnabas.base.files import Files
from barnabas.log.names import DELETED, INDEX, TIME_INDEX
from barnabas.log.producer_snapshots import ProducerSnapshots
from barnabas.log.segment.folder import Folder
from barnabas.log.segment.segment import Segment

__all__ = ["Deletions", "Removal", "remove_files"]

_FILES_A_PART = 256


class Removal:
    """Files to remove."""

    __slots__ = ("_files", "error", "paths")

    def __init__(self, files: Files, paths: list[str]) -> None:
        self._files = files
        self.paths = paths
        self.error: OSError | None = None

    def run(self) -> None:
        """In any thread."""
        try:
            remove_files(self._files, self.paths)
        except OSError as error:
            self.error = error


class Deletions:
    """The renamed files of one log."""

    __slots__ = ("_folder", "_snapshots", "_waiting")

    def __init__(self, folder: Folder, snapshots: ProducerSnapshots) -> None:
        self._folder = folder
        self._snapshots = snapshots
        self._waiting: list[tuple[int, list[str]]] = []
        """(when, paths), in the order in which they came."""

    def rename(self, segments: Iterable[Segment], due_ms: int, *, keep_snapshot: int = -1) -> None:
        """Rename the files of segments that left the log, and their snapshots.

        `purge` removes them from a time on. The snapshot at ``keep_snapshot`` stays.
        Raises `OSError`.
        """
        self._waiting.append((due_ms, self._rename(segments, keep_snapshot)))

    def remove_now(self, segment: Segment) -> None:
        """Remove the files of a segment, and its snapshot, at once. Raises `OSError`."""
        remove_files(self._folder.files, self._rename([segment], -1))

    def _rename(self, segments: Iterable[Segment], keep_snapshot: int) -> list[str]:
        files = self._folder.files
        renamed = []
        for segment in segments:
            segment.forget()
            paths = [segment.path, segment.file_path(INDEX), segment.file_path(TIME_INDEX), segment.transactions.path]
            snapshot = self._snapshots.release(segment.base_offset) if segment.base_offset != keep_snapshot else None
            if snapshot is not None:
                paths.append(snapshot)
            for path in paths:
                try:
                    files.rename(path, path + DELETED)
                except FileNotFoundError:
                    continue  # indexes and snapshots need not exist
                renamed.append(path + DELETED)
        return renamed

    def __len__(self) -> int:
        return len(self._waiting)

    def begin_removal(self, now_ms: int) -> Removal | None:
        """The next files whose time has come.

        Run it, then call `end_removal`, and go on while there are some."""
        if not self._waiting or self._waiting[0][0] > now_ms:
            return None
        return Removal(self._folder.files, self._waiting[0][1][:_FILES_A_PART])

    def end_removal(self, removal: Removal) -> None:
        """It has run. Raises `OSError`."""
        if removal.error is not None:
            raise removal.error
        if self._waiting:
            paths = self._waiting[0][1]
            # Otherwise the folder was renamed meanwhile.
            if paths[: len(removal.paths)] == removal.paths:
                del paths[: len(removal.paths)]
            if not paths:
                del self._waiting[0]

    def moved(self, old_directory: str) -> None:
        """The folder was renamed."""
        self._waiting = [
            (due_ms, [self._folder.directory + path.removeprefix(old_directory) for path in paths])
            for due_ms, paths in self._waiting
        ]


def remove_files(files: Files, paths: Iterable[str]) -> None:
    """Remove files; those that are gone are fine. Raises `OSError`."""
    for path in paths:
        try:
            files.remove(path)
        except FileNotFoundError:
            continue
