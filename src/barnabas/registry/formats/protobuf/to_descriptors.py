"""Makes a FileDescriptorProto of the elements of a file, and has Protobuf's library check it.

In Confluent's registry: `ProtobufSchema.toDynamicSchema`.
"""

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, text_encoding, text_format

from barnabas.registry.formats.protobuf.elements import (
    EnumElement,
    ExtendElement,
    ExtensionRanges,
    FieldElement,
    FileElement,
    ListValue,
    MapValue,
    MessageElement,
    NameText,
    NumberRange,
    NumberText,
    OptionElement,
    OptionValue,
    ReservedElement,
    ServiceElement,
)
from barnabas.registry.formats.protobuf.names import map_entry_name
from barnabas.registry.formats.protobuf.scopes import SCALARS, Types
from barnabas.registry.formats.schema import InvalidSchemaError

__all__ = ["FileSet"]

_Field = descriptor_pb2.FieldDescriptorProto
_LABELS = {
    "": _Field.LABEL_OPTIONAL,
    "optional": _Field.LABEL_OPTIONAL,
    "required": _Field.LABEL_REQUIRED,
    "repeated": _Field.LABEL_REPEATED,
}
_MAP_KEYS = SCALARS - {"double", "float", "bytes"}


class _Pending(NamedTuple):
    """Options that are set once all extensions are known."""

    target: Any
    options: Sequence[OptionElement]
    scope: str


class FileSet:
    """A file with all files that it imports, directly or not, by the names of their imports."""

    def __init__(self, file: FileElement, imported: Mapping[str, FileElement]) -> None:
        self.file = file
        self.imported = imported
        self.types = Types.of({**imported, "": file})

    def descriptor(self, name: str) -> descriptor_pb2.FileDescriptorProto:
        """The file under a name, with all options whose extensions are known."""
        pool = self.pool()
        builder = _Builder(self.file, self.types, self.imported)
        descriptor = builder.build(name)
        for pending in builder.pending:
            _set_options(pending, pool, self.types)
        return descriptor

    def pool(self) -> descriptor_pool.DescriptorPool:
        """A pool of all files. Raises InvalidSchemaError where Protobuf's library would not take
        one of them."""
        pool = descriptor_pool.DescriptorPool()
        for name, file in [*self.imported.items(), (self._own_name(), self.file)]:
            descriptor = _Builder(file, self.types, self.imported).build(name)
            try:
                pool.Add(descriptor)
            except (TypeError, ValueError) as error:
                _, _, reason = str(error).rpartition("descriptor pool: ")
                where = f"the import {name}: " if file is not self.file else ""
                raise InvalidSchemaError(f"{where}{reason or error}") from error
        return pool

    def _own_name(self) -> str:
        name = "schema.proto"
        while name in self.imported:
            name = f"_{name}"
        return name


