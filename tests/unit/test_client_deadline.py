"""One deadline for everything that a client asks: names, connections, whole answers,
repetitions, several brokers."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from barnabas.client.cluster.admin_connection import AdminConnection, ConnectError
from barnabas.client.cluster.each_broker import ask_each
from barnabas.client.errors import ClosedError
from barnabas.client.network import sockets as link_sockets
from barnabas.client.network.deadline import Deadline, sooner
from barnabas.wire.kafka.errors import KafkaError
from barnabas.wire.kafka.frames import decode_request_header, encode_response
from barnabas.wire.kafka.messages.api_versions import ApiVersion, ApiVersionsResponse
from barnabas.wire.kafka.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from barnabas.wire.kafka.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from barnabas.wire.kafka.messages.metadata import MetadataResponse, MetadataResponseBroker

MUCH_S = 20.0
"""Far more than any deadline here, and far less than the timeouts that hold without one."""
METADATA, LIST_GROUPS, API_VERSIONS, CREATE_TOPICS = 3, 16, 18, 19


class ScriptedBroker:
    """A broker that answers as a cluster of some brokers would, some requests in a
    way of its own."""

    def __init__(self, trouble: dict[int, Callable[[socket.socket, bytes], None]] | None = None) -> None:
        self.trouble = trouble or {}
        self.brokers: list[ScriptedBroker] = [self]
        self.controller_id = 0
        self.asked: list[int] = []
        self.is_over = threading.Event()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self._threads[0].start()

    @property
    def address(self) -> str:
        """``host:port``."""
        return f"127.0.0.1:{self.port}"

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connected, _ = self._listening.accept()
                self._threads.append(threading.Thread(target=self._serve, args=(connected,), daemon=True))
                self._threads[-1].start()

    def _serve(self, connected: socket.socket) -> None:
        with contextlib.suppress(OSError), connected, connected.makefile("rb") as stream:
            while size := stream.read(4):
                frame = stream.read(int.from_bytes(size, "big"))
                header = decode_request_header(frame)
                self.asked.append(header.api_key)
                answer = b"".join(
                    encode_response(self._message(header.api_key), header.api_version, header.correlation_id)
                )
                self.trouble.get(header.api_key, send)(connected, answer)

    def _message(self, api_key: int) -> Any:
        if api_key == API_VERSIONS:
            keys = [
                ApiVersion(api_key=key, max_version=4) for key in (METADATA, LIST_GROUPS, API_VERSIONS, CREATE_TOPICS)
            ]
            return ApiVersionsResponse(api_keys=keys)
        if api_key == LIST_GROUPS:
            return ListGroupsResponse()
        if api_key == CREATE_TOPICS:
            return CreateTopicsResponse(topics=[CreatableTopicResult(name="t")])
        brokers = [
            MetadataResponseBroker(node_id=number, host="127.0.0.1", port=each.port)
            for number, each in enumerate(self.brokers)
        ]
        return MetadataResponse(brokers=brokers, controller_id=self.controller_id, cluster_id="c")

    def close(self) -> None:
        """End what it does."""
        self.is_over.set()
        with contextlib.suppress(OSError):  # the second time
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()

    def trickle(self, connected: socket.socket, answer: bytes) -> None:
        """A byte now and then: each comes in time, all of them never do."""
        for position in range(len(answer)):
            if self.is_over.wait(0.05):
                return
            connected.sendall(answer[position : position + 1])

    def be_silent(self, _connected: socket.socket, _answer: bytes) -> None:
        """Nothing, for as long as the test lasts."""
        self.is_over.wait()


def send(connected: socket.socket, answer: bytes) -> None:
    """As brokers do."""
    connected.sendall(answer)


@pytest.fixture
def brokers() -> Iterator[list[ScriptedBroker]]:
    """A cluster of two."""
    made = [ScriptedBroker(), ScriptedBroker()]
    for each in made:
        each.brokers = made
    yield made
    for each in made:
        each.close()


def test_a_deadline_is_shared_by_its_steps() -> None:
    """A step never lasts longer than the whole, and the whole can begin again."""
    now = [100.0]
    deadline = Deadline(5, lambda: now[0])
    now[0] = 102.0
    assert (deadline.left_s(), deadline.within(1).left_s(), deadline.within(10).left_s()) == (3.0, 1.0, 3.0)
    assert deadline.share(0.5).left_s() == 1.5
    assert (str(deadline), str(deadline.within(0.2))) == ("5 s", "200 ms")
    now[0] = 105.0
    assert deadline.is_over
    assert deadline.left_s() == 0
    deadline.restart()
    assert deadline.left_s() == 5.0
    assert sooner(None, 7).length_s == 7


@pytest.mark.parametrize("api", [API_VERSIONS, METADATA])
@pytest.mark.parametrize(
    ("properties", "deadline_s"),
    [({}, 0.4), ({"request.timeout.ms": "400", "socket.connection.setup.timeout.ms": "400"}, None)],
)
def test_a_broker_that_sends_a_byte_now_and_then_is_given_up_in_time(
    api: int, properties: dict[str, str], deadline_s: float | None
) -> None:
    """A timeout counts for a whole answer, with a deadline and without one."""
    slow = ScriptedBroker()
    slow.trouble[api] = slow.trickle
    began = time.monotonic()
    deadline = None if deadline_s is None else Deadline(deadline_s)
    with (
        contextlib.closing(slow),
        AdminConnection(slow.address, properties, deadline) as connection,
        pytest.raises(ConnectError, match=r"did not answer within [234]\d\d ms"),
    ):
        connection.describe_cluster()
    assert time.monotonic() - began < MUCH_S


def test_a_name_that_takes_long_to_resolve_ends_with_the_deadline(monkeypatch: pytest.MonkeyPatch) -> None:
    """The system's resolver takes no timeout."""
    over = threading.Event()
    resolve = socket.getaddrinfo

    def slow(host: str, *arguments: Any, flags: int = 0, **options: Any) -> Any:
        if not flags:
            over.wait(MUCH_S)
        return resolve(host, *arguments, flags=flags, **options)

    monkeypatch.setattr(link_sockets.socket, "getaddrinfo", slow)
    began = time.monotonic()
    with (
        AdminConnection("some.host:9092", deadline=Deadline(0.2)) as connection,
        pytest.raises(ConnectError, match=r"some\.host:9092 did not answer within"),
    ):
        connection.describe_cluster()
    assert time.monotonic() - began < MUCH_S
    over.set()


