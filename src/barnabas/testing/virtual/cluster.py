"""`simulate`: a user's own producers and consumers, and faults, in virtual time on a
simulated cluster.

Nothing waits: an hour of virtual time takes seconds. Nothing is left to chance: the seed decides
the latency of every message, the order of whatever happens at the same time, and which broker
leads; the same seed gives the same run.
"""

import asyncio
import contextlib
import errno
from collections.abc import Callable, Collection, Coroutine, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import TopicPartition
from barnabas.broker.metadata.internal_topics import TRANSACTIONS_TOPIC, partition_of
from barnabas.client.codecs import Deserializer, Serializer
from barnabas.client.consumer.consumer import CLOSE_CONSUMER_TIMEOUT_S, OnCommit
from barnabas.client.errors import TimedOutError
from barnabas.client.producer.producer import CLOSE_TIMEOUT_S
from barnabas.client.records import Record
from barnabas.client.type_variables import K, K_contra, V, V_contra
from barnabas.testing.coordinator_kills import CoordinatorKill, CoordinatorKills, Outcome, check_successor
from barnabas.testing.simulation.cluster_view import ClusterView
from barnabas.testing.simulation.disk import DiskFault
from barnabas.testing.simulation.feature_updates import feature_update, finalized_level
from barnabas.testing.simulation.loop import current_process
from barnabas.testing.simulation.simulation import (
    BROKER_PORT,
    COORDINATION,
    Machine,
    Simulation,
    broker_name,
)
from barnabas.testing.simulation.topic_creation import topic_creation
from barnabas.testing.virtual.consumer import VirtualConsumer
from barnabas.testing.virtual.link import ClusterLink
from barnabas.testing.virtual.producer import VirtualProducer
from barnabas.testing.virtual.program import VirtualProgram
from barnabas.wire.kafka.errors import ErrorCode

__all__ = ["SimulatedRunError", "VirtualCluster", "VirtualRun", "simulate"]

T = TypeVar("T")
Server = int | str | None
"""A broker's id, or the name of a server or program; None is what `VirtualCluster.leader` and
`controller` give without one."""

_SCENARIO = "scenario"
_START_S = 120.0
_TOPIC_S = 60.0
_FEATURE_S = 60.0
_READ_S = 60.0
_LIMIT_S = 3600.0
_RESTART_US = 500_000
_DEFAULTS = {
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.num.partitions": "2",
    "group.initial.rebalance.delay.ms": "0",
}


class SimulatedRunError(BarnabasError):
    """A server broke an invariant, or a program failed and the scenario did not wait for it."""


@dataclass(frozen=True, slots=True)
class VirtualRun(Generic[T]):
    """How a run went.

    ``digest`` is of everything that happened: equal for two runs that are the same."""

    value: T
    """What the scenario returned."""
    seed: int
    digest: str
    virtual_s: float


def simulate(
    scenario: "Callable[[VirtualCluster], Coroutine[Any, Any, T]]",
    *,
    seed: int = 0,
    brokers: int = 1,
    zk_servers: int = 1,
    settings: Mapping[str, str] | None = None,
    features: Mapping[str, int] | None = None,
    limit_s: float = _LIMIT_S,
) -> VirtualRun[T]:
    """Run ``scenario(cluster)`` in virtual time, on brokers 0 to N-1 and their
    coordination service.

    ``settings`` are properties for every broker; ``features``, such as ``transaction.version``,
    are finalized at these levels before the scenario begins. The scenario's exceptions pass
    through, with a note that names the seed; one that takes longer than ``limit_s`` of virtual time
    ends with a `TimedOutError`. Raises `SimulatedRunError` when a server fails, or a program that
    the scenario does not wait for. Call it from plain code, not inside a running loop.
    """
    if brokers < 1 or zk_servers < 1:
        raise BarnabasError(f"{brokers} brokers and {zk_servers} coordination servers: at least one of each is needed")
    if asyncio._get_running_loop() is not None:
        raise BarnabasError(
            "simulate runs a loop of its own: call it outside of coroutines, as from a plain test function"
        )
    try:
        with Simulation(seed) as simulation:
            cluster = VirtualCluster(simulation, brokers, zk_servers, dict(settings or {}))
            started_s = simulation.now_s
            value: T = simulation.run(_whole_run(cluster, _after_features(features or {}, scenario), limit_s))
            problems = [*simulation.history.violations, *cluster.failures()]
            if problems:
                raise SimulatedRunError("; ".join(problems[:3]))
            return VirtualRun(value, seed, simulation.trace.digest(), simulation.now_s - started_s)
    except BaseException as error:
        error.add_note(f"simulate(..., seed={seed}) runs it again")
        raise


