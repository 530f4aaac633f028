"""Ctrl-C in a callback of librdkafka."""

import confluent_kafka
import pytest

from barnabas.client.errors import ClientError
from barnabas.client.librdkafka.interrupts import interruptible


def test_an_interrupt_that_a_callback_lost_arrives() -> None:
    """confluent-kafka ends with a SystemError then; other errors and results pass."""

    def lost() -> None:
        raise SystemError("<method 'poll'> returned NULL without setting an exception")

    with pytest.raises(KeyboardInterrupt):
        interruptible(lost)
    assert interruptible(int, "7") == 7


def test_an_error_in_a_callback_is_no_interrupt() -> None:
    """The brokers' answer cannot be assigned, for one; it once ended a consumer as Ctrl-C does."""

    def failed(cause: BaseException) -> None:
        raise SystemError("returned a result with an exception set") from cause

    refused = confluent_kafka.KafkaException(confluent_kafka.KafkaError(confluent_kafka.KafkaError._INVALID_ARG))
    with pytest.raises(ClientError, match="what the brokers answered cannot be used"):
        interruptible(failed, refused)
    with pytest.raises(ZeroDivisionError):
        interruptible(failed, ZeroDivisionError())
    with pytest.raises(KeyboardInterrupt):
        interruptible(failed, KeyboardInterrupt())
