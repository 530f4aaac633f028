"""What arises while librdkafka calls back.

Where Ctrl-C's exception arises in a callback, confluent-kafka loses it, and its call ends with a SystemError. After a fatal error
each call ends with a KafkaException.

Kafka has no counterpart.
"""

from collections.abc import Callable
from typing import Any

import confluent_kafka

from barnabas.client.errors import from_librdkafka

__all__ = ["interruptible"]


def interruptible(call: Callable[..., Any], *arguments: Any) -> Any:
    """Call into librdkafka; raises KeyboardInterrupt where that got lost, and `ClientError` after a fatal error."""
    try:
        return call(*arguments)
    except SystemError as error:
        raise KeyboardInterrupt from error
    except confluent_kafka.KafkaException as error:
        raise from_librdkafka(error.args[0], "this client cannot continue") from error
