"""JSON objects one behind the other, as a request that streams records sends them. Pure.

Kafka has no counterpart; Confluent's is JsonStream.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

from barnabas.rest.errors import RestCode, RestError

__all__ = ["JsonStream", "json_bytes", "json_of"]

_OUTSIDE = re.compile(rb'["{}\[\]]')
_IN_STRING = re.compile(rb'["\\]')
_NOTHING = b" \t\r\n"
_QUOTE, _BACKSLASH = ord('"'), ord("\\")
_OPENING = b"{["
_DEEPEST = 200


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def json_of(data: bytes) -> Any:
    """The document in these bytes. Raises `RestError`."""
    try:
        return json.loads(data, parse_constant=_no_constant)
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise RestError(RestCode.BAD_REQUEST, f"Error processing JSON: {reason}") from None


def json_bytes(document: Any) -> bytes:
    """The document without blanks, in UTF-8. Raises `RestError` for what JSON cannot hold."""
    try:
        return json.dumps(document, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()
    except (ValueError, RecursionError) as error:
        raise RestError(RestCode.BAD_REQUEST, f"it cannot be written as JSON: {error}") from None


class JsonStream:
    """Splits bytes into the texts of objects; it does not read what is inside them."""

    def __init__(self, most_bytes: int) -> None:
        """An object may have ``most_bytes``."""
        self._most_bytes = most_bytes
        self._held = bytearray()
        self._at = 0
        """How far what is held was looked at."""
        self._depth = 0
        self._in_string = False

    @property
    def held_bytes(self) -> int:
        """The bytes of an object that has not ended."""
        return len(self._held)

    def feed(self, data: bytes) -> Iterator[bytes]:
        """The objects that end in these bytes. Raises `RestError` for what is no object, and for
        one that is too large."""
        self._held += data
        while (end := self._end()) is not None:
            self._check_size(end)
            made = bytes(self._held[:end])
            del self._held[:end]
            self._at = 0
            yield made
        self._check_size(len(self._held))

    def _check_size(self, size_bytes: int) -> None:
        if size_bytes > self._most_bytes:
            raise RestError(
                RestCode.TOO_LARGE, f"a record has more than {self._most_bytes} bytes: the stream ends before it"
            )

    def check_end(self) -> None:
        """Raise `RestError` if the stream ended inside of an object."""
        if self._held.strip(_NOTHING):
            raise RestError(RestCode.BAD_REQUEST, "Error processing JSON: the stream ends inside of an object")

    def _end(self) -> int | None:
        """Where the first object ends, None if it does not end yet."""
        held = self._held
        if not self._depth:
            start = len(held) - len(held.lstrip(_NOTHING))
            del held[:start]
            if held and held[0] != _OPENING[0]:
                raise RestError(RestCode.BAD_REQUEST, "Error processing JSON: an object is expected")
        at = self._at
        while found := (_IN_STRING if self._in_string else _OUTSIDE).search(held, at):
            at, sign = found.end(), held[found.start()]
            if sign == _BACKSLASH:
                if at == len(held):
                    at -= 1  # what it escapes has not come
                    break
                at += 1
            elif sign == _QUOTE:
                self._in_string = not self._in_string
            elif sign in _OPENING:
                self._depth += 1
                if self._depth > _DEEPEST:
                    raise RestError(RestCode.BAD_REQUEST, "Error processing JSON: it is nested too deeply")
            else:
                self._depth -= 1
                if not self._depth:
                    return at
        else:
            at = len(held)
        self._at = at
        return None
