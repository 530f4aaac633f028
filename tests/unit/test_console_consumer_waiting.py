"""``--timeout-ms`` of the console consumer: it counts from the assignment on."""

import threading
from typing import Any, cast

import pytest

from barnabas.cli.console.console_consumer import record_comes

TIMEOUT_S = 5.0


class Idle:
    """A consumer that notes for how long it is asked to wait.

    After ``joins_after_s`` it has its partitions."""

    def __init__(self, joins_after_s: float) -> None:
        self.joined = threading.Event()
        self.waited: list[float | None] = []
        self._joins_after_s = joins_after_s

    def wait(self, timeout_s: float | None) -> bool:
        """No record comes."""
        self.waited.append(timeout_s)
        if sum(each or 0.0 for each in self.waited) >= self._joins_after_s - 1e-9:
            self.joined.set()
        return False


@pytest.mark.parametrize(("joins_after_s", "expected_s"), [(0.1, 5.1), (3.0, 8.0), (59.0, 64.0), (1000.0, 65.0)])
def test_the_time_without_records_begins_with_the_assignment(joins_after_s: float, expected_s: float) -> None:
    """A wait that began before it is no reason for another whole one; without an assignment
    it begins after a minute."""
    consumer = Idle(joins_after_s)
    assert not record_comes(cast(Any, consumer), TIMEOUT_S, consumer.joined, 60.0)
    assert sum(each or 0.0 for each in consumer.waited) == pytest.approx(expected_s, abs=0.15)


def test_after_the_assignment_the_time_is_one_wait() -> None:
    """And without a time it is endless, whether there is an assignment or not."""
    consumer = Idle(0.0)
    consumer.joined.set()
    assert not record_comes(cast(Any, consumer), TIMEOUT_S, consumer.joined, 60.0)
    assert consumer.waited == [TIMEOUT_S]
    endless = Idle(1000.0)
    assert not record_comes(cast(Any, endless), None, endless.joined, 60.0)
    assert endless.waited == [None]
