"""The core of the registry: records of ``_schemas``, the state they make, and all decisions.

It is Confluent's KafkaSchemaRegistry without its I/O. ``Registry`` has one part per resource of the
HTTP API; each operation is synchronous, and answers in values for JSON."""

from barnabas.registry.core.decisions import Decision, LogRecord, NewRecord
from barnabas.registry.core.registry import Registry
from barnabas.registry.core.requests import RegisterRequest
from barnabas.registry.core.settings import RegistrySettings

__all__ = ["Decision", "LogRecord", "NewRecord", "RegisterRequest", "Registry", "RegistrySettings"]
