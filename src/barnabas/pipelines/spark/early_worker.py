"""A Python worker that connects to Spark's JVM first, and imports PySpark second.

Run as a file: `python -P FILE -m MODULE`. The JVM waits 10 s for the connection of a worker that it
has started, which no setting changes, and PySpark's workers connect when they have imported
PySpark, NumPy and Arrow. On a busy machine that takes longer, and the query breaks though nothing
is wrong with it. For what follows the connection the JVM waits as long as it takes.

Imports nothing but a few modules of the standard library before it has connected, so
nothing of this package either.
"""

import os
import runpy
import socket
import struct
import sys
from typing import Any

__all__: list[str] = []


def _connect() -> Any:
    """What `pyspark.util.local_connect_and_auth` gives: the socket's file, and the socket."""
    timeout_s = int(os.environ.get("SPARK_AUTH_SOCKET_TIMEOUT", "15"))
    if path := os.environ.get("PYTHON_WORKER_FACTORY_SOCK_PATH"):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        connection.settimeout(timeout_s)
        connection.connect(path)
        return connection.makefile("rwb", 65536), connection
    host = "::1" if os.environ.get("SPARK_PREFER_IPV6", "").lower() == "true" else "127.0.0.1"
    connection = socket.create_connection((host, int(os.environ["PYTHON_WORKER_FACTORY_PORT"])), timeout_s)
    file = connection.makefile("rwb", 65536)
    secret = os.environ["PYTHON_WORKER_FACTORY_SECRET"].encode()
    file.write(struct.pack(">i", len(secret)) + secret)
    file.flush()
    (length,) = struct.unpack(">i", file.read(4))
    if file.read(length) != b"ok":
        raise ConnectionError("Spark's JVM refuses the secret that it gave to this worker")
    return file, connection


def _main() -> None:
    module = sys.argv[2]
    sys.argv[:] = sys.argv[2:]
    sys.path.insert(0, os.getcwd())  # as `python -m` does
    made = _connect()
    import pyspark.util

    util: Any = pyspark.util
    util.local_connect_and_auth = lambda *_: made
    runpy.run_module(module, run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _main()
