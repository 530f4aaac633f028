"""A row of the table: a reader's schema and a writer's."""

from dataclasses import dataclass

__all__ = ["Pair", "Ruling"]


@dataclass(frozen=True)
class Ruling:
    """Why a judge's answer does not hold: Confluent's published rule is another one."""

    is_compatible: bool
    source: str
    reason: str


@dataclass(frozen=True)
class Pair:
    """Schemas as texts; ``ruling`` stands where Apicurio contradicts Confluent's rules."""

    name: str
    schema_type: str
    reader: str
    writer: str
    ruling: Ruling | None = None
