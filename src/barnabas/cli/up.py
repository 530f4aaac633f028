"""``barnabas up``: a whole cluster as child processes, supervised.

The data dir holds what the servers would be started with by hand (zoo.cfg, server.properties, server1.properties ...)
beside their data and logs, so that each can also be started alone. Children are forked from this process with the
servers' modules already loaded, which saves each of them the imports; where there is no fork they are spawned.
"""

import argparse
import contextlib
import multiprocessing
import os
import signal
import socket
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from pathlib import Path

from barnabas.base.errors import BarnabasError

__all__ = ["main"]

_READY_TIMEOUT_S = 60
_STOP_TIMEOUT_S = 20
_QUORUM_OFFSET = 2888 - 2181  # as in the examples of ZooKeeper's guide
_ELECTION_OFFSET = 3888 - 2181
_COORDINATION = "zookeeper"
_MAX_ZK_SERVERS = 9


def main(argv: list[str]) -> int:
    """Run until SIGINT or SIGTERM; 0 after a clean stop, 1 when the cluster does not come up."""
    arguments = _parser().parse_args(argv)
    with _data_dir(arguments.data_dir) as directory:
        return _Supervisor(arguments, directory).run()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="barnabas up",
        description="Start a coordination server, or an ensemble of them, and brokers on this machine, print one line "
        "'ready BOOTSTRAP zk=ADDRESS pids=NAME:PID,...' when clients can work, and stay until Ctrl-C.",
    )
    parser.add_argument("--brokers", type=int, default=1, metavar="N", help="how many brokers (default 1)")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on and to give to clients")
    parser.add_argument(
        "--port", type=int, default=9092, help="the first broker's port, the others follow; 0: any free"
    )
    parser.add_argument(
        "--zk-servers", type=int, default=1, metavar="N", help="how many coordination servers (default 1)"
    )
    parser.add_argument(
        "--zk-port",
        type=int,
        default=2181,
        help="the first coordination server's port, the others follow; their own ports follow 707 and 1707 above "
        "(2888 and 3888); 0: any free",
    )
    parser.add_argument("--zookeeper", metavar="HOST:PORT", help="use this coordination service and start none")
    parser.add_argument("--data-dir", metavar="DIR", help="keep the data here (default: a temporary folder)")
    parser.add_argument("--racks", type=int, default=0, metavar="N", help="spread the brokers over N racks, in order")
    parser.add_argument(
        "--override",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="a broker property, for all brokers; may be repeated",
    )
    return parser


@contextlib.contextmanager
def _data_dir(given: str | None) -> Iterator[Path]:
    if given:
        path = Path(given).absolute()
        path.mkdir(parents=True, exist_ok=True)
        yield path
    else:
        with tempfile.TemporaryDirectory(prefix="barnabas-", ignore_cleanup_errors=True) as temporary:
            yield Path(temporary)


def _free_port(host: str) -> int:
    with socket.socket() as probe:
        probe.bind((host, 0))
        port: int = probe.getsockname()[1]
        return port


