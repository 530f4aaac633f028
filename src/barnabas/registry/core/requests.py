"""The bodies of requests.

In Confluent's registry: `RegisterSchemaRequest`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Self

from barnabas.registry.core.json_values import ShapeError, java_int, json_object, optional_string
from barnabas.registry.core.metadata import Metadata
from barnabas.registry.core.rules import RuleError, RuleSet
from barnabas.registry.core.stored_schema import references_from_json
from barnabas.registry.errors import ErrorCode, RegistryError
from barnabas.registry.formats.schema import SchemaReference

__all__ = ["RegisterRequest", "checked", "refused_body"]

# Tags inside of schemas: a request that needs them is refused, because nothing here edits schemas.
_NOT_SUPPORTED = ("schemaTagsToAdd", "schemaTagsToRemove", "propagateSchemaTags")


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
        try:
            fields = json_object(body, "the body")
            for name in _NOT_SUPPORTED:
                if fields.get(name):
                    raise ShapeError(f"{name} is not supported")
            version, schema_id = fields.get("version"), fields.get("id")
            return cls(
                schema=optional_string(fields, "schema"),
                schema_type=optional_string(fields, "schemaType") or "AVRO",
                references=references_from_json(fields.get("references")),
                metadata=Metadata.from_json(fields.get("metadata")),
                rule_set=checked(RuleSet.from_json(fields.get("ruleSet"))),
                version=0 if version is None else java_int(version, "version", -1),
                id=-1 if schema_id is None else max(java_int(schema_id, "id", -(2**31)), -1),
            )
        except ShapeError as error:
            raise refused_body(error) from None


def checked(rule_set: RuleSet | None) -> RuleSet | None:
    """Rules whose form is allowed. Raises RegistryError (42210)."""
    try:
        if rule_set is not None:
            rule_set.check()
    except RuleError as error:
        raise RegistryError(ErrorCode.INVALID_RULE_SET, str(error)) from None
    return rule_set


def refused_body(error: ShapeError) -> RegistryError:
    """The answer to a body that has another shape."""
    return RegistryError(ErrorCode.BAD_REQUEST, f"The body of the request is not understood: {error}")
