"""The client's session without a socket: against a list of frames, and against the server's
processor in one process."""

import random
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.base.tasks import Runner
from barnabas.coordination.client.operations import (
    Operation,
    WatchEvent,
    create,
    delete,
    exists,
    get,
    remove_watches,
    set_data,
)
from barnabas.coordination.client.session import (
    SESSION_TRANSITIONS,
    ClientSession,
    Connect,
    Disconnect,
    SessionEffect,
    SessionEvent,
    State,
    Wake,
)
from barnabas.coordination.core.connections import Limits, ServerConnection
from barnabas.coordination.core.database import Database
from barnabas.coordination.core.processor import Processor
from barnabas.coordination.core.sessions import SessionTracker
from barnabas.wire.jute.codec import MalformedRecordError, decode, decode_from
from barnabas.wire.jute.errors import ErrorCode, KeeperError
from barnabas.wire.jute.frames import (
    decode_connect_request,
    encode_connect_response,
    encode_event,
    encode_reply,
)
from barnabas.wire.jute.opcodes import CreateMode, EventType, KeeperState, OpCode, WatcherType, Xid
from barnabas.wire.jute.records import ConnectRequest, ConnectResponse, RequestHeader, SetWatches, WatcherEvent
from support.broker import ManualClock, ManualTimers
from support.coordination_processor import whole_frames
from support.slicing import thread_at_once

SERVERS = [("a", 1), ("b", 2), ("c", 3)]
TIMEOUT_MS = 6000


class Scene:
    """A session, a clock that stands still until it is moved, and what came out."""

    def __init__(self, servers: list[tuple[str, int]] | None = None, timeout_ms: int = TIMEOUT_MS) -> None:
        self.now_ms = 1_000_000
        self.events: list[SessionEvent] = []
        self.session = ClientSession(servers or SERVERS, "", timeout_ms, self.events.append)
        self.wake_ms: int | None = None

    def effects(self) -> list[SessionEffect]:
        """What is to be done now, without the timer."""
        found = self.session.take_effects()
        for effect in found:
            if isinstance(effect, Wake):
                self.wake_ms = effect.at_ms
        return [effect for effect in found if not isinstance(effect, Wake)]

    def frames(self) -> list[bytes]:
        return [bytes(frame)[4:] for frame in self.session.frames_to_send(self.now_ms)]  # type: ignore[arg-type]

    def wake(self) -> None:
        """Let the time pass until the session wants to be woken."""
        self.effects()
        assert self.wake_ms is not None
        self.now_ms, self.wake_ms = max(self.now_ms, self.wake_ms), None
        self.session.tick(self.now_ms)

    def open(self) -> ConnectRequest:
        """Open the connection that the session asks for."""
        assert isinstance(self.effects()[-1], Connect)
        self.session.connection_opened(self.now_ms)
        (frame,) = self.frames()
        return decode_connect_request(frame)[0]

    def accept(self, session_id: int = 7, timeout_ms: int = TIMEOUT_MS) -> None:
        response = ConnectResponse(0, timeout_ms, session_id, b"p" * 16)
        self.session.receive(bytes(encode_connect_response(response))[4:], self.now_ms)

    def connect(self, session_id: int = 7) -> ConnectRequest:
        request = self.open()
        self.accept(session_id)
        return request

    def lose(self) -> None:
        self.session.connection_lost(self.now_ms)

    def submit(self, operation: Operation) -> list[Any]:
        """The list gets the result, or the error."""
        outcome: list[Any] = []
        operation.finished = lambda result, error: outcome.append(result if error is None else error)
        self.session.submit(operation)
        return outcome

    def reply(self, xid: int, zxid: int = 1, err: int = 0, body: Any = None) -> None:
        self.session.receive(bytes(encode_reply(xid, zxid, err, body))[4:], self.now_ms)

    def event(self, kind: EventType, path: str) -> None:
        event = WatcherEvent(kind, KeeperState.SYNC_CONNECTED, path)
        self.session.receive(bytes(encode_event(event))[4:], self.now_ms)


