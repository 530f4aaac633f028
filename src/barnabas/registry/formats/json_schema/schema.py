"""A JSON Schema, as the registry asks for it.

In Confluent's registry: `JsonSchema`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from barnabas.registry.formats.json_schema.compatibility import find_json_differences
from barnabas.registry.formats.json_schema.documents import SchemaDocument
from barnabas.registry.formats.json_schema.shapes import Shapes
from barnabas.registry.formats.json_text import read_json, sorted_keys, write_json
from barnabas.registry.formats.schema import InvalidSchemaError, SchemaReference, SchemaType

__all__ = ["JsonSchema", "parse_json_schema"]


@dataclass(frozen=True, slots=True)
class JsonSchema:
    """A document, its compact text, and the documents to which it refers."""

    text: str
    references: tuple[SchemaReference, ...]
    resolved: Mapping[str, str]
    document: SchemaDocument = field(repr=False, compare=False)

    @property
    def schema_type(self) -> SchemaType:
        return SchemaType.JSON

    def normalized(self) -> "JsonSchema":
        references = tuple(sorted(set(self.references), key=lambda each: (each.name, each.subject, each.version)))
        return replace(self, text=write_json(sorted_keys(self.document.root.schema)), references=references)

    @property
    def top_level_fields(self) -> frozenset[str]:
        root = self.document.root.schema
        properties = root.get("properties") if isinstance(root, dict) else None
        return frozenset(properties) if isinstance(properties, dict) else frozenset()

    def formatted(self, form: str) -> str:  # noqa: ARG002 (as every format has it)
        """There is one form only."""
        return self.text

    def incompatibilities(self, written: "JsonSchema", *, reader: str = "new", writer: str = "old") -> list[str]:
        try:
            found = find_json_differences(Shapes(self.document), Shapes(written.document))
        except RecursionError as error:
            raise InvalidSchemaError("the schemas nest too deeply to be compared") from error
        return [each.message(reader, writer) for each in found]


def parse_json_schema(
    text: str, references: Sequence[SchemaReference], resolved: Mapping[str, str], *, is_new: bool
) -> JsonSchema:
    """Parse a JSON Schema. Raises InvalidSchemaError."""
    root = read_json(text)
    if not isinstance(root, dict | bool):
        raise InvalidSchemaError("a JSON Schema is an object, true or false")
    documents = {name: _read_reference(name, referred) for name, referred in resolved.items()}
    try:
        document = SchemaDocument(root, documents)
        document.check(follows=is_new)
        canonical = write_json(root)
    except RecursionError as error:
        raise InvalidSchemaError("the schema nests too deeply") from error
    return JsonSchema(canonical, tuple(references), dict(resolved), document)


def _read_reference(name: str, text: str) -> object:
    try:
        return read_json(text)
    except InvalidSchemaError as error:
        raise InvalidSchemaError(f"the reference {name}: {error}") from error
