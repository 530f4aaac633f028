"""The demo's cluster: ``barnabas up`` with three brokers in a folder of its own, and single brokers stopped and started."""

import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

__all__ = ["BARNABAS", "Cluster", "wait_until"]

BARNABAS = [sys.executable, "-m", "barnabas"]
_PORTS = (9092, 9093, 9094)
_ZK_PORT = 2181


def wait_until(condition: Callable[[], bool], what: str, timeout_s: float = 60) -> None:
    """Return when the condition holds; raises TimeoutError that says what did not come."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what} did not come within {timeout_s:.0f} s")
        time.sleep(0.05)


class Cluster:
    """Coordination and three brokers as processes of their own."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        port, zk_port = _ports()
        self._output = folder / "up.out"
        self._errors = folder / "up.err"
        command = [*BARNABAS, "up", "--brokers", "3", "--port", str(port), "--zk-port", str(zk_port)]
        with self._output.open("wb") as output, self._errors.open("wb") as errors:
            self._up = subprocess.Popen(
                [*command, "--data-dir", str(folder / "cluster")],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=errors,
                start_new_session=True,  # a Ctrl-C is for the demo, which then stops the cluster itself
            )
        self._restarted: dict[str, subprocess.Popen[bytes]] = {}
        try:
            wait_until(lambda: self._up.poll() is not None or b"\n" in self._output.read_bytes(), "the cluster")
            line = self._output.read_text()
            if not line.startswith("ready "):
                raise RuntimeError(f"barnabas up ended: {line}{self._errors.read_text()}")
        except BaseException:
            self.stop()
            raise
        _, self.bootstrap, zookeeper, pids = line.split()
        self.zookeeper = zookeeper.removeprefix("zk=")
        self.pids = {name: int(pid) for name, _, pid in (each.partition(":") for each in pids[5:].split(","))}

    def stop_broker(self, name: str) -> None:
        """SIGTERM, and wait for its end."""
        os.kill(self.pids[name], signal.SIGTERM)
        wait_until(lambda: not _runs(self.pids[name]), f"the end of broker {name}")

    def start_broker(self, name: str) -> None:
        """By hand, as anyone would, from the properties file that ``up`` wrote."""
        number = "" if name == "0" else name
        properties = self._folder / "cluster" / f"server{number}.properties"
        with (self._folder / f"broker-{name}.log").open("wb") as log:
            process = subprocess.Popen(
                [*BARNABAS, "server-start", str(properties)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self._restarted[name] = process
        self.pids[name] = process.pid

    def memory_mb(self) -> dict[str, int]:
        """Resident memory of each process."""
        return {name: _resident_mb(pid) for name, pid in self.pids.items()}

    @property
    def stop_command(self) -> str:
        """What ends the cluster when the demo leaves it up."""
        own = [str(process.pid) for process in self._restarted.values()]
        return " ".join(["kill", *own, str(self._up.pid)])

    def stop(self) -> None:
        """All of it, brokers first."""
        for process in self._restarted.values():
            process.terminate()
        for process in self._restarted.values():
            _end(process)
        self._up.terminate()
        _end(self._up)


def _end(process: "subprocess.Popen[bytes]") -> None:
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def _ports() -> tuple[int, int]:
    """The usual ports if they are free, else any; PORT and ZK_PORT choose others."""
    if "PORT" in os.environ:
        return int(os.environ["PORT"]), int(os.environ.get("ZK_PORT", "0"))
    usual = all(_free(port) for port in (*_PORTS, _ZK_PORT))
    return (_PORTS[0], _ZK_PORT) if usual else (0, 0)


def _free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _runs(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    try:  # ended, but not yet asked for by its parent
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return os.name != "posix" or sys.platform != "linux"


def _resident_mb(pid: int) -> int:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except OSError:
        return 0
    return pages * os.sysconf("SC_PAGE_SIZE") // 1_000_000
