"""What must hold of replicas at every moment, seen from outside, and at the end.

Throughout (`ReplicationObserver.look`):

- all that lies below the high watermark of any replica is the same on all replicas,
  batch for batch,
- every member of the true in-sync set has all that lies below the high watermark of any broker that
  leads by its own account,
- log start <= last stable offset <= high watermark <= log end; a leader's high watermark never
  falls (a follower's may: a new leader can know an earlier one than the last, and answers with it),
- broker, controller and leader epochs never fall; a leader epoch has one leader, a
  controller epoch one controller,
- the leader in a state znode is in its in-sync set.

Partitions that allow unclean elections are left out of the first two, and so are those that lost
records with their disks (`simulation.scenarios.losses`): a replica that had them may keep them for
a while. At the end (`check_replicas_agree`): all replicas are back in sync, and equal.
"""

import contextlib
from collections.abc import Iterator

from barnabas.base.files import FileSlice
from barnabas.base.ids import TopicPartition
from barnabas.broker.cluster.znodes import CONTROLLER_EPOCH, NO_LEADER, LeaderAndIsr, partition_state_path
from barnabas.broker.replication.partition import Partition
from barnabas.log.partition_log import PartitionLog
from barnabas.testing.simulation.cluster_view import ClusterView
from barnabas.testing.simulation.history import History
from barnabas.testing.simulation.simulation import Machine, Simulation
from barnabas.wire.kafka.errors import KafkaError
from barnabas.wire.kafka.records.batch_header import BatchHeader, read_headers
from simulation.scenarios.losses import Losses

__all__ = ["ReplicationObserver"]

_READ_BYTES = 1 << 20
_Identity = tuple[int, int, int]
"""Of a batch: last offset, leader epoch, CRC."""


