"""`SchemaStore`: the registry's state as its topic makes it, and the writes of the instance that
leads.

Everything that reads or changes the state runs on the event loop. Three threads work beside it: one
reads the topic, one keeps the instance in its group, one writes.

A write is decided on a state that holds all records before it: a new leader first fences the
writers before it, and reads its own first record back. The next write is decided when the records
of this one were read back. After an error of a write whose outcome is not known the writer is
closed, and the next write begins as that of a new leader.

In Confluent's registry: `KafkaStore`, and the leader's part of `KafkaSchemaRegistry`.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import TopicPartition
from barnabas.client.admin.offsets import FoundOffset, list_offsets
from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.client.errors import ClientError, FencedError, RefusedError, TimedOutError
from barnabas.registry.core.decisions import Answer, Decision, LogRecord, NewRecord
from barnabas.registry.core.registry import Registry
from barnabas.registry.errors import ErrorCode, RegistryError
from barnabas.registry.storage.elector import LeaderElector, Leadership
from barnabas.registry.storage.identity import RegistryIdentity
from barnabas.registry.storage.reader import StoreReader
from barnabas.registry.storage.settings import StoreSettings
from barnabas.registry.storage.topic import ensure_topic
from barnabas.registry.storage.writer import StoreWriter

__all__ = ["SchemaStore"]

logger = logging.getLogger(__name__)

T = TypeVar("T")

_TOO_LARGE = frozenset(("MSG_SIZE_TOO_LARGE", "MESSAGE_TOO_LARGE", "RECORD_LIST_TOO_LARGE"))
_SKIPPED_LINES = 100
_LATEST = -1
_NEW_TOPIC_PAUSE_S = 0.1
_HANDOVER_S, _LOOK_S = 5.0, 0.1
_IDLE_S = 3600.0
"""Brokers forget a transactional.id that is not used for days: the next write registers it."""
_CATCH_UP_MS = 2000
_NO_LEADER = Leadership(None, is_self=False, generation=-1)


class SchemaStore:
    """From `start` to `close`, on one event loop."""

    def __init__(self, settings: StoreSettings, registry: Registry) -> None:
        self._settings = settings
        self.registry = registry
        self.failed = asyncio.Event()
        """Set when the topic cannot be read any more: the state is not to be relied on then."""
        self.failure: BarnabasError | None = None
        self.cluster_id = ""
        self.leadership = _NO_LEADER
        self._loop = asyncio.get_running_loop()
        self._position = 0
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self._skipped = 0
        self._turn = asyncio.Lock()
        self._fenced_generation: int | None = None
        self._last_write_s = 0.0
        self._taking_over: asyncio.Task[None] | None = None
        self._threads = ThreadPoolExecutor(1, "registry-writer")
        self._reader: StoreReader | None = None
        self._elector: LeaderElector | None = None
        self._elected = asyncio.Event()
        properties = {**settings.properties, "bootstrap.servers": settings.bootstrap_servers}
        self._client_properties = properties
        self._writer = StoreWriter(properties, settings.topic, settings.transactional_id, settings.timeout_ms)

    # Start and end

    async def start(self) -> None:
        """Read the topic to its end. Raises `BarnabasError`."""
        await self._in_thread(self._prepare)
        end = await self._end()
        self._reader = StoreReader(self._client_properties, self._settings.topic, self._deliver, self._fail)
        self._reader.start()
        try:
            await self._read_up_to(end, self._settings.init_timeout_ms)
        except TimeoutError:
            raise TimedOutError(
                f"{self._settings.topic} was not read to its end at {end} within kafkastore.init.timeout.ms="
                f"{self._settings.init_timeout_ms} (it was read to {self._position})"
            ) from None

    def _prepare(self) -> None:
        """Make or check the topic."""
        settings = self._settings
        with AdminConnection(settings.bootstrap_servers, settings.properties) as connection:
            ensure_topic(connection, settings.topic, settings.replication_factor)
            self.cluster_id = connection.describe_cluster().cluster_id or ""

    async def _end(self) -> int:
        """The topic's end; a topic that was made a moment ago is waited for."""
        until_s = self._loop.time() + self._settings.init_timeout_ms / 1000
        while True:
            found = await self._in_thread(self._end_now)
            if not isinstance(found, RefusedError):
                return found.offset
            if not found.retriable or self._loop.time() >= until_s:
                raise found
            await asyncio.sleep(_NEW_TOPIC_PAUSE_S)

    def _end_now(self) -> FoundOffset | RefusedError:
        settings = self._settings
        place = TopicPartition(settings.topic, 0)
        with AdminConnection(settings.bootstrap_servers, settings.properties) as connection:
            return list_offsets(connection, {place: _LATEST}, read_committed=True)[place]

    async def join(self, identity: RegistryIdentity) -> None:
        """Take part in the election, and wait until it is known who leads."""
        settings = self._settings
        self._elector = LeaderElector(
            settings.bootstrap_servers,
            settings.properties,
            settings.group_id,
            identity,
            settings.group_timeouts,
            self._elected_on_thread,
        )
        self._elector.start()
        try:
            async with asyncio.timeout(settings.init_timeout_ms / 1000):
                await self._elected.wait()
        except TimeoutError:
            raise TimedOutError(
                f"the group {settings.group_id} did not agree on a leader within kafkastore.init.timeout.ms="
                f"{settings.init_timeout_ms}"
            ) from None

    async def close(self) -> None:
        """Leave the group, and stop reading and writing."""
        elector, reader = self._elector, self._reader
        if elector is not None:
            await asyncio.to_thread(elector.close)
        if self._taking_over is not None:
            self._taking_over.cancel()
        if reader is not None:
            await asyncio.to_thread(reader.close)
        await self._in_thread(self._writer.close)
        self._threads.shutdown(wait=False)
        for _, future in self._waiting:
            future.cancel()

    async def _in_thread(self, work: Callable[..., T], *arguments: object) -> T:
        return await self._loop.run_in_executor(self._threads, work, *arguments)

    # Reading

    def _deliver(self, records: Sequence[LogRecord], position: int) -> None:
        """On the reader's thread: it waits, so that no more than one batch is in memory."""
        if not records and position == self._position:
            return
        done = asyncio.run_coroutine_threadsafe(self._apply(records, position), self._loop)
        done.result()

    async def _apply(self, records: Sequence[LogRecord], position: int) -> None:
        for record in records:
            problem = self.registry.apply(record)
            if problem is not None:
                self._skipped += 1
                if self._skipped <= _SKIPPED_LINES:
                    logger.warning("%s offset %d is skipped: %s", self._settings.topic, record.offset, problem)
        self._position = position
        still = []
        for wanted, future in self._waiting:
            if wanted <= position and not future.done():
                future.set_result(None)
            elif not future.done():
                still.append((wanted, future))
        self._waiting = still

    @property
    def position(self) -> int:
        """The offset up to which the state holds all records."""
        return self._position

    async def catch_up(self, position: int) -> None:
        """Wait until the state holds all records before ``position``, for a moment only."""
        with contextlib.suppress(TimeoutError, BarnabasError):
            await self._read_up_to(position, _CATCH_UP_MS)

    async def _read_up_to(self, position: int, timeout_ms: int) -> None:
        """Wait until all records before ``position`` are applied. Raises TimeoutError."""
        if self._position >= position:
            return
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append((position, future))
        failing = asyncio.ensure_future(self.failed.wait())
        try:
            waited: set[asyncio.Future[Any]] = {future, failing}
            await asyncio.wait(waited, timeout=timeout_ms / 1000, return_when=asyncio.FIRST_COMPLETED)
        finally:
            failing.cancel()
        if self.failure is not None:
            raise self.failure
        if not future.done():
            raise TimeoutError

    def _fail(self, error: BarnabasError) -> None:
        """On the reader's thread."""

        def note() -> None:
            logger.error("%s cannot be read any more: %s", self._settings.topic, error)
            self.failure = error
            self.failed.set()

        self._loop.call_soon_threadsafe(note)

    # Leading

    def _elected_on_thread(self, leadership: Leadership) -> None:
        self._loop.call_soon_threadsafe(self._on_elected, leadership)

    def _on_elected(self, leadership: Leadership) -> None:
        before, self.leadership = self.leadership, leadership
        if leadership.generation >= 0:
            self._elected.set()
        if leadership.leader != before.leader or leadership.is_self != before.is_self:
            who = "this instance" if leadership.is_self else leadership.leader.url if leadership.leader else "none"
            logger.info("%s leads (generation %d)", who, leadership.generation)
        if leadership.is_self and (self._taking_over is None or self._taking_over.done()):
            # The fence stands from here on, and the first request need not wait for it.
            self._taking_over = self._loop.create_task(self._take_over_early())

    async def _take_over_early(self) -> None:
        try:
            async with self._turn:
                await self._require_lead()
        except RegistryError as error:
            logger.warning("%s", error)

    async def wait_for_other_leader(self, former: RegistryIdentity) -> None:
        """Wait a moment for another leader than one that is not there any more, if the group has
        one. Cheap to call often."""
        end = self._loop.time() + _HANDOVER_S
        while self.leadership.leader == former and self._elector is not None and self._loop.time() < end:
            self._elector.hurry()
            await asyncio.sleep(_LOOK_S)

    @property
    def leads(self) -> bool:
        """Whether this instance may write now."""
        return (
            self._elector is not None
            and self.leadership.is_self
            and self.leadership.generation != self._fenced_generation
            and self._elector.leads()
        )

    async def _require_lead(self) -> None:
        """Be the one writer, with all records of those before it applied; raises RegistryError."""
        if not self.leads:
            raise RegistryError(ErrorCode.UNKNOWN_LEADER, "this instance does not lead, and it is not known which does")
        if self._writer.is_open and self._loop.time() < self._last_write_s + _IDLE_S:
            return
        generation = self.leadership.generation
        await self._attempt(self._writer.open, generation)
        await self._append([self.registry.noop()], generation)
        repairs = self.registry.repairs()
        if repairs:
            await self._append(repairs, generation)

    # Writing

    async def write(self, decide: Callable[[], Decision]) -> Answer:
        """Carry a decision out as the leader, and answer when its records are read back.

        Raises RegistryError: of the decision, UNKNOWN_LEADER where this instance does not lead,
        STORE_ERROR and OPERATION_TIMED_OUT where the topic cannot be written or read. What is begun
        is ended, whether the caller still waits or not.
        """
        return await asyncio.shield(self._loop.create_task(self._write(decide)))

    async def _write(self, decide: Callable[[], Decision]) -> Answer:
        async with self._turn:
            await self._require_lead()
            decision = decide()
            if decision.records:
                await self._append(decision.records, self.leadership.generation)
            return decision.answer()

    async def _append(self, records: Sequence[NewRecord], generation: int) -> None:
        offset = await self._attempt(self._writer.append, generation, records)
        self._last_write_s = self._loop.time()
        try:
            await self._read_up_to(offset + 1, self._settings.timeout_ms)
        except TimeoutError:
            await self._in_thread(self._writer.close)
            raise RegistryError(
                ErrorCode.OPERATION_TIMED_OUT,
                f"the write was not read back within kafkastore.timeout.ms={self._settings.timeout_ms}",
            ) from None
        except BarnabasError as error:
            raise RegistryError(ErrorCode.STORE_ERROR, f"the write could not be read back: {error}") from error

    async def _attempt(self, work: Callable[..., T], generation: int, *arguments: object) -> T:
        try:
            return await self._in_thread(work, *arguments)
        except FencedError as error:
            # Another instance leads, or the coordinator of transactions has ended one that took too
            # long. Which of them, the group says in its next generation.
            self._fenced_generation = generation
            if self._elector is not None:
                self._elector.rejoin()
            raise RegistryError(ErrorCode.UNKNOWN_LEADER, f"another instance leads: {error}") from error
        except TimedOutError as error:
            raise RegistryError(ErrorCode.OPERATION_TIMED_OUT, f"the write did not end in time: {error}") from error
        except ClientError as error:
            cause = error.__cause__
            name = cause.name if isinstance(cause, ClientError) else error.name
            if name in _TOO_LARGE:
                raise RegistryError(ErrorCode.SCHEMA_TOO_LARGE, f"the schema is too large: {error}") from error
            raise RegistryError(ErrorCode.STORE_ERROR, f"the write failed: {error}") from error
