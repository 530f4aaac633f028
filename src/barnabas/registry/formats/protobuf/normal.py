"""Brings files of Protobuf into the form in which those that mean the same are equal.

In Confluent's registry: `ProtobufSchema.normalize`.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from barnabas.registry.formats.protobuf.elements import (
    EnumElement,
    ExtendElement,
    ExtensionRanges,
    FieldElement,
    FileElement,
    ListValue,
    MapValue,
    MessageElement,
    NumberRange,
    OneOfElement,
    OptionElement,
    OptionValue,
    ReservedElement,
    RpcElement,
    ServiceElement,
)
from barnabas.registry.formats.protobuf.scopes import SCALARS, Types

__all__ = ["normal_file"]


def normal_file(file: FileElement, types: Types) -> FileElement:
    """The same file with full names of types, and with its parts in the order of their numbers.

    Messages and methods stay in their order: clients name a message by its index."""
    normal = _Normal(types)
    scope = file.package
    return FileElement(
        syntax=file.syntax if file.syntax == "proto3" else None,
        package=scope,
        imports=sorted(set(file.imports)),
        public_imports=sorted(set(file.public_imports)),
        options=normal.options(file.options, scope),
        messages=[normal.message(each, scope) for each in file.messages],
        enums=[normal.enum(each, scope) for each in file.enums],
        extends=normal.extends(file.extends, scope),
        services=[normal.service(each, scope) for each in file.services],
    )


class _Normal:
    def __init__(self, types: Types) -> None:
        self._types = types

    def message(self, message: MessageElement, scope: str) -> MessageElement:
        inner = f"{scope}.{message.name}" if scope else message.name
        oneofs = [replace(each, fields=self._fields(each.fields, inner)) for each in message.oneofs if each.fields]
        return MessageElement(
            message.name,
            self.options(message.options, inner),
            _reserved(message.reserved),
            self._fields(message.fields, inner),
            sorted((self._oneof(each, inner) for each in oneofs), key=lambda each: each.fields[0].number),
            self._extensions(message.extensions, inner),
            self.extends(message.extends, inner),
            [self.message(each, inner) for each in message.messages],
            [self.enum(each, inner) for each in message.enums],
        )

    def _oneof(self, oneof: OneOfElement, scope: str) -> OneOfElement:
        return replace(oneof, options=self.options(oneof.options, scope))

    def _fields(self, fields: Iterable[FieldElement], scope: str) -> list[FieldElement]:
        return sorted((self._field(each, scope) for each in fields), key=lambda each: each.number)

    def _field(self, field: FieldElement, scope: str) -> FieldElement:
        kind, group = field.type, field.group
        if group is not None:
            group = self.message(group, scope)
        elif field.map_types is not None:
            key, value = field.map_types
            kind = f"map<{key}, {self._full_name(value, scope)}>"
        else:
            kind = self._full_name(kind, scope)
        return replace(field, type=kind, group=group, options=self.options(field.options, scope))

    def _full_name(self, kind: str, scope: str) -> str:
        found = None if kind in SCALARS else self._types.find(kind, scope)
        return kind if found is None else f".{found.full_name}"

    def _extensions(self, extensions: Iterable[ExtensionRanges], scope: str) -> list[ExtensionRanges]:
        each = (
            ExtensionRanges([_simple(value)], self.options(ranges.options, scope))
            for ranges in extensions
            for value in ranges.values
        )
        return sorted(each, key=lambda ranges: _first(ranges.values[0]))

    def extends(self, extends: Iterable[ExtendElement], scope: str) -> list[ExtendElement]:
        together: dict[str, list[FieldElement]] = {}
        for extend in extends:
            together.setdefault(self._full_name(extend.name, scope), []).extend(extend.fields)
        return [ExtendElement(name, self._fields(fields, scope)) for name, fields in together.items()]

    def enum(self, enum: EnumElement, scope: str) -> EnumElement:
        values = sorted(enum.values, key=lambda value: (value.number, value.name))
        return EnumElement(
            enum.name,
            self.options(enum.options, scope),
            _reserved(enum.reserved),
            [replace(value, options=self.options(value.options, scope)) for value in values],
        )

    def service(self, service: ServiceElement, scope: str) -> ServiceElement:
        rpcs = [self._rpc(rpc, scope) for rpc in service.rpcs]
        return ServiceElement(service.name, self.options(service.options, scope), rpcs)

    def _rpc(self, rpc: RpcElement, scope: str) -> RpcElement:
        request, response = self._full_name(rpc.request, scope), self._full_name(rpc.response, scope)
        return replace(rpc, request=request, response=response, options=self.options(rpc.options, scope))

    def options(self, options: Sequence[OptionElement], scope: str) -> list[OptionElement]:
        """Options by their names, with full names of extensions. A path into an option is a
        message, and the parts of one message stand together; others of one name are a list, and
        keep their order."""
        named: dict[str, list[OptionValue]] = {}
        for option in options:
            name, value = self._without_path(option, scope)
            values = named.setdefault(name, [])
            if values and isinstance(values[-1], MapValue) and isinstance(value, MapValue) and "." in option.name:
                values[-1] = _merged(values[-1], value)
            else:
                values.append(value)
        return [OptionElement(name, _sorted_value(value)) for name in sorted(named) for value in named[name]]

    def _without_path(self, option: OptionElement, scope: str) -> tuple[str, OptionValue]:
        if not option.name.startswith("("):
            return option
        extension, _, path = option.name[1:].partition(")")
        value = option.value
        for step in reversed(path.split(".")[1:] if "(" not in path else []):
            value = MapValue([(step, value)])
        rest = path if "(" in path else ""
        return f"({self._types.find_extension(extension, scope) or extension.lstrip('.')}){rest}", value


def _merged(one: MapValue, other: MapValue) -> MapValue:
    """One message of two; what stands in both is a list, or a message again."""
    fields = dict(one.fields)
    for name, value in other.fields:
        known = fields.get(name)
        if isinstance(known, MapValue) and isinstance(value, MapValue):
            fields[name] = _merged(known, value)
        elif known is None:
            fields[name] = value
        else:
            fields[name] = ListValue([*_listed(known), *_listed(value)])
    return MapValue(list(fields.items()))


def _listed(value: OptionValue) -> list[OptionValue]:
    return value.values if isinstance(value, ListValue) else [value]


def _sorted_value(value: OptionValue) -> OptionValue:
    match value:
        case MapValue(fields=fields):
            return MapValue(sorted(((name, _sorted_value(each)) for name, each in fields), key=lambda each: each[0]))
        case ListValue(values=[single]):
            return _sorted_value(single)
        case ListValue(values=values):
            return ListValue([_sorted_value(each) for each in values])
        case _:
            return value


def _simple(value: int | NumberRange) -> int | NumberRange:
    return value.first if isinstance(value, NumberRange) and value.first == value.last else value


def _first(value: int | NumberRange | str) -> int:
    if isinstance(value, str):
        return 1 << 31
    return value.first if isinstance(value, NumberRange) else value


def _reserved(reserved: Iterable[ReservedElement]) -> list[ReservedElement]:
    values = (each if isinstance(each, str) else _simple(each) for element in reserved for each in element.values)
    return [ReservedElement([each]) for each in sorted(values, key=lambda each: (_first(each), str(each)))]
