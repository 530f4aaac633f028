"""Records of ``_schemas``: bytes as Confluent's registry writes them, and others."""

import json

import pytest

from barnabas.registry.core import LogRecord, NewRecord, Registry
from support.registry_log import Instance, SchemasLog

KEY = b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}'
VALUE = b'{"subject":"a","version":1,"id":1,"schema":"\\"string\\"","deleted":false}'


def instance() -> Instance:
    return Instance(SchemasLog())


def test_a_registration_writes_the_key_and_the_value_of_confluents_registry() -> None:
    """The fields stand in the order of Confluent's SchemaKey and SchemaValue."""
    registry = instance()
    registry.register("a", '"string"')
    (record,) = registry.log.records
    assert record.key == b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}'
    assert record.value == (
        b'{"subject":"a","version":1,"id":1,"schemaType":"AVRO","schema":"\\"string\\"","deleted":false}'
    )


def test_references_metadata_and_rules_stand_between_the_type_and_the_schema() -> None:
    """All fields of a value are in Confluent's order, and what is empty is left out."""
    registry = instance()
    registry.register("t", '{"type":"record","name":"T","fields":[]}')
    registry.register(
        "a",
        '{"type":"record","name":"A","fields":[{"name":"t","type":"T"}]}',
        references=[{"name": "T", "subject": "t", "version": 1}],
        metadata={"properties": {"b": "2", "a": "1"}, "tags": {"x": ["PII"]}, "sensitive": ["b"]},
        ruleSet={"domainRules": [{"name": "r", "kind": "CONDITION", "mode": "WRITE", "type": "CEL", "expr": "true"}]},
    )
    value = json.loads(registry.log.records[-1].value or b"")
    assert list(value) == [
        "subject",
        "version",
        "id",
        "schemaType",
        "references",
        "metadata",
        "ruleSet",
        "schema",
        "deleted",
    ]
    assert json.dumps(value["metadata"]) == (
        '{"tags": {"x": ["PII"]}, "properties": {"a": "1", "b": "2"}, "sensitive": ["b"]}'
    )
    assert json.dumps(value["ruleSet"]) == (
        '{"domainRules": [{"name": "r", "kind": "CONDITION", "mode": "WRITE", "type": "CEL", '
        '"expr": "true", "disabled": false}]}'
    )


def test_a_name_with_letters_of_any_language_is_written_without_escapes() -> None:
    """Jackson writes UTF-8; the bytes of the key decide in compaction."""
    registry = instance()
    registry.register("größe", '"string"')
    assert registry.log.records[0].key == '{"keytype":"SCHEMA","subject":"größe","version":1,"magic":1}'.encode()


def test_configurations_modes_deletions_and_contexts_have_their_own_keys() -> None:
    """Each kind of record has the bytes of Confluent's class for it."""
    registry = instance()
    registry.set_config(None, compatibility="full")
    registry.set_config("a", compatibility="NONE", normalize=True)
    registry.register(":.c:a", '"string"')
    registry.delete_subject(":.c:a")
    registry.set_mode(":.c:", "IMPORT")
    assert [(record.key, record.value) for record in registry.log.records] == [
        (b'{"keytype":"CONFIG","magic":0}', b'{"compatibilityLevel":"FULL"}'),
        (
            b'{"keytype":"CONFIG","subject":"a","magic":0}',
            b'{"subject":"a","normalize":true,"compatibilityLevel":"NONE"}',
        ),
        (
            b'{"keytype":"CONTEXT","tenant":"default","context":".c","magic":0}',
            b'{"tenant":"default","context":".c"}',
        ),
        (
            b'{"keytype":"SCHEMA","subject":":.c:a","version":1,"magic":1}',
            b'{"subject":":.c:a","version":1,"id":1,"schemaType":"AVRO","schema":"\\"string\\"","deleted":false}',
        ),
        (b'{"keytype":"DELETE_SUBJECT","subject":":.c:a","magic":0}', b'{"subject":":.c:a","version":1}'),
        (b'{"keytype":"NOOP","magic":0,"context":".c"}', b'{"maxId":1}'),
        (b'{"keytype":"SCHEMA","subject":":.c:a","version":1,"magic":1}', None),
        (b'{"keytype":"CLEAR_SUBJECT","subject":":.c:","magic":0}', b'{"subject":":.c:"}'),
        (b'{"keytype":"MODE","subject":":.c:","magic":0}', b'{"subject":":.c:","mode":"IMPORT"}'),
    ]


def test_the_noop_of_a_new_leader_is_that_of_confluents_registry() -> None:
    """It has a key and no value, and changes nothing."""
    assert Registry.noop() == NewRecord(b'{"keytype":"NOOP","magic":0}', None)
    assert Registry().apply(LogRecord(0, 0, *Registry.noop())) is None


