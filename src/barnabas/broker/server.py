"""A broker's life: start in order, serve, stop in order (Kafka's `KafkaServer`).

Start: a session with the coordination service, the cluster id, the log dirs (checked against it and
recovered), the listeners, then the registration and the first election. The broker is ready when
the controller's first UpdateMetadata has arrived. Stop: leave the cluster so that no partition is
left without a leader (controlled shutdown), close the listeners, sync the log dirs and mark them
clean, end the session. `barnabas.broker.assembly` makes the components.

`BrokerServer` runs on the loop that starts it, several of them on one loop if need be.
"""

import asyncio
import contextlib
import logging
import os
import socket
from collections.abc import Callable, Coroutine, Iterator, Mapping
from typing import Any

from barnabas.base.clock import Clock, SystemClock, Timer
from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.base.files import Files, OsFiles
from barnabas.base.network import Connection, FrameHandler, Listener, Network
from barnabas.base.processes import WorkerProcesses
from barnabas.base.randomness import Random, new_random
from barnabas.base.task_futures import result_of, runner_here
from barnabas.broker.apis.first_updates import TOPICS_WAIT_MS
from barnabas.broker.apis.releases import check_release
from barnabas.broker.assembly import BrokerComponents, Environment, connection_limits
from barnabas.broker.cluster.service import ensure_cluster_id, ensure_top_level_paths, generate_broker_id
from barnabas.broker.cluster.znodes import BrokerInfo, Endpoint
from barnabas.broker.configuration import definitions as broker_settings
from barnabas.broker.configuration.broker_config import BrokerConfig
from barnabas.broker.configuration.listener_security import ListenerSecurity, read_listener_security
from barnabas.broker.configuration.listeners import (
    ListenerAddress,
    advertised_listeners,
    inter_broker_listener,
    listeners,
    metrics_address,
)
from barnabas.broker.configuration.waiting_limits import waiting_limits
from barnabas.broker.membership.registration import stored_broker_id
from barnabas.broker.metadata.features import registered_features
from barnabas.broker.metadata.internal_topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, count_stored_partitions
from barnabas.broker.replication.selection import replica_selector
from barnabas.coordination.client import CoordinationClient
from barnabas.log.checkpoints import META_PROPERTIES, MetaProperties
from barnabas.log.dirs.log_dirs import LogDirs
from barnabas.log.settings import LogConfig, defaults_from_broker
from barnabas.net.descriptors import descriptor_limit, kept_log_files
from barnabas.net.sockets import SocketNetwork
from barnabas.net.ssl_contexts import client_context, server_context
from barnabas.net.tls_layer import TlsLayer
from barnabas.security.jaas import JAAS_FILE
from barnabas.security.needed_acls import NeededAcls
from barnabas.wire.jute.errors import KeeperError

__all__ = ["BrokerServer"]

logger = logging.getLogger(__name__)

_STOP_TIMEOUT_S = 5
_CLOSING_THREADS = 8
"""The executor may have fewer; a disk syncs many files in the time of one."""

