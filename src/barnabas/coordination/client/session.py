"""A client's session without its I/O: frames and the time in; frames, effects and completions out.

This is what ZooKeeper's ClientCnxn decides. `barnabas.coordination.client.connection` owns
the socket and the timer: it calls the inputs below (`start`, `connection_opened`, `receive`,
`connection_lost`, `tick`, `submit`, `close`), then performs `take_effects` and sends
`frames_to_send`. States and their changes stand in `SESSION_TRANSITIONS`; the names are those
of ZooKeeper.States.

Requests are pipelined: each is sent at once, and replies come in the order of the requests.
When a connection is lost,

- a request that was not sent waits for the next connection;
- a read that was sent is sent again, unless the server violated the protocol: then it
  fails with MARSHALLING_ERROR;
- a write that was sent fails with CONNECTION_LOSS, because it is unknown whether it happened.

The servers of the connect string are tried in turn. A connection to any of them carries on the same
session as long as one of them receives something from the client within the timeout: the client
presents the session's id, its password and the last zxid that it has seen (a server that is behind
refuses it), repeats its identities, and registers its watches again. When a server answers that the
session has expired, all waiting operations fail with SESSION_EXPIRED, the watches are dropped, and
a new session begins with the next connection. When a server refuses an identity, the session is at
its end: all operations fail with AUTH_FAILED.

With SASL each connection begins with an authentication: operations wait for its end, auth packets
and watches do not (ZooKeeper's ZooKeeperSaslClient). Its failure is the session's end, as that of
an auth packet, and so is a server that does not know SASL: the owner has asked for an identity.

Invariants: at most one connection; operations finish exactly once; in `_in_flight` are the
operations that were sent on the present connection, in the order of their xids; session events,
watch events and completions are delivered in the order in which the server sent them.
"""

import logging
import struct
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Protocol

from barnabas.base.network import Part
from barnabas.coordination.client.operations import Operation
from barnabas.coordination.client.watches import ClientWatches
from barnabas.security.errors import SaslError
from barnabas.wire.jute.codec import MalformedRecordError, decode
from barnabas.wire.jute.errors import ErrorCode, KeeperError, error_code
from barnabas.wire.jute.frames import (
    REPLY_HEADER_BYTES,
    decode_connect_response,
    decode_reply_header,
    encode_connect_request,
    encode_request,
)
from barnabas.wire.jute.opcodes import OpCode, Xid
from barnabas.wire.jute.records import (
    AuthPacket,
    ConnectRequest,
    GetSASLRequest,
    SetSASLResponse,
    WatcherEvent,
)

__all__ = [
    "SESSION_TRANSITIONS",
    "ClientSession",
    "Connect",
    "Disconnect",
    "Input",
    "SaslClient",
    "SessionEffect",
    "SessionEvent",
    "State",
    "Wake",
]

logger = logging.getLogger(__name__)

_MAX_IN_FLIGHT = 1000  # ZooKeeper's own limit of outstanding requests
_BACKOFF_FIRST_MS = 20
_BACKOFF_MAX_MS = 1000
_MIN_CONNECT_TIMEOUT_MS = 500
_CLOSE_TIMEOUT_MS = 2000
_NO_PASSWORD = bytes(16)


class State(Enum):
    """Where a session stands; `SESSION_TRANSITIONS` has the arrows."""

    NOT_CONNECTED = auto()
    """No connection: not started yet, or waiting before the next attempt."""
    CONNECTING = auto()
    """A connection to one of the servers is being opened."""
    ASSOCIATING = auto()
    """The connection is open, and the server has not answered the connect request yet."""
    CONNECTED = auto()
    """The server serves the session."""
    CLOSING = auto()
    """closeSession is on its way."""
    CLOSED = auto()
    """The end: nothing more is sent."""
    AUTH_FAILED = auto()
    """The end as well: a server refused one of the identities, as every server would."""


class Input(Enum):
    """What changes the state."""

    ATTEMPT = auto()
    """Started, or the pause between two attempts is over."""
    OPENED = auto()
    """The connection is open."""
    ACCEPTED = auto()
    """The server has granted the session."""
    EXPIRED = auto()
    """The server does not know the session any more."""
    LOST = auto()
    """The connection could not be opened, was lost, or was silent for too long."""
    CLOSE = auto()
    """The owner ends the session."""
    CLOSE_DONE = auto()
    """The server has closed the session, or did not do so in time."""
    REFUSED = auto()
    """The server has refused an identity; it closes the connection."""


