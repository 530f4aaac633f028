"""Compiles the reader of one version of a message: straight-line Python from the declaration.

The source of a reader looks like this (a flexible version, shortened)::

    def read(data, at):
        end = len(data)
        try:
            m = new(ProduceRequest)
            # runs of fixed-size fields are one unpack
            (n1,) = unpack_B(data, at); at += 1
            ...
            # no count is believed before its bytes are there
            if n4 > (end - at) // 6: raise ...
            for _ in range(n4): ...
        except (StructError, IndexError):
            raise MalformedMessageError("ProduceRequest v9 ends early") from None
        return m, at

Invariants: whatever the bytes are, a reader returns or raises MalformedMessageError; it allocates
no more than a constant times the bytes it was given; ``records`` fields are views of the input.
Elements are much larger as objects than as bytes (an empty group id is one byte), and answers
larger still, so their number in a request is limited. A response may have elements that take 128
MiB as objects, by an estimate: the Metadata of 290,000 partitions with three replicas.
"""

import struct
from collections.abc import Callable
from functools import cache
from typing import Any

from barnabas.base.files import Buffer
from barnabas.base.tasks import Task
from barnabas.wire.kafka.errors import MalformedMessageError, OversizedMessageError
from barnabas.wire.kafka.primitives import MOST_TAGGED_FIELDS, number_reader, packer, read_uvarint, skip_tagged_fields
from barnabas.wire.kafka.schema import FIXED, LONGEST_STRING, STRUCTURES_A_STEP, Field, Message, Struct

__all__ = ["Reader", "SlicedReader", "compile_reader", "compile_sliced_reader", "has_records", "reader_source"]

Reader = Callable[[Buffer, int], tuple[Any, int]]
SlicedReader = Callable[[Buffer, int], Task[tuple[Any, int]]]

_COPY_BELOW_BYTES = 65536
_MAX_ELEMENTS = 100_000
"""Elements of all arrays of one request together; as objects they take some 20 MB."""
_MAX_CLUSTER_ELEMENTS = 1_000_000
"""The same for the controller's requests, which describe a whole cluster; their lists of
numbers are not counted."""
_CONTROLLERS_APIS = frozenset((4, 5, 6))
_MAX_RESPONSE_MIB = 128
"""What the elements of one response take as objects, by the estimate of `held_bytes`."""
_NUMBER_BYTES = "(8 if {count} < 64 else 80)"
"""A number in a list. Short lists hold ids of brokers, which are small numbers, and Python has each
of these once. A number of a long one takes 40 bytes, and as much again in a set."""


def compile_reader(cls: type[Message], version: int) -> Reader:
    """The reader of ``version``, which `Message.VERSIONS` must hold."""
    read: Reader = _compile(cls, version, in_slices=False)
    return read


def compile_sliced_reader(cls: type[Message], version: int) -> SlicedReader:
    """The same as a generator, which yields where others may have their turn: see
    `STRUCTURES_A_STEP`."""
    read: SlicedReader = _compile(cls, version, in_slices=True)
    return read


def _compile(cls: type[Message], version: int, *, in_slices: bool) -> Any:
    source, scope = reader_source(cls, version, in_slices=in_slices)
    exec(compile(source, f"<{cls.__name__} v{version} reader>", "exec"), scope)  # noqa: S102  # from declarations
    return scope["read"]


def reader_source(cls: type[Message], version: int, *, in_slices: bool = False) -> tuple[str, dict[str, Any]]:
    """The source of a reader and the names it uses."""
    writer = _ReaderSource(cls, version, in_slices=in_slices)
    return writer.source(), writer.scope


@cache
def has_records(cls: type[Struct], version: int) -> bool:
    """Whether a version has a ``records`` field anywhere."""
    for field in cls.FIELDS:
        if version not in field.versions:
            continue
        if field.kind == "records":
            return True
        if isinstance(field.element, type) and has_records(field.element, version):
            return True
    return False


def minimal_size(cls: type[Struct], version: int, flexible: bool) -> int:
    """Bytes that a structure takes at least; 1 for one without fields."""
    size = 1 if flexible else 0
    for field in cls.FIELDS:
        if version in field.versions and not (flexible and field.tag is not None):
            size += _minimal_field_size(field, version, flexible)
    return max(size, 1)


