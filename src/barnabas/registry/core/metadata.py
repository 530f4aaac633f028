"""The metadata of a schema: tags, properties, and which of them are sensitive.

Confluent's registry keeps each part sorted, and merges what a configuration demands into what a
request says. It is immutable here, so that versions and configurations share it.

In Confluent's registry: `Metadata`.
"""

import hashlib
import re
from dataclasses import dataclass, replace
from typing import Any, Self

from barnabas.registry.core.json_values import json_object, strings, texts

__all__ = ["VERSION_PROPERTY", "Metadata", "merge_metadata"]

_NUMBER = re.compile("[+-]?[0-9]{1,9}")
VERSION_PROPERTY = "confluent:version"
"""The property in which a schema says which version it is."""


@dataclass(frozen=True, slots=True)
class Metadata:
    """What its owner says about a schema, sorted by names."""

    tags: tuple[tuple[str, tuple[str, ...]], ...] = ()
    properties: tuple[tuple[str, str], ...] = ()
    sensitive: tuple[str, ...] = ()

    @classmethod
    def from_json(cls, value: object) -> Self | None:
        """Raises ShapeError."""
        if value is None:
            return None
        body = json_object(value, "metadata")
        tags = json_object(body.get("tags") or {}, "metadata.tags")
        return cls(
            tuple(sorted((name, tuple(sorted(set(strings(of, "metadata.tags"))))) for name, of in tags.items())),
            texts(body.get("properties"), "metadata.properties"),
            tuple(sorted(set(strings(body.get("sensitive"), "metadata.sensitive")))),
        )

    def to_json(self) -> dict[str, Any]:
        body: dict[str, Any] = {}
        if self.tags:
            body["tags"] = {name: list(tags) for name, tags in self.tags}
        if self.properties:
            body["properties"] = dict(self.properties)
        if self.sensitive:
            body["sensitive"] = list(self.sensitive)
        return body

    def update_hash(self, digest: "hashlib._Hash") -> None:
        for name, tags in self.tags:
            digest.update(name.encode())
            for tag in tags:
                digest.update(tag.encode())
        for name, value in self.properties:
            digest.update(name.encode())
            digest.update(value.encode())
        for name in self.sensitive:
            digest.update(name.encode())

    def get(self, name: str) -> str | None:
        """The value of a property."""
        return dict(self.properties).get(name)

    @property
    def version(self) -> int | None:
        """The version that the schema says it is."""
        text = self.get(VERSION_PROPERTY)
        return int(text) if text is not None and _NUMBER.fullmatch(text) else None

    def with_version(self, version: int) -> Self:
        properties = {**dict(self.properties), VERSION_PROPERTY: str(version)}
        return replace(self, properties=tuple(sorted(properties.items())))

    def without_version(self) -> Self:
        return replace(self, properties=tuple(each for each in self.properties if each[0] != VERSION_PROPERTY))


def merge_metadata(old: Metadata | None, new: Metadata | None) -> Metadata | None:
    """What both say; the new one wins where both say something of a name."""
    if old is None or new is None:
        return old or new
    return Metadata(
        tuple(sorted({**dict(old.tags), **dict(new.tags)}.items())),
        tuple(sorted({**dict(old.properties), **dict(new.properties)}.items())),
        tuple(sorted({*old.sensitive, *new.sensitive})),
    )
