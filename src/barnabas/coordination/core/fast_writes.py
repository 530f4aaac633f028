"""The fast path of the common writes: create, create2, setData and delete of persistent nodes that are open to all.

The general path (`Processor` and the operations) can decide every write. It makes a request, a transaction, an outcome, events
and a list of changes of each. Here there is nothing between the bytes of the request and those of the transaction, which are the
same but for their ends:

    create     path  data  ACLs  Int mode             ->   path  data  ACLs  bool ephemeral  Int cversion of the parent
    setData    path  data  Int expected version       ->   path  data  Int version
    delete     path  Int expected version             ->   path

Invariants:

- Only what succeeds is decided here. Whatever is refused, or is not usual (another mode, a protected node, a path that needs a
  closer look, a node below ``/zookeeper``) is left as it was to the general path, which knows the reason and the error.
- The bytes in the log, the answers, the tree, the events and the figures are those of the general path. A test compares them.
- The reply is complete with the decision, because the staged tree says all that it shows. It leaves after the commit.

Writes of the same client that are committed together are answered in one piece, and counted together.

In ZooKeeper: `PrepRequestProcessor.pRequest2Txn` and `FinalRequestProcessor.processRequest`, for these cases.
"""

import struct
from collections import deque
from collections.abc import Callable

from barnabas.coordination.core.answers import answer_together, events_of, stat_fields
from barnabas.coordination.core.connections import FastProposal, FastWrite, Proposal, ServerConnection, WaitingRead
from barnabas.coordination.core.database import Database
from barnabas.coordination.core.request_metrics import RequestMetrics
from barnabas.coordination.core.statistics import Distribution, Statistics
from barnabas.coordination.core.tree import Events, Staged, StagedNode
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

__all__ = ["FastWrites"]

_OPEN_AND_PERSISTENT = OPEN_ACL_BYTES + JUTE_INT.pack(0)
"""The end of a usual creation: the ACL that is open to all, and the mode."""
_NO_NAMES = ("", ".", "..")
_SYSTEM = "/zookeeper"
_MAX_VERSION = 0x7FFFFFFF


