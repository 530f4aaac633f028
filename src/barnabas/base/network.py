"""The seam to the network: ordered connections that carry frames with a four-byte length,
as Kafka and ZooKeeper do.

A `Network` listens and connects. Each `Connection` delivers whole frames to one `FrameHandler` by
synchronous calls and sends lists of parts in order. The real one is `barnabas.net.sockets`; a
simulation brings its own with virtual time, loss and partitions. Edges run on an asyncio event
loop, real or simulated, and use its ``call_later`` for timers.
"""

import enum
import struct
from collections.abc import Callable, Sequence
from typing import Protocol

from barnabas.base.files import Buffer, FileSlice

__all__ = [
    "ALL_ADDRESSES",
    "HEAD_BYTES",
    "Accept",
    "BufferHandler",
    "Connection",
    "DroppingHandler",
    "FrameHandler",
    "FramesHandler",
    "Listener",
    "Network",
    "Part",
    "Standing",
    "split_frames",
]

_LENGTH = struct.Struct(">i")
_SPLIT_AT_ONCE = 64
HEAD_BYTES = 8
"""How many bytes of a large frame its handler sees before it may refuse it: see
`DroppingHandler`."""

ALL_ADDRESSES = frozenset(("", "0.0.0.0", "::"))  # noqa: S104  # compared, not bound
"""Hosts of a setting that mean all addresses of the machine; no client can connect to them."""

Part = Buffer | FileSlice
"""What can be sent: bytes, or a range of a file that goes by sendfile."""


class Standing(enum.Enum):
    """Who the other side of an accepted connection is: each kind has a limit of its own
    for the bytes that wait."""

    STRANGER = 0
    """It has yet to authenticate."""
    CLIENT = 1
    MEMBER = 2
    """A server of the same cluster, which clients must not keep waiting."""


class Connection(Protocol):
    """One side of an open connection."""

    max_frame_bytes: int
    """The largest frame that is accepted, checked on its length before anything is kept.
    The handler may change it."""

    is_stream: bool
    """Whether `FrameHandler.frame` gets bytes as they come, for protocols whose messages have no
    length in front (ZooKeeper's quorum and election ports). False at first; ``accept`` may set it,
    and the handler as long as all bytes that it has had were whole messages."""

    standing: Standing
    """A client at first; ``accept`` may set it, and the handler."""

    served_bytes: int
    """What the handler keeps in memory of the frames that it is serving, as far as that is worth
    counting. It counts as bytes that wait. 0 at first; the handler sets it."""

    @property
    def has_room(self) -> bool:
        """Whether a large answer may be made now: False where what peers do not read has
        reached the limit of all of them, until some of it has left or its connection is closed,
        which takes a second at most."""
        ...

    on_drained: Callable[[], None] | None
    """Called when all that `send` has taken has left, after a time in which the network
    took no more. None at first."""

    @property
    def peer(self) -> tuple[str, int]:
        """The other side's address and port."""
        ...

    @property
    def local(self) -> tuple[str, int]:
        """This side's address and port."""
        ...

    @property
    def unsent_bytes(self) -> int:
        """What `send` has taken and the network has not."""
        ...

    def send(self, parts: Sequence[Part]) -> None:
        """Send the parts in order, after all that was sent before.

        The caller adds the length prefix. Never blocks and never fails: a broken connection calls
        `FrameHandler.closed`. Buffers must not change until they have left.
        """
        ...

    def pause(self) -> None:
        """Deliver no more frames until `resume`.

        Bytes wait in the socket, so the peer is slowed down."""
        ...

    def resume(self) -> None: ...

    def close(self, *, after_sending: bool = False) -> None:
        """Close now, or when all that was given to `send` has left.

        `FrameHandler.closed` follows, once. A second call without ``after_sending`` ends the
        waiting for a peer that does not read.
        """
        ...


class FrameHandler(Protocol):
    """The owner of a connection. Calls never overlap."""

    def frame(self, data: memoryview) -> None:
        """A whole frame without its length; writable, and the handler's to keep."""
        ...

    def bad_length(self, prefix: bytes) -> None:
        """Four bytes that are not an acceptable length: negative, or above the limit.

        The connection is paused. Up to eight bytes that came behind them are there too. The handler
        closes it, at once or after an answer (ZooKeeper's four-letter words arrive this way).
        """
        ...

    def closed(self, error: Exception | None) -> None:
        """The connection is gone: by `Connection.close` or the peer (None), or by a failure."""
        ...


class FramesHandler(FrameHandler, Protocol):
    """A handler that takes small frames together which have come together.

    A connection looks for its method by itself."""

    def take_frames(self, frames: list[bytes]) -> int:
        """Whole frames without their lengths, in order, at least one.

        Returns how many are taken: the first one at least. The others come again, by this method or
        by `frame`; after `Connection.resume` if the handler has called `Connection.pause`."""
        ...


class BufferHandler(FrameHandler, Protocol):
    """A handler that serves some small frames where they have arrived.

    A connection looks for its method by itself."""

    def take_from(self, data: memoryview, position: int) -> int:
        """Serve frames in place.

        ``data`` holds a whole frame (with its length) at ``position``, and perhaps more after it.
        Return the end of the last frame served, or ``position`` for none; that frame then comes by
        `frame`. Frames that are served may be overwritten; the buffer is reused after the call."""
        ...


class DroppingHandler(FrameHandler, Protocol):
    """A handler that refuses large frames when they begin.

    A connection looks for its methods by itself, for frames that do not come in one piece;
    others are delivered whole."""

    def drops(self, head: bytes, frame_bytes: int) -> bool:
        """Whether to throw away the bytes of a frame as they come.

        ``head`` are its first `HEAD_BYTES`."""
        ...

    def dropped(self, head: bytes) -> None:
        """All of it has come; an answer may leave. The next frame follows."""
        ...


Accept = Callable[[Connection], FrameHandler]
"""Makes the handler of a new connection."""


class Listener(Protocol):
    """An open port."""

    @property
    def port(self) -> int: ...

    async def close(self) -> None:
        """Stop accepting; accepted connections stay."""
        ...


class Network(Protocol):
    """How edges reach the network."""

    async def listen(self, host: str, port: int, accept: Accept, *, max_frame_bytes: int) -> Listener:
        """Open a port (0 for any free one; host "" for all interfaces).

        ``accept`` makes the handler of each connection. Raises OSError when the
        address cannot be had.
        """
        ...

    async def connect(
        self, host: str, port: int, accept: Accept, *, max_frame_bytes: int, timeout_ms: int
    ) -> Connection:
        """Connect; raises OSError (a refused connection, an unknown host, TimeoutError)."""
        ...


def split_frames(data: memoryview, start: int, max_frame_bytes: int) -> list[bytes]:
    """The first whole frames from ``start`` on, without their lengths, up to a
    length that is not acceptable.

    Not more than 64: a handler may take one of them, and the others are cut again.
    """
    frames: list[bytes] = []
    position, end, unpack = start, len(data), _LENGTH.unpack_from
    while end - position >= 4 and len(frames) < _SPLIT_AT_ONCE:
        (frame_bytes,) = unpack(data, position)
        stop = position + 4 + frame_bytes
        if stop > end or not 0 <= frame_bytes <= max_frame_bytes:
            break
        frames.append(bytes(data[position + 4 : stop]))
        position = stop
    return frames
