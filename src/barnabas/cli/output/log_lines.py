"""Lines of logs: text in them comes from clients in part, so each event is one line,
in files too."""

import logging
import sys

from barnabas.cli.output.terminal import escaped

__all__ = ["LogFormatter", "log_to_standard_error"]


def log_to_standard_error(level: str | int, line_format: str, date_format: str | None = None) -> None:
    """What a command that runs as a server logs; ``up`` and service managers write it to a file."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LogFormatter(line_format, date_format))
    logging.basicConfig(level=level, handlers=[handler])


class LogFormatter(logging.Formatter):
    """Escapes newlines and other controls in an event.

    The lines of a traceback are indented, so that none looks like one. Tabs stay: they stand
    between the fields of an audit line.
    """

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802  # logging's name
        return escaped(super().formatMessage(record), "\t")

    def formatException(self, ei: "logging._SysExcInfoType") -> str:  # noqa: N802
        return _indented(super().formatException(ei))

    def formatStack(self, stack_info: str) -> str:  # noqa: N802
        return _indented(stack_info)


def _indented(text: str) -> str:
    return "\n".join("  " + escaped(line, "\t") for line in text.split("\n"))
