"""The file of the authorizer's log: lines of text as Kafka's ``kafka-authorizer.log``, or JSON.

It can be renamed while the server runs, as logrotate does it: the next line begins a new file. It
is for its owner alone, because it says who does what.
"""

import json
import logging
import logging.handlers
import os
from datetime import UTC, datetime
from typing import IO, Any

from barnabas.base.errors import BarnabasError
from barnabas.cli.output.log_lines import LogFormatter

__all__ = ["AUDIT_LOGGER", "AUDIT_LOG_FORMATS", "JsonAuditFormatter", "keep_audit_lines", "write_audit_lines_to"]

AUDIT_LOGGER = "kafka.authorizer.logger"
AUDIT_LOG_FORMATS = ("text", "json")
_FORMAT = "[%(asctime)s,%(msecs)03d] %(levelname)s %(message)s (%(name)s)"
_Handler: type[logging.FileHandler] = logging.handlers.WatchedFileHandler if os.name == "posix" else logging.FileHandler


class JsonAuditFormatter(logging.Formatter):
    """An object a line: the time, and the parts of the event."""

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        parts: dict[str, Any] = getattr(record, "audit", None) or {"message": record.getMessage()}
        return json.dumps({"time": time.replace("+00:00", "Z"), **parts})


class _PrivateFile(_Handler):  # type: ignore[valid-type, misc]  # one of two classes
    """A log with mode 0600."""

    def _open(self) -> IO[str]:
        descriptor = os.open(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        return os.fdopen(descriptor, "a", encoding="utf-8", errors="backslashreplace")


def keep_audit_lines() -> None:
    """Write audit lines whatever the level of other lines."""
    logging.getLogger(AUDIT_LOGGER).setLevel(logging.INFO)


def write_audit_lines_to(path: str, form: str) -> None:
    """Write audit lines to a file of their own, and not to the server's log.

    Raises `BarnabasError` for a file that cannot be written."""
    try:
        handler = _PrivateFile(path)
    except OSError as error:
        raise BarnabasError(f"--authorizer-log {path}: {error.strerror or error}") from error
    handler.setFormatter(JsonAuditFormatter() if form == "json" else LogFormatter(_FORMAT, "%Y-%m-%d %H:%M:%S"))
    logger = logging.getLogger(AUDIT_LOGGER)
    logger.addHandler(handler)
    logger.propagate = False
