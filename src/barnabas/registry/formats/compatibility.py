"""Decides whether a new version of a schema fits those before it, at each compatibility level.

In Confluent's registry: `CompatibilityChecker` and `CompatibilityLevel`.
"""

from collections.abc import Sequence
from typing import TypeVar

from barnabas.registry.formats.schema import CompatibilityLevel, InvalidSchemaError, ParsedSchema

__all__ = ["check_compatibility", "checked_versions"]

T = TypeVar("T")

_DIFFERENT_TYPE = "Incompatible because of different schema type"
_LONGEST_OLD_SCHEMA = 10 * 1024
"""Characters of an old schema that a message shows, as Confluent's registry does."""

_TRANSITIVE = frozenset(
    {
        CompatibilityLevel.BACKWARD_TRANSITIVE,
        CompatibilityLevel.FORWARD_TRANSITIVE,
        CompatibilityLevel.FULL_TRANSITIVE,
    }
)
_BACKWARD = frozenset(
    {
        CompatibilityLevel.BACKWARD,
        CompatibilityLevel.BACKWARD_TRANSITIVE,
        CompatibilityLevel.FULL,
        CompatibilityLevel.FULL_TRANSITIVE,
    }
)
_FORWARD = frozenset(
    {
        CompatibilityLevel.FORWARD,
        CompatibilityLevel.FORWARD_TRANSITIVE,
        CompatibilityLevel.FULL,
        CompatibilityLevel.FULL_TRANSITIVE,
    }
)


def checked_versions(level: CompatibilityLevel, versions_oldest_first: Sequence[T]) -> Sequence[T]:
    """The versions that a level looks at, oldest first: none, the last one, or all."""
    if level is CompatibilityLevel.NONE:
        return ()
    return versions_oldest_first if level in _TRANSITIVE else versions_oldest_first[-1:]


def check_compatibility(
    level: CompatibilityLevel, new: ParsedSchema, versions_oldest_first: Sequence[tuple[int, ParsedSchema]]
) -> list[str]:
    """Why a schema does not fit the versions before it; empty if it does.

    The versions are pairs of number and schema. They are compared from the newest to the oldest;
    the messages are about the first that does not fit, and end with its number and its text."""
    for number, old in reversed(checked_versions(level, versions_oldest_first)):
        if old.schema_type is not new.schema_type:
            return [_DIFFERENT_TYPE]
        messages = _compared(level, new, old)
        if messages:
            return [*messages, f"{{oldSchemaVersion: {number}}}", _old_schema(old.text)]
    return []


def _compared(level: CompatibilityLevel, new: ParsedSchema, old: ParsedSchema) -> list[str]:
    """The messages of the level's directions. Schemas that cannot be compared do not fit."""
    messages: list[str] = []
    try:
        if level in _FORWARD:
            messages.extend(old.incompatibilities(new, reader="old", writer="new"))
        if level in _BACKWARD:
            messages.extend(new.incompatibilities(old, reader="new", writer="old"))
    except InvalidSchemaError as error:
        messages.append(f"Unexpected exception during compatibility check: {error}")
    return messages


def _old_schema(text: str) -> str:
    if len(text) <= _LONGEST_OLD_SCHEMA:
        return f"{{oldSchema: '{text}'}}"
    return f"{{oldSchema: <truncated> '{text[:_LONGEST_OLD_SCHEMA]}...'}}"
