"""Replicas on their way between log dirs (KIP-113): future logs, from their making to
the moment they take over.

Kafka: LogManager.maybeUpdatePreferredLogDir, replaceCurrentWithFutureLog.

A crash at any point leaves the old log or the new one, whole: the old folder is renamed, and synced
so, before the new one is. Where a start finds a copy without an original, but an original that
waits for its removal, it completes the move.
"""

import contextlib
import logging
from collections.abc import Set as AbstractSet

from barnabas.base.ids import TopicPartition
from barnabas.base.randomness import Random
from barnabas.log.checkpoints import LOG_START_OFFSETS, RECOVERY_POINTS
from barnabas.log.dirs.deleted_folders import DeletedFolders
from barnabas.log.dirs.dir_set import DirSet, start_inside_segment
from barnabas.log.dirs.log_factory import LogFactory
from barnabas.log.holes import write_accepted
from barnabas.log.names import future_folder
from barnabas.log.partition_log import PartitionLog
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = ["Moves"]

logger = logging.getLogger(__name__)
_MAX_PREFERRED = 100_000


class Moves:
    """Moves between the dirs of one broker."""

    __slots__ = ("_deleted_folders", "_dirs", "_factory", "_preferred", "_rng")

    def __init__(self, dirs: DirSet, factory: LogFactory, deleted_folders: DeletedFolders, rng: Random) -> None:
        self._dirs = dirs
        self._factory = factory
        self._deleted_folders = deleted_folders
        self._rng = rng
        self._preferred: dict[TopicPartition, str] = {}

    # ---- preferred dirs

    def prefer(self, topic_partition: TopicPartition, path: str) -> None:
        """Make the log of a partition, which has none here yet, in this dir.

        The last 100,000 wishes are kept."""
        self._preferred.pop(topic_partition, None)
        self._preferred[topic_partition] = path
        if len(self._preferred) > _MAX_PREFERRED:
            del self._preferred[next(iter(self._preferred))]

    def preferred(self, topic_partition: TopicPartition) -> str | None:
        """The dir in which a partition's log shall be made; None for any."""
        return self._preferred.get(topic_partition)

    def forget_preferred(self, topic_partition: TopicPartition) -> None:
        """The log is made, or is not needed any more."""
        self._preferred.pop(topic_partition, None)

    # ---- future logs

    def future(self, topic_partition: TopicPartition) -> PartitionLog | None:
        """The future log of a partition; None when it does not move."""
        return self._dirs.futures.get(topic_partition)

    def create(self, topic_partition: TopicPartition, path: str, now_ms: int) -> PartitionLog:
        """An empty log in another dir, for a copy of a partition's log.

        Raises `KafkaError`: INVALID_TOPIC_EXCEPTION when the name is too long, KAFKA_STORAGE_ERROR,
        also while any dir is offline: a copy from before may lie there.
        """
        folder = future_folder(topic_partition, self._rng.randbytes(16))
        if folder is None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic name is too long.")
        self._dirs.check_all_online(topic_partition)
        log, log_dir = self._dirs.logs[topic_partition], self._dirs[path]
        directory = log_dir.file_path(folder)
        try:
            future = self._factory.create_future(directory, topic_partition, log.topic_id, log.config, now_ms)
            future.holes.adopt(log.holes)
            if log.log_start_offset:
                future.truncate_fully_and_start_at(log.log_start_offset)
        except OSError as error:
            self._dirs.disk_failed(log_dir, error, f"creating {directory}")
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        except KafkaError as error:
            self._dirs.fail(log_dir, f"Error while creating {directory}: {error}")
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        self._dirs.add_future(future)
        # A recovery point that was left there by a log of before must not vouch for this one.
        self._dirs.write_checkpoint(log_dir, RECOVERY_POINTS, lambda log: log.durability.recovery_point)
        return future

    def cancel(self, topic_partition: TopicPartition, now_ms: int) -> None:
        """Give a move up.

        No thread may be writing to the future log. Raises `KafkaError` KAFKA_STORAGE_ERROR."""
        future = self._dirs.take_future(topic_partition)
        if future is not None:
            self._deleted_folders.throw_away(future, now_ms, f"the move of {topic_partition} is cancelled")

    def promote(self, topic_partition: TopicPartition, now_ms: int) -> PartitionLog:
        """Let the future log, which has all that the current one has, take its place.

        The current one is deleted. The old folder is renamed first, and for good before the new one
        is: whenever a crash comes, one of the two is found and is whole. Raises `KafkaError`
        KAFKA_STORAGE_ERROR; the current log is the old one then, if its dir works.
        """
        log, future = self._dirs.logs[topic_partition], self._dirs.futures[topic_partition]
        old_dir, directory = self._dirs.dir_of(log), log.directory
        future.update_high_watermark(log.high_watermark)
        future.raise_start(log.log_start_offset)
        future.configure(log.config)
        future.bounds.set_cleaned(log.bounds.cleaned_offset)
        future.holes.adopt(log.holes)
        # What the copy itself lost on its way was copied again since: it has lost what the
        # current log has, no more.
        if log.lost_data is not None:
            future.note_lost_data(log.lost_data)
        else:
            future.forget_lost_data()
        self._deleted_folders.throw_away(log, now_ms, f"{topic_partition} has moved", sync=True)
        try:
            if log.holes.accepted:
                write_accepted(self._dirs.files, future.directory, log.holes.accepted)
            # A leader that did not know its own epoch would refuse followers of the one before.
            future.leader_epochs.adopt(log.leader_epochs)
            self._take_place(future)
        except OSError as error:
            self._dirs.disk_failed(self._dirs.dir_of(future), error, f"renaming {future.directory}")
            self._deleted_folders.take_back(log, directory)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        for log_dir in (old_dir, self._dirs.dir_of(future)):
            # Not synced: a start without them takes longer, or checks what was deleted once more.
            self._dirs.write_checkpoint(log_dir, RECOVERY_POINTS, lambda log: log.durability.recovery_point, sync=False)
            self._dirs.write_checkpoint(log_dir, LOG_START_OFFSETS, start_inside_segment, sync=False)
            if future.bounds.cleaned_offset is not None:
                self._dirs.write_cleaner_offsets(log_dir)
        return future

    def _take_place(self, future: PartitionLog) -> None:
        """Raises `OSError`."""
        log_dir = self._dirs.dir_of(future)
        directory = log_dir.file_path(str(future.topic_partition))
        future.leader_epochs.complete()
        self._dirs.files.rename(future.directory, directory)
        try:
            self._dirs.files.sync_dir(log_dir.path)
        except OSError:
            with contextlib.suppress(OSError):
                # The current log may be needed again.
                self._dirs.files.rename(directory, future.directory)
            raise
        future.move_to(directory)
        self._factory.adopt(future)
        self._dirs.promote(future)

    def finish(self, deleted: AbstractSet[TopicPartition], now_ms: int) -> None:
        """Complete what a crash interrupted in `promote`, and drop copies that have no use.

        There the old folder is renamed before the new one: where all dirs can be read, a copy
        without an original, but with one among the ``deleted``, is the replica.
        """
        for topic_partition, future in list(self._dirs.futures.items()):
            log = self._dirs.logs.get(topic_partition)
            if log is None and topic_partition in deleted and not self._dirs.offline:
                logger.info("%s takes the place of the replica that it was copied from", future.directory)
                try:
                    self._take_place(future)
                except OSError as error:
                    self._dirs.disk_failed(self._dirs.dir_of(future), error, f"renaming {future.directory}")
            elif log is not None and self._dirs.dir_of(log) is self._dirs.dir_of(future):
                self.cancel(topic_partition, now_ms)
