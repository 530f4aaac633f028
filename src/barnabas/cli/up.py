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


def main(argv: list[str]) -> int:
    """Run until SIGINT or SIGTERM; 0 after a clean stop, 1 when the cluster does not come up."""
    arguments = _parser().parse_args(argv)
    with _data_dir(arguments.data_dir) as directory:
        return _Supervisor(arguments, directory).run()


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="barnabas up",
        description="Start a coordination server and brokers on this machine, print one line 'ready BOOTSTRAP "
        "zk=ADDRESS pids=NAME:PID,...' when clients can work, and stay until Ctrl-C.",
    )
    parser.add_argument("--brokers", type=int, default=1, metavar="N", help="how many brokers (default 1)")
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on and to give to clients")
    parser.add_argument(
        "--port", type=int, default=9092, help="the first broker's port, the others follow; 0: any free"
    )
    parser.add_argument("--zk-port", type=int, default=2181, help="the coordination server's port; 0: any free")
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
        self._zk_port: int = arguments.zk_port or _free_port(self._host)
        self._zookeeper: str | None = arguments.zookeeper
        self._racks: int = arguments.racks
        self._overrides = dict(map(_name_value, arguments.override))
        self._children: dict[str, BaseProcess] = {}
        self._stop_pipes: list[Connection] = []
        self._wake, self._woken = multiprocessing.Pipe(duplex=False)
        self._signals = 0

    @property
    def _bootstrap(self) -> str:
        return ",".join(f"{self._host}:{port}" for port in self._ports)

    def run(self) -> int:
        self._check_ports()
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._signalled)
        self._start_children()
        try:
            if not self._wait_until_ready():
                return 0 if self._signals else 1
            pids = ",".join(f"{name}:{child.pid}" for name, child in self._children.items())
            address = self._zookeeper or f"{self._host}:{self._zk_port}"
            print(f"ready {self._bootstrap} zk={address} pids={pids}", flush=True)
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
        wanted = [*self._ports, *([] if self._zookeeper else [self._zk_port])]
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
            plans.append(("zookeeper", "zookeeper_server_start", self._write_zoo_cfg()))
        plans += [(str(n), "server_start", self._write_server_properties(n)) for n in range(len(self._ports))]
        logs = self._directory / "logs"
        logs.mkdir(exist_ok=True)
        _import_servers()
        for name, module, config in plans:
            theirs, ours = context.Pipe(duplex=False)
            log = logs / (f"{name}.log" if name == "zookeeper" else f"broker-{name}.log")
            inherited = [ours, *self._stop_pipes]
            child = context.Process(
                target=_serve, args=(module, str(config), str(log), theirs, inherited), name=f"barnabas {name}"
            )
            child.start()
            theirs.close()
            self._stop_pipes.append(ours)
            self._children[name] = child

    def _write_zoo_cfg(self) -> Path:
        path = self._directory / "zoo.cfg"
        data = self._directory / "zookeeper"
        data.mkdir(exist_ok=True)
        settings = {
            "tickTime": 2000,
            "dataDir": data,
            "clientPort": self._zk_port,
            "clientPortAddress": self._host,
            "maxClientCnxns": 0,
            "4lw.commands.whitelist": "*",
        }
        path.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        return path

    def _write_server_properties(self, broker_id: int) -> Path:
        number = broker_id or ""
        path = self._directory / f"server{number}.properties"
        settings = {
            "broker.id": broker_id,
            "listeners": f"PLAINTEXT://{self._host}:{self._ports[broker_id]}",
            "log.dirs": self._directory / f"kafka-logs{number}",
            "zookeeper.connect": self._zookeeper or f"{self._host}:{self._zk_port}",
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
        log = self._directory / "logs" / (f"{name}.log" if name == "zookeeper" else f"broker-{name}.log")
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
                    who = name if name == "zookeeper" else f"broker {name}"
                    print(f"{who} (pid {child.pid}) {how}", file=sys.stderr, flush=True)

    def _stop(self) -> None:
        """Brokers first and together, so that each can say goodbye to the coordination server."""
        brokers = [child for name, child in self._children.items() if name != "zookeeper"]
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
