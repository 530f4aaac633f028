"""The path of a request from its frame to its handler, and of the response back to the connection.

In Kafka: `SocketServer`'s `Processor`, `RequestChannel` and `KafkaRequestHandler`.

One request of a connection is served at a time, in order, as Apache's brokers do it: while a
response is outstanding the connection is paused, so a client that pipelines waits in its own
socket. A handler that replies at once costs no task and no pause.

Most Produce and OffsetCommit requests need no handler: a `FastPath` serves them from their bytes,
and leaves the others. Produce requests that arrived together are served together, and with acks=all
also wait together (`Unanswered`).

A request that cannot be decoded, or whose API or version is not advertised, closes the connection,
as in Apache's brokers. Only ApiVersions in an unknown version is answered, in version 0 and with
UNSUPPORTED_VERSION, so that newer clients can step down. A handler's exception becomes the API's
own error response. A request that is larger than its API accepts closes the connection when it
begins, or becomes the API's own error response if the API names an error for it; of one that comes
in pieces only the beginning is kept, as of one that is not served.
"""

import logging
import struct
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol

from barnabas.base.clock import Clock
from barnabas.base.network import Connection, Part, Standing
from barnabas.base.tasks import AnyTask, Beside, Resume, Runner, Task
from barnabas.broker.requests.connection_quotas import ConnectionQuotas
from barnabas.broker.requests.connection_states import ConnectionEvent, ConnectionState, states_after
from barnabas.broker.requests.purgatory import Purgatory
from barnabas.broker.requests.request import ClientFacts, Request
from barnabas.broker.requests.request_handler import RequestHandler
from barnabas.broker.requests.request_metrics import BrokerRequestMetrics, RequestTimes
from barnabas.wire.kafka.api import ApiKey, api
from barnabas.wire.kafka.codec import reader_in_turns
from barnabas.wire.kafka.errors import ErrorCode, KafkaError, MalformedMessageError
from barnabas.wire.kafka.frames import begin_response, decode_request_header, encode_response, free_in_slices

__all__ = ["ClientConnection", "Dispatcher", "FastPath", "Unanswered"]

logger = logging.getLogger(__name__)

_REJECTION_LOG_INTERVAL_MS = 1000
_LENGTH_BYTES = 4
_HEAD = struct.Struct(">hhi")
"""API key, version and correlation id: the first `HEAD_BYTES` of a request."""
_LARGE_ANSWERS = 4
_LARGE_REQUESTS = 4
_DECODED_FACTOR = 4
"""A request that is large counts so often while it is served: what it names becomes objects."""
_WAITING_FOR_OTHERS = frozenset((ApiKey.PRODUCE, ApiKey.FETCH, ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP))
"""Their answers wait for other requests, which may need the room; and they become few objects."""


class Unanswered(Protocol):
    """Requests of one connection that are served but for their answers."""

    count: int
    """How many. Constant in a class whose objects are one request each."""

    def wait(self, send: Callable[[list[bytes], bool], None], close: Callable[[], None]) -> None:
        """Call ``send`` with answers, in the order of the requests, and whether they are the last;
        or ``close``, for a request whose only answer is the end of the connection."""
        ...

    def abandon(self) -> None:
        """The client is gone."""
        ...


class FastPath(Protocol):
    """Serves the common requests of an API without an object for each."""

    served_count: int
    """How many requests the last call of `serve` has served, those included whose
    answers come later.

    Constant in a class that serves one at a time."""

    def serve(
        self, client: ClientFacts, data: memoryview, start: int, stop: int, max_frame_bytes: int, now_ms: int
    ) -> tuple[int, list[bytes], Unanswered | None]:
        """Serve the request in ``data[start:stop]`` and whole frames behind it.

        The buffer may be changed and is not kept. ``now_ms`` is wall time. Returns where the last
        that is served ends, ``start`` if none is; the answers that may leave at once; and the
        requests behind those, whose answers come later.
        """
        ...


class _FastApi(NamedTuple):
    """An API whose common requests have a fast path."""

    key: ApiKey
    path: FastPath
    times: RequestTimes


