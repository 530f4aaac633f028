"""The root of the exceptions that a person is meant to read."""

__all__ = ["BarnabasError", "ConfigError", "CorruptDataError"]


class BarnabasError(Exception):
    """An error with a message for a person: what was wrong, where, and what to do.

    Command-line tools print it without a traceback and exit with 1.
    """


class ConfigError(BarnabasError):
    """A configuration value or command-line option that cannot be used."""


class CorruptDataError(BarnabasError):
    """Bytes on disk or from a peer that break their format."""