_QUIET_MS = 2000
"""How long the start waits for the coordination service before it says so."""


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
        kafka_version: str | None = None,
        needed_acls: NeededAcls | None = None,
    ) -> None:
        """Raises `ConfigError` for settings that cannot be used.

        Clients get the API versions of the release ``kafka_version`` at most ("2.4", say);
        None for all that there are. With ``needed_acls`` an authorizer allows everything, and
        notes there what it allows.
        """
        settings = broker_settings.DEFINITIONS.parse(settings_texts)
        self._config = BrokerConfig(settings)
        self._addresses = listeners(settings)
        self._inter_broker_listener = inter_broker_listener(settings)
        self._metrics_address = metrics_address(settings)
        self._security = read_listener_security(settings, _read_jaas(settings[JAAS_FILE]))
        self._log_dir_paths = [_absolute(path) for path in broker_settings.log_dirs(settings)]
        connection_limits(settings, _first_address, descriptor_limit())
        replica_selector(settings["replica.selector.class"])
        self.broker_id: int = settings["broker.id"]
        """-1 until it is known, where the properties do not say it."""
        self._files = files or OsFiles()
        # Other processes see only the operating system's files.
        self._workers = None if files else WorkerProcesses()
        self._clock = clock or SystemClock()
        self._rng = rng or new_random()
        self._kafka_version = kafka_version
        self._needed_acls = needed_acls
        if kafka_version is not None:
            check_release(kafka_version)
        self._waiting = waiting_limits(settings)
        self._network = network or SocketNetwork(
            limits=self._waiting,
            send_buffer_bytes=settings["socket.send.buffer.bytes"],
            receive_buffer_bytes=settings["socket.receive.buffer.bytes"],
        )
        self._listening = {
            address.name: _listening_network(self._network, self._security[address.name]) for address in self._addresses
        }
        stores = self._security[self._inter_broker_listener].stores
        context = None if stores is None else client_context(stores)
        self._broker_network: Network = self._network if context is None else TlsLayer(self._network, client=context)
        # Followers take large responses: the system lets the buffers of these connections grow
        # as far as they are of use.
        fetching = network or SocketNetwork()
        self._fetch_network: Network = fetching if context is None else TlsLayer(fetching, client=context)
        self._coordination: CoordinationClient | None = None
        self._log_dirs: LogDirs | None = None
        self._components: BrokerComponents | None = None
        self._open: list[tuple[ListenerAddress, Listener]] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._blocking: set[asyncio.Future[None]] = set()
        self._is_started = False
        self._is_loaded = False
        self._closing = False
        self._takes_work = True
        self.failed: asyncio.Event = asyncio.Event()
        """Set when the broker must stop, because no log dir is online."""

    @property
    def has_components(self) -> bool:
        """Whether the components are made."""
        return self._components is not None

    @property
    def components(self) -> BrokerComponents:
        """The components of a broker that is started. Raises RuntimeError before they are made."""
        if self._components is None:
            raise RuntimeError("the broker is not started")
        return self._components

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
        """Return when clients can work.

        Raises `BarnabasError` (also `ConfigError`); what was started is closed then."""
        try:
            await self._start()
        except BaseException:
            await self.close()
            raise

    async def _start(self) -> None:
        logger.info("starting")  # as Kafka's: what follows may be warnings
        self._report_settings()
        coordination = await self._join_coordination()
        cluster_id = await self._join_cluster_id(coordination)
        if self.broker_id < 0:
            self.broker_id = await self._find_broker_id(coordination)
        components = self._make_components(coordination, cluster_id)
        components.subscribe()
        await components.config_manager.load()
        await components.feature_listener.load()
        components.configure_authorizer()
        if components.acls is not None:
            await components.acls.load()
        components.configure_throttles()
        loading = components.log_dirs.load_in_slices(self._clock.wall_ms(), components.configs.log_config)
        await result_of(components.runner, loading)  # the session goes on meanwhile
        self._is_loaded = True
        await self._open_metrics(components)  # now the page shows what there is
        components.metadata.expect({stored.topic for _, stored, _ in components.log_dirs.stored()})
        await self._listen(components)
        count = components.interpreter.perform
        components.groups.start(await count(count_stored_partitions(OFFSETS_TOPIC)))
        components.transactions.start(await count(count_stored_partitions(TRANSACTIONS_TOPIC)))
        await components.controller.start()
        await components.lifecycle.await_metadata(self._inter_broker_listener)
        components.environment.call_later(TOPICS_WAIT_MS, components.first_updates.stop_waiting)
        components.storage.start()
        components.alter_partition_sender.start()
        self._is_started = True
        logger.info("[KafkaServer id=%d] started", self.broker_id)

    def _report_settings(self) -> None:
        for name, reason in broker_settings.settings_without_effect(self._config.values).items():
            logger.warning("Configuration %s has no effect: %s", name, reason)
        secured = [name for name, security in self._security.items() if security.stores or security.sasl]
        if secured and not self._config["authorizer.class.name"]:
            logger.warning(
                "There is no authorizer: on the listener(s) %s every client that may connect may do everything",
                ", ".join(secured),
            )

    async def _join_coordination(self) -> CoordinationClient:
        """Open a session with the coordination service."""
        address = self._config["zookeeper.connect"]
        session_timeout_ms = self._config["zookeeper.session.timeout.ms"]
        coordination = self._coordination = CoordinationClient(
            self._network, address, rng=self._rng, session_timeout_ms=session_timeout_ms
        )
        timeout_ms = self._config["zookeeper.connection.timeout.ms"] or session_timeout_ms
        first_ms = min(_QUIET_MS, timeout_ms)
        try:
            try:
                await coordination.start(first_ms)
            except KeeperError:
                if timeout_ms == first_ms:
                    raise
                logger.warning(
                    "Waiting for a coordination server at zookeeper.connect=%s, up to %d ms in all", address, timeout_ms
                )
                await coordination.wait_connected(timeout_ms - first_ms)
        except KeeperError as error:
            raise BarnabasError(
                f"No coordination server at zookeeper.connect={address} could be reached within {timeout_ms} ms. "
                "Is it running?"
            ) from error
        return coordination

    async def _join_cluster_id(self, coordination: CoordinationClient) -> str:
        """Make the permanent znodes where they are missing; the id of the cluster."""
        await coordination.ensure_chroot()
        await ensure_top_level_paths(coordination)
        cluster_id = await ensure_cluster_id(coordination, self._rng)
        logger.info("Cluster ID = %s", cluster_id)
        return cluster_id

    async def _find_broker_id(self, coordination: CoordinationClient) -> int:
        """The id in meta.properties, or a generated one."""
        found: set[int] = set()
        for path in self._log_dir_paths:
            with contextlib.suppress(OSError):  # LogDirs reports a dir that cannot be read
                properties = MetaProperties.read(self._files, f"{path}/{META_PROPERTIES}")
                if properties is not None and properties.broker_id >= 0:
                    found.add(properties.broker_id)
        stored = stored_broker_id(found, may_generate=self._config["broker.id.generation.enable"])
        if stored is not None:
            return stored
        return await generate_broker_id(coordination, self._config["reserved.broker.max.id"])

    def _make_components(self, coordination: CoordinationClient, cluster_id: str) -> BrokerComponents:
        """Take the log dirs, and make all that works with them."""
        loop = asyncio.get_running_loop()
        settings = self._config.values
        log_dirs = self._log_dirs = LogDirs(
            self._files,
            self._log_dir_paths,
            LogConfig({}, defaults_from_broker(settings.texts)),
            broker_id=self.broker_id,
            cluster_id=cluster_id,
            rng=self._rng,
            producer_expiration_ms=settings["producer.id.expiration.ms"],
            max_open_files=kept_log_files(descriptor_limit()),
        )
        components = self._components = BrokerComponents(
            Environment(
                broker_id=self.broker_id,
                cluster_id=cluster_id,
                config=self._config,
                inter_broker_listener=self._inter_broker_listener,
                security=self._security,
                broker_info=self._broker_info,
                is_closing=lambda: self._closing,
                shut_down=self.failed.set,
                clock=self._clock,
                rng=self._rng,
                files=self._files,
                network=self._broker_network,
                fetch_network=self._fetch_network,
                waiting=self._waiting,
                coordination=coordination,
                log_dirs=log_dirs,
                resolve=_first_address,
                descriptor_limit=descriptor_limit(),
                kafka_version=self._kafka_version,
                call_later=lambda delay_ms, callback: _timer(loop, delay_ms, callback),
                spawn=self._spawn,
                in_thread=self._in_thread,
                start_worker=None if self._workers is None else self._workers.start,
                needed_acls=self._needed_acls,
            )
        )
        return components

    def _broker_info(self) -> BrokerInfo:
        """The registration of this broker, once its listeners are open."""
        settings = self._config.values
        advertised = advertised_listeners(settings, self.listeners, socket.getfqdn)
        endpoints = tuple(Endpoint(end.host, end.port, end.name, end.protocol) for end in advertised)
        return BrokerInfo(self.broker_id, endpoints, settings["broker.rack"], features=registered_features())

    async def _listen(self, components: BrokerComponents) -> None:
        max_frame_bytes = self._config["socket.request.max.bytes"]
        for address in self._addresses:
            try:
                listener = await self._listening[address.name].listen(
                    address.host, address.port, _accept(components, address.name), max_frame_bytes=max_frame_bytes
                )
            except OSError as error:
                raise BarnabasError(
                    f"listeners: {address} cannot be opened: {error.strerror or error}. "
                    "Is another program using the port?"
                ) from error
            bound = ListenerAddress(address.name, address.protocol, address.host, listener.port)
            self._open.append((bound, listener))

    async def _open_metrics(self, components: BrokerComponents) -> None:
        if self._metrics_address is None:
            return
        try:
            await components.metrics.start(*self._metrics_address)
        except OSError as error:
            raise BarnabasError(
                f"metrics.http.address: {self._config['metrics.http.address']} cannot be opened: "
                f"{error.strerror or error}. Is another program using the port?"
            ) from error

    # Running

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        if not self._takes_work:
            work.close()
            return
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _in_thread(self, work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        """Run ``work`` beside the loop, ``done`` on it afterwards.

        The broker's stop waits for both."""
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

    # Stopping

    async def close(self) -> None:
        """Stop in order; nothing of the broker is left on the loop."""
        if not self._closing:
            await self._stop(in_order=True)

    async def abandon(self) -> None:
        """Stop as a killed process does, in so far as one process can: nothing is handed
        over, synced or marked clean."""
        if not self._closing:
            await self._stop(in_order=False)

    async def _stop(self, *, in_order: bool) -> None:
        """Stop what was started.

        ``in_order`` hands leaders over, syncs the logs and marks them as clean."""
        self._closing = True
        components = self._components
        hands_over = in_order and self._is_started
        if hands_over:
            logger.info("[KafkaServer id=%d] shutting down", self.broker_id)
            await self.components.lifecycle.leave()
        self._takes_work = False
        for _, listener in self._open:
            await listener.close()
        if components is not None:
            await components.metrics.close()
            for connection in tuple(components.dispatcher.connections):
                connection.close()
            components.close_logs()
            components.storage.stop()
            if self._workers is not None:
                self._workers.close()
            components.runner.stop()
            components.alter_partition_sender.stop()
            await components.death_watch.close()
            await components.fetchers.close()
            components.groups.stop()
            components.transactions.stop()
            await components.controller.close()
            components.channels.close()
            components.marker_channels.close()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, *self._blocking, return_exceptions=True)
        if self._log_dirs is not None:
            await self._close_log_dirs(self._log_dirs, in_order and self._is_loaded)
        if self._coordination is not None:
            with contextlib.suppress(KeeperError, TimeoutError):
                async with asyncio.timeout(_STOP_TIMEOUT_S):
                    await self._coordination.close()
        if hands_over:
            logger.info("[KafkaServer id=%d] shut down completed", self.broker_id)

    async def _close_log_dirs(self, log_dirs: LogDirs, clean: bool) -> None:
        """Sync the logs, many at once: with thousands of small files, that is what
        takes the time of a stop."""
        runner = runner_here(self._clock)  # that of the components has stopped
        errors: list[BaseException | None] | None = None
        if clean:
            works = await result_of(runner, log_dirs.prepare_close())
            errors = [None] * len(works)
            rest = iter(enumerate(works))
            loop = asyncio.get_running_loop()
            await asyncio.gather(*(loop.run_in_executor(None, _run_all, rest, errors) for _ in range(_CLOSING_THREADS)))
        broker_epoch = -1 if self._components is None else self._components.broker_epoch
        await result_of(runner, log_dirs.close_in_slices(clean, broker_epoch, errors=errors))


