"""The stores of keys and certificates that Java's clients name, for librdkafka,
which reads PEM files.

A PEM file stays a file. What is in JKS or PKCS12, and PEM text in the properties themselves, is
given to librdkafka as text.

In Kafka: DefaultSslEngineFactory.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from barnabas.client.errors import ConfigurationError
from barnabas.security.key_stores import KeyStore, KeyStoreError, check_store_type, is_pem, read_identity, read_trusted

__all__ = ["STORE_PROPERTIES", "translate_stores"]

Contents = TypeVar("Contents")

STORE_PROPERTIES = (
    *("ssl.keystore.location", "ssl.keystore.password", "ssl.keystore.type"),
    *("ssl.keystore.certificate.chain", "ssl.keystore.key"),
    *("ssl.truststore.location", "ssl.truststore.password", "ssl.truststore.type", "ssl.truststore.certificates"),
)
"""Java's names, which are translated."""


def translate_stores(given: dict[str, Any]) -> None:
    """Replace Java's properties by those of librdkafka.

    Raises `ConfigurationError` for a store that cannot be read. Without TLS no store is read, so a
    file of properties may be shared with programs that use them.
    """
    _text(given, "ssl.truststore.certificates", "ssl.ca.pem", "ssl.truststore.location")
    _text(given, "ssl.keystore.certificate.chain", "ssl.certificate.pem", "ssl.keystore.location")
    _text(given, "ssl.keystore.key", "ssl.key.pem", "ssl.keystore.location")
    trusted, store = _take(given, "ssl.truststore"), _take(given, "ssl.keystore")
    if not str(given.get("security.protocol", "")).upper().endswith("SSL"):
        return
    if trusted is not None:
        data = _read(trusted, "ssl.truststore")
        if is_pem(data):
            given.setdefault("ssl.ca.location", trusted.location)
        else:
            given.setdefault("ssl.ca.pem", _opened(lambda: read_trusted(data, trusted), trusted, "ssl.truststore"))
    if store is None:
        return
    store = store._replace(key_password=str(given.get("ssl.key.password", "")))
    data = _read(store, "ssl.keystore")
    if is_pem(data):
        given.setdefault("ssl.certificate.location", store.location)
        given.setdefault("ssl.key.location", store.location)
        if store.password:
            given.setdefault("ssl.key.password", store.password)
    else:
        identity = _opened(lambda: read_identity(data, store), store, "ssl.keystore")
        given.setdefault("ssl.certificate.pem", identity.chain_pem)
        given.setdefault("ssl.key.pem", identity.key_pem)
        given.pop("ssl.key.password", None)  # the key is open now


def _text(given: dict[str, Any], name: str, target: str, location: str) -> None:
    """PEM in a property itself."""
    text = given.pop(name, None)
    if text is None:
        return
    if given.get(location):
        raise ConfigurationError(f"{name} and {location} are given: which one is meant?", remedy="leave one out")
    given.setdefault(target, str(text))


def _take(given: dict[str, Any], name: str) -> KeyStore | None:
    location, password, kind = (given.pop(f"{name}.{part}", None) for part in ("location", "password", "type"))
    wrong = check_store_type(str(kind or ""))
    if wrong is not None:
        raise ConfigurationError(f"Invalid value {kind} for configuration {name}.type: {wrong}")
    return None if not location else KeyStore(str(location), str(password or ""), str(kind or ""))


def _read(store: KeyStore, name: str) -> bytes:
    try:
        data = Path(store.location).read_bytes()
    except OSError as error:
        raise ConfigurationError(f"{name}.location: {store.location} cannot be read: {error.strerror}") from None
    if is_pem(data) and store.type.upper() not in ("", "PEM"):
        raise ConfigurationError(
            f"{name}.location: {store.location} is PEM, and {name}.type is {store.type}", remedy=f"set {name}.type=PEM"
        )
    return data


def _opened(read: Callable[[], Contents], store: KeyStore, name: str) -> Contents:
    try:
        return read()
    except KeyStoreError as error:
        raise ConfigurationError(f"{name}.location: {store.location} cannot be used: {error}") from None