class ReplicationObserver:
    """Looks at the living brokers and the znodes now and then."""

    def __init__(self, simulation: Simulation, view: ClusterView, losses: Losses) -> None:
        self._simulation = simulation
        self._history: History = simulation.history
        self._view = view
        self._losses = losses
        self._highest: dict[tuple[object, ...], int] = {}
        self._only: dict[tuple[object, ...], int] = {}
        self._committed: dict[tuple[TopicPartition, bytes], dict[int, _Identity]] = {}
        self._scanned: dict[tuple[object, ...], int] = {}
        self._states: dict[TopicPartition, LeaderAndIsr] = {}
        self._cuts: dict[str, int] = {}
        self.ignored_topics: set[str] = set()
        """Topics that are being deleted."""

    def look(self) -> None:
        """Check all brokers that serve, and all states."""
        machines = [machine for machine in self._simulation.brokers if machine.is_serving]
        for machine in machines:
            self._look_at(machine)
        states = self._look_at_states()
        for machine in machines:
            for partition in tuple(machine.server.components.replicas):
                if partition.is_leader and not partition.offline and partition.topic_partition in states:
                    self._check_in_sync(machine, partition, states[partition.topic_partition])

    def state_changed(self, topic_partition: TopicPartition) -> None:
        """Look at a partition whose state was written this moment.

        Call it after every such write."""
        found = self._view.state(topic_partition)
        if found is None:
            return
        state = found.leader_and_isr
        self._count_changes(topic_partition, state)
        for machine in self._simulation.brokers:
            partition = machine.server.components.replicas.get(topic_partition) if machine.is_serving else None
            if partition is not None and partition.is_leader and not partition.offline:
                self._check_in_sync(machine, partition, state)

    def _is_exempt(self, topic_partition: TopicPartition) -> bool:
        known = self._history.partition(topic_partition)
        return (
            known.is_unclean or known.is_compacted or known.losses > 0 or topic_partition.topic in self.ignored_topics
        )

    # Brokers

    def _look_at(self, machine: Machine) -> None:
        node, history = machine.server.components, self._history
        self._count_truncations(machine)
        self._never_back((machine.name, "broker epoch"), node.broker_epoch)
        self._never_back((machine.name, machine.lives, "controller epoch"), node.replicas.controller_epoch)
        if node.controller.is_active:
            self._one((("controller of epoch", node.controller.epoch)), node.broker_id)
        for topic_partition, log in tuple(node.log_dirs.logs().items()):
            start, stable, high = log.log_start_offset, log.last_stable_offset, log.high_watermark
            if not start <= stable <= high <= log.log_end_offset:
                history.violation(
                    f"{machine.name} {topic_partition}: start {start}, last stable {stable}, high {high}, end {log.log_end_offset}"
                )
            self._losses.reconsider(topic_partition)
            if not self._is_exempt(topic_partition) and log.offline is None:
                self._check_committed(machine, topic_partition, log)
        for partition in tuple(node.replicas):
            identity = (partition.topic_partition, partition.topic_id)
            self._never_back((machine.name, machine.lives, *identity, "leader epoch"), partition.leader_epoch)
            if partition.is_leader:
                if not self._is_exempt(partition.topic_partition):
                    led = (machine.name, machine.lives, *identity, partition.leader_epoch, "high watermark")
                    self._never_back(led, partition.log.high_watermark)
                self._one(("leader of", *identity, "in epoch", partition.leader_epoch), node.broker_id)

    def _count_truncations(self, machine: Machine) -> None:
        cuts = machine.disk.cuts
        before = self._cuts.get(machine.name, cuts)
        if cuts > before:
            self._history.count("truncations", cuts - before)
        self._cuts[machine.name] = cuts

    def _check_committed(self, machine: Machine, topic_partition: TopicPartition, log: PartitionLog) -> None:
        """Compare what is newly below the replica's high watermark with what others had there."""
        key = (machine.name, machine.lives, topic_partition, log.topic_id)
        position = self._scanned.get(key, 0)
        if position >= log.high_watermark:
            return
        if self._losses.is_short(topic_partition, machine.server.components.broker_id):
            return
        # A disk error may meet this reading too; what it could not read is compared
        # at the next look.
        with contextlib.suppress(KafkaError):
            self._compare(machine, topic_partition, log, position, log.high_watermark)
            self._scanned[key] = log.high_watermark

    def _compare(
        self, machine: Machine, topic_partition: TopicPartition, log: PartitionLog, start: int, end: int
    ) -> None:
        committed = self._committed.setdefault((topic_partition, log.topic_id), {})
        for header in batches(log, max(start, log.log_start_offset), end):
            found = header.last_offset, header.leader_epoch, header.crc
            known = committed.setdefault(header.base_offset, found)
            if known != found:
                self._history.violation(
                    f"{machine.name} {topic_partition}: the committed batch at {header.base_offset} is (end, epoch, crc) {found}, "
                    f"elsewhere it is {known}"
                )
                return

    # States

    def _look_at_states(self) -> dict[TopicPartition, LeaderAndIsr]:
        states: dict[TopicPartition, LeaderAndIsr] = {}
        tree = self._view.tree()
        if tree is None:
            return states
        node = tree.nodes.get(CONTROLLER_EPOCH)
        if node is not None:
            self._never_back(("/controller_epoch",), int(node.data or b"0"))
        for topic_partition in self._view.partitions():
            found = self._view.state(topic_partition)
            if found is None:
                continue
            state = states[topic_partition] = found.leader_and_isr
            made = tree.nodes[partition_state_path(topic_partition)].czxid
            self._never_back((topic_partition, made, "leader epoch in the znode"), state.leader_epoch)
            self._never_back((topic_partition, made, "controller epoch in the znode"), found.controller_epoch)
            if state.leader != NO_LEADER and state.leader not in state.isr:
                self._history.violation(
                    f"{topic_partition}: leader {state.leader} is not in the in-sync set {state.isr}"
                )
        return states

    def _count_changes(self, topic_partition: TopicPartition, state: LeaderAndIsr) -> None:
        before = self._states.get(topic_partition)
        self._states[topic_partition] = state
        if before is None or before.version >= state.version:
            return  # new, or created again
        if state.leader != before.leader and state.leader != NO_LEADER:
            self._history.count("leader moves")
        if set(before.isr) - set(state.isr):
            self._history.count("ISR shrinks")
        if set(state.isr) - set(before.isr):
            self._history.count("ISR expansions")

    def _check_in_sync(self, leader: Machine, partition: Partition, state: LeaderAndIsr) -> None:
        topic_partition, high = partition.topic_partition, partition.log.high_watermark
        if self._is_exempt(topic_partition):
            return
        for member in state.isr:
            machine = self._view.broker(member)
            if machine is leader or not machine.is_serving or self._losses.is_short(topic_partition, member):
                continue
            log = machine.server.components.log_dirs.logs().get(topic_partition)
            if log is None or log.offline is not None or log.topic_id != partition.topic_id:
                continue
            if log.log_end_offset < high:
                self._history.violation(
                    f"{topic_partition}: {leader.name} has the high watermark {high} in leader epoch {partition.leader_epoch}, "
                    f"{machine.name} is in sync by the znode and ends at {log.log_end_offset}"
                )
            elif log.high_watermark < high:
                with contextlib.suppress(KafkaError):
                    self._compare(machine, topic_partition, log, log.high_watermark, high)

    # What may not go back, what may be but once

    def _never_back(self, what: tuple[object, ...], value: int) -> None:
        before = self._highest.get(what, value)
        if value < before:
            self._history.violation(f"{' '.join(map(str, what))} went from {before} back to {value}")
        self._highest[what] = max(before, value)

    def _one(self, what: tuple[object, ...], broker_id: int) -> None:
        known = self._only.setdefault(what, broker_id)
        if known != broker_id:
            self._history.violation(f"{' '.join(map(str, what))}: broker {known} and broker {broker_id}")

    # The end

    def replicas_behind(self) -> list[str]:
        """What still keeps the replicas from being in sync and equal."""
        behind = []
        for topic_partition in self._view.partitions():
            if topic_partition.topic in self.ignored_topics:
                continue
            state = self._view.state(topic_partition)
            assert state is not None
            replicas = self._replicas(topic_partition)
            if set(state.leader_and_isr.isr) != {broker_id for broker_id, _ in replicas}:
                behind.append(
                    f"{topic_partition}: in sync {state.leader_and_isr.isr}, replicas {[one for one, _ in replicas]}"
                )
            ends = {(log.log_end_offset, log.high_watermark) for _, log in replicas}
            if len(ends) > 1 or any(end != high for end, high in ends):
                behind.append(f"{topic_partition}: (end, high watermark) {sorted(ends)}")
        return behind

    def _replicas(self, topic_partition: TopicPartition) -> list[tuple[int, PartitionLog]]:
        """The replicas that are wanted: a broker that could not be reached while its replica moved
        away may have one still, as with Apache's controllers, which forget it too."""
        found = []
        wanted = self._view.replicas(topic_partition)
        for machine in self._simulation.brokers:
            if machine.is_serving and machine.server.components.broker_id in wanted:
                node = machine.server.components
                partition = node.replicas.get(topic_partition)
                if partition is not None:
                    found.append((node.broker_id, partition.log))
        return found

    def check_replicas_agree(self) -> None:
        """All replicas of a partition hold the same batches from the highest log start on."""
        for topic_partition in self._view.partitions():
            replicas = self._replicas(topic_partition)
            if (
                topic_partition.topic in self.ignored_topics
                or self._history.partition(topic_partition).is_compacted
                or not replicas
            ):
                continue
            start = max(log.log_start_offset for _, log in replicas)
            whole = [list(batches(log, start, log.log_end_offset)) for _, log in replicas]
            for (broker_id, _), other in zip(replicas[1:], whole[1:], strict=True):
                if other != whole[0]:
                    self._history.violation(
                        f"{topic_partition}: brokers {replicas[0][0]} and {broker_id} hold different batches"
                    )
            self._history.count("replicas compared", len(replicas))


def batches(log: PartitionLog, start: int, end: int) -> Iterator[BatchHeader]:
    """The headers of the batches with offsets from ``start`` up to ``end``.

    The CRC in each stands for its records."""
    position = start
    while position < end:
        records = log.read(position, _READ_BYTES, upper_bound=end).records
        data = records.read() if isinstance(records, FileSlice) else records
        before = position
        for _, header in read_headers(data):
            if header.last_offset >= position:
                yield header
                position = header.last_offset + 1
        if position == before:
            return
