"""Confirms that this broker still leads a coordinator's partition, while it is not certain of its
session.

A broker that is cut off from the coordination service may lose its session. Then others lead its
partitions, and commit what this broker never sees. It cannot commit anything itself, because the
members of its in-sync sets no longer fetch from it. But what it reads from memory may be old: a
consumer that goes back to its committed offsets after an aborted transaction would process records
again, and commit the results at the new coordinator.

So while the broker is not certain of its session, it asks before such an answer: it sends
OffsetForLeaderEpoch with the next epoch after its own to the other members of the in-sync set. A
new leader is one of them, because only members are elected (an unclean election aside). A member
that does not know that epoch was not the leader of a later one when it was asked. A member that has
no replica any more does not confirm: it may have led, and handed over to others. Where the
coordination service is away for all brokers, the followers confirm, and groups go on.

A broker that has its session answers without asking, so one that the controller's LeaderAndIsr has
not reached may have an old memory. To ask each time would make groups wait for a member that hangs.

Kafka has no counterpart: its coordinators answer from memory.
"""

from collections.abc import Callable

from barnabas.base.ids import TopicPartition
from barnabas.broker.cluster.channels import ChannelError
from barnabas.broker.cluster.steps import Ask, Steps
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

__all__ = ["LeadershipConfirmation"]


class LeadershipConfirmation:
    """Asks the in-sync sets of coordinators' partitions who leads them."""

    def __init__(
        self, broker_id: int, replicas: ReplicaManager, metadata: MetadataCache, is_certain: Callable[[], bool]
    ) -> None:
        """``is_certain`` says whether the broker has its session, and the controller's orders that
        came with its registration."""
        self._broker_id = broker_id
        self._replicas = replicas
        self._metadata = metadata
        self._is_certain = is_certain

    @property
    def is_needed(self) -> bool:
        """Whether an answer from memory may be too old."""
        return not self._is_certain()

    def confirm(self, topic_partition: TopicPartition) -> Steps[None]:
        """Return if this broker leads a partition, or is known not to: then its memory says so.

        Raises `KafkaError` NOT_COORDINATOR if another one may lead it."""
        partition = self._replicas.get(topic_partition)
        if partition is None or not partition.is_leader:
            return
        epoch = partition.leader_epoch
        known = self._metadata.partition(topic_partition)
        if known is not None and known.leader_epoch > epoch:
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        for member in sorted(partition.leading().maximal_isr - {self._broker_id}):
            if not (yield from self._knows_no_later(member, topic_partition, epoch)):
                raise KafkaError(ErrorCode.NOT_COORDINATOR)

    def _knows_no_later(self, member: int, topic_partition: TopicPartition, epoch: int) -> Steps[bool]:
        """Whether a member has a replica, and knows no later epoch.

        With the epoch itself, one without a replica would answer as a follower does:
        NOT_LEADER_OR_FOLLOWER."""
        asked = OffsetForLeaderPartition(
            partition=topic_partition.partition, current_leader_epoch=epoch + 1, leader_epoch=epoch
        )
        request = OffsetForLeaderEpochRequest(
            replica_id=self._broker_id, topics=[OffsetForLeaderTopic(topic=topic_partition.topic, partitions=[asked])]
        )
        try:
            response: OffsetForLeaderEpochResponse = yield Ask(member, request)
        except ChannelError:
            return False
        codes = [each.error_code for topic in response.topics for each in topic.partitions]
        return codes == [ErrorCode.UNKNOWN_LEADER_EPOCH]
