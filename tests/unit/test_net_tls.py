"""Connections with TLS keep the same promises as plain ones, and show the subject of the peer's certificate."""

import asyncio
import ssl
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import ClassVar

import pytest

from barnabas.base.errors import ConfigError
from barnabas.base.network import Network
from barnabas.net.ssl_contexts import SslSettings, server_context
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


def ssl_settings(key_store: KeyStore, trust: str = "", client_auth: str = "none") -> SslSettings:
    """With Kafka's names of properties."""
    trusted = KeyStore(trust) if trust else None
    return SslSettings(str, key_store, trusted, client_auth, ("TLSv1.2", "TLSv1.3"))
