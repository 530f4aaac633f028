"""A cluster whose servers are processes of their own, so that a single one can be killed, paused and started again.

`Cluster` is quicker and simpler where that is not needed. This one runs ``barnabas up`` as a child; a broker that is
started again is a child too, run by ``barnabas server-start`` on the properties file that ``up`` wrote, as one would by
hand.
"""

import contextlib
import os
import re
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO, NoReturn, Self

from barnabas.base.errors import BarnabasError

__all__ = ["ProcessCluster"]

_COMMAND = [sys.executable, "-m", "barnabas"]
_READY = re.compile(r"ready (?P<bootstrap>\S+) zk=(?P<zookeeper>\S+) pids=(?P<pids>\S+)\n")
_TIMEOUT_S = 60.0
_POLL_S = 0.02
_STATE, _NUM_THREADS, _START_TIME = 0, 17, 19
"""Where `_stat` has them."""
_USUAL_PORT = 9092
_USUAL_ZK_PORT = 2181


class ProcessCluster:
    """Brokers 0 to N-1 and their coordination server, or an ensemble of ``zk_servers``; a context manager.

    ``settings``, ``data_dir`` and ``racks`` are as for `Cluster`. ``port`` is the first broker's, the others follow; 0
    takes any that are free, and so does ``zk_port``; `usual_ports` gives both. Needs POSIX signals.
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        settings: Mapping[str, str] | None = None,
        data_dir: str | Path | None = None,
        racks: int = 0,
        port: int = 0,
        zk_port: int = 0,
        zk_servers: int = 1,
    ) -> None:
        self._temporary = (
            None if data_dir else tempfile.TemporaryDirectory(prefix="barnabas-", ignore_cleanup_errors=True)
        )
        self.data_dir = Path(data_dir or self._temporary.name)  # type: ignore[union-attr]  # one of the two is there
        options = [("--brokers", brokers), ("--racks", racks), ("--port", port), ("--zk-port", zk_port)]
        options.append(("--zk-servers", zk_servers))
        self._command = [*_COMMAND, "up", "--data-dir", str(self.data_dir)]
        self._command += [text for name, value in options for text in (name, str(value))]
        for name, value in (settings or {}).items():
            self._command += ["--override", f"{name}={value}"]
        self._zk_servers = zk_servers
        self._up: subprocess.Popen[bytes] | None = None
        self._restarted: dict[str, subprocess.Popen[bytes]] = {}
        self._paused: set[str] = set()
        self.bootstrap_servers = ""
        """``host:port,host:port`` of all brokers, those that are stopped included."""
        self.zookeeper_connect = ""
        """``host:port`` of the coordination server; of all in an ensemble."""
        self.pids: dict[str, int] = {}
        """The process of each server: "zookeeper" (in an ensemble "zookeeper1" and so on), "0", "1" ..."""
        self._start_times: dict[int, str] = {}

    @staticmethod
    def usual_ports(brokers: int) -> tuple[int, int]:
        """``port`` and ``zk_port`` as the documentation has them, 9092 and 2181, or 0 and 0 unless all of them are free."""
        wanted = (*range(_USUAL_PORT, _USUAL_PORT + brokers), _USUAL_ZK_PORT)
        return (_USUAL_PORT, _USUAL_ZK_PORT) if all(map(_is_free, wanted)) else (0, 0)

    # Life

    def start(self) -> Self:
        """Start everything; clients can work when this returns. Raises `BarnabasError`."""
        self.data_dir.mkdir(parents=True, exist_ok=True)
        output, errors = self.data_dir / "up.out", self.data_dir / "up.err"
        try:
            with output.open("wb") as out, errors.open("wb") as err:
                self._up = _spawn(self._command, out, err)
            _wait_until(lambda: self._has_ended() or b"\n" in output.read_bytes(), "the cluster")
            ready = _READY.match(output.read_text())
            if ready is None:
                raise BarnabasError(f"barnabas up ended: {output.read_text()}{errors.read_text()}".rstrip())
        except BaseException:
            self.stop()
            raise
        self.bootstrap_servers, self.zookeeper_connect = ready["bootstrap"], ready["zookeeper"]
        self.pids = {name: int(pid) for name, _, pid in (each.partition(":") for each in ready["pids"].split(","))}
        self._start_times = {pid: _start_time(pid) for pid in self.pids.values()}
        return self

    def stop(self) -> None:
        """Stop everything, cleanly; a second call does nothing."""
        for name in tuple(self._paused):
            with contextlib.suppress(ProcessLookupError, BarnabasError):
                self._resume(name)
        brokers = [child for name, child in self._restarted.items() if not name.startswith("zookeeper")]
        others = [child for child in self._restarted.values() if child not in brokers]
        for group in (brokers, [self._up] if self._up is not None else [], others):  # brokers close their sessions
            for child in group:
                child.terminate()
            for child in group:
                _end(child)
        self._restarted.clear()
        self._up = None
        if self._temporary is not None:
            self._temporary.cleanup()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _has_ended(self) -> bool:
        return self._up is None or self._up.poll() is not None

    # Faults, by the names that `Cluster` has

    def kill(self, server: int | str) -> None:
        """SIGKILL to a broker, by its id, or to a coordination server ("zookeeper", "zookeeper1" ...)."""
        self._signal(self._server(server), signal.SIGKILL)

    def pause(self, server: int | str) -> None:
        """SIGSTOP: it stands still. Its kernel keeps its connections and accepts new ones."""
        name = self._server(server)
        self._send(name, signal.SIGSTOP)
        self._paused.add(name)

    def resume(self, server: int | str) -> None:
        """SIGCONT: it continues."""
        self._resume(self._server(server))

    def partition(self, *_: object) -> NoReturn:
        """Not possible with processes: raises `BarnabasError` that says where it is."""
        raise BarnabasError(
            "processes cannot be cut off from each other, or get a slow disk or another clock, without the rights of root: "
            "barnabas.testing.Cluster and simulate can do it"
        )

    slow_disk = clock = partition

    def _server(self, server: int | str) -> str:
        if str(server) not in self.pids:
            raise BarnabasError(f"there is no server {server!r}: they are {', '.join(self.pids)}")
        return str(server)

    # One broker

    def stop_broker(self, broker_id: int) -> None:
        """SIGTERM: it hands its partitions over and ends. Its port and its data stay for `start_broker`."""
        self._signal(str(broker_id), signal.SIGTERM)

    def kill_broker(self, broker_id: int) -> None:
        """`kill` of a broker: it ends in the middle of whatever it does."""
        self.kill(broker_id)

    def pause_broker(self, broker_id: int) -> None:
        """`pause` of a broker."""
        self.pause(broker_id)

    def resume_broker(self, broker_id: int) -> None:
        """`resume` of a broker."""
        self.resume(broker_id)

    def start_broker(self, broker_id: int) -> None:
        """Start a stopped broker again, at the same port; returns when its process runs, which is before it serves."""
        command = ["server-start", str(self.properties_file(broker_id))]
        self._start_again(str(broker_id), command, self.broker_log(broker_id))

    def is_running(self, broker_id: int) -> bool:
        """Whether the broker's process is there, paused or not."""
        return self._runs(str(broker_id))

    # One coordination server; they are numbered from 1

    def stop_zookeeper(self, server_id: int = 1) -> None:
        """SIGTERM. Its port and its data stay for `start_zookeeper`."""
        self._signal(self._zookeeper_name(server_id), signal.SIGTERM)

    def kill_zookeeper(self, server_id: int = 1) -> None:
        """SIGKILL: it ends in the middle of whatever it does."""
        self._signal(self._zookeeper_name(server_id), signal.SIGKILL)

    def start_zookeeper(self, server_id: int = 1) -> None:
        """Start a stopped coordination server again; returns when its process runs, which is before it serves."""
        name = self._zookeeper_name(server_id)
        config = self.data_dir / f"zoo{name.removeprefix('zookeeper')}.cfg"
        self._start_again(name, ["zookeeper-server-start", str(config)], self.zookeeper_log(server_id))

    def zookeeper_log(self, server_id: int = 1) -> Path:
        """What the coordination server says."""
        return self.data_dir / "logs" / f"{self._zookeeper_name(server_id)}.log"

    def _zookeeper_name(self, server_id: int) -> str:
        return f"zookeeper{server_id}" if self._zk_servers > 1 else "zookeeper"

    # Processes

    def _signal(self, name: str, number: int) -> None:
        self._send(name, number)
        self._paused.discard(name)
        _wait_until(lambda: not self._runs(name), f"the end of {name}")

    def _resume(self, name: str) -> None:
        self._paused.discard(name)
        self._send(name, signal.SIGCONT)

    def _send(self, name: str, number: int) -> None:
        if not self._runs(name):  # its pid may be another process's by now
            raise BarnabasError(f"{_title(name)} is not running")
        os.kill(self.pids[name], number)

    def _start_again(self, name: str, command: list[str], log_file: Path) -> None:
        if self._runs(name):
            raise BarnabasError(f"{_title(name)} is running")
        with log_file.open("ab") as log:
            self._restarted[name] = process = _spawn([*_COMMAND, *command], log, log)
        self.pids[name] = process.pid

    def _runs(self, name: str) -> bool:
        if name in self._restarted:
            return self._restarted[name].poll() is None
        pid = self.pids[name]
        return _is_running(pid, self._start_times.get(pid, ""))

    # Its files

    def log_dir(self, broker_id: int) -> Path:
        """Where the broker keeps its partitions."""
        return self.data_dir / f"kafka-logs{broker_id or ''}"

    def properties_file(self, broker_id: int) -> Path:
        """What the broker is started with."""
        return self.data_dir / f"server{broker_id or ''}.properties"

    def broker_log(self, broker_id: int) -> Path:
        """What the broker says."""
        return self.data_dir / "logs" / f"broker-{broker_id}.log"


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _spawn(command: list[str], out: IO[bytes], err: IO[bytes]) -> "subprocess.Popen[bytes]":
    # A session of its own: a terminal's Ctrl-C is for the caller, who then stops the cluster in order.
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=out,
        stderr=err,
        start_new_session=True,
    )


