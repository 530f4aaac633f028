"""The state that the log of ``_schemas`` makes.

Only ``apply`` changes it, record by record. Two logs make the same state if one is the compacted
form of the other. For that each rule below looks at the state alone, in the order of the log:

- the last record of a key holds; DELETE_SUBJECT marks the versions that are there;
- an id that has a schema is not taken by another schema: the first one in the log has it;
- a version that is there gets another schema only in IMPORT mode.

A record against the last two, which only a second writer can have written, is passed over, and the
leader repairs its key. Until then compaction must leave it alone, because it would keep that record
and drop the one before. It leaves the newest segment alone, which gives the leader its time.

In Confluent's registry: `KafkaStore` and `InMemoryCache`.
"""

from collections.abc import Callable, Iterable, Iterator

from barnabas.registry.core.config_value import ConfigValue, InvalidLevelError
from barnabas.registry.core.context_index import ContextIndex, SubjectVersion
from barnabas.registry.core.decisions import LogRecord, NewRecord
from barnabas.registry.core.json_values import ShapeError, java_int, json_object, optional_string
from barnabas.registry.core.keys import SchemasKey, SchemasKeyType, decode_json, decode_schemas_key, encode_schemas_key
from barnabas.registry.core.mode_value import Mode
from barnabas.registry.core.qualified_subject import DEFAULT_CONTEXT, QualifiedSubject, context_of, is_in_scope, qualify
from barnabas.registry.core.scoped_settings import ScopedSettings
from barnabas.registry.core.small_records import kept_id_record
from barnabas.registry.core.stored_schema import StoredSchema
from barnabas.registry.formats.schema import CompatibilityLevel

__all__ = ["RegistryState"]


