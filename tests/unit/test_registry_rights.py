"""What a user of the registry may do by the cluster's access control lists."""

import json

import pytest

from barnabas.broker.authorizer.authorizer import Authorizer, VersionedAcls
from barnabas.client.admin.acl_options import acls_of_words, binding_of_acl
from barnabas.registry.core.decisions import LogRecord
from barnabas.registry.core.registry import Registry
from barnabas.registry.http.content import HttpError
from barnabas.registry.http.operations import OPERATIONS, Call
from barnabas.registry.http.rights import AclRights

SUBJECTS = ("orders-value", "salaries-value", ":.team:orders-value")


def authorizer(*options: str, super_users: frozenset[str] = frozenset()) -> Authorizer:
    """With the entries of kafka-acls's options."""
    made = Authorizer(super_users)
    for text in options:
        for binding in map(binding_of_acl, acls_of_words(text.split())):
            entries = made.acls_of(binding.pattern) or VersionedAcls(frozenset(), 0)
            made.update(binding.pattern, VersionedAcls(entries.entries | {binding.entry}, 0))
    return made


@pytest.fixture
def registry() -> Registry:
    """A schema in each of the subjects; their ids are 1, 2 and so on."""
    made = Registry()
    for number, subject in enumerate(SUBJECTS, 1):
        key = {"keytype": "SCHEMA", "subject": subject, "version": 1, "magic": 1}
        schema = json.dumps({"type": "record", "name": f"R{number}", "fields": []})
        value = {"subject": subject, "version": 1, "id": number, "schema": schema, "deleted": False}
        assert made.apply(LogRecord(number, 0, json.dumps(key).encode(), json.dumps(value).encode())) is None
    return made


def may(registry: Registry, rights: Authorizer, method: str, path: str, body: object = None, **parts: str) -> bool:
    """Whether ann may do an operation."""
    operation = next(each for each in OPERATIONS if (each.method, each.path) == (method, path))
    try:
        AclRights(lambda: rights, registry).check(operation, Call(parts, {}, body), "ann", "10.0.0.1")
    except HttpError as error:
        return (error.status, error.code) != (403, 40301)
    return True


ORDERS = {"subject": "orders-value", "version": "1"}
VERSION, VERSIONS = "/subjects/{subject}/versions/{version}", "/subjects/{subject}/versions"


@pytest.mark.parametrize("operation", ["Read", "Write"])
def test_reading_a_schema_needs_a_right_to_its_records(registry: Registry, operation: str) -> None:
    """Reading or writing them needs the schema; another topic's right is none."""
    rights = authorizer(f"--allow-principal User:ann --operation {operation} --topic orders")
    assert may(registry, rights, "GET", VERSION, **ORDERS)
    assert may(registry, rights, "GET", VERSION, **{**ORDERS, "subject": ":.team:orders-key"})
    assert not may(registry, rights, "GET", VERSION, **{**ORDERS, "subject": "salaries-value"})
    assert not may(registry, authorizer(), "GET", VERSION, **ORDERS)


def test_each_change_needs_its_right(registry: Registry) -> None:
    """A right to read allows none of them."""
    reader = authorizer("--allow-principal User:ann --operation Read --topic orders")
    for method, path, operation in (
        ("POST", VERSIONS, "Write"),
        ("DELETE", VERSION, "Delete"),
        ("DELETE", "/subjects/{subject}", "Delete"),
        ("PUT", "/config/{subject}", "AlterConfigs"),
        ("DELETE", "/mode/{subject}", "AlterConfigs"),
        ("GET", "/config/{subject}", "DescribeConfigs"),
    ):
        assert not may(registry, reader, method, path, **ORDERS), path
        rights = authorizer(f"--allow-principal User:ann --operation {operation} --topic orders")
        assert may(registry, rights, method, path, **ORDERS), path


def test_what_a_schema_refers_to_must_be_readable(registry: Registry) -> None:
    """Else an error would say what is in it."""
    rights = authorizer("--allow-principal User:ann --operation Write --topic orders")
    body = {"schema": "{}", "references": [{"name": "S", "subject": "salaries-value", "version": 1}]}
    assert not may(registry, rights, "POST", VERSIONS, body, **ORDERS)
    both = authorizer(
        "--allow-principal User:ann --operation Write --topic orders",
        "--allow-principal User:ann --operation Read --topic salaries",
    )
    assert may(registry, both, "POST", VERSIONS, body, **ORDERS)


