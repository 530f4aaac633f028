"""The figures of a member of an ensemble for monitors, by the names of ``mntr``.

In ZooKeeper: `LeaderZooKeeperServer.dumpMonitorValues` and the gauges of `QuorumPeer`.
"""

from barnabas.coordination.core.statistics import Summary
from barnabas.coordination.zab.leader import Leader, LeaderPhase
from barnabas.wire.jute.quorum import first_zxid_of

__all__ = ["MemberFigures", "leader_figures"]


class MemberFigures:
    """What a member counts over all its roles."""

    def __init__(self) -> None:
        self.elections = 0
        self.election_ms = Summary()
        self.revalidations = 0

    def elected(self, duration_ms: int) -> None:
        """An election has ended."""
        self.elections += 1
        self.election_ms.add(duration_ms)

    def values(self) -> dict[str, object]:
        """Under the names of `mntr`."""
        election = self.election_ms
        return {
            "looking_count": self.elections,
            "avg_election_time": round(election.average, 4),
            "min_election_time": election.least,
            "max_election_time": election.greatest,
            "cnt_election_time": election.count,
            "sum_election_time": election.total,
            "revalidate_count": self.revalidations,
        }


def leader_figures(leader: Leader, uptime_ms: int) -> dict[str, object]:
    """What a leader shows of its learners."""
    voters, sizes = leader.quorums.current.voters, leader.proposal_bytes
    leads = leader.phase is LeaderPhase.BROADCAST
    synced = [handler for handler in leader.handlers if handler.is_synced]
    followers = [handler for handler in synced if handler.is_participant]
    return {
        "peer_state": f"leading - {leader.phase.value}",
        "learners": sum(handler.is_introduced for handler in leader.handlers),
        "synced_followers": len(followers),
        "synced_non_voting_followers": sum(handler.server_id not in voters for handler in followers),
        "synced_observers": len(synced) - len(followers),
        "pending_syncs": len(leader.waiting_syncs),
        "leader_uptime": uptime_ms,
        "last_proposal_size": leader.last_proposal_bytes,
        "min_proposal_size": sizes.least if sizes.count else -1,
        "max_proposal_size": sizes.greatest if sizes.count else -1,
        "proposal_count": leader.last_proposed_zxid - first_zxid_of(leader.epoch) if leads else 0,
    }
