"""Which sets of servers are a quorum: ZooKeeper's `QuorumMaj`, `QuorumHierarchical`
and `SyncedLearnerTracker`.

Invariant: any two quorums of one configuration have a member in common. So two leaders cannot both
be elected in one epoch, and a new leader meets a server that has every committed transaction.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

__all__ = ["AckTracker", "HierarchicalQuorum", "MajorityQuorum", "QuorumVerifier"]


@dataclass(frozen=True, slots=True)
class MajorityQuorum:
    """More than half of the voters."""

    voters: frozenset[int]

    def contains_quorum(self, servers: Collection[int]) -> bool:
        """Whether the servers include a quorum; those that have no vote do not count."""
        return sum(server in self.voters for server in set(servers)) > len(self.voters) // 2

    def weight(self, server_id: int) -> int:  # noqa: ARG002  # all votes are equal
        """The weight of a server's vote."""
        return 1


@dataclass(frozen=True, slots=True)
class HierarchicalQuorum:
    """Voters in groups, with weights: more than half of the weight in more than half of the groups.

    A group whose members all weigh nothing does not count, and a voter that weighs
    nothing is never elected.
    """

    groups: Mapping[int, frozenset[int]]
    weights: Mapping[int, int]

    @property
    def voters(self) -> frozenset[int]:
        return frozenset(self.weights)

    def contains_quorum(self, servers: Collection[int]) -> bool:
        """Whether the servers include a quorum; those that have no vote do not count."""
        present = set(servers)
        counted = won = 0
        for members in self.groups.values():
            total = sum(self.weights[member] for member in members)
            if total:
                counted += 1
                won += 2 * sum(self.weights[member] for member in members & present) > total
        return 2 * won > counted

    def weight(self, server_id: int) -> int:
        """The weight of a server's vote."""
        return self.weights.get(server_id, 0)


QuorumVerifier = MajorityQuorum | HierarchicalQuorum


class AckTracker:
    """Counts acknowledgements until they include a quorum of each configuration in force.

    There are two configurations while an ensemble changes from one to the next: what is
    decided meanwhile needs both.
    """

    __slots__ = ("_verifiers", "acks")

    def __init__(self, verifiers: Iterable[QuorumVerifier], acks: Iterable[int] = ()) -> None:
        self._verifiers = tuple(verifiers)
        self.acks: set[int] = set(acks)

    def add(self, server_id: int) -> None:
        """Count a server; one without a vote changes nothing."""
        self.acks.add(server_id)

    def has_all_quorums(self) -> bool:
        """Whether each configuration has a quorum among the servers counted."""
        return all(verifier.contains_quorum(self.acks) for verifier in self._verifiers)
