"""The decision of the authorizer: each of its rules, and all of them against a slow model."""

import logging
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.base.tasks import done_here
from barnabas.broker.authorizer import authorizer as authorizer_module
from barnabas.broker.authorizer.auth_helper import EVERY_NAME, AuthHelper
from barnabas.broker.authorizer.authorizer import Authorizer, VersionedAcls
from barnabas.broker.requests.request import ClientFacts
from barnabas.security.acls import (
    CLUSTER_NAME,
    SUPPORTED_OPERATIONS,
    AccessControlEntry,
    AccessControlEntryFilter,
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
)
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

ALLOW, DENY = AclPermissionType.ALLOW, AclPermissionType.DENY
LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
READ, WRITE, DESCRIBE, ALL = AclOperation.READ, AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.ALL
TOPIC, GROUP, CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
ANN, BOB, ALL_USERS = "User:ann", "User:bob", "User:*"
HERE, THERE, ALL_HOSTS = "10.0.0.1", "10.0.0.2", "*"


def acl(
    name: str,
    operation: AclOperation = READ,
    *,
    principal: str = ANN,
    host: str = ALL_HOSTS,
    permission: AclPermissionType = ALLOW,
    kind: ResourceType = TOPIC,
    pattern: PatternType = LITERAL,
) -> AclBinding:
    return AclBinding(ResourcePattern(kind, name, pattern), AccessControlEntry(principal, host, operation, permission))


def authorizer_with(bindings: Iterable[AclBinding], **options: Any) -> Authorizer:
    made = Authorizer(options.pop("super_users", frozenset()), **options)
    by_pattern: dict[ResourcePattern, set[AccessControlEntry]] = {}
    for pattern, entry in bindings:
        by_pattern.setdefault(pattern, set()).add(entry)
    for version, (pattern, entries) in enumerate(by_pattern.items()):
        made.update(pattern, VersionedAcls(frozenset(entries), version))
    return made


def may(authorizer: Authorizer, operation: AclOperation = READ, name: str = "orders", **other: Any) -> bool:
    kind = other.get("kind", TOPIC)
    return authorizer.authorize(other.get("principal", ANN), other.get("host", HERE), operation, kind, name)


@pytest.mark.parametrize(
    "binding",
    [
        acl("orders"),
        acl("*"),
        acl("or", pattern=PREFIXED),
        acl("orders", pattern=PREFIXED),
        acl("orders", ALL),
        acl("orders", principal=ALL_USERS),
        acl("orders", host=HERE),
    ],
)
def test_an_entry_that_matches_allows(binding: AclBinding) -> None:
    """By name or prefix, for one user or all, from one host or all; and nothing else is allowed."""
    authorizer = authorizer_with([binding])
    assert may(authorizer)
    assert may(authorizer, WRITE) is (binding.entry.operation is ALL)
    assert may(authorizer, principal=BOB) is (binding.entry.principal == ALL_USERS)
    assert may(authorizer, host=THERE) is (binding.entry.host == ALL_HOSTS)
    assert may(authorizer, name="other") is (binding.pattern.name == "*")
    assert not may(authorizer, kind=GROUP)


@pytest.mark.parametrize(
    "binding",
    [
        acl("*", pattern=PREFIXED),
        acl("orders2", pattern=PREFIXED),
        acl("Orders"),
        acl("ordersx"),
        acl("orders", principal="user:ann"),
        acl("orders", principal="Group:ann"),
        acl("orders", principal="User:Ann"),
        acl("orders", host="10.0.0.*"),
        acl("orders", AclOperation.ANY),
        acl("orders", AclOperation.UNKNOWN),
        acl("orders", permission=AclPermissionType.UNKNOWN),
    ],
)
def test_an_entry_for_something_else_allows_nothing(binding: AclBinding) -> None:
    """Names are compared as they are; a prefix * is the character, and a host is no pattern."""
    assert not may(authorizer_with([binding]))


