"""Loading the partitions of one log dir. Kafka: LogManager.loadLogs.

A folder ``topic-N`` is a partition, ``topic-N.UNIQUE-future`` a replica on its way here from another dir,
``topic-N.UNIQUE-delete`` one that waits for its removal. Other folders are left alone.
"""

import logging
from collections.abc import Callable
from typing import NamedTuple

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import TopicPartition
from barnabas.base.slices import Sliced
from barnabas.log.checkpoints import CLEANER_OFFSETS, HIGH_WATERMARKS, LOG_START_OFFSETS, RECOVERY_POINTS
from barnabas.log.dirs.deleted_folders import DeletedFolders
from barnabas.log.dirs.dir_set import DirSet
from barnabas.log.dirs.high_watermark_checkpoint import HighWatermarkCheckpoint
from barnabas.log.dirs.log_dir import LogDir
from barnabas.log.dirs.log_factory import LogFactory
from barnabas.log.dirs.missing_logs import MissingLogs
from barnabas.log.names import partition_of_folder, partition_of_special_folder
from barnabas.log.recovery import Checkpointed
from barnabas.log.settings import LogConfig

__all__ = ["DirLoader"]

logger = logging.getLogger(__name__)
_REMOTE_INDEXES = "remote-log-index-cache"


class _Checkpoints(NamedTuple):
    """The checkpoints of the logs in one dir, by partition."""

    recovery_points: dict[TopicPartition, int]
    start_offsets: dict[TopicPartition, int]
    high_watermarks: dict[TopicPartition, int]
    cleaner_offsets: dict[TopicPartition, int]


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

    def load(self, log_dir: LogDir, now_ms: int) -> Sliced[None]:
        """Load all that is in a dir, one log after the other. Raises `OSError`, `BarnabasError`."""
        checkpoints = _Checkpoints(
            *map(log_dir.read_checkpoint, (RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS, CLEANER_OFFSETS))
        )
        for name, directory in log_dir.folders():
            special = partition_of_special_folder(name)
            if name.endswith("-delete"):
                self._deleted_folders.add(directory, now_ms)
                if special is not None:
                    self.deleted.add(special[0])
            elif special is not None and special[1] == "future":
                self._load_future(log_dir, directory, special[0], checkpoints, now_ms)
            else:
                topic_partition = partition_of_folder(name)
                if topic_partition is not None:
                    self._load_log(log_dir, directory, topic_partition, checkpoints, now_ms)
                elif name != _REMOTE_INDEXES:
                    logger.warning("%s is left alone: its name is not that of a partition", directory)
            yield None
        self._high_watermarks.loaded(log_dir, checkpoints.high_watermarks)
        for offsets in (checkpoints.recovery_points, checkpoints.high_watermarks):
            self._missing.note_checkpointed(log_dir, offsets, self.deleted)

    def _load_log(
        self,
        log_dir: LogDir,
        directory: str,
        topic_partition: TopicPartition,
        checkpoints: _Checkpoints,
        now_ms: int,
    ) -> None:
        other = self._dirs.logs.get(topic_partition)
        if other is not None:
            raise BarnabasError(
                f"Duplicate log directories for {topic_partition} are found in both {directory} and "
                f"{other.directory}. Remove the one in the log dir that failed most recently."
            )
        config = self._config_of(topic_partition.topic)
        checkpointed = self._checkpointed(log_dir, topic_partition, checkpoints)
        log = self._factory.load(directory, topic_partition, config, checkpointed, now_ms, is_future=False)
        log.bounds.set_cleaned(checkpoints.cleaner_offsets.get(topic_partition))
        self._dirs.add(log)

    def _load_future(
        self,
        log_dir: LogDir,
        directory: str,
        topic_partition: TopicPartition,
        checkpoints: _Checkpoints,
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

    def _checkpointed(
        self, log_dir: LogDir, topic_partition: TopicPartition, checkpoints: _Checkpoints
    ) -> Checkpointed:
        return Checkpointed(
            log_dir.was_clean,
            checkpoints.recovery_points.get(topic_partition, 0),
            checkpoints.start_offsets.get(topic_partition, 0),
            checkpoints.high_watermarks.get(topic_partition, 0),
            self._producer_expiration_ms,
        )
