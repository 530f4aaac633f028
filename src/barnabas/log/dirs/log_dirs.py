"""All log dirs of a broker: their locks, checkpoints and partitions.

A log dir holds ``meta.properties`` (whose it is), three checkpoints by partition, a marker of the last clean stop, and a
folder for each partition. A dir whose disk fails goes offline alone: its partitions answer KAFKA_STORAGE_ERROR, the
others serve on; the owner hears of it through ``on_offline`` and must stop when none is left. It comes back with the
next start only, and until then no log is made anew in another dir that may lie in the lost one.

A replica moves between dirs as a future log (KIP-113): a second log in a folder ``topic-N.UNIQUE-future`` of the target
dir, which the owner fills from the current one and then lets take its place (`LogDirs.promote`). Future logs survive a
restart. They belong to whoever fills them, in a thread perhaps: here they are only loaded, counted, checkpointed and
closed.
"""

import contextlib
import logging
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import NamedTuple

from barnabas.base.errors import BarnabasError, CorruptDataError
from barnabas.base.files import make_dirs_durably
from barnabas.base.ids import ZERO_UUID, TopicPartition, Uuid
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
)
from barnabas.log.dirs.dir_moves import DirMoves
from barnabas.log.dirs.dir_state import LogDir, nobody, start_inside_segment
from barnabas.log.lost_data import LostData
from barnabas.log.names import partition_folder, partition_of_folder, partition_of_special_folder
from barnabas.log.partition_log import PartitionLog
from barnabas.log.recovery import Checkpointed, LogOptions
from barnabas.log.segment.open_files import OpenFiles
from barnabas.log.settings import LogConfig
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = ["DirDescription", "LogDirs", "PartitionSize"]

logger = logging.getLogger(__name__)

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
    is_future: bool = False
    """Whether it is on its way here from another dir."""


class DirDescription(NamedTuple):
    """A log dir with its partitions; ``error`` is None while it is online."""

    path: str
    error: str | None
    partitions: list[PartitionSize]


class _Checkpoints(NamedTuple):
    """What was written down about the logs of one dir, by partition."""

    recovery_points: dict[TopicPartition, int]
    start_offsets: dict[TopicPartition, int]
    high_watermarks: dict[TopicPartition, int]


