"""zookeeper-status, zookeeper-dump and zookeeper-server-stop, on servers of ours and
on files of Apache's."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from barnabas.cli.main import main
from barnabas.cli.output.exit_codes import INCOMPLETE
from support.coordination import CoordinationProcess, coordination_server
from support.needs import needs_reference

pytestmark = pytest.mark.interop


def fill(server: CoordinationProcess) -> None:
    """Text, bytes, an ephemeral, a multi, an ACL and a failure."""
    client = KazooClient(server.address, timeout=10)
    client.start(60)
    client.create("/text", b"some text")
    client.create("/bytes", b"\xff\xfe")
    client.create("/gone", b"", ephemeral=True)
    transaction = client.transaction()
    transaction.create("/multi", b"1")
    transaction.delete("/bytes")
    transaction.commit()
    client.stop()
    client.close()


def test_status_shows_each_server_and_fails_for_one_that_does_not_serve(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Role, zxid, lag, sessions and latency; sessions are unknown where mntr is not allowed."""
    with coordination_server(tmp_path / "a") as open_one:
        fill(open_one)
        with coordination_server(tmp_path / "b", **{"4lw.commands.whitelist": "srvr"}) as closed_one:
            fill(closed_one)
            both = f"{open_one.address},{closed_one.address}"
            assert main(["zookeeper-status", both, "--output", "json"]) == 0
            first, second = json.loads(capsys.readouterr().out)["servers"]
            assert first["role"] == second["role"] == "standalone"
            assert first["zxid"] == second["zxid"]
            assert (first["lag"], first["sessions"], second["sessions"]) == (0, 0, None)
            assert first["nodes"] == 7  # as ZooKeeper counts: the root twice
            address = closed_one.address
        assert main(["zookeeper-status", f"{open_one.address},{address}"]) == INCOMPLETE
        shown = capsys.readouterr()
        assert shown.out.startswith("SERVER ")
        assert "unreachable" in shown.out
        assert shown.err == f"Incomplete: {address}: unreachable (Connection refused)\n"
        assert main(["zookeeper-status", address]) == 1


def dumped(capsys: pytest.CaptureFixture[str], path: Path) -> list[dict[str, object]]:
    assert main(["zookeeper-dump", str(path), "--output", "json"]) == 0
    return json.loads(capsys.readouterr().out)["items"]


@pytest.mark.parametrize("apache", [False, pytest.param(True, marks=[pytest.mark.java, needs_reference])])
def test_dump_shows_logs_and_snapshots_of_either_kind(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], apache: bool
) -> None:
    """Every transaction with its fields, every node with its stat; bytes that are no
    text in base64."""
    for _ in range(2):  # Apache's server takes a snapshot at its start
        with coordination_server(tmp_path, apache=apache, snapCount=2) as server:
            if not list(server.version_dir.glob("log.*")):
                fill(server)
    (log,) = list(server.version_dir.glob("log.1"))
    items = [item for path in sorted(server.version_dir.glob("log.*")) for item in dumped(capsys, path)]
    types = [item["type"] for item in items]
    assert types[:2] == ["create_session", "create"]
    assert {"multi", "close_session"} <= set(types)
    creations = {item["path"]: item for item in items if item["type"] == "create"}
    assert creations["/text"]["data"] == "some text"
    assert creations["/bytes"]["data_base64"] == "//4="
    multi = next(item for item in items if item["type"] == "multi")
    assert [part["type"] for part in multi["parts"]] == ["create", "delete"]
    main(["zookeeper-dump", str(log)])
    assert "zxid=0x1 " in capsys.readouterr().out
    newest = max(server.version_dir.glob("snapshot.*"), key=lambda path: int(path.suffix[1:], 16))
    nodes = {item["path"]: item for item in dumped(capsys, newest) if "path" in item}
    assert nodes["/zookeeper"]["num_children"] == 2


def test_dump_names_what_it_cannot_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file that is missing, or another one."""
    (tmp_path / "junk").write_bytes(b"junk")
    for name in ("junk", "missing"):
        assert main(["zookeeper-dump", str(tmp_path / name)]) == 1
        assert str(tmp_path / name) in capsys.readouterr().err


def test_stop_ends_the_server_of_a_configuration_and_no_other(tmp_path: Path) -> None:
    """It waits for the end; a second call finds nothing."""
    with coordination_server(tmp_path / "a") as stopped, coordination_server(tmp_path / "b") as other:
        command = [sys.executable, "-m", "barnabas", "zookeeper-server-stop", "--config", "zoo.cfg"]
        for code in (0, 1):
            done = subprocess.run(command, cwd=stopped.directory, capture_output=True, text=True, check=False)
            assert done.returncode == code, done.stdout + done.stderr
        assert stopped.process.wait(60) == 0
        assert other.process.poll() is None
        os.kill(other.process.pid, 0)