def _run_all(works: Iterator[tuple[int, Callable[[], None]]], errors: list[BaseException | None]) -> None:
    """Run works from an iterator that several threads share.

    What the n-th raises becomes the n-th error."""
    # Threads share this iterator: no other thread interrupts a step of a list's enumeration.
    for number, work in works:
        try:
            work()
        except Exception as error:
            errors[number] = error


def _accept(components: BrokerComponents, name: str) -> Callable[[Connection], FrameHandler]:
    return lambda connection: components.accept(name, connection)


def _listening_network(network: Network, security: ListenerSecurity) -> Network:
    """The network of a listener. Raises `ConfigError`."""
    return network if security.stores is None else TlsLayer(network, server=server_context(security.stores))


def _read_jaas(path: str | None) -> str | None:
    """The text of the JAAS file, if there is one. Raises `ConfigError`."""
    if not path:
        return None
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or "it is not UTF-8"
        raise ConfigError(f"{JAAS_FILE}: {path} cannot be read: {reason}") from None


def _timer(loop: asyncio.AbstractEventLoop, delay_ms: int, callback: Callable[[], object]) -> Timer:
    return loop.call_later(delay_ms / 1000, callback)


def _first_address(host: str) -> str:
    """Like InetAddress.getByName."""
    return str(socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)[0][4][0])


def _absolute(path: str) -> str:
    return os.path.abspath(path)