SESSION_TRANSITIONS: dict[tuple[State, Input], State] = {
    (State.NOT_CONNECTED, Input.ATTEMPT): State.CONNECTING,
    (State.CONNECTING, Input.OPENED): State.ASSOCIATING,
    (State.CONNECTING, Input.LOST): State.NOT_CONNECTED,
    (State.ASSOCIATING, Input.ACCEPTED): State.CONNECTED,
    (State.ASSOCIATING, Input.EXPIRED): State.NOT_CONNECTED,
    (State.ASSOCIATING, Input.LOST): State.NOT_CONNECTED,
    (State.CONNECTED, Input.LOST): State.NOT_CONNECTED,
    (State.CONNECTED, Input.CLOSE): State.CLOSING,
    (State.NOT_CONNECTED, Input.CLOSE): State.CLOSED,
    (State.CONNECTING, Input.CLOSE): State.CLOSED,
    (State.ASSOCIATING, Input.CLOSE): State.CLOSED,
    (State.CLOSING, Input.LOST): State.CLOSED,
    (State.CLOSING, Input.CLOSE_DONE): State.CLOSED,
    (State.CONNECTED, Input.REFUSED): State.AUTH_FAILED,
    (State.AUTH_FAILED, Input.CLOSE): State.CLOSED,
}
"""Every change of the state; an input that has no arrow from a state is a defect of the caller."""


class SessionEvent(Enum):
    """What a session reports to its listeners."""

    CREATED = "created"
    REATTACHED = "reattached"
    DISCONNECTED = "disconnected"
    EXPIRED = "expired"
    SASL_AUTHENTICATED = "sasl authenticated"
    AUTH_FAILED = "auth failed"


class SaslClient(Protocol):
    """The client's side of the SASL authentication of one connection, begun by the
    server's first message."""

    @property
    def is_complete(self) -> bool:
        """Whether both sides have proven who they are."""

    def evaluate(self, token: bytes) -> bytes | None:
        """The answer to the server's message, None for none. Raises `SaslError`."""


