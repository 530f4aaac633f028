"""Requests to other brokers, and to ourselves, by broker id.

A `Channels` keeps one connection to each broker, made when it is first needed. Requests are
pipelined and answered in order; an answer out of order, a timeout or a broken connection fails all
requests under way with `ChannelError`. The next request connects again, after a back-off that grows
with failures. The first request on a connection asks for the peer's versions, and where brokers
authenticate those that follow prove who this broker is (`ChannelLogin`); each message goes in the
highest version that both sides know. Requests to the own broker id are a direct call of the
dispatcher: the same handlers, no bytes.

In Kafka: `BrokerBlockingSender` and `NodeToControllerChannelManager`, each on a `NetworkClient`.
"""

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import Callable, Generator, Mapping
from typing import Any, NamedTuple

from barnabas import __version__
from barnabas.base.errors import BarnabasError
from barnabas.base.excerpts import beginning
from barnabas.base.network import Connection, Network
from barnabas.security.errors import SaslError
from barnabas.wire.kafka.api import ApiKey, api
from barnabas.wire.kafka.codec import decode
from barnabas.wire.kafka.errors import ErrorCode, MalformedMessageError
from barnabas.wire.kafka.frames import decode_response_header, encode_request, response_version
from barnabas.wire.kafka.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.wire.kafka.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.wire.kafka.messages.sasl_handshake import SaslHandshakeRequest

__all__ = ["BrokenConnectionError", "ChannelError", "ChannelLogin", "Channels"]

logger = logging.getLogger(__name__)

_MAX_FRAME_BYTES = 256 * 1024 * 1024
_MAX_IN_FLIGHT = 100
_FIRST_BACKOFF_S = 0.02
_MAX_BACKOFF_S = 1.0
_REFUSALS_REPORTED_EVERY_S = 60.0
_NAME = "barnabas"
_API_VERSIONS_VERSION = 3
# The part of an authentication's lifetime after which it is renewed, as in Kafka's
# clients (KIP-368)
_LIFETIME_USED = 0.85

CallSelf = Callable[[ApiKey, Any, Callable[[Any], None]], None]
"""`Dispatcher.call`."""


class ChannelError(BarnabasError):
    """The request was not answered: no connection, a timeout, a broker that is not
    known, bad bytes."""


class BrokenConnectionError(ChannelError):
    """The connection was closed by the other side, or refused: as it is with a
    process that is gone."""


class ChannelLogin(NamedTuple):
    """How this broker authenticates on a connection to another."""

    mechanism: str
    conversation: Callable[[], Generator[bytes, bytes, None]]
    """Begins the client's side of the mechanism
    (`barnabas.security.sasl_client.login_of_broker`)."""


class Channels:
    """Connections to the brokers of a cluster."""

    def __init__(
        self, broker_id: int, network: Network, *, request_timeout_ms: int, login: ChannelLogin | None = None
    ) -> None:
        self._broker_id = broker_id
        self._network = network
        self._login = login
        self._request_timeout_ms = request_timeout_ms
        self._channels: dict[int, _Channel] = {}
        self.call_self: CallSelf | None = None
        self._refusals_reported_s: dict[tuple[int, str], float] = {}
        """When requests that are refused for want of a right are reported next."""

    def set_brokers(self, endpoints: Mapping[int, tuple[str, int]]) -> None:
        """The living brokers and their inter-broker endpoints.

        Connections to others, or elsewhere, are closed."""
        for broker_id, channel in tuple(self._channels.items()):
            if endpoints.get(broker_id) != channel.endpoint:
                channel.close()
                del self._channels[broker_id]
        for broker_id, endpoint in endpoints.items():
            if broker_id not in self._channels and broker_id != self._broker_id:
                self._channels[broker_id] = _Channel(
                    broker_id, endpoint, self._network, f"broker-{self._broker_id}", self._login
                )

    async def version(self, broker_id: int, api_key: int) -> int:
        """The highest version of an API that both sides know, for callers whose
        message depends on it.

        Raises `ChannelError`.
        """
        if broker_id == self._broker_id:
            return api(api_key).versions.last
        channel = self._channels.get(broker_id)
        if channel is None:
            raise ChannelError(f"Broker {broker_id} is not known to be alive")
        try:
            async with asyncio.timeout(self._request_timeout_ms / 1000):
                return await channel.version(api_key)
        except TimeoutError:
            channel.drop()
            raise ChannelError(f"Broker {broker_id} did not answer") from None

    def drop(self, broker_id: int) -> None:
        """Break the connection to a broker: requests under way fail, the next one
        connects again."""
        channel = self._channels.get(broker_id)
        if channel is not None:
            channel.drop()

    async def send(
        self, broker_id: int, message: Any, *, timeout_ms: int | None = None, version: int | None = None
    ) -> Any:
        """Send a request message in the highest version that both sides know, and
        return the response message.

        ``timeout_ms`` is request.timeout.ms unless given. Raises `ChannelError`.
        """
        timeout_s = (self._request_timeout_ms if timeout_ms is None else timeout_ms) / 1000
        try:
            async with asyncio.timeout(timeout_s):
                if broker_id == self._broker_id:
                    return await self._send_to_self(message)
                channel = self._channels.get(broker_id)
                if channel is None:
                    raise ChannelError(f"Broker {broker_id} is not known to be alive")
                response = await channel.send(message, version)
        except TimeoutError:
            channel = self._channels.get(broker_id)
            if channel is not None:
                channel.drop()
            raise ChannelError(f"Broker {broker_id} did not answer within {timeout_s} s") from None
        if getattr(response, "error_code", ErrorCode.NONE) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
            self._report_refused(broker_id, type(message).__name__.removesuffix("Request"))
        return response

    def _report_refused(self, broker_id: int, request: str) -> None:
        """Say which right is missing, once in a while: those who send the request try again."""
        now_s = asyncio.get_running_loop().time()
        if now_s >= self._refusals_reported_s.get((broker_id, request), now_s):
            self._refusals_reported_s[broker_id, request] = now_s + _REFUSALS_REPORTED_EVERY_S
            logger.error(
                "Broker %d refused %s: the principal of this broker needs ClusterAction on the cluster, by an ACL or "
                "as one of super.users",
                broker_id,
                request,
            )

    async def _send_to_self(self, message: Any) -> Any:
        if self.call_self is None:
            raise ChannelError("This broker does not serve yet")
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def on_response(response: Any) -> None:
            if answer.done():
                return
            if response is None:  # another broker would see that its connection is closed
                answer.set_exception(ChannelError("This broker gave no answer"))
            else:
                answer.set_result(response)

        self.call_self(ApiKey(message.API_KEY), message, on_response)
        return await answer

    def close(self) -> None:
        """Close all connections; requests under way fail."""
        for channel in self._channels.values():
            channel.close()
        self._channels.clear()


