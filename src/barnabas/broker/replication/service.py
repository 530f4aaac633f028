"""The network half of replication: fetching from leaders, and asking the controller
for in-sync sets.

There is one loop for each broker that leads partitions of ours (Kafka's ReplicaFetcherThread;
ReplicaFetcherManager has them). It has a connection of its own (a fetch that waits at the leader
would hold up other requests) and one fetch under way, for all partitions that are led there. What
to ask and what to make of the answer is decided in `fetcher`.

Partitions that are behind have a loop and a connection of their own: `fetch_sources` decides
which loop copies what. It asks for a mebibyte at a time, and rests after each as long as it
took to append it: a broker that copies gigabytes serves its clients, and leaves half of a CPU
to other processes.

When partitions come to a loop whose fetch waits at the leader, the connection is broken and the
next fetch has them all: otherwise the first record of a new topic, and every election, would wait
for replica.fetch.wait.max.ms. A broken connection costs the fetch session, so all partitions are
named and looked at again. The controller changes the roles of thousands of partitions in many
requests: after one, fetches wait only briefly for some time, and none is broken.

`AlterPartitionSender` sends what `alter_partition_manager` wants sent, and has the in-sync sets
checked from time to time.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from barnabas.base.clock import CallLater, Clock, Timer
from barnabas.base.ids import TopicPartition
from barnabas.base.network import Network
from barnabas.base.task_futures import result_of
from barnabas.base.tasks import Runner, Task
from barnabas.broker.cluster.channels import BrokenConnectionError, ChannelError, ChannelLogin, Channels
from barnabas.broker.configuration.broker_config import BrokerConfig
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.replication.fetch_sources import FetchLanes, FetchSources, SourceStatus, Wakeup
from barnabas.broker.replication.fetcher import Fetcher, FetchLimits
from barnabas.broker.replication.log_alignment import EARLIEST, LATEST
from barnabas.broker.replication.quotas import ReplicationQuota
from barnabas.broker.replication.replica_manager import LeadershipOutcome, ReplicaManager
from barnabas.log.group_sync import WhenDurable
from barnabas.log.partition_log import PartitionLog
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = ["AlterPartitionSender", "FetcherDependencies", "ReplicaFetcherManager"]

logger = logging.getLogger(__name__)

_LEAST_WAIT_MS = 5
_UNREACHABLE_MS = 1000
_CATCH_UP_BYTES = 1 << 20
_LEAST_WORK_MS = 0.5
_LONGEST_REST_MS = 50
_INTERRUPT_EVERY_S = 0.05
_SETTLING_S = 0.5
"""After a change of roles, more may follow for this long."""
_SETTLING_WAIT_MS = 25
_LIST_OFFSETS_VERSION = 7
_EPOCHS_VERSION = 4
_FIRST_PAUSE_MS = 20
_MAX_PAUSE_MS = 1000
_LEAST_CHECK_MS = 50
_LAG_MESSAGES_CHECK_MS = 1000


@dataclass(frozen=True, slots=True)
class FetcherDependencies:
    """The dependencies of the loops that copy from leaders."""

    broker_id: int
    broker_epoch: Callable[[], int]
    config: BrokerConfig
    clock: Clock
    call_later: CallLater
    runner: Runner
    network: Network
    listener: str
    """The name of the listener that brokers use among themselves."""
    login: ChannelLogin | None
    metadata: MetadataCache
    when_durable: WhenDurable
    quota: ReplicationQuota
    truncate: Callable[[TopicPartition, int], None]
    """Truncates a log and records that on disk."""
    on_change: Callable[[TopicPartition], None]
    """Wakes requests that wait for a partition."""
    write_leader_epochs: Callable[[Sequence[PartitionLog]], None]
    """Begins to write the leader epochs of logs beside the event loop."""


class ReplicaFetcherManager:
    """Copies the partitions that other brokers lead, with a loop for each broker."""

    def __init__(self, dependencies: FetcherDependencies) -> None:
        self._dependencies = dependencies
        config = dependencies.config
        self._limits = FetchLimits(
            partition_bytes=config["replica.fetch.max.bytes"],
            response_bytes=config["replica.fetch.response.max.bytes"],
            min_bytes=config["replica.fetch.min.bytes"],
            wait_ms=config["replica.fetch.wait.max.ms"],
            backoff_ms=config["replica.fetch.backoff.ms"],
        )
        timeout_ms = max(config["replica.socket.timeout.ms"], self._limits.wait_ms + 1000)
        self._channels = {
            for_in_sync: Channels(
                dependencies.broker_id,
                dependencies.network,
                request_timeout_ms=timeout_ms,
                login=dependencies.login,
            )
            for for_in_sync in (True, False)
        }
        self._sources = FetchSources(self._make_fetcher)
        self._loops: dict[Fetcher, _ReplicaFetcherLoop] = {}
        self._closed = False

    def roles_changed(self, outcome: LeadershipOutcome) -> None:
        """Fetch for the followers, and stop where this broker leads or has no replica."""
        if self._closed:
            return
        for source, wakeup in self._sources.roles_changed(outcome).items():
            self._wake(source, wakeup)

    def _wake(self, source: int, wakeup: Wakeup) -> None:
        loop = self._loops.get(wakeup.fetcher)
        if loop is None:
            lanes = self._sources.lanes[source]
            channels = self._channels[wakeup.fetcher is lanes.in_sync]
            between = partial(self._between_fetches, source, lanes)
            fetcher = wakeup.fetcher
            loop = _ReplicaFetcherLoop(
                self._dependencies, source, channels, fetcher, partial(lanes.must_exchange, fetcher), between
            )
            self._loops[wakeup.fetcher] = loop
        loop.add_work(interrupt=wakeup.at_once)

    def _between_fetches(self, source: int, lanes: FetchLanes, fetcher: Fetcher) -> Task[None]:
        wakeup = yield from lanes.exchange(fetcher)
        if wakeup is not None:
            self._wake(source, wakeup)

    def _make_fetcher(self, for_in_sync: bool) -> Fetcher:
        dependencies, limits = self._dependencies, self._limits
        if not for_in_sync:
            limits = replace(limits, response_bytes=min(limits.response_bytes, _CATCH_UP_BYTES))
        return Fetcher(
            dependencies.broker_id,
            limits,
            dependencies.truncate,
            dependencies.on_change,
            dependencies.quota,
            for_in_sync=for_in_sync,
        )

    def brokers_changed(self, *_: object) -> None:
        """Connect to brokers where they are now."""
        if self._closed:
            return
        brokers = {
            broker.broker_id: (endpoint.host, endpoint.port)
            for broker in self._dependencies.metadata.alive_brokers()
            if (endpoint := broker.endpoint(self._dependencies.listener)) is not None
        }
        for channels in self._channels.values():
            channels.set_brokers(brokers)
        for loop in self._loops.values():
            loop.retry()

    async def close(self) -> None:
        """Copy no more."""
        self._closed = True
        for loop in tuple(self._loops.values()):
            await loop.close()
        for channels in self._channels.values():
            channels.close()


class _ReplicaFetcherLoop:
    """Fetches from one broker, again and again (Kafka's ReplicaFetcherThread)."""

    def __init__(
        self,
        dependencies: FetcherDependencies,
        source: int,
        channels: Channels,
        fetcher: Fetcher,
        must_exchange: Callable[[], bool],
        between_fetches: Callable[[Fetcher], Task[None]],
    ) -> None:
        """Before each fetch, ``between_fetches`` is called if ``must_exchange`` says so."""
        self._must_exchange = must_exchange
        self._between_fetches = between_fetches
        self._fetcher = fetcher
        self._dependencies = dependencies
        self._source = source
        self._channels = channels
        self._runner = dependencies.runner.apart()
        """It does not wait behind other tasks: clients choose how much there is of those, and
        acks=all waits for this."""
        self._loop = asyncio.get_running_loop()
        self._has_work = asyncio.Event()
        self._status = SourceStatus(dependencies.config["replica.fetch.backoff.ms"])
        self._is_fetching = False
        self._was_interrupted = False
        self._last_interrupt_s = 0.0
        self._settled_s = 0.0
        self._waits_briefly = False
        self._interrupt_timer: asyncio.TimerHandle | None = None
        self._task = self._loop.create_task(self._run())

    def add_work(self, *, interrupt: bool) -> None:
        """There is something new to ask for, now or with the next request."""
        if interrupt:
            self.interrupt()
        else:
            self._has_work.set()

    def interrupt(self) -> None:
        """There is something new to ask for, and it cannot wait for the answer that
        is under way."""
        self._has_work.set()
        now_s = self._loop.time()
        self._settled_s = now_s + _SETTLING_S
        if not self._is_fetching or self._waits_briefly or self._interrupt_timer is not None:
            return
        wait_s = max(self._last_interrupt_s + _INTERRUPT_EVERY_S - now_s, 0)
        self._interrupt_timer = self._loop.call_later(wait_s, self._break)

    def _break(self) -> None:
        self._interrupt_timer = None
        if self._is_fetching and not self._waits_briefly:
            self._last_interrupt_s = self._loop.time()
            self._was_interrupted = True
            self._channels.drop(self._source)

    def retry(self) -> None:
        """The source may be reachable now."""
        if self._status.backoff_ms:
            self._has_work.set()

    async def close(self) -> None:
        if self._interrupt_timer is not None:
            self._interrupt_timer.cancel()
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _run(self) -> None:
        fetcher, clock = self._fetcher, self._dependencies.clock
        while True:
            self._has_work.clear()
            if self._must_exchange():
                await result_of(self._runner, self._between_fetches(fetcher))
            due_ms = fetcher.wake(clock.monotonic_ms())
            try:
                if fetcher.offsets.is_wanted:
                    await self._locate()
                if fetcher.wants_fetch:
                    await self._fetch(due_ms)
                else:
                    await self._wait(None if due_ms is None else due_ms / 1000)
                self._status.succeeded()
            except (ChannelError, KafkaError) as error:
                await self._failed(error)
            except Exception:
                logger.exception("Copying from broker %d failed and starts again", self._source)
                await self._failed(None)

    async def _failed(self, error: Exception | None) -> None:
        self._fetcher.failed()
        if self._was_interrupted:
            self._was_interrupted = False
            return
        status = self._status
        if isinstance(error, BrokenConnectionError) and status.connection_broke():
            # Not for long, in case only our connection failed.
            self._dependencies.metadata.mark_unreachable(self._source)
            self._dependencies.call_later(_UNREACHABLE_MS, self._mark_reachable)
        logger.log(
            logging.DEBUG if status.backoff_ms else logging.INFO,
            "Cannot copy from broker %d: %s",
            self._source,
            error,
        )
        status.failed()
        await self._wait(status.backoff_ms / 1000)

    def _mark_reachable(self) -> None:
        self._dependencies.metadata.mark_reachable(self._source)

    async def _wait(self, timeout_s: float | None) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._has_work.wait()

    async def _fetch(self, due_ms: int | None) -> None:
        dependencies, fetcher = self._dependencies, self._fetcher
        highest = await self._channels.version(self._source, ApiKey.FETCH)
        if self._status.connected():
            self._mark_reachable()
        version = fetcher.fetch_version(highest)
        await self._sync()
        fetcher.speak(version)
        while fetcher.epochs.is_wanted:
            await self._align()
            fetcher.speak(version)
        if not fetcher.wants_fetch:
            return
        self._waits_briefly = self._loop.time() < self._settled_s
        wait_ms = _SETTLING_WAIT_MS if self._waits_briefly else 1 << 30
        if due_ms is not None:
            wait_ms = min(wait_ms, max(due_ms, _LEAST_WAIT_MS))
        request = await result_of(self._runner, fetcher.request(version, dependencies.broker_epoch(), wait_ms))
        self._is_fetching = True
        self._was_interrupted = False
        try:
            response = await self._channels.send(self._source, request, version=version)
        finally:
            self._is_fetching = False
        clock = dependencies.clock
        work = fetcher.handle_response(response, version, clock.monotonic_ms(), clock.wall_ms())
        began_ms = clock.worked_ms()
        if not await result_of(self._runner, work):
            logger.debug("Broker %d does not know our fetch session any more", self._source)
        if logs := fetcher.take_logs_with_new_epochs():
            dependencies.write_leader_epochs(logs)
        # This includes what ran between the slices: a busy broker rests longer, up
        # to _LONGEST_REST_MS.
        worked_ms = clock.worked_ms() - began_ms
        if worked_ms >= _LEAST_WORK_MS and fetcher.copies_what_is_behind:
            await asyncio.sleep(min(worked_ms, _LONGEST_REST_MS) / 1000)

    async def _sync(self) -> None:
        """A fetch says that we have everything before its offsets: where that is a
        promise, have it on disk first."""
        while logs := self._fetcher.unsynced():
            waits = []
            for log in logs:
                synced = self._loop.create_future()
                self._dependencies.when_durable(log, log.log_end_offset, partial(_set, synced))
                waits.append(synced)
            for wait in waits:
                await wait

    async def _align(self) -> None:
        """Truncate logs where they differ from a source whose fetch responses have
        no diverging epoch."""
        fetcher, clock = self._fetcher, self._dependencies.clock
        version = min(await self._channels.version(self._source, ApiKey.OFFSET_FOR_LEADER_EPOCH), _EPOCHS_VERSION)
        try:
            while fetcher.epochs.is_wanted:
                response = await self._channels.send(self._source, fetcher.epochs.request(), version=version)
                fetcher.epochs.handle_response(response, clock.monotonic_ms())
        except ChannelError:
            fetcher.epochs.failed(clock.monotonic_ms())
            raise

    async def _locate(self) -> None:
        fetcher, clock = self._fetcher, self._dependencies.clock
        version = min(await self._channels.version(self._source, ApiKey.LIST_OFFSETS), _LIST_OFFSETS_VERSION)
        try:
            for timestamp in (EARLIEST, LATEST):
                request = fetcher.offsets.request(timestamp)
                response = await self._channels.send(self._source, request, version=version)
                fetcher.offsets.handle_response(timestamp, response, clock.monotonic_ms(), clock.wall_ms())
        except ChannelError:
            fetcher.offsets.failed(clock.monotonic_ms())
            raise


def _set(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


class AlterPartitionSender:
    """Sends one AlterPartition at a time, again after a pause until the controller answers.

    It also has followers that lag looked for every half of replica.lag.time.max.ms
    (Kafka's task isr-expiration).
    """

    def __init__(
        self,
        replicas: ReplicaManager,
        metadata: MetadataCache,
        channels: Channels,
        broker_epoch: Callable[[], int],
        config: BrokerConfig,
        clock: Clock,
        call_later: CallLater,
        spawn: Callable[[Coroutine[Any, Any, None]], None],
        runner: Runner,
    ) -> None:
        self._replicas = replicas
        self._runner = runner
        self._manager = replicas.alter_partition
        self._metadata = metadata
        self._channels = channels
        self._broker_epoch = broker_epoch
        self._clock = clock
        self._call_later = call_later
        self._spawn = spawn
        self._is_sending = False
        self._is_stopped = False
        self._check_timer: Timer | None = None
        self._pause_ms = 0
        self._check_ms = max(config["replica.lag.time.max.ms"] // 2, _LEAST_CHECK_MS)
        if config["replica.lag.max.messages"] is not None:
            self._check_ms = min(self._check_ms, _LAG_MESSAGES_CHECK_MS)

    def start(self) -> None:
        """Begin to look for followers that lag."""
        self._check_timer = self._call_later(self._check_ms, self._check)

    def stop(self) -> None:
        """Look for no more followers that lag, and send nothing more."""
        self._is_stopped = True
        if self._check_timer is not None:
            self._check_timer.cancel()

    def _check(self) -> None:
        self._runner.start(self._shrink())

    def _shrink(self) -> Task[None]:
        try:
            yield from self._replicas.shrink_isrs(self._clock.wall_ms())
        finally:
            if not self._is_stopped:
                self._check_timer = self._call_later(self._check_ms, self._check)

    def changes_waiting(self) -> None:
        """Send the changes that wait, if none are under way."""
        if not self._is_sending and not self._is_stopped:
            self._is_sending = True
            # In the next turn, so that all partitions of one fetch travel in one request.
            self._call_later(0, lambda: self._spawn(self._send()))

    async def _send(self) -> None:
        is_done = False
        try:
            controller = self._metadata.controller_id
            version = await self._channels.version(controller, ApiKey.ALTER_PARTITION)
            request = self._manager.request(version, self._broker_epoch())
            if request is None:
                is_done = True
                return
            response = await self._channels.send(controller, request, version=version)
            if response.error_code:
                logger.info("The controller %d refused: %s", controller, ErrorCode(response.error_code).name)
            is_done = self._replicas.handle_alter_partition_response(response, version, self._clock.wall_ms())
        except (ChannelError, KafkaError) as error:
            logger.info("The controller could not be asked to change in-sync sets: %s", error)
            self._manager.failed()
        finally:
            self._is_sending = False
            self._pause_ms = 0 if is_done else min(max(2 * self._pause_ms, _FIRST_PAUSE_MS), _MAX_PAUSE_MS)
            if self._manager.waiting:
                self._call_later(self._pause_ms, self.changes_waiting)
