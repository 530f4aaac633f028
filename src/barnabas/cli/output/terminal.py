"""What commands print: bytes for files and pipes, text that can be trusted for terminals.

Names of groups, clients, topics, hosts and znodes, settings, records and messages of servers are
chosen by others. Printed raw, an escape sequence in them sets the terminal's title, moves its
cursor or reverses text, and a newline forges a row. Scripts, on the other hand, need each byte. So
the rule depends on the stream, and each stream is judged by itself: to a file or a pipe everything
goes as it is; on a terminal what is not printable is shown as `barnabas tail` shows it (``\\x1b``).

Two places apply the rule, and commands need not think of it:

- `TerminalStream` takes the place of standard output or error where it is a terminal. It escapes
  all controls but newline and tab, whatever writes: a command, argparse, a warning, a library,
  bytes through ``buffer``. It cannot know which newlines are ours, and therefore:
- `print` takes the place of Python's in every command; ruff refuses the other one (T201). Its
  arguments are single lines that may come from outside, so newlines and tabs in them are escaped
  too. ``sep`` and ``end`` are ours and stay. What has lines of its own (a table, a record's value,
  help) goes to `print_lines`.

Cursor moves and colours of our own come from `own`, which marks them with a number that nothing
from outside can know. A filter with a list of harmless sequences was refused: a name could hide
itself with a colour. Escapes at each place where a name is formatted were refused too: there are
two hundred such places, and one that is forgotten is seen by no test.
"""

import builtins
import codecs
import functools
import io
import json
import os
import re
import sys
import unicodedata
from typing import TextIO

__all__ = [
    "CLEAR_LINE",
    "TerminalStream",
    "columns",
    "escaped",
    "escaped_bytes_for",
    "escaped_for",
    "own",
    "print",
    "print_document",
    "print_lines",
    "shown_bytes",
]

_MARK = os.urandom(8).hex()
"""Stands behind a control of ours until the text is written; random, so that no text
from outside holds it."""

_ESCAPE = re.compile(r"\\x[0-9a-f]{2}")
_OWN = re.compile(f"([\x1b\r]){_MARK}")
_OWN_SEQUENCE = re.compile(f"\r{_MARK}|\x1b{_MARK}\\[[0-9;]*[A-Za-z]")

CLEAR_LINE = "\r\x1b[K"
"""For `own`: go to the begin of the line and clear it."""


def escaped(text: str, keep: str = "") -> str:
    """The text as a terminal may have it: what is not printable with escapes, except
    ``keep`` and sequences of `own`."""
    if text.isprintable():
        return text
    parts = _OWN.split(text)  # each second one is a control of ours
    parts[::2] = ["".join(c if c.isprintable() or c in keep else repr(c)[1:-1] for c in part) for part in parts[::2]]
    parts[1::2] = [control + _MARK for control in parts[1::2]]
    return "".join(parts)


def escaped_for(text: str, stream: TextIO) -> str:
    """One line from outside for a stream: escaped if the stream is a terminal."""
    return escaped(text) if stream.isatty() else text


def escaped_bytes_for(data: bytes, stream: TextIO) -> bytes:
    """The same for bytes, UTF-8 mostly, that go to a stream's buffer: a record's key,
    say, which has no lines."""
    return shown_bytes(data).encode() if stream.isatty() else data


def shown_bytes(data: bytes, keep: str = "") -> str:
    """Bytes of a record as a terminal may have them: different bytes look different.

    What is no printable text, except ``keep``, is shown by its bytes (``\\x80``). Where that
    happens, and in a text that reads as if it had, a backslash is two.
    """
    text = data.decode(errors="surrogateescape")
    names = {each: name for each, name in (("\n", r"\n"), ("\t", r"\t")) if each not in keep}
    is_plain = all(each.isprintable() or each in keep for each in text)
    if is_plain and not _ESCAPE.search(text) and not any(name in text for name in names.values()):
        return text
    return "".join(
        each if (each.isprintable() and each != "\\") or each in keep else names.get(each) or _byte_escapes(each)
        for each in text
    )


def _byte_escapes(letter: str) -> str:
    if letter == "\\":
        return r"\\"
    return "".join(f"\\x{byte:02x}" for byte in letter.encode(errors="surrogateescape"))


def own(stream: TextIO, sequence: str) -> str:
    """A control sequence of our own, such as ``\\x1b[31m``, as a part of a text to print; "" if
    the stream is no terminal."""
    return re.sub("([\x1b\r])", rf"\g<1>{_MARK}", sequence) if stream.isatty() else ""


def columns(text: str) -> int:
    """How many columns of a terminal an escaped text takes."""
    if text.isascii() and text.isprintable():
        return len(text)
    return sum(
        0 if unicodedata.category(each) in ("Mn", "Me") else 1 + (unicodedata.east_asian_width(each) in "WF")
        for each in _OWN_SEQUENCE.sub("", text)
    )


def print(  # noqa: A001  # in the commands it stands for Python's
    *values: object, sep: str = " ", end: str = "\n", file: TextIO | None = None, flush: bool = False
) -> None:
    """Like Python's; on a terminal each value stays within its line."""
    _print([str(value) for value in values], "", sep, end, file or sys.stdout, flush)


def print_lines(text: str, *, end: str = "\n", file: TextIO | None = None, flush: bool = False) -> None:
    """Print a text that has lines of its own: on a terminal its newlines and tabs stay."""
    _print([text], "\n\t", "", end, file or sys.stdout, flush)


def print_document(text: str, *, end: str = "\n", flush: bool = False) -> None:
    """Print a JSON document, which stays one: on a terminal what is not printable in it
    gets JSON's own escapes."""
    if sys.stdout.isatty():
        text = "".join(each if each.isprintable() or each == "\n" else json.dumps(each)[1:-1] for each in text)
    print_lines(text, end=end, flush=flush)


def _print(values: list[str], keep: str, sep: str, end: str, stream: TextIO, flush: bool) -> None:
    if stream.isatty():
        values = [escaped(value, keep) for value in values]
        if not isinstance(stream, TerminalStream):
            values = [_OWN.sub(r"\g<1>", value) for value in values]
    builtins.print(*values, sep=sep, end=end, file=stream, flush=flush)


class TerminalStream(io.TextIOWrapper):
    """A terminal's text stream that writes all controls with escapes, but newlines, tabs
    and the sequences of `own`."""

    def write(self, text: str, /) -> int:
        super().write(_OWN.sub(r"\g<1>", escaped(text, "\n\t")))
        return len(text)

    @property
    def buffer(self) -> "_TerminalBytes":  # type: ignore[override]
        """For bytes; they are UTF-8 mostly, and are escaped as texts are."""
        return self._bytes

    @functools.cached_property
    def _bytes(self) -> "_TerminalBytes":
        return _TerminalBytes(self, super().buffer)


class _TerminalBytes:
    """Decodes bytes for a `TerminalStream`.

    What is no UTF-8 has escapes, a letter may come in two pieces."""

    def __init__(self, text: TerminalStream, buffer: object) -> None:
        self._text = text
        self.raw = getattr(buffer, "raw", buffer)
        self._decoder = codecs.getincrementaldecoder("utf-8")("backslashreplace")

    def writable(self) -> bool:
        return True

    def fileno(self) -> int:
        return self._text.fileno()

    def isatty(self) -> bool:
        return self._text.isatty()

    def write(self, data: bytes, /) -> int:
        self._text.write(self._decoder.decode(data))
        return len(data)

    def flush(self) -> None:
        if rest := self._decoder.decode(b"", final=True):
            self._text.write(rest)
        self._text.flush()
