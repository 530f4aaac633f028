"""One run of a simulated cluster: a cluster, clients, faults drawn from the seed, an end in peace, the checks.

A `Plan` is drawn from the seed: how many brokers and partitions, how long, which faults. Every fourth run is calm. At
the end all faults are healed, every server must serve again, every request under way must come to its end, and readers
must see every acknowledged record within a minute of virtual time.
"""

import asyncio
import errno
from collections.abc import Callable
from dataclasses import dataclass, field

from barnabas.base.ids import TopicPartition
from barnabas.broker.channels import ChannelError
from barnabas.testing.simulation import checks
from barnabas.testing.simulation.clients import ClusterClient, Producer, Reader, create_topic
from barnabas.testing.simulation.coordination_clients import CoordinationFacts, CoordinationUser
from barnabas.testing.simulation.disk import DiskFault
from barnabas.testing.simulation.group_member import GroupFacts, GroupMember
from barnabas.testing.simulation.simulation import COORDINATION, Machine, Simulation, broker_name
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.update_metadata import UpdateMetadataRequest

__all__ = ["FAULTS", "Plan", "Result", "run_seed"]

_START_TIMEOUT_S = 60
_HEAL_TIMEOUT_S = 90
_READ_TIMEOUT_S = 60
_SESSIONS_END_S = 15
_LOOK_S = 0.5
GROUP = "group-0"


@dataclass(slots=True)
class Plan:
    """What a seed decides before the run."""

    brokers: int
    topics: dict[str, int]
    producers: int
    users: int
    members: int
    duration_s: float
    faults: tuple[str, ...]
    mean_fault_gap_s: float
    replication: int = 1
    broker_settings: dict[str, str] = field(default_factory=dict)
    """Over those of `barnabas.testing.simulation.simulation`."""

    @classmethod
    def of(cls, simulation: Simulation) -> "Plan":
        """The plan of a seed."""
        rng = simulation.random("plan")
        names = sorted(FAULTS)
        faults: tuple[str, ...] = ()
        if simulation.seed % 4:
            faults = tuple(sorted(rng.sample(names, rng.randint(1, len(names)))))
        brokers = rng.choice((1, 2, 3, 3))
        return cls(
            brokers=brokers,
            topics={f"topic{n}": rng.randint(1, 3) for n in range(rng.randint(1, 2))},
            producers=rng.randint(1, 2),
            users=rng.randint(1, 3),
            members=rng.randint(1, 3),
            duration_s=rng.choice((15.0, 30.0, 45.0)),
            faults=faults,
            mean_fault_gap_s=rng.choice((1.0, 3.0, 6.0)),
            broker_settings={"log.flush.interval.messages": "1"} if rng.random() < 0.3 else {},
        )


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


