"""Pairs of JSON Schemas."""

import json
from collections.abc import Iterator
from typing import Any

from support.registry_pairs.json_rulings import RULINGS
from support.registry_pairs.pair import Pair

__all__ = ["json_pairs"]

Schema = Any
Row = tuple[str, Schema, Schema]

_DRAFT_4 = "http://json-schema.org/draft-04/schema#"
_DRAFT_7 = "http://json-schema.org/draft-07/schema#"
INT, STRING, NUMBER = {"type": "integer"}, {"type": "string"}, {"type": "number"}


def json_pairs() -> list[Pair]:
    """All pairs; names are unique."""
    rows = [
        *_types(),
        *_limits(),
        *_properties(),
        *_content_models(),
        *_arrays(),
        *_enums(),
        *_combined(),
        *_references(),
    ]
    return [Pair(f"json: {n}", "JSON", _text(read), _text(written), RULINGS.get(n)) for n, read, written in rows]


def _text(schema: Schema) -> str:
    """The text of a schema; Apicurio knows one by the draft that it names."""
    return json.dumps({"$schema": _DRAFT_7, **schema})


def closed(required: tuple[str, ...] = (), **properties: Schema) -> Schema:
    """An object that takes no other properties."""
    return {**opened(required, **properties), "additionalProperties": False}


def opened(required: tuple[str, ...] = (), **properties: Schema) -> Schema:
    """An object that takes any other properties."""
    more = {"required": list(required)} if required else {}
    return {"$schema": _DRAFT_7, "type": "object", "properties": properties, **more}


def partly(rest: Schema, **properties: Schema) -> Schema:
    """An object whose other properties fit a schema."""
    return {**opened(**properties), "additionalProperties": rest}


def _types() -> Iterator[Row]:
    yield "string, the same", STRING, STRING
    yield "string reads integer", STRING, INT
    yield "number reads integer", NUMBER, INT
    yield "integer reads number", INT, NUMBER
    yield "two types read one", {"type": ["string", "null"]}, STRING
    yield "one type reads two", STRING, {"type": ["string", "null"]}
    yield "two types in another order", {"type": ["null", "string"]}, {"type": ["string", "null"]}
    yield "three types read two", {"type": ["null", "string", "integer"]}, {"type": ["string", "null"]}
    yield "object reads array", {"type": "object"}, {"type": "array"}
    yield "boolean reads null", {"type": "boolean"}, {"type": "null"}
    yield "anything reads string", {}, STRING
    yield "string reads anything", STRING, {}
    yield "titles do not matter", {**STRING, "title": "a", "description": "b"}, STRING
    yield "a default does not matter", {**STRING, "default": "a"}, STRING


def _limits() -> Iterator[Row]:
    for kind, upper, lower in (
        (STRING, "maxLength", "minLength"),
        (INT, "maximum", "minimum"),
        (NUMBER, "exclusiveMaximum", "exclusiveMinimum"),
        ({"type": "array"}, "maxItems", "minItems"),
        ({"type": "object"}, "maxProperties", "minProperties"),
    ):
        yield f"{upper} added", {**kind, upper: 5}, kind
        yield f"{upper} removed", kind, {**kind, upper: 5}
        yield f"{upper} increased", {**kind, upper: 6}, {**kind, upper: 5}
        yield f"{upper} decreased", {**kind, upper: 4}, {**kind, upper: 5}
        yield f"{lower} added", {**kind, lower: 2}, kind
        yield f"{lower} removed", kind, {**kind, lower: 2}
        yield f"{lower} increased", {**kind, lower: 3}, {**kind, lower: 2}
        yield f"{lower} decreased", {**kind, lower: 1}, {**kind, lower: 2}
    yield "pattern added", {**STRING, "pattern": "a"}, STRING
    yield "pattern removed", STRING, {**STRING, "pattern": "a"}
    yield "pattern changed", {**STRING, "pattern": "b"}, {**STRING, "pattern": "a"}
    yield "multipleOf added", {**INT, "multipleOf": 2}, INT
    yield "multipleOf removed", INT, {**INT, "multipleOf": 2}
    yield "multipleOf doubled", {**INT, "multipleOf": 4}, {**INT, "multipleOf": 2}
    yield "multipleOf halved", {**INT, "multipleOf": 2}, {**INT, "multipleOf": 4}
    yield "multipleOf changed", {**INT, "multipleOf": 3}, {**INT, "multipleOf": 2}
    yield "uniqueItems added", {"type": "array", "uniqueItems": True}, {"type": "array"}
    yield "uniqueItems removed", {"type": "array"}, {"type": "array", "uniqueItems": True}


