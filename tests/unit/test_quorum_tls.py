"""TLS between the members of an ensemble: whose certificate counts, one port for both kinds,
and what ends the start."""

import asyncio
import errno
import random
import socket
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import ClassVar, NamedTuple, NoReturn

import pytest

from barnabas.base.errors import ConfigError
from barnabas.base.network import Connection, Network
from barnabas.coordination.server.quorum_security import quorum_authentication, quorum_tls_options
from barnabas.coordination.server.server import CoordinationServer
from barnabas.coordination.server.settings import parse_settings
from barnabas.net import unified
from barnabas.net.ssl_contexts import SslSettings
from barnabas.net.unified import UnifiedNetwork, certificate_names, quorum_network
from barnabas.security.key_stores import KeyStore
from support.certificates import make_certificate
from support.needs import needs
from support.network_contract import HOST, NetworkContract, Recorder
from support.ports import free_ports
from support.unclosed import closes_all

JAAS = """
QuorumServer { org.apache.zookeeper.server.auth.DigestLoginModule required user_peer="pw"; };
QuorumLearner { org.apache.zookeeper.server.auth.DigestLoginModule required username="peer" password="pw"; };
Empty { org.apache.zookeeper.server.auth.DigestLoginModule required; };
Kerberos { com.sun.security.auth.module.Krb5LoginModule required; };
"""


class Choices(NamedTuple):
    """Of a member, as its settings make them."""

    key_store: str
    trust_store: str
    client_auth: str = "need"
    connects_with_tls: bool = True
    accepts_plain: bool = False
    verifies_server_hosts: bool = True
    verifies_client_hosts: bool = True
    handshake_timeout_ms: int = 5000

    @property
    def tls(self) -> SslSettings:
        key, trusted = KeyStore(self.key_store), KeyStore(self.trust_store)
        return SslSettings(str, key, trusted, self.client_auth, ("TLSv1.2", "TLSv1.3"))


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_certificate(tmp_path_factory.mktemp("tls"), "member", "/O=Barnabas/CN=member")


@needs("openssl")
class TestUnifiedNetwork(NetworkContract):
    """The contract of every network, with TLS on a port that accepts both."""

    takes_frames = False
    pem: ClassVar[str]
    connects_with_tls: ClassVar[bool] = True

    @pytest.fixture(autouse=True)
    def store(self, certificate: Path) -> None:
        TestUnifiedNetwork.pem = str(certificate)

    def run(self, test: Callable[[Network], Coroutine[object, object, None]]) -> None:
        choices = Choices(self.pem, self.pem, connects_with_tls=self.connects_with_tls, accepts_plain=True)
        self.loop(test(quorum_network(choices, lambda: ())))

    def loop(self, running: Coroutine[object, object, None]) -> None:
        asyncio.run(running)


class TestUnifiedNetworkOnUvloop(TestUnifiedNetwork):
    """The same on the event loop of the servers."""

    def loop(self, running: Coroutine[object, object, None]) -> None:
        pytest.importorskip("uvloop").run(running)


class TestUnifiedNetworkWithoutTls(TestUnifiedNetwork):
    """The same for connections without TLS on that port."""

    connects_with_tls = False


@pytest.mark.parametrize(
    ("names", "host", "expected"),
    [
        ((("IP Address", "127.0.0.1"),), "127.0.0.1", True),
        ((("IP Address", "127.0.0.1"),), "127.0.0.2", False),
        ((("IP Address", "0:0:0:0:0:0:0:1"),), "::1", True),
        ((("DNS", "127.0.0.1"),), "127.0.0.1", False),
        ((("DNS", "Zk1.example.org"),), "zk1.EXAMPLE.org.", True),
        ((("DNS", "zk1.example.org"), ("DNS", "zk2.example.org")), "zk2.example.org", True),
        ((("DNS", "*.example.org"),), "zk1.example.org", True),
        ((("DNS", "*.example.org"),), "a.zk1.example.org", False),
        ((("DNS", "*.example.org"),), "example.org", False),
        ((("DNS", "*.org"),), "example.org", False),
        ((("DNS", "z*.example.org"),), "zk1.example.org", False),
        ((("DNS", "other"),), "member", False),
        ((("URI", "member"),), "member", True),
        ((), "member", True),
        ((), "127.0.0.1", False),
    ],
)
def test_a_certificate_is_for_the_hosts_that_it_names(
    names: tuple[tuple[str, str], ...], host: str, expected: bool
) -> None:
    """Alternative names count; the common name, here ``member``, only if there are none."""
    certificate = {"subject": ((("commonName", "member"),),), "subjectAltName": names}
    assert certificate_names(certificate, host) is expected


