"""A process that has imported PySpark's workers once, from which Spark's Python processes on this
machine are forked (a zygote).

Run as a file: ``python -P -u FILE CONTROL LISTENER``. Spark starts a Python process for each kind
of work of a query (planning the source, reading, writing, the daemon of workers), and each takes
seconds of processor time to import PySpark and Arrow. A fork takes milliseconds.

Spark starts `fork_client`, which asks for a process at a Unix socket and stays as
long as that process lives:

- the client passes its standard streams, arguments, environment and folder; the process takes them
  over and runs the module;
- the client dies: the process gets SIGTERM, and SIGKILL when it has not ended `_GRACE_S` later;
- the process dies: the client gets its status, and ends in the same way;
- this server dies: the client ends the process, and Spark's next process starts without a server;
- the driver dies, kill -9 included: ``CONTROL``, the end of a pipe, is closed, and the
  server and its processes end.

What an interpreter or library reads at its start cannot be changed after it. A request with other
values of `_READ_AT_START` than the server's is refused, and its client starts a process of its own.
So it does when there is no server. The server serves only while it has one thread, because a fork
copies no other, and only its own user.
"""

import contextlib
import gc
import importlib
import os
import runpy
import select
import signal
import socket
import struct
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["ForkRequest"]

_MODULES = (
    "pyspark.worker",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.write_into_data_source",
    "pyspark.sql.worker.commit_data_source_write",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.data_source_pushdown_filters",
    "pyspark.sql.worker.python_streaming_sink_runner",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "barnabas.pipelines.connector.data_source",
    "barnabas.pipelines.frames.lookup",
)
_READ_AT_START = (
    "PYTHON",
    "LD_",
    "LANG",
    "LC_",
    "TZ",
    "MALLOC_",
    "GLIBC_",
    "OMP_",
    "OPENBLAS_",
    "GOTO_",
    "MKL_",
    "BLIS_",
    "NPY_",
    "ARROW_",
)
"""Beginnings of the names of environment variables that count at a start only."""
_READ_LATER = (
    "PYTHONPATH",
    "PYTHONUNBUFFERED",
    "PYTHON_WORKER_",
    "PYTHON_UNIX_",
    "PYTHON_FAULTHANDLER_",
    "PYTHON_DAEMON_",
    "PYTHON_UDF_",
)
"""Spark's variables, which its modules read; the path is applied here, and this
interpreter buffers nothing."""
_GRACE_S = 5.0
_REQUEST_S = 10.0
_PAUSE_S = 0.05
_STREAMS = 3
_COMM_CHARS = 15


class _RefusedError(Exception):
    """This request cannot be served by a fork."""


@dataclass(frozen=True, slots=True)
class ForkRequest:
    """What a client asks for: a module and its arguments, with an environment, in a folder."""

    words: tuple[str, ...]
    environment: Mapping[str, str]
    folder: str

    @classmethod
    def decode(cls, data: bytes) -> "ForkRequest":
        """Three lists, each with its length before it, of texts that end with a zero byte."""
        lists: list[list[str]] = []
        at = 0
        for _ in range(3):
            (length,) = struct.unpack_from(">I", data, at)
            at += 4
            lists.append([os.fsdecode(each) for each in data[at : at + length].split(b"\0")[:-1]])
            at += length
        words, environment, (folder,) = lists
        return cls(tuple(words), dict(each.split("=", 1) for each in environment), folder)

    def require_same_start(self, own: Mapping[str, str]) -> None:
        """Raise unless an interpreter that was started with the environment ``own`` is as good
        as one of the request's."""
        if len(self.words) < 2 or self.words[0] != "-m":
            raise _RefusedError
        for name in {*self.environment, *own}:
            if not name.startswith(_READ_AT_START) or name.startswith(_READ_LATER):
                continue
            # Planners get no seed of hashes and no number of threads: those of workers are as good.
            if self.environment.get(name, own.get(name)) != own.get(name):
                raise _RefusedError


