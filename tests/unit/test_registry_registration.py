"""What the registry answers to a registration and what it refuses, with the codes and in the words
of Confluent's."""

import json
from typing import Any

import pytest

from barnabas.registry.core import RegisterRequest, RegistrySettings
from barnabas.registry.errors import ErrorCode
from support.registry_log import (
    INT,
    LONG,
    OF_PERSON,
    PERSON,
    PERSON_WITH_AGE,
    PERSON_WITHOUT_DEFAULT,
    STRING,
    TEAM,
    Instance,
    SchemasLog,
    answer_or_code,
    refused,
)

# Registration


def test_ids_count_up_and_versions_count_in_their_subject(free: Instance) -> None:
    """The next id is one more than the highest, and so is the next version."""
    answers = [free.register("a", STRING), free.register("a", INT), free.register("b", LONG)]
    assert [(each["id"], each["version"]) for each in answers] == [(1, 1), (2, 2), (3, 1)]


def test_the_same_schema_has_one_id_in_all_subjects_of_a_context(free: Instance) -> None:
    """Another context counts its own ids."""
    assert free.register("a", STRING)["id"] == 1
    assert free.register("a", INT)["id"] == 2
    assert (free.register("b", INT)["id"], free.register(":.c:b", INT)["id"]) == (2, 1)


def test_a_schema_that_is_there_is_registered_without_a_record(instance: Instance) -> None:
    """It has the answer of the first time, however its text is written."""
    first = instance.register("a", PERSON)
    request = RegisterRequest.from_json({"schema": PERSON.replace(":", " : ")})
    decision = instance.registry.subject_versions.register("a", request)
    assert decision.records == ()
    assert decision.answer() == first


def test_a_registration_in_read_only_mode_finds_what_is_there_and_refuses_the_rest(free: Instance) -> None:
    """Programs that register at each start go on."""
    free.register("a", STRING)
    free.set_mode(None, "READONLY")
    assert free.register("a", STRING)["version"] == 1
    assert refused(lambda: free.register("a", INT)) == (
        42205,
        "Subject a in context  is in read-only mode",
    )


def test_an_incompatible_schema_is_refused_with_every_message(instance: Instance) -> None:
    """The level is the subject's, or the global one, or BACKWARD."""
    instance.register("a", PERSON)
    code, text = refused(lambda: instance.register("a", PERSON_WITHOUT_DEFAULT))
    assert code == 40901
    assert text.startswith('Schema being registered is incompatible with an earlier schema for subject "a", details: [')
    assert text.endswith("{validateFields: 'false', compatibility: 'BACKWARD'}]")
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in text
    assert instance.register("a", PERSON_WITH_AGE)["version"] == 2


def test_force_registers_an_incompatible_schema(instance: Instance) -> None:
    """It takes the place of a check, not of a mode."""
    instance.register("a", PERSON)
    request = RegisterRequest.from_json({"schema": PERSON_WITHOUT_DEFAULT})
    assert instance.perform(instance.registry.subject_versions.register("a", request, force=True))["version"] == 2


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        ("", "Empty schema"),
        (None, "Empty schema"),
        ("{", "Invalid schema of type AVRO, details: "),
        ('{"type":"nothing"}', "Invalid schema of type AVRO, details: "),
    ],
)
def test_a_text_that_is_no_schema_is_refused(instance: Instance, schema: str | None, text: str) -> None:
    """The code is 42201, and nothing is written."""
    code, message = refused(lambda: instance.register("a", schema))
    assert (code, message[: len(text)]) == (42201, text)
    assert instance.log.records == []


def test_an_unknown_type_of_schemas_is_refused(instance: Instance) -> None:
    """The text names it."""
    assert refused(lambda: instance.register("a", STRING, schemaType="XML")) == (42201, "Invalid schema type XML")


@pytest.mark.parametrize("subject", ["a\nb", "__GLOBAL", "__EMPTY", ":.__GLOBAL:a", "a\ud800"])
def test_a_subject_of_no_allowed_name_is_refused(instance: Instance, subject: str) -> None:
    """Control characters, half characters and reserved names are none."""
    assert refused(lambda: instance.register(subject, STRING))[0] == 42208