class Scenario:
    """See the module."""

    def __init__(self, simulation: Simulation, plan: Plan) -> None:
        self.simulation = simulation
        self.plan = plan
        self.rng = simulation.random("faults")
        self.history = simulation.history
        self.facts = CoordinationFacts()
        self.group = GroupFacts()
        self.producers: list[Producer] = []
        self.readers: list[Reader] = []
        self.users: list[CoordinationUser] = []
        self.members: list[GroupMember] = []
        self.fault_counts: dict[str, int] = {}
        self.is_over = False
        self.zombie: ClusterClient | None = None
        self.watching: asyncio.Task[None] | None = None
        simulation.broker_settings.update(plan.broker_settings)
        simulation.on_power_loss.append(self._power_loss)
        simulation.on_kill.append(self._killed)

    @property
    def partitions(self) -> list[TopicPartition]:
        return [TopicPartition(topic, n) for topic, count in self.plan.topics.items() for n in range(count)]

    def _power_loss(self, machine: Machine) -> None:
        if machine.name.startswith("broker-"):
            checks.forgive_unsynced(self.simulation, machine)
            self.group.power_lost()

    def _killed(self, machine: Machine) -> None:
        if machine.name.startswith("broker-") and any(inode.lost for _, inode in machine.disk.walk()):
            checks.forgive_failed_syncs(self.simulation, machine)
            self.group.power_lost()

    async def run(self) -> None:
        """From the first start to the checks."""
        await self._start()
        if not self.history.violations:
            await self._load()
        await self._end()
        await self._stop()
        checks.check_records(self.history)
        checks.check_disks(self.simulation)
        checks.check_coordination(self.simulation, self.facts)
        self._check_not_vacuous()

    async def _start(self) -> None:
        simulation, plan = self.simulation, self.plan
        simulation.start_coordination()
        for broker_id in range(plan.brokers):
            simulation.start_broker(broker_id)
        await simulation.until(self._all_serve, _START_TIMEOUT_S, "the cluster starts")

    def _all_serve(self) -> bool:
        machines = [self.simulation.machine(COORDINATION), *self.simulation.brokers]
        return all(machine.is_serving for machine in machines)

    def _client(self, name: str) -> ClusterClient:
        return ClusterClient(self.simulation, name, range(self.plan.brokers))

    async def _load(self) -> None:
        simulation, plan = self.simulation, self.plan
        admin = self._client("admin")
        self.zombie = self._client("zombie")
        for number in range(plan.users):
            self.users.append(CoordinationUser(simulation, number, self.facts))
        for topic, count in plan.topics.items():
            await admin.spawn(create_topic(admin, topic, count, plan.replication))
        partitions = self.partitions
        for number in range(plan.producers):
            self.producers.append(Producer(self._client(f"producer-{number}"), number, partitions))
        self.readers.append(Reader(self._client("reader-0"), partitions))
        for number in range(plan.members):
            client = self._client(f"member-{number}")
            self.members.append(GroupMember(client, GROUP, number, plan.topics, self.group))
        faults = simulation.loop.create_task(self._faults())
        self.watching = simulation.loop.create_task(self._watch())
        later = admin.spawn(self._create_more(admin))
        await asyncio.sleep(plan.duration_s)
        self.is_over = True
        faults.cancel()
        await asyncio.wait([faults])
        if not faults.cancelled():
            faults.result()
        simulation.heal()
        await asyncio.wait([later])

    async def _watch(self) -> None:
        observer = checks.Observer(self.simulation)
        while True:
            observer.look()
            await asyncio.sleep(_LOOK_S)

    async def _create_more(self, admin: ClusterClient) -> None:
        """A topic while things fail; nothing is written to it."""
        await asyncio.sleep(self.rng.random() * self.plan.duration_s)
        await create_topic(admin, "late", 2, self.plan.replication)

    async def _end(self) -> None:
        simulation = self.simulation
        for machine in (simulation.machine(COORDINATION), *simulation.brokers):
            machine.is_wanted = True
        simulation.heal()
        await simulation.until(self._all_serve, _HEAL_TIMEOUT_S, "all servers serve again after healing")
        workers: list[Producer | CoordinationUser | GroupMember] = [*self.producers, *self.users, *self.members]
        for worker in workers:
            worker.is_stopping = True
        await simulation.until(
            lambda: all(producer.is_done for producer in self.producers), _HEAL_TIMEOUT_S, "the producers finish"
        )
        await simulation.until(
            lambda: all(user.task.done() for user in self.users), _HEAL_TIMEOUT_S, "the coordination users finish"
        )
        await simulation.until(
            lambda: all(member.task.done() for member in self.members), _HEAL_TIMEOUT_S, "the group's members finish"
        )
        for reader in self.readers:
            reader.is_stopping = True
        if self.history.topics_created.keys() >= self.plan.topics.keys():
            last = Reader(self._client("last-reader"), self.partitions)
            await simulation.until(last.has_reached_end, _READ_TIMEOUT_S, "a new reader reads all")
            last.is_stopping = True
            self.readers.append(last)
        await simulation.until(
            lambda: all(reader.is_done for reader in self.readers), _HEAL_TIMEOUT_S, "the readers finish"
        )
        for work in (*self.producers, *self.users, *self.members, *self.readers):
            for task in getattr(work, "tasks", None) or [work.task]:  # type: ignore[attr-defined]  # one or the other
                if task.done():
                    task.result()

    async def _stop(self) -> None:
        simulation = self.simulation
        if self.watching is not None:
            self.watching.cancel()
            await asyncio.wait([self.watching])
            if not self.watching.cancelled():
                self.watching.result()
        for user in self.users:
            closing = user.process.context.run(simulation.loop.create_task, user.client.close())
            await asyncio.wait([closing], timeout=10)
        for machine in simulation.brokers:
            await simulation.stop(machine)
        await asyncio.sleep(_SESSIONS_END_S)
        checks.check_sessions(simulation)
        await simulation.stop(simulation.machine(COORDINATION))

    def _check_not_vacuous(self) -> None:
        counts = self.history.counts
        if self.plan.faults:
            return  # a run may be nothing but trouble; the sum over the seeds must not
        for what, least in (("acknowledged", 50), ("read", 50), ("coordination writes", 10)):
            if counts.get(what, 0) < least and not self.history.violations:
                self.history.violation(f"the run was vacuous: {counts.get(what, 0)} of {what}")

    # Faults

    async def _faults(self) -> None:
        if not self.plan.faults:
            return
        while True:
            await asyncio.sleep(self.rng.expovariate(1 / self.plan.mean_fault_gap_s))
            name = self.rng.choice(self.plan.faults)
            if FAULTS[name](self):
                self.fault_counts[name] = self.fault_counts.get(name, 0) + 1
                self.simulation.trace.note(f"fault {name}")

    def later(self, least_s: float, most_s: float, call: Callable[[], object]) -> None:
        """Call some time from now, unless the faults are over by then."""
        delay_s = self.rng.uniform(least_s, most_s)

        def run() -> None:
            if not self.is_over:
                call()

        self.simulation.loop.call_outside(int(delay_s * 1_000_000), run)

    def server(self) -> Machine | None:
        """A server that runs; brokers are hit more often."""
        machines = [machine for machine in self.simulation.brokers if machine.is_running]
        coordination = self.simulation.machine(COORDINATION)
        if coordination.is_running and (not machines or self.rng.random() < 0.3):
            return coordination
        return self.rng.choice(machines) if machines else None

    def restart_later(self, machine: Machine) -> None:
        """A supervisor brings the server back."""
        machine.is_wanted = True

        def restart() -> None:
            if not machine.is_running:
                self.simulation.start(machine)

        self.later(0.05, 8.0, restart)


