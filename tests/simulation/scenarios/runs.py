"""What runs of all kinds of scenario share: from a seed to a result, faults that a plan
draws, clients that stop."""

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from barnabas.testing.simulation.simulation import Simulation
from simulation.scenarios.coordination_clients import CoordinationUser
from simulation.scenarios.fault_injector import FaultInjector

__all__ = ["Result", "RunnableScenario", "close_users", "inject_faults", "run_scenario"]

_CLOSE_TIMEOUT_S = 10


@dataclass(slots=True)
class Result:
    """How a run went."""

    seed: int
    digest: str
    violations: list[str]
    counts: dict[str, int]
    virtual_s: float
    trace_lines: int
    faults: dict[str, int]
    trace: list[str] | None


class RunnableScenario(Protocol):
    """One run; ``fault_counts`` says how often each fault was injected."""

    fault_counts: dict[str, int]

    async def run(self) -> None:
        """From the first start to the checks."""
        ...


def run_scenario(seed: int, make: Callable[[Simulation], RunnableScenario], *, keep_trace: bool) -> Result:
    """Run what ``make`` makes on a new simulation; what went wrong is in the result."""
    with Simulation(seed, keep_trace=keep_trace) as simulation:
        scenario = make(simulation)
        start_s = simulation.now_s
        try:
            simulation.run(scenario.run())
        except Exception as error:
            simulation.history.violation(f"the scenario ended with {error!r}", error)
        return Result(
            seed=seed,
            digest=simulation.trace.digest(),
            violations=simulation.history.violations,
            counts=simulation.history.counts,
            virtual_s=simulation.now_s - start_s,
            trace_lines=simulation.trace.count,
            faults=scenario.fault_counts,
            trace=simulation.trace.lines,
        )


async def inject_faults(
    injector: FaultInjector,
    catalogue: Mapping[str, Callable[[FaultInjector], bool]],
    names: Sequence[str],
    mean_gap_s: float,
    counts: dict[str, int],
) -> None:
    """Inject faults of these names, drawn from the seed, until this is cancelled."""
    while names:
        await asyncio.sleep(injector.rng.expovariate(1 / mean_gap_s))
        name = injector.rng.choice(names)
        if catalogue[name](injector):
            counts[name] = counts.get(name, 0) + 1
            injector.simulation.trace.note(f"fault {name}")


async def close_users(simulation: Simulation, users: Iterable[CoordinationUser]) -> None:
    """End the sessions of the users of the coordination service, each in its own process."""
    for user in users:
        closing = user.process.context.run(simulation.loop.create_task, user.client.close())
        await asyncio.wait([closing], timeout=_CLOSE_TIMEOUT_S)
