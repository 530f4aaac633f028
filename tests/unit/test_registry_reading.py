"""What the registry finds: schemas by text, id and GUID, versions, subjects and lists of them; with
the codes and in the words of Confluent's."""

import json

from barnabas.registry.core import RegistrySettings
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

# Looking up


def test_a_lookup_finds_the_version_and_says_what_is_missing(free: Instance) -> None:
    """An unknown subject and an unknown schema have codes of their own."""
    free.register("a", STRING)
    free.register("a", INT)
    assert free.look_up("a", INT)["version"] == 2
    assert refused(lambda: free.look_up("b", INT)) == (40401, "Subject 'b' not found.")
    assert refused(lambda: free.look_up("a", LONG)) == (40403, "Schema not found")


def test_a_deleted_version_is_found_on_request_and_gives_way_to_a_live_one(free: Instance) -> None:
    """Registered again, the schema has its id and a new version."""
    free.register("a", STRING)
    free.register("a", INT)
    free.delete_version("a", "1")
    assert answer_or_code(lambda: free.look_up("a", STRING)) == ErrorCode.SCHEMA_NOT_FOUND
    assert free.look_up("a", STRING, deleted=True)["version"] == 1
    again = free.register("a", STRING)
    assert (again["id"], again["version"]) == (1, 3)
    assert free.look_up("a", STRING, deleted=True)["version"] == 3
    assert free.registry.subject_versions.numbers("a", deleted=True) == [2, 3]


def test_a_version_that_is_referred_to_stays_when_its_schema_is_registered_again(free: Instance) -> None:
    """References mean a subject and a version, not an id."""
    free.register("person", PERSON)
    free.register("team", TEAM, references=OF_PERSON)
    free.delete_version("team", "1")
    free.delete_version("person", "1")
    assert free.register("person", PERSON)["version"] == 2
    assert free.registry.subject_versions.numbers("person", deleted=True) == [1, 2]


def test_a_subject_without_a_context_is_looked_for_in_all(instance: Instance) -> None:
    """Its own context comes first."""
    instance.register(":.c:a", STRING)
    assert instance.look_up("a", STRING)["subject"] == ":.c:a"
    assert instance.registry.subject_versions.get("a", "1")["subject"] == ":.c:a"
    instance.register("a", STRING)
    assert instance.look_up("a", STRING)["subject"] == "a"


def test_a_schema_without_references_is_the_one_that_refers_to_what_it_contains(instance: Instance) -> None:
    """Programs send schemas of Avro with everything in place."""
    instance.register("person", PERSON)
    instance.register("team", TEAM, references=OF_PERSON)
    whole = TEAM.replace('"Person"', PERSON)
    assert instance.look_up("team", whole)["version"] == 1
    assert instance.register("team", whole)["id"] == 2


def test_a_text_that_another_registry_wrote_otherwise_is_the_same_schema(instance: Instance) -> None:
    """It is compared after parsing, so nothing is registered twice."""
    instance.log.append_raw(
        b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}',
        json.dumps({"subject": "a", "version": 1, "id": 9, "schema": PERSON.replace(",", ", ")}).encode(),
    )
    instance.follow()
    assert instance.register("a", PERSON)["id"] == 9


def test_a_text_of_a_type_that_is_unknown_here_is_found_as_it_was_written(instance: Instance) -> None:
    """Another registry may have formats of its own: their schemas are answered, not registered."""
    instance.log.append_raw(
        b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}',
        json.dumps({"subject": "a", "version": 1, "id": 9, "schemaType": "XML", "schema": "<a/>"}).encode(),
    )
    instance.follow()
    assert instance.look_up("a", "<a/>", schemaType="XML")["id"] == 9
    assert instance.register("a", "<a/>", schemaType="XML")["id"] == 9
    assert refused(lambda: instance.register("b", "<a/>", schemaType="XML")) == (42201, "Invalid schema type XML")
    assert refused(lambda: instance.register("a", STRING))[0] == 42201


# Reading


def test_a_version_is_named_by_its_number_or_as_the_latest(free: Instance) -> None:
    """-1 is the latest, too; other texts are no versions."""
    free.register("a", STRING)
    free.register("a", INT)
    get = free.registry.subject_versions.get
    assert [get("a", each)["version"] for each in ("1", "latest", "-1", " LATEST ")] == [1, 2, 2, 2]
    assert refused(lambda: get("a", "3")) == (40402, "Version 3 not found.")
    assert refused(lambda: get("b", "1")) == (40401, "Subject 'b' not found.")
    for text in ("0", "-2", "x", "", "1.0", "²", str(2**31)):
        assert answer_or_code(lambda text=text: get("a", text)) == ErrorCode.INVALID_VERSION


