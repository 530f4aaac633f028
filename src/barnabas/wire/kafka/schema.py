"""How Kafka's messages are declared: once, for all versions.

A message is a class whose fields carry the facts of Kafka's message definitions: type, the versions
that have the field, the versions in which it may be null, its tag, its default.
`barnabas.wire.kafka.codec` compiles readers and writers from them. The classes are no dataclasses,
but are used like them: their fields are slots, and the constructor takes keywords only::

    class ProduceRequest(Message, api_key=0, versions="3-13", flexible="9+"):
        transactional_id: str | None = string("3+", nullable="3+", default=None)
        acks: int = int16()
        topic_data: list[TopicProduceData] = array_of(TopicProduceData)

A message has one class for all its versions, and so has each structure in it. A version that lacks
a field skips it; the writer refuses a value that would be lost, unless the field is ignorable. Each
field has a default, so a message is built from what differs. Version ranges are written as Kafka
writes them: ``"3+"``, ``"0-14"``, ``"5"``, ``"none"``. A tagged structure is ``None`` where the
message does not have it.

Classes are cheap to define, for a broker defines hundreds: ``__init__`` is compiled when
the first object is made.
"""

from collections.abc import Callable, Sequence
from functools import cache
from operator import attrgetter
from typing import Any, ClassVar, NamedTuple, TypeVar, dataclass_transform

from barnabas.base.files import Buffer, FileSlice
from barnabas.base.ids import ZERO_UUID

__all__ = [
    "Field",
    "Message",
    "Records",
    "Struct",
    "Versions",
    "array_of",
    "boolean",
    "byte_string",
    "field_values",
    "float64",
    "int8",
    "int16",
    "int32",
    "int64",
    "record_data",
    "string",
    "struct_of",
    "structures_in",
    "uint16",
    "uint32",
    "uuid",
]

Records = Buffer | FileSlice | None
"""Record batches as they came, or as they lie in a file."""

_OPEN_END = 32767
_SECRETS = frozenset(("auth_bytes", "salt", "salted_password"))
"""Fields that no log and no error shows: tokens with passwords, and what passwords are made of."""


class Versions(NamedTuple):
    """A range of versions, both ends included; empty when ``first`` is above ``last``."""

    first: int
    last: int

    @classmethod
    def parse(cls, text: str) -> "Versions":
        """Kafka's notation for a range: ``3+``, ``0-14``, ``5`` or ``none``."""
        if text == "none":
            return cls(1, 0)
        if text.endswith("+"):
            return cls(int(text[:-1]), _OPEN_END)
        first, _, last = text.partition("-")
        return cls(int(first), int(last or first))

    def __contains__(self, version: object) -> bool:
        return isinstance(version, int) and self.first <= version <= self.last


class Field:
    """One field's facts.

    ``kind`` is a key of `FIXED`, or string, bytes, records, array or struct."""

    __slots__ = ("default", "element", "ignorable", "kind", "name", "nullable", "tag", "versions")

    def __init__(
        self,
        kind: str,
        versions: str,
        default: Any,
        *,
        nullable: str = "none",
        tag: int | None = None,
        ignorable: bool = False,
        element: "type[Struct] | str | None" = None,
    ) -> None:
        self.name = ""
        self.kind = kind
        self.versions = Versions.parse(versions)
        self.nullable = Versions.parse(nullable)
        self.default = default
        self.tag = tag
        self.ignorable = ignorable
        self.element = element

    @property
    def makes_default(self) -> bool:
        """Whether each object gets a default of its own: lists and structures can be changed."""
        return self.default is not None and self.kind in ("array", "struct")

    def __repr__(self) -> str:
        return f"Field({self.name!r}, {self.kind!r}, versions={self.versions})"


FIXED = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
    "uuid": "16s",
}
"""Kinds of a fixed size, with their characters in Python's ``struct``."""

LONGEST_STRING = 0x7FFF
"""Bytes of a string in UTF-8: what a length of two bytes can say. Kafka refuses more in
compact strings as well."""


