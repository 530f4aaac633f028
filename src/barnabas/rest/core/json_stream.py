"""JSON objects one behind the other, as a request that streams records sends them. Pure.

In Confluent's proxy: JsonStream.
"""

import json
import re
from collections.abc import Generator, Iterator
from typing import Any

from barnabas.rest.errors import RestCode, RestError

__all__ = ["JsonStream", "json_bytes", "json_of"]

_OUTSIDE = re.compile(rb'["{}\[\]]')
_IN_STRING = re.compile(rb'["\\]')
_NOTHING = b" \t\r\n"
_NO_BLANK = re.compile(r"[^ \t\r\n]")
_LONGEST_CHARACTER = 4
_QUOTE, _BACKSLASH = ord('"'), ord("\\")
_OPENING = b"{["
_DEEPEST = 200


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


_DECODER = json.JSONDecoder(parse_constant=_no_constant)
_ENCODER = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def json_of(data: bytes) -> Any:
    """The document in these bytes. Raises `RestError`."""
    try:
        return _DECODER.decode(data.decode())
    except (ValueError, RecursionError) as error:
        reason = "it is nested too deeply" if isinstance(error, RecursionError) else error
        raise RestError(RestCode.BAD_REQUEST, f"Error processing JSON: {reason}") from None


def json_bytes(document: Any) -> bytes:
    """The document without blanks, in UTF-8. Raises `RestError` for what JSON cannot hold."""
    try:
        return _ENCODER.encode(document).encode()
    except (ValueError, RecursionError) as error:
        raise RestError(RestCode.BAD_REQUEST, f"it cannot be written as JSON: {error}") from None


class JsonStream:
    """Reads objects from bytes.

    An object that has come as a whole is read at once. Of one that has not, only brackets and
    quotation marks are looked at until its end is there: each byte once, however many pieces
    there are."""

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

    def feed(self, data: bytes) -> Iterator[dict[str, Any] | RestError]:
        """The objects that end in these bytes; of one with wrong contents, what is wrong.

        Raises `RestError` for what is no object, and for one that is too large."""
        if not self._held:
            data = yield from self._whole(data)
        self._held += data
        while (end := self._end()) is not None:
            self._check_size(end)
            text = bytes(self._held[:end])
            del self._held[:end]
            self._at = 0
            try:
                yield json_of(text)
            except RestError as error:
                yield error
        self._check_size(len(self._held))

    def _whole(self, data: bytes) -> Generator[dict[str, Any], None, bytes]:
        """The objects that are there as a whole; returns the rest."""
        try:
            text = data.decode()
        except UnicodeDecodeError:  # it may end inside of a character
            return data
        at = 0
        while True:
            at = len(text) if (found := _NO_BLANK.search(text, at)) is None else found.start()
            if not text.startswith("{", at):
                return text[at:].encode()
            try:
                document, end = _DECODER.raw_decode(text, at)
            except (ValueError, RecursionError):
                return text[at:].encode()
            if _LONGEST_CHARACTER * (end - at) > self._most_bytes:
                self._check_size(len(text[at:end].encode()))
            at = end
            yield document

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
