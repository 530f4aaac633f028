"""What all resources work with.

In Confluent's registry: the fields of `KafkaSchemaRegistry`.
"""

from barnabas.registry.core.long_work import LongWork
from barnabas.registry.core.qualified_subject import normalize, qualify
from barnabas.registry.core.schema_parser import SchemaParser
from barnabas.registry.core.scoped_settings import ScopedSettings
from barnabas.registry.core.settings import RegistrySettings
from barnabas.registry.core.state import RegistryState

__all__ = ["RegistryParts"]


class RegistryParts:
    """The state, what is configured in it, the parser of schemas, long work, and the settings."""

    __slots__ = ("long_work", "parser", "scoped", "settings", "state")

    def __init__(self, settings: RegistrySettings) -> None:
        self.settings = settings
        self.state = RegistryState(settings.compatibility_level)
        self.scoped: ScopedSettings = self.state.scoped
        self.long_work = LongWork()
        self.parser = SchemaParser(self.state, self.long_work, settings.parsed_schemas)

    def subject_named(self, name: str) -> str:
        """The subject that a name means: its own, or the one its alias stands for."""
        subject = normalize(name)
        config = self.scoped.config(subject)
        return subject if config is None or not config.alias else str(qualify(subject, config.alias))
