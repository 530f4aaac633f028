"""Registers schemas.

In Confluent's registry: `KafkaSchemaRegistry.register`.
"""

from barnabas.registry.core.batch import BatchOfRecords
from barnabas.registry.core.config_value import ConfigValue
from barnabas.registry.core.decisions import Answer, Decision
from barnabas.registry.core.finder import Candidate, CanonicalSchema, Finder
from barnabas.registry.core.metadata import VERSION_PROPERTY, Metadata
from barnabas.registry.core.mode_value import Mode
from barnabas.registry.core.parts import RegistryParts
from barnabas.registry.core.qualified_subject import DEFAULT_CONTEXT, context_of, qualified_context_of
from barnabas.registry.core.requests import RegisterRequest
from barnabas.registry.core.reserved_fields import check_field_names, reserved_field_messages
from barnabas.registry.core.stored_schema import StoredSchema, guid_of, references_to_json
from barnabas.registry.core.versions import LATEST_VERSION, read_only
from barnabas.registry.errors import ErrorCode, RegistryError
from barnabas.registry.formats.compatibility import checked_versions
from barnabas.registry.formats.schema import CompatibilityLevel

__all__ = ["Registrar", "incompatibilities"]

_HIGHEST_ID = _HIGHEST_VERSION = 2**31 - 1


class Registrar:
    """Decides what a registration writes.

    A schema that a subject has already is found before anything else, in every mode: programs that
    register their schemas at each start can do so while nothing may be written."""

    def __init__(self, parts: RegistryParts, finder: Finder) -> None:
        self._parts = parts
        self._finder = finder

    def register(self, subject: str, request: RegisterRequest, *, normalize: bool, force: bool) -> Decision:
        config = self._parts.scoped.config_in_scope(subject)
        normalize = normalize or bool(config.normalize)
        candidate = Candidate.of(subject, request)
        if not config.has_defaults_or_overrides:
            existing = self._existing(candidate, request, normalize=normalize)
            if existing is not None:
                return _answered(existing)
        self._check_mode(subject, request)
        is_import = self._parts.scoped.mode_in_scope(subject) is Mode.IMPORT
        next_version = max(self._parts.state.versions(subject), default=0) + 1
        live = self._finder.descending(subject, deleted=False)
        if not is_import:
            candidate = self._populated(candidate, request, config, live, next_version)
        if candidate.is_empty:
            raise RegistryError(ErrorCode.INVALID_SCHEMA, "Empty schema")
        is_new = request.id < 0 and config.validate_new_schemas is not False
        schema = self._finder.canonical(candidate, is_new=is_new, normalize=normalize)
        if config.validate_fields and not is_import:
            check_field_names(schema)
        existing, schema_id = self._known(schema, request)
        if existing is None and request.version == 0:
            existing = self._finder.find_alike(schema, [each for each in live if schema_id in (-1, each.id)])
        if existing is not None:
            return _answered(existing)
        if not is_import and not force:
            self._check_compatibility(subject, schema, config, live)
        version = self._version(request, next_version, is_import=is_import)
        return self._decision(schema.stored(version, self._id(schema, schema_id)))

    def _existing(self, candidate: Candidate, request: RegisterRequest, *, normalize: bool) -> StoredSchema | None:
        """The version that the subject has already, and that the request does not contradict."""
        is_latest = request.version == LATEST_VERSION
        existing = self._finder.find(candidate, normalize=normalize, deleted=False, latest_only=is_latest)
        if existing is None:
            return None
        if request.version == 0 or is_latest:
            return existing if request.id in (-1, existing.id) else None
        if request.id != existing.id:
            return None
        if request.version == existing.version:
            return existing
        # An import may give several versions of a subject the same schema.
        named = self._parts.state.stored(existing.subject, request.version)
        is_same = named is not None and not named.deleted and named.id == existing.id and named.is_same_schema(existing)
        return named if is_same else None

    def _known(self, schema: CanonicalSchema, request: RegisterRequest) -> tuple[StoredSchema | None, int]:
        """The version of the subject that has the schema, and the id to register it with.

        Equal schemas of a context share an id, deleted ones too; -1 means that none is given."""
        for equal in self._finder.equals(schema):
            if request.id in (-1, equal.id):
                existing = self._finder.find_equal(schema, deleted=False)
                is_it = request.version == 0 and existing is not None and request.id in (-1, existing.id)
                return existing if is_it else None, equal.id
        return None, request.id

    def _check_mode(self, subject: str, request: RegisterRequest) -> None:
        mode = self._parts.scoped.mode_in_scope(subject)
        if mode.is_read_only:
            raise read_only(subject)
        needed, name = (Mode.IMPORT, "import") if request.id >= 0 else (Mode.READWRITE, "read-write")
        if mode is not needed:
            context = qualified_context_of(subject)
            message = f"Subject {subject} in context {context} is not in {name} mode"
            raise RegistryError(ErrorCode.OPERATION_NOT_PERMITTED, message)

    def _populated(
        self,
        candidate: Candidate,
        request: RegisterRequest,
        config: ConfigValue,
        live: list[StoredSchema],
        next_version: int,
    ) -> Candidate:
        previous = live[0] if live else None
        if candidate.is_empty and previous is not None:
            candidate = candidate.with_schema_of(previous)
        merged = candidate.populated(config, previous, None)
        names_version = merged.metadata is not None and merged.metadata.get(VERSION_PROPERTY) is not None
        if request.version != 0 or names_version:
            return candidate.populated(config, previous, next_version)
        return merged

    def _check_compatibility(
        self, subject: str, schema: CanonicalSchema, config: ConfigValue, live: list[StoredSchema]
    ) -> None:
        messages = incompatibilities(self._parts, schema, config, live[::-1])
        if messages:
            raise RegistryError(
                ErrorCode.INCOMPATIBLE_SCHEMA,
                "Schema being registered is incompatible with an earlier schema for subject "
                f'"{subject}", details: [{", ".join(messages)}]',
            )

    def _version(self, request: RegisterRequest, next_version: int, *, is_import: bool) -> int:
        if request.version <= 0 or request.version == next_version:
            if next_version > _HIGHEST_VERSION:
                raise RegistryError(ErrorCode.STORE_ERROR, "All versions are given")
            return next_version
        if not is_import:
            raise RegistryError(ErrorCode.INVALID_SCHEMA, "Version is not one more than previous version")
        return request.version

    def _id(self, schema: CanonicalSchema, schema_id: int) -> int:
        state = self._parts.state
        subject = schema.candidate.subject
        context = context_of(subject)
        if schema_id < 0:
            if state.max_id(context) >= _HIGHEST_ID:
                raise RegistryError(ErrorCode.STORE_ERROR, "All ids are given")
            return state.max_id(context) + 1
        holders = state.holders(context, schema_id)
        if holders and not holders[0].is_same_schema(schema.stored(1, schema_id)):
            raise RegistryError(
                ErrorCode.OPERATION_NOT_PERMITTED,
                f"Overwrite new schema with id {schema_id} in context "
                f"{qualified_context_of(subject)} is not permitted.",
            )
        return schema_id

    def _decision(self, stored: StoredSchema) -> Decision:
        state = self._parts.state
        batch = BatchOfRecords(state)
        context = context_of(stored.subject)
        if context != DEFAULT_CONTEXT and not state.has_context_record(context):
            batch.put_context(context)
        batch.put_schema(stored)
        for number, old in sorted(state.versions(stored.subject).items()):
            # A deleted version of the same schema makes place, unless another schema refers to it.
            is_replaced = old.deleted and old.id == stored.id and number < stored.version
            if is_replaced and not state.referrers(stored.subject, number):
                batch.delete_schema(stored.subject, number)

        def answer() -> Answer:
            written = state.stored(stored.subject, stored.version)
            if written is None or written.id != stored.id or not written.is_same_schema(stored):
                raise RegistryError(
                    ErrorCode.STORE_ERROR, "Register schema operation failed: another registry wrote at the same time"
                )
            return _answer(written)

        return batch.decision(answer)


