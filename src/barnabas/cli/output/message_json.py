"""Messages as Kafka's tools print them: JSON with the names of Kafka's message definitions."""

import base64
from typing import Any

__all__ = ["message_document"]


def message_document(value: Any, version: int) -> Any:
    """A message, or a value in it, for `json`: camelCase names, bytes in base64, the
    fields of its version, tagged ones only if they differ from their default."""
    if isinstance(value, list):
        return [message_document(item, version) for item in value]
    if isinstance(value, bytes | bytearray | memoryview):
        return base64.b64encode(value).decode()
    if not hasattr(value, "FIELDS"):
        return value
    return {
        _camel_case(field.name): message_document(getattr(value, field.name), version)
        for field in value.FIELDS
        if version in field.versions and not (field.tag is not None and getattr(value, field.name) == field.default)
    }


def _camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))
