"""What ``barnabas up`` says and leaves behind, and the commands for clusters in the background."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.client import Admin
from support.needs import needs
from support.ports import free_ports
from support.waiting import eventually

pytestmark = [pytest.mark.interop]
TEMPORARY = (
    "note: the data of this cluster is temporary and goes when it stops; barnabas up --data-dir DIR keeps its data\n"
)


def run(*arguments: str, timeout_s: float = 60) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own."""
    command = [sys.executable, "-m", "barnabas", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=timeout_s)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A state folder and a folder for temporary files of the test's own."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    (tmp_path / "tmp").mkdir()
    monkeypatch.setenv("TMPDIR", str(tmp_path / "tmp"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--port", "80000"], "port 80000 cannot be used: ports are 1 to 65535"),
        (["--override", "foo"], "NAME=VALUE is expected"),
        (["--override", "num.partitions=many"], "Invalid value many for configuration num.partitions"),
        (["--brokers", "0"], "at least one broker is needed"),
        (["--host", "1.2.3.4"], "--host 1.2.3.4: Cannot assign requested address"),
        (["--zookeeper", "127.0.0.1:1"], "no coordination server answers at 127.0.0.1:1: is one running there?"),
        (["--data-dir", "/dev/null/x"], "choose another folder with --data-dir"),
    ],
)
def test_what_cannot_be_started_is_one_line(options: list[str], message: str) -> None:
    """Never a traceback, and nothing was started."""
    done = run("up", *(["--port", "0"] if "--port" not in options else []), "--zk-port", "0", *options)
    assert done.returncode == 1
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "Traceback" not in done.stderr


def test_a_server_that_cannot_start_gives_the_reason_and_its_logs_are_kept(tmp_path: Path) -> None:
    """The temporary folder goes, the logs and configuration files stay."""
    done = run("up", "--port", "0", "--zk-port", "0", "--override", "log.dirs=/proc/no")
    assert done.returncode == 1
    assert re.search(r"broker 0 \(pid \d+\) ended with 1\n  Error: No log dir can be used", done.stderr)
    assert "Traceback" not in done.stderr
    assert "start it again with" not in done.stderr  # of files that are gone
    kept = Path(re.search(r"the logs are kept in (\S+)", done.stderr)[1])
    assert "No log dir can be used" in (kept / "logs" / "broker-0.log").read_text()
    assert "log.dirs=/proc/no" in (kept / "server.properties").read_text()
    assert [path.name for path in (tmp_path / "tmp").iterdir()] == [kept.name]


def test_a_cluster_in_the_background_is_found_watched_and_stopped(tmp_path: Path) -> None:
    """--detach, status, logs, a second up on the same folder, a broker that is killed, down."""
    port, zk_port = free_ports(2)
    data_dir = str(tmp_path / "data")
    options = ["--port", str(port), "--zk-port", str(zk_port), "--data-dir", data_dir]
    done = run("up", "--detach", *options, "--override", "num.partition=3")
    assert done.returncode == 0, done.stderr
    assert "num.partition=3 has no effect: it is not known; did you mean num.partitions?" in done.stderr
    assert done.stdout.startswith(f"ready 127.0.0.1:{port} zk=127.0.0.1:{zk_port} pids=zookeeper:")
    try:
        (cluster,) = json.loads(run("status", "--output", "json").stdout)
        assert cluster["servers"] == {"zookeeper": "running", "0": "running"}
        topics = ("topics", "--list", "--bootstrap-server", f"127.0.0.1:{port}")
        eventually(lambda: run(*topics).stdout == "__consumer_offsets\n", timeout_s=60, what="groups are prepared")
        before = Path(data_dir, "server.properties").read_text()
        second = run("up", "--port", "0", "--zk-port", "0", "--data-dir", data_dir)
        assert second.returncode == 1
        assert f"{data_dir} is in use by a running cluster (process {cluster['pid']}" in second.stderr
        assert Path(data_dir, "server.properties").read_text() == before
        assert "started (barnabas.broker.server)" in run("logs", "0").stdout
        lines = [json.loads(line) for line in run("logs", "--output", "json", "-n", "1").stdout.splitlines()]
        assert [line["server"] for line in lines] == ["zookeeper", "0", "up"]
        os.kill(cluster["pids"]["0"], signal.SIGKILL)
        eventually(
            lambda: "was killed by signal 9" in run("logs", "up").stdout, timeout_s=60, what="the death is reported"
        )
        assert f"start it again with: barnabas server-start {data_dir}" in run("logs", "up").stdout
        assert json.loads(run("status", "--output", "json").stdout)[0]["servers"]["0"] == "ended"
        advice = re.search(r"start it again with: barnabas (server-start \S+)", run("logs", "up").stdout)[1]
        with subprocess.Popen(
            [sys.executable, "-m", "barnabas", *advice.split()], stderr=subprocess.DEVNULL
        ) as by_hand:
            eventually(lambda: run(*topics).returncode == 0, timeout_s=60, what="the broker serves again")
            (cluster,) = json.loads(run("status", "--output", "json").stdout)
            assert (cluster["servers"]["0"], cluster["pids"]["0"]) == ("running", by_hand.pid)
            assert (
                f"0         {by_hand.pid:<{len(str(cluster['pid']))}} running, started by hand" in run("status").stdout
            )
            down = run("down", "--data-dir", data_dir, "--output", "json")
            assert by_hand.wait(10) == 0
        assert f"stopped broker 0 (pid {by_hand.pid}), which was started by hand" in down.stderr
    finally:
        run("down", "--data-dir", data_dir)
    assert json.loads(down.stdout) == {"stopped": f"127.0.0.1:{port}", "data_dir": data_dir}, down.stderr
    assert list((tmp_path / "tmp").iterdir()) == []
    assert run("status").returncode == 1
    assert "no cluster of yours runs here" in run("down").stderr


