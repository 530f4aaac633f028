"""What a .proto file consists of, in the order of its text but without its comments.

The names are those of the language's specification. A type of a field is the text that stands in
the file; `scopes.py` finds what it means.

In Confluent's registry: `ProtoFileElement` and its parts, from Square's wire.
"""

from dataclasses import dataclass, field
from typing import NamedTuple

__all__ = [
    "EnumConstant",
    "EnumElement",
    "ExtendElement",
    "ExtensionRanges",
    "FieldElement",
    "FileElement",
    "ListValue",
    "MapValue",
    "MessageElement",
    "NameText",
    "NumberRange",
    "NumberText",
    "OneOfElement",
    "OptionElement",
    "OptionValue",
    "ReservedElement",
    "RpcElement",
    "ServiceElement",
]


class NameText(str):
    """The value of an option that is a name: a constant of an enum, true, false, inf, nan."""

    __slots__ = ()


class NumberText(str):
    """The value of an option that is a number, as it is written."""

    __slots__ = ()


@dataclass
class MapValue:
    """The value of an option that is a message."""

    fields: "list[tuple[str, OptionValue]]"


@dataclass
class ListValue:
    """The value of a repeated field inside the value of an option."""

    values: "list[OptionValue]"


OptionValue = str | MapValue | ListValue
"""A string where it is no NameText and no NumberText."""


class OptionElement(NamedTuple):
    """An option. The name of one of somebody's own begins with that of its extension in
    parentheses."""

    name: str
    value: OptionValue


class NumberRange(NamedTuple):
    """Numbers of fields or values from the first to the last one."""

    first: int
    last: int


@dataclass
class FieldElement:
    """A field. A group has elements of its own: it is a message of the field's name, too.

    ``label`` is optional, required, repeated, or "". The type of a map is ``map<K, V>``."""

    label: str
    type: str
    name: str
    number: int
    options: list[OptionElement] = field(default_factory=list)
    group: "MessageElement | None" = None

    @property
    def map_types(self) -> tuple[str, str] | None:
        """The types of key and value of a map."""
        if not self.type.startswith("map<"):
            return None
        key, _, value = self.type[4:-1].partition(", ")
        return key, value


@dataclass
class OneOfElement:
    """Fields of which at most one is set."""

    name: str
    fields: list[FieldElement] = field(default_factory=list)
    options: list[OptionElement] = field(default_factory=list)


@dataclass
class ReservedElement:
    """Numbers and names that are not to be used (again)."""

    values: list[int | NumberRange | str]


@dataclass
class ExtensionRanges:
    """Numbers that others may use for fields."""

    values: list[int | NumberRange]
    options: list[OptionElement] = field(default_factory=list)


@dataclass
class ExtendElement:
    """Fields that a file adds to a message of another one."""

    name: str
    fields: list[FieldElement] = field(default_factory=list)


@dataclass
class EnumConstant:
    """A constant of an enum."""

    name: str
    number: int
    options: list[OptionElement] = field(default_factory=list)


@dataclass
class EnumElement:
    """An enum."""

    name: str
    options: list[OptionElement] = field(default_factory=list)
    reserved: list[ReservedElement] = field(default_factory=list)
    values: list[EnumConstant] = field(default_factory=list)


@dataclass
class MessageElement:
    """A message; ``fields`` are those outside of oneofs."""

    name: str
    options: list[OptionElement] = field(default_factory=list)
    reserved: list[ReservedElement] = field(default_factory=list)
    fields: list[FieldElement] = field(default_factory=list)
    oneofs: list[OneOfElement] = field(default_factory=list)
    extensions: list[ExtensionRanges] = field(default_factory=list)
    extends: list[ExtendElement] = field(default_factory=list)
    messages: "list[MessageElement]" = field(default_factory=list)
    enums: list[EnumElement] = field(default_factory=list)


@dataclass
class RpcElement:
    """A method of a service."""

    name: str
    request: str
    response: str
    request_streams: bool
    response_streams: bool
    options: list[OptionElement] = field(default_factory=list)


@dataclass
class ServiceElement:
    """A service."""

    name: str
    options: list[OptionElement] = field(default_factory=list)
    rpcs: list[RpcElement] = field(default_factory=list)


@dataclass
class FileElement:
    """A file."""

    syntax: str | None = None
    package: str = ""
    imports: list[str] = field(default_factory=list)
    public_imports: list[str] = field(default_factory=list)
    options: list[OptionElement] = field(default_factory=list)
    messages: list[MessageElement] = field(default_factory=list)
    enums: list[EnumElement] = field(default_factory=list)
    extends: list[ExtendElement] = field(default_factory=list)
    services: list[ServiceElement] = field(default_factory=list)
