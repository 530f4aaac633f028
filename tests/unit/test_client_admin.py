"""The admin connection against servers that misbehave; real brokers are tried in tests/interop."""

import contextlib
import gc
import itertools
import os
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from barnabas.base.errors import ConfigError
from barnabas.client.cluster.admin_connection import AdminConnection, ConnectError
from barnabas.client.errors import ClosedError
from barnabas.client.network.broker_link import parse_servers
from barnabas.wire.kafka.codec import encode
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.frames import decode_request_header, encode_response
from barnabas.wire.kafka.messages.api_versions import ApiVersion, ApiVersionsResponse
from barnabas.wire.kafka.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from barnabas.wire.kafka.messages.metadata import MetadataResponse, MetadataResponseBroker
from support.promptness import promptly
from support.waiting import eventually

Answer = Callable[[bytes, int], bytes]
"""Takes a request's frame and the server's port; returns what is sent back, b"" to close."""


class Server:
    """A server that answers each frame with what a function makes of it."""

    def __init__(self, answer: Answer) -> None:
        self._answer = answer
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while True:
            try:
                connected, _ = self._listening.accept()
            except OSError:
                return
            with contextlib.suppress(ConnectionError), connected, connected.makefile("rb") as stream:
                while size := stream.read(4):
                    reply = self._answer(stream.read(int.from_bytes(size, "big")), self.port)
                    if not reply:
                        break
                    connected.sendall(reply)

    def close(self) -> None:
        self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        self._thread.join()


@pytest.fixture
def serve() -> Iterator[Callable[..., AdminConnection]]:
    """Starts a server and connects to it, with these properties."""
    servers = []
    connections = []

    def start(answer: Answer, properties: dict[str, str] | None = None) -> AdminConnection:
        servers.append(Server(answer))
        connections.append(AdminConnection(f"127.0.0.1:{servers[-1].port}", properties))
        return connections[-1]

    yield start
    for connection in connections:
        connection.close()
    for server in servers:
        server.close()


def broker(frame: bytes, port: int, *, apis: dict[int, int], controller_id: int = 0) -> bytes:
    """A broker with these APIs (key and highest version) that answers ApiVersions and Metadata."""
    header = decode_request_header(frame)
    if header.api_key == 18:
        keys = [ApiVersion(api_key=key, min_version=0, max_version=version) for key, version in apis.items()]
        message: object = ApiVersionsResponse(api_keys=keys)
    else:
        brokers = [MetadataResponseBroker(node_id=0, host="127.0.0.1", port=port)]
        message = MetadataResponse(brokers=brokers, controller_id=controller_id, cluster_id="c")
    return b"".join(encode_response(message, header.api_version, header.correlation_id))


def test_versions_are_negotiated_down_to_what_the_broker_has(serve: Callable[..., AdminConnection]) -> None:
    """A broker that knows old versions only is spoken to in those."""
    asked = []

    def answer(frame: bytes, port: int) -> bytes:
        asked.append(decode_request_header(frame)[:2])
        return broker(frame, port, apis={18: 4, 3: 7})

    cluster = serve(answer).describe_cluster()
    assert (cluster.cluster_id, cluster.controller_id, len(cluster.brokers)) == ("c", 0, 1)
    assert asked == [(18, 5), (3, 7)]


def test_a_broker_that_does_not_know_the_newest_api_versions_is_asked_again(
    serve: Callable[..., AdminConnection],
) -> None:
    """KIP-511: the refusal comes in version 0 with the range."""
    asked = []

    def answer(frame: bytes, port: int) -> bytes:
        header = decode_request_header(frame)
        asked.append(header[:2])
        if header.api_key == 18 and header.api_version > 2:
            refusal = ApiVersionsResponse(
                error_code=35, api_keys=[ApiVersion(api_key=18, min_version=0, max_version=2)]
            )
            body = header.correlation_id.to_bytes(4, "big") + encode(refusal, 0)
            return len(body).to_bytes(4, "big") + body
        return broker(frame, port, apis={18: 2, 3: 9})

    assert serve(answer).describe_cluster().cluster_id == "c"
    assert asked == [(18, 5), (18, 2), (3, 9)]