def _kill(scenario: Scenario) -> bool:
    """kill -9, at once or in the middle of a file operation."""
    machine = scenario.server()
    if machine is None:
        return False
    if scenario.rng.random() < 0.5:
        scenario.simulation.kill(machine)
        scenario.restart_later(machine)
    else:
        scenario.simulation.kill_within(machine, scenario.rng.randrange(40), power=False)
        scenario.later(0.5, 3.0, lambda: scenario.simulation.kill(machine))
        scenario.later(3.1, 6.0, lambda: _start(scenario, machine))
    return True


def _power(scenario: Scenario) -> bool:
    """A machine's power fails, at once or in the middle of a file operation."""
    machine = scenario.server()
    if machine is None:
        return False
    if scenario.rng.random() < 0.5:
        scenario.simulation.power_off(machine)
        scenario.restart_later(machine)
    else:
        scenario.simulation.kill_within(machine, scenario.rng.randrange(40), power=True)
        scenario.later(0.5, 3.0, lambda: scenario.simulation.power_off(machine))
        scenario.later(3.1, 6.0, lambda: _start(scenario, machine))
    return True


def _pause(scenario: Scenario) -> bool:
    """SIGSTOP, for less than a session's time-out or for longer."""
    machine = scenario.server()
    if machine is None:
        return False
    scenario.simulation.pause(machine)
    scenario.later(*scenario.rng.choice(((0.1, 2.0), (7.0, 15.0))), lambda: scenario.simulation.resume(machine))
    return True


def _partition(scenario: Scenario) -> bool:
    """A server is cut off from all, from one, or in one direction."""
    machine = scenario.server()
    if machine is None:
        return False
    simulation, rng = scenario.simulation, scenario.rng
    others = [name for name in simulation.machines if name != machine.name]
    cut = rng.choice((others, [rng.choice(others)], [COORDINATION]))
    inward, outward = rng.choice(((True, True), (True, False), (False, True)))
    simulation.isolate(machine, cut, inward=inward, outward=outward)

    def mend() -> None:
        for name in cut:
            simulation.fabric.unblock(machine.name, name)
            simulation.fabric.unblock(name, machine.name)

    scenario.later(0.2, 12.0, mend)
    return True


def _loss(scenario: Scenario) -> bool:
    """Connections break again and again, answers are slow."""
    fabric = scenario.simulation.fabric
    fabric.loss = scenario.rng.choice((0.002, 0.01, 0.05))
    fabric.latency_factor = scenario.rng.choice((1.0, 10.0, 100.0))

    def calm() -> None:
        fabric.loss = 0.0
        fabric.latency_factor = 1.0

    scenario.later(0.5, 4.0, calm)
    return True


