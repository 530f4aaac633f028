"""Avro values between bytes and the JSON of Avro's specification.

A value of a union other than null is an object with the name of its branch. Bytes say which branch
that is; a value that has been read does not, because an int of ``["int", "long"]`` is as good a
long. So bytes are read here and not by fastavro.

Schemas are as fastavro's ``parse_schema`` returns them, without logical types, and ``named`` are
those that they refer to by name.

In Confluent's proxy: AvroConverter.
"""

import json
import struct
from collections.abc import Callable, Iterator, Mapping
from typing import Any

__all__ = ["avro_to_json", "json_to_avro"]

_PRIMITIVES: dict[str, tuple[type, ...]] = {
    "boolean": (bool,),
    "int": (int,),
    "long": (int,),
    "float": (int, float),
    "double": (int, float),
    "string": (str,),
}
_WHOLE_NUMBERS = {"int": 1 << 31, "long": 1 << 63}
"""The first number that is too large; fastavro writes larger ones than a reader takes."""


def _branch_name(branch: Any) -> str:
    if isinstance(branch, dict):
        return str(branch.get("name", branch["type"]))
    return str(branch)


# From bytes


def avro_to_json(schema: Any, data: bytes, named: Mapping[str, Any]) -> Any:
    """The JSON of all of the bytes. Raises ValueError; the blocks of arrays and maps must have been
    checked by `avro_bounds`."""
    reader = _Reader(data, named)
    value = reader.value(schema)
    if reader.at < len(data):
        raise ValueError("there are bytes behind the value")
    return value


class _Reader:
    """Reads values from the front of bytes."""

    __slots__ = ("_data", "_named", "at")

    def __init__(self, data: bytes, named: Mapping[str, Any]) -> None:
        self._data = data
        self._named = named
        self.at = 0

    def value(self, schema: Any) -> Any:
        """The next value."""
        if isinstance(schema, list):
            return self._union(schema)
        kind = schema["type"] if isinstance(schema, dict) else schema
        if isinstance(kind, dict | list):
            return self.value(kind)
        read = _READS.get(kind)
        if read is not None:
            return read(self)
        match kind:
            case "fixed":
                return self._take(schema["size"]).decode("latin-1")
            case "enum":
                return _at(schema["symbols"], self.whole("int"), "symbol")
            case "array":
                return [self.value(schema["items"]) for _ in self._blocks()]
            case "map":
                return {self.string(): self.value(schema["values"]) for _ in self._blocks()}
            case "record" | "error":
                return {field["name"]: self.value(field["type"]) for field in schema["fields"]}
            case _:
                return self.value(self._named[kind])

    def _union(self, branches: list[Any]) -> Any:
        branch = _at(branches, self.whole("int"), "branch")
        value = self.value(branch)
        return value if _branch_name(branch) == "null" else {_branch_name(branch): value}

    def _blocks(self) -> Iterator[None]:
        """Once for each item of an array or a map."""
        while count := self.whole("long"):
            if count < 0:
                self.whole("long")  # the bytes of the block
            for _ in range(abs(count)):
                yield None

    def _take(self, size: int) -> bytes:
        taken = self._data[self.at : self.at + size]
        if size < 0 or len(taken) < size:
            raise ValueError("the bytes end within the value")
        self.at += size
        return taken

    def whole(self, kind: str) -> int:
        """An int or a long: seven bits in a byte, the lowest first; the lowest bit is the sign."""
        found = shift = 0
        while True:
            (byte,) = self._take(1)
            found |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                break
            if shift >= 70:
                raise ValueError(f"a number has more bytes than a {kind}")
        if found >= 2 * _WHOLE_NUMBERS[kind]:
            raise ValueError(f"a number is too large for the type {kind}")
        return (found >> 1) ^ -(found & 1)

    def number(self, layout: str, size: int) -> float:
        """A float or a double."""
        (found,) = struct.unpack(layout, self._take(size))
        return float(found)

    def boolean(self) -> bool:
        """One byte."""
        return self._take(1) != b"\0"

    def bytes_text(self) -> str:
        """Bytes, each as the character of its number."""
        return self._take(self.whole("long")).decode("latin-1")

    def string(self) -> str:
        """Text in UTF-8."""
        return self._take(self.whole("long")).decode()


