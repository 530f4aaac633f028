"""What a schema asks for, by kinds: a string, an object, one of several, and so on.

A schema of JSON Schema is a heap of keywords. Confluent's rules are about schemas of one kind each;
a schema with keywords of several kinds is one that combines them all.

In Confluent's registry: the subclasses of everit's `Schema`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from barnabas.registry.formats.json_schema.documents import LocatedSchema, SchemaDocument, lookup, reference_of

__all__ = ["Shape", "Shapes"]

_STRING = frozenset({"minLength", "maxLength", "pattern"})
_NUMBER = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
_ARRAY = frozenset(
    {
        *("items", "additionalItems", "minItems", "maxItems", "uniqueItems", "contains", "prefixItems"),
        *("unevaluatedItems", "minContains", "maxContains"),
    }
)
_OBJECT = frozenset(
    {
        *("properties", "required", "minProperties", "maxProperties", "dependencies", "patternProperties"),
        *("additionalProperties", "propertyNames", "dependentRequired", "dependentSchemas", "unevaluatedProperties"),
    }
)
_BY_KEYWORDS = (("object", _OBJECT), ("array", _ARRAY), ("number", _NUMBER), ("string", _STRING))
_CRITERIA = ("allOf", "anyOf", "oneOf")


@dataclass(eq=False)
class Shape:
    """A schema of one kind: empty, false, string, number, boolean, null, object, array, enum,
    const, not, conditional, or combined by allOf, anyOf or oneOf."""

    kind: str
    keywords: Mapping[str, Any] = field(repr=False)
    resolver: Any = field(repr=False)
    criterion: str = ""
    parts: "Sequence[Shape | LocatedSchema]" = ()
    """Those of a combined one."""
    is_integer: bool = False


class Shapes:
    """The shapes of the schemas in a document, each made once."""

    def __init__(self, document: SchemaDocument) -> None:
        self._document = document
        self._made: dict[int, Shape] = {}

    def root(self) -> Shape:
        return self._shape(self._document.root)

    def child(self, shape: Shape, schema: object) -> Shape:
        """The shape of a schema that stands in a shape's keywords."""
        return self._shape(LocatedSchema(schema, self._document.inside(schema, shape.resolver)))

    def parts(self, shape: Shape) -> "list[Shape]":
        """The shapes that a combined one combines."""
        return [each if isinstance(each, Shape) else self._shape(each) for each in shape.parts]

    def _shape(self, located: LocatedSchema) -> Shape:
        located = self._document.followed(located)
        if isinstance(located.schema, bool):
            return Shape("empty" if located.schema else "false", {}, located.resolver)
        made = self._made.get(id(located.schema))
        if made is None:
            made = self._made[id(located.schema)] = self._make(located.schema, located.resolver)
        return made

    def _make(self, schema: Mapping[str, Any], resolver: Any) -> Shape:
        parts: list[Shape | LocatedSchema] = [
            Shape(key, schema, resolver) for key in ("enum", "const", "not") if key in schema
        ]
        for criterion in _CRITERIA:
            if criterion in schema:
                inside = [LocatedSchema(each, self._document.inside(each, resolver)) for each in schema[criterion]]
                parts.append(Shape("combined", schema, resolver, criterion, inside))
        if "if" in schema:
            parts.append(Shape("conditional", schema, resolver))
        parts += _typed(schema, resolver)
        reference = reference_of(schema)
        if reference is not None and self._document.is_modern:
            parts.append(lookup(reference, resolver, ""))
        if not parts:
            return Shape("empty", schema, resolver)
        only = parts[0] if len(parts) == 1 else None
        return only if isinstance(only, Shape) else Shape("combined", schema, resolver, "allOf", parts)


def _typed(schema: Mapping[str, Any], resolver: Any) -> list[Shape]:
    """What the type says, or, where there is none, what the keywords are about."""
    kind = schema.get("type")
    if isinstance(kind, list):
        return [Shape("combined", schema, resolver, "anyOf", [_of_type(each, schema, resolver) for each in kind])]
    if kind is not None:
        return [_of_type(kind, schema, resolver)]
    return [Shape(name, schema, resolver) for name, keywords in _BY_KEYWORDS if schema.keys() & keywords]


def _of_type(kind: str, schema: Mapping[str, Any], resolver: Any) -> Shape:
    return Shape("number" if kind == "integer" else kind, schema, resolver, is_integer=kind == "integer")
