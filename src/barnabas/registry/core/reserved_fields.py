"""Fields that a schema must not have (``validateFields``).

The property ``confluent:reserved`` of the metadata lists names, with commas: no field at the top
has one, and a later version does not take one from the list. Properties of JSON Schema do not begin
with ``$$``, whatever the metadata say.

In Confluent's registry: `ParsedSchema.validateFields`.
"""

from barnabas.registry.core.finder import CanonicalSchema
from barnabas.registry.core.metadata import Metadata
from barnabas.registry.core.stored_schema import StoredSchema
from barnabas.registry.errors import ErrorCode, RegistryError
from barnabas.registry.formats.schema import SchemaType

__all__ = ["check_field_names", "reserved_field_messages"]

_PROPERTY = "confluent:reserved"
_RESTRICTED_PREFIX = "$$"


def check_field_names(schema: CanonicalSchema) -> None:
    """Raises RegistryError (42201) for a name that no field may have."""
    if schema.parsed.schema_type is SchemaType.JSON:
        for name in sorted(schema.parsed.top_level_fields):
            if name.startswith(_RESTRICTED_PREFIX):
                raise RegistryError(
                    ErrorCode.INVALID_SCHEMA,
                    f"Invalid schema of type JSON, details: #/properties/{name}: "
                    f"Field names cannot start with {_RESTRICTED_PREFIX} prefix",
                )


def reserved_field_messages(schema: CanonicalSchema, previous: StoredSchema | None) -> list[str]:
    """What of a schema is against the names that it, or the version before, reserves."""
    reserved = _reserved(schema.candidate.metadata)
    before = set() if previous is None else _reserved(previous.metadata)
    return [
        *(
            f"The new schema has reserved field {name} removed from its metadata which is present in the old "
            "schema's metadata."
            for name in sorted(before - reserved)
        ),
        *(
            f"The new schema has field that conflicts with the reserved field {name}."
            for name in sorted(reserved & schema.parsed.top_level_fields)
        ),
    ]


def _reserved(metadata: Metadata | None) -> set[str]:
    text = None if metadata is None else metadata.get(_PROPERTY)
    return {name.strip() for name in (text or "").split(",") if name.strip()}
