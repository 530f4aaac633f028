"""What the registry deletes and what it keeps, in its answers and in its log; with the codes and in
the words of Confluent's."""

from barnabas.registry.core import LogRecord
from barnabas.registry.errors import ErrorCode
from support.registry_log import (
    INT,
    LONG,
    OF_PERSON,
    PERSON,
    STRING,
    TEAM,
    Instance,
    SchemasLog,
    answer_or_code,
    refused,
)

# Deletion


def test_a_version_is_deleted_in_two_steps(free: Instance) -> None:
    """Each step in the wrong order has its code."""
    free.register("a", STRING)
    free.register("a", INT)
    assert refused(lambda: free.delete_version("a", "2", permanent=True)) == (
        40407,
        "Subject 'a' Version 2 was not deleted first before being permanently deleted",
    )
    assert free.delete_version("a", "latest") == 2
    assert refused(lambda: free.delete_version("a", "2")) == (
        40406,
        "Subject 'a' Version 2 was soft deleted.Set permanent=true to delete permanently",
    )
    assert free.delete_version("a", "2", permanent=True) == 2
    assert answer_or_code(lambda: free.delete_version("a", "2", permanent=True)) == ErrorCode.VERSION_NOT_FOUND
    assert answer_or_code(lambda: free.delete_version("b", "1")) == ErrorCode.SUBJECT_NOT_FOUND


def test_a_subject_is_deleted_in_two_steps(free: Instance) -> None:
    """The second one takes its configuration and its mode away, too."""
    free.register("a", STRING)
    free.register("a", INT)
    free.set_config("a", compatibility="FULL")
    free.set_mode("a", "READWRITE")
    assert refused(lambda: free.delete_subject("a", permanent=True)) == (
        40405,
        "Subject 'a' was not deleted first before being permanently deleted",
    )
    assert free.delete_subject("a") == [1, 2]
    assert refused(lambda: free.delete_subject("a")) == (
        40404,
        "Subject 'a' was soft deleted.Set permanent=true to delete permanently",
    )
    assert free.registry.configs.get("a") == {"compatibilityLevel": "FULL"}
    assert free.delete_subject("a", permanent=True) == [1, 2]
    assert answer_or_code(lambda: free.registry.configs.get("a")) == ErrorCode.SUBJECT_COMPATIBILITY_NOT_CONFIGURED
    assert answer_or_code(lambda: free.registry.modes.get("a")) == ErrorCode.SUBJECT_MODE_NOT_CONFIGURED
    assert refused(lambda: free.delete_subject("a", permanent=True)) == (40401, "Subject 'a' not found.")


def test_what_others_refer_to_is_not_deleted(instance: Instance) -> None:
    """A deleted referrer still holds against a deletion for good."""
    instance.register("person", PERSON)
    instance.register("team", TEAM, references=OF_PERSON)
    message = "One or more references exist to the schema {magic=1,keytype=SCHEMA,subject=person,version=1}."
    assert refused(lambda: instance.delete_version("person", "1")) == (42206, message)
    assert refused(lambda: instance.delete_subject("person")) == (42206, message)
    instance.delete_version("team", "1")
    assert instance.registry.subject_versions.referenced_by("person", "1") == []
    assert instance.registry.subject_versions.referenced_by("person", "1", deleted=True) == [2]
    instance.delete_version("person", "1")
    assert refused(lambda: instance.delete_version("person", "1", permanent=True)) == (42206, message)
    instance.delete_version("team", "1", permanent=True)
    assert instance.delete_version("person", "1", permanent=True) == 1


def test_a_deletion_in_read_only_mode_is_refused(free: Instance) -> None:
    """Of versions and of subjects."""
    free.register("a", STRING)
    free.set_mode("a", "READONLY_OVERRIDE")
    message = "Subject a in context  is in read-only mode"
    assert refused(lambda: free.delete_version("a", "1")) == (42205, message)
    assert refused(lambda: free.delete_subject("a")) == (42205, message)


# Contexts


