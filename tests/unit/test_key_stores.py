"""Java's key stores, written by keytool of Java 17 with a key of 256 bits, as they are
and damaged in every place."""

import base64
import contextlib
import re
import ssl
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.base.errors import ConfigError
from barnabas.base.installation import install_command
from barnabas.client.errors import ConfigurationError
from barnabas.client.properties.stores import translate_stores
from barnabas.net.ssl_contexts import SslSettings, client_context, server_context
from barnabas.security.key_stores import KeyStore, KeyStoreError, read_identity, read_trusted
from support.certificates import make_authority, make_signed_certificate
from support.needs import needs

JKS = base64.b64decode(
    "/u3+7QAAAAIAAAABAAAAAQADb3duAAABogbjX3IAAAB/MH0wDgYKKwYBBAEqAhEBAQUABGvWsJ2FSULxRwherJcpMzhVoewmM0/TULzGvUr6"
    "cugvx0lANUBA5QdVxohgRpGXq4LcJ2AbrA4s/aTY3NWnmXLOSOj/7hiFfsOSwGldc6knaQtLJzEUEOb3zJurSwKA0Z8fkQb0Bn9PMp8DKAAA"
    "AAEABVguNTA5AAABVTCCAVEwgfigAwIBAgIIOp8e3qLPvgIwCgYIKoZIzj0EAwIwFDESMBAGA1UEAxMJMTI3LjAuMC4xMCAXDTI2MTEyMzA1"
    "MzEzNFoYDzIxMjYxMDMwMDUzMTM0WjAUMRIwEAYDVQQDEwkxMjcuMC4wLjEwWTATBgcqhkjOPQIBBggqhkjOPQMBBwNCAASXh1+hyHBQlz8s"
    "ZHtuySb+/oulHiUv9lov10/PLlfUOoakR8kse3j1PyZuCI8vtNHqpm2dD2Bas2CfnRRWgZtpozIwMDAdBgNVHQ4EFgQU3725ZR50AzgTrD5X"
    "rc5I6bOXb/MwDwYDVR0RBAgwBocEfwAAATAKBggqhkjOPQQDAgNIADBFAiEA0wJys0EzKE4JmRgB90i9N7QOXCOLMGanWYf/JLsNb14CIFbD"
    "fkUvZ0yBlcnCUKk8DolgjN8BkWoaLENGRqhrYvJJY/F5Mt9rvSS/tP5KRrnBCL9QewE="
)
"""keytool -genkeypair -storetype JKS -storepass storepass -keypass keypass1"""
PKCS12 = base64.b64decode(
    "MIID+gIBAzCCA6QGCSqGSIb3DQEHAaCCA5UEggORMIIDjTCCASQGCSqGSIb3DQEHAaCCARUEggERMIIBDTCCAQkGCyqGSIb3DQEMCgECoIG9"
    "MIG6MGYGCSqGSIb3DQEFDTBZMDgGCSqGSIb3DQEFDDArBBSzO+D50x4lcswhOSpTLWd4xxs93gICJxACASAwDAYIKoZIhvcNAgkFADAdBglg"
    "hkgBZQMEASoEEIcpKYhg/eOf3zp+2jAhXaUEUIGlIdNqFpRSajEZmlA2XevhIecjXuLSUyM/NI5hypb/aJOF9iV/ZMDJ6PGKsg5D1tiKyMGF"
    "66pelFoyt6/JXHODERqP9YmcXXAFgQl/Fhl4MTowFQYJKoZIhvcNAQkUMQgeBgBvAHcAbjAhBgkqhkiG9w0BCRUxFAQSVGltZSAxNzk1NDEx"
    "ODk1MjcxMIICYQYJKoZIhvcNAQcGoIICUjCCAk4CAQAwggJHBgkqhkiG9w0BBwEwZgYJKoZIhvcNAQUNMFkwOAYJKoZIhvcNAQUMMCsEFNy0"
    "gyQ9/GTpCfuPBHeKCCe2ugHEAgInEAIBIDAMBggqhkiG9w0CCQUAMB0GCWCGSAFlAwQBKgQQ7DppqG3pgr5dTQ1dL8FItYCCAdB2fHWmxaDv"
    "VztCaedFGZS5/qJ9eDkpkS/BbjEqIjlKSbMpndvfNdT760YZg6XDf/oR+nK3ObrVVjcN9EO9/JFubKfga8YUjxSf4ruE/VHnoYlmJnhp4xmT"
    "LVScokxfTQBDJLAxLMC3QIVqzarp7hgeSJWs0///CS8kgh6WDdQaghJsAjCaO2hqvrLa7Ys7L5Gu+g5hJyCdgdNi7hjGKH3tfQT9gaGY16ND"
    "n1zfEN7Ru9lwq0hat2UX118uywZE8n/9JBcaFjTZbX+eiIXIpTj7h/a967Tw6ZCd3CUrI+gBYF56bULI/SgElr/uvmuLeo7DALKYlYFI9xqK"
    "dU18t4TZXpZNt+h9ZOc5jSH4xyiyxwHI06rBTK4O1KkvYuTN7cFU0dIiktqAAEFcQ4x7jAR98w775sU3gXkpA2g26XxKjBHz9hByho7lq/cs"
    "YBIW6oQdEm4TGTuWmcWRHwMtJ7ty2wjyaSWfhSniTcE4GMbaw5qfmCIN1MMSVdMOlOBq67XWgRkFpEhVA3Rfy/BmyVUxrCaAQIAf4ENKAUY3"
    "D/SVUT+rS3TtUH4QI76up42uwzhLGZfuDtDN4bJQbYZe6e2b6wkqcZYIHQOrzQlNmdpkJzBNMDEwDQYJYIZIAWUDBAIBBQAEILzVjFFuAWpM"
    "M2rVmFaPxXi0Y8t3yJIFEjSjtXrcTnBQBBQ9u7Jt66SO0xl7AFHru8UrsWNlHwICJxA="
)
"""keytool -genkeypair -storetype PKCS12 -storepass storepass"""
PASSWORDS = {"jks": KeyStore("", "storepass", key_password="keypass1"), "p12": KeyStore("", "storepass")}
STORES = {"jks": JKS, "p12": PKCS12}


