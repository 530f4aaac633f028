"""Simulated ensembles of coordination servers, with faults, and the properties of Zab that must hold.

Machines ``zk-1``, ``zk-2`` ... run the production `CoordinationServer` as members of one ensemble; `CoordinationUser`s write,
read and watch through any of them. Checked throughout:

- Two members never apply different transactions under one zxid, and the digests of their trees agree after each.
- A member that serves applies transactions in the order of their zxids, without a gap within an epoch.
- An epoch has one leader.
- What the users know of versions, sequence numbers, watches, ephemerals and zxids (see `CoordinationUser`).

And at the end, when all faults are over: all members have the same tree, in memory and on disk; it has everything that was
acknowledged; and it has no ephemeral node without its session.
"""

import asyncio
from collections.abc import Callable

from barnabas.base.errors import CorruptDataError
from barnabas.coordination.core.processor import Processor
from barnabas.coordination.server.server import CoordinationServer
from barnabas.coordination.storage.storage import Storage
from barnabas.testing.simulation.coordination_clients import CoordinationFacts, CoordinationUser
from barnabas.testing.simulation.disk import SimulatedFiles
from barnabas.testing.simulation.scenario import Result
from barnabas.testing.simulation.simulation import Machine, Simulation, member_name
from barnabas.wire.jute.quorum import epoch_of
from barnabas.wire.jute.transactions import TxnHeader

__all__ = ["EnsembleRun", "run_ensemble"]

_START_TIMEOUT_S = 60
_HEAL_TIMEOUT_S = 120
_SESSIONS_END_S = 25
_RESTART_S = (0.2, 4.0)
_DURATION_S = (15.0, 50.0)


