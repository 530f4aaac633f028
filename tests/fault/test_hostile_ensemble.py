"""Any bytes to any port of an ensemble: closed within a second, in bounded memory, and no
client or member notices.

The quorum port takes followers and the election port takes votes, both without authentication; so a
stranger may say what it likes, in a member's name too. It must neither end a leader, nor a
follower's connection, nor reserve memory by a length.
"""

import contextlib
import random
import re
import signal
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest
from kazoo.protocol.states import KazooState

from barnabas.coordination.election.messages import Notification, encode_greeting, encode_notification
from barnabas.coordination.election.vote import PeerState, Vote
from barnabas.wire.jute.codec import encode
from barnabas.wire.jute.errors import ErrorCode
from barnabas.wire.jute.opcodes import OpCode
from barnabas.wire.jute.quorum import PROTOCOL_VERSION, LearnerInfo, PacketType, encode_packet
from barnabas.wire.jute.records import OPEN_ACL, CreateRequest, DeleteRequest, ExistsRequest, GetDataRequest
from support.coordination import RawClient
from support.ensemble import Ensemble, Member, ensemble
from support.promptness import promptly, read_to_the_end
from support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.fault]
MEMORY_KB = 16 * 1024
STRANGER = 77
DEPTH = 1500
"""Levels of a tree: above every limit of recursion. Its paths take a hundredth of
the limit of memory."""
OPEN = list(OPEN_ACL)


def info(server_id: int, *, accepted: int = 0, kind: PacketType = PacketType.FOLLOWERINFO) -> bytes:
    """The first packet of a learner."""
    return encode_packet(kind, accepted << 32, encode(LearnerInfo(server_id, PROTOCOL_VERSION, 0)))


QUORUM_PORT = {
    "silence": b"",
    "http": b"GET / HTTP/1.1\r\n\r\n",
    "a length that lies": struct.pack(">iqi", PacketType.FOLLOWERINFO, 0, 2**31 - 1),
    "a negative length": struct.pack(">iqi", PacketType.FOLLOWERINFO, 0, -2),
    "a million identities": struct.pack(">iqii", PacketType.FOLLOWERINFO, 0, -1, 1_000_000),
    "half an introduction": info(1)[:20],
    "a stranger": info(STRANGER),
    "an observer that is none": info(STRANGER, kind=PacketType.OBSERVERINFO),
    "a request before the introduction": encode_packet(PacketType.REQUEST, 0, b"x" * 40),
    "an acknowledgement before the introduction": struct.pack(">iqii", PacketType.ACK, 1 << 32, -1, -1),
    "an epoch that cannot be": info(0, accepted=0x7FFFFFFF),
}

NOTIFICATION = encode_notification(Notification(PeerState.LOOKING, Vote(9, 1 << 40, 1), 9))
GREETING = encode_greeting(STRANGER, "127.0.0.1:1")
ELECTION_PORT = {
    "silence": b"",
    "http": b"GET / HTTP/1.1\r\n\r\n",
    "a greeting with a length that lies": struct.pack(">qqi", -65536, 2, 2**31 - 1),
    "a greeting of a negative id": encode_greeting(-3, "127.0.0.1:1"),
    "half a greeting": GREETING[:11],
    "a notification with a length that lies": GREETING + struct.pack(">i", 2**31 - 1),
    "a notification with a negative length": GREETING + struct.pack(">i", -1),
    "half a notification": GREETING + NOTIFICATION[:30],
    "a configuration that is longer than its notification": GREETING
    + struct.pack(">iiqqqqii", 44, 0, 1, 1, 1, 1, 2, 2**31 - 1),
    "a state that is none": GREETING + struct.pack(">iiqqqq", 40, 9, 1, 1, 1, 1) + struct.pack(">i", 1),
    "a round that cannot be": GREETING + encode_notification(Notification(PeerState.LOOKING, Vote(9, 9, 1), 1 << 62)),
}


@pytest.fixture(scope="module")
def members(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ensemble]:
    """Three members, which must survive all tests of the module."""
    with ensemble(tmp_path_factory.mktemp("hostile")) as running:
        running.until_serving()
        yield running


@pytest.fixture(autouse=True)
def healthy(members: Ensemble) -> Iterator[None]:
    """A client that notices nothing, of an ensemble whose leader stays, in memory that stays."""
    leader = eventually(members.leader, what="a member leads")
    before = {number: resident_kb(member) for number, member in members.members.items()}
    states: list[str] = []
    with members.client(leader.server_id, timeout_s=30) as client:  # a test may stop a follower
        client.add_listener(states.append)
        client.ensure_path("/healthy")
        yield
        client.set("/healthy", b"still")
        assert [state for state in states if state != KazooState.CONNECTED] == []
    assert eventually(members.leader, what="a member leads") is leader
    for number, member in members.members.items():
        eventually(member.mode, what="the member serves")
        eventually(
            lambda number=number, member=member: resident_kb(member) - before[number] < MEMORY_KB,
            timeout_s=30,
            what="memory comes back",
        )
        assert "Traceback" not in member.log()


def resident_kb(member: Member) -> int:
    assert member.process is not None
    status = Path(f"/proc/{member.process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+)", status)[1])


def ports(member: Member) -> tuple[int, int]:
    """The quorum port and the election port."""
    _, quorum, election = member.servers[f"server.{member.server_id}"].split(":")[:3]
    return int(quorum), int(election)


def is_ended_at_once(member: Member, port: int, data: bytes) -> None:
    """Send, and expect the end of the connection within a second."""
    assert member.process is not None
    with socket.create_connection(("127.0.0.1", port), 10) as connection:
        connection.sendall(data)
        with promptly(member.process.pid, "closing the connection"):
            read_to_the_end(connection)