@pytest.mark.parametrize("kind", STORES)
def test_openssl_loads_the_key_of_a_store_with_its_certificate(kind: str, tmp_path: Path) -> None:
    """OpenSSL refuses a key that is not the certificate's, so what was read is
    right; no file is left."""
    (tmp_path / "own").write_bytes(STORES[kind])
    store = PASSWORDS[kind]._replace(location=str(tmp_path / "own"))
    context = server_context(SslSettings(str, store, store, "need", ("TLSv1.3",)))
    assert context.cert_store_stats()["x509"] == 1
    assert [path.name for path in tmp_path.iterdir()] == ["own"]


@pytest.mark.parametrize("kind", STORES)
def test_a_name_or_type_of_the_other_kind_does_no_harm(kind: str) -> None:
    """keytool writes PKCS12 to files that are called .jks, and Java reads both under
    either type."""
    for named in ("", "JKS", "pkcs12"):
        assert "PRIVATE KEY" in read_identity(STORES[kind], PASSWORDS[kind]._replace(type=named)).key_pem
    with pytest.raises(KeyStoreError, match="not PEM"):
        read_identity(STORES[kind], PASSWORDS[kind]._replace(type="PEM"))


@pytest.mark.parametrize("kind", STORES)
def test_a_wrong_password_is_an_error_that_does_not_show_it(kind: str) -> None:
    """The store's, or the key's."""
    for wrong in (PASSWORDS[kind]._replace(password="geheim"), KeyStore("", "storepass", key_password="geheim")):
        with pytest.raises(KeyStoreError, match="password") as refused:
            read_identity(STORES[kind], wrong)
        assert "geheim" not in str(refused.value)


def test_a_trust_store_needs_no_password_to_be_read() -> None:
    """The certificates of JKS are not encrypted: Java reads them without a check then."""
    assert "BEGIN CERTIFICATE" in read_trusted(JKS, KeyStore(""))


