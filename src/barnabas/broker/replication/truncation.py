"""How far a follower goes back when its log and its leader's parted (KIP-101, KIP-279, KIP-595).

The leader names the largest epoch that it knows at or below the follower's, and where that epoch ended in its log.
Both logs are equal up to the end of the last epoch that both have, so the follower keeps no more than that. When the
leader's answer is an epoch that the follower never saw, the follower goes back to the end of its own epoch before that
and asks again with it.
"""

from typing import NamedTuple

from barnabas.log.partition_log import PartitionLog

__all__ = ["Truncation", "truncation_for"]

_UNKNOWN = -1


class Truncation(NamedTuple):
    """Cut from ``offset`` on; ``is_final`` unless the leader must be asked again with an older epoch."""

    offset: int
    is_final: bool


def truncation_for(log: PartitionLog, leader_epoch: int, end_offset: int) -> Truncation:
    """Where to cut a log whose leader says that ``leader_epoch`` ended at ``end_offset`` there (-1: unknown)."""
    log_end = log.log_end_offset
    if end_offset == _UNKNOWN:
        # The leader knows no epochs: only what is committed is surely the same.
        return Truncation(min(log.high_watermark, log_end), True)
    if leader_epoch == _UNKNOWN:
        return Truncation(min(end_offset, log_end), True)
    own_epoch, own_end = log.end_offset_for_epoch(leader_epoch)
    if own_end == _UNKNOWN:
        return Truncation(min(end_offset, log_end), True)
    if own_epoch == leader_epoch:
        return Truncation(min(own_end, end_offset, log_end), True)
    return Truncation(min(own_end, log_end), False)