async def is_accepted(server: UnifiedNetwork, client: UnifiedNetwork) -> bool:
    """Whether the owner of the server's port gets the client's connection, and what it sends."""
    accepted: list[Recorder] = []
    made: list[Recorder] = []
    changed = asyncio.Event()

    def recorded(connection: Connection, recorders: list[Recorder]) -> Recorder:
        connection.is_stream = True
        recorder = Recorder(connection)
        recorder.changed = changed
        recorders.append(recorder)
        return recorder

    def accept(connection: Connection) -> Recorder:
        return recorded(connection, accepted)

    def connected(connection: Connection) -> Recorder:
        return recorded(connection, made)

    listener = await server.listen(HOST, 0, accept, max_frame_bytes=4)
    try:
        with suppress(OSError):
            connection = await client.connect(HOST, listener.port, connected, max_frame_bytes=4, timeout_ms=20_000)
            connection.send([b"hello"])
            async with asyncio.timeout(60):
                while not (accepted and accepted[0].frames) and not made[0].ended:
                    changed.clear()
                    await changed.wait()
            connection.close()
        return bool(accepted)
    finally:
        await listener.close()


@needs("openssl")
def test_certificates_and_hosts_decide_who_is_accepted(tmp_path: Path, certificate: Path) -> None:
    """Both sides must trust the other's certificate; one that connects must come from
    its host, or a member's."""
    other = make_certificate(tmp_path, "other", "/CN=other")
    own, stranger = str(certificate), str(other)
    both = tmp_path / "both.pem"
    both.write_bytes(certificate.read_bytes() + other.read_bytes())
    elsewhere = str(make_certificate(tmp_path, "elsewhere", "/CN=elsewhere", host="DNS:zk9.example.org"))
    trusts_elsewhere = Choices(own, elsewhere)

    async def test() -> None:
        def network(choices: Choices, *hosts: str) -> UnifiedNetwork:
            return quorum_network(choices, lambda: hosts)

        member = network(Choices(own, own))
        plain = network(Choices(own, own, connects_with_tls=False))
        assert await is_accepted(member, member)
        assert not await is_accepted(member, plain)
        assert await is_accepted(network(Choices(own, own, accepts_plain=True)), plain)
        assert await is_accepted(network(Choices(own, own, accepts_plain=True)), member)
        assert not await is_accepted(member, network(Choices(stranger, own)))
        assert not await is_accepted(network(Choices(stranger, str(both))), member)
        from_elsewhere = network(Choices(elsewhere, own))
        assert not await is_accepted(network(trusts_elsewhere), from_elsewhere)
        assert await is_accepted(network(trusts_elsewhere, "zk1", "zk9.example.org"), from_elsewhere)
        assert await is_accepted(network(trusts_elsewhere._replace(verifies_client_hosts=False)), from_elsewhere)
        # The server's certificate is for another host than the one that is connected to.
        at_elsewhere = network(Choices(elsewhere, own))
        assert not await is_accepted(at_elsewhere, network(trusts_elsewhere))
        assert await is_accepted(at_elsewhere, network(trusts_elsewhere._replace(verifies_server_hosts=False)))

    asyncio.run(test())


