"""Which election is held on which occasion (Kafka's `PartitionLeaderElectionStrategy`).

A strategy gets from the context what its election needs: which replicas are online,
and which of them stay.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from barnabas.base.ids import TopicPartition
from barnabas.broker.cluster.znodes import LeaderAndIsr
from barnabas.broker.controller.context import ControllerContext
from barnabas.broker.controller.elections import (
    elect_for_reassignment,
    elect_for_shutdown,
    elect_offline,
    elect_preferred,
)

__all__ = [
    "CONTROLLED_SHUTDOWN",
    "LEADER_EPOCH_ONLY",
    "OFFLINE",
    "PREFERRED",
    "REASSIGNMENT",
    "RETIREMENT",
    "UNCLEAN",
    "ElectionStrategy",
]

Choose = Callable[[ControllerContext, TopicPartition, LeaderAndIsr, bool], LeaderAndIsr | None]
"""``(context, partition, its leadership, unclean) -> the next leadership``, or None
when no replica qualifies."""


@dataclass(frozen=True, slots=True)
class ElectionStrategy:
    """How a leader is chosen, and who learns of it."""

    choose: Choose
    obeys_unclean_setting: bool = False
    """Whether ``unclean.leader.election.enable`` of the topic, or of the cluster, is
    looked up for `choose`."""
    notifies_leaving_brokers: bool = False
    """Whether brokers in a controlled shutdown get LeaderAndIsr too."""

    def notified(self, context: ControllerContext, topic_partition: TopicPartition) -> list[int]:
        """The brokers that get LeaderAndIsr after the election."""
        replicas = context.assignment(topic_partition).replicas
        too = self.notifies_leaving_brokers
        return [r for r in replicas if context.is_online(r, topic_partition, shutting_down_too=too)]


def _online(context: ControllerContext, topic_partition: TopicPartition, replicas: Iterable[int]) -> list[int]:
    return [replica for replica in replicas if context.is_online(replica, topic_partition)]


def _offline(
    context: ControllerContext, topic_partition: TopicPartition, current: LeaderAndIsr, unclean: bool
) -> LeaderAndIsr | None:
    replicas = context.assignment(topic_partition).replicas
    live = set(_online(context, topic_partition, {*replicas, *current.isr}))
    return elect_offline(replicas, current, live, unclean=unclean)


def _unclean(
    context: ControllerContext, topic_partition: TopicPartition, current: LeaderAndIsr, _unclean: bool
) -> LeaderAndIsr | None:
    return _offline(context, topic_partition, current, unclean=True)


def _leader_epoch_only(
    _context: ControllerContext, _partition: TopicPartition, current: LeaderAndIsr, _unclean: bool
) -> LeaderAndIsr:
    return current.with_leader(current.leader)


def _preferred(
    context: ControllerContext, topic_partition: TopicPartition, current: LeaderAndIsr, _unclean: bool
) -> LeaderAndIsr | None:
    replicas = context.assignment(topic_partition).replicas
    return elect_preferred(replicas, current, _online(context, topic_partition, replicas))


def _reassignment(
    context: ControllerContext, topic_partition: TopicPartition, current: LeaderAndIsr, _unclean: bool
) -> LeaderAndIsr | None:
    target = context.assignment(topic_partition).target
    return elect_for_reassignment(target, current, _online(context, topic_partition, target))


def _retirement(
    context: ControllerContext, topic_partition: TopicPartition, current: LeaderAndIsr, unclean: bool
) -> LeaderAndIsr | None:
    chosen = _reassignment(context, topic_partition, current, unclean)
    if chosen is not None:
        return chosen
    origin = context.assignment(topic_partition).origin
    return elect_for_reassignment(origin, current, _online(context, topic_partition, origin))


def _controlled_shutdown(
    context: ControllerContext, topic_partition: TopicPartition, current: LeaderAndIsr, _unclean: bool
) -> LeaderAndIsr | None:
    replicas = context.assignment(topic_partition).replicas
    there = [replica for replica in replicas if context.is_online(replica, topic_partition, shutting_down_too=True)]
    return elect_for_shutdown(replicas, current, there, context.shutting_down)


OFFLINE = ElectionStrategy(_offline, obeys_unclean_setting=True)
"""The leader is gone, or there was none yet."""
UNCLEAN = ElectionStrategy(_unclean)
"""Like `OFFLINE`, but if no live replica is in sync another one becomes leader,
whatever the topic's setting is."""
PREFERRED = ElectionStrategy(_preferred)
"""Make the first replica the leader."""
REASSIGNMENT = ElectionStrategy(_reassignment)
"""At the end of a reassignment, make a replica that stays the leader."""
RETIREMENT = ElectionStrategy(_retirement)
"""Like `REASSIGNMENT`, for leaders that are removed at once: the original replicas are
candidates too."""
CONTROLLED_SHUTDOWN = ElectionStrategy(_controlled_shutdown, notifies_leaving_brokers=True)
"""Before brokers stop, make a replica on another broker the leader."""
LEADER_EPOCH_ONLY = ElectionStrategy(_leader_epoch_only)
"""Keep the leader, and raise the leader epoch, so that brokers apply a changed assignment."""
