"""What all resources work with."""

from .schema_parser import SchemaParser
from .scoped_settings import ScopedSettings
from .settings import RegistrySettings
from .state import RegistryState

__all__ = ["Parts"]


class Parts:
    """The state, what is configured in it, the parser of schemas, and the settings."""

    __slots__ = ("parser", "scoped", "settings", "state")

    def __init__(self, settings: RegistrySettings) -> None:
        self.settings = settings
        self.state = RegistryState(settings.compatibility_level)
        self.scoped: ScopedSettings = self.state.scoped
        self.parser = SchemaParser(self.state, settings.parsed_schemas)
