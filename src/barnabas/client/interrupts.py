"""Ctrl-C while librdkafka calls back.

Where the interrupt's exception arises in a callback, confluent-kafka loses it, and its call ends with a SystemError.

Kafka has no counterpart.
"""

from collections.abc import Callable
from typing import Any

__all__ = ["interruptible"]


def interruptible(call: Callable[..., Any], *arguments: Any) -> Any:
    """Call into librdkafka; raises KeyboardInterrupt where that got lost."""
    try:
        return call(*arguments)
    except SystemError as error:
        raise KeyboardInterrupt from error
