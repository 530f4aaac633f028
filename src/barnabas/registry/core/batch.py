"""The records of one decision, collected.

In Confluent's registry: `KafkaStore.put`, which writes each record on its own.
"""

from collections.abc import Callable

from barnabas.registry.core.config_value import ConfigValue
from barnabas.registry.core.context_index import SubjectVersion
from barnabas.registry.core.decisions import Answer, Decision, NewRecord
from barnabas.registry.core.keys import SchemasKey, SchemasKeyType, encode_schemas_key
from barnabas.registry.core.mode_value import Mode
from barnabas.registry.core.small_records import (
    clear_subject_record,
    context_record,
    delete_subject_record,
    kept_id_record,
    mode_record,
)
from barnabas.registry.core.state import RegistryState
from barnabas.registry.core.stored_schema import StoredSchema

__all__ = ["BatchOfRecords"]


class BatchOfRecords:
    """Collects records, and adds those that keep the ids unique.

    In front stand the repairs of what a second writer wrote, and the highest id of a context if
    these records take away the last version that has it."""

    def __init__(self, state: RegistryState) -> None:
        self._state = state
        self._records: list[NewRecord] = []
        self._ids: dict[SubjectVersion, int | None] = {}

    def put_schema(self, stored: StoredSchema) -> None:
        self._records.append(NewRecord(encode_schemas_key(stored.key), stored.encode()))
        self._ids[stored.subject, stored.version] = stored.id

    def delete_schema(self, subject: str, version: int) -> None:
        self._delete(SchemasKey(SchemasKeyType.SCHEMA, subject, version))
        self._ids[subject, version] = None

    def delete_subject(self, subject: str, last_version: int) -> None:
        self._records.append(delete_subject_record(subject, last_version))

    def clear_subject(self, subject: str | None) -> None:
        self._records.append(clear_subject_record(subject))

    def put_context(self, context: str) -> None:
        self._records.append(context_record(context))

    def delete_context(self, context: str) -> None:
        self._delete(SchemasKey(SchemasKeyType.CONTEXT, context))

    def put_config(self, subject: str | None, config: ConfigValue) -> None:
        self._records.append(
            NewRecord(encode_schemas_key(SchemasKey(SchemasKeyType.CONFIG, subject)), config.encode(subject))
        )

    def delete_config(self, subject: str | None) -> None:
        self._delete(SchemasKey(SchemasKeyType.CONFIG, subject))

    def put_mode(self, subject: str | None, mode: Mode) -> None:
        self._records.append(mode_record(subject, mode))

    def delete_mode(self, subject: str | None) -> None:
        self._delete(SchemasKey(SchemasKeyType.MODE, subject))

    def delete_settings(self, subject: str) -> None:
        """A subject without versions keeps neither configuration nor mode."""
        if self._state.scoped.mode(subject) is not None:
            self.delete_mode(subject)
        if self._state.scoped.config(subject) is not None:
            self.delete_config(subject)

    def decision(self, answer: Callable[[], Answer]) -> Decision:
        if not self._records:
            return Decision((), answer)
        kept = [
            kept_id_record(context, self._state.max_id(context))
            for context in self._state.contexts_that_forget(self._ids)
        ]
        return Decision((*self._state.repairs(), *kept, *self._records), answer)

    def _delete(self, key: SchemasKey) -> None:
        self._records.extend(NewRecord(raw, None) for raw in self._state.forms(key))
