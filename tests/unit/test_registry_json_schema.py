"""JSON Schemas in the registry: what is understood, what is refused, and their rules."""

import itertools
import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.registry.formats.compatibility import check_compatibility
from barnabas.registry.formats.json_schema.compatibility import _most_pairs
from barnabas.registry.formats.parsing import parse_schema
from barnabas.registry.formats.schema import (
    CompatibilityLevel,
    InvalidSchemaError,
    ParsedSchema,
    SchemaReference,
    SchemaType,
)

Schema = Any
INT, STRING = {"type": "integer"}, {"type": "string"}
MODERN = "https://json-schema.org/draft/2020-12/schema"
DRAFTS = [
    "http://json-schema.org/draft-04/schema#",
    "http://json-schema.org/draft-06/schema#",
    "http://json-schema.org/draft-07/schema#",
    "https://json-schema.org/draft/2019-09/schema",
    MODERN,
]


def parsed(schema: Schema, **more: Any) -> ParsedSchema:
    """A schema of JSON, or of text."""
    text = schema if isinstance(schema, str) else json.dumps(schema)
    return parse_schema(SchemaType.JSON, text, **more)


def fits(new: Schema, old: Schema) -> bool:
    """Whether a schema accepts what another one did."""
    return not parsed(new).incompatibilities(parsed(old))


def test_the_canonical_text_is_compact_and_keeps_the_order_of_keys() -> None:
    """Normalizing sorts the keys, and not the values of lists."""
    schema = parsed('{ "type" : "object",\n "required": ["b", "a"], "description": "ä" }')
    assert schema.text == '{"type":"object","required":["b","a"],"description":"ä"}'
    assert schema.normalized().text == '{"description":"ä","required":["b","a"],"type":"object"}'
    assert parsed(schema.text).text == schema.text
    assert schema.formatted("resolved") == schema.formatted("") == schema.text
    assert parsed("true").text == "true"


@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[]", "an object, true or false"),
        ("4", "an object, true or false"),
        ('{"maximum": NaN}', "NaN"),
        ('{"maximum": 1e999}', "too large"),
        ({"type": "text"}, "at #/: type is not a type"),
        ({"type": []}, "type is not a type"),
        ({"properties": {"a": {"type": 1}}}, "at #/properties/a: type is not a type"),
        ({"properties": []}, "properties is not schemas by names"),
        ({"properties": {"a": 1}}, "at #/properties/a: a schema is an object"),
        ({"required": "a"}, "required is not a list of names"),
        ({"required": True}, "required is not a list of names"),
        ({"enum": "a"}, "enum is not a list of values"),
        ({"allOf": []}, "allOf is not a list of schemas"),
        ({"allOf": {}}, "allOf is not a list of schemas"),
        ({"not": 1}, "at #/not: a schema is"),
        ({"items": [1]}, "at #/items/0: a schema is"),
        ({"maxLength": -1}, "maxLength is not a count"),
        ({"maxLength": 1.5}, "maxLength is not a count"),
        ({"minimum": "1"}, "minimum is not a number"),
        ({"multipleOf": 0}, "multipleOf is not a number above 0"),
        ({"uniqueItems": 1}, "uniqueItems is not true or false"),
        ({"pattern": 1}, "pattern is not a string"),
        ({"dependencies": {"a": [1]}}, "not a list of names"),
        ({"dependencies": {"a": 1}}, "at #/dependencies/a: a schema is"),
        ({"dependentRequired": []}, "dependentRequired is not an object"),
        ({"$ref": "#/definitions/a"}, "the reference #/definitions/a leads nowhere"),
        ({"$ref": "#nothing"}, "leads nowhere"),
        ({"$ref": "other.json"}, "leads nowhere"),
        ({"$ref": "http://example.com/other.json"}, "leads nowhere"),
        ({"items": {"$ref": "#/x"}, "x": 1}, "at #/items: the reference #/x leads to what is no schema"),
        ({"$ref": "http://[/"}, "leads nowhere"),
    ],
)
def test_what_is_no_schema_is_refused_with_its_place(schema: Schema, reason: str) -> None:
    """The text for a person names the part of the schema that is wrong; nothing is fetched."""
    with pytest.raises(InvalidSchemaError) as error:
        parsed(schema)
    assert reason in str(error.value)


