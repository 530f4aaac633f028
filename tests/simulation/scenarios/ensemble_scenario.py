"""One run of an ensemble of coordination servers alone: clients, faults drawn from the
seed, a calm end, the checks.

Beside what `EnsembleObserver` checks throughout, every acknowledged write must be in the files of
every server at the end, versions and sequence numbers must have neither gaps nor repeats, zxids of
a session must never decrease from server to server, watches must fire before the change is read,
and no ephemeral node may outlive its session or die before it.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from barnabas.base.randomness import Random
from barnabas.testing.simulation.loop import Process
from barnabas.testing.simulation.reconfigurations import EnsembleOperator
from barnabas.testing.simulation.simulation import CoordinationLayout, Machine, Simulation
from simulation.scenarios import checks
from simulation.scenarios.coordination_clients import CoordinationFacts, CoordinationUser
from simulation.scenarios.fault_injector import FaultInjector
from simulation.scenarios.faults import FAULTS, cut_off
from simulation.scenarios.runs import Result, close_users, inject_faults, run_scenario

__all__ = ["ENSEMBLE_FAULTS", "EnsemblePlan", "ensemble_plan_of", "run_ensemble_seed"]

RECONFIGURE = "reconfigure"
_START_TIMEOUT_S = 60
_HEAL_TIMEOUT_S = 90
_SESSIONS_END_S = 15
_CALM_EVERY = 5
_MOST_FAULTS = 5
_BOOT_S = (1.0, 9.0)
_CUT_S = (0.5, 9.0)


def _leading(faults: FaultInjector) -> list[Machine]:
    return [
        machine for machine in faults.simulation.coordination if machine.is_serving and machine.server.mode == "leader"
    ]


def _leader(faults: FaultInjector) -> bool:
    """The leader is killed, loses its power, is paused for long, or cut off from the others
    but not from its clients."""
    leaders = _leading(faults)
    if not leaders:
        return False
    machine, simulation = faults.rng.choice(leaders), faults.simulation
    match faults.rng.randrange(5):
        case 0:
            simulation.kill(machine)
            faults.restart_later(machine)
        case 1:
            simulation.power_off(machine)
            faults.restart_later(machine, _BOOT_S)
        case 2:
            simulation.pause(machine)
            faults.later(1.0, 8.0, lambda: simulation.resume(machine))
        case 3:
            simulation.kill_within(machine, faults.rng.randrange(10), power=faults.rng.random() < 0.5)
            faults.later(2.0, 3.0, lambda: simulation.kill(machine))
            faults.restart_later(machine, (3.0, 6.0))
        case _:
            inward, outward = faults.rng.choice(((True, True), (True, False), (False, True)))
            cut_off(faults, [machine.name], simulation.layout.names, _CUT_S, inward=inward, outward=outward)
    return True


def _parts(faults: FaultInjector) -> bool:
    """The ensemble falls into two parts; each client reaches one of them or both."""
    simulation, rng = faults.simulation, faults.rng
    names = simulation.layout.names
    part = rng.sample(names, rng.randint(1, len(names) - 1))
    others = [name for name in names if name not in part]
    for name in simulation.machines:
        if name not in names:
            rng.choice((part, others, []))[:0] = [name]
    cut_off(faults, part, others, _CUT_S)
    return True


def _most(faults: FaultInjector) -> bool:
    """A majority, or all, lose their power at once, some in the middle of a file operation."""
    simulation, rng = faults.simulation, faults.rng
    running = [machine for machine in simulation.coordination if machine.is_running]
    if len(running) < len(simulation.coordination):
        return False
    for machine in rng.sample(running, rng.randint(len(running) // 2 + 1, len(running))):
        if rng.random() < 0.5:
            simulation.power_off(machine)
        else:
            simulation.kill_within(machine, rng.randrange(6), power=True)
            faults.later(0.3, 0.6, lambda machine=machine: simulation.power_off(machine))  # type: ignore[misc]  # bound now
        faults.restart_later(machine, _BOOT_S)
    return True


def _roll(faults: FaultInjector) -> bool:
    """All servers are stopped in order and started again, one after the other."""
    if faults.is_rolling:
        return False
    faults.is_rolling = True

    async def roll() -> None:
        for machine in faults.simulation.coordination:
            if machine.is_serving and not faults.is_over:
                await faults.simulation.stop(machine)
                machine.is_wanted = True
                if not machine.is_running:
                    faults.simulation.start(machine)
                await asyncio.sleep(faults.rng.random() * 4)
        faults.is_rolling = False

    faults.simulation.loop.create_task(roll())  # the run outlives it, or does not
    return True


def _reconfigure(faults: FaultInjector) -> bool:
    """A server joins, leaves or changes its role, or all members are replaced."""
    return faults.reconfigure()


_COMMON = (
    "kill",
    "power",
    "pause",
    "partition",
    "loss",
    "disk error",
    "disk full",
    "failed sync",
    "slow disk",
    "clock jump",
    "restart",
)
ENSEMBLE_FAULTS: dict[str, Callable[[FaultInjector], bool]] = {
    **{name: FAULTS[name] for name in _COMMON},
    "ensemble leader": _leader,
    "ensemble parts": _parts,
    "power of most": _most,
    RECONFIGURE: _reconfigure,
    "roll": _roll,
}


@dataclass(slots=True)
class EnsemblePlan:
    """A run."""

    servers: int
    observers: int
    users: int
    duration_s: float
    faults: tuple[str, ...]
    mean_fault_gap_s: float
    snap_count: int
    commit_log_count: int
    """with few recent transactions, members that come back get those of the log"""
    spares: int = 0
    """servers that are no members at first"""


def ensemble_plan_of(seed: int) -> EnsemblePlan:
    """What a seed decides before its run."""
    rng = Random(f"{seed} ensemble plan")
    faults: tuple[str, ...] = ()
    if seed % _CALM_EVERY:
        faults = tuple(sorted(rng.sample(sorted(ENSEMBLE_FAULTS), rng.randint(1, _MOST_FAULTS))))
    voters = rng.choices((2, 3, 4, 5), (1, 8, 1, 3))[0]
    observers = int(rng.random() < 0.3)
    return EnsemblePlan(
        servers=voters + observers,
        observers=observers,
        users=rng.choice((1, 2, 3, 4)),
        duration_s=rng.choices((10.0, 15.0, 25.0, 40.0), (4, 4, 2, 1))[0],
        faults=faults,
        mean_fault_gap_s=rng.choice((1.0, 2.5, 5.0)),
        snap_count=rng.choice((4, 20, 100)),
        commit_log_count=rng.choice((1, 5, 500)),
        spares=rng.choice((0, 1, 2)) if RECONFIGURE in faults else 0,
    )


class _EnsembleScenario:
    """One run; see the module."""

    def __init__(self, simulation: Simulation, plan: EnsemblePlan) -> None:
        self.simulation = simulation
        self.plan = plan
        self.rng = simulation.random("faults")
        self.injector = FaultInjector(simulation, self.rng, wiping=lambda _machine: None, damaged=lambda *_: None)
        self.facts = CoordinationFacts()
        self.users: list[CoordinationUser] = []
        self.operator: EnsembleOperator | None = None
        self.operator_process: Process
        self.fault_counts: dict[str, int] = {}
        simulation.layout = CoordinationLayout(
            plan.servers, plan.observers, plan.spares, can_change=RECONFIGURE in plan.faults
        )
        simulation.coordination_settings |= {
            "snapCount": str(plan.snap_count),
            "commitLogCount": str(plan.commit_log_count),
            "snapshotSizeFactor": "0",
        }

    async def run(self) -> None:
        """From the first start to the checks."""
        simulation, plan = self.simulation, self.plan
        simulation.start_coordination()
        await simulation.until(self._all_serve, _START_TIMEOUT_S, "the ensemble starts")
        if not simulation.history.violations:
            for number in range(plan.users):
                self.users.append(CoordinationUser(simulation, number, self.facts))
            if simulation.layout.can_change:
                self._start_operator()
            faults = simulation.loop.create_task(
                inject_faults(
                    self.injector, ENSEMBLE_FAULTS, self.plan.faults, self.plan.mean_fault_gap_s, self.fault_counts
                )
            )
            await asyncio.sleep(plan.duration_s)
            self.injector.is_over = True
            faults.cancel()
            await asyncio.wait([faults])
            if not faults.cancelled():
                faults.result()
        await self._end()
        checks.check_coordination(simulation, self.facts)
        writes = simulation.history.counts.get("coordination writes", 0)
        if not plan.faults and not writes and not simulation.history.violations:
            simulation.history.violation("the run was vacuous: no writes")

    def _start_operator(self) -> None:
        simulation = self.simulation
        machine = simulation.machine("operator")
        self.operator_process = process = machine.boot()
        layout = simulation.layout
        self.operator = operator = EnsembleOperator(
            machine.network(), layout.connect_string, layout.names, process.rng, simulation.history
        )
        self.injector.reconfigure = lambda: process.context.run(operator.change)
        process.context.run(simulation.loop.create_task, operator.start())

    def _all_serve(self) -> bool:
        return all(machine.is_serving for machine in self.simulation.coordination)

    async def _end(self) -> None:
        simulation = self.simulation
        for machine in simulation.coordination:
            machine.is_wanted = True
        simulation.heal()
        await simulation.until(self._all_serve, _HEAL_TIMEOUT_S, "all servers serve again after healing")
        for user in self.users:
            user.is_stopping = True
        await simulation.until(
            lambda: all(user.task.done() for user in self.users), _HEAL_TIMEOUT_S, "the coordination users finish"
        )
        for user in self.users:
            if user.task.done():
                user.task.result()
        await close_users(simulation, self.users)
        if self.operator is not None:
            closing = self.operator_process.context.run(simulation.loop.create_task, self.operator.close())
            await asyncio.wait([closing], timeout=10)
        await asyncio.sleep(_SESSIONS_END_S)
        await simulation.until(self._all_serve, _HEAL_TIMEOUT_S, "all servers serve at the end")
        checks.check_sessions(simulation)
        for machine in simulation.coordination:
            await simulation.stop(machine)


def run_ensemble_seed(seed: int, *, keep_trace: bool = False, plan: EnsemblePlan | None = None) -> Result:
    """One run; what went wrong is in the result."""
    drawn = plan or ensemble_plan_of(seed)
    return run_scenario(seed, lambda simulation: _EnsembleScenario(simulation, drawn), keep_trace=keep_trace)