class Dispatcher:
    """The handlers of a broker, and the entry for connections and for the broker's own requests."""

    def __init__(
        self,
        handlers: Mapping[int, RequestHandler],
        purgatory: Purgatory,
        quotas: ConnectionQuotas,
        clock: Clock,
        *,
        client_id: str,
        unsupported_version: Any,
        runner: Runner,
        has_room: Callable[[Any], bool] = lambda _: True,
        fast_paths: Mapping[ApiKey, FastPath] | None = None,
    ) -> None:
        """``handlers`` are by API key. ``client_id`` is this broker's own in requests to itself;
        ``unsupported_version`` is the response, in version 0, to ApiVersions requests in an unknown
        version. ``has_room`` says whether what waits for clients leaves room for a large answer.
        ``fast_paths`` serve the common requests of some API keys."""
        self.handlers = handlers
        # In the order in which they were accepted.
        self.connections: dict[ClientConnection, None] = {}
        self.clock = clock
        self.runner = runner
        self.large_answers = runner.lane(_LARGE_ANSWERS, has_room)
        self.large_requests = runner.lane(_LARGE_REQUESTS)
        """Each lasts until it is answered, or waits for others: what it names becomes objects,
        which would otherwise be in memory for all of them together."""
        self.unsupported_version = unsupported_version
        self.request_metrics = BrokerRequestMetrics()
        self.fast_apis = {
            int(key).to_bytes(2, "big"): _FastApi(key, path, self.request_metrics.of(key))
            for key, path in (fast_paths or {}).items()
        }
        """By the first two bytes of a request."""
        self._purgatory = purgatory
        self._quotas = quotas
        self._client_id = client_id
        self._rejected = 0
        self._rejections_logged_from_ms = 0

    def handler_of(self, key: int, version: int) -> RequestHandler | None:
        """The handler of an API, if it serves this version."""
        handler = self.handlers.get(key)
        return handler if handler is not None and handler.min_version <= version <= handler.max_version else None

    def handle(self, request: Request, handler: RequestHandler) -> None:
        """Serve one request; its response comes through the request."""
        purgatory = self._purgatory
        purgatory.hold()
        try:
            handler.handle(request)
        except KafkaError as error:
            self._failed(request, error.code)
        except Exception:
            logger.exception("[%s] failed", request)
            self._failed(request, ErrorCode.UNKNOWN_SERVER_ERROR)
        finally:
            purgatory.try_complete_actions()

    def serve_fast(
        self,
        fast_api: _FastApi,
        client: "ClientConnection",
        data: memoryview,
        start: int,
        stop: int,
    ) -> int:
        """See `FastPath.serve`: here the answers are sent and counted, and what waited
        for the records completed."""
        purgatory = self._purgatory
        fast_path = fast_api.path
        connection = client._connection
        purgatory.hold()
        try:
            served, replies, unanswered = fast_path.serve(
                client.client, data, start, stop, connection.max_frame_bytes, self.clock.wall_ms()
            )
            if replies:
                connection.send(replies if len(replies) == 1 else [b"".join(replies)])
            if unanswered is not None:
                client.wait_for(unanswered)
            if served != start:
                count = fast_path.served_count if unanswered is None else fast_path.served_count - unanswered.count
                took_ms = self.clock.monotonic_ms() - client.last_active_ms
                if took_ms:
                    fast_api.times.add(took_ms, count)
                else:  # as most
                    fast_api.times.at_once += count
        finally:
            purgatory.try_complete_actions()
        return served

    def _failed(self, request: Request, code: ErrorCode) -> None:
        if not request.is_answered:
            request.fail(code)

    def call(self, api_key: ApiKey, message: Any, on_response: Callable[[Any], None]) -> None:
        """Serve a request of this broker to itself.

        ``on_response`` gets the response, None when there is none."""
        handler = self.handlers[api_key]

        def answer(request: Request, response: Any, code: ErrorCode | None) -> None:
            self.request_metrics.answered(request, self.clock.monotonic_ms())
            on_response(response if code is None else self.error_response(request, code))

        request = Request(
            api_key,
            handler.max_version,
            0,
            self._client_id,
            message,
            ClientFacts("", "127.0.0.1", 0, is_this_broker=True),
            self.clock.monotonic_ms(),
            answer,
        )
        self.handle(request, handler)

    def accept(self, listener: str, connection: Connection) -> "ClientConnection":
        """The frame handler of a new connection; one above the quotas is closed at once."""
        opened = ClientConnection(self, listener, connection)
        self.connections[opened] = None
        if self._quotas.is_protected(listener):
            connection.standing = Standing.MEMBER
        reason = self._quotas.opened(connection.peer[0], listener)
        if reason is not None:
            self._reject(opened, reason)
        elif self._quotas.is_exceeded:
            self._close_one_of_another_listener()
        return opened

    def _close_one_of_another_listener(self) -> None:
        """Make room for a protected listener, as Kafka does: the connection goes
        that was silent longest."""
        others = [each for each in self.connections if not self._quotas.is_protected(each.client.listener)]
        if others:
            idle = [each for each in others if not each.busy]
            min(idle or others, key=lambda each: each.last_active_ms).close()

    def _reject(self, opened: "ClientConnection", reason: str) -> None:
        """Close a connection above a quota.

        They come in floods: the log gets one line a second at most."""
        self._rejected += 1
        now_ms = opened.last_active_ms
        if now_ms >= self._rejections_logged_from_ms:
            logger.info("Rejected connection from %s, %s; %d so far", opened.client.host, reason, self._rejected)
            self._rejections_logged_from_ms = now_ms + _REJECTION_LOG_INTERVAL_MS
        opened.close()

    def forget(self, connection: "ClientConnection") -> None:
        """A connection is closed."""
        if connection in self.connections:
            del self.connections[connection]
            self._quotas.closed(connection.client.host)

    def error_response(self, request: Request, code: ErrorCode) -> Any:
        """The API's own response with an error; None closes the connection instead."""
        return self.handlers[request.api_key].error_response(request.message, request.version, code)

    def close_idle(self, now_ms: int, max_idle_ms: int) -> None:
        """Close connections that were idle for too long and wait for no response."""
        for connection in tuple(self.connections):
            if now_ms - connection.last_active_ms > max_idle_ms and not connection.busy:
                connection.close()


