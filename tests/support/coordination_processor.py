"""A processor without files and sockets: clients that send it requests, and the log
that an edge would write."""

from collections.abc import Callable

from barnabas.base.tasks import Runner
from barnabas.coordination.core.connections import Auditor, Forwarder, Limits, ServerConnection
from barnabas.coordination.core.database import Database
from barnabas.coordination.core.processor import Processor
from barnabas.coordination.core.sessions import SessionTracker
from barnabas.coordination.zab.member_log import ReadOnlyForwarder
from barnabas.wire.jute.codec import decode
from barnabas.wire.jute.frames import (
    decode_connect_response,
    decode_reply_header,
    encode_connect_request,
    encode_multi_request,
    encode_request,
)
from barnabas.wire.jute.opcodes import EventType, OpCode, Xid
from barnabas.wire.jute.records import ConnectRequest, ConnectResponse, WatcherEvent
from barnabas.wire.jute.transactions import decode_transaction
from support.broker import ManualClock, ManualTimers
from support.slicing import thread_at_once

TICK_MS = 1000


def whole_frames(data: bytes | bytearray) -> list[bytes]:
    """The frames in what a server sends in one piece, without their lengths."""
    found, at = [], 0
    while at < len(data):
        end = at + 4 + int.from_bytes(data[at : at + 4], "big")
        found.append(bytes(data[at + 4 : end]))
        at = end
    return found


class Recorder:
    """A transport that keeps what is sent."""

    def __init__(self) -> None:
        self.frames: list[bytes] = []
        self.holds = 0
        self.is_closed = False

    def send(self, frames: bytes | bytearray) -> None:
        self.frames += whole_frames(frames)

    has_room = True

    @property
    def takes_requests(self) -> bool:
        return not self.holds and not self.is_closed

    def hold(self) -> None:
        self.holds += 1

    def release(self) -> None:
        self.holds -= 1

    def close(self) -> None:
        self.is_closed = True


class Client:
    """A client's side of a connection to a `Harness`."""

    def __init__(
        self,
        harness: "Harness",
        *,
        session_id: int = 0,
        password: bytes = b"",
        last_zxid: int = 0,
        read_only: bool = False,
    ) -> None:
        self.harness = harness
        self.recorder = Recorder()
        self.connection = ServerConnection(self.recorder, "127.0.0.1", 5000, harness.now_ms)
        self.xid = 0
        request = ConnectRequest(0, last_zxid, 10_000, session_id, password)
        self.receive(bytes(encode_connect_request(request, read_only))[4:])

    def receive(self, data: bytes) -> None:
        self.harness.processor.receive(self.connection, data, self.harness.now_ms, self.harness.wall_ms)

    def send(self, opcode: int, body: object = None) -> int:
        self.xid += 1
        if opcode in (OpCode.MULTI, OpCode.MULTI_READ):
            frame = encode_multi_request(self.xid, body, opcode)
        else:
            frame = encode_request(self.xid, opcode, body)
        self.receive(bytes(frame)[4:])
        return self.xid

    def take(self) -> list[tuple[int, int, bytes]]:
        """What came since the last time: xid, err, body."""
        frames, self.recorder.frames = self.recorder.frames, []
        headers = [decode_reply_header(frame) for frame in frames]
        return [(xid, err, frame[16:]) for (xid, _, err), frame in zip(headers, frames, strict=True)]

    def connected(self) -> ConnectResponse:
        return decode_connect_response(self.recorder.frames.pop(0))[0]

    def call(self, opcode: int, body: object = None) -> tuple[int, bytes]:
        """One request, committed; its error and body."""
        xid = self.send(opcode, body)
        self.harness.sync()
        while self.recorder.holds and self.harness.timers.pending:
            self.harness.timers.advance(0)
        ((got, err, data),) = [reply for reply in self.take() if reply[0] != Xid.WATCHER_EVENT]
        assert got == xid
        return err, data

    def events(self) -> list[tuple[EventType, str]]:
        events = [decode(WatcherEvent, body) for xid, _, body in self.take() if xid == Xid.WATCHER_EVENT]
        return [(EventType(event.type), event.path) for event in events]


class ShortSlices(ManualClock):
    """Slices that are over with their first step."""

    def time_slice(self) -> Callable[[], bool]:
        return lambda: True


class Harness:
    """A processor, its clock, and the log that an edge would write."""

    def __init__(
        self,
        database: Database | None = None,
        *,
        read_only: bool = False,
        forwarder: Forwarder | None = None,
        **limits: int | Auditor,
    ) -> None:
        self.now_ms = 1_000_000
        self.wall_ms = 1_700_000_000_000
        self.log: list[bytes] = []
        tracker = SessionTracker(TICK_MS, 1 << 56, self.now_ms)
        both = Limits(min_session_timeout_ms=2000, max_session_timeout_ms=20_000, **limits)
        if read_only:
            forwarder = ReadOnlyForwarder()
        self.timers = ManualTimers(ShortSlices())
        runner = Runner(self.timers.clock, self.timers, thread_at_once)
        self.processor = Processor(database or Database(), tracker, both, self.now_ms, forwarder, runner=runner)

    def run_slices(self) -> int:
        """Run what has its turn later until nothing has; how many turns there were."""
        turns = 0
        while self.timers.pending:
            self.timers.advance(0)
            turns += 1
        return turns

    def sync(self, count: int | None = None) -> None:
        """Log what is decided and commit it (or the first ``count``)."""
        self.log += map(bytes, self.processor.unlogged)
        self.processor.unlogged.clear()
        self.processor.commit(self.processor.outstanding if count is None else count, self.now_ms)

    def connect(self) -> Client:
        client = Client(self)
        self.sync()
        client.response = client.connected()
        return client

    def advance(self, by_ms: int) -> None:
        self.now_ms += by_ms
        self.wall_ms += by_ms
        self.processor.expirations.tick(self.now_ms)
        self.end_due()
        self.sync()

    def end_due(self) -> None:
        """Propose the ends of what is due."""
        while self.processor.propose_due(self.now_ms, self.wall_ms):
            pass

    def replayed(self) -> Database:
        database = Database()
        for entry in self.log:
            database.apply(*decode_transaction(entry))
        return database
