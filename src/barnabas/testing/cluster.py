"""A cluster inside the caller's process: coordination servers and brokers on one event loop, on a thread of its own.

They are the servers that processes run, over real sockets on the loopback and real files in a temporary folder, so
every client works with them as with any cluster. All ports are free ones.
"""

import asyncio
import contextlib
import socket
import tempfile
import threading
from collections.abc import Coroutine, Mapping
from pathlib import Path
from typing import Any, Self, TypeVar

from barnabas.base.errors import BarnabasError
from barnabas.broker.server import BrokerServer
from barnabas.client.admin_connection import AdminConnection
from barnabas.client.topics import create_topic
from barnabas.coordination.server.server import CoordinationServer
from barnabas.coordination.server.settings import parse_settings
from barnabas.net.event_loop import new_event_loop

__all__ = ["Cluster"]

Result = TypeVar("Result")
_HOST = "127.0.0.1"
_BROKER_DEFAULTS = {
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "5",
    # All brokers stop together, the controller among them: waiting for another one is in vain.
    "controlled.shutdown.retry.backoff.ms": "20",
}


class Cluster:
    """Brokers 0 to N-1 and their coordination server, or an ensemble of ``zk_servers``; a context manager.

    ``settings`` are properties for every broker, ``data_dir`` keeps the data beyond the cluster's life, ``racks`` spreads
    the brokers over as many racks. Methods may be called from any thread; they return when the thing is done.
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        settings: Mapping[str, str] | None = None,
        data_dir: str | Path | None = None,
        racks: int = 0,
        zk_servers: int = 1,
    ) -> None:
        if brokers < 1:
            raise BarnabasError(f"a cluster of {brokers} brokers: at least one is needed")
        if zk_servers < 1:
            raise BarnabasError(f"a cluster of {zk_servers} coordination servers: at least one is needed")
        self._ids = range(brokers)
        self._settings = dict(settings or {})
        self._racks = racks
        self._temporary = (
            None if data_dir else tempfile.TemporaryDirectory(prefix="barnabas-", ignore_cleanup_errors=True)
        )
        self.data_dir = Path(data_dir or self._temporary.name)  # type: ignore[union-attr]  # one of the two is there
        self._zk_servers = zk_servers
        self._zk_texts: dict[int, dict[str, str]] = {}
        self._coordination: dict[int, CoordinationServer] = {}
        self._brokers: dict[int, BrokerServer] = {}
        self._ports: dict[int, int] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None
        self._starting: asyncio.Task[Any] | None = None

    # Addresses

    @property
    def bootstrap_servers(self) -> str:
        """``host:port,host:port`` of all brokers, those that are stopped included."""
        return ",".join(f"{_HOST}:{self._ports[n]}" for n in sorted(self._ports))

    @property
    def zookeeper_connect(self) -> str:
        """``host:port`` of the coordination server; of all in an ensemble, those that are stopped included."""
        assert self._zk_texts, "the cluster is not started"
        return ",".join(f"{_HOST}:{texts['clientPort']}" for texts in self._zk_texts.values())

    # Life

    def start(self) -> Self:
        """Start everything; clients can work when this returns. Raises `BarnabasError`."""
        started = threading.Event()
        self._thread = threading.Thread(target=self._run_loop, args=(started,), name="barnabas-cluster", daemon=True)
        self._thread.start()
        try:
            started.wait()
            self._call(self._start())
        except BaseException:
            self.stop()
            raise
        return self

    def stop(self) -> None:
        """Stop everything, cleanly; a second call does nothing."""
        try:
            if self._loop is not None and self._thread is not None:
                self._stop_loop(self._loop, self._thread)
        finally:
            if self._temporary is not None:
                self._temporary.cleanup()

    def _stop_loop(self, loop: asyncio.AbstractEventLoop, thread: threading.Thread) -> None:
        try:
            self._call(self._stop())
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            self._loop = self._thread = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop_broker(self, broker_id: int) -> None:
        """Stop one broker cleanly; its port and its data stay for `start_broker`."""
        broker = self._brokers.pop(broker_id)
        self._call(broker.close())

    def start_broker(self, broker_id: int) -> None:
        """Start a stopped broker again, at the same port."""
        if broker_id in self._brokers:
            raise BarnabasError(f"broker {broker_id} is running")
        self._call(self._start_broker(broker_id))

    def stop_zookeeper(self, server_id: int) -> None:
        """Stop one coordination server cleanly; they are numbered from 1. `start_zookeeper` starts it again."""
        self._call(self._coordination.pop(server_id).close())

    def start_zookeeper(self, server_id: int) -> None:
        """Start a stopped coordination server again, at the same port."""
        if server_id in self._coordination:
            raise BarnabasError(f"coordination server {server_id} is running")
        self._call(self._start_coordination(server_id))

    # Topics

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int = 1,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic; it can be written to when this returns. Raises `KafkaError`."""
        with AdminConnection(self.bootstrap_servers) as admin:
            create_topic(
                admin, name, partitions=partitions, replication_factor=replication_factor, configs=dict(config or {})
            )

    # On the loop

    def _run_loop(self, started: threading.Event) -> None:
        loop = self._loop = new_event_loop()
        asyncio.set_event_loop(loop)
        loop.call_soon(started.set)
        try:
            loop.run_forever()
        finally:
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.run_until_complete(loop.shutdown_default_executor())
            loop.close()

    def _call(self, work: Coroutine[Any, Any, Result]) -> Result:
        if self._loop is None:
            work.close()
            raise BarnabasError("the cluster is not running")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    async def _start(self) -> None:
        self._starting = asyncio.current_task()
        for server_id, texts in self._plan_coordination().items():
            self._zk_texts[server_id] = texts
            await self._start_coordination(server_id)
        await asyncio.gather(*(self._start_broker(n) for n in self._ids))

    def _plan_coordination(self) -> dict[int, dict[str, str]]:
        """The settings of each coordination server; the members of an ensemble must know all ports beforehand."""
        common = {"clientPortAddress": _HOST, "tickTime": "2000", "maxClientCnxns": "0"}
        if self._zk_servers == 1:
            data = self.data_dir / "zookeeper"
            data.mkdir(parents=True, exist_ok=True)
            return {1: {**common, "dataDir": str(data), "clientPort": "0"}}
        ids = range(1, self._zk_servers + 1)
        ports = iter(_free_ports(3 * self._zk_servers))
        members = {f"server.{n}": f"{_HOST}:{next(ports)}:{next(ports)}" for n in ids}
        common |= {"initLimit": "5", "syncLimit": "2", **members}
        plans = {}
        for n in ids:
            data = self.data_dir / f"zookeeper{n}"
            data.mkdir(parents=True, exist_ok=True)
            (data / "myid").write_text(f"{n}\n")
            plans[n] = {**common, "dataDir": str(data), "clientPort": str(next(ports))}
        return plans

    async def _start_coordination(self, server_id: int) -> None:
        texts = self._zk_texts[server_id]
        server = CoordinationServer(parse_settings(texts))
        await server.start()
        texts["clientPort"] = str(server.port)
        self._coordination[server_id] = server

    async def _start_broker(self, broker_id: int) -> None:
        texts = {
            **_BROKER_DEFAULTS,
            "offsets.topic.replication.factor": str(min(3, len(self._ids))),
            "broker.id": str(broker_id),
            "listeners": f"PLAINTEXT://{_HOST}:{self._ports.get(broker_id, 0)}",
            "log.dirs": str(self.data_dir / f"kafka-logs-{broker_id}"),
            "zookeeper.connect": self.zookeeper_connect,
            **self._settings,
        }
        if self._racks:
            texts["broker.rack"] = f"R{broker_id * self._racks // len(self._ids) + 1}"
        broker = BrokerServer(texts)
        await broker.start()
        self._brokers[broker_id] = broker
        self._ports[broker_id] = broker.port

    async def _stop(self) -> None:
        if self._starting is not None and not self._starting.done():
            # Interrupted: a server that continued to start would write to a folder that is being removed.
            self._starting.cancel()
            await asyncio.wait({self._starting})
        brokers = list(self._brokers.values())
        self._brokers.clear()
        await asyncio.gather(*(broker.close() for broker in brokers), return_exceptions=True)
        servers = list(self._coordination.values())
        self._coordination.clear()
        await asyncio.gather(*(server.close() for server in servers), return_exceptions=True)


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind((_HOST, 0))
        return [probe.getsockname()[1] for probe in probes]
