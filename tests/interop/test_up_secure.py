"""``barnabas up --secure``: a cluster with users, rights and TLS from its first second."""

import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.base.settings import read_properties
from barnabas.security.jaas import login_module
from support.needs import needs

pytestmark = [pytest.mark.interop, needs("openssl")]


def run(*arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
    """A command in a process of its own."""
    command = [sys.executable, "-m", "barnabas", *arguments]
    return subprocess.run(command, input=text, capture_output=True, text=True, check=False, timeout=120)


def test_a_secured_cluster_has_an_administrator_and_an_application(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each with a file that commands take; the passwords are in no arguments, and it starts again
    as it was."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    data = tmp_path / "data"
    admin, app = (data / "security" / f"{name}.properties" for name in ("client", "app"))
    ports = ("--port", "0", "--zk-port", "0")
    started = run("up", "--secure", "--data-dir", str(data), *ports, "--detach")
    assert started.returncode == 0, started.stderr
    try:
        assert [f"note: admin: --command-config {admin}", f"note: app: --command-config {app}"] == [
            line for line in started.stderr.splitlines() if line.startswith("note: a")
        ]
        passwords = []
        for path in (admin, app):
            assert stat.S_IMODE(path.stat().st_mode) == 0o600
            properties = read_properties(path.read_text())
            passwords.append(login_module(properties["sasl.jaas.config"], "x").options["password"])
        shown = json.loads(run("status", "--output", "json").stdout)[0]
        assert shown["command_config"] == str(admin)
        for pid in [shown["pid"], *shown["pids"].values()]:
            arguments = Path(f"/proc/{pid}/cmdline").read_text() + Path(f"/proc/{pid}/environ").read_text()
            assert not any(password in arguments for password in passwords)

        at = ("--bootstrap-server", shown["bootstrap_servers"])
        assert run("topics", *at, "--create", "--topic", "orders", "--command-config", str(admin)).returncode == 0
        refused = run("topics", *at, "--create", "--topic", "mine", "--command-config", str(app))
        assert (refused.returncode, "TOPIC_AUTHORIZATION_FAILED" in refused.stderr) == (1, True)
        written = run("console-producer", *at, "--topic", "app-t", "--producer.config", str(app), text="one\n")
        assert written.returncode == 0, written.stderr
        words = ("context", "add", "secured", "--bootstrap-servers", shown["bootstrap_servers"])
        assert run(*words, "--config", str(admin)).returncode == 0
        assert {"app-t", "orders"} <= set(run("topics", "--list").stdout.split())
        assert len(json.loads(run("acls", "--list", "--output", "json").stdout)) == 3
    finally:
        assert run("down", "--data-dir", str(data)).returncode == 0
    again = run("up", "--data-dir", str(data), *ports, "--detach")
    assert again.returncode == 0, again.stderr
    try:
        servers = again.stdout.split()[1]
        read = run("topics", "--list", "--bootstrap-server", servers, "--command-config", str(app))
        assert read.stdout.split() == ["app-t"], read.stderr
    finally:
        run("down", "--data-dir", str(data))