def test_schema_is_found_by_its_id_through_a_readable_subject(registry: Registry) -> None:
    """Not through another one, and not where there is none."""
    rights = authorizer("--allow-principal User:ann --operation Read --topic orders")
    assert may(registry, rights, "GET", "/schemas/ids/{id}", id="1")
    assert not may(registry, rights, "GET", "/schemas/ids/{id}", id="2")
    assert not may(registry, rights, "GET", "/schemas/ids/{id}", id="77")


UNKNOWN = {"id": "77", "guid": "00000000-0000-0000-0000-000000000077"}


@pytest.mark.parametrize("part", ["id", "guid"])
def test_that_a_schema_is_not_there_is_said_to_those_who_may_read_all(registry: Registry, part: str) -> None:
    """Super users are among them; a right to some subjects, or to other things, is not enough."""
    path, known = f"/schemas/{part}s/{{{part}}}", {part: UNKNOWN[part]}
    for rights in (
        authorizer(super_users=frozenset({"User:ann"})),
        authorizer("--allow-principal User:ann --operation Read --topic *"),
        authorizer("--allow-principal User:ann --operation All --cluster"),
    ):
        assert may(registry, rights, "GET", path, **known)
    for rights in (
        authorizer(),
        authorizer("--allow-principal User:ann --operation Describe --topic *"),
        authorizer("--allow-principal User:ann --operation Read --topic orders"),
        authorizer("--allow-principal User:ann --operation AlterConfigs --cluster"),
    ):
        assert not may(registry, rights, "GET", path, **known)


def test_a_right_to_all_subjects_does_not_open_one_that_is_denied(registry: Registry) -> None:
    """Neither does a right on the cluster: the subjects of a schema that is there decide."""
    denied = authorizer(
        "--allow-principal User:ann --operation All --topic *",
        "--deny-principal User:ann --operation All --topic salaries",
        "--allow-principal User:ann --operation All --cluster",
    )
    assert may(registry, denied, "GET", "/schemas/ids/{id}", id="1")
    assert not may(registry, denied, "GET", "/schemas/ids/{id}", id="2")


@pytest.mark.parametrize("path", ["/config", "/mode"])
def test_what_holds_for_many_subjects_needs_a_right_on_the_cluster(registry: Registry, path: str) -> None:
    """The global configuration, that of a context, and contexts themselves."""
    topics = authorizer("--allow-principal User:ann --operation All --topic *")
    cluster = authorizer("--allow-principal User:ann --operation AlterConfigs --cluster")
    for rights, expected in ((topics, False), (cluster, True)):
        assert may(registry, rights, "PUT", path) is expected
        for context in (":.team:", ":.team", ":.__GLOBAL", ":*:"):
            assert may(registry, rights, "PUT", f"{path}/{{subject}}", subject=context) is expected
        assert may(registry, rights, "DELETE", "/contexts/{context}", context=".team") is expected


def test_lists_leave_out_what_the_user_may_not_see(registry: Registry) -> None:
    """Names need less than schemas."""
    rights = AclRights(lambda: authorizer("--allow-principal User:ann --operation Describe --topic orders"), registry)
    by_path = {(each.method, each.path): each for each in OPERATIONS}
    names = by_path["GET", "/subjects"]
    assert rights.visible(names, list(SUBJECTS), "ann", "h") == ["orders-value", ":.team:orders-value"]
    schemas = by_path["GET", "/schemas"]
    assert rights.visible(schemas, [{"subject": "orders-value"}], "ann", "h") == []
    assert rights.visible(by_path["GET", "/schemas/types"], ["AVRO"], "ann", "h") == ["AVRO"]


def test_super_user_needs_no_entry_and_a_denied_one_has_none(registry: Registry) -> None:
    """As on a broker."""
    assert may(registry, authorizer(super_users=frozenset({"User:ann"})), "PUT", "/config")
    denied = authorizer(
        "--allow-principal User:* --operation All --topic *", "--deny-principal User:ann --operation All --topic orders"
    )
    assert not may(registry, denied, "GET", VERSION, **ORDERS)
    assert may(registry, denied, "GET", VERSION, **{**ORDERS, "subject": "other"})
