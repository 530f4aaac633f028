"""Pairs of schemas of Avro."""

import itertools
import json
from collections.abc import Iterator
from typing import Any

from support.registry_pairs.pair import Pair

__all__ = ["avro_pairs"]

Schema = Any

_PRIMITIVES = ("null", "boolean", "int", "long", "float", "double", "bytes", "string")


def avro_pairs() -> list[Pair]:
    """All pairs; names are unique."""
    rows = [*_promotions(), *_containers(), *_records(), *_names(), *_enums(), *_unions(), *_recursion(), *_logical()]
    return [Pair(f"avro: {name}", "AVRO", json.dumps(reader), json.dumps(writer)) for name, reader, writer in rows]


Row = tuple[str, Schema, Schema]


def record(*fields: Schema, name: str = "R", **more: Schema) -> Schema:
    """A record."""
    return {"type": "record", "name": name, "fields": list(fields), **more}


def field(name: str, kind: Schema, **more: Schema) -> Schema:
    """A field."""
    return {"name": name, "type": kind, **more}


def enum(*symbols: str, name: str = "E", **more: Schema) -> Schema:
    """An enum."""
    return {"type": "enum", "name": name, "symbols": list(symbols), **more}


def fixed(size: int, name: str = "F", **more: Schema) -> Schema:
    """A fixed."""
    return {"type": "fixed", "name": name, "size": size, **more}


def array(items: Schema) -> Schema:
    """An array."""
    return {"type": "array", "items": items}


def mapping(values: Schema) -> Schema:
    """A map."""
    return {"type": "map", "values": values}


def _promotions() -> Iterator[Row]:
    for reader, writer in itertools.product(_PRIMITIVES, _PRIMITIVES):
        if reader != writer or reader == "int":
            yield f"{reader} reads {writer}", record(field("f", reader)), record(field("f", writer))


def _containers() -> Iterator[Row]:
    yield "array of long reads array of int", array("long"), array("int")
    yield "array of int reads array of long", array("int"), array("long")
    yield "map of long reads map of int", mapping("long"), mapping("int")
    yield "map of int reads map of string", mapping("int"), mapping("string")
    yield "array reads map", array("int"), mapping("int")
    yield "array reads its items", array("int"), "int"
    yield "items read array", "int", array("int")
    yield "nested arrays, inner differs", array(array("int")), array(array("string"))
    yield "map of arrays, inner promoted", mapping(array("double")), mapping(array("float"))
    yield "record reads map", record(), mapping("int")
    yield "map reads record", mapping("int"), record()
    yield "bytes read fixed", "bytes", fixed(4)
    yield "fixed reads bytes", fixed(4), "bytes"
    yield "string reads enum", "string", enum("A")
    yield "enum reads string", enum("A"), "string"


def _records() -> Iterator[Row]:
    one, two = field("a", "int"), field("b", "string")
    yield "field added without default", record(one, two), record(one)
    yield "field added with default", record(one, field("b", "string", default="")), record(one)
    yield "field added with null default", record(one, field("b", ["null", "int"], default=None)), record(one)
    yield "nullable field added without default", record(one, field("b", ["null", "int"])), record(one)
    yield "field removed", record(one), record(one, two)
    yield "fields in another order", record(two, one), record(one, two)
    yield "field renamed", record(field("c", "int")), record(one)
    yield "field renamed with alias", record(field("c", "int", aliases=["a"])), record(one)
    yield "field renamed with a useless alias", record(field("c", "int", aliases=["x"])), record(one)
    yield "field with second alias", record(field("c", "int", aliases=["x", "a"])), record(one)
    yield "alias and another type", record(field("c", "int", aliases=["a"])), record(field("a", "string"))
    yield "two fields added without default", record(one, two, field("c", "int")), record(one)
    yield "added and changed", record(field("a", "string"), two), record(one)
    yield "all fields removed", record(), record(one, two)
    yield "empty record of the same", record(), record()
    yield (
        "field of record, inner field added",
        record(field("r", record(one, two, name="I"))),
        record(field("r", record(one, name="I"))),
    )
    yield (
        "field of record, inner default",
        record(field("r", record(one, field("b", "int", default=1), name="I"))),
        record(field("r", record(one, name="I"))),
    )
    yield (
        "array of records, inner field added",
        record(field("r", array(record(one, two, name="I")))),
        record(field("r", array(record(one, name="I")))),
    )
    yield (
        "map of records, inner type changed",
        record(field("r", mapping(record(one, name="I")))),
        record(field("r", mapping(record(field("a", "string"), name="I")))),
    )
    yield "default of the reader and another type", record(field("a", "int", default=1)), record(field("a", "string"))
    yield "enum field added with enum default", record(one, field("e", enum("A", default="A"))), record(one)
    yield "enum field added without default", record(one, field("e", enum("A"))), record(one)
    yield "order and docs do not matter", record(field("a", "int", order="ignore", doc="x")), record(one)
    yield "error reads record", {**record(one), "type": "error"}, record(one)
    yield "record reads error", record(one), {**record(one), "type": "error"}


