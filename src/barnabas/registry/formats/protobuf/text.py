"""Writes files of Protobuf as Confluent's registry stores them: its canonical text.

The form is that of Square's wire, whose parser Confluent uses: comments go, messages stand before
enums, and the parts of a message are grouped by their kind. Two files that differ only in that get
the same text, and hence the same id.

In Confluent's registry: `ProtobufSchema.canonicalString`.
"""

from collections.abc import Iterable, Sequence

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
    OneOfElement,
    OptionElement,
    OptionValue,
    ReservedElement,
    RpcElement,
    ServiceElement,
)
from barnabas.registry.formats.protobuf.parser import LARGEST_NUMBER

__all__ = ["file_text"]

_ESCAPES = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    "\\": "\\\\",
    "'": "\\'",
    '"': '\\"',
}
_ESCAPE_TABLE = str.maketrans(_ESCAPES)
_LAST_OPTIONS = ("default", "json_name")
"""These of a field stand behind its others."""

_Lines = list[str]


def file_text(file: FileElement, *, has_extensions: bool = True) -> str:
    """The text of a file; without extensions it has no options of somebody's own, either."""
    lines = _Writer(has_extensions=has_extensions).file(file)
    return "\n".join(lines) + "\n" if lines else ""


def _indented(lines: Iterable[str]) -> _Lines:
    return [f"  {line}" for line in lines]


def _quoted(text: str) -> str:
    return f'"{text.translate(_ESCAPE_TABLE)}"'


