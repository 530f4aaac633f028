"""The connection of one client: its frames to the server, and the replies back,
gathered into few writes.

In ZooKeeper: `NIOServerCnxn`.
"""

import logging
from collections.abc import Callable
from typing import Protocol

from barnabas.base.network import Connection, Standing
from barnabas.base.tasks import Runner, Task
from barnabas.coordination.core.connections import ServerConnection
from barnabas.coordination.core.processor import Processor
from barnabas.coordination.server.four_letter_words import answer
from barnabas.coordination.server.view import ServerView

__all__ = ["ClientHost", "ClientTransport"]

logger = logging.getLogger(__name__)
_MAX_UNSENT_BYTES = 4 << 20
_UNSENT_BYTES = 1 << 20
_GATHER_BYTES = 256 << 10
_DRAIN_CHECK_S = 0.01
_CLOSE_PATIENCE_S = 1.0  # for a peer to read the last replies


class ClientHost(Protocol):
    """What a connection needs of its server."""

    def received(self, client: ServerConnection, frames: list[bytes]) -> int:
        """Frames have come; how many are taken while the connection is not held."""
        ...

    def view(self) -> ServerView:
        """What four-letter words show."""
        ...

    @property
    def runner(self) -> Runner:
        """Runs what takes long."""
        ...

    def closed(self, peer: "ClientTransport") -> None:
        """The connection is gone."""
        ...

    def to_flush(self, peer: "ClientTransport") -> None:
        """Call `ClientTransport.flush` when the requests that have come are handled."""
        ...


class ClientTransport:
    """One accepted connection: receives frames and sends replies."""

    __slots__ = (
        "_connection",
        "_gathered_bytes",
        "_holds",
        "_later",
        "_max_frame_bytes",
        "_now_ms",
        "_outgoing",
        "_server",
        "client",
        "is_closing",
    )

    def __init__(
        self,
        server: ClientHost,
        connection: Connection,
        max_frame_bytes: int,
        now_ms: Callable[[], int],
        later: Callable[[float, Callable[[], None]], object],
    ) -> None:
        """``now_ms`` returns the time; ``later`` calls a function after a number of seconds."""
        self._server = server
        self._later = later
        self._now_ms = now_ms
        self._connection = connection
        # Once there is a session; until then the listener's small limit holds.
        self._max_frame_bytes = max_frame_bytes
        self._outgoing: list[bytes | bytearray] = []
        self._gathered_bytes = 0
        self._holds = 0
        connection.standing = Standing.STRANGER
        self.is_closing = False
        """Whether this server ends the connection."""
        address, port = connection.peer
        self.client = ServerConnection(self, address, port, now_ms())

    # From the network

    def frame(self, data: memoryview) -> None:
        self.take_frames([bytes(data)])

    def take_frames(self, frames: list[bytes]) -> int:
        if not self._max_frame_bytes:
            return self._server.received(self.client, frames)
        taken = self._server.received(self.client, frames[:1])  # behind it another limit may hold
        self._admit()
        return taken

    def _admit(self) -> None:
        """With a session, frames may be large.

        A learner waits for its leader before it gives one back."""
        if self._max_frame_bytes and self.client.session is not None:
            self._connection.max_frame_bytes, self._max_frame_bytes = self._max_frame_bytes, 0
            self._connection.standing = Standing.CLIENT

    @property
    def takes_requests(self) -> bool:
        return not self._holds and not self.is_closing and self._connection.unsent_bytes <= _UNSENT_BYTES

    @property
    def has_room(self) -> bool:
        return self._connection.has_room

    def bad_length(self, prefix: bytes) -> None:
        words = None
        if self.client.session is None:
            view = self._server.view()
            _count_word(view.processor, prefix)
            words = answer(prefix, view)
        self.is_closing = True
        if words is None:
            logger.info(
                "Closing the connection of %s: %r is not the length of a request", self.client.address, prefix[:4]
            )
            self._connection.close()
        else:
            self._server.runner.start(self._say(words))

    def _say(self, words: Task[bytes]) -> Task[None]:
        text = yield from words
        self._connection.send([text])
        self._connection.close(after_sending=True)

    def closed(self, error: Exception | None) -> None:
        if error is not None:
            logger.info("The connection of %s failed: %s", self.client.address, error)
        self._server.closed(self)
        # What the processor still has to do with the client goes nowhere. And the two are in no
        # cycle any more: what was frozen while it lived would never be freed.
        self.client.transport = _ClosedTransport()

    # From the processor

    def send(self, frames: bytes | bytearray) -> None:
        if not self._outgoing:
            self._server.to_flush(self)
        self._outgoing.append(frames)
        self._gathered_bytes += len(frames)
        if self._gathered_bytes > _GATHER_BYTES:
            # So that a client that does not read its replies is noticed before its next request.
            self.flush()

    def flush(self) -> None:
        frames, self._outgoing = self._outgoing, []
        self._gathered_bytes = 0
        if frames:
            self._connection.send(frames)
            if self._connection.unsent_bytes > _MAX_UNSENT_BYTES:
                # The client does not read its replies: take no more requests until it does.
                self.hold()
                self._later(_DRAIN_CHECK_S, self._check_drained)

    def _check_drained(self) -> None:
        if self.client.is_closed or self._connection.unsent_bytes <= _MAX_UNSENT_BYTES // 2:
            self.release()
        else:
            self._later(_DRAIN_CHECK_S, self._check_drained)

    def hold(self) -> None:
        self._holds += 1
        self._connection.pause()

    def release(self) -> None:
        self._holds -= 1
        if not self._holds:
            self._admit()
            self._connection.resume()

    def close(self) -> None:
        self.is_closing = True
        self.flush()
        self._connection.close(after_sending=True)
        self._later(_CLOSE_PATIENCE_S, self.abort)

    def abandon(self) -> None:
        """Close without the replies that are not sent yet: the processor is gone."""
        self.is_closing = True
        self._outgoing = []
        self._gathered_bytes = 0
        self._connection.close()

    def abort(self) -> None:
        if not self.client.is_closed:
            self.is_closing = True
            self._connection.close()


class _ClosedTransport:
    """The way back to a client whose connection is gone."""

    __slots__ = ()

    takes_requests = False
    has_room = True

    def send(self, frames: bytes | bytearray) -> None: ...

    def hold(self) -> None: ...

    def release(self) -> None: ...

    def close(self) -> None: ...


def _count_word(processor: Processor, word: bytes) -> None:
    """A four-letter word counts as a packet, and so does its answer."""
    processor.statistics.received += 1
    processor.statistics.sent += 1
    processor.metrics.received_bytes += len(word)
