"""What the registry answers and refuses, with the codes and in the words of Confluent's."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from barnabas.registry.core import LogRecord, RegisterRequest, RegistrySettings
from barnabas.registry.errors import ErrorCode, RegistryError
from support.registry_log import Instance, SchemasLog, answer_or_code

STRING, INT, LONG = '"string"', '"int"', '"long"'
PERSON = '{"type":"record","name":"Person","fields":[{"name":"name","type":"string"}]}'
PERSON_WITH_AGE = (
    '{"type":"record","name":"Person","fields":[{"name":"name","type":"string"},'
    '{"name":"age","type":"int","default":0}]}'
)
PERSON_WITHOUT_DEFAULT = PERSON_WITH_AGE.replace(',"default":0', "")
TEAM = '{"type":"record","name":"Team","fields":[{"name":"head","type":"Person"}]}'
OF_PERSON = [{"name": "Person", "subject": "person", "version": 1}]


@pytest.fixture
def instance() -> Instance:
    return Instance(SchemasLog())


@pytest.fixture
def free(instance: Instance) -> Instance:
    """One that lets any schema follow another one."""
    instance.set_config(":.__GLOBAL:", compatibility="NONE")
    return instance


def refused(call: Callable[[], Any]) -> tuple[int, str]:
    """The code and the text of a refusal."""
    with pytest.raises(RegistryError) as caught:
        call()
    return int(caught.value.code), caught.value.message


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
            f'{{"keytype":"SCHEMA","subject":"s{number}","version":1,"magic":1}}'.encode(), _json(value)
        )
    instance.follow()
    last = [{"name": "R999", "subject": "s999", "version": 1}]
    text = '{"type":"record","name":"Top","fields":[{"name":"r","type":"R999"}]}'
    assert instance.register("top", text, references=last)["id"] == 1_001


def _json(value: object) -> bytes:
    return json.dumps(value).encode()


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
        _json({"subject": "a", "version": 1, "id": 9, "schema": PERSON.replace(",", ", ")}),
    )
    instance.follow()
    assert instance.register("a", PERSON)["id"] == 9


def test_a_text_of_a_type_that_is_unknown_here_is_found_as_it_was_written(instance: Instance) -> None:
    """Another registry may have formats of its own: their schemas are answered, not registered."""
    instance.log.append_raw(
        b'{"keytype":"SCHEMA","subject":"a","version":1,"magic":1}',
        _json({"subject": "a", "version": 1, "id": 9, "schemaType": "XML", "schema": "<a/>"}),
    )
    instance.follow()
    assert instance.look_up("a", "<a/>", schemaType="XML")["id"] == 9
    assert instance.register("a", "<a/>", schemaType="XML")["id"] == 9
    assert refused(lambda: instance.register("b", "<a/>", schemaType="XML")) == (42201, "Invalid schema type XML")
    assert refused(lambda: instance.register("a", STRING))[0] == 42201


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


# Compatibility


def test_a_test_of_compatibility_registers_nothing(instance: Instance) -> None:
    """It says whether the schema fits, and why not on request."""
    instance.register("a", PERSON)
    compatibility = instance.registry.compatibility
    fits, fits_not = (RegisterRequest.from_json({"schema": each}) for each in (PERSON_WITH_AGE, PERSON_WITHOUT_DEFAULT))
    assert compatibility.test_version("a", "1", fits) == {"is_compatible": True}
    assert compatibility.test_all("a", fits, verbose=True) == {"is_compatible": True, "messages": []}
    assert compatibility.test_all("a", fits_not) == {"is_compatible": False}
    messages = compatibility.test_version("a", "latest", fits_not, verbose=True)["messages"]
    assert messages[-1] == "{validateFields: 'false', compatibility: 'BACKWARD'}"
    assert compatibility.test_version("unknown", "latest", fits) == {"is_compatible": True}
    assert compatibility.test_all("unknown", fits) == {"is_compatible": True}
    assert refused(lambda: compatibility.test_version("unknown", "1", fits)) == (40402, "Version 1 not found.")
    assert refused(lambda: compatibility.test_version("a", "earliest", fits))[0] == 42202


def test_a_text_that_is_no_schema_is_a_message_where_messages_are_asked_for(instance: Instance) -> None:
    """Else it is an error."""
    broken = RegisterRequest.from_json({"schema": "{"})
    assert refused(lambda: instance.registry.compatibility.test_all("a", broken))[0] == 42201
    answer = instance.registry.compatibility.test_all("a", broken, verbose=True)
    assert answer["is_compatible"] is False
    assert answer["messages"][0].startswith("Invalid schema of type AVRO, details: ")


def test_a_group_compares_only_the_versions_with_its_property(instance: Instance) -> None:
    """Another major version may break with the one before."""
    instance.set_config("a", compatibilityGroup="major")
    instance.register("a", PERSON, metadata={"properties": {"major": "1"}})
    second = {"properties": {"major": "2"}}
    assert instance.register("a", STRING, metadata=second)["version"] == 2
    assert answer_or_code(lambda: instance.register("a", INT, metadata=second)) == ErrorCode.INCOMPATIBLE_SCHEMA
    assert instance.register("a", PERSON_WITH_AGE, metadata={"properties": {"major": "1"}})["version"] == 3


def test_a_transitive_level_looks_at_every_version(instance: Instance) -> None:
    """And one that is not at the last one."""
    instance.set_config("a", compatibility="NONE")
    instance.register("a", PERSON)
    instance.register("a", STRING)
    instance.set_config("a", compatibility="BACKWARD_TRANSITIVE")
    assert answer_or_code(lambda: instance.register("a", '["string","null"]')) == ErrorCode.INCOMPATIBLE_SCHEMA
    instance.set_config("a", compatibility="BACKWARD")
    assert instance.register("a", '["string","null"]')["version"] == 3


# Configurations and modes


def test_a_configuration_is_merged_field_by_field(instance: Instance) -> None:
    """A field that is not named stays, and null takes one away."""
    assert instance.set_config("a", compatibility="full", normalize=True) == {
        "normalize": True,
        "compatibility": "FULL",
    }
    instance.set_config("a", compatibilityGroup="g", validateFields=False, compatibilityPolicy="lenient")
    assert instance.registry.configs.get("a") == {
        "normalize": True,
        "validateFields": False,
        "compatibilityLevel": "FULL",
        "compatibilityPolicy": "LENIENT",
        "compatibilityGroup": "g",
    }
    instance.set_config("a", compatibilityGroup=None, normalize=None, compatibilityPolicy=None)
    assert instance.registry.configs.get("a") == {"validateFields": False, "compatibilityLevel": "FULL"}


def test_the_configuration_that_holds_is_the_nearest_one(instance: Instance) -> None:
    """The subject's, its context's or the global one, that of all contexts, the default."""
    configs = instance.registry.configs

    def level(subject: str | None) -> str:
        return str(configs.get(subject, default_to_global=True)["compatibilityLevel"])

    assert (level(None), level("a"), level(":.c:a")) == ("BACKWARD",) * 3
    instance.set_config(":.__GLOBAL:", compatibility="NONE")
    assert (level(None), level("a"), level(":.c:a")) == ("NONE",) * 3
    instance.set_config(None, compatibility="FORWARD", normalize=True)
    assert (level(None), level("a"), level(":.c:a")) == ("FORWARD", "FORWARD", "NONE")
    instance.set_config(":.c:", compatibility="FULL")
    instance.set_config("a", alias="b")
    assert (level("a"), level(":.c:a")) == ("BACKWARD", "FULL")
    assert configs.get("a", default_to_global=True)["normalize"] is True
    assert refused(lambda: configs.get(":.c:a")) == (
        40408,
        "Subject ':.c:a' does not have subject-level compatibility configured",
    )


def test_a_configuration_is_deleted_and_answered(instance: Instance) -> None:
    """What is not there is not found; the global one falls back to the default."""
    configs = instance.registry.configs
    instance.set_config("a", compatibility="FULL")
    instance.set_config(":.:", compatibility="NONE")
    assert instance.perform(configs.delete("a")) == {"compatibilityLevel": "FULL"}
    assert refused(lambda: configs.delete("a")) == (40401, "Subject 'a' not found.")
    assert instance.perform(configs.delete(None)) == {"compatibilityLevel": "NONE"}
    assert configs.get() == {"compatibilityLevel": "BACKWARD"}
    assert configs.delete(None).records == ()


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"compatibility": "SOME"}, 42203),
        ({"compatibility": 7}, 400),
        ({"normalize": "yes"}, 400),
        ({"compatibilityPolicy": "x"}, 400),
        ({"compatibilityPolicy": "logical"}, 400),
        ([], 400),
    ],
)
def test_a_configuration_that_is_not_understood_is_refused(instance: Instance, body: object, code: int) -> None:
    """Nothing of it is stored."""
    assert refused(lambda: instance.registry.configs.update("a", body))[0] == code
    assert refused(lambda: instance.registry.configs.update("a\x00", {"compatibility": "FULL"}))[0] == 42208


def test_the_mode_that_holds_is_the_nearest_one(instance: Instance) -> None:
    """It can be set for a subject, a context, all of the default one, and all contexts."""
    modes = instance.registry.modes

    def mode(subject: str | None) -> str:
        return str(modes.get(subject, default_to_global=True)["mode"])

    assert (mode(None), mode("a"), mode(":.c:a")) == ("READWRITE",) * 3
    instance.set_mode(":.__GLOBAL:", "READONLY")
    assert (mode(None), mode("a"), mode(":.c:a")) == ("READONLY",) * 3
    assert instance.set_mode(":.c:", "readwrite") == {"mode": "READWRITE"}
    assert (mode("a"), mode(":.c:a")) == ("READONLY", "READWRITE")
    assert refused(lambda: modes.get("a")) == (40409, "Subject 'a' does not have subject-level mode configured")
    assert instance.set_mode(":.__GLOBAL:", None) == {"mode": None}
    assert mode("a") == "READWRITE"


@pytest.mark.parametrize("body", [{"mode": "SOME"}, {"mode": "FORWARD"}, {}, {"mode": 7}, []])
def test_an_unknown_mode_is_refused(instance: Instance, body: object) -> None:
    """So is FORWARD, which nothing here executes."""
    assert refused(lambda: instance.registry.modes.update(None, body))[0] in (42204, 400)


def test_import_mode_needs_an_empty_place_or_force(free: Instance) -> None:
    """Versions that are deleted already are deleted for good then."""
    free.register("a", STRING)
    assert refused(lambda: free.set_mode("a", "IMPORT")) == (42205, "Cannot import since found existing subjects")
    assert refused(lambda: free.set_mode(None, "IMPORT"))[0] == 42205
    assert free.set_mode("a", "IMPORT", force=True) == {"mode": "IMPORT"}
    free.set_mode("a", "READWRITE")
    free.delete_subject("a")
    free.set_mode(None, "IMPORT")
    assert free.registry.subjects.names(deleted=True) == []


def test_import_mode_does_not_take_away_what_others_refer_to(instance: Instance) -> None:
    """A reference from another place holds."""
    instance.register("person", PERSON)
    instance.register("team", TEAM, references=OF_PERSON)
    instance.delete_subject("team")
    instance.delete_subject("person")
    assert refused(lambda: instance.set_mode("person", "IMPORT"))[0] == 42206


def test_modes_are_deleted_alone_or_with_all_below_them(instance: Instance) -> None:
    """A context that has none may still take away those of its subjects."""
    for subject in (":.c:a", ":.c:b", ":.d:a", "a"):
        instance.set_mode(subject, "READONLY")
    modes = instance.registry.modes
    assert refused(lambda: modes.delete(":.c:")) == (40401, "Subject ':.c:' not found.")
    assert instance.perform(modes.delete(":.c:", recursive=True)) == {}
    assert answer_or_code(lambda: modes.get(":.c:a")) == ErrorCode.SUBJECT_MODE_NOT_CONFIGURED
    assert modes.get(":.d:a") == {"mode": "READONLY"}
    instance.set_mode(None, "READONLY")
    assert instance.perform(modes.delete(None)) == {"mode": "READONLY"}
    assert modes.get("a") == {"mode": "READONLY"}
    instance.perform(modes.delete(None, recursive=True))
    assert answer_or_code(lambda: modes.get("a")) == ErrorCode.SUBJECT_MODE_NOT_CONFIGURED


def test_modes_cannot_be_changed_where_the_settings_say_so() -> None:
    """Reading them is no change."""
    fixed = Instance(SchemasLog(), RegistrySettings(mode_mutability=False))
    assert refused(lambda: fixed.set_mode(None, "READONLY")) == (42205, "Mode changes are not allowed")
    assert answer_or_code(lambda: fixed.registry.modes.delete(None)) == ErrorCode.OPERATION_NOT_PERMITTED
    assert fixed.registry.modes.get() == {"mode": "READWRITE"}


def test_the_mode_of_a_registry_that_forwards_lets_nothing_be_registered(instance: Instance) -> None:
    """A log of Confluent's may hold it: what is not executed does not fail open."""
    instance.log.append_raw(b'{"keytype":"MODE","subject":":.__GLOBAL:","magic":0}', b'{"mode":"FORWARD"}')
    instance.follow()
    assert answer_or_code(lambda: instance.register("a", STRING)) == ErrorCode.OPERATION_NOT_PERMITTED
    assert answer_or_code(lambda: instance.register("a", STRING, id=1, version=1)) == ErrorCode.OPERATION_NOT_PERMITTED


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