class _Channel:
    """The connection to one broker, remade when it breaks."""

    def __init__(
        self,
        broker_id: int,
        endpoint: tuple[str, int],
        network: Network,
        client_id: str,
        login: ChannelLogin | None,
    ) -> None:
        self._login = login
        self._expires_s: float | None = None
        self.endpoint = endpoint
        self._broker_id = broker_id
        self._network = network
        self._client_id = client_id
        self._connection: Connection | None = None
        self._versions: dict[int, tuple[int, int]] = {}
        self._waiting: deque[tuple[int, int, int, asyncio.Future[Any]]] = deque()
        self._correlation_id = 0
        self._backoff_s = 0.0
        self._connecting = asyncio.Lock()
        self._closed = False

    async def version(self, api_key: int) -> int:
        """Connect if need be. Raises `ChannelError`."""
        async with self._connecting:
            await self._ensure_connected()
            return self._version(api_key)

    async def _ensure_connected(self) -> None:
        if self._closed:
            raise ChannelError(f"Broker {self._broker_id} is gone")
        if self._expires_s is not None and asyncio.get_running_loop().time() >= self._expires_s:
            # The authentication has ended: connect again, when what is under way is answered.
            if under_way := [answer for _, _, _, answer in self._waiting]:
                await asyncio.wait(under_way)
            self.drop()
        if self._connection is None:
            await self._connect()

    async def send(self, message: Any, version: int | None = None) -> Any:
        """Raises `ChannelError`."""
        async with self._connecting:
            await self._ensure_connected()
            if len(self._waiting) >= _MAX_IN_FLIGHT:
                raise ChannelError(f"Broker {self._broker_id} leaves too many requests without an answer")
            answer = self._submit(message, self._version(message.API_KEY) if version is None else version)
        try:
            return await answer
        finally:
            # Its exception holds this frame: only the garbage collector would free that cycle.
            del answer

    async def _connect(self) -> None:
        host, port = self.endpoint
        if self._backoff_s:
            await asyncio.sleep(self._backoff_s)
        self._backoff_s = min(max(self._backoff_s * 2, _FIRST_BACKOFF_S), _MAX_BACKOFF_S)
        try:
            connection = await self._network.connect(
                host,
                port,
                lambda connection: _Frames(self, connection),
                max_frame_bytes=_MAX_FRAME_BYTES,
                timeout_ms=10_000,
            )
        except OSError as error:
            kind = BrokenConnectionError if isinstance(error, ConnectionError) else ChannelError
            raise kind(f"Broker {self._broker_id} at {host}:{port} cannot be reached: {error}") from error
        if self._closed:  # while it connected
            connection.close()
            raise ChannelError(f"Broker {self._broker_id} is gone")
        self._connection = connection
        asked = ApiVersionsRequest(client_software_name=_NAME, client_software_version=__version__)
        try:
            response: ApiVersionsResponse = await self._submit(asked, _API_VERSIONS_VERSION)
            if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
                offered = next((key.max_version for key in response.api_keys if key.api_key == asked.API_KEY), 0)
                response = await self._submit(asked, min(offered, _API_VERSIONS_VERSION - 1))
            self._versions = {key.api_key: (key.min_version, key.max_version) for key in response.api_keys}
            self._expires_s = None
            if self._login is not None:
                await self._authenticate(self._login)
        except BaseException:
            self.drop()
            raise
        self._backoff_s = 0.0

    async def _authenticate(self, login: ChannelLogin) -> None:
        """Prove who this broker is. Raises `ChannelError`."""
        shaken = await self._ask(SaslHandshakeRequest(mechanism=login.mechanism))
        if shaken.error_code:
            raise self._refused(ErrorCode.of(shaken.error_code).message)
        lifetime_ms = 0
        try:
            conversation = login.conversation()
            token: bytes | None = next(conversation)
        except SaslError as error:
            raise self._refused(str(error)) from None
        while token is not None:
            answer = await self._ask(SaslAuthenticateRequest(auth_bytes=token))
            if answer.error_code:
                raise self._refused(beginning(answer.error_message or ErrorCode.of(answer.error_code).message))
            lifetime_ms = answer.session_lifetime_ms
            try:
                # In a thread: SCRAM hashes the password as often as the other side asks.
                token = await asyncio.to_thread(_continue, conversation, answer.auth_bytes)
            except SaslError as error:
                raise self._refused(str(error)) from None
        if lifetime_ms:
            self._expires_s = asyncio.get_running_loop().time() + lifetime_ms / 1000 * _LIFETIME_USED

    async def _ask(self, message: Any) -> Any:
        return await self._submit(message, self._version(message.API_KEY))

    def _refused(self, reason: str) -> ChannelError:
        host, port = self.endpoint
        logger.warning(
            "Broker %d at %s:%d and this broker do not authenticate: %s", self._broker_id, host, port, reason
        )
        return ChannelError(f"Broker {self._broker_id} at {host}:{port} and this broker do not authenticate: {reason}")

    def _version(self, api_key: int) -> int:
        known = api(api_key).versions
        first, last = self._versions.get(api_key, (0, -1))
        version = min(known.last, last)
        if version < max(known.first, first):
            raise ChannelError(
                f"Broker {self._broker_id} serves no version of {ApiKey(api_key).name} that is known here"
            )
        return version

    def _submit(self, message: Any, version: int) -> "asyncio.Future[Any]":
        connection = self._connection
        if connection is None:
            raise BrokenConnectionError(f"The connection to broker {self._broker_id} broke")
        self._correlation_id = (self._correlation_id + 1) & 0x7FFFFFFF
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting.append((self._correlation_id, message.API_KEY, version, answer))
        connection.send(encode_request(message, version, self._correlation_id, self._client_id))
        return answer

    def handle_response(self, connection: Connection, data: memoryview) -> None:
        """A frame came."""
        if connection is not self._connection:
            return
        try:
            if not self._waiting:
                raise MalformedMessageError("a response without a request")
            correlation_id, api_key, version, answer = self._waiting[0]
            version = response_version(data, api_key, version)
            header = decode_response_header(data, api_key, version)
            if header.correlation_id != correlation_id:
                raise MalformedMessageError(f"correlation id {header.correlation_id} instead of {correlation_id}")
            response = decode(api(api_key).response, version, data, header.body_offset)
        except MalformedMessageError as error:
            logger.warning("Broker %d answered with bytes that cannot be read: %s", self._broker_id, error)
            self.drop()
            return
        self._waiting.popleft()
        if not answer.done():
            answer.set_result(response)

    def broken(self, connection: Connection, error: Exception | None) -> None:
        """The connection is gone."""
        if connection is self._connection:
            logger.debug("The connection to broker %d broke: %s", self._broker_id, error)
            self.drop()

    def drop(self) -> None:
        """Close the connection; what waits fails."""
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()
        waiting, self._waiting = self._waiting, deque()
        for _, _, _, answer in waiting:
            if not answer.done():
                answer.set_exception(BrokenConnectionError(f"The connection to broker {self._broker_id} broke"))

    def close(self) -> None:
        self._closed = True
        with contextlib.suppress(Exception):
            self.drop()


def _continue(conversation: Generator[bytes, bytes, None], answer: bytes) -> bytes | None:
    """What to send next; None at the end."""
    try:
        return conversation.send(answer)
    except StopIteration:
        return None


class _Frames:
    """A connection's frame handler."""

    __slots__ = ("_channel", "_connection")

    def __init__(self, channel: _Channel, connection: Connection) -> None:
        self._channel = channel
        self._connection = connection

    def frame(self, data: memoryview) -> None:
        self._channel.handle_response(self._connection, data)

    def bad_length(self, prefix: bytes) -> None:
        self._channel.broken(self._connection, MalformedMessageError(f"{prefix[:4]!r} is no length of a frame"))

    def closed(self, error: Exception | None) -> None:
        self._channel.broken(self._connection, error)