def _compile_init(cls: "type[Struct]") -> Callable[..., None]:
    arguments = []
    body = []
    scope: dict[str, Any] = {"unset": object()}
    for number, field in enumerate(cls.FIELDS):
        default = f"default_{number}"
        if field.makes_default:
            arguments.append(f"{field.name}=unset")
            scope[default] = field.default
            made = "[]" if field.default is list else f"{default}()"
            body.append(f" self.{field.name} = {made} if {field.name} is unset else {field.name}\n")
        else:
            arguments.append(f"{field.name}={default}")
            scope[default] = field.default
            body.append(f" self.{field.name} = {field.name}\n")
    signature = ", *, " + ", ".join(arguments) if arguments else ""
    source = f"def __init__(self{signature}):\n{''.join(body) or ' pass'}"
    exec(compile(source, f"<{cls.__name__}.__init__>", "exec"), scope)  # noqa: S102  # from declarations, not input
    init: Callable[..., None] = scope["__init__"]
    return init


@dataclass_transform(kw_only_default=True)
class _StructType(type):
    """Turns the declared fields of a class into slots and a table."""

    def __new__(
        mcs,
        name: str,
        bases: tuple[type, ...],
        namespace: dict[str, Any],
        **options: Any,
    ) -> "_StructType":
        fields = []
        for key, value in list(namespace.items()):
            if isinstance(value, Field):
                value.name = key
                fields.append(value)
                del namespace[key]
        namespace["__slots__"] = tuple(field.name for field in fields)
        namespace["FIELDS"] = tuple(fields)
        return super().__new__(mcs, name, bases, namespace, **options)


class Struct(metaclass=_StructType):
    """A structure inside messages."""

    FIELDS: ClassVar[tuple[Field, ...]]

    def __init__(self, **values: Any) -> None:
        cls = type(self)
        cls.__init__ = _compile_init(cls)  # type: ignore[method-assign]  # each class gets its own at first use
        cls.__init__(self, **values)

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return all(getattr(self, field.name) == getattr(other, field.name) for field in self.FIELDS)

    __hash__ = None  # type: ignore[assignment]  # objects can be changed

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self._shown())})"

    def _shown(self) -> list[str]:
        shown = []
        for field in self.FIELDS:
            value = getattr(self, field.name)
            if isinstance(value, bytes | bytearray | memoryview) and (len(value) > 32 or field.name in _SECRETS):
                shown.append(f"{field.name}=<{len(value)} bytes>")
            else:
                shown.append(f"{field.name}={value!r}")
        return shown


def field_values(struct: Struct) -> dict[str, Any]:
    """The values of a structure by the names of its fields."""
    return {field.name: getattr(struct, field.name) for field in struct.FIELDS}


def has_arrays(struct_type: type[Struct]) -> bool:
    """Whether a structure has arrays of structures or texts, of which there may be very many."""
    return any(
        field.element not in FIXED
        if field.kind == "array"
        else isinstance(field.element, type) and has_arrays(field.element)
        for field in struct_type.FIELDS
    )


STRUCTURES_A_STEP = 128
"""A reader or a writer that is a task yields after this many structures, some tenths of a
millisecond. Not after each: to look at the time costs as much as a small one. And what ends before
its first yield is known to be small, so nothing keeps it."""


def structures_in(value: object) -> Sequence[Struct]:
    """The structures in the lists of a structure; none in any other value."""
    if not isinstance(value, Struct):
        return ()
    lists = _lists_in(type(value))
    if not lists:
        return ()
    found: list[Struct] = []
    for structures in lists:
        found += structures(value) or ()
    return found


@cache
def _lists_in(struct_type: type[Struct]) -> tuple[Callable[[Any], list[Struct] | None], ...]:
    """What gives each of the lists of structures."""
    fields = struct_type.FIELDS
    return tuple(
        attrgetter(field.name) for field in fields if field.kind == "array" and isinstance(field.element, type)
    )


