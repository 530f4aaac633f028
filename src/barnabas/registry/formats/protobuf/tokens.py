"""Cuts the text of a .proto file into tokens.

The tokens are few and the texts may be long, so one regular expression finds them all.

In Confluent's registry: `SyntaxReader`, from Square's wire.
"""

import re
from collections.abc import Sequence

from barnabas.registry.formats.schema import InvalidSchemaError

__all__ = ["Tokens", "unquoted"]

_TOKEN = re.compile(
    r"""
    (?:[ \t\r\n\f\v\ufeff]+|//[^\n]*|/\*.*?\*/)+
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<number>0[xX][0-9A-Fa-f]+|(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fF]?)
    |(?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
    |(?P<symbol>[][{}();=,<>.:+-]|/(?!\*))
    |(?P<bad>.)
    """,
    re.VERBOSE | re.DOTALL,
)
_ESCAPE = re.compile(r"\\(?:[xX]([0-9A-Fa-f]{1,2})|([0-7]{1,3})|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))", re.DOTALL)
_PLAIN = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}


class Tokens:
    """The tokens of a text, one after the other; after the last one stands ""."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._found: list[tuple[str, str, int]] = []
        for match in _TOKEN.finditer(text):
            kind = match.lastgroup
            if kind == "bad":
                self._start = match.start()
                raise self.error(f"{text[self._start : self._start + 20]!r} is no token")
            if kind is not None:
                self._found.append((kind, match[0], match.start()))
        self._found.append(("end", "", len(text)))
        self._at = 0
        self.kind, self.value, self._start = self._found[0]

    def next(self) -> str:
        """Take the token."""
        value = self.value
        if self.kind == "end":
            raise self.error("the text ends too early")
        self._at += 1
        self.kind, self.value, self._start = self._found[self._at]
        return value

    def take(self, value: str) -> bool:
        """Take the token if it is this one."""
        if self.value != value or self.kind == "text":
            return False
        self.next()
        return True

    def expect(self, value: str) -> None:
        """Take the token, which must be this one."""
        if not self.take(value):
            raise self._missing(repr(value))

    def is_next(self, *values: str) -> bool:
        """Whether the tokens that come are these, and nothing is taken."""
        ahead = self._found[self._at : self._at + len(values)]
        return len(ahead) == len(values) and all(found[1] == value for found, value in zip(ahead, values, strict=True))

    def following(self) -> Sequence[str]:
        """The kind and the value of the token after the next one."""
        return self._found[min(self._at + 1, len(self._found) - 1)][:2]

    def name(self) -> str:
        """Take a name without dots."""
        if self.kind != "name":
            raise self._missing("a name")
        return self.next()

    def full_name(self) -> str:
        """Take a name, or names with dots between them, and a dot before if it stands there."""
        name = "." if self.take(".") else ""
        name += self.name()
        while self.take("."):
            name += f".{self.name()}"
        return name

    def integer(self) -> int:
        """Take a whole number, in decimal, octal or hexadecimal digits."""
        sign = -1 if self.take("-") else 1
        text = self.value
        if self.kind != "number":
            raise self._missing("a number")
        try:
            if text[:2] in {"0x", "0X"}:
                number = int(text, 16)
            else:
                number = int(text, 8) if text.startswith("0") and len(text) > 1 else int(text)
        except ValueError as error:
            raise self.error(f"{text[:40]!r} is no whole number") from error
        self.next()
        return sign * number

    def text(self) -> str:
        """Take a string, or several that stand one after the other."""
        if self.kind != "text":
            raise self._missing("a string")
        parts = []
        while self.kind == "text":
            parts.append(unquoted(self.value))
            self.next()
        return "".join(parts)

    def _missing(self, what: str) -> InvalidSchemaError:
        if self.kind == "end":
            return self.error(f"the text ends too early: {what} is missing")
        return self.error(f"{what} is missing before {self.value[:40]!r}")

    def error(self, text: str) -> InvalidSchemaError:
        """An error at the token."""
        line = self._text.count("\n", 0, self._start) + 1
        column = self._start - self._text.rfind("\n", 0, self._start)
        return InvalidSchemaError(f"line {line}, column {column}: {text}")


def unquoted(literal: str) -> str:
    """The string that a literal with its quotes stands for."""
    return _ESCAPE.sub(_unescaped, literal[1:-1]) if "\\" in literal else literal[1:-1]


def _unescaped(match: re.Match[str]) -> str:
    code, octal, short, long, plain = match.groups()
    if plain is not None:
        return _PLAIN.get(plain, plain)
    number = int(octal, 8) & 0xFF if octal else int(code or short or long, 16)
    return chr(number) if number < 0x110000 else "\ufffd"
