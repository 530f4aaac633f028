"""All log dirs of a broker and the logs in them. Kafka: LogManager.

A dir whose disk fails goes offline alone: its partitions answer KAFKA_STORAGE_ERROR, the others are
still served. The owner is notified through `LogDirs.on_offline` and must stop when no dir is
online. It comes back with the next start only, and until then no log is made in another dir that
may lie in the lost one.

A replica moves between dirs as a future log (KIP-113): a second log in a folder
``topic-N.UNIQUE-future`` of the target dir, which the owner fills from the current one and then
lets take its place (``moves``). Future logs survive a restart. They belong to the code that fills
them, in a thread perhaps: here they are only loaded, counted, checkpointed and closed.

Components: `dir_set` (the dirs and where each log is), `log_factory`, `loading`, `moves`,
`deleted_folders`, `missing_logs`.
"""

import contextlib
import logging
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from barnabas.base.errors import BarnabasError
from barnabas.base.files import Files, is_descriptor_shortage
from barnabas.base.ids import ZERO_UUID, TopicPartition, Uuid, uuid_text
from barnabas.base.randomness import Random
from barnabas.base.tasks import Beside, Task, done_here, one_by_one
from barnabas.log.checkpoints import LOG_START_OFFSETS, PARTITION_METADATA, RECOVERY_POINTS
from barnabas.log.dirs.deleted_folders import DeletedFolders
from barnabas.log.dirs.dir_set import DirSet, start_inside_segment
from barnabas.log.dirs.high_watermark_checkpoint import HighWatermarkCheckpoint
from barnabas.log.dirs.loading import DirLoader
from barnabas.log.dirs.log_dir import LogDir, Owner
from barnabas.log.dirs.log_factory import LogFactory
from barnabas.log.dirs.missing_logs import MissingLogs
from barnabas.log.dirs.moves import Moves
from barnabas.log.dirs.new_folders import NewFolders
from barnabas.log.flush_task import FlushTask
from barnabas.log.lost_data import LostData
from barnabas.log.names import partition_folder
from barnabas.log.partition_log import PartitionLog
from barnabas.log.segment.open_files import OpenFiles
from barnabas.log.settings import LogConfig
from barnabas.log.truncation import end_after_truncation
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = ["DirDescription", "LogDirs", "PartitionSize"]

logger = logging.getLogger(__name__)

_DAY_MS = 86_400_000
_SEGMENTS_A_STEP = 8
"""To rename their files takes up to 5 ms on a busy machine. A count, because a log deletes them in
one call."""
_CHECKPOINTED: dict[str, Callable[[PartitionLog], int | None]] = {
    RECOVERY_POINTS: lambda log: log.durability.recovery_point,
    LOG_START_OFFSETS: start_inside_segment,
}

_ConfigSource = Callable[[str], LogConfig] | Mapping[str, LogConfig]
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


def _mark_clean(dirs: DirSet, log_dir: LogDir, broker_epoch: int) -> None:
    if log_dir.error is None:
        try:
            log_dir.mark_clean(broker_epoch)
        except OSError as error:
            dirs.disk_failed(log_dir, error, "writing the clean shutdown marker")


@contextlib.contextmanager
def _noting_shortages(log: PartitionLog, shortages: list[KafkaError]) -> Iterator[None]:
    """Keep the error of a log that is still online, for no file descriptor was free.

    Another one needs no answer: the log is offline, and its leader will find it out of sync.
    """
    try:
        yield
    except KafkaError as error:
        if log.offline is None:
            shortages.append(error)


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


