"""How many connections a broker accepts, in all and from each address (Kafka's `ConnectionQuotas`)."""

from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["ConnectionLimits", "ConnectionQuotas"]


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """The limits as they hold now."""

    max_connections: int
    """max.connections"""
    max_connections_per_ip: int
    """max.connections.per.ip"""
    overrides: Mapping[str, int] = field(default_factory=dict)
    """max.connections.per.ip.overrides, by address."""


class ConnectionQuotas:
    """Counts open connections and compares them with the limits."""

    __slots__ = ("_by_address", "_count", "limits")

    def __init__(self, limits: ConnectionLimits) -> None:
        self.limits = limits
        """Replaced when the configuration changes; open connections stay."""
        self._by_address: dict[str, int] = {}
        self._count = 0

    def opened(self, address: str) -> str | None:
        """Count a connection. Returns why it must be closed, None when it may stay; `closed` must follow either way."""
        self._count += 1
        count = self._by_address[address] = self._by_address.get(address, 0) + 1
        limits = self.limits
        if count > limits.overrides.get(address, limits.max_connections_per_ip):
            return "address already has the configured maximum of connections (max.connections.per.ip)"
        if self._count > limits.max_connections:
            return "the broker has the configured maximum of connections (max.connections)"
        return None

    def closed(self, address: str) -> None:
        """A connection that was counted is closed."""
        self._count -= 1
        count = self._by_address[address] - 1
        if count:
            self._by_address[address] = count
        else:
            del self._by_address[address]