def test_an_api_that_the_broker_lacks_is_named(serve: Callable[..., AdminConnection]) -> None:
    """UNSUPPORTED_VERSION, before anything is sent."""
    connection = serve(lambda frame, port: broker(frame, port, apis={18: 4, 3: 12}))
    with pytest.raises(KafkaError, match="does not offer CreateTopics") as caught:
        connection.send(CreateTopicsRequest(), CreateTopicsResponse)
    assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_a_cluster_without_a_controller_is_asked_until_the_time_is_up(
    serve: Callable[..., AdminConnection],
) -> None:
    """NOT_CONTROLLER passes, so it is tried again; then it is raised."""
    metadata_requests = []

    def answer(frame: bytes, port: int) -> bytes:
        if decode_request_header(frame).api_key == 3:
            metadata_requests.append(1)
        return broker(frame, port, apis={18: 4, 3: 12, 19: 7}, controller_id=-1)

    connection = serve(answer, {"default.api.timeout.ms": "400"})
    began = time.monotonic()
    with pytest.raises(KafkaError, match="no controller at the moment"):
        connection.send_to_controller(CreateTopicsRequest(), CreateTopicsResponse, lambda _: ())
    assert time.monotonic() - began >= 0.4
    assert len(metadata_requests) >= 2


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        (b"", "closed the connection"),
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "does not speak Kafka's protocol"),
        (b"\xff\xff\xff\xff", "does not speak Kafka's protocol"),
        (b"\0\0\0\0", "does not speak Kafka's protocol"),
        (b"\0\0\0\x06\0\0\0\x01\0\0", "does not speak Kafka's protocol"),
        (b"\0\0\0\x0a\0\0\0\x63\0\0\0\0\0\0", "an answer to request 99"),
        (b"\0\0\0\x0a\0\0\0\x01\0\0\x7f\xff\xff\xff", "does not speak Kafka's protocol"),
        (b"\0\0\0\x0a\0\0", "did not answer within 500 ms"),
    ],
)
def test_a_server_that_is_no_broker_is_recognized(
    serve: Callable[..., AdminConnection], reply: bytes, message: str
) -> None:
    """Whatever comes back, the error names the address and what is wrong with it."""
    is_silent = message.startswith("did not answer")
    connection = serve(lambda _frame, _port: reply, {"request.timeout.ms": "500"} if is_silent else None)
    with pytest.raises(ConnectError, match=message) as caught:
        connection.describe_cluster()
    assert "127.0.0.1:" in str(caught.value)


def test_the_next_server_is_asked_when_the_first_is_away(serve: Callable[..., AdminConnection]) -> None:
    """Bootstrap over several servers; if none is there, each is named."""
    there = serve(lambda frame, port: broker(frame, port, apis={18: 4, 3: 12}))
    port = there._servers[0][1]
    with AdminConnection(f"127.0.0.1:1,127.0.0.1:{port}") as connection:
        assert connection.describe_cluster().cluster_id == "c"
    with AdminConnection("127.0.0.1:1,localhost:1") as unreachable, pytest.raises(ConnectError) as caught:
        unreachable.describe_cluster()
    assert str(caught.value).count("refused the connection: is a broker running there?") == 2


def test_a_connection_that_ended_is_closed_when_another_takes_its_place(
    serve: Callable[..., AdminConnection], recwarn: pytest.WarningsRecorder
) -> None:
    """Of several bootstrap servers the one that answers is the one that ended the
    connection before."""
    numbers = itertools.count()

    def answer(frame: bytes, port: int) -> bytes:
        return b"" if next(numbers) == 2 else broker(frame, port, apis={18: 4, 3: 12})

    port = serve(answer)._servers[0][1]
    with AdminConnection(f"127.0.0.1:1,127.0.0.1:{port}") as connection:
        connection.describe_cluster()
        with pytest.raises(ConnectError):
            connection.describe_cluster(fresh=True)
        assert connection.describe_cluster(fresh=True).cluster_id == "c"
        gc.collect()
    assert [str(each.message) for each in recwarn if each.category is ResourceWarning] == []