class LogDirs:
    """See the module.

    ``directories`` are absolute paths; ``load`` must be called once before anything else. ``rng``
    names folders that wait for their removal and spreads segment rolls (segment.jitter.ms).
    """

    def __init__(
        self,
        files: Files,
        directories: list[str],
        defaults: LogConfig,
        *,
        broker_id: int,
        cluster_id: str,
        rng: Random,
        producer_expiration_ms: int = _DAY_MS,
        max_open_files: int = 512,
    ) -> None:
        self.files = files
        self.defaults = defaults
        self._owner = Owner(broker_id, cluster_id)
        self._producer_expiration_ms = producer_expiration_ms
        self.open_files = OpenFiles(files, max_files=max_open_files)
        self._dirs = DirSet(files, directories)
        self._factory = LogFactory(self._dirs, self.open_files, rng)
        self._deleted_folders = DeletedFolders(self._dirs, rng)
        self.high_watermarks = HighWatermarkCheckpoint(self._dirs)
        """The checkpoints of high watermarks; `checkpoint_high_watermarks` writes them at once."""
        self.missing = MissingLogs(self._dirs, self.high_watermarks)
        """Logs that should be there and are not."""
        self.moves = Moves(self._dirs, self._factory, self._deleted_folders, rng)
        """Replicas on their way between the dirs."""
        self.new_folders = NewFolders(self._dirs, self.moves)
        """Folders that are made beside the event loop, before `get_or_create`."""
        self._uncompacted: set[str] = set()
        """Dirs whose checkpoints of compaction name deleted partitions."""
        self._closing: list[tuple[PartitionLog, FlushTask]] = []
        self._incomplete: set[str] = set()
        """Dirs with a log that could not be completed: they get no marker of a clean stop."""
        self.previous_broker_epoch = -1
        """The broker epoch of the last clean stop, -1 when it was not clean."""

    # ---- starting

    def load(self, now_ms: int, configs: _ConfigSource) -> None:
        """Like `load_in_slices`, in one go."""
        done_here(self.load_in_slices(now_ms, configs))

    def load_in_slices(self, now_ms: int, configs: _ConfigSource) -> Task[None]:
        """Lock the dirs, take up or write their meta.properties, and load every partition.

        A dir whose disk fails is offline afterwards. Raises `BarnabasError` when a dir is used by
        another process or belongs to another broker or cluster, when a partition is in two dirs,
        and when no dir is usable.
        """
        config_of = configs if callable(configs) else lambda topic: configs.get(topic, self.defaults)
        loader = DirLoader(
            self._dirs,
            self._factory,
            self._deleted_folders,
            self.missing,
            self.high_watermarks,
            config_of,
            self._producer_expiration_ms,
        )
        for log_dir in self._dirs:
            try:
                self.previous_broker_epoch = max(self.previous_broker_epoch, log_dir.open(self._owner))
                yield from loader.load(log_dir, now_ms)
            except OSError as error:
                if is_descriptor_shortage(error):
                    raise BarnabasError(
                        f"Log dir {log_dir.path} cannot be loaded: {error}. Raise the limit of open files (ulimit -n)."
                    ) from error
                self._dirs.fail(log_dir, f"Error while loading log dir {log_dir.path}: {error}")
        if not self.online:
            reasons = "; ".join(f"{path}: {reason}" for path, reason in self.offline.items())
            raise BarnabasError(f"No log dir can be used. {reasons}")
        self.moves.finish(loader.deleted, now_ms)

    # ---- dirs

    def on_offline(self, callback: Callable[[str, str], None]) -> None:
        """Call ``callback(directory, reason)`` once for each dir that fails."""
        self._dirs.on_offline(callback)

    def fail(self, path: str, reason: str) -> None:
        """The disk of a log dir failed: take the dir offline."""
        self._dirs.fail(self._dirs[path], reason)

    def disk_failed(self, path: str, error: OSError, doing: str) -> None:
        """A call of the file system failed in a log dir: it goes offline, but for a
        shortage of file descriptors."""
        self._dirs.disk_failed(self._dirs[path], error, doing)

    def check_dir(self, path: str) -> None:
        """Raises `KafkaError`: LOG_DIR_NOT_FOUND for a path that is no log dir,
        KAFKA_STORAGE_ERROR for an offline one."""
        self._dirs.check(path)

    @property
    def offline(self) -> dict[str, str]:
        """The dirs that failed, with the reason."""
        return self._dirs.offline

    @property
    def online(self) -> list[str]:
        """The dirs that work."""
        return [log_dir.path for log_dir in self._dirs if log_dir.error is None]

    # ---- logs

    def get(self, topic_partition: TopicPartition) -> PartitionLog | None:
        """The log of a partition, None when there is none (or its dir is offline)."""
        return self._dirs.logs.get(topic_partition)

    def logs(self) -> dict[TopicPartition, PartitionLog]:
        """All logs by partition. Not the caller's to change."""
        return self._dirs.logs

    def stored(self) -> Iterator[tuple[str, TopicPartition, PartitionLog]]:
        """All logs that there are now, those on their way included, with the dirs that they are in.

        May be read in slices."""
        return self._dirs.stored()

    def dir_of(self, log: PartitionLog) -> str:
        """The log dir that holds a log."""
        return self._dirs.dir_of(log).path

    def get_or_create(
        self, topic_partition: TopicPartition, topic_id: Uuid, config: LogConfig, now_ms: int, *, is_new: bool = True
    ) -> PartitionLog:
        """The log of a partition.

        A new one goes to the dir chosen with `prefer`, else to that with the fewest. A replica that
        is not ``is_new`` may lie in a dir that is offline: no other is made in its place then.
        Raises `KafkaError`: INCONSISTENT_TOPIC_ID when the folder is another topic's of that name,
        INVALID_TOPIC_EXCEPTION when no folder can have the name, KAFKA_STORAGE_ERROR.
        """
        log = self.get(topic_partition)
        if log is not None:
            if topic_id != ZERO_UUID and log.topic_id != topic_id:
                if log.topic_id != ZERO_UUID:
                    raise KafkaError(
                        ErrorCode.INCONSISTENT_TOPIC_ID,
                        f"{log.directory} belongs to another topic of this name: {PARTITION_METADATA} in it holds the id "
                        f"{uuid_text(log.topic_id)}, and the topic has {uuid_text(topic_id)}. If the folder is of a topic that was "
                        f"deleted, move it away; if the file is damaged, remove the file. Then restart the broker",
                    )
                log.assign_topic_id(topic_id)
            log.configure(config)  # which may have changed since the start
            return log
        if not is_new:
            self._dirs.check_all_online(topic_partition)
        folder = partition_folder(topic_partition)
        if folder is None:
            raise KafkaError(
                ErrorCode.INVALID_TOPIC_EXCEPTION, f"{str(topic_partition)!r} cannot be the name of a folder"
            )
        self.checkpoint_deletions()
        directory = self.new_folders.adopt(topic_partition, topic_id)
        if directory is None:
            log = self._create(folder, topic_partition, topic_id, config, now_ms)
        else:
            log = self._factory.create(directory, topic_partition, topic_id, config, now_ms, has_files=True)
        self.missing.replace(log, is_new=is_new)
        self._dirs.add(log)
        self.moves.forget_preferred(topic_partition)
        return log

    def _create(
        self, folder: str, topic_partition: TopicPartition, topic_id: Uuid, config: LogConfig, now_ms: int
    ) -> PartitionLog:
        """A new log in the first dir whose disk works."""
        reason = "No log dir is online"
        preferred = self.moves.preferred(topic_partition)
        for log_dir in self._dirs.emptiest(None if preferred is None else [preferred]):
            directory = log_dir.file_path(folder)
            try:
                return self._factory.create(directory, topic_partition, topic_id, config, now_ms)
            except OSError as error:
                reason = self._dirs.disk_failed(log_dir, error, f"creating {directory}")
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, reason)

    def delete(self, topic_partition: TopicPartition, now_ms: int) -> None:
        """Forget a partition: its folder is renamed now and removed by `purge_deleted`
        after file.delete.delay.ms.

        Raises `KafkaError` KAFKA_STORAGE_ERROR.
        """
        self.moves.forget_preferred(topic_partition)
        with contextlib.suppress(KafkaError):  # its dir is offline then
            # This comes first: the future log would otherwise pass for the replica.
            self.moves.cancel(topic_partition, now_ms)
        log = self._dirs.take(topic_partition)
        if log is None:
            return
        log_dir = self._dirs.dir_of(log)
        self.missing.note_deleted(log_dir, topic_partition)
        if log.bounds.cleaned_offset is not None:
            self._uncompacted.add(log_dir.path)
        self._deleted_folders.throw_away(log, now_ms, f"{topic_partition} is deleted")

    def checkpoint_deletions(self) -> None:
        """After calls of `delete`: the checkpoints of compaction no longer name those partitions.

        Otherwise a restart would take new partitions of these names for compacted ones.
        """
        while self._uncompacted:
            self._dirs.write_cleaner_offsets(self._dirs[self._uncompacted.pop()])

    # ---- work on all logs

    def purge_deleted(self, now_ms: int) -> Task[None]:
        """Remove the folders and segment files whose time has come."""
        for log in one_by_one(self._dirs.logs.values()):
            if len(log.deletions):
                # The owner was notified that its dir went offline.
                with contextlib.suppress(KafkaError):
                    yield from log.purge_deleted(now_ms)
            yield None
        for log_dir in (yield from self._deleted_folders.due(now_ms)):
            self.missing.forget(log_dir)
        yield from self._deleted_folders.purge(now_ms)

    def lost_data(self) -> dict[TopicPartition, LostData]:
        """The partitions that have lost records, those whose folder is gone included."""
        logs = self.logs().items()
        lost = {topic_partition: log.lost_data for topic_partition, log in logs if log.lost_data is not None}
        return self.missing.lost_data() | lost

    def truncate(self, offsets: Mapping[TopicPartition, int]) -> None:
        """Drop records from an offset on, of several partitions.

        Their checkpoints are lowered first: a log that ends below them would pass for one
        that has lost records. Failures leave their mark in the log (`PartitionLog.offline`).
        Raises `KafkaError` KAFKA_STORAGE_ERROR when logs were not truncated because no file
        descriptor was free.
        """
        shortages: list[KafkaError] = []
        logs = [self._dirs.logs[name] for name in offsets if name in self._dirs.logs]
        ends: dict[TopicPartition, int] = {}
        for log in logs:
            name = log.topic_partition
            with _noting_shortages(log, shortages), log.availability.guard("reading from"):
                ends[name] = end_after_truncation(log.segments, log.log_end_offset, offsets[name])
        _lower_checkpoints(self._dirs, self.high_watermarks, ends)
        for log in logs:
            if log.topic_partition not in ends:
                continue
            cleaned_to = log.bounds.cleaned_offset
            with _noting_shortages(log, shortages):
                log.truncate_to(offsets[log.topic_partition])
                if log.bounds.cleaned_offset != cleaned_to:
                    self._dirs.write_cleaner_offsets(self._dirs.dir_of(log))
        if shortages:
            raise shortages[-1]

    def copy_again(self, topic_partition: TopicPartition) -> None:
        """A log that misses records before its end follows a leader: it gives up what
        comes after them, to copy it.

        Its files are set aside. It is known to have lost records until it has copied them. Raises
        `KafkaError` KAFKA_STORAGE_ERROR.
        """
        log = self._dirs.logs.get(topic_partition)
        if log is None or log.lost_data is None or log.lost_data.copy_from is None:
            return
        lost, copy_from, end_offset = log.lost_data, log.lost_data.copy_from, log.log_end_offset
        logger.error(
            "%s is copied from its leader again from offset %d on, because it has lost records: %s",
            topic_partition,
            copy_from,
            lost.reason,
        )
        _lower_checkpoints(self._dirs, self.high_watermarks, {topic_partition: copy_from})
        log.truncate_to(copy_from, keeps_files=True)
        if log.bounds.cleaned_offset is not None:
            self._dirs.write_cleaner_offsets(self._dirs.dir_of(log))
        log.note_lost_data(lost._replace(expected_offset=max(lost.expected_offset, end_offset), copy_from=None))

    def apply_retention(self, now_ms: int) -> Task[list[TopicPartition]]:
        """Let retention delete segments of all logs; returns the partitions that lost some."""
        shorter: list[TopicPartition] = []
        for topic_partition, log in one_by_one(self._dirs.logs.items()):
            # The owner was notified that its dir went offline.
            with contextlib.suppress(KafkaError):
                count = _SEGMENTS_A_STEP
                while log.offline is None and count == _SEGMENTS_A_STEP:
                    count = log.apply_retention(now_ms, _SEGMENTS_A_STEP)
                    if count and shorter[-1:] != [topic_partition]:
                        shorter.append(topic_partition)
                    yield None
            yield None
        return shorter

    def flush_due(self, now_ms: int) -> Task[list[PartitionLog]]:
        """The logs that have something to sync: rolled segments, or more than
        flush.messages and flush.ms allow."""
        due = []
        for log in one_by_one(self._dirs.logs.values()):
            if log.durability.recovery_point < log.segments.active.base_offset or log.flusher.is_due(
                log.config, now_ms
            ):
                due.append(log)
            yield None
        return due

    def describe(self) -> Task[list[DirDescription]]:
        """Every dir with the sizes of its partitions (DescribeLogDirs)."""
        by_dir: dict[str, list[PartitionSize]] = defaultdict(list)
        for path, name, log in self.stored():
            by_dir[path].append(PartitionSize(name, log.segments.size_bytes, self.get(name) is not log))
            yield None
        return [DirDescription(log_dir.path, log_dir.error, sorted(by_dir[log_dir.path])) for log_dir in self._dirs]

    # ---- checkpoints

    def checkpoint(self, name: str) -> Task[None]:
        """Write one of the checkpoints below in slices and beside the event loop, in each
        dir where it has changed.

        What the event loop writes meanwhile is newer, and stays.
        """
        value = _CHECKPOINTED[name]
        writes = {path: self._dirs.begin_checkpoint(path, name) for path in self.online}
        for path, _, log in self.stored():
            offset = value(log)
            if offset is not None and (write := writes.get(path)) is not None:
                write.offsets[log.topic_partition] = offset
            yield None
        for path, write in writes.items():
            try:
                yield Beside(write.run)
            except OSError as error:
                self.disk_failed(path, error, f"writing {name} in {path}")
            self._dirs.checkpoint_written(write)

    def checkpoint_recovery_points(self) -> None:
        """Write down what is on stable storage; a start after a crash begins to check there."""
        for log_dir in self._dirs:
            self._dirs.write_checkpoint(log_dir, RECOVERY_POINTS, _CHECKPOINTED[RECOVERY_POINTS])

    def checkpoint_high_watermarks(self) -> None:
        """Write down the high watermarks; `load` takes them up."""
        for log_dir in self._dirs:
            self.high_watermarks.write(log_dir)

    def checkpoint_log_start_offsets(self) -> None:
        """Write down the log start offsets that lie inside a segment."""
        for log_dir in self._dirs:
            self._dirs.write_checkpoint(log_dir, LOG_START_OFFSETS, _CHECKPOINTED[LOG_START_OFFSETS])

    def compacted(self, log: PartitionLog, end_offset: int) -> None:
        """A log was compacted up to an offset: the next compaction begins there."""
        log.bounds.set_cleaned(end_offset)
        self._dirs.write_cleaner_offsets(self._dirs.dir_of(log))

    # ---- stopping

    def prepare_close(self) -> Task[list[Callable[[], None]]]:
        """Complete the files of every log for a clean stop.

        The caller still has to run the returned tasks, then `close`. The pieces share nothing: run
        in several threads, a disk syncs many small files in the time of one.
        """
        self._closing = []
        self._incomplete = set()
        for _, _, log in self.stored():
            try:
                task = log.prepare_close()
            except KafkaError:
                self._incomplete.add(self.dir_of(log))
                continue
            if task is not None:
                self._closing.append((log, task))
            yield None
        return [task.run for _, task in self._closing]

    def close(
        self, clean: bool, broker_epoch: int = -1, *, errors: Sequence[BaseException | None] | None = None
    ) -> None:
        """Stop.

        A clean stop completes and syncs all files and leaves the marker; any other only lets go
        of them. ``errors`` are what the pieces of `prepare_close` raised, or None; unless
        given, they run here in turn.
        """
        for _ in self.close_in_slices(clean, broker_epoch, errors=errors):
            pass

    def close_in_slices(
        self, clean: bool, broker_epoch: int = -1, *, errors: Sequence[BaseException | None] | None = None
    ) -> Task[None]:
        """Like `close`."""
        if clean:
            if errors is None:
                errors = _run_in_turn((yield from self.prepare_close()))
            for (log, task), error in zip(self._closing, errors, strict=True):
                yield None
                if error is None:
                    log.flusher.done(task, 0)
                elif isinstance(error, OSError):
                    self._incomplete.add(self.dir_of(log))
                    log.availability.fail(error, "flushing")
                    self._dirs.disk_failed(self._dirs.dir_of(log), error, f"flushing {log.directory}")
                else:
                    raise error
            for checkpoint in (
                self.checkpoint_recovery_points,
                self.checkpoint_high_watermarks,
                self.checkpoint_log_start_offsets,
            ):
                checkpoint()
                yield None
        for log_dir in self._dirs:
            if clean and log_dir.path not in self._incomplete:
                _mark_clean(self._dirs, log_dir, broker_epoch)
            log_dir.unlock()
        self._dirs.clear()


def _lower_checkpoints(
    dirs: DirSet, high_watermarks: HighWatermarkCheckpoint, ends: Mapping[TopicPartition, int]
) -> None:
    """Logs are about to be cut, so that they end at these offsets: a log that ends below a
    checkpoint has lost records."""
    logs = dirs.logs
    cut = [logs[name] for name, end in ends.items() if name in logs and end < logs[name].durability.recovery_point]
    for path in {dirs.dir_of(log).path for log in cut}:
        dirs.write_checkpoint(
            dirs[path],
            RECOVERY_POINTS,
            lambda log: min(
                log.durability.recovery_point, ends.get(log.topic_partition, log.durability.recovery_point)
            ),
        )
    high_watermarks.lower(ends)
