"""The exit codes of commands that have a meaning of their own.

It imports little: every command loads it."""

import signal

__all__ = ["INCOMPLETE", "INTERRUPTED", "PIPE_CLOSED", "exit_code_of"]

INCOMPLETE = 3
"""The answer was printed, but something could not be asked in time, or not be verified. A line on
standard error names it."""

PIPE_CLOSED = 141
"""What a shell reports for a process that SIGPIPE ended."""

INTERRUPTED = 130
"""What a shell reports for a process that SIGINT ended."""


def exit_code_of(signal_number: int) -> int:
    """The exit code after an orderly end for which a signal asked."""
    return INTERRUPTED if signal_number == signal.SIGINT else 0