def _after_features(
    levels: Mapping[str, int], scenario: "Callable[[VirtualCluster], Coroutine[Any, Any, T]]"
) -> "Callable[[VirtualCluster], Coroutine[Any, Any, T]]":
    async def run(cluster: "VirtualCluster") -> T:
        for name, level in levels.items():
            await _update_feature(cluster, name, level)
        return await scenario(cluster)

    return run


async def _update_feature(cluster: "VirtualCluster", name: str, level: int) -> None:
    """Finalize a feature, and wait until all brokers know it.

    Raises `RefusedError` and `TimedOutError`."""
    link = cluster._link()
    channels = link.channels()
    what = f"cannot set feature {name} to level {level}"

    async def attempt() -> bool | None:
        before = finalized_level(cluster._view, name)
        if before == level or cluster.controller is None:
            return True if before == level else None
        response = await channels.send(cluster.controller, feature_update(name, level, before))
        codes = (response.error_code, *(each.error_code for each in response.results))
        code = ErrorCode.of(next((each for each in codes if each), 0))
        return link.check(code, what) if code else True

    try:
        await link.retry(attempt, _FEATURE_S, what)
    finally:
        link.close()
    caches = [machine.server.components.features for machine in cluster._simulation.brokers]
    await cluster.until(lambda: all(cache.level(name) == level for cache in caches))


async def _whole_run(
    cluster: "VirtualCluster", scenario: "Callable[[VirtualCluster], Coroutine[Any, Any, T]]", limit_s: float
) -> T:
    await cluster.begin()
    program = cluster.start(_SCENARIO, scenario, cluster)
    try:
        async with asyncio.timeout(limit_s):
            return await program.wait()
    except TimeoutError as error:
        if program.is_running:
            raise TimedOutError(f"the scenario has not ended within {limit_s:g} s of virtual time") from error
        raise


def _coordination(simulation: Simulation) -> dict[str, str]:
    """The machines of the coordination servers by the names that programs use."""
    names = simulation.layout.names
    if len(names) == 1:
        return {"zookeeper": names[0]}
    return {f"zookeeper{n}": name for n, name in enumerate(names, 1)}


def _machine_here(simulation: Simulation) -> Machine:
    """The machine of the program that calls."""
    process = current_process()
    assert process is not None, "outside of programs there are no clients"
    return simulation.machine(process.name)


