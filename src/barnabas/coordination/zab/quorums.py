"""The quorums of a leader, while its ensemble has one configuration and while it
changes to the next.

Invariant: a reconfiguration, and everything proposed behind it, is committed only when a quorum of
the old configuration and a quorum of the new one have it on disk. So a leader of either
configuration meets a server that has it.

In ZooKeeper: the quorum verifiers of a `Leader.Proposal`, and `Leader.getDesignatedLeader`.
"""

from collections.abc import Iterable, Sequence

from barnabas.coordination.quorum.configuration import QuorumConfiguration
from barnabas.coordination.quorum.verifiers import AckTracker, QuorumVerifier

__all__ = ["Quorums"]

Ack = tuple[int, int]
"""The last zxid that a server has on disk, and the server's id."""


class Quorums:
    """See the module."""

    def __init__(self, current: QuorumConfiguration, following: QuorumConfiguration | None = None) -> None:
        """``following`` is proposed and not in force."""
        self.current = current
        self.following = following
        self.reconfigured_at: int | None = None
        """The zxid of a reconfiguration that waits for its quorums."""

    @property
    def is_reconfiguring(self) -> bool:
        """Whether a configuration is proposed and not in force."""
        return self.following is not None

    @property
    def latest(self) -> QuorumConfiguration:
        """The configuration that learners get with NEWLEADER."""
        return self.following or self.current

    @property
    def voters(self) -> frozenset[int]:
        """The voters of both configurations."""
        return self.current.voters | (self.following.voters if self.following is not None else frozenset())

    def verifiers(self) -> list[QuorumVerifier]:
        """The verifiers that decide now."""
        return [self.current.verifier, *([] if self.following is None else [self.following.verifier])]

    def contains_quorum(self, servers: Iterable[int]) -> bool:
        """Whether the servers include a quorum of each configuration."""
        return AckTracker(self.verifiers(), servers).has_all_quorums()

    def propose(self, zxid: int, configuration: QuorumConfiguration) -> None:
        """The transaction with this zxid changes the configuration."""
        self.following, self.reconfigured_at = configuration, zxid

    def activate(self, my_id: int, acks: Iterable[Ack], zxid: int) -> int:
        """The proposed configuration is in force; the id of its leader.

        That is this server if it stays a voter at its address, otherwise the voter
        that has acknowledged most.
        """
        before, following = self.current, self.following
        assert following is not None
        self.current, self.following, self.reconfigured_at = following, None, None
        if my_id in following.voters:
            old = before.servers.get(my_id)
            if old is None or following.servers[my_id].quorum_address == old.quorum_address:
                return my_id
        able = [(acked, -server_id) for acked, server_id in acks if server_id in following.voters and acked >= zxid]
        return -max(able)[1] if able else my_id

    def committable(self, acks: Sequence[Ack], oldest: int) -> int:
        """The highest zxid that may be committed, at most that of a reconfiguration.

        Below ``oldest`` if none may. ``acks`` fall; a server's acknowledgement counts
        for all earlier zxids too.
        """
        zxid = _acknowledged([self.current.verifier], acks, oldest)
        reconfigured_at = self.reconfigured_at
        if reconfigured_at is None or zxid < reconfigured_at:
            return zxid
        joint = _acknowledged(self.verifiers(), acks, oldest)
        return reconfigured_at if joint >= reconfigured_at else reconfigured_at - 1


def _acknowledged(verifiers: list[QuorumVerifier], acks: Sequence[Ack], least: int) -> int:
    """The highest zxid that a quorum of each has on disk; -1 if it is below ``least``."""
    tracker = AckTracker(verifiers)
    for zxid, server_id in acks:
        if zxid < least:
            return -1
        tracker.add(server_id)
        if tracker.has_all_quorums():
            return zxid
    return -1
