"""How long a follower's fetches wait at the leader while roles change in pieces, in
virtual time."""

import asyncio
from collections.abc import Callable, Coroutine
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.base.task_futures import runner_here
from barnabas.base.tasks import Task
from barnabas.broker.cluster.channels import BrokenConnectionError
from barnabas.broker.replication.service import _ReplicaFetcherLoop
from barnabas.testing.simulation.loop import SimulatedClock, SimulatedLoop

LONGEST_WAIT_MS = 500
"""replica.fetch.wait.max.ms"""


class Leader:
    """A leader without news: it answers a fetch when its wait is over.

    A dropped connection breaks the fetch."""

    def __init__(self, loop: SimulatedLoop) -> None:
        self.loop = loop
        self.fetches: list[tuple[float, int]] = []
        """When each fetch came, and how long it was to wait."""
        self.broken = 0
        self._answer: asyncio.Future[None] | None = None

    async def version(self, _source: int, _key: int) -> int:
        return 13

    async def send(self, _source: int, wait_ms: int, *, version: int) -> None:
        self.fetches.append((self.loop.time(), wait_ms))
        self._answer = self.loop.create_future()
        timer = self.loop.call_later(wait_ms / 1000, self._answer.set_result, None)
        try:
            await self._answer
        finally:
            timer.cancel()

    def drop(self, _source: int) -> None:
        assert self._answer is not None
        self.broken += 1
        self._answer.set_exception(BrokenConnectionError("dropped"))


class WorkingClock(SimulatedClock):
    """Virtual time, with work that takes processor time."""

    def __init__(self, loop: SimulatedLoop, works_ms: int) -> None:
        super().__init__(loop)
        self._works_ms = works_ms
        self._worked_ms = 0

    def worked_ms(self) -> float:
        return self._worked_ms

    def work(self, _response: Any, _version: int, _now_ms: int, _wall_ms: int) -> Task[bool]:
        yield None
        self._worked_ms += self._works_ms
        return True


def _request(_version: int, _broker_epoch: int, wait_ms: int) -> Task[int]:
    yield None
    return min(wait_ms, LONGEST_WAIT_MS)


class Follower:
    """The loop that copies from one leader; what it asks for is the wait of the fetch alone."""

    def __init__(self, loop: SimulatedLoop, *, works_ms: int = 0, copies_what_is_behind: bool = False) -> None:
        """To append what came takes ``works_ms``."""
        self.leader = Leader(loop)
        clock = WorkingClock(loop, works_ms)
        fetcher: Any = SimpleNamespace(
            wake=lambda now_ms: None,
            offsets=SimpleNamespace(is_wanted=False),
            epochs=SimpleNamespace(is_wanted=False),
            wants_fetch=True,
            fetch_version=lambda highest: highest,
            speak=lambda version: None,
            unsynced=list,
            request=_request,
            handle_response=clock.work,
            copies_what_is_behind=copies_what_is_behind,
            take_logs_with_new_epochs=list,
            failed=lambda: None,
        )
        dependencies: Any = SimpleNamespace(
            config={"replica.fetch.backoff.ms": 1000},
            clock=clock,
            runner=runner_here(clock),
            broker_epoch=lambda: 1,
            metadata=SimpleNamespace(mark_unreachable=None, mark_reachable=None),
        )
        channels: Any = self.leader
        self.copying = _ReplicaFetcherLoop(dependencies, 1, channels, fetcher, lambda: False, lambda _: (yield))


def in_virtual_time(scenario: Callable[[SimulatedLoop], Coroutine[Any, Any, None]]) -> None:
    loop = SimulatedLoop()
    try:
        loop.run_until_complete(scenario(loop))
    finally:
        loop.close()


def test_pieces_of_a_change_of_roles_break_one_fetch_and_the_next_ones_wait_25_ms() -> None:
    """Folders are made in a thread between two pieces, which come 20 ms apart: each is asked
    for soon, without a break."""

    async def scenario(loop: SimulatedLoop) -> None:
        follower = Follower(loop)
        await asyncio.sleep(0.1)
        began_s = loop.time()
        for _ in range(50):
            follower.copying.interrupt()
            await asyncio.sleep(0.02)
        during = [fetch for fetch in follower.leader.fetches if fetch[0] >= began_s]
        assert follower.leader.broken == 1
        assert {wait_ms for _, wait_ms in during} == {25}
        times = [began_s, *(time_s for time_s, _ in during), loop.time()]
        assert max(after - before for before, after in pairwise(times)) < 0.06
        await follower.copying.close()

    in_virtual_time(scenario)


def test_fetches_wait_long_again_half_a_second_after_the_last_piece() -> None:
    """A follower without work asks twice in a second; a change after that breaks a fetch again."""

    async def scenario(loop: SimulatedLoop) -> None:
        follower = Follower(loop)
        await asyncio.sleep(0.1)
        follower.copying.interrupt()
        await asyncio.sleep(0.6)
        before = len(follower.leader.fetches)
        await asyncio.sleep(2)
        later = follower.leader.fetches[before:]
        assert [wait_ms for _, wait_ms in later] == [LONGEST_WAIT_MS] * len(later)
        assert 3 <= len(later) <= 4
        follower.copying.interrupt()
        await asyncio.sleep(0.1)
        assert follower.leader.broken == 2
        assert follower.leader.fetches[-1][1] == 25
        await follower.copying.close()

    in_virtual_time(scenario)


@pytest.mark.parametrize(
    ("copies_what_is_behind", "works_ms", "rests_ms"), [(True, 3, 3), (True, 0, 0), (True, 400, 50), (False, 3, 0)]
)
def test_a_copy_that_is_behind_rests_as_long_as_it_worked(
    copies_what_is_behind: bool, works_ms: int, rests_ms: int
) -> None:
    """What is in sync is asked for at once: producers wait for it."""

    async def scenario(loop: SimulatedLoop) -> None:
        follower = Follower(loop, works_ms=works_ms, copies_what_is_behind=copies_what_is_behind)
        await asyncio.sleep(6)
        times_ms = [round(time_s * 1000) for time_s, _ in follower.leader.fetches]
        assert {after - before for before, after in pairwise(times_ms)} == {LONGEST_WAIT_MS + rests_ms}
        await follower.copying.close()

    in_virtual_time(scenario)
