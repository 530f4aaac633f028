"""How a leader sends a learner a part of its log: in pieces that are read on another
thread, one at a time.

No more is read than the connection takes; between two pieces the leader goes on.

In ZooKeeper: the queue of committed proposals in LearnerHandler.syncFollower.
"""

import logging
from collections.abc import Callable
from typing import Protocol, TypeVar

from barnabas.base.network import Connection
from barnabas.coordination.storage.log_history import LoggedHistory
from barnabas.wire.jute.quorum import PacketType, encode_packet, encode_signal

__all__ = ["HistorySender", "RunsInThread", "encode_committed", "seek_history"]

logger = logging.getLogger(__name__)
_MAX_UNSENT_BYTES = 4 << 20
_PAUSE_S = 0.005

T = TypeVar("T")


class RunsInThread(Protocol):
    """Runs work on another thread, then calls ``done`` with its result or its error."""

    def __call__(self, work: Callable[[], T], done: Callable[[T | Exception], None]) -> None: ...


def encode_committed(zxid: int, payload: bytes | bytearray) -> bytes:
    """A transaction that is committed already."""
    return encode_packet(PacketType.PROPOSAL, zxid, payload) + encode_signal(PacketType.COMMIT, zxid)


def seek_history(
    open_history: Callable[[], LoggedHistory], run: RunsInThread, done: Callable[[LoggedHistory | None], None]
) -> None:
    """Find a learner's place in the log; None if it is not there, or the log cannot be read."""

    def fail(error: Exception) -> None:
        logger.warning("The log cannot be read for a learner, which gets a snapshot: %s", error)
        done(None)

    def opened(history: LoggedHistory | Exception) -> None:
        if isinstance(history, Exception):
            fail(history)
            return

        def sought(is_over: bool | Exception) -> None:
            if isinstance(is_over, Exception):
                history.close()
                fail(is_over)
            elif not is_over:
                run(history.seek, sought)
            elif history.common_zxid is None:
                history.close()
                done(None)
            else:
                done(history)

        run(history.seek, sought)

    run(open_history, opened)


class HistorySender:
    """Sends the transactions of a `LoggedHistory` below ``before_zxid``, then calls
    ``done`` with None or the error."""

    def __init__(
        self,
        history: LoggedHistory,
        before_zxid: int,
        connection: Connection,
        is_closed: Callable[[], bool],
        *,
        run: RunsInThread,
        later: Callable[[float, Callable[[], None]], object],
        done: Callable[[Exception | None], None],
    ) -> None:
        self._history = history
        self._before_zxid = before_zxid
        self._connection = connection
        self._is_closed = is_closed
        self._run = run
        self._later = later
        self._done = done

    def start(self) -> None:
        """Send the first piece; the others follow by themselves."""
        if self._is_closed():
            self._history.close()
        elif self._connection.unsent_bytes >= _MAX_UNSENT_BYTES:
            self._later(_PAUSE_S, self.start)
        else:
            self._run(self._read, self._send)

    def _read(self) -> bytes:
        return b"".join(encode_committed(*each) for each in self._history.read(self._before_zxid))

    def _send(self, piece: bytes | Exception) -> None:
        if piece and isinstance(piece, bytes):
            if not self._is_closed():
                self._connection.send([piece])
            self.start()
        else:
            self._history.close()
            self._done(piece if isinstance(piece, Exception) else None)
