"""What a learner asks of the server around it.

In ZooKeeper: FollowerZooKeeperServer and ObserverZooKeeperServer, as far as Learner calls them.
"""

from collections.abc import Sequence
from typing import Protocol

from barnabas.base.tasks import Task
from barnabas.wire.jute.quorum import QuorumPacket

__all__ = ["LearnerEnvironment"]


class LearnerEnvironment(Protocol):
    """What happens around the learner."""

    def send(self, data: bytes) -> None:
        """Send to the leader."""
        ...

    def truncate(self, zxid: int) -> None:
        """Remove all transactions behind ``zxid`` from the log and the state; then
        call `Learner.replaced`."""
        ...

    def log(self, zxids: Sequence[int], payloads: Sequence[bytes]) -> None:
        """Add to the transaction log; then call `Learner.logged`."""
        ...

    def apply(self, entries: Sequence[tuple[int, bytes]]) -> None:
        """The transactions are committed, in this order."""
        ...

    def serve(self, first_zxid: int) -> None:
        """The state is the leader's: serve clients."""
        ...

    def received(self, packet: QuorumPacket) -> None:
        """The leader's PING, SYNC or REVALIDATE."""
        ...

    def see(self, configuration: bytes | None) -> None:
        """A configuration is proposed: keep it on stable storage. Raises `MalformedRecordError`."""
        ...

    def activate(self, configuration: bytes | None, leader_id: int | None) -> bool:
        """A configuration is in force, under a leader that it may name.

        Whether this ends the learner's role. Raises `MalformedRecordError`.
        """
        ...

    def run(self, task: Task[None]) -> None:
        """Run a task; others have their turn where it yields. Nothing is taken from the leader
        until it is over, if that is possible."""
        ...

    def fail(self, reason: str) -> None:
        """Leave the leader, and elect."""
        ...
