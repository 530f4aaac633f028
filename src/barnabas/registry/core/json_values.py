"""Values in decoded JSON, with the shapes that Confluent's registry expects.

In Confluent's registry: the checks of Jackson's `ObjectMapper`.
"""

from collections.abc import Mapping
from typing import Any

__all__ = [
    "ShapeError",
    "java_int",
    "json_object",
    "optional_boolean",
    "optional_string",
    "strings",
    "texts",
    "utf8_text",
]

_LARGEST_INTEGER = 2**31 - 1


class ShapeError(ValueError):
    """A value has another shape than its field; the text says which."""


def utf8_text(value: object, name: str) -> str:
    """A string that UTF-8 can carry."""
    if not isinstance(value, str):
        raise ShapeError(f"{name} is not a string")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ShapeError(f"{name} has half of a surrogate pair, which is no text") from None
    return value


def optional_string(body: Mapping[str, Any], name: str) -> str | None:
    """A string, null, or none at all."""
    value = body.get(name)
    return None if value is None else utf8_text(value, name)


def optional_boolean(body: Mapping[str, Any], name: str) -> bool | None:
    """True, false, null, or none at all."""
    value = body.get(name)
    if value is not None and not isinstance(value, bool):
        raise ShapeError(f"{name} is neither true nor false")
    return value


def java_int(value: object, name: str, lowest: int) -> int:
    """A number of Java's int."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise ShapeError(f"{name} is not a number")
    if not lowest <= value <= _LARGEST_INTEGER:
        raise ShapeError(f"{name} is {value}, not between {lowest} and {_LARGEST_INTEGER}")
    return value


def json_object(value: object, name: str) -> Mapping[str, Any]:
    """An object."""
    if not isinstance(value, dict):
        raise ShapeError(f"{name} is not an object")
    return value


def strings(value: object, name: str) -> tuple[str, ...]:
    """A list of strings; none is an empty one."""
    if value is None:
        return ()
    if not isinstance(value, list):
        raise ShapeError(f"{name} is not a list")
    return tuple(utf8_text(each, name) for each in value)


def texts(value: object, name: str) -> tuple[tuple[str, str], ...]:
    """An object of strings, sorted by name; none is an empty one."""
    if value is None:
        return ()
    found = json_object(value, name)
    return tuple(sorted((utf8_text(key, name), utf8_text(each, f"{name}.{key}")) for key, each in found.items()))
