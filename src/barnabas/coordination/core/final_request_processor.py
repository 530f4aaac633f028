"""What follows when a transaction is committed: it comes into the tree, is counted, fires watches,
and is answered.

    server alone, leader     a proposal ─────┐
    learner                  a transaction ──┴─> tree ─> figures ─> watches ─> answer
                                                 ─> the client's reads behind it

Invariants:

- A watch's event is sent before the reply to any request that could see the change.
- Answers to one client leave in the order of its requests. Those of transactions that are committed
  together leave in one piece.

In ZooKeeper: `FinalRequestProcessor`, and `DataTree.processTxn` for a learner.
"""

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from barnabas.coordination.core.answers import answer_together, encode_answer
from barnabas.coordination.core.changes import Change, SessionChange, events_of
from barnabas.coordination.core.client_replies import ClientReplies
from barnabas.coordination.core.connections import (
    ForwardedWrite,
    Limits,
    Proposal,
    ServerConnection,
    WaitingRead,
    WaitingRequests,
)
from barnabas.coordination.core.database import Database
from barnabas.coordination.core.local_sessions import UpgradeableSessionTracker
from barnabas.coordination.core.operations import WRITES
from barnabas.coordination.core.operations.base import Stamp
from barnabas.coordination.core.request_metrics import RequestMetrics
from barnabas.coordination.core.sessions import LearnerSessionTracker, Session, SessionTracker
from barnabas.coordination.core.staged import Staged
from barnabas.coordination.core.statistics import Distribution, Statistics
from barnabas.coordination.core.usual_bytes import read_transaction
from barnabas.coordination.core.watches import Watches
from barnabas.wire.jute.errors import ErrorCode
from barnabas.wire.jute.layouts import TXN_HEADER
from barnabas.wire.jute.opcodes import OpCode
from barnabas.wire.jute.transactions import decode_transaction

__all__ = ["FinalRequestProcessor", "SessionConnections"]

_Committed = tuple[int, Change, ServerConnection | None, int, int, bytes | None]
"""The time from the decision to the commit; the change; the client that waits for an answer,
since when, with which opcode, and the encoded answer; None where a session begins, or has
moved: see `_answer_session`."""
_CREATE_SESSION, _SYNC, _SESSION_MOVED = OpCode.CREATE_SESSION, OpCode.SYNC, ErrorCode.SESSION_MOVED


class SessionConnections(NamedTuple):
    """What the begin and the end of a session mean for its connection."""

    established: Callable[[ServerConnection, Session], None]
    """Answers a client that waits for its session."""
    over: Callable[[int], None]
    """Closes the connection of a session, by its id."""


