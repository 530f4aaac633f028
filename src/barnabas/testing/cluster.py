"""A cluster inside the caller's process: coordination servers and brokers, each on an event loop
and a thread of its own.

They are the servers that processes run, over real sockets on the loopback and real files in a
temporary folder, so every client works with them as with any cluster. All ports are free ones. Each
server's network, files and clock can be given faults (`barnabas.testing.faults`).
"""

import asyncio
import contextlib
import errno
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping
from concurrent.futures import Future, wait
from pathlib import Path
from typing import Any, Self, Unpack

from barnabas.base.errors import BarnabasError
from barnabas.base.private_files import make_private_dirs
from barnabas.base.settings import list_text
from barnabas.broker.apis.releases import check_release
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.metadata.features import checked_levels
from barnabas.broker.server import BrokerServer
from barnabas.client.admin.acls import Acl
from barnabas.client.admin.groups import prepare_groups
from barnabas.client.admin.topics import create_topic
from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.coordination.server.server import CoordinationServer
from barnabas.coordination.server.settings import parse_settings
from barnabas.security.needed_acls import NeededAcls
from barnabas.testing.coordinator_kills import CoordinatorKill, CoordinatorKills, Outcome, killer
from barnabas.testing.faults import ServerFaults
from barnabas.testing.registry import ClusterRegistry, registry_properties
from barnabas.testing.rest import ClusterRest, rest_properties
from barnabas.testing.security import Access, ClusterSecurity, suggestions
from barnabas.testing.server_names import zookeeper_name
from barnabas.testing.server_thread import ServerThread

__all__ = ["Cluster"]

_HOST = "127.0.0.1"
_SPREAD_S = 30.0
"""How long news may take to reach every broker: longer only where a fault keeps it from one."""
_POLL_S = 0.002
_BROKER_DEFAULTS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "5",
    "transaction.state.log.num.partitions": "5",
    # All brokers stop together, the controller among them: waiting for another one is in vain.
    "controlled.shutdown.retry.backoff.ms": "20",
}


class _Server:
    """One server that runs: its thread, its faults, and what serves."""

    def __init__(self, name: str, faults: ServerFaults) -> None:
        self.name = name
        self.thread = ServerThread(f"barnabas-{name}")
        self.faults = faults
        self.serves: BrokerServer | CoordinationServer | None = None
        self.starting: Future[None] | None = None
        self.watching: asyncio.Task[None] | None = None