@pytest.mark.parametrize(
    ("text", "servers"),
    [
        ("localhost:9092", [("localhost", 9092)]),
        ("a:1, b:2", [("a", 1), ("b", 2)]),
        ("host", [("host", 9092)]),
        ("[::1]:9093", [("::1", 9093)]),
    ],
)
def test_addresses_are_taken_apart(text: str, servers: list[tuple[str, int]]) -> None:
    """Hosts and ports; Kafka's port where none is given."""
    assert parse_servers(text) == servers


@pytest.mark.parametrize("text", ["", ",", "a:b", "a:0", "a:70000", ":9092"])
def test_what_is_no_address_is_refused(text: str) -> None:
    """With what is expected instead."""
    with pytest.raises(ConfigError, match="such as localhost:9092"):
        parse_servers(text)


SASL = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "u", "sasl.password": "p"}


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"security.protocol": "SASL_SLL"}, "Invalid value SASL_SLL for configuration security.protocol"),
        ({**SASL, "sasl.mechanism": "GSSAPI"}, "sasl.mechanism=GSSAPI is not supported by this client"),
        ({"security.protocol": "SASL_PLAINTEXT"}, "sasl.mechanism is missing"),
        ({**SASL, "sasl.password": ""}, "sasl.password is missing"),
        ({**SASL, "sasl.username": "a\0b"}, "NUL"),
        ({**SASL, "sasl.kerberos.keytab": "k"}, "sasl.kerberos.keytab is not supported"),
        ({"security.protocol": "SSL", "ssl.crl.location": "/x"}, "ssl.crl.location is not supported"),
        ({"security.protocol": "SSL", "ssl.ca.location": "/no/such"}, "/no/such cannot be read"),
        ({"security.protocol": "SSL", "ssl.truststore.location": "/x.jks"}, "/x.jks cannot be read"),
        ({"security.protocol": "SSL", "ssl.key.location": "/x"}, "without ssl.certificate.location"),
        ({"security.protocol": "SSL", "ssl.endpoint.identification.algorithm": "ldap"}, "https or none"),
        ({"security.protocol": "SSL", "enable.ssl.certificate.verification": "no"}, "true or false"),
        ({"security.protocol": "SSL", "ssl.cipher.suites": "none-such"}, "ssl.cipher.suites: none-such cannot be used"),
    ],
)
def test_protection_that_cannot_be_had_is_refused(properties: dict[str, str], message: str) -> None:
    """Before anything is sent; what is given without a protocol that uses it is not looked
    at, as in Java's clients."""
    with pytest.raises(ConfigError, match=message):
        AdminConnection("localhost:1", properties)


def test_one_dead_address_of_several_is_no_reason_to_wait(serve: Callable[..., AdminConnection]) -> None:
    """A server that accepts and never answers stands first in the list; the second is asked a
    quarter of a second later."""
    good = serve(lambda frame, port: broker(frame, port, apis={18: 4, 3: 7}))
    (host, port), *_ = good._servers
    with socket.create_server(("127.0.0.1", 0)) as silent:
        addresses = f"127.0.0.1:{silent.getsockname()[1]},{host}:{port}"
        with promptly(os.getpid(), "the answer of the second", limit_s=3), AdminConnection(addresses) as connection:
            assert connection.describe_cluster().cluster_id == "c"


class BothAtOnce(queue.Queue[Any]):
    """Shows what was put when two things were put."""

    def get(self, block: bool = True, timeout: float | None = None) -> Any:  # as in the library
        if timeout is not None:
            raise queue.Empty  # the second is tried at once
        if not block:
            return super().get(block)
        eventually(lambda: self.qsize() == 2, what="two links")
        return super().get(block)


