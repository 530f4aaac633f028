"""What clients raise.

Every error of this package is a `ClientError`: what was wrong, where, and what to do about it.
Some classes are also one of Python's own, or of the protocol's (`ConfigurationError` is a
`ConfigError`, `TimedOutError` a ``TimeoutError``, `RefusedError` a `KafkaError`), so that code
which expects those catches them too.

In Kafka: `KafkaException`, and the package `org.apache.kafka.common.errors`.
"""

import re
from typing import TYPE_CHECKING, Any

from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.wire.kafka.errors import ErrorCode, KafkaError, error_text

if TYPE_CHECKING:
    from barnabas.client.records import Record

__all__ = [
    "AuthenticationError",
    "AuthorizationError",
    "BufferFullError",
    "ClientError",
    "ClosedError",
    "CommitError",
    "ConfigurationError",
    "ConnectError",
    "DamagedBatchError",
    "DeliveryError",
    "DeserializationError",
    "DroppedError",
    "FencedError",
    "LibrdkafkaOnlyError",
    "ProtocolError",
    "RefusedError",
    "SerializationError",
    "TimedOutError",
    "TransactionError",
    "UndeliveredError",
    "UnknownHostError",
    "UnknownTopicError",
    "UnsupportedError",
    "classify",
    "from_librdkafka",
    "refusal",
]


class ClientError(BarnabasError):
    """The root of all errors that `barnabas.client` raises.

    ``code`` is Kafka's error number (negative: librdkafka's own), ``name`` its name, ``retriable``
    whether the same call may succeed later, ``fatal`` whether the client cannot continue and must
    be created again, ``remedy`` what to do ("" where the message says it, or where there is nothing
    to do). The message ends with the remedy.
    """

    def __init__(
        self,
        message: str,
        *,
        code: int = -1,
        name: str = "UNKNOWN",
        retriable: bool = False,
        fatal: bool = False,
        remedy: str = "",
    ) -> None:
        BarnabasError.__init__(self, f"{message} ({remedy})" if remedy else message)
        self.code = code
        self.name = name
        self.retriable = retriable
        self.fatal = fatal
        self.remedy = remedy


class ConfigurationError(ClientError, ConfigError):
    """A property or an argument that cannot be used; nothing was sent."""


class LibrdkafkaOnlyError(ConfigurationError):
    """A protection that `Admin` does not have, and librdkafka may have: Kerberos, for one."""


class ConnectError(ClientError):
    """A broker that cannot be reached, or whose connection broke.

    The same call may succeed later."""

    def __init__(self, message: str, *, remedy: str = "", name: str = "_TRANSPORT") -> None:
        super().__init__(message, name=name, retriable=True, remedy=remedy)


class UnknownHostError(ConnectError):
    """No name in ``bootstrap.servers`` can be resolved."""

    def __init__(self, message: str, *, remedy: str = "") -> None:
        super().__init__(message, remedy=remedy, name="_RESOLVE")


class ProtocolError(ConnectError):
    """An answer that Kafka's protocol does not allow: no message, not to this request, or too large
    to hold. The message names the broker and the API. The same call will not succeed later: such a
    broker is as good as none.
    """

    def __init__(self, message: str) -> None:
        super().__init__(message, name="_BAD_MSG")
        self.retriable = False


class AuthenticationError(ClientError):
    """The broker does not accept the credentials, or one side does not trust the
    other's certificate."""


class TimedOutError(ClientError, TimeoutError):
    """A call that did not end in its time.

    The message names the last problem with a broker, if there was one."""


class UndeliveredError(TimedOutError):
    """`Producer.flush` or `Producer.close` ended while records were still on their way.

    ``undelivered`` is their number. After ``flush`` they stay in the queue; after ``close`` they
    are lost, unless the brokers have them already.
    """

    def __init__(self, message: str, undelivered: int) -> None:
        super().__init__(message, name="_TIMED_OUT", retriable=True)
        self.undelivered = undelivered


class RefusedError(ClientError, KafkaError):
    """A request that a broker refused with one of Kafka's error codes.

    ``code`` is the `ErrorCode`."""

    code: ErrorCode

    def __init__(self, code: int, message: str | None = None, *, remedy: str | None = None) -> None:
        error = ErrorCode.of(code)
        message = error_text(message or error.message)
        if error is ErrorCode.UNKNOWN_SERVER_ERROR and code != error:
            message = f"{message} (error code {code}, which is not known here)"
        advice = _REMEDIES.get(error.name, "") if remedy is None else remedy
        if advice in message:
            advice = ""
        ClientError.__init__(self, message, code=error, name=error.name, retriable=error.retriable, remedy=advice)
        self.message = message

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name}, {self.message!r})"


