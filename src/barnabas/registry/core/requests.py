"""The bodies of requests, as Confluent's RegisterSchemaRequest."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from ..formats.schema import SchemaReference
from .metadata import Metadata
from .rules import RuleSet

__all__ = ["RegisterRequest"]


@dataclass(frozen=True, slots=True)
class RegisterRequest:
    """A schema to register, to look up, or to test.

    ``version`` 0 stands for the next one, -1 for the latest; ``id`` -1 for none."""

    schema: str | None
    schema_type: str = "AVRO"
    references: Sequence[SchemaReference] = ()
    metadata: Metadata | None = None
    rule_set: RuleSet | None = None
    version: int = 0
    id: int = -1

    @classmethod
    def from_json(cls, body: object) -> Self:
        """The request in a decoded body. Raises RegistryError when it has another shape."""
        raise NotImplementedError