def _properties() -> Iterator[Row]:
    yield "type of a property changes", opened(a=INT), opened(a=STRING)
    yield "property promoted", opened(a=NUMBER), opened(a=INT)
    yield "property becomes required", opened(("a",), a=INT), opened(a=INT)
    yield "property becomes required with a default", opened(("a",), a={**INT, "default": 1}), opened(a=INT)
    yield "property is no longer required", opened(a=INT), opened(("a",), a=INT)
    yield "properties in another order", opened(b=INT, a=STRING), opened(a=STRING, b=INT)
    yield "inner property changes", opened(a=closed(x=INT)), opened(a=closed(x=STRING))
    yield "inner property added", opened(a=closed(x=INT, y=INT)), opened(a=closed(x=INT))
    base = {"type": "object", "properties": {"a": INT, "b": INT}}
    yield "dependency added", {**base, "dependencies": {"a": ["b"]}}, base
    yield "dependency removed", base, {**base, "dependencies": {"a": ["b"]}}
    yield "dependency extended", {**base, "dependencies": {"a": ["b", "c"]}}, {**base, "dependencies": {"a": ["b"]}}
    yield "dependency narrowed", {**base, "dependencies": {"a": ["b"]}}, {**base, "dependencies": {"a": ["b", "c"]}}
    yield "dependency on a schema added", {**base, "dependencies": {"a": {"required": ["b"]}}}, base
    yield "dependency on a schema removed", base, {**base, "dependencies": {"a": {"required": ["b"]}}}


def _content_models() -> Iterator[Row]:
    one = {"a": STRING}
    yield "optional property added to open", opened(**one, b=INT), opened(**one)
    yield "required property added to open", opened(("b",), **one, b=INT), opened(**one)
    yield "property that takes anything added to open", opened(**one, b={}), opened(**one)
    yield "optional property added to closed", closed(**one, b=INT), closed(**one)
    yield "required property added to closed", closed(("b",), **one, b=INT), closed(**one)
    yield (
        "required property with a default added to closed",
        closed(("b",), **one, b={**INT, "default": 0}),
        closed(**one),
    )
    yield "property removed from open", opened(**one), opened(**one, b=INT)
    yield "property removed from closed", closed(**one), closed(**one, b=INT)
    yield "property that takes nothing removed from closed", closed(**one), closed(**one, b=False)
    yield "closed becomes open", opened(**one), closed(**one)
    yield "open becomes closed", closed(**one), opened(**one)
    yield "partly open becomes open", opened(**one), partly(STRING, **one)
    yield "open becomes partly open", partly(STRING, **one), opened(**one)
    yield "closed becomes partly open", partly(STRING, **one), closed(**one)
    yield "partly open becomes closed", closed(**one), partly(STRING, **one)
    yield "what is partly open changes", partly(INT, **one), partly(STRING, **one)
    yield "covered property added to partly open", partly(STRING, **one, b=STRING), partly(STRING, **one)
    yield "uncovered property added to partly open", partly(STRING, **one, b=INT), partly(STRING, **one)
    yield "covered property removed from partly open", partly(STRING, **one), partly(STRING, **one, b=STRING)
    yield "uncovered property removed from partly open", partly(STRING, **one), partly(STRING, **one, b=INT)
    patterned = {**closed(**one), "patternProperties": {"^s_": STRING}}
    yield "property that fits a pattern added", {**patterned, "properties": {**one, "s_x": STRING}}, patterned
    yield "property of another type than its pattern added", {**patterned, "properties": {**one, "s_x": INT}}, patterned
    yield "property that fits a pattern removed", patterned, {**patterned, "properties": {**one, "s_x": STRING}}


def _arrays() -> Iterator[Row]:
    def array(items: Schema, **more: Schema) -> Schema:
        return {"type": "array", "items": items, **more}

    yield "items promoted", array(NUMBER), array(INT)
    yield "items change", array(INT), array(STRING)
    yield "items added", array(INT), {"type": "array"}
    yield "items removed", {"type": "array"}, array(INT)
    yield "first items, the same", array([INT, STRING]), array([INT, STRING])
    yield "item of a place changes", array([INT, INT]), array([INT, STRING])
    yield "item added to open", array([INT, STRING]), array([INT])
    yield "item removed from open", array([INT]), array([INT, STRING])
    yield "item added to closed", array([INT, STRING], additionalItems=False), array([INT], additionalItems=False)
    yield "item removed from closed", array([INT], additionalItems=False), array([INT, STRING], additionalItems=False)
    yield "other items no longer allowed", array([INT], additionalItems=False), array([INT])
    yield "other items allowed", array([INT]), array([INT], additionalItems=False)
    yield "other items narrowed", array([INT], additionalItems=INT), array([INT])
    yield "array of objects, property added to closed", array(closed(a=INT, b=INT)), array(closed(a=INT))


