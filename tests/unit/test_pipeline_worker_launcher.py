"""Python workers of Spark that connect before they import PySpark, against a JVM
that this test plays."""

import os
import socket
import struct
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyspark")

from barnabas.pipelines.spark.worker_launcher import prepare_python

WORKER = """
import sys
open("gate").read()
from pyspark.worker_util import get_sock_file_to_executor
with get_sock_file_to_executor(timeout=None) as file:
    file.write("|".join([__name__, *sys.argv[1:], sys.path[0]]).encode())
"""


def test_a_worker_connects_before_its_module_is_imported_and_then_uses_this_connection(tmp_path: Path) -> None:
    """The module's import waits for a gate that opens when the JVM has accepted."""
    os.mkfifo(tmp_path / "gate")
    (tmp_path / "worker_of_test.py").write_text(WORKER)
    with socket.create_server(("127.0.0.1", 0)) as jvm:
        jvm.settimeout(60)
        port = str(jvm.getsockname()[1])
        environment = {**os.environ, "PYTHON_WORKER_FACTORY_PORT": port, "PYTHON_WORKER_FACTORY_SECRET": "s3cret"}
        with subprocess.Popen(
            [prepare_python(tmp_path / "my cache"), "-m", "worker_of_test", "a b"], cwd=tmp_path, env=environment
        ) as worker:
            connection, _ = jvm.accept()
            with connection, connection.makefile("rwb") as file:
                assert file.read(4 + 6) == struct.pack(">i", 6) + b"s3cret"
                file.write(struct.pack(">i", 2) + b"ok")
                file.flush()
                (tmp_path / "gate").write_text("")
                assert struct.unpack(">i", file.read(4)) == (worker.pid,)
                assert file.read() == f"__main__|a b|{tmp_path}".encode()
        assert worker.returncode == 0


def test_what_is_no_worker_starts_as_it_would_without_the_launcher(tmp_path: Path) -> None:
    """Spark also asks for versions, and starts the daemon from which it forks workers."""
    launcher = prepare_python(tmp_path)
    assert prepare_python(tmp_path) == launcher
    shown = subprocess.run([launcher, "-c", "import sys; print(sys.executable)"], check=True, capture_output=True)
    assert shown.stdout.decode().strip() == sys.executable
