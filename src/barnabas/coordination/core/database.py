"""The committed state of a server: the tree, the sessions with their timeouts, the last zxid. In ZooKeeper: ZKDatabase.

A zxid has 64 bits: the epoch of a leader above, a count below; a server alone stays in epoch 0. Transactions are applied in the order of their zxids, live (prepared by `Staged`) or from the log.
"""

from collections import deque

from barnabas.base.errors import CorruptDataError
from barnabas.coordination.core.operations import APPLY
from barnabas.coordination.core.operations.base import Outcome, Stamp
from barnabas.coordination.core.tree import Events, Tree
from barnabas.coordination.core.znode import DIGEST_VERSION
from barnabas.wire.jute.errors import KeeperError
from barnabas.wire.jute.opcodes import OpCode
from barnabas.wire.jute.transactions import CreateSessionTxn, Transaction, TxnDigest, TxnHeader

__all__ = ["Database"]

_DIGESTS = 1024


class Database:
    """The committed state."""

    __slots__ = (
        "digest_log",
        "digest_mismatches",
        "exact_from_zxid",
        "first_mismatch_zxid",
        "has_digest",
        "last_zxid",
        "named_digest",
        "session_timeouts_ms",
        "tree",
    )

    def __init__(self) -> None:
        self.tree = Tree()
        self.session_timeouts_ms: dict[int, int] = {}
        self.last_zxid = 0
        self.exact_from_zxid = 0
        """From this zxid on, the digests of transactions must match; before it, a fuzzy snapshot may be ahead of them."""
        self.has_digest = True
        """Whether the state is known to be exact there: not that of a snapshot without a digest, which may be fuzzy."""
        self.named_digest: tuple[int, int] | None = None
        """The zxid and the digest that a fuzzy snapshot names: it gives this tree with the log up to there."""
        self.digest_mismatches = 0
        self.first_mismatch_zxid = 0
        """The zxid of the first of them."""
        self.digest_log: deque[tuple[int, int]] = deque(maxlen=_DIGESTS)
        """Zxids that are multiples of 128, with the tree's digest then: servers of an ensemble compare them."""

    def log_digest(self) -> None:
        """Keep the present digest; to be called after every 128th transaction."""
        self.digest_log.append((self.last_zxid, self.tree.digest))

    def count_mismatch(self, zxid: int) -> None:
        """The tree has another digest than the transaction."""
        self.first_mismatch_zxid = self.first_mismatch_zxid or zxid
        self.digest_mismatches += 1

    def forget_mismatches(self) -> None:
        """They do not count."""
        self.digest_mismatches = self.first_mismatch_zxid = 0

    def track_session(self, header_type: int, session_id: int, txn: Transaction | None) -> None:
        """Add or remove the session that a transaction creates or closes."""
        if header_type == OpCode.CREATE_SESSION:
            assert isinstance(txn, CreateSessionTxn)
            self.session_timeouts_ms[session_id] = txn.timeout_ms
        elif header_type == OpCode.CLOSE_SESSION:
            self.session_timeouts_ms.pop(session_id, None)

    def replay(self, header: TxnHeader, txn: Transaction | None, digest: TxnDigest | None) -> Events:
        """Apply a transaction from the log; the events for watches."""
        return self.apply(header, txn, digest)[1]

    def apply(self, header: TxnHeader, txn: Transaction | None, digest: TxnDigest | None) -> tuple[Outcome, Events]:
        """Apply a transaction from the log, or one that a leader has committed."""
        apply = APPLY.get(header.type)
        if apply is None:
            raise CorruptDataError(f"transaction 0x{header.zxid:x} has the unknown type {header.type}")
        events: Events = []
        try:
            outcome = apply(self.tree, Stamp(header.client_id, header.zxid, header.time_ms), txn, events)
        except KeeperError as error:
            # The snapshot was taken while the server went on and holds this transaction's effect already.
            events.clear()
            outcome = Outcome(OpCode.ERROR, err=error.code)
        self.track_session(header.type, header.client_id, txn)
        self.last_zxid = max(self.last_zxid, header.zxid)
        if not header.zxid & 127:
            self.log_digest()
        if (
            digest is not None
            and digest.version == DIGEST_VERSION
            and header.zxid >= self.exact_from_zxid
            and digest.tree_digest != self.tree.digest
        ):
            self.count_mismatch(header.zxid)
        return outcome, events
