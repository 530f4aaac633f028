"""Deadlines by key."""

from hypothesis import given
from hypothesis import strategies as st

from barnabas.broker.groups.timers import Timers


def test_deadline_pushed_back_fires_at_its_last_time_only() -> None:
    """Every heartbeat moves the deadline; none of the earlier ones counts."""
    timers = Timers()
    for at in (10, 20, 30):
        timers.set("a", at)
    assert timers.pop_due(29) is None
    assert timers.pop_due(30) == "a"
    assert timers.pop_due(1000) is None


def test_deadline_brought_forward_fires_early_and_once() -> None:
    """A shorter timeout replaces a longer one."""
    timers = Timers()
    timers.set("a", 100)
    timers.set("a", 5)
    assert timers.pop_due(5) == "a"
    assert timers.pop_due(100) is None


def test_cancelled_deadlines_leave_the_heap() -> None:
    """Members that come and go do not pile up."""
    timers = Timers()
    for number in range(10_000):
        timers.set(number, 1_000_000)
        timers.cancel(number)
    assert len(timers) == 0
    assert len(timers._heap) <= 70


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("set"), st.integers(0, 5), st.integers(0, 50)),
            st.tuples(st.just("cancel"), st.integers(0, 5), st.just(0)),
            st.tuples(st.just("pop"), st.just(0), st.integers(0, 50)),
        )
    )
)
def test_behaves_as_a_dictionary_that_is_searched(steps: list[tuple[str, int, int]]) -> None:
    """Against a dictionary of deadlines: the same keys are due, the earliest first."""
    timers = Timers()
    model: dict[int, int] = {}
    for step, key, at in steps:
        if step == "set":
            timers.set(key, at)
            model[key] = at
        elif step == "cancel":
            timers.cancel(key)
            model.pop(key, None)
        else:
            due = {each: when for each, when in model.items() if when <= at}
            found = timers.pop_due(at)
            if not due:
                assert found is None
            else:
                assert model[found] == min(due.values())  # type: ignore[index]
                del model[found]  # type: ignore[arg-type]
        assert len(timers) == len(model)
        earliest = timers.next_ms()
        assert not model or (earliest is not None and earliest <= min(model.values()))
