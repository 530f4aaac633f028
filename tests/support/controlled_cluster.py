"""A controller over a dictionary of znodes, and brokers that obey it: which of them
holds which replica."""

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from barnabas.base.ids import TopicPartition, Uuid
from barnabas.broker.cluster.znodes import (
    BrokerInfo,
    Endpoint,
    ReplicaAssignment,
    broker_path,
    decode_partition_state,
    decode_topic,
    encode_broker,
    encode_topic,
    partition_state_path,
    topic_path,
)
from barnabas.broker.controller import (
    failover,
    isr_change,
    reassignment,
    topic_change,
)
from barnabas.broker.controller.context import ControllerContext
from barnabas.broker.controller.request_batch import RequestBatch
from barnabas.wire.kafka.errors import KafkaError
from barnabas.wire.kafka.messages.leader_and_isr import LeaderAndIsrRequest
from barnabas.wire.kafka.messages.stop_replica import StopReplicaRequest
from support.znode_steps import Znodes

TOPIC_ID = Uuid(bytes(range(16)))


class ControlledCluster:
    """Brokers by id; requests reach those that are registered, at once and in order."""

    def __init__(self, *brokers: int) -> None:
        self.znodes = Znodes()
        self.held: dict[int, set[TopicPartition]] = {}
        self.epoch = 0
        for broker in brokers:
            self.start(broker)
        self.elect()

    # What happens to it

    def start(self, broker: int) -> None:
        info = BrokerInfo(broker, (Endpoint("h", 9092 + broker, "PLAINTEXT", "PLAINTEXT"),))
        self.znodes.put(broker_path(broker), encode_broker(info, 0))
        self.held.setdefault(broker, set())

    def stop(self, broker: int) -> None:
        self.znodes.remove(broker_path(broker))

    def elect(self, *, stop_after: int | None = None) -> None:
        """A new controller takes over, or crashes while it does."""
        self.epoch += 1
        self.context = ControllerContext(0, self.epoch)
        self.batch = RequestBatch(self.context, "PLAINTEXT")
        self.run(failover.on_controller_failover, lambda: TOPIC_ID, stop_after=stop_after)

    def create(self, topic: str, *assignment: tuple[int, ...]) -> None:
        partitions = {index: ReplicaAssignment(replicas) for index, replicas in enumerate(assignment)}
        self.znodes.put(topic_path(topic), encode_topic(TOPIC_ID, partitions))
        self.run(topic_change.process_topic_change, lambda: TOPIC_ID)

    def run(self, decide: Callable[..., Any], *args: Any, stop_after: int | None = None, **kwargs: Any) -> Any:
        result = self.znodes.perform(decide(self.context, self.batch, *args, **kwargs), stop_after=stop_after)
        self._obey()
        return result

    def reassign(
        self, targets: Mapping[TopicPartition, Sequence[int] | None], *, stop_after: int | None = None
    ) -> dict[TopicPartition, KafkaError | None]:
        answers = self.run(reassignment.process_api_reassignment, targets, stop_after=stop_after)
        return answers or {}

    def catch_up(self, *, stop_after: int | None = None) -> None:
        """Every leader takes all live assigned replicas that it knows into the ISR, and
        the controller hears of it."""
        for partition in list(self.context.leadership):
            current = self.context.leadership[partition].leader_and_isr
            info = self.context.brokers.get(current.leader)
            members = [b for b in self.context.assignment(partition).replicas if self._follows(b, partition)]
            isr = (*current.isr, *(member for member in members if member not in current.isr))
            if info is not None and isr != current.isr:
                change = isr_change.IsrChange(partition, current.leader_epoch, isr, 0, current.version)
                self.run(isr_change.process_alter_partition, current.leader, info.epoch, [change])
        self.run(reassignment.maybe_complete, stop_after=stop_after)

    def _follows(self, broker: int, partition: TopicPartition) -> bool:
        return self.context.is_live(broker) and partition in self.held[broker]

    def _obey(self) -> None:
        for broker, request in self.znodes.sent:
            held = self.held[broker]
            if isinstance(request, LeaderAndIsrRequest):
                held |= {
                    TopicPartition(topic.topic_name, state.partition_index)
                    for topic in request.topic_states
                    for state in topic.partition_states
                    if broker in state.replicas
                }
            elif isinstance(request, StopReplicaRequest):
                held -= {
                    TopicPartition(topic.topic_name, state.partition_index)
                    for topic in request.topic_states
                    for state in topic.partition_states
                    if state.delete_partition
                }
        self.sent = list(self.znodes.sent)
        self.znodes.sent.clear()

    # What one sees of it

    def assignment(self, partition: TopicPartition) -> ReplicaAssignment:
        """As its znode has it."""
        return decode_topic(partition.topic, self.znodes.data(topic_path(partition.topic))).partitions[
            partition.partition
        ]

    def leader(self, partition: TopicPartition) -> int:
        return self._state(partition).leader

    def isr(self, partition: TopicPartition) -> tuple[int, ...]:
        return self._state(partition).isr

    def leader_epoch(self, partition: TopicPartition) -> int:
        return self._state(partition).leader_epoch

    def _state(self, partition: TopicPartition) -> Any:
        path = partition_state_path(partition)
        return decode_partition_state(path, self.znodes.data(path), 0).leader_and_isr

    def holders(self, partition: TopicPartition) -> set[int]:
        return {broker for broker, held in self.held.items() if partition in held}

    def requests(self, kind: type) -> dict[int, Any]:
        """The last of a kind that each broker was sent in the last run."""
        return {broker: request for broker, request in self.sent if isinstance(request, kind)}

    def json(self, path: str) -> Any:
        return json.loads(self.znodes.data(path))
