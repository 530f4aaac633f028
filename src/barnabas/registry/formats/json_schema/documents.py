"""A document of JSON Schema, those to which it refers, and what their references lead to.

References are resolved by the library ``referencing``. Nothing is fetched: a reference leads into
the document, to a schema that the registry's references name, or to a draft's own schema.

In Confluent's registry: `JsonSchemaProvider`.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple
from urllib.parse import urljoin

import jsonschema_specifications  # type: ignore[import-untyped]
from referencing.exceptions import CannotDetermineSpecification, Unresolvable
from referencing.jsonschema import DRAFT7, DRAFT201909, DRAFT202012, specification_with

from barnabas.registry.formats.json_schema.keywords import child_schemas, wrong_keyword
from barnabas.registry.formats.schema import InvalidSchemaError

__all__ = ["LocatedSchema", "SchemaDocument"]

_MAX_DEPTH: Final = 100
"""Schemas inside schemas."""

_BASE = "https://schema.invalid/"
"""Of documents without an address of their own."""


class LocatedSchema(NamedTuple):
    """A schema, and what resolves the references that stand in it."""

    schema: Any
    resolver: Any


class SchemaDocument:
    """A schema with all that it may refer to."""

    def __init__(self, root: object, resolved: Mapping[str, object]) -> None:
        self._specification = _specification(root)
        resource = self._specification.create_resource(root)
        base = urljoin(_BASE, _own_address(resource) or "")
        resources = [
            (address, _specification(each).create_resource(each))
            for name, each in resolved.items()
            for address in sorted({name, f"./{name}", urljoin(base, name), urljoin(_BASE, name)})
        ]
        registry: Any = jsonschema_specifications.REGISTRY
        registry = registry.with_resources([*resources, (base, resource)])
        self.root = LocatedSchema(root, registry.resolver(base))

    @property
    def is_modern(self) -> bool:
        """Whether keywords beside ``$ref`` count, as since draft 2019-09."""
        return self._specification in {DRAFT201909, DRAFT202012}

    def check(self, *, follows: bool) -> None:
        """Raises InvalidSchemaError for a wrong value of a keyword, and, if it follows them, for a
        reference that leads nowhere."""
        steps: list[tuple[str, object, Any, int]] = [("", *self.root, 0)]
        while steps:
            place, schema, resolver, depth = steps.pop()
            if isinstance(schema, bool):
                continue
            if not isinstance(schema, dict):
                raise InvalidSchemaError(f"at #{place or '/'}: a schema is an object, true or false")
            if depth > _MAX_DEPTH:
                raise InvalidSchemaError(f"schemas nest deeper than {_MAX_DEPTH}")
            wrong = wrong_keyword(schema)
            if wrong is not None:
                raise InvalidSchemaError(f"at #{place or '/'}: {wrong}")
            if depth:
                resolver = self.inside(schema, resolver)
            reference = reference_of(schema) if follows else None
            if reference is not None:
                lookup(reference, resolver, place)
            steps += [(f"{place}/{step}", child, resolver, depth + 1) for step, child in child_schemas(schema)]

    def inside(self, schema: object, resolver: Any) -> Any:
        """What resolves references in a schema that stands inside of another one."""
        if isinstance(schema, dict) and ("$id" in schema or "id" in schema):
            resource = self._specification.create_resource(schema)
            return resolver if _own_address(resource) is None else resolver.in_subresource(resource)
        return resolver

    def followed(self, located: LocatedSchema) -> LocatedSchema:
        """The schema to which a reference leads, and so on; itself if it is no reference."""
        seen = set()
        while (reference := self._only_reference(located.schema)) is not None:
            if id(located.schema) in seen:
                raise InvalidSchemaError(f"the reference {reference} leads to itself in a circle")
            seen.add(id(located.schema))
            located = lookup(reference, located.resolver, "")
        return located

    def _only_reference(self, schema: object) -> str | None:
        if not isinstance(schema, dict):
            return None
        reference = reference_of(schema)
        return None if self.is_modern and schema.keys() & _BESIDE else reference


_BESIDE = frozenset(
    {
        *("type", "enum", "const", "not", "allOf", "anyOf", "oneOf", "if", "properties", "required", "items"),
        *("additionalProperties", "patternProperties", "unevaluatedProperties", "unevaluatedItems", "prefixItems"),
        *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength"),
        *("pattern", "minItems", "maxItems", "uniqueItems", "minProperties", "maxProperties", "dependentRequired"),
        *("dependentSchemas", "contains", "propertyNames"),
    }
)
"""Keywords that narrow what stands beside them."""


def _own_address(resource: Any) -> str | None:
    """The id of a schema. Raises InvalidSchemaError if it is no address."""
    try:
        address: str | None = resource.id()
        urljoin(_BASE, address or "")
    except (AttributeError, TypeError, ValueError) as error:
        raise InvalidSchemaError("the id of a schema is no address") from error
    return address


def reference_of(schema: Mapping[str, object]) -> str | None:
    """The reference of a schema; a dynamic one leads where it would without its callers."""
    for key in ("$ref", "$dynamicRef", "$recursiveRef"):
        reference = schema.get(key)
        if isinstance(reference, str):
            return reference
    return None


def lookup(reference: str, resolver: Any, place: str) -> LocatedSchema:
    """What a reference leads to."""
    where = f"at #{place}: " if place else ""
    try:
        found = resolver.lookup(reference)
    except (Unresolvable, CannotDetermineSpecification, ValueError, TypeError, LookupError, AttributeError) as error:
        raise InvalidSchemaError(f"{where}the reference {reference[:200]} leads nowhere") from error
    if not isinstance(found.contents, dict | bool):
        raise InvalidSchemaError(f"{where}the reference {reference[:200]} leads to what is no schema")
    return LocatedSchema(found.contents, found.resolver)


def _specification(schema: object) -> Any:
    """The draft that a document names; draft 7 if it names none, or another one."""
    name = schema.get("$schema") if isinstance(schema, dict) else None
    if not isinstance(name, str):
        return DRAFT7
    scheme, _, rest = name.partition("://")
    is_old = rest.startswith("json-schema.org/draft-0")
    scheme = "http" if scheme == "https" and is_old else "https" if scheme == "http" and not is_old else scheme
    return specification_with(f"{scheme}://{rest}".rstrip("#"), default=DRAFT7)
