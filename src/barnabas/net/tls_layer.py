"""TLS over any network: the connections of a broker that are encrypted.

`barnabas.net.sockets` stays what moves the bytes, so limits of connections, descriptors and faults
are those of plain connections; here OpenSSL works on buffers in memory. The rules:

- The handler of an accepted connection is made at once, so that limits count connections before
  their handshake. It receives nothing before the handshake is over, which has a time limit.
- A range of a file is read and encrypted in pieces, at most `_TURN_BYTES` in one turn of the event
  loop, and no more than `_AHEAD_BYTES` ahead of what the network takes: an answer of 50 MB holds
  neither the loop nor memory. What is not in memory is read by a thread
  (`barnabas.net.cold_reads`).
- A frame that has arrived alone is handed on in the buffer in which it was gathered.
- Bytes that are not TLS, or a certificate that is not accepted, end the connection
  after TLS's own alert.

In Kafka: `SslTransportLayer`.
"""

import asyncio
import contextlib
import logging
import ssl
import struct
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from barnabas.base.files import FileSlice
from barnabas.base.memory import rest_of
from barnabas.base.network import HEAD_BYTES, Accept, Connection, FrameHandler, Listener, Network, Part, Standing
from barnabas.net.cold_reads import READ_AHEAD_BYTES, ColdReads, read_at_once, read_whole

__all__ = ["TlsLayer", "TlsLink"]

logger = logging.getLogger(__name__)

_LENGTH = struct.Struct(">i")
_READ_BYTES = 16 * 1024  # a record
_WRITE_BYTES = 64 * 1024
"""What is encrypted by one call: four records."""
_TURN_BYTES = 1024 * 1024
"""About a millisecond of encryption."""
_TURN_S = 0.004
"""How long requests of one connection are delivered before others have their turn."""
_AHEAD_BYTES = 512 * 1024
_MAX_UNSENT_BYTES = 1024 * 1024
_NEVER_HELD_BYTES = 1 << 62
_OWN_BUFFER_FROM_BYTES = 64 * 1024
_HANDSHAKE_TIMEOUT_S = 10


class TlsLayer:
    """A network whose connections are encrypted, over another one."""

    def __init__(
        self,
        network: Network,
        *,
        server: ssl.SSLContext | None = None,
        client: ssl.SSLContext | None = None,
        handshake_timeout_s: float = _HANDSHAKE_TIMEOUT_S,
    ) -> None:
        """``server`` is needed to listen, ``client`` to connect."""
        self._network = network
        self._server = server
        self._client = client
        self._handshake_timeout_s = handshake_timeout_s
        self._cold_reads = ColdReads()

    async def listen(self, host: str, port: int, accept: Accept, *, max_frame_bytes: int) -> Listener:
        """Like `Network.listen`; ``accept`` gets a `TlsLink`."""
        context = self._server
        assert context is not None, "this network has no certificate to show"

        def opened(connection: Connection) -> FrameHandler:
            bios = ssl.MemoryBIO(), ssl.MemoryBIO()
            tls = context.wrap_bio(*bios, server_side=True)
            link = TlsLink(connection, tls, *bios, max_frame_bytes, cold_reads=self._cold_reads)
            link.start(accept, self._handshake_timeout_s)
            return link

        return await self._network.listen(host, port, opened, max_frame_bytes=max_frame_bytes)

    async def connect(
        self, host: str, port: int, accept: Accept, *, max_frame_bytes: int, timeout_ms: int
    ) -> Connection:
        """Like `Network.connect`; returns after the handshake.

        A certificate that is not accepted raises `ssl.SSLError`."""
        context = self._client
        assert context is not None, "this network trusts no server"
        links: list[TlsLink] = []

        def opened(connection: Connection) -> FrameHandler:
            bios = ssl.MemoryBIO(), ssl.MemoryBIO()
            tls = context.wrap_bio(*bios, server_side=False, server_hostname=host)
            # As with plain sockets, the side that connects reads whatever waits to be sent: two
            # sides that both stopped would wait for each other.
            links.append(TlsLink(connection, tls, *bios, max_frame_bytes, max_unsent_bytes=_NEVER_HELD_BYTES))
            return links[0]

        async with asyncio.timeout(timeout_ms / 1000):
            await self._network.connect(host, port, opened, max_frame_bytes=max_frame_bytes, timeout_ms=timeout_ms)
            (link,) = links
            try:
                await link.shake_hands(accept)
            except BaseException:
                link.close()
                raise
        return link


