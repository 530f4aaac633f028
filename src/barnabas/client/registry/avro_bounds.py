"""Avro values that fastavro must not be given: they would hold it for minutes, or end the process.

Two things are not bounded by the bytes of a value:

- items that have no bytes, in an array of nulls or of empty records: six bytes may say that there
  are thousands of millions;
- levels of a schema that refers to itself, one for a byte: fastavro's functions call each other in
  C until the stack is full, and the process dies with it.

So where a schema has such items or refers to itself, a value is walked through first, without
making anything of it. Other schemas cost nothing. A schema that is nested too deeply is
refused itself.

Kafka has no counterpart: Avro's Java library has limits for collections
(``org.apache.avro.limits``).
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["AvroBoundsError", "avro_bounds"]

MOST_EMPTY_ITEMS = 10_000
MOST_LEVELS = 500
_MOST_SCHEMA_LEVELS = 200
_SIZES = {"null": 0, "boolean": 1, "float": 4, "double": 8}
_NUMBERS = ("int", "long", "enum")
_TEXTS = ("bytes", "string")


class AvroBoundsError(ValueError):
    """A value or a schema is out of bounds."""


@dataclass(eq=False)
class _Node:
    """A type of a schema: how its bytes are skipped."""

    kind: str
    size: int = 0
    parts: "list[_Node]" = field(default_factory=list)


def avro_bounds(schema: Any, named: Iterable[Any] = ()) -> Callable[[bytes], None] | None:
    """What raises `AvroBoundsError` for a value of a schema, as its JSON has it.

    ``named`` are schemas whose types it may refer to, those that others refer to first. None where
    no value can be out of bounds. Raises `AvroBoundsError` for a schema of too many
    levels. Other faults of a schema are left to fastavro.
    """
    compiler = _Compiler()
    for each in named:
        compiler.node(each, "", 0)
    root = compiler.node(schema, "", 0)
    least = _LeastSizes()
    nodes = _all_nodes(root)
    try:
        sizes = [least.of(each.parts[0]) for each in nodes if each.kind == "array"]
    except RecursionError:
        raise AvroBoundsError("the types of the schema refer to each other over too many levels") from None
    is_shallow = len(nodes) <= MOST_LEVELS and not any(_leads_to(part, each) for each in nodes for part in each.parts)
    if is_shallow and all(sizes):
        return None
    return lambda value: _walk(root, value, least)


class _Compiler:
    def __init__(self) -> None:
        self._named: dict[str, _Node] = {}

    def node(self, schema: Any, space: str, level: int) -> _Node:
        """The node of a schema in a namespace.

        Names that are not known take no bytes: fastavro refuses them."""
        if level > _MOST_SCHEMA_LEVELS:
            raise AvroBoundsError(f"the schema has more than {_MOST_SCHEMA_LEVELS} levels")
        if isinstance(schema, list):
            return _Node("union", parts=[self.node(each, space, level + 1) for each in schema])
        if isinstance(schema, str):
            return self._by_name(schema, space)
        if not isinstance(schema, Mapping):
            return _Node("fixed")
        kind = schema.get("type")
        if kind in ("record", "error"):
            return self._record(schema, space, level)
        if kind == "array":
            return _Node("array", parts=[self.node(schema.get("items"), space, level + 1)])
        if kind == "map":
            return _Node("map", parts=[self.node(schema.get("values"), space, level + 1)])
        if kind in ("fixed", "enum"):
            size = schema.get("size")
            node = _Node("number") if kind == "enum" else _Node("fixed", size if isinstance(size, int) else 0)
            self._define(schema, space, node)
            return node
        return self.node(kind, space, level + 1)

    def _record(self, schema: Mapping[str, Any], space: str, level: int) -> _Node:
        node = _Node("record")
        space = self._define(schema, space, node)
        fields = schema.get("fields")
        for each in fields if isinstance(fields, list) else ():
            if isinstance(each, Mapping):
                node.parts.append(self.node(each.get("type"), space, level + 1))
        return node

    def _define(self, schema: Mapping[str, Any], space: str, node: _Node) -> str:
        """The namespace of the types that are defined within."""
        name = str(schema.get("name", ""))
        given = schema.get("namespace")
        space = name.rpartition(".")[0] or (given if isinstance(given, str) else space)
        self._named[_full_name(name, space)] = node
        return space

    def _by_name(self, name: str, space: str) -> _Node:
        if name in _SIZES:
            return _Node("fixed", _SIZES[name])
        if name in _NUMBERS or name in _TEXTS:
            return _Node("number" if name in _NUMBERS else "text")
        return self._named.get(_full_name(name, space)) or self._named.get(name) or _Node("fixed")


def _full_name(name: str, space: str) -> str:
    return name if "." in name or not space else f"{space}.{name}"


def _all_nodes(root: _Node) -> list[_Node]:
    found, left = {id(root): root}, [root]
    while left:
        for each in left.pop().parts:
            if id(each) not in found:
                found[id(each)] = each
                left.append(each)
    return list(found.values())


def _leads_to(node: _Node, goal: _Node) -> bool:
    return any(each is goal for each in _all_nodes(node))


class _LeastSizes:
    """How many bytes a value of a type has at least."""

    def __init__(self) -> None:
        self._known: dict[int, int] = {}

    def of(self, node: _Node) -> int:
        if id(node) not in self._known:
            # For use within itself: a record that holds only itself has no bytes.
            self._known[id(node)] = 0
            size = node.size if node.kind == "fixed" else 1
            self._known[id(node)] = sum(map(self.of, node.parts)) if node.kind == "record" else size
        return self._known[id(node)]


def _walk(root: _Node, value: bytes, least: _LeastSizes) -> None:
    """Skip a value.

    A value that is cut off or damaged ends the walk: fastavro says what is wrong with it."""
    at, empty = 0, 0
    left: list[tuple[_Node, int, int]] = [(root, 0, -1)]
    """Types to skip, each with its level; of arrays and maps the items that their block still
    has, -1 before the block."""
    while left:
        node, level, items = left.pop()
        if level > MOST_LEVELS:
            raise AvroBoundsError(f"it has more than {MOST_LEVELS} levels")
        if node.kind == "record":
            left.extend((each, level + 1, -1) for each in reversed(node.parts))
        elif node.kind == "fixed":
            at += node.size
        elif node.kind in ("array", "map") and items > 0:
            left.append((node, level, items - 1))
            if node.kind == "map":
                length, at = _number(value, at)
                at += max(0, length)
            left.append((node.parts[0], level + 1, -1))
        else:
            number, at = _number(value, at)
            if node.kind == "text":
                at += max(0, number)
            elif node.kind == "union":
                if not 0 <= number < len(node.parts):
                    return
                left.append((node.parts[number], level + 1, -1))
            elif node.kind in ("array", "map") and number:
                if number < 0:
                    _, at = _number(value, at)  # the block's size in bytes
                empty += 0 if node.kind == "map" or least.of(node.parts[0]) else abs(number)
                if empty > MOST_EMPTY_ITEMS:
                    raise AvroBoundsError(f"it has more than {MOST_EMPTY_ITEMS:,} items without bytes")
                left.append((node, level, abs(number)))
        if at > len(value):
            return
    return


def _number(value: bytes, at: int) -> tuple[int, int]:
    """A number of variable length and where it ends; behind the value where it is cut off."""
    number, shift = 0, 0
    while at < len(value):
        byte = value[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
        shift += 7
        if shift > 63:
            break
    return 0, len(value) + 1
