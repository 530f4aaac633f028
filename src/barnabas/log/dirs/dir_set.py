"""The log dirs of a broker and the logs in them.

What is common to loading, moving, deleting and checkpointing. Kafka: part of LogManager.
Invariants: a log that is found here lies in a dir that is online. A dir whose disk fails goes
offline alone, with all of its logs, and its owner is notified once.
"""

import logging
from collections.abc import Callable, Iterator, Mapping

from barnabas.base.files import Files, is_descriptor_shortage
from barnabas.base.ids import TopicPartition
from barnabas.base.tasks import one_by_one
from barnabas.base.threads import Claim
from barnabas.log.checkpoints import CLEANER_OFFSETS
from barnabas.log.dirs.log_dir import LogDir
from barnabas.log.partition_log import PartitionLog
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = ["CheckpointWrite", "DirSet", "start_inside_segment"]

logger = logging.getLogger(__name__)


class CheckpointWrite:
    """A checkpoint that is written beside the event loop, unless the event loop
    writes a newer one before."""

    __slots__ = ("_claim", "_written", "is_done", "log_dir", "name", "offsets")

    def __init__(self, log_dir: LogDir, name: str, written: dict[TopicPartition, int] | None) -> None:
        self.log_dir = log_dir
        self.name = name
        self.offsets: dict[TopicPartition, int] = {}
        """The contents to write; filled before `run`."""
        self.is_done = False
        """Whether the file has these offsets."""
        self._written = written
        self._claim = Claim()

    def run(self) -> None:
        """Write, in any thread. Raises `OSError`."""
        if self.offsets != self._written:
            self._claim.run(self._write)

    def _write(self) -> None:
        self.log_dir.write_checkpoint(self.name, self.offsets, sync=True)
        self.is_done = True

    def cancel(self) -> None:
        """Nothing is written from now on."""
        self._claim.take()


