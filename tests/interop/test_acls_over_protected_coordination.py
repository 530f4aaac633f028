"""``barnabas acls`` and ``configs`` write into a coordination service that wants TLS or SASL,
before the first broker starts."""

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from barnabas.cli.main import main
from support.certificates import make_certificate
from support.coordination import coordination_server
from support.needs import needs
from support.ports import free_ports

pytestmark = [pytest.mark.interop, needs("openssl")]

Run = Callable[..., tuple[int, str, str]]
ADD = ("--add", "--allow-principal", "User:ann", "--operation", "Read", "--topic", "orders")
LISTED = ("--list", "--output", "json")
JAAS = """
Server {
    org.apache.zookeeper.server.auth.DigestLoginModule required user_kafka="kafkas-pw";
};
Client {
    org.apache.zookeeper.server.auth.DigestLoginModule required username="kafka" password="kafkas-pw";
};
Other {
    org.apache.zookeeper.server.auth.DigestLoginModule required username="kafka" password="not-kafkas-pw";
};
"""


@pytest.fixture
def run(capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs a command in this process: its code, output and errors."""

    def call(*words: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = main(list(words))
        captured = capfd.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """The address of a server that asks clients for certificates, and a client's properties in
    Kafka's names."""
    server_pem = make_certificate(tmp_path, "server", "/O=Barnabas/CN=127.0.0.1")
    client_pem = make_certificate(tmp_path, "client", "/O=Barnabas/CN=kafka")
    plain, port = free_ports(2)
    settings = {
        "clientPort": plain,
        "secureClientPort": port,
        "ssl.keyStore.location": server_pem,
        "ssl.trustStore.location": client_pem.with_suffix(".crt"),
        "ssl.clientAuth": "need",
    }
    with coordination_server(tmp_path / "server", start=False, **settings) as server:
        server.port = plain
        server.start()
        yield (
            f"127.0.0.1:{port}/kafka",
            {
                "zookeeper.ssl.client.enable": "true",
                "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNetty",
                "zookeeper.ssl.keystore.location": str(client_pem),
                "zookeeper.ssl.truststore.location": str(server_pem.with_suffix(".crt")),
            },
        )


def properties_of(path: Path, properties: dict[str, str]) -> str:
    path.write_text("".join(f"{name}={value}\n" for name, value in properties.items()))
    return str(path)


def words_of(properties: dict[str, str]) -> list[str]:
    return [word for name, value in properties.items() for word in ("--authorizer-properties", f"{name}={value}")]


def test_lists_and_users_are_written_with_tls(tmp_path: Path, secure: tuple[str, dict[str, str]], run: Run) -> None:
    """By a file or by the properties of the authorizer, with Kafka's prefix or without; the
    authorizer's own are stronger."""
    address, tls = secure
    at = ("acls", "--authorizer-properties", f"zookeeper.connect={address}")
    file = properties_of(tmp_path / "tls.properties", tls)
    code, _, err = run(*at, "--zk-tls-config-file", file, *ADD)
    assert code == 0, err
    own = {f"authorizer.{name}": value for name, value in tls.items()}
    code, out, err = run(*at, *words_of(own), *LISTED)
    assert (code, [acl["resource_name"] for acl in json.loads(out or "[]")]) == (0, ["orders"]), err
    wrong = properties_of(tmp_path / "wrong.properties", {**tls, "zookeeper.ssl.truststore.location": "/nowhere"})
    assert run(*at, "--zk-tls-config-file", wrong, *words_of(own), *LISTED)[:2] == (0, out)
    user = ("--alter", "--entity-type", "users", "--entity-name", "ann", "--add-config", "SCRAM-SHA-256=[password=pw]")
    code, out, err = run("configs", "--zookeeper", address, "--zk-tls-config-file", file, *user)
    assert (code, out) == (0, "Completed updating config for user ann.\n"), err


def test_a_server_that_is_not_trusted_is_named_as_the_reason(
    tmp_path: Path, secure: tuple[str, dict[str, str]], run: Run
) -> None:
    """And nothing is sent in the clear where a store is named and TLS is not switched on."""
    address, tls = secure
    at = ("acls", "--authorizer-properties", f"zookeeper.connect={address}")
    quick = ("--authorizer-properties", "zookeeper.connection.timeout.ms=2000")
    tls["zookeeper.ssl.truststore.location"] = tls["zookeeper.ssl.keystore.location"]
    code, out, err = run(*at, *quick, *words_of(tls), *LISTED)
    assert (code, out) == (1, "")
    assert "certificate verify failed" in err
    del tls["zookeeper.ssl.client.enable"]
    code, out, err = run(*at, "--zk-tls-config-file", properties_of(tmp_path / "off.properties", tls), *LISTED)
    assert (code, out) == (1, "")
    assert "the connection would not be protected" in err


def test_lists_are_written_as_a_user(tmp_path: Path, run: Run) -> None:
    """A server that requires SASL takes them from a client with the password, and from no other."""
    jaas = tmp_path / "jaas.conf"
    jaas.write_text(JAAS)
    settings = {
        "java.security.auth.login.config": jaas,
        "authProvider.1": "org.apache.zookeeper.server.auth.SASLAuthenticationProvider",
        "sessionRequireClientSASLAuth": "true",
    }
    with coordination_server(tmp_path / "server", **settings) as server:
        login = {"zookeeper.connect": server.address, "java.security.auth.login.config": str(jaas)}
        code, _, err = run("acls", *words_of(login), *ADD)
        assert code == 0, err
        code, out, _ = run("acls", *words_of(login), *LISTED)
        assert (code, [acl["resource_name"] for acl in json.loads(out)]) == (0, ["orders"])
        code, out, err = run("acls", *words_of({"zookeeper.connect": server.address}), *LISTED)
        assert (code, out) == (1, "")
        assert "SASL" in err
        code, out, err = run("acls", *words_of({**login, "zookeeper.sasl.clientconfig": "Other"}), *LISTED)
        assert (code, out) == (1, "")
        assert "AUTH" in err


@pytest.mark.parametrize(
    "words",
    [
        ("acls", "--bootstrap-server", "127.0.0.1:1", "--zk-tls-config-file", "f", *LISTED),
        (
            "configs",
            "--bootstrap-server",
            "127.0.0.1:1",
            "--zk-tls-config-file",
            "f",
            "--describe",
            "--entity-type",
            "users",
        ),
    ],
)
def test_tls_of_coordination_without_coordination_is_refused(run: Run, words: tuple[str, ...]) -> None:
    """It would protect nothing."""
    code, _, err = run(*words)
    assert code == 2
    assert "--zk-tls-config-file option can only be used with" in err
