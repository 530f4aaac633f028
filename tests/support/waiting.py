"""Waiting for a condition, never for a time."""

import time
from collections.abc import Callable
from typing import TypeVar

from confluent_kafka import KafkaError, KafkaException
from kazoo.exceptions import ConnectionLoss

from barnabas.client.errors import ConnectError

T = TypeVar("T")

_NO_ANSWER = {
    *(KafkaError._TRANSPORT, KafkaError._TIMED_OUT, KafkaError._ALL_BROKERS_DOWN, KafkaError._WAIT_COORD),
    *(KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.COORDINATOR_LOAD_IN_PROGRESS),
}


def eventually(condition: Callable[[], T], *, timeout_s: float = 120, what: str = "") -> T:
    """The first true value of ``condition``.

    Fails when there is none in time, which is long: a machine may be slow and busy. A client that
    gets no answer, as while a server starts or a group's coordinator moves, has not seen the
    condition yet. Other errors are errors.
    """
    end = time.monotonic() + timeout_s
    while True:
        error: Exception | None = None
        try:
            if value := condition():
                return value
        except (KafkaException, ConnectionLoss, ConnectError) as problem:
            if isinstance(problem, KafkaException) and problem.args[0].code() not in _NO_ANSWER:
                raise
            error = problem
        assert time.monotonic() < end, f"not within {timeout_s} s: {what or condition}" + (
            f": {error}" if error else ""
        )
        time.sleep(0.01)
