"""The leader of an ensemble: discovery of the epoch, synchronization of the
learners, broadcast of proposals.

    DISCOVERY        collects accepted epochs until a quorum is there; the new epoch
                     is above all of them
       | a quorum has acknowledged the epoch, and no member of it has a more recent history
    SYNCHRONIZATION  gives each learner the leader's history, followed by NEWLEADER
       | a quorum has acknowledged NEWLEADER: the history is on the disks of a majority
    BROADCAST        proposes transactions, and commits each when a quorum has it on disk

Invariants:

- The epoch is in ``acceptedEpoch`` before LEADERINFO leaves, and in ``currentEpoch``
  before NEWLEADER leaves.
- Transactions are committed in the order of their zxids, without gaps. An acknowledgement
  counts for all earlier ones too, because a learner logs in order; it counts only once the
  learner has acknowledged NEWLEADER.
- What one acknowledgement commits is committed in pieces, between which others are served
  (`commit_pieces`). Between two of them packets, this server's tree, syncs and histories for
  learners are as if the rest were not acknowledged yet.
- The leader counts as one of the quorum only for what is synced in its own log.
- A learner gets all that is committed, then all that is proposed, in order, each once.
- Without a quorum of learners that were heard within syncLimit the leader resigns.
- A member that has accepted a higher epoch, from a leader that failed, can follow no older one. The
  leader accepts that epoch and resigns; the next epoch is above it. (Apache's server does not:
  there the member stays out until the next election.)
- A learner's connection is replaced by a newer one of the same server only when that one has
  NEWLEADER acknowledged, so that a stranger that says a member's name ends nothing.
- While a reconfiguration is proposed and not committed, it and all behind it need a quorum of both
  configurations. A leader that finds one completes it with NEWLEADER. A learner that connects
  meanwhile is up to date when it is committed.
- A leader that the new configuration does not keep commits nothing behind the reconfiguration: its
  designated successor does. It ends when its followers have left it.

It is synchronous: events and the time go in; packets, commits and the end go out through
its `LeaderEnvironment`.

In ZooKeeper: Leader and LearnerHandler.
"""

import logging
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import islice

from barnabas.base.tasks import Task
from barnabas.coordination.core.commit_pieces import MOST_CHANGES, next_piece
from barnabas.coordination.core.statistics import Summary
from barnabas.coordination.quorum.configuration import QuorumConfiguration
from barnabas.coordination.storage.log_history import LoggedHistory
from barnabas.coordination.zab.epochs import Epochs
from barnabas.coordination.zab.history import CommittedLog, SyncPlan, plan_sync
from barnabas.coordination.zab.leader_environment import LeaderEnvironment
from barnabas.coordination.zab.learner_handler import (
    HandlerState,
    LearnerHandler,
    LearnerLink,
    catch_up_packets,
    inform,
)
from barnabas.coordination.zab.phases import log_phase
from barnabas.coordination.zab.quorums import Quorums
from barnabas.wire.jute.codec import MalformedRecordError
from barnabas.wire.jute.quorum import (
    PACKET_BYTES,
    PROTOCOL_VERSION,
    PacketRun,
    PacketType,
    QuorumPacket,
    decode_learner_info,
    encode_packet,
    encode_packets,
    encode_signal,
    encode_signals,
    epoch_of,
    first_zxid_of,
)

__all__ = ["Leader", "LeaderPhase", "Timing"]

logger = logging.getLogger(__name__)
_MAX_COUNTER = 0xFFFFFFFF
_MAX_EPOCHS_AHEAD = 1 << 20
"""No leadership fails so often; a server that claims more would use up the epochs."""
_Proposed = tuple[int, bytes | bytearray]
"""A zxid and its transaction."""
_MEASURE_EVERY = 1000
"""The default of ZooKeeper's ackLoggingFrequency."""


