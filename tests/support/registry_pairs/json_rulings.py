"""Where Apicurio contradicts Confluent's published rules for JSON Schema."""

from support.registry_pairs.pair import Ruling

__all__ = ["RULINGS"]

_YOKOTA = "yokota.blog/2021/03/29/understanding-json-schema-compatibility, by the author of Confluent's rules"
_CHANGES = "confluentinc/schema-registry, json-schema-provider, SchemaDiff: the list of compatible changes"
_TYPES = "confluentinc/schema-registry, json-schema-provider, SchemaDiff: the comparison of types"

_SUM = Ruling(True, _YOKOTA, "a schema may become one of several (SUM_TYPE_EXTENDED)")
_PRODUCT = Ruling(True, _YOKOTA, "of all that must hold, one may stay (PRODUCT_TYPE_NARROWED)")
_DEFAULT = Ruling(True, _CHANGES, "REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED, and the same for a new property")
_EMPTY = Ruling(True, _CHANGES, "PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL")
_FALSE = Ruling(True, _CHANGES, "PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL")
_NOT_COVERED = Ruling(False, _YOKOTA, "what the pattern accepted was of another type than the property is now")
_COVERED = Ruling(True, _CHANGES, "PROPERTY_REMOVED_IS_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL")
_CONST = Ruling(False, _TYPES, "a constant and an enum are of two types (TYPE_CHANGED)")

RULINGS: dict[str, Ruling] = {
    "two types read one": _SUM,
    "string becomes oneOf with it": _SUM,
    "string becomes anyOf with it": _SUM,
    "allOf becomes one of its parts": _PRODUCT,
    "property becomes required with a default": _DEFAULT,
    "required property with a default added to closed": _DEFAULT,
    "property that takes anything added to open": _EMPTY,
    "property that takes nothing removed from closed": _FALSE,
    "property of another type than its pattern added": _NOT_COVERED,
    "property that fits a pattern removed": _COVERED,
    "const becomes an enum": _CONST,
}
"""By the name of the pair."""
