"""Ctrl-C in a callback of librdkafka."""

import pytest

from barnabas.client.interrupts import interruptible


def test_an_interrupt_that_a_callback_lost_arrives() -> None:
    """confluent-kafka ends with a SystemError then; other errors and results pass."""

    def lost() -> None:
        raise SystemError("<method 'poll'> returned NULL without setting an exception")

    with pytest.raises(KeyboardInterrupt):
        interruptible(lost)
    assert interruptible(int, "7") == 7
