"""What all resources work with."""

from dataclasses import dataclass

from .settings import RegistrySettings

__all__ = ["Parts"]


@dataclass(slots=True)
class Parts:
    """The state, the parser of schemas, and the settings."""

    settings: RegistrySettings
