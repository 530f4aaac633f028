"""The exit codes of commands that a signal ends. It imports little: every command loads it."""

import signal

__all__ = ["INTERRUPTED", "exit_code_of"]

INTERRUPTED = 130
"""What a shell reports for a process that SIGINT ended."""


def exit_code_of(signal_number: int) -> int:
    """The exit code after an orderly end for which a signal asked."""
    return INTERRUPTED if signal_number == signal.SIGINT else 0
