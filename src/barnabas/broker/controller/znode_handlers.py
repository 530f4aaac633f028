"""Which znode the controller watches, and what it does when one changes: the whole list."""

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, NamedTuple

from barnabas.broker.cluster.steps import Steps
from barnabas.broker.cluster.znodes import (
    ADMIN_DELETE_TOPICS,
    BROKER_IDS,
    BROKER_TOPICS,
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
from barnabas.broker.controller.context import ControllerContext
from barnabas.broker.controller.request_batch import RequestBatch
from barnabas.broker.controller.topic_change import NewTopicId

__all__ = ["Decision", "Reaction", "Reactions"]

Decision = Callable[[ControllerContext, RequestBatch], Steps[Any]]


class Reaction(NamedTuple):
    """What to do about a change. Of equal keys one is enough: an event is a hint to look."""

    key: Hashable
    decide: Decision


class Reactions:
    """By path."""

    def __init__(self, new_topic_id: NewTopicId) -> None:
        self._fixed: dict[str, Decision] = {
            BROKER_IDS: broker_change.process_broker_change,
            BROKER_TOPICS: partial(topic_change.process_topic_change, new_topic_id=new_topic_id),
            ADMIN_DELETE_TOPICS: topic_change.process_topic_deletion,
            ISR_CHANGES: isr_change.process_isr_change_notification,
            LOG_DIR_EVENTS: broker_change.process_log_dir_event_notification,
            PREFERRED_ELECTION: replica_leader_election.process_preferred_replica_election,
            REASSIGN_PARTITIONS: reassignment.process_znode_reassignment,
        }

    def to(self, path: str) -> Reaction | None:
        """None for a znode that nobody watches."""
        fixed = self._fixed.get(path)
        if fixed is not None:
            return Reaction(path, fixed)
        parent, _, name = path.rpartition("/")
        if parent == BROKER_TOPICS:
            return Reaction((BROKER_TOPICS, name), partial(topic_change.process_partition_modifications, topic=name))
        if parent == BROKER_IDS and name.isdecimal():
            return Reaction((BROKER_IDS, name), partial(broker_change.process_broker_modification, broker=int(name)))
        return None
