"""How many connections a broker accepts, in all and from each address (Kafka's `ConnectionQuotas`).

Where there are several listeners, max.connections does not close the one that brokers use among
themselves (Kafka calls it protected): clients must not keep replication out. Its connections count,
and when they exceed the limit, the connection of another listener that was silent longest is
closed. Above the limit Kafka's brokers leave new connections in the backlog; ours accept and close
them, so that their clients try another broker.
"""

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["ConnectionLimits", "ConnectionQuotas", "canonical_address"]


def canonical_address(text: str) -> str | None:
    """An IP address in the form in which all spellings of it are equal.

    None if it is not an address. An IPv4 address that is mapped into IPv6 is the IPv4 address, and
    the zone of an IPv6 address does not count: so do Java's addresses.
    """
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The limits as they hold now."""

    max_connections: int
    """max.connections"""
    max_connections_per_ip: int
    """max.connections.per.ip"""
    overrides: Mapping[str, int] = field(default_factory=dict)
    """max.connections.per.ip.overrides, by canonical address."""


class ConnectionQuotas:
    """Counts open connections and compares them with the limits."""

    __slots__ = ("_by_address", "_count", "_protected_listener", "limits")

    def __init__(self, limits: ConnectionLimits, protected_listener: str | None = None) -> None:
        """``protected_listener`` is the one of the brokers, where there are others."""
        self.limits = limits
        """Replaced when the configuration changes; open connections stay."""
        self._protected_listener = protected_listener
        self._by_address: dict[str, int] = {}
        self._count = 0

    def opened(self, address: str, listener: str) -> str | None:
        """Count a connection.

        Returns why it must be closed, None when it may stay; `closed` must follow either way."""
        address = _canonical(address)
        self._count += 1
        count = self._by_address[address] = self._by_address.get(address, 0) + 1
        limits = self.limits
        if count > limits.overrides.get(address, limits.max_connections_per_ip):
            return "address already has the configured maximum of connections (max.connections.per.ip)"
        if self.is_exceeded and not self.is_protected(listener):
            return "the broker has the configured maximum of connections (max.connections)"
        return None

    @property
    def is_exceeded(self) -> bool:
        """Whether there are more connections than max.connections."""
        return self._count > self.limits.max_connections

    def is_protected(self, listener: str) -> bool:
        """Whether a listener's connections may exceed max.connections."""
        return listener == self._protected_listener

    def closed(self, address: str) -> None:
        """A connection that was counted is closed."""
        address = _canonical(address)
        self._count -= 1
        count = self._by_address[address] - 1
        if count:
            self._by_address[address] = count
        else:
            del self._by_address[address]


def _canonical(peer: str) -> str:
    """The address of a connection: the system spells IPv4 addresses, and most IPv6
    ones, in the canonical form."""
    return peer if ":" not in peer else canonical_address(peer) or peer
