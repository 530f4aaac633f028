"""Reads and writes jute, ZooKeeper's serialisation, for record classes declared as
dataclasses or named tuples.

In ZooKeeper: BinaryInputArchive and BinaryOutputArchive.

A record is its fields one after the other, big-endian, without names or tags:

    Int        4 bytes                      Long       8 bytes                   bool   1 byte
    str        Int length, UTF-8            bytes      Int length, bytes         record its fields
    list[T]    Int count, the elements

``str | None``, ``bytes | None`` and ``list[T] | None`` also take the length -1, jute's null.

At a class's first use its declaration is turned into straight-line Python: neighbouring numbers
share one struct, and nothing is looked up per field. Every length and count is compared with the
remaining bytes before it is used, and raises `MalformedRecordError` if it does not fit; so hostile
bytes never cost more memory than their own size.
"""

import struct
import types
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple, TypeVar, Union, get_args, get_origin

from barnabas.base.errors import CorruptDataError
from barnabas.base.files import Buffer

__all__ = [
    "Int",
    "Long",
    "MalformedRecordError",
    "Usual",
    "decode",
    "decode_from",
    "encode",
    "encode_into",
    "reader",
    "writer",
]

Int = Annotated[int, "i"]
Long = Annotated[int, "q"]


class Usual(NamedTuple):
    """Annotates a list with the value that it nearly always has, which is then read
    and written as one piece."""

    value: list[Any]


R = TypeVar("R")
Reader = Callable[[bytes, int], tuple[R, int]]
"""``read(data, offset) -> (record, offset after it)``."""
Writer = Callable[[bytearray, R], None]
"""``write(out, record)`` appends the record's bytes."""


class MalformedRecordError(CorruptDataError):
    """Bytes that are not such a record: too few, an impossible length, text that is not UTF-8."""


_readers: dict[type, Reader[Any]] = {}
_writers: dict[type, Writer[Any]] = {}


def decode(record_type: type[R], data: Buffer, offset: int = 0) -> R:
    """The record at ``offset``; bytes after it are ignored. Raises `MalformedRecordError`."""
    return decode_from(record_type, data, offset)[0]


def decode_from(record_type: type[R], data: Buffer, offset: int = 0) -> tuple[R, int]:
    """The record at ``offset`` and the offset after it. Raises `MalformedRecordError`."""
    read = _readers.get(record_type) or reader(record_type)
    try:
        return read(data if type(data) is bytes else bytes(data), offset)
    except (struct.error, UnicodeDecodeError, IndexError) as error:
        raise MalformedRecordError(f"{record_type.__name__} at byte {offset}: {error}") from None


def encode(record: object) -> bytearray:
    """The record's bytes."""
    out = bytearray()
    encode_into(out, record)
    return out


def encode_into(out: bytearray, record: object) -> None:
    """Append the record's bytes to ``out``."""
    (_writers.get(type(record)) or writer(type(record)))(out, record)


def reader(record_type: type[R]) -> Reader[R]:
    """The compiled reader of a class, for hot loops.

    It may raise struct.error and ValueError for short bytes."""
    compiled = _readers.get(record_type)
    if compiled is None:
        compiled = _readers[record_type] = _compile_reader(record_type)
    return compiled


def writer(record_type: type[R]) -> Writer[R]:
    """The compiled writer of a class, for hot loops."""
    compiled = _writers.get(record_type)
    if compiled is None:
        compiled = _writers[record_type] = _compile_writer(record_type)
    return compiled


# Types of fields


class _Field(NamedTuple):
    name: str
    kind: str  # a struct letter, or "str", "bytes", "list", "record"
    nullable: bool
    item: Any  # of a list: its element's field; of a record: its class
    usual: list[Any] | None = None  # of a list


def _field(name: str, hint: Any) -> _Field:
    nullable = False
    if get_origin(hint) is Annotated and isinstance(usual := get_args(hint)[1], Usual):
        return _field(name, get_args(hint)[0])._replace(usual=usual.value)
    if get_origin(hint) in (Union, types.UnionType):
        (hint,) = (part for part in get_args(hint) if part is not type(None))
        nullable = True
    if get_origin(hint) is Annotated:
        return _Field(name, get_args(hint)[1], nullable, None)
    if get_origin(hint) is list:
        return _Field(name, "list", nullable, _field("item", get_args(hint)[0]))
    if hint is bool:
        return _Field(name, "?", nullable, None)
    if hint in (str, bytes):
        return _Field(name, hint.__name__, nullable, None)
    return _Field(name, "record", nullable, hint)


def _fields(record_type: type) -> list[_Field]:
    return [_field(name, hint) for name, hint in record_type.__annotations__.items()]


def _least_bytes(field: _Field) -> int:
    """The fewest bytes that such a field can take; they bound the count of a list."""
    if len(field.kind) == 1:
        return struct.calcsize(">" + field.kind)
    if field.kind == "record":
        return max(1, sum(map(_least_bytes, _fields(field.item))))
    return 4


# Readers


def _taken(data: bytes, offset: int, size: int) -> bytes:
    """Raise the error for a length that is negative, or above the number of remaining bytes."""
    raise MalformedRecordError(f"a length of {size} at byte {offset - 4}, {len(data) - offset} bytes are left")


