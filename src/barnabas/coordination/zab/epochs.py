"""The two epochs that a server must not forget: the files ``acceptedEpoch`` and
``currentEpoch`` beside the snapshots.

``acceptedEpoch`` is the highest epoch that the server has agreed to: it takes part in no
older one. ``currentEpoch`` is the epoch of the leader whose history it has acknowledged; with
the last zxid it says how recent its history is. Each is on stable storage before the message
that depends on it leaves.

A wrong epoch costs acknowledged writes: a server with a stale history and a high ``currentEpoch``
would lead, and the others would cut their logs. So neither file is an authority:

- Each has a second line with a checksum (`barnabas.base.check_lines`). Apache's servers read the
  first line only, and write no second one.
- A server agrees to an epoch before it acknowledges its history. So an accepted epoch below
  the current one cannot be.
- Where the log ends in a later epoch than the current one, the log is right: see `Epochs.reach`.

Where a file contradicts itself or the other, the server does not start: which of the two is wrong
cannot be seen, and the other members have what this one has acknowledged.

In ZooKeeper: QuorumPeer's acceptedEpoch and currentEpoch; loadDataBase refuses an accepted
epoch below the current one.
"""

import logging
import posixpath
import re

from barnabas.base.check_lines import LineCheck, add_check_line, split_check_line
from barnabas.base.errors import CorruptDataError
from barnabas.base.files import Files
from barnabas.wire.jute.quorum import epoch_of

__all__ = ["Epochs"]

logger = logging.getLogger(__name__)

_ACCEPTED = "acceptedEpoch"
_CURRENT = "currentEpoch"
_MAX_EPOCH = (1 << 31) - 1
_REMEDY = (
    "Restore it from a backup of the whole data directory; or move this server's data directory away and let it copy the "
    "state from the other servers"
)


class Epochs:
    """Reads both files once, and writes them durably."""

    def __init__(self, files: Files, directory: str, last_zxid: int) -> None:
        """A missing file means the epoch of the last transaction. Raises `CorruptDataError`."""
        self._files = files
        self._directory = directory
        current, accepted = self._read(_CURRENT), self._read(_ACCEPTED)
        if current is not None and accepted is None:
            logger.warning("%s is missing, and is taken as %d like currentEpoch", self._path(_ACCEPTED), current)
        self._current = epoch_of(last_zxid) if current is None else current
        reached = max(self._current, epoch_of(last_zxid))
        self._accepted = reached if accepted is None else accepted
        if self._accepted < reached:
            where = f"the log has transactions of the epoch {reached}"
            if reached == self._current:
                where = f"{self._path(_CURRENT)} holds the epoch {reached}"
            raise CorruptDataError(
                f"{self._path(_ACCEPTED)} holds the epoch {accepted}, but {where}: a server accepts an epoch before it enters it, "
                f"so one of the files is damaged. {_REMEDY}"
            )

    @property
    def accepted(self) -> int:
        """The highest epoch that this server has agreed to."""
        return self._accepted

    @property
    def current(self) -> int:
        """The epoch of the leader whose history this server has acknowledged."""
        return self._current

    def accept(self, epoch: int) -> None:
        """Take part in nothing older from now on. Durable at return."""
        self._write(_ACCEPTED, epoch)
        self._accepted = epoch

    def reach(self, last_zxid: int) -> None:
        """The log ends with this zxid.

        A transaction of an epoch proves that all before it, and so the history with which the
        epoch began, is in the log: a crash before the acknowledgement of NEWLEADER leaves the
        file behind."""
        if epoch_of(last_zxid) > self._current:
            self.enter(epoch_of(last_zxid))
            self._accepted = max(self._accepted, self._current)

    def enter(self, epoch: int) -> None:
        """The server has the history with which the epoch begins. Durable at return."""
        self._write(_CURRENT, epoch)
        self._current = epoch

    def _path(self, name: str) -> str:
        return posixpath.join(self._directory, name)

    def _read(self, name: str) -> int | None:
        """The epoch in a file; None when there is no file."""
        path = self._path(name)
        if not self._files.exists(path):
            return None
        try:
            data = self._files.read(path)
        except IsADirectoryError as error:
            raise CorruptDataError(f"{path} is a directory instead of a file with an epoch. {_REMEDY}") from error
        line, check = split_check_line(name, data, 1)
        text = line.strip()
        epoch = int(text) if re.fullmatch(rb"[0-9]{1,10}", text) else -1
        if not 0 <= epoch <= _MAX_EPOCH:
            raise CorruptDataError(f"{path} holds {text[:40]!r} instead of an epoch. {_REMEDY}")
        if check is LineCheck.WRONG:
            raise CorruptDataError(
                f"{path} holds the epoch {epoch}, and its checksum in the second line is that of another: the file is damaged. "
                f"{_REMEDY}; remove the second line only if you wrote the epoch yourself"
            )
        return epoch

    def _write(self, name: str, epoch: int) -> None:
        self._files.write_atomically(self._path(name), add_check_line(name, b"%d\n" % epoch))