@pytest.mark.parametrize(
    "denial",
    [
        acl("orders", permission=DENY),
        acl("*", permission=DENY),
        acl("o", permission=DENY, pattern=PREFIXED),
        acl("orders", ALL, permission=DENY),
        acl("orders", permission=DENY, principal=ALL_USERS),
        acl("orders", permission=DENY, host=HERE),
    ],
)
def test_a_denial_goes_before_everything_that_allows(denial: AclBinding) -> None:
    """However exactly the allowing entry names user, host and resource."""
    allowing = [acl("orders", ALL, host=HERE), acl("*", ALL), acl("orders", ALL, pattern=PREFIXED)]
    authorizer = authorizer_with([*allowing, denial])
    assert not may(authorizer)
    assert may(authorizer, WRITE) is (denial.entry.operation is not ALL)


@pytest.mark.parametrize("operation", [READ, WRITE, AclOperation.DELETE, AclOperation.ALTER])
def test_what_is_done_with_a_resource_implies_describe(operation: AclOperation) -> None:
    """A denial of it does not deny DESCRIBE, and a denial of DESCRIBE does not deny it."""
    assert may(authorizer_with([acl("orders", operation)]), DESCRIBE)
    assert not may(authorizer_with([acl("orders", operation)]), AclOperation.DESCRIBE_CONFIGS)
    both = [acl("orders", operation), acl("orders", operation, permission=DENY)]
    assert may(authorizer_with(both), DESCRIBE)
    assert not may(authorizer_with(both), operation)
    described = authorizer_with([acl("orders", operation), acl("orders", DESCRIBE, permission=DENY)])
    assert not may(described, DESCRIBE)
    assert may(described, operation)


@pytest.mark.parametrize("operation", [AclOperation.CREATE, AclOperation.ALTER_CONFIGS, AclOperation.CLUSTER_ACTION])
def test_no_other_operation_implies_describe(operation: AclOperation) -> None:
    """ALTER_CONFIGS implies DESCRIBE_CONFIGS."""
    authorizer = authorizer_with([acl(CLUSTER_NAME, operation, kind=CLUSTER)])
    assert not may(authorizer, DESCRIBE, CLUSTER_NAME, kind=CLUSTER)
    implies_configs = operation is AclOperation.ALTER_CONFIGS
    assert may(authorizer, AclOperation.DESCRIBE_CONFIGS, CLUSTER_NAME, kind=CLUSTER) is implies_configs


def test_a_super_user_may_do_everything() -> None:
    """Even what is denied to all."""
    bindings = [acl("orders", ALL, permission=DENY, principal=ALL_USERS)]
    authorizer = authorizer_with(bindings, super_users=frozenset([ANN]))
    assert may(authorizer)
    assert not may(authorizer, principal=BOB)
    assert done_here(authorizer.authorize_by_resource_type(ANN, HERE, WRITE, TOPIC))


@pytest.mark.parametrize("pattern", [ResourcePattern(TOPIC, "orders", LITERAL), ResourcePattern(TOPIC, "o", PREFIXED)])
def test_a_resource_without_acls_is_open_if_so_configured(pattern: ResourcePattern) -> None:
    """Any entry of any pattern that matches closes it, whomever it is for."""
    entry = AccessControlEntry(BOB, THERE, WRITE, ALLOW)
    authorizer = authorizer_with([AclBinding(pattern, entry)], allow_everyone_if_no_acl_found=True)
    assert not may(authorizer)
    assert may(authorizer, name="bills")
    assert may(authorizer, kind=GROUP)
    authorizer.update(pattern, VersionedAcls(frozenset(), 1))
    assert may(authorizer)


def test_a_change_of_entries_counts_at_once() -> None:
    """What was decided before is decided again."""
    authorizer = authorizer_with([acl("orders")])
    assert may(authorizer)
    assert done_here(authorizer.authorize_by_resource_type(ANN, HERE, READ, TOPIC))
    authorizer.update(acl("orders").pattern, VersionedAcls(frozenset([acl("orders", WRITE).entry]), 1))
    assert not may(authorizer)
    assert may(authorizer, WRITE)
    assert not done_here(authorizer.authorize_by_resource_type(ANN, HERE, READ, TOPIC))
    authorizer.update(acl("orders").pattern, VersionedAcls(frozenset(), -1))
    assert not may(authorizer, WRITE)
    assert list(authorizer.patterns()) == []


