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

With an ensemble, a leader's proposals will take the place of `unlogged`, and a follower's commits will come from its
leader.
"""

import logging
from collections import deque
from dataclasses import dataclass
from typing import NoReturn, Protocol

from barnabas.coordination.core.access import SUPER, AccessRules, SaslServer, authenticate, ip_id, is_allowed
from barnabas.coordination.core.database import Database
from barnabas.coordination.core.operations import READS, WRITES
from barnabas.coordination.core.operations.base import Outcome, Reading, ReadOperation, Staging, Stamp, WriteOperation
from barnabas.coordination.core.operations.multi import decode_parts
from barnabas.coordination.core.sessions import Session, SessionTracker, session_password
from barnabas.coordination.core.statistics import Statistics
from barnabas.coordination.core.tree import Event, Staged, TreeChange
from barnabas.coordination.core.watches import Watches
from barnabas.coordination.core.znode import DIGEST_VERSION
from barnabas.security.digest_md5 import SaslError
from barnabas.wire.jute.codec import MalformedRecordError, decode, decode_from
from barnabas.wire.jute.errors import ErrorCode, KeeperError
from barnabas.wire.jute.frames import (
    decode_connect_request,
    decode_multi_request,
    encode_connect_response,
    encode_event,
    encode_multi_response,
    encode_reply,
)
from barnabas.wire.jute.opcodes import KeeperState, OpCode, Perms
from barnabas.wire.jute.records import (
    AuthPacket,
    ConnectResponse,
    DeleteRequest,
    GetSASLRequest,
    Id,
    RequestHeader,
    SetSASLResponse,
    WatcherEvent,
)
from barnabas.wire.jute.transactions import (
    CreateSessionTxn,
    ErrorTxn,
    Transaction,
    TxnDigest,
    TxnHeader,
    encode_transaction,
)

__all__ = ["Limits", "Processor", "ServerConnection", "Transport"]

logger = logging.getLogger(__name__)


def _refuse(_reading: Reading, _request: object) -> NoReturn:
    raise KeeperError(ErrorCode.MARSHALLING_ERROR)


_UNREADABLE = ReadOperation(OpCode.ERROR, None, _refuse)
"""Takes the place of a multi that cannot be read: it is answered with an error in its turn, without a zxid."""
_MAX_IDENTITIES = 100
_INTERNAL = frozenset((OpCode.CREATE_SESSION, OpCode.DELETE_CONTAINER))
"""Writes that clients may not request."""


class Transport(Protocol):
    """The way back to a client."""

    def send(self, frame: bytearray) -> None: ...

    def hold(self) -> None:
        """Take no more requests until `release`."""
        ...

    def release(self) -> None: ...

    def close(self) -> None:
        """Close when everything has been sent."""
        ...


class Limits:
    """Limits for clients."""

    __slots__ = (
        "access",
        "enforce_quota",
        "global_outstanding",
        "max_reply_bytes",
        "max_session_timeout_ms",
        "min_session_timeout_ms",
        "ttl_nodes",
    )

    def __init__(
        self,
        *,
        min_session_timeout_ms: int,
        max_session_timeout_ms: int,
        global_outstanding: int = 1000,
        max_reply_bytes: int = 4 << 20,
        ttl_nodes: bool = False,
        enforce_quota: bool = False,
        access: AccessRules | None = None,
    ) -> None:
        self.min_session_timeout_ms = min_session_timeout_ms
        self.max_session_timeout_ms = max_session_timeout_ms
        self.global_outstanding = global_outstanding
        self.max_reply_bytes = max_reply_bytes
        self.ttl_nodes = ttl_nodes
        self.enforce_quota = enforce_quota
        self.access = access or AccessRules()


class ServerConnection:
    """One connection, with its requests that are not answered yet: ZooKeeper's ServerCnxn."""

    __slots__ = (
        "address",
        "ids",
        "is_closed",
        "is_held",
        "old_protocol",
        "port",
        "sasl",
        "session",
        "since_ms",
        "statistics",
        "transport",
        "waiting",
    )

    def __init__(self, transport: Transport, address: str, port: int, now_ms: int) -> None:
        self.transport = transport
        self.address = address
        self.port = port
        self.since_ms = now_ms
        self.ids: list[Id] = [ip_id(address)]
        self.sasl: SaslServer | None = None
        self.session: Session | None = None
        self.waiting: deque[_Proposal | _WaitingRead] = deque()
        self.statistics = Statistics()
        self.old_protocol = False
        self.is_closed = False
        self.is_held = False

    @property
    def session_id(self) -> int:
        return self.session.id if self.session is not None else 0

    def add_ids(self, identities: list[Id]) -> None:
        """Add what the client has proven."""
        self.ids += [each for each in identities if each not in self.ids]

    def notify(self, event: Event) -> None:
        """Send an event of one of the client's watches, if the client may read the node."""
        if is_allowed(event.acl, Perms.READ, self.ids):
            self.statistics.sent += 1
            self.transport.send(encode_event(WatcherEvent(event.type, KeeperState.SYNC_CONNECTED, event.path)))


