"""A simulated cluster: machines with a disk, an address and at most one process, and
the faults that meet them.

Machine ``zk`` runs the production `CoordinationServer`, or machines ``zk-N`` an ensemble of them;
machines ``broker-N`` run the production `BrokerServer`, others whatever a scenario's clients do.
`Simulation` starts and kills them and lets virtual time pass; it decides nothing: a scenario does
(``tests/simulation/scenarios/scenario.py``). All randomness comes from generators that are drawn
from one seed, one for each purpose, so that a change in one place moves little in others.
"""

import asyncio
import contextlib
import gc
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from typing import Any, Self

from barnabas.base.errors import BarnabasError
from barnabas.base.files import make_dirs_durably
from barnabas.base.randomness import Random
from barnabas.base.settings import read_properties
from barnabas.broker.server import BrokerServer
from barnabas.coordination.core.paths import CONFIG_PATH
from barnabas.coordination.quorum.configuration import is_dynamic
from barnabas.coordination.server.server import CoordinationServer
from barnabas.coordination.server.settings import parse_settings
from barnabas.testing.simulation.disk import Disk, SimulatedFiles
from barnabas.testing.simulation.ensemble import EnsembleObserver, next_proposals, watch_database
from barnabas.testing.simulation.history import History
from barnabas.testing.simulation.loop import Process, ProcessState, SimulatedClock, SimulatedLoop, current_process
from barnabas.testing.simulation.network import Fabric, SimulatedNetwork
from barnabas.testing.simulation.reconfigurations import ZOO_CFG, prepare_zoo_cfg, server_line
from barnabas.testing.simulation.trace import Trace

__all__ = [
    "BROKER_PORT",
    "COORDINATION",
    "COORDINATION_PORT",
    "CoordinationLayout",
    "Machine",
    "Simulation",
    "broker_name",
]

COORDINATION = "zk"
COORDINATION_PORT = 2181
BROKER_PORT = 9092
_RESTART_TRIES = 60
_STOP_TIMEOUT_S = 60
_BROKER_SETTINGS = {
    "zookeeper.session.timeout.ms": "6000",
    "zookeeper.connection.timeout.ms": "20000",
    "log.dirs": "/logs",
    "group.initial.rebalance.delay.ms": "100",
    "log.segment.bytes": "16384",
    "log.retention.ms": "-1",
    "log.flush.scheduler.interval.ms": "1000",
    "log.flush.offset.checkpoint.interval.ms": "3000",
    "replica.high.watermark.checkpoint.interval.ms": "2000",
    "request.timeout.ms": "5000",
    "auto.create.topics.enable": "false",
    "replica.lag.time.max.ms": "3000",
    "log.retention.check.interval.ms": "3000",
    "log.cleaner.backoff.ms": "2000",
    "leader.imbalance.check.interval.seconds": "7",
    "controlled.shutdown.retry.backoff.ms": "500",
}
_COORDINATION_SETTINGS = {
    "dataDir": "/data",
    "clientPort": str(COORDINATION_PORT),
    "tickTime": "1000",
    "preAllocSize": "16",
    "snapCount": "200",
    "maxClientCnxns": "0",
}
_ENSEMBLE_SETTINGS = {"initLimit": "5", "syncLimit": "2"}
_CHANGING_SETTINGS = {"reconfigEnabled": "true", "skipACL": "yes"}


def broker_name(broker_id: int) -> str:
    """The machine of a broker; also its address."""
    return f"broker-{broker_id}"


