"""The figures of a member of an ensemble for monitors, by the names of ``mntr``.

In ZooKeeper: `LeaderZooKeeperServer.dumpMonitorValues` and the gauges of `QuorumPeer`.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from barnabas.coordination.core.metric_table import CoordinationMetrics
from barnabas.coordination.core.statistics import Distribution, Summary
from barnabas.coordination.quorum.configuration import QuorumConfiguration
from barnabas.coordination.zab.leader import Leader
from barnabas.coordination.zab.learner_handler import LearnerHandler
from barnabas.wire.jute.quorum import PacketType

__all__ = ["MemberFigures", "QuorumState", "leader_figures"]


@dataclass(frozen=True, slots=True)
class QuorumState:
    """What a member knows of its ensemble: what the commands `leader`, `observers`,
    `voting_view` and `zabstate` show."""

    configuration: QuorumConfiguration
    my_id: int
    leader_id: int
    """-1 during an election"""
    phase: str
    """of Zab"""
    observers: Sequence[LearnerHandler] = ()
    """those of a leader"""

    @property
    def is_leader(self) -> bool:
        return self.my_id == self.leader_id


class MemberFigures:
    """What a member counts over all its roles."""

    def __init__(self) -> None:
        self.elections = 0
        self.election_ms = Summary()
        self.revalidations = 0
        self.syncs: Counter[PacketType] = Counter()
        """How often a leader has sent SNAP, DIFF or TRUNC."""
        self.proposals = 0
        self.commits = 0
        """Transactions that this server has committed as a leader."""
        self.proposals_received = 0
        self.commits_received = 0
        self.proposal_ms = Distribution()
        """From the leader's decision to the proposal's arrival at a learner; the wall
        clocks of two machines differ."""
        self.acknowledgement_ms = Distribution()
        self.commit_ms = Distribution()
        self.quorum_ms = Distribution()
        """From the decision to the quorum, as a leader."""
        self.learner_ms: dict[int, Distribution] = {}
        """From the decision to the acknowledgement of each learner, for one
        transaction in a thousand."""
        self.unavailable_ms = Summary()
        self.leader_unavailable_ms = Summary()
        self.follower_sync_ms = Summary()
        self.observer_sync_ms = Summary()
        self._looking_since_ms = 0

    def looking(self, now_ms: int) -> None:
        """An election begins."""
        self._looking_since_ms = now_ms

    def elected(self, now_ms: int) -> None:
        """An election has ended."""
        self.elections += 1
        self.election_ms.add(now_ms - self._looking_since_ms)

    def serves(self, now_ms: int, mode: str) -> None:
        """Clients are served in a role."""
        self.unavailable_ms.add(now_ms - self._looking_since_ms)
        if mode == "leader":
            self.leader_unavailable_ms.add(now_ms - self._looking_since_ms)

    def counters(self) -> dict[str, int]:
        """By the names of `mntr`."""
        snapshots = self.syncs[PacketType.SNAP]
        return {
            CoordinationMetrics.ELECTIONS.name: self.elections,
            "revalidate_count": self.revalidations,
            "snap_count": snapshots,
            "diff_count": self.syncs.total() - snapshots,
            "proposal_count": self.proposals,
            "commit_count": self.commits,
            "request_commit_queued": self.commits + self.commits_received,
            "learner_proposal_received_count": self.proposals_received,
            "learner_commit_received_count": self.commits_received,
        }

    def summaries(self) -> dict[str, Summary | Distribution]:
        """Times in ms, by the names of `mntr`."""
        return {
            CoordinationMetrics.ELECTION_TIME.name: self.election_ms,
            "unavailable_time": self.unavailable_ms,
            "leader_unavailable_time": self.leader_unavailable_ms,
            "follower_sync_time": self.follower_sync_ms,
            "observer_sync_time": self.observer_sync_ms,
            "proposal_latency": self.proposal_ms,
            "proposal_ack_creation_latency": self.acknowledgement_ms,
            "commit_propagation_latency": self.commit_ms,
            "quorum_ack_latency": self.quorum_ms,
            **{f"{server_id}_ack_latency": found for server_id, found in self.learner_ms.items()},
        }

    def acknowledged(self, server_id: int, latency_ms: int) -> None:
        """A learner has acknowledged a transaction so long after the decision."""
        self.learner_ms.setdefault(server_id, Distribution()).add(latency_ms)


def leader_figures(leader: Leader, uptime_ms: int) -> dict[str, object]:
    """What a leader shows of its learners."""
    voters, sizes = leader.quorums.current.voters, leader.proposal_bytes
    synced = [handler for handler in leader.handlers if handler.is_synced]
    followers = [handler for handler in synced if handler.is_participant]
    queues: dict[str, object] = {}  # packets are sent as they come: their queues are empty
    for each in synced:
        queues |= Summary().values(f"{each.server_id}_learner_handler_qp_size")
        queues |= Distribution().values(f"{each.server_id}_learner_handler_qp_time_ms")
    return {
        **queues,
        "peer_state": f"leading - {leader.phase.value}",
        CoordinationMetrics.LEARNERS.name: sum(handler.is_introduced for handler in leader.handlers),
        CoordinationMetrics.SYNCED_FOLLOWERS.name: len(followers),
        "synced_non_voting_followers": sum(handler.server_id not in voters for handler in followers),
        "synced_observers": len(synced) - len(followers),
        "pending_syncs": len(leader.waiting_syncs),
        CoordinationMetrics.LEADER_UPTIME.name: uptime_ms,
        "last_proposal_size": leader.last_proposal_bytes,
        "min_proposal_size": sizes.least if sizes.count else -1,
        "max_proposal_size": sizes.greatest if sizes.count else -1,
    }
