"""From a frame to a handler, and from its answer back to the connection.

One request of a connection is served at a time, in order, as Apache's brokers do it: while an answer is outstanding the
connection is paused, so a client that pipelines waits in its own socket. A handler that answers at once costs no task
and no pause.

What cannot be served: a request that cannot be decoded, of an API or a version that is not advertised, closes the
connection, as in Apache's brokers; only ApiVersions in an unknown version is answered, in version 0 and with
UNSUPPORTED_VERSION, so that newer clients can step down. A handler's exception becomes the API's own error response.
"""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from barnabas.base.network import Connection
from barnabas.broker.apis.api_versions import unsupported_version
from barnabas.broker.requests.api_handler import ApiHandler
from barnabas.broker.requests.request import ClientFacts, Node, Request
from barnabas.wire.kafka.api import ApiKey, api
from barnabas.wire.kafka.codec import reader
from barnabas.wire.kafka.errors import ErrorCode, KafkaError, MalformedMessageError
from barnabas.wire.kafka.frames import decode_request_header, encode_response

__all__ = ["ClientConnection", "Dispatcher"]

logger = logging.getLogger(__name__)

_REJECTION_LOG_INTERVAL_MS = 1000


class Dispatcher:
    """The handlers of a broker, and the way in for connections and for the broker's own requests."""

    def __init__(self, node: Node, handlers: Mapping[int, ApiHandler]) -> None:
        self.node = node
        self.handlers = handlers
        self.connections: dict[ClientConnection, None] = {}  # in the order of their coming
        self._by_host: dict[str, int] = {}
        self._rejected = 0
        self._rejections_logged_from_ms = 0

    def handle(self, request: Request, handler: ApiHandler) -> None:
        """Serve one request; its answer comes through the request."""
        parked = self.node.parked
        parked.hold()
        try:
            handler.handle(self.node, request)
        except KafkaError as error:
            self._failed(request, error.code)
        except Exception:
            logger.exception("[%s] failed", request)
            self._failed(request, ErrorCode.UNKNOWN_SERVER_ERROR)
        finally:
            parked.settle()

    def _failed(self, request: Request, code: ErrorCode) -> None:
        if not request.answered:
            request.fail(code)

    def call(self, api_key: ApiKey, message: Any, answered: Callable[[Any], None]) -> None:
        """Serve a request of this broker to itself; ``answered`` gets the response, None when there is none."""
        handler = self.handlers[api_key]

        def answer(request: Request, response: Any, code: ErrorCode | None) -> None:
            answered(response if code is None else self.error_response(request, code))

        request = Request(
            api_key,
            handler.max_version,
            0,
            f"broker-{self.node.broker_id}",
            message,
            ClientFacts("", "127.0.0.1", 0),
            self.node.clock.monotonic_ms(),
            answer,
        )
        self.handle(request, handler)

    def accept(self, listener: str, connection: Connection) -> "ClientConnection":
        """The handler of a new connection; one above the caps is closed at once."""
        opened = ClientConnection(self, listener, connection)
        host = connection.peer[0]
        count = self._by_host.get(host, 0) + 1
        self._by_host[host] = count
        self.connections[opened] = None
        settings = self.node.settings
        overrides = self.node.connection_caps
        if count > overrides.get(host, settings["max.connections.per.ip"]):
            self._reject(opened, "address already has the configured maximum of connections (max.connections.per.ip)")
        elif len(self.connections) > settings["max.connections"]:
            self._reject(opened, "the broker has the configured maximum of connections (max.connections)")
        return opened

    def _reject(self, opened: "ClientConnection", reason: str) -> None:
        """Close a connection above a cap. Such come in floods: the log gets one line a second at most."""
        self._rejected += 1
        now_ms = opened.last_active_ms
        if now_ms >= self._rejections_logged_from_ms:
            logger.info("Rejected connection from %s, %s; %d so far", opened.client.host, reason, self._rejected)
            self._rejections_logged_from_ms = now_ms + _REJECTION_LOG_INTERVAL_MS
        opened.close()

    def forget(self, connection: "ClientConnection") -> None:
        """A connection is closed."""
        self.connections.pop(connection, None)
        host = connection.client.host
        count = self._by_host.get(host, 0) - 1
        if count > 0:
            self._by_host[host] = count
        else:
            self._by_host.pop(host, None)

    def error_response(self, request: Request, code: ErrorCode) -> Any:
        """The API's own response with an error; None when it has none, or when the client expects no answer."""
        handler = self.handlers[request.api_key]
        if handler.fail is not None:
            return handler.fail(request.message, request.version, code)
        return api(handler.key).response(error_code=code)

    def close_idle(self, now_ms: int, max_idle_ms: int) -> None:
        """Close connections that were silent for too long and wait for nothing."""
        for connection in tuple(self.connections):
            if now_ms - connection.last_active_ms > max_idle_ms and not connection.busy:
                connection.close()