def _names() -> Iterator[Row]:
    one = field("a", "int")
    yield "record of another name", record(one, name="S"), record(one)
    yield "record of another name with alias", record(one, name="S", aliases=["R"]), record(one)
    yield "record of another namespace", record(one, namespace="x"), record(one, namespace="y")
    yield "alias in the namespace", record(one, name="S", namespace="x", aliases=["R"]), record(one, namespace="x")
    yield "alias in another namespace", record(one, name="S", namespace="x", aliases=["R"]), record(one, namespace="y")
    yield "alias as a full name", record(one, name="S", namespace="x", aliases=["y.R"]), record(one, namespace="y")
    yield "name with dots", record(one, name="x.R"), record(one, namespace="x")
    yield "the writer's alias does not count", record(one, name="S"), record(one, aliases=["S"])
    yield "enum of another name", record(field("e", enum("A", name="X"))), record(field("e", enum("A")))
    yield "enum alias", record(field("e", enum("A", name="X", aliases=["E"]))), record(field("e", enum("A")))
    yield (
        "enum alias inside namespace",
        record(field("e", enum("A", name="X", aliases=["E"])), namespace="n"),
        record(field("e", enum("A")), namespace="n"),
    )
    yield "fixed of another name", record(field("f", fixed(4, name="X"))), record(field("f", fixed(4)))
    yield "fixed alias", record(field("f", fixed(4, name="X", aliases=["F"]))), record(field("f", fixed(4)))
    yield "fixed of another size", record(field("f", fixed(8))), record(field("f", fixed(4)))
    yield "fixed of another name and size", record(field("f", fixed(8, name="X"))), record(field("f", fixed(4)))
    yield (
        "inner record of another name",
        record(field("r", record(one, name="I"))),
        record(field("r", record(one, name="J"))),
    )


def _enums() -> Iterator[Row]:
    yield "symbol added", enum("A", "B"), enum("A")
    yield "symbol removed", enum("A"), enum("A", "B")
    yield "two symbols removed", enum("B"), enum("C", "A", "B")
    yield "symbol removed, default", enum("A", default="A"), enum("A", "B")
    yield "symbols in another order", enum("B", "A"), enum("A", "B")
    yield "symbols replaced", enum("C"), enum("A", "B")
    yield "symbol and name changed", enum("A", name="X"), enum("A", "B")
    yield "symbol removed inside a record", record(field("e", enum("A"))), record(field("e", enum("A", "B")))
    yield "default of the writer does not count", enum("A"), enum("A", "B", default="A")


