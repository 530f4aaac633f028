"""The two epochs that a server must not forget: the files ``acceptedEpoch`` and ``currentEpoch`` beside the snapshots.

``acceptedEpoch`` is the highest epoch that the server has agreed to: it takes part in no older one. ``currentEpoch`` is
the epoch of the leader whose history it has acknowledged; with the last zxid it says how recent its history is. Each is
on stable storage before the message that depends on it leaves.

In ZooKeeper: QuorumPeer's acceptedEpoch and currentEpoch.
"""

import posixpath

from barnabas.base.errors import CorruptDataError
from barnabas.base.files import Files
from barnabas.wire.jute.quorum import epoch_of

__all__ = ["Epochs"]

_ACCEPTED = "acceptedEpoch"
_CURRENT = "currentEpoch"


class Epochs:
    """Reads both files once, and writes them durably."""

    def __init__(self, files: Files, directory: str, last_zxid: int) -> None:
        """A missing file means the epoch of the last transaction. Raises `CorruptDataError`."""
        self._files = files
        self._directory = directory
        self._current = self._read(_CURRENT, epoch_of(last_zxid))
        self._accepted = self._read(_ACCEPTED, self._current)
        self._accepted = max(self._accepted, self._current)

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
        """The log ends with this zxid. A transaction of an epoch proves that all before it, and so the history with which
        the epoch began, is in the log: a crash before the acknowledgement of NEWLEADER leaves the file behind."""
        if epoch_of(last_zxid) > self._current:
            self.enter(epoch_of(last_zxid))
            self._accepted = max(self._accepted, self._current)

    def enter(self, epoch: int) -> None:
        """The server has the history with which the epoch begins. Durable at return."""
        self._write(_CURRENT, epoch)
        self._current = epoch

    def _path(self, name: str) -> str:
        return posixpath.join(self._directory, name)

    def _read(self, name: str, default: int) -> int:
        path = self._path(name)
        if not self._files.exists(path):
            return default
        text = self._files.read(path).strip()
        try:
            epoch = int(text)
        except ValueError:
            epoch = -1
        if epoch < 0:
            raise CorruptDataError(
                f"{path} holds {text[:40]!r} instead of an epoch. Restore it from a backup; or move this server's data "
                "directory away and let it copy the state from the other servers"
            )
        return epoch

    def _write(self, name: str, epoch: int) -> None:
        self._files.write_atomically(self._path(name), b"%d" % epoch)
