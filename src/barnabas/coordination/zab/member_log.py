"""The queue of transactions that a member logs, and the interface to the server for its clients.

In ZooKeeper: the queue of SyncRequestProcessor.
"""

from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol

from barnabas.coordination.core.processor import Processor
from barnabas.wire.jute.errors import ErrorCode, KeeperError

__all__ = ["ClientService", "MemberLog", "ReadOnlyForwarder"]


class ClientService(Protocol):
    """The server for clients."""

    def serve(self, processor: Processor, mode: str) -> None:
        """Serve clients with the processor from now on."""
        ...

    def stop_serving(self) -> None:
        """Close the connections of all clients."""
        ...

    def wake_log(self) -> None:
        """There are transactions for the log."""
        ...

    def reconfigured(self) -> None:
        """The configuration of the ensemble has changed."""
        ...

    def member_failed(self, error: BaseException) -> None:
        """The server cannot go on."""
        ...


class ReadOnlyForwarder:
    """Takes the place of a leader that is not there."""

    is_read_only = True

    def forward(self, *_: object) -> None:
        raise KeeperError(ErrorCode.NOT_READ_ONLY)

    def forward_frames(self, *_: object) -> None:
        raise AssertionError("a read-only server forwards nothing")

    def revalidate(self, *_: object) -> None:
        raise AssertionError("a read-only server takes sessions as they come")


class MemberLog:
    """What is to be logged, in order, whichever role it comes from."""

    def __init__(self) -> None:
        self.unlogged: list[bytes | bytearray] = []
        """Transactions that the log writer has not taken yet."""
        self.on_logged: Callable[[int], None] = lambda _: None
        self.on_idle: Callable[[bool], None] = lambda _: None
        """Called with whether everything is on stable storage, when that changes."""
        self._zxids: deque[int] = deque()

    @property
    def first_unlogged_zxid(self) -> int:
        """The zxid of the first of `unlogged`."""
        return self._zxids[len(self._zxids) - len(self.unlogged)]

    def add(self, zxid: int, payload: bytes | bytearray) -> None:
        """Log a transaction after all earlier ones."""
        if not self._zxids:
            self.on_idle(False)
        self.unlogged.append(payload)
        self._zxids.append(zxid)

    def extend(self, zxids: Sequence[int], payloads: Sequence[bytes | bytearray]) -> None:
        """Add each of them, like `add`."""
        if not self._zxids and zxids:
            self.on_idle(False)
        self.unlogged += payloads
        self._zxids.extend(zxids)

    def synced(self, count: int) -> None:
        """The next ``count`` transactions are on stable storage."""
        zxid = 0
        for _ in range(count):
            zxid = self._zxids.popleft()
        if not self._zxids:
            self.on_idle(True)
        self.on_logged(zxid)
