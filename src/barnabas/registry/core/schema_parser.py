"""Parses schemas with all that they refer to.

In Confluent's registry: `AbstractSchemaProvider`.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import partial

from barnabas.registry.core.long_work import LongWork
from barnabas.registry.core.qualified_subject import qualify
from barnabas.registry.core.state import RegistryState
from barnabas.registry.core.stored_schema import StoredSchema
from barnabas.registry.errors import ErrorCode, RegistryError
from barnabas.registry.formats.parsing import parse_schema
from barnabas.registry.formats.schema import InvalidSchemaError, ParsedSchema, SchemaReference, SchemaType

__all__ = ["SchemaParser"]

_MOST_CHARACTERS = 1_000_000
"""How much text of schemas is kept parsed at most; parsed, it takes some twenty times as much."""

_CacheKey = tuple[str, str, tuple[SchemaReference, ...], tuple[tuple[str, str], ...], bool]


class SchemaParser:
    """Parses texts with the versions that they refer to, and keeps the results of late."""

    def __init__(self, state: RegistryState, long_work: LongWork, most_kept: int) -> None:
        self._state = state
        self._long_work = long_work
        self._most_kept = most_kept
        self._kept: OrderedDict[_CacheKey, ParsedSchema] = OrderedDict()
        self._characters = 0

    def parse(
        self, subject: str, schema_type: str, text: str, references: Sequence[SchemaReference], *, is_new: bool
    ) -> ParsedSchema:
        """Parse a schema in a subject, whose context is that of its references.

        A reference to the latest version becomes one to the version that is the latest. A new
        schema cannot refer to a deleted version. Raises RegistryError (42201)."""
        if schema_type not in SchemaType.__members__:
            raise RegistryError(ErrorCode.INVALID_SCHEMA, f"Invalid schema type {schema_type}")
        try:
            numbered, resolved = self._resolve(subject, references, with_deleted=not is_new)
            return self._parsed(SchemaType(schema_type), text, numbered, resolved, is_new=is_new)
        except InvalidSchemaError as error:
            message = f"Invalid schema of type {schema_type}, details: {error}"
            raise RegistryError(ErrorCode.INVALID_SCHEMA, message) from None

    def parse_stored(self, stored: StoredSchema) -> ParsedSchema:
        """Parse a version. Raises RegistryError (42201)."""
        return self.parse(stored.subject, stored.schema_type, stored.text, stored.references, is_new=False)

    def _parsed(
        self,
        schema_type: SchemaType,
        text: str,
        references: tuple[SchemaReference, ...],
        resolved: Mapping[str, str],
        *,
        is_new: bool,
    ) -> ParsedSchema:
        key = (schema_type, text, references, tuple(resolved.items()), is_new)
        parsed = self._kept.get(key)
        if parsed is not None:
            self._kept.move_to_end(key)
            return parsed
        work = partial(_parse, schema_type, text, references, resolved, is_new=is_new)
        parsed = self._long_work.outcome(key, len(text) + sum(map(len, resolved.values())), work)
        self._kept[key] = parsed
        self._characters += len(text)
        while len(self._kept) > 1 and (len(self._kept) > self._most_kept or self._characters > _MOST_CHARACTERS):
            forgotten, _ = self._kept.popitem(last=False)
            self._characters -= len(forgotten[1])
        return parsed

    def _resolve(
        self, subject: str, references: Sequence[SchemaReference], *, with_deleted: bool
    ) -> tuple[tuple[SchemaReference, ...], Mapping[str, str]]:
        """The references with their numbers, and the texts of all that they reach, deepest first.

        A name that was met already is not followed again, so a circle ends."""
        numbered: list[SchemaReference] = []
        resolved: dict[str, str] = {}
        met: set[str] = set()
        # From the last to the first: (the reference's subject's parent, the reference), or a text
        # that is complete once those above it are.
        waiting: list[tuple[str, SchemaReference] | tuple[str, str, None]] = [
            (subject, reference) for reference in reversed(references)
        ]
        depth_of_own = 0
        while waiting:
            top = waiting.pop()
            if len(top) == 3:
                resolved[top[0]] = top[1]
                depth_of_own -= 1
                continue
            parent, reference = top
            stored = self._target(parent, reference, with_deleted=with_deleted)
            if depth_of_own == 0:
                numbered.append(SchemaReference(reference.name, reference.subject, stored.version))
            if reference.name in met:
                continue
            met.add(reference.name)
            waiting.append((reference.name, stored.text, None))
            depth_of_own += 1
            waiting.extend((stored.subject, each) for each in reversed(stored.references))
        return tuple(numbered), resolved

    def _target(self, parent: str, reference: SchemaReference, *, with_deleted: bool) -> StoredSchema:
        subject = str(qualify(parent, reference.subject))
        if reference.version == -1:
            stored = self._state.latest(subject)
        else:
            stored = self._state.stored(subject, reference.version)
        if stored is None or (stored.deleted and not with_deleted):
            raise InvalidSchemaError(
                f'No schema reference found for subject "{subject}" and version {reference.version}'
            )
        return stored


def _parse(
    schema_type: SchemaType,
    text: str,
    references: Sequence[SchemaReference],
    resolved: Mapping[str, str],
    *,
    is_new: bool,
) -> ParsedSchema:
    try:
        return parse_schema(schema_type, text, references, resolved, is_new=is_new)
    except RecursionError:
        raise InvalidSchemaError("it is nested too deeply") from None