@pytest.mark.parametrize(
    ("bindings", "is_allowed"),
    [
        ([], False),
        ([acl("orders", WRITE)], True),
        ([acl("o", WRITE, pattern=PREFIXED)], True),
        ([acl("orders", ALL)], True),
        ([acl("orders", READ)], False),
        ([acl("orders", WRITE, kind=GROUP)], False),
        ([acl("orders", WRITE, principal=BOB)], False),
        ([acl("orders", WRITE), acl("orders", WRITE, permission=DENY)], False),
        ([acl("orders", WRITE), acl("other", WRITE, permission=DENY)], True),
        ([acl("orders", WRITE), acl("o", WRITE, permission=DENY, pattern=PREFIXED)], False),
        ([acl("orders", WRITE), acl("orders2", WRITE, permission=DENY, pattern=PREFIXED)], True),
        ([acl("o", WRITE, pattern=PREFIXED), acl("or", WRITE, permission=DENY, pattern=PREFIXED)], True),
        ([acl("or", WRITE, pattern=PREFIXED), acl("o", WRITE, permission=DENY, pattern=PREFIXED)], False),
        ([acl("o", WRITE, pattern=PREFIXED), acl("o", ALL, permission=DENY, pattern=PREFIXED)], False),
        ([acl("o", WRITE, pattern=PREFIXED), acl("*", ALL, permission=DENY)], False),
        ([acl("*", WRITE), acl("o", WRITE, permission=DENY, pattern=PREFIXED)], True),
    ],
)
def test_a_right_to_any_resource_of_a_type_is_one_that_no_denial_covers(
    bindings: list[AclBinding], is_allowed: bool
) -> None:
    """A denial of a prefix covers all longer ones; one of a literal name covers this name alone."""
    assert done_here(authorizer_with(bindings).authorize_by_resource_type(ANN, HERE, WRITE, TOPIC)) is is_allowed


def test_a_right_to_any_resource_of_a_type_is_everyones_where_resources_without_acls_are_open() -> None:
    """Unless all resources are denied."""
    authorizer = authorizer_with(
        [acl("o", WRITE, permission=DENY, pattern=PREFIXED)], allow_everyone_if_no_acl_found=True
    )
    assert done_here(authorizer.authorize_by_resource_type(ANN, HERE, WRITE, TOPIC))
    denied = acl("*", WRITE, permission=DENY)
    authorizer.update(denied.pattern, VersionedAcls(frozenset([denied.entry]), 0))
    assert not done_here(authorizer.authorize_by_resource_type(ANN, HERE, WRITE, TOPIC))


def test_a_right_to_any_resource_of_a_type_is_searched_in_slices() -> None:
    """Among many entries that all are denied. One that comes meanwhile counts the next time."""
    names = [f"t{number:05}" for number in range(5000)]
    denial = acl("t", WRITE, permission=DENY, pattern=PREFIXED)
    authorizer = authorizer_with([*(acl(name, WRITE) for name in names), denial])
    task = authorizer.authorize_by_resource_type(ANN, HERE, WRITE, TOPIC)
    assert [next(task) for _ in names] == [None] * len(names)
    for binding in (acl("x", WRITE), acl("y", WRITE, pattern=PREFIXED)):
        authorizer.update(binding.pattern, VersionedAcls(frozenset([binding.entry]), 0))
    assert not done_here(task)
    assert done_here(authorizer.authorize_by_resource_type(ANN, HERE, WRITE, TOPIC))


