"""Files of a log that wait for their removal: renamed to ``.deleted``, removed after file.delete.delay.ms.

Kafka: LocalLog.deleteSegmentFiles. Readers that hold an open file read on until then.
"""

from collections.abc import Iterable

from barnabas.base.files import Files
from barnabas.log.names import DELETED, INDEX, TIME_INDEX
from barnabas.log.producer_snapshots import ProducerSnapshots
from barnabas.log.segment.folder import Folder
from barnabas.log.segment.segment import Segment

__all__ = ["Deletions", "remove_files"]


class Deletions:
    """The renamed files of one log."""

    __slots__ = ("_folder", "_snapshots", "_waiting")

    def __init__(self, folder: Folder, snapshots: ProducerSnapshots) -> None:
        self._folder = folder
        self._snapshots = snapshots
        self._waiting: list[tuple[int, list[str]]] = []
        """(when, paths), in the order in which they came."""

    def rename(self, segments: Iterable[Segment], due_ms: int, *, keep_snapshot: int = -1) -> None:
        """Rename the files of segments that left the log, and their snapshots; `purge` removes them from a time on.

        The snapshot at ``keep_snapshot`` stays. Raises `OSError`.
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

    def purge(self, now_ms: int) -> int | None:
        """Remove the files whose time has come. Returns when the next are due, None when none wait. Raises `OSError`."""
        while self._waiting and self._waiting[0][0] <= now_ms:
            remove_files(self._folder.files, self._waiting[0][1])
            del self._waiting[0]
        return self._waiting[0][0] if self._waiting else None

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
