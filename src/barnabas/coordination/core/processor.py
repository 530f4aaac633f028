"""The path of a request, from its frame to its reply: ZooKeeper's PrepRequestProcessor and
FinalRequestProcessor.

SyncRequestProcessor, which stands between them in ZooKeeper, is the edge's part
(`barnabas.coordination.server.server`).

    receive ─ write ─> decide and stage ─> unlogged ─(edge: log, sync)─> commit ─> watches ─> reply
       └───── read ──> answered from the committed tree ────────────────────────────────────> reply

Invariants:

- A write is acknowledged, and visible to any client, only after its transaction and all earlier
  ones are on stable storage.
- Many writes share one sync: the edge takes all that is `unlogged`, logs it, and calls `commit`
  with their number.
- Requests of a session are served in order: a read waits for the session's own earlier writes.
  Reads of other sessions do not wait, and see the committed tree.
- A watch's event is sent before the reply to any request that could see the change.
- A refused write also takes a zxid and goes through the log as an error, as in ZooKeeper; so its
  reply keeps its place.

The processors of the chain have modules of their own, named as ZooKeeper's;
`Processor._set_up_request_processors` shows them.

In an ensemble, `unlogged` of the leader's processor are the proposals, and `commit` follows when a
quorum has logged them. A learner's processor decides nothing: it forwards writes to the leader
through its `Forwarder`, and answers them when the leader has committed them (`apply`). So the same
transactions reach the tree everywhere, in the same order:

    receive ── write ──> forward ..(leader: decide, log, commit).. apply ──> watches ──> reply
       └────── read ───> answered from the committed tree ────────────────────────────> reply
"""

import logging
import struct
from collections import deque
from collections.abc import Sequence

from barnabas.base.tasks import Runner
from barnabas.coordination.core.authenticating import authenticate_client, may_request, step_sasl
from barnabas.coordination.core.client_replies import ClientReplies
from barnabas.coordination.core.connecting import SessionConnector
from barnabas.coordination.core.connections import (
    Forwarder,
    Limits,
    Proposal,
    ServerConnection,
    WaitingRequests,
)
from barnabas.coordination.core.database import Database
from barnabas.coordination.core.expirations import Expirations
from barnabas.coordination.core.final_request_processor import FinalRequestProcessor, SessionConnections
from barnabas.coordination.core.follower_request_processor import FollowerRequestProcessor
from barnabas.coordination.core.forwarded_requests import admit
from barnabas.coordination.core.local_sessions import UpgradeableSessionTracker
from barnabas.coordination.core.operations import CLIENT_WRITES, READS, WRITES
from barnabas.coordination.core.operations.base import PlainValues, ReadOperation, WriteOperation
from barnabas.coordination.core.operations.multi import decode_part_values
from barnabas.coordination.core.prep_request_processor import CHANGES_AT_ONCE, PrepRequestProcessor
from barnabas.coordination.core.refusals import CLOSE_LOCAL, EPHEMERAL_ON_LOCAL, EXPIRED, MALFORMED, UNREADABLE
from barnabas.coordination.core.request_metrics import RequestMetrics
from barnabas.coordination.core.sessions import LearnerSessionTracker, Session, SessionTracker
from barnabas.coordination.core.statistics import Distribution, Statistics
from barnabas.coordination.core.usual_bytes import read_requests
from barnabas.coordination.core.watches import Watches
from barnabas.wire.jute.codec import MalformedRecordError, decode, decode_from, encode
from barnabas.wire.jute.errors import ErrorCode
from barnabas.wire.jute.frames import encode_reply
from barnabas.wire.jute.opcodes import OpCode
from barnabas.wire.jute.quorum import decode_forwarded_request
from barnabas.wire.jute.records import AuthPacket, GetSASLRequest, Id, RequestHeader
from barnabas.wire.jute.transactions import CreateSessionTxn

__all__ = ["Processor"]

logger = logging.getLogger(__name__)

_LEARNER_READS = {opcode: read for opcode, read in READS.items() if opcode != OpCode.SYNC}
_SESSION_ID = struct.Struct(">q")
_REPLY_BYTES_AT_ONCE = 64 * 1024
"""Replies of this many bytes take some milliseconds to make, where they are lists of names."""


