"""Lines of text as records: ``console-producer``'s reader, with the properties of
Kafka's LineMessageReader.

A line is ``headers<delimiter>key<separator>value``, where headers are present with
``parse.headers=true`` and the key with ``parse.key=true``; headers are ``name:value,name:value``. A
field equal to ``null.marker`` is null. Bytes pass as they came, whether or not they are UTF-8.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.cli.connection.suggestions import warn_of_unknown

__all__ = ["Line", "LineReader"]


_PROPERTIES = (
    *("topic", "parse.key", "parse.headers", "key.separator", "headers.delimiter", "headers.separator"),
    *("headers.key.separator", "null.marker", "ignore.error"),
)


class Line(NamedTuple):
    """A record as read."""

    key: bytes | None
    value: bytes | None
    headers: list[tuple[str, bytes | None]]


class LineReader:
    """Splits lines by a reader's properties.

    Raises `ConfigError` for properties that contradict each other."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        warn_of_unknown(properties, _PROPERTIES, "the line reader")

        def flag(name: str) -> bool:
            return properties.get(name, "").strip().lower() == "true"

        def separator(name: str, default: str) -> bytes:
            return properties.get(name, default).encode()

        self.parses_key = flag("parse.key")
        self.parses_headers = flag("parse.headers")
        self._ignores_errors = flag("ignore.error")
        self._key_separator = separator("key.separator", "\t")
        self._headers_delimiter = separator("headers.delimiter", "\t")
        self._headers_separator = separator("headers.separator", ",")
        self._header_key_separator = separator("headers.key.separator", ":")
        marker = properties.get("null.marker")
        self._null_marker = None if marker is None else marker.encode()
        self._check_separators()

    def _check_separators(self) -> None:
        names = {
            "headers.delimiter": self._headers_delimiter,
            "headers.separator": self._headers_separator,
            "headers.key.separator": self._header_key_separator,
        }
        pairs = [(first, second) for first in names for second in names if first < second]
        for first, second in pairs:
            if names[first] == names[second]:
                raise ConfigError(f"{first} and {second} may not be equal")
        for name, value in {"key.separator": self._key_separator, **names}.items():
            if not value:
                raise ConfigError(f"{name} may not be empty")
            if value == self._null_marker:
                raise ConfigError(f"null.marker and {name} may not be equal")

    def read(self, lines: Iterable[bytes]) -> Iterator[Line]:
        """A record for each line; raises `BarnabasError` for one without what it must hold."""
        if not self.parses_key and not self.parses_headers:
            for raw in lines:
                line = raw.removesuffix(b"\n").removesuffix(b"\r")
                yield Line(None, self._or_null(line), [])
            return
        for number, raw in enumerate(lines, 1):
            line = raw.removesuffix(b"\n").removesuffix(b"\r")
            headers, line = self._cut(self.parses_headers, line, self._headers_delimiter, "headers delimiter", number)
            key, line = self._cut(self.parses_key, line, self._key_separator, "key separator", number)
            yield Line(
                self._or_null(key),
                self._or_null(line),
                [] if headers is None or headers == self._null_marker else list(self._headers(headers, number)),
            )

    def _cut(self, wanted: bool, line: bytes, at: bytes, name: str, number: int) -> tuple[bytes | None, bytes]:
        if not wanted:
            return None, line
        field, found, rest = line.partition(at)
        if found:
            return field, rest
        if self._ignores_errors:
            return None, line
        raise BarnabasError(f"No {name} found on line number {number}: '{line.decode(errors='replace')}'")

    def _or_null(self, field: bytes | None) -> bytes | None:
        return None if field == self._null_marker else field

    def _headers(self, text: bytes, number: int) -> Iterator[tuple[str, bytes | None]]:
        for pair in text.split(self._headers_separator):
            name, found, value = pair.partition(self._header_key_separator)
            if not found:
                if not self._ignores_errors:
                    shown = pair.decode(errors="replace")
                    raise BarnabasError(f"No header key separator found in pair '{shown}' on line number {number}")
                yield _header_key(pair, number), None
                continue
            if name == self._null_marker:
                raise BarnabasError(f"Header keys should not be equal to the null marker, on line number {number}")
            yield _header_key(name, number), self._or_null(value)


def _header_key(name: bytes, number: int) -> str:
    """The key of a header, which is a text in the protocol: of bytes that are none
    another key would be sent."""
    try:
        return name.decode()
    except UnicodeDecodeError as error:
        shown = name.decode(errors="backslashreplace")
        raise BarnabasError(f"The header key '{shown}' on line number {number} is not UTF-8") from error
