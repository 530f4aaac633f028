"""One run of transactions in a simulated cluster: transactional producers, copiers, faults, a calm
end, the checks.

Producers send transactions to the topic ``original``; copiers consume, copy and produce to ``copy``
with their offsets in the transaction. Requests come late and again. Brokers and the coordinators of
transactions are killed, paused, cut off and moved; one loses its disk while others have all that it
had. Replicas move to other brokers and log dirs, records are deleted and compacted. Afterwards
`transaction_facts` and `transaction_checks` say what must hold; nothing is compared at the end of a
run that lost records in a way that Kafka's rules allow (`losses`).
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from barnabas.base.ids import TopicPartition
from barnabas.base.randomness import Random
from barnabas.broker.metadata.features import TRANSACTION_VERSION
from barnabas.client.errors import ClientError
from barnabas.testing.simulation.cluster_view import ClusterView, partition_of_state
from barnabas.testing.simulation.simulation import Machine, Simulation, broker_name
from barnabas.testing.virtual.consumer import VirtualConsumer
from simulation.scenarios.admin import create_simulated_topic, set_feature_level
from simulation.scenarios.clients import ClusterClient
from simulation.scenarios.fault_injector import FaultInjector
from simulation.scenarios.faults import FAULTS, hit
from simulation.scenarios.losses import Losses
from simulation.scenarios.plan import TopicPlan
from simulation.scenarios.runs import Result, inject_faults, run_scenario
from simulation.scenarios.transaction_admin import CHORES, TransactionAdministrator
from simulation.scenarios.transaction_checks import check_bounds, check_markers, leader_log, partitions_held_back
from simulation.scenarios.transaction_facts import Seen, TransactionFacts, content_of
from simulation.scenarios.transactional_producers import TransactionalCopier, TransactionalProducer

__all__ = ["TRANSACTION_FAULTS", "TransactionPlan", "run_transaction_seed", "transaction_plan_of"]

_REPLICAS = 3
_ORIGINAL, _COPY = "original", "copy"
_STATE_TOPIC = "__transaction_state"
_GROUP = "copiers"
_START_TIMEOUT_S = 60
_HEAL_TIMEOUT_S = 120
_CAUGHT_UP_S = 60
_LOOK_S = 0.5
_POLL_S = 0.5
_SESSION_ENDS_S = 8.0
_CALM_EVERY = 5
_MOST_FAULTS = 4
_LEVELS = ((0,), (0,), (2,), (2,), (0, 2), (1, 2), (2, 0), (2, 1, 2))
_COMPACTED_SHARE = 0.25
_TWO_LOG_DIRS = ("/logs", "/logs2")
_SETTINGS = {
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "2",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.num.partitions": "2",
    "transaction.state.log.min.isr": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "min.insync.replicas": "2",
    "log.cleaner.backoff.ms": "1000",
}
_COMPACTED = {
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "500",
    "file.delete.delay.ms": "1000",
    "segment.bytes": "2048",
}
_READING = {
    "key.deserializer": "bytes",
    "value.deserializer": "bytes",
    "auto.offset.reset": "earliest",
    "isolation.level": "read_committed",
}


def _coordinator(faults: FaultInjector) -> bool:
    """A coordinator of transactions is killed, paused past its session, or cut off from the
    coordination service."""
    view = ClusterView(faults.simulation)
    leaders = [view.leader(each) for each in view.partitions() if each.topic == _STATE_TOPIC]
    machines = [faults.simulation.machine(broker_name(each)) for each in leaders if each >= 0]
    running = [machine for machine in machines if machine.is_running]
    if not running:
        return False
    hit(faults, faults.rng.choice(running))
    return True


def _lost_disk(faults: FaultInjector) -> bool:
    """A broker comes back with an empty disk; only while all are up, and all replicas in sync."""
    is_up = all(machine.is_serving for machine in faults.simulation.brokers)
    return is_up and _all_in_sync(ClusterView(faults.simulation)) and FAULTS["wipe"](faults)


def _all_in_sync(view: ClusterView) -> bool:
    """Whether no replica is behind, also of those that are on their way to other brokers."""
    states = [(view.state(each), view.replicas(each)) for each in view.partitions()]
    return all(state is not None and set(state.leader_and_isr.isr) == set(replicas) for state, replicas in states)


_SPARING = ("kill", "pause", "partition", "split", "controller", "leader", "roll", "loss", "slow disk", "restart")
TRANSACTION_FAULTS: dict[str, Callable[[FaultInjector], bool]] = {
    **{name: FAULTS[name] for name in _SPARING},
    "coordinator": _coordinator,
    "lost disk": _lost_disk,
}
"""Those that leave what the disks have, in one copy at least."""


@dataclass(slots=True)
class TransactionPlan:
    """A run."""

    producers: int
    copiers: int
    partitions: int
    duration_s: float
    faults: tuple[str, ...]
    mean_fault_gap_s: float
    mean_pause_s: float = 0.3
    repeated_share: float = 0.1
    held_share: float = 0.0
    """How many Produce requests the network holds past the end of their transaction."""
    levels: tuple[int, ...] = (0,)
    """The levels of ``transaction.version``, one after the other; changed under load."""
    brokers: int = _REPLICAS
    chores: tuple[str, ...] = ()
    """What an administrator does meanwhile."""
    mean_chore_gap_s: float = 1.0
    is_compacted: bool = False
    """Whether the topic of the originals is."""


def transaction_plan_of(seed: int) -> TransactionPlan:
    """What a seed decides before its run."""
    rng = Random(f"{seed} transaction plan")
    names = sorted(TRANSACTION_FAULTS)
    faults = tuple(sorted(rng.sample(names, rng.randint(1, _MOST_FAULTS)))) if seed % _CALM_EVERY else ()
    return TransactionPlan(
        producers=rng.randint(1, 3),
        copiers=rng.choice((0, 1, 1, 2)),
        partitions=rng.randint(1, 3),
        duration_s=rng.choice((10.0, 15.0, 25.0)),
        faults=faults,
        mean_fault_gap_s=rng.choice((2.0, 4.0)),
        repeated_share=rng.choice((0.0, 0.1, 0.3)),
        levels=rng.choice(_LEVELS),
        brokers=_REPLICAS + rng.choice((0, 0, 1)),
        chores=tuple(sorted(rng.sample(CHORES, rng.choice((0, 0, 1, 2, len(CHORES)))))),
        is_compacted=rng.random() < _COMPACTED_SHARE,
    )


class TransactionReader:
    """Reads topics from their beginning at read_committed, and looks at what it is handed."""

    def __init__(self, client: ClusterClient, facts: TransactionFacts, partitions: list[TopicPartition]) -> None:
        self._client = client
        self._facts = facts
        self._partitions = partitions
        self.seen: dict[TopicPartition, dict[int, bytes]] = {each: {} for each in partitions}
        self.is_stopping = False
        self._handed: dict[TopicPartition, int] = {}
        client.observer.watch_records()
        self.task = client.spawn(self._run())

    def has_reached_end(self) -> bool:
        """Whether all is read, up to the high watermarks last seen."""
        high_watermarks = self._client.observer.high_watermarks
        return all(high_watermarks.get(each, 1 << 62) <= self.position(each) for each in self._partitions)

    def position(self, topic_partition: TopicPartition) -> int:
        """The offset below which it was handed everything."""
        return self._handed.get(topic_partition, 0)

    def is_as_far_as(self, other: "TransactionReader") -> bool:
        """Whether it has read what the other has; it may have been cut off for a while."""
        return all(self.position(each) >= other.position(each) for each in self._partitions)

    async def _run(self) -> None:
        consumer: VirtualConsumer[bytes, bytes] = VirtualConsumer(self._client.link, _READING)
        consumer.assign(dict.fromkeys(self._partitions, 0))
        while not self.is_stopping:
            try:
                await self._read(consumer)
            except ClientError as error:
                self._client.history.violation(f"reading ended with {error}", error)
                return
        await self._read(consumer)

    async def _read(self, consumer: VirtualConsumer[bytes, bytes]) -> None:
        # What is fetched during this call may be handed out by the next one.
        fetched = dict(self._client.observer.positions)
        for record in await consumer.consume(10_000, _POLL_S):
            topic_partition = TopicPartition(record.topic, record.partition)
            value = record.value or b""
            known = self.seen[topic_partition].setdefault(record.offset, value)
            if known != value:
                self._client.history.violation(f"{topic_partition}: {record.offset} was {known!r}, and is {value!r}")
            self._facts.check_seen(topic_partition, value)
        self._handed = fetched


class TransactionScenario:
    """One run; see the module."""

    def __init__(self, simulation: Simulation, plan: TransactionPlan) -> None:
        self._simulation = simulation
        self._plan = plan
        self._history = simulation.history
        self._facts = TransactionFacts(simulation.history)
        self._view = ClusterView(simulation)
        self._injector = FaultInjector(
            simulation, simulation.random("faults"), wiping=self._wiping, damaged=_never_damaged
        )
        self._losses = Losses(self._view, self._history)
        self._has_wiped = False
        self._has_lost = False
        self.fault_counts: dict[str, int] = {}
        self._workers: list[TransactionalProducer | TransactionalCopier] = []
        self._readers: list[TransactionReader] = []
        simulation.broker_settings.update(_SETTINGS)
        self._log_dirs = _TWO_LOG_DIRS if "move dir" in plan.chores else _TWO_LOG_DIRS[:1]
        simulation.broker_settings["log.dirs"] = ",".join(self._log_dirs)
        self._history.true_leader = self._view.leader
        self._history.reconsider = self._losses.reconsider
        self._history.on_allowed_loss.append(self._lost)
        simulation.on_commit.append(self._committed)
        self._partitions = [TopicPartition(topic, n) for topic in (_ORIGINAL, _COPY) for n in range(plan.partitions)]
        if plan.is_compacted:
            self._facts.compacted.add(_ORIGINAL)
        for each in self._partitions:
            self._history.partition(each).is_compacted = each.topic in self._facts.compacted

    def _wiping(self, machine: Machine) -> None:
        """A broker's disk is about to be emptied."""
        self._has_wiped = True
        self._losses.wiped(machine)

    def _lost(self, _: TopicPartition) -> None:
        self._has_lost = True
        self._history.count("losses of transactions")

    def _committed(self, paths: list[str]) -> None:
        """The coordination service has new znodes: look at partitions whose state they are."""
        for path in paths:
            topic_partition = partition_of_state(path) if path.endswith("/state") else None
            if topic_partition is not None:
                self._losses.state_changed(topic_partition)

    async def run(self) -> None:
        """From the first start to the checks."""
        simulation = self._simulation
        simulation.start_coordination()
        for broker_id in range(self._plan.brokers):
            simulation.start_broker(broker_id)
        await simulation.until(self._all_serve, _START_TIMEOUT_S, "the cluster starts")
        watching = simulation.loop.create_task(self._watch())
        if not self._history.violations:
            await self._load()
            await self._end()
        watching.cancel()
        for machine in simulation.brokers:
            await simulation.stop(machine)
        if not self._history.violations and not self._has_lost:
            check_markers(simulation, self._facts, {_ORIGINAL, _COPY})

    def _all_serve(self) -> bool:
        machines: list[Machine] = [*self._simulation.coordination, *self._simulation.brokers]
        return all(machine.is_serving for machine in machines)

    def _client(self, name: str) -> ClusterClient:
        return ClusterClient(self._simulation, name, range(self._plan.brokers))

    async def _watch(self) -> None:
        while True:
            check_bounds(self._simulation)
            await asyncio.sleep(_LOOK_S)

    async def _load(self) -> None:
        plan, facts = self._plan, self._facts
        admin = self._client("admin")
        await admin.spawn(set_feature_level(admin, self._view, TRANSACTION_VERSION, plan.levels[0]))
        for topic in (_ORIGINAL, _COPY):
            topic_plan = TopicPlan(plan.partitions, _COMPACTED if topic in facts.compacted else {})
            await admin.spawn(create_simulated_topic(admin, topic, topic_plan, _REPLICAS))
        self._readers.append(TransactionReader(self._client("reader"), facts, self._partitions))
        self._start_workers()
        administrator = self._administrate() if plan.chores else None
        faults = self._simulation.loop.create_task(
            inject_faults(self._injector, TRANSACTION_FAULTS, plan.faults, plan.mean_fault_gap_s, self.fault_counts)
        )
        for level in plan.levels:
            await admin.spawn(set_feature_level(admin, self._view, TRANSACTION_VERSION, level))
            await asyncio.sleep(plan.duration_s / len(plan.levels))
        self._injector.is_over = True
        for task in (faults,) if administrator is None else (faults, administrator.task):
            task.cancel()
            await asyncio.wait([task])
            if not task.cancelled():
                task.result()
        if self._has_wiped and not all(machine.is_running for machine in self._simulation.brokers):
            await asyncio.sleep(_SESSION_ENDS_S)  # no broker comes back without its data before

    def _start_workers(self) -> None:
        plan, facts = self._plan, self._facts
        originals = [each for each in self._partitions if each.topic == _ORIGINAL]
        for number in range(plan.producers):
            name = f"producer-{number}"
            self._workers.append(
                TransactionalProducer(
                    self._client(name),
                    name,
                    facts,
                    originals,
                    mean_pause_s=plan.mean_pause_s,
                    repeated_share=plan.repeated_share,
                    held_share=plan.held_share,
                )
            )
        for number in range(plan.copiers):
            name = f"copier-{number}"
            self._workers.append(
                TransactionalCopier(
                    self._client(name),
                    name,
                    facts,
                    _GROUP,
                    _ORIGINAL,
                    _COPY,
                    mean_pause_s=plan.mean_pause_s,
                    repeated_share=plan.repeated_share,
                    held_share=plan.held_share,
                )
            )

    def _administrate(self) -> TransactionAdministrator:
        return TransactionAdministrator(
            self._client("administrator"),
            self._view,
            self._facts,
            self._deletable,
            chores=self._plan.chores,
            deleting=[each for each in self._partitions if each.topic not in self._facts.compacted],
            log_dirs=self._log_dirs,
            mean_pause_s=self._plan.mean_chore_gap_s,
        )

    def _deletable(self, topic_partition: TopicPartition) -> int:
        """The end of what the reader has seen; for records to be copied, with their copies."""
        reader, upto = self._readers[0], 0
        needs_copies = topic_partition.topic == _ORIGINAL and self._plan.copiers
        copied = {content_of(copy) for copy in _values(reader.seen, _COPY)} if needs_copies else set()
        for offset, value in sorted(reader.seen[topic_partition].items()):
            if needs_copies and value not in copied:
                break
            upto = offset + 1
        return upto

    async def _end(self) -> None:
        simulation = self._simulation
        for machine in (*simulation.coordination, *simulation.brokers):
            machine.is_wanted = True
        simulation.heal()
        await simulation.until(self._all_serve, _HEAL_TIMEOUT_S, "all servers serve again after healing")
        await self._stop([each for each in self._workers if isinstance(each, TransactionalProducer)])
        await self._all_stable()
        if self._plan.copiers:
            for worker in self._workers:
                worker.is_calm = True
            await simulation.until(self._is_copied, _CAUGHT_UP_S, "the copiers catch up")
        await self._stop([each for each in self._workers if isinstance(each, TransactionalCopier)])
        await self._all_stable()
        last = TransactionReader(self._client("last-reader"), self._facts, self._partitions)
        self._readers.append(last)
        await simulation.until(lambda: _all_in_sync(self._view), _HEAL_TIMEOUT_S, "all replicas are in sync")
        await simulation.until(last.has_reached_end, _CAUGHT_UP_S, "a new reader reads all")
        await simulation.until(
            lambda: all(reader.is_as_far_as(last) for reader in self._readers), _CAUGHT_UP_S, "all readers read all"
        )
        for reader in self._readers:
            reader.is_stopping = True
        await simulation.until(
            lambda: all(reader.task.done() for reader in self._readers), _CAUGHT_UP_S, "the readers finish"
        )
        for work in (*self._workers, *self._readers):
            if work.task.done():
                work.task.result()
        if not self._history.violations and not self._has_lost:
            self._check(last)

    async def _stop(self, workers: "list[TransactionalProducer] | list[TransactionalCopier]") -> None:
        for worker in workers:
            worker.is_stopping = True
        await self._simulation.until(
            lambda: all(worker.task.done() for worker in workers), _HEAL_TIMEOUT_S, "transactional producers finish"
        )

    async def _all_stable(self) -> None:
        """Transactions that were left open end with their time-out; nothing holds readers back for
        ever."""
        view, simulation = self._view, self._simulation
        if not await simulation.until(
            lambda: not partitions_held_back(simulation, view), _CAUGHT_UP_S, "all transactions end"
        ):
            for text in partitions_held_back(simulation, view):
                self._history.violation(text)

    def _is_copied(self) -> bool:
        """Whether every original is among the copies that the reader has seen; but for those that
        compaction may have taken."""
        reader, facts = self._readers[0], self._facts
        for each in self._partitions:
            log = leader_log(self._simulation, self._view, each)
            # The end of the log, not the high watermark: a new leader's may be behind.
            if each.topic == _ORIGINAL and (log is None or reader.position(each) < log.log_end_offset):
                return False
        copied = {content_of(copy) for copy in _values(reader.seen, _COPY)}
        return all(value in copied or facts.is_gone(value, reader.seen) for value in _values(reader.seen, _ORIGINAL))

    def _check(self, last: TransactionReader) -> None:
        facts, first = self._facts, self._readers[0].seen
        seen = {each: {**first[each], **last.seen[each]} for each in self._partitions}
        facts.check_all(seen)
        for topic_partition in self._partitions:
            facts.check_last(topic_partition, first[topic_partition], last.seen[topic_partition])
        if self._plan.copiers:
            facts.check_copies(seen, _values(last.seen, _ORIGINAL), _values(seen, _COPY))
        if not self._plan.faults and self._history.counts.get("transactions committed", 0) < 5:
            self._history.violation("the run was vacuous")


def _values(seen: Seen, topic: str) -> list[bytes]:
    return [value for each, values in seen.items() if each.topic == topic for value in values.values()]


def _never_damaged(*_: object) -> None:
    raise AssertionError("no fault of these runs damages a log")


def run_transaction_seed(seed: int, *, keep_trace: bool = False, plan: TransactionPlan | None = None) -> Result:
    """One run; what went wrong is in the result."""
    drawn = plan or transaction_plan_of(seed)
    return run_scenario(seed, lambda simulation: TransactionScenario(simulation, drawn), keep_trace=keep_trace)
