"""Parses the text of a .proto file of proto2 or proto3.

The grammar is that of the language's specification. The parser of ``proto-schema-parser`` stands
on ANTLR and takes seconds for what a registry must read in milliseconds; a test holds this one to
its answers.

In Confluent's registry: `ProtoParser`, from Square's wire.
"""

from typing import Final

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
from barnabas.registry.formats.protobuf.tokens import Tokens

__all__ = ["LARGEST_NUMBER", "parse_file"]

_MAX_DEPTH: Final = 32
"""Messages inside messages, as in protoc."""

LARGEST_NUMBER: Final = (1 << 29) - 1
"""Of a field."""

_LARGEST_VALUE = (1 << 31) - 1
_LABELS = frozenset({"optional", "required", "repeated"})


def parse_file(text: str) -> FileElement:
    """The elements of a file. Raises InvalidSchemaError with the place of what is wrong."""
    return _Parser(text).file()


class _Parser:
    def __init__(self, text: str) -> None:
        self._tokens = Tokens(text)

    def file(self) -> FileElement:
        tokens, file = self._tokens, FileElement()
        if tokens.is_next("syntax"):
            tokens.next()
            tokens.expect("=")
            file.syntax = tokens.text()
            if file.syntax not in {"proto2", "proto3"}:
                raise tokens.error(f"the syntax {file.syntax!r} is neither proto2 nor proto3")
            tokens.expect(";")
        elif tokens.is_next("edition"):
            raise tokens.error("editions are not supported; give a syntax, proto2 or proto3")
        has_package = False
        while tokens.kind != "end":
            if tokens.take("package"):
                if has_package:
                    raise tokens.error("the file has two packages")
                has_package = True
                file.package = tokens.full_name()
                tokens.expect(";")
            else:
                self._file_part(file)
        return file

    def _file_part(self, file: FileElement) -> None:
        tokens = self._tokens
        match tokens.value:
            case "import":
                tokens.next()
                is_public = tokens.take("public")
                if not is_public:
                    tokens.take("weak")
                (file.public_imports if is_public else file.imports).append(tokens.text())
                tokens.expect(";")
            case "option":
                file.options.append(self._option_statement())
            case "message":
                file.messages.append(self._message(0))
            case "enum":
                file.enums.append(self._enum())
            case "extend":
                file.extends.append(self._extend(0))
            case "service":
                file.services.append(self._service())
            case ";":
                tokens.next()
            case value:
                raise tokens.error(f"{value[:40]!r} is not expected here")

    def _message(self, depth: int) -> MessageElement:
        self._tokens.expect("message")
        return self._message_body(MessageElement(self._tokens.name()), depth)

    def _message_body(self, message: MessageElement, depth: int) -> MessageElement:
        tokens = self._tokens
        if depth > _MAX_DEPTH:
            raise tokens.error(f"messages nest deeper than {_MAX_DEPTH}")
        tokens.expect("{")
        while not tokens.take("}"):
            self._message_part(message, depth)
        return message

    def _message_part(self, message: MessageElement, depth: int) -> None:
        """A field's type or name may be a keyword, so what follows the keyword decides."""
        tokens = self._tokens
        kind, following = tokens.following()
        is_named = kind == "name"
        match tokens.value:
            case ";":
                tokens.next()
            case "message" if is_named:
                message.messages.append(self._message(depth + 1))
            case "enum" if is_named:
                message.enums.append(self._enum())
            case "extend" if is_named or following == ".":
                message.extends.append(self._extend(depth))
            case "oneof" if is_named:
                message.oneofs.append(self._oneof(depth))
            case "option" if is_named or following == "(":
                message.options.append(self._option_statement())
            case "reserved" if kind in {"number", "text"} or following == "-":
                message.reserved.append(self._reserved(LARGEST_NUMBER))
            case "extensions" if kind == "number":
                message.extensions.append(self._extensions())
            case _:
                message.fields.append(self._field(depth))

    def _field(self, depth: int) -> FieldElement:
        tokens = self._tokens
        label = ""
        if tokens.value in _LABELS:
            label = tokens.next()
        if tokens.is_next("group") and tokens.following()[0] == "name":
            return self._group(label, depth)
        if tokens.is_next("map", "<"):
            kind = self._map_type()
        else:
            kind = tokens.full_name()
        name = tokens.name()
        tokens.expect("=")
        number = tokens.integer()
        options = self._compact_options()
        tokens.expect(";")
        return FieldElement(label, kind, name, number, options)

    def _map_type(self) -> str:
        tokens = self._tokens
        tokens.next()
        tokens.expect("<")
        key = tokens.full_name()
        tokens.expect(",")
        value = tokens.full_name()
        tokens.expect(">")
        return f"map<{key}, {value}>"

    def _group(self, label: str, depth: int) -> FieldElement:
        tokens = self._tokens
        tokens.next()
        name = tokens.name()
        tokens.expect("=")
        number = tokens.integer()
        options = self._compact_options()
        group = self._message_body(MessageElement(name), depth + 1)
        return FieldElement(label, name, name, number, options, group)

    def _oneof(self, depth: int) -> OneOfElement:
        tokens = self._tokens
        tokens.next()
        oneof = OneOfElement(tokens.name())
        tokens.expect("{")
        while not tokens.take("}"):
            kind, following = tokens.following()
            if tokens.is_next("option") and (kind == "name" or following == "("):
                oneof.options.append(self._option_statement())
            elif not tokens.take(";"):
                field = self._field(depth)
                if field.label or field.map_types:
                    raise tokens.error(f"the field {field.name} of a oneof has a label or is a map")
                oneof.fields.append(field)
        return oneof

    def _extend(self, depth: int) -> ExtendElement:
        tokens = self._tokens
        tokens.next()
        extend = ExtendElement(tokens.full_name())
        tokens.expect("{")
        while not tokens.take("}"):
            if not tokens.take(";"):
                extend.fields.append(self._field(depth))
        return extend

    def _enum(self) -> EnumElement:
        tokens = self._tokens
        tokens.next()
        enum = EnumElement(tokens.name())
        tokens.expect("{")
        while not tokens.take("}"):
            kind, following = tokens.following()
            if tokens.take(";"):
                continue
            if tokens.is_next("option") and (kind == "name" or following == "("):
                enum.options.append(self._option_statement())
            elif tokens.is_next("reserved") and following != "=":
                enum.reserved.append(self._reserved(_LARGEST_VALUE))
            else:
                name = tokens.name()
                tokens.expect("=")
                value = EnumConstant(name, tokens.integer(), self._compact_options())
                enum.values.append(value)
                tokens.expect(";")
        return enum

    def _service(self) -> ServiceElement:
        tokens = self._tokens
        tokens.next()
        service = ServiceElement(tokens.name())
        tokens.expect("{")
        while not tokens.take("}"):
            if tokens.is_next("option"):
                service.options.append(self._option_statement())
            elif not tokens.take(";"):
                service.rpcs.append(self._rpc())
        return service

    def _rpc(self) -> RpcElement:
        tokens = self._tokens
        tokens.expect("rpc")
        name = tokens.name()
        request, request_streams = self._rpc_type()
        tokens.expect("returns")
        response, response_streams = self._rpc_type()
        rpc = RpcElement(name, request, response, request_streams, response_streams)
        if tokens.take("{"):
            while not tokens.take("}"):
                if not tokens.take(";"):
                    rpc.options.append(self._option_statement())
            tokens.take(";")
        else:
            tokens.expect(";")
        return rpc

    def _rpc_type(self) -> tuple[str, bool]:
        tokens = self._tokens
        tokens.expect("(")
        streams = tokens.is_next("stream") and tokens.following()[1] != ")"
        if streams:
            tokens.next()
        kind = tokens.full_name()
        tokens.expect(")")
        return kind, streams

    def _reserved(self, largest: int) -> ReservedElement:
        tokens = self._tokens
        tokens.next()
        values: list[int | NumberRange | str] = []
        while True:
            values.append(tokens.text() if tokens.kind == "text" else self._range(largest))
            if not tokens.take(","):
                break
        tokens.expect(";")
        return ReservedElement(values)

    def _extensions(self) -> ExtensionRanges:
        tokens = self._tokens
        tokens.next()
        values = [self._range(LARGEST_NUMBER)]
        while tokens.take(","):
            values.append(self._range(LARGEST_NUMBER))
        options = self._compact_options()
        tokens.expect(";")
        return ExtensionRanges(values, options)

    def _range(self, largest: int) -> int | NumberRange:
        tokens = self._tokens
        first = tokens.integer()
        if not tokens.take("to"):
            return first
        return NumberRange(first, largest if tokens.take("max") else tokens.integer())

    def _option_statement(self) -> OptionElement:
        self._tokens.expect("option")
        option = self._option()
        self._tokens.expect(";")
        return option

    def _compact_options(self) -> list[OptionElement]:
        tokens = self._tokens
        if not tokens.take("["):
            return []
        options = [self._option()]
        while tokens.take(","):
            options.append(self._option())
        tokens.expect("]")
        return options

    def _option(self) -> OptionElement:
        tokens = self._tokens
        parts = []
        while True:
            if tokens.take("("):
                parts.append(f"({tokens.full_name()})")
                tokens.expect(")")
            else:
                parts.append(tokens.name())
            if not tokens.take("."):
                break
        tokens.expect("=")
        return OptionElement(".".join(parts), self._value(0))

    def _value(self, depth: int) -> OptionValue:
        tokens = self._tokens
        if depth > _MAX_DEPTH:
            raise tokens.error(f"values of options nest deeper than {_MAX_DEPTH}")
        if tokens.kind == "text":
            return tokens.text()
        if tokens.take("{"):
            return MapValue(self._map_fields("}", depth + 1))
        if tokens.take("<"):
            return MapValue(self._map_fields(">", depth + 1))
        if tokens.take("["):
            values = []
            while not tokens.take("]"):
                values.append(self._value(depth + 1))
                if not tokens.is_next("]"):
                    tokens.expect(",")
            return ListValue(values)
        sign = "-" if tokens.take("-") else ""
        tokens.take("+")
        if tokens.kind == "number":
            return NumberText(sign + tokens.next())
        return NameText(sign + tokens.full_name())

    def _map_fields(self, end: str, depth: int) -> list[tuple[str, OptionValue]]:
        tokens = self._tokens
        fields: list[tuple[str, OptionValue]] = []
        while not tokens.take(end):
            if tokens.take("["):
                name = tokens.full_name()
                if tokens.take("/"):
                    name += f"/{tokens.full_name()}"
                tokens.expect("]")
                name = f"[{name}]"
            else:
                name = tokens.name()
            if not tokens.take(":") and tokens.value not in {"{", "<"}:
                raise tokens.error(f"':' is missing before {tokens.value[:40]!r}")
            fields.append((name, self._value(depth)))
            if not tokens.take(","):
                tokens.take(";")
        return fields