def test_a_subject_needs_a_name_where_the_settings_say_so(instance: Instance) -> None:
    """Without the setting, an empty name is one, as in Confluent's registry."""
    assert instance.register("", STRING)["version"] == 1
    assert Instance(SchemasLog(instance.log.records)).registry.subjects.names() == [""]
    strict = Instance(SchemasLog(), RegistrySettings(reject_empty_subject=True))
    assert answer_or_code(lambda: strict.register("", STRING)) == ErrorCode.INVALID_SUBJECT


@pytest.mark.parametrize(
    "body",
    [
        None,
        [],
        {"schema": 7},
        {"schema": "\ud800"},
        {"schema": STRING, "schemaType": 7},
        {"schema": STRING, "references": {}},
        {"schema": STRING, "references": [{"name": "a", "subject": "a"}]},
        {"schema": STRING, "references": [{"name": "a", "subject": "a", "version": -2}]},
        {"schema": STRING, "metadata": {"properties": {"a": 1}}},
        {"schema": STRING, "ruleSet": {"domainRules": [7]}},
        {"schema": STRING, "version": "1"},
        {"schema": STRING, "id": 2**31},
        {"schema": STRING, "schemaTagsToAdd": [{"schemaEntity": {}, "tags": ["PII"]}]},
        {"schema": STRING, "propagateSchemaTags": True},
    ],
)
def test_a_body_of_another_shape_is_refused(body: object) -> None:
    """The status is 400; tags in schemas, which no test here edits, are not passed over."""
    assert answer_or_code(lambda: RegisterRequest.from_json(body)) == ErrorCode.BAD_REQUEST


def test_an_import_brings_its_ids_and_versions(free: Instance) -> None:
    """IMPORT mode needs an empty place; afterwards ids go on after the highest."""
    free.set_mode(None, "IMPORT")
    assert free.register("a", STRING, version=3, id=100)["id"] == 100
    assert free.register("a", INT, version=1, id=7)["version"] == 1
    assert free.register("b", STRING, version=1, id=100)["id"] == 100
    assert refused(lambda: free.register("a", LONG)) == (
        42205,
        "Subject a in context  is not in read-write mode",
    )
    assert refused(lambda: free.register("a", LONG, version=4, id=7)) == (
        42205,
        "Overwrite new schema with id 7 in context  is not permitted.",
    )
    free.set_mode(None, "READWRITE")
    assert free.register("a", LONG)["id"] == 101


def test_an_import_may_give_several_versions_of_a_subject_one_schema(free: Instance) -> None:
    """Each is found again under its own number."""
    free.set_mode(None, "IMPORT")
    for version in (1, 2):
        assert free.register("a", STRING, version=version, id=5)["version"] == version
    before = len(free.log.records)
    assert free.register("a", STRING, version=1, id=5)["version"] == 1
    assert len(free.log.records) == before
    assert free.registry.schemas.versions(5) == [{"subject": "a", "version": 1}, {"subject": "a", "version": 2}]


def test_an_id_is_for_imports_only(instance: Instance) -> None:
    """Another mode refuses it."""
    assert refused(lambda: instance.register(":.c:a", STRING, version=1, id=1)) == (
        42205,
        "Subject :.c:a in context :.c: is not in import mode",
    )


def test_a_version_that_is_not_the_next_one_is_refused(free: Instance) -> None:
    """The next one may be named; the metadata say so then."""
    free.register("a", STRING)
    assert refused(lambda: free.register("a", INT, version=3)) == (
        42201,
        "Version is not one more than previous version",
    )
    assert free.register("a", INT, version=2)["metadata"] == {"properties": {"confluent:version": "2"}}


def test_the_ids_of_a_context_end_with_javas_integers(free: Instance) -> None:
    """The next registration is refused; none is given twice."""
    free.set_mode(None, "IMPORT")
    free.register("a", STRING, version=1, id=2**31 - 1)
    free.set_mode(None, "READWRITE")
    assert refused(lambda: free.register("a", INT)) == (50001, "All ids are given")


