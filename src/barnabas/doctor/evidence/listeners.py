"""The listeners of a broker, from its properties.

In Kafka: ``listeners``, ``advertised.listeners`` and ``listener.security.protocol.map``.
"""

from collections.abc import Mapping
from typing import NamedTuple

from barnabas.client.admin.configurations import ConfigEntry

__all__ = ["ShownListener", "listeners_of"]


class ShownListener(NamedTuple):
    """A listener at the address that it gives to clients."""

    name: str
    protocol: str
    """Of security: PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."""
    host: str
    port: int

    @property
    def has_tls(self) -> bool:
        return self.protocol.endswith("SSL")


def listeners_of(entries: Mapping[str, ConfigEntry]) -> list[ShownListener]:
    """The listeners of a broker with these properties.

    The host is "" for all addresses of the machine, and the port may be 0 for any."""
    bound = _addresses(entries, "listeners")
    advertised = _addresses(entries, "advertised.listeners")
    pairs = (text.partition(":") for text in _texts(entries, "listener.security.protocol.map"))
    protocols = {name.strip().upper(): protocol.strip().upper() for name, _, protocol in pairs}
    return [
        ShownListener(name, protocols.get(name, name), *advertised.get(name, place)) for name, place in bound.items()
    ]


def _addresses(entries: Mapping[str, ConfigEntry], name: str) -> dict[str, tuple[str, int]]:
    found = {}
    for text in _texts(entries, name):
        listener, _, place = text.strip().partition("://")
        host, _, port = place.rpartition(":")
        if port.isdecimal():
            found[listener.upper()] = (host.strip("[]"), int(port))
    return found


def _texts(entries: Mapping[str, ConfigEntry], name: str) -> list[str]:
    entry = entries.get(name)
    return entry.value.split(",") if entry is not None and entry.value else []
