"""A simulated network with the semantics of TCP: ordered bytes, bounded buffers, no
message about a silent peer.

A `Fabric` joins machines by address. Bytes leave a connection in chunks that take a latency each
and stay in order; at most a window of them is under way or unread, the rest waits at the sender
(`Connection.unsent_bytes`).

- A lost chunk resets the connection, on both sides.
- A blocked direction holds its chunks back; after `GIVE_UP_US` without an acknowledgement
  the sender's side fails.
- A killed process's connections end at its peers at once; a machine without power says nothing, and
  answers later bytes with a reset when it is up again.
- A paused process's system keeps running: it takes connections and bytes, until the window is full.
"""

import errno
import struct
from asyncio import sleep, timeout
from collections import deque
from collections.abc import Callable, Sequence

from barnabas.base.files import FileSlice
from barnabas.base.network import Accept, Connection, FrameHandler, Part, Standing, split_frames
from barnabas.base.randomness import Random
from barnabas.testing.simulation.loop import Killed, Process, SimulatedLoop
from barnabas.testing.simulation.trace import Trace, checksum

__all__ = ["Fabric", "Host", "SimulatedNetwork"]

WINDOW_BYTES = 256 * 1024
GIVE_UP_US = 60_000_000
_MAX_UNSENT_BYTES = 1024 * 1024
_NO_LIMIT = 1 << 62
_RETRY_S = 0.25
_LENGTH = struct.Struct(">i")


