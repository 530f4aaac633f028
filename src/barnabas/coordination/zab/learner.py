"""A learner: a follower or an observer, from its first message to a leader to the broadcast.

    DISCOVERY        sends its accepted epoch, gets the new one, acknowledges it with its last zxid
    SYNCHRONIZATION  gets DIFF, TRUNC or SNAP, then transactions; brings its log and its
                     tree to the leader's history
       | NEWLEADER, and all before it is on disk: acknowledge
       | UPTODATE
    BROADCAST        logs proposals, acknowledges them when they are synced, applies
                     them when they are committed

Invariants:

- An epoch below the accepted one is refused. ``acceptedEpoch`` is durable before ACKEPOCH leaves,
  ``currentEpoch`` and the whole history before the acknowledgement of NEWLEADER leaves.
- A proposal is acknowledged only when it and all before it are synced.
- Commits are applied in the order of the proposals; another order ends the connection.
- What came together is handled in pieces, between which others are served (`commit_pieces`): the
rest is held, as if it had not come yet, and all that comes behind it.
- TRUNC and SNAP replace the state; nothing is logged or applied until the environment
  reports that they are done.
- A proposed configuration is on stable storage before it is acknowledged. It is in force with the
  commit of its reconfiguration, or with UPTODATE if NEWLEADER brought it. If it changes the leader
  or this server's role, the role ends.

It is synchronous: events go in; packets, log entries and transactions go out through
its `LearnerEnvironment`.

In ZooKeeper: Learner, Follower and Observer.
"""

import logging
from collections import deque
from collections.abc import Iterable, Sequence
from enum import Enum
from itertools import islice

from barnabas.base.tasks import Task
from barnabas.coordination.core.commit_pieces import MOST_CHANGES, next_piece
from barnabas.coordination.zab.epochs import Epochs
from barnabas.coordination.zab.learner_environment import LearnerEnvironment
from barnabas.coordination.zab.phases import log_phase
from barnabas.wire.jute.codec import MalformedRecordError, encode
from barnabas.wire.jute.opcodes import OpCode
from barnabas.wire.jute.quorum import (
    PROTOCOL_VERSION,
    LearnerInfo,
    PacketRun,
    PacketType,
    QuorumPacket,
    encode_packet,
    encode_signals,
    epoch_of,
    first_zxid_of,
)
from barnabas.wire.jute.transactions import SetDataTxn, decode_transaction, zxid_and_type

__all__ = ["Learner", "LearnerPhase"]

logger = logging.getLogger(__name__)


def _configuration_in(payload: bytes) -> bytes | None:
    """The configuration in a reconfiguration's transaction, which is new data of its node."""
    txn = decode_transaction(payload)[1]
    if not isinstance(txn, SetDataTxn):
        raise MalformedRecordError("a reconfiguration without a configuration")
    return txn.data


class LearnerPhase(Enum):
    """See the module."""

    DISCOVERY = "discovery"
    SYNCHRONIZATION = "synchronization"
    BROADCAST = "broadcast"
    ENDED = "ended"


