"""How a connection to a broker is protected: TLS around it, and SASL on it, by the properties of
the Java clients or of librdkafka.

`AdminConnection` works with ``PLAINTEXT``, ``SSL``, ``SASL_PLAINTEXT`` and ``SASL_SSL``, and with
the mechanisms PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512. What else a property asks for is refused
before anything is sent: a connection is never less protected than its properties say.

In Kafka: `ChannelBuilders`.
"""

import socket
from collections.abc import Mapping
from typing import TYPE_CHECKING

from barnabas.client.errors import ClientError, ConfigurationError
from barnabas.client.properties.translation import renamed_for_all, translate_login

if TYPE_CHECKING:  # imported where they are needed: the tools are to start fast
    from barnabas.client.security.sasl import Exchange, LinkSasl
    from barnabas.client.security.tls import LinkTls

__all__ = ["LinkSecurity"]

_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")


class LinkSecurity:
    """The protection of all connections of one client.

    Raises `ConfigurationError` for what cannot be done."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        given = renamed_for_all(properties)
        translate_login(given)
        self.protocol = protocol = given.get("security.protocol", "PLAINTEXT").upper()
        if protocol not in _PROTOCOLS:
            raise ConfigurationError(
                f"Invalid value {protocol} for configuration security.protocol: {', '.join(_PROTOCOLS)} are expected"
            )
        self._tls = _tls(given, protocol) if protocol.endswith("SSL") else None
        self._sasl = _sasl(given, protocol) if protocol.startswith("SASL") else None

    def encrypt(self, plain: socket.socket, host: str, name: str) -> socket.socket:
        """The socket that talks through TLS, where the properties ask for it.

        See `LinkTls.encrypt`."""
        return plain if self._tls is None else self._tls.encrypt(plain, host, name)

    def certificate_error(self, error: OSError, name: str) -> ClientError | None:
        """The error of a broker that does not accept this side's certificate, if it is one."""
        return None if self._tls is None else self._tls.certificate_error(error, name)

    def is_idle(self, error: OSError) -> bool:
        """Whether a read that does not wait failed because there is nothing to read."""
        return isinstance(error, BlockingIOError) if self._tls is None else self._tls.is_idle(error)

    def authenticate(self, exchange: "Exchange", name: str) -> float | None:
        """Prove who this is, where the properties ask for it; see `LinkSasl.authenticate`."""
        return None if self._sasl is None else self._sasl.authenticate(exchange, name)


def _tls(given: Mapping[str, str], protocol: str) -> "LinkTls":
    from barnabas.client.security.tls import LinkTls

    return LinkTls(given, protocol)


def _sasl(given: Mapping[str, str], protocol: str) -> "LinkSasl":
    from barnabas.client.security.sasl import LinkSasl

    return LinkSasl(given, protocol)
