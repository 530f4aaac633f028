"""What a leader asks of the server around it.

In ZooKeeper: LeaderZooKeeperServer, as far as Leader calls it.
"""

from collections.abc import Sequence
from typing import Protocol

from barnabas.base.tasks import Task
from barnabas.coordination.quorum.configuration import QuorumConfiguration
from barnabas.coordination.zab.learner_handler import LearnerHandler
from barnabas.wire.jute.quorum import QuorumPacket
from barnabas.wire.jute.records import Id

__all__ = ["LeaderEnvironment"]


class LeaderEnvironment(Protocol):
    """What happens around the leader."""

    def serve(self, first_zxid: int) -> None:
        """The epoch is established: serve clients; transactions follow ``first_zxid``."""
        ...

    def commit(self, count: int) -> None:
        """The next ``count`` proposals are committed."""
        ...

    def run(self, task: Task[None]) -> None:
        """Run a task; others have their turn where it yields."""
        ...

    def seek_history(self, handler: LearnerHandler, zxid: int) -> bool:
        """Look in the log for what is behind ``zxid``, then call `Leader.history_sought`.

        False if that is of no use."""
        ...

    def received(self, handler: LearnerHandler, packet: QuorumPacket) -> None:
        """A learner's REQUEST, REVALIDATE or PING."""
        ...

    def requested(self, handler: LearnerHandler, requests: Sequence[bytes], ids: list[Id]) -> None:
        """The data of a learner's REQUESTs with these identities."""
        ...

    def acknowledged(self, server_id: int, payload: bytes | bytearray) -> None:
        """A learner has a proposal on stable storage.

        Called for zxids that are multiples of 1,000."""
        ...

    def resign(self, reason: str) -> None:
        """Stop leading, and elect."""
        ...

    def see(self, configuration: QuorumConfiguration) -> None:
        """A configuration is proposed: keep it on stable storage."""
        ...

    def activate(self, configuration: QuorumConfiguration, leader_id: int) -> None:
        """A configuration is in force, under a leader that is this one or its successor."""
        ...
