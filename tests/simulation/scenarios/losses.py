"""Which records a loss of disks may cost: nothing is lost while one in-sync replica keeps its data.

A broker that loses its power (or its disk, or whose failed sync left bytes in memory alone) may
come back with less than it had: its replicas are *short* from an offset on. Until such a
replica leaves the in-sync set, which the controller does when the broker's registration ends,
two events may cost acknowledged records, as they do with Apache's brokers, which do not sync
before they acknowledge either:

- every in-sync replica became short: no other may be elected,
- a short replica became leader before it was removed from the set: all the others
  were away at that moment.

A log that is cut or damaged while its broker is down is another matter: the broker notices it, and
does not lead while another member of the set may return
(`barnabas.broker.membership.isr_withdrawal`). Such a loss is allowed only where the replica is
alone in the set, or where its machine loses its power before it has left the set.

Only these losses are allowed, from the offset on that certainly survived, and when they happen. Any
other loss is a violation.
"""

from barnabas.base.ids import TopicPartition
from barnabas.testing.simulation.cluster_view import ClusterView
from barnabas.testing.simulation.disk import Disk
from barnabas.testing.simulation.history import History
from barnabas.testing.simulation.simulation import Machine
from simulation.scenarios.logs_on_disk import end_of_batches, partitions_on_disk, synced_end_offset

__all__ = ["Losses"]


class Losses:
    """Which replicas are short; see the module."""

    def __init__(self, view: ClusterView, history: History) -> None:
        self._view = view
        self._history = history
        self._short: dict[TopicPartition, dict[int, int]] = {}
        """By partition and broker: the offset before which everything is there."""
        self._damaged: dict[tuple[TopicPartition, int], int] = {}
        """Replicas in an in-sync set whose logs were damaged, and the offset before
        which everything is there."""
        self._lives: dict[tuple[TopicPartition, int], int] = {}
        """Which life of the broker was the last that had more."""

    def is_short(self, topic_partition: TopicPartition, broker_id: int) -> bool:
        """Whether a replica may lack what it had."""
        return broker_id in self._short.get(topic_partition, ())

    def power_lost(self, machine: Machine) -> None:
        """Call it before the disk forgets: what was not synced may be gone."""
        self._count_damage(machine)
        for topic_partition, segments in partitions_on_disk(machine.disk).items():
            end_offset = synced_end_offset(machine.disk, segments)
            if end_offset < _whole_end(machine.disk, segments):
                self._shortened(topic_partition, machine, end_offset)

    def process_died(self, machine: Machine) -> None:
        """Call it before the pages go: what a failed sync left in memory alone is gone."""
        for topic_partition, segments in partitions_on_disk(machine.disk).items():
            end_offset = 0
            for base_offset, path in sorted(segments):
                inode = machine.disk.inode(path)
                if inode is not None:
                    end_offset = end_of_batches(inode.data, inode.readable_bytes(), max(end_offset, base_offset))
                    if inode.lost:
                        self._shortened(topic_partition, machine, end_offset)
                        break

    def damaged(self, machine: Machine, topic_partition: TopicPartition, end_offset: int) -> None:
        """A log was damaged, in a way that the broker can notice, while the broker was down."""
        self._damaged[topic_partition, _broker_id(machine)] = end_offset
        self.reconsider(topic_partition)

    def _count_damage(self, machine: Machine) -> None:
        """After a reboot a damaged replica stays in the set: it is as short as those
        that have lost their power."""
        for (topic_partition, broker_id), end_offset in list(self._damaged.items()):
            if broker_id == _broker_id(machine):
                del self._damaged[topic_partition, broker_id]
                self._shortened(topic_partition, machine, end_offset)

    def wiped(self, machine: Machine) -> None:
        """Call it before the disk is emptied."""
        for topic_partition in partitions_on_disk(machine.disk):
            self._shortened(topic_partition, machine, 0)

    def _shortened(self, topic_partition: TopicPartition, machine: Machine, end_offset: int) -> None:
        broker_id = _broker_id(machine)
        short = self._short.setdefault(topic_partition, {})
        short[broker_id] = min(short.get(broker_id, end_offset), end_offset)
        self._lives[topic_partition, broker_id] = machine.lives
        self.reconsider(topic_partition)
        state = self._view.state(topic_partition)
        members = () if state is None else state.leader_and_isr.isr
        if state is not None and members and all(member in short for member in members):
            lost_from = max(short[member] for member in members)
            self._history.allow_loss(topic_partition, lost_from, state.leader_and_isr.leader_epoch)

    def state_changed(self, topic_partition: TopicPartition) -> None:
        """Call it after every change of a state: a replica that leaves an in-sync
        set is no longer short."""
        self.reconsider(topic_partition)

    def reconsider(self, topic_partition: TopicPartition) -> None:
        """Look at a partition's in-sync set and leader as they are now."""
        self._reconsider_damage(topic_partition)
        short = self._short.get(topic_partition)
        if not short:
            return
        state = self._view.state(topic_partition)
        if state is None:
            return
        for broker_id in list(short):
            if broker_id not in state.leader_and_isr.isr:
                del short[broker_id]  # it comes back into the set with everything, or not at all
        leader = state.leader_and_isr.leader
        if leader not in short:
            return
        machine = self._view.broker(leader)
        if machine.lives > self._lives[topic_partition, leader] and self._view.is_led_here(machine, topic_partition):
            self._history.allow_loss(topic_partition, short.pop(leader), state.leader_and_isr.leader_epoch)
            self._history.count("short leaders")

    def _reconsider_damage(self, topic_partition: TopicPartition) -> None:
        state = self._view.state(topic_partition) if self._damaged else None
        if state is None:
            return
        isr = state.leader_and_isr.isr
        for damaged, broker_id in list(self._damaged):
            if damaged != topic_partition:
                continue
            if broker_id not in isr:
                del self._damaged[damaged, broker_id]
                self._history.count("damaged replicas that left")
            elif isr == (broker_id,):
                end_offset = self._damaged.pop((damaged, broker_id))
                self._shortened(topic_partition, self._view.broker(broker_id), end_offset)


def _broker_id(machine: Machine) -> int:
    return int(machine.name.rpartition("-")[2])


def _whole_end(disk: Disk, segments: list[tuple[int, str]]) -> int:
    end_offset = 0
    for base_offset, path in sorted(segments):
        inode = disk.inode(path)
        if inode is not None:
            end_offset = end_of_batches(inode.data, len(inode.data), max(end_offset, base_offset))
    return end_offset