def _name_value(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise BarnabasError(f"--override {text}: NAME=VALUE is expected")
    return name.strip(), value.strip()


def _free_ports(host: str, count: int) -> list[int]:
    with contextlib.ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for probe in probes:
            probe.bind((host, 0))
        return [probe.getsockname()[1] for probe in probes]


class _CoordinationPlan:
    """The coordination servers: names, ports, and the configuration file of each."""

    def __init__(self, servers: int, host: str, first_port: int, directory: Path) -> None:
        if not 1 <= servers <= _MAX_ZK_SERVERS:
            raise BarnabasError(f"--zk-servers {servers}: between 1 and {_MAX_ZK_SERVERS}")
        self._host = host
        self._directory = directory
        is_ensemble = servers > 1
        self.names = [f"{_COORDINATION}{n + 1}" for n in range(servers)] if is_ensemble else [_COORDINATION]
        offsets = (0, _QUORUM_OFFSET, _ELECTION_OFFSET) if is_ensemble else (0,)
        if first_port:
            self.ports = [first_port + offset + n for offset in offsets for n in range(servers)]
        else:
            self.ports = _free_ports(host, servers * len(offsets))
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
            path = self._directory / f"zoo{n + 1 if members else ''}.cfg"
            data = self._directory / name
            data.mkdir(exist_ok=True)
            settings = {
                "tickTime": 2000,
                "dataDir": data,
                "clientPort": port,
                "clientPortAddress": self._host,
                "maxClientCnxns": 0,
                "4lw.commands.whitelist": "*",
            }
            if members:
                settings |= {"initLimit": 5, "syncLimit": 2, **members}
                (data / "myid").write_text(f"{n + 1}\n")
            path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
            paths.append(path)
        return paths


class _Supervisor:
    """The children by name ("zookeeper", "0", "1" ...), what each was started with, and their end."""

    def __init__(self, arguments: argparse.Namespace, directory: Path) -> None:
        if arguments.brokers < 1:
            raise BarnabasError(f"--brokers {arguments.brokers}: at least one broker is needed")
        if not 0 <= arguments.racks <= arguments.brokers:
            raise BarnabasError(f"--racks {arguments.racks}: between 0 and the number of brokers, {arguments.brokers}")
        self._directory = directory
        self._host: str = arguments.host
        first: int = arguments.port
        self._ports = [first + n if first else _free_port(self._host) for n in range(arguments.brokers)]
        self._zookeeper: str | None = arguments.zookeeper
        self._coordination = _CoordinationPlan(arguments.zk_servers, self._host, arguments.zk_port, directory)
        self._racks: int = arguments.racks
        self._overrides = dict(map(_name_value, arguments.override))
        self._children: dict[str, BaseProcess] = {}
        self._stop_pipes: list[Connection] = []
        self._wake, self._woken = multiprocessing.Pipe(duplex=False)
        self._signals = 0

    @property
    def _bootstrap(self) -> str:
        return ",".join(f"{self._host}:{port}" for port in self._ports)

    @property
    def _zookeeper_connect(self) -> str:
        return self._zookeeper or self._coordination.address

    def run(self) -> int:
        self._check_ports()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._signalled)
        self._start_children()
        try:
            if not self._wait_until_ready():
                return 0 if self._signals else 1
            pids = ",".join(f"{name}:{child.pid}" for name, child in self._children.items())
            print(f"ready {self._bootstrap} zk={self._zookeeper_connect} pids={pids}", flush=True)
            self._watch()
            return 0
        finally:
            self._stop()

    def _signalled(self, *_: object) -> None:
        self._signals += 1
        if self._signals == 1:
            self._woken.send_bytes(b"stop")
        else:  # a second Ctrl-C: at once
            for child in self._children.values():
                child.kill()

    def _check_ports(self) -> None:
        wanted = [*self._ports, *([] if self._zookeeper else self._coordination.ports)]
        for port in wanted:
            with socket.socket() as probe:
                if os.name == "posix":
                    probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind((self._host, port))
                except OSError as error:
                    raise BarnabasError(
                        f"port {port} on {self._host} cannot be used ({error.strerror}): choose others with "
                        "--port and --zk-port"
                    ) from None

    # The children

    def _start_children(self) -> None:
        can_fork = "fork" in multiprocessing.get_all_start_methods()
        context = multiprocessing.get_context("fork") if can_fork else multiprocessing.get_context("spawn")
        plans: list[tuple[str, str, Path]] = []
        if not self._zookeeper:
            files = zip(self._coordination.names, self._coordination.write_files(), strict=True)
            plans += [(name, "zookeeper_server_start", path) for name, path in files]
        plans += [(str(n), "server_start", self._write_server_properties(n)) for n in range(len(self._ports))]
        logs = self._directory / "logs"
        logs.mkdir(exist_ok=True)
        _import_servers()
        for name, module, config in plans:
            theirs, ours = context.Pipe(duplex=False)
            log = _log_of(logs, name)
            inherited = [ours, *self._stop_pipes]
            child = context.Process(
                target=_serve, args=(module, str(config), str(log), theirs, inherited), name=f"barnabas {name}"
            )
            child.start()
            theirs.close()
            self._stop_pipes.append(ours)
            self._children[name] = child

    def _write_server_properties(self, broker_id: int) -> Path:
        number = broker_id or ""
        path = self._directory / f"server{number}.properties"
        settings = {
            "broker.id": broker_id,
            "listeners": f"PLAINTEXT://{self._host}:{self._ports[broker_id]}",
            "log.dirs": self._directory / f"kafka-logs{number}",
            "zookeeper.connect": self._zookeeper_connect,
            "offsets.topic.replication.factor": min(3, len(self._ports)),
            "group.initial.rebalance.delay.ms": 0,
        }
        if self._racks:
            settings["broker.rack"] = f"R{broker_id * self._racks // len(self._ports) + 1}"
        settings.update(self._overrides)
        path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return path

    # Their lives

    def _wait_until_ready(self) -> bool:
        """Whether every broker is known to clients and has a controller, rather than a signal or a death first."""
        from barnabas.client.admin_connection import AdminConnection

        end = time.monotonic() + _READY_TIMEOUT_S
        while time.monotonic() < end:
            for name, child in self._children.items():
                if child.exitcode is not None:
                    print(f"{name} ended with {child.exitcode}: see {self._directory / 'logs'}", file=sys.stderr)
                    self._print_log_tail(name)
                    return False
            if self._wake.poll(0.01):
                return False
            with contextlib.suppress(BarnabasError, OSError), AdminConnection(self._bootstrap) as admin:
                cluster = admin.describe_cluster()
                if len(cluster.brokers) == len(self._ports) and cluster.controller_id >= 0:
                    return True
        print(f"the cluster did not come up within {_READY_TIMEOUT_S} s: see {self._directory}/logs", file=sys.stderr)
        return False

    def _print_log_tail(self, name: str) -> None:
        log = _log_of(self._directory / "logs", name)
        for line in log.read_text(errors="replace").splitlines()[-10:]:
            print(f"  {line}", file=sys.stderr)

    def _watch(self) -> None:
        """Until a signal: say which child ended and how, and leave it so (a lab stops brokers on purpose)."""
        alive = dict(self._children)
        while True:
            ready = wait([self._wake, *(child.sentinel for child in alive.values())])
            if self._wake in ready:
                return
            for name, child in list(alive.items()):
                if child.sentinel in ready:
                    child.join()
                    del alive[name]
                    code = child.exitcode or 0
                    how = f"was killed by signal {-code}" if code < 0 else f"ended with {code}"
                    who = name if name.startswith(_COORDINATION) else f"broker {name}"
                    print(f"{who} (pid {child.pid}) {how}", file=sys.stderr, flush=True)

    def _stop(self) -> None:
        """Brokers first and together, so that each can close its session."""
        brokers = [child for name, child in self._children.items() if not name.startswith(_COORDINATION)]
        for group in (brokers, [child for child in self._children.values() if child not in brokers]):
            for child in group:
                if child.exitcode is None:
                    child.terminate()
            end = time.monotonic() + _STOP_TIMEOUT_S
            for child in group:
                child.join(max(0.0, end - time.monotonic()))
                if child.exitcode is None:
                    child.kill()
                    child.join()