class RegistryState:
    """Subjects with their versions, configurations, modes, contexts, and ids."""

    def __init__(self, default_level: CompatibilityLevel) -> None:
        self.scoped = ScopedSettings(default_level)
        self.skipped_records = 0
        self._subjects: dict[str, dict[int, StoredSchema]] = {}
        self._contexts: dict[str, ContextIndex] = {}
        self._context_records: set[str] = set()
        self._referrers: dict[SubjectVersion, set[SubjectVersion]] = {}
        self._other_forms: dict[SchemasKey, set[bytes]] = {}
        self._to_repair: dict[bytes, SchemasKey] = {}
        self._appliers: dict[SchemasKeyType, Callable[[SchemasKey, object, int], None]] = {
            SchemasKeyType.SCHEMA: self._apply_schema,
            SchemasKeyType.CONFIG: self._apply_config,
            SchemasKeyType.MODE: self._apply_mode,
            SchemasKeyType.DELETE_SUBJECT: self._apply_delete_subject,
            SchemasKeyType.CLEAR_SUBJECT: self._apply_clear_subject,
            SchemasKeyType.CONTEXT: self._apply_context,
            SchemasKeyType.NOOP: self._apply_noop,
        }

    # The log

    def apply(self, record: LogRecord) -> str | None:
        """Apply the next record; the answer is why it was skipped, if it was."""
        if record.key is None:
            return self._skipped("it has no key")
        try:
            key = decode_schemas_key(record.key)
            if not record.value:  # Karapace deletes with an empty value, others with none
                self._delete(key)
            else:
                value = None if key.type is SchemasKeyType.NOOP and key.name is None else decode_json(record.value)
                self._appliers[key.type](key, value, record.timestamp_ms)
        except _SecondWriterError as error:
            self._to_repair[record.key] = error.key
            return self._skipped(str(error))
        except InvalidLevelError as error:
            return self._skipped(f"{error} is no level of compatibility")
        except ShapeError as error:
            return self._skipped(str(error))
        self._to_repair.pop(record.key, None)
        self._note_form(key, record.key, is_there=bool(record.value))
        return None

    def repairs(self) -> tuple[NewRecord, ...]:
        """Records that a leader writes to undo what a second writer wrote."""
        kept = [
            kept_id_record(context, index.max_id)
            for context, index in sorted(self._contexts.items())
            if index.forgets_highest({})
        ]
        return (*kept, *(NewRecord(raw, self._current_value(key)) for raw, key in self._to_repair.items()))

    def forms(self, key: SchemasKey) -> tuple[bytes, ...]:
        """All bytes under which the log may hold a key; Confluent's first."""
        return (encode_schemas_key(key), *sorted(self._other_forms.get(key, ())))

    # Schemas

    @property
    def schema_count(self) -> int:
        """The schemas of all contexts that have an id."""
        return sum(map(len, self._contexts.values()))

    def versions(self, subject: str) -> dict[int, StoredSchema]:
        """The versions of a subject by number, in no order. Not to be changed."""
        return self._subjects.get(subject, {})

    def stored(self, subject: str, version: int) -> StoredSchema | None:
        return self._subjects.get(subject, {}).get(version)

    def latest(self, subject: str) -> StoredSchema | None:
        """The highest version that is not deleted."""
        live = (each for each in self.versions(subject).values() if not each.deleted)
        return max(live, key=lambda each: each.version, default=None)

    def has_subjects(self, scope: str | None, *, deleted: bool) -> bool:
        """Whether a subject, or any in a context or in all, has a version."""
        return any(True for _ in self.subjects(scope, deleted=deleted))

    def subjects(self, scope: str | None, *, deleted: bool) -> Iterator[str]:
        """The subjects that a scope means and that have a version."""
        if scope is not None and not QualifiedSubject.parse(scope).is_context:
            names = [scope] if scope in self._subjects else []
        else:
            names = [name for name in self._subjects if is_in_scope(name, scope)]
        for name in names:
            if deleted or not self.is_deleted(name):
                yield name

    def is_deleted(self, subject: str) -> bool:
        """Whether all versions of a subject are deleted."""
        return all(each.deleted for each in self.versions(subject).values())

    def all_subjects(self) -> Iterable[str]:
        return self._subjects

    def holders(self, context: str, schema_id: int) -> list[StoredSchema]:
        """The versions with an id, by subject and number."""
        index = self._contexts.get(context)
        return (
            [] if index is None else [self._subjects[name][number] for name, number in sorted(index.holders(schema_id))]
        )

    def ids(self, context: str, digest: bytes) -> list[int]:
        """The ids of a schema in a context, lowest first."""
        index = self._contexts.get(context)
        return [] if index is None else list(index.ids(digest))

    def referrers(self, subject: str, version: int) -> list[StoredSchema]:
        """The versions that refer to a version, by subject and number."""
        return [self._subjects[name][number] for name, number in sorted(self._referrers.get((subject, version), ()))]

    def max_id(self, context: str) -> int:
        """The highest id that was ever given in a context; 0 if none was."""
        index = self._contexts.get(context)
        return 0 if index is None else index.max_id

    def contexts_that_forget(self, changes: dict[SubjectVersion, int | None]) -> list[str]:
        """The contexts whose highest id would be forgotten: versions get other ids, or none."""
        by_context: dict[str, dict[SubjectVersion, int | None]] = {}
        for (subject, version), schema_id in changes.items():
            by_context.setdefault(context_of(subject), {})[subject, version] = schema_id
        indexed = sorted(by_context.keys() & self._contexts.keys())
        return [name for name in indexed if self._contexts[name].forgets_highest(by_context[name])]

    # Contexts

    def contexts(self) -> list[str]:
        """The contexts but for the default one, in the order of their names.

        Those of registries that write no records of contexts are known by their subjects."""
        with_subjects = {name for name, index in self._contexts.items() if not index.is_empty}
        return sorted((self._context_records | with_subjects) - {DEFAULT_CONTEXT})

    def has_context_record(self, context: str) -> bool:
        return context in self._context_records

    # Appliers

    def _apply_schema(self, key: SchemasKey, value: object, timestamp_ms: int) -> None:
        stored = StoredSchema.decode(key, value, timestamp_ms)
        context = context_of(stored.subject)
        self._check_writer(key, stored, context)
        self._remove_schema(stored.subject, stored.version)
        self._contexts.setdefault(context, ContextIndex()).add(stored)
        self._subjects.setdefault(stored.subject, {})[stored.version] = stored
        for target in _targets(stored):
            self._referrers.setdefault(target, set()).add((stored.subject, stored.version))

    def _check_writer(self, key: SchemasKey, stored: StoredSchema, context: str) -> None:
        """Raises _SecondWriterError when the record contradicts what the log says before it."""
        for holder in self.holders(context, stored.id)[:1]:
            if not holder.is_same_schema(stored):
                whose = f"version {holder.version} of {holder.subject}"
                raise _SecondWriterError(key, f"its id {stored.id} belongs to another schema, {whose}")
        old = self.stored(stored.subject, stored.version)
        is_import = self.scoped.mode_in_scope(stored.subject) in (Mode.IMPORT, Mode.FORWARD)
        if old is not None and old.id != stored.id and not is_import:
            raise _SecondWriterError(key, f"the version is there already, with id {old.id}")

    def _remove_schema(self, subject: str, version: int) -> None:
        stored = self.stored(subject, version)
        if stored is None:
            return
        self._contexts[context_of(subject)].remove(stored)
        for target in _targets(stored):
            referrers = self._referrers.get(target, set())
            referrers.discard((subject, version))
            if not referrers:
                self._referrers.pop(target, None)
        del self._subjects[subject][version]
        if not self._subjects[subject]:
            del self._subjects[subject]

    def _apply_config(self, key: SchemasKey, value: object, _timestamp_ms: int) -> None:
        self.scoped.set_config(key.name, ConfigValue.decode(value))

    def _apply_mode(self, key: SchemasKey, value: object, _timestamp_ms: int) -> None:
        text = optional_string(json_object(value, "the value"), "mode") or ""
        if text not in Mode.__members__:
            raise ShapeError(f"{text or 'none'} is no mode")
        self.scoped.set_mode(key.name, Mode[text])

    def _apply_delete_subject(self, key: SchemasKey, value: object, _timestamp_ms: int) -> None:
        last = java_int(json_object(value, "the value").get("version"), "version", 0)
        versions = self._subjects.get(key.name or "", {})
        for number, stored in versions.items():
            if number <= last and not stored.deleted:
                versions[number] = stored.with_deleted(True)

    def _apply_clear_subject(self, key: SchemasKey, _value: object, _timestamp_ms: int) -> None:
        gone = [
            (subject, number)
            for subject in self.subjects(key.name, deleted=True)
            for number, stored in self.versions(subject).items()
            if stored.deleted
        ]
        for subject, number in gone:
            self._remove_schema(subject, number)

    def _apply_context(self, key: SchemasKey, _value: object, _timestamp_ms: int) -> None:
        self._context_records.add(key.name or DEFAULT_CONTEXT)

    def _apply_noop(self, key: SchemasKey, value: object, _timestamp_ms: int) -> None:
        if key.name is not None:
            highest = java_int(json_object(value, "the value").get("maxId"), "maxId", 0)
            self._contexts.setdefault(key.name, ContextIndex()).keep_id(highest)

    def _delete(self, key: SchemasKey) -> None:
        if key.type is SchemasKeyType.SCHEMA:
            self._remove_schema(key.name or "", key.version)
        elif key.type is SchemasKeyType.CONFIG:
            self.scoped.set_config(key.name, None)
        elif key.type is SchemasKeyType.MODE:
            self.scoped.set_mode(key.name, None)
        elif key.type is SchemasKeyType.CONTEXT:
            self._context_records.discard(key.name or DEFAULT_CONTEXT)

    def _note_form(self, key: SchemasKey, raw: bytes, *, is_there: bool) -> None:
        if raw == encode_schemas_key(key):
            return
        if is_there:
            self._other_forms.setdefault(key, set()).add(raw)
        elif key in self._other_forms:
            self._other_forms[key].discard(raw)

    def _current_value(self, key: SchemasKey) -> bytes | None:
        stored = self.stored(key.name or "", key.version)
        return None if stored is None else stored.encode()

    def _skipped(self, reason: str) -> str:
        self.skipped_records += 1
        return reason


class _SecondWriterError(Exception):
    """A record contradicts one before it, because two registries wrote at once."""

    def __init__(self, key: SchemasKey, reason: str) -> None:
        super().__init__(f"{reason}; two registries wrote at once ({key})")
        self.key = key


def _targets(stored: StoredSchema) -> Iterator[SubjectVersion]:
    for reference in stored.references:
        yield str(qualify(stored.subject, reference.subject)), reference.version
