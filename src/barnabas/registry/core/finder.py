"""Finds the version of a subject that has a schema.

In Confluent's registry: `KafkaSchemaRegistry.lookUpSchemaUnderSubject`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Self

from barnabas.registry.core.config_value import ConfigValue
from barnabas.registry.core.metadata import Metadata, merge_metadata
from barnabas.registry.core.mode_value import Mode
from barnabas.registry.core.parts import RegistryParts
from barnabas.registry.core.qualified_subject import context_of
from barnabas.registry.core.requests import RegisterRequest
from barnabas.registry.core.rules import RuleSet, merge_rule_sets
from barnabas.registry.core.stored_schema import StoredSchema, schema_digest
from barnabas.registry.errors import ErrorCode, RegistryError
from barnabas.registry.formats.schema import InvalidSchemaError, ParsedSchema, SchemaReference, SchemaType

__all__ = ["Candidate", "CanonicalSchema", "Finder"]

_MOST_KNOWN_TEXTS = 100_000


@dataclass(frozen=True, slots=True)
class Candidate:
    """A schema that a request names, in a subject."""

    subject: str
    schema_type: str
    text: str | None
    references: tuple[SchemaReference, ...]
    metadata: Metadata | None
    rule_set: RuleSet | None

    @classmethod
    def of(cls, subject: str, request: RegisterRequest) -> Self:
        return cls(
            subject,
            request.schema_type,
            request.schema,
            tuple(request.references),
            request.metadata,
            request.rule_set,
        )

    @property
    def is_empty(self) -> bool:
        return self.text is None or not self.text.strip()

    def populated(self, config: ConfigValue, previous: StoredSchema | None, version: int | None) -> Self:
        """The schema with the metadata and rules of the previous version and of the configuration.

        A version is the one that the metadata must name."""
        own_metadata, own_rules = self.metadata, self.rule_set
        if previous is not None:
            own_metadata = previous.metadata if own_metadata is None else own_metadata
            own_rules = previous.rule_set if own_rules is None else own_rules
        metadata = merge_metadata(merge_metadata(config.default_metadata, own_metadata), config.override_metadata)
        rules = merge_rule_sets(merge_rule_sets(config.default_rule_set, own_rules), config.override_rule_set)
        if version is not None:
            metadata = (metadata or Metadata()).with_version(version)
        return replace(self, metadata=metadata, rule_set=rules)

    def with_schema_of(self, previous: StoredSchema) -> Self:
        """The metadata and rules of this one with the schema of a version."""
        return replace(self, schema_type=previous.schema_type, text=previous.text, references=previous.references)


@dataclass(frozen=True)
class CanonicalSchema:
    """A candidate that was parsed: what is compared, and what is stored."""

    candidate: Candidate
    parsed: ParsedSchema

    @property
    def text(self) -> str:
        return self.parsed.text

    @cached_property
    def references(self) -> tuple[SchemaReference, ...]:
        return tuple(self.parsed.references)

    @cached_property
    def digest(self) -> bytes:
        return schema_digest(self.text, self.references, self.candidate.metadata, self.candidate.rule_set)

    def stored(self, version: int, schema_id: int) -> StoredSchema:
        """The version as it is to be stored."""
        return StoredSchema(
            subject=self.candidate.subject,
            version=version,
            id=schema_id,
            schema_type=self.candidate.schema_type,
            text=self.text,
            references=self.references,
            metadata=self.candidate.metadata,
            rule_set=self.candidate.rule_set,
            deleted=False,
            digest=self.digest,
        )


class Finder:
    """Compares schemas with the versions of subjects."""

    def __init__(self, parts: RegistryParts) -> None:
        self._parts = parts
        # Which texts are canonical already, by digest: others are compared after parsing.
        self._known_texts: dict[bytes, str | None] = {}

    def canonical(self, candidate: Candidate, *, is_new: bool, normalize: bool) -> CanonicalSchema:
        """Parse a candidate that has a text. Raises RegistryError (42201)."""
        parsed = self._parts.parser.parse(
            candidate.subject, candidate.schema_type, candidate.text or "", candidate.references, is_new=is_new
        )
        mode = self._parts.scoped.mode_in_scope(candidate.subject)
        if normalize and mode not in (Mode.IMPORT, Mode.FORWARD):
            try:
                parsed = self._parts.long_work.normalized(parsed)
            except (InvalidSchemaError, RecursionError) as error:
                message = f"Invalid schema of type {candidate.schema_type}, details: {error}"
                raise RegistryError(ErrorCode.INVALID_SCHEMA, message) from None
        return CanonicalSchema(candidate, parsed)

    def find(
        self, candidate: Candidate, *, normalize: bool, deleted: bool, latest_only: bool = False
    ) -> StoredSchema | None:
        """The version that has a schema; the highest, if several have. Raises RegistryError."""
        if candidate.is_empty:
            return None
        if not normalize and not latest_only:
            as_written = self._find_as_written(candidate, deleted=deleted)
            if as_written is not None:
                return as_written
        schema = self.canonical(candidate, is_new=False, normalize=normalize)
        if latest_only:
            latest = self._parts.state.latest(candidate.subject)
            return latest if latest is not None and self.is_same(schema, latest) else None
        found = self.find_equal(schema, deleted=deleted)
        return found or self.find_alike(schema, self.descending(candidate.subject, deleted=deleted))

    def find_equal(self, schema: CanonicalSchema, *, deleted: bool) -> StoredSchema | None:
        """The version of the subject that has exactly this schema: a live one if there is one."""
        return _preferred(self.equals(schema), schema.candidate.subject, deleted=deleted)

    def _find_as_written(self, candidate: Candidate, *, deleted: bool) -> StoredSchema | None:
        """The version of the subject with just this text, which need not be parsed for that.

        Most programs send the text that the registry once gave them."""
        text = candidate.text or ""
        digest = schema_digest(text, candidate.references, candidate.metadata, candidate.rule_set)
        holders = [each for each in self._holders(candidate, digest) if each.text == text]
        return _preferred(holders, candidate.subject, deleted=deleted)

    def equals(self, schema: CanonicalSchema) -> list[StoredSchema]:
        """All versions of the context that have exactly this schema, the lowest id first."""
        return self._holders(schema.candidate, schema.digest)

    def _holders(self, candidate: Candidate, digest: bytes) -> list[StoredSchema]:
        state = self._parts.state
        context = context_of(candidate.subject)
        return [
            holder
            for schema_id in state.ids(context, digest)
            for holder in state.holders(context, schema_id)
            if holder.schema_type == candidate.schema_type
        ]

    def find_alike(self, schema: CanonicalSchema, versions: Sequence[StoredSchema]) -> StoredSchema | None:
        """The first of some versions whose schema is the same but for how it is written."""
        return next((each for each in versions if self.is_same(schema, each)), None)

    def descending(self, subject: str, *, deleted: bool) -> list[StoredSchema]:
        """The versions of a subject, the highest first."""
        versions = self._parts.state.versions(subject)
        return [
            versions[number] for number in sorted(versions, reverse=True) if deleted or not versions[number].deleted
        ]

    def is_same(self, schema: CanonicalSchema, stored: StoredSchema) -> bool:
        """Whether a version has this schema, in whichever words.

        A schema without references is the same as one that refers to what the other contains. It
        need not say which version it is."""
        candidate = schema.candidate
        if stored.schema_type != candidate.schema_type or stored.rule_set != candidate.rule_set:
            return False
        if not _have_same_metadata(candidate.metadata, stored):
            return False
        if stored.references == schema.references:
            return stored.text == schema.text or self._canonical_text(stored) == schema.text
        if schema.references or stored.schema_type != SchemaType.AVRO:
            return False
        try:
            resolved = partial(self._parts.long_work.formatted, form="resolved")
            return resolved(self._parts.parser.parse_stored(stored)) == resolved(schema.parsed)
        except (RegistryError, InvalidSchemaError):
            return False

    def _canonical_text(self, stored: StoredSchema) -> str:
        if stored.digest not in self._known_texts:
            if len(self._known_texts) >= _MOST_KNOWN_TEXTS:
                self._known_texts.clear()
            try:
                text = self._parts.parser.parse_stored(stored).text
            except RegistryError:  # it refers to what is gone
                text = stored.text
            self._known_texts[stored.digest] = None if text == stored.text else text
        return self._known_texts[stored.digest] or stored.text


def _preferred(holders: Sequence[StoredSchema], subject: str, *, deleted: bool) -> StoredSchema | None:
    """The version of a subject: a live one if there is one, and the highest of those."""
    own = [each for each in holders if each.subject == subject and (deleted or not each.deleted)]
    return max(own, key=lambda each: (not each.deleted, each.version), default=None)


def _have_same_metadata(metadata: Metadata | None, stored: StoredSchema) -> bool:
    own_version = None if metadata is None else metadata.version
    stored_version = None if stored.metadata is None else stored.metadata.version
    if own_version is None and stored.metadata is not None and stored_version is not None:
        return (metadata or Metadata()) == stored.metadata.without_version()
    if metadata is not None and own_version is not None and stored_version is None:
        return own_version == stored.version and metadata.without_version() == (stored.metadata or Metadata())
    return metadata == stored.metadata
