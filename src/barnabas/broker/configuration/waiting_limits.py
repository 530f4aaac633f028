"""How many bytes may wait in memory for a broker's clients together: queued.max.request.bytes,
and what holds without it.

The connections of brokers have a limit of their own, so that clients cannot stop the replication:
those on a listener that only brokers use, and those that authenticate as this broker does. So have
connections that have yet to authenticate.

In Kafka: the memory pool of `SocketServer`, which is unlimited by default.
"""

from barnabas.base.network import Standing
from barnabas.base.settings import Values
from barnabas.net.sockets import MAX_UNSENT_BYTES
from barnabas.net.waiting_bytes import WaitingBytes

__all__ = ["DEFAULT_WAITING_BYTES", "STRANGERS_BYTES", "waiting_limits"]

DEFAULT_WAITING_BYTES = 128 * 1024 * 1024
STRANGERS_BYTES = 16 * 1024 * 1024
_STRANGERS_WAIT_MS = 1000


def waiting_limits(settings: Values) -> dict[Standing, WaitingBytes]:
    """The limits of a broker."""
    configured: int = settings["queued.max.request.bytes"]
    limit_bytes = configured if configured > 0 else DEFAULT_WAITING_BYTES
    return {
        Standing.STRANGER: WaitingBytes(
            min(STRANGERS_BYTES, limit_bytes),
            "the limit before the authentication",
            max_unsent_bytes=MAX_UNSENT_BYTES,
            longest_wait_ms=_STRANGERS_WAIT_MS,
        ),
        **{
            standing: WaitingBytes(limit_bytes, "queued.max.request.bytes", max_unsent_bytes=MAX_UNSENT_BYTES)
            for standing in (Standing.CLIENT, Standing.MEMBER)
        },
    }