class _Source:
    """The text of a function under construction, with the values of its names."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        number = struct.Struct(">i")
        self.names: dict[str, Any] = {"_int": number.unpack_from, "_taken": _taken}
        self.names |= {"_pack": number.pack, "_null": b"\xff\xff\xff\xff"}

    def name(self, prefix: str, value: Any) -> str:
        name = f"{prefix}{len(self.names)}"
        self.names[name] = value
        return name

    def compile(self, header: str, record_type: type) -> Any:
        text = "\n".join([header, *("    " + line for line in self.lines)])
        exec(compile(text, f"<jute {record_type.__name__}>", "exec"), self.names)  # noqa: S102  # our declarations
        return self.names["run"]


def _compile_reader(record_type: type) -> Reader[Any]:
    source = _Source()
    fields = _fields(record_type)
    at = 0
    while at < len(fields):
        field = fields[at]
        if len(field.kind) > 1:
            _read_variable(source, field, f"_{field.name}", "")
            at += 1
            continue
        run = [field]
        while at + len(run) < len(fields) and len(fields[at + len(run)].kind) == 1:
            run.append(fields[at + len(run)])
        numbers = struct.Struct(">" + "".join(each.kind for each in run))
        targets = ", ".join(f"_{each.name}" for each in run)
        source.lines.append(f"({targets},) = {source.name('_unpack', numbers.unpack_from)}(data, offset)")
        source.lines.append(f"offset += {numbers.size}")
        at += len(run)
    arguments = ", ".join(f"_{field.name}" for field in fields)
    source.lines.append(f"return {source.name('_type', record_type)}({arguments}), offset")
    reads: Reader[Any] = source.compile("def run(data, offset):", record_type)
    return reads


def _read_variable(source: _Source, field: _Field, target: str, indent: str) -> None:
    """Lines that read a field of no fixed size into ``target``."""

    def line(text: str) -> None:
        source.lines.append(indent + text)

    if field.kind == "record":
        line(f"{target}, offset = {source.name('_read', reader(field.item))}(data, offset)")
        return
    if field.usual is not None:
        as_bytes = _usual_bytes(field)
        line(f"if data.startswith({source.name('_usual', as_bytes)}, offset):")
        line(f"    {target} = {source.name('_value', field.usual)}.copy()")
        line(f"    offset += {len(as_bytes)}")
        line("else:")
        indent += "    "
    line("(size,) = _int(data, offset)")
    line("offset += 4")
    if field.nullable:
        line("if size == -1:")
        line(f"    {target} = None")
        line("else:")
        indent += "    "
    if field.kind == "list":
        _read_list(source, field.item, target, indent)
        return
    line("end = offset + size")
    line("if size < 0 or end > len(data): _taken(data, offset, size)")
    line(f"{target} = data[offset:end]{'.decode()' if field.kind == 'str' else ''}")
    line("offset = end")


def _usual_bytes(field: _Field) -> bytes:
    """The bytes of a list's usual value."""
    source = _Source()
    _write_variable(source, field._replace(usual=None), "record", "")
    source.lines.append("return None")
    out = bytearray()
    source.compile("def run(out, record):", list)(out, field.usual)
    return bytes(out)


def _read_list(source: _Source, item: _Field, target: str, indent: str) -> None:
    def line(text: str) -> None:
        source.lines.append(indent + text)

    line(f"if size < 0 or size > (len(data) - offset) // {_least_bytes(item)}: _taken(data, offset, size)")
    line(f"{target} = []")
    line("for _ in range(size):")
    if len(item.kind) == 1:
        number = struct.Struct(">" + item.kind)
        line(f"    (item,) = {source.name('_unpack', number.unpack_from)}(data, offset)")
        line(f"    offset += {number.size}")
    else:
        _read_variable(source, item, "item", indent + "    ")
    line(f"    {target}.append(item)")


# Writers


def _compile_writer(record_type: type) -> Writer[Any]:
    source = _Source()
    fields = _fields(record_type)
    at = 0
    while at < len(fields):
        field = fields[at]
        if len(field.kind) > 1:
            _write_variable(source, field, f"record.{field.name}", "")
            at += 1
            continue
        run = [field]
        while at + len(run) < len(fields) and len(fields[at + len(run)].kind) == 1:
            run.append(fields[at + len(run)])
        numbers = struct.Struct(">" + "".join(each.kind for each in run))
        values = ", ".join(f"record.{each.name}" for each in run)
        source.lines.append(f"out += {source.name('_pack', numbers.pack)}({values})")
        at += len(run)
    source.lines.append("return None")
    writes: Writer[Any] = source.compile("def run(out, record):", record_type)
    return writes


def _write_variable(source: _Source, field: _Field, value: str, indent: str) -> None:
    """Lines that write a field of no fixed size."""

    def line(text: str) -> None:
        source.lines.append(indent + text)

    if field.kind == "record":
        line(f"{source.name('_write', writer(field.item))}(out, {value})")
        return
    if field.usual is not None:
        line(f"if {value} == {source.name('_value', field.usual)}:")
        line(f"    out += {source.name('_usual', _usual_bytes(field))}")
        line("else:")
        indent += "    "
    if field.nullable:
        line(f"if {value} is None:")
        line("    out += _null")
        line("else:")
        indent += "    "
    if field.kind == "list":
        line(f"out += _pack(len({value}))")
        line(f"for item in {value}:")
        if len(field.item.kind) == 1:
            line(f"    out += {source.name('_pack', struct.Struct('>' + field.item.kind).pack)}(item)")
        else:
            _write_variable(source, field.item, "item", indent + "    ")
        return
    if field.kind == "str":
        line(f"raw = {value}.encode()")
        value = "raw"
    line(f"out += _pack(len({value}))")
    line(f"out += {value}")
