"""The path of a request, from its frame to its reply: ZooKeeper's PrepRequestProcessor and FinalRequestProcessor.

SyncRequestProcessor, which stands between them in ZooKeeper, is the edge's part (`barnabas.coordination.server.server`).

    receive ── write ──> decide and stage ──> unlogged ──(edge: log, sync)──> commit ──> watches ──> reply
       └────── read ───> answered from the committed tree ───────────────────────────────────────> reply

Invariants:

- A write is acknowledged, and visible to any client, only after its transaction and all earlier ones are on stable
  storage.
- Many writes share one sync: the edge takes all that is `unlogged`, logs it, and calls `commit` with their number.
- Requests of a session are served in order: a read waits for the session's own earlier writes. Reads of other sessions
  do not wait, and see the committed tree.
- A watch's event is sent before the reply to any request that could see the change.
- A refused write also takes a zxid and goes through the log as an error, as in ZooKeeper; so its reply keeps its
  place.

The common writes take a fast path (`FastWrites`) through the same stages; what it leaves comes here.

In an ensemble, `unlogged` of the leader's processor are the proposals, and `commit` follows when a quorum has logged
them. A learner's processor decides nothing: it forwards writes to the leader through its `Forwarder`, and answers them
when the leader has committed them (`apply`). So the same transactions reach the tree everywhere, in the same order:

    receive ── write ──> forward ..(leader: decide, log, commit).. apply ──> watches ──> reply
       └────── read ───> answered from the committed tree ────────────────────────────> reply
"""

import logging
import struct
from collections import deque
from collections.abc import Sequence
from itertools import islice

from barnabas.coordination.core.answers import encode_answer
from barnabas.coordination.core.authenticating import authenticate_client, may_request, step_sasl
from barnabas.coordination.core.client_replies import ClientReplies
from barnabas.coordination.core.connecting import SessionConnector
from barnabas.coordination.core.connections import (
    FastProposal,
    ForwardedWrite,
    Forwarder,
    Limits,
    Proposal,
    ServerConnection,
    WaitingRequests,
)
from barnabas.coordination.core.database import Database
from barnabas.coordination.core.expirations import Expirations
from barnabas.coordination.core.fast_transactions import FastLearner
from barnabas.coordination.core.fast_writes import FastWrites
from barnabas.coordination.core.forwarded_requests import INTERNAL, admit
from barnabas.coordination.core.local_sessions import UpgradeableSessionTracker
from barnabas.coordination.core.operations import READS, WRITES
from barnabas.coordination.core.operations.base import Outcome, ReadOperation, Staging, Stamp, WriteOperation
from barnabas.coordination.core.operations.multi import decode_write
from barnabas.coordination.core.refusals import CLOSE_LOCAL, EPHEMERAL_ON_LOCAL, UNREADABLE
from barnabas.coordination.core.request_metrics import RequestMetrics
from barnabas.coordination.core.sessions import LearnerSessionTracker, Session, SessionTracker
from barnabas.coordination.core.statistics import Distribution, Statistics
from barnabas.coordination.core.tree import Events, Staged
from barnabas.coordination.core.watches import Watches
from barnabas.coordination.core.znode import DIGEST_VERSION
from barnabas.wire.jute.codec import MalformedRecordError, decode, decode_from, encode
from barnabas.wire.jute.errors import ErrorCode, KeeperError
from barnabas.wire.jute.frames import (
    encode_reply,
)
from barnabas.wire.jute.opcodes import OpCode
from barnabas.wire.jute.quorum import decode_forwarded_request
from barnabas.wire.jute.records import (
    AuthPacket,
    DeleteRequest,
    GetSASLRequest,
    Id,
    RequestHeader,
    SyncRequest,
    SyncResponse,
)
from barnabas.wire.jute.transactions import (
    CloseSessionTxn,
    CreateSessionTxn,
    ErrorTxn,
    Transaction,
    TxnDigest,
    TxnHeader,
    decode_transaction,
    encode_transaction,
)