def model(
    bindings: list[AclBinding], who: str, host: str, operation: AclOperation, kind: ResourceType, name: str
) -> str:
    """The rule, read from top to bottom over all entries."""
    matching = [
        entry
        for pattern, entry in bindings
        if pattern.resource_type is kind
        and (name.startswith(pattern.name) if pattern.pattern_type is PREFIXED else pattern.name in (name, "*"))
    ]
    mine = [entry for entry in matching if entry.principal in (who, ALL_USERS) and entry.host in (host, ALL_HOSTS)]
    if any(entry.permission_type is DENY and entry.operation in (operation, ALL) for entry in mine):
        return "denied"
    implying = {
        DESCRIBE: (READ, WRITE, AclOperation.DELETE, AclOperation.ALTER),
        AclOperation.DESCRIBE_CONFIGS: (AclOperation.ALTER_CONFIGS,),
    }.get(operation, ())
    if any(entry.permission_type is ALLOW and entry.operation in (operation, ALL, *implying) for entry in mine):
        return "allowed"
    return "denied" if matching else "unknown"


NAMES = st.sampled_from(["*", "a", "ab", "abc", "abcd", "b", "ba"])
OPERATIONS = st.sampled_from([operation for operation in AclOperation if operation >= ALL])
BINDINGS = st.builds(
    AclBinding,
    st.builds(ResourcePattern, st.sampled_from([TOPIC, GROUP]), NAMES, st.sampled_from([LITERAL, PREFIXED])),
    st.builds(
        AccessControlEntry,
        st.sampled_from([ANN, BOB, ALL_USERS]),
        st.sampled_from([HERE, THERE, ALL_HOSTS]),
        OPERATIONS,
        st.sampled_from([ALLOW, DENY]),
    ),
)


@settings(max_examples=150)
@given(st.lists(BINDINGS, max_size=12), st.lists(BINDINGS, max_size=4), st.booleans(), st.sampled_from([1, 2, 256]))
def test_every_decision_is_that_of_the_rule(
    first: list[AclBinding], then: list[AclBinding], everyone: bool, many: int
) -> None:
    """Also after entries were replaced and removed, and wherever a pattern's entries are many."""
    replaced = {pattern for pattern, _ in then}
    bindings = [binding for binding in first if binding.pattern not in replaced] + then[1:]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(authorizer_module, "_MANY_ENTRIES", many)
        authorizer = authorizer_with(first, allow_everyone_if_no_acl_found=everyone)
        for pattern in replaced:
            entries = frozenset(entry for one, entry in bindings if one == pattern)
            done_here(authorizer.update_in_slices(pattern, VersionedAcls(entries, 7)))
    for who, host in ((ANN, HERE), (BOB, THERE), ("User:eve", HERE)):
        for kind in (TOPIC, GROUP):
            for name in ("a", "abc", "abd", "c"):
                for operation in SUPPORTED_OPERATIONS[TOPIC]:
                    expected = model(bindings, who, host, operation, kind, name)
                    is_allowed = authorizer.authorize(who, host, operation, kind, name)
                    assert is_allowed is (expected == "allowed" or (expected == "unknown" and everyone))
            for operation in (READ, WRITE):
                expected = model_by_type(bindings, who, host, operation, kind, everyone)
                assert done_here(authorizer.authorize_by_resource_type(who, host, operation, kind)) is expected


def model_by_type(
    bindings: list[AclBinding], who: str, host: str, operation: AclOperation, kind: ResourceType, everyone: bool
) -> bool:
    """Whether a pattern allows that no pattern denies which covers it."""
    mine = [
        (pattern, entry.permission_type)
        for pattern, entry in bindings
        if pattern.resource_type is kind
        and entry.principal in (who, ALL_USERS)
        and entry.host in (host, ALL_HOSTS)
        and entry.operation in (operation, ALL)
    ]
    denied = [pattern for pattern, permission in mine if permission is DENY]
    if ResourcePattern(kind, "*", LITERAL) in denied:
        return False
    if everyone:
        return True
    allowed = [pattern for pattern, permission in mine if permission is ALLOW]
    return any(
        pattern[1:] == ("*", LITERAL)
        or not any(
            pattern.name.startswith(other.name) if other.pattern_type is PREFIXED else pattern == other
            for other in denied
        )
        for pattern in allowed
    )


