"""Contexts of OpenSSL, from the files and texts with keys and certificates that properties name.

OpenSSL loads a key from a file only. A key that was decrypted from a Java key store is therefore
given to it as a file in memory, which has no name and goes with its descriptor. The PEM text of a
property may stand in one line, as Kafka allows.

In Kafka: DefaultSslEngineFactory with its `PemStore`. In ZooKeeper: X509Util.
"""

import os
import re
import ssl
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from barnabas.base.errors import ConfigError
from barnabas.security.key_stores import Identity, KeyStore, KeyStoreError, is_pem, read_identity, read_trusted

__all__ = ["TLS_PROTOCOLS", "SslSettings", "client_context", "load_identity", "server_context"]

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
TLS_PROTOCOLS = tuple(_VERSIONS)
"""What a context can be limited to; older protocols are not offered."""
_CLIENT_AUTH = {
    "none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "want": ssl.CERT_OPTIONAL,
    "required": ssl.CERT_REQUIRED, "need": ssl.CERT_REQUIRED,
}  # fmt: skip
_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----\s*(.*?)\s*-----END \1-----", re.DOTALL)
_LINE = 64


@dataclass(frozen=True, slots=True)
class SslSettings:
    """One port's keys and certificates, and what it asks of the other side.

    Empty texts stand for what is not set."""

    name: Callable[[str], str]
    """The property that has a value, for errors, by Kafka's name for it:
    ``listener.name.x.ssl.keystore.key``, or ZooKeeper's ``ssl.quorum.keyStore.location``; of a
    store, what its properties begin with."""
    key_store: KeyStore | None
    trust_store: KeyStore | None
    client_auth: str
    """none, requested or required; want and need in ZooKeeper"""
    protocols: Sequence[str]
    verifies_host: bool = True
    """Whether a server's certificate must be for the host that is connected to."""
    key_text: str = field(default="", repr=False)
    chain_text: str = ""
    key_password: str = field(default="", repr=False)
    """The password of the key that is a text."""
    trust_text: str = ""


def server_context(settings: SslSettings) -> ssl.SSLContext:
    """For a port that is listened on. Raises `ConfigError` that names the property."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _limit(context, settings)
    if settings.key_store is None and not settings.chain_text:
        raise ConfigError(
            f"{settings.name('ssl.keystore.location')} is not set: a listener with TLS needs a certificate and its key"
        )
    _load_key(context, settings)
    context.verify_mode = _CLIENT_AUTH[settings.client_auth]
    if settings.client_auth != "none" and not _load_trusted(context, settings):
        raise ConfigError(
            f"{settings.name('ssl.truststore.location')} is not set: {settings.name('ssl.client.auth')}="
            f"{settings.client_auth} needs the certificates with which those of clients are verified"
        )
    return context


def client_context(settings: SslSettings) -> ssl.SSLContext:
    """For connections to other servers, which show this one's own certificate.

    Raises `ConfigError`. Without trusted certificates, those of the system verify the other side.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # needs a certificate that is valid
    context.check_hostname = settings.verifies_host
    _limit(context, settings)
    if settings.key_store is not None or settings.chain_text:
        _load_key(context, settings)
    if not _load_trusted(context, settings):
        context.load_default_certs()
    return context


def load_identity(context: ssl.SSLContext, identity: Identity, password: str = "") -> None:
    """Show this certificate, whose key may be encrypted.

    The key is never written to a disk where the system has files in memory."""
    with _readable(identity.chain_pem + identity.key_pem) as path:
        context.load_cert_chain(path, password=lambda: password)


def _limit(context: ssl.SSLContext, settings: SslSettings) -> None:
    unknown = [protocol for protocol in settings.protocols if protocol not in _VERSIONS]
    if unknown or not settings.protocols:
        raise ConfigError(
            f"{settings.name('ssl.enabled.protocols')}={','.join(settings.protocols)}: of {', '.join(TLS_PROTOCOLS)} some are "
            "expected; older protocols are not offered"
        )
    versions = sorted(_VERSIONS[protocol] for protocol in settings.protocols)
    context.minimum_version, context.maximum_version = versions[0], versions[-1]
    context.options |= ssl.OP_NO_RENEGOTIATION