@pytest.mark.parametrize("draft", DRAFTS)
def test_the_schema_of_each_draft_is_a_schema_and_can_be_referred_to(draft: str) -> None:
    """It refers to itself, and to others, dynamically in the last two."""
    itself = jsonschema.validators.validator_for({"$schema": draft}).META_SCHEMA
    assert not parsed(itself).incompatibilities(parsed(itself))
    using = {"$schema": draft, "type": "object", "properties": {"a": {"$ref": draft}}}
    assert fits(using, using)
    assert not fits({**using, "properties": {"a": INT}}, using)


@pytest.mark.parametrize("draft", [*DRAFTS, "https://json-schema.org/draft-07/schema", "http://example.com/mine", None])
def test_references_lead_to_definitions_ids_and_anchors(draft: str | None) -> None:
    """In the keywords of each draft; one that is not known, or not named, is read as draft 7."""
    is_modern = draft is not None and "draft/" in draft
    id_keyword = "id" if draft is not None and "draft-04" in draft else "$id"
    anchored = {"$anchor": "here"} if is_modern else {id_keyword: "#here"}
    for reference in ("#/definitions/a", "#here", "https://example.com/root.json#/definitions/a", "root.json#here"):

        def schema(kind: Schema, ref: str = reference) -> Schema:
            named = {"$schema": draft} if draft else {}
            definitions = {"a": {**kind, **anchored}}
            root = {id_keyword: "https://example.com/root.json", "definitions": definitions}
            return {**named, **root, "type": "object", "properties": {"a": {"$ref": ref}}}

        assert fits(schema({"type": "number"}), schema(INT))
        assert not fits(schema(STRING), schema(INT)), reference


def test_references_of_the_registry_are_found_by_their_names() -> None:
    """The name as it stands, relative to the schema's id, or the id of what it refers to."""
    for name, reference, root in (
        ("a.json", "a.json", {}),
        ("a.json", "./a.json", {}),
        ("a.json", "a.json#/definitions/x", {"$id": "https://example.com/dir/root.json"}),
        ("https://example.com/a.json", "https://example.com/a.json", {}),
        ("any", "https://example.com/named.json", {}),
    ):
        named = {"$id": "https://example.com/named.json"} if name == "any" else {}
        text = json.dumps(named | INT | {"definitions": {"x": INT}})
        more = {"references": [SchemaReference(name, "a", 1)], "resolved": {name: text}}
        schema = {**root, "type": "object", "properties": {"a": {"$ref": reference}}}
        new = {**root, "type": "object", "properties": {"a": STRING}}
        assert parsed(new).incompatibilities(parsed(schema, **more)), name
    with pytest.raises(InvalidSchemaError, match=r"the reference a\.json: not JSON"):
        parsed({"$ref": "a.json"}, references=[SchemaReference("a.json", "a", 1)], resolved={"a.json": "{"})


def test_references_in_a_circle_are_refused_when_they_are_followed() -> None:
    """Those through a property are a recursive schema."""
    circle = {
        "$ref": "#/definitions/a",
        "definitions": {"a": {"$ref": "#/definitions/b"}, "b": {"$ref": "#/definitions/a"}},
    }
    with pytest.raises(InvalidSchemaError, match="circle"):
        fits(circle, {})
    recursive = {"type": "object", "properties": {"next": {"$ref": "#"}}}
    assert fits(recursive, recursive)


def test_documents_that_refer_to_each_other_are_understood() -> None:
    """As recursive schemas are."""
    a, b = (
        {"type": "object", "properties": {"b": {"$ref": "b.json"}}},
        {"type": "object", "properties": {"r": {"$ref": "a.json"}}},
    )
    references = [SchemaReference("a.json", "a", 1)]
    more = {"references": references, "resolved": {"b.json": json.dumps(b), "a.json": json.dumps(a)}}
    schema = parsed({"$ref": "a.json"}, **more)
    assert not schema.incompatibilities(parsed({"$ref": "a.json"}, **more))


@pytest.mark.parametrize("depth", [101, 3_000, 100_000])
def test_what_nests_too_deeply_is_refused(depth: int) -> None:
    """Never a RecursionError, at whatever depth."""
    with pytest.raises(InvalidSchemaError, match="deep"):
        parsed('{"items":' * depth + "{}" + "}" * depth)


def test_definitions_that_lead_from_one_to_the_next_too_deeply_are_refused_when_compared() -> None:
    """A chain of 5,000 definitions is understood; comparing it ends with a clear error."""
    definitions = {f"d{index}": {"items": {"$ref": f"#/definitions/d{index + 1}"}} for index in range(5_000)}
    chain = parsed({"$ref": "#/definitions/d0", "definitions": {**definitions, "d5000": {}}})
    with pytest.raises(InvalidSchemaError, match="nest too deeply to be compared"):
        chain.incompatibilities(chain)


