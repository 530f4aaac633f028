"""What arises while librdkafka calls back.

Where an exception arises in a callback, Ctrl-C's or another one, confluent-kafka's call ends
with a SystemError; the exception is its cause, or lost. After a fatal error each call ends
with a KafkaException.

Kafka has no counterpart.
"""

from collections.abc import Callable
from typing import Any

import confluent_kafka

from barnabas.client.errors import from_librdkafka

__all__ = ["interruptible"]


def interruptible(call: Callable[..., Any], *arguments: Any) -> Any:
    """Call into librdkafka.

    Raises what arose in a callback, KeyboardInterrupt where that got lost,
    `ClientError` after a fatal error."""
    try:
        return call(*arguments)
    except SystemError as error:
        cause = error.__cause__
        # For example an assignment that names a partition twice.
        if isinstance(cause, confluent_kafka.KafkaException):
            raise from_librdkafka(cause.args[0], "what the brokers answered cannot be used") from error
        if cause is None or isinstance(cause, KeyboardInterrupt):
            raise KeyboardInterrupt from error
        raise cause from error
    except confluent_kafka.KafkaException as error:
        raise from_librdkafka(error.args[0], "this client cannot continue") from error
