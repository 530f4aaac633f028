"""Colours of what commands print, where a terminal has them: errors red, warnings yellow,
the headers of tables bold.

A pipe or a file gets none, nor a terminal of which nothing is known (TERM is not set, or ``dumb``),
nor anything where NO_COLOR is set (https://no-color.org).
"""

import os
import sys
from enum import Enum
from typing import TextIO

from barnabas.cli.output.terminal import own, print

__all__ = ["Style", "painted", "print_error", "print_warning"]

_PLAIN = "\x1b[0m"


class Style(Enum):
    """What a text is; the value selects its look (ECMA-48, SGR)."""

    ERROR = "\x1b[31m"
    WARNING = "\x1b[33m"
    HEADER = "\x1b[1m"


def painted(style: Style, text: str, stream: TextIO) -> str:
    """The text as a part of what `barnabas.cli.output.terminal.print` writes to ``stream``, which
    escapes it as it would without."""
    if not text or os.environ.get("NO_COLOR") or os.environ.get("TERM", "dumb") in ("", "dumb") or not stream.isatty():
        return text
    return f"{own(stream, style.value)}{text}{own(stream, _PLAIN)}"


def print_error(line: str, *more: str, stream: TextIO | None = None) -> None:
    """Print an error on standard error, or where a Kafka tool prints it.

    The lines after the first are plain."""
    stream = stream or sys.stderr
    print(painted(Style.ERROR, line, stream), *more, sep="\n", file=stream)


def print_warning(line: str, *, label: str = "warning", stream: TextIO | None = None) -> None:
    """Print a warning on standard error, or where a Kafka tool prints it.

    ``label`` stands before the line, if it is not empty."""
    stream = stream or sys.stderr
    print(painted(Style.WARNING, f"{label}: {line}" if label else line, stream), file=stream)
