"""`AdminConnection`: a small blocking Kafka client for tools, on our own codec.

It asks any broker for the cluster's members, negotiates each API's version, and sends requests where they belong: to any
broker, to the controller, to a group's coordinator, to one broker. Requests that
reached the wrong broker or came too early are repeated with fresh metadata until ``default.api.timeout.ms``; all other
answers go to the caller. Connections
are plain TCP; a tool lives too briefly to need more than one request in flight.
"""

import contextlib
import queue
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, Self, TypeVar

from barnabas.base.files import FileSlice
from barnabas.base.network import Part
from barnabas.client.errors import ConfigurationError, ConnectError, UnknownHostError, refusal
from barnabas.wire.kafka.codec import decode
from barnabas.wire.kafka.errors import ErrorCode, KafkaError, MalformedMessageError
from barnabas.wire.kafka.frames import decode_response_header, encode_request
from barnabas.wire.kafka.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.wire.kafka.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.wire.kafka.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.wire.kafka.schema import Message

__all__ = ["AdminConnection", "Broker", "ClusterDescription", "ConnectError"]

ResponseType = TypeVar("ResponseType", bound=Message)

# The request went to the wrong broker, or came too early: look its destination up again, and repeat it.
ROUTING_ERRORS = frozenset(
    (
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.STALE_CONTROLLER_EPOCH,
    )
)

_GROUP = 0  # FindCoordinator's key type
_FIND_COORDINATORS_FROM = 4  # the version from which it asks for several at once
_LENGTH = struct.Struct(">i")
_MAX_RESPONSE_BYTES = 256 * 1024 * 1024
_DEFAULT_PORT = 9092
_STAGGER_S = 0.25  # between the first attempts to several addresses, as RFC 8305 has it
_BACKOFF_S = (0.05, 0.1, 0.2, 0.4)


class Broker(NamedTuple):
    """A member of the cluster, at the address it gives to clients."""

    id: int
    host: str
    port: int
    rack: str | None = None


class ClusterDescription(NamedTuple):
    """The cluster's members. ``controller_id`` is -1 while there is none."""

    cluster_id: str | None
    controller_id: int
    brokers: list[Broker]