def started(servers: list[tuple[str, int]] | None = None) -> Scene:
    scene = Scene(servers)
    scene.session.start()
    return scene


def header(frame: bytes) -> RequestHeader:
    return decode_from(RequestHeader, frame)[0]


def codes(outcomes: list[Any]) -> list[ErrorCode]:
    return [outcome.code for outcome in outcomes if isinstance(outcome, KeeperError)]


# States


def test_every_state_but_the_last_has_a_way_to_the_last() -> None:
    """CLOSED is reachable from everywhere, and nothing leaves it."""
    assert not [state for state, _ in SESSION_TRANSITIONS if state is State.CLOSED]
    for state in State:
        reached = {state}
        while more := {to for (came, _), to in SESSION_TRANSITIONS.items() if came in reached} - reached:
            reached |= more
        assert State.CLOSED in reached


def test_a_session_comes_to_its_server_in_three_steps() -> None:
    """Open a connection, send the connect request, receive the session."""
    scene = Scene()
    states = [scene.session.state]
    scene.session.start()
    states.append(scene.session.state)
    request = scene.open()
    states.append(scene.session.state)
    scene.accept(9, 4000)
    states.append(scene.session.state)
    assert states == [State.NOT_CONNECTED, State.CONNECTING, State.ASSOCIATING, State.CONNECTED]
    assert (request.session_id, request.password, request.timeout_ms) == (0, bytes(16), TIMEOUT_MS)
    assert (scene.session.id, scene.session.timeout_ms, scene.events) == (9, 4000, [SessionEvent.CREATED])


def test_an_input_that_has_no_arrow_from_the_state_is_an_error_of_the_caller() -> None:
    """The table is complete: what is not in it cannot happen."""
    with pytest.raises(KeyError):
        Scene().session.connection_opened(0)


# Several servers


def test_all_servers_are_tried_in_turn_before_there_is_a_pause() -> None:
    """The pauses double up to one second."""
    scene = started()
    pauses = []
    for _ in range(8):
        for host, port in SERVERS:
            (effect,) = scene.effects()
            assert isinstance(effect, Connect)
            assert (effect.host, effect.port) == (host, port)
            scene.lose()
        before_ms = scene.now_ms
        scene.wake()
        pauses.append(scene.now_ms - before_ms)
    assert pauses == [20, 40, 80, 160, 320, 640, 1000, 1000]


