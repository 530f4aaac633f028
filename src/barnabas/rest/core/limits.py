"""What the proxy holds at most: bytes of bodies, and requests of a kind. Pure.

Confluent's proxy has no counterpart; brokers have ``queued.max.request.bytes``.
"""

from barnabas.rest.errors import RestCode, RestError

__all__ = ["Allowance"]


class Allowance:
    """A number of which requests take a part for a while."""

    def __init__(self, most: int, what: str) -> None:
        self.most = most
        self.taken = 0
        self._what = what

    def take(self, count: int = 1) -> None:
        """Raises `RestError` where there is not enough left."""
        if self.taken + count > self.most:
            raise RestError(RestCode.TOO_MANY_REQUESTS, f"{self._what}: {self.most} are allowed. Try again later")
        self.taken += count

    def give_back(self, count: int = 1) -> None:
        """A request has ended."""
        self.taken -= count
