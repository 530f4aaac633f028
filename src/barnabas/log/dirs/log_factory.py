"""Making and loading the logs of a broker, with what all of them share.

Kafka: LogManager.getOrCreateLog, loadLog."""

from functools import partial

from barnabas.base.errors import CorruptDataError
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.base.randomness import Random
from barnabas.log.checkpoints import Checkpointed
from barnabas.log.dirs.dir_set import DirSet
from barnabas.log.dirs.log_dir import LogDir
from barnabas.log.partition_log import PartitionLog
from barnabas.log.recovery import LogOptions, create_log, load_log, make_log_files
from barnabas.log.segment.open_files import OpenFiles
from barnabas.log.settings import LogConfig

__all__ = ["LogFactory"]

_FUTURE_OPEN_FILES = 4


class LogFactory:
    """Logs share open files, but for future logs: another thread may write to those."""

    __slots__ = ("_dirs", "_rng", "open_files")

    def __init__(self, dirs: DirSet, open_files: OpenFiles, rng: Random) -> None:
        self._dirs = dirs
        self.open_files = open_files
        self._rng = rng

    def create(
        self,
        directory: str,
        topic_partition: TopicPartition,
        topic_id: Uuid,
        config: LogConfig,
        now_ms: int,
        *,
        has_files: bool = False,
    ) -> PartitionLog:
        """A new log, whose files are made or are there. Raises `OSError`."""
        log_dir = self._dirs.parent_of(directory)
        options = self._options(log_dir, self.open_files, directory, topic_partition, config, now_ms)
        if not has_files:
            make_log_files(self._dirs.files, directory, topic_id)
        log = PartitionLog(options, create_log(options, topic_id))
        self._dirs.count(log_dir, 1)
        return log

    def create_future(
        self, directory: str, topic_partition: TopicPartition, topic_id: Uuid, config: LogConfig, now_ms: int
    ) -> PartitionLog:
        """A new future log. Raises `OSError`."""
        log_dir = self._dirs.parent_of(directory)
        options = self._options(log_dir, self._own_files(), directory, topic_partition, config, now_ms)
        options = options._replace(on_failure=_ignore)
        make_log_files(self._dirs.files, directory, topic_id)
        log = PartitionLog(options, create_log(options, topic_id))
        self._dirs.count(log_dir, 1)
        return log

    def load(
        self,
        directory: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        checkpointed: Checkpointed,
        now_ms: int,
        *,
        is_future: bool,
    ) -> PartitionLog:
        """The log in a folder. Raises `OSError`, `CorruptDataError`."""
        log_dir = self._dirs.parent_of(directory)
        open_files = self._own_files() if is_future else self.open_files
        options = self._options(log_dir, open_files, directory, topic_partition, config, now_ms)
        try:
            log = PartitionLog(options, load_log(options, checkpointed))
        except CorruptDataError as error:
            raise CorruptDataError(f"{directory} cannot be loaded: {error}") from error
        if is_future:
            log.availability.on_failure(_ignore)
        self._dirs.count(log_dir, 1)
        return log

    def adopt(self, log: PartitionLog) -> None:
        """A future log takes its place among the others."""
        log.segments.use_open_files(self.open_files)
        log.availability.on_failure(partial(self._dirs.fail, self._dirs.dir_of(log)))

    def _options(
        self,
        log_dir: LogDir,
        open_files: OpenFiles,
        directory: str,
        topic_partition: TopicPartition,
        config: LogConfig,
        now_ms: int,
    ) -> LogOptions:
        on_failure = partial(self._dirs.fail, log_dir)
        return LogOptions(open_files, directory, topic_partition, config, now_ms, self._rng, on_failure)

    def _own_files(self) -> OpenFiles:
        return OpenFiles(self._dirs.files, max_files=_FUTURE_OPEN_FILES, max_indexes=1)


def _ignore(_: str) -> None:
    """Future logs fail in the thread that writes them.

    The code that runs it reports the failure to the dir's thread."""