_READS: Mapping[str, Callable[[_Reader], Any]] = {
    "null": lambda reader: None,  # noqa: ARG005
    "boolean": _Reader.boolean,
    "int": lambda reader: reader.whole("int"),
    "long": lambda reader: reader.whole("long"),
    "float": lambda reader: reader.number("<f", 4),
    "double": lambda reader: reader.number("<d", 8),
    "bytes": _Reader.bytes_text,
    "string": _Reader.string,
}


def _at(choices: list[Any], index: int, what: str) -> Any:
    if not 0 <= index < len(choices):
        raise ValueError(f"there is no {what} {index}: the schema has {len(choices)}")
    return choices[index]


# From JSON


def json_to_avro(schema: Any, data: Any, named: Mapping[str, Any]) -> Any:
    """The value that fastavro writes; a value of a named branch of a union has its name."""
    if isinstance(schema, list):
        return _from_union(schema, data, named)
    kind = schema["type"] if isinstance(schema, dict) else schema
    if isinstance(kind, dict | list):
        return json_to_avro(kind, data, named)
    if kind == "null":
        return _expect(data, data is None, kind)
    if kind in _PRIMITIVES:
        is_right = isinstance(data, _PRIMITIVES[kind]) and (kind == "boolean" or not isinstance(data, bool))
        if is_right and kind in _WHOLE_NUMBERS:
            is_right = -_WHOLE_NUMBERS[kind] <= data < _WHOLE_NUMBERS[kind]
        elif is_right and kind == "float":
            struct.pack("<f", data)  # a number that is too large is an error of it
        return _expect(data, is_right, kind)
    if kind in ("bytes", "fixed"):
        return _expect(data, isinstance(data, str), kind).encode("latin-1")
    if kind == "enum":
        return _expect(data, data in schema["symbols"], "enum")
    if kind == "array":
        return [json_to_avro(schema["items"], each, named) for each in _expect(data, isinstance(data, list), "array")]
    if kind == "map":
        given = _expect(data, isinstance(data, dict), "map")
        return {name: json_to_avro(schema["values"], each, named) for name, each in given.items()}
    if kind in ("record", "error"):
        return _from_record(schema, data, named)
    return json_to_avro(named[kind], data, named)


def _from_record(schema: Mapping[str, Any], data: Any, named: Mapping[str, Any]) -> dict[str, Any]:
    given = _expect(data, isinstance(data, dict), f"record {schema['name']}")
    fields = {field["name"]: field for field in schema["fields"]}
    if unknown := given.keys() - fields.keys():
        raise ValueError(f"{schema['name']} has no field {min(unknown)}")
    if missing := [name for name in fields if name not in given]:
        raise ValueError(f"{schema['name']}: the field {missing[0]} is missing")
    return {name: json_to_avro(field["type"], given[name], named) for name, field in fields.items()}


def _from_union(branches: list[Any], data: Any, named: Mapping[str, Any]) -> Any:
    names = [_branch_name(branch) for branch in branches]
    if data is None:
        return _expect(None, "null" in names, f"union of {', '.join(names)}")
    if not isinstance(data, dict) or len(data) != 1 or next(iter(data)) not in names:
        raise ValueError(f'a value of a union is null or an object such as {{"{names[-1]}": ...}}')
    ((name, value),) = data.items()
    branch = branches[names.index(name)]
    made = json_to_avro(branch, value, named)
    # Without its name fastavro would take the first branch that can hold the value.
    return (name, made) if isinstance(branch, str) or "name" in branch else made


def _expect(data: Any, is_right: bool, what: str) -> Any:
    if not is_right:
        raise ValueError(f"a value of type {what} is expected, not {json.dumps(data)[:100]}")
    return data