_HELD_BYTES = {**dict.fromkeys(FIXED, 32), **dict.fromkeys(("bool", "int8", "int16"), 0)}
"""What a number takes in memory: Python has each small one once. What is not here is a text of a
few letters."""


def held_bytes(cls: type[Struct], version: int) -> int:
    """About how many bytes a structure takes as an object in a list, with short texts and
    empty lists (CPython 3.11)."""
    size = 40 + 8 * len(cls.FIELDS)
    for field in cls.FIELDS:
        if version not in field.versions:
            continue
        if field.kind == "array":
            size += 72
        elif field.kind == "struct":
            assert isinstance(field.element, type)
            size += held_bytes(field.element, version)
        else:
            size += _HELD_BYTES.get(field.kind, 56)
    return size


def _minimal_field_size(field: Field, version: int, flexible: bool) -> int:
    if field.kind in FIXED:
        return struct.calcsize(">" + FIXED[field.kind])
    if field.kind == "struct":
        assert isinstance(field.element, type)
        return 1 if version in field.nullable else minimal_size(field.element, version, flexible)
    if flexible:
        return 1
    return 2 if field.kind == "string" else 4


class _ReaderSource:
    def __init__(self, cls: type[Message], version: int, *, in_slices: bool) -> None:
        self.cls = cls
        self.version = version
        self.in_slices = in_slices
        self.flexible = version in cls.FLEXIBLE
        self.is_controllers = cls.API_KEY in _CONTROLLERS_APIS
        self.is_request = cls.API_KEY >= 0 and cls.__name__.endswith("Request")
        self.limit = 0  # elements of a request, bytes of a response; 0 is none
        if self.is_request:
            self.limit = _MAX_CLUSTER_ELEMENTS if self.is_controllers else _MAX_ELEMENTS
        elif cls.API_KEY >= 0:
            self.limit = _MAX_RESPONSE_MIB << 20
        self.scope: dict[str, Any] = {
            "new": object.__new__,
            "Malformed": MalformedMessageError,
            "Oversized": OversizedMessageError,
            "StructError": struct.error,
            "uvarint": read_uvarint,
            "skip_tagged": skip_tagged_fields,
        }
        self._lines: list[str] = []
        self._depth = 2
        # fixed-size fields that are not read yet: format character, target.
        self._run: list[tuple[str, str]] = []
        self._names = 0

    def source(self) -> str:
        views = has_records(self.cls, self.version)
        self._struct(self.cls, "m", self.cls.__name__)
        self._flush()
        what = f"{self.cls.__name__} v{self.version}"
        if views:
            prepare = " if type(data) is not memoryview: data = memoryview(data)\n"
        else:
            # Slices of bytes become text faster than those of views.
            prepare = f" if type(data) is not bytes and len(data) < {_COPY_BELOW_BYTES}: data = bytes(data)\n"
        if self.in_slices:
            prepare += " made = 0\n"
        if self.limit:
            prepare += f" left = {self.limit}\n"
        body = "\n".join(self._lines)
        return (
            f"def read(data, at):\n{prepare} end = len(data)\n try:\n{body}\n"
            f" except (StructError, IndexError): raise Malformed('{what} ends early') from None\n"
            f" except UnicodeDecodeError: raise Malformed('{what} holds text that is not UTF-8') from None\n"
            f" return m, at\n{' yield' if self.in_slices else ''}\n"
        )

    # Emitting

    def _line(self, text: str) -> None:
        self._lines.append(" " * self._depth + text)

    def _name(self, letter: str) -> str:
        self._names += 1
        return f"{letter}{self._names}"

    def _flush(self) -> None:
        if not self._run:
            return
        characters = "".join(character for character, _ in self._run)
        if characters == "B":  # a count or a tag, of which flexible versions are full
            self._line(f"{self._run[0][1]} = data[at]")
            self._line("at += 1")
            self._run = []
            return
        targets = ", ".join(target for _, target in self._run)
        format_ = packer(">" + characters)
        name = "unpack_" + characters.replace("?", "o")
        self.scope[name] = format_.unpack_from
        self._line(f"{targets}, = {name}(data, at)")
        self._line(f"at += {format_.size}")
        self._run = []

    def _fail(self, condition: str, path: str, what: str) -> None:
        self._line(f"if {condition}: raise Malformed('{path} {what} (v{self.version})')")

    # Structures

    def _struct(self, cls: type[Struct], target: str, path: str) -> None:
        self.scope[cls.__name__] = cls
        # The object must be there before the run that fills it is unpacked; a run
        # may span structures.
        self._line(f"{target} = new({cls.__name__})")
        tagged = []
        for number, field in enumerate(cls.FIELDS):
            place = f"{target}.{field.name}"
            present = self.version in field.versions
            if not present or (self.flexible and field.tag is not None):
                self._default(cls, number, field, place)
                if present:
                    tagged.append(field)
            else:
                self._field(field, place, f"{path}.{field.name}")
        if self.flexible:
            self._tagged_fields(tagged, target, path)

    def _default(self, cls: type[Struct], number: int, field: Field, place: str) -> None:
        if field.kind == "array" and field.default is not None:
            self._line(f"{place} = []")
        elif field.makes_default:
            self.scope[field.default.__name__] = field.default
            self._line(f"{place} = {field.default.__name__}()")
        elif field.default is None or isinstance(field.default, int | str):
            self._line(f"{place} = {field.default!r}")
        else:
            name = f"default_{cls.__name__}_{number}"
            self.scope[name] = field.default
            self._line(f"{place} = {name}")

    def _tagged_fields(self, fields: list[Field], target: str, path: str) -> None:
        count = self._name("n")
        self._run.append(("B", count))
        self._flush()
        self._line(f"if {count}:")
        self._depth += 1
        if not fields:
            self._line("at = skip_tagged(data, at - 1, end)")
        else:
            tag, size, stop = self._name("t"), self._name("s"), self._name("e")
            self._line(f"if {count} > 127: {count}, at = uvarint(data, at - 1)")
            self._fail(f"{count} > {MOST_TAGGED_FIELDS}", path, "has too many tagged fields")
            self._line(f"for _ in range({count}):")
            self._depth += 1
            self._line(f"{tag}, at = uvarint(data, at)")
            self._line(f"{size}, at = uvarint(data, at)")
            self._line(f"{stop} = at + {size}")
            self._fail(f"{stop} > end", path, "has a tagged field longer than the message")
            for number, field in enumerate(fields):
                self._line(f"{'el' if number else ''}if {tag} == {field.tag}:")
                self._depth += 1
                self._field(field, f"{target}.{field.name}", f"{path}.{field.name}")
                self._flush()
                self._fail(f"at != {stop}", f"{path}.{field.name}", "has another size than its tag says")
                self._depth -= 1
            self._line(f"else: at = {stop}")
            self._depth -= 1
        self._depth -= 1

    # Fields

    def _field(self, field: Field, place: str, path: str) -> None:
        nullable = self.version in field.nullable
        if field.kind in FIXED:
            self._run.append((FIXED[field.kind], place))
        elif field.kind == "struct":
            self._struct_field(field, place, path, nullable)
        elif field.kind == "array":
            self._array(field, place, path, nullable)
        else:
            self._bytes(field.kind, place, path, nullable)

    def _struct_field(self, field: Field, place: str, path: str, nullable: bool) -> None:
        assert isinstance(field.element, type)
        target = self._name("m")
        # Tagged structures have no null marker: their absence is their null.
        if not nullable or field.tag is not None:
            self._struct(field.element, target, path)
            self._line(f"{place} = {target}")
            return
        marker = self._name("n")
        self._run.append(("b", marker))
        self._flush()
        self._line(f"if {marker} < 0: {place} = None")
        self._line("else:")
        self._depth += 1
        self._struct(field.element, target, path)
        self._flush()
        self._line(f"{place} = {target}")
        self._depth -= 1

    def _length(self, path: str, nullable: bool, short: bool) -> str:
        """Read a length or count into a variable: -1 for null, which is refused
        unless ``nullable``."""
        length = self._name("n")
        if self.flexible:
            self._run.append(("B", length))
            self._flush()
            self._line(f"if {length} > 127:")
            self._depth += 1
            self._line(f"{length}, at = uvarint(data, at - 1)")
            if short:  # older versions have a length of two bytes, which limits strings
                self._fail(f"{length} > {LONGEST_STRING + 1}", path, f"is longer than {LONGEST_STRING} bytes")
            self._depth -= 1
            self._line(f"{length} -= 1")
        else:
            self._run.append(("h" if short else "i", length))
            self._flush()
        if not nullable:
            self._fail(f"{length} < 0", path, "must not be null")
        return length

    def _bytes(self, kind: str, place: str, path: str, nullable: bool) -> None:
        length = self._length(path, nullable, kind == "string")
        stop = self._name("e")
        if nullable:
            # Java's readers take any negative length for null.
            self._line(f"if {length} < 0: {place} = None")
            self._line("else:")
            self._depth += 1
        self._line(f"{stop} = at + {length}")
        self._fail(f"{stop} > end", path, "is longer than the message")
        made = {"string": "str(data[at:{}], 'utf-8')", "bytes": "bytes(data[at:{}])", "records": "data[at:{}]"}[kind]
        self._line(f"{place} = {made.format(stop)}")
        self._line(f"at = {stop}")
        if nullable:
            self._depth -= 1

    def _array(self, field: Field, place: str, path: str, nullable: bool) -> None:
        count = self._length(path, nullable, short=False)
        if nullable:
            self._line(f"if {count} < 0: {place} = None")
            self._line("else:")
            self._depth += 1
        if isinstance(field.element, type):
            self._elements(count, place, path, minimal_size(field.element, self.version, self.flexible), field)
        elif field.element in FIXED:
            self._numbers(count, place, path, FIXED[field.element])
        else:
            self._elements(count, place, path, 1 if self.flexible else 2, field)
        if nullable:
            self._depth -= 1

    def _charge(self, count: str, path: str, element_bytes: int | str) -> None:
        """Count elements before they are made: in a request each counts as one, in a
        response as ``element_bytes``."""
        if self.is_request:
            self._line(f"left -= {count}")
            self._fail("left < 0", path, f"makes the request one of more than {self.limit} elements")
        elif self.limit:
            self._line(f"left -= {count} * {element_bytes}")
            self._line(f"if left < 0: raise Oversized('more than {_MAX_RESPONSE_MIB} MiB of elements in {path}')")

    def _numbers(self, count: str, place: str, path: str, character: str) -> None:
        size = struct.calcsize(">" + character)
        name = f"numbers_{character.replace('?', 'o')}"
        if character == "16s":
            self.scope[name] = _read_uuids
        else:
            self.scope[name] = number_reader(character)
        self._fail(f"{count} * {size} > end - at", path, "counts more than the message holds")
        if not (self.is_request and self.is_controllers):
            self._charge(count, path, _NUMBER_BYTES.format(count=count))
        self._line(f"{place} = {name}(data, at, {count})")
        self._line(f"at += {count} * {size}" if size > 1 else f"at += {count}")

    def _elements(self, count: str, place: str, path: str, size: int, field: Field) -> None:
        items, item, add = self._name("a"), self._name("m"), self._name("f")
        self._fail(f"{count} * {size} > end - at", path, "counts more than the message holds")
        self._charge(count, path, held_bytes(field.element, self.version) if isinstance(field.element, type) else 64)
        self._line(f"{items} = []; {add} = {items}.append")
        self._line(f"for _ in range({count}):")
        self._depth += 1
        if isinstance(field.element, type):
            self._struct(field.element, item, f"{path}[]")
        else:
            assert field.element == "string"
            self._bytes("string", item, f"{path}[]", nullable=False)
        self._flush()
        self._line(f"{add}({item})")
        if self.in_slices:
            self._line("made += 1")
            self._line(f"if not made % {STRUCTURES_A_STEP}: yield")
        self._depth -= 1
        self._line(f"{place} = {items}")


def _read_uuids(data: Buffer, position: int, count: int) -> list[bytes]:
    return [bytes(data[start : start + 16]) for start in range(position, position + 16 * count, 16)]