def test_a_megabyte_of_properties_or_references_is_understood_and_compared() -> None:
    """Each part is looked at once."""
    schema = parsed(
        {"properties": {f"property_{index}": {"type": "string", "maxLength": 9} for index in range(21_000)}}
    )
    assert len(schema.text) > 1_000_000
    assert not schema.incompatibilities(schema)
    tower = {"d0": STRING}
    tower |= {
        f"d{i + 1}": {"properties": {"a": {"$ref": f"#/definitions/d{i}"}, "b": {"$ref": f"#/definitions/d{i}"}}}
        for i in range(60)
    }
    wide = {"$ref": "#/definitions/d60", "definitions": tower}
    changed = {**wide, "definitions": {**tower, "d0": INT}}
    assert fits(wide, wide)
    assert len(parsed(changed).incompatibilities(parsed(wide))) == 1_000


def test_combinations_of_too_many_schemas_are_refused_and_not_tried_for_minutes() -> None:
    """Equal ones are found at once; 1,000 others against 1,000 would be a million trials."""
    one = {"oneOf": [{"type": "object", "properties": {"k": {"const": index}}} for index in range(1_000)]}
    other = {"oneOf": [{**part, "minProperties": 1} for part in one["oneOf"]]}
    assert fits(one, one)
    with pytest.raises(InvalidSchemaError, match="combine too many"):
        fits(one, other)


def test_equal_texts_in_combinations_are_not_equal_where_their_references_differ() -> None:
    """What a part refers to is looked at, whatever its own text."""

    def schema(kind: Schema) -> Schema:
        part = {"type": "object", "properties": {"a": {"$ref": "#/definitions/a"}}}
        return {"oneOf": [part, {"type": "null"}], "definitions": {"a": kind}}

    assert fits(schema(INT), schema(INT))
    assert not fits(schema(STRING), schema(INT))


def test_a_circle_is_compatible_only_if_it_is_so_all_the_way_round() -> None:
    """What was assumed inside of a combination is not kept when it turns out wrong."""

    def schema(kind: Schema) -> Schema:
        node = {
            "type": "object",
            "properties": {"next": {"anyOf": [{"$ref": "#/definitions/n"}, {"type": "null"}]}, "v": kind},
        }
        return {"$ref": "#/definitions/n", "definitions": {"n": node}}

    assert fits(schema({"type": "number"}), schema(INT))
    assert not fits(schema(INT), schema({"type": "number"}))


@pytest.mark.parametrize(
    ("new", "old", "is_compatible"),
    [
        ({"prefixItems": [INT, STRING], "items": False}, {"prefixItems": [INT], "items": False}, True),
        ({"prefixItems": [INT], "items": False}, {"prefixItems": [INT, STRING], "items": False}, False),
        ({"prefixItems": [INT, STRING]}, {"prefixItems": [INT]}, False),
        ({"prefixItems": [INT, {}]}, {"prefixItems": [INT]}, True),
        ({"prefixItems": [INT]}, {"prefixItems": [INT], "items": False}, True),
        ({"prefixItems": [INT], "items": STRING}, {"prefixItems": [INT]}, False),
        ({"prefixItems": [INT, STRING], "items": STRING}, {"prefixItems": [INT], "items": STRING}, True),
        ({"prefixItems": [INT, INT], "items": STRING}, {"prefixItems": [INT], "items": STRING}, False),
        ({"type": "array", "unevaluatedItems": False}, {"type": "array"}, False),
        ({"type": "array"}, {"type": "array", "unevaluatedItems": False}, True),
        ({"type": "object", "unevaluatedProperties": False}, {"type": "object"}, False),
        ({"type": "object", "unevaluatedProperties": INT}, {"type": "object"}, False),
        ({"type": "object", "unevaluatedProperties": INT}, {"type": "object", "unevaluatedProperties": False}, True),
        (
            {"properties": {"a": INT}, "unevaluatedProperties": False},
            {"properties": {}, "unevaluatedProperties": False},
            True,
        ),
        ({"type": "object", "dependentRequired": {"a": ["b"]}}, {"type": "object"}, False),
        ({"type": "object"}, {"type": "object", "dependentRequired": {"a": ["b"]}}, True),
        ({"type": "object", "dependentSchemas": {"a": {"minProperties": 2}}}, {"type": "object"}, False),
        ({"type": "array", "minContains": 2}, {"type": "array", "minContains": 1}, False),
        ({"type": "array", "maxContains": 2}, {"type": "array", "maxContains": 1}, True),
        (
            {"$ref": "#/$defs/a", "maxLength": 5, "$defs": {"a": STRING}},
            {"$ref": "#/$defs/a", "$defs": {"a": STRING}},
            False,
        ),
        (
            {"$ref": "#/$defs/a", "$defs": {"a": STRING}},
            {"$ref": "#/$defs/a", "maxLength": 5, "$defs": {"a": STRING}},
            True,
        ),
    ],
)
def test_keywords_of_the_last_draft_are_compared(new: Schema, old: Schema, is_compatible: bool) -> None:
    """By the rules of those that they replace."""
    assert fits({"$schema": MODERN, **new}, {"$schema": MODERN, **old}) is is_compatible


