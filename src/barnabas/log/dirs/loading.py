"""Loading the partitions of one log dir. Kafka: LogManager.loadLogs.

A folder ``topic-N`` is a partition, ``topic-N.UNIQUE-future`` a replica on its way here from
another dir, ``topic-N.UNIQUE-delete`` one that waits for its removal. Other folders are left alone.

Logs are loaded beside the event loop, which keeps the session with the coordination service
meanwhile: after a crash a log's whole active segment is read and checked. Nothing else works with
the log dirs at that time.
"""

import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import TopicPartition
from barnabas.base.tasks import Beside, Task
from barnabas.log.checkpoints import Checkpointed
from barnabas.log.dirs.checkpoint_files import Checkpoints
from barnabas.log.dirs.deleted_folders import DeletedFolders
from barnabas.log.dirs.dir_set import DirSet
from barnabas.log.dirs.high_watermark_checkpoint import HighWatermarkCheckpoint
from barnabas.log.dirs.log_dir import LogDir
from barnabas.log.dirs.log_factory import LogFactory
from barnabas.log.dirs.missing_logs import MissingLogs
from barnabas.log.names import partition_of_folder, partition_of_special_folder
from barnabas.log.partition_log import PartitionLog
from barnabas.log.settings import LogConfig

__all__ = ["DirLoader"]

logger = logging.getLogger(__name__)
_REMOTE_INDEXES = "remote-log-index-cache"
_CLEAN_LOGS_AT_A_TIME = 32
"""Some 10 ms of one thread. After a crash each log is loaded alone, because a stop
waits for the thread."""


class _Found(NamedTuple):
    """A partition's folder, and the configuration of its log."""

    directory: str
    topic_partition: TopicPartition
    config: LogConfig


class DirLoader:
    """Loads dirs at a start. ``config_of`` gives a topic's configuration."""

    def __init__(
        self,
        dirs: DirSet,
        factory: LogFactory,
        deleted_folders: DeletedFolders,
        missing: MissingLogs,
        high_watermarks: HighWatermarkCheckpoint,
        config_of: Callable[[str], LogConfig],
        producer_expiration_ms: int,
    ) -> None:
        self._dirs = dirs
        self._factory = factory
        self._deleted_folders = deleted_folders
        self._missing = missing
        self._high_watermarks = high_watermarks
        self._config_of = config_of
        self._producer_expiration_ms = producer_expiration_ms
        self.deleted: set[TopicPartition] = set()
        """Partitions of which a folder waits for its removal."""

    def load(self, log_dir: LogDir, now_ms: int) -> Task[None]:
        """Load all that is in a dir, one log after the other. Raises `OSError`, `BarnabasError`."""
        found: list[tuple[Checkpoints, Sequence[tuple[str, str]]]] = []
        yield Beside(lambda: found.append((Checkpoints(self._dirs.files, log_dir.path), list(log_dir.folders()))))
        ((checkpoints, folders),) = found
        logs: list[_Found] = []
        names: set[TopicPartition] = set()
        for name, directory in folders:
            special = partition_of_special_folder(name)
            if name.endswith("-delete"):
                self._deleted_folders.add(directory, now_ms)
                if special is not None:
                    self.deleted.add(special[0])
            elif special is not None and special[1] == "future":
                yield Beside(partial(self._load_future, log_dir, directory, special[0], checkpoints, now_ms))
            else:
                topic_partition = partition_of_folder(name)
                if topic_partition is not None:
                    if topic_partition in names:
                        # Both folders are found below.
                        yield from self._load_logs(log_dir, logs, checkpoints, now_ms)
                    self._check_alone(directory, topic_partition)
                    names.add(topic_partition)
                    logs.append(_Found(directory, topic_partition, self._config_of(topic_partition.topic)))
                elif name != _REMOTE_INDEXES:
                    logger.warning("%s is left alone: its name is not that of a partition", directory)
            if len(logs) >= (_CLEAN_LOGS_AT_A_TIME if log_dir.was_clean else 1):
                yield from self._load_logs(log_dir, logs, checkpoints, now_ms)
            yield None
        yield from self._load_logs(log_dir, logs, checkpoints, now_ms)
        self._high_watermarks.loaded(log_dir, checkpoints.high_watermarks)
        for offsets in (checkpoints.recovery_points, checkpoints.high_watermarks):
            self._missing.note_checkpointed(log_dir, offsets, self.deleted)

    def _check_alone(self, directory: str, topic_partition: TopicPartition) -> None:
        """Raises `BarnabasError`."""
        other = self._dirs.logs.get(topic_partition)
        if other is not None:
            raise BarnabasError(
                f"Duplicate log directories for {topic_partition} are found in both {directory} and "
                f"{other.directory}. Remove the one in the log dir that failed most recently."
            )

    def _load_logs(self, log_dir: LogDir, found: "list[_Found]", checkpoints: Checkpoints, now_ms: int) -> Task[None]:
        """Load these, and leave none of them in ``found``."""
        if not found:
            return
        logs: list[PartitionLog] = []

        def load() -> None:
            for directory, topic_partition, config in found:
                checkpointed = self._checkpointed(log_dir, topic_partition, checkpoints)
                log = self._factory.load(directory, topic_partition, config, checkpointed, now_ms, is_future=False)
                logs.append(log)

        try:
            yield Beside(load)
        finally:
            for log in logs:
                self._dirs.add(log)
            found.clear()

    def _load_future(
        self,
        log_dir: LogDir,
        directory: str,
        topic_partition: TopicPartition,
        checkpoints: Checkpoints,
        now_ms: int,
    ) -> None:
        other = self._dirs.futures.get(topic_partition)
        if other is not None:
            logger.warning("%s is removed: %s is a copy, too", directory, other.directory)
            self._deleted_folders.add(directory, now_ms)
            return
        config = self._config_of(topic_partition.topic)
        checkpointed = self._checkpointed(log_dir, topic_partition, checkpoints)
        self._dirs.add_future(
            self._factory.load(directory, topic_partition, config, checkpointed, now_ms, is_future=True)
        )

    def _checkpointed(self, log_dir: LogDir, topic_partition: TopicPartition, checkpoints: Checkpoints) -> Checkpointed:
        return Checkpointed(
            log_dir.was_clean,
            checkpoints.recovery_points.get(topic_partition, 0),
            checkpoints.start_offsets.get(topic_partition, 0),
            checkpoints.start_offsets_path,
            checkpoints.high_watermarks.get(topic_partition, 0),
            self._producer_expiration_ms,
            checkpoints.cleaner_offsets.get(topic_partition),
            checkpoints.has_kept_pages,
        )