@needs("openssl")
def test_strangers_that_say_nothing_hold_no_more_than_64_handshakes(certificate: Path) -> None:
    """The oldest ends for a new one, and all end when their time is over."""
    own = str(certificate)

    async def test(*, accepts_plain: bool) -> None:
        choices = Choices(own, own, accepts_plain=accepts_plain, handshake_timeout_ms=1500)
        network = quorum_network(choices, lambda: ())
        listener = await network.listen(HOST, 0, Recorder, max_frame_bytes=4)
        strangers = [await asyncio.open_connection(HOST, listener.port) for _ in range(80)]
        assert len(network._handshakes) <= unified._MAX_HANDSHAKES
        async with asyncio.timeout(30):
            for reader, _ in strangers:
                with suppress(ConnectionError):
                    assert await reader.read() == b""
        for _, writer in strangers:
            writer.close()
        await listener.close()
        assert await is_accepted(network, network)

    asyncio.run(test(accepts_plain=False))
    asyncio.run(test(accepts_plain=True))


@needs("openssl")
def test_connections_that_make_room_before_they_are_looked_at_are_closed(
    certificate: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Many may come in one turn of the loop."""
    monkeypatch.setattr(unified, "_MAX_HANDSHAKES", 1)
    own = str(certificate)

    async def test() -> None:
        listener = await quorum_network(Choices(own, own), lambda: ()).listen(HOST, 0, Recorder, max_frame_bytes=4)
        strangers = [socket.create_connection((HOST, listener.port), 30) for _ in range(3)]
        for stranger in strangers[:2]:
            assert await asyncio.to_thread(stranger.recv, 1) == b""
        for stranger in strangers:
            stranger.close()
        await listener.close()

    with closes_all():
        asyncio.run(test())


@needs("openssl")
def test_a_port_that_is_closed_ends_its_handshakes(certificate: Path) -> None:
    """Its owner has not heard of the connections."""
    own = str(certificate)

    async def test(*, accepts_plain: bool) -> bytes:
        network = quorum_network(Choices(own, own, accepts_plain=accepts_plain), lambda: ())
        listener = await network.listen(HOST, 0, Recorder, max_frame_bytes=4)
        async with asyncio.timeout(60):
            reader, writer = await asyncio.open_connection(HOST, listener.port)
            while not network._handshakes:  # noqa: ASYNC110  # nothing reports it
                await asyncio.sleep(0)
            await listener.close()
            try:
                return await reader.read()
            finally:
                writer.close()
                await writer.wait_closed()

    with closes_all():
        assert asyncio.run(test(accepts_plain=False)) == b""
        assert asyncio.run(test(accepts_plain=True)) == b""


@needs("openssl")
def test_a_plain_connection_that_cannot_be_taken_over_is_closed(certificate: Path) -> None:
    """The peer may be gone by then."""
    own = str(certificate)

    def refuse(_: Connection) -> NoReturn:
        raise OSError(errno.ENOTCONN, "gone")

    async def test() -> None:
        network = quorum_network(Choices(own, own, accepts_plain=True), lambda: ())
        listener = await network.listen(HOST, 0, refuse, max_frame_bytes=4)
        with socket.create_connection((HOST, listener.port), 30) as stranger:
            stranger.sendall(b"x")
            with suppress(ConnectionResetError):  # its byte was not read
                assert await asyncio.to_thread(stranger.recv, 1) == b""
        await listener.close()

    with closes_all():
        asyncio.run(test())


ENSEMBLE = {"dataDir": "/d", "clientPort": "1", "initLimit": "5", "syncLimit": "2"} | {
    f"server.{number}": f"127.0.0.1:{number}0:{number}1" for number in (1, 2, 3)
}
SASL = {"java.security.auth.login.config": "/jaas"} | {
    f"quorum.auth.{name}": "true" for name in ("enableSasl", "learnerRequireSasl", "serverRequireSasl")
}


def read_text(path: str) -> str:
    if path != "/jaas":
        raise FileNotFoundError(path)
    return JAAS


def test_sasl_is_required_as_the_settings_say() -> None:
    """Of others, of this server, of both or of none."""

    def made(**texts: str) -> tuple[bool, bool] | None:
        given = {f"quorum.auth.{name}": text for name, text in texts.items()}
        values = parse_settings({**ENSEMBLE, **SASL, **given})
        found = quorum_authentication(values, read_text, random.Random(1).randbytes)
        return None if found is None else (found.is_required, found.new_learner is not None)

    assert made() == (True, True)
    assert made(serverRequireSasl="false") == (False, True)
    assert made(serverRequireSasl="false", learnerRequireSasl="false") == (False, False)
    assert made(serverRequireSasl="false", learnerRequireSasl="false", enableSasl="false") is None


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({"quorum.auth.enableSasl": "false"}, "learnerRequireSasl cannot be enabled"),
        ({"quorum.auth.learnerRequireSasl": "false"}, "serverRequireSasl cannot be enabled"),
        ({"java.security.auth.login.config": ""}, "names no file with the users"),
        ({"java.security.auth.login.config": "/nowhere"}, "/nowhere .* cannot be read"),
        ({"quorum.auth.server.saslLoginContext": "Missing"}, "no section Missing"),
        ({"quorum.auth.server.saslLoginContext": "Empty"}, "has no users in its section Empty"),
        ({"quorum.auth.server.saslLoginContext": "Kerberos"}, "another login module in its section Kerberos, number 1"),
        ({"quorum.auth.learner.saslLoginContext": "Empty"}, "no username and password in its section Empty"),
    ],
)
def test_sasl_between_members_that_cannot_work_ends_the_start(texts: dict[str, str], message: str) -> None:
    """The error says what is missing, and nothing of what is secret."""
    with pytest.raises(ConfigError, match=message) as refused:
        quorum_authentication(parse_settings({**ENSEMBLE, **SASL, **texts}), read_text, random.Random(1).randbytes)
    assert '"pw"' not in str(refused.value)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        ({}, "ssl.quorum.keyStore.location does not name"),
        ({"ssl.quorum.keyStore.location": "/nowhere.pem"}, r"/nowhere.pem \(ssl.quorum.keyStore.location\)"),
        ({"ssl.quorum.keyStore.location": "/store.jks"}, "/store.jks .* cannot be read"),
        ({"ssl.quorum.keyStore.location": "/k.pem", "ssl.quorum.keyStore.type": "BCFKS"}, "PEM, JKS and PKCS12"),
        ({"ssl.quorum.keyStore.location": "PEM"}, "ssl.quorum.trustStore.location is not set"),
        ({"ssl.quorum.keyStore.location": "PEM", "ssl.quorum.clientAuth": "none"}, "with which servers are verified"),
        (
            {"ssl.quorum.keyStore.location": "/k.pem", "ssl.quorum.keyStore.passwordPath": "/nowhere"},
            "/nowhere .* read",
        ),
        ({"ssl.quorum.keyStore.location": "PEM", "ssl.quorum.protocol": "TLSv1"}, "must be one of"),
    ],
)
@needs("openssl")
def test_tls_between_members_that_cannot_work_ends_the_start(
    tmp_path: Path, certificate: Path, texts: dict[str, str], message: str
) -> None:
    """No port is open then, neither with TLS nor without."""
    (tmp_path / "myid").write_text("1")
    ports = free_ports(2)
    given = {name: str(certificate) if text == "PEM" else text for name, text in texts.items()}
    places = {"dataDir": str(tmp_path), "clientPort": "0", "server.1": f"127.0.0.1:{ports[0]}:{ports[1]}"}

    async def test() -> None:
        await CoordinationServer(parse_settings({**ENSEMBLE, **places, "sslQuorum": "true", **given})).start()

    with pytest.raises(ConfigError, match=message):
        asyncio.run(test())

    async def refuses(port: int) -> None:
        with pytest.raises(ConnectionRefusedError):
            await asyncio.open_connection(HOST, port)

    for port in ports:
        asyncio.run(refuses(port))


def test_unified_ports_accept_both_and_connect_as_sslquorum_says() -> None:
    """Three restarts of each server switch TLS on: accept both, connect with TLS,
    accept TLS only."""

    def made(ssl_quorum: str, unification: str) -> tuple[bool, bool] | None:
        stores = {"ssl.quorum.keyStore.location": "/k.pem", "sslQuorum": ssl_quorum, "portUnification": unification}
        found = quorum_tls_options(parse_settings({**ENSEMBLE, **stores}), read_text)
        return None if found is None else (found.connects_with_tls, found.accepts_plain)

    assert made("false", "false") is None
    assert made("false", "true") == (False, True)
    assert made("true", "true") == (True, True)
    assert made("true", "false") == (True, False)
