"""A log of ``_schemas`` in memory, and instances of the registry that follow it."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from barnabas.registry.core import Decision, LogRecord, NewRecord, RegisterRequest, Registry, RegistrySettings
from barnabas.registry.errors import RegistryError

# Schemas of Avro, as a registry stores them.
SCHEMAS = ('"string"', '"int"', '"long"', '"bytes"', '"double"')
STRING, INT, LONG = '"string"', '"int"', '"long"'
PERSON = '{"type":"record","name":"Person","fields":[{"name":"name","type":"string"}]}'
PERSON_WITH_AGE = (
    '{"type":"record","name":"Person","fields":[{"name":"name","type":"string"},'
    '{"name":"age","type":"int","default":0}]}'
)
PERSON_WITHOUT_DEFAULT = PERSON_WITH_AGE.replace(',"default":0', "")
TEAM = '{"type":"record","name":"Team","fields":[{"name":"head","type":"Person"}]}'
OF_PERSON = [{"name": "Person", "subject": "person", "version": 1}]
"""The references of `TEAM`."""


class SchemasLog:
    """The records, in their order; the offset of each is kept through compaction."""

    def __init__(self, records: Sequence[LogRecord] = ()) -> None:
        self.records = list(records)
        self.end = records[-1].offset + 1 if records else 0

    def append(self, records: Sequence[NewRecord]) -> None:
        for record in records:
            # The time is the offset: an answer that shows it tells records apart.
            self.records.append(LogRecord(self.end, 1_000 + self.end, record.key, record.value))
            self.end += 1

    def append_raw(self, key: bytes | None, value: bytes | None) -> None:
        self.records.append(LogRecord(self.end, 1_000 + self.end, key, value))
        self.end += 1

    def compacted(self, *, with_tombstones: bool = False) -> list[LogRecord]:
        """The last record of each key, without those that delete unless they are still kept."""
        last = {record.key: record for record in self.records}
        kept = (record for record in self.records if last[record.key] is record)
        return [record for record in kept if with_tombstones or record.value is not None]


class Instance:
    """A registry that follows a log, and writes to it as a leader does."""

    def __init__(self, log: SchemasLog, settings: RegistrySettings | None = None) -> None:
        self.log = log
        self.registry = Registry(settings)
        self.skipped: list[tuple[int, str]] = []
        self._next_offset = 0
        self.follow()

    def follow(self, count: int | None = None) -> None:
        """Apply the records to come: all, or some."""
        to_come = [record for record in self.log.records if record.offset >= self._next_offset]
        for record in to_come[:count]:
            reason = self.registry.apply(record)
            if reason is not None:
                self.skipped.append((record.offset, reason))
            self._next_offset = record.offset + 1

    def perform(self, decision: Decision) -> Any:
        """Write the records of a decision, and answer once they are read again."""
        self.log.append(decision.records)
        self.follow()
        return decision.answer()

    def register(self, subject: str, schema: str | None, *, normalize: bool = False, **fields: Any) -> Any:
        request = RegisterRequest.from_json({"schema": schema, **fields})
        return self.perform(self.registry.subject_versions.register(subject, request, normalize=normalize))

    def look_up(self, subject: str, schema: str, *, deleted: bool = False, **fields: Any) -> Any:
        request = RegisterRequest.from_json({"schema": schema, **fields})
        return self.registry.subjects.look_up(subject, request, deleted=deleted)

    def delete_version(self, subject: str, version: str, *, permanent: bool = False) -> Any:
        return self.perform(self.registry.subject_versions.delete(subject, version, permanent=permanent))

    def delete_subject(self, subject: str, *, permanent: bool = False) -> Any:
        return self.perform(self.registry.subjects.delete(subject, permanent=permanent))

    def set_config(self, subject: str | None, **fields: Any) -> Any:
        return self.perform(self.registry.configs.update(subject, fields))

    def set_mode(self, subject: str | None, mode: str | None, *, force: bool = False) -> Any:
        return self.perform(self.registry.modes.update(subject, {"mode": mode}, force=force))


def all_answers(registry: Registry) -> dict[str, Any]:
    """What a registry says about all that it has: two with the same answers are the same."""
    subjects = registry.subjects.names(deleted=True)
    found: dict[str, Any] = {
        "subjects": (subjects, registry.subjects.names(), registry.subjects.names(deleted_only=True)),
        "schemas": registry.schemas.search(subject_prefix=":*:", deleted=True),
        "contexts": registry.contexts.names(),
        "config": registry.configs.get(),
        "mode": registry.modes.get(),
    }
    for subject in subjects:
        found[f"versions of {subject}"] = registry.subject_versions.numbers(
            subject, deleted_as_negative=True, deleted=True
        )
        for part, name in ((registry.configs, "config"), (registry.modes, "mode")):
            found[f"{name} of {subject}"] = answer_or_code(lambda part=part, subject=subject: part.get(subject))
    for schema in found["schemas"]:
        subject, version, schema_id = schema["subject"], schema["version"], schema["id"]
        found[f"id {schema_id} by {subject}"] = registry.schemas.get(schema_id, subject=subject, fetch_max_id=True)
        found[f"versions of id {schema_id} in {subject}"] = registry.schemas.versions(
            schema_id, subject=subject, deleted=True
        )
        found[f"references to {subject} {version}"] = registry.subject_versions.referenced_by(
            subject, str(version), deleted=True
        )
    return found


def answer_or_code(call: Any) -> Any:
    """What a call answers, or the code of its error."""
    try:
        return call()
    except RegistryError as error:
        return error.code


def refused(call: Callable[[], Any]) -> tuple[int, str]:
    """The code and the text of a refusal."""
    with pytest.raises(RegistryError) as caught:
        call()
    return int(caught.value.code), caught.value.message
