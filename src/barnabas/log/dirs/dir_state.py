"""What is known of a broker's log dirs, and the steps that starting, moving and stopping share.

`DirState` holds the dirs and the logs in them; `barnabas.log.dir_moves` adds moves between dirs,
`barnabas.log.dirs.log_dirs` all else.
"""

import contextlib
import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack

from barnabas.base.files import Files
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.base.randomness import Random, new_random
from barnabas.log.checkpoints import CLEANER_OFFSETS, write_offsets
from barnabas.log.flushing import FlushTask
from barnabas.log.names import delete_folder
from barnabas.log.partition_log import PartitionLog
from barnabas.log.recovery import LogOptions
from barnabas.log.segment.open_files import OpenFiles
from barnabas.log.settings import LogConfig
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = ["DirState", "LogDir", "nobody", "start_inside_segment"]

logger = logging.getLogger(__name__)
_DAY_MS = 86_400_000
_FUTURE_OPEN_FILES = 4


class LogDir:
    """One log dir."""

    __slots__ = ("error", "lock", "path", "was_clean")

    def __init__(self, path: str) -> None:
        self.path = path
        self.lock = ExitStack()
        self.error: str | None = None
        self.was_clean = False


class DirState:
    """The dirs of a broker and their logs. See `barnabas.log.dirs.log_dirs.LogDirs`."""

    def __init__(
        self,
        files: Files,
        directories: list[str],
        defaults: LogConfig,
        *,
        broker_id: int,
        cluster_id: str,
        rng: Random | None = None,
        on_offline: Callable[[str, str], None] | None = None,
        producer_expiration_ms: int = _DAY_MS,
        max_open_files: int = 512,
    ) -> None:
        self.files = files
        self.defaults = defaults
        self.broker_id = broker_id
        self.cluster_id = cluster_id
        self.producer_expiration_ms = producer_expiration_ms
        self.handles = OpenFiles(files, max_files=max_open_files)
        self._rng = rng or new_random()
        self._on_offline = on_offline
        self._dirs = {path.rstrip("/") or "/": LogDir(path.rstrip("/") or "/") for path in directories}
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._futures: dict[TopicPartition, PartitionLog] = {}
        self._preferred: dict[TopicPartition, str] = {}
        self._counts: dict[str, int] = dict.fromkeys(self._dirs, 0)
        self._stale: dict[str, set[TopicPartition]] = {path: set() for path in self._dirs}
        """By dir: partitions that its checkpoints may name although their logs are gone."""
        self._missing: dict[TopicPartition, int] = {}
        """Partitions whose folders are gone though nobody deleted them: all below this offset had been there."""
        self._purges: list[tuple[int, str]] = []
        self._closing: list[tuple[PartitionLog, FlushTask]] = []
        self.previous_broker_epoch = -1
        """The broker epoch of the last clean stop, -1 when it was not clean."""

    # ---- failing

    def fail(self, path: str, reason: str) -> None:
        """The disk of a log dir failed: take the dir offline."""
        self._fail_dir(self._dirs[path], reason)

    def _fail_dir(self, log_dir: LogDir, reason: str) -> None:
        if log_dir.error is not None:
            return
        log_dir.error = reason
        logger.error("Log dir %s goes offline: %s", log_dir.path, reason)
        for logs in (self._logs, self._futures):
            for partition, log in list(logs.items()):
                if self._dir_of(log) is log_dir:
                    log.take_offline(reason)
                    del logs[partition]
                    log.forget_files()
        with contextlib.suppress(OSError):
            log_dir.lock.close()
        if self._on_offline:
            self._on_offline(log_dir.path, reason)

    def check_dir(self, path: str) -> None:
        """Raises `KafkaError`: LOG_DIR_NOT_FOUND for a path that is no log dir, KAFKA_STORAGE_ERROR for an offline one."""
        log_dir = self._dirs.get(path)
        if log_dir is None:
            raise KafkaError(ErrorCode.LOG_DIR_NOT_FOUND, f"The log dir {path} is not found in the config.")
        if log_dir.error is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"Log directory {path} is offline")

    @property
    def offline(self) -> dict[str, str]:
        """The dirs that failed, with the reason."""
        return {log_dir.path: log_dir.error for log_dir in self._dirs.values() if log_dir.error is not None}

    @property
    def online(self) -> list[str]:
        """The dirs that work."""
        return [log_dir.path for log_dir in self._dirs.values() if log_dir.error is None]

    # ---- logs

    def get(self, partition: TopicPartition) -> PartitionLog | None:
        """The log of a partition, None when there is none (or its dir is offline)."""
        return self._logs.get(partition)

    def logs(self) -> dict[TopicPartition, PartitionLog]:
        """All logs by partition. Not the caller's to change."""
        return self._logs

    def future(self, partition: TopicPartition) -> PartitionLog | None:
        """The log that is to take the place of a partition's; None when it is not on the move."""
        return self._futures.get(partition)

    def stored(self) -> Iterator[tuple[str, TopicPartition, PartitionLog]]:
        """All logs, those on their way included, with the dirs that they are in."""
        for logs in (self._logs, self._futures):
            for partition, log in logs.items():
                yield self._dir_of(log).path, partition, log

    def dir_of(self, log: PartitionLog) -> str:
        """The log dir that holds a log."""
        return self._dir_of(log).path

    def _dir_of(self, log: PartitionLog) -> LogDir:
        return self._dirs[log.directory.rpartition("/")[0] or "/"]

    def _create(
        self,
        log_dir: LogDir,
        handles: OpenFiles,
        directory: str,
        partition: TopicPartition,
        topic_id: Uuid,
        config: LogConfig,
        now_ms: int,
    ) -> PartitionLog:
        options = LogOptions(handles, directory, partition, config, now_ms, self._rng, nobody)
        log = PartitionLog.create(options, topic_id)
        self._counts[log_dir.path] += 1
        return log

    def _own_handles(self) -> OpenFiles:
        """Open files for a future log alone, for another thread may write to it."""
        return OpenFiles(self.files, max_files=_FUTURE_OPEN_FILES, max_indexes=1)

    def _throw_away(self, log: PartitionLog, now_ms: int, reason: str, *, sync: bool = False) -> None:
        """Rename a log's folder and let nobody use it any more."""
        log_dir = self._dir_of(log)
        self._counts[log_dir.path] -= 1
        directory = f"{log_dir.path}/{delete_folder(log.topic_partition, self._rng.randbytes(16))}"
        try:
            self.files.rename(log.directory, directory)
            if sync:
                self.files.sync_dir(log_dir.path)
        except OSError as error:
            self._fail_dir(log_dir, f"Error while renaming {log.directory}: {error}")
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
        log.move_to(directory)
        log.take_offline(reason)
        self._purges.append((now_ms + log.config.file_delete_delay_ms, directory))

    # ---- checkpoints

    def _write_checkpoint(
        self, log_dir: LogDir, name: str, value: Callable[[PartitionLog], int | None], *, sync: bool = True
    ) -> None:
        if log_dir.error is not None:
            return
        offsets = {
            partition: offset
            for path, partition, log in self.stored()
            if path == log_dir.path and (offset := value(log)) is not None
        }
        try:
            write_offsets(self.files, f"{log_dir.path}/{name}", offsets, sync=sync)
        except OSError as error:
            self._fail_dir(log_dir, f"Error while writing {name} in {log_dir.path}: {error}")

    def _write_cleaner_offsets(self, log_dir: LogDir) -> None:
        # Not synced: what a crash takes of it is compacted once more.
        self._write_checkpoint(log_dir, CLEANER_OFFSETS, lambda log: log.cleaned_to, sync=False)


def nobody(_: str) -> None:
    """Future logs fail in the thread that writes them: whoever runs it takes the news back to the dir's thread."""


def start_inside_segment(log: PartitionLog) -> int | None:
    """The log start offset, where the segments do not tell it."""
    return log.log_start_offset if log.log_start_offset > log.segments[0].base_offset else None