class AdminConnection:
    """Connections to a cluster's brokers. Close after use, or use as a context manager. Not for several threads.

    ``bootstrap`` is ``host:port,host:port``. Supported properties: ``client.id``, ``request.timeout.ms`` (one answer),
    ``default.api.timeout.ms`` (a call with its repetitions), ``socket.connection.setup.timeout.ms``.
    """

    def __init__(self, bootstrap: str, properties: Mapping[str, str] | None = None) -> None:
        properties = properties or {}
        protocol = properties.get("security.protocol", "PLAINTEXT").upper()
        if protocol != "PLAINTEXT":
            raise ConfigurationError(f"security.protocol={protocol}: this client speaks PLAINTEXT only")
        self._servers = parse_servers(bootstrap)
        self.client_id = properties.get("client.id", "barnabas-admin")
        self.request_timeout_ms = _milliseconds(properties, "request.timeout.ms", 30_000)
        self.api_timeout_ms = _milliseconds(properties, "default.api.timeout.ms", 60_000)
        self._connect_timeout_ms = _milliseconds(properties, "socket.connection.setup.timeout.ms", 10_000)
        self._links: dict[tuple[str, int], _Link] = {}
        self._cluster: ClusterDescription | None = None

    # Where to send

    def send(
        self, request: Message, answer: type[ResponseType], broker_id: int | None = None, *, max_version: int = 32767
    ) -> ResponseType:
        """Send to one broker, or to whichever answers; returns the response, whatever errors it holds.

        Raises `ConnectError`, and `KafkaError` with UNSUPPORTED_VERSION when the broker does not have the API.
        """
        if broker_id is None:
            return self._any_link().exchange(request, answer, max_version)
        address = self._address(broker_id)
        try:
            return self._link(address).exchange(request, answer, max_version)
        except ConnectError:
            # A connection kept from before may have ended long ago; a new one shows whether the broker is there.
            self._drop(address)
            return self._link(address).exchange(request, answer, max_version)

    def negotiated(self, request_type: type[Message], broker_id: int | None = None, *, max_version: int = 32767) -> int:
        """The version in which `send` would send; raises as it does."""
        link = self._any_link() if broker_id is None else self._link(self._address(broker_id))
        return link.version(request_type, max_version)

    def send_to_controller(
        self, request: Message, answer: type[ResponseType], codes: Callable[[ResponseType], Iterable[int]]
    ) -> ResponseType:
        """Send to the controller, wherever it is by now; ``codes`` picks the error codes out of a response."""

        def attempt() -> ResponseType:
            controller_id = self.describe_cluster().controller_id
            if controller_id < 0:
                raise refusal(ErrorCode.NOT_CONTROLLER, "the cluster has no controller at the moment")
            return self.send(request, answer, controller_id)

        return self.retry(attempt, codes)

    def send_to_coordinator(
        self,
        group_id: str,
        request: Message,
        answer: type[ResponseType],
        codes: Callable[[ResponseType], Iterable[int]],
        *,
        max_version: int = 32767,
    ) -> ResponseType:
        """Send to the coordinator of a consumer group, wherever it is by now."""

        def attempt() -> ResponseType:
            return self.send(request, answer, self.find_coordinator(group_id).id, max_version=max_version)

        return self.retry(attempt, codes)

    def retry(
        self, attempt: Callable[[], ResponseType], codes: Callable[[ResponseType], Iterable[int]]
    ) -> ResponseType:
        """Repeat ``attempt`` while its errors are of the kind that pass; then return or raise what came last."""
        end = time.monotonic() + self.api_timeout_ms / 1000
        tries = 0
        while True:
            late = time.monotonic() >= end
            try:
                response = attempt()
                if late or not any(code in ROUTING_ERRORS for code in codes(response)):
                    return response
            except KafkaError as error:
                if late or error.code not in ROUTING_ERRORS:
                    raise
            except ConnectError:
                if late or not self._any_broker_is_there():
                    raise
            self._cluster = None
            time.sleep(_BACKOFF_S[min(tries, len(_BACKOFF_S) - 1)])
            tries += 1

    def _any_broker_is_there(self) -> bool:
        try:
            self._cluster = None
            self.describe_cluster()
        except ConnectError:
            return False
        return True

    # The cluster

    def describe_cluster(self, *, fresh: bool = False) -> ClusterDescription:
        """The brokers and the controller, from the metadata of any broker."""
        if self._cluster is None or fresh:
            self._cluster = cluster_of(self.send(MetadataRequest(topics=[]), MetadataResponse))
        return self._cluster

    def metadata(self, topics: Iterable[str] | None = None) -> MetadataResponse:
        """What any broker knows of these topics, or of all; no topic is created by asking."""
        wanted = None if topics is None else [_metadata_topic(topic) for topic in topics]
        response = self.send(MetadataRequest(topics=wanted, allow_auto_topic_creation=False), MetadataResponse)
        self._cluster = cluster_of(response)
        return response

    def find_coordinator(self, group_id: str) -> Broker:
        """The broker that leads a consumer group; waits while the cluster is still making room for groups."""

        def attempt() -> FindCoordinatorResponse:
            if self.negotiated(FindCoordinatorRequest) >= _FIND_COORDINATORS_FROM:
                request = FindCoordinatorRequest(key_type=_GROUP, coordinator_keys=[group_id])
            else:
                request = FindCoordinatorRequest(key=group_id, key_type=_GROUP)
            return self.send(request, FindCoordinatorResponse)

        def outcome(response: FindCoordinatorResponse) -> Any:
            return response.coordinators[0] if response.coordinators else response

        found = outcome(self.retry(attempt, lambda response: [outcome(response).error_code]))
        if found.error_code:
            raise refusal(found.error_code, found.error_message)
        broker = Broker(found.node_id, found.host, found.port)
        if broker.id not in {known.id for known in self.describe_cluster().brokers}:
            self._cluster = None
        return broker

    def _address(self, broker_id: int) -> tuple[str, int]:
        for fresh in (False, True):
            for broker in self.describe_cluster(fresh=fresh).brokers:
                if broker.id == broker_id:
                    return broker.host, broker.port
        known = ", ".join(str(broker.id) for broker in self.describe_cluster().brokers)
        raise ConnectError(f"broker {broker_id} is not there; the cluster's brokers are {known or 'none'}")

    # Connections

    def _any_link(self) -> "_Link":
        for link in self._links.values():
            if link.is_alive():
                return link
        addresses = list(dict.fromkeys([*self._servers, *self._known_addresses()]))
        if len(addresses) == 1:
            return self._link(addresses[0])
        return self._first_link(addresses)

    def _first_link(self, addresses: list[tuple[str, int]]) -> "_Link":
        """A connection to the first broker that answers. A dead address costs a quarter of a second, not its timeout."""
        outcomes: queue.Queue[_Link | Exception] = queue.Queue()
        is_over = threading.Event()
        choice = threading.Lock()
        """A link is either offered or closed by its thread: the chosen one must stay open, and no other one may."""

        def attempt(address: tuple[str, int]) -> None:
            outcome: _Link | Exception
            try:
                outcome = self._connect(address)
            except Exception as error:  # reported by the thread that waits
                outcome = error
            with choice:
                if not is_over.is_set():
                    outcomes.put(outcome)
                    return
            if isinstance(outcome, _Link):
                outcome.close()

        failures: list[Exception] = []
        waiting = 0
        remaining = list(addresses)
        try:
            while remaining or waiting:
                if remaining:
                    threading.Thread(target=attempt, args=(remaining.pop(0),), daemon=True).start()
                    waiting += 1
                try:
                    outcome = outcomes.get(timeout=_STAGGER_S if remaining else None)
                except queue.Empty:
                    continue
                waiting -= 1
                if isinstance(outcome, _Link):
                    self._links[outcome.address] = outcome
                    return outcome
                if not isinstance(outcome, ConnectError):
                    raise outcome
                failures.append(outcome)
        finally:
            with choice:
                is_over.set()
            _close_all(outcomes)
        raise ConnectError("no broker answers:\n  " + "\n  ".join(dict.fromkeys(map(str, failures))))

    def _known_addresses(self) -> list[tuple[str, int]]:
        return [] if self._cluster is None else [(broker.host, broker.port) for broker in self._cluster.brokers]

    def _link(self, address: tuple[str, int]) -> "_Link":
        link = self._links.get(address)
        if link is None or not link.is_alive():
            self._drop(address)
            link = self._links[address] = self._connect(address)
        return link

    def _connect(self, address: tuple[str, int]) -> "_Link":
        return _Link(address, self.client_id, self._connect_timeout_ms, self.request_timeout_ms)

    def _drop(self, address: tuple[str, int]) -> None:
        link = self._links.pop(address, None)
        if link is not None:
            link.close()

    def close(self) -> None:
        """Close all connections."""
        for address in list(self._links):
            self._drop(address)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _close_all(outcomes: "queue.Queue[_Link | Exception]") -> None:
    with contextlib.suppress(queue.Empty):
        while True:
            outcome = outcomes.get_nowait()
            if isinstance(outcome, _Link):
                outcome.close()


