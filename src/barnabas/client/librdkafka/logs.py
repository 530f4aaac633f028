"""What clients log: each problem with a broker once, in plain words, instead of
librdkafka's many lines.

Kafka has no counterpart.
"""

import logging
import time
from typing import Any

from barnabas.client.errors import AuthenticationError, ClientError, from_librdkafka

__all__ = ["ErrorLog", "librdkafka_logger", "logger"]

logger = logging.getLogger("barnabas.client")
librdkafka_logger = logging.getLogger("barnabas.client.librdkafka")

_REPEAT_AFTER_S = 30.0


class _Doubled(logging.Filter):
    """Drops the lines that the error callback reports too."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not record.getMessage().startswith(("FAIL ", "ERROR "))


librdkafka_logger.addFilter(_Doubled())


class ErrorLog:
    """librdkafka's error callback: logs each error, and the same one again only
    after half a minute.

    ``last`` is the last problem, for the messages of timeouts; ``refusal`` the last one that
    waiting does not end: credentials that are not accepted, a certificate that is not trusted.
    """

    def __init__(self) -> None:
        self.last: ClientError | None = None
        self.refusal: AuthenticationError | None = None
        self._logged: dict[str, float] = {}

    def __call__(self, error: Any) -> None:
        problem = from_librdkafka(error, "problem with a broker")
        if error.name() != "_ALL_BROKERS_DOWN" or self.last is None:  # the one before it says why
            self.last = problem
        if isinstance(problem, AuthenticationError):
            self.refusal = problem
        now = time.monotonic()
        if now < self._logged.get(error.name(), 0.0):
            return
        self._logged[error.name()] = now + _REPEAT_AFTER_S
        logger.log(logging.ERROR if error.fatal() else logging.WARNING, "%s", problem)

    def because(self) -> str:
        """The end of a timeout's message: "; the last ..." or nothing."""
        return "" if self.last is None else f"; the last {self.last}"
