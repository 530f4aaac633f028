"""The root of the exceptions that a person is meant to read."""

from collections.abc import Sequence
from typing import Self

__all__ = ["BarnabasError", "ConfigError", "CorruptDataError"]


class BarnabasError(Exception):
    """An error with a message for a person: what was wrong, where, and what to do.

    Command-line tools print it without a traceback and exit with 1. The message is one line,
    or is made by `of_lines`: a newline in it otherwise comes from a name or from another
    server's message.
    """

    _lines: Sequence[str] = ()

    @classmethod
    def of_lines(cls, *lines: str) -> Self:
        """An error whose message has these lines."""
        error = cls("\n".join(lines))
        error._lines = lines
        return error

    @property
    def lines(self) -> Sequence[str]:
        """The lines of the message, to be printed one below the other."""
        return self._lines or (str(self),)


class ConfigError(BarnabasError):
    """A configuration value or command-line option that cannot be used."""


class CorruptDataError(BarnabasError):
    """Bytes on disk or from a peer that break their format."""
