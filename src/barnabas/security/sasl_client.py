"""The client's side of PLAIN and SCRAM as one conversation: what to send, given what
the server answered.

In Kafka: `SaslClientAuthenticator`, `ScramSaslClient`.
"""

from collections.abc import Callable, Generator

from barnabas.security.errors import SaslError
from barnabas.security.mechanisms import PLAIN, SCRAM_MECHANISMS
from barnabas.security.plain import plain_message
from barnabas.security.scram import MAX_SCRAM_ITERATIONS, SaltedPassword, ScramClient

__all__ = ["converse", "login_of_broker"]


def converse(
    mechanism: str, username: str, password: str, nonce: str, salted: SaltedPassword | None = None
) -> Generator[bytes, bytes, None]:
    """Yields the client's messages, takes the server's.

    Returns when the server has proven its identity where it can. ``nonce`` as for `ScramClient`;
    ``salted`` is the password of SCRAM for many conversations. Raises `SaslError`.
    """
    if mechanism not in SCRAM_MECHANISMS:
        if mechanism != PLAIN:
            raise SaslError(f"there is no mechanism {mechanism} here")
        yield plain_message(username, password)
        return
    client = ScramClient(mechanism, username, password if salted is None else salted, nonce)
    server_first = yield client.first()
    server_final = yield client.final(server_first)
    client.verify(server_final)


def login_of_broker(
    mechanism: str, username: str, password: str, next_nonce: Callable[[], str]
) -> Callable[[], Generator[bytes, bytes, None]]:
    """Begins conversations with other brokers, one for each connection, as `converse`.

    There are many connections, and the other side need not be a broker: SCRAM's salted
    password is computed once for each salt, with no more iterations than Kafka's brokers give
    a user. Raises `SaslError`.
    """
    salted = None
    if mechanism in SCRAM_MECHANISMS:
        salted = SaltedPassword(mechanism, password, max_iterations=MAX_SCRAM_ITERATIONS)
    return lambda: converse(mechanism, username, password, next_nonce(), salted)
