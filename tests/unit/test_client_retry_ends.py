"""`RetryEnds`: how long a call is repeated, by what was wrong with it."""

import pytest

from barnabas.client.cluster.retry_ends import RetryEnds
from barnabas.client.network.deadline import Deadline
from barnabas.wire.kafka.errors import ErrorCode

API_TIMEOUT_S = 60.0
DEADLINE_S = 6.0
MOVING = [ErrorCode.NOT_LEADER_OR_FOLLOWER]
COMING = [ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
MIXED = MOVING + COMING
NO_ANSWER: list[ErrorCode] = []


class Clock:
    """A time in seconds that passes by hand."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.mark.parametrize(
    ("changes", "second_look_s", "codes", "expected_s"),
    [
        (False, None, MOVING, 1.0),
        (False, None, NO_ANSWER, 1.0),
        (False, None, MIXED, 1.0),
        (False, None, COMING, 4.0),
        (False, 0.5, MOVING, 0.5),
        (False, 0.5, COMING, 4.0),
        (True, None, MOVING, 6.0),
        (True, None, COMING, 6.0),
        (True, None, NO_ANSWER, 6.0),
    ],
)
def test_a_question_with_a_deadline_is_repeated_by_what_was_wrong_and_a_change_until_the_end(
    changes: bool, second_look_s: float | None, codes: list[ErrorCode], expected_s: float
) -> None:
    """A moment for what needs an election, two thirds of the deadline for what
    passes within seconds."""
    deadline = Deadline(DEADLINE_S, Clock())
    ends = RetryEnds(deadline, API_TIMEOUT_S, changes=changes, second_look_s=second_look_s)
    assert ends.for_codes(codes).left_s() == pytest.approx(expected_s)


@pytest.mark.parametrize("codes", [MOVING, COMING, NO_ANSWER])
@pytest.mark.parametrize("changes", [False, True])
def test_without_a_deadline_a_call_is_repeated_for_its_whole_time(changes: bool, codes: list[ErrorCode]) -> None:
    """Kafka's ``default.api.timeout.ms``; a moment where the caller asks for one."""
    ends = RetryEnds(None, API_TIMEOUT_S, changes=changes)
    assert ends.for_codes(codes).length_s == API_TIMEOUT_S
    assert RetryEnds(None, API_TIMEOUT_S, changes=changes, second_look_s=0.5).for_codes(MOVING).length_s == 0.5


def test_pauses_grow_and_end_before_the_deadline_does() -> None:
    """The last one leaves time for the answer."""
    clock = Clock()
    ends = RetryEnds(Deadline(DEADLINE_S, clock), API_TIMEOUT_S, changes=False)
    pauses = []
    for tries in range(1, 10):
        pause_s = ends.pause_s(tries, MOVING)
        if pause_s is None:
            break
        pauses.append(pause_s)
        clock.now_s += pause_s
    assert pauses == [0.05, 0.1, 0.2, 0.4]
    assert clock.now_s < 101.0


def test_an_answer_that_came_late_is_looked_at_a_second_time_and_no_third() -> None:
    """More may be known by then; a broker that did not answer is not asked again."""
    clock = Clock()
    deadline = Deadline(DEADLINE_S, clock)
    ends = RetryEnds(deadline, API_TIMEOUT_S, changes=False)
    clock.now_s += 3.0
    assert ends.pause_s(1, NO_ANSWER) is None
    assert ends.pause_s(1, MOVING) == 0.05
    assert ends.pause_s(2, MOVING) is None
    clock.now_s += 3.0
    assert ends.pause_s(1, MOVING) is None


def test_without_a_deadline_a_call_is_tried_once_more_at_its_end() -> None:
    """The pause is what is left."""
    short = RetryEnds(None, 0.04, changes=False)
    pause_s = short.pause_s(4, MOVING)
    assert pause_s is not None
    assert 0 < pause_s <= 0.04
    assert RetryEnds(None, 0.0, changes=False).pause_s(1, MOVING) is None