class _CountedBelow:
    """What waits for an encrypted connection is counted by the one below it."""

    __slots__ = ("_connection", "_is_open", "_standing")

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._standing = connection.standing
        self._is_open = False
        """Whether the handshake is over."""

    @property
    def standing(self) -> Standing:
        return self._standing

    @standing.setter
    def standing(self, standing: Standing) -> None:
        self._standing = standing
        if self._is_open:  # until then it is that of a stranger
            self._connection.standing = standing

    @property
    def has_room(self) -> bool:
        return self._connection.has_room

    @property
    def served_bytes(self) -> int:
        return self._connection.served_bytes

    @served_bytes.setter
    def served_bytes(self, served_bytes: int) -> None:
        self._connection.served_bytes = served_bytes


class TlsLink(_CountedBelow):
    """One side of an encrypted connection: the handler of the connection below, and the
    connection of the handler above."""

    __slots__ = (
        "_accept",
        "_ahead",
        "_cold_reads",
        "_defers",
        "_disk_read",
        "_drop",
        "_encrypted",
        "_failure",
        "_file_bytes",
        "_handler",
        "_hold_extra",
        "_hold_input",
        "_holds",
        "_is_closed",
        "_is_closing",
        "_is_delivering",
        "_is_paused",
        "_is_pumping",
        "_loop",
        "_max_unsent_bytes",
        "_opened",
        "_outgoing",
        "_received",
        "_timer",
        "_tls",
        "_turn_ends_s",
        "_unsent_bytes",
        "is_stream",
        "max_frame_bytes",
        "on_drained",
        "on_secured",
    )

    def __init__(
        self,
        connection: Connection,
        tls: ssl.SSLObject,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        max_frame_bytes: int,
        *,
        max_unsent_bytes: int = _MAX_UNSENT_BYTES,
        cold_reads: ColdReads | None = None,
    ) -> None:
        connection.is_stream = True
        connection.on_drained = self._pump
        super().__init__(connection)
        self._tls = tls
        self._ahead = incoming  # received, and not yet decrypted
        self._encrypted = outgoing
        self.max_frame_bytes = max_frame_bytes
        self.is_stream = False
        self.on_drained: Callable[[], None] | None = None
        self.on_secured: Callable[[], None] | None = None
        """Called once, at the end of the handshake, before the first frame."""
        self._max_unsent_bytes = max_unsent_bytes
        self._loop = asyncio.get_running_loop()
        self._cold_reads = cold_reads or ColdReads()
        self._disk_read: asyncio.Future[bytes] | None = None
        """Reads the beginning of what is to be sent next."""
        self._handler: FrameHandler | None = None
        self._accept: Accept | None = None
        self._opened: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._received = bytearray()
        self._drop: tuple[bytes, int] | None = None
        """The head of a frame that is refused, and how much of it is still to come."""
        self._outgoing: deque[Part] = deque()
        self._unsent_bytes = 0
        self._file_bytes = 0  # of these, what is in files
        self._hold_input: Callable[..., None] | None = getattr(connection, "hold_input", None)
        self._hold_extra: Callable[[int], None] | None = getattr(connection, "hold_extra", None)
        """Where the connection below counts what waits."""
        self._failure: Exception | None = None
        self._holds = False  # not reading until what is unsent has left
        self._turn_ends_s = 0.0
        self._defers = False  # what has arrived is continued in the next turn of the loop
        self._is_paused = False
        self._is_delivering = False
        self._is_pumping = False
        self._is_closing = False
        self._is_closed = False

    # The handshake

    def start(self, accept: Accept, timeout_s: float) -> None:
        """Wait for a client's handshake; the handler is made now."""
        self._timer = self._loop.call_later(timeout_s, self._too_late)
        self._connection.standing = Standing.STRANGER
        self._handler = accept(self)

    async def shake_hands(self, accept: Accept) -> None:
        """Begin the handshake of a client and return at its end, when the handler is made.

        Raises `OSError`."""
        self._accept = accept
        self._opened = self._loop.create_future()
        self._advance()
        await self._opened

    def _too_late(self) -> None:
        logger.info("Closing the connection from %s:%d: no TLS handshake in time", *self.peer)
        self._connection.close()

    def _advance(self) -> None:
        """Continue the handshake with what has arrived."""
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._flush()
            return
        except (ssl.SSLError, ssl.CertificateError) as error:
            self._fail(error)
            return
        self._is_open = True
        self._connection.standing = self._standing
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._flush()
        if self._accept is not None:
            accept, self._accept = self._accept, None
            self._handler = accept(self)
        if self.on_secured is not None:
            self.on_secured()
            self.on_secured = None
        if self._opened is not None and not self._opened.done():
            self._opened.set_result(None)
        self._pump()

    def _fail(self, error: Exception) -> None:
        """End the connection; OpenSSL has put an alert for the other side among what
        is to be sent."""
        self._failure = error.with_traceback(None)  # whose frames hold this connection
        if not self._is_closing:
            # Strangers cause these: they are no warnings.
            where = "handshake with" if not self._is_open else "connection of"
            logger.info("The TLS %s %s:%d failed: %s", where, *self.peer, _reason(error))
        self._is_closing = True
        self._flush()
        self._connection.close(after_sending=True)

    # From the connection below

    def frame(self, data: memoryview) -> None:
        """Encrypted bytes came."""
        if self._is_closed:
            return
        self._ahead.write(data)
        if not self._is_open:
            self._advance()
        if self._is_open:
            self._read()

    def bad_length(self, prefix: bytes) -> None:
        """A stream has no lengths."""

    def closed(self, error: Exception | None) -> None:
        """The connection below is gone."""
        self._is_closed = self._is_closing = True
        if self._timer is not None:
            self._timer.cancel()
        self._outgoing.clear()
        self._unsent_bytes = self._file_bytes = 0
        self._received = bytearray()
        self._hold_input = self._hold_extra = None  # which refer to the connection
        self.on_drained = self.on_secured = None
        if self._opened is not None and not self._opened.done():
            # Not a connection that was refused or reset: a process that accepts
            # connections is there.
            lost = ConnectionAbortedError("the connection was closed during the TLS handshake")
            ended = lost if error is None or isinstance(error, ConnectionError) else error
            self._opened.set_exception(self._failure or ended)
        handler, self._handler = self._handler, None
        if handler is not None:
            handler.closed(self._failure or error)

    # Reading

    @property
    def _is_held(self) -> bool:
        return self._is_paused or self._is_closing or self._unsent_bytes > self._max_unsent_bytes

    def _read(self) -> None:
        """Decrypt and hand on what has arrived. The answers to it leave together."""
        if self._is_delivering or self._handler is None:
            return
        self._is_delivering = True
        self._turn_ends_s = self._loop.time() + _TURN_S
        self._defers = False
        try:
            self._deliver()
            while not self._is_held and not self._defers:
                data = self._tls.read(_READ_BYTES)
                if not data:
                    self._connection.close()
                    break
                self._received += data
                self._deliver()
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self._connection.close()
        except ssl.SSLError as error:
            self._fail(error)
        finally:
            self._is_delivering = False
        if self._is_held and not self._is_closing:
            self._connection.pause()
            self._holds = True
        elif self._defers and not self._is_closing:
            self._connection.pause()
            self._loop.call_soon(self._read_on)
        self._report_input()
        self._pump()

    def _report_input(self) -> None:
        """What has come and is not handed on counts as waiting."""
        if self._hold_input is not None:
            received = self._received
            is_behind = self._is_paused or self._defers
            knows_size = len(received) >= 4 and not is_behind and self._drop is None and not self.is_stream
            wanted_bytes = 4 + _LENGTH.unpack_from(received)[0] if knows_size else 0
            self._hold_input(len(received) + self._ahead.pending, wanted_bytes, is_excused=is_behind)

    def _deliver(self) -> None:
        handler = self._handler
        if handler is None:
            return
        position = 0
        if self._drop is not None:
            self._drop_on(handler, *self._drop)
        received = self._received
        if self.is_stream:
            if received and not self._is_held:
                self._received = bytearray()
                handler.frame(memoryview(received))
            return
        while len(received) - position >= 4 and not self._is_held:
            if self._loop.time() >= self._turn_ends_s:
                self._defers = True
                break
            (size,) = _LENGTH.unpack_from(received, position)
            if not 0 <= size <= self.max_frame_bytes:
                self.pause()
                handler.bad_length(bytes(received[position : position + 12]))
                break
            stop = position + 4 + size
            if stop > len(received):
                head = bytes(received[position + 4 : position + 4 + HEAD_BYTES])
                drops: Callable[[bytes, int], bool] | None = getattr(handler, "drops", None)
                if (
                    size >= _OWN_BUFFER_FROM_BYTES
                    and len(head) == HEAD_BYTES
                    and drops is not None
                    and drops(head, size)
                ):
                    self._drop = head, stop - len(received)
                    position = len(received)
                break
            if size >= _OWN_BUFFER_FROM_BYTES:
                self._received = received[stop:]
                handler.frame(memoryview(received)[position + 4 : stop])
                received, position = self._received, 0
            else:
                handler.frame(memoryview(received[position + 4 : stop]))
                position = stop
        if position and received is self._received:
            del received[:position]

    def _drop_on(self, handler: FrameHandler, head: bytes, left: int) -> None:
        """Throw away what has come of a frame that is refused."""
        dropped = min(left, len(self._received))
        del self._received[:dropped]
        self._drop = (head, left - dropped) if dropped < left else None
        if self._drop is None:
            handler.dropped(head)  # type: ignore[attr-defined]  # it has `drops`

    # For the handler above

    @property
    def peer(self) -> tuple[str, int]:
        return self._connection.peer

    @property
    def local(self) -> tuple[str, int]:
        return self._connection.local

    @property
    def unsent_bytes(self) -> int:
        return self._unsent_bytes + self._connection.unsent_bytes

    @property
    def work(self) -> str:
        """What the handler served last, where it says so: for reports about the event loop."""
        return str(getattr(self._handler, "work", ""))

    @property
    def peer_certificate(self) -> Mapping[str, object] | None:
        """What the peer's certificate says, if it has shown one that was verified."""
        found: Mapping[str, object] | None = self._tls.getpeercert()
        return found

    def send(self, parts: Sequence[Part]) -> None:
        if self._is_closing:
            return
        for part in parts:
            size = len(part)
            if size:
                self._outgoing.append(part)
                self._unsent_bytes += size
                if isinstance(part, FileSlice):
                    self._file_bytes += size
        if not self._is_delivering and not self._is_pumping:
            self._pump()

    def pause(self) -> None:
        self._is_paused = True
        self._connection.pause()

    def resume(self) -> None:
        if self._is_paused and not self._is_closing:
            self._is_paused = False
            # Not from here: the caller may be in the middle of answering the frame before.
            self._loop.call_soon(self._read_on)

    def _read_on(self) -> None:
        if self._is_paused or self._is_closing:
            return
        if self._is_held:
            self._holds = True
            return
        if self._is_open:
            self._read()
        if not self._is_held and not self._defers:
            self._connection.resume()

    def close(self, *, after_sending: bool = False) -> None:
        if self._is_closed:
            return
        self._is_closing = True
        if after_sending and self._outgoing:
            self._connection.pause()
            return  # `_pump` ends it
        self._say_goodbye()
        self._connection.close(after_sending=after_sending)

    def _say_goodbye(self) -> None:
        """Send TLS's close_notify, if the network takes it: without it the other side cannot be
        sure to have everything."""
        if self._is_open and self._failure is None and not self._outgoing:
            with contextlib.suppress(ssl.SSLError):
                self._tls.unwrap()
            self._flush()

    # Sending

    def _flush(self) -> None:
        if self._encrypted.pending:
            self._connection.send([self._encrypted.read()])

    def _pump(self) -> None:
        """Encrypt what waits, as far as the network takes it."""
        if not self._is_open or self._is_closed or self._is_pumping or self._failure is not None:
            return
        self._is_pumping = True
        try:
            left_bytes = _TURN_BYTES
            while self._outgoing and self._disk_read is None and self._connection.unsent_bytes <= _AHEAD_BYTES:
                if left_bytes <= 0:
                    self._loop.call_soon(self._pump)
                    break
                data = self._next_piece()
                if not data:
                    break  # it waits for a disk
                left_bytes -= len(data)
                self._tls.write(data)
                self._flush()
            self._flush()  # what OpenSSL itself has to say
        except (ssl.SSLError, OSError) as error:
            self._outgoing.clear()
            self._unsent_bytes = self._file_bytes = 0
            self._fail(error)
        finally:
            self._is_pumping = False
        if self._hold_extra is not None:
            self._hold_extra(self._unsent_bytes - self._file_bytes)
        if self._outgoing:
            return
        if self._is_closing:
            self.close(after_sending=True)
            return
        if self._holds:
            self._holds = False
            self._loop.call_soon(self._read_on)
        if self.on_drained is not None:
            self._loop.call_soon(self.on_drained)

    def _next_piece(self) -> bytes | bytearray | memoryview:
        """Bytes of what waits: small parts together, of large ones a piece; none where a
        disk must be waited for.

        Raises `OSError` for a file that is too short.
        """
        outgoing = self._outgoing
        pieces: list[bytes | bytearray | memoryview] = []
        room = _WRITE_BYTES
        while outgoing and room > 0:
            part = outgoing.popleft()
            if isinstance(part, FileSlice):
                taken = FileSlice(part.file, part.offset, min(part.size, room))
                read = read_at_once(taken)
                if read is None:
                    outgoing.appendleft(part)
                    if not pieces:
                        self._begin_disk_read(part)
                    break
                piece: bytes | bytearray | memoryview = read
                self._file_bytes -= taken.size
                if taken.size < part.size:
                    outgoing.appendleft(FileSlice(part.file, part.offset + taken.size, part.size - taken.size))
            else:
                whole = memoryview(part).cast("B")
                piece = whole[:room]
                if len(whole) > room:
                    outgoing.appendleft(rest_of(whole, room))
            pieces.append(piece)
            room -= len(piece)
        data = pieces[0] if len(pieces) == 1 else b"".join(pieces)
        self._unsent_bytes -= len(data)
        return data

    def _begin_disk_read(self, part: FileSlice) -> None:
        """Have a thread read the beginning of a range that is not in memory: see
        `barnabas.net.cold_reads`."""
        ahead = FileSlice(part.file, part.offset, min(part.size, READ_AHEAD_BYTES))
        self._disk_read = self._cold_reads.begin(self._loop, read_whole, ahead)
        self._disk_read.add_done_callback(self._disk_read_ended)

    def _disk_read_ended(self, done: "asyncio.Future[bytes]") -> None:
        self._disk_read = None
        if self._is_closed or done.cancelled() or not self._outgoing:
            return
        if (error := done.exception()) is not None:
            self._outgoing.clear()
            self._unsent_bytes = self._file_bytes = 0
            self._fail(error if isinstance(error, Exception) else OSError(str(error)))
            return
        part, data = self._outgoing.popleft(), done.result()
        assert isinstance(part, FileSlice)
        self._file_bytes -= len(data)
        if len(data) < part.size:
            self._outgoing.appendleft(FileSlice(part.file, part.offset + len(data), part.size - len(data)))
        self._outgoing.appendleft(data)
        self._pump()


def _reason(error: Exception) -> str:
    return getattr(error, "verify_message", "") or getattr(error, "reason", "") or str(error)
