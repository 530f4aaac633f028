"""Commands and clients against a coordination server that lies, each with one clear line."""

import contextlib
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from barnabas.client import ConnectError
from barnabas.client.cluster.discovery import brokers_in_zookeeper
from barnabas.client.network.deadline import Deadline
from barnabas.client.network.server_status import server_status
from barnabas.testing import Cluster
from barnabas.wire.jute.opcodes import OpCode
from support.lying_commands import Outcome, run
from support.lying_ensemble import CONNECT, CoordinationLie, LyingEnsemble, coordination_lies

LIMIT_S = 15.0
NUMBERS = "Latency min/avg/max: 0/0.5/3\nConnections: 1\nOutstanding: 0\nZxid: 0x5\nMode: standalone\nNode count: 5\n"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as made:
        yield made


@pytest.fixture
def liar(cluster: Cluster) -> Iterator[LyingEnsemble]:
    with LyingEnsemble(int(cluster.zookeeper_connect.rpartition(":")[2])) as made:
        yield made


def lie(opcode: int, name: str) -> CoordinationLie:
    return next(each for each in coordination_lies(opcode) if each.name == name)


def shell(liar: LyingEnsemble, opcode: int, name: str, command: str) -> Outcome:
    liar.tell(opcode, lie(opcode, name))
    return run(["zookeeper-shell", liar.address, *command.split()], LIMIT_S)


@pytest.mark.parametrize("name", ["a child 'a/b'", "a child '..'", "a child ''", "all children twice"])
@pytest.mark.parametrize("command", ["ls /brokers", "ls -R /brokers", "deleteall /brokers/none"])
def test_children_that_no_node_has_are_refused(liar: LyingEnsemble, name: str, command: str) -> None:
    """A path that is made of them would lead elsewhere: what is deleted recursively, above all."""
    outcome = shell(liar, OpCode.GET_CHILDREN2, name, command)
    assert outcome.status == 1
    assert "does not speak ZooKeeper's protocol" in outcome.error or "does not exist" in outcome.error
    assert len(outcome.error.strip().splitlines()) == 1


@pytest.mark.parametrize("name", ["another request's reply", "half a frame", "ones for a body", "a length of 2 GiB"])
def test_a_reply_that_makes_no_sense_ends_its_request(liar: LyingEnsemble, name: str) -> None:
    """A read is not sent again and again: another connection would bring the same."""
    outcome = shell(liar, OpCode.GET_CHILDREN2, name, "ls /brokers")
    assert outcome.status == 1
    assert f"{liar.address} does not speak ZooKeeper's protocol" in outcome.error
    assert len(outcome.error.strip().splitlines()) == 1


def test_a_server_that_grants_no_session_is_said_to_speak_another_protocol(liar: LyingEnsemble) -> None:
    """Something listens there, so it is not said that nothing answers."""
    outcome = shell(liar, CONNECT, "a web server's answer", "ls /")
    assert outcome.status == 1
    assert outcome.error.splitlines()[-1].startswith(f"Error: {liar.address} does not speak ZooKeeper's protocol")


@pytest.mark.parametrize("number", [-(2**63), 2**63 - 1])
def test_a_time_that_no_calendar_has_is_shown_as_a_number(liar: LyingEnsemble, number: int) -> None:
    """Any client may write records with such a time, too."""
    outcome = shell(liar, OpCode.GET_CHILDREN2, f"stat.ctime is {number}", "ls -s /brokers")
    assert outcome.status == 0
    assert f"ctime = {number} ms" in outcome.out


@contextlib.contextmanager
def answering(text: str) -> Iterator[int]:
    """A port where every connection gets this text."""
    server = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = server.accept()
                with client, contextlib.suppress(OSError):
                    client.recv(100)
                    client.sendall(text.encode())

    threading.Thread(target=serve, daemon=True).start()
    with server:
        yield server.getsockname()[1]


@pytest.mark.parametrize(
    ("honest", "lie"),
    [
        ("0x5", "0xzz"),
        ("0x5", "-1"),
        ("0x5", "0x" + "f" * 5000),
        ("0/0.5/3", "0/1.2.3/4..5"),
        ("Connections: 1", "Connections: ²"),
        ("Node count: 5", "Node count: " + "9" * 5000),
        ("Mode: standalone", "Mode: " + "x" * 5000),
    ],
)
def test_odd_numbers_of_a_server_are_left_out(honest: str, lie: str) -> None:
    """The rest of its status is shown."""
    with answering(NUMBERS.replace(honest, lie)) as port:
        status = server_status(("127.0.0.1", port), Deadline(LIMIT_S))
        assert run(["zookeeper-status", f"127.0.0.1:{port}"], LIMIT_S).is_clear
    assert status.outstanding == 0 or status.role == "srvr is not allowed"


def test_sessions_that_are_no_number_are_left_out() -> None:
    """`mntr` is read by its names."""
    with answering(NUMBERS + "zk_global_sessions\t1.2.3.4\n") as port:
        assert server_status(("127.0.0.1", port), Deadline(LIMIT_S)).sessions is None


def test_a_server_that_trickles_ends_the_status_in_time() -> None:
    """The time is that of the whole answer."""
    server = socket.create_server(("127.0.0.1", 0))
    is_over = threading.Event()

    def serve() -> None:
        with contextlib.suppress(OSError):
            client, _ = server.accept()
            with client:
                while not is_over.wait(0.05):
                    client.sendall(b"x")

    threading.Thread(target=serve, daemon=True).start()
    began = time.monotonic()
    with server:
        status = server_status(("127.0.0.1", server.getsockname()[1]), Deadline(0.5))
    is_over.set()
    assert "unreachable" in status.role
    assert time.monotonic() - began < LIMIT_S


@pytest.mark.parametrize("data", ["[1]", "not json", '"text"', "null"])
def test_a_registration_that_is_none_is_refused(cluster: Cluster, data: str) -> None:
    """Clients of the first kind find brokers there."""
    path = "/other/brokers/ids/7"
    for parent in ("/other", "/other/brokers", "/other/brokers/ids"):
        run(["zookeeper-shell", cluster.zookeeper_connect, "create", parent, "x"], LIMIT_S)
    run(["zookeeper-shell", cluster.zookeeper_connect, "delete", path], LIMIT_S)
    assert run(["zookeeper-shell", cluster.zookeeper_connect, "create", path, data], LIMIT_S).status == 0
    with pytest.raises(ConnectError, match="/brokers/ids/7 does not hold a broker's registration"):
        brokers_in_zookeeper(f"{cluster.zookeeper_connect}/other", 5000)
