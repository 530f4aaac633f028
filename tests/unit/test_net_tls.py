"""Connections with TLS keep the same promises as plain ones, and show the subject of
the peer's certificate."""

import asyncio
import contextlib
import ssl
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from barnabas.base.errors import ConfigError
from barnabas.base.network import Network
from barnabas.net.ssl_contexts import TLS_PROTOCOLS, SslSettings, client_context, server_context
from barnabas.net.tls import TlsNetwork
from barnabas.security.key_stores import KeyStore
from barnabas.security.principals import subject_name
from support.certificates import make_certificate
from support.needs import needs
from support.network_contract import NetworkContract

pytestmark = needs("openssl")


@pytest.fixture(scope="module", autouse=True)
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    TestTlsNetwork.pem = make_certificate(tmp_path_factory.mktemp("tls"), "server", "/O=Barnabas/CN=127.0.0.1")
    return TestTlsNetwork.pem


class TestTlsNetwork(NetworkContract):
    """The contract of every network, over TLS."""

    takes_frames = False
    pem: ClassVar[Path]

    def run(self, test: Callable[[Network], Coroutine[object, object, None]]) -> None:
        server = server_context(ssl_settings(KeyStore(str(self.pem))))
        client = ssl.create_default_context(cafile=str(self.pem))
        client.check_hostname = False
        self.loop(test(TlsNetwork(server=server, client=client)))

    def loop(self, running: Coroutine[object, object, None]) -> None:
        asyncio.run(running)


class TestTlsNetworkOnUvloop(TestTlsNetwork):
    """The same on the event loop of the servers."""

    def loop(self, running: Coroutine[object, object, None]) -> None:
        pytest.importorskip("uvloop").run(running)


@pytest.mark.parametrize(
    ("subject", "name"),
    [
        (((("countryName", "DE"),), (("organizationName", "A, B"),), (("commonName", "bob"),)), "CN=bob,O=A\\, B,C=DE"),
        (((("commonName", "a"), ("userId", "b")),), "CN=a+UID=b"),
        (((("commonName", " #x "),),), "CN=\\ #x\\ "),
        (((("commonName", "#x+y"),),), "CN=\\#x\\+y"),
        (((("emailAddress", "a@b"),), (("commonName", "bob"),)), "CN=bob,1.2.840.113549.1.9.1=#1603614062"),
        (((("serialNumber", "5"),), (("commonName", "bob"),)), None),
        ((), None),
    ],
)
def test_a_subject_is_written_as_java_writes_it(subject: object, name: str | None) -> None:
    """The last attribute first, with RFC 2253's escapes; None for one that has no name here."""
    assert subject_name({"subject": subject}) == name


def test_a_store_that_cannot_be_used_is_named(tmp_path: Path, certificate: Path) -> None:
    """Missing, not PEM, a wrong password, no certificates to verify clients with."""
    locked = make_certificate(tmp_path, "locked", "/CN=locked", password="geheim")
    (tmp_path / "junk.pem").write_bytes(b"junk")
    for store, password, trust, auth in (
        (tmp_path / "missing.pem", "", "", "none"),
        (tmp_path / "junk.pem", "", "", "none"),
        (locked, "wrong", "", "none"),
        (locked, "", "", "none"),
        (certificate, "", str(tmp_path / "junk.pem"), "need"),
        (certificate, "", "", "need"),
    ):
        with pytest.raises(ConfigError, match=r"ssl\.(key|trust)store") as refused:
            server_context(ssl_settings(KeyStore(str(store), password), trust, auth))
        assert "geheim" not in str(refused.value)
    server_context(ssl_settings(KeyStore(str(locked), "geheim"), str(certificate), "need"))


def ssl_settings(
    key_store: KeyStore | None,
    trust: str = "",
    client_auth: str = "none",
    protocols: Sequence[str] = TLS_PROTOCOLS,
    *,
    verifies_host: bool = True,
) -> SslSettings:
    """With Kafka's names of properties."""
    trusted = KeyStore(trust) if trust else None
    return SslSettings(str, key_store, trusted, client_auth, protocols, verifies_host)


