"""Where a follower truncates its log when it differs from the leader's (KIP-101, KIP-279, KIP-595).

Kafka: `AbstractFetcherThread.getOffsetTruncationState`. The leader returns the largest epoch that
it knows at or below the follower's, and the offset at which that epoch ended in its log. Both logs
are equal up to the end of the last epoch that both have, so the follower keeps no more than that.
If the follower does not know the epoch in the response, it truncates to the end of its own epoch
before it, and asks again with that epoch.

`truncation_for` decides where. `fetcher` calls it when a fetch response has a diverging epoch,
`log_alignment` when an old leader responds to OffsetForLeaderEpoch, and
`storage.replica_alter_log_dirs` for a future log. `fetch_transitions` then truncates:
`LogDirs.truncate` lowers the checkpoint and cuts the log (`barnabas.log.truncation`).

One truncation is decided elsewhere: `log_alignment.OffsetAlignment` moves a log whose offset
the leader does not have.
"""

from typing import NamedTuple

from barnabas.log.partition_log import PartitionLog

__all__ = ["Truncation", "truncation_for"]

_UNKNOWN = -1


class Truncation(NamedTuple):
    """Truncate to ``offset``.

    ``is_final`` unless the leader must be asked again with an older epoch."""

    offset: int
    is_final: bool


def truncation_for(log: PartitionLog, leader_epoch: int, end_offset: int) -> Truncation:
    """The truncation of a log whose leader returned ``leader_epoch`` and its
    ``end_offset`` (-1: unknown)."""
    log_end = log.log_end_offset
    if end_offset == _UNKNOWN:
        # The leader knows no epochs: only committed records are certainly equal.
        return Truncation(min(log.high_watermark, log_end), True)
    if leader_epoch == _UNKNOWN:
        return Truncation(min(end_offset, log_end), True)
    own_epoch, own_end = log.end_offset_for_epoch(leader_epoch)
    if own_end == _UNKNOWN:
        return Truncation(min(end_offset, log_end), True)
    if own_epoch == leader_epoch:
        return Truncation(min(own_end, end_offset, log_end), True)
    return Truncation(min(own_end, log_end), False)
