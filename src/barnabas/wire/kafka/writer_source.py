"""Compiles the writer of one version of a message: straight-line Python from the declaration.

A writer appends the pieces of a message to a list, for the caller to join or to send as they are;
runs of fixed-size fields, with the lengths and empty tag sections between them, are one pack::

    def write(m, w):
        s1 = m.name.encode()
        w(pack_ihi(m.a, len(s1) ...))

Invariants: buffers and file slices of ``records`` fields are pieces of their own, never copied. A
field that the version lacks, is not ignorable and is not at its default raises UNSUPPORTED_VERSION,
as in Apache Kafka; what cannot be encoded at all (None where null is not allowed, a number out of
range) raises ValueError.
"""

import struct
from collections.abc import Callable
from typing import Any

from barnabas.base.tasks import Task
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.primitives import number_writer, packer, uvarint
from barnabas.wire.kafka.schema import FIXED, LONGEST_STRING, STRUCTURES_A_STEP, Field, Message, Struct

__all__ = ["SlicedWriter", "Writer", "compile_sliced_writer", "compile_writer", "writer_source"]

Writer = Callable[[Any, Callable[[Any], None]], None]
SlicedWriter = Callable[[Any, Callable[[Any], None]], Task[None]]


def compile_writer(cls: type[Message], version: int) -> Writer:
    """The writer of ``version``, which `Message.VERSIONS` must hold: called with a message
    and a list's ``append``."""
    write: Writer = _compile(cls, version, in_slices=False)
    return write


def compile_sliced_writer(cls: type[Message], version: int) -> SlicedWriter:
    """The same as a generator, which yields where others may have their turn: see
    `STRUCTURES_A_STEP`."""
    write: SlicedWriter = _compile(cls, version, in_slices=True)
    return write


def _compile(cls: type[Message], version: int, *, in_slices: bool) -> Any:
    source, scope = writer_source(cls, version, in_slices=in_slices)
    exec(compile(source, f"<{cls.__name__} v{version} writer>", "exec"), scope)  # noqa: S102  # from declarations
    return scope["write"]


def writer_source(cls: type[Message], version: int, *, in_slices: bool = False) -> tuple[str, dict[str, Any]]:
    """The source of a writer and the names it uses."""
    writer = _WriterSource(cls, version, in_slices=in_slices)
    return writer.source(), writer.scope


def _lacks_field(what: str) -> KafkaError:
    return KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{what} has no field in this version of the message")


def _unencodable(what: str, error: Exception) -> ValueError:
    return ValueError(f"{what} cannot be encoded: {error}")


def _write_uuids(values: list[bytes]) -> bytes:
    if any(len(value) != 16 for value in values):
        raise ValueError("an id has 16 bytes")
    return b"".join(values)


def _text_or_none(value: str | None) -> bytes | None:
    return None if value is None else value.encode()


