"""The replica that a consumer should read from (KIP-392; Kafka's ReplicaSelector):
``replica.selector.class``.

A consumer that asks the leader and names its rack may be sent to a follower in that rack. Only
in-sync followers that have the requested offset count. Apache's brokers load a Java class here; the
one that Kafka ships is known by its name.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from barnabas.base.errors import ConfigError
from barnabas.broker.metadata.cache import AliveBroker
from barnabas.broker.replication.partition import Leader, Partition

__all__ = ["PreferredReadReplica", "ReplicaSelector", "ReplicaView", "rack_aware", "replica_selector"]

_RACK_AWARE = "org.apache.kafka.common.replica.RackAwareReplicaSelector"


class ReplicaView(NamedTuple):
    """One replica that could serve a read."""

    broker_id: int
    rack: str | None
    log_end_offset: int
    since_caught_up_ms: int


ReplicaSelector = Callable[[str, ReplicaView, Sequence[ReplicaView]], int]
"""``select(rack, leader, followers)``: the broker to read from."""


def rack_aware(rack: str, leader: ReplicaView, followers: Sequence[ReplicaView]) -> int:
    """The leader when it is in the reader's rack or no replica is; else the follower there
    with the highest end offset.

    Among equals it is the one that was caught up last, then the one with the higher id.
    """
    if not rack or leader.rack == rack:
        return leader.broker_id
    near = [replica for replica in followers if replica.rack == rack]
    best = max(
        near,
        key=lambda replica: (replica.log_end_offset, -replica.since_caught_up_ms, replica.broker_id),
        default=leader,
    )
    return best.broker_id


def replica_selector(class_name: str | None) -> ReplicaSelector | None:
    """The selector of a class name; None where every consumer reads from the leader.

    Raises `ConfigError`."""
    if not class_name:
        return None
    if class_name == _RACK_AWARE:
        return rack_aware
    raise ConfigError(f"replica.selector.class: {class_name} is not known here, only {_RACK_AWARE}")


class PreferredReadReplica:
    """Chooses among the replicas of the partitions that this broker leads (Kafka's
    findPreferredReadReplica)."""

    def __init__(
        self,
        broker_id: int,
        rack: str | None,
        selector: ReplicaSelector,
        alive_broker: Callable[[int], AliveBroker | None],
    ) -> None:
        self._broker_id = broker_id
        self._rack = rack
        self._selector = selector
        self._alive_broker = alive_broker

    def find(self, partition: Partition, offset: int, rack: str, listener: str, now_ms: int) -> int | None:
        """The broker to read from; None when that is this broker, or when another one leads.

        ``rack`` is the reader's, ``listener`` the name of the listener on which it is connected.
        """
        role = partition.role
        if not isinstance(role, Leader):
            return None
        followers = []
        for broker_id, progress in role.followers.items():
            broker = self._alive_broker(broker_id)
            if (
                broker is not None
                and broker.endpoint(listener) is not None
                and broker_id in role.isr
                and progress.log_start_offset <= offset <= progress.log_end_offset
            ):
                since_ms = now_ms - progress.caught_up_ms
                followers.append(ReplicaView(broker_id, broker.rack, progress.log_end_offset, since_ms))
        leader = ReplicaView(self._broker_id, self._rack, partition.log.log_end_offset, 0)
        chosen = self._selector(rack, leader, followers)
        return None if chosen == self._broker_id else chosen