def _unions() -> Iterator[Row]:
    one, two = record(field("a", "int"), name="A"), record(field("b", "int"), name="B")
    yield "branch added", ["null", "int"], ["null"]
    yield "branch removed", ["null"], ["null", "int"]
    yield "two branches removed", ["null"], ["null", "int", "string"]
    yield "branches in another order", ["int", "null"], ["null", "int"]
    yield "type becomes a union", ["null", "int"], "int"
    yield "type becomes a union without it", ["null", "boolean"], "int"
    yield "union becomes a type", "int", ["int"]
    yield "union of two becomes a type", "int", ["null", "int"]
    yield "union of promotable becomes a type", "long", ["int", "long"]
    yield "branch promoted", ["null", "long"], ["null", "int"]
    yield "branch narrowed", ["null", "int"], ["null", "long"]
    yield "string branch reads bytes", ["null", "string"], ["null", "bytes"]
    yield "empty union reads int", [], "int"
    yield "int reads empty union", "int", []
    yield "union of records, one removed", [one], [one, two]
    yield "union of records, field added", [record(field("a", "int"), field("x", "int"), name="A"), two], [one, two]
    yield "union of records, other order", [two, one], [one, two]
    yield "record in union reads record", [one, two], two
    yield "record reads union of itself", one, [one]
    yield "record reads union with another", one, [one, two]
    yield (
        "union in a field, branch removed",
        record(field("f", ["null", "int"])),
        record(field("f", ["null", "int", "string"])),
    )
    yield "field becomes nullable", record(field("f", ["null", "int"])), record(field("f", "int"))
    yield "field becomes mandatory", record(field("f", "int")), record(field("f", ["null", "int"]))
    yield "enum in union, symbol removed", ["null", enum("A")], ["null", enum("A", "B")]
    yield "enum in union, other name", ["null", enum("A", name="X")], ["null", enum("A")]
    yield "fixed in union, other size", ["null", fixed(1)], ["null", fixed(2)]
    yield "arrays in union, items promoted", ["null", array("long")], ["null", array("int")]
    yield "arrays in union, items differ", ["null", array("int")], ["null", array("string")]
    yield "maps in union, values differ", [mapping("int"), "null"], [mapping("string"), "null"]
    yield "alias in union", [record(field("a", "int"), name="Z", aliases=["A"]), two], [one, two]
    yield "same short name, other namespace in union", [record(field("a", "int"), name="A", namespace="q")], [one]
    yield "array of unions, branch removed", array(["null", "int"]), array(["null", "int", "string"])
    yield "map of unions, branch removed", mapping(["null"]), mapping(["null", "string"])


def _recursion() -> Iterator[Row]:
    def chain(value: Schema, *more: Schema, name: str = "Node") -> Schema:
        return record(field("value", value), field("next", ["null", name]), *more, name=name)

    yield "recursive, the same", chain("int"), chain("int")
    yield "recursive, value promoted", chain("long"), chain("int")
    yield "recursive, value differs", chain("int"), chain("string")
    yield "recursive, field added", chain("int", field("x", "int")), chain("int")
    yield "recursive, field with default", chain("int", field("x", "int", default=0)), chain("int")
    yield (
        "recursive through an array",
        record(field("c", array("R"))),
        record(field("c", array("R")), field("x", "int")),
    )
    yield (
        "recursive through a map",
        record(field("c", mapping("R")), field("x", "int")),
        record(field("c", mapping("R"))),
    )
    tree = record(field("l", ["null", "T"]), field("r", ["null", "T"]), field("v", "int"), name="T")
    other = record(field("l", ["null", "T"]), field("r", ["null", "T"]), field("v", "string"), name="T")
    yield "two recursions, value differs", tree, other
    pair = record(field("b", ["null", record(field("a", ["null", "A"]), field("v", "long"), name="B")]), name="A")
    twin = record(field("b", ["null", record(field("a", ["null", "A"]), field("v", "int"), name="B")]), name="A")
    yield "mutual recursion, promoted", pair, twin
    yield "mutual recursion, narrowed", twin, pair
    used = record(field("x", record(field("a", "int"), name="I")), field("y", "I"))
    yield (
        "a type that is used twice differs",
        used,
        record(field("x", record(field("a", "string"), name="I")), field("y", "I")),
    )


def _logical() -> Iterator[Row]:
    date = {"type": "int", "logicalType": "date"}
    decimal = {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}
    yield "date reads int", date, "int"
    yield "int reads date", "int", date
    yield "decimal of another scale", {**decimal, "scale": 1}, decimal
    yield "decimal of another precision", {**decimal, "precision": 9}, decimal
    yield "timestamp reads int", {"type": "long", "logicalType": "timestamp-millis"}, "int"
    yield "uuid reads string", {"type": "string", "logicalType": "uuid"}, "string"
    yield "date reads timestamp", date, {"type": "long", "logicalType": "timestamp-millis"}