def _enums() -> Iterator[Row]:
    yield "value added", {"enum": ["a", "b"]}, {"enum": ["a"]}
    yield "value removed", {"enum": ["a"]}, {"enum": ["a", "b"]}
    yield "value replaced", {"enum": ["b"]}, {"enum": ["a"]}
    yield "values in another order", {"enum": ["b", "a"]}, {"enum": ["a", "b"]}
    yield "value added beside a type", {**STRING, "enum": ["a", "b"]}, {**STRING, "enum": ["a"]}
    yield "value removed beside a type", {**STRING, "enum": ["a"]}, {**STRING, "enum": ["a", "b"]}
    yield "enum becomes a string", STRING, {**STRING, "enum": ["a"]}
    yield "string becomes an enum", {**STRING, "enum": ["a"]}, STRING
    yield "const changes", {"const": 1}, {"const": 2}
    yield "const, the same", {"const": 1}, {"const": 1}
    yield "const becomes an enum", {"enum": [1, 2]}, {"const": 1}


def _combined() -> Iterator[Row]:
    for criterion in ("oneOf", "anyOf"):
        yield f"{criterion} extended", {criterion: [STRING, INT]}, {criterion: [STRING]}
        yield f"{criterion} narrowed", {criterion: [STRING]}, {criterion: [STRING, INT]}
        yield f"{criterion} in another order", {criterion: [INT, STRING]}, {criterion: [STRING, INT]}
        yield (
            f"{criterion} with a part that changes",
            {criterion: [STRING, INT]},
            {criterion: [STRING, {"type": "null"}]},
        )
        yield f"{criterion} with a part that is promoted", {criterion: [STRING, NUMBER]}, {criterion: [STRING, INT]}
        yield f"string becomes {criterion} with it", {criterion: [STRING, INT]}, STRING
        yield f"string becomes {criterion} without it", {criterion: [{"type": "null"}, INT]}, STRING
        yield f"{criterion} becomes a string", STRING, {criterion: [STRING, INT]}
    short, long = {**STRING, "maxLength": 9}, {**STRING, "minLength": 1}
    yield "allOf extended", {"allOf": [short, long]}, {"allOf": [short]}
    yield "allOf narrowed", {"allOf": [short]}, {"allOf": [short, long]}
    yield "allOf with a part that changes", {"allOf": [short, {**STRING, "minLength": 3}]}, {"allOf": [short, long]}
    yield "allOf becomes one of its parts", short, {"allOf": [short, long]}
    yield "a part becomes allOf", {"allOf": [short, long]}, short
    yield "oneOf becomes anyOf", {"anyOf": [STRING, INT]}, {"oneOf": [STRING, INT]}
    yield "anyOf becomes oneOf", {"oneOf": [STRING, INT]}, {"anyOf": [STRING, INT]}
    yield "allOf becomes anyOf", {"anyOf": [short, long]}, {"allOf": [short, long]}
    yield "anyOf becomes allOf", {"allOf": [short, long]}, {"anyOf": [short, long]}
    yield "not, the same", {"not": STRING}, {"not": STRING}
    yield "not forbids less", {"not": short}, {"not": STRING}
    yield "not forbids more", {"not": STRING}, {"not": short}


def _references() -> Iterator[Row]:
    def tree(value: Schema) -> Schema:
        node = closed(value=value, next={"$ref": "#/definitions/node"})
        del node["$schema"]
        return {"$schema": _DRAFT_7, "$ref": "#/definitions/node", "definitions": {"node": node}}

    def defined(value: Schema) -> Schema:
        return {**opened(a={"$ref": "#/definitions/v"}), "definitions": {"v": value}}

    yield "recursive, the same", tree(INT), tree(INT)
    yield "recursive, value promoted", tree(NUMBER), tree(INT)
    yield "recursive, value changes", tree(STRING), tree(INT)
    yield "definition promoted", defined(NUMBER), defined(INT)
    yield "definition changes", defined(STRING), defined(INT)
    yield "definition in place of its use", defined(INT), opened(a=INT)
    old = {"$schema": _DRAFT_4, "type": "object", "properties": {"a": INT}}
    yield "draft 4, type of a property changes", {**old, "properties": {"a": STRING}}, old
    yield "draft 4 becomes draft 7", {**old, "$schema": _DRAFT_7}, old
