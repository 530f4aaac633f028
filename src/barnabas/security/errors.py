"""What a proof of identity raises, whatever the mechanism.

In Kafka: `SaslAuthenticationException`.
"""

from barnabas.base.errors import BarnabasError

__all__ = ["SaslError"]


class SaslError(BarnabasError):
    """The other side did not prove its identity, or its message makes no sense."""

    def __init__(self, message: str, *, is_for_client: bool = False) -> None:
        """``is_for_client`` where the message shows nothing that only the server should know,
        such as which users exist."""
        super().__init__(message)
        self.is_for_client = is_for_client
