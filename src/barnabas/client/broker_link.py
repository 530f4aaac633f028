"""`BrokerLink`: a blocking connection to one broker, with the protection that the properties ask for and the API versions it speaks.

Counterpart: NetworkClient with one request in flight.

In Kafka: `NetworkClient`.
"""

import socket
import struct
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from barnabas import __version__
from barnabas.base.files import FileSlice
from barnabas.base.network import Part
from barnabas.client.errors import ConfigurationError, ConnectError, UnknownHostError, refusal
from barnabas.wire.kafka.codec import decode
from barnabas.wire.kafka.errors import ErrorCode, MalformedMessageError
from barnabas.wire.kafka.frames import decode_response_header, encode_request, response_version
from barnabas.wire.kafka.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.wire.kafka.schema import Message

if TYPE_CHECKING:
    from barnabas.client.link_security import LinkSecurity

__all__ = ["BrokerLink", "parse_servers"]

ResponseType = TypeVar("ResponseType", bound=Message)

_LENGTH = struct.Struct(">i")
_MAX_RESPONSE_BYTES = 256 * 1024 * 1024
_DEFAULT_PORT = 9092
_ANY_VERSION = 32767
_LIFETIME_USED = 0.85  # of what a broker gives an authentication, as Kafka's clients have it (KIP-368)


