"""The fast path of the common transactions on a learner: what a leader has decided by `FastWrites`, or as it would.

The general path decodes a transaction into objects and applies it with the operations (`Database.apply`). Here create, create2,
setData and delete of persistent nodes that are open to all go from their bytes to the tree, and to the answer if a client of this
server has asked for it:

    TxnHeader  path  data  ACLs  bool ephemeral  Int cversion of the parent  TxnDigest       create
    TxnHeader  path  data  Int version                                       TxnDigest       setData
    TxnHeader  path                                                          TxnDigest       delete

Invariants:

- Whatever is not exactly this, or does not fit the tree (as behind a fuzzy snapshot), is left as it was to the general path.
- The tree, the answers, the events and the figures are those of the general path. A test compares them.

Transactions that are committed together are counted together, and those of the same client are answered in one piece.

In ZooKeeper: `DataTree.processTxn` and `FinalRequestProcessor.processRequest`, for these cases.
"""

import struct
from collections.abc import Callable, Sequence
from itertools import islice

from barnabas.coordination.core.answers import answer_together, events_of, stat_fields
from barnabas.coordination.core.connections import (
    ForwardedWrite,
    Forwarder,
    ServerConnection,
    WaitingRead,
    WaitingRequests,
)
from barnabas.coordination.core.database import Database
from barnabas.coordination.core.forwarded_requests import usual_writes
from barnabas.coordination.core.request_metrics import RequestMetrics
from barnabas.coordination.core.sessions import Session
from barnabas.coordination.core.statistics import Distribution, Statistics
from barnabas.coordination.core.tree import Events
from barnabas.coordination.core.watches import Watches
from barnabas.coordination.core.znode import DIGEST_VERSION, DataNode
from barnabas.wire.jute.layouts import (
    CREATE_END,
    DIGEST,
    JUTE_INT,
    LENGTH_AND_REPLY,
    LENGTH_REPLY_AND_STAT,
    OPEN_ACL_BYTES,
    REPLY_BYTES,
    REQUEST_HEADER,
    SET_DATA_END,
    STAT,
    TXN_HEADER,
)
from barnabas.wire.jute.opcodes import OpCode
from barnabas.wire.jute.records import OPEN_ACL

__all__ = ["FastLearner", "apply_fast"]

_PATH_OFFSET = TXN_HEADER.size + 4
_AFTER_DATA_BYTES = len(OPEN_ACL_BYTES) + CREATE_END.size
_SYSTEM = "/zookeeper"
_DIGEST_MASK = (1 << 64) - 1
_SET_REPLY_BYTES = REPLY_BYTES + STAT.size
_CREATE, _CREATE2, _SET_DATA, _DELETE = map(int, (OpCode.CREATE, OpCode.CREATE2, OpCode.SET_DATA, OpCode.DELETE))

_Applied = tuple[str, DataNode | None, str, int, bytes]
"""Path, node, the parent's path or nothing, the digest that the tree has in the transaction, and the reply."""


