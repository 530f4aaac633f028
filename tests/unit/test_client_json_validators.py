"""Validation by JSON Schema: jsonschema's answers, with patterns that take a bounded time."""

from typing import Any

import pytest

pytest.importorskip("jsonschema")

from jsonschema import SchemaError, ValidationError
from jsonschema.validators import validator_for
from referencing import Registry

from barnabas.client.registry.json_validators import JsonValidator

DRAFTS = [
    "http://json-schema.org/draft-04/schema#",
    "http://json-schema.org/draft-06/schema#",
    "http://json-schema.org/draft-07/schema#",
    "https://json-schema.org/draft/2019-09/schema",
    "https://json-schema.org/draft/2020-12/schema",
]
SLOW = "^(a+)+$"
"""Python's re takes a time for it that doubles with each letter."""
TEXT = "a" * 500 + "!"
NUMBER: dict[str, Any] = {"type": "integer"}
SCHEMAS: list[dict[str, Any]] = [
    {"pattern": "^a"},
    {"properties": {"a": {"pattern": "b$"}}, "additionalProperties": False},
    {"patternProperties": {"^a": NUMBER, "b$": {"type": "string"}}},
    {"properties": {"c": {}}, "patternProperties": {"^a": NUMBER}, "additionalProperties": False},
    {"patternProperties": {"^a": NUMBER}, "additionalProperties": {"type": "string"}},
    {"patternProperties": {"^a": NUMBER}, "unevaluatedProperties": False},
    {"allOf": [{"patternProperties": {"^a": NUMBER}}], "unevaluatedProperties": False},
    {
        "anyOf": [{"required": ["c"], "properties": {"c": {}}}, {"properties": {"a": {}}}],
        "unevaluatedProperties": False,
    },
    {
        "allOf": [{"$ref": "#/$defs/x"}],
        "$defs": {"x": {"patternProperties": {"^a": {}}}},
        "unevaluatedProperties": NUMBER,
    },
    {
        "if": {"required": ["c"]},
        "then": {"properties": {"c": {}}},
        "else": {"patternProperties": {"^a": {}}},
        "unevaluatedProperties": False,
    },
    {"dependentSchemas": {"c": {"properties": {"a": {}, "c": {}}}}, "unevaluatedProperties": False},
    {"not": {"pattern": "a"}},
]
VALUES: list[Any] = [
    *("a", "ba", "b", 1, None),
    *({}, {"a": 1}, {"a": "b"}, {"ab": 1}, {"xb": "x"}, {"c": 1}, {"c": 1, "a": 2}, {"c": "x", "b": "y"}, {"b": {}}),
]


def is_valid(validator: Any, value: Any) -> bool:
    """Whether a validator takes a value."""
    try:
        validator.validate(value)
    except ValidationError:
        return False
    return True


@pytest.mark.parametrize("draft", DRAFTS)
def test_values_are_valid_that_are_valid_for_jsonschema(draft: str) -> None:
    """With patterns that both take, in each draft."""
    for each in SCHEMAS:
        schema = {"$schema": draft, **each}
        validator = JsonValidator(schema, Registry())
        reference = validator_for(schema)(schema, registry=Registry())
        for value in VALUES:
            assert is_valid(validator, value) is is_valid(reference, value), (schema, value)


@pytest.mark.parametrize("draft", DRAFTS)
@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"pattern": SLOW}, TEXT),
        ({"properties": {"a": {"$schema": DRAFTS[2], "pattern": SLOW}}}, {"a": TEXT}),
        ({"patternProperties": {SLOW: {}}, "additionalProperties": False}, {TEXT: 1}),
    ],
)
def test_a_pattern_that_python_would_try_for_ever_refuses_its_value(draft: str, schema: Any, value: Any) -> None:
    """Wherever the pattern stands, also in a schema inside that names its draft."""
    with pytest.raises(ValidationError, match="not match|not allowed"):
        JsonValidator({"$schema": draft, **schema}, Registry()).validate(value)


@pytest.mark.parametrize("draft", DRAFTS[3:])
def test_unevaluated_properties_are_found_by_bounded_patterns(draft: str) -> None:
    """Drafts since 2019-09 have the keyword."""
    schema = {"$schema": draft, "patternProperties": {SLOW: {}}, "unevaluatedProperties": False}
    with pytest.raises(ValidationError, match="unevaluated properties"):
        JsonValidator(schema, Registry()).validate({TEXT: 1})
    JsonValidator(schema, Registry()).validate({"aaa": 1})


@pytest.mark.parametrize("draft", DRAFTS)
def test_a_pattern_that_is_none_of_re2_makes_the_schema_invalid(draft: str) -> None:
    """The error names the pattern."""
    with pytest.raises(SchemaError, match="is not one of RE2") as raised:
        JsonValidator({"$schema": draft, "not": {"pattern": "(?=a)"}}, Registry())
    assert "(?=a)" in raised.value.message


def test_a_pattern_that_is_met_first_with_a_value_refuses_it() -> None:
    """It stands where no draft expects a schema; its error is none that ``not`` turns around."""
    schema = {"not": {"$ref": "#/x"}, "x": {"pattern": "(?=a)"}}
    with pytest.raises(ValidationError, match="is not one of RE2"):
        JsonValidator(schema, Registry()).validate("b")


def test_a_value_is_refused_whose_patterns_take_too_many_steps() -> None:
    """Many sets of instructions for a text, or many texts for many patterns; the next value counts
    for itself."""
    text = f"{3**20_000:b}".replace("0", "a").replace("1", "b")
    validator = JsonValidator({"pattern": "(a|b)*a(a|b){80}$"}, Registry())
    with pytest.raises(ValidationError, match="takes too long"):
        validator.validate(text)
    validator.validate("a" * 100)
    names = JsonValidator({"patternProperties": {f"^x{each}": {} for each in range(400)}}, Registry())
    with pytest.raises(ValidationError, match="takes too long"):
        names.validate({f"k{each}": 1 for each in range(1000)})
    names.validate({"x1": 1})