def shake_hands(server: ssl.SSLContext, client: ssl.SSLContext, name: str = "127.0.0.1") -> str | None:
    """The protocol on which two sides agree, without a network.

    Raises `ssl.SSLError` of the side that refuses."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server, server_hostname=name),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    done: set[ssl.SSLObject] = set()
    for side in sides * 4:
        if side not in done:
            try:
                side.do_handshake()
                done.add(side)
            except ssl.SSLWantReadError:
                pass
    with contextlib.suppress(ssl.SSLWantReadError):
        sides[0].read()  # with TLS 1.3 a client learns here that its certificate is refused
    assert len(done) == len(sides)
    return sides[0].version()


@pytest.mark.parametrize("protocol", TLS_PROTOCOLS)
@pytest.mark.parametrize("other", TLS_PROTOCOLS)
def test_both_sides_speak_the_protocols_that_are_enabled_and_no_other(
    certificate: Path, protocol: str, other: str
) -> None:
    """ssl.enabled.protocols, of ports and of connections to other servers."""
    server, both_at_server = (
        server_context(ssl_settings(KeyStore(str(certificate)), protocols=protocols))
        for protocols in ([protocol], TLS_PROTOCOLS)
    )
    client, both_at_client = (
        client_context(ssl_settings(None, str(certificate), protocols=protocols))
        for protocols in ([other], TLS_PROTOCOLS)
    )
    assert shake_hands(server, both_at_client) == protocol
    assert shake_hands(both_at_server, client) == other
    if protocol != other:
        with pytest.raises(ssl.SSLError):
            shake_hands(server, client)


@pytest.mark.parametrize("protocols", [[], ["TLSv1.1"], ["TLSv1.2", "SSLv3"], ["tlsv1.2"]])
def test_a_protocol_that_is_not_offered_ends_the_start(certificate: Path, protocols: list[str]) -> None:
    """It is named with its property; it is never left out in silence."""
    with pytest.raises(ConfigError, match=r"ssl\.enabled\.protocols"):
        server_context(ssl_settings(KeyStore(str(certificate)), protocols=protocols))


@pytest.mark.parametrize("protocol", TLS_PROTOCOLS)
def test_a_client_shows_a_certificate_where_one_is_asked_for(certificate: Path, tmp_path: Path, protocol: str) -> None:
    """ssl.client.auth: needed, only wanted, or not asked for; a certificate that is
    shown must be trusted."""
    stranger = make_certificate(tmp_path, "stranger", "/CN=stranger")
    own = KeyStore(str(certificate))

    def shake(client_auth: str, shown: KeyStore | None) -> str | None:
        server = server_context(ssl_settings(own, str(certificate), client_auth, [protocol]))
        return shake_hands(server, client_context(ssl_settings(shown, str(certificate))))

    for client_auth in ("required", "need", "requested", "want", "none"):
        assert shake(client_auth, own) == protocol
    for client_auth in ("required", "need"):
        with pytest.raises(ssl.SSLError):
            shake(client_auth, None)
    for client_auth in ("required", "need", "requested", "want"):
        with pytest.raises(ssl.SSLError):
            shake(client_auth, KeyStore(str(stranger)))
    for client_auth in ("requested", "want", "none"):
        assert shake(client_auth, None) == protocol
    assert shake("none", KeyStore(str(stranger))) == protocol


def test_a_server_of_another_name_is_refused_where_names_are_compared(certificate: Path) -> None:
    """And one whose certificate is not trusted, always."""
    server = server_context(ssl_settings(KeyStore(str(certificate))))
    assert shake_hands(server, client_context(ssl_settings(None, str(certificate))))
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(server, client_context(ssl_settings(None, str(certificate))), "127.0.0.2")
    anyone = client_context(ssl_settings(None, str(certificate), verifies_host=False))
    assert shake_hands(server, anyone, "127.0.0.2")
    with pytest.raises(ssl.SSLCertVerificationError):
        shake_hands(server, client_context(ssl_settings(None, verifies_host=False)))


def test_neither_side_negotiates_again(certificate: Path) -> None:
    """A client could make a server compute without end."""
    for context in (
        server_context(ssl_settings(KeyStore(str(certificate)))),
        client_context(ssl_settings(None, str(certificate))),
    ):
        assert context.options & ssl.OP_NO_RENEGOTIATION
