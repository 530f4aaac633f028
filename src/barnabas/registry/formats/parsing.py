"""Parses the text of a schema, whatever its format."""

from collections.abc import Mapping, Sequence

from .schema import ParsedSchema, SchemaReference, SchemaType

__all__ = ["parse_schema"]


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
    raise NotImplementedError
