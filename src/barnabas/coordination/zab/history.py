"""The recent committed transactions of a server, and how a leader brings a learner to
its own history with them.

    the learner's last zxid is             it gets
    the leader's last one                  DIFF, and nothing behind it
    among the recent ones                  DIFF, and the transactions behind its own
    between two recent ones of its epoch   TRUNC to the one below it, and the
                                           transactions behind that
    above the leader's last one            TRUNC to the leader's last one
    below the recent ones                  SNAP: the whole state, unless the log has all
                                           behind it (`LoggedHistory`)

A server whose last zxid is the first of an epoch (its counter is zero) has the history
with which that epoch began.

In ZooKeeper: ZKDatabase.committedLog and LearnerHandler.syncFollower.
"""

from bisect import bisect_left
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice

from barnabas.wire.jute.quorum import PacketType, epoch_of

__all__ = ["COMMIT_LOG_COUNT", "CommittedLog", "SyncPlan", "plan_sync"]

COMMIT_LOG_COUNT = 500
"""How many transactions are kept (zookeeper.commitLogCount)."""
_MAX_BYTES = 16 << 20


class CommittedLog:
    """The last committed transactions, in the order of their zxids."""

    __slots__ = ("_bytes", "_entries", "_max_bytes", "_max_count")

    def __init__(self, max_count: int = COMMIT_LOG_COUNT, max_bytes: int = _MAX_BYTES) -> None:
        self._max_count = max_count
        self._max_bytes = max_bytes
        self._entries: deque[tuple[int, bytes | bytearray]] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    def add(self, zxid: int, payload: bytes | bytearray) -> None:
        """Note a transaction that is committed."""
        entries = self._entries
        entries.append((zxid, payload))
        self._bytes += len(payload)
        while len(entries) > self._max_count or (self._bytes > self._max_bytes and len(entries) > 1):
            self._bytes -= len(entries.popleft()[1])

    def extend(self, entries: Sequence[tuple[int, bytes | bytearray]]) -> None:
        """Add each of them, like `add`."""
        kept = self._entries
        kept.extend(entries)
        self._bytes += sum([len(payload) for _, payload in entries])
        while len(kept) > self._max_count or (self._bytes > self._max_bytes and len(kept) > 1):
            self._bytes -= len(kept.popleft()[1])

    def clear(self) -> None:
        """Forget all: the state was replaced."""
        self._entries.clear()
        self._bytes = 0

    @property
    def first_zxid(self) -> int | None:
        return self._entries[0][0] if self._entries else None

    @property
    def last_zxid(self) -> int | None:
        return self._entries[-1][0] if self._entries else None

    def zxids(self) -> list[int]:
        """All zxids, rising."""
        return [zxid for zxid, _ in self._entries]

    def all(self) -> list[tuple[int, bytes | bytearray]]:
        """All of them."""
        return list(self._entries)

    def since(self, zxid: int) -> list[tuple[int, bytes | bytearray]]:
        """The transactions behind a zxid."""
        start = bisect_left(self.zxids(), zxid + 1)
        return list(islice(self._entries, start, None))


@dataclass(slots=True)
class SyncPlan:
    """What a leader sends first: DIFF, TRUNC or SNAP with its zxid, then
    transactions that are committed."""

    type: PacketType
    zxid: int
    transactions: list[tuple[int, bytes | bytearray]]


def plan_sync(learner_zxid: int, log: CommittedLog, last_zxid: int) -> SyncPlan:
    """How a learner gets the leader's committed history, which ends with ``last_zxid``."""
    first = log.first_zxid
    newest = log.last_zxid
    if first is None or newest is None:
        first = newest = last_zxid
    if learner_zxid == last_zxid:
        return SyncPlan(PacketType.DIFF, learner_zxid, [])
    begins_epoch = not learner_zxid & 0xFFFFFFFF
    if learner_zxid > newest:
        if not begins_epoch:
            return SyncPlan(PacketType.TRUNC, newest, [])
        if learner_zxid <= last_zxid:
            # Nothing was committed since that epoch began.
            return SyncPlan(PacketType.DIFF, newest, [])
        return SyncPlan(PacketType.SNAP, last_zxid, [])
    if learner_zxid < first:
        return SyncPlan(PacketType.SNAP, last_zxid, [])
    zxids = log.zxids()
    at = bisect_left(zxids, learner_zxid)
    if zxids and zxids[at] == learner_zxid:
        return SyncPlan(PacketType.DIFF, newest, log.since(learner_zxid))
    if begins_epoch and at and epoch_of(zxids[at - 1]) < epoch_of(learner_zxid):
        return SyncPlan(PacketType.DIFF, newest, log.since(learner_zxid))
    if not at or epoch_of(zxids[at - 1]) != epoch_of(learner_zxid):
        # What it has of its epoch is unknown here: it cannot be cut back to a
        # transaction that both have.
        return SyncPlan(PacketType.SNAP, last_zxid, [])
    below = zxids[at - 1]
    return SyncPlan(PacketType.TRUNC, below, log.since(below))
