"""Schemas that refer to other schemas of the registry. Pure: asking is the caller's.

A reference says that a name in a schema's text stands for a version of a subject, whose schema may
refer to others again. What a registry answers is not trusted: references in a circle, too many of
them, and too many ways through them are refused, because the libraries that follow them would not
come to an end.

Kafka has no counterpart; Confluent's client has SchemaReference.
"""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from barnabas.client.errors import ConfigurationError

__all__ = ["SchemaReference", "UnsupportedSchemaError", "resolve_references"]

MOST_REFERENCES = 1000
MOST_WAYS = 20_000
"""How many ways may lead from a schema to those that it refers to: some libraries go them all."""
_MOST_LEVELS = 100


class UnsupportedSchemaError(ConfigurationError):
    """The registry has the schema, but it is of a kind that is not supported."""


class SchemaReference(NamedTuple):
    """A name in a schema's text, and the version of a subject that it stands for."""

    name: str
    subject: str
    version: int


def resolve_references(
    what: str, document: Mapping[str, Any], ask: Callable[[str, int], Mapping[str, Any]]
) -> dict[str, str]:
    """The texts of all schemas that a registry's document refers to, by name, those that others
    refer to first.

    ``ask`` gives the document of a version of a subject. Raises `UnsupportedSchemaError`."""
    search = _Search(what, ask)
    search.visit(document, 0)
    return search.texts


class _Search:
    def __init__(self, what: str, ask: Callable[[str, int], Mapping[str, Any]]) -> None:
        self._what, self._ask = what, ask
        self.texts: dict[str, str] = {}
        self._ways: dict[tuple[str, int], int] = {}
        """How many ways begin at a version of a subject; 0 while they are counted."""

    def visit(self, document: Mapping[str, Any], level: int) -> int:
        """How many ways lead on from a document."""
        ways = 1
        references = document.get("references") or ()
        for each in references if isinstance(references, list) else ():
            name, subject, version = _read(self._what, each)
            at = (subject, version)
            if level > _MOST_LEVELS or self._ways.get(at) == 0:
                raise UnsupportedSchemaError(f"{self._what} refers to itself, over {name} ({subject} {version})")
            if at not in self._ways:
                if len(self._ways) >= MOST_REFERENCES:
                    raise UnsupportedSchemaError(f"{self._what} refers to more than {MOST_REFERENCES} schemas")
                self._ways[at] = 0
                found = self._ask(subject, version)
                self._ways[at] = self.visit(found, level + 1)
                self.texts.setdefault(name, str(found.get("schema", "")))
            ways += self._ways[at]
            if ways > MOST_WAYS:
                raise UnsupportedSchemaError(f"{self._what} refers to others in more than {MOST_WAYS} ways")
        return ways


def _read(what: str, document: Any) -> SchemaReference:
    if isinstance(document, Mapping):
        name, subject, version = (document.get(each) for each in ("name", "subject", "version"))
        if isinstance(name, str) and isinstance(subject, str) and isinstance(version, int):
            return SchemaReference(name, subject, version)
    raise ConfigurationError(f"{what} has a reference without a name, a subject or a version")
