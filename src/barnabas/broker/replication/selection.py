"""Which replica a consumer had better read from (KIP-392): the rules of ``replica.selector.class``.

A consumer that asks the leader and names its rack may be sent to a follower in that rack. Only in-sync followers that
have the offset wanted count. Apache's brokers load a Java class here; the one that Kafka ships is known by its name.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from barnabas.base.errors import ConfigError

__all__ = ["ReplicaSelector", "ReplicaView", "rack_aware", "replica_selector"]

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
    """The leader when it is in the reader's rack or nobody is; else the follower there that has come farthest.

    Of equals the one that was caught up last, then the one with the higher id.
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
    """The selector of a class name; None where every consumer reads from the leader. Raises `ConfigError`."""
    if not class_name:
        return None
    if class_name == _RACK_AWARE:
        return rack_aware
    raise ConfigError(f"replica.selector.class: {class_name} is not known here, only {_RACK_AWARE}")
