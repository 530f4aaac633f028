"""What ``barnabas up`` starts servers with: their ports and their configuration files, checked before anything is written."""

import contextlib
import os
import socket
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from barnabas.base.errors import BarnabasError
from barnabas.base.hints import did_you_mean
from barnabas.base.settings import list_text, properties_text
from barnabas.testing.private_files import write_private

if TYPE_CHECKING:
    from barnabas.testing.security import ClusterSecurity

__all__ = [
    "COORDINATION_NAME",
    "BrokerFiles",
    "CoordinationPlan",
    "check_ports",
    "coordination_config",
    "coordination_name",
    "free_ports",
    "log_of",
]

COORDINATION_NAME = "zookeeper"
"""The name of the coordination server; those of an ensemble have a number after it."""

_QUORUM_OFFSET = 2888 - 2181  # as in the examples of ZooKeeper's guide
_ELECTION_OFFSET = 3888 - 2181
_MAX_ZK_SERVERS = 9
_MAX_PORT = 65535


def free_ports(host: str, count: int) -> list[int]:
    """Ports of ``host`` that nothing listens on now. Raises `BarnabasError` for a host that is not this machine."""
    with contextlib.ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            try:
                probe.bind((host, 0))
            except OSError as error:
                raise BarnabasError(
                    f"--host {host}: {error.strerror or error}; it must be an address or a name of this machine"
                ) from None
        return [probe.getsockname()[1] for probe in probes]


def check_ports(host: str, ports: list[int]) -> None:
    """Raise `BarnabasError` for a port that cannot be used."""
    for port in ports:
        if not 0 < port <= _MAX_PORT:
            raise BarnabasError(
                f"port {port} cannot be used: ports are 1 to {_MAX_PORT}; see --port, --zk-port and --metrics-port"
            )
        with socket.socket() as probe:
            if os.name == "posix":
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((host, port))
            except OSError as error:
                raise BarnabasError(
                    f"port {port} on {host} cannot be used ({error.strerror}): choose others with --port, --zk-port and --metrics-port, or "
                    "stop what listens there (barnabas status shows running clusters)"
                ) from None


def log_of(logs: Path, name: str) -> Path:
    """The file with a server's log."""
    return logs / (f"{name}.log" if name.startswith(COORDINATION_NAME) else f"broker-{name}.log")


def coordination_config(name: str) -> str:
    """The name of a coordination server's configuration file."""
    return f"zoo{name.removeprefix(COORDINATION_NAME)}.cfg"


def coordination_name(path: str) -> str:
    """The name of the coordination server whose configuration file is at ``path``."""
    return COORDINATION_NAME + Path(path).stem.removeprefix("zoo")


class CoordinationPlan:
    """The coordination servers: names, ports, and the configuration file of each."""

    def __init__(self, servers: int, host: str, first_port: int, directory: Path) -> None:
        if not 1 <= servers <= _MAX_ZK_SERVERS:
            raise BarnabasError(f"--zk-servers {servers}: between 1 and {_MAX_ZK_SERVERS}")
        self._host = host
        self._directory = directory
        is_ensemble = servers > 1
        self.names = [f"{COORDINATION_NAME}{n + 1}" for n in range(servers)] if is_ensemble else [COORDINATION_NAME]
        offsets = (0, _QUORUM_OFFSET, _ELECTION_OFFSET) if is_ensemble else (0,)
        if first_port:
            self.ports = [first_port + offset + n for offset in offsets for n in range(servers)]
        else:
            self.ports = free_ports(host, servers * len(offsets))
        self.client_ports, self._quorum_ports = self.ports[:servers], self.ports[servers : 2 * servers]
        self._election_ports = self.ports[2 * servers :]

    @property
    def address(self) -> str:
        return ",".join(f"{self._host}:{port}" for port in self.client_ports)

    def write_files(self) -> list[Path]:
        """Write zoo.cfg, or zoo1.cfg, zoo2.cfg and so on, and each server's myid."""
        members = {
            f"server.{n + 1}": f"{self._host}:{quorum}:{election}"
            for n, (quorum, election) in enumerate(zip(self._quorum_ports, self._election_ports, strict=True))
        }
        paths = []
        for n, (name, port) in enumerate(zip(self.names, self.client_ports, strict=True)):
            path = self._directory / coordination_config(name)
            data = self._directory / name
            data.mkdir(exist_ok=True)
            settings = {
                "tickTime": "2000",
                "dataDir": str(data),
                "clientPort": str(port),
                "clientPortAddress": self._host,
                "maxClientCnxns": "0",
                "4lw.commands.whitelist": "*",
            }
            if members:
                settings |= {"initLimit": "5", "syncLimit": "2", **members}
                (data / "myid").write_text(f"{n + 1}\n")
            path.write_text(properties_text(settings))
            paths.append(path)
        return paths


class BrokerFiles:
    """The brokers' properties: those that `up` chooses, and on top of them the user's overrides."""

    def __init__(
        self,
        directory: Path,
        host: str,
        ports: list[int],
        metrics_ports: list[int],
        zookeeper_connect: str,
        racks: int,
        overrides: Mapping[str, str],
        security: "ClusterSecurity | None" = None,
    ) -> None:
        self._security = security
        self._directory = directory
        self._host = host
        self._ports = ports
        self._metrics_ports = metrics_ports
        self._zookeeper_connect = zookeeper_connect
        self._racks = racks
        self._overrides = overrides

    def check(self) -> list[str]:
        """Warnings about overrides without effect, with the name that may be meant. Raises `ConfigError` for wrong values."""
        from barnabas.broker.configuration.definitions import DEFINITIONS, settings_without_effect
        from barnabas.broker.server import BrokerServer

        texts = self.properties(0)
        BrokerServer(texts)
        known = [setting.name for setting in DEFINITIONS]
        warnings = []
        for name, reason in settings_without_effect(DEFINITIONS.parse(texts)).items():
            if name in self._overrides:
                hint = did_you_mean(name, known) if name not in known else ""
                warnings.append(f"--override {name}={self._overrides[name]} has no effect: {reason}{hint}")
        return warnings

    def properties(self, broker_id: int) -> dict[str, str]:
        """A broker's properties."""
        count = len(self._ports)
        protocol = "PLAINTEXT" if self._security is None else self._security.protocol
        settings: dict[str, object] = {
            "broker.id": broker_id,
            "listeners": f"{protocol}://{self._host}:{self._ports[broker_id]}",
            "log.dirs": list_text("log.dirs", [str(self._directory / f"kafka-logs{broker_id or ''}")]),
            "zookeeper.connect": self._zookeeper_connect,
            "offsets.topic.replication.factor": min(3, count),
            "group.initial.rebalance.delay.ms": 0,
        }
        if self._metrics_ports:
            settings["metrics.http.address"] = f"{self._host}:{self._metrics_ports[broker_id]}"
        if self._racks:
            settings["broker.rack"] = f"R{broker_id * self._racks // count + 1}"
        if self._security is not None:
            settings |= self._security.broker_properties()
        return {name: str(value) for name, value in settings.items()} | dict(self._overrides)

    def write(self, broker_id: int) -> Path:
        """Write a broker's properties file, which only its owner can read."""
        path = self._directory / f"server{broker_id or ''}.properties"
        write_private(path, properties_text(self.properties(broker_id)))  # overrides may hold passwords, too
        return path
