"""Avro values that would hold a reader for minutes or end its process are refused
before fastavro sees them."""

import io
import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

fastavro = pytest.importorskip("fastavro")

from barnabas.base.json_text import parse_json  # noqa: E402
from barnabas.client.registry.avro_bounds import MOST_LEVELS, AvroBoundsError, avro_bounds  # noqa: E402
from support.registry import RegistryForTests  # noqa: E402

NODE = {"type": "record", "name": "shop.Node", "fields": [{"name": "next", "type": ["null", "Node"]}]}
TREE = {
    "type": "record",
    "name": "Tree",
    "fields": [
        {"name": "name", "type": "string"},
        {"name": "weight", "type": {"type": "fixed", "name": "W", "size": 3}},
        {"name": "inner", "type": {"type": "array", "items": "Tree"}},
        {"name": "by_name", "type": {"type": "map", "values": ["null", "Tree", "double"]}},
        {"name": "nothing", "type": {"type": "array", "items": "null"}},
        {"name": "kind", "type": {"type": "enum", "name": "K", "symbols": ["a", "b"]}},
    ],
}


CODE = """
from barnabas.client.registry.registry import SchemaRegistry
from barnabas.client.registry.wire_format import encode_schema_id
from barnabas.pipelines.formats.schemas import open_decoder
value = encode_schema_id(7) + b"\\x02" * 200_000 + b"\\x00"
for decode in (SchemaRegistry({address!r}).avro("s", {schema!r}).decode, open_decoder("avro", None, {address!r}, None)):
    try:
        decode(value)
    except Exception as error:
        print(error)
"""


def number(value: int) -> bytes:
    """As Avro writes it."""
    coded, out = (value << 1) ^ (value >> 63), b""
    while coded > 0x7F:
        out, coded = out + bytes([coded & 0x7F | 0x80]), coded >> 7
    return out + bytes([coded])


def record_of(kind: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]}


def array_of(items: Any) -> dict[str, Any]:
    return record_of({"type": "array", "items": items})


def written(schema: Any, value: Any) -> bytes:
    stream = io.BytesIO()
    fastavro.schemaless_writer(stream, fastavro.parse_schema(schema), value)
    return stream.getvalue()


@pytest.mark.parametrize(
    "items",
    [
        "null",
        {"type": "record", "name": "E", "fields": []},
        {"type": "record", "name": "E", "fields": [{"name": "n", "type": "null"}]},
        {"type": "fixed", "name": "F", "size": 0},
        {"type": "null"},
    ],
)
@pytest.mark.parametrize("count", [2**62, -(2**62), 10_001])
def test_items_without_bytes_are_counted_before_they_are_made(items: Any, count: int) -> None:
    """A count of six bytes makes thousands of millions of them."""
    bounds = avro_bounds(array_of(items))
    assert bounds is not None
    with pytest.raises(AvroBoundsError, match="10,000 items without bytes"):
        bounds(number(count) + (number(0) if count < 0 else b"") + number(0))
    bounds(written(array_of(items), {"a": []}))


def test_blocks_of_such_items_are_counted_together() -> None:
    """Also over several arrays of one value."""
    bounds = avro_bounds(array_of({"type": "array", "items": "null"}))
    assert bounds is not None
    inner = number(6_000) + number(0)
    bounds(number(1) + inner + number(0))
    with pytest.raises(AvroBoundsError, match="without bytes"):
        bounds(number(2) + 2 * inner + number(0))


def test_a_value_of_too_many_levels_is_refused() -> None:
    """fastavro would fill the stack of the process, which then dies."""
    bounds = avro_bounds(NODE)
    assert bounds is not None
    bounds(number(1) * (MOST_LEVELS // 2 - 1) + number(0))
    with pytest.raises(AvroBoundsError, match="500 levels"):
        bounds(number(1) * 100_000 + number(0))
    alone = avro_bounds({"type": "record", "name": "N", "fields": [{"name": "n", "type": "N"}]})
    assert alone is not None
    with pytest.raises(AvroBoundsError, match="500 levels"):
        alone(b"")


def test_levels_of_a_schema_are_bounded() -> None:
    """Those of its JSON, and types that refer to each other one after the other."""
    schema: Any = "int"
    for _ in range(300):
        schema = {"type": "array", "items": schema}
    with pytest.raises(AvroBoundsError, match="the schema has more than 200 levels"):
        avro_bounds(record_of(schema))
    with pytest.raises(ValueError, match="nested too deeply"):
        parse_json('{"type":"array","items":' * 100_000 + '"int"' + "}" * 100_000)
    fields = [{"name": "f0", "type": {"type": "record", "name": "R0", "fields": [{"name": "a", "type": "int"}]}}]
    for at in range(1, 3000):
        inner = {"type": "record", "name": f"R{at}", "fields": [{"name": "a", "type": f"R{at - 1}"}]}
        fields.append({"name": f"f{at}", "type": inner})
    bounds = avro_bounds({"type": "record", "name": "Long", "fields": fields})
    assert bounds is not None
    with pytest.raises(AvroBoundsError, match="500 levels"):
        bounds(bytes(3000))


@pytest.mark.parametrize(
    "schema",
    [
        array_of("int"),
        record_of({"type": "map", "values": "null"}),
        record_of(["null", "string"]),
        record_of({"type": "array", "items": ["null", "int"]}),
        '{"type": "recrod"}',
        {"type": "record", "name": "R", "fields": [{"name": "a", "type": "unknown"}]},
        17,
    ],
)
def test_other_schemas_cost_nothing(schema: Any) -> None:
    """What has bytes for each item ends with its bytes; what is no schema is
    fastavro's to refuse."""
    assert avro_bounds(schema) is None


_TREES: Any = st.deferred(
    lambda: st.fixed_dictionaries(
        {
            "name": st.text(max_size=3),
            "weight": st.binary(min_size=3, max_size=3),
            "inner": st.lists(_TREES, max_size=2),
            "by_name": st.dictionaries(
                st.text(max_size=2), st.none() | st.floats(allow_nan=False) | _TREES, max_size=2
            ),
            "nothing": st.lists(st.none(), max_size=3),
            "kind": st.sampled_from(["a", "b"]),
        }
    )
)


@given(_TREES)
@settings(max_examples=60)
def test_values_within_bounds_pass(value: Any) -> None:
    """Of a schema that refers to itself and has items without bytes, with all kinds of parts; the
    parsed schema says the same."""
    data = written(TREE, value)
    for schema in (TREE, fastavro.parse_schema(json.loads(json.dumps(TREE)))):
        bounds = avro_bounds(schema)
        assert bounds is not None
        bounds(data)


@given(st.binary(max_size=60))
def test_damaged_values_end_the_walk(data: bytes) -> None:
    """What is wrong with them is said by fastavro, which takes no time for them."""
    bounds = avro_bounds(TREE)
    assert bounds is not None
    try:
        bounds(data)
    except AvroBoundsError:
        return
    try:
        fastavro.schemaless_reader(io.BytesIO(data), fastavro.parse_schema(TREE), None)
    except Exception:  # of many kinds
        return


def test_a_codec_and_a_decoder_refuse_such_a_value_and_live() -> None:
    """In a process of its own, which would die; with a schema of a registry."""
    pytest.importorskip("pyspark")
    with RegistryForTests() as registry:
        registry.schemas[7] = json.dumps(NODE)
        code = CODE.format(schema=json.dumps(NODE), address=registry.address)
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.count("500 levels") == 2
