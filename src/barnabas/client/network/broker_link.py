"""`BrokerLink`: a blocking connection to one broker, with the protection that the properties ask
for and the API versions it speaks.

In Kafka: `NetworkClient`, with one request in flight.
"""

import struct
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, TypeVar

from barnabas import __version__
from barnabas.base.files import FileSlice
from barnabas.base.network import Part
from barnabas.client.errors import ConfigurationError, ConnectError, ProtocolError, refusal
from barnabas.client.network.answers import WrongAnswerError, check_answer
from barnabas.client.network.deadline import Deadline, sooner
from barnabas.client.network.sockets import no_answer, open_broker_socket, receive_exactly, send_all
from barnabas.wire.kafka.codec import decode, has_records
from barnabas.wire.kafka.errors import ErrorCode, MalformedMessageError, OversizedMessageError
from barnabas.wire.kafka.frames import decode_response_header, encode_request, response_version
from barnabas.wire.kafka.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.wire.kafka.schema import Message

if TYPE_CHECKING:
    from barnabas.client.security.link_security import LinkSecurity

__all__ = ["BrokerLink", "parse_servers"]

ResponseType = TypeVar("ResponseType", bound=Message)

_LENGTH = struct.Struct(">i")
_MAX_RESPONSE_BYTES = 32 * 1024 * 1024
_MAX_RECORDS_BYTES = 256 * 1024 * 1024
"""The most bytes of a response with records, which are held as they come. Readers refuse what would
take too much memory as objects."""
_DEFAULT_PORT = 9092
_ANY_VERSION = 32767
# The part of an authentication's lifetime after which it is renewed, as in Kafka's
# clients (KIP-368)
_LIFETIME_USED = 0.85


class BrokerLink:
    """A connection to one broker, with the API versions it speaks."""

    def __init__(
        self,
        address: tuple[str, int],
        client_id: str,
        connect_timeout_ms: int,
        timeout_ms: int,
        security: "LinkSecurity | None",
        deadline: Deadline | None = None,
    ) -> None:
        """Connect, within the timeout for connections as a whole: name, TCP, TLS,
        versions and authentication.

        Raises `ConnectError`, `AuthenticationError`, and `RefusedError` for a broker
        that is too old.
        """
        self.address = address
        self._name = f"{address[0]}:{address[1]}"
        self._client_id = client_id
        self._correlation_id = 0
        self._broken = False
        self._security = security
        self._expires_s: float | None = None
        self._timeout_s = timeout_ms / 1000
        end = sooner(deadline, connect_timeout_ms / 1000)

        def exchange_now(request: Message, answer: type[ResponseType]) -> ResponseType:
            return self.exchange(request, answer, _ANY_VERSION, end)

        self._socket = open_broker_socket(address, self._name, end)
        try:
            if security is not None:
                self._socket.settimeout(end.left_s(at_least=0.001))
                self._socket = security.encrypt(self._socket, address[0], self._name)
            self._versions = self._negotiate(end)
            lifetime_s = None if security is None else security.authenticate(exchange_now, self._name)
        except BaseException:
            self._socket.close()
            raise
        if lifetime_s is not None:
            self._expires_s = time.monotonic() + lifetime_s * _LIFETIME_USED

    def _negotiate(self, end: Deadline) -> dict[int, tuple[int, int]]:
        """Ask with the newest version.

        A broker that does not know it answers in version 0 with its range."""
        version = ApiVersionsRequest.VERSIONS.last
        asked = ApiVersionsRequest(client_software_name="barnabas", client_software_version=__version__)
        response = self._exchange(asked, ApiVersionsResponse, version, end)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            offered = next((api.max_version for api in response.api_keys if api.api_key == asked.API_KEY), 0)
            response = self._exchange(asked, ApiVersionsResponse, min(offered, version - 1), end)
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

    def exchange(
        self, request: Message, answer: type[ResponseType], max_version: int, deadline: Deadline | None = None
    ) -> ResponseType:
        """One request and its response, whole within the timeout for requests, and within the
        deadline if there is one."""
        return self._exchange(request, answer, self.version(type(request), max_version), deadline)

    def _exchange(
        self, request: Message, answer: type[ResponseType], version: int, deadline: Deadline | None
    ) -> ResponseType:
        self._correlation_id += 1
        try:
            parts = encode_request(request, version, self._correlation_id, self._client_id)
        except ValueError as error:  # a number too large for its field, for one
            raise ConfigurationError(f"the request cannot be sent: {error}") from error
        name = type(request).__name__.removesuffix("Request")
        most = _MAX_RECORDS_BYTES if has_records(answer, version) else _MAX_RESPONSE_BYTES
        frame = self._roundtrip(parts, name, most, sooner(deadline, self._timeout_s))
        version = response_version(frame, request.API_KEY, version)
        try:
            header = decode_response_header(frame, request.API_KEY, version)
            if header.correlation_id != self._correlation_id:
                raise MalformedMessageError(f"an answer to request {header.correlation_id}, not {self._correlation_id}")
            response = decode(answer, version, frame, header.body_offset)
        except OversizedMessageError as error:
            self._broken = True
            raise ProtocolError(f"the broker at {self._name} answered {name} with {error}: too much to hold") from error
        except MalformedMessageError as error:
            self._broken = True
            raise ProtocolError(f"{self._name} does not speak Kafka's protocol: {error}") from error
        try:
            check_answer(request, response, version)
        except WrongAnswerError as error:
            self._broken = True
            raise ProtocolError(
                f"the broker at {self._name} answered {name} with {error}: the protocol does not allow that"
            ) from error
        return response

    def _roundtrip(self, parts: Sequence[Part], name: str, most: int, end: Deadline) -> memoryview:
        try:
            for part in parts:
                send_all(self._socket, part.read() if isinstance(part, FileSlice) else part, end)
            return self._receive(name, most, end)
        except TimeoutError:
            self._broken = True
            raise no_answer(self._name, end) from None
        except OSError as error:
            self._broken = True
            if self._security is not None and (refused := self._security.certificate_error(error, self._name)):
                raise refused from None
            raise ConnectError(f"the connection to {self._name} broke: {error.strerror or error}") from None

    def _receive(self, name: str, most: int, end: Deadline) -> memoryview:
        (size,) = _LENGTH.unpack(self._read(4, end))
        if most < size <= _MAX_RECORDS_BYTES:
            self._broken = True
            raise ProtocolError(f"the broker at {self._name} answered {name} with {size} bytes: too much to hold")
        if not 4 <= size <= most:
            self._broken = True
            raise ProtocolError(f"{self._name} does not speak Kafka's protocol (or wants TLS)")
        return memoryview(self._read(size, end))

    def _read(self, size: int, end: Deadline) -> bytearray:
        data = receive_exactly(self._socket, size, end)
        if len(data) < size:
            self._broken = True
            raise ConnectError(f"{self._name} closed the connection (does it want TLS, or another protocol?)")
        return data

    def is_alive(self) -> bool:
        """Whether it can be used: not broken, its authentication holds, and nothing (the end,
        above all) waits to be read."""
        if self._broken or (self._expires_s is not None and time.monotonic() >= self._expires_s):
            return False
        try:
            self._socket.setblocking(False)
            self._socket.recv(1)
        except OSError as error:
            if isinstance(error, BlockingIOError) if self._security is None else self._security.is_idle(error):
                return True
        self._broken = True
        return False

    def close(self) -> None:
        self._socket.close()


def parse_servers(text: str) -> list[tuple[str, int]]:
    """``host:port,host:port`` taken apart; raises `ConfigurationError`.

    IPv6 addresses stand in brackets."""
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