class _Builder:
    def __init__(self, file: FileElement, types: Types, imported: Mapping[str, FileElement]) -> None:
        self._file = file
        self._types = types
        self._imported = imported
        self._is_proto3 = file.syntax == "proto3"
        self.pending: list[_Pending] = []

    def build(self, name: str) -> descriptor_pb2.FileDescriptorProto:
        file, scope = self._file, self._file.package
        built = descriptor_pb2.FileDescriptorProto(name=name, package=scope)
        if file.syntax == "proto3":
            built.syntax = "proto3"
        imports = [*file.imports, *file.public_imports]
        built.dependency.extend(each for each in dict.fromkeys(imports) if each in self._imported)
        public = set(file.public_imports)
        built.public_dependency.extend(index for index, each in enumerate(built.dependency) if each in public)
        for message in file.messages:
            self._message(message, built.message_type.add(), scope)
        for enum in file.enums:
            self._enum(enum, built.enum_type.add(), scope)
        self._extends(file.extends, built.extension.add, built.message_type.add, scope)
        for service in file.services:
            self._service(service, built.service.add(), scope)
        self._later(built, file.options, scope)
        return built

    def _later(self, built: Any, options: Sequence[OptionElement], scope: str) -> None:
        if options:
            self.pending.append(_Pending(built, options, scope))

    def _error(self, scope: str, text: str) -> InvalidSchemaError:
        unknown = [each for each in [*self._file.imports, *self._file.public_imports] if each not in self._imported]
        missing = f"; there is no reference for the import {', '.join(unknown)}" if unknown else ""
        return InvalidSchemaError(f"in {scope or 'the file'}: {text}{missing}")

    def _message(self, message: MessageElement, built: Any, scope: str) -> None:
        scope = f"{scope}.{message.name}" if scope else message.name
        built.name = message.name
        numbers: dict[int, str] = {}
        for field in message.fields:
            self._field(field, built.field.add(), built.nested_type.add, scope, numbers)
        for index, oneof in enumerate(message.oneofs):
            declared = built.oneof_decl.add(name=oneof.name)
            self._later(declared, oneof.options, scope)
            for field in oneof.fields:
                member = built.field.add()
                self._field(field, member, built.nested_type.add, scope, numbers)
                member.oneof_index = index
        self._add_synthetic_oneofs(built)
        for reserved in message.reserved:
            _reserve(reserved, built, end=1)
        for extensions in message.extensions:
            self._extension_ranges(extensions, built, scope)
        self._extends(message.extends, built.extension.add, built.nested_type.add, scope)
        for nested in message.messages:
            self._message(nested, built.nested_type.add(), scope)
        for enum in message.enums:
            self._enum(enum, built.enum_type.add(), scope)
        self._later(built, message.options, scope)

    def _add_synthetic_oneofs(self, built: Any) -> None:
        """A field of proto3 that is marked optional stands in a oneof of its own."""
        for field in built.field:
            if field.proto3_optional:
                field.oneof_index = len(built.oneof_decl)
                built.oneof_decl.add(name=f"_{field.name}")

    def _extension_ranges(self, extensions: ExtensionRanges, built: Any, scope: str) -> None:
        for each in extensions.values:
            first, last = (each, each) if isinstance(each, int) else each
            declared = built.extension_range.add(start=first, end=last + 1)
            self._later(declared, extensions.options, scope)

    def _extends(
        self,
        extends: Sequence[ExtendElement],
        add_field: Callable[[], Any],
        add_message: Callable[[], Any],
        scope: str,
    ) -> None:
        for extend in extends:
            extended = self._types.find(extend.name, scope)
            if extended is None:
                raise self._error(scope, f"the extended message {extend.name} is not defined")
            for field in extend.fields:
                built = add_field()
                self._field(field, built, add_message, scope, {})
                built.extendee = f".{extended.full_name}"

    def _field(
        self,
        field: FieldElement,
        built: Any,
        add_message: Callable[[], Any],
        scope: str,
        numbers: dict[int, str],
    ) -> None:
        built.name = field.name.lower() if field.group else field.name
        if not 0 < field.number < 1 << 29:
            raise self._error(scope, f"the field {field.name} has the number {field.number}")
        if field.number in numbers:
            raise self._error(scope, f"the fields {numbers[field.number]} and {field.name} have one number")
        numbers[field.number] = field.name
        built.number = field.number
        built.label = _LABELS[field.label]
        if self._is_proto3 and field.label == "required":
            raise self._error(scope, f"the field {field.name} is required, which proto3 does not have")
        built.proto3_optional = self._is_proto3 and field.label == "optional"
        if not built.proto3_optional:
            built.ClearField("proto3_optional")
        if field.map_types is not None:
            self._map(field, field.map_types, built, add_message(), scope)
        elif field.group is not None:
            built.type, built.type_name = _Field.TYPE_GROUP, f".{scope}.{field.name}" if scope else f".{field.name}"
            self._message(field.group, add_message(), scope)
        else:
            self._set_type(built, field.type, field.name, scope)
        options = []
        for option in field.options:
            if option.name == "default" and isinstance(option.value, str):
                built.default_value = option.value
            elif option.name == "json_name" and isinstance(option.value, str):
                built.json_name = option.value
            else:
                options.append(option)
        self._later(built, options, scope)

    def _set_type(self, built: Any, kind: str, name: str, scope: str) -> None:
        if kind in SCALARS:
            built.type = _Field.Type.Value(f"TYPE_{kind.upper()}")
            return
        found = self._types.find(kind, scope)
        if found is None:
            raise self._error(scope, f"the type {kind} of the field {name} is not defined")
        is_enum = isinstance(found.element, EnumElement)
        built.type = _Field.TYPE_ENUM if is_enum else _Field.TYPE_MESSAGE
        built.type_name = f".{found.full_name}"

    def _map(self, field: FieldElement, types: tuple[str, str], built: Any, entry: Any, scope: str) -> None:
        key, value = types
        if field.label or key not in _MAP_KEYS:
            raise self._error(scope, f"the map {field.name} has a label, or keys of the type {key}")
        entry.name = map_entry_name(field.name)
        entry.options.map_entry = True
        for number, (name, kind) in enumerate((("key", key), ("value", value)), 1):
            part = entry.field.add(name=name, number=number, label=_Field.LABEL_OPTIONAL)
            self._set_type(part, kind, field.name, scope)
        built.label, built.type = _Field.LABEL_REPEATED, _Field.TYPE_MESSAGE
        built.type_name = f".{scope}.{entry.name}"

    def _enum(self, enum: EnumElement, built: Any, scope: str) -> None:
        built.name = enum.name
        if not enum.values:
            raise self._error(scope, f"the enum {enum.name} has no values")
        if self._is_proto3 and enum.values[0].number != 0:
            raise self._error(scope, f"the first value of the enum {enum.name} is not 0, as proto3 needs it")
        has_aliases = any(option == ("allow_alias", "true") for option in enum.options)
        numbers: dict[int, str] = {}
        for value in enum.values:
            if not -(1 << 31) <= value.number < 1 << 31:
                raise self._error(scope, f"the value {value.name} has the number {value.number}")
            if value.number in numbers and not has_aliases:
                raise self._error(scope, f"the values {numbers[value.number]} and {value.name} have one number")
            numbers[value.number] = value.name
            declared = built.value.add(name=value.name, number=value.number)
            self._later(declared, value.options, scope)
        if has_aliases:
            built.options.allow_alias = True
        for reserved in enum.reserved:
            _reserve(reserved, built, end=0)
        self._later(built, enum.options, scope)

    def _service(self, service: ServiceElement, built: Any, scope: str) -> None:
        built.name = service.name
        for rpc in service.rpcs:
            method = built.method.add(name=rpc.name)
            for kind, put in ((rpc.request, "input_type"), (rpc.response, "output_type")):
                found = self._types.find(kind, scope)
                if found is None or isinstance(found.element, EnumElement):
                    raise self._error(scope, f"the message {kind} of the method {rpc.name} is not defined")
                setattr(method, put, f".{found.full_name}")
            method.client_streaming, method.server_streaming = rpc.request_streams, rpc.response_streams
            self._later(method, rpc.options, scope)
        self._later(built, service.options, scope)


