"""confluent-kafka's serializers of JSON Schema, without its requests to other servers and its way
to match patterns.

It looks for a ``$ref`` that no reference of the schema explains on the web. A schema comes from a
registry, and must not make those who read it ask a server of its author's choice: such a ``$ref``
is an error here. Patterns are matched as `json_validators` says.

Kafka has no counterpart; Confluent's client has KafkaJsonSchemaSerializer and
KafkaJsonSchemaDeserializer.
"""

from typing import Any

from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from referencing import Registry

from barnabas.client.registry.json_validators import JsonValidator

__all__ = ["LocalJsonDeserializer", "LocalJsonSerializer"]


class LocalJsonSerializer(JSONSerializer):
    """What encodes, and validates what it encodes."""

    def _get_parsed_schema(self, schema: Any) -> tuple[Any, Any]:
        return _local(super()._get_parsed_schema(schema))

    def _get_validator(self, schema: Any, parsed_schema: Any, registry: Any) -> Any:
        return _validator(self._validators, schema, parsed_schema, registry)


class LocalJsonDeserializer(JSONDeserializer):
    """What decodes, and validates what it has decoded."""

    def _get_parsed_schema(self, schema: Any) -> tuple[Any, Any]:
        return _local(super()._get_parsed_schema(schema))

    def _get_validator(self, schema: Any, parsed_schema: Any, registry: Any) -> Any:
        return _validator(self._validators, schema, parsed_schema, registry)


def _validator(known: Any, schema: Any, document: Any, registry: Any) -> JsonValidator:
    """The validator of a schema, which a serializer keeps."""
    found = known.get(schema)
    if found is None:
        found = known[schema] = JsonValidator(document, registry)
    return found  # type: ignore[no-any-return]


def _local(parsed: tuple[Any, Any]) -> tuple[Any, Any]:
    """The same with the references alone."""
    document, references = parsed
    if references is None:
        return document, None
    local: Registry[Any] = Registry().with_resources([(uri, references[uri]) for uri in references])
    return document, local