def test_limits_of_draft_4_that_exclude_their_number_are_compared() -> None:
    """Here they are true or false beside the limit."""
    old = {"$schema": DRAFTS[0], "type": "number", "maximum": 5}
    assert not fits({**old, "exclusiveMaximum": True}, old)
    assert fits(old, {**old, "exclusiveMaximum": True})
    assert fits({**old, "exclusiveMaximum": True}, {**old, "exclusiveMaximum": True})


def test_divisors_are_compared_exactly() -> None:
    """0.1 divides 0.3, whatever the arithmetic of floats says."""
    assert fits({"type": "number", "multipleOf": 0.1}, {"type": "number", "multipleOf": 0.3})
    assert not fits({"type": "number", "multipleOf": 0.3}, {"type": "number", "multipleOf": 0.1})
    assert fits('{"type": "number", "multipleOf": 0.50}', '{"type": "number", "multipleOf": 0.5}')
    assert fits({"multipleOf": 1e-300}, {"multipleOf": 1e300})


def test_patterns_of_properties_are_matched_in_linear_time_or_refused() -> None:
    """RE2 has no looking ahead; a name that ends badly costs nothing."""
    patterned = {"type": "object", "patternProperties": {"(a+)+$": {}}, "additionalProperties": False}
    named = {"type": "object", "properties": {"a" * 50_000 + "b": {}}, "additionalProperties": False}
    assert not fits(patterned, named)
    many = {"type": "object", "patternProperties": {f"x{index}": {} for index in range(200)}}
    with pytest.raises(InvalidSchemaError, match="too many patterns"):
        fits(many, {"type": "object", "properties": {f"y{index}": INT for index in range(200)}})
    ahead = {"type": "object", "patternProperties": {"(?=a)": {}}, "additionalProperties": False}
    with pytest.raises(InvalidSchemaError, match="RE2"):
        fits(ahead, named)


def test_messages_are_confluents_with_the_words_for_either_direction() -> None:
    """Kind and description, as in answers of Confluent's registry, their last quote included."""
    old, new = parsed({"properties": {"a": INT}}), parsed({"properties": {"a": STRING}})
    assert new.incompatibilities(old) == [
        '{errorType:"TYPE_CHANGED", description:"A type at path \'#/properties/a\' is different between the new schema'
        " and the old schema'}"
    ]
    (found,) = new.incompatibilities(old, reader="old", writer="new")
    assert "different between the old schema and the new schema" in found


@settings(max_examples=150, deadline=None)
@given(st.lists(st.lists(st.integers(0, 5), max_size=4, unique=True), max_size=6))
def test_as_many_parts_are_matched_as_can_be(edges: list[list[int]]) -> None:
    """As many as the best of all ways to give each row a column, or none."""
    best = max(
        len(set(chosen) - {None})
        if len(set(chosen) - {None}) == len([each for each in chosen if each is not None])
        else 0
        for chosen in itertools.product(*([None, *row] for row in edges))
    )
    assert _most_pairs(edges, 6) == best