def _reserve(reserved: ReservedElement, built: Any, *, end: int) -> None:
    """Ranges of messages end before their ``end``, those of enums with it."""
    for each in reserved.values:
        if isinstance(each, str):
            built.reserved_name.append(each)
        else:
            first, last = each if isinstance(each, NumberRange) else (each, each)
            if not -(1 << 31) <= first <= last < (1 << 31) - end:
                raise InvalidSchemaError(f"in {built.name}: the reserved numbers {first} to {last} are none")
            built.reserved_range.add(start=first, end=last + end)


def _set_options(pending: _Pending, pool: descriptor_pool.DescriptorPool, types: Types) -> None:
    """Set options on what they belong to. What the library does not know stays out: its extension
    is in a file that is not there."""
    options = pending.target.options
    for option in pending.options:
        text = _text_format(option, pending.scope, types)
        if option.name.startswith("("):
            with contextlib.suppress(KeyError, text_format.ParseError):
                known = pool.FindMessageTypeByName(options.DESCRIPTOR.full_name)
                message = message_factory.GetMessageClass(known)()
                text_format.Merge(text, message, descriptor_pool=pool)
                options.MergeFromString(message.SerializePartialToString())
        else:
            with contextlib.suppress(text_format.ParseError):
                text_format.Merge(text, options)


def _text_format(option: OptionElement, scope: str, types: Types) -> str:
    """An option in the text format of messages, where a path is a message in a message."""
    first, *path = _path(option.name)
    if first.startswith("("):
        first = f"[{types.find_extension(first[1:-1], scope) or first[1:-1].lstrip('.')}]"
    value = _value_text(option.value)
    for step in reversed(path):
        value = f"{{ {step}: {value} }}"
    return f"{first}: {value}"


def _path(name: str) -> Iterator[str]:
    if name.startswith("("):
        end = name.index(")") + 1
        yield name[:end]
        name = name[end:].lstrip(".")
    yield from (f"[{step[1:-1]}]" if step.startswith("(") else step for step in _steps(name))


def _steps(name: str) -> Iterator[str]:
    """The names between dots; those in parentheses keep theirs."""
    while name:
        end = name.index(")") + 1 if name.startswith("(") else name.find(".")
        end = len(name) if end < 0 else end
        yield name[:end]
        name = name[end:].lstrip(".")


def _value_text(value: OptionValue) -> str:
    match value:
        case NameText() | NumberText():
            return str(value)
        case MapValue(fields=fields):
            return "{ " + " ".join(f"{name}: {_value_text(each)}" for name, each in fields) + " }"
        case ListValue(values=values):
            return "[" + ", ".join(map(_value_text, values)) + "]"
        case _:
            return f'"{text_encoding.CEscape(value.encode(), as_utf8=True)}"'
