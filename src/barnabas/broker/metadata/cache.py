"""This broker's metadata of the cluster, from the controller's UpdateMetadata requests alone.

Partition states are kept as they came. The parts of Metadata responses that depend on a topic alone
are built once for each listener and kept until something that shows in them changes, for clients of
large clusters ask for everything and often.

In Kafka: `ZkMetadataCache`.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from barnabas.base.ids import NO_BROKER, ZERO_UUID, TopicPartition, Uuid
from barnabas.base.tasks import Task
from barnabas.broker.cluster.control_constants import LEADER_DURING_DELETE, SECURITY_PROTOCOL_IDS
from barnabas.broker.cluster.znodes import Endpoint
from barnabas.broker.metadata.internal_topics import INTERNAL_TOPICS
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.metadata import (
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas.wire.kafka.messages.update_metadata import UpdateMetadataPartitionState, UpdateMetadataRequest

__all__ = ["AliveBroker", "MetadataCache", "UpdateListener"]


_PROTOCOL_NAMES = {number: name for name, number in SECURITY_PROTOCOL_IDS.items()}

UpdateListener = Callable[[set[str], list[TopicPartition]], None]
"""Called after an update with the topics that changed and the partitions that went."""


@dataclass(frozen=True, slots=True)
class AliveBroker:
    """A broker that is registered, by its listeners' names."""

    broker_id: int
    rack: str | None
    endpoints: Mapping[str, Endpoint]

    def endpoint(self, listener: str) -> Endpoint | None:
        return self.endpoints.get(listener)


