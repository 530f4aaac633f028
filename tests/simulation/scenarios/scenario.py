"""One run of a simulated cluster: a cluster, clients, faults drawn from the seed, a
calm end, the checks.

A `RunPlan` is drawn from the seed: how many brokers and partitions, how long, which faults.
Every fourth run is calm. At the end all faults are healed, every server must serve again,
every request under way must come to its end, and readers must see every acknowledged record
within a minute of virtual time.
"""

import asyncio

from barnabas.base.ids import TopicPartition
from barnabas.base.randomness import Random
from barnabas.broker.metadata.internal_topics import partition_of
from barnabas.testing.simulation.cluster_view import ClusterView, partition_of_state
from barnabas.testing.simulation.simulation import Machine, Simulation
from simulation.scenarios import checks
from simulation.scenarios.admin import CHURN, Administrator, create_simulated_topic
from simulation.scenarios.clients import ClusterClient, PartitionReader
from simulation.scenarios.coordination_clients import CoordinationFacts, CoordinationUser
from simulation.scenarios.fault_injector import FaultInjector
from simulation.scenarios.faults import FAULTS, TARGETED_FAULTS
from simulation.scenarios.group_facts import GroupFacts
from simulation.scenarios.group_member import SimulatedMember
from simulation.scenarios.losses import Losses
from simulation.scenarios.plan import RunPlan, TopicPlan
from simulation.scenarios.producers import SimulatedProducer
from simulation.scenarios.replication_checks import ReplicationObserver
from simulation.scenarios.runs import Result, close_users, inject_faults, run_scenario

__all__ = ["Scenario", "plan_of", "run_seed"]

_START_TIMEOUT_S = 60
_HEAL_TIMEOUT_S = 90
_READ_TIMEOUT_S = 60
_IN_SYNC_TIMEOUT_S = 60
_SESSIONS_END_S = 15
_LOOK_S = 0.5
_SESSION_ENDS_S = 8.0
_OFFSETS_TOPIC = "__consumer_offsets"
GROUP = "group-0"