def _end(child: "subprocess.Popen[bytes]") -> None:
    try:
        child.wait(_TIMEOUT_S / 2)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def _wait_until(condition: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + _TIMEOUT_S
    while not condition():
        if time.monotonic() > end:
            raise BarnabasError(f"{what} did not come within {_TIMEOUT_S:.0f} s")
        time.sleep(_POLL_S)


def _title(name: str) -> str:
    return name if name.startswith("zookeeper") else f"broker {name}"


def _is_running(pid: int, start_time: str) -> bool:
    """Of a process that is not our child; one that has ended but was not yet asked for by its parent does not run.

    Systems give the pid of a process that has ended to another one soon, and to threads: it is that process if it has
    this start time ("" for any).
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:  # another user's by now
        return False
    if sys.platform != "linux":
        return True
    fields = _stat(pid)
    if not fields or (start_time and fields[_START_TIME] != start_time):
        return False
    # Killed, a first thread may be gone before the others, which keep the files and the ports open until they are too.
    return fields[_STATE] != "Z" or int(fields[_NUM_THREADS]) > 1


def _start_time(pid: int) -> str:
    """When the process was started, in the clock ticks of proc(5); "" where the system does not say."""
    fields = _stat(pid)
    return fields[_START_TIME] if fields else ""


def _stat(pid: int) -> list[str]:
    """The fields of proc(5)'s stat from the third one on, the state; none where there is no such process or file."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []
