"""Makes elements of a FileDescriptorProto, the form in which compilers and clients hold a file.

In Confluent's registry: `ProtobufSchema`, made of a `FileDescriptorProto`.
"""

from collections.abc import Iterable

from google.protobuf import descriptor_pb2
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message

from barnabas.registry.formats.protobuf.elements import (
    EnumConstant,
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
    OneOfElement,
    OptionElement,
    OptionValue,
    ReservedElement,
    RpcElement,
    ServiceElement,
)
from barnabas.registry.formats.protobuf.names import default_json_name
from barnabas.registry.formats.schema import InvalidSchemaError

__all__ = ["file_of_descriptor"]

_Field = descriptor_pb2.FieldDescriptorProto
_LABELS = {_Field.LABEL_OPTIONAL: "optional", _Field.LABEL_REQUIRED: "required", _Field.LABEL_REPEATED: "repeated"}
_QUOTED_DEFAULTS = frozenset({_Field.TYPE_STRING, _Field.TYPE_BYTES})


def file_of_descriptor(descriptor: descriptor_pb2.FileDescriptorProto) -> FileElement:
    """The elements of a file. Raises InvalidSchemaError for what has no text."""
    if descriptor.syntax not in {"", "proto2", "proto3"}:
        raise InvalidSchemaError(f"the syntax {descriptor.syntax!r} of the descriptor is not supported")
    return _Reader(descriptor).file()


class _Reader:
    def __init__(self, descriptor: descriptor_pb2.FileDescriptorProto) -> None:
        self._descriptor = descriptor
        self._is_proto3 = descriptor.syntax == "proto3"

    def file(self) -> FileElement:
        given = self._descriptor
        public = set(given.public_dependency)
        return FileElement(
            syntax=given.syntax or None,
            package=given.package,
            imports=[name for index, name in enumerate(given.dependency) if index not in public],
            public_imports=[name for index, name in enumerate(given.dependency) if index in public],
            options=_options(given.options),
            messages=[self._message(each) for each in given.message_type],
            enums=[_enum(each) for each in given.enum_type],
            extends=self._extends(given.extension, {}),
            services=[_service(each) for each in given.service],
        )

    def _message(self, given: descriptor_pb2.DescriptorProto) -> MessageElement:
        nested = {each.name: each for each in given.nested_type}
        used = {
            each.type_name.rpartition(".")[2]
            for each in given.field
            if each.type == _Field.TYPE_GROUP or _is_map(each, nested)
        }
        synthetic = {each.oneof_index for each in given.field if each.proto3_optional}
        oneofs = {
            index: OneOfElement(each.name, options=_options(each.options))
            for index, each in enumerate(given.oneof_decl)
            if index not in synthetic
        }
        message = MessageElement(given.name, _options(given.options), oneofs=list(oneofs.values()))
        for each in given.field:
            field = self._field(each, nested)
            if each.HasField("oneof_index") and each.oneof_index in oneofs:
                field.label = ""
                oneofs[each.oneof_index].fields.append(field)
            else:
                message.fields.append(field)
        message.reserved = _reserved([(each.start, each.end - 1) for each in given.reserved_range], given.reserved_name)
        message.extensions = [
            ExtensionRanges([_range(each.start, each.end - 1)], _options(each.options))
            for each in given.extension_range
        ]
        message.extends = self._extends(given.extension, nested)
        message.messages = [self._message(each) for each in given.nested_type if each.name not in used]
        message.enums = [_enum(each) for each in given.enum_type]
        return message

    def _field(
        self, given: descriptor_pb2.FieldDescriptorProto, nested: "dict[str, descriptor_pb2.DescriptorProto]"
    ) -> FieldElement:
        entry = nested[given.type_name.rpartition(".")[2]] if _is_map(given, nested) else None
        label = _LABELS[given.label]
        if entry is not None or (self._is_proto3 and label == "optional" and not given.proto3_optional):
            label = ""
        group = None
        name, kind = given.name, _type(given)
        if given.type == _Field.TYPE_GROUP:
            group = self._message(nested[given.type_name.rpartition(".")[2]])
            name = kind = group.name
        if entry is not None:
            key, value = sorted(entry.field, key=lambda each: each.number)
            kind = f"map<{_type(key)}, {_type(value)}>"
        options = _options(given.options)
        if given.HasField("default_value"):
            text = given.default_value
            is_number = given.type not in {_Field.TYPE_ENUM, _Field.TYPE_BOOL} and text[-1:].isdigit()
            plain: OptionValue = NumberText(text) if is_number else NameText(text)
            options.append(OptionElement("default", text if given.type in _QUOTED_DEFAULTS else plain))
        if given.json_name and given.json_name != default_json_name(given.name):
            options.append(OptionElement("json_name", given.json_name))
        return FieldElement(label, kind, name, given.number, options, group)

    def _extends(
        self, given: Iterable[descriptor_pb2.FieldDescriptorProto], nested: "dict[str, descriptor_pb2.DescriptorProto]"
    ) -> list[ExtendElement]:
        extends: dict[str, ExtendElement] = {}
        for each in given:
            extend = extends.setdefault(each.extendee, ExtendElement(each.extendee))
            extend.fields.append(self._field(each, nested))
        return list(extends.values())


def _is_map(field: descriptor_pb2.FieldDescriptorProto, nested: "dict[str, descriptor_pb2.DescriptorProto]") -> bool:
    entry = nested.get(field.type_name.rpartition(".")[2])
    return entry is not None and entry.options.map_entry and field.label == _Field.LABEL_REPEATED


def _type(field: descriptor_pb2.FieldDescriptorProto) -> str:
    if field.type_name:
        return str(field.type_name)
    return str(_Field.Type.Name(field.type))[len("TYPE_") :].lower()


def _range(first: int, last: int) -> int | NumberRange:
    return first if first == last else NumberRange(first, last)


def _reserved(ranges: list[tuple[int, int]], names: Iterable[str]) -> list[ReservedElement]:
    numbers: list[int | NumberRange | str] = [_range(first, last) for first, last in ranges]
    texts: list[int | NumberRange | str] = list(names)
    return [ReservedElement(each) for each in (numbers, texts) if each]


def _enum(given: descriptor_pb2.EnumDescriptorProto) -> EnumElement:
    values = [EnumConstant(each.name, each.number, _options(each.options)) for each in given.value]
    reserved = _reserved([(each.start, each.end) for each in given.reserved_range], given.reserved_name)
    return EnumElement(given.name, _options(given.options), reserved, values)


def _service(given: descriptor_pb2.ServiceDescriptorProto) -> ServiceElement:
    rpcs = [
        RpcElement(
            each.name,
            each.input_type,
            each.output_type,
            each.client_streaming,
            each.server_streaming,
            _options(each.options),
        )
        for each in given.method
    ]
    return ServiceElement(given.name, _options(given.options), rpcs)


def _options(given: Message) -> list[OptionElement]:
    """The options that are set. Those of somebody's own are there if their extension is known."""
    options = []
    for field, value in given.ListFields():
        if field.name == "uninterpreted_option":
            continue
        name = f"({field.full_name})" if field.is_extension else field.name
        options += [OptionElement(name, _value(field, each)) for each in (value if field.is_repeated else (value,))]
    return options


def _value(field: FieldDescriptor, value: object) -> OptionValue:
    if isinstance(value, Message):
        fields: list[tuple[str, OptionValue]] = []
        for inner, each in value.ListFields():
            name = f"[{inner.full_name}]" if inner.is_extension else inner.name
            if inner.is_repeated and inner.message_type and inner.message_type.GetOptions().map_entry:
                key, entry = inner.message_type.fields_by_name["key"], inner.message_type.fields_by_name["value"]
                entries: list[OptionValue] = [
                    MapValue([("key", _value(key, one)), ("value", _value(entry, each[one]))]) for one in each
                ]
                fields.append((name, ListValue(entries)))
            elif inner.is_repeated:
                fields.append((name, ListValue([_value(inner, one) for one in each])))
            else:
                fields.append((name, _value(inner, each)))
        return MapValue(fields)
    if field.enum_type:
        known = field.enum_type.values_by_number.get(value)
        return NameText(known.name) if known else NumberText(str(value))
    if isinstance(value, bool):
        return NameText(str(value).lower())
    if isinstance(value, bytes):
        return value.decode("latin-1")
    return value if isinstance(value, str) else NumberText(repr(value))