class Processor:
    """A server's state and its request path; with a ``forwarder`` it is a learner's."""

    def __init__(
        self,
        database: Database,
        tracker: SessionTracker | LearnerSessionTracker | UpgradeableSessionTracker,
        limits: Limits,
        now_ms: int,
        forwarder: Forwarder | None = None,
        reconfig: WriteOperation | None = None,
        metrics: RequestMetrics | None = None,
        latency: Distribution | None = None,
        *,
        runner: Runner,
    ) -> None:
        """``runner`` does the reads that take long. ``reconfig`` takes the place of the operation
        that refuses to change the ensemble. ``latency`` gets the times from decisions to their
        commits."""
        self.database = database
        self._local: UpgradeableSessionTracker | None = None
        if limits.local_sessions is not None and not isinstance(tracker, UpgradeableSessionTracker):
            tracker = self._local = UpgradeableSessionTracker(tracker, limits.local_sessions, now_ms)
        self.tracker = tracker
        self.limits = limits
        self.watches: Watches[ServerConnection] = Watches()
        self.statistics = Statistics()
        self.expirations = Expirations(tracker, database.tree, self.statistics)
        self.metrics = metrics or RequestMetrics()
        self._required_schemes = limits.access.required_schemes
        self._auditor = limits.auditor
        self._forwarder = forwarder
        self._reads = READS if forwarder is None else _LEARNER_READS
        self._writes: dict[int, WriteOperation] = WRITES if forwarder is None else {}
        if reconfig is not None:
            self._writes = {**self._writes, OpCode.RECONFIG: reconfig}
        self._set_up_request_processors(latency, runner)
        for session_id, timeout_ms in database.session_timeouts_ms.items():
            tracker.track(session_id, timeout_ms, now_ms)

    def _set_up_request_processors(self, latency: Distribution | None, runner: Runner) -> None:
        """The chain, as in ZooKeeper's setupRequestProcessors.

            server alone, leader     prep ──> (edge: log, sync; on a leader: a quorum) ──> final
            learner                  follower ──> (the leader's prep, and a quorum) ──> final

        Requests that are audited, or need an authentication, are looked at one by one before they
        are decided or forwarded.
        """
        database, tracker, limits, forwarder = self.database, self.tracker, self.limits, self._forwarder
        watches, statistics, metrics = self.watches, self.statistics, self.metrics
        self._proposals: deque[Proposal] = deque()
        self._waiting = WaitingRequests(self._proposals)
        self._replies = ClientReplies(
            database, watches, statistics, metrics, limits, self._waiting, self._end_session, runner
        )
        self._sessions = SessionConnector(
            database, tracker, limits, self._local, forwarder, statistics, self._create_session
        )
        self._prep = PrepRequestProcessor(database, limits, self._proposals, metrics)
        self._follower: FollowerRequestProcessor | None = None
        if forwarder is not None:
            self._follower = FollowerRequestProcessor(database, forwarder, limits.auditor, self._waiting, self._replies)
        self._final = FinalRequestProcessor(
            database,
            tracker,
            limits,
            watches,
            statistics,
            metrics,
            latency,
            self._waiting,
            self._replies,
            SessionConnections(self._sessions.established, self._end_session),
        )
        one_by_one = bool(limits.auditor or self._required_schemes)
        self._decides_usual = forwarder is None and not one_by_one
        self._forwards_usual = forwarder is not None and not (forwarder.is_read_only or self._local or one_by_one)

    @property
    def outstanding(self) -> int:
        """Writes that are not committed yet."""
        return len(self._proposals)

    @property
    def staged_changes(self) -> int:
        """Nodes that are changed by writes that are not committed yet."""
        return sum([change.count for _, _, _, _, change, _, _ in self._proposals])

    @property
    def unlogged(self) -> list[bytes | bytearray]:
        """Transactions for the log, in order, that the edge has not taken yet."""
        return self._prep.unlogged

    @unlogged.setter
    def unlogged(self, left: list[bytes | bytearray]) -> None:
        self._prep.unlogged = left

    @property
    def outstanding_requests(self) -> int:
        """Requests of all clients that are not answered yet."""
        return self._waiting.outstanding

    @property
    def first_unlogged_zxid(self) -> int:
        """The zxid of the first of `unlogged`."""
        return self._prep.last_zxid - len(self._prep.unlogged) + 1

    # From clients

    def receive_frames(self, client: ServerConnection, frames: list[bytes], now_ms: int, wall_ms: int) -> int:
        """Handle the first frame, and those that have come with it as long as the connection takes
        requests; how many.

        After large replies or many changes the rest is left, so that the connection sees whether
        other clients have waited for long.
        """
        metrics = self.metrics
        taken, enough_bytes = 0, metrics.reply_bytes + _REPLY_BYTES_AT_ONCE
        enough_changes = metrics.changes + CHANGES_AT_ONCE
        while taken < len(frames):
            usual = self._receive_usual(client, frames, taken, now_ms, wall_ms)
            if not usual:
                self._receive(client, frames[taken], now_ms, wall_ms)
            taken += usual or 1
            if not client.transport.takes_requests or metrics.reply_bytes > enough_bytes:
                break
            if metrics.changes > enough_changes:
                break
        return taken

    def receive(self, client: ServerConnection, data: bytes, now_ms: int, wall_ms: int) -> None:
        """Handle one frame. A frame that cannot be decoded closes the connection."""
        if not self._receive_usual(client, [data], 0, now_ms, wall_ms):
            self._receive(client, data, now_ms, wall_ms)

    def _receive_usual(
        self, client: ServerConnection, frames: list[bytes], start: int, now_ms: int, wall_ms: int
    ) -> int:
        """Decide or forward the writes at the head of the frames from ``start`` on that are read
        from their bytes, up to the first for `_receive`. Returns how many."""
        session = client.session
        if session is None:
            return 0
        taken: list[bytes] = []
        most = max(self.limits.global_outstanding - self._waiting.outstanding, 0) + 1
        is_local = self._local is not None and self._local.is_local(session.id)
        if self._decides_usual and not (is_local or session.is_closing) and session.id in self.tracker.sessions:
            requests = read_requests(frames, start, start + most, 0, self.limits.max_multi_operations)
            if requests:
                staging = self._prep.staging(session.id, client.ids, wall_ms)
                taken = frames[start : start + self._prep.propose(staging, client, requests, now_ms)]
        elif self._forwards_usual and self._follower is not None:
            taken = self._follower.forward_usual(client, session.id, frames, start, most, now_ms)
        if not taken:
            return 0
        count = len(taken)
        self.tracker.touch(session, now_ms)
        client.count_received(taken[-1], count)
        self.statistics.received += count
        self.metrics.received_bytes += sum(map(len, taken)) + 4 * count
        self._replies.throttle(client)
        return count

    def _receive(self, client: ServerConnection, data: bytes, now_ms: int, wall_ms: int) -> None:
        client.statistics.received += 1
        self.statistics.received += 1
        self.metrics.received_bytes += 4 + len(data)
        try:
            if client.session is None:
                self.metrics.connect_requests += 1
                self._sessions.connect(client, data, now_ms, wall_ms)
            else:
                self._request(client, client.session, data, now_ms, wall_ms)
        except MalformedRecordError as error:
            logger.warning("Closing the connection of %s: %s", client.address, error)
            client.transport.close()

    def _request(self, client: ServerConnection, session: Session, data: bytes, now_ms: int, wall_ms: int) -> None:
        header, offset = decode_from(RequestHeader, data)
        self.tracker.touch(session, now_ms)
        opcode = client.last_opcode = header.type
        if self._required_schemes and not may_request(client, header, self.limits.access):
            return
        if self._auditor is not None:
            self._auditor.received(client, opcode, data)
        if (read := self._reads.get(opcode)) is not None:
            self._replies.receive(client, header.xid, read, data, now_ms)
            return
        local = self._local
        if (
            local is not None
            and local.takes_part(session.id, opcode, data[offset:], self.limits.max_multi_operations)
            and (answer := self._local_write(session, opcode, now_ms, wall_ms)) is not None
        ):
            self._replies.receive(client, header.xid, answer, data, now_ms)
            return
        if opcode in CLIENT_WRITES and (write := self._writes.get(opcode)) is not None:
            values: PlainValues = ()
            try:
                values = decode_part_values(write, data, offset, self.limits.max_multi_operations)
            except MalformedRecordError as error:
                logger.info("Refusing %s a request of type %d: %s", client.address, opcode, error)
                if opcode == OpCode.MULTI:
                    self._replies.receive(client, header.xid, UNREADABLE, data, now_ms)
                    return
                write = MALFORMED
            self._propose(session.id, client, header.xid, opcode, write, values, now_ms, wall_ms)
        elif opcode == OpCode.AUTH:
            packet = decode(AuthPacket, data, offset)
            authenticate_client(client, header.xid, packet, self.limits.access, self.statistics)
        elif opcode == OpCode.SASL:
            step_sasl(client, header.xid, decode(GetSASLRequest, data, offset), self.limits.access, self.statistics)
        elif self._forwarder is not None and self._forwarder.is_read_only and opcode == OpCode.CLOSE_SESSION:
            self._replies.receive(client, header.xid, CLOSE_LOCAL, data, now_ms)
        elif self._follower is not None and (opcode == OpCode.SYNC or opcode in CLIENT_WRITES):
            self._follower.forward(client, session.id, header.xid, opcode, data[offset:], now_ms)
        else:
            # What is no operation of a client: also a check outside of a multi.
            self._replies.reply(client, encode_reply(header.xid, -1, ErrorCode.UNIMPLEMENTED), now_ms, now_ms)
            client.transport.close()

    def _local_write(self, session: Session, opcode: int, now_ms: int, wall_ms: int) -> ReadOperation | None:
        """What a local session gets for a write that needs more; None if it is global from now
        on, and the write follows."""
        local, settings = self._local, self.limits.local_sessions
        assert local is not None
        assert settings is not None
        if opcode == OpCode.CLOSE_SESSION:
            return CLOSE_LOCAL
        if not settings.may_upgrade:
            return EPHEMERAL_ON_LOCAL
        logger.info("Upgrading session 0x%x", session.id & (1 << 64) - 1)
        local.upgrade(session, now_ms)
        if self._forwarder is not None:
            body = bytes(encode(CreateSessionTxn(session.timeout_ms)))
            self._forwarder.forward(session.id, 0, OpCode.CREATE_SESSION, body, [])
        else:
            self._begin_session(session, None, now_ms, wall_ms)
        return None

    def disconnected(self, client: ServerConnection) -> None:
        """The connection is closed; its session lives until it expires or moves to another
        connection."""
        client.is_closed = True
        if self._auditor is not None:
            self._auditor.disconnected(client)
        self._waiting.count -= sum(not isinstance(request, tuple) for request in client.waiting)
        client.waiting.clear()
        self.watches.remove_watcher(client)
        if client.session is not None and client.session.owner is client:
            client.session.owner = None

    # Sessions

    def _create_session(self, client: ServerConnection, session: Session, now_ms: int, wall_ms: int) -> None:
        """Have a session created for everyone; `FinalRequestProcessor`
        completes its client's connection."""
        if self._follower is not None:
            body = bytes(encode(CreateSessionTxn(session.timeout_ms)))
            self._follower.forward(client, session.id, 0, OpCode.CREATE_SESSION, body, now_ms)
        else:
            self._begin_session(session, client, now_ms, wall_ms)

    def _begin_session(self, session: Session, client: ServerConnection | None, now_ms: int, wall_ms: int) -> None:
        values = (session.timeout_ms,)
        create = WRITES[OpCode.CREATE_SESSION]
        self._propose(session.id, client, 0, OpCode.CREATE_SESSION, create, values, now_ms, wall_ms)

    def revalidated(self, session_id: int, is_alive: bool, now_ms: int) -> None:
        """The leader's answer for a client that wants to reopen its session here."""
        self._sessions.revalidated(session_id, is_alive, now_ms)

    def propose_due(self, now_ms: int, wall_ms: int) -> bool:
        """Take one step towards the ends that `expirations` has found; whether there are more."""
        due = self.expirations.next()
        if isinstance(due, str):
            operation = WRITES[OpCode.DELETE_CONTAINER]
            self._propose(0, None, 0, OpCode.DELETE_CONTAINER, operation, (due, -1), now_ms, wall_ms)
        elif due is not None and self._local is not None and self._local.is_local(due.id):
            self._end_session(due.id)
        elif due is not None:
            close = WRITES[OpCode.CLOSE_SESSION]
            self._propose(due.id, None, 0, OpCode.CLOSE_SESSION, close, (), now_ms, wall_ms)
        return self.expirations.has_more

    # Writes

    def _propose(
        self,
        session_id: int,
        client: ServerConnection | None,
        xid: int,
        opcode: int,
        operation: WriteOperation,
        values: PlainValues,
        now_ms: int,
        wall_ms: int,
        ids: list[Id] | None = None,
    ) -> None:
        """Decide a write of a client, of another server's client with these identities, or of
        this server itself."""
        session = self.tracker.sessions.get(session_id)
        if client is not None:
            ids = client.ids
            if (session is None or session.is_closing) and operation is not MALFORMED:
                operation = EXPIRED
        prep = self._prep
        staging = prep.staging(session_id, ids or [], wall_ms)
        prep.propose(staging, client, [(xid, opcode, operation.decide, operation.answer, values)], now_ms)
        if opcode == OpCode.CLOSE_SESSION and session is not None and operation.opcode == opcode:
            session.is_closing = True
        if client is not None:
            self._replies.throttle(client)

    def commit(self, count: int, now_ms: int) -> None:
        """The next ``count`` transactions are on stable storage: apply them and answer them."""
        self._final.commit(self._proposals, self._prep.staged, count, now_ms)

    def _end_session(self, session_id: int) -> None:
        session = self.tracker.remove(session_id)
        if session is not None and isinstance(session.owner, ServerConnection):
            session.owner.transport.close()

    # The leader's part for other servers

    def propose_forwarded(
        self, owner: object, requests: Sequence[bytes], ids: list[Id], now_ms: int, wall_ms: int
    ) -> None:
        """Decide writes of a client of another server; ``owner`` is this server's connection.

        A request is the data of a REQUEST packet.
        """
        tracker, prep = self.tracker, self._prep
        session: Session | None = None
        for data in requests:
            if self._decides_usual and len(data) >= _SESSION_ID.size:
                (session_id,) = _SESSION_ID.unpack_from(data)
                if session is None or session.id != session_id:
                    session = tracker.live(session_id)
                    if session is not None and session.owner is owner:
                        tracker.touch(session, now_ms)
                if session is not None and session.owner is owner and not session.is_closing:
                    usual = read_requests([data], 0, 1, _SESSION_ID.size, self.limits.max_multi_operations)
                    if usual:
                        prep.propose(prep.staging(session_id, ids, wall_ms), None, usual, now_ms)
                        continue
            request = decode_forwarded_request(data)
            operation, values = admit(tracker, self._writes, self.limits, owner, request, now_ms)
            self._propose(
                request.session_id, None, request.xid, request.opcode, operation, values, now_ms, wall_ms, ids
            )

    def revalidate(self, owner: object, session_id: int, timeout_ms: int, now_ms: int) -> bool:
        """Whether a session is alive; then it moves to the other server."""
        session = self.tracker.live(session_id)
        if session is None or (self._local is not None and self._local.is_local(session_id)):
            return False
        session.timeout_ms = timeout_ms
        self.tracker.touch(session, now_ms)
        if isinstance(session.owner, ServerConnection):
            session.owner.transport.close()
        session.owner = owner
        return True

    # The learner's part

    def apply(self, payloads: Sequence[bytes], now_ms: int, wall_ms: int) -> None:
        """Transactions that the leader has committed: apply them, and answer those for which
        clients here wait.

        ``wall_ms`` is the time of day when the commit came.
        """
        self._final.apply(payloads, now_ms, wall_ms)

    def synced(self, now_ms: int) -> None:
        """The leader has committed all that it had when the oldest sync reached it: answer the
        sync."""
        assert self._follower is not None
        self._follower.synced(now_ms)