class _Writer:
    def __init__(self, *, has_extensions: bool) -> None:
        self._has_extensions = has_extensions

    def file(self, file: FileElement) -> _Lines:
        lines = [f'syntax = "{file.syntax}";'] if file.syntax else []
        if file.package:
            lines.append(f"package {file.package};")
        imports = [f'import "{name}";' for name in file.imports]
        imports += [f'import public "{name}";' for name in file.public_imports]
        extends = file.extends if self._has_extensions else []
        for part in (
            imports,
            self._statements(file.options),
            [line for message in file.messages for line in self._message(message)]
            + [line for enum in file.enums for line in self._enum(enum)],
            [line for extend in extends for line in self._extend(extend)],
            [line for service in file.services for line in self._service(service)],
        ):
            if part:
                lines += ["", *part]
        return lines

    def _options(self, options: Sequence[OptionElement]) -> Sequence[OptionElement]:
        if self._has_extensions:
            return options
        return [each for each in options if not each.name.startswith("(") or each.name.startswith("(confluent.")]

    def _statements(self, options: Sequence[OptionElement]) -> _Lines:
        lines: _Lines = []
        for option in self._options(options):
            first, *rest = self._option(option)
            lines += [f"option {first}", *rest]
            lines[-1] += ";"
        return lines

    def _option(self, option: OptionElement) -> _Lines:
        return self._prefixed(f"{option.name} = ", option.value)

    def _prefixed(self, prefix: str, value: OptionValue) -> _Lines:
        first, *rest = self._value(value)
        return [prefix + first, *rest]

    def _value(self, value: OptionValue) -> _Lines:
        match value:
            case NameText() | NumberText():
                return [str(value)]
            case MapValue(fields=fields):
                return self._block("{", (self._prefixed(f"{name}: ", each) for name, each in fields), "}")
            case ListValue(values=values):
                return self._block("[", (self._value(each) for each in values), "]")
            case _:
                return [_quoted(value)]

    def _block(self, start: str, entries: Iterable[_Lines], end: str) -> _Lines:
        lines: _Lines = []
        for entry in entries:
            if lines:
                lines[-1] += ","
            lines += _indented(entry)
        return [start, *lines, end]

    def _with_options(self, text: str, options: Sequence[OptionElement]) -> _Lines:
        """A statement whose options stand in brackets: one on its line, several on lines of
        their own."""
        options = self._options(options)
        if not options:
            return [f"{text};"]
        if len(options) == 1:
            lines = self._option(options[0])
            lines[0] = f"{text} [{lines[0]}"
        else:
            lines = self._block(f"{text} [", (self._option(each) for each in options), "]")
            lines[-1] = lines[-1][:-1]
        lines[-1] += "];"
        return lines

    def _braces(self, head: str, groups: Iterable[_Lines]) -> _Lines:
        """Groups of lines in braces, with an empty line between them."""
        lines: _Lines = []
        for group in groups:
            if group:
                lines += ["", *_indented(group)] if lines else _indented(group)
        return [f"{head} {{", *lines, "}"] if lines else [f"{head} {{}}"]

    def _message(self, message: MessageElement, keyword: str = "message") -> _Lines:
        plain = [line for field in message.fields if not field.group for line in self._field(field)]
        groups = [line for field in message.fields if field.group for line in self._group(field)]
        extensions = message.extensions if self._has_extensions else []
        extends = message.extends if self._has_extensions else []
        return self._braces(
            f"{keyword} {message.name}",
            [
                [self._reserved(each) for each in message.reserved],
                self._statements(message.options),
                plain,
                [line for oneof in message.oneofs for line in self._oneof(oneof)],
                groups,
                [line for each in extensions for line in self._extensions(each)],
                [line for each in extends for line in self._extend(each)],
                [line for each in message.messages for line in self._message(each)]
                + [line for each in message.enums for line in self._enum(each)],
            ],
        )

    def _field(self, field: FieldElement) -> _Lines:
        label = f"{field.label} " if field.label else ""
        options = [each for each in field.options if each.name not in _LAST_OPTIONS]
        options += [each for name in _LAST_OPTIONS for each in field.options if each.name == name]
        return self._with_options(f"{label}{field.type} {field.name} = {field.number}", options)

    def _group(self, field: FieldElement) -> _Lines:
        assert field.group is not None
        label = f"{field.label} " if field.label else ""
        first, *rest = self._message(field.group, "group")
        head = f"{label}group {field.name} = {field.number} {{"
        return [head + first.partition("{")[2], *rest]

    def _oneof(self, oneof: OneOfElement) -> _Lines:
        plain = [line for field in oneof.fields if not field.group for line in self._field(field)]
        groups = [line for field in oneof.fields if field.group for line in self._group(field)]
        return self._braces(f"oneof {oneof.name}", [self._statements(oneof.options), plain, groups])

    def _extend(self, extend: ExtendElement) -> _Lines:
        return self._braces(
            f"extend {extend.name}",
            [[line for f in extend.fields for line in (self._group(f) if f.group else self._field(f))]],
        )

    def _enum(self, enum: EnumElement) -> _Lines:
        lines = [self._reserved(each) for each in enum.reserved]
        lines += self._statements(enum.options)
        for value in enum.values:
            lines += self._with_options(f"{value.name} = {value.number}", value.options)
        return self._braces(f"enum {enum.name}", [lines])

    def _service(self, service: ServiceElement) -> _Lines:
        rpcs = [line for rpc in service.rpcs for line in self._rpc(rpc)]
        return self._braces(f"service {service.name}", [self._statements(service.options), rpcs])

    def _rpc(self, rpc: RpcElement) -> _Lines:
        request = f"{'stream ' if rpc.request_streams else ''}{rpc.request}"
        response = f"{'stream ' if rpc.response_streams else ''}{rpc.response}"
        head = f"rpc {rpc.name} ({request}) returns ({response})"
        options = self._statements(rpc.options)
        return [f"{head} {{", *_indented(options), "};"] if options else [f"{head};"]

    def _reserved(self, reserved: ReservedElement) -> str:
        values = [_quoted(each) if isinstance(each, str) else _range(each) for each in reserved.values]
        return f"reserved {', '.join(values)};"

    def _extensions(self, extensions: ExtensionRanges) -> _Lines:
        return self._with_options(f"extensions {', '.join(map(_range, extensions.values))}", extensions.options)


def _range(value: int | NumberRange) -> str:
    if isinstance(value, int):
        return str(value)
    return f"{value.first} to {value.last if value.last < LARGEST_NUMBER else 'max'}"
