"""Folders of new partitions, many at a time and beside the event loop.

Kafka: LogManager.getOrCreateLog makes one.

`NewFolders.prepare` chooses dirs, `FolderTask.run` makes the folders in any thread,
`NewFolders.take` has what came of it, and `LogDirs.get_or_create` makes logs in the folders that
are there. Folders that no log takes are found empty at the next start, as after a crash between the
making of a folder and its first record.
"""

from collections.abc import Iterable, Iterator

from barnabas.base.files import Files
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.log.dirs.dir_set import DirSet
from barnabas.log.dirs.moves import Moves
from barnabas.log.names import partition_folder
from barnabas.log.recovery import make_log_files

__all__ = ["FolderTask", "NewFolders"]


class FolderTask:
    """Folders to make, and what came of each."""

    __slots__ = ("_errors", "_files", "_wanted")

    def __init__(self, files: Files, wanted: list[tuple[TopicPartition, Uuid, str]]) -> None:
        self._files = files
        self._wanted = wanted
        self._errors: dict[TopicPartition, OSError] = {}

    def run(self) -> None:
        """Make the folders and their files."""
        for topic_partition, topic_id, directory in self._wanted:
            try:
                make_log_files(self._files, directory, topic_id)
            except OSError as error:
                self._errors[topic_partition] = error

    def outcomes(self) -> Iterator[tuple[TopicPartition, Uuid, str, OSError | None]]:
        """Each partition with its folder, and what failed or None."""
        for topic_partition, topic_id, directory in self._wanted:
            yield topic_partition, topic_id, directory, self._errors.get(topic_partition)


class NewFolders:
    """Folders that are made, and have no log yet."""

    __slots__ = ("_dirs", "_made", "_moves")

    def __init__(self, dirs: DirSet, moves: Moves) -> None:
        self._dirs = dirs
        self._moves = moves
        self._made: dict[TopicPartition, tuple[Uuid, str]] = {}

    def prepare(self, wanted: Iterable[tuple[TopicPartition, Uuid]], *, is_new: bool) -> FolderTask | None:
        """The folders that partitions lack; None where none do.

        While a dir is offline, none are made for replicas that are not ``is_new``: see
        `LogDirs.get_or_create`.
        """
        if not is_new and self._dirs.offline:
            return None
        missing: list[tuple[TopicPartition, Uuid, str]] = []
        for topic_partition, topic_id in wanted:
            folder = partition_folder(topic_partition)
            if folder is None or topic_partition in self._dirs.logs or topic_partition in self._made:
                continue
            preferred = self._moves.preferred(topic_partition)
            for log_dir in self._dirs.emptiest(None if preferred is None else [preferred])[:1]:
                # Counted until the log is made, so that new logs spread over the dirs.
                self._dirs.count(log_dir, 1)
                missing.append((topic_partition, topic_id, log_dir.file_path(folder)))
        return FolderTask(self._dirs.files, missing) if missing else None

    def take(self, task: FolderTask) -> None:
        """A task has run. A dir whose disk failed is offline."""
        for topic_partition, topic_id, directory, error in task.outcomes():
            log_dir = self._dirs.parent_of(directory)
            self._dirs.count(log_dir, -1)
            if error is not None:
                self._dirs.disk_failed(log_dir, error, f"creating {directory}")
            elif log_dir.error is None:
                self._made[topic_partition] = (topic_id, directory)

    def adopt(self, topic_partition: TopicPartition, topic_id: Uuid) -> str | None:
        """The folder that was made for a partition, which is the log's now.

        None where there is none."""
        made = self._made.pop(topic_partition, None)
        if made is None or made[0] != topic_id or self._dirs.parent_of(made[1]).error is not None:
            return None
        return made[1]
