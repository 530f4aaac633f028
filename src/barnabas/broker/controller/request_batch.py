"""Requests about a change, one of each kind for each broker (Kafka's
`ControllerBrokerRequestBatch`).

Order matters to brokers: first LeaderAndIsr (become leader or follower), then UpdateMetadata (what
clients see), then StopReplica. Within a batch the last request for a partition wins, but ``is_new``
and ``delete`` stay once they are set.
"""

from collections import Counter
from collections.abc import Iterable
from typing import Any

from barnabas.base.ids import TopicPartition
from barnabas.broker.cluster.control_constants import EPOCH_DURING_DELETE, LEADER_DURING_DELETE, SECURITY_PROTOCOL_IDS
from barnabas.broker.cluster.znodes import BrokerInfo
from barnabas.broker.controller.context import ControllerContext
from barnabas.wire.kafka.messages.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from barnabas.wire.kafka.messages.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
)
from barnabas.wire.kafka.messages.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)

__all__ = ["RequestBatch"]

_MOST_OF_A_WHOLE_TOPIC = 2048


class RequestBatch:
    """Requests under construction; `take` makes the messages and empties the batch."""

    def __init__(self, context: ControllerContext, inter_broker_listener: str) -> None:
        self._context = context
        self._listener = inter_broker_listener
        self._new: dict[int, dict[TopicPartition, bool]] = {}
        self._stop: dict[int, dict[TopicPartition, tuple[int, bool]]] = {}
        self._metadata: dict[TopicPartition, None] = {}
        self._metadata_brokers: set[int] = set()
        self._keeps_topics_whole = False

    def keep_topics_whole(self) -> None:
        """Let `take` hold the leaders of a topic back until it has those of all
        partitions, or until `take_rest`.

        A client that saw the first partitions of a topic alone would take them for the whole
        of it. Topics of more than 2,048 partitions are sent in parts all the same: their
        request would hold the loop.
        """
        self._keeps_topics_whole = True

    def take_rest(self) -> list[tuple[int, Any]]:
        """`take` all, what was held back too, and hold nothing back any more."""
        self._keeps_topics_whole = False
        return self.take()

    def add_leader_and_isr(self, brokers: Iterable[int], topic_partition: TopicPartition, *, is_new: bool) -> None:
        """Let the brokers become leader or follower, and all brokers know of it."""
        for broker in brokers:
            roles = self._new.setdefault(broker, {})
            roles[topic_partition] = is_new or roles.get(topic_partition, False)
        self.add_update_metadata([topic_partition])

    def add_update_metadata(self, partitions: Iterable[TopicPartition], brokers: Iterable[int] | None = None) -> None:
        """Send brokers (all of them by default) the leaders of these partitions, and
        the live brokers."""
        self._metadata_brokers.update(self._context.brokers if brokers is None else brokers)
        self._metadata.update(dict.fromkeys(partitions))

    def add_stop_replica(self, brokers: Iterable[int], topic_partition: TopicPartition, *, delete: bool) -> None:
        """Let the brokers stop fetching, and remove the log if ``delete``."""
        epoch = self._context.leader_epoch(topic_partition)
        for broker in brokers:
            stops = self._stop.setdefault(broker, {})
            stops[topic_partition] = (epoch, delete or stops.get(topic_partition, (0, False))[1])

    def take(self) -> list[tuple[int, Any]]:
        """``(broker, request)`` in the order of sending; brokers that are not live get none."""
        live = self._context.brokers
        held = self._held_back() if self._keeps_topics_whole else {}
        for topic_partition in held:
            del self._metadata[topic_partition]
        requests: list[tuple[int, Any]] = [
            (broker, self._leader_and_isr(broker, roles))
            for broker, roles in sorted(self._new.items())
            if broker in live
        ]
        if self._metadata_brokers & live.keys() and (self._metadata or not held):
            requests += self._update_metadata()
        requests += [
            (broker, self._stop_replica(broker, stops))
            for broker, stops in sorted(self._stop.items())
            if broker in live
        ]
        brokers = self._metadata_brokers if held else set()
        self._new, self._stop, self._metadata, self._metadata_brokers = {}, {}, held, brokers
        return requests

    def _held_back(self) -> dict[TopicPartition, None]:
        """The partitions of topics that are not complete yet."""
        counts = Counter(topic_partition.topic for topic_partition in self._metadata)
        topics = self._context.topics
        incomplete = {
            topic for topic, count in counts.items() if count < len(topics.get(topic, ())) <= _MOST_OF_A_WHOLE_TOPIC
        }
        return {topic_partition: None for topic_partition in self._metadata if topic_partition.topic in incomplete}

    def _leader_and_isr(self, broker: int, roles: dict[TopicPartition, bool]) -> LeaderAndIsrRequest:
        context = self._context
        topics: dict[str, LeaderAndIsrTopicState] = {}
        leaders: set[int] = set()
        for topic_partition, is_new in sorted(roles.items()):
            known = context.leadership[topic_partition]
            current = known.leader_and_isr
            assignment = context.assignment(topic_partition)
            leaders.add(current.leader)
            topic = topics.get(topic_partition.topic)
            if topic is None:
                topic = topics[topic_partition.topic] = LeaderAndIsrTopicState(
                    topic_name=topic_partition.topic,
                    topic_id=context.topic_id(topic_partition.topic),
                    partition_states=[],
                )
            topic.partition_states.append(
                LeaderAndIsrPartitionState(
                    topic_name=topic_partition.topic,
                    partition_index=topic_partition.partition,
                    controller_epoch=known.controller_epoch,
                    leader=current.leader,
                    leader_epoch=current.leader_epoch,
                    isr=list(current.isr),
                    partition_epoch=current.version,
                    replicas=list(assignment.replicas),
                    adding_replicas=list(assignment.adding),
                    removing_replicas=list(assignment.removing),
                    is_new=is_new,
                    leader_recovery_state=current.recovery_state,
                )
            )
        return LeaderAndIsrRequest(
            controller_id=context.broker_id,
            controller_epoch=context.epoch,
            broker_epoch=context.brokers[broker].epoch,
            topic_states=list(topics.values()),
            live_leaders=[
                LeaderAndIsrLiveLeader(broker_id=leader, host_name=host, port=port)
                for leader in sorted(leaders & context.brokers.keys())
                for host, port in [self._address(context.brokers[leader])]
            ],
        )

    def _address(self, info: BrokerInfo) -> tuple[str, int]:
        endpoint = info.endpoint(self._listener)
        return (endpoint.host, endpoint.port) if endpoint else ("", -1)

    def _update_metadata(self) -> list[tuple[int, UpdateMetadataRequest]]:
        """One message for all brokers but for the epoch that each is addressed with.

        The parts are shared."""
        context = self._context
        topics: dict[str, UpdateMetadataTopicState] = {}
        for topic_partition in sorted(self._metadata):
            entry = self._metadata_entry(topic_partition)
            if entry is None:
                continue  # no leader was ever elected: nothing to send yet
            topic = topics.get(topic_partition.topic)
            if topic is None:
                topic = topics[topic_partition.topic] = UpdateMetadataTopicState(
                    topic_name=topic_partition.topic,
                    topic_id=context.topic_id(topic_partition.topic),
                    partition_states=[],
                )
            topic.partition_states.append(entry)
        live = [
            UpdateMetadataBroker(
                id=info.id,
                rack=info.rack,
                endpoints=[
                    UpdateMetadataEndpoint(
                        port=end.port,
                        host=end.host,
                        listener=end.listener,
                        security_protocol=SECURITY_PROTOCOL_IDS.get(end.security_protocol, 0),
                    )
                    for end in info.endpoints
                ],
            )
            for _, info in sorted(context.brokers.items())
        ]
        return [
            (
                broker,
                UpdateMetadataRequest(
                    controller_id=context.broker_id,
                    controller_epoch=context.epoch,
                    broker_epoch=context.brokers[broker].epoch,
                    topic_states=list(topics.values()),
                    live_brokers=live,
                ),
            )
            for broker in sorted(self._metadata_brokers & context.brokers.keys())
        ]

    def _metadata_entry(self, topic_partition: TopicPartition) -> UpdateMetadataPartitionState | None:
        context = self._context
        known = context.leadership.get(topic_partition)
        if known is None:
            return None
        current = known.leader_and_isr
        replicas = context.assignment(topic_partition).replicas
        deleting = context.is_deleting(topic_partition.topic)
        return UpdateMetadataPartitionState(
            topic_name=topic_partition.topic,
            partition_index=topic_partition.partition,
            controller_epoch=known.controller_epoch,
            leader=LEADER_DURING_DELETE if deleting else current.leader,
            leader_epoch=EPOCH_DURING_DELETE if deleting else current.leader_epoch,
            isr=list(current.isr),
            zk_version=current.version,
            replicas=list(replicas),
            offline_replicas=[replica for replica in replicas if not context.is_online(replica, topic_partition)],
        )

    def _stop_replica(self, broker: int, stops: dict[TopicPartition, tuple[int, bool]]) -> StopReplicaRequest:
        topics: dict[str, StopReplicaTopicState] = {}
        for topic_partition, (leader_epoch, delete) in stops.items():
            topic = topics.setdefault(
                topic_partition.topic, StopReplicaTopicState(topic_name=topic_partition.topic, partition_states=[])
            )
            topic.partition_states.append(
                StopReplicaPartitionState(
                    partition_index=topic_partition.partition, leader_epoch=leader_epoch, delete_partition=delete
                )
            )
        return StopReplicaRequest(
            controller_id=self._context.broker_id,
            controller_epoch=self._context.epoch,
            broker_epoch=self._context.brokers[broker].epoch,
            topic_states=list(topics.values()),
        )