def test_the_guid_is_confluents_digest_of_the_schema() -> None:
    """It is the MD5 of text, references, metadata and rules, as a UUID."""
    registry = instance()
    assert registry.register("a", '"string"')["guid"] == "095d71cf-1255-6b9d-5e33-0ad575b3df5d"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, VALUE),
        (b"", VALUE),
        (b"\xff\xfe", VALUE),
        (b"[]", VALUE),
        (b"{}", VALUE),
        (b'{"keytype":"ASSOC","tenant":"default"}', b"{}"),
        (b'{"keytype":7}', VALUE),
        (b'{"keytype":"SCHEMA","subject":"a","version":0,"magic":1}', VALUE),
        (b'{"keytype":"SCHEMA","subject":"a","version":"x","magic":1}', VALUE),
        (b'{"keytype":"SCHEMA","subject":"a","version":true,"magic":1}', VALUE),
        (b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":2}', VALUE),
        (b'{"keytype":"SCHEMA","subject":"\\ud800","version":1,"magic":1}', VALUE),
        (KEY, b"no JSON"),
        (KEY, b"[" * 100_000),
        (KEY, b"null"),
        (KEY, b'{"subject":"b","version":1,"id":1,"schema":"\\"string\\""}'),
        (KEY, b'{"subject":"a","version":2,"id":1,"schema":"\\"string\\""}'),
        (KEY, b'{"subject":"a","version":1,"id":-1,"schema":"\\"string\\""}'),
        (KEY, b'{"subject":"a","version":1,"id":99999999999,"schema":"\\"string\\""}'),
        (KEY, b'{"subject":"a","version":1,"id":1}'),
        (KEY, b'{"subject":"a","version":1,"id":1,"schema":"\\ud800"}'),
        (KEY, b'{"subject":"a","version":1,"id":1,"schema":"\\"string\\"","references":[7]}'),
        (KEY, b'{"subject":"a","version":1,"id":1,"schema":"\\"string\\"","md5":"AA=="}'),
        (KEY, b'{"subject":"a","version":1,"id":1,"schema":"\\"string\\"","metadata":{"tags":7}}'),
        (KEY, b'{"subject":"a","version":1,"id":1,"schema":"\\"string\\"","ruleSet":{"domainRules":[{"mode":"X"}]}}'),
        (b'{"keytype":"CONFIG","magic":0}', b'{"compatibilityLevel":"SOME"}'),
        (b'{"keytype":"MODE","magic":0}', b'{"mode":"SOME"}'),
        (b'{"keytype":"DELETE_SUBJECT","subject":"a","magic":0}', b"{}"),
        (b'{"keytype":"NOOP","magic":0,"context":"."}', b'{"maxId":"x"}'),
        (b'{"keytype":"CONTEXT","tenant":"default"}', b"{}"),
    ],
)
def test_a_foreign_or_damaged_record_is_skipped_with_a_reason_and_counted(key: bytes | None, value: bytes) -> None:
    """The records around it hold."""
    registry = instance()
    registry.register("other", '"int"')
    registry.log.append_raw(key, value)
    registry.follow()
    assert registry.registry.skipped_records == 1
    ((offset, reason),) = registry.skipped
    assert (offset, bool(reason)) == (1, True)
    assert registry.registry.subjects.names() == ["other"]
    assert registry.register("a", '"string"')["version"] == 1


def test_records_of_older_and_other_registries_are_understood() -> None:
    """Null fields, another order of fields, no type and unknown fields are no obstacle."""
    log = SchemasLog()
    log.append_raw(b'{"subject":"a","version":1,"magic":1,"keytype":"SCHEMA"}', VALUE)
    log.append_raw(b'{"keytype":"CONFIG","subject":null,"magic":0}', b'{"compatibilityLevel":"FORWARD","later":1}')
    log.append_raw(b'{"keytype":"MODE","subject":null,"magic":0}', b'{"mode":"READONLY"}')
    registry = Instance(log).registry
    assert registry.subject_versions.get("a", "1")["schemaType"] == "AVRO"
    assert registry.configs.get() == {"compatibilityLevel": "FORWARD"}
    assert registry.modes.get() == {"mode": "READONLY"}


def test_a_key_of_another_form_is_deleted_in_its_own_form_too() -> None:
    """Compaction compares bytes: a deletion in one form alone would bring the record back."""
    log = SchemasLog()
    log.append_raw(b'{"subject":"a","version":1,"magic":1,"keytype":"SCHEMA"}', VALUE)
    registry = Instance(log)
    registry.delete_version("a", "1")
    registry.delete_version("a", "1", permanent=True)
    after_restart = Instance(SchemasLog(log.compacted()))
    assert after_restart.registry.subjects.names(deleted=True) == []


def test_an_empty_value_deletes_as_karapace_does() -> None:
    """It is no tombstone for compaction, which keeps it as the last record of its key."""
    log = SchemasLog()
    key, config = (
        b'{"subject":"a","version":1,"magic":1,"keytype":"SCHEMA"}',
        b'{"subject":"a","magic":0,"keytype":"CONFIG"}',
    )
    log.append_raw(key, VALUE)
    log.append_raw(config, b'{"compatibilityLevel":"FULL"}')
    log.append_raw(key, b"")
    log.append_raw(config, b"")
    for records in (log.records, log.compacted()):
        registry = Instance(SchemasLog(records))
        assert registry.registry.subjects.names(deleted=True) == []
        assert registry.registry.schemas.search() == []
        assert registry.registry.configs.get("a", default_to_global=True) == {"compatibilityLevel": "BACKWARD"}
        assert registry.skipped == []


def test_a_digest_that_a_registry_wrote_stands_for_encrypted_metadata() -> None:
    """Where the value holds its MD5, that is the guid, and a deletion keeps it."""
    log = SchemasLog()
    log.append_raw(KEY, VALUE.replace(b'"schema"', b'"md5":"AAAAAAAAAAAAAAAAAAAAAQ==","schema"'))
    registry = Instance(log)
    assert registry.registry.schemas.get(1)["guid"] == "00000000-0000-0000-0000-000000000001"
    registry.delete_version("a", "1")
    assert b'"md5":"AAAAAAAAAAAAAAAAAAAAAQ=="' in (log.records[-1].value or b"")
