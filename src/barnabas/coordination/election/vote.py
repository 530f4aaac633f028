"""Votes and their order: ZooKeeper's `Vote` and `FastLeaderElection.totalOrderPredicate`.

A server votes for the one that knows most: the highest epoch that a server has joined, then the
highest zxid in its log, then the highest id. A committed transaction is in the logs of a majority,
so every majority of votes meets a server that has it, and one that lacks it does not win.
"""

from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

__all__ = ["NO_VOTE", "Ballot", "PeerState", "Vote"]

_LEAST = -(1 << 63)


class PeerState(Enum):
    """What a member does; the values are those of the protocol."""

    LOOKING = 0
    FOLLOWING = 1
    LEADING = 2
    OBSERVING = 3


class Vote(NamedTuple):
    """A vote for a leader.

    The order of the fields is the order of votes: the greater one is better."""

    peer_epoch: int
    zxid: int
    leader: int


NO_VOTE = Vote(_LEAST, _LEAST, _LEAST)
"""What a server proposes that has no vote: any other is better. It is valid on the wire."""


@dataclass(frozen=True, slots=True)
class Ballot:
    """A vote as a server cast it: in which round of the election, and in which state."""

    vote: Vote
    round: int
    state: PeerState
    has_epoch: bool = True
    """False for a message format that has no peer epoch"""

    def agrees_with(self, other: "Ballot") -> bool:
        """Whether two ballots are for the same leader.

        Members of an established ensemble were elected at different times: their
        zxids and rounds may differ.
        """
        if PeerState.LOOKING in (self.state, other.state):
            return self.vote == other.vote and self.round == other.round
        if self.has_epoch != other.has_epoch:
            return self.vote.leader == other.vote.leader
        return self.vote.leader == other.vote.leader and self.vote.peer_epoch == other.vote.peer_epoch