def test_the_versions_of_a_subject_end_with_javas_integers(free: Instance) -> None:
    """The next registration is refused, and writes no record that no registry can read."""
    free.set_mode(None, "IMPORT")
    free.register("a", STRING, version=2**31 - 1, id=7)
    free.set_mode(None, "READWRITE")
    before = len(free.log.records)
    assert refused(lambda: free.register("a", INT)) == (50001, "All versions are given")
    assert len(free.log.records) == before
    assert free.register("b", INT)["version"] == 1


def test_a_reference_to_the_latest_version_is_stored_with_its_number(instance: Instance) -> None:
    """So the schema means the same after another version came."""
    instance.register("person", PERSON)
    latest = [{"name": "Person", "subject": "person", "version": -1}]
    assert instance.register("team", TEAM, references=latest)["references"] == OF_PERSON
    assert instance.registry.subject_versions.referenced_by("person", "latest") == [2]


def test_a_reference_is_in_the_context_of_its_schema(instance: Instance) -> None:
    """A name without a context means the same context; the answer may name it."""
    instance.register(":.c:person", PERSON)
    assert refused(lambda: instance.register("team", TEAM, references=OF_PERSON)) == (
        42201,
        'Invalid schema of type AVRO, details: No schema reference found for subject "person" and version 1',
    )
    instance.register(":.c:team", TEAM, references=OF_PERSON)
    qualified = instance.registry.subject_versions.get(":.c:team", "1", reference_format="qualified")
    assert qualified["references"] == [{"name": "Person", "subject": ":.c:person", "version": 1}]
    assert (
        instance.registry.schemas.get(2, subject=":.c:team", reference_format="qualified")["references"]
        == (qualified["references"])
    )


def test_a_new_schema_cannot_refer_to_a_deleted_version(instance: Instance) -> None:
    """One that is stored still can be read."""
    instance.register("person", PERSON)
    instance.register("team", TEAM, references=OF_PERSON)
    instance.delete_version("team", "1")
    instance.delete_version("person", "1")
    assert answer_or_code(lambda: instance.register("other", TEAM, references=OF_PERSON)) == ErrorCode.INVALID_SCHEMA
    assert instance.registry.subject_versions.get_text("team", "1", deleted=True, form="resolved") != TEAM


def test_references_in_a_circle_end(instance: Instance) -> None:
    """An import can make one; reading it is an answer, not a crash."""
    log = instance.log
    for name, other, version in (("a", "b", 1), ("b", "a", 2)):
        log.append_raw(
            b'{"keytype":"SCHEMA","subject":"%s","version":1,"magic":1}' % name.encode(),
            b'{"subject":"%s","version":1,"id":%d,"references":[{"name":"%s","subject":"%s","version":1}],"schema":'
            b'"{\\"type\\":\\"record\\",\\"name\\":\\"%s\\",\\"fields\\":[]}"}'
            % (name.encode(), version, other.encode(), other.encode(), name.encode()),
        )
    instance.follow()
    assert instance.registry.subject_versions.get("a", "1")["id"] == 1
    get_text = instance.registry.subject_versions.get_text
    assert answer_or_code(lambda: get_text("a", "1", form="resolved")) == ErrorCode.INVALID_SCHEMA
    assert instance.registry.subject_versions.referenced_by("a", "1") == [2]
    assert refused(lambda: instance.delete_version("a", "1"))[0] == 42206


def test_a_thousand_schemas_in_a_chain_of_references_are_resolved(instance: Instance) -> None:
    """The depth of references is no depth of calls."""
    for number in range(1_000):
        before = [{"name": f"R{number - 1}", "subject": f"s{number - 1}", "version": 1}] if number else []
        text = f'{{"type":"record","name":"R{number}","fields":[]}}'
        value = {"subject": f"s{number}", "version": 1, "id": number + 1, "references": before, "schema": text}
        instance.log.append_raw(
            f'{{"keytype":"SCHEMA","subject":"s{number}","version":1,"magic":1}}'.encode(), json.dumps(value).encode()
        )
    instance.follow()
    last = [{"name": "R999", "subject": "s999", "version": 1}]
    text = '{"type":"record","name":"Top","fields":[{"name":"r","type":"R999"}]}'
    assert instance.register("top", text, references=last)["id"] == 1_001


# Metadata and rules


