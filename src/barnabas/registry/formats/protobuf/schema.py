"""A schema of Protobuf, as the registry asks for it.

In Confluent's registry: `ProtobufSchema`.
"""

import base64
import binascii
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.message import DecodeError

from barnabas.registry.formats.protobuf.compatibility import FileSide, find_differences
from barnabas.registry.formats.protobuf.elements import FileElement
from barnabas.registry.formats.protobuf.from_descriptors import file_of_descriptor
from barnabas.registry.formats.protobuf.known_files import known_file
from barnabas.registry.formats.protobuf.normal import normal_file
from barnabas.registry.formats.protobuf.parser import parse_file
from barnabas.registry.formats.protobuf.text import file_text
from barnabas.registry.formats.protobuf.to_descriptors import FileSet
from barnabas.registry.formats.schema import InvalidSchemaError, SchemaReference, SchemaType

__all__ = ["ProtobufSchema", "parse_protobuf"]

_SERIALIZED_NAME = "default"
"""What Confluent's registry calls the file in its descriptor."""


@dataclass(frozen=True, slots=True)
class ProtobufSchema:
    """A file, its canonical text, and the files to which it refers."""

    text: str
    references: tuple[SchemaReference, ...]
    resolved: Mapping[str, str]
    files: FileSet = field(repr=False, compare=False)

    @property
    def schema_type(self) -> SchemaType:
        return SchemaType.PROTOBUF

    def normalized(self) -> "ProtobufSchema":
        references = tuple(sorted(set(self.references), key=lambda each: (each.name, each.subject, each.version)))
        text = file_text(normal_file(self.files.file, self.files.types))
        return replace(self, text=text, references=references)

    @property
    def top_level_fields(self) -> frozenset[str]:
        return frozenset(each.name for message in self.files.file.messages for each in message.fields)

    def formatted(self, form: str) -> str:
        match form:
            case "serialized":
                descriptor = self.files.descriptor(_SERIALIZED_NAME)
                return base64.b64encode(descriptor.SerializePartialToString()).decode()
            case "ignore_extensions":
                return file_text(self.files.file, has_extensions=False)
            case _:
                return self.text

    def incompatibilities(self, written: "ProtobufSchema", *, reader: str = "new", writer: str = "old") -> list[str]:
        try:
            found = find_differences(self._side(), written._side())
        except RecursionError as error:
            raise InvalidSchemaError("the messages of the schema nest too deeply to be compared") from error
        return [each.message(reader, writer) for each in found]

    def _side(self) -> FileSide:
        """Files that a reference names are of one version if it is the same subject and version."""
        versions: dict[str, object] = {name: self.resolved.get(name) for name in self.files.imported}
        versions |= {each.name: (each.subject, each.version) for each in self.references}
        return FileSide(self.files.file, self.files.types, {"": "", **versions})


def parse_protobuf(
    text: str, references: Sequence[SchemaReference], resolved: Mapping[str, str], *, is_new: bool
) -> ProtobufSchema:
    """Parse a schema of Protobuf: the text of a file, or its descriptor in base64.

    Raises InvalidSchemaError."""
    given = {name: _parse_reference(name, referred) for name, referred in resolved.items()}
    file = _descriptor_file(text, given)
    if file is None:
        file = parse_file(text)
    files = FileSet(file, _imported(file, given))
    if is_new:
        files.pool()
    return ProtobufSchema(file_text(file), tuple(references), dict(resolved), files)


def _parse_reference(name: str, text: str) -> FileElement:
    try:
        return parse_file(text)
    except InvalidSchemaError as error:
        raise InvalidSchemaError(f"the reference {name}: {error}") from error


def _imported(file: FileElement, given: Mapping[str, FileElement]) -> dict[str, FileElement]:
    """The files that a file imports, directly or not, each after those that it imports itself.

    Those for which there is no reference are left out: only the use of what they define is an
    error, as in Confluent's registry."""
    found: dict[str, FileElement] = {}
    open_names: set[str] = set()
    steps = [(name, False) for name in reversed([*file.imports, *file.public_imports])]
    while steps:
        name, is_done = steps.pop()
        imported = given.get(name) or known_file(name)
        if imported is None or name in found:
            continue
        if is_done:
            found[name] = imported
            continue
        if name in open_names:
            raise InvalidSchemaError(f"the import {name} imports itself in a circle")
        open_names.add(name)
        steps.append((name, True))
        steps += [(each, False) for each in reversed([*imported.imports, *imported.public_imports])]
    return found


def _descriptor_file(text: str, given: Mapping[str, FileElement]) -> FileElement | None:
    """The file whose descriptor a text is in base64, or None if it is none."""
    compact = "".join(text.split())
    if not compact or not compact.isascii() or ";" in compact or "{" in compact:
        return None
    try:
        data = base64.b64decode(compact, validate=True)
        descriptor = descriptor_pb2.FileDescriptorProto.FromString(data)
    except (binascii.Error, DecodeError, ValueError):
        return None
    try:
        file = file_of_descriptor(descriptor)
        files = FileSet(file, _imported(file, given))
        if "google/protobuf/descriptor.proto" in files.imported:  # somebody's own options need it
            pool = files.pool()
            kind = message_factory.GetMessageClass(pool.FindMessageTypeByName("google.protobuf.FileDescriptorProto"))
            file = file_of_descriptor(kind.FromString(data))
        return parse_file(file_text(file))  # it may hold names and depths that no text has
    except InvalidSchemaError:
        raise
    except RecursionError as error:
        raise InvalidSchemaError("the messages of the descriptor nest too deeply") from error
    except (TypeError, ValueError, LookupError, AttributeError, DecodeError) as error:
        # The library gives bytes for strings that are not UTF-8, and any number for an enum's.
        raise InvalidSchemaError("the descriptor is damaged") from error
