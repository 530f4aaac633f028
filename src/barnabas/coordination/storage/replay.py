"""The transaction logs applied to a snapshot's state at the start, and the proofs that
none of them is missing.

A server's log is a chain of files. Its end may be torn, for a crash leaves it so; nothing else may
be missing, at the beginning, between two files, or in one:

- Zxids follow each other: the next one of the epoch, or the first one of a later epoch. So a gap
  is found within an epoch.
- A file begins with the transaction that it is named for.
- Each transaction names the digest of the tree with it (since ZooKeeper 3.6). A tree that lacks a
  transaction of an earlier epoch has another one.
- The log of a server alone reaches its newest snapshot, since each transaction is logged
  before it is in one. In an ensemble a snapshot may be the leader's, which says nothing about
  the log before it.
- A snapshot that cannot be read still says how far the state went.

A file that is not the last may end torn, too: Apache's servers leave a torn end where it is, and
begin a new file. What follows it must follow its last whole transaction. So ends are repaired when
the whole log has shown that nothing is missing.

A snapshot of Apache's may hold changes behind its zxid, up to the zxid of its digest. Digests
count from there on. One without a digest does not say how far it goes: then they count from the
first one that is right.

In ZooKeeper: FileTxnSnapLog.fastForwardFromEdits, which looks at none of this, and
DataTree.compareDigest, which writes an error.
"""

import logging
import posixpath
from collections.abc import Callable, Sequence

from barnabas.base.errors import CorruptDataError
from barnabas.base.files import Files
from barnabas.coordination.core.database import Database
from barnabas.coordination.core.znode import DIGEST_VERSION
from barnabas.coordination.storage.log_history import follows
from barnabas.coordination.storage.transaction_log import LogReader
from barnabas.wire.jute.codec import MalformedRecordError
from barnabas.wire.jute.transactions import TxnDigest, decode_transaction

__all__ = ["REMEDY", "Replay"]

logger = logging.getLogger(__name__)
REMEDY = (
    "Restore the files from a backup; or, in an ensemble, move this server's data directory away and let it copy the "
    "state from the other servers"
)
_HEADER_BYTES = 16
_CHUNK_BYTES = 1 << 20
_EPOCH_BITS = 32


class Replay:
    """Applies the files of a log, in order."""

    def __init__(
        self,
        files: Files,
        directory: str,
        database: Database,
        on_replayed: Callable[[int, bytes], None] | None,
        *,
        has_snapshot: bool,
    ) -> None:
        """``database`` is a snapshot's state, or empty without one.

        ``on_replayed`` is as for `Storage.load`."""
        self._files = files
        self._directory = directory
        self._database = database
        self._on_replayed = on_replayed
        self._has_snapshot = has_snapshot
        self._snapshot_zxid = database.last_zxid
        self._is_exact = database.has_digest
        self._repairs: list[Callable[[], None]] = []
        self.last_logged: int | None = None
        """The zxid of the last transaction in the log."""
        self.replayed = 0
        """How many transactions were applied: those behind the snapshot."""

    def run(self, logs: Sequence[tuple[int, str]]) -> None:
        """Replay files, given with their first zxids; `repair` comes next.

        Raises `CorruptDataError`."""
        for first, name in logs:
            self._replay_file(first, posixpath.join(self._directory, name))

    def _replay_file(self, first: int, path: str) -> None:
        if self._files.size(path) < _HEADER_BYTES or self._is_blank(path):
            self._check_follows(first, path)
            self._repairs.append(lambda: self._remove_blank(path, first))
            return
        logger.info("Replaying %s", path)
        reader = LogReader(self._files, path)
        is_first = True
        for position, payload in reader.entries():
            try:
                header, txn, digest = decode_transaction(payload)
            except MalformedRecordError as error:
                raise CorruptDataError(
                    f"{path} holds a transaction that cannot be read, after 0x{self._last:x}, at byte {position}: {error}. {REMEDY}"
                ) from None
            if is_first and header.zxid != first:
                raise CorruptDataError(
                    f"{path} begins with the transaction 0x{header.zxid:x}, not with the one that it is named for: its "
                    f"content is another file's. {REMEDY}"
                )
            self._check_follows(header.zxid, path, digest)
            is_first = False
            self.last_logged = header.zxid
            if header.zxid > self._database.last_zxid:
                self._database.apply(header, txn, digest)
                self._check_digest(header.zxid, digest, path, position)
                self.replayed += 1
                if self._on_replayed is not None:
                    self._on_replayed(header.zxid, payload)
        self._repairs.append(reader.repair)

    @property
    def _last(self) -> int:
        """The zxid up to which nothing is missing."""
        return max(self.last_logged or 0, self._database.last_zxid)

    def _check_follows(self, zxid: int, path: str, digest: TxnDigest | None = None) -> None:
        last = self._last
        if zxid <= last or follows(zxid, last):
            if last or self._has_snapshot or digest is not None or zxid >> _EPOCH_BITS <= 1:
                return
            raise CorruptDataError(
                f"there is no snapshot, and the log begins with 0x{zxid:x} in {path}: an ensemble's first epoch is 1. {REMEDY}"
            )
        start = last + 1 if zxid >> _EPOCH_BITS == last >> _EPOCH_BITS else zxid >> _EPOCH_BITS << _EPOCH_BITS | 1
        raise CorruptDataError(
            f"transactions 0x{start:x} to 0x{zxid - 1:x} are missing before {path}: a log file was removed or cut, or the "
            f"snapshot that holds them. {REMEDY}"
        )

    def _check_digest(self, zxid: int, digest: TxnDigest | None, path: str, position: int) -> None:
        database = self._database
        named = database.named_digest
        if named is not None and zxid == named[0] and database.tree.digest != named[1]:
            raise CorruptDataError(
                f"the snapshot 0x{self._snapshot_zxid:x}, with the log up to 0x{zxid:x} ({path}, byte {position}), gives another "
                f"tree than the one whose digest it names. {REMEDY}"
            )
        if database.digest_mismatches:
            if self._is_exact:
                raise CorruptDataError(
                    f"the tree after the transaction 0x{zxid:x} ({path}, byte {position}) does not have the digest that the "
                    "transaction names: transactions before it are missing, or the snapshot is another server's. "
                    f"{REMEDY}; or accept the loss of this transaction and all later ones: cut the file (truncate -s "
                    f"{position} {path}) and move later log files away."
                )
            database.forget_mismatches()
        elif digest is not None and digest.version == DIGEST_VERSION and zxid >= database.exact_from_zxid:
            self._is_exact = True

    # Ends

    def repair(self) -> None:
        """Cut off what a crash left behind the last whole transactions of the files."""
        for repair in self._repairs:
            repair()

    def _remove_blank(self, path: str, first: int) -> None:
        # The server crashed before the header was on the disk: nothing in this file
        # was acknowledged.
        logger.warning("Removing %s: it ends before its header (zxid 0x%x)", path, first)
        self._files.remove(path)

    def _is_blank(self, path: str) -> bool:
        """Whether all bytes are zeros: after a loss of power a new file can have its
        size and none of its bytes."""
        file = self._files.open(path, read_only=True)
        try:
            position = 0
            while piece := file.read_at(position, _CHUNK_BYTES if position else _HEADER_BYTES):
                if any(piece):
                    return False
                position += len(piece)
            return True
        finally:
            file.close()
