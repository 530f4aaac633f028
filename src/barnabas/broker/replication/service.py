"""The network half of replication: fetching from leaders, and asking the controller for in-sync sets.

There is one loop for each broker that leads partitions of ours (Kafka's ReplicaFetcherThread; ReplicaFetcherManager has
them). It has a connection of its own (a fetch that waits at the leader would hold up other requests) and one fetch under
way, for all partitions that are led there. What to ask and what to make of the answer is decided in `fetcher`.

Producers with acks -1 wait for replicas in sync, and must not wait for one that copies gigabytes. So partitions that are
behind what is committed have a loop and a connection of their own, which asks for little at a time. A partition that
falls behind goes there at once; one that has caught up comes back before the next request of the loop for those in sync.

When partitions come to a loop whose fetch waits at the leader, the connection is broken and the next fetch has them all:
otherwise the first record of a new topic, and every election, would wait for replica.fetch.wait.max.ms.

`AlterPartitionSender` sends what `alter_partition_manager` wants sent, and has the in-sync sets checked from time to time.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from barnabas.base.clock import CallLater, Clock, Timer
from barnabas.base.ids import TopicPartition
from barnabas.base.network import Network
from barnabas.base.slices import Sliced, Slices
from barnabas.broker.cluster.channels import BrokenConnectionError, ChannelError, Channels
from barnabas.broker.configuration.broker_config import BrokerConfig
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.replication.fetcher import TOPIC_IDS_VERSION, Fetcher, FetchLimits
from barnabas.broker.replication.log_alignment import EARLIEST, LATEST
from barnabas.broker.replication.partition import Partition
from barnabas.broker.replication.quotas import ReplicationQuota
from barnabas.broker.replication.replica_manager import LeadershipOutcome, ReplicaManager
from barnabas.log.group_sync import WhenDurable
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = ["AlterPartitionSender", "FetcherParts", "ReplicaFetcherManager"]

logger = logging.getLogger(__name__)

_FIRST_BACKOFF_S = 0.02
_LEAST_WAIT_MS = 5
_LOST_MS = 1000
_CATCH_UP_BYTES = 1 << 20
_INTERRUPT_EVERY_S = 0.05
_LIST_OFFSETS_VERSION = 7
_EPOCHS_VERSION = 4
_FIRST_PAUSE_MS = 20
_MAX_PAUSE_MS = 1000
_LEAST_CHECK_MS = 50
_LAG_MESSAGES_CHECK_MS = 1000


@dataclass(frozen=True, slots=True)
class FetcherParts:
    """What the loops that copy from leaders use."""

    broker_id: int
    broker_epoch: Callable[[], int]
    config: BrokerConfig
    clock: Clock
    call_later: CallLater
    network: Network
    listener: str
    """The topic_partition of the listener that brokers use among themselves."""
    metadata: MetadataCache
    when_durable: WhenDurable
    quota: ReplicationQuota
    truncate: Callable[[TopicPartition, int], None]
    """Truncates a log and records that on disk."""
    changed: Callable[[TopicPartition], None]
    """Wakes requests that wait for a partition."""


class ReplicaFetcherManager:
    """All that this broker copies."""

    def __init__(self, parts: FetcherParts) -> None:
        self._parts = parts
        config = parts.config
        self._limits = FetchLimits(
            partition_bytes=config["replica.fetch.max.bytes"],
            response_bytes=config["replica.fetch.response.max.bytes"],
            min_bytes=config["replica.fetch.min.bytes"],
            wait_ms=config["replica.fetch.wait.max.ms"],
            backoff_ms=config["replica.fetch.backoff.ms"],
        )
        timeout_ms = max(config["replica.socket.timeout.ms"], self._limits.wait_ms + 1000)
        self._channels = {
            for_in_sync: Channels(parts.broker_id, parts.network, request_timeout_ms=timeout_ms)
            for for_in_sync in (True, False)
        }
        self._lanes: dict[int, _Lanes] = {}
        self._sources: dict[TopicPartition, int] = {}
        self._closed = False

    def roles_changed(self, outcome: LeadershipOutcome) -> None:
        """Fetch for the followers, and stop where this broker leads or has no replica."""
        if self._closed:
            return
        for topic_partition in outcome.stopped:
            self._leave(topic_partition)
        for partition in outcome.gained:
            self._leave(partition.topic_partition)
        touched: dict[_ReplicaFetcherLoop, None] = {}  # in order: a simulated run must not depend on addresses
        for partition in outcome.following:
            topic_partition, source = partition.topic_partition, partition.leader_id
            if self._sources.get(topic_partition, source) != source:
                self._leave(topic_partition)
            if source < 0:
                self._leave(topic_partition)
                continue
            self._sources[topic_partition] = source
            lanes = self._lanes.get(source)
            if lanes is None:
                lanes = self._lanes[source] = _Lanes(partial(self._make_loop, source))
            touched[lanes.follow(partition)] = None
        for loop in touched:
            loop.interrupt()

    def _leave(self, topic_partition: TopicPartition) -> None:
        source = self._sources.pop(topic_partition, None)
        if source is not None:
            self._lanes[source].unfollow(topic_partition)

    def _make_loop(self, source: int, for_in_sync: bool, lanes: "_Lanes") -> "_ReplicaFetcherLoop":
        parts, limits = self._parts, self._limits
        if not for_in_sync:
            limits = replace(limits, response_bytes=min(limits.response_bytes, _CATCH_UP_BYTES))
        fetcher = Fetcher(parts.broker_id, limits, parts.truncate, parts.changed, parts.quota, for_in_sync=for_in_sync)
        return _ReplicaFetcherLoop(parts, source, self._channels[for_in_sync], fetcher, lanes.exchange)

    def brokers_changed(self, *_: object) -> None:
        """Connect to brokers where they are now."""
        if self._closed:
            return
        brokers = {
            broker.broker_id: (endpoint.host, endpoint.port)
            for broker in self._parts.metadata.alive_brokers()
            if (endpoint := broker.endpoint(self._parts.listener)) is not None
        }
        for channels in self._channels.values():
            channels.set_brokers(brokers)
        for lanes in self._lanes.values():
            for loop in lanes.loops:
                loop.retry()

    async def close(self) -> None:
        """Copy no more."""
        self._closed = True
        for lanes in self._lanes.values():
            for loop in lanes.loops:
                await loop.close()
        for channels in self._channels.values():
            channels.close()


class _Lanes:
    """The loop for what is in sync with one source, and, once there is any, the loop for what is behind."""

    def __init__(self, make: "Callable[[bool, _Lanes], _ReplicaFetcherLoop]") -> None:
        """``make(for_in_sync, lanes)`` makes a loop."""
        self._make = make
        self._in_sync = make(True, self)
        self._behind: _ReplicaFetcherLoop | None = None

    @property
    def loops(self) -> "list[_ReplicaFetcherLoop]":
        return [self._in_sync] if self._behind is None else [self._in_sync, self._behind]

    def follow(self, partition: Partition) -> "_ReplicaFetcherLoop":
        """Copy a partition; the first answer shows whether it is behind."""
        self.unfollow(partition.topic_partition)
        self._in_sync.fetcher.follow(partition)
        return self._in_sync

    def unfollow(self, topic_partition: TopicPartition) -> None:
        for loop in self.loops:
            loop.fetcher.unfollow(topic_partition)

    def exchange(self, loop: "_ReplicaFetcherLoop") -> None:
        """A loop is between two fetches: move what belongs to the other one."""
        in_sync, behind = self._in_sync, self._behind
        if loop is in_sync:
            fallen = in_sync.fetcher.leaving()
            if fallen and behind is None:
                behind = self._behind = self._make(False, self)
            if behind is None:
                return
            waits_for_news = len(behind.fetcher.leaving()) == len(behind.fetcher)
            for topic_partition in behind.fetcher.leaving():
                in_sync.fetcher.take_over(behind.fetcher, topic_partition)
            for topic_partition in fallen:
                behind.fetcher.take_over(in_sync.fetcher, topic_partition)
            if fallen:
                behind.add_work(interrupt=waits_for_news)
        elif loop.fetcher.leaving():
            in_sync.add_work(interrupt=False)


class _ReplicaFetcherLoop:
    """Fetches from one broker, again and again (Kafka's ReplicaFetcherThread)."""

    def __init__(
        self,
        parts: FetcherParts,
        source: int,
        channels: Channels,
        fetcher: Fetcher,
        exchange: "Callable[[_ReplicaFetcherLoop], None]",
    ) -> None:
        """``exchange`` is called between two fetches."""
        self._exchange = exchange
        self.fetcher = fetcher
        self._parts = parts
        self._source = source
        self._channels = channels
        self._loop = asyncio.get_running_loop()
        self._news = asyncio.Event()
        self._backoff_s = 0.0
        self._is_fetching = False
        self._was_interrupted = False
        self._is_unreachable = False
        self._last_interrupt_s = 0.0
        self._interrupt_timer: asyncio.TimerHandle | None = None
        self._task = self._loop.create_task(self._run())

    def add_work(self, *, interrupt: bool) -> None:
        """There is something new to ask for, now or with the next request."""
        if interrupt:
            self.interrupt()
        else:
            self._news.set()

    def interrupt(self) -> None:
        """There is something new to ask for, and it cannot wait for the answer that is under way."""
        self._news.set()
        if not self._is_fetching or self._interrupt_timer is not None:
            return
        wait_s = max(self._last_interrupt_s + _INTERRUPT_EVERY_S - self._loop.time(), 0)
        self._interrupt_timer = self._loop.call_later(wait_s, self._break)

    def _break(self) -> None:
        self._interrupt_timer = None
        if self._is_fetching:
            self._last_interrupt_s = self._loop.time()
            self._was_interrupted = True
            self._channels.drop(self._source)

    def retry(self) -> None:
        """The source may be reachable now."""
        if self._backoff_s:
            self._news.set()

    async def close(self) -> None:
        if self._interrupt_timer is not None:
            self._interrupt_timer.cancel()
        self._task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._task

    async def _run(self) -> None:
        fetcher, clock = self.fetcher, self._parts.clock
        while True:
            self._news.clear()
            self._exchange(self)
            due_ms = fetcher.wake(clock.monotonic_ms())
            try:
                if fetcher.offsets.is_wanted:
                    await self._locate()
                if fetcher.wants_fetch:
                    await self._fetch(due_ms)
                else:
                    await self._wait(None if due_ms is None else due_ms / 1000)
                self._backoff_s = 0.0
            except (ChannelError, KafkaError) as error:
                await self._failed(error)
            except Exception:
                logger.exception("Copying from broker %d failed and starts again", self._source)
                await self._failed(None)

    async def _failed(self, error: Exception | None) -> None:
        self.fetcher.failed()
        if self._was_interrupted:
            self._was_interrupted = False
            return
        if isinstance(error, BrokenConnectionError):
            self._source_is_lost()
        logger.log(
            logging.INFO if not self._backoff_s else logging.DEBUG,
            "Cannot copy from broker %d: %s",
            self._source,
            error,
        )
        most_s = max(self._parts.config["replica.fetch.backoff.ms"] / 1000, _FIRST_BACKOFF_S)
        self._backoff_s = min(max(2 * self._backoff_s, _FIRST_BACKOFF_S), most_s)
        await self._wait(self._backoff_s)

    def _source_is_lost(self) -> None:
        """Our source seems to be gone: let metadata say so, but not for long, in case only our connection failed."""
        if not self._is_unreachable:
            self._is_unreachable = True
            self._parts.metadata.doubt(self._source)
            self._parts.call_later(_LOST_MS, self._source_is_back)

    def _source_is_back(self) -> None:
        self._parts.metadata.trust(self._source)

    async def _wait(self, timeout_s: float | None) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(timeout_s):
                await self._news.wait()

    async def _fetch(self, due_ms: int | None) -> None:
        parts, fetcher = self._parts, self.fetcher
        version = await self._channels.version(self._source, ApiKey.FETCH)
        if self._is_unreachable:
            self._is_unreachable = False
            self._source_is_back()
        if version >= TOPIC_IDS_VERSION and not fetcher.has_topic_ids:
            version = TOPIC_IDS_VERSION - 1
        await self._sync()
        fetcher.speak(version)
        while fetcher.epochs.is_wanted:
            await self._align()
            fetcher.speak(version)
        if not fetcher.wants_fetch:
            return
        wait_ms = 1 << 30 if due_ms is None else max(due_ms, _LEAST_WAIT_MS)
        request = fetcher.request(version, parts.broker_epoch(), wait_ms)
        self._is_fetching = True
        self._was_interrupted = False
        try:
            response = await self._channels.send(self._source, request, version=version)
        finally:
            self._is_fetching = False
        clock = parts.clock
        if not fetcher.answered(response, version, clock.monotonic_ms(), clock.wall_ms()):
            logger.debug("Broker %d knows our fetch session no longer", self._source)

    async def _sync(self) -> None:
        """A fetch says that we have what is before its offsets: where that is a promise, have it on disk first."""
        while logs := self.fetcher.unsynced():
            waits = []
            for log in logs:
                synced = self._loop.create_future()
                self._parts.when_durable(log, log.log_end_offset, partial(_set, synced))
                waits.append(synced)
            for wait in waits:
                await wait

    async def _align(self) -> None:
        """Have logs agree with those of a source that cannot tell in its fetches where they part."""
        fetcher, clock = self.fetcher, self._parts.clock
        version = min(await self._channels.version(self._source, ApiKey.OFFSET_FOR_LEADER_EPOCH), _EPOCHS_VERSION)
        try:
            while fetcher.epochs.is_wanted:
                response = await self._channels.send(self._source, fetcher.epochs.request(), version=version)
                fetcher.epochs.answered(response, clock.monotonic_ms())
        except ChannelError:
            fetcher.epochs.failed(clock.monotonic_ms())
            raise

    async def _locate(self) -> None:
        fetcher, clock = self.fetcher, self._parts.clock
        version = min(await self._channels.version(self._source, ApiKey.LIST_OFFSETS), _LIST_OFFSETS_VERSION)
        try:
            for timestamp in (EARLIEST, LATEST):
                request = fetcher.offsets.request(timestamp)
                response = await self._channels.send(self._source, request, version=version)
                fetcher.offsets.answered(timestamp, response, clock.monotonic_ms())
        except ChannelError:
            fetcher.offsets.failed(clock.monotonic_ms())
            raise


def _set(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


class AlterPartitionSender:
    """Sends one AlterPartition at a time, again after a pause until the controller answers.

    It also has followers that lag looked for every half of replica.lag.time.max.ms (Kafka's task isr-expiration).
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
        slices: Slices,
    ) -> None:
        self._replicas = replicas
        self._slices = slices
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
        self._slices.start(self._shrink())

    def _shrink(self) -> Sliced[None]:
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
            is_done = self._replicas.isr_answered(response, version, self._clock.wall_ms())
        except (ChannelError, KafkaError) as error:
            logger.info("The controller could not be asked to change in-sync sets: %s", error)
            self._manager.failed()
        finally:
            self._is_sending = False
            self._pause_ms = 0 if is_done else min(max(2 * self._pause_ms, _FIRST_PAUSE_MS), _MAX_PAUSE_MS)
            if self._manager.waiting:
                self._call_later(self._pause_ms, self.changes_waiting)