@pytest.mark.parametrize(
    ("wanted", "names"),
    [
        (ResourcePatternFilter(), ["*", "ab", "abc", "abc (prefix)", "a (prefix)"]),
        (ResourcePatternFilter(TOPIC, "abc", PatternType.MATCH), ["*", "abc", "abc (prefix)", "a (prefix)"]),
        (ResourcePatternFilter(TOPIC, "abc", PatternType.ANY), ["abc", "abc (prefix)"]),
        (ResourcePatternFilter(TOPIC, "abc", LITERAL), ["abc"]),
        (ResourcePatternFilter(TOPIC, "abc", PREFIXED), ["abc (prefix)"]),
        (ResourcePatternFilter(ResourceType.ANY, "*", PatternType.MATCH), ["*"]),
        (ResourcePatternFilter(TOPIC, None, PREFIXED), ["abc (prefix)", "a (prefix)"]),
        (ResourcePatternFilter(GROUP, "abc", PatternType.MATCH), []),
        (ResourcePatternFilter(ResourceType.UNKNOWN, "abc", LITERAL), []),
        (ResourcePatternFilter(TOPIC, "abc", PatternType.UNKNOWN), []),
    ],
)
def test_a_filter_finds_the_patterns_that_it_names_or_matches(wanted: ResourcePatternFilter, names: list[str]) -> None:
    """MATCH finds all that count for a resource, the others the patterns themselves."""
    bindings = [acl("*"), acl("ab"), acl("abc"), acl("abc", pattern=PREFIXED), acl("a", pattern=PREFIXED)]
    found = done_here(authorizer_with(bindings).acls(AclBindingFilter(wanted)))
    shown = [pattern.name + (" (prefix)" if pattern.pattern_type is PREFIXED else "") for pattern, _ in found]
    assert sorted(shown) == sorted(names)


@pytest.mark.parametrize(
    ("wanted", "count"),
    [
        (AccessControlEntryFilter(), 3),
        (AccessControlEntryFilter(principal=ANN), 2),
        (AccessControlEntryFilter(host=HERE), 1),
        (AccessControlEntryFilter(host=ALL_HOSTS), 2),
        (AccessControlEntryFilter(operation=READ), 2),
        (AccessControlEntryFilter(operation=ALL), 0),
        (AccessControlEntryFilter(permission_type=DENY), 1),
        (AccessControlEntryFilter(operation=AclOperation.UNKNOWN), 0),
    ],
)
def test_a_filter_finds_the_entries_that_it_names(wanted: AccessControlEntryFilter, count: int) -> None:
    """The host * is itself here, not all hosts."""
    bindings = [acl("t"), acl("t", WRITE, host=HERE), acl("t", principal=BOB, permission=DENY)]
    assert len(done_here(authorizer_with(bindings).acls(AclBindingFilter(entry=wanted)))) == count


# What handlers ask


def request_of(principal: str = ANN, host: str = HERE, **facts: Any) -> Any:
    client = ClientFacts("L", host, 1, **facts)
    client.principal = principal
    return SimpleNamespace(client=client, api_key=ApiKey.DESCRIBE_CONFIGS, administrative_actions=None)


def test_without_an_authorizer_everything_is_allowed() -> None:
    """Operations that a type of resources has are all authorized."""
    helper, request = AuthHelper(None), request_of()
    assert not helper.is_enabled
    assert helper.authorize(request, READ, TOPIC, "t")
    helper.authorize_cluster_action(request)
    assert done_here(helper.authorize_by_resource_type(request, WRITE, TOPIC))
    assert done_here(helper.filter_by_authorized(request, READ, TOPIC, ["a", "b"])) is EVERY_NAME
    assert "a" in EVERY_NAME
    assert helper.authorized_operations(request, GROUP, "g") == 1 << 3 | 1 << 6 | 1 << 8


