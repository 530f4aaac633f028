"""Access control lists beside Apache Kafka: the same answers, the same znodes, changes that
brokers of either kind see, and Apache's own tool."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas.wire.kafka.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.wire.kafka.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from barnabas.wire.kafka.messages.describe_acls import DescribeAclsRequest
from support.mixed import APACHES, OURS, MixedCluster, is_long, mixed_cluster
from support.needs import needs_reference
from support.raw import ask
from support.reference import apache_tool
from support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.java, needs_reference, pytest.mark.timeout(300)]

OUR_BROKER, APACHES_BROKER = 0, 1
ANY, ALL, READ, WRITE, DESCRIBE = 1, 2, 3, 4, 8
TOPIC, GROUP, CLUSTER = 2, 3, 4
MATCH, LITERAL, PREFIXED = 2, 3, 4
DENY, ALLOW = 2, 3


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedCluster]:
    """A broker of each kind; clients are super users."""
    settings = {
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with mixed_cluster(tmp_path_factory.mktemp("acls"), [OURS, APACHES], settings=settings) as running:
        yield running


def port(cluster: MixedCluster, broker_id: int) -> int:
    return cluster.members[broker_id].port


def creation(name: str = "t", principal: str = "User:ann", **other: Any) -> AclCreation:
    fields = {"resource_type": TOPIC, "resource_pattern_type": LITERAL, "operation": READ, "permission_type": ALLOW}
    return AclCreation(resource_name=name, principal=principal, host=other.pop("host", "*"), **{**fields, **other})


def wanted(make: Any = DescribeAclsRequest, **other: Any) -> Any:
    fields = {
        "resource_type_filter": ANY,
        "resource_name_filter": None,
        "pattern_type_filter": ANY,
        "principal_filter": None,
        "host_filter": None,
        "operation": ANY,
        "permission_type": ANY,
    }
    return make(**{**fields, **other})


def create(at: int, *creations: AclCreation) -> list[tuple[int, str | None]]:
    answer = ask(at, CreateAclsRequest(creations=list(creations)), 3)
    return [(result.error_code, result.error_message) for result in answer.results]


def describe(at: int, **other: Any) -> list[tuple[Any, ...]]:
    answer = ask(at, wanted(**other), 3)
    assert (answer.error_code, answer.error_message) == (0, "")
    return sorted(
        (
            *(resource.resource_type, resource.resource_name, resource.pattern_type),
            *(acl.principal, acl.host, acl.operation, acl.permission_type),
        )
        for resource in answer.resources
        for acl in resource.acls
    )


def delete(at: int, *filters: DeleteAclsFilter) -> list[Any]:
    answer = ask(at, DeleteAclsRequest(filters=list(filters)), 3)
    return [
        (
            result.error_code,
            result.error_message,
            sorted(
                (
                    *(acl.error_code, acl.error_message, acl.resource_type, acl.resource_name, acl.pattern_type),
                    *(acl.principal, acl.host, acl.operation, acl.permission_type),
                )
                for acl in result.matching_acls
            ),
        )
        for result in answer.filter_results
    ]


def clear(cluster: MixedCluster) -> None:
    """Delete everything, and wait until both brokers know."""
    delete(port(cluster, OUR_BROKER), wanted(DeleteAclsFilter))
    await_known(cluster, [])


def await_known(cluster: MixedCluster, expected: list[tuple[Any, ...]]) -> None:
    for broker_id in (OUR_BROKER, APACHES_BROKER):
        at = port(cluster, broker_id)
        eventually(lambda at=at: describe(at) == expected, what=f"broker {broker_id} knows {expected}")


CREATIONS = {
    "ordinary": [creation(), creation(permission_type=DENY, operation=ALL), creation(resource_type=GROUP)],
    "twice": [creation(), creation()],
    "prefix": [creation(resource_pattern_type=PREFIXED), creation("*")],
    "tokens": [creation(resource_type=6, operation=DESCRIBE), creation("User:b", resource_type=7, operation=13)],
    "no cluster": [creation(resource_type=CLUSTER), creation("x")],
    "cluster": [creation("kafka-cluster", resource_type=CLUSTER, operation=9)],
    "cluster prefix": [creation("kafka", resource_type=CLUSTER, resource_pattern_type=PREFIXED)],
    "no name": [creation(""), creation("x")],
    "slash": [creation("a/b"), creation("x")],
    "dots": [creation(".."), creation("x")],
    "control character": [creation("a\x01b"), creation("x")],
    "beyond the plane": [creation("\U0001f600"), creation("x")],
    "letters": [creation('ä"\\x', principal='User:ö"\\')],
    "no type": [creation(principal="ann"), creation("x")],
    "no type beside another": [creation(principal="ann"), creation()],
    "no principal": [creation(principal=""), creation("x")],
    "no name of a user": [creation(principal="User:"), creation(principal=":")],
    "no host": [creation(host="")],
    "any operation": [creation(operation=ANY), creation("x")],
    "any permission": [creation(permission_type=ANY)],
    "any type": [creation(resource_type=ANY)],
    "match": [creation(resource_pattern_type=MATCH)],
    "unknown numbers": [
        creation(operation=15),
        creation(operation=-1),
        creation(permission_type=9),
        creation(resource_type=99),
        creation(resource_pattern_type=9),
        creation("x"),
    ],
    "none": [],
}


@pytest.mark.parametrize("creations", CREATIONS.values(), ids=CREATIONS)
def test_creations_have_the_answers_and_the_effects_of_apaches_broker(
    cluster: MixedCluster, creations: list[AclCreation]
) -> None:
    """Codes, words, and what there is after it."""
    seen = []
    for broker_id in (APACHES_BROKER, OUR_BROKER):
        answer = create(port(cluster, broker_id), *creations)
        there = describe(port(cluster, broker_id))
        await_known(cluster, there)
        seen.append((answer, there))
        clear(cluster)
    assert seen[0] == seen[1]


@pytest.mark.parametrize(
    "request_",
    [
        CreateAclsRequest(creations=[creation(operation=0)]),
        CreateAclsRequest(creations=[creation(), creation(resource_pattern_type=0)]),
        DeleteAclsRequest(filters=[wanted(DeleteAclsFilter, permission_type=0)]),
        wanted(resource_type_filter=0),
    ],
    ids=["operation", "pattern", "permission", "type"],
)
def test_a_request_with_the_code_of_unknown_ends_the_connection(cluster: MixedCluster, request_: Any) -> None:
    """It is malformed."""
    for broker_id in (APACHES_BROKER, OUR_BROKER):
        with pytest.raises((ConnectionError, EOFError, AssertionError)):
            ask(port(cluster, broker_id), request_, 3)


FILTERS = {
    "all": {},
    "a name": {"resource_name_filter": "ab"},
    "a match": {"resource_name_filter": "abc", "pattern_type_filter": MATCH},
    "a match of a type": {"resource_name_filter": "abc", "pattern_type_filter": MATCH, "resource_type_filter": TOPIC},
    "literal": {"resource_name_filter": "ab", "pattern_type_filter": LITERAL, "resource_type_filter": TOPIC},
    "prefixes": {"pattern_type_filter": PREFIXED},
    "wildcard": {"resource_name_filter": "*", "pattern_type_filter": MATCH},
    "a user": {"principal_filter": "User:bob"},
    "a host": {"host_filter": "1.2.3.4"},
    "all hosts": {"host_filter": "*"},
    "an operation": {"operation": ALL},
    "a denial": {"permission_type": DENY},
    "unknown numbers": {"operation": 15},
    "an unknown type": {"resource_type_filter": 99, "resource_name_filter": "ab", "pattern_type_filter": LITERAL},
    "an unknown pattern": {"resource_type_filter": TOPIC, "resource_name_filter": "ab", "pattern_type_filter": 9},
    "no name": {"resource_type_filter": TOPIC, "resource_name_filter": "", "pattern_type_filter": LITERAL},
    "dots": {"resource_type_filter": TOPIC, "resource_name_filter": "..", "pattern_type_filter": ANY},
    "a path": {"resource_type_filter": TOPIC, "resource_name_filter": "a/b", "pattern_type_filter": ANY},
}
SOME = [
    *(creation("ab"), creation("ab", "User:bob", operation=ALL), creation("*"), creation("ab", resource_type=GROUP)),
    creation("ab", host="1.2.3.4", permission_type=DENY),
    *(creation("a", resource_pattern_type=PREFIXED), creation("abc", resource_pattern_type=PREFIXED)),
]


@pytest.mark.parametrize("fields", FILTERS.values(), ids=FILTERS)
def test_filters_find_and_delete_what_they_do_at_apaches_broker(cluster: MixedCluster, fields: dict[str, Any]) -> None:
    """Among several filters, an entry belongs to the first that matches."""
    seen = []
    for broker_id in (APACHES_BROKER, OUR_BROKER):
        at = port(cluster, broker_id)
        create(at, *SOME)
        found = describe(at, **fields)
        other = wanted(DeleteAclsFilter, principal_filter="User:bob")
        deleted = delete(at, wanted(DeleteAclsFilter, **fields), other)
        there = describe(at)
        await_known(cluster, there)
        seen.append((found, deleted, there))
        clear(cluster)
    assert seen[0] == seen[1]


@pytest.mark.parametrize("first", [OUR_BROKER, APACHES_BROKER])
def test_brokers_of_either_kind_see_and_change_the_entries_of_the_other(cluster: MixedCluster, first: int) -> None:
    """Literal names and prefixes, additions and removals."""
    mine, its = port(cluster, first), port(cluster, 1 - first)
    create(mine, creation(), creation("p", resource_pattern_type=PREFIXED))
    await_known(cluster, describe(mine))
    create(its, creation(principal="User:bob"), creation("p", principal="User:bob", resource_pattern_type=PREFIXED))
    await_known(cluster, describe(its))
    assert len(describe(mine)) == 4
    create(mine, creation(principal="User:eve"))
    delete(its, wanted(DeleteAclsFilter, principal_filter="User:bob"))
    await_known(cluster, describe(its))
    assert sorted({entry[3] for entry in describe(mine)}) == ["User:ann", "User:eve"]
    clear(cluster)


def test_znodes_have_the_bytes_of_apaches_broker(cluster: MixedCluster) -> None:
    """Entries, and the notes of changes."""
    contents = []
    for broker_id in (APACHES_BROKER, OUR_BROKER):
        roots = ("/kafka-acl-changes", "/kafka-acl-extended-changes")
        before = {root: set(cluster.znodes.get_children(root)) for root in roots}
        special = creation('ä"\\', 'User:ö"\\', operation=11, permission_type=DENY, host="1.2.3.4")
        create(
            port(cluster, broker_id),
            special,
            creation("id", resource_type=5, operation=DESCRIBE),
            creation('ä"\\', resource_pattern_type=PREFIXED, operation=12),
        )
        paths = ['/kafka-acl/Topic/ä"\\', "/kafka-acl/TransactionalId/id", '/kafka-acl-extended/prefixed/Topic/ä"\\']
        found = [cluster.znodes.get(path)[0] for path in paths]
        notes = [
            {cluster.znodes.get(f"{root}/{name}")[0] for name in cluster.znodes.get_children(root) if name not in old}
            for root, old in before.items()
        ]
        contents.append((found, notes))
        clear(cluster)
    assert contents[0] == contents[1]
    assert json.loads(contents[1][0][0])["version"] == 1


@pytest.mark.parametrize("version", ["3.9.1", "4.4.0"])
def test_apaches_tool_administers_our_broker_as_its_own(cluster: MixedCluster, version: str) -> None:
    """kafka-acls adds, lists and removes; where there is time, it says the same of both brokers."""
    shown = [tool_lines(cluster, broker_id, version) for broker_id in (OUR_BROKER, *([APACHES_BROKER] * is_long()))]
    assert shown == [shown[0]] * len(shown)
    added, listed, removed = shown[0]
    assert added == listed
    assert "(principal=User:ann, host=*, operation=WRITE, permissionType=ALLOW)" in listed
    assert removed == []


def tool_lines(cluster: MixedCluster, broker_id: int, version: str) -> list[list[str]]:
    """What the tool shows of the topic's entries; the lines of a resource have no order."""
    address = f"127.0.0.1:{port(cluster, broker_id)}"
    lines = []
    for action in (
        ["--add", "--allow-principal", "User:ann", "--producer"],
        ["--list", "--resource-pattern-type", "match"],
        ["--remove", "--force"],
    ):
        done = acl_command(version, "--bootstrap-server", address, *action, "--topic", "t")
        assert done.returncode == 0, done.stdout + done.stderr
        lines.append(sorted(line.strip() for line in done.stdout.splitlines() if "principal=" in line))
    clear(cluster)
    return [sorted(set(some)) for some in lines]


def acl_command(version: str, *args: str) -> Any:
    main = "kafka.admin.AclCommand" if version.startswith("3") else "org.apache.kafka.tools.AclCommand"
    return apache_tool(main, *args, version=version)