# Constants, because looking up a member of an enum is slow, and so is a method for each event.
_IDLE = ConnectionState.IDLE
_PASSED_ON = ConnectionState.PASSED_ON
_SERVING = ConnectionState.SERVING
_WAITING = ConnectionState.WAITING
_CLOSED = ConnectionState.CLOSED
_AFTER_LEFT = states_after(ConnectionEvent.LEFT)
_AFTER_FRAME = states_after(ConnectionEvent.FRAME)
_AFTER_BEGUN = states_after(ConnectionEvent.BEGUN)
_AFTER_DEFERRED = states_after(ConnectionEvent.DEFERRED)
_AFTER_ANSWERED = states_after(ConnectionEvent.ANSWERED)
_AFTER_CLOSED = states_after(ConnectionEvent.CLOSED)


class _Slices:
    """The state of a request that is decoded in slices. It may name very much, so it is freed in
    slices, too."""

    __slots__ = ("_was_answered", "task")

    def __init__(self) -> None:
        self.task: AnyTask[None] | None = None
        """The request's task, if it is one of the dispatcher's large requests."""
        self._was_answered: Resume | None = None

    def await_answer(self, _: Request, resume: Resume) -> None:
        """The effect of the task: wait for the answer."""
        self._was_answered = resume

    def end(self) -> None:
        """The request is answered, or its client is gone."""
        resume, self._was_answered = self._was_answered, None
        if resume is not None:
            resume(None, None)


