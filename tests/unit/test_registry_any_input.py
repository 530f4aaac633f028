"""Records and bodies of any shape: an error at most, never a crash."""

import json
from contextlib import suppress

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.registry.core import LogRecord, RegisterRequest, Registry
from barnabas.registry.core.keys import SchemasKeyType
from barnabas.registry.errors import RegistryError
from support.registry_log import SCHEMAS, all_answers

NAMES = [
    "keytype",
    "subject",
    "version",
    "magic",
    "id",
    "schema",
    "schemaType",
    "references",
    "metadata",
    "ruleSet",
    "deleted",
    "md5",
    "mode",
    "context",
    "tenant",
    "maxId",
    "compatibilityLevel",
    "compatibility",
    "normalize",
    "alias",
    "defaultMetadata",
    "overrideRuleSet",
    "compatibilityPolicy",
    "name",
    "tags",
    "properties",
    "sensitive",
    "domainRules",
    "migrationRules",
    "kind",
    "type",
    "params",
    "disabled",
    "schemaTagsToAdd",
]
leaves = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**40), 2**40),
    st.integers(0, 3),
    st.floats(),
    st.text(max_size=3),
    st.sampled_from(["a", ":.c:a", "FULL", "IMPORT", "AVRO", "XML", "WRITE", "\ud800", *SCHEMAS]),
)
values = st.recursive(
    leaves,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(NAMES), inner, max_size=5),
    max_leaves=8,
)
keys = st.fixed_dictionaries(
    {"keytype": st.one_of(st.sampled_from(list(SchemasKeyType)), leaves)},
    optional={"subject": leaves, "version": leaves, "magic": leaves, "context": leaves},
)
schemas = st.fixed_dictionaries(
    {"subject": leaves, "version": leaves, "id": leaves, "schema": leaves},
    optional=dict.fromkeys(("schemaType", "references", "metadata", "ruleSet", "deleted", "md5"), values),
)
as_json = st.one_of(keys, schemas, values).map(lambda value: json.dumps(value).encode())
raw = st.one_of(st.none(), st.binary(max_size=8), as_json)


@settings(max_examples=40)
@given(st.lists(st.tuples(st.one_of(raw, keys.map(lambda key: json.dumps(key).encode())), raw), max_size=6))
def test_any_records_leave_a_state_that_answers(records: list[tuple[bytes | None, bytes | None]]) -> None:
    """What is not skipped can be read: the state holds together."""
    registry = Registry()
    for offset, (key, value) in enumerate(records):
        registry.apply(LogRecord(offset, offset, key, value))
    json.dumps(all_answers(registry)).encode()
    registry.repairs()


@settings(max_examples=60)
@given(values, st.booleans())
def test_any_body_is_a_request_or_is_refused(body: object, normalize: bool) -> None:
    """In every operation that takes one."""
    registry = Registry()
    with suppress(RegistryError):
        request = RegisterRequest.from_json(body)
        with suppress(RegistryError):
            registry.subjects.look_up("a", request, normalize=normalize)
        with suppress(RegistryError):
            registry.compatibility.test_all("a", request, verbose=normalize)
        registry.subject_versions.register("a", request, normalize=normalize)
    with suppress(RegistryError):
        registry.configs.update("a", body)
    with suppress(RegistryError):
        registry.modes.update("a", body)


@given(st.text(max_size=12), st.text(max_size=12))
def test_any_name_and_version_is_answered_or_refused(name: str, version: str) -> None:
    """In paths and in queries."""
    registry = Registry()
    calls = (
        lambda: registry.subject_versions.get(name, version),
        lambda: registry.subject_versions.delete(name, version),
        lambda: registry.subjects.delete(name),
        lambda: registry.subjects.names(subject_prefix=name),
        lambda: registry.schemas.search(subject_prefix=name, aliases=True),
        lambda: registry.schemas.get(1, subject=name),
        lambda: registry.schemas.ids_of_guid(name),
        lambda: registry.configs.update(name, {"compatibility": "FULL"}),
        lambda: registry.modes.update(name, {"mode": version}),
        lambda: registry.modes.delete(name, recursive=True),
        lambda: registry.contexts.delete(name),
        lambda: registry.subject_named(name),
    )
    for call in calls:
        with suppress(RegistryError):
            call()
