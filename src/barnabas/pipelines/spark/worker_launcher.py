"""The program that Spark on this machine starts as Python, and the server that forks what
it starts (`fork_server`).

Spark starts ``PROGRAM -m MODULE`` and names in the environment where a worker is to connect.
With a server this is a client of it. Without one, a worker connects before it imports PySpark
(`early_worker`); the daemon from which workers are forked is not waited for in this way, and
starts as ever.
"""

import contextlib
import hashlib
import os
import shlex
import shutil
import socket
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from barnabas.pipelines.spark import early_worker, fork_client, fork_server
from barnabas.pipelines.spark.gateway import ignore_interrupt
from barnabas.pipelines.spark.jvm import write_program

__all__ = ["ForkServer", "prepare_python"]

_LAUNCHER = """#!/bin/sh
# Starts a Python process of Spark: a fork of what has imported PySpark already, or a worker that connects before it imports PySpark.
if [ "$1" = -m ] && [ -S "${address}" ]; then
  exec {python} -I -S {client} "$0" "$@"
fi
if [ "$1" = -m ] && [ "$2" != pyspark.daemon ] && [ -n "$PYTHON_WORKER_FACTORY_PORT$PYTHON_WORKER_FACTORY_SOCK_PATH" ]; then
  exec {python} -P {early} "$@"
fi
exec {python} "$@"
"""
_BACKLOG = 64
_END_S = 15.0


def prepare_python(cache: Path) -> str:
    """The path of the launcher for this Python, kept in ``cache``; of Python itself where there is
    no shell or no file to run."""
    early = early_worker.__file__
    if os.name != "posix" or not os.path.isfile(early):
        return sys.executable
    text = _LAUNCHER.format(
        address=fork_client.ADDRESS,
        python=shlex.quote(sys.executable),
        client=shlex.quote(fork_client.__file__),
        early=shlex.quote(early),
    )
    program = cache / f"python-{hashlib.sha256(text.encode()).hexdigest()[:12]}"
    write_program(program, text)
    return str(program)


class ForkServer:
    """A process that forks Spark's Python processes, from its start on.

    Ends when this process does, and so do they."""

    def __init__(self, settings: Mapping[str, str], log: int) -> None:
        """``settings`` are Spark's, ``log`` the descriptor to which the server writes.

        Raises `OSError`."""
        # Only this user can enter it.
        self._folder = Path(tempfile.mkdtemp(prefix="barnabas-python-"))
        path = str(self._folder / "socket")
        control, self._control = os.pipe()
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
                listener.bind(path)
                listener.listen(_BACKLOG)
                self._process = subprocess.Popen(
                    [sys.executable, "-P", "-u", fork_server.__file__, str(control), str(listener.fileno())],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    env={**os.environ, **_environment(settings)},
                    pass_fds=(control, listener.fileno()),
                    preexec_fn=ignore_interrupt,
                )
        except OSError:  # a folder for temporary files with a long name, too
            os.close(self._control)
            shutil.rmtree(self._folder)
            raise
        finally:
            os.close(control)
        self.environment = {fork_client.ADDRESS: path}
        """For Spark's JVM."""

    @staticmethod
    def is_possible() -> bool:
        """Whether there is a fork without an exec that may be relied on, and a file to run."""
        return sys.platform == "linux" and os.path.isfile(fork_server.__file__)

    def close(self) -> None:
        """End the server and what is left of its processes; safe to call again."""
        if self._control >= 0:
            os.close(self._control)
            self._control = -1
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        with contextlib.suppress(OSError):  # the server removes it, if it could
            shutil.rmtree(self._folder)


def _environment(settings: Mapping[str, str]) -> dict[str, str]:
    """What Spark sets for its workers and counts at the start of an interpreter only; and no
    thread of Arrow's allocator."""
    prefix = "spark.executorEnv."
    return {
        "JE_ARROW_MALLOC_CONF": "background_thread:false",
        "PYTHONHASHSEED": os.environ.get("PYTHONHASHSEED", "0"),
        "OMP_NUM_THREADS": settings.get("spark.task.cpus", "1"),
        # numpy starts OpenBLAS's threads, one for each of these, when it is imported, and a process
        # with threads cannot be forked.
        "OPENBLAS_NUM_THREADS": os.environ.get("OPENBLAS_NUM_THREADS", "1"),
        **{name.removeprefix(prefix): text for name, text in settings.items() if name.startswith(prefix)},
    }
