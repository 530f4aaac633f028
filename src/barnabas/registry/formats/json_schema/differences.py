"""The differences that make a JSON Schema incompatible: their kinds, and Confluent's words.

In Confluent's registry: `Difference` of the package `json.diff`.
"""

from typing import Final, NamedTuple

__all__ = ["MOST_DIFFERENCES", "JsonDifference", "at"]

MOST_DIFFERENCES: Final = 1_000
"""Are reported at most: schemas that use each other may differ in more places than there are."""

_Steps = tuple[str, ...]

_ABSENT = "The keyword at path '{path}' in the {reader} schema is not present in the {writer} schema"
_MORE = "The value at path '{path}' in the {reader} schema is more than its value in the {writer} schema"
_LESS = "The value at path '{path}' in the {reader} schema is less than its value in the {writer} schema"
_OTHER = "The value at path '{path}' is different between the {reader} and {writer} schema"
_FEWER = "An array or combined type at path '{path}' has fewer elements in the {reader} schema than the {writer} schema"
_EXTENDED = (
    "An array or combined type at path '{path}' has more elements in the {reader} schema than the {writer} schema"
)
_TYPE = "A type at path '{path}' is different between the {reader} schema and the {writer} schema"
_ADDED_TO_OPEN = (
    "The {reader} schema has an open content model and has a property or item at path '{path}'"
    " which is missing in the {writer} schema"
)
_REMOVED_FROM_CLOSED = (
    "The {reader} has a closed content model and is missing a property or item present at path '{path}'"
    " in the {writer} schema"
)
_REMOVED_NOT_COVERED = (
    "A property or item is missing in the {reader} schema but present at path '{path}' in the {writer} schema"
    " and is not covered by its partially open content model"
)
_ADDED_NOT_COVERED = (
    "The {reader} schema has a property or item at path '{path}' which is missing in the {writer} schema"
    " and is not covered by its partially open content model"
)

_DESCRIPTIONS = {
    "SCHEMA_ADDED": "",
    **dict.fromkeys(("TYPE_CHANGED", "TYPE_NARROWED", "COMBINED_TYPE_CHANGED", "ENUM_ARRAY_CHANGED"), _TYPE),
    "COMBINED_TYPE_SUBSCHEMAS_CHANGED": _TYPE,
    **dict.fromkeys(("PATTERN_CHANGED", "MULTIPLE_OF_CHANGED", "DEPENDENCY_ARRAY_CHANGED"), _OTHER),
    **dict.fromkeys(("DEPENDENCY_ARRAY_EXTENDED", "PRODUCT_TYPE_EXTENDED", "NOT_TYPE_EXTENDED"), _EXTENDED),
    **dict.fromkeys(("ENUM_ARRAY_NARROWED", "SUM_TYPE_NARROWED"), _FEWER),
    **dict.fromkeys(("ADDITIONAL_PROPERTIES_NARROWED", "ADDITIONAL_ITEMS_NARROWED"), _FEWER),
    **dict.fromkeys(("UNEVALUATED_PROPERTIES_NARROWED", "UNEVALUATED_ITEMS_NARROWED"), _FEWER),
    **dict.fromkeys(("ADDITIONAL_PROPERTIES_REMOVED", "ADDITIONAL_ITEMS_REMOVED"), _ABSENT),
    **dict.fromkeys(("UNEVALUATED_PROPERTIES_REMOVED", "UNEVALUATED_ITEMS_REMOVED"), _ABSENT),
    "MULTIPLE_OF_EXPANDED": _MORE,
    "REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL": "The {reader} schema has an unopen content model and has a"
    " required property at path '{path}' which is missing in the {writer} schema",
}
_BY_END = {
    "_ADDED_TO_OPEN_CONTENT_MODEL": _ADDED_TO_OPEN,
    "_REMOVED_FROM_CLOSED_CONTENT_MODEL": _REMOVED_FROM_CLOSED,
    "_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": _REMOVED_NOT_COVERED,
    "_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL": _ADDED_NOT_COVERED,
    "_ADDED": _ABSENT,
    "_INCREASED": _MORE,
    "_DECREASED": _LESS,
}


class JsonDifference(NamedTuple):
    """A place in a schema that does not accept what was written there."""

    kind: str
    path: _Steps = ()

    def message(self, reader: str, writer: str) -> str:
        text = _DESCRIPTIONS.get(self.kind)
        if text is None:
            text = next(text for end, text in _BY_END.items() if self.kind.endswith(end))
        described = text.format(path=f"#/{'/'.join(self.path)}", reader=reader, writer=writer)
        return f'{{errorType:"{self.kind}", description:"{described}\'}}'


def at(steps: _Steps, found: list[JsonDifference]) -> list[JsonDifference]:
    """Differences of what stands at a place, seen from above."""
    return [JsonDifference(each.kind, (*steps, *each.path)) for each in found[:MOST_DIFFERENCES]]