class _WriterSource:
    def __init__(self, cls: type[Message], version: int, *, in_slices: bool) -> None:
        self.cls = cls
        self.version = version
        self.in_slices = in_slices
        self.flexible = version in cls.FLEXIBLE
        self.scope: dict[str, Any] = {
            "uvarint": uvarint,
            "lacks_field": _lacks_field,
            "unencodable": _unencodable,
            "text": _text_or_none,
            "StructError": struct.error,
        }
        self._lines: list[str] = []
        self._depth = 2
        # fixed-size fields that are not written yet: format character, expression
        # ("" for a zero byte)
        self._run: list[tuple[str, str]] = []
        self._append = "w"
        self._names = 0

    def source(self) -> str:
        self._struct(self.cls, "m", self.cls.__name__)
        self._flush()
        what = f"{self.cls.__name__} v{self.version}"
        body = "\n".join(self._lines) or "  pass"
        prepare = " made = 0\n" if self.in_slices else ""
        return (
            f"def write(m, w):\n{prepare} try:\n{body}\n"
            f" except (StructError, AttributeError, TypeError, UnicodeEncodeError) as error:\n"
            f"  raise unencodable('{what}', error) from error\n{' if 0: yield' if self.in_slices else ''}\n"
        )

    # Emitting

    def _line(self, text: str) -> None:
        self._lines.append(" " * self._depth + text)

    def _name(self, letter: str) -> str:
        self._names += 1
        return f"{letter}{self._names}"

    def _packed(self) -> str:
        """The expression that packs the run."""
        characters = "".join(character for character, _ in self._run)
        values = [value for _, value in self._run if value]
        if not values:
            return repr(bytes(len(characters)))
        name = "pack_" + characters.replace("?", "o")
        self.scope[name] = packer(">" + characters).pack
        return f"{name}({', '.join(values)})"

    def _flush(self) -> None:
        if self._run:
            self._line(f"{self._append}({self._packed()})")
            self._run = []

    # Structures

    def _struct(self, cls: type[Struct], source: str, path: str) -> None:
        tagged = []
        for number, field in enumerate(cls.FIELDS):
            place = f"{source}.{field.name}"
            if self.version not in field.versions:
                if not field.ignorable:
                    self._line(
                        f"if {self._differs(cls, number, field, place)}: raise lacks_field('{path}.{field.name}')"
                    )
            elif self.flexible and field.tag is not None:
                tagged.append((number, field))
            else:
                self._field(field, place)
        if self.flexible:
            self._tagged_fields(cls, tagged, source)

    def _differs(self, cls: type[Struct], number: int, field: Field, place: str) -> str:
        """An expression: whether the field is not at its default."""
        if field.default is None:
            return f"{place} is not None"
        if field.kind == "array":
            return f"{place}"
        name = f"default_{cls.__name__}_{number}"
        self.scope[name] = field.default() if field.makes_default else field.default
        if field.kind == "struct":
            return f"{place} != {name}"
        return f"{place}" if not field.default and field.kind != "uuid" else f"{place} != {name}"

    def _tagged_fields(self, cls: type[Struct], fields: list[tuple[int, Field]], source: str) -> None:
        if not fields:
            self._run.append(("x", ""))
            return
        conditions = []
        for number, field in fields:
            condition = self._differs(cls, number, field, f"{source}.{field.name}")
            if field.kind == "struct":
                assert isinstance(field.element, type)
                name = f"default_{field.element.__name__}"
                self.scope[name] = field.element()
                condition = f"({condition} and {source}.{field.name} != {name})"
            conditions.append(condition)
        self._flush()
        self._line(f"if not ({' or '.join(conditions)}): {self._append}(b'\\0')")
        self._line("else:")
        self._depth += 1
        tags, pieces = self._name("t"), self._name("q")
        self._line(f"{tags} = []")
        outer = self._append
        for (_, field), condition in sorted(zip(fields, conditions, strict=True), key=lambda pair: pair[0][1].tag or 0):
            self._line(f"if {condition}:")
            self._depth += 1
            self._append = f"{pieces}.append"
            self._line(f"{pieces} = []")
            self._field(field, f"{source}.{field.name}")
            self._flush()
            self._line(f"{pieces} = b''.join({pieces})")
            self._line(f"{tags}.append(uvarint({field.tag}) + uvarint(len({pieces})) + {pieces})")
            self._depth -= 1
        self._append = outer
        self._line(f"{outer}(uvarint(len({tags})))")
        self._line(f"{outer}(b''.join({tags}))")
        self._depth -= 1

    # Fields

    def _field(self, field: Field, place: str) -> None:
        nullable = self.version in field.nullable
        if field.kind in FIXED:
            self._run.append((FIXED[field.kind], place))
        elif field.kind == "struct":
            self._struct_field(field, place, nullable)
        elif field.kind == "array":
            self._array(field, place, nullable)
        else:
            self._bytes(field.kind, place, nullable)

    def _struct_field(self, field: Field, place: str, nullable: bool) -> None:
        assert isinstance(field.element, type)
        source = self._name("m")
        self._line(f"{source} = {place}")
        if not nullable or field.tag is not None:
            self._struct(field.element, source, field.element.__name__)
            return
        self._flush()
        self._line(f"if {source} is None: {self._append}(b'\\xff')")
        self._line("else:")
        self._depth += 1
        self._line(f"{self._append}(b'\\1')")
        self._struct(field.element, source, field.element.__name__)
        self._flush()
        self._depth -= 1

    def _length(self, value: str, nullable: bool, short: bool) -> None:
        """Write the run with the length of ``value`` behind it; None is -1."""
        length = f"len({value})"
        if self.flexible:
            counted = self._name("n")
            self._line(f"{counted} = {f'0 if {value} is None else ' if nullable else ''}{length} + 1")
            before = list(self._run)
            self._run.append(("B", counted))
            self._line(f"if {counted} < 128: {self._append}({self._packed()})")
            self._line("else:")
            self._run = before
            self._depth += 1
            if short:
                too_long = f"'a string is longer than {LONGEST_STRING} bytes'"
                self._line(f"if {counted} > {LONGEST_STRING + 1}: raise StructError({too_long})")
            self._flush()
            self._line(f"{self._append}(uvarint({counted}))")
            self._depth -= 1
            self._run = []
        else:
            if nullable:
                length = f"-1 if {value} is None else {length}"
            self._run.append(("h" if short else "i", length))
            self._flush()

    def _bytes(self, kind: str, place: str, nullable: bool) -> None:
        value = self._name("s")
        if kind != "string":
            self._line(f"{value} = {place}")
        elif nullable:
            self._line(f"{value} = text({place})")
        else:
            self._line(f"{value} = {place}.encode()")
        self._length(value, nullable, kind == "string")
        self._line(f"if {value}: {self._append}({value})")

    def _array(self, field: Field, place: str, nullable: bool) -> None:
        values = self._name("a")
        self._line(f"{values} = {place}")
        self._length(values, nullable, short=False)
        self._line(f"if {values}:")
        self._depth += 1
        if isinstance(field.element, type):
            item = self._name("m")
            self._line(f"for {item} in {values}:")
            self._depth += 1
            self._struct(field.element, item, field.element.__name__)
            self._flush()
            if self.in_slices:
                self._line("made += 1")
                self._line(f"if not made % {STRUCTURES_A_STEP}: yield")
            self._depth -= 1
        elif field.element in FIXED:
            character = FIXED[field.element]
            name = f"numbers_{character.replace('?', 'o')}"
            self.scope[name] = _write_uuids if character == "16s" else number_writer(character)
            self._line(f"{self._append}({name}({values}))")
        else:
            assert field.element == "string"
            item = self._name("m")
            self._line(f"for {item} in {values}:")
            self._depth += 1
            self._bytes("string", item, nullable=False)
            self._depth -= 1
        self._depth -= 1