def _disk_error(scenario: Scenario) -> bool:
    """A write or a sync fails once; the server gives its disk up and is started anew."""
    machine = scenario.server()
    if machine is None:
        return False
    operation = scenario.rng.choice(("sync", "append", "write", "sync_dir", "open", "rename"))
    machine.disk.faults.append(DiskFault(operation, errno.EIO))
    scenario.later(3.0, 6.0, lambda: _restart(scenario, machine))
    return True


def _failed_sync(scenario: Scenario) -> bool:
    """A sync fails, and soon the power: whoever believed a second sync is found out."""
    machine = scenario.server()
    if machine is None:
        return False
    machine.disk.faults.append(DiskFault("sync", errno.EIO))

    def power_off() -> None:
        machine.disk.faults.clear()
        scenario.simulation.power_off(machine)
        scenario.restart_later(machine)

    scenario.later(0.05, 0.6, power_off)
    return True


def _disk_full(scenario: Scenario) -> bool:
    """The disk is full for a while; afterwards the server is started anew."""
    machine = scenario.server()
    if machine is None:
        return False
    machine.disk.capacity_bytes = machine.disk.used_bytes + scenario.rng.randrange(4096)

    def free() -> None:
        machine.disk.capacity_bytes = 1 << 40
        _restart(scenario, machine)

    scenario.later(0.5, 4.0, free)
    return True


def _start(scenario: Scenario, machine: Machine) -> None:
    if not machine.is_running:
        scenario.simulation.start(machine)


def _restart(scenario: Scenario, machine: Machine) -> None:
    machine.disk.faults.clear()
    scenario.simulation.kill(machine)
    scenario.simulation.start(machine)


def _slow_disk(scenario: Scenario) -> bool:
    """Syncs take long."""
    machine = scenario.server()
    if machine is None:
        return False
    machine.disk.slowness = scenario.rng.choice((10.0, 100.0, 1000.0))
    scenario.later(0.5, 6.0, lambda: setattr(machine.disk, "slowness", 1.0))
    return True


def _clock_jump(scenario: Scenario) -> bool:
    """A machine's wall clock is set wrong."""
    machine = scenario.server()
    if machine is None:
        return False
    machine.clock.skew_ms += scenario.rng.choice((-3_600_000, -1000, 1000, 3_600_000))
    return True


def _stop_and_start(scenario: Scenario) -> bool:
    """A server is stopped in order and started again."""
    machine = scenario.server()
    if machine is None or not machine.is_serving:
        return False

    async def restart() -> None:
        await scenario.simulation.stop(machine)
        if scenario.is_over and not machine.is_running:
            scenario.simulation.start(machine)
        scenario.restart_later(machine)

    scenario.simulation.loop.create_task(restart())  # the run outlives it, or does not
    return True


def _zombie_controller(scenario: Scenario) -> bool:
    """A controller of an epoch long over speaks to every broker; nobody may listen."""
    zombie = scenario.zombie
    if zombie is None:
        return False
    request = UpdateMetadataRequest(controller_id=99, controller_epoch=0, broker_epoch=-1)

    async def speak(broker: int) -> None:
        machine = scenario.simulation.machine(broker_name(broker))
        if not machine.is_serving:
            return  # it may not have heard of any controller yet, as with Kafka
        life = machine.lives
        try:
            response = await zombie.channels.send(broker, request)
        except ChannelError:
            return
        if response.error_code != ErrorCode.STALE_CONTROLLER_EPOCH and machine.lives == life:
            name = ErrorCode.of(response.error_code).name
            scenario.history.violation(f"broker {broker} answered a controller of epoch 0 with {name}")

    for broker in zombie.brokers:
        zombie.spawn(speak(broker))
    return True


FAULTS: dict[str, Callable[[Scenario], bool]] = {
    "kill": _kill,
    "power": _power,
    "pause": _pause,
    "partition": _partition,
    "loss": _loss,
    "disk error": _disk_error,
    "disk full": _disk_full,
    "failed sync": _failed_sync,
    "slow disk": _slow_disk,
    "clock jump": _clock_jump,
    "restart": _stop_and_start,
    "zombie controller": _zombie_controller,
}


def run_seed(seed: int, *, keep_trace: bool = False, plan: Plan | None = None) -> Result:
    """One run; what went wrong is in the result."""
    with Simulation(seed, keep_trace=keep_trace) as simulation:
        drawn = plan or Plan.of(simulation)
        scenario = Scenario(simulation, drawn)
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
