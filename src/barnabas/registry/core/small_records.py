"""The records of ``_schemas`` whose values are small: all but schemas and configurations.

In Confluent's registry: `DeleteSubjectValue`, `ClearSubjectValue`, `ModeValue` and `ContextValue`.
"""

from barnabas.registry.core.decisions import NewRecord
from barnabas.registry.core.keys import SchemasKey, SchemasKeyType, encode_json, encode_schemas_key
from barnabas.registry.core.mode_value import Mode

__all__ = [
    "clear_subject_record",
    "context_record",
    "delete_subject_record",
    "kept_id_record",
    "mode_record",
    "noop_record",
]


def mode_record(subject: str | None, mode: Mode) -> NewRecord:
    """A mode; no subject means all."""
    return NewRecord(
        encode_schemas_key(SchemasKey(SchemasKeyType.MODE, subject)), encode_json(_named(subject) | {"mode": mode})
    )


def delete_subject_record(subject: str, last_version: int) -> NewRecord:
    """All versions of a subject up to one are deleted."""
    key = SchemasKey(SchemasKeyType.DELETE_SUBJECT, subject)
    return NewRecord(encode_schemas_key(key), encode_json(_named(subject) | {"version": last_version}))


def clear_subject_record(subject: str | None) -> NewRecord:
    """The deleted versions of a subject, a context or all are forgotten."""
    return NewRecord(
        encode_schemas_key(SchemasKey(SchemasKeyType.CLEAR_SUBJECT, subject)), encode_json(_named(subject))
    )


def context_record(context: str) -> NewRecord:
    """A context is there."""
    return NewRecord(
        encode_schemas_key(SchemasKey(SchemasKeyType.CONTEXT, context)),
        encode_json({"tenant": "default", "context": context}),
    )


def kept_id_record(context: str, highest: int) -> NewRecord:
    """The highest id that was ever given in a context, which no schema has any more."""
    return NewRecord(encode_schemas_key(SchemasKey(SchemasKeyType.NOOP, context)), encode_json({"maxId": highest}))


def noop_record() -> NewRecord:
    """A record without meaning."""
    return NewRecord(encode_schemas_key(SchemasKey(SchemasKeyType.NOOP)), None)


def _named(subject: str | None) -> dict[str, object]:
    return {"subject": subject} if subject else {}
