"""The committed state of a server: the tree, the sessions with their timeouts, the last zxid. In
ZooKeeper: ZKDatabase.

A zxid has 64 bits: the epoch of a leader above, a count below; a server alone stays in epoch 0.
Transactions are applied in the order of their zxids, live (prepared by `Staged`) or from the log.
"""

from collections import deque

from barnabas.base.errors import CorruptDataError
from barnabas.coordination.core.changes import Change, SessionChange, refused_change
from barnabas.coordination.core.operations import TRANSACTIONS
from barnabas.coordination.core.operations.base import PlainValues, Stamp, TransactionType
from barnabas.coordination.core.tree import Tree
from barnabas.coordination.core.znode import DIGEST_VERSION
from barnabas.wire.jute.errors import KeeperError
from barnabas.wire.jute.opcodes import OpCode
from barnabas.wire.jute.transactions import Transaction, TxnDigest, TxnHeader

__all__ = ["Database"]

_DIGESTS = 1024
_APPLY = {txn_type: found.apply for txn_type, found in TRANSACTIONS.items()}
_DIGEST_MASK = (1 << 64) - 1


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
        """From this zxid on, the digests of transactions must match; before it, a fuzzy snapshot
        may be ahead of them."""
        self.has_digest = True
        """Whether the state is known to be exact there: the state of a snapshot
        without a digest may be fuzzy."""
        self.named_digest: tuple[int, int] | None = None
        """The zxid and the digest that a fuzzy snapshot names: it gives this tree with the log
        up to there."""
        self.digest_mismatches = 0
        self.first_mismatch_zxid = 0
        """The zxid of the first of them."""
        self.digest_log: deque[tuple[int, int]] = deque(maxlen=_DIGESTS)
        """Zxids that are multiples of 128, with the tree's digest then: servers of an ensemble
        compare them."""

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

    def install(self, change: Change, zxid: int) -> None:
        """Apply the change of the next transaction."""
        apply = _APPLY[change.type]
        apply(self.tree, change)
        if type(change) is SessionChange:
            self._track_session(change)
        if zxid > self.last_zxid:
            self.last_zxid = zxid
        if not zxid & 127:
            self.log_digest()

    def _track_session(self, change: SessionChange) -> None:
        """Add or remove the session that a transaction begins or ends."""
        if change.type == OpCode.CREATE_SESSION:
            self.session_timeouts_ms[change.session_id] = change.timeout_ms
        else:
            self.session_timeouts_ms.pop(change.session_id, None)

    def apply(self, header: TxnHeader, txn: Transaction | None, digest: TxnDigest | None) -> Change:
        """Apply a transaction from the log, or one that a leader has committed."""
        found = TRANSACTIONS.get(header.type)
        if found is None:
            raise CorruptDataError(f"transaction 0x{header.zxid:x} has the unknown type {header.type}")
        stamp = Stamp(header.client_id, header.zxid, header.time_ms)
        named = digest.tree_digest if digest is not None and digest.version == DIGEST_VERSION else None
        return self.apply_values(found, stamp, found.values(txn), named)

    def apply_values(self, found: TransactionType, stamp: Stamp, values: PlainValues, digest: int | None) -> Change:
        """Apply the transaction that has these values.

        ``digest`` is the digest of the resulting tree, if the transaction names it."""
        tree, zxid, again = self.tree, stamp.zxid, found.replay
        try:
            change = again(tree, stamp, values)
        except KeeperError as error:
            # The snapshot was taken while the server went on and holds this
            # transaction's effect already.
            change = refused_change(error.code)
        self.install(change, zxid)
        if digest is not None and (digest - tree.digest_sum) & _DIGEST_MASK and zxid >= self.exact_from_zxid:
            self.count_mismatch(zxid)
        return change
