"""From files with keys and certificates into the context of TLS, whatever kind of store they are.

OpenSSL loads a key from a file only. A key that was decrypted from a Java key store is therefore given to it as a file in
memory, which has no name and goes with its descriptor.

In Kafka: DefaultSslEngineFactory. In ZooKeeper: X509Util, which makes the SSLContext.
"""

import os
import ssl
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from barnabas.base.errors import ConfigError
from barnabas.security.key_stores import Identity, KeyStore, KeyStoreError, is_pem, read_identity, read_trusted

__all__ = ["load_identity", "load_key_store", "load_trust_store", "trust_each"]


def load_key_store(context: ssl.SSLContext, store: KeyStore, name: str) -> None:
    """Show the certificate in ``store``, with its key and chain. ``name`` is of its settings. Raises `ConfigError`."""

    def load(data: bytes) -> None:
        if is_pem(data):
            context.load_cert_chain(store.location, password=lambda: store.key_password or store.password)
        else:
            load_identity(context, read_identity(data, store))

    _load(store, name, load)


def load_trust_store(context: ssl.SSLContext, store: KeyStore, name: str) -> None:
    """Verify peers with the certificates in ``store``. ``name`` is of its settings. Raises `ConfigError`.

    As for Java, each of them is enough: an authority need not be the root that signed it, and a peer's own will do.
    """
    trust_each(context)

    def load(data: bytes) -> None:
        if is_pem(data):
            context.load_verify_locations(store.location)
        else:
            context.load_verify_locations(cadata=read_trusted(data, store))

    _load(store, name, load)


def trust_each(context: ssl.SSLContext) -> None:
    """Accept a peer when any certificate of its chain is trusted, not the last alone."""
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN


def load_identity(context: ssl.SSLContext, identity: Identity, password: str = "") -> None:
    """Show this certificate, whose key may be encrypted. The key is never written to a disk where the system has files in memory."""
    with _readable(identity.chain_pem + identity.key_pem) as path:
        context.load_cert_chain(path, password=lambda: password)


def _load(store: KeyStore, name: str, load: Callable[[bytes], None]) -> None:
    where = f"{store.location} ({name}.location)"
    try:
        data = Path(store.location).read_bytes()
        if is_pem(data) and store.type.upper() not in ("", "PEM"):
            raise ConfigError(f"{where} is PEM, and {name}.type is {store.type}: set it to PEM")
        load(data)
    except ssl.SSLError:
        raise ConfigError(
            f"{where} cannot be used: is it whole, and is its password ({name}.password) right?"
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
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:  # readable by this user alone
            file.write(text)
            file.flush()
            yield file.name
