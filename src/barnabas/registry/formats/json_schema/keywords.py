"""The keywords of JSON Schema: where schemas stand inside schemas, and what a keyword's value is.

All drafts are read with one table: a keyword that a draft does not know is rare, and is not
compared where nothing reads it.

In Confluent's registry: the classes of everit's `Schema`.
"""

from collections.abc import Callable, Iterator, Mapping

__all__ = ["TYPES", "child_schemas", "wrong_keyword"]

TYPES = frozenset({"string", "number", "integer", "boolean", "null", "object", "array"})

_MAPS = ("properties", "patternProperties", "definitions", "$defs", "dependentSchemas")
_SINGLE = (
    *("additionalProperties", "additionalItems", "unevaluatedProperties", "unevaluatedItems", "contains"),
    *("propertyNames", "not", "if", "then", "else"),
)
_LISTS = ("allOf", "anyOf", "oneOf", "prefixItems")

_Schema = Mapping[str, object]


def child_schemas(schema: _Schema) -> Iterator[tuple[str, object]]:
    """The schemas that stand directly in a schema, each with its place; also those that are
    none."""
    for key in schema.keys() & _MAPS:
        children = schema[key]
        if isinstance(children, dict):
            yield from ((f"{key}/{name}", child) for name, child in children.items())
    for key in schema.keys() & _SINGLE:
        yield key, schema[key]
    for key in schema.keys() & _LISTS:
        children = schema[key]
        if isinstance(children, list):
            yield from ((f"{key}/{index}", child) for index, child in enumerate(children))
    items = schema.get("items")
    if isinstance(items, list):
        yield from ((f"items/{index}", child) for index, child in enumerate(items))
    elif "items" in schema:
        yield "items", items
    dependencies = schema.get("dependencies")
    if isinstance(dependencies, dict):
        yield from ((f"dependencies/{k}", each) for k, each in dependencies.items() if not isinstance(each, list))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_count(value: object) -> bool:
    return _is_number(value) and float(str(value)) >= 0 and float(str(value)).is_integer()


def _are_texts(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def _is_type(value: object) -> bool:
    if isinstance(value, list):
        return bool(value) and all(isinstance(each, str) and each in TYPES for each in value)
    return isinstance(value, str) and value in TYPES


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _is_object(value: object) -> bool:
    return isinstance(value, dict)


def _is_list(value: object) -> bool:
    return isinstance(value, list)


def _is_filled_list(value: object) -> bool:
    return isinstance(value, list) and bool(value)


def _is_divisor(value: object) -> bool:
    return _is_number(value) and float(str(value)) > 0


def _is_limit(value: object) -> bool:
    return _is_number(value) or isinstance(value, bool)


_CHECKS: Mapping[str, tuple[Callable[[object], bool], str]] = {
    **dict.fromkeys(("$id", "$ref", "$anchor", "$dynamicRef", "$schema", "pattern"), (_is_text, "a string")),
    **dict.fromkeys(("title", "description", "format", "$comment"), (_is_text, "a string")),
    "type": (_is_type, "a type, or a list of types"),
    "enum": (_is_list, "a list of values"),
    **dict.fromkeys(_LISTS, (_is_filled_list, "a list of schemas")),
    **dict.fromkeys(_MAPS, (_is_object, "schemas by names")),
    **dict.fromkeys(("dependencies", "dependentRequired"), (_is_object, "an object")),
    "required": (_are_texts, "a list of names"),
    "multipleOf": (_is_divisor, "a number above 0"),
    **dict.fromkeys(("maximum", "minimum"), (_is_number, "a number")),
    **dict.fromkeys(("exclusiveMaximum", "exclusiveMinimum"), (_is_limit, "a number")),
    **dict.fromkeys(("maxLength", "minLength", "maxItems", "minItems", "maxProperties"), (_is_count, "a count")),
    **dict.fromkeys(("minProperties", "maxContains", "minContains"), (_is_count, "a count")),
    "uniqueItems": (lambda value: isinstance(value, bool), "true or false"),
}


def wrong_keyword(schema: _Schema) -> str | None:
    """What is wrong with the value of a keyword, or None."""
    for key in schema.keys() & _CHECKS.keys():
        is_right, kind = _CHECKS[key]
        if not is_right(schema[key]):
            return f"{key} is not {kind}"
    for key in ("dependencies", "dependentRequired"):
        for name, each in dict(schema.get(key) or {}).items():  # type: ignore[call-overload]
            is_names = isinstance(each, list) or key == "dependentRequired"
            if is_names and not _are_texts(each):
                return f"{key} of {name} is not a list of names"
    return None
