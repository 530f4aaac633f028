"""The cluster's state in the coordination service: the true leaders and in-sync sets,
whatever the brokers' state is."""

import re

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import TopicPartition
from barnabas.broker.cluster.znodes import (
    BROKER_TOPICS,
    LeaderIsrAndControllerEpoch,
    decode_partition_state,
    decode_topic,
    partition_state_path,
    topic_path,
)
from barnabas.coordination.core.tree import Tree
from barnabas.testing.simulation.simulation import COORDINATION, Machine, Simulation, broker_name

__all__ = ["ClusterView", "partition_of_state"]

_STATE = re.compile(re.escape(BROKER_TOPICS) + r"/([^/]+)/partitions/(\d+)/state")


def partition_of_state(path: str) -> TopicPartition | None:
    """The partition whose state a znode is; None for other znodes."""
    match = _STATE.fullmatch(path)
    return None if match is None else TopicPartition(match[1], int(match[2]))


class ClusterView:
    """Reads the service's tree, or the last one that was seen while the service is down."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._tree: Tree | None = None
        self._decoded: dict[TopicPartition, tuple[bytes, LeaderIsrAndControllerEpoch]] = {}

    def tree(self) -> Tree | None:
        """The committed znodes."""
        if self._simulation.layout.is_ensemble:
            return self._simulation.ensemble.database.tree
        server = self._simulation.machine(COORDINATION).server
        if server is not None:
            self._tree = server.processor.database.tree
        return self._tree

    def topics(self) -> list[str]:
        """All topics that have a znode."""
        tree = self.tree()
        return [] if tree is None else list(tree.children.get(BROKER_TOPICS, ()))

    def partitions(self) -> list[TopicPartition]:
        """All partitions that have a state."""
        tree = self.tree()
        if tree is None:
            return []
        return [
            TopicPartition(topic, int(number))
            for topic in self.topics()
            for number in tree.children.get(f"{BROKER_TOPICS}/{topic}/partitions", ())
        ]

    def state(self, topic_partition: TopicPartition) -> LeaderIsrAndControllerEpoch | None:
        """The leader and the in-sync set of the partition; None when it has no state."""
        tree = self.tree()
        node = None if tree is None else tree.nodes.get(partition_state_path(topic_partition))
        if node is None:
            return None
        data = bytes(node.data or b"")
        known = self._decoded.get(topic_partition)
        if known is None or known[0] != data or known[1].leader_and_isr.version != node.version:
            try:
                known = data, decode_partition_state(str(topic_partition), data, node.version)
            except BarnabasError:
                return None
            self._decoded[topic_partition] = known
        return known[1]

    def leader(self, topic_partition: TopicPartition) -> int:
        """The leader of the partition; -1 for none."""
        state = self.state(topic_partition)
        return -1 if state is None else state.leader_and_isr.leader

    def replicas(self, topic_partition: TopicPartition) -> tuple[int, ...]:
        """Where the partition's replicas shall be; nowhere for a topic that is gone."""
        tree = self.tree()
        node = None if tree is None else tree.nodes.get(topic_path(topic_partition.topic))
        if node is None:
            return ()
        assignment = decode_topic(topic_partition.topic, node.data).partitions.get(topic_partition.partition)
        return () if assignment is None else assignment.replicas

    def broker(self, broker_id: int) -> Machine:
        """A broker's machine."""
        return self._simulation.machine(broker_name(broker_id))

    def is_led_here(self, machine: Machine, topic_partition: TopicPartition) -> bool:
        """Whether a broker runs and leads a partition by its own account, even during its start."""
        if not machine.is_running or machine.starting is None:
            return False
        partition = (
            machine.starting.components.replicas.get(topic_partition) if machine.starting.has_components else None
        )
        return partition is not None and partition.is_leader and not partition.offline
