"""The SASL mechanism PLAIN (RFC 4616): one message with the user's name and the password,
for connections with TLS.

In Kafka: `PlainSaslServer`, `PlainServerCallbackHandler`.
"""

import hmac
from collections.abc import Mapping

from barnabas.security.errors import SaslError
from barnabas.security.tokens import check_token

__all__ = ["PlainServer", "plain_message"]


def plain_message(username: str, password: str) -> bytes:
    """The client's message."""
    return f"\0{username}\0{password}".encode()


def _digest(password: str) -> bytes:
    return hmac.digest(b"PLAIN", password.encode(), "sha256")


class PlainServer:
    """The server's side of one authentication."""

    def __init__(self, users: Mapping[str, str]) -> None:
        """``users`` are passwords by name."""
        self._users = users
        self.user = ""
        """The client's name, once it is proven."""

    @property
    def is_complete(self) -> bool:
        return bool(self.user)

    def evaluate(self, token: bytes) -> bytes:
        """The answer to the client's message, which is empty.

        Raises `SaslError`, in Kafka's words."""
        if self.is_complete:
            raise SaslError("the authentication is over")
        check_token(token)
        parts = token.decode(errors="replace").split("\0", 3)
        if len(parts) != 3:
            raise SaslError(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}", is_for_client=True)
        authorization_id, name, password = parts
        if not name:
            raise SaslError("Authentication failed: username not specified", is_for_client=True)
        if not password:
            raise SaslError("Authentication failed: password not specified", is_for_client=True)
        known = self._users.get(name)
        # The work is the same for an unknown user and for each length of the password, so that the
        # time shows neither.
        if not hmac.compare_digest(_digest(known or ""), _digest(password)) or known is None:
            raise SaslError("Authentication failed: Invalid username or password", is_for_client=True)
        if authorization_id not in ("", name):
            raise SaslError(
                "Authentication failed: Client requested an authorization id that is different from username",
                is_for_client=True,
            )
        self.user = name
        return b""
