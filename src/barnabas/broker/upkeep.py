"""What a broker does by the clock: retention, checkpoints, syncs, idle connections.

Each job has its period and runs on the event loop, between requests; only what waits for the disk (fsync) runs in a
thread. A job that fails is logged and runs again at its next time.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable

from barnabas.broker.dispatch import Dispatcher
from barnabas.broker.node import Node
from barnabas.log.flushing import FlushTask
from barnabas.log.partition_log import PartitionLog
from barnabas.wire.kafka.errors import KafkaError

__all__ = ["Upkeep"]

logger = logging.getLogger(__name__)

_FLUSH_S = 1.0
_PURGE_S = 5.0
_PRODUCERS_S = 600.0
_IDLE_S = 10.0


class Upkeep:
    """The periodic work of one broker, on the running loop."""

    def __init__(self, node: Node, dispatcher: Dispatcher) -> None:
        self._node = node
        self._dispatcher = dispatcher
        self._tasks: list[asyncio.Task[None]] = []

    def start(self) -> None:
        settings = self._node.settings
        jobs: list[tuple[Callable[[], Awaitable[None]], float]] = [
            (self._apply_retention, settings["log.retention.check.interval.ms"] / 1000),
            (self._purge, _PURGE_S),
            (self._flush, _FLUSH_S),
            (self._checkpoint_recovery_points, settings["log.flush.offset.checkpoint.interval.ms"] / 1000),
            (self._checkpoint_start_offsets, settings["log.flush.start.offset.checkpoint.interval.ms"] / 1000),
            (self._checkpoint_high_watermarks, settings["replica.high.watermark.checkpoint.interval.ms"] / 1000),
            (self._expire_producers, _PRODUCERS_S),
            (self._close_idle, min(_IDLE_S, max(settings["connections.max.idle.ms"] / 4000, 0.1))),
        ]
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._repeat(job, max(period_s, 0.1))) for job, period_s in jobs]

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _repeat(self, job: Callable[[], Awaitable[None]], period_s: float) -> None:
        while True:
            await asyncio.sleep(period_s)
            try:
                await job()
            except Exception:
                logger.exception("%s failed", job.__name__)

    async def _apply_retention(self) -> None:
        if self._node.log_dirs.apply_retention(self._node.clock.wall_ms()):
            for partition in self._node.replicas:
                self._node.parked.changed(partition.name)

    async def _purge(self) -> None:
        self._node.log_dirs.purge_deleted(self._node.clock.wall_ms())

    async def _flush(self) -> None:
        now_ms = self._node.clock.wall_ms()
        due: list[PartitionLog] = self._node.log_dirs.flush_due(now_ms)
        for log in due:
            task = log.prepare_flush(include_active=log.flush_due(now_ms))
            if task is not None:
                await self._run_flush(log, task)

    async def _run_flush(self, log: PartitionLog, task: FlushTask) -> None:
        try:
            await asyncio.get_running_loop().run_in_executor(None, task.run)
        except OSError as error:
            log.fail(error, "flushing")
        else:
            log.flush_done(task, self._node.clock.wall_ms())

    async def _checkpoint_recovery_points(self) -> None:
        self._node.log_dirs.checkpoint_recovery_points()

    async def _checkpoint_start_offsets(self) -> None:
        self._node.log_dirs.checkpoint_log_start_offsets()

    async def _checkpoint_high_watermarks(self) -> None:
        self._node.log_dirs.checkpoint_high_watermarks()

    async def _expire_producers(self) -> None:
        now_ms = self._node.clock.wall_ms()
        expiration_ms = self._node.settings["producer.id.expiration.ms"]
        for log in tuple(self._node.log_dirs.logs().values()):
            try:
                log.remove_expired_producers(now_ms, expiration_ms)
            except KafkaError as error:
                logger.warning("%s", error)

    async def _close_idle(self) -> None:
        max_idle_ms = self._node.settings["connections.max.idle.ms"]
        if max_idle_ms >= 0:
            self._dispatcher.close_idle(self._node.clock.monotonic_ms(), max_idle_ms)