class Interrupted(queue.Queue[Any]):
    """Its caller gets no CPU for a while after it has put something."""

    def put(self, item: Any, block: bool = True, timeout: float | None = None) -> None:  # as above
        super().put(item, block, timeout)
        time.sleep(0.3)


@pytest.mark.parametrize(("kind", "closed"), [(BothAtOnce, 1), (Interrupted, 0)])
def test_the_connection_to_the_first_broker_that_answers_stays_open_and_the_others_do_not(
    serve: Callable[..., AdminConnection],
    monkeypatch: pytest.MonkeyPatch,
    kind: type["queue.Queue[Any]"],
    closed: int,
) -> None:
    """However the threads that connect are interrupted."""
    servers = [serve(lambda frame, port: broker(frame, port, apis={18: 4, 3: 7})) for _ in range(2)]
    links: list[Any] = []
    connect = AdminConnection._connect

    def noted(self: AdminConnection, address: tuple[str, int]) -> Any:
        links.append(connect(self, address))
        return links[-1]

    monkeypatch.setattr(AdminConnection, "_connect", noted)
    monkeypatch.setattr("barnabas.client.cluster.admin_connection.queue.Queue", kind)
    addresses = ",".join(f"{host}:{port}" for each in servers for host, port in each._servers)
    with AdminConnection(addresses) as connection:
        chosen = connection._any_link()
        eventually(lambda: not [each for each in threading.enumerate() if "(attempt)" in each.name], what="their end")
        assert sum(link._socket.fileno() < 0 for link in links) == closed
        assert chosen._socket.fileno() >= 0
        assert connection.describe_cluster().cluster_id == "c"


@pytest.mark.parametrize("hosts", [("127.0.0.1",), ("127.0.0.1", "localhost")])
def test_a_connection_that_is_made_while_the_client_is_closed_is_closed_too(
    hosts: tuple[str, ...], serve: Callable[..., AdminConnection], monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the thread that made it: `ask_each` leaves threads behind when it is interrupted."""
    links: list[Any] = []
    connect = AdminConnection._connect

    def closed_meanwhile(self: AdminConnection, address: tuple[str, int]) -> Any:
        links.append(connect(self, address))
        connection.close()
        return links[-1]

    monkeypatch.setattr(AdminConnection, "_connect", closed_meanwhile)
    port = serve(lambda frame, port: broker(frame, port, apis={18: 4, 3: 7}))._servers[0][1]
    connection = AdminConnection(",".join(f"{host}:{port}" for host in hosts))
    try:
        with pytest.raises(ClosedError):
            connection.describe_cluster()
        assert [link._socket.fileno() for link in links] == [-1] * len(links)
    finally:
        for link in links:
            link.close()


def test_a_first_broker_that_ends_its_connection_and_refuses_another_leaves_the_others(
    serve: Callable[..., AdminConnection], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one does that stops just now: the next address is asked."""
    stopped: list[Any] = []
    connect = AdminConnection._connect

    def stops(self: AdminConnection, address: tuple[str, int]) -> Any:
        if address[0] != "localhost":
            return connect(self, address)
        if stopped:
            raise ConnectError("refused")
        stopped.append(connect(self, address))
        stopped[0].close()
        return stopped[0]

    monkeypatch.setattr(AdminConnection, "_connect", stops)
    port = serve(lambda frame, port: broker(frame, port, apis={18: 4, 3: 7}))._servers[0][1]
    with AdminConnection(f"localhost:{port},127.0.0.1:{port}") as connection:
        assert connection.describe_cluster().cluster_id == "c"


def test_a_broker_that_accepts_and_answers_nothing_counts_as_absent() -> None:
    """After the timeout for connections, not after that of requests."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        with (
            AdminConnection(address, {"socket.connection.setup.timeout.ms": "200"}) as connection,
            pytest.raises(ConnectError, match="did not answer within 200 ms"),
        ):
            connection.describe_cluster()
