"""What an administrator chooses for a registry.

In Confluent's registry: `SchemaRegistryConfig`.
"""

from dataclasses import dataclass

from barnabas.registry.formats.schema import CompatibilityLevel

__all__ = ["RegistrySettings"]


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """The settings that decisions depend on, with Confluent's defaults."""

    compatibility_level: CompatibilityLevel = CompatibilityLevel.BACKWARD
    """``schema.compatibility.level``: holds where no config is set."""
    mode_mutability: bool = True
    """``mode.mutability``: whether modes can be changed."""
    reject_empty_subject: bool = False
    """``schema.reject.empty.subject``: whether a schema needs a subject with a name."""
    schema_search_limit: int = 1000
    """``schema.search.max.limit``: the most schemas in one answer of GET /schemas."""
    parsed_schemas: int = 1000
    """``schema.cache.size``: how many parsed schemas are kept in memory."""
