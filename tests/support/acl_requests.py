"""Requests about access control lists: wrong fields of entries, and filters of each kind."""

from collections.abc import Iterator
from itertools import product
from typing import Any

from barnabas.security.acls import AclOperation, AclPermissionType, PatternType, ResourceType
from barnabas.wire.kafka.messages.create_acls import AclCreation, CreateAclsRequest
from barnabas.wire.kafka.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from barnabas.wire.kafka.messages.describe_acls import DescribeAclsRequest
from barnabas.wire.kafka.schema import Message
from support.acl_sides import ANY_ACL

GOOD: dict[str, Any] = {
    "resource_type": ResourceType.TOPIC,
    "resource_name": "t",
    "resource_pattern_type": PatternType.LITERAL,
    "principal": "User:ann",
    "host": "*",
    "operation": AclOperation.READ,
    "permission_type": AclPermissionType.ALLOW,
}
CHANGES: list[dict[str, Any]] = [
    *(
        {"resource_name": name}
        for name in ("", "*", "a/b", "/", ".", "..", " ", "t t", "café", "cafe\u0301", "\uff54", "😀")
    ),
    *({"resource_name": name} for name in ("x" * 300, "%", "a?b", "a\nb", "a\\b", 'a"b', "zookeeper", "T")),
    *(
        {"principal": name}
        for name in ("", "ann", "User:", ":ann", "User:a:b", "Role:r", "User:*", "User:ä", "user:ann")
    ),
    *({"principal": name} for name in ("User:CN=a,O=b", "User:a b", " User:ann", "User:ann ", 'User:"', "Group:g")),
    *({"host": host} for host in ("", "127.0.0.1", "::1", "0:0:0:0:0:0:0:1", "host", "10.0.0.0/8", " ", "**")),
    *({"operation": code} for code in (*range(-1, 17), 127)),
    *({"permission_type": code} for code in range(-1, 5)),
    *({"resource_pattern_type": code} for code in range(-1, 6)),
    *({"resource_type": code} for code in range(-1, 9)),
    *(
        {"resource_type": ResourceType.CLUSTER, "resource_name": name, "operation": AclOperation.ALTER}
        for name in ("kafka-cluster", "Kafka-cluster", "*", "")
    ),
    *(
        {"resource_type": kind, "operation": operation}
        for kind, operation in product((3, 5, 6, 7), (2, 3, 4, 6, 8, 9, 12, 13, 14))
    ),
    *({"resource_pattern_type": PatternType.PREFIXED, "resource_name": name} for name in ("", "*", "t", "a/")),
    {"resource_type": ResourceType.CLUSTER, "resource_name": "kafka-cluster", "resource_pattern_type": 4},
]
FILTERS: list[dict[str, Any]] = [
    {},
    *({"resource_type_filter": code} for code in range(-1, 9)),
    *({"pattern_type_filter": code} for code in range(-1, 6)),
    *(
        {"pattern_type_filter": kind, "resource_name_filter": name}
        for kind, name in product((1, 2, 3, 4), ("t", "*", "", "t t", "café", "cafe\u0301", "nothing", "a/b"))
    ),
    *({"pattern_type_filter": 2, "resource_name_filter": "t", "resource_type_filter": kind} for kind in range(1, 8)),
    *({"principal_filter": name} for name in ("User:ann", "User:*", "", "ann", "user:ann", "User:ä")),
    *({"host_filter": host} for host in ("*", "", "127.0.0.1", "host")),
    *({"operation": code} for code in range(-1, 16)),
    *({"permission_type": code} for code in range(-1, 5)),
]


def requests() -> Iterator[Message]:
    """Entries one by one, together and twice; then what is there by each filter, and each filter's
    entries deleted."""
    filters = [{**ANY_ACL, **change} for change in FILTERS]
    yield from (_creations(change) for change in CHANGES)
    yield _creations({}, {"principal": "x"}, {}, {"resource_name": ""})
    yield from (DescribeAclsRequest(**one) for one in filters)
    for one in reversed(filters):
        yield DeleteAclsRequest(filters=[DeleteAclsFilter(**one), DeleteAclsFilter(**one)])
        yield DescribeAclsRequest(**ANY_ACL)


def _creations(*changes: dict[str, Any]) -> CreateAclsRequest:
    return CreateAclsRequest(creations=[AclCreation(**{**GOOD, **change}) for change in changes])
