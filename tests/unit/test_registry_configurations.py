"""The registry's levels of compatibility, configurations and modes, with the codes and in the words
of Confluent's."""

import pytest

from barnabas.registry.core import RegisterRequest, RegistrySettings
from barnabas.registry.errors import ErrorCode
from support.registry_log import (
    INT,
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