def test_a_request_of_the_broker_to_itself_needs_no_right() -> None:
    """Nobody else can send one, whatever principal and address a client has."""
    helper = AuthHelper(authorizer_with([acl(CLUSTER_NAME, ALL, permission=DENY, kind=CLUSTER, principal=ALL_USERS)]))
    helper.authorize_cluster_action(request_of(is_this_broker=True))
    with pytest.raises(KafkaError) as failed:
        helper.authorize_cluster_action(request_of(host="127.0.0.1"))
    assert failed.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def test_names_and_operations_that_a_client_has_a_right_to_are_found() -> None:
    """DESCRIBE is among them where READ is."""
    helper, request = AuthHelper(authorizer_with([acl("a"), acl("b", WRITE)])), request_of()
    assert done_here(helper.filter_by_authorized(request, READ, TOPIC, ["a", "b", "c", "a"])) == {"a"}
    assert done_here(helper.filter_by_authorized(request, DESCRIBE, TOPIC, ["a", "b", "c"])) == {"a", "b"}
    assert helper.authorized_operations(request, TOPIC, "a") == 1 << READ | 1 << DESCRIBE
    assert helper.authorized_operations(request, TOPIC, "c") == 0


@pytest.mark.parametrize(
    ("peer", "shown"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("2001:db8::ff00:42:8329", "2001:db8:0:0:0:ff00:42:8329"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
    ],
)
def test_a_host_is_compared_in_the_form_in_which_java_writes_it(peer: str, shown: str) -> None:
    """Entries were made for Apache's brokers."""
    helper = AuthHelper(authorizer_with([acl("t", host=shown)]))
    assert helper.authorize(request_of(host=peer), READ, TOPIC, "t")
    assert not helper.authorize(request_of(host="10.0.0.9"), READ, TOPIC, "t")


def test_what_was_decided_is_logged_in_kafkas_words(caplog: pytest.LogCaptureFixture) -> None:
    """A denial at INFO, an approval at DEBUG, and a question about rights at neither."""
    caplog.set_level(logging.DEBUG, "kafka.authorizer.logger")
    helper, request = AuthHelper(authorizer_with([acl("mine")])), request_of()
    helper.authorize(request, READ, TOPIC, "mine")
    helper.authorize(request, READ, TOPIC, "hers", count=2)
    helper.authorize(request, READ, TOPIC, "mine", log_if_allowed=False)
    helper.authorize(request, READ, TOPIC, "hers", log_if_denied=False)
    helper.authorized_operations(request, TOPIC, "hers")
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        (
            "DEBUG",
            "Principal = User:ann is Allowed Operation = Read from host = 10.0.0.1 on resource = Topic:LITERAL:mine "
            "for request = DescribeConfigs with resourceRefCount = 1",
        ),
        (
            "INFO",
            "Principal = User:ann is Denied Operation = Read from host = 10.0.0.1 on resource = Topic:LITERAL:hers "
            "for request = DescribeConfigs with resourceRefCount = 2",
        ),
    ]


def test_decisions_about_names_longer_than_any_sense_makes_are_not_kept() -> None:
    """A client without rights asks for many groups with 32,767 characters each: the memory does not
    grow. The decision is the same each time."""
    authorizer = Authorizer()
    for number in range(200):
        name = f"{number}".ljust(32_767, "x")
        assert not authorizer.authorize("User:bob", "10.0.0.1", AclOperation.READ, ResourceType.GROUP, name)
    assert sum(len(name) for *_, name in authorizer._decided) < 32_767
    pattern = ResourcePattern(ResourceType.GROUP, "7xxx", PatternType.PREFIXED)
    entry = AccessControlEntry("User:bob", "*", AclOperation.READ, AclPermissionType.ALLOW)
    authorizer.update(pattern, VersionedAcls(frozenset([entry]), 1))
    long = "7".ljust(32_767, "x")
    assert authorizer.authorize("User:bob", "10.0.0.1", AclOperation.READ, ResourceType.GROUP, long)
