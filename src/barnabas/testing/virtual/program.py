"""A program of the user's in a simulated cluster: a coroutine on a machine of its own, that
can be killed and paused."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from barnabas.base.errors import BarnabasError
from barnabas.testing.simulation.simulation import Machine, Simulation

__all__ = ["ProgramKilledError", "VirtualProgram"]

T = TypeVar("T")

_LOOK_S = 0.01


class ProgramKilledError(BarnabasError):
    """The program that is waited for was killed."""


class VirtualProgram(Generic[T]):
    """One run of a program; `wait` gives what it returns. Made by `VirtualCluster.start`."""

    def __init__(self, simulation: Simulation, machine: Machine, make: Callable[[], Coroutine[Any, Any, T]]) -> None:
        self._simulation = simulation
        self._machine = machine
        self._process = machine.boot()
        self._task: asyncio.Task[T] = self._process.context.run(simulation.loop.create_task, self._run(make))
        self.is_awaited = False

    async def _run(self, make: Callable[[], Coroutine[Any, Any, T]]) -> T:
        try:
            return await make()
        finally:
            # As a process that ends: its connections are closed, its other tasks are gone.
            self._simulation.loop.call_outside(0, self._end)

    def _end(self) -> None:
        if self._machine.process is self._process:
            self._simulation.kill(self._machine)

    @property
    def name(self) -> str:
        """Its machine's name."""
        return self._machine.name

    @property
    def is_running(self) -> bool:
        """Whether it has neither ended nor been killed."""
        return self._process.is_alive and not self._task.done()

    @property
    def failure(self) -> BaseException | None:
        """What ended it, if it ended with an exception."""
        return self._task.exception() if self._task.done() and not self._task.cancelled() else None

    def kill(self) -> None:
        """As kill -9: nothing of it runs any more, not even ``finally`` (Python runs that
        when the whole run is over)."""
        self._end()

    def pause(self) -> None:
        """As kill -STOP, until `resume`."""
        if self.is_running:
            self._simulation.pause(self._machine)

    def resume(self) -> None:
        """As kill -CONT."""
        if self.is_running:
            self._simulation.resume(self._machine)

    async def wait(self) -> T:
        """What it returns; raises what it raises, and `ProgramKilledError` when it was killed."""
        self.is_awaited = True
        while self.is_running:  # noqa: ASYNC110  # a killed program sets no event
            await asyncio.sleep(_LOOK_S)
        if not self._task.done():
            raise ProgramKilledError(f"{self.name} was killed")
        return self._task.result()