__all__ = ["Processor"]

logger = logging.getLogger(__name__)

_LEARNER_READS = {opcode: read for opcode, read in READS.items() if opcode != OpCode.SYNC}
_SESSION_ID = struct.Struct(">q")
_REPLY_BYTES_AT_ONCE = 64 * 1024
"""Replies of so many bytes take some milliseconds to make, where they are lists of names."""
_CHANGES_AT_ONCE = 500
"""So many take some milliseconds to decide."""


class Processor:
    """A server's state and its request path; with a ``forwarder`` that of a learner."""

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
    ) -> None:
        """``reconfig`` takes the place of the operation that refuses to change the ensemble. ``latency`` gets the times from
        decisions to their commits."""
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
        self._latency = latency
        self.unlogged: list[bytes | bytearray] = []
        """Transactions for the log, in order, that the edge has not taken yet."""
        self._staged = Staged(database.tree)
        self._proposals: deque[Proposal | FastProposal] = deque()
        self._waiting = WaitingRequests(self._proposals)
        self._last_zxid = database.last_zxid
        self._required_schemes = limits.access.required_schemes
        self._auditor = limits.auditor
        self._forwarder = forwarder
        self._reads = READS if forwarder is None else _LEARNER_READS
        self._writes: dict[int, WriteOperation] = WRITES if forwarder is None else {}
        if reconfig is not None:
            self._writes = {**self._writes, OpCode.RECONFIG: reconfig}
        self._syncs: deque[ServerConnection] = deque()
        shared = self.watches, self.statistics, self.metrics, latency
        self._replies = ClientReplies(database, *shared[:3], limits, self._waiting, self._end_session)
        self._fast: FastWrites | None = None
        if not (forwarder or limits.enforce_quota or limits.auditor or self._required_schemes):
            self._fast = FastWrites(database, self._staged, *shared, self._fire, self._replies.read_on)
        self._fast_learner: FastLearner | None = None
        if forwarder is not None and not (
            forwarder.is_read_only or self._local or limits.auditor or self._required_schemes
        ):
            sessions, waiting = tracker.sessions, self._waiting
            self._fast_learner = FastLearner(
                database, sessions, *shared, forwarder, waiting, self._fire, self._replies.read_on
            )
        self._sessions = SessionConnector(
            database, tracker, limits, self._local, forwarder, self.statistics, self._create_session
        )
        for session_id, timeout_ms in database.session_timeouts_ms.items():
            tracker.track(session_id, timeout_ms, now_ms)

    @property
    def outstanding(self) -> int:
        """Writes that are not committed yet."""
        return len(self._proposals)

    @property
    def staged_changes(self) -> int:
        """Nodes that are changed by writes that are not committed yet."""
        return sum(
            (1 if proposal[2][-1] is None else 2) if isinstance(proposal, tuple) else len(proposal.changes)
            for proposal in self._proposals
        )

    @property
    def outstanding_requests(self) -> int:
        """Requests of all clients that are not answered yet."""
        return self._waiting.outstanding

    @property
    def first_unlogged_zxid(self) -> int:
        """The zxid of the first of `unlogged`."""
        return self._last_zxid - len(self.unlogged) + 1

    # From clients

    def receive_frames(self, client: ServerConnection, frames: list[bytes], now_ms: int, wall_ms: int) -> int:
        """Handle the first frame, and those that have come with it as long as the connection takes requests; how many.

        After large replies or many changes the rest is left, so that the connection sees whether other clients have waited for
        long.
        """
        metrics = self.metrics
        taken, enough_bytes = 0, metrics.reply_bytes + _REPLY_BYTES_AT_ONCE
        enough_changes = metrics.changes + _CHANGES_AT_ONCE
        while taken < len(frames):
            decided = self._receive_fast(client, frames, taken, now_ms, wall_ms)
            if not decided:
                self._receive(client, frames[taken], now_ms, wall_ms)
            taken += decided or 1
            if not client.transport.takes_requests or metrics.reply_bytes > enough_bytes:
                break
            if metrics.changes > enough_changes:
                break
        return taken

    def receive(self, client: ServerConnection, data: bytes, now_ms: int, wall_ms: int) -> None:
        """Handle one frame. A frame that cannot be decoded closes the connection."""
        if not self._receive_fast(client, [data], 0, now_ms, wall_ms):
            self._receive(client, data, now_ms, wall_ms)

    def _receive_fast(
        self, client: ServerConnection, frames: list[bytes], start: int, now_ms: int, wall_ms: int
    ) -> int:
        """Decide the usual writes at the head of the frames from ``start`` on, up to one for `_receive`; how many these are."""
        fast, session = self._fast, client.session
        if session is not None and self._fast_learner is not None:
            room = max(self.limits.global_outstanding - self._waiting.outstanding, 0)
            if taken := self._fast_learner.forward(client, session.id, frames, start, room + 1, now_ms):
                self.tracker.touch(session, now_ms)
                self._replies.throttle(client)
            return taken
        if fast is None or session is None or session.is_closing or session.id not in self.tracker.sessions:
            return 0
        unlogged, proposals, waiting = self.unlogged, self._proposals, client.waiting
        room = self.limits.global_outstanding - self._waiting.outstanding
        session_id, first_zxid = session.id, self._last_zxid + 1
        zxid, changes, size_bytes, last = first_zxid, 0, 0, b""
        for frame in islice(frames, start, None) if start else frames:
            write = fast.decide(frame, session_id, zxid, wall_ms)
            if write is None:
                break
            unlogged.append(write[0])
            self._last_zxid = zxid  # at once: a later decision may raise
            proposal = client, now_ms, write
            proposals.append(proposal)
            waiting.append(proposal)
            changes += 1 if write[-1] is None else 2
            size_bytes += len(frame)
            last = frame
            zxid += 1
            if zxid - first_zxid > room:
                self._replies.throttle(client)
                break
        taken = zxid - first_zxid
        if taken:
            self.metrics.changes += changes
            self.tracker.touch(session, now_ms)
            client.count_received(last, taken)
            self.statistics.received += taken
            self.metrics.received_bytes += size_bytes + 4 * taken
        return taken

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
        if (write := self._writes.get(opcode)) is not None and opcode not in INTERNAL:
            try:
                request = decode_write(write, data, offset, self.limits.max_multi_operations)
            except MalformedRecordError as error:
                logger.info("Refusing a request of type %d of %s: %s", opcode, client.address, error)
                if opcode == OpCode.MULTI:
                    self._replies.receive(client, header.xid, UNREADABLE, data, now_ms)
                    return
                request = None
                write = None
            self._propose(session.id, client, header.xid, opcode, write, request, now_ms, wall_ms)
        elif opcode == OpCode.AUTH:
            packet = decode(AuthPacket, data, offset)
            authenticate_client(client, header.xid, packet, self.limits.access, self.statistics)
        elif opcode == OpCode.SASL:
            step_sasl(client, header.xid, decode(GetSASLRequest, data, offset), self.limits.access, self.statistics)
        elif self._forwarder is not None and self._forwarder.is_read_only and opcode == OpCode.CLOSE_SESSION:
            self._replies.receive(client, header.xid, CLOSE_LOCAL, data, now_ms)
        elif self._forwarder is not None and (opcode == OpCode.SYNC or (opcode in WRITES and opcode not in INTERNAL)):
            self._forward(self._forwarder, client, session.id, header.xid, opcode, data[offset:], now_ms)
        else:
            # What is no operation of a client: also a check outside of a multi.
            self._replies.reply(client, encode_reply(header.xid, -1, ErrorCode.UNIMPLEMENTED), now_ms, now_ms)
            client.transport.close()

    def _local_write(self, session: Session, opcode: int, now_ms: int, wall_ms: int) -> ReadOperation | None:
        """What a local session gets for a write that needs more; None if it is global from now on, and the write follows."""
        local, settings = self._local, self.limits.local_sessions
        assert local is not None
        assert settings is not None
        if opcode == OpCode.CLOSE_SESSION:
            return CLOSE_LOCAL
        if not settings.may_upgrade:
            return EPHEMERAL_ON_LOCAL
        logger.info("Upgrading session 0x%x", session.id & (1 << 64) - 1)
        local.upgrade(session, now_ms)
        request = CreateSessionTxn(session.timeout_ms)
        if self._forwarder is not None:
            self._forwarder.forward(session.id, 0, OpCode.CREATE_SESSION, bytes(encode(request)), [])
        else:
            create = WRITES[OpCode.CREATE_SESSION]
            self._propose(session.id, None, 0, OpCode.CREATE_SESSION, create, request, now_ms, wall_ms)
        return None

    def disconnected(self, client: ServerConnection) -> None:
        """The connection is closed; its session lives until it expires or moves to another connection."""
        client.is_closed = True
        if self._auditor is not None:
            self._auditor.disconnected(client)
        self._waiting.count -= sum(not isinstance(request, (Proposal, tuple)) for request in client.waiting)
        client.waiting.clear()
        self.watches.remove_watcher(client)
        if client.session is not None and client.session.owner is client:
            client.session.owner = None

    # Sessions

    def _create_session(self, client: ServerConnection, session: Session, now_ms: int, wall_ms: int) -> None:
        """Have a session created for everyone; `_answer` completes its client's connection."""
        txn = CreateSessionTxn(session.timeout_ms)
        if self._forwarder is not None:
            body = bytes(encode(txn))
            self._forward(self._forwarder, client, session.id, 0, OpCode.CREATE_SESSION, body, now_ms)
        else:
            create = WRITES[OpCode.CREATE_SESSION]
            self._propose(session.id, client, 0, OpCode.CREATE_SESSION, create, txn, now_ms, wall_ms)

    def revalidated(self, session_id: int, is_alive: bool, now_ms: int) -> None:
        """The leader's answer for a client that wants to reopen its session here."""
        self._sessions.revalidated(session_id, is_alive, now_ms)

    def propose_due(self, now_ms: int, wall_ms: int) -> bool:
        """Take one step towards the ends that `expirations` has found; whether there are more."""
        due = self.expirations.next()
        if isinstance(due, str):
            operation = WRITES[OpCode.DELETE_CONTAINER]
            self._propose(0, None, 0, OpCode.DELETE_CONTAINER, operation, DeleteRequest(due, -1), now_ms, wall_ms)
        elif due is not None and self._local is not None and self._local.is_local(due.id):
            self._end_session(due.id)
        elif due is not None:
            close = WRITES[OpCode.CLOSE_SESSION]
            self._propose(due.id, None, 0, OpCode.CLOSE_SESSION, close, None, now_ms, wall_ms)
        return self.expirations.any

    # Writes

    def _propose(
        self,
        session_id: int,
        client: ServerConnection | None,
        xid: int,
        opcode: int,
        operation: WriteOperation | None,
        request: object | None,
        now_ms: int,
        wall_ms: int,
        ids: list[Id] | None = None,
    ) -> None:
        """Decide a write and stage what it changes; ``operation`` is None for a request that could not be read."""
        zxid = self._last_zxid + 1
        staged = self._staged
        changes = staged.begin()
        events: Events = []
        if client is not None:
            ids = client.ids
        limits = self.limits
        limited_tree = self.database.tree if limits.enforce_quota else None
        stamp = Stamp(session_id, zxid, wall_ms)
        staging = Staging(staged, stamp, ids or [], limits.ttl_nodes, limits.access.schemes, limited_tree)
        txn: Transaction
        try:
            if operation is None:
                raise KeeperError(ErrorCode.MARSHALLING_ERROR)
            session = self.tracker.sessions.get(session_id)
            if client is not None and (session is None or session.is_closing):
                raise KeeperError(ErrorCode.SESSION_EXPIRED)
            txn_type, txn, outcome = operation.stage(staging, request, events)
            if opcode == OpCode.CLOSE_SESSION and session is not None:
                session.is_closing = True
        except KeeperError as error:
            txn_type, txn, outcome = OpCode.ERROR, ErrorTxn(error.code), Outcome(OpCode.ERROR, err=error.code)
        except BaseException:
            staged.roll_back()  # a defect: nothing of it may stay, nor a hole in the zxids
            raise
        header = TxnHeader(session_id, xid, zxid, wall_ms, txn_type)
        transaction = encode_transaction(header, txn, TxnDigest(DIGEST_VERSION, staged.digest))
        self._last_zxid = zxid
        self.unlogged.append(transaction)
        self.metrics.changes += len(changes)
        proposal = Proposal(header, client, opcode, txn, outcome, changes, events, now_ms)
        self._proposals.append(proposal)
        if client is not None:
            client.waiting.append(proposal)
            self._replies.throttle(client)

    def commit(self, count: int, now_ms: int) -> None:
        """The next ``count`` transactions are on stable storage: apply them and answer them."""
        database, metrics, latency = self.database, self.metrics, self._latency
        while count:
            if self._fast is not None and (done := self._fast.commit(self._proposals, count, now_ms)):
                count -= done
                continue
            proposal = self._proposals.popleft()
            assert isinstance(proposal, Proposal)
            count -= 1
            header = proposal.header
            txn_type = header.type
            self._staged.commit(proposal.changes)
            database.last_zxid = header.zxid
            if not header.zxid & 127:
                database.log_digest()
            if txn_type in (OpCode.CREATE_SESSION, OpCode.CLOSE_SESSION):
                database.track_session(txn_type, header.client_id, proposal.txn)
            if proposal.events:
                self._fire(proposal.events)
            metrics.propagation_latency.add(now_ms - proposal.since_ms)
            if latency is not None:
                latency.add(now_ms - proposal.since_ms)
            metrics.written(proposal.outcome)
            client = proposal.client
            if client is not None and not client.is_closed:
                client.waiting.popleft()
                self._answer(client, proposal.opcode, header, proposal.outcome, proposal.since_ms, now_ms)
                self._replies.read_on(client, now_ms)
            if txn_type == OpCode.CLOSE_SESSION:
                if isinstance(proposal.txn, CloseSessionTxn):
                    metrics.deleted(proposal.txn.paths_to_delete)
                    if self._auditor is not None:
                        self._auditor.session_closed(header.client_id, proposal.txn.paths_to_delete)
                self._end_session(header.client_id)

    def _fire(self, events: Events) -> None:
        """Send events to the watchers."""
        sent, size_bytes = self.watches.fire(events)
        self.statistics.sent += sent
        self.metrics.event_bytes += size_bytes

    def _answer(
        self, client: ServerConnection, opcode: int, header: TxnHeader, outcome: Outcome, since_ms: int, now_ms: int
    ) -> None:
        xid, zxid = header.cxid, header.zxid
        self.metrics.update_latency.add(now_ms - since_ms)
        if opcode == OpCode.CREATE_SESSION and outcome.type != OpCode.ERROR:
            assert client.session is not None
            self._sessions.established(client, client.session)
            return
        frame = encode_answer(xid, zxid, opcode, outcome)
        if self._auditor is not None:
            self._auditor.answered(client, opcode, outcome)
        self._replies.reply(client, frame, now_ms, since_ms)

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
        fast, tracker, unlogged, proposals = self._fast, self.tracker, self.unlogged, self._proposals
        session: Session | None = None
        for data in requests:
            if fast is not None and len(data) >= _SESSION_ID.size:
                (session_id,) = _SESSION_ID.unpack_from(data)
                if session is None or session.id != session_id:
                    session = tracker.live(session_id)
                    if session is not None and session.owner is owner:
                        tracker.touch(session, now_ms)
                if session is not None and session.owner is owner and not session.is_closing:
                    zxid = self._last_zxid + 1
                    write = fast.decide(data, session_id, zxid, wall_ms, _SESSION_ID.size)
                    if write is not None:
                        self._last_zxid = zxid
                        unlogged.append(write[0])
                        self.metrics.changes += 1 if write[-1] is None else 2
                        proposals.append((None, now_ms, write))
                        continue
            request = decode_forwarded_request(data)
            operation, body = admit(tracker, self._writes, self.limits, owner, request, now_ms)
            self._propose(request.session_id, None, request.xid, request.opcode, operation, body, now_ms, wall_ms, ids)

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

    def _forward(
        self,
        forwarder: Forwarder,
        client: ServerConnection,
        session_id: int,
        xid: int,
        opcode: int,
        body: bytes,
        now_ms: int,
    ) -> None:
        path = decode(SyncRequest, body).path if opcode == OpCode.SYNC else ""
        try:
            forwarder.forward(session_id, xid, opcode, body, client.ids)
        except KeeperError as error:
            if self._auditor is not None:
                self._auditor.refused(client)
            self._replies.reply(client, encode_reply(xid, self.database.last_zxid, error.code), now_ms, now_ms)
            return
        if opcode == OpCode.SYNC:
            self._syncs.append(client)
        client.waiting.append(ForwardedWrite(xid, opcode, now_ms, path))
        self._waiting.count += 1
        self._replies.throttle(client)

    def apply(self, payloads: Sequence[bytes], now_ms: int, wall_ms: int) -> None:
        """Transactions that the leader has committed: apply them, and answer those for which clients here wait.

        ``wall_ms`` is the time of day when the commit came.
        """
        done = 0
        while True:
            if self._fast_learner is not None:
                done += self._fast_learner.apply(payloads, done, now_ms, wall_ms)
            if done == len(payloads):
                return
            header, txn, digest = decode_transaction(payloads[done])
            done += 1
            latency_ms = wall_ms - header.time_ms
            self.metrics.propagation_latency.add(latency_ms)
            if self._latency is not None:
                self._latency.add(latency_ms)
            outcome, events = self.database.apply(header, txn, digest)
            if header.type == OpCode.CREATE_SESSION:
                self.tracker.track(header.client_id, self.database.session_timeouts_ms[header.client_id], now_ms)
            if events:
                self._fire(events)
            self.metrics.written(outcome)
            session = self.tracker.sessions.get(header.client_id)
            client = session.owner if session is not None else None
            if isinstance(client, ServerConnection) and client.waiting:
                request = client.waiting[0]
                if isinstance(request, ForwardedWrite) and request.xid == header.cxid and request.opcode != OpCode.SYNC:
                    client.waiting.popleft()
                    self._waiting.count -= 1
                    if outcome.type == OpCode.ERROR and outcome.err == ErrorCode.SESSION_MOVED:
                        # The leader saw this connection before an older one: close it, and the client's next connection
                        # is accepted.
                        if self._auditor is not None:
                            self._auditor.answered(client, request.opcode, outcome)
                        client.transport.close()
                        continue
                    self._answer(client, request.opcode, header, outcome, request.since_ms, now_ms)
                    self._replies.read_on(client, now_ms)
            if header.type == OpCode.CLOSE_SESSION:
                if isinstance(txn, CloseSessionTxn):
                    self.metrics.deleted(txn.paths_to_delete)
                    if self._auditor is not None:
                        self._auditor.session_closed(header.client_id, txn.paths_to_delete)
                self._end_session(header.client_id)

    def synced(self, now_ms: int) -> None:
        """The leader has committed all that it had when the oldest sync reached it: answer the sync."""
        client = self._syncs.popleft()
        request = client.waiting[0] if client.waiting else None
        if client.is_closed or not isinstance(request, ForwardedWrite) or request.opcode != OpCode.SYNC:
            return
        client.waiting.popleft()
        self._waiting.count -= 1
        frame = encode_reply(request.xid, self.database.last_zxid, 0, SyncResponse(request.path))
        self._replies.reply(client, frame, now_ms, request.since_ms)
        self._replies.read_on(client, now_ms)
