"""What clients log: each problem with a broker once, in plain words, instead of librdkafka's many lines."""

import logging
import time
from typing import Any

from barnabas.client.errors import from_librdkafka

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
    """librdkafka's error callback: logs each error, and the same one again only after half a minute."""

    def __init__(self) -> None:
        self._told: dict[str, float] = {}

    def __call__(self, error: Any) -> None:
        now = time.monotonic()
        if now < self._told.get(error.name(), 0.0):
            return
        self._told[error.name()] = now + _REPEAT_AFTER_S
        level = logging.ERROR if error.fatal() else logging.WARNING
        logger.log(level, "%s", from_librdkafka(error, "problem with a broker"))
