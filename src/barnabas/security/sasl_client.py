"""The client's side of PLAIN and SCRAM as one conversation: what to send, given what the server answered.

In Kafka: `SaslClientAuthenticator`, `ScramSaslClient`.
"""

from collections.abc import Generator

from barnabas.security.errors import SaslError
from barnabas.security.plain import plain_message
from barnabas.security.scram import SCRAM_MECHANISMS, ScramClient

__all__ = ["converse"]


def converse(mechanism: str, username: str, password: str, nonce: str) -> Generator[bytes, bytes, None]:
    """Yields the client's messages, takes the server's; returns when the server has proven its identity where it can.

    ``nonce`` as for `ScramClient`. Raises `SaslError`.
    """
    if mechanism not in SCRAM_MECHANISMS:
        if mechanism != "PLAIN":
            raise SaslError(f"there is no mechanism {mechanism} here")
        yield plain_message(username, password)
        return
    client = ScramClient(mechanism, username, password, nonce)
    server_first = yield client.first()
    server_final = yield client.final(server_first)
    client.verify(server_final)
