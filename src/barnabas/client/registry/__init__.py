"""Codecs with schemas of a registry: Avro, JSON Schema and Protobuf.

Kafka has no counterpart; Confluent's client has `KafkaAvroSerializer` and `SchemaRegistryClient`.
"""

from typing import TYPE_CHECKING

from barnabas.base.lazy_names import import_lazily

if TYPE_CHECKING:
    from barnabas.client.registry.registry import (
        SchemaReference,
        SchemaRegistry,
        UnknownSchemaError,
        UnsupportedSchemaError,
    )

__all__ = ["SchemaReference", "SchemaRegistry", "UnknownSchemaError", "UnsupportedSchemaError"]

if not TYPE_CHECKING:
    __getattr__ = import_lazily(__name__, dict.fromkeys(__all__, "registry"))
