"""Lines of the log about clients that could not authenticate, summed up: attempts to guess
passwords must not fill the disk with them.

In Kafka: the lines of `Selector` and `SaslServerAuthenticator`, one for each attempt.
"""

import logging

from barnabas.base.clock import CallLater
from barnabas.base.repeated_events import WITHIN_INTERVAL, EventCount, RepeatedEvents
from barnabas.broker.requests.request import ClientFacts

__all__ = ["AuthenticationFailures"]

logger = logging.getLogger(__name__)


class AuthenticationFailures:
    """Writes them, by the address of the client, its listener and the reason."""

    def __init__(self, call_later: CallLater) -> None:
        self._events = RepeatedEvents[str, tuple[str, str]](_write, call_later)

    def add(self, client: ClientFacts, reason: str) -> None:
        """A client could not authenticate."""
        self._events.add(client.host, (client.listener, reason))

    def close(self) -> None:
        """Write what was counted so far."""
        self._events.close()


def _write(event: EventCount[str, tuple[str, str]]) -> None:
    host, what, times = event
    if what is None:
        clients = f"with {host}" if host is not None else "with other clients"
        logger.info("Failed authentication %s %d further times %s", clients, times, WITHIN_INTERVAL)
    elif times:
        listener, reason = what
        logger.info(
            "Failed authentication with %s on %s again %d times %s: %s", host, listener, times, WITHIN_INTERVAL, reason
        )
    else:
        logger.info("Failed authentication with %s on %s: %s", host, *what)