def _log_of(logs: Path, name: str) -> Path:
    return logs / (f"{name}.log" if name.startswith(_COORDINATION) else f"broker-{name}.log")


def _import_servers() -> None:
    """Load what every child needs before the fork."""
    import asyncio  # noqa: F401  # loaded for the children
    import importlib

    for module in ("barnabas.coordination.server.server", "barnabas.broker.server", "barnabas.client.admin_connection"):
        importlib.import_module(module)


def _serve(module: str, config: str, log: str, stop_pipe: Connection, inherited: list[Connection]) -> None:
    """In the child: run one server's command; stop cleanly when the supervisor is gone, however it went."""
    import importlib

    for pipe in inherited:
        pipe.close()
    if hasattr(os, "setsid"):
        os.setsid()  # a terminal's Ctrl-C goes to the supervisor, which stops the children in order
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_DFL)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    for standard in (1, 2):
        os.dup2(descriptor, standard)
    os.close(descriptor)
    threading.Thread(target=_terminate_at_end_of, args=(stop_pipe,), daemon=True).start()
    code = importlib.import_module(f"barnabas.cli.{module}").main([config])
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _terminate_at_end_of(pipe: Connection) -> None:
    with contextlib.suppress(EOFError, OSError):
        pipe.recv_bytes()
    os.kill(os.getpid(), signal.SIGTERM)