class Host:
    """A machine on the network: its address, its open ports, whether it has power."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.is_up = True
        self.listeners: dict[int, _Listener] = {}
        self.endpoints: dict[_Endpoint, None] = {}
        self.next_port = 30_000


class Fabric:
    """The cables between the hosts, and what is wrong with them."""

    def __init__(self, loop: SimulatedLoop, rng: Random, trace: Trace | None = None) -> None:
        self.loop = loop
        self.rng = rng
        self.trace = trace
        self.hosts: dict[str, Host] = {}
        self.loss = 0.0
        self.latency_factor = 1.0
        self.resets = 0
        self.frames_in_place = 0
        """Frames that handlers have served in the buffer."""
        self._blocked: dict[tuple[str, str], None] = {}
        self._stalled: dict[tuple[str, str], deque[tuple[_Endpoint, bytes | None, Exception | None]]] = {}
        self._connections = 0

    def host(self, address: str) -> Host:
        """The host of an address, made when it is new."""
        return self.hosts.setdefault(address, Host(address))

    def note(self, what: str) -> None:
        if self.trace is not None:
            self.trace.note(what)

    def latency_us(self) -> int:
        micros = 100 + self.rng.expovariate(1 / 200)
        if self.rng.random() < 0.005:
            micros += self.rng.expovariate(1 / 20_000)
        return int(micros * self.latency_factor)

    # Partitions

    def block(self, source: str, target: str) -> None:
        """Let nothing through from one host to another; the other way stays open."""
        self._blocked[source, target] = None

    def unblock(self, source: str, target: str) -> None:
        """Let through what waited, and what comes."""
        self._blocked.pop((source, target), None)
        for endpoint, data, error in self._stalled.pop((source, target), ()):
            self._arrive(endpoint, data, error)

    def heal(self) -> None:
        """All directions are open, nothing is lost or slow."""
        self.loss = 0.0
        self.latency_factor = 1.0
        for source, target in list(self._blocked):
            self.unblock(source, target)

    def is_blocked(self, source: str, target: str) -> bool:
        return (source, target) in self._blocked

    # Transport

    def transmit(self, sender: "_Endpoint", data: bytes | None, error: Exception | None = None) -> None:
        """Bytes, or the end of the stream (None), on their way to the other side."""
        target = sender.other
        when_us = max(self.loop.now_us + self.latency_us() + (len(data) if data else 0) // 1000, sender.last_arrival_us)
        sender.last_arrival_us = when_us
        if data is not None and self.loss and self.rng.random() < self.loss:
            self.resets += 1
            reset = ConnectionResetError(errno.ECONNRESET, "Connection reset by peer (simulated loss)")
            self.loop.call_outside(when_us - self.loop.now_us, target.reset, reset)
            self.loop.call_outside(when_us - self.loop.now_us, sender.reset, reset)
            return
        self.loop.call_outside(when_us - self.loop.now_us, self._arrive, target, data, error)

    def _arrive(self, target: "_Endpoint", data: bytes | None, error: Exception | None) -> None:
        source_address, target_address = target.other.host.address, target.host.address
        way = (source_address, target_address)
        if way in self._blocked or way in self._stalled:
            self._stalled.setdefault(way, deque()).append((target, data, error))
            self._give_up_later(target.other)
            return
        if target.is_lost:
            if not target.host.is_up:
                self._give_up_later(target.other)
            elif data is not None:
                reset = ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
                self.loop.call_outside(self.latency_us(), target.other.reset, reset)
            return
        target.arrived(data, error)

    def _give_up_later(self, sender: "_Endpoint") -> None:
        if not sender.is_giving_up:
            sender.is_giving_up = True
            self.loop.call_outside(GIVE_UP_US, self._give_up, sender, sender.acknowledged)

    def _give_up(self, sender: "_Endpoint", acknowledged: int) -> None:
        sender.is_giving_up = False
        if sender.acknowledged == acknowledged:
            sender.reset(TimeoutError(errno.ETIMEDOUT, "Connection timed out"))

    def open(self, client: "_Endpoint", server: "_Endpoint") -> None:
        self._connections += 1
        client.name = f"c{self._connections}>"
        server.name = f"c{self._connections}<"
        client.other, server.other = server, client
        client.host.endpoints[client] = None
        server.host.endpoints[server] = None

    # Ends of processes and machines

    def process_died(self, host: Host, process: Process) -> None:
        """The system closes what a killed process had open."""
        for port in [port for port, listener in host.listeners.items() if listener.process is process]:
            del host.listeners[port]
        for endpoint in [endpoint for endpoint in host.endpoints if endpoint.process is process]:
            endpoint.die()

    def power_lost(self, host: Host) -> None:
        """The host is gone; its peers get no notice."""
        host.is_up = False
        host.listeners.clear()
        for endpoint in list(host.endpoints):
            endpoint.vanish()


class SimulatedNetwork:
    """A process's `barnabas.base.network.Network`."""

    def __init__(self, fabric: Fabric, host: Host, process: Process) -> None:
        self._fabric = fabric
        self._host = host
        self._process = process

    def _check_alive(self) -> None:
        if not self._process.is_alive:
            raise Killed

    async def listen(self, host: str, port: int, accept: Accept, *, max_frame_bytes: int) -> "_Listener":
        self._check_alive()
        mine = self._host
        if host not in ("", "0.0.0.0", "127.0.0.1", "localhost", mine.address):  # noqa: S104  # only compared
            raise OSError(errno.EADDRNOTAVAIL, "Cannot assign requested address")
        if not port:
            mine.next_port += 1
            port = mine.next_port
        if port in mine.listeners:
            raise OSError(errno.EADDRINUSE, "Address already in use")
        listener = mine.listeners[port] = _Listener(self._fabric, mine, self._process, port, accept, max_frame_bytes)
        return listener

    async def connect(
        self, host: str, port: int, accept: Accept, *, max_frame_bytes: int, timeout_ms: int
    ) -> Connection:
        self._check_alive()
        fabric, mine = self._fabric, self._host
        address = mine.address if host in ("127.0.0.1", "localhost") else host
        target = fabric.hosts.get(address)
        if target is None:
            raise OSError(errno.ENOENT, f"Name or service not known: {host}")
        async with timeout(timeout_ms / 1000):
            await sleep(fabric.latency_us() / 1_000_000)
            while (  # noqa: ASYNC110  # as in TCP: there is no notice
                not target.is_up or fabric.is_blocked(mine.address, address) or fabric.is_blocked(address, mine.address)
            ):
                await sleep(_RETRY_S)
            await sleep(fabric.latency_us() / 1_000_000)
        listener = target.listeners.get(port)
        if listener is None or not target.is_up:
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"Connection refused by {host}:{port}")
        mine.next_port += 1
        local, remote = (mine.address, mine.next_port), (address, port)
        client = _Endpoint(fabric, mine, self._process, local, remote, max_frame_bytes, _NO_LIMIT)
        server = _Endpoint(fabric, target, listener.process, remote, local, listener.max_frame_bytes, _MAX_UNSENT_BYTES)
        fabric.open(client, server)
        fabric.note(f"{client.name} connects {mine.address} to {address}:{port}")
        listener.process.call_soon(listener.accepted, server)
        client.start(accept(client))
        return client


class _Listener:
    def __init__(
        self, fabric: Fabric, host: Host, process: Process, port: int, accept: Accept, max_frame_bytes: int
    ) -> None:
        self._fabric = fabric
        self._host = host
        self.process = process
        self._port = port
        self._accept = accept
        self.max_frame_bytes = max_frame_bytes
        self._is_open = True

    @property
    def port(self) -> int:
        return self._port

    def accepted(self, endpoint: "_Endpoint") -> None:
        if self._is_open:
            endpoint.start(self._accept(endpoint))
        else:
            endpoint.reset(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))
            endpoint.report_end()

    async def close(self) -> None:
        self._is_open = False
        if self._host.listeners.get(self._port) is self:
            del self._host.listeners[self._port]


