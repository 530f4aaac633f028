"""The controller's knowledge of the cluster (Kafka's `ControllerContext`), and the states of
partitions and replicas.

`ControllerContext` is a cache: the znodes are the truth, and a new controller builds it from them
alone. It decides nothing; the other modules of this folder do.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import NamedTuple

from barnabas.base.ids import NO_LEADER_EPOCH, ZERO_UUID, TopicPartition, Uuid
from barnabas.broker.cluster.control_constants import EPOCH_DURING_DELETE
from barnabas.broker.cluster.znodes import BrokerInfo, LeaderIsrAndControllerEpoch, ReplicaAssignment
from barnabas.broker.configuration.protocol_version import CURRENT, FeatureVersioning
from barnabas.broker.metadata.features import FeatureCache

__all__ = [
    "PARTITION_STATE_SOURCES",
    "REPLICA_STATE_SOURCES",
    "ControllerContext",
    "PartitionAndReplica",
    "PartitionState",
    "ReplicaState",
]


class PartitionState(Enum):
    """The state of a partition (Kafka's `PartitionState`; ABSENT is its `NonExistentPartition`)."""

    NEW = "new"
    ONLINE = "online"
    OFFLINE = "offline"
    ABSENT = "absent"


PARTITION_STATE_SOURCES: dict[PartitionState, frozenset[PartitionState]] = {
    PartitionState.NEW: frozenset({PartitionState.ABSENT}),
    PartitionState.ONLINE: frozenset({PartitionState.NEW, PartitionState.ONLINE, PartitionState.OFFLINE}),
    PartitionState.OFFLINE: frozenset({PartitionState.NEW, PartitionState.ONLINE, PartitionState.OFFLINE}),
    PartitionState.ABSENT: frozenset({PartitionState.OFFLINE}),
}
"""The states from which a partition may move to each state."""


class ReplicaState(Enum):
    """The state of one broker's replica of a partition (Kafka's `ReplicaState`)."""

    NEW = "new"
    ONLINE = "online"
    OFFLINE = "offline"
    DELETING = "deleting"
    DELETED = "deleted"
    INELIGIBLE = "ineligible"  # for deletion: its broker is away, or refused
    ABSENT = "absent"


REPLICA_STATE_SOURCES: dict[ReplicaState, frozenset[ReplicaState]] = {
    ReplicaState.NEW: frozenset({ReplicaState.ABSENT}),
    ReplicaState.ONLINE: frozenset(
        {ReplicaState.NEW, ReplicaState.ONLINE, ReplicaState.OFFLINE, ReplicaState.INELIGIBLE}
    ),
    ReplicaState.OFFLINE: frozenset(
        {ReplicaState.NEW, ReplicaState.ONLINE, ReplicaState.OFFLINE, ReplicaState.INELIGIBLE}
    ),
    ReplicaState.DELETING: frozenset({ReplicaState.OFFLINE}),
    ReplicaState.DELETED: frozenset({ReplicaState.DELETING}),
    ReplicaState.INELIGIBLE: frozenset({ReplicaState.OFFLINE, ReplicaState.DELETING}),
    ReplicaState.ABSENT: frozenset({ReplicaState.DELETED}),
}
"""The states from which a replica may move to each state."""


class PartitionAndReplica(NamedTuple):
    """One broker's copy of a partition."""

    topic_partition: TopicPartition
    broker: int


@dataclass(slots=True)
class ControllerContext:
    """Everything is by topic name, `TopicPartition` or broker id."""

    broker_id: int
    epoch: int = 0
    # The version of the znode /controller_epoch: every write of this controller is
    # conditional on it.
    epoch_version: int = 0
    delete_topic_enabled: bool = True
    feature_versioning: FeatureVersioning = CURRENT
    new_cluster_features: Mapping[str, int] = field(default_factory=dict)
    """The levels that are finalized if there is no znode yet."""
    features: FeatureCache = field(default_factory=FeatureCache)
    """The broker's own: what is finalized while it is controller."""
    has_read_znodes: bool = False
    """Whether all znodes have been read since the election: before that, what is
    missing here may exist."""
    # Whether a replica out of sync may lead, where the topic says nothing.
    unclean_default: bool = False
    # Live brokers, including those that are shutting down.
    brokers: dict[int, BrokerInfo] = field(default_factory=dict)
    shutting_down: set[int] = field(default_factory=set)
    topics: dict[str, dict[int, ReplicaAssignment]] = field(default_factory=dict)
    topic_ids: dict[str, Uuid] = field(default_factory=dict)
    reassigning: set[TopicPartition] = field(default_factory=set)  # those whose assignment says so
    leadership: dict[TopicPartition, LeaderIsrAndControllerEpoch] = field(default_factory=dict)
    # Replicas whose log dir failed.
    offline_dirs: dict[int, set[TopicPartition]] = field(default_factory=dict)
    partition_states: dict[TopicPartition, PartitionState] = field(default_factory=dict)
    replica_states: dict[TopicPartition, dict[int, ReplicaState]] = field(default_factory=dict)
    """For reading; `set_replica_state` and `drop_replica` change it."""
    replica_counts: dict[str, dict[ReplicaState, int]] = field(default_factory=dict)
    """How many replicas of a topic are in each state, so that no response of a broker
    has to look at all of them."""
    to_delete: set[str] = field(default_factory=set)
    deletion_started: set[str] = field(default_factory=set)
    ineligible_for_deletion: set[str] = field(default_factory=set)

    # Brokers

    def is_live(self, broker: int) -> bool:
        """Registered, and not in a controlled shutdown."""
        return broker in self.brokers and broker not in self.shutting_down

    def is_online(self, broker: int, topic_partition: TopicPartition, *, shutting_down_too: bool = False) -> bool:
        """Whether the broker is registered and the log dir of its replica works."""
        if broker not in self.brokers or (broker in self.shutting_down and not shutting_down_too):
            return False
        return topic_partition not in self.offline_dirs.get(broker, ())

    def broker_ids(self) -> list[int]:
        """Live brokers and those that are shutting down, in order: the receivers of requests."""
        return sorted(self.brokers)

    # Topics

    def partitions(self) -> Iterator[TopicPartition]:
        return (TopicPartition(topic, index) for topic, indexes in self.topics.items() for index in indexes)

    def partitions_of(self, topics: Iterable[str]) -> list[TopicPartition]:
        return [TopicPartition(topic, index) for topic in topics for index in self.topics.get(topic, ())]

    def assignment(self, topic_partition: TopicPartition) -> ReplicaAssignment:
        """Its replicas; none for a partition that is not known."""
        return self.topics.get(topic_partition.topic, {}).get(topic_partition.partition, _UNASSIGNED)

    def set_assignment(self, topic_partition: TopicPartition, assignment: ReplicaAssignment) -> None:
        self.topics.setdefault(topic_partition.topic, {})[topic_partition.partition] = assignment
        if assignment.is_reassigning:
            self.reassigning.add(topic_partition)
        else:
            self.reassigning.discard(topic_partition)

    def is_reassigning(self, topic: str) -> bool:
        """Whether replicas of any of its partitions are being moved."""
        return any(topic_partition.topic == topic for topic_partition in self.reassigning)

    def topic_id(self, topic: str) -> Uuid:
        return self.topic_ids.get(topic, ZERO_UUID)

    def replicas_of(self, partitions: Iterable[TopicPartition]) -> list[PartitionAndReplica]:
        return [PartitionAndReplica(p, broker) for p in partitions for broker in self.assignment(p).replicas]

    def replicas_on(self, brokers: Iterable[int], partitions: Iterable[TopicPartition]) -> list[PartitionAndReplica]:
        wanted = set(brokers)
        return [PartitionAndReplica(p, b) for p in partitions for b in self.assignment(p).replicas if b in wanted]

    def is_deleting(self, topic: str) -> bool:
        return topic in self.to_delete

    def leader_epoch(self, topic_partition: TopicPartition) -> int:
        """The epoch that StopReplica carries."""
        if self.is_deleting(topic_partition.topic):
            return EPOCH_DURING_DELETE
        known = self.leadership.get(topic_partition)
        return known.leader_and_isr.leader_epoch if known else NO_LEADER_EPOCH

    def led_by_dead(
        self, leadership: Iterable[tuple[TopicPartition, LeaderIsrAndControllerEpoch]]
    ) -> list[TopicPartition]:
        """Partitions whose leader is gone, those of topics being deleted aside."""
        return [
            topic_partition
            for topic_partition, known in leadership
            if not self.is_online(known.leader_and_isr.leader, topic_partition)
            and not self.is_deleting(topic_partition.topic)
        ]

    def led_by(
        self, broker: int, leadership: Iterable[tuple[TopicPartition, LeaderIsrAndControllerEpoch]]
    ) -> list[TopicPartition]:
        """Partitions of more than one replica that the broker leads, those being deleted aside."""
        return [
            topic_partition
            for topic_partition, known in leadership
            if known.leader_and_isr.leader == broker
            and not self.is_deleting(topic_partition.topic)
            and len(self.assignment(topic_partition).replicas) > 1
        ]

    def replicas_in(self, topic: str, state: ReplicaState) -> list[PartitionAndReplica]:
        return [
            PartitionAndReplica(topic_partition, broker)
            for topic_partition in self.partitions_of([topic])
            for broker, current in self.replica_states.get(topic_partition, {}).items()
            if current is state
        ]

    def set_replica_state(self, topic_partition: TopicPartition, broker: int, state: ReplicaState) -> None:
        states = self.replica_states.setdefault(topic_partition, {})
        counts = self.replica_counts.setdefault(topic_partition.topic, {})
        before = states.get(broker)
        if before is not None:
            counts[before] -= 1
        states[broker] = state
        counts[state] = counts.get(state, 0) + 1

    def drop_replica(self, topic_partition: TopicPartition, broker: int) -> None:
        """The broker has no copy of the partition any more."""
        before = self.replica_states.get(topic_partition, {}).pop(broker, None)
        if before is not None:
            self.replica_counts[topic_partition.topic][before] -= 1

    def has_replicas_in(self, topic: str, state: ReplicaState) -> bool:
        """Whether any replica of a topic is in a state."""
        return self.replica_counts.get(topic, {}).get(state, 0) > 0

    def are_all_replicas_in(self, topic: str, state: ReplicaState) -> bool:
        """Whether every replica of a topic is in a state; true of a topic without replicas."""
        counts = self.replica_counts.get(topic, {})
        return all(count == 0 or each is state for each, count in counts.items())

    def remove_topic(self, topic: str) -> None:
        """Remove everything about a topic."""
        for topic_partition in self.partitions_of([topic]):
            self.leadership.pop(topic_partition, None)
            self.partition_states.pop(topic_partition, None)
            self.replica_states.pop(topic_partition, None)
            self.reassigning.discard(topic_partition)
            for offline in self.offline_dirs.values():
                offline.discard(topic_partition)
        self.replica_counts.pop(topic, None)
        self.topics.pop(topic, None)
        self.topic_ids.pop(topic, None)
        self.to_delete.discard(topic)
        self.deletion_started.discard(topic)
        self.ineligible_for_deletion.discard(topic)


_UNASSIGNED = ReplicaAssignment(())
