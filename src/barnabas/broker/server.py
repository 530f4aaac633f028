"""A broker's life: start in order, serve, stop in order.

Start: a session with the coordination service, the cluster id, the log dirs (checked against it and recovered), the
listeners, then the registration and the first election. The broker is ready when the controller's first UpdateMetadata
has arrived. Stop: leave the cluster so that no leader is missed (controlled shutdown), close the listeners, sync and mark
the log dirs clean, end the session.

`BrokerServer` runs on the loop that starts it, several of them on one loop if need be.
"""

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Callable, Coroutine, Mapping
from enum import IntEnum
from typing import Any

from barnabas.base.clock import Clock, SystemClock, Timer
from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.base.files import Files, OsFiles
from barnabas.base.network import Connection, Listener, Network
from barnabas.base.randomness import Random, new_random
from barnabas.base.settings import Values
from barnabas.broker.apis import load_handlers
from barnabas.broker.apis.api_versions import advertised
from barnabas.broker.cluster.channels import Channels
from barnabas.broker.cluster.znodes import (
    BROKER_SEQUENCE,
    LOG_DIR_EVENTS,
    BrokerInfo,
    Endpoint,
    decode_topic,
    encode_log_dir_event,
    topic_path,
)
from barnabas.broker.configuration import definitions as broker_settings
from barnabas.broker.configuration.definitions import ListenerAddress
from barnabas.broker.configuration.service import Configs
from barnabas.broker.controller.service import Controller, ControllerSettings
from barnabas.broker.groups.service import OFFSETS_TOPIC, GroupService
from barnabas.broker.membership.controlled_shutdown import leave_cluster
from barnabas.broker.membership.death_watch import DeathWatch
from barnabas.broker.membership.joining import Joining
from barnabas.broker.membership.registration import ensure_cluster_id, ensure_top_level_paths
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.replication.alter_partition_manager import IsrReports
from barnabas.broker.replication.delayed_fetch import Fetches
from barnabas.broker.replication.fetch_sessions import FetchSessions
from barnabas.broker.replication.quotas import ReplicationQuotas
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.replication.selection import PreferredReadReplica, replica_selector
from barnabas.broker.replication.service import ReplicaFetchers
from barnabas.broker.requests.dispatch import ClientConnection, Dispatcher
from barnabas.broker.requests.purgatory import Parked
from barnabas.broker.requests.request import Node
from barnabas.broker.storage.replica_alter_log_dirs import LogDirMoves
from barnabas.broker.storage.service import Upkeep
from barnabas.broker.topics.service import Topics
from barnabas.broker.transactions.producer_ids import ProducerIds
from barnabas.coordination.client import CoordinationClient
from barnabas.coordination.client.operations import create
from barnabas.log.checkpoints import META_PROPERTIES, MetaProperties
from barnabas.log.dirs.log_dirs import LogDirs
from barnabas.log.group_sync import Syncs
from barnabas.log.settings import LogConfig
from barnabas.net.sockets import SocketNetwork
from barnabas.wire.jute.errors import ErrorCode as KeeperCode
from barnabas.wire.jute.errors import KeeperError
from barnabas.wire.jute.opcodes import CreateMode

__all__ = ["BrokerServer"]

logger = logging.getLogger(__name__)

_STOP_TIMEOUT_S = 5
_TELL_PAUSE_S = 1


class _Stage(IntEnum):
    """How far a start has come, and thus what a stop has to stop."""

    NOTHING = 0
    COORDINATION = 1
    LOG_DIRS = 2
    PARTS = 3
    """All that `_make_parts` makes."""
    CONTROLLER = 4
    ALL = 5