@dataclass(frozen=True, slots=True)
class Timing:
    """The unit of time, and how many of them a learner may take to connect and to be silent."""

    tick_ms: int
    init_limit: int
    sync_limit: int

    @property
    def init_ms(self) -> int:
        return self.tick_ms * self.init_limit

    @property
    def sync_ms(self) -> int:
        return self.tick_ms * self.sync_limit


class LeaderPhase(Enum):
    """The phases of a leader, in their order."""

    DISCOVERY = "discovery"
    SYNCHRONIZATION = "synchronization"
    BROADCAST = "broadcast"
    ENDED = "ended"


def _payload_of(proposals: deque[_Proposed], zxid: int) -> bytes | bytearray | None:
    """A transaction that waits for its quorum."""
    index = zxid - proposals[0][0] if proposals else -1
    return proposals[index][1] if 0 <= index < len(proposals) else None


def _measured(proposals: deque[_Proposed], zxids: Sequence[int]) -> Iterator[bytes | bytearray]:
    """The transactions that are measured, of those with these zxids, which rise by one."""
    for zxid in range(zxids[0] + -zxids[0] % _MEASURE_EVERY, zxids[-1] + 1, _MEASURE_EVERY):
        if (payload := _payload_of(proposals, zxid)) is not None:
            yield payload


