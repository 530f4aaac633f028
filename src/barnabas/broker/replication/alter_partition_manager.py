"""The in-sync sets that this broker, as leader, asks the controller for (KIP-497;
Kafka's AlterPartitionManager).

While a change is asked for, the leader waits for the members of the old set and of the new one
(`Leader.maximal_isr`), so it does not matter when the controller writes it. One request is under
way at a time and carries all that was asked meanwhile. What the answer means:

- the state as it is now: the change is confirmed (also when an earlier request of ours did it
  and its answer was lost),
- INELIGIBLE_REPLICA, OPERATION_NOT_ATTEMPTED: nothing was written; the set stays,
  and may be asked for again,
- FENCED_LEADER_EPOCH, INVALID_UPDATE_VERSION, NEW_LEADER_ELECTED, INVALID_REQUEST and unknown
  topics: the partition was changed by another request; its LeaderAndIsr is under way, and
  until then both sets bind us,
- anything else, and no answer at all: ask again after a pause.

`replication.service` sends the requests.
"""

from typing import NamedTuple

from barnabas.base.ids import TopicPartition
from barnabas.broker.replication.partition import Leader, Partition
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
    AlterPartitionResponse,
    BrokerState,
)

__all__ = ["AlterPartitionManager"]

_TOPIC_IDS_VERSION = 2
_BROKER_EPOCHS_VERSION = 3
_NOT_DONE = (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED)
_OVERTAKEN = (
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.INVALID_UPDATE_VERSION,
    ErrorCode.NEW_LEADER_ELECTED,
    ErrorCode.INVALID_REQUEST,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.UNKNOWN_TOPIC_ID,
)


class _Asked(NamedTuple):
    partition: Partition
    leader_epoch: int
    isr: frozenset[int]

    def is_current(self) -> bool:
        """Whether no LeaderAndIsr has changed the partition since."""
        role = self.partition.role
        return (
            self.partition.leader_epoch == self.leader_epoch
            and isinstance(role, Leader)
            and role.pending_isr == self.isr
        )


class AlterPartitionManager:
    """The in-sync sets that were requested and have no response yet.

    ``on_pending`` is called when there is something to send."""

    def __init__(self, broker_id: int) -> None:
        self._broker_id = broker_id
        self._asked: dict[TopicPartition, _Asked] = {}
        self._under_way: dict[TopicPartition, _Asked] = {}
        self.must_pause = False
        """Whether the last answer left something that must be asked again."""
        self.on_pending = _nothing
        self.shrinks = 0
        """Sets confirmed with fewer members than before."""
        self.expands = 0

    def submit(self, partition: Partition, isr: frozenset[int]) -> None:
        """Want another in-sync set for a partition that we lead and that has no
        change under way."""
        role = partition.leading()
        role.pending_isr = isr
        self._asked[partition.topic_partition] = _Asked(partition, partition.leader_epoch, isr)
        self.on_pending()

    @property
    def waiting(self) -> bool:
        return bool(self._asked)

    def request(self, version: int, broker_epoch: int) -> AlterPartitionRequest | None:
        """The next request, None when nothing is to be asked.

        `handle_response` or `failed` follows."""
        asked, self._asked = self._asked, {}
        self._under_way = {topic_partition: change for topic_partition, change in asked.items() if change.is_current()}
        if not self._under_way:
            return None
        topics: dict[str, AlterPartitionRequestTopicData] = {}
        for topic_partition, change in self._under_way.items():
            partition = change.partition
            topic = topics.get(topic_partition.topic)
            if topic is None:
                topic = topics[topic_partition.topic] = AlterPartitionRequestTopicData(
                    topic_name=topic_partition.topic, topic_id=partition.topic_id, partitions=[]
                )
            entry = AlterPartitionRequestPartitionData(
                partition_index=topic_partition.partition,
                leader_epoch=change.leader_epoch,
                partition_epoch=partition.partition_epoch,
            )
            if version >= _BROKER_EPOCHS_VERSION:
                entry.new_isr_with_epochs = [
                    BrokerState(broker_id=member, broker_epoch=self._epoch_of(partition, member, broker_epoch))
                    for member in _in_order(partition, change.isr)
                ]
            else:
                entry.new_isr = _in_order(partition, change.isr)
            topic.partitions.append(entry)
        return AlterPartitionRequest(broker_id=self._broker_id, broker_epoch=broker_epoch, topics=list(topics.values()))

    def _epoch_of(self, partition: Partition, member: int, own_epoch: int) -> int:
        if member == self._broker_id:
            return own_epoch
        progress = partition.leading().followers.get(member)
        return -1 if progress is None else progress.broker_epoch

    def handle_response(self, response: AlterPartitionResponse, version: int) -> list[Partition] | None:
        """The partitions whose set is settled, changed or not.

        None when the whole request failed and is asked again."""
        if response.error_code:
            self.failed()
            return None
        self.must_pause = False
        names = {
            change.partition.topic_id: topic_partition.topic for topic_partition, change in self._under_way.items()
        }
        settled = []
        for topic in response.topics:
            topic_name = names.get(topic.topic_id) if version >= _TOPIC_IDS_VERSION else topic.topic_name
            if topic_name is None:
                continue
            for entry in topic.partitions:
                change = self._under_way.pop(TopicPartition(topic_name, entry.partition_index), None)
                if change is None or not change.is_current():
                    continue
                partition = change.partition
                if not entry.error_code:
                    if entry.leader_epoch == change.leader_epoch and entry.partition_epoch >= partition.partition_epoch:
                        role = partition.leading()
                        size_before = len(role.isr)
                        role.isr, role.pending_isr = frozenset(entry.isr), None
                        self.shrinks += len(role.isr) < size_before
                        self.expands += len(role.isr) > size_before
                        partition.partition_epoch = entry.partition_epoch
                        settled.append(partition)
                elif entry.error_code in _NOT_DONE:
                    partition.leading().pending_isr = None
                    settled.append(partition)
                elif entry.error_code not in _OVERTAKEN:
                    self._asked.setdefault(partition.topic_partition, change)
                    self.must_pause = True
        self._asked = self._under_way | self._asked  # what the answer left out
        self._under_way = {}
        return settled

    def failed(self) -> None:
        """No answer, or none that says anything about the partitions: all of it is asked again."""
        self._asked = self._under_way | self._asked
        self._under_way = {}


def _in_order(partition: Partition, isr: frozenset[int]) -> list[int]:
    return [member for member in partition.replicas if member in isr]


def _nothing() -> None:
    pass