@needs("openssl")
def test_a_data_dir_starts_again_with_all_of_its_servers_and_users(tmp_path: Path) -> None:
    """Without an option; fewer brokers are refused.

    Records are in the folder and readable, whatever its name and the password."""
    data_dir = tmp_path / "j\u00fcrgen's \\data"
    client = ["--command-config", str(data_dir / "security" / "client.properties")]
    secured = ["--security", "SASL_PLAINTEXT", "--user", 'ann= s\u00e9cret "\\ ']
    ports = ["--port", "0", "--zk-port", "0"]
    up = run("up", "--detach", "--data-dir", str(data_dir), "--brokers", "2", *ports, *secured)
    try:
        assert up.returncode == 0, up.stderr
        servers = up.stdout.split()[1]
        describe = ("topics", "--describe", "--topic", "t", "--bootstrap-server", servers)
        create = ("topics", "--create", "--topic", "t", "--partitions", "4", "--bootstrap-server", servers)
        assert run(*create, *client).returncode == 0
        assert run("down").returncode == 0
        fewer = run("up", "--detach", "--data-dir", str(data_dir), "--brokers", "1")
        assert (fewer.returncode, "has 2 brokers" in fewer.stderr) == (1, True)
        again = run("up", "--detach", "--data-dir", str(data_dir))
        assert again.stdout.split()[:3] == up.stdout.split()[:3], again.stderr
        eventually(lambda: "Leader: none" not in run(*describe, *client).stdout, timeout_s=60, what="all have leaders")
        plain = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "bootstrap.servers": servers}
        with Admin({**plain, "sasl.username": "ann", "sasl.password": ' s\u00e9cret "\\ '}) as admin:
            assert len(admin.describe_topics(["t"])[0].partitions) == 4
        assert {path.parents[2] for path in tmp_path.rglob("t-0/leader-epoch-checkpoint")} == {data_dir}
    finally:
        run("down", "--data-dir", str(data_dir))


def test_another_broker_joins_a_cluster_that_runs(tmp_path: Path) -> None:
    """With --zookeeper; it is ready although the cluster has brokers that this
    command did not start."""
    port, zk_port, joining_port = free_ports(3)
    data_dirs = [str(tmp_path / name) for name in ("first", "joining")]
    first = run("up", "--detach", "--port", str(port), "--zk-port", str(zk_port), "--data-dir", data_dirs[0])
    try:
        assert first.returncode == 0, first.stderr
        joining = ["--port", str(joining_port), "--zookeeper", f"127.0.0.1:{zk_port}", "--override", "broker.id=7"]
        joined = run("up", "--detach", *joining, "--data-dir", data_dirs[1])
        assert joined.stdout.startswith(f"ready 127.0.0.1:{joining_port} "), joined.stderr
        with Admin({"bootstrap.servers": f"127.0.0.1:{joining_port}"}) as admin:
            assert {broker.id for broker in admin.describe_cluster().brokers} == {0, 7}
    finally:
        for data_dir in reversed(data_dirs):
            run("down", "--data-dir", data_dir)


def test_down_returns_when_the_temporary_folder_is_gone(tmp_path: Path) -> None:
    """Nothing is left of a cluster without --data-dir, and of its messages; both
    commands say so."""
    up = run("up", "--detach", "--port", "0", "--zk-port", "0")
    assert (up.returncode, up.stderr) == (0, TEMPORARY)
    assert up.stdout.startswith("ready ")
    down = run("down")
    assert (down.returncode, len(down.stdout.splitlines())) == (0, 1)
    assert down.stderr == "its data was temporary and is removed; barnabas up --data-dir DIR keeps the data\n"
    assert list((tmp_path / "tmp").iterdir()) == []


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 0)])
def test_a_cluster_in_the_foreground_ends_as_its_signal_asks(tmp_path: Path, number: int, code: int) -> None:
    """Ctrl-C gives the code that shells know; SIGTERM, a supervisor's, none.

    The folder is gone, and no word of an error."""
    command = [sys.executable, "-m", "barnabas", "up", "--port", "0", "--zk-port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline().startswith("ready ")
        process.send_signal(number)
        _, errors = process.communicate(timeout=60)
    assert (process.returncode, errors) == (code, TEMPORARY)
    assert list((tmp_path / "tmp").iterdir()) == []
