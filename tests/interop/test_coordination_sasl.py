"""Java's ZooKeeper clients authenticate with SASL DIGEST-MD5, and servers that
require it refuse the others."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError

from barnabas.wire.jute.codec import decode
from barnabas.wire.jute.errors import ErrorCode
from barnabas.wire.jute.opcodes import OpCode
from barnabas.wire.jute.records import GetDataRequest, GetSASLRequest, SetSASLResponse
from support.coordination import CoordinationProcess, RawClient, coordination_server
from support.needs import needs_reference
from support.reference import apache_tool

pytestmark = [pytest.mark.interop, pytest.mark.java, needs_reference]

JAAS = """
Server {{
    org.apache.zookeeper.server.auth.DigestLoginModule required user_super="admin-pw" user_bob="bobs-pw";
}};
Client {{
    org.apache.zookeeper.server.auth.DigestLoginModule required username="{user}" password="{password}";
}};
"""


def jaas(directory: Path, user: str, password: str) -> Path:
    path = directory / f"{user}-{password}.conf"
    path.write_text(JAAS.format(user=user, password=password))
    return path


@pytest.fixture
def server(tmp_path: Path) -> Iterator[CoordinationProcess]:
    settings = {
        "authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
        "java.security.auth.login.config": jaas(tmp_path, "bob", "bobs-pw"),
        "superUser": "super",
    }
    with coordination_server(tmp_path / "server", **settings) as running:
        yield running


def zkcli(
    server: CoordinationProcess, monkeypatch: pytest.MonkeyPatch, config: Path, script: str
) -> "subprocess.CompletedProcess[str]":
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Djava.security.auth.login.config={config}")
    done = apache_tool("org.apache.zookeeper.ZooKeeperMain", "-server", server.address, text=script)
    monkeypatch.delenv("JAVA_TOOL_OPTIONS")
    return done


def test_javas_client_proves_its_identity_and_owns_what_it_creates(
    tmp_path: Path, server: CoordinationProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """sasl entries of ACLs hold for bob, and for the super user; not for others."""
    script = "create /bobs data sasl:bob:cdrwa\ncreate /auth data auth::cdrwa\ngetAcl /auth\nget /bobs\nwhoami\nquit\n"
    done = zkcli(server, monkeypatch, jaas(tmp_path, "bob", "bobs-pw"), script)
    assert "'sasl,'bob" in done.stdout, done.stdout + done.stderr
    assert "sasl: bob" in done.stdout
    other = KazooClient(server.address, timeout=10)
    other.start(60)
    with pytest.raises(NoAuthError):
        other.get("/bobs")
    other.stop()
    other.close()
    done = zkcli(server, monkeypatch, jaas(tmp_path, "super", "admin-pw"), "setAcl /bobs world:anyone:r\nquit\n")
    assert "not valid" not in done.stderr
    reader = KazooClient(server.address, timeout=10)
    reader.start(60)
    assert reader.get("/bobs")[0] == b"data"
    reader.stop()
    reader.close()
    for secret in ("bobs-pw", "admin-pw"):
        assert secret not in server.log


def test_a_wrong_password_is_answered_with_auth_failed(
    tmp_path: Path, server: CoordinationProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Java's client ends in the state AUTH_FAILED."""
    done = zkcli(server, monkeypatch, jaas(tmp_path, "bob", "wrong"), "ls /\nquit\n")
    assert "AuthFailed" in done.stdout + done.stderr
    assert "failed to authenticate with SASL: the password is wrong" in server.log


def test_a_server_that_requires_sasl_serves_those_who_have_it_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others get SESSION_CLOSED_REQUIRE_SASL_AUTH at their first request."""
    config = jaas(tmp_path, "bob", "bobs-pw")
    settings = {"java.security.auth.login.config": config, "sessionRequireClientSASLAuth": "true"}
    with coordination_server(tmp_path / "server", **settings) as server:
        raw = RawClient(server.port)
        assert raw.call(OpCode.GET_DATA, GetDataRequest("/", False))[1] == ErrorCode.SESSION_CLOSED_REQUIRE_SASL_AUTH
        with pytest.raises((EOFError, ConnectionResetError)):
            raw.receive()
        raw.close()
        done = zkcli(server, monkeypatch, config, "create /a data\nget /a\nquit\n")
        assert "SaslAuthenticated" in done.stdout
        assert "Created /a" in done.stderr, done.stdout + done.stderr


def test_without_users_a_server_answers_as_apaches_does(tmp_path: Path) -> None:
    """With no token; and an ACL may not name the scheme."""
    with coordination_server(tmp_path / "a", apache=True) as apache, coordination_server(tmp_path / "o") as ours:
        answers = []
        for server in (apache, ours):
            raw = RawClient(server.port)
            zxid, err, body = raw.call(OpCode.SASL, GetSASLRequest(b""))
            answers.append((zxid, err, decode(SetSASLResponse, body)))
            assert raw.call(OpCode.GET_DATA, GetDataRequest("/", False))[1] == 0
            raw.close()
        assert answers[1] == answers[0] == (0, 0, SetSASLResponse(None))


def shell(server: CoordinationProcess, config: Path, *command: str) -> "subprocess.CompletedProcess[str]":
    """Our own shell with the user of a JAAS file."""
    properties = config.with_suffix(".properties")
    properties.write_text(f"java.security.auth.login.config={config}\n")
    words = ["zookeeper-shell", "-client-configuration", str(properties), "-server", server.address, *command]
    return subprocess.run(
        [sys.executable, "-m", "barnabas", *words], capture_output=True, text=True, timeout=60, check=False
    )


@pytest.mark.parametrize("apache", [False, True], ids=["ours", "apaches"])
def test_our_shell_proves_its_identity(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, apache: bool) -> None:
    """To both servers; a wrong password, and a server without SASL, end the session
    with AUTH_FAILED."""
    config = jaas(tmp_path, "bob", "bobs-pw")
    settings: dict[str, object] = {"authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider"}
    if apache:
        monkeypatch.setenv("JAVA_TOOL_OPTIONS", f"-Djava.security.auth.login.config={config}")
    else:
        settings["java.security.auth.login.config"] = config
    with coordination_server(tmp_path / "server", apache=apache, **settings) as server:
        created = shell(server, config, "create", "/bobs", "data", "sasl:bob:cdrwa")
        assert created.returncode == 0, created.stderr
        read = shell(server, config, "get", "/bobs")
        assert (read.returncode, "data" in read.stdout) == (0, True), read.stderr
        assert "sasl: bob" in shell(server, config, "whoami").stdout
        wrong = shell(server, jaas(tmp_path, "bob", "wrong"), "get", "/bobs")
        assert wrong.returncode == 1
        assert "AUTH_FAILED" in wrong.stderr
    monkeypatch.delenv("JAVA_TOOL_OPTIONS", raising=False)
    with coordination_server(tmp_path / "without", apache=apache) as server:
        unproven = shell(server, config, "ls", "/")
        assert unproven.returncode == 1
        assert "does not offer SASL" in unproven.stderr
