"""Answers within a promised time, on a machine that has other work too.

The kernel counts for how long each thread waited for a CPU (``/proc/PID/task/TID/schedstat``). What
the server's threads and this process waited while an answer was due is explained by the machine's
load, and nothing else is: a server that works for long, sleeps or waits for a timeout is late by
its own doing, and fails the test. Time that the host takes from a virtual machine (steal in
``/proc/stat``) counts as load.
"""

import contextlib
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

__all__ = ["PROMISED_S", "promptly", "read_to_the_end", "stolen_s", "waited_for_cpu_s"]

PROMISED_S = 1.0
_PATIENCE_S = 60.0
"""Where the server says nothing at all."""


def waited_for_cpu_s(pid: int | str) -> float:
    """For how long the threads of a process were ready to run and did not, in all."""
    waited_ns = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has ended
            waited_ns += int((task / "schedstat").read_text().split()[1])
    return waited_ns / 1e9


def stolen_s() -> float:
    """For how long the host took a CPU from this machine since its start: the mean of all CPUs."""
    with Path("/proc/stat").open() as stat:
        return int(stat.readline().split()[8]) / os.sysconf("SC_CLK_TCK") / (os.cpu_count() or 1)


@contextlib.contextmanager
def promptly(pid: int, what: object = "", *, limit_s: float = PROMISED_S) -> Iterator[None]:
    """Fail when the block takes longer than promised and than waiting for CPUs, the
    server's and ours, explains."""
    pids = {pid, os.getpid()}
    before_s = sum(map(waited_for_cpu_s, pids)) + stolen_s()
    began = time.monotonic()
    yield
    took_s = time.monotonic() - began
    if took_s > limit_s:
        load_s = max(sum(map(waited_for_cpu_s, pids)) + stolen_s() - before_s, 0.0)
        assert took_s <= limit_s + load_s, (
            f"{what} took {took_s:.2f} s; promised {limit_s} s, load explains {load_s:.2f} s"
        )


def read_to_the_end(connection: socket.socket) -> bytes:
    """What the server sends before it closes the connection."""
    connection.settimeout(_PATIENCE_S)
    said = b""
    with contextlib.suppress(ConnectionResetError):
        while chunk := connection.recv(1 << 16):
            said += chunk
    return said
