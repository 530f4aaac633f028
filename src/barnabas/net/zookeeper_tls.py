"""TLS by ZooKeeper's properties, which clients, ports for clients and ports for members
have with other prefixes.

In ZooKeeper: X509Util, with its property names.
"""

from collections.abc import Callable
from functools import partial

from barnabas.base.errors import ConfigError
from barnabas.base.settings import Values
from barnabas.net.ssl_contexts import TLS_PROTOCOLS, SslSettings
from barnabas.security.key_stores import KeyStore

__all__ = ["read_named_file", "read_zookeeper_tls"]


def read_zookeeper_tls(
    settings: Values, prefix: str, read_text: Callable[[str], str], *, client_auth: str, verifies_host: bool = True
) -> SslSettings:
    """The settings with a prefix: ssl, ssl.quorum or zookeeper.ssl.

    A store without a location is None. ``read_text`` reads a file, and raises
    OSError. Raises `ConfigError`.
    """
    protocols = settings[f"{prefix}.enabledProtocols"] or [settings[f"{prefix}.protocol"]]
    return SslSettings(
        partial(_zookeeper_name, prefix),
        key_store=_store(settings, f"{prefix}.keyStore", read_text),
        trust_store=_store(settings, f"{prefix}.trustStore", read_text),
        client_auth=client_auth,
        protocols=tuple(protocols) if all(protocols) else TLS_PROTOCOLS,
        verifies_host=verifies_host,
    )


def read_named_file(settings: Values, name: str, read_text: Callable[[str], str]) -> str:
    """The text of the file that a setting names. Raises `ConfigError`."""
    path = settings[name]
    try:
        return read_text(path)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the file {path} ({name}) cannot be read: {error}") from None


def _store(settings: Values, name: str, read_text: Callable[[str], str]) -> KeyStore | None:
    password: str = settings[f"{name}.password"]
    if settings[f"{name}.passwordPath"]:
        password = read_named_file(settings, f"{name}.passwordPath", read_text)
    location = settings[f"{name}.location"]
    return KeyStore(location, password.strip(), settings[f"{name}.type"]) if location else None


def _zookeeper_name(prefix: str, name: str) -> str:
    """ssl.quorum.keyStore.location for ssl.keystore.location."""
    _, _, rest = name.partition(".")
    for ours, theirs in (("keystore", "keyStore"), ("truststore", "trustStore"), ("client.auth", "clientAuth")):
        rest = rest.replace(ours, theirs)
    return f"{prefix}.{rest}"