def test_a_version_that_metadata_name_is_the_number_that_is_given(free: Instance) -> None:
    """The property confluent:version takes the next number, and is not needed to find it."""
    first = free.register("a", PERSON)
    second = free.register("a", PERSON, version=2)
    assert (first["id"], second["id"], second["metadata"]["properties"]["confluent:version"]) == (1, 2, "2")
    assert free.register("a", PERSON, version=-1)["id"] == 2
    assert free.look_up("a", PERSON)["version"] == 1
    assert free.look_up("a", PERSON, metadata={"properties": {"confluent:version": "2"}})["version"] == 2
    free.delete_version("a", "1")
    assert free.look_up("a", PERSON)["version"] == 2
    third = free.register("a", PERSON, metadata={"properties": {"confluent:version": "-1"}})
    assert (third["version"], third["metadata"]["properties"]["confluent:version"]) == (3, "3")


def test_metadata_and_rules_come_from_the_version_before_and_from_the_configuration(free: Instance) -> None:
    """What the configuration overrides wins, what it has by default loses, and null inherits."""
    rule = {"name": "r", "kind": "CONDITION", "mode": "WRITE", "type": "CEL", "disabled": False}
    free.register("a", STRING, metadata={"properties": {"owner": "me"}}, ruleSet={"domainRules": [rule]})
    assert free.register("a", STRING)["version"] == 1
    inherited = free.register("a", INT)
    assert inherited["metadata"] == {"properties": {"owner": "me"}}
    assert inherited["ruleSet"] == {"domainRules": [rule]}
    override = dict(rule, expr="true")
    free.set_config(
        "a",
        compatibility="NONE",
        defaultMetadata={"properties": {"owner": "all", "team": "x"}, "tags": {"f": ["PII"]}},
        overrideMetadata={"sensitive": ["team"]},
        overrideRuleSet={"domainRules": [override]},
    )
    merged = free.register("a", LONG)
    assert merged["metadata"] == {
        "tags": {"f": ["PII"]},
        "properties": {"owner": "me", "team": "x"},
        "sensitive": ["team"],
    }
    assert merged["ruleSet"] == {"domainRules": [override]}
    before = len(free.log.records)
    assert free.register("a", LONG)["version"] == 3
    assert len(free.log.records) == before
    assert free.look_up("a", LONG)["version"] == 3
    assert free.registry.schemas.search(rule_type="CEL", latest_only=True)[0]["version"] == 3
    assert free.registry.subjects.latest_with_metadata("a", {"owner": "me"})["version"] == 3


@pytest.mark.parametrize(
    ("rules", "text"),
    [
        ({"domainRules": [{"kind": "CONDITION"}]}, "Missing rule name"),
        ({"domainRules": [{"name": "", "mode": "READ", "type": "CEL"}]}, "Empty rule name"),
        (
            {"domainRules": [{"name": "1a", "mode": "READ", "type": "CEL"}]},
            "Illegal initial character in rule name: 1a",
        ),
        ({"domainRules": [{"name": "a b", "mode": "READ", "type": "CEL"}]}, "Illegal character in rule name: a b"),
        ({"domainRules": [{"name": "a" * 257, "mode": "READ", "type": "CEL"}]}, "Rule name too long"),
        ({"domainRules": [{"name": "a", "mode": "READ"}]}, "Missing rule type"),
        (
            {"domainRules": [{"name": "a", "mode": "READ", "type": "CEL", "onFailure": "NONE,ERROR"}]},
            "Multiple actions only valid with WRITEREAD and UPDOWN",
        ),
        (
            {"domainRules": [{"name": "a", "mode": "UPGRADE", "type": "CEL"}]},
            "Domain rules can only be WRITE, READ, WRITEREAD",
        ),
        (
            {"migrationRules": [{"name": "a", "mode": "READ", "type": "CEL"}]},
            "Migration rules can only be UPGRADE, DOWNGRADE, UPDOWN",
        ),
        (
            {
                "domainRules": [{"name": "a", "mode": "READ", "type": "CEL"}],
                "encodingRules": [{"name": "a", "mode": "READ", "type": "CEL"}],
            },
            "Found rule with duplicate name 'a'",
        ),
    ],
)
def test_rules_of_no_allowed_form_are_refused(instance: Instance, rules: dict[str, Any], text: str) -> None:
    """In a schema and in a configuration alike."""
    assert refused(lambda: instance.register("a", STRING, ruleSet=rules)) == (42210, text)
    assert refused(lambda: instance.set_config("a", defaultRuleSet=rules)) == (42210, text)


