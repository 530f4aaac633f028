"""Which replica becomes leader: one pure function for each occasion (Kafka's
`PartitionLeaderElectionAlgorithms`).

Each takes the partition's leadership as its znode has it, and returns the next one (the
leader epoch raised by one), or None when no replica qualifies. A replica qualifies if it is
assigned, in sync and online. The first in the order of the assignment wins, because the first
replica is the preferred leader.
"""

from collections.abc import Collection, Sequence

from barnabas.broker.cluster.znodes import LeaderAndIsr

__all__ = ["elect_for_reassignment", "elect_for_shutdown", "elect_offline", "elect_preferred"]

_RECOVERING = 1


def elect_offline(
    assignment: Sequence[int], current: LeaderAndIsr, live: Collection[int], *, unclean: bool
) -> LeaderAndIsr | None:
    """A leader for a new partition, or for one whose leader is gone. Live members stay in the ISR.

    With ``unclean`` a live replica out of sync may lead when none in sync is live: records that
    only the others have are lost, and the partition is marked as recovering (KIP-704).
    """
    for replica in assignment:
        if replica in live and replica in current.isr:
            return current.with_leader(replica, [member for member in current.isr if member in live])
    if unclean:
        for replica in assignment:
            if replica in live:
                return current.with_leader(replica, [replica])._replace(recovery_state=_RECOVERING)
    return None


def elect_for_reassignment(target: Sequence[int], current: LeaderAndIsr, live: Collection[int]) -> LeaderAndIsr | None:
    """A leader among the replicas that stay when a reassignment ends; the ISR stays as it is."""
    for replica in target:
        if replica in live and replica in current.isr:
            return current.with_leader(replica)
    return None


def elect_preferred(assignment: Sequence[int], current: LeaderAndIsr, live: Collection[int]) -> LeaderAndIsr | None:
    """The first replica, if it can lead; the ISR stays as it is."""
    return elect_for_reassignment(assignment[:1], current, live)


def elect_for_shutdown(
    assignment: Sequence[int], current: LeaderAndIsr, live_or_leaving: Collection[int], leaving: Collection[int]
) -> LeaderAndIsr | None:
    """A leader among those that stay, before the brokers in ``leaving`` stop.

    These leave the ISR."""
    for replica in assignment:
        if replica in live_or_leaving and replica in current.isr and replica not in leaving:
            return current.with_leader(replica, [member for member in current.isr if member not in leaving])
    return None
