"""Schemas of Avro in the registry: what is understood, what is refused, and the canonical text."""

import itertools
import json
import string
from typing import Any

import avro.compatibility
import avro.schema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.registry.formats.compatibility import check_compatibility
from barnabas.registry.formats.parsing import parse_schema
from barnabas.registry.formats.schema import (
    CompatibilityLevel,
    InvalidSchemaError,
    ParsedSchema,
    SchemaReference,
    SchemaType,
)

Schema = Any


def parsed(schema: Schema, **more: Any) -> ParsedSchema:
    """A schema of JSON, or of text."""
    text = schema if isinstance(schema, str) else json.dumps(schema)
    return parse_schema(SchemaType.AVRO, text, **more)


def record(*fields: Schema, **more: Schema) -> Schema:
    """A record R."""
    return {"type": "record", "name": "R", "fields": list(fields), **more}


def field(name: str, kind: Schema, **more: Schema) -> Schema:
    """A field."""
    return {"name": name, "type": kind, **more}


@pytest.mark.parametrize(
    ("schema", "place"),
    [
        ("{", "line 1, column 2"),
        ('"int" "int"', "Extra data"),
        ('{"type": "int", "x": NaN}', "NaN"),
        ('{"type": "int", "x": "\\ud800"}', "surrogate"),
        (4, "a name, an object or a list"),
        ("nothing", "not JSON"),
        ('"nothing"', "nothing is not a type"),
        ({"type": {"type": "int"}}, "needs the name of one"),
        ({"type": "record", "fields": []}, "needs a name"),
        ({"type": "record", "name": "R"}, "fields is missing"),
        ({"type": "record", "name": "R", "fields": {}}, "fields is not a list"),
        (record("x"), "at /fields/0: a field is an object"),
        (record({"type": "int"}), "at /fields/0: a field needs a name"),
        (record({"name": "a"}), "at /fields/0: type is missing"),
        (record(field("a", "X")), "at /fields/0/type: X is not a type"),
        (record(field("a", "int"), field("a", "int")), "two fields a"),
        (record(field("a-b", "int")), "no name of a field"),
        (record(field("a", "int", order="up")), "'up' is no order"),
        (record(field("a", "int", aliases="b")), "aliases is not a list"),
        (record(field("a", "int", default="x")), "at /fields/0: the default does not fit"),
        (record(field("a", "int", default=1 << 31)), "does not fit"),
        (record(field("a", ["null", "int"], default="x")), "does not fit"),
        (record(field("a", {"type": "array", "items": "int"}, default=["x"])), "does not fit"),
        (record(field("a", {"type": "map", "values": "int"}, default={"x": None})), "does not fit"),
        (record(field("a", record(field("x", "int"), name="I"), default={})), "does not fit"),
        (record(name="a-b"), "no name of a type"),
        (record(namespace="a-b"), "no name of a namespace"),
        (record(name="int"), "the name of a primitive type"),
        (record(aliases=["a-b"]), "no name of an alias"),
        (record(field("a", record())), "R is defined already"),
        ({"type": "enum", "name": "E"}, "symbols is missing"),
        ({"type": "enum", "name": "E", "symbols": "A"}, "symbols is not a list"),
        ({"type": "enum", "name": "E", "symbols": [1]}, "not a list of strings"),
        ({"type": "enum", "name": "E", "symbols": ["A", "A"]}, "symbol twice"),
        ({"type": "enum", "name": "E", "symbols": ["A-B"]}, "no name of a symbol"),
        ({"type": "enum", "name": "E", "symbols": ["A"], "default": "B"}, "not a symbol"),
        ({"type": "fixed", "name": "F"}, "size is missing"),
        ({"type": "fixed", "name": "F", "size": -1}, "not a number of bytes"),
        ({"type": "fixed", "name": "F", "size": True}, "not a number of bytes"),
        ({"type": "array"}, "items is missing"),
        ({"type": "map", "values": 1}, "at /values: a type is"),
        (["int", "int"], "int twice"),
        (["null", ["int"]], "directly inside a union"),
    ],
)
def test_what_is_no_schema_is_refused_with_its_place(schema: Schema, place: str) -> None:
    """The text for a person names the part of the schema that is wrong."""
    with pytest.raises(InvalidSchemaError) as error:
        parsed(schema)
    assert place in str(error.value)


def test_whitespace_and_order_do_not_change_the_canonical_text() -> None:
    """Two texts of one schema have one canonical text, with Java's order of keys."""
    one = '{"name": "R",\n "doc": "d", "namespace": "n", "type": "record", "x": 1, "fields": []}'
    assert parsed(one).text == '{"type":"record","name":"R","namespace":"n","doc":"d","fields":[],"x":1}'


