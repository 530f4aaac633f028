"""What clients raise: errors whose message says what was wrong and, where it is known, what to do."""

from typing import Any

from barnabas.base.errors import BarnabasError

__all__ = ["BufferFullError", "ClientError", "DeliveryError", "DroppedError", "from_librdkafka"]


class ClientError(BarnabasError):
    """A call that a broker, or librdkafka, refused.

    ``code`` is Kafka's error number (negative: librdkafka's own), ``name`` its name, ``retriable`` whether the same
    call may succeed later, ``fatal`` whether the client cannot continue and must be created again.
    """

    def __init__(
        self, message: str, *, code: int = -1, name: str = "UNKNOWN", retriable: bool = False, fatal: bool = False
    ) -> None:
        super().__init__(message)
        self.code = code
        self.name = name
        self.retriable = retriable
        self.fatal = fatal


class DeliveryError(ClientError):
    """A record that did not reach its partition, as far as the producer knows."""


class BufferFullError(ClientError):
    """A send that found no room in the producer's queue within ``max.block.ms``; the record was not taken."""


class DroppedError(ClientError):
    """A record dropped because the queue was full for ``queue.enqueue.timeout.ms``."""


_HINTS = {
    "_TRANSPORT": "is a broker running there?",
    "_ALL_BROKERS_DOWN": "is a broker running at one of the bootstrap.servers?",
    "_RESOLVE": "check the host names in bootstrap.servers",
    "_MSG_TIMED_OUT": "no broker acknowledged it within delivery.timeout.ms; is one running, is there a leader?",
    "_UNKNOWN_TOPIC": "create it first (barnabas topics --create)",
    "UNKNOWN_TOPIC_OR_PART": "create it first (barnabas topics --create)",
    "MSG_SIZE_TOO_LARGE": "raise the topic's max.message.bytes and the producer's max.request.size",
    "NOT_ENOUGH_REPLICAS": "fewer replicas are in sync than min.insync.replicas asks for",
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND": "it was written, but fewer replicas are in sync than min.insync.replicas",
}


def from_librdkafka(error: Any, what: str, kind: type[ClientError] = ClientError) -> ClientError:
    """Our exception for a ``confluent_kafka.KafkaError``; ``what`` says what was being done."""
    hint = _HINTS.get(error.name())
    message = f"{what}: {error.str()}" + (f" ({hint})" if hint else "")
    return kind(message, code=error.code(), name=error.name(), retriable=error.retriable(), fatal=error.fatal())