class Leader:
    """See the module."""

    def __init__(
        self,
        my_id: int,
        configuration: QuorumConfiguration,
        epochs: Epochs,
        log: CommittedLog,
        last_zxid: int,
        timing: Timing,
        environment: LeaderEnvironment,
        now_ms: int,
        *,
        following: QuorumConfiguration | None = None,
        can_reconfigure: bool = False,
    ) -> None:
        """``following`` is a configuration that was proposed, and is completed by this leader."""
        self.my_id = my_id
        self.phase = LeaderPhase.DISCOVERY
        self.epoch = -1
        """The new epoch; -1 while it is not known."""
        self.handlers: dict[LearnerHandler, None] = {}
        self.quorums = Quorums(configuration, following)
        self.forces_snapshots = False
        """Whether each learner gets a snapshot, whatever it has."""
        self.syncs: Counter[PacketType] = Counter()
        """How often learners got SNAP, DIFF or TRUNC."""
        self._can_reconfigure = can_reconfigure
        self._may_commit = True
        self._epochs = epochs
        self._log = log
        self._last_zxid = last_zxid
        self._timing = timing
        self._sync_ms, self._patience_ms = timing.sync_ms, timing.init_ms + timing.sync_ms
        self._environment = environment
        self._deadline_ms = now_ms + timing.init_ms
        self._accepted_epochs: dict[int, int] = {my_id: epochs.accepted}
        self._epoch_acks: set[int] = {my_id}
        self._synced: set[int] = {my_id}
        self._proposals: deque[_Proposed] = deque()
        self.proposal_bytes = Summary()
        """The sizes of proposals; only the least and the greatest mean something."""
        self.last_proposal_bytes = -1
        self._own_acked_zxid = -1
        self._committed_zxid = last_zxid
        self._is_committing = False
        self.piece_changes = MOST_CHANGES
        self.waiting_syncs: deque[tuple[int, Callable[[], None]]] = deque()

    # Reconfiguration

    def reconfigure(self, zxid: int, configuration: QuorumConfiguration) -> None:
        """The transaction with this zxid, which is proposed next, changes the configuration."""
        self._environment.see(configuration)
        self.quorums.propose(zxid, configuration)

    def _activate(self, zxid: int) -> int:
        """Put the proposed configuration in force; the id of its leader."""
        acks = [(each.acked_zxid, each.server_id) for each in self.handlers if each.is_participant and each.is_synced]
        leader_id = self.quorums.activate(self.my_id, acks, zxid)
        logger.info("Activating the configuration of version 0x%x; its leader is server %d", zxid, leader_id)
        self._may_commit = leader_id == self.my_id
        self._environment.activate(self.quorums.current, leader_id)
        return leader_id

    # Learners

    def connected(self, link: LearnerLink, now_ms: int) -> LearnerHandler:
        """A server has connected to the quorum port."""
        handler = LearnerHandler(link, now_ms + self._timing.init_ms)
        self.handlers[handler] = None
        return handler

    def disconnected(self, handler: LearnerHandler, now_ms: int) -> None:
        """The connection is gone. Without a quorum the leader resigns at once."""
        self.handlers.pop(handler, None)
        if self.phase is LeaderPhase.BROADCAST and handler.is_synced and handler.is_participant:
            self._check_quorum(now_ms)

    def packets(self, handler: LearnerHandler, packets: Iterable[QuorumPacket | PacketRun], now_ms: int) -> None:
        """Handle what a learner has sent. A packet out of place closes its connection."""
        for packet in packets:
            if self.phase is LeaderPhase.ENDED or handler not in self.handlers:
                return
            try:
                if isinstance(packet, QuorumPacket):
                    self._packet(handler, packet, now_ms)
                    continue
                if handler.is_synced and packet.type == PacketType.REQUEST and packet.payloads is not None:
                    self._environment.requested(handler, packet.payloads, packet.authinfo or [])
                elif packet.type == PacketType.ACK and handler.acknowledge(packet.zxids, self.epoch):
                    for payload in _measured(self._proposals, packet.zxids):
                        self._environment.acknowledged(handler.server_id, payload)
                else:
                    self.packets(handler, packet.packets(), now_ms)
                    continue
                handler.deadline_ms = now_ms + self._sync_ms
            except MalformedRecordError as error:
                self._drop(handler, f"it sent a packet that cannot be read: {error}")
        self._commit()

    def _drop(self, handler: LearnerHandler, reason: str) -> None:
        self.handlers.pop(handler, None)
        handler.link.close(reason)

    def _packet(self, handler: LearnerHandler, packet: QuorumPacket, now_ms: int) -> None:
        kind = packet.type
        state = handler.state
        if state is HandlerState.SYNCED and kind == PacketType.ACK:
            zxid = packet.zxid
            if zxid > handler.acked_zxid and epoch_of(zxid) == self.epoch:
                handler.acked_zxid = zxid
                if not zxid % _MEASURE_EVERY and (payload := _payload_of(self._proposals, zxid)) is not None:
                    self._environment.acknowledged(handler.server_id, payload)
        elif state is HandlerState.CONNECTED:
            self._introduced(handler, packet, now_ms)
        elif state is HandlerState.INFORMED:
            self._acked_epoch(handler, packet)
        elif kind == PacketType.ACK:
            self._acked(handler, packet.zxid)
        elif state is HandlerState.SYNCED and kind in (PacketType.REQUEST, PacketType.PING, PacketType.REVALIDATE):
            self._environment.received(handler, packet)
        else:
            self._drop(handler, f"it sent a packet of type {kind} in the state {state.name}")
            return
        handler.deadline_ms = now_ms + (self._sync_ms if handler.state is HandlerState.SYNCED else self._patience_ms)

    def _introduced(self, handler: LearnerHandler, packet: QuorumPacket, now_ms: int) -> None:
        if packet.type not in (PacketType.FOLLOWERINFO, PacketType.OBSERVERINFO):
            self._drop(handler, f"its first packet has the type {packet.type}, not FOLLOWERINFO or OBSERVERINFO")
            return
        info = decode_learner_info(packet)
        server_id = info.server_id
        is_known = self._can_reconfigure or server_id in self.quorums.current.servers
        is_voter = self._can_reconfigure or server_id in self.quorums.current.voters
        if info.protocol_version < PROTOCOL_VERSION:
            self._drop(handler, f"server {server_id} speaks the protocol of ZooKeeper before 3.4")
        elif server_id == self.my_id or (packet.type == PacketType.FOLLOWERINFO and not is_voter):
            self._drop(handler, f"it says that it is the follower {server_id}, which it cannot be")
        elif not is_known:
            self._drop(handler, f"server {server_id} is not in the configuration of the ensemble")
        elif info.config_version > self.quorums.current.version:
            self._drop(handler, f"server {server_id} has a newer configuration, 0x{info.config_version:x}")
        else:
            handler.server_id = server_id
            # A follower that is no voter, because it is to join or has been removed, logs and
            # acknowledges, and does not count.
            handler.is_participant = is_voter and packet.type == PacketType.FOLLOWERINFO
            handler.accepted_epoch = epoch_of(packet.zxid)
            self._replace(handler, of_synced=False)
            if self._can_follow(handler, now_ms):
                self._discover(handler)

    def _replace(self, handler: LearnerHandler, *, of_synced: bool) -> None:
        """A server has one connection: the newest."""
        for other in [each for each in self.handlers if each.server_id == handler.server_id and each is not handler]:
            if of_synced or not other.is_synced:
                self._drop(other, f"server {handler.server_id} has connected again")

    def _can_follow(self, handler: LearnerHandler, now_ms: int) -> bool:
        """Whether the learner can take part in this epoch; one that cannot makes the leader resign.

        See the module."""
        accepted, server_id = handler.accepted_epoch, handler.server_id
        if not 0 <= accepted <= self._epochs.accepted + _MAX_EPOCHS_AHEAD:
            self._drop(handler, f"it says that server {server_id} has accepted the epoch {accepted}, which cannot be")
            return False
        if self.epoch < 0 or accepted <= self.epoch:
            return True
        if server_id not in self.quorums.voters:
            self._drop(handler, f"server {server_id}, which has no vote, has accepted the epoch {accepted}")
            return False
        is_followed = any(
            each.server_id == server_id and each.is_synced and now_ms <= each.deadline_ms for each in self.handlers
        )
        if is_followed:
            self._drop(handler, f"server {server_id} follows already, and cannot have accepted the epoch {accepted}")
            return False
        self._epochs.accept(accepted)
        self._end(f"server {server_id} has accepted the epoch {accepted}, which is above this one ({self.epoch})")
        return False

    def _discover(self, handler: LearnerHandler) -> None:
        if self.epoch >= 0:
            inform(handler, self.epoch)
            return
        if handler.is_participant:
            self._accepted_epochs[handler.server_id] = handler.accepted_epoch
        self.discover()

    def discover(self) -> None:
        """Choose the epoch if a quorum is there.

        A leader whose vote is a quorum needs no learner."""
        accepted = self._accepted_epochs
        if self.epoch >= 0 or not self.quorums.contains_quorum(accepted.keys()):
            return
        known = [handler.accepted_epoch for handler in self.handlers if handler.server_id != -1]
        self.epoch = max([*accepted.values(), *known]) + 1
        self._epochs.accept(self.epoch)
        logger.info("The new epoch is %d", self.epoch)
        if self._can_reconfigure and not self.quorums.latest.version:
            # The first configuration gets a version with the first epoch, as by Apache's leaders.
            self.quorums.following = self.quorums.current.with_version(first_zxid_of(self.epoch))
            self._environment.see(self.quorums.following)
        for handler in list(self.handlers):
            if handler.server_id != -1:
                inform(handler, self.epoch)
        self._accept()

    def _acked_epoch(self, handler: LearnerHandler, packet: QuorumPacket) -> None:
        if packet.type != PacketType.ACKEPOCH or len(packet.data or b"") != 4:
            self._drop(handler, f"it sent a packet of type {packet.type} instead of ACKEPOCH")
            return
        current_epoch = int.from_bytes(packet.data or b"", "big", signed=True)
        handler.last_zxid = packet.zxid
        handler.state = HandlerState.ACCEPTED
        if self.phase is LeaderPhase.DISCOVERY:
            mine = self._epochs.current, self._last_zxid
            is_voter = handler.is_participant and handler.server_id in self.quorums.voters
            if current_epoch != -1 and is_voter and (current_epoch, packet.zxid) > mine:
                self._end(
                    f"server {handler.server_id} has a more recent history (epoch {current_epoch}, zxid "
                    f"0x{packet.zxid:x}) than this server (epoch {mine[0]}, zxid 0x{mine[1]:x})"
                )
                return
            if is_voter and current_epoch != -1:
                # -1: it had accepted this epoch before, maybe from another leader, and its
                # history was not compared.
                self._epoch_acks.add(handler.server_id)
            self._accept()
        else:
            self._synchronize(handler)

    def _accept(self) -> None:
        """Synchronize the learners once a quorum has acknowledged the epoch."""
        if self.phase is not LeaderPhase.DISCOVERY or not self.quorums.contains_quorum(self._epoch_acks):
            return
        self._epochs.enter(self.epoch)
        self._own_acked_zxid = first_zxid_of(self.epoch)
        self.phase = LeaderPhase.SYNCHRONIZATION
        log_phase("leading", self.phase.value)
        for handler in list(self.handlers):
            if handler.state is HandlerState.ACCEPTED:
                self._synchronize(handler)
        self._establish()

    def _synchronize(self, handler: LearnerHandler) -> None:
        """Give a learner the committed history, then the proposals that wait for a
        quorum, and NEWLEADER."""
        if self.forces_snapshots:
            logger.warning("Forcing snapshot sync - should not see this in production (forceSnapshotSync)")
            self._send_plan(handler, SyncPlan(PacketType.SNAP, self._committed_zxid, []), None)
            return
        plan = plan_sync(handler.last_zxid, self._log, self._committed_zxid)
        if plan.type is PacketType.SNAP and 0 < handler.last_zxid < (self._log.first_zxid or self._committed_zxid):
            handler.state = HandlerState.SOUGHT
            if self._environment.seek_history(handler, handler.last_zxid):
                return
        self._send_plan(handler, plan, None)

    def history_sought(self, handler: LearnerHandler, history: LoggedHistory | None) -> None:
        """Continue with a learner that is behind the recent transactions.

        None: the log does not have what it lacks."""
        if handler not in self.handlers or handler.state is not HandlerState.SOUGHT or self.phase is LeaderPhase.ENDED:
            if history is not None:
                history.close()
            return
        plan = plan_sync(handler.last_zxid, self._log, self._committed_zxid)
        if history is not None and history.common_zxid is not None:
            kind = PacketType.TRUNC if history.must_truncate else PacketType.DIFF
            plan = SyncPlan(kind, history.common_zxid, self._log.all())
        self._send_plan(handler, plan, history)

    def _send_plan(self, handler: LearnerHandler, plan: SyncPlan, history: LoggedHistory | None) -> None:
        logger.info(
            "Synchronizing with server %d: its last zxid is 0x%x, it gets %s 0x%x and %d transactions%s",
            handler.server_id,
            handler.last_zxid,
            plan.type.name,
            plan.zxid,
            len(plan.transactions),
            "" if history is None else " behind those of the log",
        )
        self.syncs[plan.type] += 1
        link = handler.link
        link.send(encode_signal(plan.type, plan.zxid))
        if plan.type is PacketType.SNAP:
            link.send_snapshot()
        if history is not None:
            link.send_history(history, self._log.first_zxid or self._committed_zxid + 1)
        proposals = self._proposals if handler.is_participant else ()
        link.send(b"".join(catch_up_packets(plan, proposals)))
        handler.state = HandlerState.SYNCHRONIZING
        configuration = self.quorums.latest.text().encode()
        link.send(encode_packet(PacketType.NEWLEADER, first_zxid_of(self.epoch), configuration))

    # Acknowledgements

    def _acked(self, handler: LearnerHandler, zxid: int) -> None:
        if handler.state is HandlerState.SYNCHRONIZING:
            if zxid != first_zxid_of(self.epoch):
                self._drop(handler, f"it acknowledged 0x{zxid:x} instead of NEWLEADER")
                return
            self._replace(handler, of_synced=True)
            handler.state = HandlerState.SYNCED
            handler.acked_zxid = zxid
            if handler.is_participant:
                self._synced.add(handler.server_id)
            if self.phase is LeaderPhase.BROADCAST:
                self._release(handler)
            else:
                self._establish()
        else:
            self._drop(handler, f"it acknowledged 0x{zxid:x} in the state {handler.state.name}")

    def _establish(self) -> None:
        if self.phase is not LeaderPhase.SYNCHRONIZATION or not self.quorums.contains_quorum(self._synced):
            return
        self.phase = LeaderPhase.BROADCAST
        log_phase("leading", self.phase.value)
        self._committed_zxid = first_zxid_of(self.epoch)
        if self.quorums.is_reconfiguring:
            self._activate(self._committed_zxid)
        logger.info(
            "Have quorum of supporters, sids: %s; starting up and setting last processed zxid: 0x%x",
            sorted(self._synced),
            self._committed_zxid,
        )
        self._environment.serve(self._committed_zxid)
        for handler in list(self.handlers):
            if handler.is_synced:
                self._release(handler)

    def _release(self, handler: LearnerHandler) -> None:
        """The learner may serve clients; not yet if it got a configuration that may
        never be in force."""
        if self.quorums.is_reconfiguring:
            return
        handler.link.send(encode_signal(PacketType.UPTODATE, -1))
        handler.is_up_to_date = True

    # Broadcast

    @property
    def last_proposed_zxid(self) -> int:
        """The last zxid that was proposed, or committed if none waits."""
        return self._proposals[-1][0] if self._proposals else self._committed_zxid

    def propose(self, first_zxid: int, payloads: Sequence[bytes | bytearray]) -> None:
        """Send transactions to the followers; the caller logs them, and calls `logged`."""
        self._proposals.extend(enumerate(payloads, first_zxid))
        zxid = first_zxid + len(payloads) - 1
        if payloads:
            sizes = [PACKET_BYTES + size for size in map(len, payloads)]
            self.last_proposal_bytes = sizes[-1]
            self.proposal_bytes.add(min(sizes))
            self.proposal_bytes.add(max(sizes))
        data = encode_packets(PacketType.PROPOSAL, first_zxid, payloads)
        for handler in self.handlers:
            if handler.is_participant and handler.state in (HandlerState.SYNCHRONIZING, HandlerState.SYNCED):
                handler.link.send(data)
        if zxid & _MAX_COUNTER >= _MAX_COUNTER - 1_000_000:
            self._end("the counter in the zxid is nearly used up: a new epoch begins")

    def logged(self, zxid: int) -> None:
        """All proposals up to ``zxid`` are on stable storage here."""
        if zxid > self._own_acked_zxid:
            self._own_acked_zxid = zxid
            self._commit()

    def _commit(self) -> None:
        """Commit what a quorum has on disk, in pieces. What comes meanwhile is found by those that
        follow."""
        if self._is_committing or self.phase is not LeaderPhase.BROADCAST:
            return
        proposals = self._proposals

        def pieces() -> Task[None]:
            try:
                while proposals and self._may_commit and self.phase is LeaderPhase.BROADCAST:
                    acks = [
                        (handler.acked_zxid, handler.server_id) for handler in self.handlers if handler.is_participant
                    ]
                    acks.append((self._own_acked_zxid, self.my_id))
                    acks.sort(reverse=True)
                    first = proposals[0][0]
                    zxid = self.quorums.committable(acks, first)
                    if zxid < first:
                        return
                    count = 1
                    if zxid > first:
                        count = next_piece(
                            (payload for _, payload in islice(proposals, zxid - first + 1)), self.piece_changes
                        )
                    last = first + count - 1
                    self._commit_to(last, reconfigures=last == self.quorums.reconfigured_at)
                    if proposals:
                        yield None
            finally:
                self._is_committing = False

        self._is_committing = True
        self._environment.run(pieces())

    def _commit_to(self, zxid: int, *, reconfigures: bool = False) -> None:
        """Commit the proposals up to ``zxid``, the last of which may change the configuration."""
        proposals = self._proposals
        entries: list[_Proposed] = []
        while proposals and proposals[0][0] <= zxid:
            entries.append(proposals.popleft())
        self._log.extend(entries)
        usual = entries[:-1] if reconfigures else entries
        commit_bytes = encode_signals(PacketType.COMMIT, [committed for committed, _ in usual])
        inform_bytes = b""
        if any(not handler.is_participant for handler in self.handlers):
            inform_bytes = b"".join([encode_packet(PacketType.INFORM, *entry) for entry in usual])
        if reconfigures:
            leader_id, payload = self._activate(zxid).to_bytes(8, "big"), entries[-1][1]
            commit_bytes += encode_packet(PacketType.COMMIT_AND_ACTIVATE, zxid, leader_id)
            inform_bytes += encode_packet(PacketType.INFORM_AND_ACTIVATE, zxid, leader_id + payload)
        self._committed_zxid = entries[-1][0]
        for handler in self.handlers:
            if handler.state in (HandlerState.SYNCHRONIZING, HandlerState.SYNCED):
                handler.link.send(commit_bytes if handler.is_participant else inform_bytes)
        self._environment.commit(len(entries))
        while self.waiting_syncs and self.waiting_syncs[0][0] <= self._committed_zxid:
            self.waiting_syncs.popleft()[1]()
        if reconfigures:
            for handler in [each for each in self.handlers if each.is_synced and not each.is_up_to_date]:
                self._release(handler)

    def sync(self, done: Callable[[], None]) -> None:
        """Call ``done`` when all that is proposed now is committed."""
        if self._proposals:
            self.waiting_syncs.append((self.last_proposed_zxid, done))
        else:
            done()

    # Time

    def tick(self, now_ms: int) -> None:
        """To be called every half a tick: pings, and the checks of the limits."""
        if self.phase is LeaderPhase.ENDED:
            return
        for handler in [each for each in self.handlers if now_ms > each.deadline_ms]:
            self._drop(handler, f"server {handler.server_id} was not heard for its limit")
        if self.phase is not LeaderPhase.BROADCAST:
            if now_ms > self._deadline_ms:
                self._end(
                    f"no quorum has followed within initLimit ({self._timing.init_ms} ms); connected: "
                    f"{sorted(handler.server_id for handler in self.handlers)}"
                )
            return
        ping = encode_signal(PacketType.PING, self.last_proposed_zxid)
        for handler in self.handlers:
            if handler.is_synced:
                handler.link.send(ping)
        self._check_quorum(now_ms)

    def _check_quorum(self, now_ms: int) -> None:
        """Resign without a quorum of learners that were heard in time."""
        alive = {
            handler.server_id
            for handler in self.handlers
            if handler.is_participant and handler.is_synced and now_ms <= handler.deadline_ms
        }
        alive.add(self.my_id)
        if not self.quorums.contains_quorum(alive):
            self._end(f"Not sufficient followers synced, only synced with sids: {sorted(alive)}")

    def _end(self, reason: str) -> None:
        if self.phase is LeaderPhase.ENDED:
            return
        self.phase = LeaderPhase.ENDED
        logger.warning("Shutting down as leader: %s", reason)
        self._environment.resign(reason)

    def close(self) -> None:
        """End without a reason of its own: the server stops."""
        self.phase = LeaderPhase.ENDED
        for handler in list(self.handlers):
            self._drop(handler, "the leader ends")

    @property
    def uncommitted(self) -> list[tuple[int, bytes | bytearray]]:
        """Proposals that are not committed; they are, or will be, in the own log."""
        return list(self._proposals)