@pytest.mark.parametrize("data", QUORUM_PORT.values(), ids=QUORUM_PORT)
def test_a_stranger_at_the_leaders_quorum_port_is_cut_off_within_a_second(members: Ensemble, data: bytes) -> None:
    """What is no introduction of a member ends the connection."""
    leader = eventually(members.leader, what="a member leads")
    is_ended_at_once(leader, ports(leader)[0], data)


@pytest.mark.parametrize("data", ELECTION_PORT.values(), ids=ELECTION_PORT)
def test_a_stranger_at_an_election_port_is_cut_off_within_a_second(members: Ensemble, data: bytes) -> None:
    """At each member's port."""
    for member in members.members.values():
        is_ended_at_once(member, ports(member)[1], data)


def test_noise_at_the_peer_ports_is_survived(members: Ensemble) -> None:
    """Random bytes, behind an introduction or a greeting in every other case."""
    rng = random.Random(5)
    leader = eventually(members.leader, what="a member leads")
    quorum_port, election_port = ports(leader)
    for number in range(60):
        for port, first in ((quorum_port, info(STRANGER)), (election_port, GREETING)):
            with socket.create_connection(("127.0.0.1", port), 10) as connection, contextlib.suppress(OSError):
                connection.sendall(rng.choice((b"", first)) + rng.randbytes(rng.randrange(1, 400)))
                if number % 8 == 0:
                    connection.shutdown(socket.SHUT_WR)
                    read_to_the_end(connection)


def test_followers_keep_their_places_while_strangers_use_their_names(members: Ensemble) -> None:
    """Introductions in a follower's name with an old, the present and a higher
    epoch, and a hundred at once."""
    leader = eventually(members.leader, what="a member leads")
    port = ports(leader)[0]
    names = [number for number in members.members if number != leader.server_id]
    with contextlib.ExitStack() as stack:
        for number in range(100):
            connection = stack.enter_context(socket.create_connection(("127.0.0.1", port), 10))
            connection.sendall(info(names[number % 2], accepted=number % 5))
        with members.client() as client:
            for number in range(20):
                client.set("/healthy", b"%d" % number)


def test_votes_in_a_members_name_end_no_leader(members: Ensemble) -> None:
    """A better vote, of a server that says it looks for a leader, changes nothing
    for those that have one."""
    for member in members.members.values():
        for name in members.members:
            port = ports(member)[1]
            with socket.create_connection(("127.0.0.1", port), 10) as connection, contextlib.suppress(OSError):
                connection.sendall(encode_greeting(name, "127.0.0.1:1") + 20 * NOTIFICATION)


def test_a_flood_of_connections_to_the_peer_ports_leaves_the_members_together(members: Ensemble) -> None:
    """Three hundred to each port of the leader at once, which say nothing."""
    leader = eventually(members.leader, what="a member leads")
    with contextlib.ExitStack() as stack:
        for port in ports(leader):
            for _ in range(300):
                stack.enter_context(socket.create_connection(("127.0.0.1", port), 10))
        with members.client() as client:
            client.set("/healthy", b"flood")


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_a_multi_that_holds_everyone_up_is_refused_at_once(members: Ensemble, role: str) -> None:
    """15,000 creations, and 30,000 reads, in one request of allowed size."""
    member = next(each for each in members.members.values() if each.mode() == role)
    assert member.process is not None
    client = RawClient(member.client_port)
    creations = [(OpCode.CREATE, CreateRequest(f"/n{number}", b"", OPEN, 0)) for number in range(15_000)]
    reads = [(OpCode.GET_DATA, GetDataRequest("/", False))] * 30_000
    for opcode, parts in ((OpCode.MULTI, creations), (OpCode.MULTI_READ, reads)):
        client.send(opcode, parts)
        with promptly(member.process.pid, "refusing a multi"):
            assert client.receive()[2] == ErrorCode.MARSHALLING_ERROR
    assert client.call(OpCode.EXISTS, ExistsRequest("/n0", False))[1] == ErrorCode.NO_NODE
    client.close()


def test_a_very_deep_tree_is_served_copied_and_deleted(members: Ensemble) -> None:
    """By a member that restarts on it, and by one that copies it as a snapshot."""
    paths = ["/deep" + "/a" * level for level in range(DEPTH)]
    client = RawClient(members.members[1].client_port)
    pipeline(client, [(OpCode.CREATE, CreateRequest(path, b"", OPEN, 0)) for path in paths])
    client.close()  # it sends no pings: its session would not outlive slow restarts
    follower = next(each for each in members.members.values() if each.mode() == "follower" and each.server_id != 1)
    for is_empty in (False, True):
        follower.stop(signal.SIGKILL)
        if is_empty:
            for file in (follower.directory / "data" / "version-2").iterdir():
                file.unlink()
        follower.start()
        members.until_serving()
        with members.client(follower.server_id) as other:
            other.retry(other.sync, "/")
            assert other.retry(other.exists, paths[-1]) is not None
    client = RawClient(members.members[1].client_port)
    pipeline(client, [(OpCode.DELETE, DeleteRequest(path, -1)) for path in reversed(paths)])
    client.close()


def pipeline(client: RawClient, requests: list[tuple[int, object]]) -> None:
    """All succeed; fifty are under way at a time."""
    client.socket.settimeout(60)
    for start in range(0, len(requests), 50):
        part = requests[start : start + 50]
        for opcode, request in part:
            client.send(opcode, request)
        for _ in part:
            assert client.receive()[2] == 0
