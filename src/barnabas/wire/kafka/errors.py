"""Kafka's error codes, and the exceptions that carry them.

Source: the protocol guide's table of errors, up to Apache Kafka 4.3. `DEFAULT_MESSAGES` holds
our own short words for those codes whose names do not say enough; responses with a message
field and tools use them.
"""

from enum import IntEnum

from barnabas.base.errors import BarnabasError, CorruptDataError

__all__ = ["ErrorCode", "KafkaError", "MalformedMessageError", "OversizedMessageError", "error_text"]


class ErrorCode(IntEnum):
    """What an error field of a response may hold."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    SNAPSHOT_NOT_FOUND = 98
    POSITION_OUT_OF_RANGE = 99
    UNKNOWN_TOPIC_ID = 100
    DUPLICATE_BROKER_REGISTRATION = 101
    BROKER_ID_NOT_REGISTERED = 102
    INCONSISTENT_TOPIC_ID = 103
    INCONSISTENT_CLUSTER_ID = 104
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    INELIGIBLE_REPLICA = 107
    NEW_LEADER_ELECTED = 108
    OFFSET_MOVED_TO_TIERED_STORAGE = 109
    FENCED_MEMBER_EPOCH = 110
    UNRELEASED_INSTANCE_ID = 111
    UNSUPPORTED_ASSIGNOR = 112
    STALE_MEMBER_EPOCH = 113
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    UNKNOWN_CONTROLLER_ID = 116
    UNKNOWN_SUBSCRIPTION_ID = 117
    TELEMETRY_TOO_LARGE = 118
    INVALID_REGISTRATION = 119
    TRANSACTION_ABORTABLE = 120
    INVALID_RECORD_STATE = 121
    SHARE_SESSION_NOT_FOUND = 122
    INVALID_SHARE_SESSION_EPOCH = 123
    FENCED_STATE_EPOCH = 124
    INVALID_VOTER_KEY = 125
    DUPLICATE_VOTER = 126
    VOTER_NOT_FOUND = 127
    INVALID_REGULAR_EXPRESSION = 128
    REBOOTSTRAP_REQUIRED = 129
    STREAMS_INVALID_TOPOLOGY = 130
    STREAMS_INVALID_TOPOLOGY_EPOCH = 131
    STREAMS_TOPOLOGY_FENCED = 132
    SHARE_SESSION_LIMIT_REACHED = 133

    @property
    def message(self) -> str:
        """A short description for people, without a full stop."""
        return DEFAULT_MESSAGES.get(self) or self.name.lower().replace("_", " ")

    @property
    def retriable(self) -> bool:
        """Whether the same request may succeed later, or after a look at fresh metadata."""
        return self in RETRIABLE

    @classmethod
    def of(cls, code: int) -> "ErrorCode":
        """The error of a code from the wire; a code we do not know is an unknown server error."""
        try:
            return cls(code)
        except ValueError:
            return cls.UNKNOWN_SERVER_ERROR


RETRIABLE = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FETCH_SESSION_ID_NOT_FOUND,
        ErrorCode.INVALID_FETCH_SESSION_EPOCH,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR,
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    }
)

DEFAULT_MESSAGES = {
    ErrorCode.UNKNOWN_SERVER_ERROR: "the server met an unexpected error",
    ErrorCode.NONE: "no error",
    ErrorCode.OFFSET_OUT_OF_RANGE: "the offset is outside of the log",
    ErrorCode.CORRUPT_MESSAGE: "the record batch is corrupt: wrong checksum, size or key",
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "this server does not host the topic or partition",
    ErrorCode.LEADER_NOT_AVAILABLE: "the partition has no leader at the moment",
    ErrorCode.NOT_LEADER_OR_FOLLOWER: "this broker is not the leader, or not a replica, of the partition",
    ErrorCode.REQUEST_TIMED_OUT: "the request timed out",
    ErrorCode.REPLICA_NOT_AVAILABLE: "the replica is not available on this broker",
    ErrorCode.MESSAGE_TOO_LARGE: "a record batch is larger than the server accepts",
    ErrorCode.STALE_CONTROLLER_EPOCH: "the controller epoch is outdated",
    ErrorCode.OFFSET_METADATA_TOO_LARGE: "the metadata of the offset is too large",
    ErrorCode.NETWORK_EXCEPTION: "the connection broke before the response came",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "the coordinator is still loading its state",
    ErrorCode.NOT_COORDINATOR: "this broker is not the coordinator",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "the topic name is invalid or the topic is internal",
    ErrorCode.RECORD_LIST_TOO_LARGE: "the record batch is larger than a segment",
    ErrorCode.NOT_ENOUGH_REPLICAS: "fewer replicas are in sync than min.insync.replicas asks for",
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: "written, but to fewer in-sync replicas than min.insync.replicas asks for",
    ErrorCode.INVALID_REQUIRED_ACKS: "acks must be -1, 0 or 1",
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: "the member shares no protocol with the group",
    ErrorCode.INVALID_SESSION_TIMEOUT: "the session timeout is outside of the range the broker allows",
    ErrorCode.REBALANCE_IN_PROGRESS: "the group is rebalancing",
    ErrorCode.INVALID_COMMIT_OFFSET_SIZE: "the offset commit is too large",
    ErrorCode.INVALID_TIMESTAMP: "the timestamp is outside of the accepted range",
    ErrorCode.ILLEGAL_SASL_STATE: "the request does not fit the state of authentication",
    ErrorCode.UNSUPPORTED_VERSION: "this version of the API is not supported",
    ErrorCode.INVALID_PARTITIONS: "the number of partitions is invalid",
    ErrorCode.INVALID_REPLICATION_FACTOR: "the replication factor is below 1 or above the number of brokers",
    ErrorCode.INVALID_CONFIG: "the configuration is invalid",
    ErrorCode.NOT_CONTROLLER: "this broker is not the controller",
    ErrorCode.INVALID_REQUEST: "the request is malformed or breaks the API's rules",
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: "the message format does not support the request",
    ErrorCode.INVALID_PRODUCER_EPOCH: "a newer producer uses this producer id",
    ErrorCode.CONCURRENT_TRANSACTIONS: "another operation on the transaction is still running",
    ErrorCode.OPERATION_NOT_ATTEMPTED: "not attempted because another operation of the batch failed",
    ErrorCode.KAFKA_STORAGE_ERROR: "the log directory failed",
    ErrorCode.UNKNOWN_PRODUCER_ID: "nothing is known of this producer id",
    ErrorCode.NON_EMPTY_GROUP: "the group still has members",
    ErrorCode.GROUP_ID_NOT_FOUND: "the group does not exist",
    ErrorCode.FENCED_LEADER_EPOCH: "the leader epoch is older than the broker's",
    ErrorCode.UNKNOWN_LEADER_EPOCH: "the leader epoch is newer than the broker's",
    ErrorCode.UNSUPPORTED_COMPRESSION_TYPE: "the compression type is not supported by the client or the broker",
    ErrorCode.STALE_BROKER_EPOCH: "the broker epoch has changed",
    ErrorCode.OFFSET_NOT_AVAILABLE: "the leader does not know its high watermark yet",
    ErrorCode.MEMBER_ID_REQUIRED: "join again with the member id given",
    ErrorCode.FENCED_INSTANCE_ID: "another consumer uses this group instance id",
    ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC: "the group is subscribed to the topic",
    ErrorCode.INVALID_RECORD: "the record breaks the broker's rules",
    ErrorCode.UNSTABLE_OFFSET_COMMIT: "the group has offsets of unfinished transactions",
    ErrorCode.PRODUCER_FENCED: "a newer producer uses this transactional id",
    ErrorCode.UNKNOWN_TOPIC_ID: "this server does not host the topic id",
    ErrorCode.BROKER_ID_NOT_REGISTERED: "the broker is not registered",
    ErrorCode.INCONSISTENT_TOPIC_ID: "the topic id is not that of the log",
    ErrorCode.INCONSISTENT_CLUSTER_ID: "the cluster id is not this cluster's",
    ErrorCode.INELIGIBLE_REPLICA: "the new ISR holds a replica that may not join it",
    ErrorCode.NEW_LEADER_ELECTED: "the partition changed, and its leader too",
    ErrorCode.OFFSET_MOVED_TO_TIERED_STORAGE: "the offset is in tiered storage",
    ErrorCode.FENCED_MEMBER_EPOCH: "the member epoch is fenced: give the partitions up and join again",
    ErrorCode.REBOOTSTRAP_REQUIRED: "the client's metadata is stale: bootstrap again",
}


_MOST_CHARACTERS = 4_000


def error_text(text: str) -> str:
    """The text for an answer, cut where it quotes so much that no answer could carry
    it (32,767 bytes)."""
    return text if len(text) <= _MOST_CHARACTERS else f"{text[:_MOST_CHARACTERS]} ..."


class KafkaError(BarnabasError):
    """A request that failed, or must fail, with one of Kafka's error codes.

    Very long messages are cut (`error_text`)."""

    def __init__(self, code: int, message: str | None = None) -> None:
        self.code = ErrorCode.of(code)
        self.message = error_text(message) if message else self.code.message
        super().__init__(self.message)

    def __repr__(self) -> str:
        return f"KafkaError({self.code.name}, {self.message!r})"


class MalformedMessageError(CorruptDataError):
    """Bytes that are no message of the type and version they should be."""


class OversizedMessageError(MalformedMessageError):
    """A message whose elements would take more memory than a reader may use."""
