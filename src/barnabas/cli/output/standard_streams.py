"""Standard input, output and error, whatever the caller left of them, and when what
is printed goes out.

A line goes out when it is printed, to a terminal, a pipe and a file alike: somebody may wait for
it. Output that is there all at once goes out in blocks (`in_blocks`). When it cannot be written:

- Standard output of a tool is its result. If the reader of a pipe is gone, the exit code is 141, as
  of a process that SIGPIPE ends. If the disk is full, or the like, there is a line on standard
  error, and the code is 1. A tool that has failed already keeps its exit code.
- A server prints no result (`outlive_output`), and no command prints one to standard error. What
  cannot be written there is lost: the command goes on, and its exit code is the same.

Streams that the caller closed are opened on nothing; letters that the encoding lacks are written as
escapes, which JSON readers know.
"""

import codecs
import contextlib
import io
import logging
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, TextIO

from barnabas.cli.output.colours import print_error
from barnabas.cli.output.exit_codes import PIPE_CLOSED
from barnabas.cli.output.log_lines import LogFormatter
from barnabas.cli.output.terminal import TerminalStream

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

__all__ = ["finish_output", "forget_output", "in_blocks", "outlive_output", "prepare_streams"]

_ESCAPES = "barnabas.escapes"


class _Descriptor(io.FileIO):
    """Standard output or error.

    It has no method in Python: an exception that a signal raises in one leaves the lock of the
    writer above it taken, and the end of the process waits for that, or aborts.
    """


class _LossyDescriptor(_Descriptor):
    """A write that fails is ignored."""

    def write(self, data: "ReadableBuffer", /) -> int:
        try:
            return super().write(data)
        except OSError:
            return memoryview(data).nbytes


def prepare_streams() -> None:
    """Called once, before the command's module is loaded."""
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:  # the next socket or file would take the place, and receive what is printed
            os.open(os.devnull, os.O_RDWR)
    codecs.register_error(_ESCAPES, _escaped)
    sys.stdin = sys.stdin or open(0, encoding="utf-8", closefd=False)  # noqa: SIM115  # it stays open until the end
    if sys.stdout is sys.__stdout__:  # else it goes elsewhere, as in a test
        sys.stdout = _lines(_Descriptor(1, "wb", closefd=False), sys.stdout, _ESCAPES)
    if sys.stderr is sys.__stderr__:
        sys.stderr = _lines(_LossyDescriptor(2, "wb", closefd=False), sys.stderr, "backslashreplace")
    # The handler of what libraries log where a command does not set logging up.
    if logging.lastResort is not None:
        logging.lastResort.setFormatter(LogFormatter())
    os.environ["PYTHON_COLORS"] = "0"  # those of tracebacks are not marked as ours


def _lines(descriptor: _Descriptor, stream: TextIO | None, errors: str) -> io.TextIOWrapper:
    """In the place of Python's stream, None for one that was closed."""
    encoding = "utf-8" if stream is None else stream.encoding
    output = io.BufferedWriter(descriptor)
    kind = TerminalStream if output.isatty() else io.TextIOWrapper
    return kind(output, encoding=encoding, errors=errors, line_buffering=True)


def outlive_output() -> None:
    """For servers: from now on the command goes on when standard output cannot be written."""
    if type(getattr(getattr(sys.stdout, "buffer", None), "raw", None)) is _Descriptor:
        sys.stdout = _lines(_LossyDescriptor(1, "wb", closefd=False), sys.stdout, _ESCAPES)


@contextlib.contextmanager
def in_blocks() -> Iterator[None]:
    """Within, lines go out in blocks, and the last ones at the end: for files, and
    for records that have come."""
    stream = sys.stdout
    if not isinstance(stream, io.TextIOWrapper) or not stream.line_buffering:
        yield
        return
    stream.reconfigure(line_buffering=False)
    try:
        yield
    finally:
        stream.reconfigure(line_buffering=True)  # writes what is left


def finish_output(code: int) -> int:
    """Write what is left of standard output.

    Returns ``code``, or another exit code if that fails."""
    try:
        sys.stdout.flush()
    except BrokenPipeError:
        forget_output()
        return code or PIPE_CLOSED
    except OSError as error:
        forget_output()
        if code:
            return code
        print_error(f"Error: {error.strerror or error}")
        return 1
    return code


def forget_output() -> int:
    """The reader of standard output is gone: drop the rest, which Python would try
    to write at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    return PIPE_CLOSED


def _escaped(error: UnicodeError) -> tuple[str, int]:
    """The letters that cannot be encoded as JSON writes them."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    pairs = (units[at : at + 2].hex() for at in range(0, len(units), 2))
    return "".join(f"\\u{pair}" for pair in pairs), error.end