class ClientConnection:
    """One connection's frames in, its answers out."""

    __slots__ = ("_connection", "_dispatcher", "_request", "_synchronous", "client", "last_active_ms")

    def __init__(self, dispatcher: Dispatcher, listener: str, connection: Connection) -> None:
        self._dispatcher = dispatcher
        self._connection = connection
        host, port = connection.peer
        self.client = ClientFacts(listener, host, port)
        self._request: Request | None = None  # the one that is not answered yet
        self._synchronous = False
        self.last_active_ms = dispatcher.node.clock.monotonic_ms()

    @property
    def busy(self) -> bool:
        """Whether an answer is outstanding."""
        return self._request is not None

    def close(self) -> None:
        self._connection.close()

    # From the connection

    def frame(self, data: memoryview) -> None:
        dispatcher = self._dispatcher
        now_ms = self.last_active_ms = dispatcher.node.clock.monotonic_ms()
        try:
            key, version, correlation_id, client_id, offset = decode_request_header(data)
            handler = dispatcher.handlers.get(key)
            if handler is None or not handler.min_version <= version <= handler.max_version:
                self._unsupported(key, version, correlation_id)
                return
            message = reader(api(key).request, version)(data, offset)[0]
        except MalformedMessageError as error:
            logger.info("Closing the connection from %s:%d: %s", self.client.host, self.client.port, error)
            self._connection.close()
            return
        request = Request(handler.key, version, correlation_id, client_id, message, self.client, now_ms, self._answer)
        self._request = request
        self._synchronous = True
        dispatcher.handle(request, handler)
        self._synchronous = False
        if self._request is not None:
            self._connection.pause()

    def bad_length(self, prefix: bytes) -> None:
        logger.info(
            "Closing the connection from %s:%d: %d is no length of a request",
            self.client.host,
            self.client.port,
            int.from_bytes(prefix, "big", signed=True),
        )
        self._connection.close()

    def closed(self, error: Exception | None) -> None:
        request, self._request = self._request, None
        if request is not None and request.waiter is not None:
            request.waiter.cancel()
        self._dispatcher.forget(self)
        if error is not None:
            logger.debug("The connection from %s:%d broke: %s", self.client.host, self.client.port, error)

    # Answers

    def _unsupported(self, key: int, version: int, correlation_id: int) -> None:
        if key == ApiKey.API_VERSIONS:
            self._connection.send(encode_response(unsupported_version(), 0, correlation_id))
            return
        logger.info(
            "Closing the connection from %s:%d: API key %d in version %d is not served",
            self.client.host,
            self.client.port,
            key,
            version,
        )
        self._connection.close()

    def _answer(self, request: Request, response: Any, code: ErrorCode | None) -> None:
        if self._request is not request:
            return  # the client is gone
        self._request = None
        if code is not None:
            response = self._dispatcher.error_response(request, code)
            if response is None:
                self._connection.close()
                return
        if response is not None:
            try:
                parts = encode_response(response, request.version, request.correlation_id)
            except (ValueError, KafkaError):
                logger.exception("The answer to %s cannot be sent", request)
                self._connection.close()
                return
            self._connection.send(parts)
        if not self._synchronous:
            self._connection.resume()