class FastWrites:
    """See the module. It shares the state of its processor."""

    __slots__ = (
        "_database",
        "_deciders",
        "_fire",
        "_latency",
        "_metrics",
        "_read_on",
        "_staged",
        "_statistics",
        "_watches",
    )

    def __init__(
        self,
        database: Database,
        staged: Staged,
        watches: Watches[ServerConnection],
        statistics: Statistics,
        metrics: RequestMetrics,
        latency: Distribution | None,
        fire: Callable[[Events], None],
        read_on: Callable[[ServerConnection, int], None],
    ) -> None:
        """``fire`` sends events to watchers; ``read_on`` answers a client's reads that have waited for a write."""
        self._database = database
        self._staged = staged
        self._watches = watches
        self._statistics = statistics
        self._metrics = metrics
        self._latency = latency
        self._fire = fire
        self._read_on = read_on
        self._deciders: dict[int, Callable[[bytes, int, int, int, int, int, int], FastWrite | None]] = {
            OpCode.CREATE: self._create,
            OpCode.CREATE2: self._create,
            OpCode.SET_DATA: self._set_data,
            OpCode.DELETE: self._delete,
        }

    def decide(self, frame: bytes, session_id: int, zxid: int, wall_ms: int, offset: int = 0) -> FastWrite | None:
        """Decide a client's request, which begins at ``offset``, and stage what it changes; None, and nothing, if that is left to
        the general path."""
        start = offset + REQUEST_HEADER.size
        if len(frame) < start:
            return None
        xid, opcode = REQUEST_HEADER.unpack_from(frame, offset)
        decider = self._deciders.get(opcode)
        if decider is None:
            return None
        try:
            return decider(frame, start, opcode, session_id, xid, zxid, wall_ms)
        except (struct.error, UnicodeDecodeError):
            return None

    def _get(self, path: str) -> DataNode | None:
        """The node as it will be when all that is decided is committed."""
        staged = self._staged.nodes.get(path)
        return staged[0] if staged is not None else self._database.tree.nodes.get(path)

    def _create(
        self, request: bytes, offset: int, opcode: int, session_id: int, xid: int, zxid: int, wall_ms: int
    ) -> FastWrite | None:
        if not request.endswith(_OPEN_AND_PERSISTENT):
            return None
        (path_bytes,) = JUTE_INT.unpack_from(request, offset)
        path_end = offset + 4 + path_bytes
        if path_bytes < 1 or path_end > len(request):
            return None
        (data_bytes,) = JUTE_INT.unpack_from(request, path_end)
        if data_bytes < 0 or path_end + 4 + data_bytes + len(_OPEN_AND_PERSISTENT) != len(request):
            return None
        path = request[offset + 4 : path_end].decode()
        slash = path.rfind("/")
        name = path[slash + 1 :]
        parent_path = path[:slash] or "/"
        # A parent that is there has a valid path, but "/" has none in front of the slash.
        if slash < 0 or slash == 1 or not name.isascii() or not name.isprintable() or name in _NO_NAMES:
            return None
        parent = self._get(parent_path)
        if parent is None or parent.acl is not OPEN_ACL or parent.owner or path.startswith(_SYSTEM):
            return None
        if parent.cversion == _MAX_VERSION:
            return None
        if self._get(path) is not None:
            return None
        cversion = parent.cversion + 1
        node = DataNode.new(path, request[path_end + 4 : path_end + 4 + data_bytes], OPEN_ACL, 0, zxid, wall_ms)
        parent_after = parent.with_children(parent_path, cversion, zxid, parent.num_children + 1)
        digest = self._staged.digest_sum + node.digest + parent_after.digest - parent.digest
        transaction = b"".join(
            (
                TXN_HEADER.pack(session_id, xid, zxid, wall_ms, opcode),
                request[offset:-4],
                CREATE_END.pack(False, cversion, DIGEST_VERSION, digest),
            )
        )
        if opcode == OpCode.CREATE:
            reply = LENGTH_AND_REPLY.pack(REPLY_BYTES + 4 + path_bytes, xid, zxid, 0) + request[offset:path_end]
        else:
            size_bytes = REPLY_BYTES + 4 + path_bytes + STAT.size
            reply = (
                LENGTH_AND_REPLY.pack(size_bytes, xid, zxid, 0)
                + request[offset:path_end]
                + STAT.pack(*stat_fields(node))
            )
        return self._stage(transaction, digest, zxid, reply, path, node, parent_path, parent_after)

    def _set_data(
        self, request: bytes, offset: int, opcode: int, session_id: int, xid: int, zxid: int, wall_ms: int
    ) -> FastWrite | None:
        (path_bytes,) = JUTE_INT.unpack_from(request, offset)
        path_end = offset + 4 + path_bytes
        if path_bytes < 1 or path_end > len(request):
            return None
        (data_bytes,) = JUTE_INT.unpack_from(request, path_end)
        data_end = path_end + 4 + data_bytes
        if data_bytes < 0 or data_end + 4 != len(request):
            return None
        path = request[offset + 4 : path_end].decode()
        before = self._get(path)
        if before is None or before.acl is not OPEN_ACL or path.startswith(_SYSTEM):
            return None
        (expected,) = JUTE_INT.unpack_from(request, data_end)
        version = before.version
        if expected not in (-1, version) or version == _MAX_VERSION:
            return None
        version += 1
        node = before.with_data(path, request[path_end + 4 : data_end], version, zxid, wall_ms)
        digest = self._staged.digest_sum + node.digest - before.digest
        transaction = b"".join(
            (
                TXN_HEADER.pack(session_id, xid, zxid, wall_ms, opcode),
                request[offset:data_end],
                SET_DATA_END.pack(version, DIGEST_VERSION, digest),
            )
        )
        reply = LENGTH_REPLY_AND_STAT.pack(REPLY_BYTES + STAT.size, xid, zxid, 0, *stat_fields(node))
        return self._stage(transaction, digest, zxid, reply, path, node)

    def _delete(
        self, request: bytes, offset: int, opcode: int, session_id: int, xid: int, zxid: int, wall_ms: int
    ) -> FastWrite | None:
        (path_bytes,) = JUTE_INT.unpack_from(request, offset)
        path_end = offset + 4 + path_bytes
        if path_bytes < 2 or path_end + 4 != len(request):
            return None
        path = request[offset + 4 : path_end].decode()
        parent_path = path[: path.rfind("/")] or "/"
        parent = self._get(parent_path)
        node = self._get(path)
        if parent is None or node is None or parent.acl is not OPEN_ACL or node.acl is not OPEN_ACL:
            return None
        (expected,) = JUTE_INT.unpack_from(request, path_end)
        if expected not in (-1, node.version) or node.num_children or path.startswith(_SYSTEM):
            return None
        parent_after = parent.with_children(parent_path, parent.cversion, zxid, parent.num_children - 1)
        digest = self._staged.digest_sum + parent_after.digest - parent.digest - node.digest
        transaction = b"".join(
            (
                TXN_HEADER.pack(session_id, xid, zxid, wall_ms, opcode),
                request[offset:path_end],
                DIGEST.pack(DIGEST_VERSION, digest),
            )
        )
        reply = LENGTH_AND_REPLY.pack(REPLY_BYTES, xid, zxid, 0)
        return self._stage(transaction, digest, zxid, reply, path, None, parent_path, parent_after)

    def _stage(
        self,
        transaction: bytes,
        digest: int,
        zxid: int,
        reply: bytes,
        path: str,
        node: DataNode | None,
        parent_path: str = "",
        parent: DataNode | None = None,
    ) -> FastWrite:
        staged, staged_parent = self._staged.stage(digest, zxid, path, node, parent_path, parent)
        return transaction, zxid, reply, path, staged, parent_path, staged_parent

    # The commit

    def commit(self, proposals: deque[Proposal | FastProposal], count: int, now_ms: int) -> int:
        """Apply and answer the fast ones among the next ``count`` proposals, up to one that is not; how many these are."""
        database, metrics, watches = self._database, self._metrics, self._watches
        done = run = 0
        run_since_ms = replied_since_ms = now_ms
        answered: ServerConnection | None = None
        replies: list[bytes] = []
        while done < count and type(proposal := proposals[0]) is tuple:
            proposals.popleft()
            done += 1
            client, since_ms, (_, zxid, reply, path, staged, parent_path, staged_parent) = proposal
            size_bytes = self._apply(path, staged, parent_path, staged_parent)
            database.last_zxid = zxid
            if not zxid & 127:
                database.log_digest()
            metrics.wrote(path, size_bytes)
            if since_ms != run_since_ms:
                self._measure(now_ms - run_since_ms, run)
                run, run_since_ms = 0, since_ms
            run += 1
            may_fire = watches.may_fire(path, parent_path)
            if replies and (
                may_fire or (client is not None and (client is not answered or since_ms != replied_since_ms))
            ):
                assert answered is not None
                answer_together(answered, replies, replied_since_ms, now_ms, self._statistics, metrics)
                replies = []
            if may_fire:
                self._fire(events_of(path, staged[0], parent_path))
            if client is None or client.is_closed:
                continue
            waiting = client.waiting
            waiting.popleft()
            answered, replied_since_ms = client, since_ms
            replies.append(reply)
            if client.is_held or (waiting and isinstance(waiting[0], WaitingRead)):
                answer_together(client, replies, since_ms, now_ms, self._statistics, metrics)
                replies = []
                self._read_on(client, now_ms)
        self._measure(now_ms - run_since_ms, run)
        if answered is not None and replies:
            answer_together(answered, replies, replied_since_ms, now_ms, self._statistics, metrics)
        return done

    def _apply(self, path: str, staged: StagedNode, parent_path: str, staged_parent: StagedNode | None) -> int:
        """Move a staged change to the tree; the bytes that were written."""
        tree, node = self._database.tree, staged[0]
        self._staged.settle(path, staged)
        if staged_parent is None:
            assert node is not None
            tree.put_data(path, node, tree.nodes[path])
            return len(path) + len(node.data or b"")
        parent = staged_parent[0]
        assert parent is not None
        self._staged.settle(parent_path, staged_parent)
        if node is not None:
            tree.put_child(path, node, parent_path, parent)
            return len(path) + len(node.data or b"")
        tree.put(parent_path, parent)
        tree.remove(path)
        return len(path)

    def _measure(self, latency_ms: int, count: int) -> None:
        """Count writes that took equally long from their decision to their commit."""
        if count:
            self._metrics.propagation_latency.add(latency_ms, count)
            if self._latency is not None:
                self._latency.add(latency_ms, count)
