"""Finds the types that names in files of Protobuf stand for.

A name is looked for in the scope where it is used, then in those around it. Files are known by the
names under which they are imported; the schema's own file is "".

In Confluent's registry: `Context` of the package `protobuf.diff`.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from barnabas.registry.formats.protobuf.elements import EnumElement, FieldElement, FileElement, MessageElement

__all__ = ["SCALARS", "DefinedType", "Types", "messages_in"]

SCALARS = frozenset(
    {
        "double",
        "float",
        "int32",
        "int64",
        "uint32",
        "uint64",
        "sint32",
        "sint64",
        "fixed32",
        "fixed64",
        "sfixed32",
        "sfixed64",
        "bool",
        "string",
        "bytes",
    }
)


class DefinedType(NamedTuple):
    """A message or an enum, and where it is defined."""

    full_name: str
    element: MessageElement | EnumElement
    package: str
    file: str

    @property
    def local_name(self) -> str:
        """The name without the package."""
        return self.full_name[len(self.package) + 1 :] if self.package else self.full_name


@dataclass(frozen=True)
class Types:
    """All types and extensions of a file and of those that it imports, by full name."""

    types: Mapping[str, DefinedType]
    extensions: frozenset[str]

    @classmethod
    def of(cls, files: Mapping[str, FileElement]) -> "Types":
        """The types of files, by the names under which they are imported."""
        types: dict[str, DefinedType] = {}
        extensions = set()
        for name, file in files.items():
            for scope, element in _defined(file):
                full_name = _joined(scope, element.name)
                types[full_name] = DefinedType(full_name, element, file.package, name)
            extensions |= _extensions(file)
        return cls(types, frozenset(extensions))

    def find(self, name: str, scope: str) -> DefinedType | None:
        """The type that a name stands for inside a scope, which is a package or a message."""
        return next((self.types[each] for each in _candidates(name, scope) if each in self.types), None)

    def find_extension(self, name: str, scope: str) -> str | None:
        """The full name of an extension."""
        return next((each for each in _candidates(name, scope) if each in self.extensions), None)


def _joined(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name


def _candidates(name: str, scope: str) -> Iterator[str]:
    if name.startswith("."):
        yield name[1:]
        return
    while scope:
        yield f"{scope}.{name}"
        scope = scope.rpartition(".")[0]
    yield name


def _fields(message: MessageElement) -> Iterator[FieldElement]:
    yield from message.fields
    for oneof in message.oneofs:
        yield from oneof.fields


def messages_in(message: MessageElement) -> Iterator[MessageElement]:
    """The messages that are defined directly in a message, its groups too."""
    yield from message.messages
    for field in _fields(message):
        if field.group:
            yield field.group


def _defined(file: FileElement) -> Iterator[tuple[str, MessageElement | EnumElement]]:
    """The types of a file, each with its scope; a loop, for messages may nest deeply."""
    groups = (field.group for extend in file.extends for field in extend.fields if field.group)
    open_messages = [(file.package, message) for message in (*file.messages, *groups)]
    yield from ((file.package, enum) for enum in file.enums)
    while open_messages:
        scope, message = open_messages.pop()
        yield scope, message
        inner = _joined(scope, message.name)
        yield from ((inner, enum) for enum in message.enums)
        open_messages += [(inner, each) for each in messages_in(message)]
        open_messages += [(inner, f.group) for extend in message.extends for f in extend.fields if f.group]


def _extensions(file: FileElement) -> set[str]:
    found = {_joined(file.package, field.name) for extend in file.extends for field in extend.fields}
    for scope, element in _defined(file):
        if isinstance(element, MessageElement):
            inner = _joined(scope, element.name)
            found |= {_joined(inner, field.name) for extend in element.extends for field in extend.fields}
    return found
