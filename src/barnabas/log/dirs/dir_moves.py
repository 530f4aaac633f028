"""Replicas on their way between log dirs (KIP-113): future logs, from their making to the moment they take over.

A crash at any point leaves the old log or the new one, whole: the old folder is renamed, and synced so, before the new
one is. Where a start finds a copy without an original, but an original that waits for its removal, it completes the move.
"""

import logging

from barnabas.base.ids import TopicPartition
from barnabas.log.checkpoints import LOG_START_OFFSETS, RECOVERY_POINTS
from barnabas.log.dirs.dir_state import DirState, start_inside_segment
from barnabas.log.names import future_folder
from barnabas.log.partition_log import PartitionLog
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = ["DirMoves"]

logger = logging.getLogger(__name__)
_MAX_PREFERRED = 100_000


class DirMoves(DirState):
    """Moves between the dirs. See `barnabas.log.dirs.log_dirs.LogDirs`."""

    def prefer(self, partition: TopicPartition, path: str) -> None:
        """Have the log of a partition that has none here yet made in this dir (of the last 100,000 so named)."""
        self._preferred.pop(partition, None)
        self._preferred[partition] = path
        if len(self._preferred) > _MAX_PREFERRED:
            del self._preferred[next(iter(self._preferred))]

    def create_future(self, partition: TopicPartition, path: str, now_ms: int) -> PartitionLog:
        """An empty log in another dir, for a copy of a partition's log.

        Raises `KafkaError`: INVALID_TOPIC_EXCEPTION when the name is too long, KAFKA_STORAGE_ERROR, also while any dir is
        offline: a copy from before may lie there.
        """
        folder = future_folder(partition, self._rng.randbytes(16))
        if folder is None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, "The topic name is too long.")
        if self.offline:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"Can not create log for {partition} because log directories {','.join(self.offline)} are offline",
            )
        log, log_dir = self._logs[partition], self._dirs[path]
        try:
            future = self._create(
                log_dir, self._own_handles(), f"{path}/{folder}", partition, log.topic_id, log.config, now_ms
            )
            if log.log_start_offset:
                future.truncate_fully_and_start_at(log.log_start_offset)
        except (OSError, KafkaError) as error:
            self._fail_dir(log_dir, f"Error while creating {path}/{folder}: {error}")
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        self._futures[partition] = future
        # A recovery point that was left there by a log of before must not vouch for this one.
        self._write_checkpoint(log_dir, RECOVERY_POINTS, lambda log: log.recovery_point)
        return future

    def delete_future(self, partition: TopicPartition, now_ms: int) -> None:
        """Give a move up. Nobody may be writing to the future log. Raises `KafkaError` KAFKA_STORAGE_ERROR."""
        future = self._futures.pop(partition, None)
        if future is not None:
            self._throw_away(future, now_ms, f"the move of {partition} is cancelled")

    def promote(self, partition: TopicPartition, now_ms: int) -> PartitionLog:
        """Let the future log, which has all that the current one has, take its place; the current one is deleted.

        The old folder is renamed first, and for good before the new one is: whenever a crash comes, one of the two is
        found and is whole. Raises `KafkaError` KAFKA_STORAGE_ERROR; the current log is the old one then, if its dir works.
        """
        log, future = self._logs[partition], self._futures[partition]
        old_dir, directory = self._dir_of(log), log.directory
        future.update_high_watermark(log.high_watermark)
        future.raise_start(log.log_start_offset)
        future.configure(log.config)
        future.note_cleaned(log.cleaned_to)
        if log.lost_data is not None:
            future.note_lost_data(log.lost_data)
        self._throw_away(log, now_ms, f"{partition} has moved", sync=True)
        try:
            self._rename_future(partition, future)
        except OSError as error:
            self.fail(self._dir_of(future).path, f"Error while renaming {future.directory}: {error}")
            self._take_back(log, directory)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        for log_dir in (old_dir, self._dir_of(future)):
            # Not synced: a start without them takes longer, or checks what was deleted once more.
            self._write_checkpoint(log_dir, RECOVERY_POINTS, lambda log: log.recovery_point, sync=False)
            self._write_checkpoint(log_dir, LOG_START_OFFSETS, start_inside_segment, sync=False)
            if future.cleaned_to is not None:
                self._write_cleaner_offsets(log_dir)
        return future

    def _rename_future(self, partition: TopicPartition, future: PartitionLog) -> None:
        """Raises `OSError`."""
        log_dir = self._dir_of(future)
        directory = f"{log_dir.path}/{partition}"
        self.files.rename(future.directory, directory)
        self.files.sync_dir(log_dir.path)
        future.move_to(directory)
        future.use_open_files(self.handles)
        future.hear_failures(lambda reason: self._fail_dir(log_dir, reason))
        del self._futures[partition]
        self._logs[partition] = future

    def _take_back(self, log: PartitionLog, directory: str) -> None:
        """A log that was thrown away is needed again."""
        log_dir = self._dir_of(log)
        self._purges = [(when, path) for when, path in self._purges if path != log.directory]
        try:
            self.files.rename(log.directory, directory)
        except OSError as error:
            self._fail_dir(log_dir, f"Error while renaming {log.directory}: {error}")
            return
        log.move_to(directory)
        log.bring_back()
        self._counts[log_dir.path] += 1

    def _finish_moves(self, going: set[TopicPartition], now_ms: int) -> None:
        """Complete what a crash interrupted in `promote`, and drop copies that have no use.

        There the old folder is renamed before the new one: where all dirs can be read, a copy without an original, but
        with one that waits for its removal, is the replica.
        """
        for partition, future in list(self._futures.items()):
            log = self._logs.get(partition)
            if log is None and partition in going and not self.offline:
                logger.info("%s takes the place of the replica that it was copied from", future.directory)
                try:
                    self._rename_future(partition, future)
                except OSError as error:
                    self.fail(self._dir_of(future).path, f"Error while renaming {future.directory}: {error}")
            elif log is not None and self._dir_of(log) is self._dir_of(future):
                self.delete_future(partition, now_ms)
