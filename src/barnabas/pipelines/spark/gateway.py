"""Spark's JVM, and the connection to it (py4j).

It starts first, and PySpark is imported while it starts, on another core. PySpark's own
`launch_gateway` starts the same script, but waits for it at once, and looks only ten times a
second. It also passes settings as arguments, which every user of the machine can read; here they
are in files that only this user can read.
"""

import contextlib
import os
import shlex
import shutil
import signal
import struct
import subprocess
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from barnabas.base.errors import BarnabasError
from barnabas.base.private_files import write_private
from barnabas.base.settings import properties_text, read_properties
from barnabas.pipelines.spark.callback_auth import authenticate_callbacks
from barnabas.pipelines.spark.java_files import argument_file

__all__ = ["JvmEndedError", "SparkJvm", "ignore_interrupt"]

_LOOK_EVERY_S = 0.02
_ENDING_S = 10.0
_PROPERTIES_FILE = "--properties-file"
_JAVA_OPTIONS = ("spark.driver.extraJavaOptions", "spark.driver.defaultJavaOptions")
"""Settings that Spark's script passes to Java as arguments."""


class JvmEndedError(BarnabasError):
    """The JVM ended before PySpark was connected to it."""


class SparkJvm:
    """A JVM of Spark from its start on; ends when this process does."""

    def __init__(self, spark: Path, settings: Mapping[str, str], environment: Mapping[str, str], log: int) -> None:
        """``spark`` is the folder of PySpark, ``log`` the descriptor to which the JVM
        writes what it has to say."""
        self._folder = Path(tempfile.mkdtemp(prefix="barnabas-jvm-"))
        self._connection = self._folder / "connection"
        self.has_open_callbacks = False
        """Whether this process takes calls without a secret since it is connected."""
        try:
            self.process = self._start(spark, settings, environment, log)
        except BaseException:
            shutil.rmtree(self._folder, ignore_errors=True)
            raise

    def _start(
        self, spark: Path, settings: Mapping[str, str], environment: Mapping[str, str], log: int
    ) -> "subprocess.Popen[bytes]":
        arguments, given = _take_properties(_submit_arguments(os.environ))
        # Spark reads one file of properties, the last; defaults only in the place of a
        # file, or if it is asked to.
        words = ["--properties-file", str(self._write_settings({**(given or {}), **settings}))]
        if given is None:
            words.append("--load-spark-defaults")
        return subprocess.Popen(
            [str(spark / "bin" / "spark-submit"), *words, *arguments],
            stdin=subprocess.PIPE,  # its end is the JVM's end
            stdout=log,
            stderr=log,
            env={
                **os.environ,
                **environment,
                "SPARK_HOME": str(spark),  # the script would start a Python to find it
                "SPARK_CONNECT_MODE": "0",
                "_PYSPARK_DRIVER_CONN_INFO_PATH": str(self._connection),
            },
            preexec_fn=ignore_interrupt,  # as PySpark does
        )

    def _write_settings(self, settings: Mapping[str, str]) -> Path:
        """The settings as a file of properties, in a folder that only this user can enter, until
        the connection is there."""
        given = dict(settings)
        for name in _JAVA_OPTIONS:
            if given.get(name, "").strip():
                options = self._write(name, argument_file(given[name]))
                given[name] = f'"@{options}"'
        return self._write("spark.properties", properties_text(given))

    def _write(self, name: str, text: str) -> Path:
        path = self._folder / name
        write_private(path, text.encode())
        return path

    def connect(self) -> Any:
        """PySpark's gateway; raises `JvmEndedError`."""
        from pyspark import java_gateway

        try:
            while not self._connection.is_file():
                if self.process.poll() is not None and not self._connection.is_file():
                    raise JvmEndedError(f"the JVM ended with {self.process.returncode}")
                time.sleep(_LOOK_EVERY_S)
            port, secret = _read_connection(self._connection.read_bytes())
        finally:
            shutil.rmtree(self._folder, ignore_errors=True)
        names = {"PYSPARK_GATEWAY_PORT": str(port), "PYSPARK_GATEWAY_SECRET": secret}
        os.environ |= names
        try:
            launch: Any = java_gateway.launch_gateway  # untyped
            gateway = launch()
        finally:
            for name in names:
                os.environ.pop(name, None)
        gateway.proc = self.process
        self.has_open_callbacks = not authenticate_callbacks(gateway)
        return gateway

    def end(self, timeout_s: float = _ENDING_S) -> bool:
        """Close the pipe, at which the JVM ends, and wait for that.

        Whether it ended by itself and well."""
        shutil.rmtree(self._folder, ignore_errors=True)
        assert self.process.stdin is not None
        with contextlib.suppress(OSError):
            self.process.stdin.close()
        try:
            return self.process.wait(timeout_s) == 0
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        return False


def _submit_arguments(environ: Mapping[str, str]) -> list[str]:
    """The user's arguments for Spark's script, which begin with its options."""
    try:
        return shlex.split(environ.get("PYSPARK_SUBMIT_ARGS", "pyspark-shell"))
    except ValueError as error:
        raise BarnabasError(f"PYSPARK_SUBMIT_ARGS cannot be read: {error}") from error


def _take_properties(arguments: list[str]) -> tuple[list[str], dict[str, str] | None]:
    """The arguments without the files of properties among them, and what is in the last one, if
    there is any; raises `BarnabasError`."""
    rest: list[str] = []
    file: str | None = None
    words = iter(arguments)
    for word in words:
        name, equals, value = word.partition("=")
        if name != _PROPERTIES_FILE:
            rest.append(word)
        elif not (file := value if equals else next(words, "")):
            raise BarnabasError(f"PYSPARK_SUBMIT_ARGS: {_PROPERTIES_FILE} needs a file")
    if file is None:
        return rest, None
    try:
        return rest, read_properties(Path(file).read_text(encoding="utf-8"))  # as Spark reads it
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or error
        raise BarnabasError(f"PYSPARK_SUBMIT_ARGS: cannot read {_PROPERTIES_FILE} {file}: {why}") from error


def ignore_interrupt() -> None:
    """Ctrl-C goes to all processes of a terminal; the driver decides what it means."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)


def _read_connection(data: bytes) -> tuple[int, str]:
    """The port and the secret that the JVM has written: each of four bytes, the
    secret's length before it."""
    port, length = struct.unpack_from(">ii", data)
    return port, data[8 : 8 + length].decode()
