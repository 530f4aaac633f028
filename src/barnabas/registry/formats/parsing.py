"""Parses the text of a schema, whatever its format.

In Confluent's registry: `KafkaSchemaRegistry.parseSchema` and `SchemaProvider`.
"""

from collections.abc import Callable, Mapping, Sequence

from barnabas.registry.formats.avro.schema import parse_avro
from barnabas.registry.formats.json_schema.schema import parse_json_schema
from barnabas.registry.formats.protobuf.schema import parse_protobuf
from barnabas.registry.formats.schema import InvalidSchemaError, ParsedSchema, SchemaReference, SchemaType

__all__ = ["parse_schema"]

_PARSERS: Mapping[SchemaType, Callable[..., ParsedSchema]] = {
    SchemaType.AVRO: parse_avro,
    SchemaType.JSON: parse_json_schema,
    SchemaType.PROTOBUF: parse_protobuf,
}


def parse_schema(
    schema_type: SchemaType,
    text: str,
    references: Sequence[SchemaReference] = (),
    resolved: Mapping[str, str] | None = None,
    *,
    is_new: bool = True,
) -> ParsedSchema:
    """Parse the text of a schema.

    ``resolved`` holds the canonical texts of all schemas that it refers to, by the references'
    names, each after those that it refers to itself. A schema that ``is_new`` is held to the
    rules for registration; one that is stored already is only understood.

    Raises InvalidSchemaError when the text is no schema, or refers to what is not there."""
    resolved = resolved or {}
    for reference in references:
        if reference.name not in resolved:
            raise InvalidSchemaError(f"the reference {reference.name} is not resolved")
    return _PARSERS[schema_type](text, references, resolved, is_new=is_new)
