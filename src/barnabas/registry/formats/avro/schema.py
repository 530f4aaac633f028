"""A schema of Avro, as the registry asks for it.

In Confluent's registry: `AvroSchema`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from barnabas.registry.formats.avro.compatibility import Incompatibility, find_incompatibilities
from barnabas.registry.formats.avro.parser import Parser
from barnabas.registry.formats.avro.text import canonical_text, normalized_text
from barnabas.registry.formats.avro.types import AvroType, RecordType
from barnabas.registry.formats.json_text import read_json
from barnabas.registry.formats.schema import InvalidSchemaError, SchemaReference, SchemaType

__all__ = ["AvroSchema", "parse_avro"]


@dataclass(frozen=True, slots=True)
class AvroSchema:
    """A type, its canonical text, and the schemas that it refers to."""

    text: str
    references: tuple[SchemaReference, ...]
    resolved: Mapping[str, str]
    type: AvroType = field(repr=False, compare=False)
    known: tuple[str, ...] = field(repr=False)
    """Full names that the schemas define to which it refers."""

    @property
    def schema_type(self) -> SchemaType:
        return SchemaType.AVRO

    def normalized(self) -> "AvroSchema":
        references = tuple(sorted(set(self.references), key=lambda each: (each.name, each.subject, each.version)))
        return replace(self, text=normalized_text(self.type, self.known), references=references)

    @property
    def top_level_fields(self) -> frozenset[str]:
        return frozenset(each.name for each in self.type.fields) if isinstance(self.type, RecordType) else frozenset()

    def formatted(self, form: str) -> str:
        return canonical_text(self.type) if form == "resolved" else self.text

    def incompatibilities(self, written: "AvroSchema", *, reader: str = "new", writer: str = "old") -> list[str]:
        try:
            found = find_incompatibilities(self.type, written.type)
        except RecursionError as error:
            raise InvalidSchemaError("the types of the schema nest too deeply to be compared") from error
        return [_message(each, reader, writer) for each in found]


def parse_avro(
    text: str, references: Sequence[SchemaReference], resolved: Mapping[str, str], *, is_new: bool
) -> AvroSchema:
    """Parse a schema of Avro. Raises InvalidSchemaError."""
    try:
        known = Parser(is_strict=False)
        for name, referred in resolved.items():
            try:
                known.parse(read_json(referred))
            except InvalidSchemaError as error:
                raise InvalidSchemaError(f"the reference {name}: {error}") from error
        parser = Parser(is_strict=is_new)
        parser.names = dict(known.names)
        parsed = parser.parse(read_json(text))
        names = tuple(known.names)
        canonical = canonical_text(parsed, names)
    except RecursionError as error:
        raise InvalidSchemaError("the schema nests too deeply") from error
    return AvroSchema(canonical, tuple(references), dict(resolved), parsed, names)


def _message(found: Incompatibility, reader: str, writer: str) -> str:
    """The description is Confluent's for the kind; what is at stake follows from Apache's words."""
    place, info = found.location, found.message
    match found.kind:
        case "FIXED_SIZE_MISMATCH":
            text = (
                f"The size of FIXED type field at path '{place}' in the {reader} schema"
                f" does not match with the {writer} schema"
            )
        case "TYPE_MISMATCH":
            text = (
                f"The type (path '{place}') of a field in the {reader} schema does not match with the {writer} schema"
            )
        case "NAME_MISMATCH":
            text = f"The name of the schema has changed (path '{place}')"
        case "MISSING_ENUM_SYMBOLS":
            text = f"The {reader} schema is missing enum symbols '{info}' at path '{place}' in the {writer} schema"
        case "MISSING_UNION_BRANCH":
            text = (
                f"The {reader} schema is missing a type inside a union field at path '{place}' in the {writer} schema"
            )
        case _:
            text = (
                f"The field '{info}' at path '{place}' in the {reader} schema"
                f" has no default value and is missing in the {writer} schema"
            )
    return f"{{errorType:'{found.kind}', description:'{text}', additionalInfo:'{info}'}}"
