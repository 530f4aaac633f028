"""Decides whether one file of Protobuf reads what another one wrote, by Confluent's rules.

The rules are those of Confluent's page "Schema Evolution and Compatibility": a field may come and
go, a required one may not; a type may change only within a group of types that share their form on
the wire; a message may not go; several fields, or one where others are already, may not move into
a oneof. Source: https://docs.confluent.io/platform/current/schema-registry/fundamentals/
schema-evolution.html#protobuf-compatibility-rules. Kinds and words are those of its answers.

In Confluent's registry: `SchemaDiff` of the package `protobuf.diff`.
"""

from collections.abc import Iterator
from typing import NamedTuple

from barnabas.registry.formats.protobuf.elements import (
    EnumElement,
    FieldElement,
    FileElement,
    MessageElement,
    OneOfElement,
)
from barnabas.registry.formats.protobuf.scopes import DefinedType, Types

__all__ = ["FileSide", "find_differences"]

_GROUPS = {
    **dict.fromkeys(("int32", "int64", "uint32", "uint64", "bool"), "general number"),
    **dict.fromkeys(("sint32", "sint64"), "signed number"),
    **dict.fromkeys(("string", "bytes"), "string or bytes"),
    **dict.fromkeys(("fixed32", "sfixed32"), "fixed32"),
    **dict.fromkeys(("fixed64", "sfixed64"), "fixed64"),
    "float": "float",
    "double": "double",
}
"""The scalars by the form that they share on the wire. An enum is a general number."""

_DESCRIPTIONS = {
    "PACKAGE_CHANGED": "The package at '{path}' in the {reader} schema does not match the package in the {writer} schema",
    "MESSAGE_REMOVED": "The {reader} schema is missing a MESSAGE type at path '{path}' in the {writer} schema",
    "FIELD_KIND_CHANGED": "The type of a field at path '{path}' in the {reader} schema does not match the {writer} schema",
    "FIELD_SCALAR_KIND_CHANGED": "The kind of a SCALAR field at path '{path}' in the {reader} schema"
    " does not match its kind in the {writer} schema",
    "FIELD_NAMED_TYPE_CHANGED": "The type of a MESSAGE field at path '{path}' in the {reader} schema"
    " does not match its type in the {writer} schema",
    "FIELD_NUMERIC_LABEL_CHANGED": "The label for a NUMERIC field at path '{path}' in the {reader} schema"
    " does not match its label in the {writer} schema",
    "REQUIRED_FIELD_ADDED": "A required field  at path '{path}' in the {reader} schema is missing in the {writer} schema",
    "REQUIRED_FIELD_REMOVED": "The {reader} schema is missing a required field at path: '{path}' in the {writer} schema",
    "ONEOF_FIELD_REMOVED": "The {reader} schema is missing a oneof field at path '{path}' in the {writer} schema",
    "MULTIPLE_FIELDS_MOVED_TO_ONEOF": "Multiple fields in the oneof at path '{path}' in the {reader} schema"
    " are outside a oneof in the {writer} schema",
    "FIELD_MOVED_TO_EXISTING_ONEOF": "A field in the oneof at path '{path}' in the {reader} schema"
    " is outside an existing oneof in the {writer} schema",
}


class FileSide(NamedTuple):
    """A file, the types that it knows, and the versions of the files that it imports.

    A version is what a reference names, or the text of the file where nothing names it."""

    file: FileElement
    types: Types
    versions: dict[str, object]


class ProtobufDifference(NamedTuple):
    """What makes a file unable to read what another one wrote."""

    kind: str
    path: str

    def message(self, reader: str, writer: str) -> str:
        text = _DESCRIPTIONS[self.kind].format(path=self.path, reader=reader, writer=writer)
        return f'{{errorType:"{self.kind}", description:"{text}"}}'


_Path = tuple[str, ...]
_Differences = dict[ProtobufDifference, None]


def find_differences(reader: FileSide, writer: FileSide) -> list[ProtobufDifference]:
    """Why a file does not read what was written with another; empty if it does."""
    comparison = _Comparison(reader, writer)
    found = comparison.file()
    return list(found)