class _Endpoint:
    """One side of a connection: what its process gave to send, and what its system
    holds for it to read."""

    other: "_Endpoint"
    name = ""

    def __init__(
        self,
        fabric: Fabric,
        host: Host,
        process: Process,
        local: tuple[str, int],
        peer: tuple[str, int],
        max_frame_bytes: int,
        max_unsent_bytes: int,
    ) -> None:
        self._fabric = fabric
        self.host = host
        self.process = process
        self._local = local
        self._peer = peer
        self.max_frame_bytes = max_frame_bytes
        self.is_stream = False
        self.standing = Standing.CLIENT
        self.served_bytes = 0
        self.has_room = True
        self.on_drained: Callable[[], None] | None = None
        self._max_unsent_bytes = max_unsent_bytes
        self._handler: FrameHandler | None = None
        self._outgoing: deque[Part] = deque()
        self._unsent_bytes = 0
        self._window_bytes = 0  # sent, and not yet read by the other side
        self._received = bytearray()
        self._end: tuple[Exception | None] | None = None  # the stream's end, when it has come
        self._is_paused = False
        self._is_held = False
        self._is_bad = False
        self._is_closing = False
        self._is_closed = False
        self._has_reported_end = False
        self._delivery_planned = False
        self.is_lost = False
        self.is_giving_up = False
        self.acknowledged = 0
        self.last_arrival_us = 0

    def start(self, handler: FrameHandler) -> None:
        self._handler = handler
        self._wake()

    # The Connection protocol

    @property
    def peer(self) -> tuple[str, int]:
        return self._peer

    @property
    def local(self) -> tuple[str, int]:
        return self._local

    @property
    def unsent_bytes(self) -> int:
        return self._unsent_bytes

    def send(self, parts: Sequence[Part]) -> None:
        if self._is_closed or not self.process.is_alive:
            return
        for part in parts:
            size = len(part)
            if size:
                self._outgoing.append(part)
                self._unsent_bytes += size
        self._pump()

    def pause(self) -> None:
        self._is_paused = True

    def resume(self) -> None:
        if self._is_paused and not self._is_closing and not self._is_closed:
            self._is_paused = False
            self._wake()

    def close(self, *, after_sending: bool = False) -> None:
        if self._is_closed or not self.process.is_alive:
            return
        if self._is_closing:
            if not after_sending:
                self.process.call_soon(self._finish, None)
            return
        self._is_closing = True
        self._is_paused = True
        if not after_sending or not self._outgoing:
            self.process.call_soon(self._finish, None)

    # Sending

    def _pump(self) -> None:
        """Move what fits into the window."""
        if self._is_closed:
            return
        pieces: list[bytes] = []
        room = WINDOW_BYTES - self._window_bytes
        while self._outgoing and room > 0:
            part = self._outgoing.popleft()
            if isinstance(part, FileSlice):
                data = part.read()
                if len(data) < part.size:
                    self._unsent_bytes -= part.size
                    ended = OSError(f"{part.file!r} ended {part.size - len(data)} bytes early")
                    self.process.call_soon(self._finish, ended)
                    return
            else:
                data = bytes(part)
            if len(data) > room:
                self._outgoing.appendleft(memoryview(data)[room:])
                data = data[:room]
            pieces.append(data)
            room -= len(data)
            self._unsent_bytes -= len(data)
        if pieces:
            chunk = b"".join(pieces)
            self._window_bytes += len(chunk)
            self._fabric.transmit(self, chunk)
        if not self._outgoing:
            if self._is_closing:
                self.process.call_soon(self._finish, None)
            if self._is_held:
                self._is_held = False
                self._wake()
            if self.on_drained is not None:
                self.process.call_soon(self.on_drained)

    def report_end(self, error: Exception | None = None) -> None:
        """Let the other side know that nothing more comes."""
        if not self._has_reported_end and not self.is_lost:
            self._has_reported_end = True
            self._fabric.transmit(self, None, error)

    # Receiving

    def arrived(self, data: bytes | None, error: Exception | None) -> None:
        """From the fabric, in no process."""
        self.other.acknowledged += 1
        if data is None:
            self._fabric.note(f"{self.name} end {type(error).__name__}")
            if not self._is_closed and self._end is None:
                self._end = (error,)
                self._wake()
            return
        self._fabric.note(f"{self.name} {checksum(data)}")
        if self._end is not None and not self._is_closed:
            # No system delivers data behind a reset, even if the process has not
            # seen the reset yet.
            self._consumed(len(data))
            return
        if self._is_closed:
            self._consumed(len(data))
            reset = ConnectionResetError(errno.ECONNRESET, "Connection reset by peer")
            self._fabric.loop.call_outside(self._fabric.latency_us(), self.other.reset, reset)
            return
        self._received += data
        self._wake()

    def reset(self, error: Exception) -> None:
        """The connection broke: what was not read is gone."""
        if self._is_closed or self.is_lost:
            return
        self._received.clear()
        self._outgoing.clear()
        self._unsent_bytes = 0
        self._end = (error,)
        self._is_paused = self._is_held = False
        self._has_reported_end = True
        if self._handler is not None:
            self.process.call_soon(self._finish, error)

    def _wake(self) -> None:
        if not self._delivery_planned and self._handler is not None:
            self._delivery_planned = True
            self.process.call_soon(self._deliver)

    def _deliver(self) -> None:
        """Hand on the whole frames; keep the rest."""
        self._delivery_planned = False
        try:
            self._hand_on()
        except BaseException:
            self.close()
            raise

    def _hand_on(self) -> None:
        handler = self._handler
        assert handler is not None
        received = self._received
        position = 0
        if self.is_stream and received and not (self._is_closed or self._is_paused or self._is_held):
            position = len(received)
            handler.frame(memoryview(bytearray(received)))
        together = getattr(handler, "take_frames", None)
        if together is not None and not (self._is_closed or self._is_paused or self._is_held or self._is_bad):
            frames = split_frames(memoryview(bytes(received)), 0, self.max_frame_bytes)
            taken = together(frames) if frames else 0
            position = 4 * taken + sum(map(len, frames[:taken]))
        while (
            not (self._is_closed or self._is_paused or self._is_bad or self.is_stream) and len(received) - position >= 4
        ):
            if self._unsent_bytes > self._max_unsent_bytes:
                self._is_held = True
                break
            (size,) = _LENGTH.unpack_from(received, position)
            if not 0 <= size <= self.max_frame_bytes:
                self._is_bad = self._is_paused = True
                handler.bad_length(bytes(received[position : position + 12]))
                break
            stop = position + 4 + size
            if stop > len(received):
                break
            taken = self._serve_in_place(handler, position)
            if taken > position:
                position = taken
                continue
            frame = memoryview(bytearray(received[position + 4 : stop]))
            position = stop
            handler.frame(frame)
        self._read_up_to(position)
        if self._end is not None and not self._is_closed and not self._is_paused and not self._is_held:
            self._finish(self._end[0])

    def _serve_in_place(self, handler: FrameHandler, position: int) -> int:
        """Where the frames end that the handler serves in the buffer, which is
        overwritten then, as a real one is."""
        take_from = getattr(handler, "take_from", None)
        if take_from is None:
            return position
        data = bytearray(self._received)
        taken: int = take_from(memoryview(data), position)
        at = position
        while at < taken:
            at += 4 + int.from_bytes(self._received[at : at + 4], "big")
            self._fabric.frames_in_place += 1
        data[:] = b"\xee" * len(data)
        return taken

    def _read_up_to(self, position: int) -> None:
        """Free the window.

        A frame that is larger than the window is taken in pieces, into the process's memory."""
        if self._is_closed:
            return
        if position:
            del self._received[:position]
            self._consumed(position)
        elif not self._is_paused and not self._is_held and self.other._window_bytes >= WINDOW_BYTES:
            self._consumed(WINDOW_BYTES // 2)

    def _consumed(self, size: int) -> None:
        other = self.other
        other._window_bytes = max(other._window_bytes - size, 0)
        if other._outgoing and other.process.is_alive:
            other.process.call_soon(other._pump)

    # The end

    def _finish(self, error: Exception | None) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        has_unread = bool(self._received)
        self._forget()
        self.report_end(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer") if has_unread else None)
        if self._handler is not None:
            self._handler.closed(error)

    def die(self) -> None:
        """The process is gone, its system closes the connection."""
        if not self._is_closed:
            self._is_closed = True
            has_unread = bool(self._received)
            self._forget()
            self.report_end(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer") if has_unread else None)

    def vanish(self) -> None:
        """The machine has no power."""
        self._is_closed = True
        self.is_lost = True
        self._forget()

    def _forget(self) -> None:
        self._outgoing.clear()
        self._unsent_bytes = 0
        self._received = bytearray()
        self.host.endpoints.pop(self, None)

    def __repr__(self) -> str:
        return f"_Endpoint({self.name} {self._local} to {self._peer})"
