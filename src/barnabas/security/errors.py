"""What a proof of identity raises, whatever the mechanism.

In Kafka: `SaslAuthenticationException`.
"""

from barnabas.base.errors import BarnabasError

__all__ = ["SaslError"]


class SaslError(BarnabasError):
    """The other side did not prove its identity, or its message makes no sense."""