class _Observer:
    """Watches every member apply its transactions."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._applied: dict[int, tuple[object, ...]] = {}
        self._leaders: dict[int, tuple[str, int]] = {}

    def watch(self, machine: Machine, server: CoordinationServer) -> None:
        """Look at each processor that the server serves clients with."""
        serve, life = server.serve, machine.lives

        def served(processor: Processor, mode: str) -> None:
            first_zxid = processor.database.last_zxid
            if mode == "leader":
                self._leads(machine, life, epoch_of(first_zxid))
            self._watch_processor(machine, server, processor)
            serve(processor, mode)

        server.serve = served  # type: ignore[method-assign]  # of this one object

    def _leads(self, machine: Machine, life: int, epoch: int) -> None:
        self._simulation.history.count("leaders established")
        leader = self._leaders.setdefault(epoch, (machine.name, life))
        if leader != (machine.name, life):
            self._simulation.history.violation(f"epoch {epoch} has two leaders: {leader[0]} and {machine.name}")

    def _watch_processor(self, machine: Machine, server: CoordinationServer, processor: Processor) -> None:
        commit, apply = processor.commit, processor.apply
        last_zxid = processor.database.last_zxid

        def applied(header: TxnHeader) -> None:
            nonlocal last_zxid
            if not server._is_serving:
                return  # what is logged and not committed, at the end of a role
            database, history = processor.database, self._simulation.history
            zxid = database.last_zxid
            is_next = zxid == last_zxid + 1 or (epoch_of(zxid) > epoch_of(last_zxid) and not zxid - 1 & 0xFFFFFFFF)
            if not is_next:
                history.violation(f"{machine.name} applied 0x{zxid:x} after 0x{last_zxid:x}")
            last_zxid = zxid
            found = (header.client_id, header.cxid, int(header.type), database.tree.digest)
            if self._applied.setdefault(zxid, found) != found:
                history.violation(f"{machine.name} applied {found} under 0x{zxid:x}, another {self._applied[zxid]}")
            if database.digest_mismatches:
                history.violation(f"{machine.name} has another tree than its leader at 0x{zxid:x}")
            history.count("transactions applied")

        def commit_each(count: int, now_ms: int) -> None:
            for _ in range(count):
                header = processor._proposals[0].header
                commit(1, now_ms)
                applied(header)

        def apply_one(header: TxnHeader, *rest: object) -> None:
            apply(header, *rest)  # type: ignore[arg-type]  # passed on as they come
            applied(header)

        processor.commit = commit_each  # type: ignore[method-assign]  # of this one object
        processor.apply = apply_one  # type: ignore[assignment, method-assign]  # likewise


class EnsembleRun:
    """One run."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.rng = simulation.random("ensemble")
        self.size = self.rng.choice((3, 3, 3, 5))
        self.users: list[CoordinationUser] = []
        self.facts = CoordinationFacts()
        self.fault_counts: dict[str, int] = {}
        self._observer = _Observer(simulation)
        simulation.ensemble_size = self.size
        simulation.on_member = self._observer.watch
        self._is_over = False

    @property
    def members(self) -> list[Machine]:
        """The members' machines, by id."""
        return [self.simulation.machine(member_name(number)) for number in range(1, self.size + 1)]

    async def run(self) -> None:
        """From the first start to the checks."""
        simulation = self.simulation
        for machine in self.members:
            simulation.start(machine)
        await simulation.until(self._all_serve, _START_TIMEOUT_S, "the ensemble starts")
        self.users += [CoordinationUser(simulation, number, self.facts) for number in range(4)]
        duration_s = self.rng.uniform(*_DURATION_S)
        faults = simulation.loop.create_task(self._faults())
        await asyncio.sleep(duration_s)
        faults.cancel()
        await asyncio.wait([faults])
        if not faults.cancelled():
            faults.result()
        self._is_over = True
        await self._end()

    def _all_serve(self) -> bool:
        return all(machine.is_serving and machine.server._is_serving for machine in self.members)

    async def _end(self) -> None:
        simulation = self.simulation
        for machine in self.members:
            machine.is_wanted = True
        simulation.heal()
        await simulation.until(self._all_serve, _HEAL_TIMEOUT_S, "all members serve again after healing")
        for user in self.users:
            user.is_stopping = True
        await simulation.until(
            lambda: all(user.task.done() for user in self.users), _HEAL_TIMEOUT_S, "the coordination users finish"
        )
        for user in self.users:
            user.task.result()
            closing = user.process.context.run(simulation.loop.create_task, user.client.close())
            await asyncio.wait([closing], timeout=10)
        await asyncio.sleep(_SESSIONS_END_S)
        await simulation.until(self._all_serve, _HEAL_TIMEOUT_S, "all members serve at the end")
        await simulation.until(self._all_equal, _HEAL_TIMEOUT_S, "all members have the same tree")
        for machine in self.members:
            if machine.server is not None:
                self._check_tree(machine.name, machine.server._processor.database.tree.nodes)
                for session_id in machine.server._processor.database.session_timeouts_ms:
                    simulation.history.violation(f"{machine.name}: session 0x{session_id:x} outlived its client")
        for machine in self.members:
            await simulation.stop(machine)
            self._check_files(machine)
        if simulation.history.counts.get("coordination writes", 0) < 5:
            simulation.history.count("runs with few writes")

    def _states(self) -> list[tuple[int, int]]:
        databases = [machine.server._processor.database for machine in self.members if machine.server is not None]
        return [(database.last_zxid, database.tree.digest) for database in databases]

    def _all_equal(self) -> bool:
        states = self._states()
        return len(states) == self.size and len(set(states)) == 1

    def _check_tree(self, where: str, nodes: "dict[str, object]") -> None:
        history = self.simulation.history
        for path, version in self.facts.versions:
            node = nodes.get(path)
            if node is None or node.version < version:  # type: ignore[attr-defined]  # a DataNode
                history.violation(f"{where}: {path}: version {version} was acknowledged, {node} is there")
        for path in self.facts.names:
            if path not in nodes and path not in self.facts.deleted:
                history.violation(f"{where}: {path} was acknowledged and is gone")
        for path, node in nodes.items():
            if node.is_ephemeral:  # type: ignore[attr-defined]  # a DataNode
                history.violation(f"{where}: {path} outlived its session")

    def _check_files(self, machine: Machine) -> None:
        storage = Storage(SimulatedFiles(machine.disk), "/data", "/data", preallocate_bytes=0)
        try:
            database, _ = storage.load()
        except CorruptDataError as error:
            self.simulation.history.violation(f"the files of {machine.name}: {error}")
            return
        if database.digest_mismatches:
            self.simulation.history.violation(f"the files of {machine.name} replay to another tree")
        self._check_tree(f"the files of {machine.name}", database.tree.nodes)  # type: ignore[arg-type]  # DataNodes

    # Faults

    async def _faults(self) -> None:
        kinds: tuple[tuple[str, Callable[[], bool]], ...] = (
            ("kill", self._kill),
            ("kill the leader", self._kill_leader),
            ("kill amid writing", self._kill_amid),
            ("power loss", self._power_loss),
            ("power loss of all", self._power_loss_of_all),
            ("pause", self._pause),
            ("cut off", self._cut_off),
            ("cut between two", self._cut_between),
            ("slow disk", self._slow_disk),
        )
        chosen = self.rng.sample(kinds, self.rng.randint(2, len(kinds)))
        gap_s = self.rng.uniform(1.0, 6.0)
        while True:
            await asyncio.sleep(self.rng.expovariate(1 / gap_s))
            name, fault = self.rng.choice(chosen)
            if fault():
                self.fault_counts[name] = self.fault_counts.get(name, 0) + 1
                self.simulation.trace.note(f"fault {name}")

    def _some(self) -> Machine | None:
        running = [machine for machine in self.members if machine.is_running]
        return self.rng.choice(running) if running else None

    def _later(self, delay_s: tuple[float, float], what: Callable[[], None]) -> None:
        def do() -> None:
            if not self._is_over:
                what()

        self.simulation.loop.call_outside(int(self.rng.uniform(*delay_s) * 1_000_000), do)

    def _restart_later(self, machine: Machine) -> None:
        machine.is_wanted = True

        def start() -> None:
            if not machine.is_running:
                self.simulation.start(machine)

        self._later(_RESTART_S, start)

    def _kill(self) -> bool:
        machine = self._some()
        if machine is not None:
            self.simulation.kill(machine)
            self._restart_later(machine)
        return machine is not None

    def _kill_leader(self) -> bool:
        for machine in self.members:
            if machine.is_serving and machine.server._is_serving and machine.server._mode == "leader":
                self.simulation.kill(machine)
                self._restart_later(machine)
                return True
        return False

    def _kill_amid(self) -> bool:
        machine = self._some()
        if machine is not None:
            self.simulation.kill_within(machine, self.rng.randrange(40), power=self.rng.random() < 0.5)
            self._later((0.5, 1.0), lambda: self.simulation.power_off(machine))
            machine.is_wanted = True
            self._later((1.5, 5.0), lambda: None if machine.is_running else self.simulation.start(machine))
        return machine is not None

    def _power_loss(self) -> bool:
        machine = self._some()
        if machine is not None:
            self.simulation.power_off(machine)
            self._restart_later(machine)
        return machine is not None

    def _power_loss_of_all(self) -> bool:
        for machine in self.members:
            self.simulation.power_off(machine)
            self._restart_later(machine)
        return True

    def _pause(self) -> bool:
        machine = self._some()
        if machine is not None:
            self.simulation.pause(machine)
            self._later((0.1, 8.0), lambda: self.simulation.resume(machine))
        return machine is not None

    def _cut_off(self) -> bool:
        machine = self._some()
        if machine is not None:
            inward, outward = self.rng.choice(((True, True), (True, False), (False, True)))
            others = [each for each in self.simulation.machines if each != machine.name]
            self.simulation.isolate(machine, others, inward=inward, outward=outward)
            self._later((0.5, 10.0), self.simulation.fabric.heal)
        return machine is not None

    def _cut_between(self) -> bool:
        first, second = self.rng.sample(self.members, 2)
        self.simulation.isolate(first, [second.name], inward=True, outward=True)
        self._later((0.5, 10.0), self.simulation.fabric.heal)
        return True

    def _slow_disk(self) -> bool:
        machine = self._some()
        if machine is not None:
            disk = machine.disk
            disk.slowness = self.rng.choice((5.0, 50.0))

            def heal() -> None:
                disk.slowness = 1.0

            self._later((1.0, 6.0), heal)
        return machine is not None


def run_ensemble(seed: int, *, keep_trace: bool = False) -> Result:
    """One run; what went wrong is in the result."""
    with Simulation(seed, keep_trace=keep_trace) as simulation:
        run = EnsembleRun(simulation)
        start_s = simulation.now_s
        try:
            simulation.run(run.run())
        except Exception as error:
            simulation.history.violation(f"the scenario ended with {error!r}", error)
        return Result(
            seed=seed,
            digest=simulation.trace.digest(),
            violations=simulation.history.violations,
            counts=simulation.history.counts,
            virtual_s=simulation.now_s - start_s,
            trace_lines=simulation.trace.count,
            faults=run.fault_counts,
            trace=simulation.trace.lines,
        )
