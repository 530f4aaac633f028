"""The budget of the event loop: what exceeds it is counted under its name, and nothing else is."""

import asyncio
import gc
import logging
import os
import re
import socket
import time
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest

from barnabas.net import event_loop
from barnabas.net.event_loop import (
    FrozenObjects,
    LoopBudget,
    budget_of,
    count_after_start,
    count_pauses,
    limit_pauses,
    loop_figures,
    measured,
    new_event_loop,
    place_of,
)
from support.promptness import stolen_s

BUSY_S = 0.06


@pytest.fixture(params=["uvloop", "asyncio"])
def loop(request: pytest.FixtureRequest) -> Iterator[asyncio.AbstractEventLoop]:
    made = new_event_loop(use_uvloop=request.param == "uvloop")
    yield made
    made.close()


def known(loop: asyncio.AbstractEventLoop) -> LoopBudget:
    budget = budget_of(loop)
    assert budget is not None
    return budget


def hold() -> None:
    """Hold the loop, as a blocking call does."""
    time.sleep(BUSY_S)


def test_what_holds_a_loop_while_its_server_starts_is_not_counted(
    loop: asyncio.AbstractEventLoop, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor is the step that ends the start; what comes then is."""
    caplog.set_level(logging.INFO)
    budget, begun = known(loop), asyncio.Event()

    async def start() -> None:
        begin_counting = count_after_start(loop)
        hold()
        await asyncio.sleep(0)
        budget.collected("start", {"generation": 2})
        hold()
        budget.collected("stop", {"generation": 2})
        begin_counting()
        hold()
        loop.call_soon(begun.set)

    async def serve() -> None:
        await start()
        await begun.wait()
        await asyncio.sleep(0)
        assert (budget.slow_count, budget.gc_count, caplog.messages) == (0, 0, [])
        hold()
        await asyncio.sleep(0)

    loop.run_until_complete(serve())
    assert budget.slow_count == 1


def test_a_step_of_a_task_that_takes_too_long_is_counted_with_its_coroutine(loop: asyncio.AbstractEventLoop) -> None:
    """The line is where the coroutine waits after the step."""

    async def slow() -> None:
        hold()
        await asyncio.sleep(0)

    loop.run_until_complete(slow())
    budget = known(loop)
    (place,) = budget.slow
    assert "slow" in place
    assert "test_event_loop.py:" in place
    assert (budget.slow[place].count, budget.slow_count) == (1, 1)
    assert budget.worst_s >= BUSY_S * 0.9


def test_figures_and_the_summary_say_what_was_counted(loop: asyncio.AbstractEventLoop) -> None:
    """For monitors and for the log: how often, how long, and where the worst was."""

    async def slow() -> None:
        hold()

    loop.run_until_complete(slow())
    figures, budget = loop_figures(loop), known(loop)
    assert figures["event_loop_slow_callbacks_total"] == 1
    assert figures["event_loop_slow_seconds_total"] >= figures["event_loop_slowest_callback_seconds"] >= BUSY_S * 0.9
    assert f"{next(iter(budget.slow))}: 1 times" in budget.summary()


def test_a_loop_without_a_budget_has_no_figures() -> None:
    """A loop of asyncio's own, for one."""
    other = asyncio.new_event_loop()
    assert loop_figures(other) == {}
    other.close()


def test_timers_threads_and_readers_are_counted_once_each(loop: asyncio.AbstractEventLoop) -> None:
    """Whichever way the loop came to call it."""
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    done = loop.create_future()

    def readable() -> None:
        hold()
        loop.remove_reader(ours.fileno())
        done.set_result(None)

    async def run() -> None:
        loop.call_soon(hold)
        loop.call_later(0, hold)
        loop.call_later(0.001, hold)
        loop.call_at(loop.time() + 0.002, hold)
        await loop.run_in_executor(None, lambda: loop.call_soon_threadsafe(hold))
        await asyncio.sleep(0.01)
        loop.add_reader(ours.fileno(), readable)
        theirs.send(b"x")
        await done

    loop.run_until_complete(run())
    loop.run_until_complete(loop.shutdown_default_executor())
    ours.close()
    theirs.close()
    counts = {place.partition(" ")[0]: slow.count for place, slow in known(loop).slow.items()}
    assert counts["hold"] == 5
    assert [count for place, count in counts.items() if place.endswith(".readable")] == [1]


def test_short_callbacks_are_not_counted(loop: asyncio.AbstractEventLoop) -> None:
    """However many there are, and however long all of them take together."""

    async def busy() -> None:
        for _ in range(100_000):
            await asyncio.sleep(0)

    before_s = stolen_s()
    gc.collect()
    gc.disable()  # what all tests of this process have left behind takes longer than a callback may
    try:
        loop.run_until_complete(busy())
    finally:
        gc.enable()
    slow_s = sum(slow.total_s for slow in known(loop).slow.values())
    assert slow_s <= (stolen_s() - before_s) * (os.cpu_count() or 1), "more than the host took from this machine"


def test_a_place_is_logged_once_in_a_while(loop: asyncio.AbstractEventLoop, caplog: pytest.LogCaptureFixture) -> None:
    """With its name, the time, and how often it was; a busy place does not fill the log."""
    caplog.set_level(logging.INFO)

    async def run() -> None:
        for _ in range(3):
            loop.call_soon(hold)
            await asyncio.sleep(0)

    loop.run_until_complete(run())
    (message,) = [record.getMessage() for record in caplog.records if "held" in record.getMessage()]
    assert "hold (" in message
    assert known(loop).slow_count == 3


@pytest.mark.skipif(not os.path.exists("/proc/thread-self/schedstat"), reason="this system does not count it")
def test_the_log_says_how_long_a_place_worked(
    loop: asyncio.AbstractEventLoop, caplog: pytest.LogCaptureFixture
) -> None:
    """An operator sees whether a place computes for too long, or waits for a disk or
    another thread."""
    caplog.set_level(logging.INFO)

    def work() -> None:
        until_s = time.thread_time() + 0.05
        while time.thread_time() < until_s:
            pass

    async def run() -> None:
        for callback in (hold, work):
            await asyncio.sleep(0.006)  # the readings before are of now
            loop.call_soon(callback)
            await asyncio.sleep(0)

    loop.run_until_complete(run())
    worked = re.compile(r"held for (\d+) ms by (?:\S+\.)?(hold|work) .*; it worked for (\d+) ms")
    found = {name: (int(ms), int(at_work)) for ms, name, at_work in worked.findall(caplog.text)}
    assert found["hold"][1] <= found["hold"][0] / 2
    assert found["work"][1] >= found["work"][0] / 2


def test_connections_share_a_place_and_the_log_names_the_peer(
    loop: asyncio.AbstractEventLoop, caplog: pytest.LogCaptureFixture
) -> None:
    """Otherwise a place for each connection would hide how often a request is slow, and
    fill the table of places."""
    caplog.set_level(logging.INFO)

    class Connection:
        work = "PRODUCE"

        def __init__(self, port: int) -> None:
            self.peer = ("127.0.0.1", port)

        def readable(self) -> None:
            hold()

    async def run() -> None:
        for port in (7, 8):
            loop.call_soon(Connection(port).readable)
            await asyncio.sleep(0)

    loop.run_until_complete(run())
    ((place, known_place),) = known(loop).slow.items()
    assert place.endswith(": PRODUCE")
    assert known_place.count == 2
    assert ": PRODUCE for 127.0.0.1:7 (1 times" in caplog.text


def test_a_protocol_of_a_transport_is_counted_where_it_asks_for_it(loop: asyncio.AbstractEventLoop) -> None:
    """uvloop's transports call `data_received` themselves, so a TLS connection of the coordination
    service would be unseen."""

    async def run() -> None:
        measured(asyncio.get_running_loop(), hold)()
        await asyncio.sleep(0)

    loop.run_until_complete(run())
    assert any("hold (" in place for place in known(loop).slow)


def test_an_exception_passes_and_is_counted(loop: asyncio.AbstractEventLoop) -> None:
    """The measurement changes nothing for the caller."""

    async def fail() -> None:
        hold()
        raise ValueError("broken")

    with pytest.raises(ValueError, match="broken"):
        loop.run_until_complete(fail())
    assert known(loop).slow_count == 1


class Kept(NamedTuple):
    """Something small of which a server keeps very many."""

    number: int
    name: str


@contextmanager
def collecting_as_in_a_server(loop: asyncio.AbstractEventLoop) -> Iterator[LoopBudget]:
    """With a server's settings, and without the objects that this process has already."""
    callbacks, thresholds = list(gc.callbacks), gc.get_threshold()
    gc.collect()
    gc.freeze()
    gc.collect()  # walks nothing; the next one waits for a quarter of what this one leaves
    count_pauses(loop)
    limit_pauses()
    try:
        yield known(loop)
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks[:] = callbacks
        gc.unfreeze()


def test_no_number_of_objects_that_live_long_makes_a_pause_for_garbage_long(loop: asyncio.AbstractEventLoop) -> None:
    """Each is walked a few times and then never again: a pause is as long as what is
    new, not as what there is."""
    walked: list[int] = []

    def note(phase: str, info: dict[str, int]) -> None:
        if phase == "start" and info["generation"] == 2:
            walked.append(len(gc.get_objects()))  # which leaves frozen ones out

    with collecting_as_in_a_server(loop):
        gc.callbacks.append(note)
        kept = {Kept(number, "partition"): [number] for number in range(300_000)}
    assert len(kept) == 300_000
    assert len(walked) >= 10
    assert max(walked) <= 40_000, walked


def test_garbage_in_cycles_is_freed_among_objects_that_live_long(loop: asyncio.AbstractEventLoop) -> None:
    """What is garbage before it has grown old does not pile up."""

    class Link:
        def __init__(self) -> None:
            self.itself = self

    with collecting_as_in_a_server(loop):
        kept = []
        for number in range(100_000):
            Link()
            kept.append([number])
        gc.unfreeze()  # `gc.get_objects` leaves frozen ones out
        left = sum(type(found) is Link for found in gc.get_objects())
    assert left <= 10_000


def test_a_cycle_that_was_alive_at_a_freeze_is_freed_when_frozen_objects_have_doubled(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not before: to look at all objects takes long."""

    class Link:
        def __init__(self) -> None:
            self.itself = self

    gone: list[int] = []
    with collecting_as_in_a_server(loop) as budget:
        monkeypatch.setattr(event_loop, "_LEAST_FROZEN", 1)
        frozen = FrozenObjects(loop, budget)
        frozen.check()
        link = Link()
        weakref.finalize(link, gone.append, 1)
        gc.collect()  # and so it is frozen
        del link
        frozen.check()
        assert not gone
        kept = [[number] for number in range(gc.get_freeze_count() + 100_000)]
        gc.collect()
        frozen.check()
        assert gone
        assert len(kept) > 100_000
        assert gc.get_freeze_count() > len(kept)


@pytest.mark.parametrize(("quiet_s", "growth"), [(1e9, 2), (-1.0, 4)])
def test_a_busy_loop_is_not_held_for_a_look_at_all_objects_before_they_are_four_times_as_many(
    loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch, quiet_s: float, growth: int
) -> None:
    """A quiet one looks when they have doubled."""
    frozen_count, looks = 1000, 0

    def unfreeze() -> None:
        nonlocal looks
        looks += 1

    monkeypatch.setattr(event_loop, "_LEAST_FROZEN", 1000)
    monkeypatch.setattr(event_loop, "_QUIET_S", quiet_s)
    monkeypatch.setattr(event_loop, "_MOST_LOOKS", 3)
    monkeypatch.setattr(event_loop.gc, "get_freeze_count", lambda: frozen_count)
    monkeypatch.setattr(event_loop.gc, "unfreeze", unfreeze)
    budget = known(loop)
    frozen = FrozenObjects(loop, budget)
    frozen.check()
    for factor in range(1, growth + 1):
        assert looks == 0
        frozen_count = 1000 * factor
        budget.freezes = 1000
        for _ in range(3):
            frozen._look()
    assert looks == 1


def test_a_pause_for_garbage_is_no_callbacks_fault(loop: asyncio.AbstractEventLoop) -> None:
    """It is counted for itself."""
    budget = known(loop)
    callbacks = list(gc.callbacks)
    count_pauses(loop)

    def collect() -> None:
        budget.collected("start", {"generation": 1})
        began_s = time.thread_time()
        while time.thread_time() - began_s < BUSY_S:
            pass
        budget.collected("stop", {"generation": 1})

    async def run() -> None:
        loop.call_soon(collect)
        await asyncio.sleep(0)

    try:
        loop.run_until_complete(run())
    finally:
        gc.callbacks[:] = callbacks
    assert (budget.slow_count, budget.gc_count) == (0, 1)
    assert budget.gc_worst_s >= BUSY_S * 0.9


def test_a_bound_method_is_named_with_what_its_owner_serves() -> None:
    """All requests enter through one method of the connection."""

    class Connection:
        work = "PRODUCE for 127.0.0.1:1"

        def readable(self) -> None:
            """Read."""

    assert place_of(Connection().readable).endswith("PRODUCE for 127.0.0.1:1")
    assert "Connection.readable (" in place_of(Connection().readable)