class Scenario:
    """One run; see the module."""

    def __init__(self, simulation: Simulation, plan: RunPlan) -> None:
        self.simulation = simulation
        self.plan = plan
        self.rng = simulation.random("faults")
        self.injector = FaultInjector(simulation, self.rng, wiping=self._wiping, damaged=self._damaged)
        self.history = simulation.history
        self.facts = CoordinationFacts()
        self.group = GroupFacts()
        self.producers: list[SimulatedProducer] = []
        self.readers: list[PartitionReader] = []
        self.users: list[CoordinationUser] = []
        self.members: list[SimulatedMember] = []
        self.fault_counts: dict[str, int] = {}
        self.watching: asyncio.Task[None] | None = None
        self.administrator: Administrator | None = None
        self._has_short_broker = False
        self._view = ClusterView(simulation)
        self._losses = Losses(self._view, self.history)
        self._observer = ReplicationObserver(simulation, self._view, self._losses)
        self._observer.ignored_topics.update(CHURN)
        self.history.reconsider = self._losses.reconsider
        self.history.true_leader = self._view.leader
        self.history.on_allowed_loss.append(self._loss_allowed)
        replicas = str(plan.replication)
        simulation.broker_settings["offsets.topic.replication.factor"] = replicas
        simulation.broker_settings["transaction.state.log.replication.factor"] = replicas
        simulation.broker_settings["transaction.state.log.min.isr"] = str(min(2, plan.replication))
        simulation.broker_settings["transaction.state.log.num.partitions"] = "2"
        count = int(simulation.broker_settings.setdefault("offsets.topic.num.partitions", "2"))
        self.history.groups_partitions = tuple(TopicPartition(_OFFSETS_TOPIC, n) for n in range(count))
        self._group_partition = TopicPartition(_OFFSETS_TOPIC, partition_of(GROUP, count))
        simulation.on_commit.append(self._committed)
        simulation.broker_settings.update(plan.broker_settings)
        simulation.layout.servers = plan.coordination_servers
        simulation.on_power_loss.append(self._power_loss)
        simulation.on_kill.append(self._killed)
        for topic_partition in self.partitions:
            known, topic = self.history.partition(topic_partition), plan.topics[topic_partition.topic]
            known.is_unclean, known.is_compacted = topic.is_unclean, topic.is_compacted

    @property
    def partitions(self) -> list[TopicPartition]:
        return [TopicPartition(name, n) for name, topic in self.plan.topics.items() for n in range(topic.partitions)]

    def _loss_allowed(self, topic_partition: TopicPartition) -> None:
        if topic_partition == self._group_partition:
            self.group.forgotten()

    def _committed(self, paths: list[str]) -> None:
        """The coordination service has new znodes: look at once at partitions whose
        state they are."""
        for path in paths:
            topic_partition = partition_of_state(path) if path.endswith("/state") else None
            if topic_partition is not None:
                self._losses.state_changed(topic_partition)
                self._observer.state_changed(topic_partition)

    def _power_loss(self, machine: Machine) -> None:
        if machine.name.startswith("broker-"):
            self._has_short_broker = True
            self._losses.power_lost(machine)

    def _killed(self, machine: Machine) -> None:
        if machine.name.startswith("broker-") and any(inode.lost for _, inode in machine.disk.walk()):
            self._has_short_broker = True
            self._losses.process_died(machine)

    def _wiping(self, machine: Machine) -> None:
        """A broker's disk is about to be emptied."""
        self._has_short_broker = True
        self._losses.wiped(machine)

    def _damaged(self, machine: Machine, topic_partition: TopicPartition, end_offset: int) -> None:
        self._losses.damaged(machine, topic_partition, end_offset)

    async def run(self) -> None:
        """From the first start to the checks."""
        await self._start()
        if not self.history.violations:
            await self._load()
        await self._end()
        await self._stop()
        checks.check_acknowledged_records(self.history)
        checks.check_disks(self.simulation)
        checks.check_coordination(self.simulation, self.facts)
        self.history.count("requests served in place", self.simulation.fabric.frames_in_place)
        self._check_not_vacuous()

    async def _start(self) -> None:
        simulation, plan = self.simulation, self.plan
        simulation.start_coordination()
        for broker_id in range(plan.brokers):
            simulation.start_broker(broker_id)
        await simulation.until(self._all_serve, _START_TIMEOUT_S, "the cluster starts")

    def _all_serve(self) -> bool:
        machines = [*self.simulation.coordination, *self.simulation.brokers]
        return all(machine.is_serving for machine in machines)

    def _client(self, name: str) -> ClusterClient:
        return ClusterClient(self.simulation, name, range(self.plan.brokers))

    async def _load(self) -> None:
        simulation, plan = self.simulation, self.plan
        admin = self._client("admin")
        self.injector.zombie = self._client("zombie")
        for number in range(plan.users):
            self.users.append(CoordinationUser(simulation, number, self.facts))
        for name, topic in plan.topics.items():
            await admin.spawn(create_simulated_topic(admin, name, topic, plan.replication))
        partitions = self.partitions
        for number, kind in enumerate(plan.producers):
            client = self._client(f"producer-{number}")
            pause_s = plan.mean_produce_pause_s
            self.producers.append(SimulatedProducer(client, number, partitions, kind, mean_pause_s=pause_s))
        self.readers.append(PartitionReader(self._client("reader-0"), partitions))
        for number in range(plan.members):
            client = self._client(f"member-{number}")
            member = SimulatedMember(client, GROUP, list(plan.topics), self.group, mean_stay_s=plan.mean_stay_s)
            self.members.append(member)
        if plan.has_administrator:
            self._administrate(self._client("administrator"))
        faults = simulation.loop.create_task(
            inject_faults(
                self.injector,
                FAULTS | TARGETED_FAULTS,
                self.plan.faults,
                self.plan.mean_fault_gap_s,
                self.fault_counts,
            )
        )
        self.watching = simulation.loop.create_task(self._watch())
        later = admin.spawn(self._create_more(admin))
        await asyncio.sleep(plan.duration_s)
        self.injector.is_over = True
        faults.cancel()
        await asyncio.wait([faults])
        if not faults.cancelled():
            faults.result()
        if self._has_short_broker and not all(machine.is_running for machine in simulation.brokers):
            # See `faults`: no broker comes back without its data before that.
            await asyncio.sleep(_SESSION_ENDS_S)
        simulation.heal()
        await asyncio.wait([later])

    def _administrate(self, client: ClusterClient) -> None:
        plan = self.plan
        self.administrator = Administrator(
            client, client.rng, plan.topics, replication=plan.replication, mean_pause_s=plan.mean_fault_gap_s / 2
        )

    async def _watch(self) -> None:
        while True:
            self._observer.look()
            await asyncio.sleep(_LOOK_S)

    async def _create_more(self, admin: ClusterClient) -> None:
        """A topic while things fail; nothing is written to it."""
        await asyncio.sleep(self.rng.random() * self.plan.duration_s)
        await create_simulated_topic(admin, "late", TopicPlan(2), self.plan.replication)

    async def _end(self) -> None:
        simulation = self.simulation
        for machine in (*simulation.coordination, *simulation.brokers):
            machine.is_wanted = True
        simulation.heal()
        await simulation.until(self._all_serve, _HEAL_TIMEOUT_S, "all servers serve again after healing")
        if self.administrator is not None:
            self.administrator.task.cancel()
        workers: list[SimulatedProducer | CoordinationUser | SimulatedMember] = [
            *self.producers,
            *self.users,
            *self.members,
        ]
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
        # A new leader's high watermark may lie below what was committed until its
        # followers have fetched from it.
        await self._replicas_are_equal()
        if self.history.topics_created.keys() >= self.plan.topics.keys():
            last = PartitionReader(self._client("last-reader"), self.partitions)
            await simulation.until(last.has_reached_end, _READ_TIMEOUT_S, "a new reader reads all")
            last.is_stopping = True
            self.readers.append(last)
            for topic_partition, end_offset in last.high_watermarks.items():
                self.history.partition(topic_partition).final_end_offset = end_offset
        await simulation.until(
            lambda: all(reader.is_done for reader in self.readers), _HEAL_TIMEOUT_S, "the readers finish"
        )
        await self._replicas_are_equal()
        if not self.history.violations:
            self._observer.check_replicas_agree()
        for work in (*self.producers, *self.users, *self.members, *self.readers):
            for task in getattr(work, "tasks", None) or [work.task]:  # type: ignore[attr-defined]  # one or the other
                if task.done():
                    task.result()

    async def _replicas_are_equal(self) -> None:
        """All replicas come back into the in-sync sets, with all that the leaders have."""
        if self.history.violations:
            return
        if not await self.simulation.until(
            lambda: not self._observer.replicas_behind(), _IN_SYNC_TIMEOUT_S, "all replicas are in sync again"
        ):
            for text in self._observer.replicas_behind():
                self.history.violation(text)

    async def _stop(self) -> None:
        simulation = self.simulation
        if self.watching is not None:
            self.watching.cancel()
            await asyncio.wait([self.watching])
            if not self.watching.cancelled():
                self.watching.result()
        await close_users(simulation, self.users)
        for machine in simulation.brokers:
            await simulation.stop(machine)
        await asyncio.sleep(_SESSIONS_END_S)
        checks.check_sessions(simulation)
        for machine in simulation.coordination:
            await simulation.stop(machine)

    def _check_not_vacuous(self) -> None:
        counts = self.history.counts
        if self.plan.faults:
            return  # faults may fill a whole run; the sum over the seeds must not be vacuous
        for what, least in (("acknowledged", 25), ("read", 50), ("replicas compared", 1)):
            if counts.get(what, 0) < least and not self.history.violations:
                self.history.violation(f"the run was vacuous: {counts.get(what, 0)} of {what}")


def plan_of(seed: int) -> RunPlan:
    """What a seed decides before its run."""
    return RunPlan.of(seed, Random(f"{seed} plan"), tuple(FAULTS))


def run_seed(seed: int, *, keep_trace: bool = False, plan: RunPlan | None = None) -> Result:
    """One run; what went wrong is in the result."""
    drawn = plan or plan_of(seed)
    return run_scenario(seed, lambda simulation: Scenario(simulation, drawn), keep_trace=keep_trace)
