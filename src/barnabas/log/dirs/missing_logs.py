"""Logs that the checkpoints name and that are not there: deleted ones, and lost ones.

Kafka: no counterpart.

A checkpoint may name a partition for a while after its log was deleted. A new log of that name must
not be held to what the old one had: before it is used, the checkpoints are written again. Where the
log was not deleted, its folder is gone with all records, alone or with the whole log dir: a replica
that takes its place has lost data (see `barnabas.log.lost_data`).
"""

import logging
from collections.abc import Iterable

from barnabas.base.ids import TopicPartition
from barnabas.log.checkpoints import RECOVERY_POINTS
from barnabas.log.dirs.dir_set import DirSet
from barnabas.log.dirs.high_watermark_checkpoint import HighWatermarkCheckpoint
from barnabas.log.dirs.log_dir import LogDir
from barnabas.log.lost_data import LostData
from barnabas.log.partition_log import PartitionLog

__all__ = ["MissingLogs"]

logger = logging.getLogger(__name__)


class MissingLogs:
    """The checkpointed offsets of logs that are not there."""

    __slots__ = ("_dirs", "_high_watermarks", "_lost", "_stale")

    def __init__(self, dirs: DirSet, high_watermarks: HighWatermarkCheckpoint) -> None:
        self._dirs = dirs
        self._high_watermarks = high_watermarks
        self._stale: dict[str, set[TopicPartition]] = {log_dir.path: set() for log_dir in dirs}
        """By dir: partitions that its checkpoints may name although their logs are gone."""
        self._lost: dict[TopicPartition, int] = {}
        """Partitions whose folders are gone though nothing deleted them: all below
        this offset had been there."""

    def note_deleted(self, log_dir: LogDir, topic_partition: TopicPartition) -> None:
        """A log was deleted."""
        self._stale[log_dir.path].add(topic_partition)

    def note_checkpointed(
        self, log_dir: LogDir, offsets: dict[TopicPartition, int], deleted: set[TopicPartition]
    ) -> None:
        """A start found these offsets in a checkpoint, and loaded all logs; of some only the
        deleted folder was there."""
        for topic_partition, offset in offsets.items():
            if topic_partition not in self._dirs.logs and topic_partition not in self._dirs.futures:
                self._stale[log_dir.path].add(topic_partition)
                if topic_partition not in deleted and offset > 0:
                    self._lost[topic_partition] = max(offset, self._lost.get(topic_partition, 0))

    @property
    def has_new_dir(self) -> bool:
        """Whether a dir was empty at the start: the broker is new, or a disk was replaced."""
        return any(log_dir.is_new for log_dir in self._dirs)

    def note_checked(self) -> None:
        """The new dirs are like all others from now on."""
        for log_dir in self._dirs:
            if log_dir.is_new and log_dir.error is None:
                try:
                    log_dir.note_checked()
                except OSError as error:
                    self._dirs.disk_failed(log_dir, error, f"removing a file in {log_dir.path}")

    def note_gone(self, replicas: Iterable[TopicPartition]) -> dict[TopicPartition, LostData]:
        """A dir was empty at the start: which of the broker's replicas have no log.

        How many records they had is unknown."""
        gone = dict.fromkeys(
            each for each in replicas if each not in self._dirs.logs and each not in self._dirs.futures
        )
        for topic_partition in gone:
            self._lost.setdefault(topic_partition, 0)
        return {topic_partition: lost for topic_partition, lost in self.lost_data().items() if topic_partition in gone}

    def lost_data(self) -> dict[TopicPartition, LostData]:
        """The partitions whose folders are gone though nothing deleted them."""
        lost = self._lost.items()
        return {missing: _folder_is_gone(offset) for missing, offset in lost if missing not in self._dirs.logs}

    def replace(self, log: PartitionLog, *, is_new: bool) -> None:
        """A new log was made, of a replica that ``is_new`` or had records.

        Raises `KafkaError` KAFKA_STORAGE_ERROR."""
        expected_offset = self._lost.pop(log.topic_partition, None)
        if expected_offset is not None and not is_new:
            lost = _folder_is_gone(expected_offset)
            logger.error("%s has lost records: %s", log.directory, lost.reason)
            log.note_lost_data(lost)
        for path, stale in self._stale.items():
            if log.topic_partition in stale:
                self.forget(self._dirs[path])

    def forget(self, log_dir: LogDir) -> None:
        """Write the checkpoints of a dir again, if they may name logs that are gone.

        Comes before the folders of deleted logs are removed: a start that finds neither
        takes the log for a lost one.
        """
        stale = self._stale[log_dir.path]
        if stale:
            stale.clear()
            self._dirs.write_checkpoint(log_dir, RECOVERY_POINTS, lambda log: log.durability.recovery_point)
            self._high_watermarks.write(log_dir)


def _folder_is_gone(expected_offset: int) -> LostData:
    if not expected_offset:
        return LostData("its folder is gone: a log dir was empty at the start", 0, 0)
    return LostData(f"its folder is gone, which had all records below offset {expected_offset}", 0, expected_offset)