class VirtualCluster:
    """What a scenario gets: topics, clients, programs, faults.

    Faults name a server by its broker id or as "zookeeper" ("zookeeper1" and so on in an ensemble),
    a program by its name; the scenario itself is the program "scenario".
    """

    def __init__(self, simulation: Simulation, brokers: int, zk_servers: int, settings: dict[str, str]) -> None:
        self._simulation = simulation
        self._ids = range(brokers)
        simulation.layout.servers = zk_servers
        simulation.broker_settings = {
            **_DEFAULTS,
            "offsets.topic.replication.factor": str(min(3, brokers)),
            "transaction.state.log.replication.factor": str(min(3, brokers)),
            "transaction.state.log.min.isr": str(min(2, brokers)),
            **settings,
        }
        self._view = ClusterView(simulation)
        self._programs: list[VirtualProgram[Any]] = []
        self._cuts: list[tuple[str, str]] = []
        self._links = 0
        self._coordinator_kills = CoordinatorKills()
        self.rng = simulation.random("user")
        """A generator for the scenario's own choices; the seed decides it, too."""

    async def begin(self) -> None:
        """Start all servers."""
        self._simulation.start_coordination()
        await self.until(lambda: all(each.is_serving for each in self._simulation.coordination), _START_S)
        for broker_id in self._ids:
            self._simulation.start_broker(broker_id)
        await self.until(lambda: all(each.is_serving for each in self._simulation.brokers), _START_S)
        for machine in self._simulation.brokers:
            self._coordinator_kills.watch(machine.server)

    # Time

    def now_ms(self) -> int:
        """The wall clock of the program that asks, in ms since 1970.

        ``asyncio`` has virtual time by itself."""
        return _machine_here(self._simulation).clock.wall_ms()

    async def until(self, condition: Callable[[], object], timeout_s: float = 60.0) -> None:
        """Wait in virtual time until a condition holds; raises `TimedOutError`."""
        end = self._simulation.now_s + timeout_s
        while not condition():
            if self._simulation.now_s >= end:
                raise TimedOutError(f"the condition did not come true within {timeout_s:g} s of virtual time")
            await asyncio.sleep(0.02)

    # Topics

    async def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int | None = None,
        config: Mapping[str, str] | None = None,
    ) -> None:
        """Create a topic and wait for its leaders; as many replicas as there are brokers,
        at most 3, unless given.

        Raises `RefusedError` and `TimedOutError`.
        """
        link = self._link()
        replicas = min(3, len(self._ids)) if replication_factor is None else replication_factor
        request = topic_creation(name, partitions, replicas, config or {})
        channels = link.channels()
        tries = 0

        async def attempt() -> bool | None:
            nonlocal tries
            controller = self.controller
            if controller is None:
                return None
            tries += 1
            response = (await channels.send(controller, request)).topics[0]
            code = ErrorCode.of(response.error_code)
            if code is ErrorCode.TOPIC_ALREADY_EXISTS and tries > 1:
                return True
            return link.check(code, f"cannot create {name}") if code else True

        try:
            await link.retry(attempt, _TOPIC_S, f"cannot create {name}")
        finally:
            link.close()
        await self.until(lambda: all(self.leader(name, n) is not None for n in range(partitions)), _TOPIC_S)

    def leader(self, topic: str, partition: int = 0) -> int | None:
        """The broker that leads a partition; None while there is none."""
        found = self._view.leader(TopicPartition(topic, partition))
        return found if found is not None and found >= 0 else None

    def transaction_coordinator(self, transactional_id: str) -> int | None:
        """The broker that coordinates a producer's transactions; None while there is none."""
        count = sum(1 for each in self._view.partitions() if each.topic == TRANSACTIONS_TOPIC)
        return self.leader(TRANSACTIONS_TOPIC, partition_of(transactional_id, count)) if count else None

    def in_sync(self, topic: str, partition: int = 0) -> list[int]:
        """The replicas in sync, by the partition's state."""
        state = self._view.state(TopicPartition(topic, partition))
        return [] if state is None else list(state.leader_and_isr.isr)

    @property
    def controller(self) -> int | None:
        """The broker that is the controller; None while there is none."""
        for broker_id in self._ids:
            machine = self._simulation.machine(broker_name(broker_id))
            if machine.is_serving and machine.server.components.controller.is_active:
                return broker_id
        return None

    async def records(self, topic: str) -> list[Record[str, str]]:
        """All committed records of a topic, by partition and offset, as text."""
        async with self.consumer({"auto.offset.reset": "earliest"}) as consumer:
            count = (await consumer.topics()).get(topic, 0)
            ends = {TopicPartition(topic, n): (await consumer.watermarks(topic, n))[1] for n in range(count)}
            wanted = {topic_partition: end for topic_partition, end in ends.items() if end}
            consumer.assign(list(wanted))
            found: list[Record[str, str]] = []
            end_s = self._simulation.now_s + _READ_S
            while any((offset or 0) < wanted[each] for each, offset in consumer.position(wanted).items()):
                record = await consumer.poll(1.0)
                if record is not None:
                    found.append(record)
                elif self._simulation.now_s >= end_s:
                    raise TimedOutError(f"{topic} cannot be read to its end within {_READ_S:g} s of virtual time")
            return sorted(found, key=lambda record: (record.partition, record.offset))

    # Clients and programs

    def producer(
        self,
        properties: Mapping[str, Any] | None = None,
        *,
        serializer: Serializer[V_contra] | None = None,
        key_serializer: Serializer[K_contra] | None = None,
        partitioner: Any = None,
        close_timeout_s: float = CLOSE_TIMEOUT_S,
    ) -> VirtualProducer[K_contra, V_contra]:
        """A producer of the program that calls.

        Its options are those of `barnabas.client.AsyncProducer`."""
        return VirtualProducer(
            self._link(),
            properties or {},
            serializer=serializer,
            key_serializer=key_serializer,
            partitioner=partitioner,
            close_timeout_s=close_timeout_s,
        )

    def consumer(
        self,
        properties: Mapping[str, Any] | None = None,
        *,
        deserializer: Deserializer[V] | None = None,
        key_deserializer: Deserializer[K] | None = None,
        on_commit: OnCommit | None = None,
        close_timeout_s: float = CLOSE_CONSUMER_TIMEOUT_S,
    ) -> VirtualConsumer[K, V]:
        """A consumer of the program that calls.

        Its options are those of `barnabas.client.AsyncConsumer`."""
        return VirtualConsumer(
            self._link(),
            properties or {},
            deserializer=deserializer,
            key_deserializer=key_deserializer,
            on_commit=on_commit,
            close_timeout_s=close_timeout_s,
        )

    def start(
        self, program: str, function: Callable[..., Coroutine[Any, Any, T]], *arguments: Any
    ) -> VirtualProgram[T]:
        """Run ``function(*arguments)`` as a program on a machine of its own, beside the caller.

        Its clients live and die with it. A program that has ended or was killed can be
        started again under its name.
        """
        if program.startswith(("broker-", COORDINATION, "zookeeper")):
            raise BarnabasError(f"{program} is a server's name: choose another one")
        machine = self._simulation.machine(program)
        if machine.is_running:
            raise BarnabasError(f"{program} is running")
        made = VirtualProgram(self._simulation, machine, lambda: function(*arguments))
        self._programs.append(made)
        return made

    def failures(self) -> list[str]:
        """Programs that failed and were not waited for."""
        return [
            f"{each.name} failed with {each.failure!r}"
            for each in self._programs
            if not each.is_awaited and each.failure is not None
        ]

    def _link(self) -> ClusterLink:
        machine = _machine_here(self._simulation)
        self._links += 1
        endpoints = {broker_id: (broker_name(broker_id), BROKER_PORT) for broker_id in self._ids}
        rng = self._simulation.random(f"link {self._links}")
        return ClusterLink(machine.network(), endpoints, rng, machine.clock.wall_ms)

    # Faults

    def kill(self, server: Server) -> None:
        """As kill -9: its session lives until it expires, its data stay."""
        self._simulation.kill(self._machine(server), restart=False)

    @contextlib.contextmanager
    def killing_coordinator(
        self, transactional_id: str, during: Outcome = "commit", *, restart: bool = False
    ) -> Iterator[CoordinatorKill]:
        """`kill` a producer's coordinator in the middle of a commit (or ``during="abort"``) in this
        block: see `barnabas.testing.Cluster.killing_coordinator`.

        With ``restart`` the broker is started again half a second later."""
        check_successor(len(self._ids), restart=restart)

        def strike(broker_id: int) -> bool:
            machine = self._machine(broker_id)
            self._simulation.kill(machine, restart=False)
            if restart:
                self._simulation.loop.call_outside(_RESTART_US, self._simulation.start, machine)
            return True

        with self._coordinator_kills.waiting(CoordinatorKill(transactional_id, during, strike)) as kill:
            yield kill

    def power_off(self, server: Server) -> None:
        """Its machine loses its power: what was not synced is gone, and its
        connections stay silent."""
        machine = self._machine(server)
        machine.is_wanted = False
        self._simulation.power_off(machine)

    async def stop_broker(self, broker_id: int) -> None:
        """Stop a broker in order, as SIGTERM does."""
        await self._simulation.stop(self._machine(broker_id))

    async def start_broker(self, broker_id: int) -> None:
        """Start a broker that was stopped, killed or without power, and wait until it serves."""
        await self._start(self._machine(broker_id))

    async def start_zookeeper(self, server_id: int = 1) -> None:
        """Start a coordination server that was killed or without power, and wait
        until it serves."""
        names = list(_coordination(self._simulation))
        if not 1 <= server_id <= len(names):
            raise BarnabasError(f"there is no coordination server {server_id}: they are 1 to {len(names)}")
        await self._start(self._machine(names[server_id - 1]))

    async def _start(self, machine: Machine) -> None:
        if machine.is_running:
            raise BarnabasError(f"{machine.name} is running")
        self._simulation.start(machine)
        await self.until(lambda: machine.is_serving, _START_S)
        if machine in self._simulation.brokers:
            self._coordinator_kills.watch(machine.server)

    def pause(self, server: Server) -> None:
        """As kill -STOP: it stands still with its connections open, until `resume`."""
        self._simulation.pause(self._machine(server))

    def resume(self, server: Server) -> None:
        """As kill -CONT."""
        self._simulation.resume(self._machine(server))

    def partition(self, *groups: Collection[Server]) -> None:
        """Cut the network between groups of servers and programs; who is in no group reaches all.

        It replaces an earlier partition, and `heal` ends it. What is on its way waits,
        as behind a broken cable.
        """
        sides = [[self._machine(server).name for server in group] for group in groups]
        names = [name for side in sides for name in side]
        if len(names) != len(set(names)):
            raise BarnabasError("a server is in two groups")
        for source, target in self._cuts:
            self._simulation.fabric.unblock(source, target)
        self._cuts = [
            (source, target)
            for side in sides
            for source in side
            for other in sides
            if other is not side
            for target in other
        ]
        for source, target in self._cuts:
            self._simulation.trace.note(f"cut {source} {target}")
            self._simulation.fabric.block(source, target)

    def slow_disk(self, server: Server, factor: float) -> None:
        """Its disk takes ``factor`` times as long as it does without faults (0.3 ms for a sync, on
        average). A factor of 1 ends it."""
        self._machine(server).disk.slowness = factor

    def full_disk(self, server: Server) -> None:
        """There is no space left on its disk (ENOSPC), until `heal`."""
        disk = self._machine(server).disk
        disk.capacity_bytes = disk.used_bytes

    def fail_disk(self, server: Server) -> None:
        """The next sync of its disk fails (EIO): a broker takes the log dir offline, and
        ends when it has no other."""
        self._machine(server).disk.faults.append(DiskFault("sync", errno.EIO))

    def clock(self, server: Server, shift_s: float) -> None:
        """Its wall clock is wrong by this much; 0 ends it."""
        self._machine(server).clock.skew_ms = round(shift_s * 1000)

    def slow_network(self, factor: float = 1.0, *, loss: float = 0.0) -> None:
        """Every message takes ``factor`` times as long, and breaks its connection with
        the probability ``loss``."""
        self._simulation.fabric.latency_factor = factor
        self._simulation.fabric.loss = loss

    def heal(self) -> None:
        """End all faults but kills: pauses, partitions, disks, clocks, the network."""
        wanted = {machine: machine.is_wanted for machine in self._simulation.machines.values()}
        for machine in wanted:
            machine.clock.skew_ms = 0
            machine.is_wanted = machine.is_wanted and machine.is_running
        self._simulation.heal()
        self._cuts = []
        for machine, is_wanted in wanted.items():
            machine.is_wanted = is_wanted

    def _machine(self, server: Server) -> Machine:
        if server is None:
            raise BarnabasError("there is no leader or controller at the moment: wait for one with until")
        if server in self._ids:
            assert isinstance(server, int)
            return self._simulation.machine(broker_name(server))
        coordination = _coordination(self._simulation)
        if server in coordination:
            return self._simulation.machine(coordination[str(server)])
        if server in [each.name for each in self._programs]:
            return self._simulation.machine(str(server))
        known = [*map(str, self._ids), *coordination, *{each.name: None for each in self._programs}]
        raise BarnabasError(f"there is no server or program {server!r}: they are {', '.join(known)}")