@dataclass(slots=True, eq=False)
class _Proposal:
    """A write between decision and commit."""

    header: TxnHeader
    client: ServerConnection | None
    opcode: int
    """the request's; the header has the transaction's type"""
    txn: Transaction
    outcome: Outcome
    changes: list[TreeChange]
    events: list[Event]
    since_ms: int


class _WaitingRead:
    """A read that waits for earlier writes of its session."""

    __slots__ = ("data", "operation", "since_ms", "xid")

    def __init__(self, xid: int, operation: ReadOperation, data: bytes, since_ms: int) -> None:
        self.xid = xid
        self.operation = operation
        self.data = data
        self.since_ms = since_ms


class Processor:
    """A standalone server's state and its request path."""

    def __init__(self, database: Database, tracker: SessionTracker, limits: Limits, now_ms: int) -> None:
        self.database = database
        self.tracker = tracker
        self.limits = limits
        self.watches: Watches[ServerConnection] = Watches()
        self.statistics = Statistics()
        self.unlogged: list[bytearray] = []
        """Transactions for the log, in order, that the edge has not taken yet."""
        self._staged = Staged(database.tree)
        self._proposals: deque[_Proposal] = deque()
        self._waiting_reads = 0
        self._last_zxid = database.last_zxid
        self._required_schemes = limits.access.required_schemes
        for session_id, timeout_ms in database.session_timeouts_ms.items():
            tracker.track(session_id, timeout_ms, now_ms)

    @property
    def outstanding(self) -> int:
        """Writes that are not committed yet."""
        return len(self._proposals)

    @property
    def outstanding_requests(self) -> int:
        """Requests of all clients that are not answered yet."""
        return len(self._proposals) + self._waiting_reads

    @property
    def first_unlogged_zxid(self) -> int:
        """The zxid of the first of `unlogged`."""
        return self._last_zxid - len(self.unlogged) + 1

    # From clients

    def receive(self, client: ServerConnection, data: bytes, now_ms: int, wall_ms: int) -> None:
        """Handle one frame. A frame that cannot be decoded closes the connection."""
        client.statistics.received += 1
        self.statistics.received += 1
        try:
            if client.session is None:
                self._connect(client, data, now_ms, wall_ms)
            else:
                self._request(client, client.session, data, now_ms, wall_ms)
        except MalformedRecordError as error:
            logger.warning("Closing the connection of %s: %s", client.address, error)
            client.transport.close()

    def _request(self, client: ServerConnection, session: Session, data: bytes, now_ms: int, wall_ms: int) -> None:
        header, offset = decode_from(RequestHeader, data)
        self.tracker.touch(session, now_ms)
        opcode = header.type
        if self._required_schemes and not self._may_request(client, header):
            return
        if (read := READS.get(opcode)) is not None:
            self._receive_read(client, header.xid, read, data, now_ms)
        elif (write := WRITES.get(opcode)) is not None and opcode not in _INTERNAL:
            try:
                request = self._decode_write(write, data, offset)
            except MalformedRecordError as error:
                logger.info("Refusing a request of type %d of %s: %s", opcode, client.address, error)
                if opcode == OpCode.MULTI:
                    self._receive_read(client, header.xid, _UNREADABLE, data, now_ms)
                    return
                request = None
                write = None
            self._propose(session.id, client, header.xid, opcode, write, request, now_ms, wall_ms)
        elif opcode == OpCode.AUTH:
            self._authenticate(client, header.xid, decode(AuthPacket, data, offset))
        elif opcode == OpCode.SASL:
            self._sasl(client, header.xid, decode(GetSASLRequest, data, offset))
        else:
            # What is no operation of a client: also a check outside of a multi.
            self._reply(client, encode_reply(header.xid, -1, ErrorCode.UNIMPLEMENTED), now_ms, now_ms)
            client.transport.close()

    def _may_request(self, client: ServerConnection, header: RequestHeader) -> bool:
        """Whether the client has authenticated, or is about to; else it gets the reason, and its connection is closed."""
        if header.type in (OpCode.AUTH, OpCode.SASL) or self.limits.access.is_authenticated(client.ids):
            return True
        logger.warning(
            "Closing the connection of %s: it has not authenticated with any of the schemes %s",
            client.address,
            ", ".join(sorted(self._required_schemes)),
        )
        client.transport.send(encode_reply(header.xid, 0, ErrorCode.SESSION_CLOSED_REQUIRE_SASL_AUTH))
        client.transport.close()
        return False

    @staticmethod
    def _decode_write(operation: WriteOperation, data: bytes, offset: int) -> object | None:
        if operation.opcode is OpCode.MULTI:
            return decode_parts(data, offset)
        return decode(operation.request_type, data, offset) if operation.request_type is not None else None

    def _authenticate(self, client: ServerConnection, xid: int, packet: AuthPacket) -> None:
        try:
            if len(client.ids) >= _MAX_IDENTITIES:
                raise KeeperError(ErrorCode.AUTH_FAILED)
            identities = authenticate(self.limits.access, packet.scheme, packet.auth)
        except KeeperError as error:
            logger.warning("Client %s failed to authenticate with the scheme %r", client.address, packet.scheme[:20])
            self.statistics.failed_authentications += 1
            client.transport.send(encode_reply(xid, 0, error.code))
            client.transport.close()
            return
        client.add_ids(identities)
        client.transport.send(encode_reply(xid, 0, ErrorCode.OK))

    def _sasl(self, client: ServerConnection, xid: int, request: GetSASLRequest) -> None:
        """One step of an authentication. A client may repeat it, with a mechanism of its own each time."""
        rules = self.limits.access
        if rules.new_sasl_server is None:
            client.transport.send(encode_reply(xid, 0, ErrorCode.OK, SetSASLResponse(None)))
            return
        if client.sasl is None or client.sasl.is_complete:
            client.sasl = rules.new_sasl_server()
        answer: bytes | None = None
        try:
            answer = client.sasl.evaluate(request.token or b"")
            if client.sasl.is_complete:
                logger.info("Session 0x%x: SASL user %s", client.session_id & (1 << 64) - 1, client.sasl.user)
                client.add_ids(rules.with_super(Id("sasl", client.sasl.user)))
        except SaslError as error:
            logger.warning("Client %s failed to authenticate with SASL: %s", client.address, error)
            self.statistics.failed_authentications += 1
            client.sasl = None
            is_required = "sasl" in rules.required_schemes
            if is_required or not rules.maintains_failed_sasl_clients:
                code = ErrorCode.SESSION_CLOSED_REQUIRE_SASL_AUTH if is_required else ErrorCode.AUTH_FAILED
                client.transport.send(encode_reply(xid, 0, code, SetSASLResponse(None)))
                client.transport.close()
                return
        client.transport.send(encode_reply(xid, 0, ErrorCode.OK, SetSASLResponse(answer)))

    def disconnected(self, client: ServerConnection) -> None:
        """The connection is closed; its session lives until it expires or moves to another connection."""
        client.is_closed = True
        self._waiting_reads -= sum(isinstance(request, _WaitingRead) for request in client.waiting)
        client.waiting.clear()
        self.watches.remove_watcher(client)
        if client.session is not None and client.session.owner is client:
            client.session.owner = None

    # Sessions

    def _connect(self, client: ServerConnection, data: bytes, now_ms: int, wall_ms: int) -> None:
        request, read_only = decode_connect_request(data)
        client.old_protocol = read_only is None
        if self.limits.access.skip_acl:
            client.add_ids([SUPER])
        if request.last_zxid_seen > self.database.last_zxid:
            logger.info(
                "Refusing %s: it has seen zxid 0x%x, and the last one here is 0x%x; it must try another server",
                client.address,
                request.last_zxid_seen,
                self.database.last_zxid,
            )
            client.transport.close()
            return
        limits = self.limits
        timeout_ms = min(max(request.timeout_ms, limits.min_session_timeout_ms), limits.max_session_timeout_ms)
        client.transport.hold()
        if request.session_id == 0:
            session = self.tracker.track(self.tracker.new_id(), timeout_ms, now_ms)
            self._take_over(client, session)
            self._propose(
                session.id,
                client,
                0,
                OpCode.CREATE_SESSION,
                WRITES[OpCode.CREATE_SESSION],
                CreateSessionTxn(timeout_ms),
                now_ms,
                wall_ms,
            )
            return
        found = self.tracker.live(request.session_id)
        if found is None or request.password != session_password(request.session_id):
            logger.info(
                "Session 0x%x of %s has expired or is unknown", request.session_id & (1 << 64) - 1, client.address
            )
            client.transport.send(self._connect_response(client, 0, 0, bytes(16)))
            client.transport.close()
            return
        found.timeout_ms = timeout_ms
        self.tracker.touch(found, now_ms)
        self._take_over(client, found)
        self._established(client, found)

    @staticmethod
    def _take_over(client: ServerConnection, session: Session) -> None:
        before = session.owner
        if isinstance(before, ServerConnection):
            before.transport.close()
        session.owner = client
        client.session = session

    @staticmethod
    def _connect_response(client: ServerConnection, timeout_ms: int, session_id: int, password: bytes) -> bytearray:
        response = ConnectResponse(0, timeout_ms, session_id, password)
        return encode_connect_response(response, None if client.old_protocol else False)

    def _established(self, client: ServerConnection, session: Session) -> None:
        client.statistics.sent += 1
        client.transport.send(
            self._connect_response(client, session.timeout_ms, session.id, session_password(session.id))
        )
        client.transport.release()

    def tick(self, now_ms: int, wall_ms: int) -> None:
        """Expire the sessions whose time is over. To be called at least once a tick."""
        for session in self.tracker.expire(now_ms):
            logger.info(
                "Expiring session 0x%x, timeout of %dms exceeded", session.id & (1 << 64) - 1, session.timeout_ms
            )
            close = WRITES[OpCode.CLOSE_SESSION]
            self._propose(session.id, None, 0, OpCode.CLOSE_SESSION, close, None, now_ms, wall_ms)

    def sweep_containers(self, now_ms: int, wall_ms: int, limit: int) -> None:
        """Delete container nodes that have lost their last child, and TTL nodes whose time is over.

        In ZooKeeper: ContainerManager.
        """
        tree = self.database.tree
        due: list[str] = []
        for path in tree.containers:
            node = tree.nodes[path]
            if node.cversion > 0 and not node.num_children:
                due.append(path)
        for path in tree.ttls:
            node = tree.nodes[path]
            if not node.num_children and wall_ms - node.mtime > (node.ttl_ms or 0):
                due.append(path)
        operation = WRITES[OpCode.DELETE_CONTAINER]
        for path in sorted(due)[:limit]:
            self._propose(0, None, 0, OpCode.DELETE_CONTAINER, operation, DeleteRequest(path, -1), now_ms, wall_ms)

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
    ) -> None:
        """Decide a write and stage what it changes; ``operation`` is None for a request that could not be read."""
        zxid = self._last_zxid = self._last_zxid + 1
        staged = self._staged
        changes = staged.begin()
        events: list[Event] = []
        ids = client.ids if client is not None else []
        limits = self.limits
        limited_tree = self.database.tree if limits.enforce_quota else None
        stamp = Stamp(session_id, zxid, wall_ms)
        staging = Staging(staged, stamp, ids, limits.ttl_nodes, limits.access.schemes, limited_tree)
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
        header = TxnHeader(session_id, xid, zxid, wall_ms, txn_type)
        self.unlogged.append(encode_transaction(header, txn, TxnDigest(DIGEST_VERSION, staged.digest)))
        proposal = _Proposal(header, client, opcode, txn, outcome, changes, events, now_ms)
        self._proposals.append(proposal)
        if client is not None:
            client.waiting.append(proposal)
            self._throttle(client)

    def commit(self, count: int, now_ms: int) -> None:
        """The next ``count`` transactions are on stable storage: apply them and answer them."""
        database = self.database
        for _ in range(count):
            proposal = self._proposals.popleft()
            header = proposal.header
            txn_type = header.type
            self._staged.commit(proposal.changes)
            database.last_zxid = header.zxid
            if txn_type in (OpCode.CREATE_SESSION, OpCode.CLOSE_SESSION):
                database.track_session(txn_type, header.client_id, proposal.txn)
            if proposal.events:
                self.watches.fire(proposal.events)
            client = proposal.client
            if client is not None and not client.is_closed:
                client.waiting.popleft()
                self._answer(client, proposal, now_ms)
                self._read_on(client, now_ms)
            if txn_type == OpCode.CLOSE_SESSION:
                self._end_session(header.client_id)

    def _answer(self, client: ServerConnection, proposal: _Proposal, now_ms: int) -> None:
        outcome, xid, zxid = proposal.outcome, proposal.header.cxid, proposal.header.zxid
        if outcome.type == OpCode.ERROR:
            frame = encode_reply(xid, zxid, outcome.err)
        elif proposal.opcode == OpCode.CREATE_SESSION:
            assert client.session is not None
            self._established(client, client.session)
            return
        elif outcome.type == OpCode.MULTI:
            parts = WRITES[OpCode.MULTI].reply(outcome)
            frame = encode_multi_response(xid, zxid, 0, parts)  # type: ignore[arg-type]  # multi's reply
        else:
            frame = encode_reply(xid, zxid, 0, WRITES[proposal.opcode].reply(outcome))
        self._reply(client, frame, now_ms, proposal.since_ms)

    def _end_session(self, session_id: int) -> None:
        session = self.tracker.remove(session_id)
        if session is not None and isinstance(session.owner, ServerConnection):
            session.owner.transport.close()

    # Reads

    def _receive_read(
        self, client: ServerConnection, xid: int, operation: ReadOperation, data: bytes, now_ms: int
    ) -> None:
        if client.waiting:
            client.waiting.append(_WaitingRead(xid, operation, data, now_ms))
            self._waiting_reads += 1
            self._throttle(client)
        else:
            self._read(client, xid, operation, data, now_ms, now_ms)

    def _read_on(self, client: ServerConnection, now_ms: int) -> None:
        """Answer the reads that waited for the write before them, and take more from the client."""
        waiting = client.waiting
        while waiting and isinstance(waiting[0], _WaitingRead):
            read = waiting.popleft()
            assert isinstance(read, _WaitingRead)
            self._waiting_reads -= 1
            self._read(client, read.xid, read.operation, read.data, now_ms, read.since_ms)
        if client.is_held and not (waiting and self._is_overloaded()):
            client.is_held = False
            client.transport.release()

    def _read(
        self, client: ServerConnection, xid: int, operation: ReadOperation, data: bytes, now_ms: int, since_ms: int
    ) -> None:
        zxid = self.database.last_zxid
        reading = Reading(self.database.tree, self.watches, client, self.limits.max_reply_bytes)
        try:
            if operation.opcode is OpCode.MULTI_READ:
                parts = operation.read(reading, decode_multi_request(data, 8))
                frame = encode_multi_response(xid, zxid, 0, parts)  # type: ignore[arg-type]  # multiRead's reply
            else:
                request = decode(operation.request_type, data, 8) if operation.request_type is not None else None
                frame = encode_reply(xid, zxid, 0, operation.read(reading, request))
        except KeeperError as error:
            frame = encode_reply(xid, zxid, error.code)
        except MalformedRecordError as error:
            logger.info("Refusing a request of type %d of %s: %s", operation.opcode, client.address, error)
            frame = encode_reply(xid, zxid, ErrorCode.MARSHALLING_ERROR)
        self._reply(client, frame, now_ms, since_ms)

    def _reply(self, client: ServerConnection, frame: bytearray, now_ms: int, since_ms: int) -> None:
        latency_ms = now_ms - since_ms
        client.statistics.answered(latency_ms)
        self.statistics.answered(latency_ms)
        client.transport.send(frame)

    def _is_overloaded(self) -> bool:
        return len(self._proposals) + self._waiting_reads > self.limits.global_outstanding

    def _throttle(self, client: ServerConnection) -> None:
        """Above the global limit take no more from this client until it has no request outstanding, or the load ends.

        This is ZooKeeperServer.shouldThrottle: each client goes on, with one request at a time.
        """
        if not client.is_held and self._is_overloaded():
            client.is_held = True
            client.transport.hold()