def test_normalized_texts_are_equal_where_only_properties_are_in_another_order() -> None:
    """Properties and aliases are sorted, empty docs go."""
    one = record(
        field("a", {"type": "bytes", "scale": 1, "logicalType": "decimal", "precision": 2}), b=1, a={"y": 1, "x": 2}
    )
    two = record(
        field("a", {"type": "bytes", "precision": 2, "logicalType": "decimal", "scale": 1}), a={"x": 2, "y": 1}, b=1
    )
    assert parsed(one).text != parsed(two).text
    assert parsed(one).normalized().text == parsed({**two, "doc": ""}).normalized().text
    assert parsed(record(aliases=["b", "a"])).normalized().text == parsed(record(aliases=["a", "b"])).normalized().text


def test_the_normalized_form_of_a_normalized_form_is_itself() -> None:
    """Normalizing twice changes nothing, and the text is still a schema."""
    once = parsed(record(field("a", {"type": "int", "z": 1, "b": 2}), namespace="n", aliases=["q", "p"])).normalized()
    assert parsed(once.text).normalized().text == once.text


def test_names_of_references_are_used_and_not_defined_again() -> None:
    """The canonical text keeps the names; ``resolved`` puts the definitions in."""
    inner = '{"type":"record","name":"I","namespace":"n","fields":[]}'
    reference = SchemaReference("n.I", "inner", 1)
    schema = parsed(record(field("a", "n.I")), references=[reference], resolved={"n.I": inner})
    assert schema.text == '{"type":"record","name":"R","fields":[{"name":"a","type":"n.I"}]}'
    assert json.loads(schema.formatted("resolved"))["fields"][0]["type"] == json.loads(inner)
    assert schema.formatted("") == schema.formatted("other") == schema.text
    assert schema.references == (reference,)


def test_a_reference_that_is_not_resolved_or_no_schema_is_refused() -> None:
    """The text names the reference."""
    reference = SchemaReference("n.I", "inner", 1)
    with pytest.raises(InvalidSchemaError, match=r"reference n\.I is not resolved"):
        parsed(record(field("a", "n.I")), references=[reference])
    with pytest.raises(InvalidSchemaError, match=r"the reference n\.I: not JSON"):
        parsed(record(field("a", "n.I")), references=[reference], resolved={"n.I": "{"})
    circle = '{"type":"record","name":"I","namespace":"n","fields":[{"name":"r","type":"R"}]}'
    with pytest.raises(InvalidSchemaError, match=r"the reference n\.I: .*not a type"):
        parsed(record(field("a", "n.I")), references=[reference], resolved={"n.I": circle})


def test_a_schema_that_is_stored_is_understood_though_its_names_are_odd() -> None:
    """Names and defaults are checked only when a schema is new."""
    odd = record(field("a-b", "int", default="x"), name="Ä")
    with pytest.raises(InvalidSchemaError):
        parsed(odd)
    assert parsed(odd, is_new=False).text


@pytest.mark.parametrize("depth", [102, 400, 100_000])
def test_types_that_nest_too_deeply_are_refused(depth: int) -> None:
    """Never a RecursionError, at whatever depth."""
    text = '{"type":"array","items":' * depth + '"int"' + "}" * depth
    with pytest.raises(InvalidSchemaError, match="deep"):
        parsed(text)


def test_names_that_lead_from_one_to_the_next_too_deeply_are_refused_when_compared() -> None:
    """A chain of 5,000 flat records is understood; comparing it ends with a clear error."""
    chain = [record(field("a", f"C{index - 1}" if index else "int"), name=f"C{index}") for index in range(5_000)]
    more = {"references": [SchemaReference("C", "chain", 1)], "resolved": {"C": json.dumps(chain)}}
    schema, other = parsed(record(field("a", "C4999")), **more), parsed(record(field("a", "C4999")), **more)
    with pytest.raises(InvalidSchemaError, match="nest too deeply to be compared"):
        schema.incompatibilities(other)


def test_a_megabyte_of_fields_or_branches_is_understood_and_compared() -> None:
    """Each part is looked at once: 17,000 fields, 18,000 records in a union."""
    fields = parsed(record(*(field(f"field_{index}", ["null", "string"], default=None) for index in range(17_000))))
    assert len(fields.text) > 1_000_000
    assert not fields.incompatibilities(fields)
    union = [record(name=f"A{index}") for index in range(18_000)]
    one, other = parsed(union), parsed(union[:-1])
    assert not one.incompatibilities(other)
    (missing,) = other.incompatibilities(one)
    assert "MISSING_UNION_BRANCH" in missing


