"""Java's key stores and trust stores, as PEM: JKS, PKCS12, and PEM itself.

What a store is, its first bytes say, not its name: since Java 9 keytool writes PKCS12 to files that
are called .jks, and Java reads both under either type. The layout of JKS, all numbers big-endian:

    store:        magic int32 0xFEEDFEED | version int32, 1 or 2 | count int32 | entries
                  | SHA-1 of all that, salted with the password
    entry:        tag int32 | alias UTF | created int64, ms
                  tag 1, a key:         length int32, EncryptedPrivateKeyInfo (DER)
                                        | count int32, certificates
                  tag 2, a certificate: certificate
    certificate:  type UTF (version 2) | length int32, DER
    UTF:          length uint16, bytes

A key is encrypted with a stream of SHA-1 hashes, which begins with a salt of 20 bytes and ends
with a check of 20 bytes.

In Kafka: DefaultSslEngineFactory's FileBasedStore. In ZooKeeper: FileKeyStoreLoader. In Java:
JavaKeyStore, KeyProtector.
"""

import base64
import hashlib
import hmac
import struct
from typing import NamedTuple

from barnabas.base.installation import install_command

__all__ = ["Identity", "KeyStore", "KeyStoreError", "check_store_type", "is_pem", "read_identity", "read_trusted"]

STORE_TYPES = ("", "PEM", "JKS", "PKCS12")

_JKS_MAGIC = b"\xfe\xed\xfe\xed"
_JCEKS_MAGIC = b"\xce\xce\xce\xce"
_DER_SEQUENCE = 0x30
_PEM_BEGIN = b"-----BEGIN "
_KEY_ENTRY, _CERTIFICATE_ENTRY = 1, 2
_SALT_BYTES = _DIGEST_BYTES = 20
_JKS_SALT = b"Mighty Aphrodite"
"""Part of the format."""
_SUN_KEY_PROTECTOR = bytes.fromhex("060a2b060104012a02110101")
"""The object identifier 1.3.6.1.4.1.42.2.17.1.1 in DER: how JKS encrypts keys."""


class KeyStoreError(ValueError):
    """A store that cannot be read: damaged, of another type, or with another password."""


class KeyStore(NamedTuple):
    """Where a key store or trust store is, as settings name it."""

    location: str
    password: str = ""
    type: str = ""
    """PEM, JKS or PKCS12; empty for what the file's first bytes say."""
    key_password: str = ""
    """The password of the key in it, if it is not the store's."""

    def __repr__(self) -> str:
        return f"KeyStore({self.location!r})"  # without the passwords


class Identity(NamedTuple):
    """A private key and its certificates, its own first."""

    key_pem: str
    chain_pem: str


class _Entry(NamedTuple):
    key: bytes
    """Encrypted; empty for a certificate that is trusted."""
    certificates: list[bytes]


class _Pkcs12(NamedTuple):
    key: bytes
    """PKCS8 in DER; empty if there is none"""
    chain: list[bytes]
    """the key's certificate, then each one's issuer, in DER"""
    others: list[bytes]


def is_pem(data: bytes) -> bool:
    """Whether this is text with PEM blocks."""
    return _PEM_BEGIN in data


def check_store_type(value: str) -> str | None:
    """What is wrong with a setting that names a store's type."""
    if value.upper() in STORE_TYPES:
        return None
    return "PEM, JKS and PKCS12 are supported: convert the store with keytool -importkeystore -deststoretype PKCS12"


def read_identity(data: bytes, store: KeyStore) -> Identity:
    """The first key of a JKS or PKCS12 store, with its chain. Raises `KeyStoreError`."""
    password = store.password
    if _is_jks(data, store.type):
        for entry in _jks_entries(data, password):
            if entry.key:
                key = _decrypt(entry.key, store.key_password or password)
                return Identity(_pem("PRIVATE KEY", key), _certificates_pem(entry.certificates))
    else:
        if store.key_password not in ("", password):
            raise KeyStoreError("it is PKCS12, in which a key has the password of its store, and another one is given")
        contents = _pkcs12(data, password)
        if contents.key and contents.chain:
            return Identity(_pem("PRIVATE KEY", contents.key), _certificates_pem(contents.chain))
    raise KeyStoreError("there is no private key with a certificate in it")


def read_trusted(data: bytes, store: KeyStore) -> str:
    """The certificates of a JKS or PKCS12 store that Java trusts, as PEM: of each key its own,
    and all that have no key.

    The authorities that signed a key's certificate are not trusted: others have certificates of
    theirs. In PKCS12 an attribute that cannot be read here distinguishes them from trusted ones, so
    a store with both is refused.

    Without a password, nothing checks that a JKS store is as it was written. Raises
    `KeyStoreError`.
    """
    if _is_jks(data, store.type):
        certificates = [each for entry in _jks_entries(data, store.password) for each in entry.certificates[:1]]
    else:
        contents = _pkcs12(data, store.password)
        certificates = contents.chain[:1] + contents.others
        if contents.key and (len(contents.chain) > 1 or contents.others):
            raise KeyStoreError(
                "it has a key beside other certificates, and which of them are trusted cannot be seen: import those into a "
                "store of their own, with keytool -importcert"
            )
    if not certificates:
        raise KeyStoreError("there is no certificate in it")
    return _certificates_pem(certificates)