class MetadataCache:
    """Topics, partitions, live brokers and the controller."""

    def __init__(self, cluster_id: str = "") -> None:
        self.cluster_id = cluster_id
        self._brokers: dict[int, AliveBroker] = {}
        self._controller_id = NO_BROKER
        self._topics: dict[str, dict[int, UpdateMetadataPartitionState]] = {}
        self._ids: dict[str, Uuid] = {}
        self._names: dict[Uuid, str] = {}
        self._responses: dict[tuple[str, bool], dict[str, MetadataResponseTopic]] = {}
        self._broker_responses: dict[str, list[MetadataResponseBroker]] = {}
        self._listeners: list[UpdateListener] = []
        self._unreachable: set[int] = set()
        self._expected: set[str] = set()
        self._changes = 0
        """How often anything changed that shows in a response."""

    # The start

    def expect(self, topics: Iterable[str]) -> None:
        """This broker has logs of ``topics``: until updates have named them all, the
        cache `is_loading`.

        A new controller first sends the live brokers alone, then partitions in batches. What a
        broker says in between is wrong for those who take a missing topic for a deleted one.
        """
        self._expected.update(topics)

    def stop_expecting(self) -> None:
        """The cache is loaded, whatever is missing: a topic may have been deleted
        while this broker was down."""
        self._expected.clear()

    @property
    def is_loading(self) -> bool:
        """Whether this broker has just started, and the controller has not yet sent all
        that it will send at once."""
        return not self._brokers or bool(self._expected)

    @property
    def has_brokers(self) -> bool:
        """Whether the controller has sent the live brokers, with its first update."""
        return bool(self._brokers)

    # Updates

    def on_update(self, listener: UpdateListener) -> None:
        """Call ``listener`` after every update."""
        self._listeners.append(listener)

    def update(self, request: UpdateMetadataRequest) -> list[TopicPartition]:
        """Take over what the controller says.

        Returns the partitions that went, with their topics' deletion."""
        self._controller_id = request.controller_id if request.controller_id >= 0 else NO_BROKER
        brokers = {
            broker.id: AliveBroker(
                broker.id,
                broker.rack,
                {
                    end.listener: Endpoint(
                        end.host, end.port, end.listener, _PROTOCOL_NAMES.get(end.security_protocol, "PLAINTEXT")
                    )
                    for end in broker.endpoints
                },
            )
            for broker in request.live_brokers
        }
        self._changes += 1
        if brokers != self._brokers:
            self._brokers = brokers
            self._responses.clear()
            self._broker_responses.clear()
        changed: set[str] = set()
        deleted: list[TopicPartition] = []
        for state in request.ungrouped_partition_states:
            self._update_partition(state.topic_name, state, deleted)
            changed.add(state.topic_name)
        for topic in request.topic_states:
            if topic.topic_id != ZERO_UUID:
                self._set_topic_id(topic.topic_name, topic.topic_id)
            for state in topic.partition_states:
                self._update_partition(topic.topic_name, state, deleted)
            changed.add(topic.topic_name)
        self._expected -= changed
        for kept in self._responses.values():
            for name in changed:
                kept.pop(name, None)
        for listener in self._listeners:
            listener(changed, deleted)
        return deleted

    def mark_unreachable(self, broker_id: int) -> None:
        """Show clients no leader where this broker leads: it seems to be dead, and a new
        leader will be elected soon.

        A client that received a dead leader asks again only after its own timer, seconds later. A
        client that received none asks again at once.
        """
        self._unreachable.add(broker_id)
        self._changes += 1
        self._responses.clear()

    def mark_reachable(self, broker_id: int) -> None:
        """Show the broker as leader again where it leads."""
        if broker_id in self._unreachable:
            self._unreachable.discard(broker_id)
            self._changes += 1
            self._responses.clear()

    def _set_topic_id(self, topic: str, topic_id: Uuid) -> None:
        old = self._ids.get(topic)
        if old != topic_id:
            if old is not None:
                self._names.pop(old, None)
            self._ids[topic] = topic_id
            self._names[topic_id] = topic

    def _update_partition(self, topic: str, state: UpdateMetadataPartitionState, deleted: list[TopicPartition]) -> None:
        if state.leader != LEADER_DURING_DELETE:
            self._topics.setdefault(topic, {})[state.partition_index] = state
            return
        partitions = self._topics.get(topic)
        if partitions is not None:
            partitions.pop(state.partition_index, None)
            if not partitions:
                del self._topics[topic]
        if topic not in self._topics:
            topic_id = self._ids.pop(topic, None)
            if topic_id is not None:
                self._names.pop(topic_id, None)
        deleted.append(TopicPartition(topic, state.partition_index))

    # Looking up

    def __contains__(self, topic: object) -> bool:
        return topic in self._topics

    @property
    def controller_id(self) -> int:
        """The controller that sent the last update, `NO_BROKER` for none."""
        return self._controller_id

    def count_topics(self) -> int:
        return len(self._topics)

    def topics(self) -> list[str]:
        return list(self._topics)

    def topic_id(self, topic: str) -> Uuid:
        """`ZERO_UUID` for a topic that is not known."""
        return self._ids.get(topic, ZERO_UUID)

    def topic_name(self, topic_id: Uuid) -> str | None:
        return self._names.get(topic_id)

    def partition(self, topic_partition: TopicPartition) -> UpdateMetadataPartitionState | None:
        """Leader, epochs, replicas and ISR of the controller's last update."""
        partitions = self._topics.get(topic_partition.topic)
        return None if partitions is None else partitions.get(topic_partition.partition)

    def may_have(self, topic_partition: TopicPartition) -> bool:
        """Whether the controller has named the partition, or may still do so: this
        broker has just started."""
        return self.is_loading or self.partition(topic_partition) is not None

    def partitions(self, topic: str) -> Mapping[int, UpdateMetadataPartitionState]:
        """A topic's partitions by number; none for a topic that is not known."""
        return self._topics.get(topic, {})

    def partition_count(self, topic: str) -> int:
        """0 for a topic that is not known."""
        return len(self._topics.get(topic, ()))

    def alive_brokers(self) -> Iterable[AliveBroker]:
        return self._brokers.values()

    def alive_broker(self, broker_id: int) -> AliveBroker | None:
        return self._brokers.get(broker_id)

    def live_leader(self, topic_partition: TopicPartition) -> int:
        """The broker that leads a partition, if it lives; `NO_BROKER` otherwise."""
        state = self.partition(topic_partition)
        return NO_BROKER if state is None or self.alive_broker(state.leader) is None else state.leader

    def leader_endpoint(self, topic_partition: TopicPartition, listener: str) -> Endpoint | None:
        """Where the partition's leader listens; None when there is no leader or it is not alive."""
        state = self.partition(topic_partition)
        broker = self._brokers.get(state.leader) if state is not None else None
        return broker.endpoint(listener) if broker is not None else None

    # Answers

    def describe_brokers(self, listener: str) -> list[MetadataResponseBroker]:
        """Live brokers that have the listener, by id."""
        kept = self._broker_responses.get(listener)
        if kept is None:
            kept = self._broker_responses[listener] = [
                MetadataResponseBroker(node_id=broker.broker_id, host=end.host, port=end.port, rack=broker.rack)
                for _, broker in sorted(self._brokers.items())
                if (end := broker.endpoint(listener)) is not None
            ]
        return kept

    def describe_topic(
        self, topic: str, listener: str, *, knows_listener_not_found: bool
    ) -> Task[MetadataResponseTopic | None]:
        """A topic for a Metadata response, to be sent and not to be changed.

        None for one that is not known. ``knows_listener_not_found``: clients know
        LISTENER_NOT_FOUND (version 6); others get LEADER_NOT_AVAILABLE instead.
        """
        partitions = self._topics.get(topic)
        if partitions is None:
            return None
        kept = self._responses.get((listener, knows_listener_not_found), {}).get(topic)
        if kept is not None:
            return kept
        described = []
        changes = self._changes
        for state in [partitions[index] for index in sorted(partitions)]:
            described.append(self._describe_partition(state, listener, knows_listener_not_found))
            yield None
        kept = MetadataResponseTopic(
            error_code=ErrorCode.NONE,
            name=topic,
            topic_id=self.topic_id(topic),
            is_internal=topic in INTERNAL_TOPICS,
            partitions=described,
        )
        if changes == self._changes:
            self._responses.setdefault((listener, knows_listener_not_found), {})[topic] = kept
        return kept

    def _describe_partition(
        self, state: UpdateMetadataPartitionState, listener: str, knows_listener_not_found: bool
    ) -> MetadataResponsePartition:
        leader = self._brokers.get(state.leader)
        error = ErrorCode.NONE
        if leader is None or state.leader in self._unreachable:
            error = ErrorCode.LEADER_NOT_AVAILABLE
        elif leader.endpoint(listener) is None:
            error = ErrorCode.LISTENER_NOT_FOUND if knows_listener_not_found else ErrorCode.LEADER_NOT_AVAILABLE
        return MetadataResponsePartition(
            error_code=error,
            partition_index=state.partition_index,
            leader_id=state.leader if error is ErrorCode.NONE else NO_BROKER,
            leader_epoch=state.leader_epoch,
            replica_nodes=state.replicas,
            isr_nodes=state.isr,
            offline_replicas=state.offline_replicas,
        )