class _Server:
    """The loop that forks, and watches both ends of what it has forked."""

    def __init__(self, control: int, listener: socket.socket) -> None:
        self._control = control
        self._listener = listener
        self._wakeup, wakes = os.pipe()
        self._wakes = wakes
        for each in (self._wakeup, wakes):
            os.set_blocking(each, False)
        self._clients: dict[int, socket.socket] = {}
        """By the process that was forked for each."""
        self._deadlines_s: dict[int, float] = {}
        """When processes whose client is gone are killed."""

    def run(self) -> socket.socket | None:
        """None in the server, at its end; in a forked process the connection to its client."""
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(self._wakes, warn_on_full_buffer=False)
        while True:
            poller = select.poll()
            poller.register(self._control, 0)  # reports that the other end is closed
            poller.register(self._wakeup, select.POLLIN)
            poller.register(self._listener, select.POLLIN)
            for pid, client in self._clients.items():
                if pid not in self._deadlines_s:
                    poller.register(client, 0)
            ready = {number for number, _ in poller.poll(self._timeout_ms())}
            if self._control in ready:
                self._end()
                return None
            if self._wakeup in ready:
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wakeup, 4096)
            self._reap()
            for pid, client in self._clients.items():
                if client.fileno() in ready and pid not in self._deadlines_s:
                    self._signal(pid, signal.SIGTERM)
                    self._deadlines_s[pid] = time.monotonic() + _GRACE_S
            for pid, deadline_s in self._deadlines_s.items():
                if deadline_s <= time.monotonic():
                    self._signal(pid, signal.SIGKILL)
            if self._listener.fileno() in ready and (mine := self._fork()) is not None:
                return mine

    def _timeout_ms(self) -> int | None:
        if not self._deadlines_s:
            return None
        return max(10, int((min(self._deadlines_s.values()) - time.monotonic()) * 1000))

    def _fork(self) -> socket.socket | None:
        """The connection in the new process, which reads the request.

        A slow client holds up no other."""
        try:
            client, _ = self._listener.accept()
        except OSError:
            # No descriptor is free; the request waits in the listener, which stays readable.
            time.sleep(_PAUSE_S)
            return None
        try:
            pid = os.fork()
        except OSError:
            # There is no memory, or there are too many processes; the client tries
            # to start one itself.
            client.close()
            return None
        if pid:
            self._clients[pid] = client
            return None
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for each in self._clients.values():
            each.close()
        self._listener.close()
        for number in (self._control, self._wakeup, self._wakes):
            os.close(number)
        return client

    def _reap(self) -> None:
        for pid in list(self._clients):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                self._deadlines_s.pop(pid, None)
                client = self._clients.pop(pid)
                with contextlib.suppress(OSError):
                    client.sendall(struct.pack(">ci", b"s", status))
                client.close()

    def _signal(self, pid: int, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

    def _end(self) -> None:
        """The driver is gone, or needs no server any more: so end all that was forked."""
        _remove_socket(self._listener)
        for number, seconds in ((signal.SIGTERM, _GRACE_S), (signal.SIGKILL, _GRACE_S)):
            for pid in self._clients:
                self._signal(pid, number)
            deadline_s = time.monotonic() + seconds
            while self._clients and time.monotonic() < deadline_s:
                select.select([self._wakeup], [], [], 0.1)
                self._reap()


def _take_over(client: socket.socket, own: Mapping[str, str], path: list[str]) -> str | None:
    """Become what the client asks for; the module to run, or None if it is to be run elsewhere."""
    client.settimeout(_REQUEST_S)
    _, uid, _ = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    if uid != os.getuid():
        return None
    data, streams, _, _ = socket.recv_fds(client, 4, _STREAMS)
    (length,) = struct.unpack(">I", data)
    with client.makefile("rb") as file:
        request = ForkRequest.decode(file.read(length))
    try:
        request.require_same_start(own)
        os.chdir(request.folder)
    except (_RefusedError, OSError):
        return None
    client.sendall(struct.pack(">ci", b"p", os.getpid()))
    if client.recv(1) != b"g":  # the client did not wait any longer
        return None
    client.close()
    for number, stream in enumerate(streams):
        os.dup2(stream, number)
        os.close(stream)
    os.environ.clear()
    os.environ.update(request.environment)
    module = request.words[1]
    sys.argv[:] = list(request.words[1:])
    entries = request.environment.get("PYTHONPATH", "").split(os.pathsep)
    sys.path[:] = [request.folder, *(each for each in entries if each), *path]
    # This is the name that ps shows.
    with contextlib.suppress(OSError), open("/proc/self/comm", "w", encoding="utf-8") as comm:
        comm.write(request.words[-1][-_COMM_CHARS:])
    sys.modules.pop(module, None)  # it runs as __main__
    return module


def _prepare() -> None:
    for each in _MODULES:
        # Another version of PySpark may lack the module; it is imported where it is needed.
        with contextlib.suppress(ImportError):
            importlib.import_module(each)
    if (numpy := sys.modules.get("numpy.random")) is not None:
        os.register_at_fork(after_in_child=numpy.seed)  # as the module random does by itself
    if len(os.listdir("/proc/self/task")) > 1:
        sys.exit("the fork server has more than one thread")
    gc.collect()
    gc.freeze()  # collections in forked processes neither visit nor copy what is shared


def _remove_socket(listener: socket.socket) -> None:
    path = listener.getsockname()
    with contextlib.suppress(OSError):
        os.unlink(path)
        os.rmdir(os.path.dirname(path))


def _main() -> None:
    control, listener = int(sys.argv[1]), socket.socket(fileno=int(sys.argv[2]))
    for number in (control, listener.fileno()):
        os.set_inheritable(number, False)
    own = dict(os.environ)
    given = own.get("PYTHONPATH", "").split(os.pathsep)
    base = [each for each in sys.path if each not in given]
    try:
        _prepare()
    except BaseException:
        _remove_socket(listener)
        raise
    server = _Server(control, listener)
    client = server.run()
    if client is None:
        return
    if (module := _take_over(client, own, base)) is None:
        client.close()
        os._exit(0)
    del server, client
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main()
