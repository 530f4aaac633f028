"""A simulated ensemble that starts from stored, damaged disks, and what clients read from it.

See `damage`."""

import asyncio
from dataclasses import dataclass, field

from barnabas.coordination.client import CoordinationClient
from barnabas.testing.simulation.simulation import Machine, Simulation
from barnabas.wire.jute.errors import KeeperError
from support.damage import Damage, Disks, Outcome, Reports, disks_of, fill

__all__ = ["StoredEnsemble", "start_damaged_ensemble", "store_ensemble"]

_WRITES = 30
_SERVES_S = 60
_SESSION_MS = 4000


@dataclass
class StoredEnsemble:
    """What the disks of an ensemble hold after its servers stopped, and the znodes
    that were acknowledged."""

    servers: int
    disks: Disks = field(default_factory=dict)
    acknowledged: set[str] = field(default_factory=set)


def _simulation(seed: int, servers: int) -> Simulation:
    simulation = Simulation(seed)
    simulation.layout.servers = servers
    simulation.coordination_settings["snapCount"] = "16"  # several log files and snapshots
    return simulation


async def _all_serve(simulation: Simulation, machines: list[Machine]) -> bool:
    return await simulation.until(lambda: all(each.is_serving for each in machines), _SERVES_S, "the servers serve")


def store_ensemble(servers: int, *, is_stale: bool, clean: bool, seed: int = 1) -> StoredEnsemble:
    """Znodes of two epochs; then all servers stop in order, or are killed.

    A stale server 1 was down for the last of them."""
    stored = StoredEnsemble(servers)
    with _simulation(seed, servers) as simulation:
        simulation.run(_store(simulation, stored, is_stale=is_stale, clean=clean))
        assert not simulation.history.violations, simulation.history.violations
        stored.disks = disks_of(simulation.coordination)
    return stored


async def _store(simulation: Simulation, stored: StoredEnsemble, *, is_stale: bool, clean: bool) -> None:
    simulation.start_coordination()
    first, *others = machines = simulation.coordination
    await _all_serve(simulation, machines)
    await _write(simulation, stored, "client-1")
    simulation.kill(first, restart=False)
    if stored.servers > 1:
        await asyncio.sleep(10)
        await _all_serve(simulation, others)
        await _write(simulation, stored, "client-2")
    if not is_stale:
        simulation.start(first)
        await _all_serve(simulation, machines)
        await _write(simulation, stored, "client-3")
    for machine in machines:
        if clean:
            await simulation.stop(machine)
        else:
            simulation.kill(machine, restart=False)


def _client(simulation: Simulation, name: str) -> CoordinationClient:
    machine = simulation.machine(name)
    process = machine.boot()
    return CoordinationClient(
        machine.network(), simulation.layout.connect_string, rng=process.rng, session_timeout_ms=_SESSION_MS
    )


async def _in(simulation: Simulation, name: str, work):  # type: ignore[no-untyped-def]  # any coroutine and its result
    """Run a coroutine in a client's process."""
    process = simulation.machine(name).process
    assert process is not None
    return await process.context.run(simulation.loop.create_task, work)


async def _write(simulation: Simulation, stored: StoredEnsemble, name: str) -> None:
    client = _client(simulation, name)

    async def write() -> None:
        await client.start(_SERVES_S * 1000)
        await client.ensure_path("/kept")
        for _ in range(_WRITES):
            path, _ = await client.create(f"/kept/{len(stored.acknowledged):04}", b"v" * 20)
            stored.acknowledged.add(path)
        await client.close()

    await _in(simulation, name, write())


def start_damaged_ensemble(stored: StoredEnsemble, damage: Damage | None, *, seed: int = 2) -> Outcome:
    """Start the ensemble with one file damaged; None leaves the disks as they are."""
    outcome = Outcome()
    with (
        Reports(outcome, damage.machine if damage else "") as reports,
        _simulation(seed, stored.servers) as simulation,
    ):
        for machine in simulation.coordination:
            fill(machine, stored.disks, damage)
        simulation.run(_start_and_read(simulation, stored, outcome))
        reports.take(simulation)
    return outcome


async def _start_and_read(simulation: Simulation, stored: StoredEnsemble, outcome: Outcome) -> None:
    simulation.start_coordination()
    await asyncio.sleep(20)
    client = _client(simulation, "reader")

    async def read() -> set[str]:
        try:
            await client.start(_SERVES_S * 1000)
            children, _ = await client.get_children("/kept")
            await client.close()
        except KeeperError:
            return set()
        return {f"/kept/{name}" for name in children}

    found = await _in(simulation, "reader", read())
    outcome.missing = sorted(stored.acknowledged - found)
    # With a majority of sound servers everything is served: what is missing is lost.
    outcome.lost = outcome.missing
