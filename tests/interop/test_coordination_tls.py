"""Java's ZooKeeper client over TLS, with and without a certificate of its own, and what
hostile handshakes cost."""

import contextlib
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from barnabas.wire.jute.opcodes import OpCode
from barnabas.wire.jute.records import GetDataRequest
from support.certificates import STORE_PASSWORD, make_certificate, make_key_store, make_trust_store
from support.coordination import RawClient, coordination_server
from support.needs import needs, needs_reference
from support.ports import free_ports
from support.promptness import read_to_the_end
from support.reference import apache_tool

pytestmark = [pytest.mark.interop, needs("openssl")]


def javas_key_store(server_pem: Path) -> dict[str, object]:
    """A server's settings for its key, in a store of Java's."""
    return {"ssl.keyStore.location": make_key_store(server_pem, "JKS"), "ssl.keyStore.password": STORE_PASSWORD}


@contextlib.contextmanager
def secured_server(directory: Path, settings: dict[str, object]) -> Iterator[tuple[int, int]]:
    """A running server with these settings for TLS; its plain port and its secure one."""
    plain, secure = free_ports(2)
    ports = {"clientPort": plain, "secureClientPort": secure}
    with coordination_server(directory / "server", start=False, **ports, **settings) as server:
        server.port = plain
        server.start()
        yield plain, secure


def zkcli(address: str, monkeypatch: pytest.MonkeyPatch, script: str, **properties: object) -> str:
    options = {
        "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
        "zookeeper.client.secure": "true",
        **{f"zookeeper.ssl.{name}": value for name, value in properties.items()},
    }
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", " ".join(f"-D{name}={value}" for name, value in options.items()))
    done: subprocess.CompletedProcess[str] = apache_tool(
        "org.apache.zookeeper.ZooKeeperMain", "-server", address, text=script
    )
    monkeypatch.delenv("JAVA_TOOL_OPTIONS")
    return done.stdout + done.stderr


@pytest.mark.java
@needs_reference
def test_javas_client_connects_with_tls_and_its_certificate_is_its_identity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """x509 entries of ACLs hold for the subject; the plain port and kazoo's TLS see the same tree;
    the server's stores are Java's."""
    server_pem = make_certificate(tmp_path, "server", "/O=Barnabas/CN=127.0.0.1")
    client_pem = make_certificate(tmp_path, "client", "/C=DE/O=A, B/CN=bob")
    trusted = {
        "ssl.trustStore.location": make_trust_store(client_pem.with_suffix(".crt"), "PKCS12"),
        "ssl.trustStore.password": STORE_PASSWORD,
    }
    with secured_server(tmp_path, {**javas_key_store(server_pem), **trusted}) as (plain, secure):
        store = {"keyStore.location": client_pem, "trustStore.location": server_pem}
        said = zkcli(
            f"127.0.0.1:{secure}",
            monkeypatch,
            "create /mine data auth::cdrwa\ngetAcl /mine\nget /mine\nwhoami\nquit\n",
            **store,
        )
        assert "'x509,'CN=bob%2CO=A\\%2C B%2CC=DE" in said, said
        assert "x509: CN=bob" in said
        kazoo = KazooClient(
            f"127.0.0.1:{secure}", use_ssl=True, ca=str(server_pem), certfile=str(client_pem), keyfile=str(client_pem)
        )
        kazoo.start(60)
        assert kazoo.get("/mine")[0] == b"data"
        kazoo.stop()
        kazoo.close()
        raw = RawClient(plain)
        assert raw.call(OpCode.GET_DATA, GetDataRequest("/mine", False))[1] < 0
        raw.close()
        refused = ssl.create_default_context(cafile=str(server_pem))
        with (
            socket.create_connection(("127.0.0.1", secure), 60) as connection,
            refused.wrap_socket(connection, server_hostname="127.0.0.1") as without,
            contextlib.suppress(ssl.SSLError),
        ):
            assert read_to_the_end(without) == b""


def test_noise_and_half_open_handshakes_leave_the_server_serving(tmp_path: Path) -> None:
    """Bytes that are no handshake end their connection; 200 that begin one and stop
    do not disturb others."""
    server_pem = make_certificate(tmp_path, "server", "/O=Barnabas/CN=127.0.0.1")
    with secured_server(tmp_path, {"ssl.keyStore.location": server_pem, "ssl.clientAuth": "none"}) as (_, secure):
        half_open = []
        for _ in range(200):
            connection = socket.create_connection(("127.0.0.1", secure), 60)
            connection.sendall(b"\x16\x03\x01\x02\x00\x01")
            half_open.append(connection)
        with socket.create_connection(("127.0.0.1", secure), 60) as noise:
            noise.sendall(b"\0\0\0\x2d" + bytes(45))
            assert noise.recv(100)[:1] in (b"", b"\x15")
        context = ssl.create_default_context(cafile=str(server_pem))
        with (
            socket.create_connection(("127.0.0.1", secure), 60) as connection,
            context.wrap_socket(connection, server_hostname="127.0.0.1") as healthy,
        ):
            healthy.sendall(b"srvr")
            assert healthy.recv(1000).startswith(b"Zookeeper version")
        for connection in half_open:
            connection.close()


def shell(address: str, config: Path, *command: str) -> "subprocess.CompletedProcess[str]":
    """Our own shell with a client configuration."""
    words = [
        sys.executable,
        "-m",
        "barnabas",
        "zookeeper-shell",
        "-client-configuration",
        str(config),
        address,
        *command,
    ]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=False)


def test_our_shell_connects_with_tls(tmp_path: Path) -> None:
    """ZooKeeper's properties and those of Kafka's tools; a certificate of another authority, or
    none, is named as the reason."""
    server_pem = make_certificate(tmp_path, "server", "/O=Barnabas/CN=127.0.0.1")
    client_pem = make_certificate(tmp_path, "client", "/O=Barnabas/CN=bob")
    zookeepers = {
        "zookeeper.client.secure": "true",
        "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
        "zookeeper.ssl.keyStore.location": client_pem,
        "zookeeper.ssl.trustStore.location": server_pem.with_suffix(".crt"),
    }
    kafkas = {
        "zookeeper.ssl.client.enable": "true",
        "zookeeper.ssl.keystore.location": make_key_store(client_pem, "PKCS12"),
        "zookeeper.ssl.keystore.password": STORE_PASSWORD,
        "zookeeper.ssl.truststore.location": server_pem.with_suffix(".crt"),
    }
    config = tmp_path / "client.properties"

    def write(properties: dict[str, object]) -> Path:
        config.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
        return config

    trusted = {"ssl.trustStore.location": client_pem.with_suffix(".crt")}
    with secured_server(tmp_path, {**javas_key_store(server_pem), **trusted}) as (_, secure):
        address = f"127.0.0.1:{secure}"
        created = shell(address, write(zookeepers), "create", "/mine", "data", "auth::cdrwa")
        assert created.returncode == 0, created.stderr
        read = shell(address, write(kafkas), "get", "/mine")
        assert (read.returncode, "data" in read.stdout) == (0, True), read.stderr
        others = shell(address, write(zookeepers | {"zookeeper.ssl.trustStore.location": client_pem}), "ls", "/")
        assert others.returncode == 1
        assert "certificate verify failed" in others.stderr
        unprotected = shell(address, write({"zookeeper.ssl.keyStore.location": client_pem}), "ls", "/")
        assert unprotected.returncode != 0
        assert "the connection would not be protected" in unprotected.stderr