class FastLearner:
    """See the module. It shares the state of its processor."""

    __slots__ = (
        "_database",
        "_fire",
        "_forwarder",
        "_latency",
        "_metrics",
        "_read_on",
        "_sessions",
        "_statistics",
        "_waiting",
        "_watches",
    )

    def __init__(
        self,
        database: Database,
        sessions: dict[int, Session],
        watches: Watches[ServerConnection],
        statistics: Statistics,
        metrics: RequestMetrics,
        latency: Distribution | None,
        forwarder: Forwarder,
        waiting: WaitingRequests,
        fire: Callable[[Events], None],
        read_on: Callable[[ServerConnection, int], None],
    ) -> None:
        """``latency`` gets the times from decisions to commits; ``fire`` sends events to watchers; ``read_on`` answers a client's
        reads that have waited for a write."""
        self._database = database
        self._sessions = sessions
        self._watches = watches
        self._statistics = statistics
        self._metrics = metrics
        self._latency = latency
        self._fire = fire
        self._forwarder = forwarder
        self._waiting = waiting
        self._read_on = read_on

    def forward(
        self, client: ServerConnection, session_id: int, frames: Sequence[bytes], start: int, most: int, now_ms: int
    ) -> int:
        """Forward the writes at the head of the frames from ``start`` on, at most so many; how many these are."""
        writes = usual_writes(frames, start, most)
        if writes:
            count = len(writes)
            self._forwarder.forward_frames(session_id, writes, client.ids)
            headers = map(REQUEST_HEADER.unpack_from, writes)
            client.waiting.extend([ForwardedWrite(xid, opcode, now_ms) for xid, opcode in headers])
            self._waiting.count += count
            client.count_received(writes[-1], count)
            self._statistics.received += count
            self._metrics.received_bytes += sum(map(len, writes)) + 4 * count
        return len(writes)

    def apply(self, payloads: Sequence[bytes], start: int, now_ms: int, wall_ms: int) -> int:
        """Apply and answer committed transactions from ``start`` on, up to one for the general path; how many these are.

        ``wall_ms`` is the time of day when they came.
        """
        database, metrics, watches, sessions = self._database, self._metrics, self._watches, self._sessions
        done = run = 0
        run_time_ms = answered_since_ms = 0
        session_id: int | None = None
        client: ServerConnection | None = None
        answered: ServerConnection | None = None
        replies: list[bytes] = []
        for payload in islice(payloads, start, None):
            header = owner_id, xid, _, time_ms, opcode = TXN_HEADER.unpack_from(payload)
            if owner_id != session_id:
                session_id, session = owner_id, sessions.get(owner_id)
                owner = session.owner if session is not None else None
                client = owner if isinstance(owner, ServerConnection) else None
            request = client.waiting[0] if client is not None and client.waiting else None
            if type(request) is not ForwardedWrite or request.xid != xid or request.opcode == OpCode.SYNC:
                request = None
            elif request.opcode != opcode:
                break
            if (applied := apply_fast(database, payload, header)) is None:
                break
            done += 1
            path, node, parent_path, reply = applied
            if time_ms != run_time_ms:
                self._measure(wall_ms - run_time_ms, run)
                run, run_time_ms = 0, time_ms
            run += 1
            metrics.wrote(path, len(path) + len(node.data or b"") if node is not None else len(path))
            may_fire = watches.may_fire(path, parent_path)
            is_next = request is None or (client is answered and request.since_ms == answered_since_ms)
            if replies and (may_fire or not is_next):
                self._answer(answered, replies, answered_since_ms, now_ms)
                replies = []
            if may_fire:
                self._fire(events_of(path, node, parent_path))
            if client is None or request is None:
                continue
            waiting = client.waiting
            waiting.popleft()
            answered, answered_since_ms = client, request.since_ms
            replies.append(reply)
            if client.is_held or (waiting and isinstance(waiting[0], WaitingRead)):
                self._answer(client, replies, answered_since_ms, now_ms)
                replies = []
                self._read_on(client, now_ms)
        self._measure(wall_ms - run_time_ms, run)
        if replies:
            self._answer(answered, replies, answered_since_ms, now_ms)
        return done

    def _measure(self, latency_ms: int, count: int) -> None:
        """Count transactions that were decided in the same millisecond."""
        if count:
            self._metrics.propagation_latency.add(latency_ms, count)
            if self._latency is not None:
                self._latency.add(latency_ms, count)

    def _answer(self, client: ServerConnection | None, replies: list[bytes], since_ms: int, now_ms: int) -> None:
        assert client is not None
        self._waiting.count -= len(replies)
        answer_together(client, replies, since_ms, now_ms, self._statistics, self._metrics)


def apply_fast(
    database: Database, payload: bytes, header: tuple[int, int, int, int, int]
) -> tuple[str, DataNode | None, str, bytes] | None:
    """Apply a committed transaction with this header; None, and nothing changed, if it is one for `Database.apply`.

    What is returned: the path, the node, the path of the parent of one that was created or deleted (else empty), and the reply
    to the request that has this transaction.
    """
    _, xid, zxid, time_ms, opcode = header
    try:
        if opcode == _SET_DATA:
            found = _set_data(database, payload, xid, zxid, time_ms)
        elif opcode in (_CREATE, _CREATE2):
            found = _create(database, payload, opcode, xid, zxid, time_ms)
        elif opcode == _DELETE:
            found = _delete(database, payload, xid, zxid)
        else:
            return None
    except (struct.error, UnicodeDecodeError):
        return None
    if found is None:
        return None
    path, node, parent_path, digest, reply = found
    if zxid > database.last_zxid:
        database.last_zxid = zxid
    if not zxid & 127:
        database.log_digest()
    if (digest - database.tree.digest_sum) & _DIGEST_MASK and zxid >= database.exact_from_zxid:
        database.count_mismatch(zxid)
    return path, node, parent_path, reply