def incompatibilities(
    parts: RegistryParts, schema: CanonicalSchema, config: ConfigValue, oldest_first: list[StoredSchema]
) -> list[str]:
    """Why a schema does not fit versions of a subject, at the level of a configuration.

    With a group, only the versions count whose property of that name has the same value.
    Raises RegistryError (42201) when a version cannot be parsed."""
    messages: list[str] = []
    if config.validate_fields:
        messages.extend(reserved_field_messages(schema, oldest_first[-1] if oldest_first else None))
    level = config.compatibility_level or CompatibilityLevel.BACKWARD
    group = config.compatibility_group
    if group is not None:
        own = _property(schema.candidate.metadata, group)
        oldest_first = [each for each in oldest_first if _property(each.metadata, group) == own]
    checked = checked_versions(level, oldest_first)
    parsed = [(each.version, parts.parser.parse_stored(each)) for each in checked]
    messages.extend(parts.long_work.incompatibilities(level, schema.parsed, parsed))
    if messages:
        messages.append(f"{{validateFields: '{str(bool(config.validate_fields)).lower()}', compatibility: '{level}'}}")
    return messages


def _property(metadata: Metadata | None, name: str) -> str | None:
    return None if metadata is None else metadata.get(name)


def _answered(stored: StoredSchema) -> Decision:
    """Nothing is to be written: the subject has the schema."""
    return Decision((), lambda: _answer(stored))


def _answer(stored: StoredSchema) -> dict[str, Answer]:
    body: dict[str, Answer] = {
        "id": stored.id,
        "version": stored.version,
        "guid": guid_of(stored.digest),
        "schemaType": stored.schema_type,
        "schema": stored.text,
    }
    if stored.references:
        body["references"] = references_to_json(stored.references)
    if stored.metadata is not None:
        body["metadata"] = stored.metadata.to_json()
    if stored.rule_set is not None:
        body["ruleSet"] = stored.rule_set.to_json()
    return body
