"""One learner as its leader sees it: its connection, how far it has come, and the
packets that bring it there.

In ZooKeeper: the state of a LearnerHandler.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Protocol

from barnabas.coordination.storage.log_history import LoggedHistory
from barnabas.coordination.zab.catch_up import encode_committed
from barnabas.coordination.zab.history import SyncPlan
from barnabas.wire.jute.quorum import PROTOCOL_VERSION, PacketType, encode_packet, epoch_of, first_zxid_of

__all__ = ["HandlerState", "LearnerHandler", "LearnerLink", "LearnerStatistics", "catch_up_packets", "inform"]

_VERSION = PROTOCOL_VERSION.to_bytes(4, "big")


class LearnerLink(Protocol):
    """The connection of a learner."""

    def send(self, data: bytes) -> None: ...

    def send_snapshot(self) -> None:
        """Send the committed state as it is now, and the signature.

        What is sent later follows it."""
        ...

    def send_history(self, history: LoggedHistory, before_zxid: int) -> None:
        """Send the committed transactions of the log below ``before_zxid``.

        What is sent later follows them."""
        ...

    def close(self, reason: str) -> None: ...


class HandlerState(Enum):
    """What a learner has been sent, and what it has acknowledged."""

    CONNECTED = 1
    INFORMED = 2
    """it has LEADERINFO"""
    ACCEPTED = 3
    """it has acknowledged the epoch"""
    SOUGHT = 4
    """its place in the log is sought"""
    SYNCHRONIZING = 5
    """it has NEWLEADER"""
    SYNCED = 6
    """it has acknowledged NEWLEADER"""


@dataclass(slots=True)
class LearnerStatistics:
    """What the connection of a learner counts, for monitors."""

    address: str = ""
    since_ms: int = 0
    """when it connected"""
    received: int = 0
    """packets"""
    sent: int = 0
    """packets; those that bring the learner up to date count as one"""
    requests: int = 0
    """writes that it has forwarded"""

    def reset(self) -> None:
        """Begin to count again."""
        self.received = self.sent = self.requests = 0


@dataclass(slots=True, eq=False)
class LearnerHandler:
    """One learner, as its leader sees it."""

    link: LearnerLink
    deadline_ms: int
    """when it must have been heard"""
    server_id: int = -1
    is_participant: bool = False
    state: HandlerState = HandlerState.CONNECTED
    last_zxid: int = 0
    """of its log, when it connected"""
    accepted_epoch: int = 0
    acked_zxid: int = -1
    is_up_to_date: bool = False
    statistics: LearnerStatistics = field(default_factory=LearnerStatistics)

    @property
    def is_introduced(self) -> bool:
        """Whether it has said who it is."""
        return self.server_id != -1

    def acknowledge(self, zxids: Sequence[int], epoch: int) -> bool:
        """Note acknowledgements that came together.

        False, and nothing, if they are not new ones in order."""
        first, last = zxids[0], zxids[-1]
        is_usual = self.is_synced and first > self.acked_zxid and epoch_of(first) == epoch_of(last) == epoch
        # Their count first: a range from here to a zxid that a learner has made up does
        # not fit into the memory.
        if not is_usual or last - first != len(zxids) - 1 or zxids != list(range(first, last + 1)):
            return False
        self.acked_zxid = last
        return True

    @property
    def is_synced(self) -> bool:
        """Whether it has acknowledged NEWLEADER."""
        return self.state is HandlerState.SYNCED


def inform(handler: LearnerHandler, epoch: int) -> None:
    """Send the epoch."""
    handler.state = HandlerState.INFORMED
    handler.link.send(encode_packet(PacketType.LEADERINFO, first_zxid_of(epoch), _VERSION))


def catch_up_packets(plan: SyncPlan, proposals: Iterable[tuple[int, bytes | bytearray]]) -> Iterable[bytes]:
    """The committed transactions of a plan, then the proposals that wait for a quorum."""
    for zxid, payload in plan.transactions:
        yield encode_committed(zxid, payload)
    for zxid, payload in proposals:
        yield encode_packet(PacketType.PROPOSAL, zxid, payload)