class ClientConnection:
    """One connection's frames in, its responses out.

    Its states are those of `CONNECTION_TRANSITIONS`. The request that is served is kept beside the
    state, and so is its task if it is decoded in slices."""

    __slots__ = ("_connection", "_dispatcher", "_key", "_request", "_slices", "_state", "client", "last_active_ms")

    def __init__(self, dispatcher: Dispatcher, listener: str, connection: Connection) -> None:
        self._dispatcher = dispatcher
        self._connection = connection
        host, port = connection.peer
        self.client = ClientFacts(listener, host, port)
        self._state = _IDLE
        self._request: Request | Unanswered | None = None
        """The request, or the requests of a fast path, without a response yet."""
        self._slices: _Slices | None = None
        """Set while a request that is decoded in slices is served."""
        self._key = -1
        self.last_active_ms = dispatcher.clock.monotonic_ms()

    @property
    def work(self) -> str:
        """What was served last, for reports about the event loop."""
        known = self._dispatcher.handlers.get(self._key)
        return "nothing" if known is None else known.key.name

    @property
    def busy(self) -> bool:
        """Whether a response is outstanding."""
        return self._request is not None

    def close(self) -> None:
        self._connection.close()

    # From the connection

    def take_from(self, data: memoryview, position: int) -> int:
        start = position + _LENGTH_BYTES
        fast_api = self._dispatcher.fast_apis.get(bytes(data[start : start + 2]))
        if fast_api is None:
            return position
        served = self._serve_fast(fast_api, data, start, start + int.from_bytes(data[position:start], "big"))
        if served != start:
            return served
        self._state = _AFTER_LEFT[self._state]
        return position

    def _serve_fast(self, fast_api: _FastApi, data: memoryview, start: int, stop: int) -> int:
        dispatcher = self._dispatcher
        self.last_active_ms = dispatcher.clock.monotonic_ms()
        self._key = fast_api.key
        return dispatcher.serve_fast(fast_api, self, data, start, stop)

    def wait_for(self, unanswered: Unanswered) -> None:
        """Deliver no other request until these are answered."""
        self._begin_waiting(unanswered)
        unanswered.wait(partial(self._answer_some, unanswered), self.close)
        if self._state is _CLOSED:  # the connection broke while earlier answers were sent
            self._request = None
            unanswered.abandon()

    def _answer_some(self, unanswered: Unanswered, answers: list[bytes], are_last: bool) -> None:
        if self._request is not unanswered:
            return  # the client is gone
        dispatcher = self._dispatcher
        times = dispatcher.request_metrics.of(self._key)
        times.add(dispatcher.clock.monotonic_ms() - self.last_active_ms, len(answers))
        if data := b"".join(answers):  # with acks 0 there is nothing to send
            self._connection.send([data])
        if are_last:
            self._state = _AFTER_ANSWERED[self._state]
            self._request = None
            self._connection.resume()

    def _begin_waiting(self, served: Request | Unanswered) -> None:
        """Pause the connection until the answer, which comes later."""
        self._state = _AFTER_DEFERRED[self._state]
        self._request = served
        self._connection.pause()

    def frame(self, data: memoryview) -> None:
        dispatcher = self._dispatcher
        fast_api = dispatcher.fast_apis.get(bytes(data[:2])) if self._state is not _PASSED_ON else None
        self._state = _AFTER_FRAME[self._state]
        if fast_api is not None and self._serve_fast(fast_api, data, 0, len(data)):
            return
        now_ms = self.last_active_ms = dispatcher.clock.monotonic_ms()
        try:
            key, version, correlation_id, client_id, offset = decode_request_header(data)
            handler = dispatcher.handler_of(key, version)
            if handler is None:
                self._unsupported(key, version, correlation_id)
                return
            self._key = key
            if len(data) > handler.max_request_bytes:
                if handler.too_large is None:
                    self._close_for_size(handler, len(data))
                else:
                    self._refuse(handler, handler.too_large, version, correlation_id, client_id)
                return
            reading = reader_in_turns(api(key).request, version)(data, offset)
            if not isinstance(reading, tuple):
                try:
                    next(reading)
                except StopIteration as end:  # as most
                    reading = end.value
                else:
                    self._read_on(reading, handler, version, correlation_id, client_id, data, offset)
                    return
            message = reading[0]
        except MalformedMessageError as error:
            self._malformed(error)
            return
        request = Request(handler.key, version, correlation_id, client_id, message, self.client, now_ms, self._answer)
        self._state = _AFTER_BEGUN[self._state]
        self._request = request
        dispatcher.handle(request, handler)
        if self._state is _SERVING:
            self._begin_waiting(request)

    def _malformed(self, error: MalformedMessageError) -> None:
        logger.info("Closing the connection from %s:%d: %s", self.client.host, self.client.port, error)
        self._connection.close()

    def _read_on(
        self,
        reading: Task[tuple[Any, int]],
        handler: RequestHandler,
        version: int,
        correlation_id: int,
        client_id: str | None,
        data: memoryview,
        offset: int,
    ) -> None:
        """Decode a large request in slices, and serve it.

        The connection is paused until its answer."""
        if handler.refusal is not None and (reason := handler.refusal(data, offset, version)) is not None:
            logger.info("Closing the connection from %s:%d: %s", self.client.host, self.client.port, reason)
            self._connection.close()
            return
        request = Request(
            handler.key, version, correlation_id, client_id, None, self.client, self.last_active_ms, self._answer
        )
        self._begin_waiting(request)
        slices = self._slices = _Slices()
        if self._goes_first(request):
            self._dispatcher.runner.start(self._decode(request, handler, reading))
        else:
            self._connection.served_bytes = len(data)
            slices.task = self._serve_large(request, handler, reading, len(data), slices)
            self._dispatcher.large_requests.start(slices.task, slices.await_answer)

    def _goes_first(self, request: Request) -> bool:
        """Whether a large request and its answer wait for none of other clients."""
        return request.api_key in _WAITING_FOR_OTHERS or self._connection.standing is Standing.MEMBER

    def _serve_large(
        self,
        request: Request,
        handler: RequestHandler,
        reading: Task[tuple[Any, int]],
        size_bytes: int,
        slices: _Slices,
    ) -> AnyTask[None]:
        """Decode and serve a large request; the task lasts until it is answered, or waits for
        others, which may need the room."""
        self._connection.served_bytes = _DECODED_FACTOR * size_bytes
        yield from self._decode(request, handler, reading)
        if self._request is request and request.waiter is None and request.timer is None:
            yield request
        slices.task = None
        self._connection.served_bytes = 0

    def _decode(self, request: Request, handler: RequestHandler, reading: Task[tuple[Any, int]]) -> Task[None]:
        try:
            request.message = (yield from reading)[0]
        except MalformedMessageError as error:
            self._malformed(error)
            return
        if self._request is request:  # else the client is gone
            self._dispatcher.handle(request, handler)

    def drops(self, head: bytes, frame_bytes: int) -> bool:
        key, version, _ = _HEAD.unpack(head)
        handler = self._dispatcher.handler_of(key, version)
        if handler is None:
            return True
        is_too_large = frame_bytes > handler.max_request_bytes
        if is_too_large and handler.too_large is None:
            self._close_for_size(handler, frame_bytes)
        return is_too_large

    def _close_for_size(self, handler: RequestHandler, frame_bytes: int) -> None:
        logger.info(
            "Closing the connection from %s:%d: a %s request of %d bytes; it may have %d",
            self.client.host,
            self.client.port,
            handler.key.name,
            frame_bytes,
            handler.max_request_bytes,
        )
        self._connection.close()

    def dropped(self, head: bytes) -> None:
        key, version, correlation_id = _HEAD.unpack(head)
        handler = self._dispatcher.handler_of(key, version)
        self.last_active_ms = self._dispatcher.clock.monotonic_ms()
        if handler is None:
            self._unsupported(key, version, correlation_id)
        elif handler.too_large is not None:  # else the connection is closing
            self._key = key
            self._refuse(handler, handler.too_large, version, correlation_id, None)

    def _refuse(
        self, handler: RequestHandler, error: ErrorCode, version: int, correlation_id: int, client_id: str | None
    ) -> None:
        """Answer a request that is too large for its API."""
        request = Request(
            handler.key, version, correlation_id, client_id, None, self.client, self.last_active_ms, self._answer
        )
        logger.info("[%s] is larger than the %d bytes that it may have", request, handler.max_request_bytes)
        self._state = _AFTER_BEGUN[self._state]
        self._request = request
        request.fail(error)
        if self._state is _SERVING:
            self._begin_waiting(request)

    def bad_length(self, prefix: bytes) -> None:
        logger.info(
            "Closing the connection from %s:%d: %d is not the length of a request",
            self.client.host,
            self.client.port,
            int.from_bytes(prefix[:4], "big", signed=True),
        )
        self._connection.close()

    def closed(self, error: Exception | None) -> None:
        self._state = _AFTER_CLOSED[self._state]
        request, self._request = self._request, None
        if request is not None:
            request.abandon()
        self._dispatcher.forget(self)
        slices, self._slices = self._slices, None
        if slices is not None:
            task, slices.task = slices.task, None
            if task is not None:
                self._dispatcher.large_requests.forget(task)
            slices.end()
        if error is not None:
            logger.debug("Lost the connection from %s:%d: %s", self.client.host, self.client.port, error)

    # Responses

    def _unsupported(self, key: int, version: int, correlation_id: int) -> None:
        if key == ApiKey.API_VERSIONS:
            self._connection.send(encode_response(self._dispatcher.unsupported_version, 0, correlation_id))
            return
        self._dispatcher.request_metrics.refused(key, version)
        logger.info(
            "Closing the connection from %s:%d: API key %d in version %d is not served",
            self.client.host,
            self.client.port,
            key,
            version,
        )
        self._connection.close()

    def _answer(self, request: Request, response: Any, code: ErrorCode | None) -> None:
        dispatcher = self._dispatcher
        if self._request is not request:  # the client is gone
            dispatcher.runner.start(free_in_slices([request.message, response]))
            return
        dispatcher.request_metrics.answered(request, dispatcher.clock.monotonic_ms())
        if code is None:
            self._reply(request, response)
        elif self._slices is not None:
            dispatcher.runner.start(self._fail_large(request, code))
        else:
            self._reply_error(request, dispatcher.error_response(request, code))

    def _fail_large(self, request: Request, code: ErrorCode) -> Task[None]:
        """Build the error response of a large request in a thread; it needs only the request."""
        made: list[Any] = []
        yield Beside(lambda: made.append(self._dispatcher.error_response(request, code)))
        if self._request is request:  # else the client is gone
            self._reply_error(request, made.pop())

    def _reply_error(self, request: Request, response: Any) -> None:
        """Send the API's error response; None if it has none."""
        if response is not None:
            self._reply(request, response)
        else:
            self._state = _AFTER_ANSWERED[self._state]
            self._request = None
            self._connection.close()  # without resuming it: later requests are not served

    def _reply(self, request: Request, response: Any) -> None:
        """Encode and send a response; None for none."""
        if response is None:
            self._sent(request, None)
            return
        try:
            parts = begin_response(response, request.version, request.correlation_id)
        except (ValueError, KafkaError):
            self._unsendable(request)
            return
        if isinstance(parts, list):  # as most
            self._connection.send(parts)
            self._sent(request, None)
            return
        # A large one: only few of those for clients are made at a time.
        runs = self._dispatcher.runner if self._goes_first(request) else self._dispatcher.large_answers
        runs.start(self._encode_on(request, response, parts))

    def _encode_on(self, request: Request, response: Any, encoding: Task[list[Part]]) -> Task[None]:
        """Go on with a response; its request counts as unanswered until it is sent."""
        try:
            parts: list[Part] = (yield from encoding) if self._request is request else []
        except (ValueError, KafkaError):
            self._unsendable(request)
            return
        if self._request is request:  # else the client is gone
            self._connection.send(parts)
            self._sent(request, response)
        else:
            self._dispatcher.runner.start(free_in_slices([request.message, response]))

    def _unsendable(self, request: Request) -> None:
        logger.exception("The response to %s cannot be sent", request)
        self._connection.close()

    def _sent(self, request: Request, large_response: Any) -> None:
        """A request is answered: go on with the connection, and free what was large."""
        was_paused = self._state is _WAITING
        self._state = _AFTER_ANSWERED[self._state]
        self._request = None
        slices = self._slices
        if slices is not None:
            self._slices = None
            slices.end()
        if was_paused:
            self._connection.resume()
        if slices is not None or large_response is not None:
            self._dispatcher.runner.start(free_in_slices([request.message, large_response]))