class Message(Struct):
    """A whole message: a request, a response, or a record of Kafka's own topics.

    ``API_KEY`` is -1 for messages that are not sent as requests. ``READERS`` and ``WRITERS`` hold
    the compiled functions by version; use `barnabas.wire.kafka.codec`.
    """

    API_KEY: ClassVar[int]
    VERSIONS: ClassVar[Versions]
    FLEXIBLE: ClassVar[Versions]
    READERS: ClassVar[dict[int, Any]]
    WRITERS: ClassVar[dict[int, Any]]

    def __init_subclass__(cls, *, versions: str, flexible: str = "none", api_key: int = -1) -> None:
        cls.API_KEY = api_key
        cls.VERSIONS = Versions.parse(versions)
        cls.FLEXIBLE = Versions.parse(flexible)
        cls.READERS = {}
        cls.WRITERS = {}


MessageType = TypeVar("MessageType", bound=Message)


# The functions below return Any, as dataclasses.field does, so that a field can be
# annotated with its values' type.


def _number(kind: str) -> Callable[..., Any]:
    def declare(versions: str = "0+", *, default: int = 0, tag: int | None = None, ignorable: bool = False) -> Any:
        return Field(kind, versions, default, tag=tag, ignorable=ignorable)

    declare.__doc__ = f"A field of type {kind}."
    return declare


int8 = _number("int8")
int16 = _number("int16")
uint16 = _number("uint16")
int32 = _number("int32")
uint32 = _number("uint32")
int64 = _number("int64")


def float64(versions: str = "0+", *, default: float = 0.0, tag: int | None = None, ignorable: bool = False) -> Any:
    """A double-precision number."""
    return Field("float64", versions, default, tag=tag, ignorable=ignorable)


def boolean(versions: str = "0+", *, default: bool = False, tag: int | None = None, ignorable: bool = False) -> Any:
    """True or false, in one byte."""
    return Field("bool", versions, default, tag=tag, ignorable=ignorable)


def uuid(versions: str = "0+", *, default: bytes = ZERO_UUID, tag: int | None = None, ignorable: bool = False) -> Any:
    """Sixteen bytes; `ZERO_UUID` means none."""
    return Field("uuid", versions, default, tag=tag, ignorable=ignorable)


def string(
    versions: str = "0+",
    *,
    nullable: str = "none",
    default: str | None = "",
    tag: int | None = None,
    ignorable: bool = False,
) -> Any:
    """Text in UTF-8."""
    return Field("string", versions, default, nullable=nullable, tag=tag, ignorable=ignorable)


def byte_string(
    versions: str = "0+",
    *,
    nullable: str = "none",
    default: bytes | None = b"",
    tag: int | None = None,
    ignorable: bool = False,
) -> Any:
    """Bytes that the protocol does not look into; readers copy them."""
    return Field("bytes", versions, default, nullable=nullable, tag=tag, ignorable=ignorable)


def record_data(versions: str = "0+", *, nullable: str = "none", ignorable: bool = False) -> Any:
    """Record batches: readers give a view of the input, writers take buffers and
    slices of files as they are."""
    return Field("records", versions, None, nullable=nullable, ignorable=ignorable)


def array_of(
    element: type[Struct] | str,
    versions: str = "0+",
    *,
    nullable: str = "none",
    default: type[list[Any]] | None = list,
    tag: int | None = None,
    ignorable: bool = False,
) -> Any:
    """A list of structures, or of the kind named by ``element``.

    ``default=None`` for null instead of an empty list."""
    return Field("array", versions, default, nullable=nullable, tag=tag, ignorable=ignorable, element=element)


def struct_of(
    element: type[Struct],
    versions: str = "0+",
    *,
    nullable: str = "none",
    default: type[Struct] | None = None,
    tag: int | None = None,
    ignorable: bool = False,
) -> Any:
    """A structure; ``default`` is its class, or None where it may be null or is tagged."""
    return Field("struct", versions, default, nullable=nullable, tag=tag, ignorable=ignorable, element=element)
