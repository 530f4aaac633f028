"""The transactions behind a learner's last one, read from the log in pieces of bounded size.

A leader keeps its recent transactions in memory; a learner that is further behind gets the ones
before them from here, which is far less than the whole state if the state is large.
`LoggedHistory.seek` finds the place where the learner's history leaves the log:

    the learner's last zxid is                        it gets
    in the log                                        DIFF, and the transactions behind it
    the first of an epoch that the log passed         DIFF, and the transactions behind it
    in the log's epoch, between two transactions      TRUNC to the one below, and the
                                                      transactions behind that
    before the first file, or of an unknown epoch     nothing from here: it needs a snapshot

The transactions must have no gap. A server that got a snapshot has one in its log, so
`Storage.replace` removes older files.

In ZooKeeper: ZKDatabase.getProposalsFromTxnLog, FileTxnLog.FileTxnIterator, and what
LearnerHandler.syncFollower does with it.
"""

import posixpath
import struct
from collections.abc import Iterator, Sequence

from barnabas.base.errors import CorruptDataError
from barnabas.base.files import File, Files
from barnabas.coordination.storage.log_tail import ENTRY_HEAD, payload_at

__all__ = ["LoggedHistory", "follows"]

_HEADER_BYTES = 16
_ZXID = struct.Struct(">q")
_ZXID_AT = 12  # behind the session's id and the request's number
_PIECE_BYTES = 256 * 1024
_EPOCH_BITS = 32
_COUNTER = (1 << _EPOCH_BITS) - 1


def follows(zxid: int, previous: int) -> bool:
    """Whether a transaction can be the next one after another."""
    return zxid == previous + 1 or (zxid & _COUNTER == 1 and zxid > previous)


class LoggedHistory:
    """Reads the log from a learner's last zxid on.

    Each call reads one piece; it may run on another thread."""

    def __init__(
        self,
        files: Files,
        directory: str,
        used_bytes: Sequence[tuple[str, int]],
        learner_zxid: int,
        max_bytes: int | None,
    ) -> None:
        """``used_bytes`` are the files from the learner's zxid on, and how much of
        each is no reserved room.

        With more than ``max_bytes`` behind the learner's zxid nothing is found.
        """
        self._files = files
        self._directory = directory
        self._names = [name for name, _ in used_bytes]
        self._left_bytes = sum(size for _, size in used_bytes)
        self._learner_zxid = learner_zxid
        self._max_bytes = max_bytes
        self.common_zxid: int | None = None
        """The last zxid that both have; None until `seek` finds it."""
        self._below: int | None = None
        """the last transaction that was read"""
        self._previous: int | None = None
        self._held: list[tuple[int, bytes]] = []
        self._file: File | None = None
        self._position = 0
        self._pieces = self._read_pieces()

    @property
    def must_truncate(self) -> bool:
        """Whether the learner has transactions behind the common one that were never committed."""
        return self.common_zxid != self._learner_zxid

    # The place of the learner

    def seek(self) -> bool:
        """Read one piece; True at the end, when `common_zxid` says whether the place is found."""
        learner_zxid = self._learner_zxid
        piece = next(self._pieces, None)
        if piece is None:
            return True
        for index, (zxid, _) in enumerate(piece):
            if zxid > learner_zxid:
                self._held = piece[index:]
                if self._is_place(zxid) and self._is_short_enough():
                    is_new_epoch = not learner_zxid & _COUNTER
                    self.common_zxid = learner_zxid if is_new_epoch else self._below
                return True
            self._below = zxid
        return False

    def _is_place(self, above: int) -> bool:
        below, learner_zxid = self._below, self._learner_zxid
        if below is None:
            return False
        if below == learner_zxid:
            return True
        epoch = learner_zxid >> _EPOCH_BITS
        if learner_zxid & _COUNTER:
            return below >> _EPOCH_BITS == epoch
        return below >> _EPOCH_BITS < epoch <= above >> _EPOCH_BITS

    def _is_short_enough(self) -> bool:
        held = sum(ENTRY_HEAD.size + len(payload) + 1 for _, payload in self._held)
        return self._max_bytes is None or self._left_bytes + held <= self._max_bytes

    # The transactions

    def read(self, before_zxid: int) -> list[tuple[int, bytes]]:
        """The next transactions, all below ``before_zxid``; empty at the end.

        Raises `CorruptDataError` for a gap."""
        piece, self._held = self._held or next(self._pieces, []), []
        found = [entry for entry in piece if entry[0] < before_zxid]
        if found:
            self._below = found[-1][0]
        if len(found) < len(piece) or not found:
            self._pieces = iter(())
            last = self._below or 0
            if not follows(before_zxid, last):
                raise CorruptDataError(f"transactions 0x{last + 1:x} to 0x{before_zxid - 1:x} are not in the log")
        return found

    def close(self) -> None:
        """Close the file that is read. A second call does nothing."""
        file, self._file = self._file, None
        self._pieces = iter(())
        if file is not None:
            file.close()

    def _path(self, name: str) -> str:
        return posixpath.join(self._directory, name)

    def _read_pieces(self) -> Iterator[list[tuple[int, bytes]]]:
        while self._names:
            path = self._path(self._names.pop(0))
            self._file = self._files.open(path, read_only=True)
            self._position = _HEADER_BYTES
            self._left_bytes -= _HEADER_BYTES
            while piece := self._read_piece(self._file, path):
                yield piece
            self._file.close()
            self._file = None

    def _read_piece(self, file: File, path: str) -> list[tuple[int, bytes]]:
        """The whole entries among the next bytes, or one larger entry."""
        data = file.read_at(self._position, _PIECE_BYTES)
        if len(data) >= ENTRY_HEAD.size and payload_at(data, 0) is None:
            size: int = ENTRY_HEAD.unpack_from(data)[1]
            if len(data) - ENTRY_HEAD.size <= size < file.size() - self._position:
                data = file.read_at(self._position, ENTRY_HEAD.size + size + 1)
        found: list[tuple[int, bytes]] = []
        offset = 0
        while (payload := payload_at(data, offset)) is not None:
            (zxid,) = _ZXID.unpack_from(payload, _ZXID_AT)
            if self._previous is not None and not follows(zxid, self._previous):
                raise CorruptDataError(f"{path} goes on with 0x{zxid:x} behind 0x{self._previous:x}: there is a gap")
            self._previous = zxid
            found.append((zxid, payload))
            offset += ENTRY_HEAD.size + len(payload) + 1
        self._position += offset
        self._left_bytes -= offset
        return found