@dataclass(frozen=True, slots=True)
class Connect:
    """Open a connection; `ClientSession.connection_opened` or
    `ClientSession.connection_lost` follows."""

    host: str
    port: int
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Close the connection, or give up opening it. No answer is expected."""


@dataclass(frozen=True, slots=True)
class Wake:
    """Call `ClientSession.tick` at this time; replaces the `Wake` before."""

    at_ms: int


SessionEffect = Connect | Disconnect | Wake


class ClientSession:
    """One session with the servers of a connect string, in the order given.

    ``notify`` is called at every `SessionEvent`. Times are milliseconds of a clock
    that never goes back.
    """

    def __init__(
        self,
        servers: Sequence[tuple[str, int]],
        chroot: str,
        session_timeout_ms: int,
        notify: Callable[[SessionEvent], None],
        new_sasl_client: Callable[[], SaslClient] | None = None,
    ) -> None:
        self.state = State.NOT_CONNECTED
        self.id = 0
        self.password: bytes | None = _NO_PASSWORD
        self.timeout_ms = session_timeout_ms
        self.past_ids: set[int] = set()
        """Ids of this client's expired sessions."""
        self.last_zxid = 0
        self.refusal = ""
        """Why a server refused an identity; "" when none did."""
        self.servers = list(servers)
        self._next_server = 0
        self._wanted_timeout_ms = session_timeout_ms
        self._connect_timeout_ms = max(_MIN_CONNECT_TIMEOUT_MS, session_timeout_ms // len(self.servers))
        self.chroot = chroot
        self._notify = notify
        self._effects: list[SessionEffect] = []
        self._control: list[Part] = []
        self._queue: deque[Operation] = deque()
        self._in_flight: deque[Operation] = deque()
        self._watches = ClientWatches(chroot)
        self._auth: list[tuple[str, bytes]] = []
        self._new_sasl_client = new_sasl_client
        self._sasl: SaslClient | None = None
        """The authentication that is under way on this connection."""
        self._xid = 0
        self._backoff_ms = _BACKOFF_FIRST_MS
        self._deadline_ms = 0
        self._received_ms = 0
        self._sent_ms = 0

    # For the owner

    @property
    def is_connected(self) -> bool:
        return self.state is State.CONNECTED or self.state is State.CLOSING

    def start(self) -> None:
        """Begin to connect."""
        self._attempt()

    def submit(self, operation: Operation) -> None:
        """Queue an operation; its ``finished`` is called with the result or a `KeeperError`."""
        if self.state is State.CLOSING or self.state is State.CLOSED:
            operation.finished(None, KeeperError(ErrorCode.SESSION_EXPIRED, operation.path))
        elif self.state is State.AUTH_FAILED:
            operation.finished(None, KeeperError(ErrorCode.AUTH_FAILED, operation.path))
        elif operation.is_local and not self.is_connected:
            self._watches.end(operation)
            operation.finished(None, None)
        else:
            self._queue.append(operation)

    def add_auth(self, scheme: str, auth: bytes) -> None:
        """Add an identity to this connection and all later ones."""
        self._auth.append((scheme, auth))
        if self.is_connected:
            self._control.append(_auth_request(scheme, auth))

    def close(self, now_ms: int) -> None:
        """End the session, after the operations that were submitted before.

        The state is CLOSED when that is done."""
        if self.state is State.CLOSING or self.state is State.CLOSED:
            return
        if self.state is State.CONNECTED:
            closing = Operation(OpCode.CLOSE_SESSION, "", lambda _: None, lambda _data, _offset: None, writes=True)
            closing.finished = lambda _result, _error: self._finish_close()
            self._queue.append(closing)
            self._move(Input.CLOSE)
            self._set_deadline(now_ms + _CLOSE_TIMEOUT_MS)
            return
        had_connection = self.state not in (State.NOT_CONNECTED, State.AUTH_FAILED)
        self._move(Input.CLOSE)
        self._end(had_connection)

    # For the connection

    @property
    def has_effects(self) -> bool:
        return bool(self._effects)

    def take_effects(self) -> list[SessionEffect]:
        """What is to be done, in order."""
        effects, self._effects = self._effects, []
        return effects

    @property
    def wants_to_send(self) -> bool:
        """Whether `frames_to_send` has something."""
        if self._control:
            return True
        return bool(self._queue) and self._sasl is None and self.is_connected and len(self._in_flight) < _MAX_IN_FLIGHT

    def frames_to_send(self, now_ms: int) -> list[Part]:
        """Frames that are due, with their length prefix.

        The caller sends them on the present connection."""
        frames, self._control = self._control, []
        if self.is_connected and self._sasl is None:
            queue, in_flight = self._queue, self._in_flight
            while queue and len(in_flight) < _MAX_IN_FLIGHT:
                operation = queue.popleft()
                operation.xid = self._xid = _after(self._xid)
                try:
                    frames.append(operation.encode(self.chroot))
                except (ValueError, TypeError, struct.error) as error:
                    # Half a character, a number too large.
                    refused = KeeperError(ErrorCode.BAD_ARGUMENTS, operation.path)
                    refused.__cause__ = error
                    operation.finished(None, refused)
                    continue
                in_flight.append(operation)
        if frames:
            self._sent_ms = now_ms
        return frames

    def connection_opened(self, now_ms: int) -> None:
        """The connection that `Connect` asked for is there."""
        self._move(Input.OPENED)
        request = ConnectRequest(0, self.last_zxid, self._wanted_timeout_ms, self.id, self.password)
        self._control.append(encode_connect_request(request))
        self._received_ms = now_ms
        self._set_deadline(now_ms + self._connect_timeout_ms)

    def connection_lost(self, now_ms: int, *, protocol_violated: bool = False) -> None:
        """The connection could not be opened, or is closed, perhaps because the
        server violated the protocol.

        Then the requests that were sent fail with MARSHALLING_ERROR, for another connection
        would bring the same again.
        """
        if protocol_violated:
            sent, self._in_flight = self._in_flight, deque()
            _fail(sent, ErrorCode.MARSHALLING_ERROR)
        if self.state in (State.CONNECTING, State.ASSOCIATING, State.CONNECTED, State.CLOSING):
            self._lose(now_ms)

    def receive(self, frame: bytes, now_ms: int) -> None:
        """Take a frame of the present connection, without its length prefix.

        Raises `MalformedRecordError` for a frame that violates the protocol; the caller
        closes the connection then.
        """
        self._received_ms = now_ms
        if self.state is State.CONNECTED or self.state is State.CLOSING:
            self._reply_or_event(frame)
        elif self.state is State.ASSOCIATING:
            self._connect_response(frame, now_ms)

    def tick(self, now_ms: int) -> None:
        """The time of the last `Wake` has come."""
        if now_ms < self._deadline_ms:
            return
        match self.state:
            case State.NOT_CONNECTED:
                self._attempt()
            case State.ASSOCIATING:
                logger.debug("No answer to the connect request in %d ms", self._connect_timeout_ms)
                self._disconnect(now_ms)
            case State.CONNECTED:
                self._keep_alive(now_ms)
            case State.CLOSING:
                self._finish_close()
            case _:
                pass

    # States

    def _move(self, cause: Input) -> None:
        self.state = SESSION_TRANSITIONS[self.state, cause]

    def _set_deadline(self, at_ms: int) -> None:
        self._deadline_ms = at_ms
        self._effects.append(Wake(at_ms))

    def _attempt(self) -> None:
        """Try the next server; all of them are tried before there is a pause."""
        self._move(Input.ATTEMPT)
        host, port = self.servers[self._next_server]
        self._next_server += 1
        self._effects.append(Connect(host, port, self._connect_timeout_ms))

    def _disconnect(self, now_ms: int) -> None:
        self._effects.append(Disconnect())
        self._lose(now_ms)

    def _lose(self, now_ms: int) -> None:
        before = self.state
        self._move(Input.LOST)
        self._control.clear()
        self._sasl = None
        if before is State.CLOSING:
            self._end(had_connection=False)
            return
        if before is State.CONNECTED:
            self._backoff_ms = _BACKOFF_FIRST_MS
            self._fail_sent_writes()
            logger.info("The connection of session 0x%x was lost", self.id)
            self._notify(SessionEvent.DISCONNECTED)
        self._try_again(now_ms)

    def _try_again(self, now_ms: int) -> None:
        if self.state is not State.NOT_CONNECTED:
            return  # a listener has closed the session
        if self._next_server < len(self.servers):
            self._attempt()
            return
        self._next_server = 0
        self._set_deadline(now_ms + self._backoff_ms)
        self._backoff_ms = min(self._backoff_ms * 2, _BACKOFF_MAX_MS)

    def _finish_close(self) -> None:
        if self.state is State.CLOSING:
            self._move(Input.CLOSE_DONE)
            self._end(had_connection=True)

    def _end(self, had_connection: bool, code: ErrorCode = ErrorCode.SESSION_EXPIRED) -> None:
        self._control.clear()
        if had_connection:
            self._effects.append(Disconnect())
        self._fail_all(code)

    def _keep_alive(self, now_ms: int) -> None:
        """Ping after a third of the timeout without a frame sent.

        Give up after two thirds without one received."""
        silent_ms = now_ms - self._received_ms
        if silent_ms * 3 > self.timeout_ms * 2:
            logger.warning("The coordination server has been silent for %.1f s", silent_ms / 1000)
            self._disconnect(now_ms)
            return
        if (now_ms - self._sent_ms) * 3 >= self.timeout_ms:
            self._control.append(encode_request(Xid.PING, OpCode.PING, None))
        self._set_deadline(now_ms + max(1, self.timeout_ms // 6))

    # Connecting

    def _connect_response(self, frame: bytes, now_ms: int) -> None:
        """A session, ours again, or the news that ours has expired."""
        response, _ = decode_connect_response(frame)
        if response.timeout_ms <= 0:
            self._expire(now_ms)
            return
        is_new = response.session_id != self.id
        self.id = response.session_id
        self.password = response.password
        self.timeout_ms = response.timeout_ms
        self._move(Input.ACCEPTED)
        self._set_deadline(now_ms + max(1, self.timeout_ms // 6))
        self._control += [_auth_request(scheme, auth) for scheme, auth in self._auth]
        self._control += self._watches.requests(self.last_zxid)
        if self._new_sasl_client is not None:
            self._sasl = self._new_sasl_client()
            self._xid = _after(self._xid)
            self._control.append(_sasl_request(self._xid, b""))
        self._notify(SessionEvent.CREATED if is_new else SessionEvent.REATTACHED)

    def _continue_sasl(self, sasl: SaslClient, xid: int, err: int, frame: bytes) -> None:
        """The server's message to the authentication that is under way."""
        if xid != self._xid:
            raise MalformedRecordError(f"a reply to request {xid}, which is not the authentication that is under way")
        try:
            if err:
                raise SaslError(f"the server answers {error_code(err).name}")
            token = decode(SetSASLResponse, frame, REPLY_HEADER_BYTES).token
            if token is None:
                raise SaslError("the server does not offer SASL")
            answer = sasl.evaluate(token)
        except SaslError as error:
            self._refused(f"SASL: {error}")
            return
        if answer is not None:
            self._xid = _after(self._xid)
            self._control.append(_sasl_request(self._xid, answer))
        if sasl.is_complete:
            self._sasl = None
            self._notify(SessionEvent.SASL_AUTHENTICATED)

    def _refused(self, why: str) -> None:
        """The server did not accept an identity.

        Another connection would end in the same way, so none is made."""
        logger.error("The coordination server refused an identity: %s", why)
        self.refusal = why
        if self.state is State.CONNECTED:  # a session that closes comes to its end by itself
            self._move(Input.REFUSED)
            self._end(had_connection=True, code=ErrorCode.AUTH_FAILED)
        self._notify(SessionEvent.AUTH_FAILED)

    def _expire(self, now_ms: int) -> None:
        logger.warning("Session 0x%x expired", self.id)
        self._effects.append(Disconnect())
        self._move(Input.EXPIRED)
        self.past_ids.add(self.id)
        self.id = 0
        self.password = _NO_PASSWORD
        self._watches.clear()
        self._fail_all(ErrorCode.SESSION_EXPIRED)
        self._notify(SessionEvent.EXPIRED)
        self._try_again(now_ms)

    # Replies and events

    def _reply_or_event(self, frame: bytes) -> None:
        xid, zxid, err = decode_reply_header(frame)
        if zxid > 0:
            self.last_zxid = zxid
        if xid >= 0 and self._sasl is not None:
            self._continue_sasl(self._sasl, xid, err, frame)
        elif xid >= 0:
            self._reply(xid, err, frame)
        elif xid == Xid.WATCHER_EVENT:
            self._watches.fire(decode(WatcherEvent, frame, REPLY_HEADER_BYTES))
        elif xid == Xid.AUTH and err != 0:
            self._refused(error_code(err).name)

    def _reply(self, xid: int, err: int, frame: bytes) -> None:
        if not self._in_flight or self._in_flight[0].xid != xid:
            raise MalformedRecordError(f"a reply to request {xid}, which is not the next one")
        operation = self._in_flight.popleft()
        self._watches.add(operation, err)
        if err and err not in operation.expected_errors:
            operation.finished(None, KeeperError(error_code(err), operation.path))
            return
        try:
            result = operation.parse(None if err else frame, REPLY_HEADER_BYTES)
        except KeeperError as error:
            operation.finished(None, error)
            return
        except MalformedRecordError as error:
            operation.finished(None, KeeperError(ErrorCode.MARSHALLING_ERROR, operation.path))
            raise MalformedRecordError(f"the reply to {operation!r}: {error}") from error
        self._watches.end(operation)
        operation.finished(result, None)

    def _fail_sent_writes(self) -> None:
        sent, self._in_flight = self._in_flight, deque()
        self._queue.extendleft(operation for operation in reversed(sent) if not operation.writes)
        _fail([operation for operation in sent if operation.writes], ErrorCode.CONNECTION_LOSS)

    def _fail_all(self, code: ErrorCode) -> None:
        waiting = [*self._in_flight, *self._queue]
        self._in_flight.clear()
        self._queue.clear()
        _fail(waiting, code)


def _fail(operations: Iterable[Operation], code: ErrorCode) -> None:
    for operation in operations:
        operation.finished(None, KeeperError(code, operation.path))


def _after(xid: int) -> int:
    """The next request's number."""
    return xid + 1 & 0x7FFFFFFF or 1


def _sasl_request(xid: int, token: bytes) -> bytearray:
    return encode_request(xid, OpCode.SASL, GetSASLRequest(token))


def _auth_request(scheme: str, auth: bytes) -> bytearray:
    return encode_request(Xid.AUTH, OpCode.AUTH, AuthPacket(0, scheme, auth))