LEAVES = st.sampled_from(
    [
        *(
            True,
            False,
            {},
            INT,
            STRING,
            {"type": "number"},
            {"type": ["string", "null"]},
            {"enum": [1, 2]},
            {"enum": [1]},
        ),
        *({"const": 1}, {"type": "string", "maxLength": 3}, {"type": "string", "minLength": 1}, {"pattern": "a"}),
        *(
            {"minimum": 1},
            {"type": "integer", "maximum": 4},
            {"multipleOf": 2},
            {"$ref": "#"},
            {"type": "string", "enum": ["a"]},
        ),
    ]
)
NAMES = st.sampled_from("abc")
SCHEMAS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.fixed_dictionaries(
            {"properties": st.dictionaries(NAMES, inner, max_size=3)},
            optional={
                "type": st.just("object"),
                "required": st.lists(NAMES, unique=True, max_size=2),
                "additionalProperties": inner,
                "patternProperties": st.dictionaries(st.sampled_from(["^a", "b$"]), inner, max_size=1),
                "minProperties": st.integers(0, 2),
            },
        ),
        st.fixed_dictionaries(
            {"type": st.just("array"), "items": st.one_of(inner, st.lists(inner, max_size=2))},
            optional={"additionalItems": inner, "uniqueItems": st.booleans()},
        ),
        st.dictionaries(
            st.sampled_from(["allOf", "anyOf", "oneOf"]), st.lists(inner, min_size=1, max_size=3), max_size=2
        ),
        inner.map(lambda schema: {"not": schema}),
        inner.map(lambda schema: {"if": schema}),
    ),
    max_leaves=7,
).filter(lambda schema: schema != {"$ref": "#"})


@settings(max_examples=200, deadline=None)
@given(SCHEMAS, st.sampled_from(DRAFTS[2:]))
def test_a_schema_accepts_what_it_accepted_itself(schema: Schema, draft: str) -> None:
    """Also after it was written as text, and in its normal form."""
    one = parsed({"$schema": draft, **schema} if isinstance(schema, dict) else schema)
    again = parsed(one.text)
    assert not again.incompatibilities(one)
    assert not one.normalized().incompatibilities(again)
    assert parsed(one.normalized().text).normalized().text == one.normalized().text


@settings(max_examples=200, deadline=None)
@given(SCHEMAS, SCHEMAS)
def test_full_is_backward_and_forward(old: Schema, new: Schema) -> None:
    """At the level FULL a schema fits where it fits at both levels."""

    def is_compatible(level: CompatibilityLevel) -> bool:
        return not check_compatibility(level, parsed(new), [(1, parsed(old))])

    both = is_compatible(CompatibilityLevel.BACKWARD) and is_compatible(CompatibilityLevel.FORWARD)
    assert is_compatible(CompatibilityLevel.FULL) is both


VALUES = st.recursive(
    st.sampled_from([None, True, 0, 1, 2, 3.5, "", "a", "abcd"]),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)),
    max_leaves=5,
)
TYPED = st.recursive(
    st.sampled_from(
        [
            *(
                INT,
                STRING,
                {"type": "number"},
                {"type": ["string", "null"]},
                {"enum": [1, 2]},
                {"enum": [1]},
                {"const": 1},
            ),
            *(
                {"type": "string", "maxLength": 3},
                {"type": "string", "minLength": 1},
                {"type": "integer", "maximum": 4},
            ),
            *({"type": "number", "multipleOf": 2}, {"type": "string", "enum": ["a"]}, {}),
        ]
    ),
    lambda inner: st.one_of(
        st.fixed_dictionaries(
            {"type": st.just("object"), "properties": st.dictionaries(NAMES, inner, max_size=2)},
            optional={"additionalProperties": st.one_of(st.booleans(), inner), "minProperties": st.integers(0, 2)},
        ),
        st.fixed_dictionaries({"type": st.just("array")}, optional={"items": inner, "uniqueItems": st.booleans()}),
        st.lists(inner, min_size=1, max_size=3).map(lambda parts: {"anyOf": parts}),
    ),
    max_leaves=5,
)


@settings(max_examples=200, deadline=None)
@given(TYPED, TYPED, st.lists(VALUES, min_size=3, max_size=6))
def test_a_schema_that_is_compatible_validates_what_the_old_one_did(
    old: Schema, new: Schema, values: list[Any]
) -> None:
    """Held to the validator of the library jsonschema, for schemas that name their types."""
    if fits(new, old):
        before, after = jsonschema.Draft7Validator(old), jsonschema.Draft7Validator(new)
        for value in values:
            assert not before.is_valid(value) or after.is_valid(value)


@settings(max_examples=150, deadline=None)
@given(
    st.dictionaries(
        st.sampled_from(["type", "properties", "items", "enum", "maxLength", "allOf", "required", "minimum"]),
        st.one_of(LEAVES, VALUES),
        max_size=3,
    )
)
def test_what_the_drafts_own_schema_accepts_is_accepted(schema: Schema) -> None:
    """By the library jsonschema. Confluent's registry takes a few schemas more, such as an empty
    list of items, and so does this one."""
    try:
        jsonschema.Draft7Validator.check_schema(schema)
    except jsonschema.SchemaError:
        return
    assert parsed(schema).text
