"""The periodic jobs of a broker's storage: what runs, how often, and what each run does.

In Kafka: the tasks that `LogManager.startup` schedules, and the high watermark checkpoint of
`ReplicaManager`. A job that fails is logged and runs again at its next time. Jobs run in slices;
what waits for the disk runs beside the event loop.
"""

import contextlib
import logging
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from barnabas.base.clock import Now
from barnabas.base.ids import TopicPartition
from barnabas.base.tasks import Beside, Task, one_by_one
from barnabas.broker.configuration.broker_config import BrokerConfig
from barnabas.broker.storage.effects import Effects, InSlices, Later
from barnabas.log.checkpoints import LOG_START_OFFSETS, RECOVERY_POINTS
from barnabas.log.dirs.log_dirs import LogDirs
from barnabas.log.partition_log import PartitionLog
from barnabas.wire.kafka.errors import KafkaError

__all__ = ["Job", "StorageSchedule"]

logger = logging.getLogger(__name__)

_FLUSH_MS = 1000
_DELETE_MS = 5000
_PRODUCERS_MS = 600_000
_IDLE_MS = 10_000
_LEAST_PERIOD_MS = 100


class Job(NamedTuple):
    """A piece of periodic work, with Kafka's name for it."""

    name: str
    period_ms: int
    run: Callable[[Now], Task[None]]


class StorageSchedule:
    """The jobs of one broker. Each runs for the first time after its period."""

    def __init__(
        self,
        log_dirs: LogDirs,
        config: BrokerConfig,
        *,
        flush: Callable[[PartitionLog, bool], None],
        partition_changed: Callable[[TopicPartition], None],
        close_idle: Callable[[int, int], None],
    ) -> None:
        """``flush(log, include_active)`` syncs a log soon.

        ``partition_changed`` has waiting requests looked at again.
        ``close_idle(now_ms, max_idle_ms)`` closes idle connections.
        """
        self._log_dirs = log_dirs
        self._config = config
        self._flush = flush
        self._partition_changed = partition_changed
        self._close_idle = close_idle

    def jobs(self) -> list[Job]:
        """All jobs, with the periods that hold at the start."""
        config = self._config
        jobs = (
            Job("kafka-log-retention", config["log.retention.check.interval.ms"], self.apply_retention),
            Job("kafka-delete-logs", _DELETE_MS, self.delete_logs),
            Job("kafka-log-flusher", min(_FLUSH_MS, config["log.flush.scheduler.interval.ms"]), self.flush),
            Job(
                "kafka-recovery-point-checkpoint",
                config["log.flush.offset.checkpoint.interval.ms"],
                self.checkpoint_recovery_points,
            ),
            Job(
                "kafka-log-start-offset-checkpoint",
                config["log.flush.start.offset.checkpoint.interval.ms"],
                self.checkpoint_start_offsets,
            ),
            Job(
                "highwatermark-checkpoint",
                config["replica.high.watermark.checkpoint.interval.ms"],
                self.checkpoint_high_watermarks,
            ),
            Job("PeriodicProducerExpirationCheck", _PRODUCERS_MS, self.expire_producers),
            Job("idle-connections", min(_IDLE_MS, config["connections.max.idle.ms"] // 4), self.close_idle),
        )
        return [job._replace(period_ms=max(job.period_ms, _LEAST_PERIOD_MS)) for job in jobs]

    def start(self) -> Effects:
        """The first run of each job."""
        return [Later(job.period_ms, partial(self._run, job)) for job in self.jobs()]

    def _run(self, job: Job, now: Now) -> Effects:
        return [InSlices(job.name, job.run(now), lambda _: [Later(job.period_ms, partial(self._run, job))])]

    def apply_retention(self, now: Now) -> Task[None]:
        """Delete expired segments.

        Fetches that wait below the new log start offset are answered."""
        shorter = yield from self._log_dirs.apply_retention(now.wall_ms)
        for topic_partition in shorter:
            self._partition_changed(topic_partition)
            yield None

    def delete_logs(self, now: Now) -> Task[None]:
        """Remove deleted files whose delay is over."""
        yield from self._log_dirs.purge_deleted(now.wall_ms)

    def flush(self, now: Now) -> Task[None]:
        """Sync rolled segments, and what flush.messages and flush.ms ask for."""
        due = yield from self._log_dirs.flush_due(now.wall_ms)
        for log in due:
            with contextlib.suppress(KafkaError):  # its log dir is offline, which its owner knows
                self._flush(log, log.flusher.is_due(log.config, now.wall_ms))
            yield None

    def checkpoint_recovery_points(self, _: Now) -> Task[None]:
        """Write recovery-point-offset-checkpoint."""
        yield from self._log_dirs.checkpoint(RECOVERY_POINTS)

    def checkpoint_start_offsets(self, _: Now) -> Task[None]:
        """Write log-start-offset-checkpoint."""
        yield from self._log_dirs.checkpoint(LOG_START_OFFSETS)

    def checkpoint_high_watermarks(self, _: Now) -> Task[None]:
        """Write replication-offset-checkpoint in each log dir where a high watermark moved."""
        for write in (yield from self._log_dirs.high_watermarks.due()):
            try:
                yield Beside(write.prepare)
            except OSError as error:
                logger.error("The high watermarks of %s could not be written: %s", write.log_dir.path, error)
                self._log_dirs.high_watermarks.failed(write, error)
            else:
                self._log_dirs.high_watermarks.commit(write)

    def expire_producers(self, now: Now) -> Task[None]:
        """Remove the state of producers that were silent for producer.id.expiration.ms."""
        expiration_ms = self._config["producer.id.expiration.ms"]
        for log in one_by_one(self._log_dirs.logs().values()):
            try:
                log.producers.remove_expired(now.wall_ms, expiration_ms)
            except KafkaError as error:
                logger.warning("%s", error)
            yield None

    def close_idle(self, now: Now) -> Task[None]:
        """Close connections that were silent for connections.max.idle.ms.

        A negative value means never."""
        max_idle_ms = self._config["connections.max.idle.ms"]
        if max_idle_ms >= 0:
            self._close_idle(now.ms, max_idle_ms)
        yield None
