"""Loads a partition of a coordinator's topic: the edge of loading, for both coordinators.

When the controller makes this broker leader of a partition, the partition's log is read in steps,
between which the event loop is free. What was read is served when all in-sync replicas have it.

In Kafka: `CoordinatorLoaderImpl`.
"""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Hashable
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

from barnabas.base.clock import Clock
from barnabas.base.errors import BarnabasError, CorruptDataError
from barnabas.base.files import FileSlice
from barnabas.base.ids import TopicPartition
from barnabas.base.task_futures import future_of
from barnabas.base.tasks import Beside, Runner, Task
from barnabas.broker.coordinators.playback import CoordinatorPlayback
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.reads import LOG_END
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.requests.purgatory import Purgatory

__all__ = ["Coordinator", "CoordinatorLoader"]

logger = logging.getLogger(__name__)

_IN_SYNC_CHECK_MS = 500
_REPORTED_WAIT_MS = 5_000

T = TypeVar("T")


class Coordinator(Protocol):
    """Who serves what is loaded."""

    @property
    def is_active(self) -> bool:
        """Whether it serves anything."""

    def is_awaited(self, number: int, leader_epoch: int, /) -> bool:
        """Whether the load of a partition that began in this epoch is still wanted."""


@dataclass(slots=True)
class _Load:
    """The load of one partition, until it is served. In no cycle, for ``serve`` may hold many
    offsets."""

    topic_partition: TopicPartition
    leader_epoch: int
    serve: Callable[[int], None]
    started_ms: int
    end_offset: int = 0
    is_reported: bool = False


class CoordinatorLoader:
    """Loads the partitions of one coordinator."""

    def __init__(
        self,
        coordinator: Coordinator,
        what: str,
        load_bytes: int,
        *,
        replicas: ReplicaManager,
        purgatory: Purgatory,
        clock: Clock,
        runner: Runner,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
    ) -> None:
        """``what`` is what a partition has, for the log: "groups". ``load_bytes`` is the size of
        the pieces in which a log is read."""
        self._coordinator = coordinator
        self._what = what
        self._load_bytes = load_bytes
        self._replicas = replicas
        self._purgatory = purgatory
        self._clock = clock
        self._runner = runner
        self._spawn = spawn

    def load(self, led: Partition, playback: CoordinatorPlayback, serve: Callable[[int], None]) -> None:
        """Read a partition from its start to its end, then ``serve`` it, unless it was lost
        meanwhile. ``serve`` gets how many milliseconds that took."""
        load = _Load(led.topic_partition, led.leader_epoch, serve, self._clock.monotonic_ms())
        self._spawn(self._load(load, playback))

    async def _load(self, load: _Load, playback: CoordinatorPlayback) -> None:
        topic_partition = load.topic_partition
        try:
            await self._read_log(load, playback)
        except (BarnabasError, OSError) as error:
            # Serve what could be read, as Kafka does, rather than refuse all keys of the partition.
            logger.error(
                "%s of %s are incomplete, its log cannot be read: %s", self._what.capitalize(), topic_partition, error
            )
        for step in playback.steps():
            if step is None:
                await asyncio.sleep(0)
            else:
                await future_of(self._runner, _only(step))
        for problem in playback.unreadable:
            logger.warning("Left out of the %s of %s: %s", self._what, topic_partition, problem)
        partition = self._replicas.get(topic_partition)
        load.end_offset = 0 if partition is None else partition.log.log_end_offset
        self._serve_when_in_sync(load)

    async def _read_log(self, load: _Load, playback: CoordinatorPlayback) -> None:
        replicas, topic_partition = self._replicas, load.topic_partition
        replica = replicas.get(topic_partition)
        if replica is None or replica.log is None:
            return
        offset = replica.log.log_start_offset
        while self._is_awaited(load):
            piece = replicas.read(topic_partition, offset, self._load_bytes, isolation=LOG_END, min_one_batch=True)
            if not piece.size_bytes:
                return
            records = piece.records
            if isinstance(records, FileSlice):
                # The read may wait for the disk. The slice keeps its file open,
                # whatever becomes of the segment.
                records = await future_of(self._runner, _beside(records.read))
                if not self._is_awaited(load):
                    return  # and perhaps it was truncated meanwhile
            before = offset
            for next_offset in playback.read(records):
                offset = next_offset
                await asyncio.sleep(0)
            if offset == before:
                raise CorruptDataError(f"no whole batch at offset {offset}")

    def _is_awaited(self, load: _Load) -> bool:
        return self._coordinator.is_awaited(load.topic_partition.partition, load.leader_epoch)

    def _serve_when_in_sync(self, load: _Load) -> None:
        """Serve the partition as soon as all in-sync replicas have the records that were read.

        A follower that lacks one of them may lead next. Without the record it would begin the same
        generation of a group again, with another assignment, or abort a transaction at its timeout
        that was to be committed. Kafka's coordinators do not wait. No record is appended here
        before the partition is served.
        """
        if self._try_to_serve(load, None):
            return
        if not load.is_reported and self._clock.monotonic_ms() - load.started_ms >= _REPORTED_WAIT_MS:
            load.is_reported = True
            logger.warning(
                "%s of %s cannot be served yet: an in-sync replica has not fetched up to offset %d. They are served "
                "when it has, or has left the in-sync set after replica.lag.time.max.ms",
                self._what.capitalize(),
                load.topic_partition,
                load.end_offset,
            )
        self._purgatory.watch(
            [load.topic_partition],
            partial(self._try_to_serve, load),
            partial(self._serve_when_in_sync, load),
            _IN_SYNC_CHECK_MS,
        )

    def _try_to_serve(self, load: _Load, _: Hashable) -> bool:
        """Whether the partition is served, or not wanted any more."""
        if not self._coordinator.is_active or not self._is_awaited(load):
            return True
        partition = self._replicas.get(load.topic_partition)
        if partition is not None and not partition.all_in_sync_have(load.end_offset):
            return False
        load.serve(self._clock.monotonic_ms() - load.started_ms)
        return True


def _only(step: Beside) -> Task[None]:
    yield step


def _beside(work: Callable[[], T]) -> Task[T]:
    results: list[T] = []
    yield Beside(lambda: results.append(work()))
    return results[0]