@needs("openssl")
def test_authorities_of_a_key_are_not_trusted(tmp_path: Path) -> None:
    """Others have certificates of that authority, too.

    A store with certificates alone trusts all of them."""
    authority, own = make_authority(tmp_path), make_signed_certificate(tmp_path, "own")
    chain = ("-in", str(own), "-inkey", str(own), "-certfile", str(authority))
    with pytest.raises(KeyStoreError, match="a store of their own"):
        read_trusted(pkcs12(tmp_path, *chain), KeyStore("", "changeit"))
    assert read_identity(pkcs12(tmp_path, *chain), KeyStore("", "changeit")).chain_pem.count("BEGIN") == 2
    alone = pkcs12(tmp_path, "-in", str(own), "-inkey", str(own))
    assert ssl.PEM_cert_to_DER_cert(read_trusted(alone, KeyStore("", "changeit"))) == der(own)
    trusted = pkcs12(tmp_path, "-in", str(authority), "-nokeys")
    assert ssl.PEM_cert_to_DER_cert(read_trusted(trusted, KeyStore("", "changeit"))) == der(authority)


@needs("openssl")
def test_a_certificate_that_is_no_root_can_be_trusted(tmp_path: Path) -> None:
    """As for Java, whose trust stores often hold a broker's own certificate."""
    make_authority(tmp_path)
    own, other = make_signed_certificate(tmp_path, "own"), make_signed_certificate(tmp_path, "other")
    for shown, is_accepted in ((own, True), (other, False)):
        settings = SslSettings(str, KeyStore(str(own)), KeyStore(str(own)), "need", ("TLSv1.2",), verifies_host=False)
        trusted, client = server_context(settings), client_context(replace(settings, key_store=KeyStore(str(shown))))
        assert shakes_hands(trusted, client) is is_accepted


def test_a_key_in_pkcs12_has_no_password_of_its_own() -> None:
    """One that is given and not used would be a mistake that nothing shows."""
    with pytest.raises(KeyStoreError, match="password of its store"):
        read_identity(PKCS12, PASSWORDS["p12"]._replace(key_password="another"))


@settings(deadline=None)
@given(st.integers(0, len(JKS) - 1), st.integers(1, 255), st.booleans())
def test_a_damaged_jks_store_is_refused_wherever_the_damage_is(at: int, change: int, with_password: bool) -> None:
    """With the password, the hash over the store finds every change; without it, no
    change is a crash."""
    damaged = bytearray(JKS)
    damaged[at] ^= change
    if with_password:
        with pytest.raises(KeyStoreError):
            read_trusted(bytes(damaged), PASSWORDS["jks"])
    else:
        try_to_read(bytes(damaged))


@given(st.integers(0, len(JKS) - 1))
def test_a_jks_store_that_ends_early_is_refused(length: int) -> None:
    """Whatever the place."""
    with pytest.raises(KeyStoreError):
        read_trusted(JKS[:length], PASSWORDS["jks"])
    try_to_read(JKS[:length])


def test_counts_and_lengths_beyond_the_store_are_damage() -> None:
    """A store of a few bytes that announces two billion entries, or a certificate of
    2 GiB, is damaged."""
    entries = struct.pack(">4sii", JKS[:4], 2, 2**31 - 1)
    certificate = struct.pack(">4siiiHqH5si", JKS[:4], 2, 1, 2, 0, 0, 5, b"X.509", 2**31 - 1)
    for lies in (entries, certificate, certificate[:-4] + struct.pack(">i", -1)):
        with pytest.raises(KeyStoreError, match="damaged"):
            read_trusted(lies + bytes(20), KeyStore(""))


def test_a_setting_for_another_kind_of_file_is_named(tmp_path: Path) -> None:
    """PEM under the type JKS, JCEKS, and what is no store at all."""
    for contents, kind, reason in (
        (b"-----BEGIN CERTIFICATE-----", "JKS", "set it to PEM"),
        (b"\xce\xce\xce\xce", "", "JCEKS is not supported"),
        (b"junk", "", "neither PEM nor JKS nor PKCS12"),
    ):
        (tmp_path / "store").write_bytes(contents)
        with pytest.raises(ConfigError, match=reason) as refused:
            server_context(SslSettings(str, KeyStore(str(tmp_path / "store"), type=kind), None, "none", ("TLSv1.3",)))
        assert "ssl.keystore.location" in str(refused.value)