class DirSet:
    """The log dirs of one broker, and where each log is."""

    __slots__ = ("_checkpoints", "_counts", "_dirs", "_on_offline", "_written", "files", "futures", "logs")

    def __init__(self, files: Files, paths: list[str]) -> None:
        self.files = files
        self._dirs = {path.rstrip("/") or "/": LogDir(files, path.rstrip("/") or "/") for path in paths}
        self._on_offline: Callable[[str, str], None] | None = None
        self._counts = dict.fromkeys(self._dirs, 0)
        self._checkpoints: dict[tuple[str, str], CheckpointWrite] = {}
        """Writes beside the event loop, by dir and name."""
        self._written: dict[tuple[str, str], dict[TopicPartition, int]] = {}
        """What the last of them wrote, while the file is that."""
        self.logs: dict[TopicPartition, PartitionLog] = {}
        """The logs by partition. For reading."""
        self.futures: dict[TopicPartition, PartitionLog] = {}
        """The future logs, which will replace others. For reading."""

    # ---- dirs

    def __iter__(self) -> Iterator[LogDir]:
        return iter(self._dirs.values())

    def __getitem__(self, path: str) -> LogDir:
        return self._dirs[path]

    def parent_of(self, directory: str) -> LogDir:
        """The log dir that a partition's folder is in."""
        return self._dirs[directory.rpartition("/")[0] or "/"]

    def dir_of(self, log: PartitionLog) -> LogDir:
        """The log dir that holds a log."""
        return self.parent_of(log.directory)

    def on_offline(self, callback: Callable[[str, str], None]) -> None:
        """Call ``callback(path, reason)`` once for each dir that fails."""
        self._on_offline = callback

    @property
    def offline(self) -> dict[str, str]:
        """The dirs that failed, with the reason."""
        return {log_dir.path: log_dir.error for log_dir in self if log_dir.error is not None}

    def check(self, path: str) -> None:
        """Raises `KafkaError`: LOG_DIR_NOT_FOUND for a path that is no log dir,
        KAFKA_STORAGE_ERROR for an offline one."""
        log_dir = self._dirs.get(path)
        if log_dir is None:
            raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"The log dir {path} is not found in the config.")
        if log_dir.error is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"Log directory {path} is offline")

    def check_all_online(self, topic_partition: TopicPartition) -> None:
        """Raises `KafkaError` KAFKA_STORAGE_ERROR while a dir is offline: the log of a
        partition may lie there."""
        if self.offline:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"Can not create log for {topic_partition} because log directories {','.join(self.offline)} are offline",
            )

    def fail(self, log_dir: LogDir, reason: str) -> None:
        """The disk of a log dir failed: take the dir offline."""
        if log_dir.error is not None:
            return
        logger.error("Log dir %s goes offline: %s", log_dir.path, reason)
        for logs in (self.logs, self.futures):
            for topic_partition, log in list(logs.items()):
                if self.dir_of(log) is log_dir:
                    log.availability.take_offline(reason)
                    del logs[topic_partition]
                    log.segments.forget()
        log_dir.fail(reason)
        if self._on_offline:
            self._on_offline(log_dir.path, reason)

    def disk_failed(self, log_dir: LogDir, error: OSError, doing: str) -> str:
        """A call of the file system failed: the dir goes offline. Returns what to answer.

        A shortage of file descriptors is no failure of the disk: it is logged, and
        the dir stays online.
        """
        reason = f"Error while {doing}: {error}"
        if is_descriptor_shortage(error):
            logger.warning("%s", reason)
        else:
            self.fail(log_dir, reason)
        return reason

    # ---- logs

    def add(self, log: PartitionLog) -> None:
        """A log is in its place."""
        self.logs[log.topic_partition] = log

    def add_future(self, log: PartitionLog) -> None:
        """Add a future log, which will replace another."""
        self.futures[log.topic_partition] = log

    def take(self, topic_partition: TopicPartition) -> PartitionLog | None:
        """Take out a partition's log; None when there is none."""
        return self.logs.pop(topic_partition, None)

    def take_future(self, topic_partition: TopicPartition) -> PartitionLog | None:
        """Take out the log that was to take a partition's place; None when there is none."""
        return self.futures.pop(topic_partition, None)

    def promote(self, log: PartitionLog) -> None:
        """A future log takes its place."""
        del self.futures[log.topic_partition]
        self.logs[log.topic_partition] = log

    def stored(self) -> Iterator[tuple[str, TopicPartition, PartitionLog]]:
        """All logs that there are now, future ones included, with the dirs that they are in.

        May be read in slices."""
        for topic_partition, log in one_by_one((*self.logs.items(), *self.futures.items())):
            yield self.dir_of(log).path, topic_partition, log

    def clear(self) -> None:
        """Forget all logs."""
        self.logs.clear()
        self.futures.clear()

    def emptiest(self, paths: list[str] | None = None) -> list[LogDir]:
        """The online dirs (of some paths), those with the fewest logs first."""
        dirs = self._dirs.values() if paths is None else [self._dirs[path] for path in paths]
        return sorted((log_dir for log_dir in dirs if log_dir.error is None), key=lambda each: self._counts[each.path])

    def count(self, log_dir: LogDir, change: int) -> None:
        """A dir holds more or fewer folders of partitions."""
        self._counts[log_dir.path] += change

    # ---- checkpoints

    def offsets_of(self, log_dir: LogDir, value: Callable[[PartitionLog], int | None]) -> dict[TopicPartition, int]:
        """An offset of each of the dir's logs, but for those without one."""
        return {
            topic_partition: offset
            for path, topic_partition, log in self.stored()
            if path == log_dir.path and (offset := value(log)) is not None
        }

    def write_checkpoint(
        self, log_dir: LogDir, name: str, value: Callable[[PartitionLog], int | None], *, sync: bool = True
    ) -> None:
        """Replace a checkpoint with the values of the dir's logs.

        A failure takes the dir offline."""
        self.replace_checkpoint(log_dir, name, self.offsets_of(log_dir, value), sync=sync)

    def replace_checkpoint(
        self, log_dir: LogDir, name: str, offsets: Mapping[TopicPartition, int], *, sync: bool = True
    ) -> bool:
        """Replace a checkpoint; a failure takes the dir offline.

        Returns whether it was replaced."""
        self._forget_checkpoint(log_dir.path, name)
        if log_dir.error is not None:
            return False
        try:
            log_dir.write_checkpoint(name, offsets, sync=sync)
        except OSError as error:
            self.disk_failed(log_dir, error, f"writing {name} in {log_dir.path}")
            return False
        return True

    def begin_checkpoint(self, path: str, name: str) -> CheckpointWrite:
        """A write of a checkpoint beside the event loop.

        What `write_checkpoint` writes from now on comes after it."""
        self._checkpoints[path, name] = write = CheckpointWrite(self[path], name, self._written.get((path, name)))
        return write

    def checkpoint_written(self, write: CheckpointWrite) -> None:
        """The write has ended."""
        key = (write.log_dir.path, write.name)
        if self._checkpoints.get(key) is write:
            del self._checkpoints[key]
            if write.is_done:
                self._written[key] = write.offsets

    def _forget_checkpoint(self, path: str, name: str) -> None:
        write = self._checkpoints.pop((path, name), None)
        if write is not None:
            write.cancel()
        self._written.pop((path, name), None)

    def write_cleaner_offsets(self, log_dir: LogDir) -> None:
        """Write down how far the dir's logs are compacted."""
        # Not synced: what a crash takes of it is compacted once more.
        self.write_checkpoint(log_dir, CLEANER_OFFSETS, lambda log: log.bounds.cleaned_offset, sync=False)


def start_inside_segment(log: PartitionLog) -> int | None:
    """The log start offset, where the segments do not show it."""
    return log.log_start_offset if log.log_start_offset > log.segments.start_offset else None