def _is_jks(data: bytes, expected: str) -> bool:
    if expected.upper() == "PEM":
        raise KeyStoreError("it is not PEM, as its type says")
    if data.startswith(_JCEKS_MAGIC):
        raise KeyStoreError("JCEKS is not supported: convert it with keytool -importkeystore -deststoretype PKCS12")
    if not data.startswith(_JKS_MAGIC) and data[:1] != bytes([_DER_SEQUENCE]):
        raise KeyStoreError("it is neither PEM nor JKS nor PKCS12")
    return data.startswith(_JKS_MAGIC)


def _pkcs12(data: bytes, password: str) -> _Pkcs12:
    try:
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
        from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12
    except ImportError:
        raise KeyStoreError(
            f"PKCS12 needs the package cryptography: {install_command('keystores')}, "
            "or convert it with openssl pkcs12 -nodes -in STORE.p12 -out STORE.pem"
        ) from None
    try:
        store = load_pkcs12(data, password.encode() if password else None)
    except ValueError:
        raise KeyStoreError("its password is wrong, or it is damaged") from None
    key = b"" if store.key is None else store.key.private_bytes(Encoding.DER, PrivateFormat.PKCS8, NoEncryption())
    others = [each.certificate for each in store.additional_certs]
    chain = [] if store.cert is None else [store.cert.certificate]
    while chain and chain[-1].issuer != chain[-1].subject:
        issuers = [each for each in others if each.subject == chain[-1].issuer]
        if not issuers:
            break
        others.remove(issuers[0])
        chain.append(issuers[0])
    return _Pkcs12(
        key, [each.public_bytes(Encoding.DER) for each in chain], [each.public_bytes(Encoding.DER) for each in others]
    )


def _jks_entries(data: bytes, password: str) -> list[_Entry]:
    body = memoryview(data)[:-_DIGEST_BYTES]
    if password:
        digest = hashlib.sha1(_utf16(password) + _JKS_SALT + body, usedforsecurity=False).digest()
        if not hmac.compare_digest(digest, data[-_DIGEST_BYTES:]):
            raise KeyStoreError("its password is wrong, or it is damaged")
    try:
        return _read_entries(bytes(body))
    except struct.error:
        raise KeyStoreError("it ends in the middle of an entry: it is damaged") from None


def _read_entries(body: bytes) -> list[_Entry]:
    """Raises struct.error at a premature end."""
    _, version, count = struct.unpack_from(">4sii", body)
    if version not in (1, 2):
        raise KeyStoreError(f"JKS of version {version} is not supported")
    at, entries = 12, []
    for _ in range(count):
        (tag,) = struct.unpack_from(">i", body, at)
        _, at = _read_bytes(body, at + 4, ">H")
        at += 8
        key, certificate_count = b"", 1
        if tag == _KEY_ENTRY:
            key, at = _read_bytes(body, at, ">i")
            (certificate_count,) = struct.unpack_from(">i", body, at)
            at += 4
        elif tag != _CERTIFICATE_ENTRY:
            raise KeyStoreError(f"it has an entry of the unknown kind {tag}: it is damaged")
        certificates = []
        for _ in range(certificate_count):
            if version == 2:
                _, at = _read_bytes(body, at, ">H")
            certificate, at = _read_bytes(body, at, ">i")
            certificates.append(certificate)
        entries.append(_Entry(key, certificates))
    return entries


def _read_bytes(body: bytes, at: int, length_format: str) -> tuple[bytes, int]:
    (length,) = struct.unpack_from(length_format, body, at)
    at += struct.calcsize(length_format)
    if not 0 <= length <= len(body) - at:
        raise struct.error
    return body[at : at + length], at + length


def _decrypt(encrypted: bytes, password: str) -> bytes:
    """The PKCS8 key in an EncryptedPrivateKeyInfo, which is a sequence of an
    algorithm and an octet string."""
    (_, info, _) = _der(encrypted, 0)
    (_, algorithm, at) = _der(info, 0)
    (_, protected, _) = _der(info, at)
    if not algorithm.startswith(_SUN_KEY_PROTECTOR):
        raise KeyStoreError("its key is encrypted in a way that JKS does not have")
    secret = _utf16(password)
    digest, sealed, check = (
        protected[:_SALT_BYTES],
        protected[_SALT_BYTES:-_DIGEST_BYTES],
        protected[-_DIGEST_BYTES:],
    )
    stream = bytearray()
    while len(stream) < len(sealed):
        digest = hashlib.sha1(secret + digest, usedforsecurity=False).digest()
        stream += digest
    key = bytes(left ^ right for left, right in zip(sealed, stream, strict=False))
    if not hmac.compare_digest(hashlib.sha1(secret + key, usedforsecurity=False).digest(), check):
        raise KeyStoreError("the password of its key is wrong, or it is damaged")
    return key


def _der(data: bytes, at: int) -> tuple[int, bytes, int]:
    """The tag and contents of the element at a position, and where the next one begins."""
    if len(data) < at + 2:
        raise KeyStoreError("its key is damaged")
    tag, length, start = data[at], data[at + 1], at + 2
    if length & 0x80:
        size = length & 0x7F
        length, start = int.from_bytes(data[start : start + size], "big"), start + size
    if start + length > len(data):
        raise KeyStoreError("its key is damaged")
    return tag, data[start : start + length], start + length


def _utf16(password: str) -> bytes:
    return password.encode("utf-16-be")


def _certificates_pem(certificates: list[bytes]) -> str:
    return "".join(_pem("CERTIFICATE", each) for each in certificates)


def _pem(label: str, der: bytes) -> str:
    text = base64.encodebytes(der).decode().replace("\n", "")
    lines = "\n".join(text[at : at + 64] for at in range(0, len(text), 64))
    return f"-----BEGIN {label}-----\n{lines}\n-----END {label}-----\n"
