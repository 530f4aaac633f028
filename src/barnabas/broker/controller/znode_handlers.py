"""Which znodes the controller watches, and which event each change becomes: the whole list.

Kafka's `KafkaController` has a handler class for each: `BrokerChangeHandler`, `TopicChangeHandler`,
`PartitionModificationsHandler`, `TopicDeletionHandler`, `IsrChangeNotificationHandler`, ...
"""

from functools import partial

from barnabas.broker.cluster.znodes import (
    ADMIN_DELETE_TOPICS,
    BROKER_IDS,
    BROKER_TOPICS,
    CONTROLLER,
    ISR_CHANGES,
    LOG_DIR_EVENTS,
    PREFERRED_ELECTION,
    REASSIGN_PARTITIONS,
)
from barnabas.broker.controller import (
    broker_change,
    isr_change,
    reassignment,
    replica_leader_election,
    topic_change,
)
from barnabas.broker.controller.event_queue import Decide, Hint, Reelect
from barnabas.broker.controller.topic_change import NewTopicId

__all__ = ["ZnodeHandlers"]


class ZnodeHandlers:
    """By path."""

    def __init__(self, new_topic_id: NewTopicId) -> None:
        self._fixed: dict[str, Decide] = {
            BROKER_IDS: broker_change.process_broker_change,
            BROKER_TOPICS: partial(topic_change.process_topic_change, new_topic_id=new_topic_id),
            ADMIN_DELETE_TOPICS: topic_change.process_topic_deletion,
            ISR_CHANGES: isr_change.process_isr_change_notification,
            LOG_DIR_EVENTS: broker_change.process_log_dir_event_notification,
            PREFERRED_ELECTION: replica_leader_election.process_preferred_replica_election,
            REASSIGN_PARTITIONS: reassignment.process_znode_reassignment,
        }

    def event(self, path: str) -> Hint | Reelect | None:
        """The event of a change of this znode; None for one that is not watched."""
        if path == CONTROLLER:
            return Reelect()
        fixed = self._fixed.get(path)
        if fixed is not None:
            return Hint(path, fixed)
        parent, _, name = path.rpartition("/")
        if parent == BROKER_TOPICS:
            return Hint((BROKER_TOPICS, name), partial(topic_change.process_partition_modifications, topic=name))
        if parent == BROKER_IDS and name.isdecimal():
            return Hint((BROKER_IDS, name), partial(broker_change.process_broker_modification, broker=int(name)))
        return None