# Formats


def test_a_subject_may_change_its_type_where_no_level_holds(free: Instance) -> None:
    """The ids of all types count together; a text without a type is of Avro."""
    free.register("a", STRING)
    message = 'syntax = "proto3"; message A { string f = 1; }'
    protobuf = free.register("a", message, schemaType="PROTOBUF")
    assert (protobuf["id"], protobuf["schemaType"]) == (2, "PROTOBUF")
    written_otherwise = 'syntax="proto3";\nmessage A {\n  string f = 1;\n}\n'
    assert free.register("a", written_otherwise, schemaType="PROTOBUF")["id"] == 2
    assert free.register("a", '{"type": "object"}', schemaType="JSON")["schema"] == '{"type":"object"}'
    assert free.look_up("a", STRING)["version"] == 1
    free.set_config("a", compatibility="BACKWARD")
    code, text = refused(lambda: free.register("a", INT))
    assert (code, "Incompatible because of different schema type" in text) == (40901, True)


def test_a_reference_of_protobuf_is_an_import(free: Instance) -> None:
    """The name of the reference is that of the file."""
    free.register("person.proto", 'syntax = "proto3"; message Person { string name = 1; }', schemaType="PROTOBUF")
    team = 'syntax = "proto3"; import "person.proto"; message Team { Person head = 1; }'
    references = [{"name": "person.proto", "subject": "person.proto", "version": 1}]
    assert free.register("team", team, schemaType="PROTOBUF", references=references)["id"] == 2
    assert answer_or_code(lambda: free.register("other", team, schemaType="PROTOBUF")) == ErrorCode.INVALID_SCHEMA


RESERVED = {"properties": {"confluent:reserved": "name, other"}}


@pytest.mark.parametrize(
    ("schema_type", "schema"),
    [
        ("AVRO", PERSON),
        ("JSON", '{"type":"object","properties":{"name":{"type":"string"}}}'),
        ("PROTOBUF", 'syntax = "proto3"; message Person { string name = 1; }'),
    ],
)
def test_a_field_of_a_reserved_name_is_refused_where_fields_are_validated(
    free: Instance, schema_type: str, schema: str
) -> None:
    """Elsewhere the metadata are stored and that is all."""
    assert free.register("free", schema, schemaType=schema_type, metadata=RESERVED)["version"] == 1
    free.set_config("a", compatibility="NONE", validateFields=True)
    code, text = refused(lambda: free.register("a", schema, schemaType=schema_type, metadata=RESERVED))
    assert (code, "validateFields: 'true'" in text) == (40901, True)
    assert "The new schema has field that conflicts with the reserved field name." in text
    assert free.register("a", schema, schemaType=schema_type)["version"] == 1


def test_a_later_version_keeps_what_is_reserved(free: Instance) -> None:
    """The version before says what that is."""
    free.set_config("a", compatibility="NONE", validateFields=True)
    free.register("a", STRING, metadata=RESERVED)
    fewer = {"properties": {"confluent:reserved": "other"}}
    code, text = refused(lambda: free.register("a", INT, metadata=fewer))
    removed = "The new schema has reserved field name removed from its metadata which is present in the old"
    assert (code, removed in text) == (40901, True)
    request = RegisterRequest.from_json({"schema": INT, "metadata": fewer})
    assert removed in free.registry.compatibility.test_all("a", request, verbose=True)["messages"][0]


def test_a_property_of_json_with_two_dollars_is_refused_where_fields_are_validated(free: Instance) -> None:
    """Confluent keeps such names for itself."""
    schema = '{"type":"object","properties":{"$$a":{"type":"string"}}}'
    assert free.register("free", schema, schemaType="JSON")["version"] == 1
    free.set_config("a", validateFields=True)
    code, text = refused(lambda: free.register("a", schema, schemaType="JSON"))
    assert (code, "Field names cannot start with $$ prefix" in text) == (42201, True)