class BrokerLink:
    """A connection to one broker, with the API versions it speaks."""

    def __init__(
        self,
        address: tuple[str, int],
        client_id: str,
        connect_timeout_ms: int,
        timeout_ms: int,
        security: "LinkSecurity | None",
    ) -> None:
        """Connect. Raises `ConnectError`, `AuthenticationError`, and `RefusedError` for a broker that is too old."""
        self.address = address
        self._name = f"{address[0]}:{address[1]}"
        self._client_id = client_id
        self._correlation_id = 0
        self._broken = False
        self._security = security
        self._expires_s: float | None = None
        self._timeout_ms = min(connect_timeout_ms, timeout_ms)
        try:
            self._socket = socket.create_connection(address, connect_timeout_ms / 1000)
        except ConnectionRefusedError:
            raise ConnectError(f"{self._name} refused the connection: is a broker running there?") from None
        except socket.gaierror:
            raise UnknownHostError(f"{self._name}: there is no host of this name") from None
        except TimeoutError:
            raise ConnectError(f"{self._name} did not answer within {connect_timeout_ms} ms") from None
        except OSError as error:
            raise ConnectError(f"{self._name} cannot be reached: {error.strerror or error}") from None
        self._socket.settimeout(self._timeout_ms / 1000)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            if security is not None:
                self._socket = security.encrypt(self._socket, address[0], self._name)
            self._versions = self._negotiate()
            lifetime_s = None if security is None else security.authenticate(self._exchange_now, self._name)
        except BaseException:
            self._socket.close()
            raise
        if lifetime_s is not None:
            self._expires_s = time.monotonic() + lifetime_s * _LIFETIME_USED
        # A broker that accepts connections and answers nothing is as good as none: the long timeout is for later answers.
        self._timeout_ms = timeout_ms
        self._socket.settimeout(timeout_ms / 1000)

    def _negotiate(self) -> dict[int, tuple[int, int]]:
        """Ask with the newest version; a broker that does not know it answers in version 0 with its range."""
        version = ApiVersionsRequest.VERSIONS.last
        asked = ApiVersionsRequest(client_software_name="barnabas", client_software_version=__version__)
        response = self._exchange(asked, ApiVersionsResponse, version)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            offered = next((api.max_version for api in response.api_keys if api.api_key == asked.API_KEY), 0)
            response = self._exchange(asked, ApiVersionsResponse, min(offered, version - 1))
        if response.error_code:
            raise refusal(response.error_code, f"{self._name} does not answer which APIs it supports")
        return {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}

    def version(self, request_type: type[Message], max_version: int) -> int:
        """The highest version that both sides and the caller know."""
        first, last = self._versions.get(request_type.API_KEY, (1, 0))
        version = min(last, request_type.VERSIONS.last, max_version)
        if version < max(first, request_type.VERSIONS.first):
            name = request_type.__name__.removesuffix("Request")
            raise refusal(ErrorCode.UNSUPPORTED_VERSION, f"the broker at {self._name} does not offer {name}")
        return version

    def offers(self, request_type: type[Message]) -> bool:
        """Whether there is a version that both sides know."""
        first, last = self._versions.get(request_type.API_KEY, (1, 0))
        return max(first, request_type.VERSIONS.first) <= min(last, request_type.VERSIONS.last)

    def exchange(self, request: Message, answer: type[ResponseType], max_version: int) -> ResponseType:
        """One request and its response."""
        return self._exchange(request, answer, self.version(type(request), max_version))

    def _exchange_now(self, request: Message, answer: type[ResponseType]) -> ResponseType:
        return self.exchange(request, answer, _ANY_VERSION)

    def _exchange(self, request: Message, answer: type[ResponseType], version: int) -> ResponseType:
        self._correlation_id += 1
        try:
            parts = encode_request(request, version, self._correlation_id, self._client_id)
        except ValueError as error:  # a number too large for its field, for one
            raise ConfigurationError(f"the request cannot be sent: {error}") from error
        frame = self._roundtrip(parts)
        version = response_version(frame, request.API_KEY, version)
        try:
            header = decode_response_header(frame, request.API_KEY, version)
            if header.correlation_id != self._correlation_id:
                raise MalformedMessageError(f"an answer to request {header.correlation_id}, not {self._correlation_id}")
            return decode(answer, version, frame, header.body_offset)
        except MalformedMessageError as error:
            self._broken = True
            raise ConnectError(f"{self._name} does not speak Kafka's protocol: {error}") from error

    def _roundtrip(self, parts: Sequence[Part]) -> memoryview:
        try:
            for part in parts:
                self._socket.sendall(part.read() if isinstance(part, FileSlice) else part)
            return self._receive()
        except TimeoutError:
            self._broken = True
            raise ConnectError(f"{self._name} did not answer within {self._timeout_ms} ms") from None
        except OSError as error:
            self._broken = True
            if self._security is not None and (refused := self._security.certificate_error(error, self._name)):
                raise refused from None
            raise ConnectError(f"the connection to {self._name} broke: {error.strerror or error}") from None

    def _receive(self) -> memoryview:
        (size,) = _LENGTH.unpack(self._read(4))
        if not 4 <= size <= _MAX_RESPONSE_BYTES:
            self._broken = True
            raise ConnectError(f"{self._name} does not speak Kafka's protocol (or wants TLS)")
        return memoryview(self._read(size))

    def _read(self, size: int) -> bytearray:
        data = bytearray()
        while len(data) < size:
            piece = self._socket.recv(min(size - len(data), 1024 * 1024))
            if not piece:
                self._broken = True
                raise ConnectError(f"{self._name} closed the connection (does it want TLS, or another protocol?)")
            data += piece
        return data

    def is_alive(self) -> bool:
        """Whether it can be used: not broken, its authentication holds, and nothing (the end, above all) waits to be read."""
        if self._broken or (self._expires_s is not None and time.monotonic() >= self._expires_s):
            return False
        try:
            self._socket.setblocking(False)
            self._socket.recv(1)
        except OSError as error:
            if isinstance(error, BlockingIOError) if self._security is None else self._security.is_idle(error):
                return True
        finally:
            self._socket.settimeout(self._timeout_ms / 1000)
        self._broken = True
        return False

    def close(self) -> None:
        self._socket.close()


def parse_servers(text: str) -> list[tuple[str, int]]:
    """``host:port,host:port`` taken apart; raises `ConfigurationError`. IPv6 addresses stand in brackets."""
    servers = []
    for item in filter(None, (part.strip() for part in text.split(","))):
        host, colon, port = item.rpartition(":")
        if not colon or (item.startswith("[") and item.endswith("]")):
            host, port = item, str(_DEFAULT_PORT)
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise ConfigurationError(f"{item} is not an address: HOST:PORT is expected, such as localhost:9092")
        servers.append((host.removeprefix("[").removesuffix("]"), int(port)))
    if not servers:
        raise ConfigurationError("the list of brokers is empty: name at least one, such as localhost:9092")
    return servers