class Cluster:
    """Brokers 0 to N-1 and their coordination server, or an ensemble of ``zk_servers``.

    A context manager. ``settings`` are properties for every broker, ``data_dir`` keeps the data
    beyond the cluster's life, ``racks`` spreads the brokers over as many racks; with
    ``kafka_version`` ("2.1" to "3.9") clients find the API versions of that release of Kafka, and
    no newer ones. With ``security`` (SSL, SASL_PLAINTEXT or SASL_SSL) clients connect with what
    `client_properties` says; ``users`` are the passwords of those who may, by name. With ``acls``,
    of `Acl` or of texts with kafka-acls's options, users may do what these allow. ``record_acls``
    allows everything, and `suggested_acls` has what was needed. A new cluster
    finalizes ``features``, levels by name, such as ``{"transaction.version": 2}``. With
    ``registry`` there is a schema registry (`registry`), with ``rest`` a REST proxy (`rest`).
    Methods may be called from any thread; they return when the thing is done.

    Faults name a server by its broker id, or as "zookeeper" ("zookeeper1" and so on
    in an ensemble).
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        settings: Mapping[str, str] | None = None,
        data_dir: str | Path | None = None,
        racks: int = 0,
        zk_servers: int = 1,
        kafka_version: str | None = None,
        features: Mapping[str, int] | None = None,
        registry: bool = False,
        rest: bool = False,
        **access: Unpack[Access],
    ) -> None:
        if brokers < 1:
            raise BarnabasError(f"a cluster of {brokers} brokers: at least one is needed")
        if zk_servers < 1:
            raise BarnabasError(f"a cluster of {zk_servers} coordination servers: at least one is needed")
        if kafka_version is not None:
            check_release(kafka_version)
        self._security = ClusterSecurity.of(**access)
        self._needed_acls = NeededAcls() if access.get("record_acls") else None
        self._kafka_version = kafka_version
        self._ids = range(brokers)
        self._settings = dict(settings or {})
        if features:
            self._settings["new.cluster.features"] = checked_levels(features)
        self._racks = racks
        self._temporary = (
            None if data_dir else tempfile.TemporaryDirectory(prefix="barnabas-", ignore_cleanup_errors=True)
        )
        self.data_dir = Path(data_dir or self._temporary.name)  # type: ignore[union-attr]  # one of the two is there
        self._own_properties: dict[str, str] = {}
        if self._security is not None:
            self._security.directory = self.data_dir / "security"
            self._own_properties = self._security.own_properties()
        self._zk_servers = zk_servers
        self._zk_texts: dict[int, dict[str, str]] = {}
        self._running: dict[str, _Server] = {}
        self._ports: dict[int, int] = {}
        self._server_of_port: dict[int, str] = {}
        self._sides: dict[str, int] = {}
        self._coordinator_kills = CoordinatorKills()
        self._lock = threading.RLock()
        self._preparing: threading.Thread | None = None
        self._has_registry = registry
        self._registry: ClusterRegistry | None = None
        self._has_rest = rest
        self._rest: ClusterRest | None = None

    # Addresses

    @property
    def registry(self) -> ClusterRegistry:
        """The schema registry, with its address ``url``; raises `BarnabasError` without one."""
        if self._registry is None:
            raise BarnabasError("the cluster has no schema registry: Cluster(registry=True) has one")
        return self._registry

    @property
    def rest(self) -> ClusterRest:
        """The REST proxy, with its address ``url``; raises `BarnabasError` without one."""
        if self._rest is None:
            raise BarnabasError("the cluster has no REST proxy: Cluster(rest=True) has one")
        return self._rest

    @property
    def bootstrap_servers(self) -> str:
        """``host:port,host:port`` of all brokers, those that are stopped included."""
        return ",".join(f"{_HOST}:{self._ports[n]}" for n in sorted(self._ports))

    @property
    def zookeeper_connect(self) -> str:
        """``host:port`` of the coordination server; of all in an ensemble, those
        that are stopped included."""
        assert self._zk_texts, "the cluster is not started"
        return ",".join(f"{_HOST}:{texts['clientPort']}" for texts in self._zk_texts.values())

    def client_properties(
        self, user: str | None = None, mechanism: str = "SCRAM-SHA-256", *, java: bool = False
    ) -> dict[str, str]:
        """What a client connects with: addresses, protocol, certificates, user and password.

        In the names of librdkafka, or of Java's clients. ``user`` is the first one unless it
        is named, ``mechanism`` PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512. Raises `BarnabasError` for a
        server that is not there.
        """
        properties = {} if self._security is None else self._security.client_properties(user, mechanism, java=java)
        return {"bootstrap.servers": self.bootstrap_servers, **properties}

    def suggested_acls(self, *, fold_prefixes: bool = False) -> list[Acl]:
        """The smallest set of entries that allows what clients have asked for, with
        ``record_acls``.

        ``fold_prefixes`` makes one prefixed pattern of names that begin alike. `acl_commands` makes
        commands of them. Raises `BarnabasError` for a cluster that does not record.
        """
        return suggestions(self._needed_acls, fold_prefixes=fold_prefixes)

    # Life

    def start(self) -> Self:
        """Start everything; clients can work when this returns, and every broker knows all brokers.

        Raises `BarnabasError`. It waits for the brokers' metadata for 30 s at most,
        and returns in any case.
        """
        try:
            make_private_dirs(self.data_dir)
            if self._security is not None:
                self._security.prepare()
            plans = _plan_coordination(self.data_dir, self._zk_servers)
            for server_id, texts in plans.items():
                self._zk_texts[server_id] = texts
                for port in _peer_ports(texts.get(f"server.{server_id}", "")):
                    self._server_of_port[port] = zookeeper_name(server_id, self._zk_servers)
            for server_id in plans:
                self._start_coordination(server_id)
            if self._security is not None:
                self._security.prepare_coordination(self.zookeeper_connect)
            starting = [self._begin_broker(n) for n in self._ids]
            for broker_id, future in zip(self._ids, starting, strict=True):
                future.result()
                _note_port(self._running[self._name(broker_id)], broker_id, self._ports, self._server_of_port)
            _wait_for(lambda: _all_are_known(self._running, len(self._ids)))
            if self._has_registry:
                properties = registry_properties(self.bootstrap_servers, len(self._ids), self._security, 0)
                self._registry = ClusterRegistry(properties, self._security)
            if self._has_rest:
                url = None if self._registry is None else self._registry.url
                self._rest = ClusterRest(rest_properties(self.bootstrap_servers, self._security, 0, registry_url=url))
        except BaseException:
            self.stop()
            raise
        self._preparing = threading.Thread(
            target=prepare_groups, args=(self.bootstrap_servers, self._own_properties), daemon=True
        )
        self._preparing.start()
        return self

    def stop(self) -> None:
        """Stop everything, cleanly; a second call does nothing."""
        try:
            with self._lock:
                self.heal()
                services, self._rest, self._registry = (self._rest, self._registry), None, None
                for service in services:
                    if service is not None:
                        service.stop()
                for kind in (BrokerServer, CoordinationServer):
                    names = [name for name, each in self._running.items() if isinstance(each.serves, kind)]
                    _stop_all([self._running.pop(name) for name in names])
            if self._preparing is not None:
                self._preparing.join()
        finally:
            if self._temporary is not None:
                self._temporary.cleanup()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop_broker(self, broker_id: int) -> None:
        """Stop one broker cleanly; its port and its data stay for `start_broker`."""
        self._stop_server(self._name(broker_id), _close)

    def start_broker(self, broker_id: int) -> None:
        """Start a broker again that was stopped or killed, at the same port."""
        if self._name(broker_id) in self._running:
            raise BarnabasError(f"broker {broker_id} is running")
        self._begin_broker(broker_id).result()
        _note_port(self._running[self._name(broker_id)], broker_id, self._ports, self._server_of_port)

    def stop_zookeeper(self, server_id: int = 1) -> None:
        """Stop one coordination server cleanly; they are numbered from 1.

        `start_zookeeper` starts it again."""
        self._stop_server(zookeeper_name(server_id, self._zk_servers), _close)

    def start_zookeeper(self, server_id: int = 1) -> None:
        """Start a coordination server again that was stopped or killed, at the same port."""
        if zookeeper_name(server_id, self._zk_servers) in self._running:
            raise BarnabasError(f"coordination server {server_id} is running")
        self._start_coordination(server_id)

    def _stop_server(self, name: str, end: Callable[[_Server], Coroutine[Any, Any, None]]) -> None:
        server = _find(self._running, name)
        server.thread.resume()
        with self._lock:
            del self._running[name]
        server.thread.call(end(server))
        server.thread.stop()

    # Faults

    def kill(self, server: int | str) -> None:
        """As kill -9: it says goodbye to no one, and its session lives until it expires.

        Its port and its data stay."""
        self._stop_server(self._name(server), _kill)

    @contextlib.contextmanager
    def killing_coordinator(
        self, transactional_id: str, during: Outcome = "commit", *, restart: bool = False
    ) -> Iterator[CoordinatorKill]:
        """`kill` a producer's coordinator in the middle of a commit (or ``during="abort"``) in this
        block.

        The outcome is decided, on all in-sync replicas of ``__transaction_state``; no partition has
        a marker, and the client has no answer. With ``restart`` the broker is started again at
        once: a cluster of one broker needs it. Raises `BarnabasError` at the end of a block in
        which no coordinator was killed.
        """

        def strike(broker_id: int) -> bool:
            server = self._running[self._name(broker_id)].serves
            assert isinstance(server, BrokerServer)
            server.components.transactions.stop()  # until the kill it writes no marker
            kill_later(broker_id)
            return True

        with (
            killer(self, len(self._ids), restart=restart) as kill_later,
            self._coordinator_kills.waiting(CoordinatorKill(transactional_id, during, strike)) as kill,
        ):
            yield kill

    def pause(self, server: int | str) -> None:
        """As kill -STOP: it stands still with its connections open, until `resume`."""
        _find(self._running, self._name(server)).thread.pause()

    def resume(self, server: int | str) -> None:
        """As kill -CONT: it continues."""
        _find(self._running, self._name(server)).thread.resume()

    def partition(self, *groups: Collection[int | str]) -> None:
        """Cut the network between groups of servers.

        A server in no group reaches all, and clients do too. It replaces an earlier partition,
        and `heal` ends it. What is on its way waits, as behind a broken cable: nothing is
        refused, requests time out.
        """
        sides: dict[str, int] = {}
        for number, group in enumerate(groups):
            for server in group:
                name = self._name(server)
                if name in sides:
                    raise BarnabasError(f"{name} is in two groups")
                sides[name] = number
        with self._lock:
            self._sides = sides
            for server_running in self._running.values():
                server_running.thread.call_soon(server_running.faults.network.update)

    def slow_disk(self, server: int | str, delay_s: float) -> None:
        """Every call to the server's disk takes ``delay_s`` longer; 0 ends it."""
        _find(self._running, self._name(server)).faults.disk.delay_s = delay_s

    def full_disk(self, server: int | str) -> None:
        """Whatever would change the server's disk fails, as with no space left
        (ENOSPC), until `heal`."""
        _find(self._running, self._name(server)).faults.disk.error = errno.ENOSPC

    def fail_disk(self, server: int | str) -> None:
        """Every call to the server's disk fails (EIO), until `heal`.

        A broker gives the log dir up, as a real one does."""
        _find(self._running, self._name(server)).faults.disk.error = errno.EIO

    def clock(self, server: int | str, shift_s: float) -> None:
        """The server's wall clock is wrong by this much; 0 ends it."""
        _find(self._running, self._name(server)).faults.clock.shift_ms = round(shift_s * 1000)

    def heal(self) -> None:
        """End all faults of servers that run: pauses, partitions, disks, clocks.

        What was killed stays so."""
        with self._lock:
            self._sides = {}
            for server in self._running.values():
                server.faults.heal()
                server.thread.resume()
                server.thread.call_soon(server.faults.network.update)

    # Names

    def _name(self, server: int | str) -> str:
        if isinstance(server, int):
            if server not in self._ids:
                raise BarnabasError(f"there is no broker {server}: they are {self._ids.start} to {self._ids.stop - 1}")
            return f"broker-{server}"
        names = [zookeeper_name(n, self._zk_servers) for n in range(1, self._zk_servers + 1)]
        if server not in names:
            raise BarnabasError(f"there is no server {server!r}: they are the broker ids, and {', '.join(names)}")
        return server

    # Topics

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int = 1,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic; every broker knows it when this returns, and can be asked about it.

        Raises `KafkaError`. The controller answers earlier, as soon as it knows the topic
        itself. Brokers that are paused or cut off from the controller are not waited for. It
        returns after 30 s in any case.
        """
        with AdminConnection(self.bootstrap_servers, self._own_properties) as admin:
            create_topic(
                admin, name, partitions=partitions, replication_factor=replication_factor, configs=dict(config or {})
            )

        def is_cut(broker_id: int, controller: int) -> bool:
            return _are_apart(self._sides, self._name(broker_id), self._server_of_port.get(self._ports[controller]))

        _wait_for(lambda: _is_known(self._running, name, partitions, is_cut))

    # Starting

    def _new_server(self, name: str, make: Callable[[ServerFaults], Any]) -> "Future[None]":
        """Start what ``make`` makes on a thread of its own."""
        server = _Server(name, ServerFaults(lambda port: _are_apart(self._sides, name, self._server_of_port.get(port))))
        try:
            server.serves = make(server.faults)
        except BaseException:
            server.thread.stop()
            raise
        with self._lock:
            self._running[name] = server

        async def start() -> None:
            try:
                await server.serves.start()  # type: ignore[union-attr]  # it was made above
            except Exception:
                with self._lock:
                    self._running.pop(name, None)
                server.thread.end()
                raise
            if isinstance(server.serves, BrokerServer):
                self._coordinator_kills.watch(server.serves)
            server.watching = asyncio.create_task(self._end_when_failed(name, server))

        server.starting = server.thread.submit(start())
        return server.starting

    async def _end_when_failed(self, name: str, server: _Server) -> None:
        """A server that cannot go on, such as a broker without a log dir, ends as
        its process would."""
        assert server.serves is not None
        if isinstance(server.serves, BrokerServer):
            await server.serves.failed.wait()
        else:
            with contextlib.suppress(Exception):  # why it failed is in its log
                await server.serves.wait_failed()
        with self._lock:
            if self._running.get(name) is not server:
                return  # it is being stopped
            del self._running[name]
        await server.serves.close()
        server.thread.end()

    def _start_coordination(self, server_id: int) -> None:
        texts = self._zk_texts[server_id]
        name = zookeeper_name(server_id, self._zk_servers)

        def make(faults: ServerFaults) -> CoordinationServer:
            return CoordinationServer(
                parse_settings(texts), files=faults.files, clock=faults.clock, network=faults.network
            )

        self._new_server(name, make).result()
        server = self._running[name].serves
        assert isinstance(server, CoordinationServer)
        texts["clientPort"] = str(server.port)
        self._server_of_port[server.port] = name

    def _begin_broker(self, broker_id: int) -> "Future[None]":
        protocol = "PLAINTEXT" if self._security is None else self._security.protocol
        texts = {
            **_BROKER_DEFAULTS,
            **({} if self._security is None else self._security.broker_properties()),
            "offsets.topic.replication.factor": str(min(3, len(self._ids))),
            "transaction.state.log.replication.factor": str(min(3, len(self._ids))),
            "transaction.state.log.min.isr": str(min(2, len(self._ids))),
            "broker.id": str(broker_id),
            "listeners": f"{protocol}://{_HOST}:{self._ports.get(broker_id, 0)}",
            "log.dirs": list_text("log.dirs", [str(self.data_dir / f"kafka-logs-{broker_id}")]),
            "zookeeper.connect": self.zookeeper_connect,
            **self._settings,
        }
        if self._racks:
            texts["broker.rack"] = f"R{broker_id * self._racks // len(self._ids) + 1}"

        def make(faults: ServerFaults) -> BrokerServer:
            return BrokerServer(
                texts,
                files=faults.files,
                clock=faults.clock,
                network=faults.network,
                kafka_version=self._kafka_version,
                needed_acls=self._needed_acls,
            )

        return self._new_server(self._name(broker_id), make)


def _are_apart(sides: Mapping[str, int], name: str, other: str | None) -> bool:
    """Whether the network is cut between two servers."""
    return name in sides and other is not None and other in sides and sides[other] != sides[name]


def _note_port(server: _Server, broker_id: int, ports: dict[int, int], server_of_port: dict[int, str]) -> None:
    assert isinstance(server.serves, BrokerServer)
    ports[broker_id] = server.serves.port
    server_of_port[server.serves.port] = server.name


def _find(running: Mapping[str, _Server], name: str) -> _Server:
    try:
        return running[name]
    except KeyError:
        raise BarnabasError(f"{name} is not running") from None


# What brokers know


def _caches(running: Mapping[str, _Server]) -> dict[int, MetadataCache]:
    """What each broker that is not paused knows of the cluster."""
    return {
        server.serves.broker_id: server.serves.components.metadata
        for server in tuple(running.values())
        if isinstance(server.serves, BrokerServer) and server.serves.has_components and not server.thread.is_paused
    }


def _all_are_known(running: Mapping[str, _Server], count: int) -> bool:
    """Whether every broker knows of ``count`` brokers."""
    return all(len(tuple(cache.alive_brokers())) == count for cache in _caches(running).values())


def _is_known(running: Mapping[str, _Server], topic: str, partitions: int, is_cut: Callable[[int, int], bool]) -> bool:
    """Whether the brokers that hear from the controller know ``partitions`` partitions (-1: as many
    as the controller does)."""
    caches = _caches(running)
    controllers = [n for n, cache in caches.items() if cache.controller_id == n]
    if not controllers:
        return False
    # A controller that is cut off may have been replaced.
    controller = max(controllers, key=lambda n: caches[n].partition_count(topic))
    wanted = partitions if partitions > 0 else max(1, caches[controller].partition_count(topic))
    live = [broker.broker_id for broker in tuple(caches[controller].alive_brokers())]
    return all(caches[n].partition_count(topic) >= wanted for n in live if n in caches and not is_cut(n, controller))


def _wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + _SPREAD_S
    while not condition() and time.monotonic() < end:
        time.sleep(_POLL_S)


def _stop_all(servers: list[_Server]) -> None:
    """Stop servers of one kind at the same time.

    Those that are still starting are cancelled first."""
    # Interrupted: a server that continued to start would write to a folder that is being removed.
    starting = [each.starting for each in servers if each.starting is not None and not each.starting.done()]
    for future in starting:
        future.cancel()
    closing = [each.thread.submit(each.serves.close()) for each in servers if each.serves is not None]
    wait(closing)
    for each in servers:
        each.thread.stop()


async def _close(server: _Server) -> None:
    """Stop it in order."""
    if server.serves is not None:
        await server.serves.close()


async def _kill(server: _Server) -> None:
    """Let go of what the operating system takes from a killed process: connections,
    ports, files, locks."""
    server.faults.network.kill()
    if isinstance(server.serves, BrokerServer):
        await server.serves.abandon()
    else:
        await _close(server)  # sessions stay, and acknowledged writes are in the log already


def _plan_coordination(data_dir: Path, count: int) -> dict[int, dict[str, str]]:
    """The settings of each coordination server.

    The members of an ensemble must know all ports beforehand."""
    common = {"clientPortAddress": _HOST, "tickTime": "2000", "maxClientCnxns": "1000"}
    if count == 1:
        data = data_dir / "zookeeper"
        make_private_dirs(data)
        return {1: {**common, "dataDir": str(data), "clientPort": "0"}}
    ids = range(1, count + 1)
    ports = iter(_free_ports(3 * count))
    members = {f"server.{n}": f"{_HOST}:{next(ports)}:{next(ports)}" for n in ids}
    common |= {"initLimit": "5", "syncLimit": "2", **members}
    plans = {}
    for n in ids:
        data = data_dir / f"zookeeper{n}"
        make_private_dirs(data)
        (data / "myid").write_text(f"{n}\n", encoding="utf-8")
        plans[n] = {**common, "dataDir": str(data), "clientPort": str(next(ports))}
    return plans


def _peer_ports(member: str) -> list[int]:
    """The quorum and the election port of a server line."""
    return [int(port) for port in member.split(":")[1:3]]


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind((_HOST, 0))
        return [probe.getsockname()[1] for probe in probes]