class BrokerServer:
    """One broker, from its properties."""

    def __init__(
        self,
        settings_texts: Mapping[str, str],
        *,
        files: Files | None = None,
        clock: Clock | None = None,
        rng: Random | None = None,
        network: Network | None = None,
    ) -> None:
        """Raises `ConfigError` for settings that cannot be used."""
        node = self.node = Node()
        node.settings = broker_settings.DEFINITIONS.parse(settings_texts)
        node.files = files or OsFiles()
        node.clock = clock or SystemClock()
        node.rng = rng or new_random()
        node.rack = node.settings["broker.rack"]
        self._replica_selector = replica_selector(node.settings["replica.selector.class"])
        node.broker_id = node.settings["broker.id"]
        node.connection_caps = broker_settings.connection_caps(node.settings)
        self._network = network or SocketNetwork(
            send_buffer_bytes=node.settings["socket.send.buffer.bytes"],
            receive_buffer_bytes=node.settings["socket.receive.buffer.bytes"],
        )
        # Followers take large answers: the system lets their buffers grow as far as they are of use.
        self._fetch_network = network or SocketNetwork()
        self._addresses = broker_settings.listeners(node.settings)
        self._inter_broker_listener = broker_settings.inter_broker_listener(node.settings)
        self._log_dir_paths = [_absolute(path) for path in broker_settings.log_dirs(node.settings)]
        self._open: list[tuple[ListenerAddress, Listener]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._blocking: set[asyncio.Future[None]] = set()
        self._reached = _Stage.NOTHING
        self._closing = False
        self._takes_work = True
        self.failed: asyncio.Event = asyncio.Event()
        """Set when the broker cannot go on: no log dir is left."""

    @property
    def port(self) -> int:
        """The first listener's port."""
        return self._open[0][0].port

    @property
    def listeners(self) -> list[ListenerAddress]:
        """The open listeners, with their real ports."""
        return [address for address, _ in self._open]

    # Starting

    async def start(self) -> None:
        """Return when clients can work. Raises `BarnabasError` (also `ConfigError`); what was started is closed then."""
        loop = asyncio.get_running_loop()
        self.node.spawn = self._spawn
        self.node.call_later = lambda delay_ms, callback: _timer(loop, delay_ms, callback)
        try:
            await self._start()
        except BaseException:
            await self._stop(clean=False)
            raise

    async def _start(self) -> None:
        self._report_settings()
        await self._join_coordination()
        await self._make_parts()
        self.node.log_dirs.load(self.node.clock.wall_ms(), self.node.configs.log_config)
        await self._listen()
        await self._join_cluster()
        self._upkeep.start()
        self._isr_reports.start()
        self._reached = _Stage.ALL
        logger.info("[KafkaServer id=%d] started", self.node.broker_id)

    def _report_settings(self) -> None:
        for name, reason in broker_settings.ineffective(self.node.settings).items():
            logger.warning("Configuration %s has no effect: %s", name, reason)

    async def _join_coordination(self) -> None:
        """Have a session, the permanent znodes, the cluster id and a broker id."""
        node = self.node
        settings = node.settings
        address = settings["zookeeper.connect"]
        session_timeout_ms = settings["zookeeper.session.timeout.ms"]
        node.coordination = CoordinationClient(
            self._network, address, rng=node.rng, session_timeout_ms=session_timeout_ms
        )
        self._reached = _Stage.COORDINATION
        timeout_ms = settings["zookeeper.connection.timeout.ms"] or session_timeout_ms
        try:
            await node.coordination.start(timeout_ms)
        except KeeperError as error:
            raise BarnabasError(
                f"No coordination server at zookeeper.connect={address} could be reached within {timeout_ms} ms. "
                "Is it running?"
            ) from error
        await node.coordination.ensure_chroot()
        await ensure_top_level_paths(node.coordination)
        node.cluster_id = await ensure_cluster_id(node.coordination, node.rng)
        logger.info("Cluster ID = %s", node.cluster_id)
        if node.broker_id < 0:
            node.broker_id = await self._find_broker_id()

    async def _find_broker_id(self) -> int:
        """The id in meta.properties, or a generated one."""
        node = self.node
        found: set[int] = set()
        for path in self._log_dir_paths:
            with contextlib.suppress(OSError):  # a dir that cannot be read is done without
                properties = MetaProperties.read(node.files, f"{path}/{META_PROPERTIES}")
                if properties is not None and properties.broker_id >= 0:
                    found.add(properties.broker_id)
        if len(found) > 1:
            raise BarnabasError(
                f"The log dirs belong to several brokers ({sorted(found)}): set broker.id to the right one"
            )
        if found:
            return found.pop()
        if not node.settings["broker.id.generation.enable"]:
            raise ConfigError("broker.id is not set, and broker.id.generation.enable is false")
        stat = await node.coordination.set_data(BROKER_SEQUENCE, b"")
        return int(stat.version) + int(node.settings["reserved.broker.max.id"])

    async def _make_parts(self) -> None:
        node = self.node
        settings = node.settings
        node.parked = Parked(node.call_later)
        node.metadata = MetadataCache(node.cluster_id)
        node.configs = Configs(node)
        node.log_dirs = LogDirs(
            node.files,
            self._log_dir_paths,
            LogConfig({}, node.configs.topic_defaults),
            broker_id=node.broker_id,
            cluster_id=node.cluster_id,
            rng=node.rng,
            on_offline=self._log_dir_lost,
            producer_expiration_ms=settings["producer.id.expiration.ms"],
        )
        self._reached = _Stage.LOG_DIRS
        syncs = Syncs(node.clock, self._in_thread, lambda log: node.replicas.synced(log, node.clock.wall_ms()))
        node.replicas = ReplicaManager(
            node.broker_id,
            node.log_dirs,
            node.parked,
            log_config=node.configs.log_config,
            is_known=lambda name: node.metadata.partition(name) is not None,
            lag_time_max_ms=settings["replica.lag.time.max.ms"],
            lag_max_messages=settings["replica.lag.max.messages"],
            is_alive=lambda broker_id: node.metadata.alive_broker(broker_id) is not None,
            sync=syncs.request,
        )
        node.configs.on_topic(node.replicas.configure)
        node.configs.on_settings(self._settings_changed)
        await node.configs.load()
        self._make_quotas()
        node.channels = Channels(node.broker_id, self._network, request_timeout_ms=settings["request.timeout.ms"])
        node.producer_ids = ProducerIds(node)
        node.fetch_sessions = FetchSessions(
            settings["max.incremental.fetch.session.cache.slots"], node.rng, node.parked
        )
        node.fetches = Fetches(
            node.replicas,
            node.parked,
            node.clock,
            node.replication_quotas.leader,
            node.metadata.topic_name,
            None
            if self._replica_selector is None
            else PreferredReadReplica(node.broker_id, node.rack, self._replica_selector, node.metadata.alive_broker),
        )
        node.groups = GroupService(node)
        self._dispatcher = Dispatcher(node, load_handlers())
        node.api_versions = advertised(self._dispatcher.handlers)
        node.channels.call_self = self._dispatcher.call
        self._fetchers = ReplicaFetchers(node, self._fetch_network, self._inter_broker_listener, syncs)
        self._isr_reports = IsrReports(node)
        self._death_watch = DeathWatch(node, self._network, self._inter_broker_listener)
        node.moves = LogDirMoves(node, self._in_thread, syncs)
        self._upkeep = Upkeep(node, self._dispatcher, self._in_thread, syncs)
        self._reached = _Stage.PARTS

    def _make_quotas(self) -> None:
        """Replication throttles, kept to the configuration of the broker and of its topics."""
        node = self.node
        quotas = node.replication_quotas = ReplicationQuotas(
            node.broker_id,
            windows=node.settings["replication.quota.window.num"],
            window_ms=node.settings["replication.quota.window.size.seconds"] * 1000,
        )

        def configure(topic: str, config: LogConfig) -> None:
            values = config.values
            quotas.configure_topic(
                topic,
                values["leader.replication.throttled.replicas"],
                values["follower.replication.throttled.replicas"],
            )

        quotas.configure_broker(node.settings)
        for topic in node.configs.known_topics():
            configure(topic, node.configs.log_config(topic))
        node.configs.on_topic(configure)
        node.configs.on_settings(quotas.configure_broker)

    async def _listen(self) -> None:
        max_frame_bytes = self.node.settings["socket.request.max.bytes"]
        for address in self._addresses:
            try:
                listener = await self._network.listen(
                    address.host, address.port, self._accept(address.name), max_frame_bytes=max_frame_bytes
                )
            except OSError as error:
                raise BarnabasError(
                    f"listeners: {address} cannot be opened: {error.strerror or error}. "
                    "Is another program using the port?"
                ) from error
            bound = ListenerAddress(address.name, address.protocol, address.host, listener.port)
            self._open.append((bound, listener))

    def _accept(self, name: str) -> Callable[[Connection], ClientConnection]:
        return lambda connection: self._dispatcher.accept(name, connection)

    async def _join_cluster(self) -> None:
        """Register, take part in the election, and wait for the controller's first news."""
        node = self.node
        told = broker_settings.advertised_listeners(node.settings, self.listeners, socket.getfqdn)
        info = BrokerInfo(
            node.broker_id, tuple(Endpoint(end.host, end.port, end.name, end.protocol) for end in told), node.rack
        )
        joining = Joining(node, info, is_closing=lambda: self._closing)
        node.controller = Controller(
            node.broker_id,
            node.coordination,
            node.channels,
            joining.register,
            clock=node.clock,
            rng=node.rng,
            settings=self._controller_settings,
        )
        self._reached = _Stage.CONTROLLER
        node.metadata.on_update(self._follow_brokers)
        node.topics = Topics(node)
        node.groups.start(await self._count_offsets_partitions())
        await node.controller.start()
        await joining.first_news(self._inter_broker_listener)

    def _follow_brokers(self, *_: Any) -> None:
        """Know where the other brokers are; the controller, who knows it first, tells its channels itself."""
        node = self.node
        if node.controller.controller_id != node.broker_id:
            node.channels.set_brokers(
                {
                    broker.broker_id: (endpoint.host, endpoint.port)
                    for broker in node.metadata.alive_brokers()
                    if (endpoint := broker.endpoint(self._inter_broker_listener)) is not None
                }
            )

    async def _count_offsets_partitions(self) -> int:
        """How many partitions the offsets topic has; 0 when there is none yet."""
        try:
            data, _ = await self.node.coordination.get(topic_path(OFFSETS_TOPIC))
        except KeeperError as error:
            if error.code is KeeperCode.NO_NODE:
                return 0
            raise
        return len(decode_topic(OFFSETS_TOPIC, data).partitions)

    def _controller_settings(self) -> ControllerSettings:
        settings = self.node.settings
        return ControllerSettings(
            inter_broker_listener=self._inter_broker_listener,
            delete_topic_enabled=settings["delete.topic.enable"],
            unclean_leader_election=settings["unclean.leader.election.enable"],
            auto_leader_rebalance=settings["auto.leader.rebalance.enable"],
            imbalance_check_interval_s=settings["leader.imbalance.check.interval.seconds"],
            imbalance_percent=settings["leader.imbalance.per.broker.percentage"],
        )

    # Running

    def _settings_changed(self, changed: Values) -> None:
        self.node.connection_caps = broker_settings.connection_caps(changed)

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        if not self._takes_work:
            work.close()
            return
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _in_thread(self, work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        """Run ``work`` beside the loop, ``done`` on it afterwards; the broker's stop waits for both."""
        running = asyncio.get_running_loop().run_in_executor(None, work)
        self._blocking.add(running)

        def finished(future: asyncio.Future[None]) -> None:
            self._blocking.discard(future)
            if not future.cancelled():
                done(future.exception())

        running.add_done_callback(finished)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("Background work failed", exc_info=error)

    def _log_dir_lost(self, path: str, reason: str) -> None:
        node = self.node
        if node.log_dirs.online:
            # Not at once: a request may be in the middle of finding it out.
            node.call_later(0, self._give_up_offline_replicas)
        else:
            logger.error("Shutting down: the last log dir, %s, failed: %s", path, reason)
            self.failed.set()

    def _give_up_offline_replicas(self) -> None:
        node = self.node
        node.replicas.announce(node.replicas.lose_offline())
        if node.broker_epoch >= 0:  # if not yet, the controller will hear it in the answer to its first LeaderAndIsr
            self._spawn(self._tell_of_lost_log_dir())

    async def _tell_of_lost_log_dir(self) -> None:
        """Let the controller know that some of our replicas are gone."""
        node = self.node
        data = encode_log_dir_event(node.broker_id)
        path = f"{LOG_DIR_EVENTS}/log_dir_event_"
        while True:
            try:
                # Told twice it does no harm.
                await node.coordination.run(create(path, data, CreateMode.PERSISTENT_SEQUENTIAL), retry=True)
                return
            except KeeperError as error:
                logger.warning("The controller could not be told of the lost log dir, which is tried again: %s", error)
                await asyncio.sleep(_TELL_PAUSE_S)

    # Stopping

    async def close(self) -> None:
        """Stop in order; nothing of the broker is left on the loop."""
        if not self._closing:
            await self._stop(clean=self._reached is _Stage.ALL)

    async def _stop(self, *, clean: bool) -> None:
        self._closing = True
        node = self.node
        if clean:
            logger.info("[KafkaServer id=%d] shutting down", node.broker_id)
            await leave_cluster(node)
        self._takes_work = False
        for _, listener in self._open:
            await listener.close()
        if self._reached >= _Stage.PARTS:
            for connection in tuple(self._dispatcher.connections):
                connection.close()
            self._upkeep.stop()
            node.moves.stop()
            await self._death_watch.close()
            await self._fetchers.close()
            node.groups.stop()
        if self._reached >= _Stage.CONTROLLER:
            await node.controller.close()
        if self._reached >= _Stage.PARTS:
            node.channels.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, *self._blocking, return_exceptions=True)
        if self._reached >= _Stage.LOG_DIRS:
            await self._close_log_dirs(clean)
        if self._reached >= _Stage.COORDINATION:
            with contextlib.suppress(KeeperError, TimeoutError):
                async with asyncio.timeout(_STOP_TIMEOUT_S):
                    await node.coordination.close()
        if clean:
            logger.info("[KafkaServer id=%d] shut down completed", node.broker_id)

    async def _close_log_dirs(self, clean: bool) -> None:
        """Sync the logs, many at once: of thousands of small files that is what takes the time of a stop."""
        log_dirs = self.node.log_dirs
        errors = None
        if clean:
            loop = asyncio.get_running_loop()
            works = log_dirs.prepare_close()
            errors = await asyncio.gather(*(loop.run_in_executor(None, work) for work in works), return_exceptions=True)
        log_dirs.close(clean, self.node.broker_epoch, errors=errors)


def _timer(loop: asyncio.AbstractEventLoop, delay_ms: int, callback: Callable[[], object]) -> Timer:
    return loop.call_later(delay_ms / 1000, callback)


def _absolute(path: str) -> str:
    return os.path.abspath(path)
