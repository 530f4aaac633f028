"""Answers that wait for others: they come once, by their time, and leave nothing
behind that waits."""

from collections.abc import Callable
from typing import Any

import pytest

from barnabas.broker.apis.later import LaterAnswers, reply_once
from barnabas.broker.cluster.steps import Pause, Steps
from barnabas.broker.configuration.broker_config import BrokerConfig
from barnabas.broker.configuration.definitions import DEFINITIONS
from barnabas.broker.requests.request import ClientFacts, Request
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from support.broker import ManualClock, ManualTimers

TIMEOUT_MS = 1000
GRACE_MS = 500


class Waiting:
    """A request whose work is under way: `go_on` continues it after its one pause."""

    def __init__(self, end: Callable[[Request], object], *, nested: bool = False) -> None:
        self.timers = ManualTimers(ManualClock())
        self.answers: list[Any] = []
        self.steps: list[Steps[None]] = []
        facts = ClientFacts("PLAINTEXT", "h", 1)
        self.request = Request(ApiKey.CREATE_TOPICS, 7, 1, "c", None, facts, 0, self._answer)
        config = BrokerConfig(DEFINITIONS.parse({"zookeeper.connect": "nowhere:1"}))
        later = LaterAnswers(self._start, self.timers, config)

        def work() -> Steps[None]:
            yield Pause(0)
            end(self.request)

        def outer() -> Steps[None]:
            yield Pause(0)
            later.answer(self.request, work(), TIMEOUT_MS)

        later.answer(self.request, outer() if nested else work(), TIMEOUT_MS)

    def _start(self, steps: Steps[None]) -> None:
        next(steps)
        self.steps.append(steps)

    def _answer(self, _request: Request, response: Any, code: ErrorCode | None) -> None:
        self.answers.append(response if code is None else code)

    def go_on(self) -> None:
        """To the end, that of the work begun by it included."""
        for steps in self.steps:
            assert next(steps, None) is None

    def timers_left(self) -> int:
        return sum(timer.callback is not None for timer in self.timers.pending)


@pytest.mark.parametrize("nested", [False, True])
def test_no_timer_is_left_when_the_work_has_answered(nested: bool) -> None:
    """Nor a second answer at its time.

    Work that begins other work for the request has one timer with it."""
    waiting = Waiting(lambda request: request.reply("done"), nested=nested)
    assert waiting.timers_left() == 1
    waiting.go_on()
    assert waiting.timers_left() == 0
    assert waiting.answers == ["done"]


def test_no_timer_is_left_when_the_answer_comes_after_the_work() -> None:
    """A topic is written, and answered when the metadata shows it: thousands of its settings are
    not kept until the timeout."""
    waiting = Waiting(lambda _: None)
    waiting.go_on()
    assert waiting.timers_left() == 1
    reply_once(waiting.request, "done")
    assert (waiting.timers_left(), waiting.answers) == (0, ["done"])
    reply_once(waiting.request, "again")
    assert waiting.answers == ["done"]


def test_an_answer_that_does_not_come_in_time_is_request_timed_out() -> None:
    """With some grace for the work's own timeout, which can say more; the work goes on
    without a second answer."""
    waiting = Waiting(lambda request: reply_once(request, "late"))
    waiting.timers.advance(TIMEOUT_MS + GRACE_MS - 1)
    assert waiting.answers == []
    waiting.timers.advance(1)
    assert waiting.answers == [ErrorCode.REQUEST_TIMED_OUT]
    waiting.go_on()
    assert waiting.answers == [ErrorCode.REQUEST_TIMED_OUT]


def test_a_failure_is_answered_and_leaves_no_timer() -> None:
    """With its code."""

    def fail(_: Request) -> None:
        raise KafkaError(ErrorCode.NOT_CONTROLLER)

    waiting = Waiting(fail)
    waiting.go_on()
    assert (waiting.timers_left(), waiting.answers) == (0, [ErrorCode.NOT_CONTROLLER])


def test_a_client_that_leaves_takes_its_timer_along() -> None:
    """The work goes on."""
    ended: list[Request] = []
    waiting = Waiting(ended.append)
    waiting.request.abandon()
    assert waiting.timers_left() == 0
    waiting.go_on()
    assert ended == [waiting.request]
