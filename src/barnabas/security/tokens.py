"""How long a message of an authentication may be.

A client may send such a message before it has proven anything, and a hostile server may send one to
a client. A pattern, a hash or a log line over half a megabyte takes tens of milliseconds, so the
length is checked before anything else. Messages of PLAIN, SCRAM and DIGEST-MD5 have at most a few
hundred bytes; RFC 2831 allows 4096.

In Kafka: `sasl.server.max.receive.size`, which limits the frame alone.
"""

from barnabas.security.errors import SaslError

__all__ = ["MAX_TOKEN_BYTES", "check_token"]

MAX_TOKEN_BYTES = 4096


def check_token(token: bytes) -> None:
    """Raises `SaslError` for a message that is too long.

    The error does not depend on which users exist."""
    if len(token) > MAX_TOKEN_BYTES:
        raise SaslError(
            f"the SASL message has {len(token)} bytes, and {MAX_TOKEN_BYTES} are the most", is_for_client=True
        )
