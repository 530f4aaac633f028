"""What Spark starts as Python where there is a fork server: asks it for a process, and lives
and ends with that process.

Run as a file: ``python -I -S FILE LAUNCHER -m MODULE ...``. Spark's JVM holds the pipes of this
process, and ends it to end the worker. Where no server answers in time, or it refuses, LAUNCHER
starts the module. Imports little, because it runs for each process.
"""

import contextlib
import os
import signal
import socket
import struct
import sys

__all__ = ["ADDRESS"]

ADDRESS = "BARNABAS_FORK_SERVER"
"""The environment variable with the path of the server's socket."""
_ANSWER_S = 4.0
"""Less than half of what the JVM waits for the connection of a worker: enough is left to
start one without the server."""
_BEGUN, _ENDED = b"p", b"s"
"""What comes before the number of a process that begins, and before the status of
one that has ended."""
_REPORT_BYTES = 5


def _encode_request(words: list[str], environment: dict[str, str], folder: str) -> bytes:
    """What `fork_server.ForkRequest` decodes, with its length before it."""
    lists = (words, [f"{name}={text}" for name, text in environment.items()], [folder])
    encoded = [b"".join(os.fsencode(each) + b"\0" for each in texts) for texts in lists]
    body = b"".join(struct.pack(">I", len(each)) + each for each in encoded)
    return struct.pack(">I", len(body)) + body


def _ask(path: str, words: list[str]) -> tuple[socket.socket, int] | None:
    """The connection over which the process's end is reported, and its number.

    None where a process has to be started."""
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(_ANSWER_S)
        connection.connect(path)
        request = _encode_request(words, dict(os.environ), os.getcwd())
        socket.send_fds(connection, [request[:4]], [0, 1, 2])
        connection.sendall(request[4:])
        answer = connection.recv(_REPORT_BYTES, socket.MSG_WAITALL)
        # A process that refuses or fails ends, and the first that comes is the
        # server's report of that.
        if len(answer) == _REPORT_BYTES and answer[:1] == _BEGUN:
            connection.sendall(b"g")
            connection.settimeout(None)
            return connection, struct.unpack(">i", answer[1:])[0]
    except OSError:
        pass
    connection.close()
    return None


def _end_as(connection: socket.socket, pid: int) -> None:
    """Wait for the end of the process, and end as it did."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):  # the JVM reads until the last end of a pipe is closed
        os.dup2(nowhere, number)
    try:
        report = connection.recv(_REPORT_BYTES, socket.MSG_WAITALL)
    except OSError:
        report = b""
    if len(report) < _REPORT_BYTES or report[:1] != _ENDED:  # the server died
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGTERM)
        os._exit(1)
    (status,) = struct.unpack(">i", report[1:])
    if os.WIFSIGNALED(status):
        number = os.WTERMSIG(status)
        if number not in (signal.SIGKILL, signal.SIGSTOP):
            signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)
    os._exit(os.waitstatus_to_exitcode(status))


def _main() -> None:
    launcher, *words = sys.argv[1:]
    path = os.environ.pop(ADDRESS)
    if (asked := _ask(path, words)) is None:
        os.execv(launcher, [launcher, *words])  # noqa: S606  # no shell is wanted
    else:
        _end_as(*asked)


if __name__ == "__main__":
    _main()
