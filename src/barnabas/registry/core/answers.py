"""What answers show of a version in another way than it is stored.

In Confluent's registry: the entities `Schema` and `SchemaString`.
"""

from barnabas.registry.core.decisions import Answer
from barnabas.registry.core.parts import RegistryParts
from barnabas.registry.core.qualified_subject import QualifiedSubject, qualify
from barnabas.registry.core.stored_schema import StoredSchema, references_to_json
from barnabas.registry.formats.schema import SchemaReference

__all__ = ["formatted_text", "qualified_references"]


def formatted_text(parts: RegistryParts, stored: StoredSchema, form: str) -> str:
    """The text of a version in the form that a request's ``format`` names.

    Raises RegistryError (42201) when it cannot be parsed."""
    return parts.long_work.formatted(parts.parser.parse_stored(stored), form) if form.strip() else stored.text


def qualified_references(stored: StoredSchema, reference_format: str) -> dict[str, Answer]:
    """The references with the contexts in their names, where ``referenceFormat`` asks for them."""
    if reference_format != "qualified" or not QualifiedSubject.parse(stored.subject).qualified_context:
        return {}
    qualified = [
        SchemaReference(each.name, str(qualify(stored.subject, each.subject)), each.version)
        for each in stored.references
    ]
    return {"references": references_to_json(qualified)} if qualified else {}
