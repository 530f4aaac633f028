"""Requests to other brokers, and to ourselves, by broker id.

A `Channels` keeps one connection to each broker, made when it is first needed. Requests are pipelined and answered in
order; a correlation id that does not match, a time-out or a broken connection fails all requests under way with
`ChannelError`. The next request connects again, after a back-off that grows with failures. Requests to the own broker
id are a direct call of the dispatcher: the same handlers, no bytes.
"""

from collections.abc import Mapping
from typing import Any

__all__ = ["ChannelError", "Channels"]


class ChannelError(Exception):
    """The request was not answered: no connection, a time-out, a broker that is not known, bad bytes."""


class Channels:
    """Connections to the brokers of a cluster."""

    def set_brokers(self, endpoints: Mapping[int, tuple[str, int]]) -> None:
        """The living brokers and their inter-broker endpoints; connections to others, or elsewhere, are closed."""
        raise NotImplementedError

    async def send(self, broker_id: int, message: Any, *, timeout_ms: int | None = None) -> Any:
        """Send a request message in the highest version that both sides know, and return the response message.

        ``timeout_ms`` is request.timeout.ms unless given. Raises `ChannelError`.
        """
        raise NotImplementedError
