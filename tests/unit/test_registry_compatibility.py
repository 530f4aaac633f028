"""The seven levels of compatibility: which versions are looked at, and in which direction."""

import json

import pytest

from barnabas.registry.formats.compatibility import check_compatibility, checked_versions
from barnabas.registry.formats.parsing import parse_schema
from barnabas.registry.formats.schema import CompatibilityLevel, ParsedSchema, SchemaType

INT, LONG, STRING = (parse_schema(SchemaType.AVRO, json.dumps(kind)) for kind in ("int", "long", "string"))


@pytest.mark.parametrize(
    ("level", "versions", "new", "fits"),
    [
        ("NONE", [STRING], INT, True),
        ("BACKWARD", [], INT, True),
        ("BACKWARD", [INT], LONG, True),
        ("BACKWARD", [LONG], INT, False),
        ("BACKWARD", [STRING, INT], LONG, True),
        ("BACKWARD_TRANSITIVE", [STRING, INT], LONG, False),
        ("BACKWARD_TRANSITIVE", [INT, INT], LONG, True),
        ("FORWARD", [LONG], INT, True),
        ("FORWARD", [INT], LONG, False),
        ("FORWARD", [STRING, LONG], INT, True),
        ("FORWARD_TRANSITIVE", [STRING, LONG], INT, False),
        ("FULL", [INT], INT, True),
        ("FULL", [INT], LONG, False),
        ("FULL", [LONG], INT, False),
        ("FULL", [STRING, INT], INT, True),
        ("FULL_TRANSITIVE", [STRING, INT], INT, False),
        ("FULL_TRANSITIVE", [INT, INT], INT, True),
    ],
)
def test_a_level_looks_at_its_versions_in_its_direction(
    level: str, versions: list[ParsedSchema], new: ParsedSchema, fits: bool
) -> None:
    """Backward: the new one reads the old ones. Not transitive: the last version only."""
    numbered = list(enumerate(versions, 1))
    assert (not check_compatibility(CompatibilityLevel(level), new, numbered)) is fits


def test_the_versions_of_a_level_are_none_the_last_or_all() -> None:
    """So that a caller need not parse the others."""
    assert checked_versions(CompatibilityLevel.NONE, [1, 2, 3]) == ()
    assert checked_versions(CompatibilityLevel.FULL, [1, 2, 3]) == [3]
    assert checked_versions(CompatibilityLevel.FORWARD_TRANSITIVE, [1, 2, 3]) == [1, 2, 3]


def test_messages_name_the_newest_version_that_does_not_fit() -> None:
    """Its number and its text stand last; the message says which schema is which."""
    versions = [(1, STRING), (4, STRING), (7, LONG)]
    level = CompatibilityLevel.BACKWARD_TRANSITIVE
    assert check_compatibility(level, LONG, versions) == [
        "{errorType:'TYPE_MISMATCH', description:'The type (path '/') of a field in the new schema does not match with"
        " the old schema', additionalInfo:'reader type: LONG not compatible with writer type: STRING'}",
        "{oldSchemaVersion: 4}",
        "{oldSchema: '\"string\"'}",
    ]


def test_an_old_schema_that_is_long_is_cut_in_messages() -> None:
    """At 10,240 characters, as Confluent's registry does."""
    long = parse_schema(SchemaType.AVRO, json.dumps({"type": "string", "x": "y" * 20_000}))
    *_, last = check_compatibility(CompatibilityLevel.BACKWARD, INT, [(1, long)])
    assert last.startswith("{oldSchema: <truncated> '{")
    assert last.endswith("y...'}")
    assert len(last) == 10_240 + len("{oldSchema: <truncated> '...'}")


@pytest.mark.parametrize("level", [level for level in CompatibilityLevel if level is not CompatibilityLevel.NONE])
def test_schemas_that_cannot_be_compared_do_not_fit(level: CompatibilityLevel) -> None:
    """The message says why; with no level they fit, for nothing is compared."""
    ahead = {"type": "object", "patternProperties": {"(?=a)": {}}, "additionalProperties": False}
    old, new = (parse_schema(SchemaType.JSON, json.dumps({**ahead, "properties": {name: {}}})) for name in ("x", "y"))
    first, *_ = check_compatibility(level, new, [(1, old)])
    assert first.startswith("Unexpected exception during compatibility check: the pattern '(?=a)'")
    assert not check_compatibility(CompatibilityLevel.NONE, new, [(1, old)])