def test_contexts_are_listed_and_deleted_when_they_are_empty(instance: Instance) -> None:
    """The default one is always there."""
    contexts = instance.registry.contexts
    instance.register(":.cd:a", STRING)
    instance.register(":.c:a", STRING)
    assert contexts.names() == [".", ".c", ".cd"]
    assert contexts.names(context_prefix=".c", offset=1) == [".cd"]
    assert refused(lambda: contexts.delete(":.c:")) == (42211, "The specified context ':.c:' is not empty.")
    instance.delete_subject(":.c:a")
    assert refused(lambda: contexts.delete(":.c:"))[0] == 42211
    instance.delete_subject(":.c:a", permanent=True)
    assert instance.perform(contexts.delete(":.c:")) is None
    assert contexts.names() == [".", ".cd"]
    assert refused(lambda: contexts.delete(".")) == (42211, "The specified context '.' is not empty.")


def test_a_context_without_a_record_is_known_by_its_subjects() -> None:
    """Other registries write none."""
    log = SchemasLog()
    log.append_raw(
        b'{"keytype":"SCHEMA","subject":":.c:a","version":1,"magic":1}',
        b'{"subject":":.c:a","version":1,"id":1,"schema":"\\"string\\""}',
    )
    assert Instance(log).registry.contexts.names() == [".", ".c"]


# The log


def test_a_deletion_holds_after_an_import_below_it_and_compaction(free: Instance) -> None:
    """The later record of a subject's deletion covers the versions of the one before."""
    free.set_mode("a", "IMPORT")
    for version, text in ((1, STRING), (2, INT), (3, LONG)):
        free.register("a", text, version=version, id=version)
    free.delete_subject("a")
    free.register("a", STRING, version=1, id=1)
    free.delete_subject("a")
    after_compaction = Instance(SchemasLog(free.log.compacted())).registry
    assert after_compaction.subject_versions.numbers("a", deleted_only=True) == [1, 2, 3]


def test_the_highest_id_outlives_its_schema_through_compaction(free: Instance) -> None:
    """The next schema gets the next id, in whatever instance."""
    free.register("a", STRING)
    free.register("a", INT)
    free.delete_version("a", "2")
    free.delete_version("a", "2", permanent=True)
    log = SchemasLog(free.log.compacted())
    log.end = free.log.end
    assert Instance(log).register("b", LONG)["id"] == 3


def test_the_highest_id_is_kept_where_another_registry_deleted_its_schema(free: Instance) -> None:
    """A leader writes it when it takes over."""
    free.register("a", STRING)
    free.log.append_raw(free.log.records[-1].key, None)
    free.follow()
    assert [record.key for record in free.registry.repairs()] == [b'{"keytype":"NOOP","magic":0,"context":"."}']
    free.log.append(free.registry.repairs())
    free.follow()
    assert free.registry.repairs() == ()
    assert Instance(SchemasLog(free.log.compacted())).register("b", INT)["id"] == 2


def test_the_same_record_twice_is_once(free: Instance) -> None:
    """A producer that tries again changes nothing."""
    free.register("a", STRING)
    record = free.log.records[-1]
    assert free.registry.apply(LogRecord(record.offset + 1, record.timestamp_ms, record.key, record.value)) is None
    assert free.registry.schemas.versions(1) == [{"subject": "a", "version": 1}]
    assert free.registry.skipped_records == 0


def test_an_alias_stands_for_another_subject(instance: Instance) -> None:
    """It is in the same context, and leads to no other alias."""
    instance.set_config("old", alias="new")
    instance.set_config("new", alias="newest")
    instance.set_config(":.c:old", alias="new")
    instance.set_config(":.c:far", alias=":.d:new")
    instance.set_config("none", alias="")
    named = instance.registry.subject_named
    assert [named(each) for each in ("old", ":.:old", ":.c:old", ":.c:far", "none", "other", "")] == [
        "new",
        "new",
        ":.c:new",
        ":.d:new",
        "none",
        "other",
        "",
    ]
