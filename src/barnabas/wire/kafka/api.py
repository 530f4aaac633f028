"""Kafka's APIs: their keys, and the message types of each with the versions we can read and write.

Ranges: clients' APIs from the lowest version that Apache Kafka 4 keeps (KIP-896) to the highest of
Apache Kafka 4.3; requests between brokers in ZooKeeper mode as Apache Kafka 3.9 has them. What a
broker serves and advertises is the broker's decision, not this table's.

The table is complete, with APIs that no broker in ZooKeeper mode serves (KRaft's quorum,
share groups): ``broker-api-versions`` asks Apache's brokers of either mode, and prints for
each API the highest version that both sides can use, as Apache's tool does. A module that is
never asked for costs nothing but its file, and the tests compare the bytes of each with those
of Apache's own classes.

Message modules are imported when `api` is first asked for them: a process pays for
the APIs it uses.
"""

from enum import IntEnum
from importlib import import_module
from typing import NamedTuple

from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.schema import Message, Versions

__all__ = ["Api", "ApiKey", "api"]


class ApiKey(IntEnum):
    """The number that a request header starts with.

    What only KRaft controllers serve is not here (52 to 54, 59, ...)."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    ADD_RAFT_VOTER = 80
    REMOVE_RAFT_VOTER = 81
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    DESCRIBE_SHARE_GROUP_OFFSETS = 90

    @property
    def title(self) -> str:
        """The name as in Kafka's documents: ``ListOffsets``."""
        return self.name.title().replace("_", "")


class Api(NamedTuple):
    """An API's messages."""

    key: ApiKey
    request: type[Message]
    response: type[Message]

    @property
    def versions(self) -> Versions:
        """The versions that can be read and written; requests and responses have the same."""
        return self.request.VERSIONS

    @property
    def flexible(self) -> Versions:
        """The versions with compact lengths and tagged fields."""
        return self.request.FLEXIBLE


_APIS: dict[int, Api] = {}


def api(key: int) -> Api:
    """The messages of an API; raises KafkaError (UNSUPPORTED_VERSION) for an unknown key."""
    found = _APIS.get(key)
    if found is None:
        try:
            known = ApiKey(key)
        except ValueError:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"there is no API with the key {key}") from None
        module = import_module(f"barnabas.wire.kafka.messages.{known.name.lower()}")
        found = Api(known, getattr(module, f"{known.title}Request"), getattr(module, f"{known.title}Response"))
        _APIS[key] = found
    return found