class UnknownTopicError(RefusedError):
    """A topic or partition that does not exist."""


class AuthorizationError(RefusedError):
    """The principal has no right to do this."""


class UnsupportedError(RefusedError):
    """The brokers do not have the API, its version or the feature, such as transactions."""


class FencedError(RefusedError):
    """A newer client has taken this one's place: the same ``transactional.id`` or
    ``group.instance.id``."""


class CommitError(RefusedError):
    """Offsets that were not committed because the group has moved on.

    The partitions' new owner reads on from before."""


class TransactionError(RefusedError):
    """A transaction that cannot be committed: abort it, and begin another."""


class DeliveryError(ClientError):
    """A record that did not reach its partition, as far as the producer knows.

    ``__cause__`` is the class of the reason."""


class BufferFullError(ClientError):
    """A send that found no room in the producer's queue within ``max.block.ms``.

    The record was not taken."""


class DroppedError(ClientError):
    """A record dropped because the queue was full for ``queue.enqueue.timeout.ms``."""


class ClosedError(ClientError):
    """A call of a client that was closed."""

    def __init__(self, what: str) -> None:
        super().__init__(f"this {what} is closed", name="_STATE", remedy="create another one")


class SerializationError(ClientError, TypeError):
    """A key or value that the serializer cannot turn into bytes; the record was not taken."""


class DeserializationError(ClientError):
    """Bytes that the deserializer cannot read; ``record`` holds them as they came.

    The next call continues after it."""

    def __init__(self, message: str, record: "Record[bytes, bytes]", *, remedy: str = "") -> None:
        super().__init__(message, name="_VALUE_DESERIALIZATION", remedy=remedy)
        self.record = record


class DamagedBatchError(ClientError):
    """A batch in a partition that cannot be read; the records before it were handed out.

    Each call raises it again, until the consumer seeks to an offset behind the batch."""

    def __init__(self, message: str, topic: str, partition: int, offset: int, *, name: str, code: int) -> None:
        remedy = f"barnabas console-consumer --topic {topic} --partition {partition} --offset {offset} shows how to step over it"
        super().__init__(f"{topic}-{partition} offset {offset}: {message}", code=code, name=name, remedy=remedy)
        self.topic = topic
        self.partition = partition
        self.offset = offset
        """The first offset that cannot be read."""


_ASK_FOR_THE_RIGHT = "ask for the right, or check the principal"
_CREATE_FIRST = "create it first (barnabas topics --create)"
_REMEDIES = {
    "_TRANSPORT": "is a broker running there?",
    "_ALL_BROKERS_DOWN": "is a broker running at one of the bootstrap.servers?",
    "_RESOLVE": "check the host names in bootstrap.servers",
    "_AUTHENTICATION": "check sasl.mechanism, the user's name and the password",
    "_SSL": "check the certificates and security.protocol",
    "_MSG_TIMED_OUT": "no broker acknowledged it within delivery.timeout.ms; is one running, is there a leader?",
    "_UNKNOWN_TOPIC": _CREATE_FIRST,
    "_UNKNOWN_PARTITION": "the topic is not there, or has fewer partitions",
    "_AUTO_OFFSET_RESET": "seek to an offset that exists, or set auto.offset.reset",
    "UNKNOWN_TOPIC_OR_PARTITION": _CREATE_FIRST,
    "MESSAGE_TOO_LARGE": "raise the topic's max.message.bytes and the producer's max.request.size",
    "MSG_SIZE_TOO_LARGE": "raise the topic's max.message.bytes and the producer's max.request.size",
    "RECORD_LIST_TOO_LARGE": "raise the topic's segment.bytes, or set a smaller batch.size",
    "NOT_ENOUGH_REPLICAS": "fewer replicas are in sync than min.insync.replicas asks for",
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND": "it was written, but fewer replicas are in sync than min.insync.replicas",
    "TOPIC_AUTHORIZATION_FAILED": _ASK_FOR_THE_RIGHT,
    "GROUP_AUTHORIZATION_FAILED": _ASK_FOR_THE_RIGHT,
    "CLUSTER_AUTHORIZATION_FAILED": _ASK_FOR_THE_RIGHT,
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED": _ASK_FOR_THE_RIGHT,
    "UNSUPPORTED_VERSION": "the brokers do not offer it",
    "_UNSUPPORTED_FEATURE": "the brokers do not offer it",
}

# librdkafka's remarks for its own developers.
_STATE = re.compile(r" \((?:after \d+ms in state \w+)?(?:, )?(?:\d+ identical error\(s\) suppressed)?\)")

