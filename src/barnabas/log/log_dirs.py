"""All log dirs of a broker: their locks, checkpoints and partitions.

A log dir holds ``meta.properties`` (whose it is), three checkpoints by partition, a marker of the last clean stop, and a
folder for each partition. A dir whose disk fails goes offline alone: its partitions answer KAFKA_STORAGE_ERROR, the
others serve on; the owner hears of it through ``on_offline`` and must stop when none is left.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import NamedTuple

from barnabas.base.errors import BarnabasError, CorruptDataError
from barnabas.base.files import Files, make_dirs_durably
from barnabas.base.ids import ZERO_UUID, TopicPartition, Uuid
from barnabas.base.randomness import Random, new_random
from barnabas.log.checkpoints import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    META_PROPERTIES,
    RECOVERY_POINTS,
    CleanShutdown,
    MetaProperties,
    read_offsets,
    write_offsets,
)
from barnabas.log.flushing import FlushTask
from barnabas.log.handles import OpenFiles
from barnabas.log.names import delete_folder, partition_of_folder
from barnabas.log.partition_log import PartitionLog
from barnabas.log.recovery import load_log
from barnabas.log.settings import LogConfig
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = ["DirDescription", "LogDirs", "PartitionSize"]

logger = logging.getLogger(__name__)
_DAY_MS = 86_400_000

ConfigSource = Callable[[str], LogConfig] | Mapping[str, LogConfig]
"""A topic's configuration by its name; topics that a mapping does not hold have the defaults."""


def _run_in_turn(works: Sequence[Callable[[], None]]) -> list[BaseException | None]:
    """Run all; what each raised, or None."""
    errors: list[BaseException | None] = []
    for work in works:
        try:
            work()
        except OSError as error:
            errors.append(error)
        else:
            errors.append(None)
    return errors


class PartitionSize(NamedTuple):
    """A partition in a log dir (DescribeLogDirs)."""

    topic_partition: TopicPartition
    size_bytes: int


class DirDescription(NamedTuple):
    """A log dir with its partitions; ``error`` is None while it is online."""

    path: str
    error: str | None
    partitions: list[PartitionSize]


class _Dir:
    """One log dir."""

    __slots__ = ("error", "high_watermarks", "lock", "path", "was_clean")

    def __init__(self, path: str) -> None:
        self.path = path
        self.lock = ExitStack()
        self.error: str | None = None
        self.was_clean = False
        self.high_watermarks: dict[TopicPartition, int] = {}