def _load_key(context: ssl.SSLContext, settings: SslSettings) -> None:
    store = settings.key_store
    if store is None:
        try:
            identity = Identity(_normal(settings.key_text), _normal(settings.chain_text))
            load_identity(context, identity, settings.key_password)
        except ssl.SSLError as error:
            raise ConfigError(
                f"{settings.name('ssl.keystore.key')} and {settings.name('ssl.keystore.certificate.chain')} cannot be used "
                f"({_reason(error)}): are they PEM, and is {settings.name('ssl.key.password')} right?"
            ) from None
        return

    def load(data: bytes) -> None:
        if is_pem(data):
            context.load_cert_chain(store.location, password=lambda: store.key_password or store.password)
        else:
            load_identity(context, read_identity(data, store))

    _load(store, settings.name("ssl.keystore"), load)


def _load_trusted(context: ssl.SSLContext, settings: SslSettings) -> bool:
    """Whether there are certificates with which peers are verified.

    As for Java, each of them is enough: an authority need not be the root that signed it,
    and a peer's own will do.
    """
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    store = settings.trust_store
    if store is not None:

        def load(data: bytes) -> None:
            if is_pem(data):
                context.load_verify_locations(store.location)
            else:
                context.load_verify_locations(cadata=read_trusted(data, store))

        _load(store, settings.name("ssl.truststore"), load)
    elif settings.trust_text:
        try:
            context.load_verify_locations(cadata=_normal(settings.trust_text) or " ")
        except ssl.SSLError as error:
            raise ConfigError(
                f"{settings.name('ssl.truststore.certificates')} cannot be used ({_reason(error)}): are they PEM?"
            ) from None
    else:
        return False
    return True


def _load(store: KeyStore, name: str, load: Callable[[bytes], None]) -> None:
    where = f"{store.location} ({name}.location)"
    try:
        data = Path(store.location).read_bytes()
        if is_pem(data) and store.type.upper() not in ("", "PEM"):
            raise ConfigError(f"{where} is PEM, and {name}.type is {store.type}: set it to PEM")
        load(data)
    except ssl.SSLError as error:
        raise ConfigError(
            f"{where} cannot be used ({_reason(error)}): is it whole, is its password ({name}.password) right, and are its keys "
            "and signatures strong enough for OpenSSL?"
        ) from None
    except KeyStoreError as error:
        raise ConfigError(f"{where} cannot be used: {error}") from None
    except (OSError, ValueError) as error:
        raise ConfigError(f"{where} cannot be read: {error}") from None


@contextmanager
def _readable(text: str) -> Iterator[str]:
    if hasattr(os, "memfd_create"):
        descriptor = os.memfd_create("identity")
        try:
            os.write(descriptor, text.encode())
            yield f"/proc/self/fd/{descriptor}"
        finally:
            os.close(descriptor)
    else:
        # Only this user can read the file.
        with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".pem") as file:
            file.write(text)
            file.flush()
            yield file.name


def _normal(text: str) -> str:
    """PEM in lines, as OpenSSL reads it."""
    blocks = []
    for label, content in _BLOCK.findall(text):
        if ":" not in content:  # no headers, which end with an empty line
            joined = "".join(content.split())
            content = "\n".join(joined[start : start + _LINE] for start in range(0, len(joined), _LINE))
        blocks.append(f"-----BEGIN {label}-----\n{content}\n-----END {label}-----\n")
    return "".join(blocks)


def _reason(error: OSError) -> str:
    """What OpenSSL says, in words."""
    return (getattr(error, "reason", None) or error.strerror or str(error)).lower().replace("_", " ")