@dataclass(slots=True)
class CoordinationLayout:
    """The coordination service: one server, or an ensemble, the last of whose
    members may have no vote."""

    servers: int = 1
    observers: int = 0
    spares: int = 0
    """servers that are no members at first"""
    can_change: bool = False
    """whether the members change while the ensemble runs"""

    @property
    def is_ensemble(self) -> bool:
        """Whether there are several servers."""
        return self.servers > 1

    @property
    def names(self) -> list[str]:
        """The servers' machines."""
        return (
            [f"{COORDINATION}-{n + 1}" for n in range(self.servers + self.spares)]
            if self.is_ensemble
            else [COORDINATION]
        )

    @property
    def connect_string(self) -> str:
        """What clients connect to."""
        return ",".join(f"{name}:{COORDINATION_PORT}" for name in self.names)

    def members(self) -> dict[str, str]:
        """The server lines of an ensemble."""
        roles = ["participant"] * (self.servers - self.observers) + ["observer"] * self.observers
        names = list(zip(self.names, roles, strict=False))
        if self.can_change:
            return {f"server.{n}": server_line(name, role) for n, (name, role) in enumerate(names, 1)}
        return {f"server.{n}": f"{name}:2888:3888:{role}" for n, (name, role) in enumerate(names, 1)}


class Machine:
    """A disk, an address, clocks, and the process that runs at the moment."""

    def __init__(self, simulation: "Simulation", name: str) -> None:
        self._simulation = simulation
        self.name = name
        self.clock = SimulatedClock(simulation.loop)
        self.disk = Disk(simulation.random(f"disk {name}"), self.clock, simulation.trace, name=name)
        self.host = simulation.fabric.host(name)
        self.process: Process | None = None
        self.files: SimulatedFiles | None = None
        self.server: Any = None
        """Once it has started."""
        self.starting: Any = None
        """From the moment it is made: it may take requests before its start is over."""
        self.lives = 0
        self.is_wanted = False

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.is_alive

    @property
    def is_serving(self) -> bool:
        """Whether its server has started; a member of an ensemble has a role, too."""
        return self.is_running and self.server is not None and getattr(self.server, "_is_serving", True)

    def boot(self) -> Process:
        """A new process, with nothing running in it yet."""
        assert not self.is_running, self.name
        self.lives += 1
        simulation = self._simulation
        process = Process(simulation.loop, self.name, simulation.random(f"process {self.name} {self.lives}"))
        process.io_delay_us = self.disk.io_delay_us
        self.host.is_up = True
        self.process = process
        self.server = self.starting = None
        self.files = SimulatedFiles(self.disk, process)
        return process

    def network(self) -> SimulatedNetwork:
        """The process's network."""
        assert self.process is not None
        return SimulatedNetwork(self._simulation.fabric, self.host, self.process)


