"""Administrative requests, as the audit log describes them: what they change, and what becomes of
them.

In Kafka: no counterpart. Its audit log has the resource alone, which is the cluster for most
changes, and no result.
"""

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

from barnabas.broker.requests.request import Request
from barnabas.security.acls import (
    CLUSTER_NAME,
    AclOperation,
    AclPermissionType,
    PatternType,
    ResourceType,
    of_code,
    pascal_case,
)
from barnabas.security.mechanisms import SCRAM_MECHANISMS_BY_NUMBER
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.schema import Struct, field_values

__all__ = ["CHANGING_OPERATIONS", "MAX_SHOWN", "SHOWN_CHARACTERS", "Outcomes", "changes_of", "cut_text"]

MAX_SHOWN = 100
"""So many operations, or changes, of one request are written."""
SHOWN_CHARACTERS = 255
_MAX_LOOKED_AT = 1000
"""So many parts of a request, and of its response: there may be a hundred thousand."""
_TOPIC = 2
_NAMES = ("name", "topic_name", "topic", "resource_name", "group_id", "user")
"""What results of requests call that which they are about."""

CHANGING_OPERATIONS = frozenset(
    (AclOperation.CREATE, AclOperation.DELETE, AclOperation.ALTER, AclOperation.ALTER_CONFIGS)
)
"""What an administrative request needs to change something; it may ask for other rights, too."""


def cut_text(text: str) -> str:
    """What a line has of a text that a client chose: names of groups may have 32,767 characters."""
    return text if len(text) <= SHOWN_CHARACTERS else f"{text[:SHOWN_CHARACTERS]}..."


class Outcomes:
    """The results in the response to a request."""

    def __init__(self, response: Any, code: ErrorCode | None) -> None:
        """``code`` is the error of the whole request, None where the response says it. With neither
        the results are unknown."""
        self._is_known = code is not None or response is not None
        self._of_names: dict[str, int] = {}
        self._count = self._failed = 0
        self._first: int = ErrorCode.NONE if code is None else code
        if code is None and response is not None:
            self._first = self._collect(response)

    def _collect(self, part: Any) -> int:
        """The first error of a part of the response, and of all in it."""
        values = field_values(part)
        first = values.get("error_code")
        if first is not None:
            self._count += 1
            self._failed += first != 0
        for value in values.values():
            if isinstance(value, list) and value and isinstance(value[0], Struct):
                for each in value:
                    if self._count >= _MAX_LOOKED_AT:
                        break
                    first = first or self._collect(each)
        name = next((values[key] for key in _NAMES if values.get(key) is not None), None)
        if name is not None and first is not None:
            self._of_names[name] = self._of_names.get(name) or first
        return first or 0

    def result_of(self, name: str) -> str:
        """The name of the error for a resource, or of the whole request; NONE for success, UNKNOWN
        where the client has gone before the answer."""
        if not self._is_known:
            return "UNKNOWN"
        code = self._of_names.get(name)
        if code is not None:
            return _error_name(code)
        if not self._first or self._failed in (0, self._count):
            return _error_name(self._first)
        return f"{_error_name(self._first)} ({self._failed} of {self._count})"


def _error_name(code: int) -> str:
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


def changes_of(request: Request, name: str) -> list[str]:
    """What a request changes of a resource, without the values of settings and passwords."""
    describe = _CHANGES.get(request.api_key)
    if describe is None:
        return []
    found = [cut_text(change) for change in islice(describe(request.message, name), MAX_SHOWN + 1)]
    return found if len(found) <= MAX_SHOWN else [*found[:MAX_SHOWN], "and more"]


def _topics(message: Any, name: str) -> Iterator[str]:
    for topic in message.topics[:_MAX_LOOKED_AT]:
        if name in (CLUSTER_NAME, topic.name):
            counts = {"partitions": topic.num_partitions, "replicationFactor": topic.replication_factor}
            yield " ".join((topic.name, *(f"{word}={count}" for word, count in counts.items() if count >= 0)))


def _created_acls(message: Any, _: str) -> Iterator[str]:
    for each in message.creations:
        yield "create " + _acl(
            each.resource_type,
            each.resource_pattern_type,
            each.resource_name,
            each.principal,
            each.host,
            each.operation,
            each.permission_type,
        )


def _deleted_acls(message: Any, _: str) -> Iterator[str]:
    for each in message.filters:
        yield "delete " + _acl(
            each.resource_type_filter,
            each.pattern_type_filter,
            each.resource_name_filter,
            each.principal_filter,
            each.host_filter,
            each.operation,
            each.permission_type,
        )


def _acl(
    resource_type: int,
    pattern_type: int,
    name: str | None,
    principal: str | None,
    host: str | None,
    operation: int,
    permission: int,
) -> str:
    resource, pattern = of_code(ResourceType, resource_type), of_code(PatternType, pattern_type)
    words = (pascal_case(of_code(AclPermissionType, permission)), pascal_case(of_code(AclOperation, operation)))
    parts = tuple("(any)" if part is None else part for part in (principal, host, name))
    return f"{parts[0]} {words[0]} {words[1]} from {parts[1]} on {pascal_case(resource)}:{pattern.name}:{parts[2]}"


def _credentials(message: Any, _: str) -> Iterator[str]:
    for word, changes in (("delete", message.deletions), ("set", message.upsertions)):
        for each in changes:
            yield f"{word} {SCRAM_MECHANISMS_BY_NUMBER.get(each.mechanism, each.mechanism)} of {each.name}"


def _configs(message: Any, name: str) -> Iterator[str]:
    for resource in message.resources[:_MAX_LOOKED_AT]:
        is_topic = resource.resource_type == _TOPIC
        if resource.resource_name == name if is_topic else name == CLUSTER_NAME:
            where = "" if is_topic else f" of {resource.resource_name or 'all brokers'}"
            for config in resource.configs:
                yield f"{config.name}{where}"


def _reassignments(message: Any, _: str) -> Iterator[str]:
    for topic in message.topics:
        for partition in topic.partitions:
            yield f"{topic.name}-{partition.partition_index} to {partition.replicas or 'where it was'}"


def _elections(message: Any, _: str) -> Iterator[str]:
    for topic in message.topic_partitions or ():
        for partition in topic.partitions:
            yield f"{topic.topic}-{partition}"


def _log_dirs(message: Any, _: str) -> Iterator[str]:
    for each in message.dirs:
        for topic in each.topics:
            for partition in topic.partitions:
                yield f"{topic.name}-{partition} to {each.path}"


def _records(message: Any, name: str) -> Iterator[str]:
    for topic in message.topics[:_MAX_LOOKED_AT]:
        if topic.name == name:
            for partition in topic.partitions:
                yield f"{name}-{partition.partition_index} before {partition.offset}"


def _features(message: Any, _: str) -> Iterator[str]:
    for each in message.feature_updates:
        yield f"{each.feature} to {each.max_version_level}"


_CHANGES: Mapping[ApiKey, Callable[[Any, str], Iterator[str]]] = {
    ApiKey.CREATE_TOPICS: _topics,
    ApiKey.CREATE_ACLS: _created_acls,
    ApiKey.DELETE_ACLS: _deleted_acls,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _credentials,
    ApiKey.ALTER_CONFIGS: _configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _configs,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _reassignments,
    ApiKey.ELECT_LEADERS: _elections,
    ApiKey.ALTER_REPLICA_LOG_DIRS: _log_dirs,
    ApiKey.DELETE_RECORDS: _records,
    ApiKey.UPDATE_FEATURES: _features,
}