def test_a_type_that_is_used_many_times_over_is_reported_once() -> None:
    """Types that use each other twice at 60 levels would make 2 to the 60 messages."""

    def tower(inner: str) -> Schema:
        types = [record(field("a", inner), name="T0")]
        types += [record(field("a", f"T{i}"), field("b", f"T{i}"), name=f"T{i + 1}") for i in range(60)]
        return types

    messages = parsed(tower("int")).incompatibilities(parsed(tower("string")))
    assert len(messages) == 61


def test_messages_are_confluents_with_the_words_for_either_direction() -> None:
    """Kind, description, and additional info, as in answers of Confluent's registry."""
    old, new = parsed(record()), parsed(record(field("a", "int")))
    assert new.incompatibilities(old) == [
        "{errorType:'READER_FIELD_MISSING_DEFAULT_VALUE', description:'The field 'a' at path '/fields/0' in the new"
        " schema has no default value and is missing in the old schema', additionalInfo:'a'}"
    ]
    (message,) = new.incompatibilities(old, reader="old", writer="new")
    assert "in the old schema has no default value and is missing in the new schema" in message


NAMES = st.sampled_from(list(string.ascii_uppercase[:4]))
KINDS = st.recursive(
    st.sampled_from(["null", "boolean", "int", "long", "float", "double", "bytes", "string"]),
    lambda inner: st.one_of(
        inner.map(lambda items: {"type": "array", "items": items}),
        inner.map(lambda values: {"type": "map", "values": values}),
        st.lists(inner, max_size=3).map(lambda kinds: {"union": kinds}),
        st.tuples(NAMES, st.lists(st.tuples(NAMES, inner, st.booleans()), max_size=3)).map(
            lambda parts: {"record": parts[0], "fields": parts[1]}
        ),
        st.tuples(NAMES, st.sets(NAMES, min_size=1), st.booleans()).map(
            lambda parts: {"enum": parts[0], "symbols": parts}
        ),
    ),
    max_leaves=8,
)


def _built(kind: Schema, numbers: "itertools.count[int]") -> Schema:
    """A schema of a drawn shape: names of types get numbers, unions lose what they may not have."""
    if isinstance(kind, str):
        return kind
    if "union" in kind:
        branches = [_built(each, numbers) for each in kind["union"]]
        unnamed = {
            json.dumps(each) if isinstance(each, str) else each.get("type"): each
            for each in branches
            if not isinstance(each, list)
        }
        return list(unnamed.values())
    if "record" in kind:
        fields = {name: field(name, _built(inner, numbers)) for name, inner, _ in kind["fields"]}
        return {"type": "record", "name": f"{kind['record']}{next(numbers)}", "fields": list(fields.values())}
    if "enum" in kind:
        name, symbols, has_default = kind["symbols"]
        more = {"default": min(symbols)} if has_default else {}
        return {"type": "enum", "name": f"{name}{next(numbers)}", "symbols": sorted(symbols), **more}
    key = "items" if "items" in kind else "values"
    return {**kind, key: _built(kind[key], numbers)}


SCHEMAS = KINDS.map(lambda kind: json.dumps(_built(kind, itertools.count())))


@settings(max_examples=150, deadline=None)
@given(SCHEMAS)
def test_a_schema_reads_what_it_wrote_itself(schema: str) -> None:
    """Also after it was written as text and read again, and in its normal form."""
    one = parsed(schema)
    assert not one.incompatibilities(one)
    again = parsed(one.text)
    assert again.text == one.text
    assert not again.incompatibilities(one)
    assert not one.normalized().incompatibilities(again)


@settings(max_examples=300, deadline=None)
@given(SCHEMAS, SCHEMAS)
def test_apaches_library_for_python_gives_the_same_verdict(reader: str, writer: str) -> None:
    """The verdict only: that library does not say which words belong to which place."""
    checker = avro.compatibility.ReaderWriterCompatibilityChecker()
    theirs = checker.get_compatibility(avro.schema.parse(reader), avro.schema.parse(writer))
    ours = parsed(reader).incompatibilities(parsed(writer))
    is_compatible = theirs.compatibility is avro.compatibility.SchemaCompatibilityType.compatible
    assert is_compatible is not bool(ours)


@settings(max_examples=150, deadline=None)
@given(SCHEMAS, SCHEMAS)
def test_full_is_backward_and_forward(old: str, new: str) -> None:
    """At the level FULL a schema fits where it fits at both levels."""

    def fits(level: CompatibilityLevel) -> bool:
        return not check_compatibility(level, parsed(new), [(1, parsed(old))])

    both = fits(CompatibilityLevel.BACKWARD) and fits(CompatibilityLevel.FORWARD)
    assert fits(CompatibilityLevel.FULL) is both
    assert fits(CompatibilityLevel.NONE)