class LogDirs:
    """See the module. ``directories`` are absolute paths; ``load`` must be called once before anything else.

    ``on_offline(directory, reason)`` is called once for each dir that fails. ``rng`` names folders that wait for their
    removal and spreads segment rolls (segment.jitter.ms).
    """

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
        self._dirs = {path.rstrip("/") or "/": _Dir(path.rstrip("/") or "/") for path in directories}
        self._logs: dict[TopicPartition, PartitionLog] = {}
        self._counts: dict[str, int] = dict.fromkeys(self._dirs, 0)
        self._purges: list[tuple[int, str]] = []
        self._closing: list[tuple[PartitionLog, FlushTask]] = []
        self.previous_broker_epoch = -1
        """The broker epoch of the last clean stop, -1 when it was not clean."""

    # ---- starting

    def load(self, now_ms: int, configs: ConfigSource) -> None:
        """Lock the dirs, take up or write their meta.properties, and load every partition.

        A dir whose disk fails is offline afterwards. Raises `BarnabasError` when a dir is used by another process or
        belongs to another broker or cluster, when a partition is in two dirs, and when no dir is usable.
        """
        config_of = configs if callable(configs) else lambda topic: configs.get(topic, self.defaults)
        for log_dir in self._dirs.values():
            try:
                self._open_dir(log_dir)
                self._load_dir(log_dir, now_ms, config_of)
            except BlockingIOError as error:
                raise BarnabasError(
                    f"Failed to acquire lock on file .lock in {log_dir.path}. "
                    f"A broker in another process is using this directory."
                ) from error
            except OSError as error:
                self._fail_dir(log_dir, f"Error while loading log dir {log_dir.path}: {error}")
        self._check_any_online()

    def _open_dir(self, log_dir: _Dir) -> None:
        make_dirs_durably(self.files, log_dir.path)
        log_dir.lock.enter_context(self.files.lock(f"{log_dir.path}/.lock"))
        path = f"{log_dir.path}/{META_PROPERTIES}"
        found = MetaProperties.read(self.files, path)
        if found is None:
            MetaProperties(self.broker_id, self.cluster_id).write(self.files, path)
            return
        if found.broker_id not in (-1, self.broker_id):
            raise BarnabasError(
                f"{path} belongs to broker.id {found.broker_id}, this broker has {self.broker_id}. "
                f"Set broker.id={found.broker_id}, or move the log dir away if its data is not needed."
            )
        if found.cluster_id not in ("", self.cluster_id):
            raise BarnabasError(
                f"{path} belongs to cluster {found.cluster_id}, this broker has joined {self.cluster_id}. "
                f"Check zookeeper.connect, or move the log dir away if its data is not needed."
            )

    def _load_dir(self, log_dir: _Dir, now_ms: int, config_of: Callable[[str], LogConfig]) -> None:
        epoch = CleanShutdown.take(self.files, f"{log_dir.path}/{CLEAN_SHUTDOWN}")
        log_dir.was_clean = epoch is not None
        if epoch is not None:
            self.previous_broker_epoch = max(self.previous_broker_epoch, epoch)
        recovery_points = self._read_checkpoint(log_dir, RECOVERY_POINTS)
        start_offsets = self._read_checkpoint(log_dir, LOG_START_OFFSETS)
        log_dir.high_watermarks = self._read_checkpoint(log_dir, HIGH_WATERMARKS)
        cleaner_offsets = self._read_checkpoint(log_dir, CLEANER_OFFSETS)
        for name in self.files.list(log_dir.path):
            directory = f"{log_dir.path}/{name}"
            if name.endswith("-delete") and self.files.is_dir(directory):
                self._purges.append((now_ms, directory))
                continue
            partition = partition_of_folder(name)
            if partition is None or not self.files.is_dir(directory):
                if self.files.is_dir(directory) and name != "remote-log-index-cache":
                    logger.warning("%s is left alone: its name is no partition's", directory)
                continue
            if partition in self._logs:
                raise BarnabasError(
                    f"Duplicate log directories for {partition} are found in both {directory} and "
                    f"{self._logs[partition].directory}. Remove the one in the log dir that failed most recently."
                )
            self._load_partition(
                log_dir, directory, partition, config_of(partition.topic), recovery_points, start_offsets, now_ms
            )
            self._logs[partition].cleaned_to = cleaner_offsets.get(partition)

    def _load_partition(
        self,
        log_dir: _Dir,
        directory: str,
        partition: TopicPartition,
        config: LogConfig,
        recovery_points: dict[TopicPartition, int],
        start_offsets: dict[TopicPartition, int],
        now_ms: int,
    ) -> None:
        try:
            self._logs[partition] = load_log(
                self.files,
                self.handles,
                directory,
                partition,
                config,
                was_clean=log_dir.was_clean,
                recovery_point=recovery_points.get(partition, 0),
                log_start_offset=start_offsets.get(partition, 0),
                high_watermark=log_dir.high_watermarks.get(partition, 0),
                now_ms=now_ms,
                producer_expiration_ms=self.producer_expiration_ms,
                rng=self._rng,
                on_failure=lambda reason: self._fail_dir(log_dir, reason),
            )
        except CorruptDataError as error:
            raise CorruptDataError(f"{directory} cannot be loaded: {error}") from error
        self._counts[log_dir.path] += 1

    def _read_checkpoint(self, log_dir: _Dir, name: str) -> dict[TopicPartition, int]:
        try:
            return read_offsets(self.files, f"{log_dir.path}/{name}")
        except CorruptDataError as error:
            logger.warning("%s; its offsets are taken as 0", error)
            return {}

    # ---- failing

    def _fail_dir(self, log_dir: _Dir, reason: str) -> None:
        if log_dir.error is not None:
            return
        log_dir.error = reason
        logger.error("Log dir %s goes offline: %s", log_dir.path, reason)
        for partition, log in list(self._logs.items()):
            if self._dir_of(log) is log_dir:
                log.offline = log.offline or reason
                del self._logs[partition]
        log_dir.lock.close()
        if self._on_offline:
            self._on_offline(log_dir.path, reason)

    def _dir_of(self, log: PartitionLog) -> _Dir:
        return self._dirs[log.directory.rpartition("/")[0] or "/"]

    def _check_any_online(self) -> None:
        if not any(log_dir.error is None for log_dir in self._dirs.values()):
            reasons = "; ".join(f"{log_dir.path}: {log_dir.error}" for log_dir in self._dirs.values())
            raise BarnabasError(f"No log dir can be used. {reasons}")

    @property
    def offline(self) -> dict[str, str]:
        """The dirs that failed, with the reason."""
        return {log_dir.path: log_dir.error for log_dir in self._dirs.values() if log_dir.error is not None}

    @property
    def online(self) -> list[str]:
        """The dirs that work."""
        return [log_dir.path for log_dir in self._dirs.values() if log_dir.error is None]

    # ---- partitions

    def get(self, partition: TopicPartition) -> PartitionLog | None:
        """The log of a partition, None when there is none (or its dir is offline)."""
        return self._logs.get(partition)

    def logs(self) -> dict[TopicPartition, PartitionLog]:
        """All logs by partition. Not the caller's to change."""
        return self._logs

    def get_or_create(self, partition: TopicPartition, topic_id: Uuid, config: LogConfig, now_ms: int) -> PartitionLog:
        """The log of a partition; a new one goes to the online dir with the fewest.

        Raises `KafkaError`: INCONSISTENT_TOPIC_ID when the folder is another topic's of that name,
        KAFKA_STORAGE_ERROR.
        """
        log = self._logs.get(partition)
        if log is not None:
            if topic_id != ZERO_UUID and log.topic_id != topic_id:
                if log.topic_id != ZERO_UUID:
                    raise KafkaError(
                        ErrorCode.INCONSISTENT_TOPIC_ID, f"{log.directory} belongs to another topic of this name"
                    )
                log.assign_topic_id(topic_id)
            return log
        candidates = [log_dir for log_dir in self._dirs.values() if log_dir.error is None]
        if not candidates:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "No log dir is online")
        log_dir = min(candidates, key=lambda candidate: self._counts[candidate.path])
        directory = f"{log_dir.path}/{partition}"
        try:
            log = PartitionLog.create(
                self.files,
                self.handles,
                directory,
                partition,
                topic_id,
                config,
                now_ms=now_ms,
                rng=self._rng,
                on_failure=lambda reason: self._fail_dir(log_dir, reason),
            )
        except OSError as error:
            reason = f"Error while creating {directory}: {error}"
            self._fail_dir(log_dir, reason)
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, reason) from error
        self._logs[partition] = log
        self._counts[log_dir.path] += 1
        return log

    def delete(self, partition: TopicPartition, now_ms: int) -> None:
        """Forget a partition: its folder is renamed now and removed by `purge_deleted` after file.delete.delay.ms."""
        log = self._logs.pop(partition, None)
        if log is None:
            return
        log_dir = self._dir_of(log)
        self._counts[log_dir.path] -= 1
        directory = f"{log_dir.path}/{delete_folder(partition, self._rng.randbytes(16))}"
        try:
            self.files.rename(log.directory, directory)
        except OSError as error:
            raise log.fail(error, "deleting") from error
        log.move_to(directory)
        log.offline = f"{partition} is deleted"
        log_dir.high_watermarks.pop(partition, None)
        self._purges.append((now_ms + log.config.file_delete_delay_ms, directory))
        if log.cleaned_to is not None:
            self._write_cleaner_offsets(log_dir)

    def purge_deleted(self, now_ms: int) -> None:
        """Remove the folders and segment files whose time has come."""
        for log in list(self._logs.values()):
            try:
                log.purge_deleted(now_ms)
            except KafkaError:
                continue  # its dir went offline, which the owner has heard
        due = [directory for when, directory in self._purges if when <= now_ms]
        self._purges = [(when, directory) for when, directory in self._purges if when > now_ms]
        for directory in due:
            log_dir = self._dirs[directory.rpartition("/")[0] or "/"]
            if log_dir.error is not None:
                continue
            try:
                self.files.remove_tree(directory)
            except OSError as error:
                self._fail_dir(log_dir, f"Error while removing {directory}: {error}")

    def truncate(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Drop records from an offset on, of several partitions, and checkpoint their recovery points.

        Failures leave their mark in the log (`PartitionLog.offline`).
        """
        touched = set()
        for partition, offset in offsets.items():
            log = self._logs.get(partition)
            if log is None:
                continue
            recovery_point, cleaned_to = log.recovery_point, log.cleaned_to
            try:
                log.truncate_to(offset)
            except KafkaError:
                continue  # offline now, and its leader will find it out of sync
            if log.recovery_point < recovery_point:
                touched.add(self._dir_of(log).path)
            if log.cleaned_to != cleaned_to:
                self._write_cleaner_offsets(self._dir_of(log))
        for path in touched:
            self._write_checkpoint(self._dirs[path], RECOVERY_POINTS, lambda log: log.recovery_point)

    def apply_retention(self, now_ms: int) -> int:
        """Let retention delete segments of all logs; returns how many."""
        count = 0
        for log in list(self._logs.values()):
            try:
                count += log.apply_retention(now_ms)
            except KafkaError:
                continue  # its dir went offline, which the owner has heard
        return count

    def flush_due(self, now_ms: int) -> list[PartitionLog]:
        """The logs that have something to sync: rolled segments, or more than flush.messages and flush.ms allow."""
        return [
            log for log in self._logs.values() if log.recovery_point < log.active.base_offset or log.flush_due(now_ms)
        ]

    def describe(self) -> list[DirDescription]:
        """Every dir with the sizes of its partitions (DescribeLogDirs)."""
        by_dir: dict[str, list[PartitionSize]] = defaultdict(list)
        for partition, log in self._logs.items():
            by_dir[self._dir_of(log).path].append(PartitionSize(partition, log.size_bytes))
        return [
            DirDescription(log_dir.path, log_dir.error, sorted(by_dir[log_dir.path])) for log_dir in self._dirs.values()
        ]

    # ---- checkpoints

    def _write_checkpoint(
        self, log_dir: _Dir, name: str, value: Callable[[PartitionLog], int | None], *, sync: bool = True
    ) -> None:
        if log_dir.error is not None:
            return
        offsets = {}
        for partition, log in self._logs.items():
            if self._dir_of(log) is log_dir and (offset := value(log)) is not None:
                offsets[partition] = offset
        try:
            write_offsets(self.files, f"{log_dir.path}/{name}", offsets, sync=sync)
        except OSError as error:
            self._fail_dir(log_dir, f"Error while writing {name} in {log_dir.path}: {error}")

    def checkpoint_recovery_points(self) -> None:
        """Write down what is on stable storage; a start after a crash begins to check there."""
        for log_dir in self._dirs.values():
            self._write_checkpoint(log_dir, RECOVERY_POINTS, lambda log: log.recovery_point)

    def checkpoint_high_watermarks(self, high_watermarks: Mapping[TopicPartition, int] | None = None) -> None:
        """Write down the high watermarks, those given or the logs' own."""
        for log_dir in self._dirs.values():
            self._write_checkpoint(
                log_dir,
                HIGH_WATERMARKS,
                lambda log: (high_watermarks or {}).get(log.topic_partition, log.high_watermark),
            )

    def checkpoint_log_start_offsets(self) -> None:
        """Write down the log start offsets that lie inside a segment."""
        for log_dir in self._dirs.values():
            self._write_checkpoint(
                log_dir,
                LOG_START_OFFSETS,
                lambda log: log.log_start_offset if log.log_start_offset > log.segments[0].base_offset else None,
            )

    def compacted(self, log: PartitionLog, end_offset: int) -> None:
        """A log was compacted up to an offset: the next compaction begins there."""
        log.cleaned_to = end_offset
        self._write_cleaner_offsets(self._dir_of(log))

    def _write_cleaner_offsets(self, log_dir: _Dir) -> None:
        # Not synced: what a crash takes of it is compacted once more.
        self._write_checkpoint(log_dir, CLEANER_OFFSETS, lambda log: log.cleaned_to, sync=False)

    def checkpointed_high_watermark(self, partition: TopicPartition) -> int:
        """The high watermark that was read at the start, 0 when there is none."""
        for log_dir in self._dirs.values():
            if partition in log_dir.high_watermarks:
                return log_dir.high_watermarks[partition]
        return 0

    # ---- stopping

    def prepare_close(self) -> list[Callable[[], None]]:
        """Complete the files of every log for a clean stop; what is left is to run what is returned, then `close`.

        The pieces share nothing: run in several threads, a disk syncs many small files in the time of one.
        """
        self._closing = []
        for log in list(self._logs.values()):
            try:
                task = log.prepare_close()
            except KafkaError:
                continue  # its dir went offline and gets no marker
            if task is not None:
                self._closing.append((log, task))
        return [task.run for _, task in self._closing]

    def close(
        self, clean: bool, broker_epoch: int = -1, *, errors: Sequence[BaseException | None] | None = None
    ) -> None:
        """Stop. A clean stop completes and syncs all files and leaves the marker; any other only lets go of them.

        ``errors`` are what the pieces of `prepare_close` raised, or None; unless given, they run here in turn.
        """
        if clean:
            self._take_outcomes(_run_in_turn(self.prepare_close()) if errors is None else errors)
            self.checkpoint_recovery_points()
            self.checkpoint_high_watermarks()
            self.checkpoint_log_start_offsets()
        for log_dir in self._dirs.values():
            if log_dir.error is None and clean:
                try:
                    CleanShutdown.write(self.files, f"{log_dir.path}/{CLEAN_SHUTDOWN}", broker_epoch)
                except OSError as error:
                    self._fail_dir(log_dir, f"Error while writing the clean shutdown marker: {error}")
            log_dir.lock.close()
        self._logs.clear()

    def _take_outcomes(self, errors: Sequence[BaseException | None]) -> None:
        for (log, task), error in zip(self._closing, errors, strict=True):
            if error is None:
                log.flush_done(task, 0)
            elif isinstance(error, OSError):
                log.fail(error, "flushing")
            else:
                raise error