class Simulation:
    """See the module. Use as a context manager; ``seed`` decides everything."""

    def __init__(self, seed: int, *, keep_trace: bool = False) -> None:
        self.seed = seed
        self.loop = SimulatedLoop(self._uncaught)
        self.trace = Trace(self.loop, keep=keep_trace)
        self.fabric = Fabric(self.loop, self.random("network"), self.trace)
        self.history = History(self.loop)
        self.machines: dict[str, Machine] = {}
        self.broker_settings: dict[str, str] = {}
        self.layout = CoordinationLayout()
        """Set before anything starts."""
        self.coordination_settings: dict[str, str] = {}
        self.faults = 0
        self.on_kill: list[Callable[[Machine], None]] = []
        self.on_power_loss: list[Callable[[Machine], None]] = []
        self.on_commit: list[Callable[[list[str]], None]] = []
        """Called with the znodes' paths when the coordination service has committed
        a transaction."""
        self.ensemble = EnsembleObserver(self.history, self.on_commit)
        self._logging = _ErrorsHeard(self)

    def random(self, purpose: str) -> Random:
        """A generator of its own for a purpose."""
        return Random(f"{self.seed} {purpose}")

    def __enter__(self) -> Self:
        self._gc_was_enabled = gc.isenabled()
        if not gc.get_freeze_count():
            # Modules are no garbage, and looking through them after each run took a
            # tenth of the time.
            gc.freeze()
        gc.disable()  # a collection would end coroutines at a moment that depends on the machine
        self._logging.install()
        return self

    def __exit__(self, *_: object) -> None:
        for machine in self.machines.values():
            if machine.process is not None and machine.process.is_alive:
                machine.process.die()
        self.loop.close()
        self._logging.remove()
        if self._gc_was_enabled:
            gc.enable()

    # Time

    @property
    def now_s(self) -> float:
        return self.loop.time()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """Run a scenario's coroutine to its end."""
        return self.loop.run_until_complete(work)

    async def until(self, condition: Callable[[], object], timeout_s: float, what: str) -> bool:
        """Wait in virtual time; whether the condition came true.

        Else the history has a violation."""
        deadline = self.loop.time() + timeout_s
        while not condition():
            if self.loop.time() >= deadline:
                self.history.violation(f"{what}: not within {timeout_s:.0f} s of virtual time")
                return False
            await asyncio.sleep(0.05)
        return True

    # Machines

    def machine(self, name: str) -> Machine:
        """The machine of a name, made when it is new."""
        if name not in self.machines:
            self.machines[name] = Machine(self, name)
        return self.machines[name]

    @property
    def brokers(self) -> list[Machine]:
        """All brokers' machines, by id."""
        return [machine for name, machine in self.machines.items() if name.startswith("broker-")]

    @property
    def coordination(self) -> list[Machine]:
        """The machines of the coordination service."""
        return [self.machine(name) for name in self.layout.names]

    def start_coordination(self) -> None:
        """Start the coordination service."""
        for machine in self.coordination:
            self._start_coordination_server(machine)

    def _start_coordination_server(self, machine: Machine) -> None:
        """Start a server; a failure to start is a violation unless its disk is at fault."""
        texts = {**_COORDINATION_SETTINGS, **self.coordination_settings}
        if self.layout.is_ensemble:
            texts |= {**_ENSEMBLE_SETTINGS, **self.coordination_settings}
            files = SimulatedFiles(machine.disk)
            if not files.exists("/data/myid"):
                make_dirs_durably(files, "/data")
                files.write_atomically("/data/myid", machine.name.rpartition("-")[2].encode())
            if self.layout.can_change:
                texts = self._zoo_cfg(machine, files, texts | _CHANGING_SETTINGS)
            else:
                texts |= self.layout.members()

        def make() -> CoordinationServer:
            process, files = machine.process, machine.files
            assert process is not None
            server = CoordinationServer(
                parse_settings(texts),
                config_path=ZOO_CFG if self.layout.can_change else None,
                files=files,
                clock=machine.clock,
                rng=process.rng,
                network=machine.network(),
                executor=_NoExecutor(),  # type: ignore[arg-type]  # the loop does not use it
            )
            server.piece_changes = 1  # so that whatever may come between two pieces does
            return server

        self._start(machine, make, lambda server: server.wait_failed())

    def _zoo_cfg(self, machine: Machine, files: SimulatedFiles, texts: dict[str, str]) -> dict[str, str]:
        node = self.ensemble.database.tree.get(CONFIG_PATH)
        lines = self.layout.members()
        if node is not None and node.data:
            lines = {name: text for name, text in read_properties(node.data.decode()).items() if is_dynamic(name)}
        role = self.random(f"role {machine.name} {machine.lives}").choice(("participant", "observer"))
        return prepare_zoo_cfg(files, machine.name, texts, lines, role)

    def _hear_commits(self, server: CoordinationServer) -> None:
        """Call `on_commit` for every transaction, also of those that become durable together."""
        processor = server.processor
        commit = processor.commit
        paths_of: dict[int, list[str]] = {}

        def committing(count: int, now_ms: int) -> None:
            paths_of.update((header.zxid, paths) for header, _, paths in next_proposals(processor, count))
            commit(count, now_ms)

        def applied(zxid: int) -> None:
            paths = paths_of.pop(zxid)
            for listener in self.on_commit:
                listener(paths)

        processor.commit = committing  # type: ignore[method-assign]  # of this one object
        watch_database(processor.database, applied)

    def start_broker(self, broker_id: int) -> None:
        """Start a broker."""
        machine = self.machine(broker_name(broker_id))
        texts = {
            **_BROKER_SETTINGS,
            "zookeeper.connect": self.layout.connect_string,
            "broker.id": str(broker_id),
            "listeners": f"PLAINTEXT://{machine.name}:{BROKER_PORT}",
            **self.broker_settings,
        }

        def make() -> BrokerServer:
            process, files = machine.process, machine.files
            assert process is not None
            return BrokerServer(texts, files=files, clock=machine.clock, rng=process.rng, network=machine.network())

        self._start(machine, make, lambda server: server.failed.wait())

    def start(self, machine: Machine) -> None:
        """Start whatever server belongs on a machine."""
        if machine.name in self.layout.names:
            self._start_coordination_server(machine)
        else:
            self.start_broker(int(machine.name.rpartition("-")[2]))

    def _start(self, machine: Machine, make: Callable[[], Any], failed: Callable[[Any], Awaitable[Any]]) -> None:
        machine.is_wanted = True
        process = machine.boot()
        self.trace.note(f"start {machine.name}")

        async def run() -> None:
            server = machine.starting = make()
            try:
                await server.start()
            except BarnabasError as error:
                self._did_not_start(machine, process, error)
                return
            machine.server = server
            if self.layout.is_ensemble and machine.name in self.layout.names:
                self.ensemble.watch(machine.name, server)
            elif machine.name == COORDINATION:
                self._hear_commits(server)
            self.trace.note(f"started {machine.name}")
            with contextlib.suppress(BarnabasError):
                await failed(server)
            self.trace.note(f"{machine.name} gives up")
            if not machine.disk.errors_met:
                self.history.violation(f"{machine.name} stopped serving, though its disk never failed")
            # A broker leaves in order, a coordination server ends at once.
            if machine.name not in self.layout.names:
                await self._close(machine, process, server)
            self.kill(machine)
            self._start_again(machine, process)

        process.call_soon(lambda: self.loop.create_task(run()))

    def _did_not_start(self, machine: Machine, process: Process, error: BarnabasError) -> None:
        """As a supervisor does: try again a little later, for what it waits for may come."""
        self.trace.note(f"{machine.name} did not start: {type(error).__name__}")
        self.history.start_failures.append((machine.name, str(error)))
        if self.machine_failures(machine) > _RESTART_TRIES:
            self.history.violation(f"{machine.name} does not start: {error}")
            return
        self.kill(machine)
        self._start_again(machine, process)

    def _start_again(self, machine: Machine, process: Process) -> None:
        """The supervisor's work, half a second later."""

        def again() -> None:
            if machine.is_wanted and machine.process is process:
                self.start(machine)

        self.loop.call_outside(500_000, again)

    def machine_failures(self, machine: Machine) -> int:
        """How often a start failed."""
        return sum(1 for name, _ in self.history.start_failures if name == machine.name)

    async def stop(self, machine: Machine) -> None:
        """Stop a server in order, as SIGTERM does.

        It is killed after a minute, as supervisors do."""
        machine.is_wanted = False
        process, server = machine.process, machine.server
        if process is None or not process.is_alive or server is None:
            return
        self.trace.note(f"stop {machine.name}")
        machine.server = None
        await self._close(machine, process, server)
        if machine.process is process:
            self.kill(machine)

    async def _close(self, machine: Machine, process: Process, server: Any) -> None:
        """Let a server end in order, for a minute at most."""
        is_done = False

        async def close() -> None:
            nonlocal is_done
            await server.close()
            is_done = True

        process.call_soon(lambda: self.loop.create_task(close()))
        deadline = self.loop.time() + _STOP_TIMEOUT_S
        while not is_done and process.is_alive and self.loop.time() < deadline:  # noqa: ASYNC110  # a killed process sets no event
            await asyncio.sleep(0.05)
        if not is_done and process.is_alive:
            self.history.count("stops that took too long")
            self.trace.note(f"{machine.name} does not stop")

    # Faults

    def kill(self, machine: Machine, *, restart: bool | None = None) -> None:
        """kill -9: what the process had written stays in the page cache."""
        process = machine.process
        if restart is not None:
            machine.is_wanted = restart
        if process is None or not process.is_alive:
            return
        self.trace.note(f"kill {machine.name}")
        process.die()
        machine.server = None
        machine.disk.locks.clear()
        self.fabric.process_died(machine.host, process)
        for listener in self.on_kill:
            listener(machine)
        machine.disk.evict()

    def kill_within(self, machine: Machine, operations: int, *, power: bool) -> None:
        """Kill in the middle of whatever the process does to its files, some
        operations from now."""
        files = machine.files
        if files is not None and machine.is_running:
            files.die_in = operations
            files.on_death = (lambda: self.power_off(machine)) if power else (lambda: self.kill(machine))

    def power_off(self, machine: Machine) -> None:
        """The machine loses its power: also what was not synced is gone, and no connection ends."""
        process = machine.process
        if process is None or not machine.host.is_up:
            return
        self.trace.note(f"power off {machine.name}")
        for listener in self.on_power_loss:
            listener(machine)
        if process.is_alive:
            process.die()
        machine.server = None
        self.fabric.power_lost(machine.host)
        machine.disk.lose_power()

    def pause(self, machine: Machine) -> None:
        """SIGSTOP."""
        if machine.process is not None and machine.process.state is ProcessState.RUNNING:
            self.trace.note(f"pause {machine.name}")
            machine.process.pause()

    def resume(self, machine: Machine) -> None:
        """SIGCONT."""
        if machine.process is not None and machine.process.state is ProcessState.PAUSED:
            self.trace.note(f"resume {machine.name}")
            machine.process.resume()

    def isolate(self, machine: Machine, others: Mapping[str, Any] | list[str], *, inward: bool, outward: bool) -> None:
        """Cut the way from a machine to others, to it, or both."""
        for name in others:
            if name != machine.name:
                self.trace.note(f"cut {machine.name} {name} {inward} {outward}")
                if outward:
                    self.fabric.block(machine.name, name)
                if inward:
                    self.fabric.block(name, machine.name)

    def heal(self) -> None:
        """All faults end; what should run is started again."""
        self.trace.note("heal")
        self.fabric.heal()
        for machine in list(self.machines.values()):
            machine.disk.faults.clear()
            machine.disk.slowness = 1.0
            machine.disk.capacity_bytes = 1 << 40
            if machine.files is not None:
                machine.files.die_in = None
            self.resume(machine)
            if machine.is_wanted and not machine.is_running:
                self.start(machine)

    # What must not happen

    def _uncaught(self, process: Process | None, context: dict[str, Any]) -> None:
        error = context.get("exception")
        where = process.name if process is not None else "the simulation"
        self.history.violation(f"unhandled exception in {where}: {context.get('message')}: {error!r}", error)

    def logged_error(self, record: logging.LogRecord) -> None:
        """A server has logged an unexpected exception."""
        process = current_process()
        if process is None or not process.is_alive or not record.exc_info or record.exc_info[1] is None:
            return
        error = record.exc_info[1]
        if isinstance(error.__cause__ or error, OSError) and self.machine(process.name).disk.errors_met:
            return
        self.history.violation(f"{process.name} logged {record.getMessage()!r} with {error!r}", error)


class _NoExecutor:
    """Stands where a server wants its threads."""

    def shutdown(self, wait: bool = True) -> None:
        """There are none."""


class _ErrorsHeard(logging.Handler):
    """Gives the simulation what servers log with an exception."""

    def __init__(self, simulation: Simulation) -> None:
        super().__init__(logging.WARNING)
        self._simulation = simulation

    def emit(self, record: logging.LogRecord) -> None:
        simulation = self._simulation
        process = current_process()
        if process is not None and process.is_alive:
            simulation.trace.note(f"{process.name} logs {record.levelname} {record.msg}")
        simulation.logged_error(record)

    def install(self) -> None:
        """Listen to all of the project's loggers."""
        root = logging.getLogger("barnabas")
        self._before = (root.level, root.propagate, logging.raiseExceptions)
        root.addHandler(self)
        root.setLevel(logging.WARNING)
        root.propagate = False

    def remove(self) -> None:
        root = logging.getLogger("barnabas")
        root.removeHandler(self)
        root.level, root.propagate, _ = self._before
        root.setLevel(self._before[0])