def _create(database: Database, payload: bytes, opcode: int, xid: int, zxid: int, time_ms: int) -> _Applied | None:
    (path_bytes,) = JUTE_INT.unpack_from(payload, TXN_HEADER.size)
    path_end = _PATH_OFFSET + path_bytes
    if path_bytes < 2 or path_end > len(payload):
        return None
    (data_bytes,) = JUTE_INT.unpack_from(payload, path_end)
    data_end = path_end + 4 + data_bytes
    if (
        data_bytes < 0
        or data_end + _AFTER_DATA_BYTES != len(payload)
        or not payload.startswith(OPEN_ACL_BYTES, data_end)
    ):
        return None
    path = payload[_PATH_OFFSET:path_end].decode()
    is_ephemeral, cversion, version, digest = CREATE_END.unpack_from(payload, data_end + len(OPEN_ACL_BYTES))
    tree = database.tree
    parent_path = path[: path.rfind("/")] or "/"
    parent = tree.nodes.get(parent_path)
    if parent is None or parent.acl is not OPEN_ACL or path in tree.nodes or version != DIGEST_VERSION:
        return None
    if path[0] != "/" or "\0" in path or path.startswith(_SYSTEM) or is_ephemeral or cversion <= parent.cversion:
        return None
    node = DataNode.new(path, payload[path_end + 4 : data_end], OPEN_ACL, 0, zxid, time_ms)
    if opcode == _CREATE:
        reply = LENGTH_AND_REPLY.pack(REPLY_BYTES + 4 + path_bytes, xid, zxid, 0) + payload[TXN_HEADER.size : path_end]
    else:
        head = LENGTH_AND_REPLY.pack(_SET_REPLY_BYTES + 4 + path_bytes, xid, zxid, 0)
        reply = b"".join((head, payload[TXN_HEADER.size : path_end], STAT.pack(*stat_fields(node))))
    parent_after = parent.with_children(parent_path, cversion, zxid, parent.num_children + 1)
    tree.put_child(path, node, parent_path, parent_after)
    return path, node, parent_path, digest, reply


def _set_data(database: Database, payload: bytes, xid: int, zxid: int, time_ms: int) -> _Applied | None:
    (path_bytes,) = JUTE_INT.unpack_from(payload, TXN_HEADER.size)
    path_end = _PATH_OFFSET + path_bytes
    if path_bytes < 2 or path_end > len(payload):
        return None
    (data_bytes,) = JUTE_INT.unpack_from(payload, path_end)
    data_end = path_end + 4 + data_bytes
    if data_bytes < 0 or data_end + SET_DATA_END.size != len(payload):
        return None
    path = payload[_PATH_OFFSET:path_end].decode()
    version, digest_version, digest = SET_DATA_END.unpack_from(payload, data_end)
    before = database.tree.nodes.get(path)
    if before is None or before.acl is not OPEN_ACL or digest_version != DIGEST_VERSION or path.startswith(_SYSTEM):
        return None
    node = before.with_data(path, payload[path_end + 4 : data_end], version, zxid, time_ms)
    reply = LENGTH_REPLY_AND_STAT.pack(_SET_REPLY_BYTES, xid, zxid, 0, *stat_fields(node))
    database.tree.put_data(path, node, before)
    return path, node, "", digest, reply


def _delete(database: Database, payload: bytes, xid: int, zxid: int) -> _Applied | None:
    (path_bytes,) = JUTE_INT.unpack_from(payload, TXN_HEADER.size)
    path_end = _PATH_OFFSET + path_bytes
    if path_bytes < 2 or path_end + DIGEST.size != len(payload):
        return None
    path = payload[_PATH_OFFSET:path_end].decode()
    version, digest = DIGEST.unpack_from(payload, path_end)
    tree = database.tree
    parent_path = path[: path.rfind("/")] or "/"
    parent, node = tree.nodes.get(parent_path), tree.nodes.get(path)
    if parent is None or node is None or parent.acl is not OPEN_ACL or node.acl is not OPEN_ACL:
        return None
    if version != DIGEST_VERSION or zxid <= parent.pzxid or path.startswith(_SYSTEM):
        return None
    tree.put(parent_path, parent.with_children(parent_path, parent.cversion, zxid, parent.num_children - 1))
    tree.remove(path)
    return path, None, parent_path, digest, LENGTH_AND_REPLY.pack(REPLY_BYTES, xid, zxid, 0)
