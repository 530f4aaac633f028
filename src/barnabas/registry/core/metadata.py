"""The metadata of a schema: tags, properties, and which of them are sensitive."""

from dataclasses import dataclass

__all__ = ["Metadata"]


@dataclass(frozen=True, slots=True)
class Metadata:
    """What its owner says about a schema."""