class _Link:
    """A connection to one broker, with the API versions it speaks."""

    def __init__(self, address: tuple[str, int], client_id: str, connect_timeout_ms: int, timeout_ms: int) -> None:
        self.address = address
        self._name = f"{address[0]}:{address[1]}"
        self._client_id = client_id
        self._correlation_id = 0
        self._broken = False
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
            self._versions = self._negotiate()
        except BaseException:
            self._socket.close()
            raise
        # A broker that accepts connections and answers nothing is as good as none: the long timeout is for later answers.
        self._timeout_ms = timeout_ms
        self._socket.settimeout(timeout_ms / 1000)

    def _negotiate(self) -> dict[int, tuple[int, int]]:
        """Ask with the newest version; a broker that does not know it answers in version 0 with its range."""
        version = ApiVersionsRequest.VERSIONS.last
        software = {"client_software_name": "barnabas", "client_software_version": "1"}
        response = self._exchange(ApiVersionsRequest(**software), ApiVersionsResponse, version)
        if response.error_code == ErrorCode.UNSUPPORTED_VERSION:
            offered = next((api.max_version for api in response.api_keys if api.api_key == 18), 0)
            response = self._exchange(ApiVersionsRequest(**software), ApiVersionsResponse, min(offered, version - 1))
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

    def exchange(self, request: Message, answer: type[ResponseType], max_version: int) -> ResponseType:
        """One request and its response."""
        return self._exchange(request, answer, self.version(type(request), max_version))

    def _exchange(self, request: Message, answer: type[ResponseType], version: int) -> ResponseType:
        self._correlation_id += 1
        frame = self._roundtrip(encode_request(request, version, self._correlation_id, self._client_id))
        if request.API_KEY == ApiVersionsRequest.API_KEY and bytes(frame[4:6]) == b"\x00\x23":
            version = 0  # UNSUPPORTED_VERSION is always answered in version 0
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
        """Whether it can be used: not broken, and nothing (the end, above all) waits to be read."""
        if self._broken:
            return False
        try:
            self._socket.setblocking(False)
            self._socket.recv(1, socket.MSG_PEEK)
        except BlockingIOError:
            return True
        except OSError:
            return False
        finally:
            self._socket.settimeout(self._timeout_ms / 1000)
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


def cluster_of(response: MetadataResponse) -> ClusterDescription:
    """The cluster in a Metadata response."""
    brokers = sorted(Broker(item.node_id, item.host, item.port, item.rack) for item in response.brokers)
    return ClusterDescription(response.cluster_id, response.controller_id, brokers)


def _metadata_topic(name: str) -> Any:
    from barnabas.wire.kafka.messages.metadata import MetadataRequestTopic

    return MetadataRequestTopic(name=name)


def _milliseconds(properties: Mapping[str, str], name: str, default: int) -> int:
    text = properties.get(name)
    if text is None:
        return default
    if not text.strip().isdecimal() or int(text) < 1:
        raise ConfigurationError(f"Invalid value {text} for configuration {name}: a number of milliseconds is expected")
    return int(text)