class LogDirs(DirMoves):
    """See the module. ``directories`` are absolute paths; ``load`` must be called once before anything else.

    ``on_offline(directory, reason)`` is called once for each dir that fails. ``rng`` names folders that wait for their
    removal and spreads segment rolls (segment.jitter.ms).
    """

    # ---- starting

    def load(self, now_ms: int, configs: ConfigSource) -> None:
        """Lock the dirs, take up or write their meta.properties, and load every partition.

        A dir whose disk fails is offline afterwards. Raises `BarnabasError` when a dir is used by another process or
        belongs to another broker or cluster, when a partition is in two dirs, and when no dir is usable.
        """
        config_of = configs if callable(configs) else lambda topic: configs.get(topic, self.defaults)
        going: set[TopicPartition] = set()
        for log_dir in self._dirs.values():
            try:
                self._open_dir(log_dir)
                going |= self._load_dir(log_dir, now_ms, config_of)
            except BlockingIOError as error:
                raise BarnabasError(
                    f"Failed to acquire lock on file .lock in {log_dir.path}. "
                    f"A broker in another process is using this directory."
                ) from error
            except OSError as error:
                self._fail_dir(log_dir, f"Error while loading log dir {log_dir.path}: {error}")
        self._check_any_online()
        self._finish_moves(going, now_ms)

    def _open_dir(self, log_dir: LogDir) -> None:
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

    def _load_dir(self, log_dir: LogDir, now_ms: int, config_of: Callable[[str], LogConfig]) -> set[TopicPartition]:
        """Load all that is in a dir; the partitions whose folders wait there for their removal."""
        going = set()
        epoch = CleanShutdown.take(self.files, f"{log_dir.path}/{CLEAN_SHUTDOWN}")
        log_dir.was_clean = epoch is not None
        if epoch is not None:
            self.previous_broker_epoch = max(self.previous_broker_epoch, epoch)
        checkpoints = _Checkpoints(
            *(self._read_checkpoint(log_dir, name) for name in (RECOVERY_POINTS, LOG_START_OFFSETS, HIGH_WATERMARKS))
        )
        cleaner_offsets = self._read_checkpoint(log_dir, CLEANER_OFFSETS)
        for name in self.files.list(log_dir.path):
            directory = f"{log_dir.path}/{name}"
            special = partition_of_special_folder(name)
            if name.endswith("-delete") and self.files.is_dir(directory):
                self._purges.append((now_ms, directory))
                if special is not None:
                    going.add(special[0])
                continue
            is_future = special is not None and special[1] == "future"
            partition = special[0] if special is not None and is_future else partition_of_folder(name)
            if partition is None or not self.files.is_dir(directory):
                if self.files.is_dir(directory) and name != "remote-log-index-cache":
                    logger.warning("%s is left alone: its name is no partition's", directory)
                continue
            if is_future and partition in self._futures:
                logger.warning("%s is removed: %s is a copy, too", directory, self._futures[partition].directory)
                self._purges.append((now_ms, directory))
                continue
            if partition in self._logs and not is_future:
                raise BarnabasError(
                    f"Duplicate log directories for {partition} are found in both {directory} and "
                    f"{self._logs[partition].directory}. Remove the one in the log dir that failed most recently."
                )
            log = self._load_partition(
                log_dir,
                self._own_handles() if is_future else self.handles,
                directory,
                partition,
                config_of(partition.topic),
                checkpoints,
                now_ms,
            )
            if is_future:
                log.hear_failures(nobody)
                self._futures[partition] = log
            else:
                self._logs[partition] = log
                log.note_cleaned(cleaner_offsets.get(partition))
            self._counts[log_dir.path] += 1
        self._note_missing(log_dir, checkpoints, going)
        return going

    def _note_missing(self, log_dir: LogDir, checkpoints: _Checkpoints, going: set[TopicPartition]) -> None:
        """Keep what the checkpoints say of logs that are not in the dir."""
        for offsets in (checkpoints.recovery_points, checkpoints.high_watermarks):
            for partition, offset in offsets.items():
                if partition not in self._logs and partition not in self._futures:
                    self._stale[log_dir.path].add(partition)
                    if partition not in going and offset > 0:
                        self._missing[partition] = max(offset, self._missing.get(partition, 0))

    def _load_partition(
        self,
        log_dir: LogDir,
        handles: OpenFiles,
        directory: str,
        partition: TopicPartition,
        config: LogConfig,
        checkpoints: _Checkpoints,
        now_ms: int,
    ) -> PartitionLog:
        try:
            return PartitionLog.load(
                LogOptions(handles, directory, partition, config, now_ms, self._rng, partial(self._fail_dir, log_dir)),
                Checkpointed(
                    log_dir.was_clean,
                    checkpoints.recovery_points.get(partition, 0),
                    checkpoints.start_offsets.get(partition, 0),
                    checkpoints.high_watermarks.get(partition, 0),
                    self.producer_expiration_ms,
                ),
            )
        except CorruptDataError as error:
            raise CorruptDataError(f"{directory} cannot be loaded: {error}") from error

    def _read_checkpoint(self, log_dir: LogDir, name: str) -> dict[TopicPartition, int]:
        try:
            return read_offsets(self.files, f"{log_dir.path}/{name}")
        except CorruptDataError as error:
            logger.warning("%s; its offsets are taken as 0", error)
            return {}

    def _check_any_online(self) -> None:
        if not any(log_dir.error is None for log_dir in self._dirs.values()):
            reasons = "; ".join(f"{log_dir.path}: {log_dir.error}" for log_dir in self._dirs.values())
            raise BarnabasError(f"No log dir can be used. {reasons}")

    # ---- partitions

    def get_or_create(
        self, partition: TopicPartition, topic_id: Uuid, config: LogConfig, now_ms: int, *, is_new: bool = True
    ) -> PartitionLog:
        """The log of a partition; a new one goes to the dir chosen with `prefer`, else to that with the fewest.

        A replica that is not ``is_new`` may lie in a dir that is offline: no other is made in its place then. Raises
        `KafkaError`: INCONSISTENT_TOPIC_ID when the folder is another topic's of that name, INVALID_TOPIC_EXCEPTION when
        no folder can have the name, KAFKA_STORAGE_ERROR.
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
        if not is_new and self.offline:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"Can not create log for {partition} because log directories {','.join(self.offline)} are offline",
            )
        folder = partition_folder(partition)
        if folder is None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{str(partition)!r} cannot be the name of a folder")
        reason = "No log dir is online"
        for log_dir in self._candidates(partition):
            directory = f"{log_dir.path}/{folder}"
            try:
                log = self._create(log_dir, self.handles, directory, partition, topic_id, config, now_ms)
            except OSError as error:
                reason = f"Error while creating {directory}: {error}"
                self._fail_dir(log_dir, reason)
                continue
            log.hear_failures(partial(self._fail_dir, log_dir))
            self._replace_stale(log, is_new=is_new)
            self._logs[partition] = log
            self._preferred.pop(partition, None)
            return log
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, reason)

    def _replace_stale(self, log: PartitionLog, *, is_new: bool) -> None:
        """The checkpoints may speak of a log of this name that is gone: a start must not hold the new one to that.

        Where nobody deleted it, the replica has lost its records. Raises `KafkaError` KAFKA_STORAGE_ERROR.
        """
        expected_offset = self._missing.pop(log.topic_partition, None)
        if expected_offset is not None and not is_new:
            reason = f"its folder is gone, which had all records below offset {expected_offset}"
            logger.error("%s has lost records: %s", log.directory, reason)
            log.note_lost_data(LostData(reason, 0, expected_offset))
        for path, stale in self._stale.items():
            if log.topic_partition in stale:
                stale.clear()
                self._write_checkpoint(self._dirs[path], RECOVERY_POINTS, lambda log: log.recovery_point)
                self._write_checkpoint(self._dirs[path], HIGH_WATERMARKS, lambda log: log.high_watermark)

    def _candidates(self, partition: TopicPartition) -> list[LogDir]:
        """The dirs to try for a new log, in order."""
        preferred = self._preferred.get(partition)
        dirs = self._dirs.values() if preferred is None else (self._dirs[preferred],)
        return sorted(
            (log_dir for log_dir in dirs if log_dir.error is None), key=lambda candidate: self._counts[candidate.path]
        )

    def delete(self, partition: TopicPartition, now_ms: int) -> None:
        """Forget a partition: its folder is renamed now and removed by `purge_deleted` after file.delete.delay.ms.

        Raises `KafkaError` KAFKA_STORAGE_ERROR.
        """
        self._preferred.pop(partition, None)
        with contextlib.suppress(KafkaError):  # its dir is offline then
            self.delete_future(partition, now_ms)  # first: left behind alone, it would pass for the replica
        log = self._logs.pop(partition, None)
        if log is None:
            return
        log_dir = self._dir_of(log)
        self._stale[log_dir.path].add(partition)
        self._throw_away(log, now_ms, f"{partition} is deleted")
        if log.cleaned_to is not None:
            self._write_cleaner_offsets(log_dir)

    # ---- work on all logs

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

        The checkpoint is lowered first: a log that ends below it would pass for one that has lost records.
        Failures leave their mark in the log (`PartitionLog.offline`).
        """
        logs = {partition: self._logs[partition] for partition in offsets if partition in self._logs}
        lowered = {self._dir_of(log).path for name, log in logs.items() if offsets[name] < log.recovery_point}
        for path in lowered:
            self._write_checkpoint(
                self._dirs[path],
                RECOVERY_POINTS,
                lambda log: min(log.recovery_point, offsets.get(log.topic_partition, log.recovery_point)),
            )
        touched = set()
        for partition, log in logs.items():
            offset = offsets[partition]
            recovery_point, cleaned_to = min(log.recovery_point, offset), log.cleaned_to
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
        for path, partition, log in self.stored():
            by_dir[path].append(PartitionSize(partition, log.size_bytes, self._logs.get(partition) is not log))
        return [
            DirDescription(log_dir.path, log_dir.error, sorted(by_dir[log_dir.path])) for log_dir in self._dirs.values()
        ]

    # ---- checkpoints

    def checkpoint_recovery_points(self) -> None:
        """Write down what is on stable storage; a start after a crash begins to check there."""
        for log_dir in self._dirs.values():
            self._write_checkpoint(log_dir, RECOVERY_POINTS, lambda log: log.recovery_point)

    def checkpoint_high_watermarks(self) -> None:
        """Write down the high watermarks; `load` takes them up."""
        for log_dir in self._dirs.values():
            self._write_checkpoint(log_dir, HIGH_WATERMARKS, lambda log: log.high_watermark)

    def checkpoint_log_start_offsets(self) -> None:
        """Write down the log start offsets that lie inside a segment."""
        for log_dir in self._dirs.values():
            self._write_checkpoint(log_dir, LOG_START_OFFSETS, start_inside_segment)

    def compacted(self, log: PartitionLog, end_offset: int) -> None:
        """A log was compacted up to an offset: the next compaction begins there."""
        log.note_cleaned(end_offset)
        self._write_cleaner_offsets(self._dir_of(log))

    # ---- stopping

    def prepare_close(self) -> list[Callable[[], None]]:
        """Complete the files of every log for a clean stop; what is left is to run what is returned, then `close`.

        The pieces share nothing: run in several threads, a disk syncs many small files in the time of one.
        """
        self._closing = []
        for _, _, log in list(self.stored()):
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
        self._futures.clear()

    def _take_outcomes(self, errors: Sequence[BaseException | None]) -> None:
        for (log, task), error in zip(self._closing, errors, strict=True):
            if error is None:
                log.flush_done(task, 0)
            elif isinstance(error, OSError):
                log.fail(error, "flushing")
                self._fail_dir(self._dir_of(log), f"Error while flushing {log.directory}: {error}")
            else:
                raise error
