"""Which znode the controller watches, and what it does when one changes: the whole list."""

from collections.abc import Callable, Hashable
from functools import partial
from typing import Any, NamedTuple

from barnabas.broker.cluster.znodes import (
    ADMIN_DELETE_TOPICS,
    BROKER_IDS,
    BROKER_TOPICS,
    ISR_CHANGES,
    LOG_DIR_EVENTS,
    PREFERRED_ELECTION,
    REASSIGN_PARTITIONS,
)
from barnabas.broker.controller import decisions, isr_changes, leaders, reassignment
from barnabas.broker.controller.context import ControllerState
from barnabas.broker.controller.decisions import NewTopicId
from barnabas.broker.controller.requests import RequestBatch
from barnabas.broker.controller.steps import Steps

__all__ = ["Decision", "Reaction", "Reactions"]

Decision = Callable[[ControllerState, RequestBatch], Steps[Any]]


class Reaction(NamedTuple):
    """What to do about a change. Of equal keys one is enough: an event is a hint to look."""

    key: Hashable
    decide: Decision


class Reactions:
    """By path."""

    def __init__(self, new_topic_id: NewTopicId) -> None:
        self._fixed: dict[str, Decision] = {
            BROKER_IDS: decisions.brokers_changed,
            BROKER_TOPICS: partial(decisions.topics_changed, new_topic_id=new_topic_id),
            ADMIN_DELETE_TOPICS: decisions.delete_topics,
            ISR_CHANGES: isr_changes.isr_changed,
            LOG_DIR_EVENTS: decisions.log_dirs_failed,
            PREFERRED_ELECTION: leaders.prefer_leaders,
            REASSIGN_PARTITIONS: reassignment.take_orders,
        }

    def to(self, path: str) -> Reaction | None:
        """None for a znode that nobody watches."""
        fixed = self._fixed.get(path)
        if fixed is not None:
            return Reaction(path, fixed)
        parent, _, name = path.rpartition("/")
        if parent == BROKER_TOPICS:
            return Reaction((BROKER_TOPICS, name), partial(decisions.partitions_changed, topic=name))
        if parent == BROKER_IDS and name.isdecimal():
            return Reaction((BROKER_IDS, name), partial(decisions.broker_changed, broker=int(name)))
        return None