def test_the_time_for_one_server_is_its_share_of_the_session_timeout() -> None:
    """So that all servers can be tried before the session expires; never less than
    half a second."""
    (effect,) = started().effects()
    assert effect == Connect("a", 1, TIMEOUT_MS // 3)
    scene = Scene(SERVERS, 900)
    scene.session.start()
    assert scene.effects() == [Connect("a", 1, 500)]


def test_a_server_that_does_not_answer_the_connect_request_is_left_for_the_next() -> None:
    """A process that is stopped accepts connections and says nothing."""
    scene = started()
    scene.open()
    scene.wake()
    assert scene.effects() == [Disconnect(), Connect("b", 2, TIMEOUT_MS // 3)]
    assert scene.events == []


def test_the_session_moves_to_another_server_with_its_id_password_and_last_zxid() -> None:
    """That server sees whether it is behind the client."""
    scene = started()
    scene.connect(7)
    scene.submit(create("/a"))
    scene.frames()
    scene.reply(1, zxid=42, err=ErrorCode.NODE_EXISTS)
    scene.lose()
    request = scene.connect(7)
    assert (request.session_id, request.password, request.last_zxid_seen) == (7, b"p" * 16, 42)
    assert scene.events == [SessionEvent.CREATED, SessionEvent.DISCONNECTED, SessionEvent.REATTACHED]


def test_a_server_that_refuses_the_session_for_being_behind_costs_no_session() -> None:
    """It closes the connection; the next server is tried with the same session."""
    scene = started()
    scene.connect(7)
    scene.lose()
    scene.open()
    scene.lose()
    assert scene.connect(7).session_id == 7
    assert scene.events == [SessionEvent.CREATED, SessionEvent.DISCONNECTED, SessionEvent.REATTACHED]


# What a lost connection means for operations


def test_reads_are_sent_again_and_writes_fail_where_the_connection_is_lost() -> None:
    """What was not sent waits; the order stays."""
    scene = started()
    scene.connect()
    first, write, second = scene.submit(get("/1")), scene.submit(create("/2")), scene.submit(get("/3"))
    assert [header(frame).type for frame in scene.frames()] == [OpCode.GET_DATA, OpCode.CREATE2, OpCode.GET_DATA]
    unsent = scene.submit(delete("/4"))
    scene.lose()
    assert codes(write) == [ErrorCode.CONNECTION_LOSS]
    assert (first, second, unsent) == ([], [], [])
    scene.connect()
    assert [header(frame).type for frame in scene.frames()] == [OpCode.GET_DATA, OpCode.GET_DATA, OpCode.DELETE]


def test_a_submitted_operation_waits_for_the_connection() -> None:
    """Nothing but the connect request leaves before the session is granted."""
    scene = started()
    scene.submit(get("/a"))
    scene.open()
    assert not scene.session.wants_to_send
    assert scene.frames() == []
    scene.accept()
    assert [header(frame).type for frame in scene.frames()] == [OpCode.GET_DATA]


def test_no_more_than_a_thousand_requests_are_in_flight() -> None:
    """ZooKeeper's limit of outstanding requests; each reply lets one more go."""
    scene = started()
    scene.connect()
    for _ in range(1500):
        scene.submit(exists("/a"))
    assert len(scene.frames()) == 1000
    assert not scene.session.wants_to_send
    scene.reply(1, err=ErrorCode.NO_NODE)
    assert len(scene.frames()) == 1


@pytest.mark.parametrize("frame", [b"", b"\0" * 3, b"\0\0\0\5" + bytes(12)], ids=["empty", "short", "wrong xid"])
def test_a_frame_that_makes_no_sense_raises_and_the_session_goes_on_elsewhere(frame: bytes) -> None:
    """The connection is closed by the caller; the session is not lost."""
    scene = started()
    scene.connect()
    scene.submit(get("/a"))
    scene.frames()
    with pytest.raises(MalformedRecordError):
        scene.session.receive(frame, scene.now_ms)
    scene.lose()
    assert scene.connect().session_id == 7


# Expiry


def test_an_expired_session_fails_all_operations_and_begins_a_new_one_without_watches() -> None:
    """Sent or not, reads or writes; watches belong to the expired session."""
    scene = started()
    scene.connect(7)
    fired: list[WatchEvent] = []
    scene.submit(exists("/w", fired.append))
    scene.frames()
    scene.reply(1, err=ErrorCode.NO_NODE)
    scene.lose()
    outcomes = [scene.submit(get("/a")), scene.submit(create("/b"))]
    scene.open()
    scene.accept(0, timeout_ms=0)
    assert [codes(outcome) for outcome in outcomes] == [[ErrorCode.SESSION_EXPIRED]] * 2
    assert scene.session.past_ids == {7}
    assert scene.effects()[0] == Disconnect()
    scene.session.connection_opened(scene.now_ms)
    scene.frames()
    scene.accept(8)
    assert scene.frames() == []
    assert scene.events[-2:] == [SessionEvent.EXPIRED, SessionEvent.CREATED]
    assert fired == []


# Watches and identities


def test_watches_are_registered_again_where_they_were_with_the_last_zxid() -> None:
    """By data, by existence, by children; identities come before them, operations after."""
    scene = started()
    scene.session.add_auth("digest", b"u:p")
    scene.connect()
    assert [header(frame).xid for frame in scene.frames()] == [Xid.AUTH]
    scene.submit(exists("/absent", lambda _: None))
    scene.frames()
    scene.reply(1, zxid=55, err=ErrorCode.NO_NODE)
    scene.lose()
    scene.connect()
    scene.submit(get("/a"))
    auth, watches, read = scene.frames()
    assert [header(frame).type for frame in (auth, watches, read)] == [OpCode.AUTH, OpCode.SET_WATCHES, OpCode.GET_DATA]
    record = decode(SetWatches, watches, 8)
    assert (record.relative_zxid, record.data_watches, record.exist_watches, record.child_watches) == (
        55,
        [],
        ["/absent"],
        [],
    )


def test_many_watches_are_registered_in_requests_of_bounded_size() -> None:
    """A server refuses a frame above jute.maxbuffer (1 MiB)."""
    scene = started()
    scene.connect()
    paths = [f"/{'x' * 100}{number}" for number in range(20_000)]
    for path in paths:
        scene.submit(exists(path, lambda _: None))
    xid = 0
    while frames := scene.frames():
        for _ in frames:
            xid += 1
            scene.reply(xid, err=ErrorCode.NO_NODE)
    scene.lose()
    scene.connect()
    frames = scene.frames()
    assert len(frames) > 10
    assert max(map(len, frames)) < 256 * 1024
    assert [path for frame in frames for path in decode(SetWatches, frame, 8).exist_watches] == paths


def test_a_watch_fires_once_for_each_callback() -> None:
    """A callback that was registered twice is called once; a second event calls none."""
    scene = started()
    scene.connect()
    fired: list[WatchEvent] = []
    for xid in (1, 2):
        scene.submit(exists("/a", fired.append))
        scene.frames()
        scene.reply(xid, err=ErrorCode.NO_NODE)
    scene.event(EventType.NODE_CREATED, "/a")
    scene.event(EventType.NODE_DATA_CHANGED, "/a")
    assert fired == [WatchEvent(EventType.NODE_CREATED, "/a")]


def test_watches_are_removed_without_a_connection_if_that_is_wanted() -> None:
    """They neither fire nor are registered again; those of another kind, or on
    another node, are."""
    scene = started()
    scene.connect()
    for xid, path in ((1, "/a"), (2, "/b")):
        scene.submit(exists(path, lambda _: None))
        scene.frames()
        scene.reply(xid, err=ErrorCode.NO_NODE)
    scene.lose()
    scene.submit(remove_watches("/a", WatcherType.DATA, locally=True))
    scene.submit(remove_watches("/b", WatcherType.CHILDREN, locally=True))
    scene.connect()
    (watches,) = scene.frames()
    assert decode(SetWatches, watches, 8).exist_watches == ["/b"]


def test_a_refused_identity_fails_all_requests_and_ends_the_session() -> None:
    """What waits and what comes fails with AUTH_FAILED, and no other connection is made, as
    any server would refuse it."""
    scene = started()
    scene.connect()
    scene.session.add_auth("digest", b"bad")
    waiting = scene.submit(get("/a"))
    scene.frames()
    scene.effects()
    scene.reply(Xid.AUTH, err=ErrorCode.AUTH_FAILED)
    outcomes = waiting + scene.submit(get("/b"))
    assert scene.events == [SessionEvent.CREATED, SessionEvent.AUTH_FAILED]
    assert codes(outcomes) == [ErrorCode.AUTH_FAILED] * 2
    assert scene.effects() == [Disconnect()]
    scene.lose()
    scene.session.close(scene.now_ms)
    assert scene.effects() == []
    assert scene.session.state is State.CLOSED


# Time


def test_a_ping_leaves_after_a_third_of_the_timeout_without_a_frame() -> None:
    """And none where operations keep the session alive."""
    scene = started()
    scene.connect()
    sent = []
    for _ in range(4):
        scene.wake()
        sent += [header(frame).type for frame in scene.frames()]
        scene.reply(Xid.PING)
    assert sent == [OpCode.PING] * 2
    for _ in range(4):
        scene.wake()
        scene.submit(get("/a"))
        assert OpCode.PING not in [header(frame).type for frame in scene.frames()]


def test_a_server_that_is_silent_for_two_thirds_of_the_timeout_is_left() -> None:
    """A third remains to find another server before the session expires."""
    scene = started()
    scene.connect()
    since_ms = scene.now_ms
    while scene.session.state is State.CONNECTED:
        scene.frames()
        scene.wake()
    assert TIMEOUT_MS * 2 // 3 < scene.now_ms - since_ms <= TIMEOUT_MS * 5 // 6
    assert scene.effects() == [Disconnect(), Connect("b", 2, TIMEOUT_MS // 3)]
    assert scene.events[-1] is SessionEvent.DISCONNECTED


def test_a_tick_before_its_time_changes_nothing() -> None:
    """Timers may fire early."""
    scene = started()
    scene.connect()
    scene.session.tick(scene.now_ms)
    assert not scene.session.wants_to_send
    assert scene.effects() == []


# Closing


def test_closing_sends_what_waits_and_then_closes_the_session() -> None:
    """The connection is closed when the server has answered; later operations fail."""
    scene = started()
    scene.connect()
    outcome = scene.submit(create("/a"))
    scene.session.close(scene.now_ms)
    assert codes(scene.submit(get("/b"))) == [ErrorCode.SESSION_EXPIRED]
    assert [header(frame).type for frame in scene.frames()] == [OpCode.CREATE2, OpCode.CLOSE_SESSION]
    scene.reply(1, err=ErrorCode.NODE_EXISTS)
    assert scene.session.state is State.CLOSING
    scene.reply(2)
    assert scene.session.state is State.CLOSED
    assert scene.effects() == [Disconnect()]
    assert codes(outcome) == [ErrorCode.NODE_EXISTS]


@pytest.mark.parametrize("cause", ["lost", "silent"])
def test_closing_ends_without_the_server_too(cause: str) -> None:
    """A lost connection ends it, and so do two seconds without an answer."""
    scene = started()
    scene.connect()
    outcome = scene.submit(create("/a"))
    scene.session.close(scene.now_ms)
    scene.frames()
    scene.lose() if cause == "lost" else scene.wake()
    assert scene.session.state is State.CLOSED
    assert codes(outcome) == [ErrorCode.SESSION_EXPIRED]
    assert not [effect for effect in scene.effects() if isinstance(effect, Connect)]


@pytest.mark.parametrize("steps", range(3))
def test_a_session_that_is_not_connected_closes_at_once(steps: int) -> None:
    """Before its start, while it connects, and while it waits for the server's answer."""
    scene = Scene()
    if steps:
        scene.session.start()
    if steps == 2:
        scene.open()
    outcome = scene.submit(get("/a"))
    scene.session.close(scene.now_ms)
    assert scene.session.state is State.CLOSED
    assert codes(outcome) == [ErrorCode.SESSION_EXPIRED]
    assert (Disconnect() in scene.effects()) == bool(steps)


def test_a_listener_may_close_the_session_when_it_expires() -> None:
    """No attempt follows."""
    scene = Scene()
    session = scene.session = ClientSession(SERVERS, "", TIMEOUT_MS, lambda _: session.close(scene.now_ms))
    session.start()
    scene.open()
    scene.accept(0, timeout_ms=0)
    assert session.state is State.CLOSED
    assert not [effect for effect in scene.effects() if isinstance(effect, Connect)]


# Back to back with the server


class Wire:
    """The server's side of one connection: frames to the client wait here until they
    are delivered."""

    def __init__(self) -> None:
        self.to_client: deque[bytes] = deque()
        self.is_closed = False
        self.has_room = True

    def send(self, frames: bytes | bytearray) -> None:
        self.to_client += whole_frames(frames)

    def hold(self) -> None: ...

    def release(self) -> None: ...

    def close(self) -> None:
        self.is_closed = True


class BackToBack(Scene):
    """The session and our server's processor, with a connection that can break at any frame."""

    def __init__(self) -> None:
        super().__init__([("only", 1)])
        tracker = SessionTracker(100, 0, self.now_ms)
        limits = Limits(min_session_timeout_ms=100, max_session_timeout_ms=60_000)
        timers = ManualTimers(ManualClock())
        self.processor = Processor(
            Database(), tracker, limits, self.now_ms, runner=Runner(timers.clock, timers, thread_at_once)
        )
        self.wire: Wire | None = None
        self.client: ServerConnection | None = None
        self.session.start()

    def step(self) -> bool:
        """Perform what the session wants and deliver one frame.

        False when nothing is left to do."""
        for effect in self.effects():
            if isinstance(effect, Connect):
                self.wire = Wire()
                self.client = ServerConnection(self.wire, "client", 1, self.now_ms)
                self.session.connection_opened(self.now_ms)
            else:
                self.cut(inform=False)
        if self.wire is None or self.client is None:
            if self.session.state is State.NOT_CONNECTED:
                self.wake()
                return True
            return False
        for frame in self.frames():
            self.processor.receive(self.client, frame, self.now_ms, self.now_ms)
        self.processor.unlogged.clear()
        self.processor.commit(self.processor.outstanding, self.now_ms)
        if self.wire.to_client:
            self.session.receive(self.wire.to_client.popleft(), self.now_ms)
        elif self.wire.is_closed:
            self.cut()
        else:
            return self.session.wants_to_send or self.session.has_effects
        return True

    def cut(self, *, inform: bool = True) -> None:
        """Break the connection, with what is under way in both directions."""
        client, self.client, self.wire = self.client, None, None
        if client is not None:
            self.processor.disconnected(client)
            if inform:
                self.lose()

    def settle(self, done: Callable[[], object] = lambda: False) -> None:
        while not done() and self.step():
            pass


@given(seed=st.integers(0, 1 << 32), cuts=st.lists(st.integers(0, 12), max_size=8))
@settings(max_examples=60, deadline=None)
def test_counted_writes_and_reads_survive_any_pattern_of_broken_connections(seed: int, cuts: list[int]) -> None:
    """A conditional write that is repeated after CONNECTION_LOSS happens exactly once, and
    every operation finishes."""
    rng = random.Random(seed)
    scene = BackToBack()
    made = scene.submit(create("/n", b""))
    scene.settle(lambda: made)
    pattern = deque(cuts)
    for version in range(12):
        outcome: list[Any] = []
        while not outcome or codes(outcome) == [ErrorCode.CONNECTION_LOSS]:
            outcome = scene.submit(set_data("/n", b"", version))
            steps = pattern.popleft() if pattern else 1 << 30
            while not outcome and steps:
                scene.step()
                steps -= 1
            if not steps:
                scene.cut()
            scene.settle(lambda outcome=outcome: outcome)
        assert not codes(outcome) or codes(outcome) == [ErrorCode.BAD_VERSION]
        if rng.random() < 0.5:
            read = scene.submit(get("/n"))
            scene.settle(lambda read=read: read)
            assert read[0][1].version == version + 1
    assert SessionEvent.EXPIRED not in scene.events


def test_a_change_during_a_broken_connection_fires_the_watch_after_it() -> None:
    """The server compares the watch's zxid with the node's."""
    scene = BackToBack()
    fired: list[WatchEvent] = []
    made = scene.submit(create("/n", b"", CreateMode.PERSISTENT))
    scene.submit(get("/n", fired.append))
    scene.settle(lambda: made and not scene.session.wants_to_send and not (scene.wire and scene.wire.to_client))
    scene.cut()
    other = BackToBack()
    other.processor = scene.processor
    changed = other.submit(set_data("/n", b"x"))
    other.settle(lambda: changed)
    assert fired == []
    scene.settle(lambda: fired)
    assert fired == [WatchEvent(EventType.NODE_DATA_CHANGED, "/n")]
