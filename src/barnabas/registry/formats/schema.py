"""What the registry asks of a schema, whatever its format.

In Confluent's registry: `ParsedSchema`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, Self

__all__ = ["CompatibilityLevel", "InvalidSchemaError", "ParsedSchema", "SchemaReference", "SchemaType"]


class SchemaType(StrEnum):
    """The formats, as requests and records name them. A record that names none is of Avro."""

    AVRO = "AVRO"
    JSON = "JSON"
    PROTOBUF = "PROTOBUF"


class CompatibilityLevel(StrEnum):
    """How a new version of a schema must fit those before it."""

    NONE = "NONE"
    BACKWARD = "BACKWARD"
    BACKWARD_TRANSITIVE = "BACKWARD_TRANSITIVE"
    FORWARD = "FORWARD"
    FORWARD_TRANSITIVE = "FORWARD_TRANSITIVE"
    FULL = "FULL"
    FULL_TRANSITIVE = "FULL_TRANSITIVE"


class InvalidSchemaError(ValueError):
    """A text is no schema of its format, or refers to what is not there; the text says where."""


@dataclass(frozen=True, slots=True)
class SchemaReference:
    """A schema's use of another one: the name in its text stands for a version of a subject."""

    name: str
    subject: str
    version: int


class ParsedSchema(Protocol):
    """A schema that was understood, together with those it refers to."""

    @property
    def schema_type(self) -> SchemaType: ...

    @property
    def text(self) -> str:
        """The text that is stored and answered: Confluent's canonical string."""
        ...

    @property
    def references(self) -> Sequence[SchemaReference]: ...

    @property
    def resolved(self) -> Mapping[str, str]:
        """The texts of all schemas that it refers to, by name, those they refer to first."""
        ...

    def normalized(self) -> Self:
        """The form in which schemas that mean the same are equal (``normalize=true``)."""
        ...

    @property
    def top_level_fields(self) -> frozenset[str]:
        """The fields of a record, the properties of an object, or those of all messages of a file.

        Confluent's registry compares them with the names that the metadata reserve."""
        ...

    def formatted(self, form: str) -> str:
        """The text in the form that a request's ``format`` names; the canonical one for "".

        Avro knows ``resolved``, Protobuf ``serialized`` and ``ignore_extensions``. Another name
        gives the canonical text, as Confluent's registry does."""
        ...

    def incompatibilities(self, written: Self, *, reader: str = "new", writer: str = "old") -> Sequence[str]:
        """Why this schema cannot read what was written with another one; empty if it can.

        In the words of Confluent's ``messages``, which call this schema the ``reader`` one and
        the other the ``writer`` one. Raises InvalidSchemaError where the two are too large to be
        compared."""
        ...