class Learner:
    """See the module."""

    def __init__(
        self,
        my_id: int,
        config_version: int,
        epochs: Epochs,
        last_zxid: int,
        environment: LearnerEnvironment,
        *,
        is_observer: bool,
    ) -> None:
        self.phase = LearnerPhase.DISCOVERY
        self.epoch = -1
        self._my_id = my_id
        self._config_version = config_version
        self._epochs = epochs
        self._last_zxid = last_zxid
        self._environment = environment
        self._is_observer = is_observer
        self._is_synchronized = False
        """Whether DIFF, TRUNC or SNAP has come."""
        self._replacing = False
        self._held: deque[QuorumPacket | PacketRun] = deque()
        """What came, and is handled later: when the state is replaced, or when
        others have had their turn."""
        self.piece_changes = MOST_CHANGES
        self.is_resting = False
        """Whether others have their turn before the rest of what came is handled."""
        self._pending: deque[tuple[int, bytes]] = deque()
        self._unsynced: deque[int] = deque()
        self._new_leader = False
        """Whether NEWLEADER waits for the disk."""
        self._has_acked = False
        self._last_proposed_zxid = 0
        self._new_configuration: bytes | None = None
        """The configuration of NEWLEADER, in force with UPTODATE."""

    def enter(self, phase: LearnerPhase, sync_mode: str = "") -> None:
        """A phase begins, or a part of it."""
        self.phase = phase
        log_phase("observing" if self._is_observer else "following", phase.value, sync_mode)

    def start(self) -> None:
        """The connection to the leader is open."""
        info = encode(LearnerInfo(self._my_id, PROTOCOL_VERSION, self._config_version))
        kind = PacketType.OBSERVERINFO if self._is_observer else PacketType.FOLLOWERINFO
        self._environment.send(encode_packet(kind, first_zxid_of(self._epochs.accepted), info))

    def packets(self, packets: Iterable[QuorumPacket | PacketRun]) -> None:
        """Handle what the leader has sent, now or behind what is held."""
        self._held.extend(packets)
        self._handle()

    def _handle(self) -> None:
        if not self.is_resting:
            self.is_resting = True
            self._environment.run(self._handle_held())

    def _handle_held(self) -> Task[None]:
        held = self._held
        try:
            while held and not self._replacing:
                if self.phase is LearnerPhase.ENDED:
                    held.clear()
                    return
                packet = held.popleft()
                try:
                    if isinstance(packet, PacketRun):
                        self._run(packet)
                    else:
                        self._packet(packet)
                except MalformedRecordError as error:
                    self._fail(f"the leader sent a packet of type {packet.type} that cannot be read: {error}")
                if held:
                    yield None
        finally:
            self.is_resting = False

    def _run(self, run: PacketRun) -> None:
        if self._is_synchronized and run.type == PacketType.PROPOSAL and run.payloads is not None:
            self._proposed(run.zxids, run.payloads)
        elif self._is_synchronized and run.type == PacketType.COMMIT:
            zxids, count = run.zxids, len(run.zxids)
            if self._pending:
                count = next_piece((payload for _, payload in islice(self._pending, count)), self.piece_changes)
            if count < len(zxids):
                self._held.appendleft(PacketRun(run.type, zxids[count:], None, None))
            self._committed(zxids[:count])
        else:
            self._held.extendleft(reversed(run.packets()))

    def _packet(self, packet: QuorumPacket) -> None:
        kind = packet.type
        if self.phase is LearnerPhase.DISCOVERY:
            self._discover(packet)
        elif not self._is_synchronized:
            self._synchronize(packet)
        elif kind == PacketType.PROPOSAL:
            self._proposed((packet.zxid,), (packet.data or b"",))
        elif kind == PacketType.COMMIT:
            self._committed((packet.zxid,))
        elif kind == PacketType.INFORM:
            self._informed(packet.data or b"")
            self._committed((packet.zxid,))
        elif kind == PacketType.NEWLEADER and self.phase is LearnerPhase.SYNCHRONIZATION and not self._new_leader:
            self._new_leader = True
            self._new_configuration = packet.data
            self._environment.see(packet.data)
            self._acknowledge_leader()
        elif kind == PacketType.UPTODATE and self._has_acked:
            self._begin()
        elif self.phase is LearnerPhase.BROADCAST and kind in (
            PacketType.PING,
            PacketType.SYNC,
            PacketType.REVALIDATE,
        ):
            self._environment.received(packet)
        elif kind == PacketType.PING:
            self._environment.send(encode_packet(PacketType.PING, packet.zxid, b""))
        elif kind == PacketType.COMMIT_AND_ACTIVATE:
            self._reconfigured(packet.zxid, packet.data or b"")
        elif kind == PacketType.INFORM_AND_ACTIVATE:
            data = packet.data or b""
            self._informed(data[8:])
            self._reconfigured(packet.zxid, data[:8])
        else:
            self._fail(f"the leader sent a packet of type {kind} in the phase {self.phase.value}")

    def _discover(self, packet: QuorumPacket) -> None:
        if packet.type != PacketType.LEADERINFO:
            self._fail(f"the leader sent a packet of type {packet.type} instead of LEADERINFO")
            return
        epoch = epoch_of(packet.zxid)
        if epoch < self._epochs.accepted:
            self._fail(f"the leader's epoch {epoch} is less than the accepted epoch {self._epochs.accepted}")
            return
        if epoch == self._epochs.accepted:
            current = -1  # acknowledged before: it does not count again
        else:
            current = self._epochs.current
            self._epochs.accept(epoch)
        self.epoch = epoch
        self.enter(LearnerPhase.SYNCHRONIZATION)
        data = current.to_bytes(4, "big", signed=True)
        self._environment.send(encode_packet(PacketType.ACKEPOCH, self._last_zxid, data))

    def _synchronize(self, packet: QuorumPacket) -> None:
        kind = packet.type
        if kind == PacketType.DIFF:
            logger.info("Getting a diff from the leader 0x%x", packet.zxid)
            self.enter(self.phase, "diff")
        elif kind == PacketType.TRUNC:
            logger.info("Truncating log to get in sync with the leader 0x%x", packet.zxid)
            self._replacing = True
            self.enter(self.phase, "trunc")
            self._environment.truncate(packet.zxid)
        else:
            self._fail(f"the leader sent a packet of type {kind} instead of DIFF, TRUNC or SNAP")
            return
        self._is_synchronized = True

    def expects_snapshot(self, packet: QuorumPacket) -> bool:
        """Whether the packet announces a snapshot: what follows on the connection is
        its bytes, then `replaced`."""
        is_snapshot = (
            packet.type == PacketType.SNAP
            and self.phase is LearnerPhase.SYNCHRONIZATION
            and not self._is_synchronized
            and not self._replacing
        )
        if is_snapshot:
            logger.info("Getting a snapshot from the leader 0x%x", packet.zxid)
            self._replacing = self._is_synchronized = True
            self.enter(self.phase, "snap")
        return is_snapshot

    def replaced(self) -> None:
        """The state is the one of TRUNC or SNAP, on disk and in memory."""
        self._replacing = False
        self._handle()

    # Transactions

    def _proposed(self, zxids: Sequence[int], payloads: Sequence[bytes]) -> None:
        """Log proposals. Those before one that is malformed are logged too."""
        last = self._pending[-1][0] if self._pending else 0
        previous = self._last_proposed_zxid
        good = 0
        try:
            for zxid, payload in zip(zxids, payloads, strict=True):
                own_zxid, txn_type = zxid_and_type(payload)
                if own_zxid != zxid:
                    raise MalformedRecordError(f"the transaction 0x{own_zxid:x} in the proposal 0x{zxid:x}")
                if zxid <= last:
                    raise MalformedRecordError(f"the proposal 0x{zxid:x} behind 0x{last:x}")
                if previous and zxid != previous + 1 and epoch_of(zxid) == epoch_of(previous):
                    raise MalformedRecordError(f"the proposal 0x{zxid:x} behind 0x{previous:x}: others are missing")
                if txn_type == OpCode.RECONFIG:
                    self._environment.see(_configuration_in(payload))
                last = previous = zxid
                good += 1
        finally:
            if good:
                if good < len(zxids):
                    zxids, payloads = zxids[:good], payloads[:good]
                self._last_proposed_zxid = last
                self._pending.extend(zip(zxids, payloads, strict=True))
                self._unsynced.extend(zxids)
                self._environment.log(zxids, payloads)

    def _informed(self, payload: bytes) -> None:
        """As a proposal; the packet of an observer may have another zxid than its transaction."""
        self._proposed((zxid_and_type(payload)[0],), (payload,))

    def _committed(self, zxids: Sequence[int]) -> None:
        pending = self._pending
        entries: list[tuple[int, bytes]] = []
        expected = zxids[0]
        for zxid in zxids:
            if not pending or pending[0][0] != zxid:
                expected = zxid
                break
            entries.append(pending.popleft())
        if entries:
            self._environment.apply(entries)
        if len(entries) < len(zxids):
            found = f"0x{pending[0][0]:x}" if pending else "none"
            self._fail(f"the leader committed 0x{expected:x}, and the next proposal is {found}")

    def _reconfigured(self, zxid: int, leader: bytes) -> None:
        """A reconfiguration is committed, under the leader that the current one designates."""
        if len(leader) != 8:
            raise MalformedRecordError("a committed reconfiguration without a leader")
        ends = False
        if self._pending and self._pending[0][0] == zxid:
            configuration = _configuration_in(self._pending[0][1])
            ends = self._environment.activate(configuration, int.from_bytes(leader, "big", signed=True))
        self._committed((zxid,))
        if ends:
            self._fail("the reconfiguration changes the leader, or the role of this server")

    def logged(self, zxid: int) -> None:
        """All up to ``zxid`` is on stable storage."""
        if self.phase is LearnerPhase.ENDED:
            return
        acks, unsynced = [], self._unsynced
        while unsynced and unsynced[0] <= zxid:
            acks.append(unsynced.popleft())
        if self._new_leader and not self._has_acked:
            self._acknowledge_leader()
        elif self._has_acked and not self._is_observer and acks:
            self._acknowledge(acks)

    def _acknowledge(self, zxids: Iterable[int]) -> None:
        self._environment.send(encode_signals(PacketType.ACK, zxids))

    def _acknowledge_leader(self) -> None:
        """Acknowledge NEWLEADER once all before it is on disk."""
        if self._unsynced or self.phase is LearnerPhase.ENDED:
            return
        self._epochs.enter(self.epoch)
        self._has_acked = True
        self._acknowledge([first_zxid_of(self.epoch)])
        if not self._is_observer:
            # Proposals that came before NEWLEADER and still wait for a quorum.
            self._acknowledge([zxid for zxid, _ in self._pending])

    def _begin(self) -> None:
        if self._new_configuration and self._environment.activate(self._new_configuration, None):
            self._fail("the configuration of the ensemble has another leader, or another role for this server")
            return
        self.enter(LearnerPhase.BROADCAST)
        self._acknowledge([first_zxid_of(self.epoch)])
        self._environment.serve(first_zxid_of(self.epoch))

    # The end

    def _fail(self, reason: str) -> None:
        if self.phase is not LearnerPhase.ENDED:
            self.phase = LearnerPhase.ENDED
            self._environment.fail(reason)

    def close(self) -> None:
        """The connection is gone, or the server stops."""
        self.phase = LearnerPhase.ENDED

    @property
    def uncommitted(self) -> list[tuple[int, bytes]]:
        """Proposals that are in the log, or will be, and are not committed."""
        return list(self._pending)
