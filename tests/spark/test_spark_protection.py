"""What other users of the machine can do to a session of Spark, and what its plans show."""

import contextlib
import os
import socket
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.spark
pytest.importorskip("pyspark")

_RPC_REQUEST, _RPC_FAILURE = 3, 5
_PASSWORD = "geheim-4711"


def ask_without_secret(port: int) -> bytes:
    """The answer to a request in Spark's protocol: its length, its type, its number, and a body."""
    body = b"hello"
    message = struct.pack(">BqI", _RPC_REQUEST, 7, len(body)) + body
    with socket.create_connection(("127.0.0.1", port), 30) as connection:
        connection.settimeout(30)
        connection.sendall(struct.pack(">q", 8 + len(message)) + message)
        return connection.recv(4096)


def test_the_driver_takes_no_request_without_the_secret(spark: Any) -> None:
    """From any process of this machine, before it looks at what is asked."""
    answer = ask_without_secret(int(spark.conf.get("spark.driver.port")))
    assert answer[8] == _RPC_FAILURE
    assert b"Expected SaslMessage" in answer


def test_this_process_takes_no_call_without_the_secret(
    spark: Any, run_query: Callable[..., list[Any]], tmp_path: Path
) -> None:
    """It would run a flow's batch function with numbers of another's choice; Spark's
    own calls come through."""
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "rows.json").write_text('{"a": 1}\n')
    assert [
        [row.a for row in batch] for batch in run_query(spark.readStream.schema("a int").json(str(tmp_path / "in")))
    ] == [[1]]
    gateway = spark.sparkContext._gateway
    assert gateway.callback_server_parameters.auth_token
    for secret in (b"", b"A\nwrong\n"):
        with socket.create_connection(("127.0.0.1", gateway._callback_server.port), 30) as connection:
            connection.settimeout(30)
            connection.sendall(secret + b"c\np0\ntoString\ne\n")
            with contextlib.suppress(ConnectionResetError):
                assert b"Traceback" not in connection.recv(1000)  # of the call itself


def test_settings_of_a_session_are_among_no_process_arguments(spark: Any) -> None:
    """Neither by their names; what is there is the path of a file that is gone."""
    words = Path(f"/proc/{spark.sparkContext._gateway.proc.pid}/cmdline").read_bytes()
    assert b"--properties-file" in words
    assert b"spark.sql" not in words
    assert b"--conf" not in words
    file = words.split(b"--properties-file\0")[1].split(b"\0")[0]
    assert not os.path.exists(file)


def test_scratch_files_are_in_a_folder_of_this_user_alone(spark: Any) -> None:
    """Shuffled rows and broadcast tables are files that all can read."""
    folder = Path(spark._jvm.java.lang.System.getProperty("java.io.tmpdir"))
    assert folder.stat().st_mode & 0o777 == 0o700
    assert any(each.name.startswith("blockmgr-") for each in folder.rglob("*"))


def test_plans_show_no_password_of_a_source_or_a_table(spark: Any) -> None:
    """They are on Spark's pages, in its event log and in some errors."""
    stream = spark.readStream.format("barnabas").schema("key binary, value binary")
    options = {
        "kafka.bootstrap.servers": "h:1",
        "subscribe": "t",
        "kafka.sasl.password": _PASSWORD,
        "kafka.sasl.username": "a",
    }
    options |= {"kafka.security.protocol": "SASL_PLAINTEXT", "kafka.sasl.mechanism": "PLAIN"}
    table = {
        "kind": "postgresql",
        "place": f"postgresql://a:{_PASSWORD}@h/d",
        "query": "q",
        "columns": '["a"]',
        "name": "x",
    }
    frames = [stream.options(**options).load(), spark.read.format("barnabas_lookup").options(**table).load()]
    plans = [str(frame._jdf.queryExecution().toString()) for frame in frames]
    assert "kafka.sasl.username=a" in plans[0]
    assert not any(_PASSWORD in each for each in plans)