class FinalRequestProcessor:
    """See the module. It shares the state of its processor."""

    def __init__(
        self,
        database: Database,
        tracker: SessionTracker | LearnerSessionTracker | UpgradeableSessionTracker,
        limits: Limits,
        watches: Watches[ServerConnection],
        statistics: Statistics,
        metrics: RequestMetrics,
        latency: Distribution | None,
        waiting: WaitingRequests,
        replies: ClientReplies,
        connections: SessionConnections,
    ) -> None:
        """``latency`` gets the times from decisions to their commits."""
        self._database = database
        self._tracker = tracker
        self._auditor = limits.auditor
        self._watches = watches
        self._statistics = statistics
        self._metrics = metrics
        self._latency = latency
        self._waiting = waiting
        self._replies = replies
        self._connections = connections

    def commit(self, proposals: deque[Proposal], staged: Staged, count: int, now_ms: int) -> None:
        """The transactions of the next ``count`` proposals are on stable storage."""
        self._finish(self._committed(proposals, staged, count, now_ms), now_ms)

    def _committed(self, proposals: deque[Proposal], staged: Staged, count: int, now_ms: int) -> Iterator[_Committed]:
        install, settle, take = self._database.install, staged.settle, proposals.popleft
        for _ in range(count):
            client, since_ms, zxid, opcode, change, reply, _ = take()
            install(change, zxid)
            settle(change)
            if client is not None:
                if client.is_closed:
                    client = None
                else:
                    client.waiting.popleft()
            yield now_ms - since_ms, change, client, since_ms, opcode, reply

    def apply(self, payloads: Sequence[bytes], now_ms: int, wall_ms: int) -> None:
        """Transactions that the leader has committed; ``wall_ms`` is the time of day when they
        came."""
        self._finish(self._applied(payloads, now_ms, wall_ms), now_ms)

    def _applied(self, payloads: Sequence[bytes], now_ms: int, wall_ms: int) -> Iterator[_Committed]:
        for payload in payloads:
            session_id, xid, zxid, time_ms, _ = TXN_HEADER.unpack_from(payload)
            change = self._apply(payload)
            if change.type == _CREATE_SESSION:
                self._tracker.track(session_id, self._database.session_timeouts_ms[session_id], now_ms)
            request = self._request_of(session_id, xid)
            if request is None:
                yield wall_ms - time_ms, change, None, 0, 0, None
                continue
            client, forwarded = request
            reply = None
            if change.type != _CREATE_SESSION and change.err != _SESSION_MOVED:
                reply = encode_answer(xid, zxid, WRITES[forwarded.opcode].answer, change)
            yield wall_ms - time_ms, change, client, forwarded.since_ms, forwarded.opcode, reply

    def _request_of(self, session_id: int, xid: int) -> tuple[ServerConnection, ForwardedWrite] | None:
        """The client here that waits for a transaction, and its request, which waits no longer."""
        session = self._tracker.sessions.get(session_id)
        client = session.owner if session is not None else None
        if not isinstance(client, ServerConnection) or not client.waiting:
            return None
        request = client.waiting[0]
        if not isinstance(request, ForwardedWrite) or request.xid != xid or request.opcode == _SYNC:
            return None
        client.waiting.popleft()
        self._waiting.count -= 1
        return client, request

    def _apply(self, payload: bytes) -> Change:
        """Apply a transaction, which is read from its bytes if it is a common one."""
        session_id, _, zxid, time_ms, txn_type = TXN_HEADER.unpack_from(payload)
        usual = read_transaction(payload, txn_type)
        if usual is None:
            return self._database.apply(*decode_transaction(payload))
        found, values, digest = usual
        return self._database.apply_values(found, Stamp(session_id, zxid, time_ms), values, digest)

    def _finish(self, committed: Iterator[_Committed], now_ms: int) -> None:
        """Count, fire and answer what comes into the tree, one after the other."""
        watches, auditor = self._watches, self._auditor
        written, concerned = self._metrics.written, watches.may_fire
        on_data, on_children = watches.on_data, watches.on_children
        run = run_ms = answered_since_ms = 0
        answered: ServerConnection | None = None
        replies: list[bytes] = []
        for latency_ms, change, client, since_ms, opcode, reply in committed:
            if latency_ms != run_ms:
                self._measure(run_ms, run)
                run, run_ms = 0, latency_ms
            run += 1
            written(change)
            may_fire = False
            if on_data or on_children:
                may_fire = not change.path or concerned(change.path, change.parent_path)
            # What is not one more reply of the same kind comes behind those: it may
            # end the connection.
            if replies and (
                may_fire
                or (client is not None and (reply is None or client is not answered or since_ms != answered_since_ms))
            ):
                self._answer(answered, replies, answered_since_ms, now_ms)
                replies = []
            if may_fire:
                self._fire(change)
            if client is not None and reply is not None:
                answered, answered_since_ms = client, since_ms
                replies.append(reply)
                if auditor is not None:
                    auditor.answered(client, opcode, change)
                if client.is_held or (client.waiting and type(client.waiting[0]) is WaitingRead):
                    self._answer(client, replies, since_ms, now_ms)
                    replies = []
                    self._replies.read_on(client, now_ms)
            elif client is not None:
                self._answer_session(client, opcode, change, now_ms - since_ms, now_ms)
            if type(change) is SessionChange and change.type == OpCode.CLOSE_SESSION:
                if replies:
                    self._answer(answered, replies, answered_since_ms, now_ms)
                    replies = []
                self._end(change)
        self._measure(run_ms, run)
        if replies:
            self._answer(answered, replies, answered_since_ms, now_ms)

    def _measure(self, latency_ms: int, count: int) -> None:
        """Count transactions that took equally long from their decision to their commit."""
        if count:
            self._metrics.propagation_latency.add(latency_ms, count)
            if self._latency is not None:
                self._latency.add(latency_ms, count)

    def _fire(self, change: Change) -> None:
        """Send the events of a change to their watchers. All watches fire here."""
        sent, size_bytes = self._watches.fire(events_of(change))
        self._statistics.sent += sent
        self._metrics.event_bytes += size_bytes

    def _answer(self, client: ServerConnection | None, replies: list[bytes], since_ms: int, now_ms: int) -> None:
        assert client is not None
        answer_together(client, replies, since_ms, now_ms, self._statistics, self._metrics)

    def _answer_session(
        self, client: ServerConnection, opcode: int, change: Change, latency_ms: int, now_ms: int
    ) -> None:
        """A client's session exists; or the leader saw this connection before an older one:
        close it, and the client's next connection is accepted."""
        if change.type != OpCode.CREATE_SESSION:
            if self._auditor is not None:
                self._auditor.answered(client, opcode, change)
            client.transport.close()
            return
        self._metrics.update_latency.add(latency_ms)
        assert client.session is not None
        self._connections.established(client, client.session)
        self._replies.read_on(client, now_ms)

    def _end(self, change: SessionChange) -> None:
        """A session is over."""
        self._metrics.deleted(change.paths)
        if self._auditor is not None:
            self._auditor.session_closed(change.session_id, change.paths)
        self._connections.over(change.session_id)