def test_pkcs12_without_its_library_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    """The base installation has no library that decrypts PKCS12."""
    monkeypatch.setitem(sys.modules, "cryptography.hazmat.primitives.serialization", None)
    with pytest.raises(KeyStoreError, match=re.escape(install_command("keystores"))):
        read_identity(PKCS12, PASSWORDS["p12"])


def test_stores_in_the_properties_of_javas_clients_become_librdkafkas(tmp_path: Path) -> None:
    """JKS and PKCS12 as text, PEM files by their names, and PEM in the properties themselves."""
    for kind, data in STORES.items():
        (tmp_path / kind).write_bytes(data)
    store, trusted = str(tmp_path / "jks"), str(tmp_path / "p12")
    properties = {
        "security.protocol": "ssl",
        "ssl.keystore.location": store,
        "ssl.keystore.password": "storepass",
        "ssl.key.password": "keypass1",
        "ssl.truststore.location": trusted,
        "ssl.truststore.password": "storepass",
        "ssl.truststore.type": "PKCS12",
    }
    translate_stores(properties)
    assert sorted(properties) == ["security.protocol", "ssl.ca.pem", "ssl.certificate.pem", "ssl.key.pem"]
    assert properties["ssl.key.pem"] == read_identity(JKS, PASSWORDS["jks"]).key_pem
    inline = {"ssl.truststore.certificates": "A", "ssl.keystore.certificate.chain": "B", "ssl.keystore.key": "C"}
    translate_stores(inline)
    assert inline == {"ssl.ca.pem": "A", "ssl.certificate.pem": "B", "ssl.key.pem": "C"}


@pytest.mark.parametrize(
    ("properties", "reason"),
    [
        ({"ssl.truststore.location": "/nowhere.jks"}, "/nowhere.jks cannot be read"),
        ({"ssl.keystore.type": "BCFKS"}, "PEM, JKS and PKCS12 are supported"),
        ({"ssl.keystore.location": "/x", "ssl.keystore.key": "C"}, "which one is meant"),
    ],
)
def test_stores_that_a_client_cannot_use_are_named(properties: dict[str, str], reason: str) -> None:
    """Before anything is sent."""
    with pytest.raises(ConfigurationError, match=reason):
        translate_stores({"security.protocol": "SASL_SSL", **properties})


def test_a_store_is_not_read_without_tls() -> None:
    """A file of properties may be shared with programs that have it."""
    properties = {"ssl.truststore.location": "/nowhere.jks", "ssl.truststore.password": "x"}
    translate_stores(properties)
    assert properties == {}


def try_to_read(data: bytes) -> None:
    """Without a password: an error of ours, or what is there."""
    for read in (read_trusted, read_identity):
        with contextlib.suppress(KeyStoreError):
            read(data, KeyStore("", key_password="keypass1"))


def pkcs12(folder: Path, *arguments: str) -> bytes:
    """What openssl exports."""
    command = [
        "openssl",
        "pkcs12",
        "-export",
        *arguments,
        "-passout",
        "pass:changeit",
        "-out",
        str(folder / "made.p12"),
    ]
    subprocess.run(command, check=True, capture_output=True)
    return (folder / "made.p12").read_bytes()


def der(pem: Path) -> bytes:
    """The first certificate of a file."""
    text = pem.read_text()
    return ssl.PEM_cert_to_DER_cert(
        text[text.index("-----BEGIN CERTIFICATE") :].partition("-----END CERTIFICATE-----")[0]
        + "-----END CERTIFICATE-----\n"
    )


def shakes_hands(server: ssl.SSLContext, client: ssl.SSLContext) -> bool:
    """Whether both sides accept each other, over memory."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    sides = [
        client.wrap_bio(to_client, to_server, server_side=False),
        server.wrap_bio(to_server, to_client, server_side=True),
    ]
    for _ in range(10):
        done = 0
        for side in sides:
            try:
                side.do_handshake()
                done += 1
            except ssl.SSLWantReadError:
                pass
            except ssl.SSLError:
                return False
        if done == len(sides):
            return True
    return False