def test_a_schema_is_read_by_its_id(free: Instance) -> None:
    """A subject in the question adds subject and version; the highest id is answered on request."""
    free.register("a", STRING)
    free.register("b", INT)
    schemas = free.registry.schemas
    assert {"schema": STRING, "schemaType": "AVRO"}.items() <= schemas.get(1).items()
    assert schemas.get(1, subject="a", fetch_max_id=True).items() >= {"subject": "a", "version": 1, "maxId": 2}.items()
    assert schemas.get_text(2) == INT
    assert refused(lambda: schemas.get(3)) == (40403, "Schema 3 not found")
    assert refused(lambda: schemas.get_text(3)) == (40403, "Schema 3 not found")
    assert refused(lambda: schemas.subjects(3)) == (40403, "Schema not found")


def test_an_id_is_looked_for_in_the_context_of_the_subject(free: Instance) -> None:
    """A subject without one is looked for in all, and else the id alone counts."""
    free.register("a", STRING)
    free.register(":.c:b", INT)
    schemas = free.registry.schemas
    assert schemas.get_text(1, subject=":.c:") == INT
    assert schemas.get_text(1, subject="b") == INT
    assert schemas.get_text(1, subject="unknown") == STRING
    assert answer_or_code(lambda: schemas.get(1, subject=":.c:a")) == ErrorCode.SCHEMA_NOT_FOUND


def test_a_deleted_schema_is_still_read_by_its_id(free: Instance) -> None:
    """Data that was written with it can be decoded, until it is deleted for good."""
    free.register("a", STRING)
    free.register("b", STRING)
    free.delete_version("a", "1")
    schemas = free.registry.schemas
    assert schemas.subjects(1) == ["b"]
    assert schemas.subjects(1, deleted=True) == ["a", "b"]
    free.delete_subject("b")
    assert schemas.get(1)["deleted"] is True
    free.delete_subject("b", permanent=True)
    free.delete_version("a", "1", permanent=True)
    assert answer_or_code(lambda: schemas.get(1)) == ErrorCode.SCHEMA_NOT_FOUND


def test_a_guid_names_a_schema_in_every_context(free: Instance) -> None:
    """Ids differ between contexts, the guid does not."""
    free.register("a", INT)
    guid = free.register("a", STRING)["guid"]
    free.register(":.c:a", STRING)
    schemas = free.registry.schemas
    assert schemas.get_by_guid(guid.replace("-", ""))["schema"] == STRING
    assert schemas.ids_of_guid(guid) == [{"context": ".", "id": 2}, {"context": ".c", "id": 1}]
    assert schemas.ids_of_guid("none") == []
    assert refused(lambda: schemas.get_by_guid("none")) == (40403, "Schema none not found")


def test_subjects_are_listed_by_prefix_deletion_and_page(free: Instance) -> None:
    """Without a prefix, those of all contexts; an empty one means the default context."""
    for subject in ("ab", "a", "b", ":.c:a", ":.cd:a"):
        free.register(subject, STRING)
    free.delete_subject("b")
    names = free.registry.subjects.names
    assert names() == [":.c:a", ":.cd:a", "a", "ab"]
    assert names(deleted=True) == [":.c:a", ":.cd:a", "a", "ab", "b"]
    assert names(deleted_only=True) == ["b"]
    assert names(subject_prefix="") == ["a", "ab"]
    assert names(subject_prefix="a", offset=1, limit=1) == ["ab"]
    assert names(subject_prefix=":*:a") == [":.c:a", ":.cd:a", "a", "ab"]
    assert names(subject_prefix=":.c:") == [":.c:a"]
    assert names(subject_prefix=":.c") == [":.c:a", ":.cd:a"]
    assert names(offset=-1, limit=0) == names()


def test_schemas_are_listed_with_their_aliases(free: Instance) -> None:
    """A page holds as many as the settings allow."""
    limited = Instance(SchemasLog(free.log.records), RegistrySettings(schema_search_limit=2))
    for text in (STRING, INT, LONG):
        limited.register("a", text)
    limited.register("b", STRING)
    limited.set_config("other", alias="a")
    search = limited.registry.schemas.search
    assert [each["version"] for each in search()] == [1, 2]
    assert [each["version"] for each in search(offset=2, limit=5)] == [3, 1]
    assert [(each["subject"], each["version"]) for each in search(latest_only=True)] == [("a", 3), ("b", 1)]
    assert search(subject_prefix="other", aliases=True)[0]["aliases"] == ["other"]
    assert limited.registry.schemas.types() == ["AVRO", "JSON", "PROTOBUF"]


def test_the_versions_of_a_subject_are_listed_by_deletion(free: Instance) -> None:
    """Deleted ones are left out, added, alone, or negative."""
    for text in (STRING, INT, LONG):
        free.register("a", text)
    free.delete_version("a", "2")
    numbers = free.registry.subject_versions.numbers
    assert numbers("a") == [1, 3]
    assert numbers("a", deleted=True) == [1, 2, 3]
    assert numbers("a", deleted_only=True) == [2]
    assert numbers("a", deleted_as_negative=True) == [1, -2, 3]
    assert numbers("a", deleted=True, offset=1, limit=1) == [2]
    assert refused(lambda: numbers("b")) == (40401, "Subject 'b' not found.")
