"""Server processes of a test cluster: signals, pauses, restarts.

Start times distinguish a server from a process that got its pid.

Some are children of ``barnabas up``, those that were started again are our own.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

from barnabas.base.errors import BarnabasError
from barnabas.testing.process_faults import FaultLinks
from barnabas.testing.server_names import is_broker, title_of

__all__ = ["COMMAND", "ServerProcesses", "wait_until"]

COMMAND = [sys.executable, "-m", "barnabas"]
_TIMEOUT_S = 60.0
_POLL_S = 0.02
_STATE, _NUM_THREADS, _START_TIME = 0, 17, 19
"""Where `_stat` has them."""


class ServerProcesses:
    """The process of each server by the server's name."""

    def __init__(self) -> None:
        self.pids: dict[str, int] = {}
        self.paused: set[str] = set()
        self.start_times: dict[int, str] = {}
        """When processes that are not our children started."""
        self.fault_links: FaultLinks | None = None
        self._restarted: dict[str, subprocess.Popen[bytes]] = {}

    def note(self, pids: Mapping[str, int]) -> None:
        """The processes of a cluster that is up."""
        self.pids.clear()
        self.pids.update(pids)
        self.start_times = {pid: _start_time(pid) for pid in pids.values()}

    def spawn(self, command: list[str], out: IO[bytes], err: IO[bytes]) -> "subprocess.Popen[bytes]":
        """A child with a session of its own: a terminal's Ctrl-C is for the caller, who then
        stops the cluster in order."""
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=err,
            start_new_session=True,
            env=None if self.fault_links is None else self.fault_links.environment(),
        )

    def start_again(self, name: str, command: list[str], log_file: Path) -> None:
        """A new process for a server that has ended."""
        if self.runs(name):
            raise BarnabasError(f"{title_of(name)} is running")
        if self.fault_links is not None:
            self.fault_links.forget(name)
        with log_file.open("ab") as log:
            self._restarted[name] = process = self.spawn([*COMMAND, *command], log, log)
        self.pids[name] = process.pid

    def runs(self, name: str) -> bool:
        """Whether the server's process is there, paused or not."""
        if name in self._restarted:
            return self._restarted[name].poll() is None
        pid = self.pids[name]
        return _is_running(pid, self.start_times.get(pid, ""))

    def end(self, name: str, signal_number: int) -> None:
        """Send a signal that ends it, and wait for the end."""
        self._send(name, signal_number)
        self.paused.discard(name)
        wait_until(lambda: not self.runs(name), f"the end of {name}")

    def pause(self, name: str) -> None:
        """SIGSTOP."""
        self._send(name, signal.SIGSTOP)
        self.paused.add(name)

    def resume(self, name: str) -> None:
        """SIGCONT."""
        self.paused.discard(name)
        self._send(name, signal.SIGCONT)

    def _send(self, name: str, signal_number: int) -> None:
        if not self.runs(name):  # its pid may be another process's by now
            raise BarnabasError(f"{title_of(name)} is not running")
        os.kill(self.pids[name], signal_number)

    def stop_all(self, up: "subprocess.Popen[bytes] | None") -> None:
        """End our own children, and ``barnabas up`` with its own, cleanly."""
        for name in tuple(self.paused):
            with contextlib.suppress(ProcessLookupError, BarnabasError):
                self.resume(name)
        brokers = [child for name, child in self._restarted.items() if is_broker(name)]
        others = [child for child in self._restarted.values() if child not in brokers]
        # Brokers first: they close their sessions.
        for group in (brokers, [up] if up is not None else [], others):
            for child in group:
                child.terminate()
            for child in group:
                _end(child)
        self._restarted.clear()


def _end(child: "subprocess.Popen[bytes]") -> None:
    try:
        child.wait(_TIMEOUT_S / 2)
    except subprocess.TimeoutExpired:
        child.kill()
        child.wait()


def wait_until(
    condition: Callable[[], bool],
    what: str,
    *,
    timeout_s: float = _TIMEOUT_S,
    pause_s: float = _POLL_S,
    ignored: tuple[type[Exception], ...] = (),
) -> None:
    """Return when the condition holds; raises `BarnabasError` when it does not come true.

    An error among those ``ignored`` means that it does not hold yet, as while a server is away.
    """
    end = time.monotonic() + timeout_s
    while True:
        with contextlib.suppress(*ignored):
            if condition():
                return
        if time.monotonic() > end:
            raise BarnabasError(f"{what} did not come within {timeout_s:.0f} s")
        time.sleep(pause_s)


def _is_running(pid: int, start_time: str) -> bool:
    """Whether a process runs that is not our child; one that has ended but was not yet asked for by
    its parent does not run.

    Systems give the pid of a process that has ended to another one soon, and to threads: it is that
    process if it has this start time ("" for any).
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
    # Killed, a first thread may be gone before the others, which keep the files and the ports
    # open until they are too.
    return fields[_STATE] != "Z" or int(fields[_NUM_THREADS]) > 1


def _start_time(pid: int) -> str:
    """When the process was started, in the clock ticks of proc(5).

    "" where the system does not say."""
    fields = _stat(pid)
    return fields[_START_TIME] if fields else ""


def _stat(pid: int) -> list[str]:
    """The fields of proc(5)'s stat from the third one on, the state.

    None where there is no such process or file."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    except OSError:
        return []
