"""The rules for objects and arrays: what may come, go and change depends on what else they accept.

Confluent calls that the content model. It is open where any other property or item is accepted,
partially open where those are that fit a schema, and closed where none is. A property may be added
where the old schema accepted nothing else than it does, and may go where the new one accepts it.

In Confluent's registry: `ObjectSchemaDiff` and `ArraySchemaDiff`.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import cached_property
from typing import Any, Final

from barnabas.base.re2 import Re2Error, Re2Pattern, json_schema_pattern
from barnabas.base.tasks import done_here
from barnabas.registry.formats.json_schema.differences import JsonDifference, at
from barnabas.registry.formats.json_schema.shapes import Shape, Shapes
from barnabas.registry.formats.json_schema.value_rules import compare_limits
from barnabas.registry.formats.schema import InvalidSchemaError

__all__ = ["Compare", "ShapeSide", "compare_arrays", "compare_objects"]

_MOST_MATCHES: Final = 20_000
"""Names that are matched with patterns for one object."""

_Found = list[JsonDifference]
Compare = Callable[[Shape | None, Shape | None], _Found]
"""Compares the old shape with the new one."""


class ShapeSide:
    """A shape of an object or an array, with its schemas as shapes."""

    def __init__(self, shape: Shape, shapes: Shapes) -> None:
        self._shape = shape
        self._shapes = shapes
        self.keywords: Mapping[str, Any] = shape.keywords

    def child(self, key: str) -> Shape | None:
        """The schema that is the value of a keyword."""
        return self._shapes.child(self._shape, self.keywords[key]) if key in self.keywords else None

    def children(self, key: str) -> dict[str, Shape]:
        """The schemas that the value of a keyword has by name."""
        return {name: self._shapes.child(self._shape, each) for name, each in (self.keywords.get(key) or {}).items()}

    def of(self, schema: object) -> Shape:
        """The shape of a schema inside of this one."""
        return self._shapes.child(self._shape, schema)


def _rest(side: ShapeSide, keyword: str, fallback: str) -> Shape | None:
    """What others must fit: None if anything goes, and the shape false if nothing does."""
    for key in (keyword, fallback):
        shape = side.child(key)
        if shape is not None:
            return None if shape.kind == "empty" else shape
    return None


def _compare_rest(old: ShapeSide, new: ShapeSide, key: str, kind: str, compare: Compare) -> _Found:
    written, read = old.child(key), new.child(key)
    if read is None or read.kind == "empty" or (written is not None and written.kind == "false"):
        return []
    if read.kind == "false":
        return [JsonDifference(f"{kind}_REMOVED", (key,))]
    if written is None or written.kind == "empty":
        return [JsonDifference(f"{kind}_NARROWED", (key,))]
    return at((key,), compare(written, read))


def compare_objects(old: ShapeSide, new: ShapeSide, compare: Compare) -> _Found:
    """Properties, which of them are required, dependencies, other properties, and their number."""
    found = _required(old, new)
    found += at(("properties",), _properties(old, new, compare))
    found += at(("dependencies",), _dependencies(old, new, compare))
    found += _compare_rest(old, new, "additionalProperties", "ADDITIONAL_PROPERTIES", compare)
    found += _compare_rest(old, new, "unevaluatedProperties", "UNEVALUATED_PROPERTIES", compare)
    return found + compare_limits(old.keywords, new.keywords, "maxProperties", "minProperties")


def _properties_of(side: ShapeSide) -> Mapping[str, Any]:
    properties: Mapping[str, Any] = side.keywords.get("properties") or {}
    return properties


def _has_default(side: ShapeSide, name: str) -> bool:
    schema = _properties_of(side)[name]
    return isinstance(schema, dict) and "default" in schema


def _required(old: ShapeSide, new: ShapeSide) -> _Found:
    """A property that both know may become required only with a default."""
    written = set(old.keywords.get("required") or ())
    known = _properties_of(old).keys() & _properties_of(new).keys()
    added = (name for name in dict.fromkeys(new.keywords.get("required") or ()) if name in known - written)
    return [
        JsonDifference("REQUIRED_ATTRIBUTE_ADDED", ("required", name)) for name in added if not _has_default(new, name)
    ]


def _properties(old: ShapeSide, new: ShapeSide, compare: Compare) -> _Found:
    written, read = old.children("properties"), new.children("properties")
    patterns = (_Patterns(old), _Patterns(new))
    found: _Found = []
    for name in dict.fromkeys([*written, *read]):
        if name not in read:
            differences = _removed(written[name], patterns[1].rest(name), "PROPERTY", compare)
        elif name not in written:
            differences = _added_property(name, read[name], patterns[0].rest(name), new, compare)
        else:
            differences = compare(written[name], read[name])
        found += at((name,), differences)
    return found


class _Patterns:
    """What a property fits that an object does not name."""

    def __init__(self, side: ShapeSide) -> None:
        self._side = side
        self._rest = _rest(side, "additionalProperties", "unevaluatedProperties")
        self._left = _MOST_MATCHES

    @cached_property
    def _patterns(self) -> list[tuple[Re2Pattern, Shape]]:
        return [(_compiled(pattern), shape) for pattern, shape in self._side.children("patternProperties").items()]

    def rest(self, name: str) -> Shape | None:
        """The shape that a property of this name must fit; None if it may be anything. With
        patterns, what fits none of them and needs no shape counts as refused."""
        for pattern, shape in self._patterns:
            self._left -= 1
            if self._left < 0:
                raise InvalidSchemaError("there are too many patterns of properties to be compared")
            if done_here(pattern.matches(name)):
                return shape
        if self._rest is None and self._patterns:
            return Shape("false", {}, None)
        return self._rest


def _compiled(pattern: str) -> Re2Pattern:
    try:
        return json_schema_pattern(pattern)
    except Re2Error as error:
        raise InvalidSchemaError(f"the pattern {pattern[:100]!r} of properties is not one of RE2: {error}") from error


def _removed(written: Shape, rest: Shape | None, what: str, compare: Compare) -> _Found:
    """Something that the new schema no longer names, and whether it accepts it nevertheless."""
    if rest is None or written.kind == "false":
        return []
    if rest.kind == "false":
        return [JsonDifference(f"{what}_REMOVED_FROM_CLOSED_CONTENT_MODEL")]
    found = compare(written, rest)
    return [*found, JsonDifference(f"{what}_REMOVED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL")] if found else []


def _added_property(name: str, read: Shape, rest: Shape | None, new: ShapeSide, compare: Compare) -> _Found:
    is_required = name in (new.keywords.get("required") or ())
    if rest is None:
        if read.kind == "empty":
            return []
        kind = "REQUIRED_PROPERTY" if is_required else "OPTIONAL_PROPERTY"
        kind += "_WITH_DEFAULT" if is_required and _has_default(new, name) else ""
        return [JsonDifference(f"{kind}_ADDED_TO_OPEN_CONTENT_MODEL")]
    found = _added_to_rest(read, rest, "PROPERTY", compare)
    if is_required and not _has_default(new, name):
        found.append(JsonDifference("REQUIRED_PROPERTY_ADDED_TO_UNOPEN_CONTENT_MODEL"))
    return found


def _added_to_rest(read: Shape, rest: Shape, what: str, compare: Compare) -> _Found:
    """Something that the new schema names, and the old one accepted if it fitted a schema."""
    if rest.kind == "false":
        return []
    found = compare(rest, read)
    return [*found, JsonDifference(f"{what}_ADDED_NOT_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL")] if found else []


def _dependencies(old: ShapeSide, new: ShapeSide, compare: Compare) -> _Found:
    """Those by names may lose names; those by schemas are compared."""
    found: _Found = []
    written, read = _dependent_names(old), _dependent_names(new)
    for name, names in read.items():
        if name not in written:
            found.append(JsonDifference("DEPENDENCY_ARRAY_ADDED", (name,)))
        elif not names <= written[name]:
            kind = "EXTENDED" if written[name] <= names else "CHANGED"
            found.append(JsonDifference(f"DEPENDENCY_ARRAY_{kind}", (name,)))
    written_schemas = _dependent_schemas(old)
    for name, schema in _dependent_schemas(new).items():
        if name not in written_schemas:
            found.append(JsonDifference("DEPENDENCY_SCHEMA_ADDED", (name,)))
        else:
            found += at((name,), compare(written_schemas[name], schema))
    return found


def _given(side: ShapeSide) -> Iterable[tuple[str, object]]:
    for key in ("dependencies", "dependentRequired", "dependentSchemas"):
        yield from (side.keywords.get(key) or {}).items()


def _dependent_names(side: ShapeSide) -> dict[str, set[str]]:
    return {name: set(each) for name, each in _given(side) if isinstance(each, list)}


def _dependent_schemas(side: ShapeSide) -> dict[str, Shape]:
    return {name: side.of(each) for name, each in _given(side) if not isinstance(each, list)}


class _Items:
    """The items of an array: the first ones by their place, and the schema of all or of the
    others. Drafts say that with ``items`` and ``additionalItems``, or ``prefixItems`` and
    ``items``."""

    def __init__(self, side: ShapeSide) -> None:
        given = side.keywords.get("items")
        first = side.keywords.get("prefixItems")
        self.first: list[Shape] = []
        self.every: Shape | None = None
        self.others: Shape | None = None
        if isinstance(first, list):
            self.first = [side.of(each) for each in first]
            self.others = side.child("items")
        elif isinstance(given, list):
            self.first = [side.of(each) for each in given]
            self.others = side.child("additionalItems")
        elif given is False:
            self.others = side.of(given)
        elif given is not None:
            self.every = side.child("items")
        if self.every is not None and self.every.kind == "empty":
            self.every = None
        self.rest = self.others or side.child("unevaluatedItems")
        if self.rest is not None and self.rest.kind == "empty":
            self.rest = None


def compare_arrays(old: ShapeSide, new: ShapeSide, compare: Compare) -> _Found:
    """Items, other items, and limits."""
    written, read = _Items(old), _Items(new)
    found = at(("items",), compare(written.every, read.every))
    for index in range(max(len(written.first), len(read.first))):
        here = ("items", str(index))
        if index >= len(read.first):
            found += at(here, _removed(written.first[index], read.rest, "ITEM", compare))
        elif index < len(written.first):
            found += at(here, compare(written.first[index], read.first[index]))
        elif written.rest is not None:
            found += at(here, _added_to_rest(read.first[index], written.rest, "ITEM", compare))
        elif read.first[index].kind != "empty":
            found.append(JsonDifference("ITEM_ADDED_TO_OPEN_CONTENT_MODEL", here))
    found += _compare_others(written.others, read.others, compare)
    found += _compare_rest(old, new, "unevaluatedItems", "UNEVALUATED_ITEMS", compare)
    found += compare_limits(old.keywords, new.keywords, "maxItems", "minItems")
    if new.keywords.get("uniqueItems") and not old.keywords.get("uniqueItems"):
        found.append(JsonDifference("UNIQUE_ITEMS_ADDED", ("uniqueItems",)))
    return found + compare_limits(old.keywords, new.keywords, "maxContains", "minContains")


def _compare_others(written: Shape | None, read: Shape | None, compare: Compare) -> _Found:
    if read is None or read.kind == "empty" or (written is not None and written.kind == "false"):
        return []
    if read.kind == "false":
        return [JsonDifference("ADDITIONAL_ITEMS_REMOVED", ("additionalItems",))]
    if written is None or written.kind == "empty":
        return [JsonDifference("ADDITIONAL_ITEMS_NARROWED", ("additionalItems",))]
    return at(("additionalItems",), compare(written, read))