# What a caller was doing is said already.
_DOING = re.compile(r"^(?:Commit failed|Failed to [\w ]+|Unable to produce message): ")

# librdkafka's own errors that say what one of Kafka's says.
_KAFKA_CODES = {
    "_UNKNOWN_TOPIC": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    "_UNKNOWN_PARTITION": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    "_UNSUPPORTED_FEATURE": ErrorCode.UNSUPPORTED_VERSION,
    "_FENCED": ErrorCode.INVALID_PRODUCER_EPOCH,
    "_AUTO_OFFSET_RESET": ErrorCode.OFFSET_OUT_OF_RANGE,
    "_ASSIGNMENT_LOST": ErrorCode.ILLEGAL_GENERATION,
}

_KINDS: dict[ErrorCode, type[RefusedError]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: UnknownTopicError,
    ErrorCode.UNKNOWN_TOPIC_ID: UnknownTopicError,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED: AuthorizationError,
    ErrorCode.UNSUPPORTED_VERSION: UnsupportedError,
    ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT: UnsupportedError,
    ErrorCode.SECURITY_DISABLED: UnsupportedError,
    ErrorCode.INVALID_PRODUCER_EPOCH: FencedError,
    ErrorCode.PRODUCER_FENCED: FencedError,
    ErrorCode.FENCED_INSTANCE_ID: FencedError,
    ErrorCode.ILLEGAL_GENERATION: CommitError,
    ErrorCode.UNKNOWN_MEMBER_ID: CommitError,
    ErrorCode.REBALANCE_IN_PROGRESS: CommitError,
    ErrorCode.STALE_MEMBER_EPOCH: CommitError,
    ErrorCode.FENCED_MEMBER_EPOCH: CommitError,
}


def refusal(code: int, message: str | None = None, *, about: str = "") -> RefusedError:
    """The error of the class that a broker's error code has.

    ``about`` names the resource, as "topic NAME": of a right that is missing brokers
    do not say to what."""
    error = ErrorCode.of(code)
    kind = _KINDS.get(error, RefusedError)
    if about and kind is AuthorizationError and about not in (message or ""):
        message = f"{about}: {message or error.message}"
    elif error is ErrorCode.CLUSTER_AUTHORIZATION_FAILED and "cluster" not in (message or "cluster").lower():
        message = f"cluster: {message}"
    return kind(code, message)


def classify(error: Any, what: str) -> ClientError:
    """The error of the fitting class for a ``confluent_kafka.KafkaError``.

    ``what`` says what was being done."""
    name: str = error.name()
    message = f"{what}: {_DOING.sub('', _STATE.sub('', error.str()))}"
    remedy = _REMEDIES.get(name, "")
    made: ClientError
    if name == "_RESOLVE":
        made = UnknownHostError(message, remedy=remedy)
    elif name in ("_TRANSPORT", "_ALL_BROKERS_DOWN"):
        made = ConnectError(message, remedy=remedy, name=name)
    elif name in ("_AUTHENTICATION", "_SSL", "SASL_AUTHENTICATION_FAILED", "UNSUPPORTED_SASL_MECHANISM"):
        made = AuthenticationError(message, remedy=remedy or _REMEDIES["_AUTHENTICATION"])
    elif name in ("_TIMED_OUT", "_TIMED_OUT_QUEUE", "_MSG_TIMED_OUT"):
        made = TimedOutError(message, remedy=remedy)
    elif name in ("_INVALID_ARG", "_CONFLICT"):
        made = ConfigurationError(message, remedy=remedy)
    elif error.code() > 0 or name in _KAFKA_CODES:
        code = _KAFKA_CODES.get(name) or ErrorCode.of(error.code())
        made = _KINDS.get(code, RefusedError)(code, message, remedy=remedy or _REMEDIES.get(code.name, ""))
        made.name = code.name
        made.retriable, made.fatal = error.retriable(), error.fatal()
        return made
    else:
        made = ClientError(message, remedy=remedy)
    made.code, made.name = error.code(), name
    made.retriable, made.fatal = error.retriable(), error.fatal()
    return made


def from_librdkafka(error: Any, what: str, kind: type[ClientError] | None = None) -> ClientError:
    """Our exception for a ``confluent_kafka.KafkaError``: of the class ``kind`` with the
    fitting one as its cause."""
    fitting = classify(error, what)
    if kind is None:
        return fitting
    made = kind(str(fitting), code=fitting.code, name=fitting.name, retriable=fitting.retriable, fatal=fitting.fatal)
    made.remedy = fitting.remedy
    made.__cause__ = fitting
    return made
