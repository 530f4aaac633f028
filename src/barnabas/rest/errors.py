"""Errors of the proxy, with the codes of Confluent's, and what they make of the client's errors.

In Confluent's proxy: `Errors` and `KafkaExceptionMapper`.
"""

from enum import IntEnum

from barnabas.base.errors import BarnabasError
from barnabas.client.errors import (
    AuthenticationError,
    AuthorizationError,
    BufferFullError,
    ClientError,
    ConfigurationError,
    ConnectError,
    DeserializationError,
    RefusedError,
    SerializationError,
    TimedOutError,
    UnknownTopicError,
    UnsupportedError,
)
from barnabas.wire.kafka.errors import ErrorCode as KafkaCode

__all__ = ["RestCode", "RestError", "error_of", "record_error", "topic_error_of"]


class RestCode(IntEnum):
    """The codes of errors in answers; the first three digits are the HTTP status.

    Source: Confluent's reference of the REST Proxy."""

    BAD_REQUEST = 400
    UNAUTHORIZED = 401
    NOT_FOUND = 404
    METHOD_NOT_ALLOWED = 405
    NOT_ACCEPTABLE = 406
    REQUEST_TIMEOUT = 408
    TOO_LARGE = 413
    UNSUPPORTED_MEDIA_TYPE = 415
    UNPROCESSABLE = 422
    TOO_MANY_REQUESTS = 429
    INTERNAL = 500
    UNAVAILABLE = 503
    KAFKA_BAD_REQUEST = 40002
    KAFKA_AUTHENTICATION = 40101
    KAFKA_AUTHORIZATION = 40301
    TOPIC_NOT_FOUND = 40401
    PARTITION_NOT_FOUND = 40402
    CONSUMER_INSTANCE_NOT_FOUND = 40403
    UNKNOWN_TOPIC_OR_PARTITION = 40403  # of version 3; version 2 has the code for instances
    LEADER_NOT_AVAILABLE = 40404
    CONSUMER_GROUP_NOT_FOUND = 40405
    FORMAT_MISMATCH = 40601
    SCHEMA_REGISTRY = 40801
    ALREADY_SUBSCRIBED = 40901
    CONSUMER_EXISTS = 40902
    ILLEGAL_STATE = 40903
    KEY_SCHEMA_MISSING = 42201
    VALUE_SCHEMA_MISSING = 42202
    JSON_CONVERSION = 42203
    INVALID_CONSUMER_CONFIG = 42204
    INVALID_SCHEMA = 42205
    INVALID_PAYLOAD = 42206
    SERIALIZATION = 42207
    PRODUCE_BATCH = 42208
    KAFKA = 50002
    KAFKA_RETRIABLE = 50003


class RestError(BarnabasError):
    """A request that is refused, or that failed: a code and a text for a person."""

    def __init__(self, code: RestCode, message: str) -> None:
        super().__init__(message)
        self.code = int(code)
        self.message = message

    @property
    def status(self) -> int:
        """The HTTP status."""
        return int(str(self.code)[:3])

    @property
    def document(self) -> dict[str, object]:
        """The body of the answer."""
        return {"error_code": self.code, "message": self.message}


_TOO_LARGE = frozenset(("MESSAGE_TOO_LARGE", "MSG_SIZE_TOO_LARGE", "RECORD_LIST_TOO_LARGE"))
_OF_THE_REQUEST = frozenset(
    (
        *(KafkaCode.INVALID_TOPIC_EXCEPTION, KafkaCode.TOPIC_ALREADY_EXISTS, KafkaCode.INVALID_PARTITIONS),
        *(KafkaCode.INVALID_REPLICATION_FACTOR, KafkaCode.INVALID_REPLICA_ASSIGNMENT, KafkaCode.INVALID_CONFIG),
        *(KafkaCode.INVALID_REQUEST, KafkaCode.POLICY_VIOLATION, KafkaCode.INVALID_TIMESTAMP),
        *(KafkaCode.INVALID_GROUP_ID, KafkaCode.SECURITY_DISABLED, KafkaCode.UNSUPPORTED_VERSION),
    )
)


def error_of(error: Exception) -> RestError:
    """The answer to a request that ended with this error; version 3 for topics that do not exist.

    What is no error of a client or of a request is `RestCode.INTERNAL`, without its text."""
    match error:
        case RestError():
            return error
        case AuthenticationError():
            return RestError(RestCode.KAFKA_AUTHENTICATION, str(error))
        case AuthorizationError():
            return RestError(RestCode.KAFKA_AUTHORIZATION, str(error))
        case UnknownTopicError():
            return RestError(RestCode.UNKNOWN_TOPIC_OR_PARTITION, str(error))
        case RefusedError() if error.code in _OF_THE_REQUEST:
            return RestError(RestCode.KAFKA_BAD_REQUEST, str(error))
        case UnsupportedError():
            return RestError(RestCode.KAFKA_BAD_REQUEST, str(error))
        case ClientError() if error.name in _TOO_LARGE:
            return RestError(RestCode.TOO_LARGE, str(error))
        case BufferFullError():
            return RestError(RestCode.TOO_MANY_REQUESTS, str(error))
        case SerializationError():
            return RestError(RestCode.SERIALIZATION, str(error))
        case ConfigurationError():
            return RestError(RestCode.BAD_REQUEST, str(error))
        case DeserializationError():
            return RestError(RestCode.KAFKA, str(error))
        case ClientError():
            return _failure(error)
        case _:
            return RestError(RestCode.INTERNAL, "Internal Server Error")


def _failure(error: ClientError) -> RestError:
    """A failure of the cluster, or of the way to it; a delivery's has its reason as its cause."""
    cause = error.__cause__
    if isinstance(cause, ClientError) and cause is not error:
        found = error_of(cause)
        if found.code not in (RestCode.KAFKA, RestCode.KAFKA_RETRIABLE, RestCode.INTERNAL):
            return RestError(RestCode(found.code), str(error))
    passes = error.retriable or any(isinstance(each, ConnectError | TimedOutError) for each in (error, cause))
    return RestError(RestCode.KAFKA_RETRIABLE if passes else RestCode.KAFKA, str(error))


def topic_error_of(error: Exception, partition: int | None = None) -> RestError:
    """The same for version 2, whose topics and partitions have codes of their own."""
    found = error_of(error)
    if isinstance(error, RestError) or found.code != RestCode.UNKNOWN_TOPIC_OR_PARTITION:
        return found
    if partition is None:
        return RestError(RestCode.TOPIC_NOT_FOUND, "Topic not found.")
    return RestError(RestCode.PARTITION_NOT_FOUND, "Partition not found.")


def record_error(error: Exception) -> dict[str, object]:
    """A record's part of the answer, where the record did not reach its partition."""
    return error_of(error).document
