"""JSON files that tools read (partitions to move, offsets to delete before): fields by type,
errors that name the place.

A document is an object with an optional ``version``, of which only 1 exists, and a list:
``partitions`` or ``topics``.
"""

import json
from collections.abc import Iterable
from typing import Any

from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.base.ids import TopicPartition
from barnabas.base.json_text import parse_json

__all__ = ["compact", "duplicates", "integer", "items", "read_document", "text", "topic_partition"]

_VERSION = 1


def read_document(path: str) -> dict[str, Any]:
    """The object in a file.

    Raises `ConfigError` for anything else and for a version that is not known."""
    try:
        with open(path, encoding="utf-8") as file:
            document = parse_json(file.read())
    except OSError as error:
        raise BarnabasError(f"cannot read {path}: {error.strerror}") from None
    except ValueError as error:
        raise ConfigError(f"{path} is not valid JSON: {error}") from None
    if not isinstance(document, dict):
        raise ConfigError(f"{path}: a JSON object is expected, such as {{...}}")
    version = document.get("version", _VERSION)
    if version != _VERSION:
        raise ConfigError(f"{path}: Not supported version field value {version}")
    return document


def items(document: dict[str, Any], name: str) -> list[dict[str, Any]]:
    """The objects in the list of this name; none where it is missing."""
    found = document.get(name, [])
    if not isinstance(found, list) or not all(isinstance(item, dict) for item in found):
        raise ConfigError(f'"{name}" must be a list of objects')
    return found


def text(item: dict[str, Any], name: str) -> str:
    """A field that must be a string."""
    value = item.get(name)
    if not isinstance(value, str):
        raise ConfigError(f'a string "{name}" is expected in {compact(item)}')
    return value


def integer(item: dict[str, Any], name: str) -> int:
    """A field that must be an integer."""
    value = item.get(name)
    if not isinstance(value, int) or isinstance(value, bool):
        raise ConfigError(f'an integer "{name}" is expected in {compact(item)}')
    return value


def topic_partition(item: dict[str, Any]) -> TopicPartition:
    """The fields ``topic`` and ``partition``."""
    return TopicPartition(text(item, "topic"), integer(item, "partition"))


def duplicates(values: Iterable[Any]) -> list[Any]:
    """Values that occur more than once, in the order of their second occurrence."""
    seen: set[Any] = set()
    twice: dict[Any, None] = {}
    for value in values:
        if value in seen:
            twice[value] = None
        seen.add(value)
    return list(twice)


def compact(value: Any) -> str:
    """JSON on one line without blanks, as Kafka's tools write it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)
