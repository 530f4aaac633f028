"""The smallest set of access control lists for what was asked for."""

from barnabas.security.acls import AclOperation, AclPermissionType, PatternType, ResourceType
from barnabas.security.needed_acls import NeededAcls

Entry = tuple[str, str, str, str]


def entries(needed: NeededAcls, *, folds_prefixes: bool = False) -> list[Entry]:
    """Principal, operation, type and name; a prefix ends with a star."""
    found = []
    for pattern, entry in needed.bindings(folds_prefixes=folds_prefixes):
        assert (entry.host, entry.permission_type) == ("*", AclPermissionType.ALLOW)
        star = "*" if pattern.pattern_type is PatternType.PREFIXED else ""
        found.append((entry.principal, entry.operation.name, pattern.resource_type.name, pattern.name + star))
    return sorted(found)


def test_an_operation_that_another_implies_needs_no_entry() -> None:
    """Who may read a topic may describe it; who may only describe it needs that."""
    needed = NeededAcls()
    for operation in (AclOperation.DESCRIBE, AclOperation.READ, AclOperation.DESCRIBE):
        needed.note("User:ann", operation, ResourceType.TOPIC, "orders")
    needed.note("User:ann", AclOperation.DESCRIBE, ResourceType.TOPIC, "prices")
    needed.note("User:ann", AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, "orders")
    assert entries(needed) == [
        ("User:ann", "DESCRIBE", "TOPIC", "prices"),
        ("User:ann", "DESCRIBE_CONFIGS", "TOPIC", "orders"),
        ("User:ann", "READ", "TOPIC", "orders"),
    ]


def test_a_right_to_any_topic_needs_an_entry_only_without_one_to_a_topic() -> None:
    """An idempotent producer that writes nothing needs IDEMPOTENT_WRITE."""
    needed = NeededAcls()
    for user in ("User:ann", "User:bob"):
        needed.note_any(user, AclOperation.WRITE, ResourceType.TOPIC)
    needed.note("User:ann", AclOperation.WRITE, ResourceType.TOPIC, "orders")
    needed.note("User:bob", AclOperation.READ, ResourceType.TOPIC, "orders")
    assert entries(needed) == [
        ("User:ann", "WRITE", "TOPIC", "orders"),
        ("User:bob", "IDEMPOTENT_WRITE", "CLUSTER", "kafka-cluster"),
        ("User:bob", "READ", "TOPIC", "orders"),
    ]


def test_names_with_a_common_beginning_fold_into_a_prefix_on_request() -> None:
    """Only names of one type, of which one principal wants the same, and only up to a separator."""
    needed = NeededAcls()
    for name in ("app-store-changelog", "app-store-repartition", "app_store", "prices", "app-rules"):
        needed.note("User:ann", AclOperation.READ, ResourceType.TOPIC, name)
    needed.note("User:ann", AclOperation.WRITE, ResourceType.TOPIC, "app-rules")
    needed.note("User:ann", AclOperation.READ, ResourceType.GROUP, "app-group")
    needed.note("User:bob", AclOperation.READ, ResourceType.TOPIC, "app-store-changelog")
    assert entries(needed, folds_prefixes=True) == [
        ("User:ann", "READ", "GROUP", "app-group"),
        ("User:ann", "READ", "TOPIC", "app-rules"),
        ("User:ann", "READ", "TOPIC", "app-store-*"),
        ("User:ann", "READ", "TOPIC", "app_store"),
        ("User:ann", "READ", "TOPIC", "prices"),
        ("User:ann", "WRITE", "TOPIC", "app-rules"),
        ("User:bob", "READ", "TOPIC", "app-store-changelog"),
    ]
    assert len(entries(needed)) == 8


def test_what_is_only_listed_needs_an_entry_if_something_else_is_done_with_it() -> None:
    """Who lists all topics and looks at the settings of one must see that one."""
    needed = NeededAcls()
    for name in ("orders", "prices"):
        needed.note_listed("User:ann", AclOperation.DESCRIBE, ResourceType.TOPIC, name)
    needed.note("User:ann", AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, "orders")
    needed.note("User:bob", AclOperation.READ, ResourceType.TOPIC, "prices")
    needed.note_listed("User:bob", AclOperation.DESCRIBE, ResourceType.TOPIC, "prices")
    assert entries(needed) == [
        ("User:ann", "DESCRIBE", "TOPIC", "orders"),
        ("User:ann", "DESCRIBE_CONFIGS", "TOPIC", "orders"),
        ("User:bob", "READ", "TOPIC", "prices"),
    ]


def test_a_name_with_a_slash_is_a_prefix_that_brokers_keep() -> None:
    """They keep no entry for such a name; two of one beginning have one. Before a slash in front is
    nothing: all names are meant."""
    needed = NeededAcls()
    for name in ("till/source-replay", "till/rates-replay", "/till"):
        needed.note("User:ann", AclOperation.READ, ResourceType.GROUP, name)
    for folds_prefixes in (False, True):
        assert entries(needed, folds_prefixes=folds_prefixes) == [
            ("User:ann", "READ", "GROUP", "*"),
            ("User:ann", "READ", "GROUP", "till*"),
        ]
