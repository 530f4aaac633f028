"""What older releases of Apache Kafka would serve: a broker can be limited to the API versions of
one, for tests of clients.

The table has the highest version of each API that brokers in ZooKeeper mode had, release by
release; APIs among brokers are not limited, so that a cluster's brokers understand each other. In
Kafka: ApiVersion, ApiKeys.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from barnabas.base.errors import ConfigError
from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.wire.kafka.api import ApiKey

__all__ = ["KAFKA_RELEASES", "check_release", "limit_to_release"]

_K = ApiKey
_IN_2_1 = {
    _K.PRODUCE: 7,
    _K.FETCH: 10,
    _K.LIST_OFFSETS: 4,
    _K.METADATA: 7,
    _K.OFFSET_COMMIT: 6,
    _K.OFFSET_FETCH: 5,
    _K.FIND_COORDINATOR: 2,
    _K.JOIN_GROUP: 3,
    _K.HEARTBEAT: 2,
    _K.LEAVE_GROUP: 2,
    _K.SYNC_GROUP: 2,
    _K.DESCRIBE_GROUPS: 2,
    _K.LIST_GROUPS: 2,
    _K.SASL_HANDSHAKE: 1,
    _K.API_VERSIONS: 2,
    _K.CREATE_TOPICS: 3,
    _K.DELETE_TOPICS: 3,
    _K.DELETE_RECORDS: 1,
    _K.INIT_PRODUCER_ID: 1,
    _K.OFFSET_FOR_LEADER_EPOCH: 2,
    _K.DESCRIBE_ACLS: 1,
    _K.CREATE_ACLS: 1,
    _K.DELETE_ACLS: 1,
    _K.DESCRIBE_CONFIGS: 2,
    _K.ALTER_CONFIGS: 1,
    _K.ALTER_REPLICA_LOG_DIRS: 1,
    _K.DESCRIBE_LOG_DIRS: 1,
    _K.SASL_AUTHENTICATE: 0,
    _K.CREATE_PARTITIONS: 1,
    _K.DELETE_GROUPS: 1,
    _K.ADD_PARTITIONS_TO_TXN: 1,
    _K.ADD_OFFSETS_TO_TXN: 1,
    _K.END_TXN: 1,
    _K.TXN_OFFSET_COMMIT: 2,
}
_RAISED_IN: dict[str, dict[ApiKey, int]] = {
    "2.1": {},
    "2.2": {_K.SASL_AUTHENTICATE: 1, _K.LIST_OFFSETS: 5, _K.JOIN_GROUP: 4, _K.ELECT_LEADERS: 0},
    "2.3": {
        _K.METADATA: 8,
        _K.DESCRIBE_GROUPS: 3,
        _K.FETCH: 11,
        _K.OFFSET_FOR_LEADER_EPOCH: 3,
        _K.JOIN_GROUP: 5,
        _K.OFFSET_COMMIT: 7,
        _K.HEARTBEAT: 3,
        _K.SYNC_GROUP: 3,
        _K.INCREMENTAL_ALTER_CONFIGS: 0,
    },
    "2.4": {
        _K.PRODUCE: 8,
        _K.METADATA: 9,
        _K.OFFSET_COMMIT: 8,
        _K.OFFSET_FETCH: 6,
        _K.FIND_COORDINATOR: 3,
        _K.JOIN_GROUP: 6,
        _K.HEARTBEAT: 4,
        _K.LEAVE_GROUP: 4,
        _K.SYNC_GROUP: 4,
        _K.DESCRIBE_GROUPS: 5,
        _K.LIST_GROUPS: 3,
        _K.API_VERSIONS: 3,
        _K.CREATE_TOPICS: 5,
        _K.DELETE_TOPICS: 4,
        _K.INIT_PRODUCER_ID: 2,
        _K.DELETE_GROUPS: 2,
        _K.ELECT_LEADERS: 2,
        _K.INCREMENTAL_ALTER_CONFIGS: 1,
        _K.OFFSET_DELETE: 0,
        _K.ALTER_PARTITION_REASSIGNMENTS: 0,
        _K.LIST_PARTITION_REASSIGNMENTS: 0,
    },
    "2.5": {
        _K.INIT_PRODUCER_ID: 3,
        _K.TXN_OFFSET_COMMIT: 3,
        _K.OFFSET_FETCH: 7,
        _K.CREATE_PARTITIONS: 2,
        _K.DESCRIBE_ACLS: 2,
        _K.CREATE_ACLS: 2,
        _K.DELETE_ACLS: 2,
        _K.JOIN_GROUP: 7,
        _K.SYNC_GROUP: 5,
        _K.SASL_AUTHENTICATE: 2,
    },
    "2.6": {_K.DELETE_RECORDS: 2, _K.DESCRIBE_LOG_DIRS: 2, _K.LIST_GROUPS: 4, _K.DESCRIBE_CONFIGS: 3},
    "2.7": {
        _K.CREATE_PARTITIONS: 3,
        _K.CREATE_TOPICS: 6,
        _K.DELETE_TOPICS: 5,
        _K.INIT_PRODUCER_ID: 4,
        _K.ADD_PARTITIONS_TO_TXN: 2,
        _K.ADD_OFFSETS_TO_TXN: 2,
        _K.END_TXN: 2,
        _K.FETCH: 12,
        _K.DESCRIBE_USER_SCRAM_CREDENTIALS: 0,
        _K.ALTER_USER_SCRAM_CREDENTIALS: 0,
        _K.UPDATE_FEATURES: 0,
    },
    "2.8": {
        _K.PRODUCE: 9,
        _K.LIST_OFFSETS: 6,
        _K.OFFSET_FOR_LEADER_EPOCH: 4,
        _K.DESCRIBE_CONFIGS: 4,
        _K.ALTER_CONFIGS: 2,
        _K.ALTER_REPLICA_LOG_DIRS: 2,
        _K.METADATA: 11,
        _K.CREATE_TOPICS: 7,
        _K.DELETE_TOPICS: 6,
        _K.DESCRIBE_CLUSTER: 0,
        _K.DESCRIBE_PRODUCERS: 0,
        _K.ADD_PARTITIONS_TO_TXN: 3,
        _K.ADD_OFFSETS_TO_TXN: 3,
        _K.END_TXN: 3,
    },
    "3.0": {
        _K.LIST_OFFSETS: 7,
        _K.FIND_COORDINATOR: 4,
        _K.OFFSET_FETCH: 8,
        _K.DESCRIBE_TRANSACTIONS: 0,
        _K.LIST_TRANSACTIONS: 0,
    },
    "3.1": {_K.FETCH: 13, _K.METADATA: 12},
    "3.2": {_K.JOIN_GROUP: 9, _K.LEAVE_GROUP: 5, _K.DESCRIBE_LOG_DIRS: 3},
    "3.3": {_K.DESCRIBE_LOG_DIRS: 4, _K.DESCRIBE_ACLS: 3, _K.CREATE_ACLS: 3, _K.DELETE_ACLS: 3, _K.UPDATE_FEATURES: 1},
    "3.4": {},
    "3.5": {_K.FETCH: 15, _K.LIST_OFFSETS: 8, _K.ADD_PARTITIONS_TO_TXN: 4},
    "3.6": {},
    "3.7": {_K.PRODUCE: 10, _K.FETCH: 16, _K.OFFSET_COMMIT: 9, _K.OFFSET_FETCH: 9, _K.DESCRIBE_CLUSTER: 1},
    "3.8": {
        _K.PRODUCE: 11,
        _K.FIND_COORDINATOR: 5,
        _K.INIT_PRODUCER_ID: 5,
        _K.LIST_GROUPS: 5,
        _K.ADD_PARTITIONS_TO_TXN: 5,
        _K.ADD_OFFSETS_TO_TXN: 4,
        _K.END_TXN: 4,
        _K.TXN_OFFSET_COMMIT: 4,
        _K.LIST_TRANSACTIONS: 1,
    },
    "3.9": {_K.FETCH: 17, _K.LIST_OFFSETS: 9, _K.FIND_COORDINATOR: 6, _K.API_VERSIONS: 4},
}
KAFKA_RELEASES = tuple(_RAISED_IN)
"""The releases that a broker can be limited to, the oldest first."""


def check_release(release: str) -> str:
    """The name of a release in the table, for one such as 2.4 or 2.4.1.

    Raises `ConfigError` for one that is not there."""
    name = ".".join(release.split(".")[:2])
    if name not in KAFKA_RELEASES:
        raise ConfigError(
            f"kafka_version {release}: brokers can be limited to the API versions of Kafka {KAFKA_RELEASES[0]} to "
            f"{KAFKA_RELEASES[-1]}"
        )
    return name


def limit_to_release(handlers: Mapping[int, ApiHandler[Any]], release: str) -> dict[int, ApiHandler[Any]]:
    """The handlers of the APIs that a release had, up to its versions. Raises `ConfigError` for one
    that is not known."""
    release = check_release(release)
    highest = dict(_IN_2_1)
    for each in KAFKA_RELEASES[: KAFKA_RELEASES.index(release) + 1]:
        highest |= _RAISED_IN[each]
    return {
        key: handler
        if handler.inter_broker
        else replace(handler, max_version=min(handler.max_version, highest[handler.key]))
        for key, handler in handlers.items()
        if handler.inter_broker or highest.get(handler.key, -1) >= handler.min_version
    }