def test_a_broker_that_stops_answering_leaves_time_for_another(brokers: list[ScriptedBroker]) -> None:
    """What any broker knows is asked of the next one, within the same deadline."""
    brokers[0].trouble[METADATA] = brokers[0].be_silent
    addresses = ",".join(each.address for each in brokers)
    with AdminConnection(addresses, deadline=Deadline(MUCH_S / 10)) as connection:
        assert connection.describe_cluster().cluster_id == "c"
    assert METADATA in brokers[0].asked


def list_groups_of(connection: AdminConnection, broker_id: int) -> int:
    """One question to one broker."""
    return connection.send(ListGroupsRequest(), ListGroupsResponse, broker_id).error_code


def test_brokers_are_asked_at_the_same_time_and_a_silent_one_once(brokers: list[ScriptedBroker]) -> None:
    """The other's answer is there in time for more questions; the silent one is named,
    and not waited for again."""
    brokers[1].trouble[LIST_GROUPS] = brokers[1].be_silent
    with AdminConnection(brokers[0].address, deadline=Deadline(2.0)) as connection:
        for _ in range(2):
            found = ask_each(connection, [0, 1], list_groups_of)
            assert found[0] == 0
            assert isinstance(found[1], ConnectError)
            assert f"{brokers[1].address} did not answer within" in str(found[1])
        assert not connection.deadline or not connection.deadline.is_over
        assert list(connection.unreachable) == [1]
        brokers[1].trouble.clear()
        connection.restart()
        assert ask_each(connection, [0, 1], list_groups_of) == {0: 0, 1: 0}


def test_a_connection_with_another_deadline_has_the_same_links(brokers: list[ScriptedBroker]) -> None:
    """The first deadline stays as it is, and what one of them learns of the cluster
    the other knows."""
    with AdminConnection(brokers[0].address, deadline=Deadline(MUCH_S)) as connection:
        view = connection.with_deadline(Deadline(2 * MUCH_S))
        assert list_groups_of(view, 0) == 0
        asked = list(brokers[0].asked)
        assert list_groups_of(connection, 0) == 0
        assert brokers[0].asked == [*asked, LIST_GROUPS]
        assert (connection.deadline and connection.deadline.length_s) == MUCH_S
        view.restart()
        view.note_unreachable(1, ConnectError("gone"))
        assert list(connection.unreachable) == [1]
    with pytest.raises(ClosedError):
        list_groups_of(view, 0)


def test_the_last_question_may_use_the_whole_deadline(brokers: list[ScriptedBroker]) -> None:
    """Nothing is asked after it; others leave a part."""
    ends: list[float] = []

    def ask(connection: AdminConnection, _: int) -> None:
        ends.append(connection.deadline.length_s if connection.deadline else 0.0)

    with AdminConnection(brokers[0].address, deadline=Deadline(MUCH_S)) as connection:
        connection.describe_cluster()
        ask_each(connection, [0], ask)
        ask_each(connection, [0], ask, is_last=True)
    assert ends[0] < 0.7 * MUCH_S < 0.9 * MUCH_S < ends[1]


def test_a_broker_that_is_not_there_is_an_answer_too(brokers: list[ScriptedBroker]) -> None:
    """Without a deadline nothing is remembered."""
    brokers[1].close()
    with AdminConnection(brokers[0].address) as connection:
        found = ask_each(connection, [0, 1, 7], list_groups_of)
        assert found[0] == 0
        assert "refused the connection" in str(found[1])
        assert "broker 7 is not there; the cluster's brokers are 0, 1" in str(found[7])
        assert connection.unreachable == {}


def create_topic(connection: AdminConnection) -> CreateTopicsResponse:
    """A change, at the controller."""
    return connection.send_to_controller(
        CreateTopicsRequest(topics=[CreatableTopic(name="t")]), CreateTopicsResponse, lambda _: ()
    )


def test_a_change_keeps_its_own_time_and_the_deadline_begins_again_after_it(brokers: list[ScriptedBroker]) -> None:
    """It was sent, so only its answer says what became of it."""
    now_s = 0.0
    deadline = Deadline(MUCH_S, lambda: now_s)

    def late(connected: socket.socket, answer: bytes) -> None:
        nonlocal now_s
        now_s += 2 * MUCH_S
        send(connected, answer)

    brokers[0].trouble[CREATE_TOPICS] = late
    with AdminConnection(brokers[0].address, deadline=deadline) as connection:
        assert [topic.name for topic in create_topic(connection).topics] == ["t"]
        assert not deadline.is_over


def test_a_change_without_a_controller_ends_with_the_deadline(brokers: list[ScriptedBroker]) -> None:
    """The way to the controller is no part of the change."""
    brokers[0].controller_id = -1
    began = time.monotonic()
    with (
        AdminConnection(brokers[0].address, deadline=Deadline(0.5)) as connection,
        pytest.raises(KafkaError, match="no controller at the moment"),
    ):
        create_topic(connection)
    assert time.monotonic() - began < MUCH_S
    assert brokers[0].asked.count(METADATA) > 1
