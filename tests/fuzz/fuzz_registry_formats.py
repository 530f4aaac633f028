"""Damages schemas of the registry. Whatever comes of it is a schema or an InvalidSchemaError, and
a schema's text is a schema that says the same."""

import base64
import json
from random import Random
from typing import Any

from google.protobuf import struct_pb2, type_pb2

from barnabas.registry.formats.parsing import parse_schema
from barnabas.registry.formats.schema import InvalidSchemaError, SchemaType
from support.registry_pairs.table import all_pairs

__all__ = ["fuzz"]

_TEXTS = [(SchemaType(pair.schema_type), pair.reader) for pair in all_pairs()]
_DESCRIPTORS = [module.DESCRIPTOR.serialized_pb for module in (struct_pb2, type_pb2)]
_WORDS = [
    *[
        "{",
        "}",
        "[",
        "]",
        "(",
        ")",
        "<",
        ">",
        '"',
        ":",
        ",",
        ";",
        "=",
        ".",
        "..",
        "null",
        "true",
        "1e9",
        "-1",
        "0",
        '"$ref"',
        '"#"',
        '"type"',
        '""',
        '"items"',
        '"properties"',
        '"allOf"',
    ],
    *[
        '"enum"',
        '"default"',
        '"aliases"',
        '"name"',
        '"namespace"',
        '"$id"',
        '"http://["',
        '"dependencies"',
        '"\\ud800"',
        "message",
        "oneof",
    ],
    *[
        "group",
        "map<",
        "extend",
        "reserved",
        "to",
        "max",
        "option",
        "import",
        "public",
        "package",
        "syntax",
        "rpc",
        "stream",
        "service",
        "extensions",
    ],
    "9" * 30,
]
_VALUES: list[Any] = [
    *(None, True, False, 0, -1, 1.5, "", "x", "int", "#", 10**30, [], {}, ["int"], [{}], {"a": {}}, {"a": 1}),
    *({"type": "int"}, {"$ref": "#"}, {"$ref": "#/properties/a"}, {"type": "string"}, ["null", "null"], {"a": ["b"]}),
]
_KEYS = [
    *[
        "type",
        "name",
        "fields",
        "items",
        "values",
        "properties",
        "$ref",
        "required",
        "enum",
        "allOf",
        "default",
        "aliases",
        "namespace",
        "symbols",
        "size",
    ],
    *[
        "order",
        "additionalProperties",
        "patternProperties",
        "dependencies",
        "$id",
        "id",
        "$anchor",
        "not",
        "if",
        "const",
        "prefixItems",
        "pattern",
    ],
    *[
        "multipleOf",
        "maximum",
        "$schema",
        "dependentRequired",
        "unevaluatedProperties",
        "doc",
        "logicalType",
        "precision",
    ],
]


def fuzz(random: Random) -> None:
    """One damaged schema, as a new one and as a stored one."""
    schema_type, text = random.choice(_TEXTS)
    if schema_type is SchemaType.PROTOBUF and random.random() < 0.3:
        text = _damaged_descriptor(random)
    elif schema_type is not SchemaType.PROTOBUF and random.random() < 0.6:
        text = json.dumps(_damaged_json(random, json.loads(text)))
    else:
        text = _damaged_text(random, text)
    others = [other for other_type, other in _TEXTS if other_type is schema_type]
    for is_new in (True, False):
        try:
            _check(schema_type, text, random.choice(others), is_new=is_new)
        except InvalidSchemaError as error:
            assert str(error)  # noqa: PT017 (most damage is refused)


def _check(schema_type: SchemaType, text: str, other: str, *, is_new: bool) -> None:
    schema = parse_schema(schema_type, text, is_new=is_new)
    again = parse_schema(schema_type, schema.text, is_new=is_new)
    assert again.text == schema.text
    for form in ("serialized", "resolved", "ignore_extensions"):
        assert isinstance(schema.formatted(form), str)
    normal = schema.normalized()
    assert parse_schema(schema_type, normal.text, is_new=is_new).normalized().text == normal.text
    assert not schema.incompatibilities(again)
    pair = parse_schema(schema_type, other)
    assert all(map(str, (*schema.incompatibilities(pair), *pair.incompatibilities(schema))))


def _damaged_descriptor(random: Random) -> str:
    data = bytearray(random.choice(_DESCRIPTORS))
    for _ in range(random.randint(1, 4)):
        at = random.randrange(len(data))
        data[at] = random.choice([0, 1, 255, data[at] ^ 1, random.randrange(256)])
    return base64.b64encode(bytes(data)).decode()


def _damaged_text(random: Random, text: str) -> str:
    for _ in range(random.randint(1, 3)):
        at = random.randrange(len(text) + 1)
        end = at + random.choice([0, 1, 1, 2, 5, 20])
        text = text[:at] + random.choice([*_WORDS, text[at:end] * 2, ""]) + text[end:]
    return text


def _damaged_json(random: Random, value: Any) -> Any:
    nodes = [each for each in _nodes(value) if isinstance(each, dict | list)]
    if not nodes:
        return random.choice(_VALUES)
    for _ in range(random.randint(1, 3)):
        node, put = random.choice(nodes), random.choice(_VALUES)
        if isinstance(node, dict):
            key = random.choice([*node, *_KEYS])
            if random.random() < 0.2:
                node.pop(key, None)
            else:
                node[key] = put
        elif node:
            node[random.randrange(len(node))] = put
        else:
            node.append(put)
    return value


def _nodes(value: Any) -> list[Any]:
    children = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return [value, *(node for child in children for node in _nodes(child))]