class _Comparison:
    def __init__(self, reader: FileSide, writer: FileSide) -> None:
        self._reader = reader
        self._writer = writer
        self._imported: dict[tuple[str, str], bool] = {}
        """Whether imported messages are compatible, by their full names; True while they are
        compared."""

    def file(self) -> _Differences:
        reader, writer = self._reader.file, self._writer.file
        found: _Differences = {}
        if reader.package != writer.package:
            found |= _one("PACKAGE_CHANGED", ())
        return found | self._messages(reader, writer, (), reader.package, writer.package)

    def _messages(
        self,
        reader: FileElement | MessageElement,
        writer: FileElement | MessageElement,
        path: _Path,
        scope: str,
        old_scope: str,
    ) -> _Differences:
        """Compares the messages of a file or a message by their names."""
        found: _Differences = {}
        read, written = _by_name(reader), _by_name(writer)
        for name in sorted(read.keys() | written.keys()):
            here = (*path, name)
            if name not in written:
                continue
            if name not in read:
                found |= _one("MESSAGE_REMOVED", here)
            else:
                found |= self._message(read[name], written[name], here, _inside(scope, name), _inside(old_scope, name))
        return found

    def _message(
        self, reader: MessageElement, writer: MessageElement, path: _Path, scope: str, old_scope: str
    ) -> _Differences:
        read, written = _members(reader), _members(writer)
        found = _moved_into_oneofs(reader, written, path)
        kept_oneofs = {oneof.name for oneof in reader.oneofs}
        for number in sorted(read.keys() | written.keys()):
            if number not in read:
                field, oneof = written[number]
                if oneof is None:
                    found |= _one("REQUIRED_FIELD_REMOVED", (*path, str(number))) if field.label == "required" else {}
                elif oneof.name in kept_oneofs or any(each.number in read for each in oneof.fields):
                    found |= _one("ONEOF_FIELD_REMOVED", (*path, oneof.name, str(number)))
                continue
            field, oneof = read[number]
            here = (*path, str(number)) if oneof is None else (*path, oneof.name, str(number))
            if number in written:
                found |= self._field(field, written[number][0], here, scope, old_scope)
            elif oneof is None and field.label == "required":
                found |= _one("REQUIRED_FIELD_ADDED", here)
        return found | self._messages(reader, writer, path, scope, old_scope)

    def _field(
        self, reader: FieldElement, writer: FieldElement, path: _Path, scope: str, old_scope: str
    ) -> _Differences:
        read, written = reader.map_types, writer.map_types
        if read and written:
            found: _Differences = {}
            for kind, old_kind in zip(read, written, strict=True):
                found |= self._types(kind, old_kind, path, scope, old_scope)
            return found
        if read or written:
            return _one("FIELD_KIND_CHANGED", path)
        found = self._types(reader.type, writer.type, path, scope, old_scope)
        group = self._group(self._reader, reader.type, scope)
        if not found and reader.label != writer.label and reader.label and writer.label:
            return _one("FIELD_NUMERIC_LABEL_CHANGED", path) if group not in {None, "string or bytes"} else {}
        return found

    def _types(self, kind: str, old_kind: str, path: _Path, scope: str, old_scope: str) -> _Differences:
        group = self._group(self._reader, kind, scope)
        old_group = self._group(self._writer, old_kind, old_scope)
        if group is None and old_group is None:
            return self._named_types(kind, old_kind, path, scope, old_scope)
        if group is None or old_group is None:
            return _one("FIELD_KIND_CHANGED", path)
        return {} if group == old_group else _one("FIELD_SCALAR_KIND_CHANGED", path)

    @staticmethod
    def _group(side: FileSide, kind: str, scope: str) -> str | None:
        """The group of a scalar or an enum, None for a message."""
        if kind in _GROUPS:
            return _GROUPS[kind]
        found = side.types.find(kind, scope)
        return "general number" if found is not None and isinstance(found.element, EnumElement) else None

    def _named_types(self, kind: str, old_kind: str, path: _Path, scope: str, old_scope: str) -> _Differences:
        found = self._reader.types.find(kind, scope)
        old = self._writer.types.find(old_kind, old_scope)
        if found is None or old is None:
            return {} if kind == old_kind else _one("FIELD_NAMED_TYPE_CHANGED", path)
        if found.local_name != old.local_name:
            return _one("FIELD_NAMED_TYPE_CHANGED", path)
        return {} if self._are_alike(found, old) else _one("FIELD_NAMED_TYPE_CHANGED", path)

    def _are_alike(self, found: DefinedType, old: DefinedType) -> bool:
        """Whether two messages of one name are compatible. Those of the files themselves are
        compared where they are defined."""
        versions = (self._reader.versions.get(found.file), self._writer.versions.get(old.file))
        if versions[0] == versions[1]:
            return True
        pair = (found.full_name, old.full_name)
        if pair not in self._imported:
            self._imported[pair] = True
            assert isinstance(found.element, MessageElement)
            assert isinstance(old.element, MessageElement)
            differences = self._message(found.element, old.element, (), found.full_name, old.full_name)
            self._imported[pair] = not differences
        return self._imported[pair]


def _inside(scope: str, name: str) -> str:
    return f"{scope}.{name}" if scope else name


def _one(kind: str, path: _Path) -> _Differences:
    return {ProtobufDifference(kind, f"#/{'/'.join(path)}"): None}


def _by_name(of: FileElement | MessageElement) -> dict[str, MessageElement]:
    return {message.name: message for message in of.messages}


_Members = dict[int, tuple[FieldElement, OneOfElement | None]]


def _members(message: MessageElement) -> _Members:
    """The fields of a message by their numbers, with the oneof in which they stand."""
    members: _Members = {field.number: (field, None) for field in message.fields}
    for oneof in message.oneofs:
        members |= {field.number: (field, oneof) for field in oneof.fields}
    return members


def _moved_into_oneofs(reader: MessageElement, written: _Members, path: _Path) -> _Differences:
    """Fields that were independent and now exclude each other."""
    found: _Differences = {}
    for oneof in reader.oneofs:
        old = [written[field.number] for field in oneof.fields if field.number in written]
        moved = [field for field, old_oneof in old if old_oneof is None]
        origins = len(moved) + len({old_oneof.name for old_oneof in _oneofs(old)})
        if origins > 1:
            kind = "MULTIPLE_FIELDS_MOVED_TO_ONEOF" if len(moved) > 1 else "FIELD_MOVED_TO_EXISTING_ONEOF"
            found |= _one(kind, (*path, oneof.name))
    return found


def _oneofs(members: list[tuple[FieldElement, OneOfElement | None]]) -> Iterator[OneOfElement]:
    return (oneof for _, oneof in members if oneof is not None)
