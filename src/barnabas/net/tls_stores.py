"""The keys and certificates of a broker, as Kafka's ``ssl.`` properties name them, made into contexts of OpenSSL.

The PEM text of a property may stand in one line, as Kafka allows.

In Kafka: `DefaultSslEngineFactory` with its `PemStore`.
"""

import re
import ssl
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from barnabas.base.errors import ConfigError
from barnabas.net.stores import load_identity, load_key_store, load_trust_store, trust_each
from barnabas.net.tls import TLS_PROTOCOLS
from barnabas.security.key_stores import Identity, KeyStore

__all__ = ["TlsStores", "connecting_context", "listening_context"]

_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
_CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----\s*(.*?)\s*-----END \1-----", re.DOTALL)
_LINE = 64


@dataclass(frozen=True, slots=True)
class TlsStores:
    """One listener's keys and certificates, and what it asks of the other side. Empty texts stand for what is not set."""

    name: Callable[[str], str]
    """The property in which a value is, for errors: ``listener.name.x.ssl.keystore.key``; of a store, what its properties
    begin with."""
    key_store: KeyStore | None
    key_text: str
    chain_text: str
    key_password: str
    """Of the key that is a text."""
    trust_store: KeyStore | None
    trust_text: str
    client_auth: str
    """none, requested or required"""
    protocols: Sequence[str]
    verifies_host: bool
    """Whether a server's certificate must be for the host that is connected to."""


def listening_context(stores: TlsStores) -> ssl.SSLContext:
    """For a listener. Raises `ConfigError` that names the property."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _limit(context, stores)
    if stores.key_store is None and not stores.chain_text:
        raise ConfigError(
            f"{stores.name('ssl.keystore.location')} is not set: a listener with TLS needs a certificate and its key"
        )
    _load_key(context, stores)
    context.verify_mode = _CLIENT_AUTH[stores.client_auth]
    if stores.client_auth != "none" and not _load_trusted(context, stores):
        raise ConfigError(
            f"{stores.name('ssl.truststore.location')} is not set: {stores.name('ssl.client.auth')}="
            f"{stores.client_auth} needs the certificates with which those of clients are verified"
        )
    return context


def connecting_context(stores: TlsStores) -> ssl.SSLContext:
    """For connections to other brokers, which show this broker's own certificate. Raises `ConfigError`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # needs a certificate that is valid
    context.check_hostname = stores.verifies_host
    _limit(context, stores)
    if stores.key_store is not None or stores.chain_text:
        _load_key(context, stores)
    if not _load_trusted(context, stores):
        context.load_default_certs()
    return context


def _limit(context: ssl.SSLContext, stores: TlsStores) -> None:
    unknown = [protocol for protocol in stores.protocols if protocol not in _VERSIONS]
    if unknown or not stores.protocols:
        raise ConfigError(
            f"{stores.name('ssl.enabled.protocols')}={','.join(stores.protocols)}: of {', '.join(TLS_PROTOCOLS)} some are "
            "expected; older protocols are not offered"
        )
    versions = sorted(_VERSIONS[protocol] for protocol in stores.protocols)
    context.minimum_version, context.maximum_version = versions[0], versions[-1]
    context.options |= ssl.OP_NO_RENEGOTIATION


def _load_key(context: ssl.SSLContext, stores: TlsStores) -> None:
    if stores.key_store is not None:
        load_key_store(context, stores.key_store, stores.name("ssl.keystore"))
        return
    try:
        load_identity(context, Identity(_normal(stores.key_text), _normal(stores.chain_text)), stores.key_password)
    except ssl.SSLError as error:
        raise ConfigError(
            f"{stores.name('ssl.keystore.key')} and {stores.name('ssl.keystore.certificate.chain')} cannot be used "
            f"({_reason(error)}): are they PEM, and is {stores.name('ssl.key.password')} right?"
        ) from None


def _load_trusted(context: ssl.SSLContext, stores: TlsStores) -> bool:
    if stores.trust_store is not None:
        load_trust_store(context, stores.trust_store, stores.name("ssl.truststore"))
    elif stores.trust_text:
        try:
            trust_each(context)
            context.load_verify_locations(cadata=_normal(stores.trust_text) or " ")
        except ssl.SSLError as error:
            raise ConfigError(
                f"{stores.name('ssl.truststore.certificates')} cannot be used ({_reason(error)}): are they PEM?"
            ) from None
    else:
        return False
    return True


def _reason(error: ssl.SSLError) -> str:
    return (getattr(error, "reason", None) or str(error)).lower().replace("_", " ")


def _normal(text: str) -> str:
    """PEM in lines, as OpenSSL reads it."""
    blocks = []
    for label, content in _BLOCK.findall(text):
        if ":" not in content:  # no headers, which end with an empty line
            joined = "".join(content.split())
            content = "\n".join(joined[start : start + _LINE] for start in range(0, len(joined), _LINE))
        blocks.append(f"-----BEGIN {label}-----\n{content}\n-----END {label}-----\n")
    return "".join(blocks)
