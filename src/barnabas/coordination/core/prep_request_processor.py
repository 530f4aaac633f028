"""Decides writes, in order: what each changes, its transaction for the log, and its answer, which
leaves after the commit.

It does not matter here how a request was read: from its bytes (`usual_bytes`) or from its record;
both give equal values. The operation decides on what is staged, or refuses; the change is staged;
the transaction and the answer are made from the change.

In ZooKeeper: PrepRequestProcessor.
"""

from collections import deque
from collections.abc import Sequence

from barnabas.coordination.core.answers import encode_answer
from barnabas.coordination.core.changes import refused_change
from barnabas.coordination.core.connections import Limits, Proposal, ServerConnection
from barnabas.coordination.core.database import Database
from barnabas.coordination.core.operations import TRANSACTIONS
from barnabas.coordination.core.operations.base import ReadRequest, Staging, Stamp
from barnabas.coordination.core.request_metrics import RequestMetrics
from barnabas.coordination.core.staged import Staged
from barnabas.coordination.core.znode import DIGEST_VERSION
from barnabas.wire.jute.errors import KeeperError
from barnabas.wire.jute.layouts import TXN_HEADER, UNSIGNED_DIGEST
from barnabas.wire.jute.opcodes import OpCode
from barnabas.wire.jute.records import Id

__all__ = ["CHANGES_AT_ONCE", "PrepRequestProcessor"]

CHANGES_AT_ONCE = 500
"""The changes that are decided before others have their turn: some milliseconds of work."""
_DIGEST_MASK = (1 << 64) - 1
_CREATE_SESSION = int(OpCode.CREATE_SESSION)
_ENCODE = {txn_type: found.encode for txn_type, found in TRANSACTIONS.items()}


class PrepRequestProcessor:
    """See the module."""

    def __init__(self, database: Database, limits: Limits, proposals: deque[Proposal], metrics: RequestMetrics) -> None:
        """``proposals`` get what is decided, until it is committed."""
        self.staged = Staged(database.tree)
        self.unlogged: list[bytes | bytearray] = []
        """Transactions for the log, in order, that the edge has not taken yet."""
        self.last_zxid = database.last_zxid
        limited_tree = database.tree if limits.enforce_quota else None
        schemes = limits.access.schemes
        self._staging = Staging(self.staged, Stamp(0, 0, 0), [], limits.ttl_nodes, schemes, limited_tree)
        self._proposals = proposals
        self._metrics = metrics

    def staging(self, session_id: int, ids: list[Id], wall_ms: int) -> Staging:
        """What requests of a session are decided on, that came together.

        Valid until the next call."""
        staging = self._staging
        staging.ids = ids
        staging.stamp.session_id = session_id
        staging.stamp.time_ms = wall_ms
        return staging

    def propose(
        self, staging: Staging, client: ServerConnection | None, requests: Sequence[ReadRequest], now_ms: int
    ) -> int:
        """Decide writes of a session, which stand in their order; how many. After many changes
        the rest is left, for others to have their turn."""
        staged, stamp, metrics = self.staged, staging.stamp, self._metrics
        log, propose = self.unlogged.append, self._proposals.append
        wait = client.waiting.append if client is not None else None
        session_id, time_ms, zxid = stamp.session_id, stamp.time_ms, self.last_zxid
        enough = metrics.changes + CHANGES_AT_ONCE
        done = 0
        for xid, opcode, decide, answer, values in requests:
            if metrics.changes > enough:
                break
            done += 1
            zxid += 1
            stamp.zxid = zxid
            try:
                change = decide(staging, values)
            except KeeperError as error:
                change = refused_change(error.code)
            txn_type = change.type
            encode = _ENCODE[txn_type]
            transaction = encode(
                change,
                TXN_HEADER.pack(session_id, xid, zxid, time_ms, txn_type),
                UNSIGNED_DIGEST.pack(DIGEST_VERSION, staged.digest_sum + change.digest & _DIGEST_MASK),
            )
            reply = None
            if wait is not None and txn_type != _CREATE_SESSION:
                reply = encode_answer(xid, zxid, answer, change)
            # Only now, because a defect may raise: nothing of it may stay, nor a hole in the zxids.
            staged.add(change)
            self.last_zxid = zxid
            log(transaction)
            proposal = client, now_ms, zxid, opcode, change, reply, transaction
            propose(proposal)
            metrics.changes += change.count
            if wait is not None:
                wait(proposal)
        return done
