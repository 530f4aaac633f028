"""Ensembles of our servers, of Apache ZooKeeper's and of both: writes, elections,
replacements, and clients that move."""

import re
import signal
import socket
import struct
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import (
    ConnectionClosedError,
    ConnectionLoss,
    NodeExistsError,
    NotReadOnlyCallError,
    RolledBackError,
    SessionExpiredError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState

from barnabas.wire.jute.opcodes import OpCode
from barnabas.wire.jute.records import OPEN_ACL, CreateRequest
from support.coordination import RawClient
from support.ensemble import Ensemble, Member, ensemble, four_letter_word
from support.mixed import is_long
from support.needs import needs_reference
from support.promptness import promptly, read_to_the_end
from support.waiting import eventually

pytestmark = [pytest.mark.interop]

java = [pytest.mark.java, needs_reference]
MIXTURES = [
    pytest.param((), id="ours"),
    pytest.param((1, 2), id="ours leads two of Apache's", marks=java),
    pytest.param((2, 3), id="ours follows Apache's", marks=java),
    pytest.param((1,), id="ours leads ours and Apache's", marks=java),
]


def create_until_acknowledged(client: KazooClient, path: str) -> float:
    """Repeat a creation until a server acknowledges it; the seconds it took."""
    start_s = time.monotonic()
    while True:
        try:
            client.create(path, b"")
        except NodeExistsError:
            return time.monotonic() - start_s  # an earlier try, whose answer was lost
        except (ConnectionLoss, ConnectionClosedError, SessionExpiredError, NotReadOnlyCallError):
            time.sleep(0.01)
        else:
            return time.monotonic() - start_s


def children_of_each(members: Ensemble, path: str) -> list[list[str]]:
    """What each running member shows after a sync."""
    found = []
    for number, member in members.members.items():
        if member.process is not None:
            with members.client(number) as client:
                client.retry(client.sync, path)
                found.append(sorted(client.retry(client.get_children, path)))
    return found


def check_same(members: Ensemble, path: str, expected: list[str]) -> None:
    """All running members have the same children below a path."""
    for children in children_of_each(members, path):
        assert children == sorted(expected)


def check_no_difference_was_logged(members: Ensemble) -> None:
    """No member has found that its tree differs from the leader's."""
    for member in members.members.values():
        assert "does not match the tree" not in member.log()
        assert "Digests are not matching" not in member.log()


@pytest.mark.parametrize("apaches", MIXTURES)
def test_every_kind_of_write_through_every_member_reaches_all(tmp_path: Path, apaches: tuple[int, ...]) -> None:
    """Creations, multis that succeed and fail, ephemerals, ACLs and watches, under any leader."""
    with ensemble(tmp_path, apaches) as members:
        members.until_serving()
        assert sorted(member.mode() for member in members.members.values()) == ["follower", "follower", "leader"]
        with members.client(1) as first, members.client(2) as second, members.client(3) as third:
            clients = {1: first, 2: second, 3: third}
            names = []
            for number, client in clients.items():
                client.add_auth("digest", f"user{number}:secret")
                client.create(f"/n{number}", b"x" * 1000 * number)
                client.set(f"/n{number}", b"new")
                client.create(f"/e{number}", b"", ephemeral=True)
                names += [f"n{number}", f"e{number}", f"m{number}"]
                good = client.transaction()
                good.create(f"/m{number}", b"1")
                good.set_data(f"/m{number}", b"2")
                good.check(f"/m{number}", 1)
                assert not [each for each in good.commit() if isinstance(each, Exception)]
                bad = client.transaction()
                bad.create(f"/never{number}", b"")
                bad.create(f"/m{number}", b"")
                assert [type(each) for each in bad.commit()] == [RolledBackError, NodeExistsError]
                with pytest.raises(NodeExistsError):
                    client.create(f"/n{number}", b"")
            for client in clients.values():
                client.sync("/")
                assert sorted(client.get_children("/")) == sorted([*names, "zookeeper"])
                assert client.get("/n3")[0] == b"new"
            seen = threading.Event()
            assert third.exists("/n1", watch=lambda _: seen.set())
            first.delete("/n1")
            assert seen.wait(60)
            second.stop()
            eventually(lambda: first.exists("/e2") is None, timeout_s=60, what="the closed session's ephemeral goes")
        check_no_difference_was_logged(members)


@pytest.mark.parametrize("apaches", MIXTURES)
def test_a_leader_that_is_killed_is_replaced_and_comes_back(tmp_path: Path, apaches: tuple[int, ...]) -> None:
    """No acknowledged write is lost, the session goes on, and the old leader catches up."""
    with ensemble(tmp_path, apaches) as members:
        members.until_serving()
        states: list[KazooState] = []
        with members.client() as client:
            client.add_listener(states.append)
            client.create("/w", b"")
            client.create("/alive", b"", ephemeral=True)
            names = [f"n{number}" for number in range(60)]
            for number, name in enumerate(names):
                if number == 30:
                    leader = eventually(members.leader, what="a member leads")
                    leader.stop(signal.SIGKILL)
                create_until_acknowledged(client, f"/w/{name}")
            check_same(members, "/w", names)
            assert client.exists("/alive") is not None
            leader.start()
            members.until_serving()
            check_same(members, "/w", names)
            assert KazooState.LOST not in states
        check_no_difference_was_logged(members)


@pytest.mark.java
@needs_reference
@pytest.mark.parametrize("release", ["3.9", "3.8"] if is_long() else ["3.9"])
def test_every_member_of_a_live_ensemble_of_apaches_is_replaced_by_ours_and_back(tmp_path: Path, release: str) -> None:
    """Each takes over the other's data directory; no session is lost, and no acknowledged write."""
    with ensemble(tmp_path, (1, 2, 3), release=release) as members:
        members.until_serving()
        states: list[KazooState] = []
        with members.client(timeout_s=30) as client:
            client.add_listener(states.append)
            client.create("/w", b"")
            client.create("/alive", b"", ephemeral=True)
            names = []
            for to_apache in (False, True):
                for number, member in members.members.items():
                    member.stop()
                    names.append(f"without-{number}-{to_apache}")
                    create_until_acknowledged(client, f"/w/{names[-1]}")
                    member.is_apache = to_apache
                    member.start()
                    members.until_serving()
                    names.append(f"with-{number}-{to_apache}")
                    create_until_acknowledged(client, f"/w/{names[-1]}")
                check_same(members, "/w", names)
            assert client.exists("/alive") is not None
            assert KazooState.LOST not in states
        check_no_difference_was_logged(members)


@pytest.mark.java
@needs_reference
def test_apaches_3_9_follows_ours_and_leads_it_and_gives_its_data_to_ours(tmp_path: Path) -> None:
    """ZooKeeper 3.9.4 beside two of ours: no acknowledged write is lost, no tree differs, and
    ours goes on with its files."""
    with ensemble(tmp_path, (3,), release="3.9") as members:
        apache = members.members[3]
        members.until_serving()
        assert "version: 3.9.4-" in four_letter_word(apache.client_port, b"srvr")
        names = []

        def write(client: KazooClient) -> None:
            for _ in range(10):
                names.append(str(len(names)))
                create_until_acknowledged(client, f"/w/{names[-1]}")
            bad = client.transaction()
            bad.create("/w/never", b"")
            bad.create("/w", b"")
            assert [type(each) for each in bad.commit()] == [RolledBackError, NodeExistsError]

        with members.client(timeout_s=30) as client:
            client.create("/w", b"")
            client.create("/alive", b"", ephemeral=True)
            write(client)
            first = eventually(members.leader, timeout_s=60, what="a member leads")
            if first is apache:
                apache.stop()
                first = eventually(members.leader, timeout_s=60, what="one of ours leads")
                apache.start()
                members.until_serving()
            assert apache.mode() == "follower"
            write(client)
            check_same(members, "/w", names)
            first.stop()
            eventually(lambda: apache.mode() == "leader", timeout_s=60, what="Apache's leads")
            first.start()
            members.until_serving()
            write(client)
            apache.stop()
            apache.is_apache = False
            apache.start()
            members.until_serving()
            write(client)
            check_same(members, "/w", names)
            assert client.exists("/alive") is not None
        check_no_difference_was_logged(members)


@pytest.mark.java
@needs_reference
def test_ours_leads_apaches_that_count_versions_of_the_configuration(tmp_path: Path) -> None:
    """With reconfigEnabled their first leader gives the configuration a version; they refuse
    leaders with an older one."""
    with ensemble(tmp_path, (1, 2), reconfigEnabled="true") as members:
        ours, first = members.members[3], members.members[2]
        ours.stop()
        eventually(lambda: first.mode() == "leader", timeout_s=60, what="one of Apache's leads")
        ours.start()
        members.until_serving()
        first.stop(signal.SIGKILL)
        eventually(lambda: ours.mode() == "leader", timeout_s=60, what="ours leads")
        with members.client() as client:
            create_until_acknowledged(client, "/w")
            assert b"version=100000000" in client.get("/zookeeper/config")[0]
        check_same(members, "/", ["w", "zookeeper"])


def test_without_a_quorum_clients_are_sent_away_until_it_is_back(tmp_path: Path) -> None:
    """The one that is left closes its connections, says so to monitoring, and serves
    again with a second one."""
    with ensemble(tmp_path) as members:
        members.until_serving()
        with members.client(1, timeout_s=30) as client:
            client.create("/a", b"")
            lost = threading.Event()
            client.add_listener(lambda state: lost.set() if state == KazooState.SUSPENDED else None)
            members.members[2].stop(signal.SIGKILL)
            members.members[3].stop(signal.SIGKILL)
            assert lost.wait(60)
            port, refusal = (
                members.members[1].client_port,
                "This ZooKeeper instance is not currently serving requests\n",
            )
            eventually(lambda: four_letter_word(port, b"srvr") == refusal, what="it says that it does not serve")
            members.members[2].start()
            members.until_serving()
            assert create_until_acknowledged(client, "/b") < 60
            members.members[3].start()
            members.until_serving()
            check_same(members, "/", ["a", "b", "zookeeper"])


def test_a_session_expires_by_its_leaders_clock_though_its_server_is_a_follower(tmp_path: Path) -> None:
    """Its ephemerals go on all members; a live session on a follower does not expire."""
    with ensemble(tmp_path, tickTime=500) as members:
        members.until_serving()
        followers = [number for number, member in members.members.items() if member.mode() == "follower"]
        with members.client(followers[0], timeout_s=10) as alive:
            alive.create("/alive", b"", ephemeral=True)
            dying = RawClient(members.members[followers[1]].client_port, timeout_ms=4000)
            assert dying.call(OpCode.CREATE, CreateRequest("/dying", b"", list(OPEN_ACL), 1))[1] == 0
            shown = four_letter_word(members.members[followers[1]].client_port, b"dump")
            assert "\nGlobal Sessions(2):\n" in shown
            assert f"\n0x{dying.response.session_id:x}\t4000ms\n" in shown
            assert " expire at " not in shown
            eventually(lambda: alive.exists("/dying") is None, timeout_s=60, what="the session expires")
            assert alive.exists("/alive") is not None


def test_the_first_frame_of_a_session_that_moves_to_another_member_may_be_large(tmp_path: Path) -> None:
    """Watches that are set again are such a frame; before a session, a frame may have 1 KB."""
    with ensemble(tmp_path) as members:
        members.until_serving()
        client = RawClient(next(iter(members.members.values())).client_port)
        for number, member in members.members.items():
            session = client.response
            client = RawClient(member.client_port, session_id=session.session_id, password=session.password or b"")
            request = CreateRequest(f"/large{number}", bytes(500_000), list(OPEN_ACL), 0)
            assert client.call(OpCode.CREATE, request)[1] == 0, member.mode()
        assert client.call(OpCode.CLOSE_SESSION)[1] == 0


def test_an_observer_serves_clients_and_does_not_vote(tmp_path: Path) -> None:
    """It takes writes and shows them; without one of the two voters the other stops,
    whatever the observer does."""
    with ensemble(tmp_path, observers=(3,)) as members:
        members.until_serving()
        assert members.members[3].mode() == "observer"
        with members.client(3) as client:
            for number in range(20):
                client.create(f"/n{number}", b"")
            assert len(client.get_children("/")) == 21
        check_same(members, "/", [*(f"n{number}" for number in range(20)), "zookeeper"])
        members.members[1].stop(signal.SIGKILL)
        eventually(lambda: not members.members[2].mode(), timeout_s=60, what="one voter of two stops serving")


@pytest.mark.parametrize("apaches", [(), pytest.param((1,), marks=java)], ids=["ours", "to Apache's"])
def test_a_member_that_is_far_behind_gets_what_it_lacks_of_the_leaders_log(
    tmp_path: Path, apaches: tuple[int, ...]
) -> None:
    """More than what is in memory, and less than a snapshot; DIFF, not SNAP."""
    settings = {"commitLogCount": 20, "snapshotSizeFactor": 0}
    with ensemble(tmp_path, apaches, **settings) as members:
        members.until_serving()
        behind = members.members[1]
        with members.client(2, 3) as client:
            client.create("/w", b"")
            names = [f"n{number:03}" for number in range(900)]
            for name in names[:50]:
                client.create(f"/w/{name}", b"")
            eventually(lambda: behind.mode() == "follower", timeout_s=60, what="the first member follows")
            behind.stop(signal.SIGKILL)
            for pending in [client.create_async(f"/w/{name}", b"x" * 500) for name in names[50:]]:
                pending.get()
            leader = eventually(members.leader, what="a member leads")
            logged_before = len(leader.log())
            behind.start()
            members.until_serving()
            client.create("/w/last", b"")
        check_same(members, "/w", [*names, "last"])
        logged = leader.log()[logged_before:]
        assert "behind those of the log" in logged
        assert "gets SNAP" not in logged
        check_no_difference_was_logged(members)


def test_a_member_that_lost_its_disk_copies_the_state(tmp_path: Path) -> None:
    """It gets a snapshot, and the transactions behind it, and has them after a restart."""
    with ensemble(tmp_path) as members:
        members.until_serving()
        names = [f"n{number}" for number in range(700)]
        with members.client(1) as client:
            client.create("/w", b"")
            for pending in [client.create_async(f"/w/{name}", b"x" * 500) for name in names]:
                pending.get()
            member = members.members[2]
            member.stop(signal.SIGKILL)
            for path in (member.directory / "data" / "version-2").iterdir():
                path.unlink()
            member.start()
            members.until_serving()
            client.create("/w/last", b"")
        check_same(members, "/w", [*names, "last"])
        member.stop(signal.SIGKILL)
        member.start()
        members.until_serving()
        check_same(members, "/w", [*names, "last"])
        assert "Getting a snapshot from the leader" in member.log()


def command(member: Member, name: str, data: bytes | None = None) -> tuple[int, Mapping[str, str], bytes]:
    """Status, headers and body of a command of a member's admin server."""
    port = re.findall(r"Serving HTTP on port (\d+)", member.log())[-1]
    headers = {"Authorization": "digest any:body"}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/commands/{name}", data, headers)
    try:
        with urllib.request.urlopen(request, timeout=60) as response:
            return response.status, response.headers, response.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.headers, error.read()


def test_an_ensemble_is_restored_from_a_snapshot_of_a_follower(tmp_path: Path) -> None:
    """By the steps that a member names when it refuses to restore: what was written later is
    gone, the session is there."""
    with ensemble(tmp_path, **{"admin.enableServer": "true", "admin.serverPort": 0}) as members:
        members.until_serving()
        follower = next(each for each in members.members.values() if each.mode() == "follower")
        with members.client(follower.server_id, timeout_s=40) as client:
            client.create("/kept", b"")
            client.create("/alive", b"", ephemeral=True)
            status, headers, snapshot = command(follower, "snapshot")
            assert status == 200
            client.create("/later", b"")
            status, _, body = command(follower, "restore", snapshot)
            assert (status, b"put the snapshot there" in body) == (500, True)
            assert client.exists("/later") is not None
            session_id, password = client.client_id
            for member in members.members.values():
                member.stop(signal.SIGKILL)
        for member in members.members.values():
            for path in (member.directory / "data" / "version-2").iterdir():
                path.unlink()
            name = f"snapshot.{headers['last_zxid'].removeprefix('0x')}"
            (member.directory / "data" / "version-2" / name).write_bytes(snapshot)
            member.start()
        members.until_serving()
        check_same(members, "/", ["alive", "kept", "zookeeper"])
        again = RawClient(follower.client_port, session_id=session_id, password=password)
        assert again.response.session_id == session_id
        assert again.call(OpCode.CLOSE_SESSION)[1] == 0
        check_same(members, "/", ["kept", "zookeeper"])


def test_a_member_without_a_quorum_serves_reads_to_clients_that_accept_it(tmp_path: Path) -> None:
    """With readonlymode.enabled: reads are answered, writes refused, other clients sent
    away; later all goes on."""
    with ensemble(tmp_path, **{"readonlymode.enabled": "true"}) as members:
        members.until_serving()
        port = members.members[1].client_port
        with members.client(1) as client:
            client.create("/a", b"data")
        members.members[2].stop(signal.SIGKILL)
        members.members[3].stop(signal.SIGKILL)
        eventually(lambda: four_letter_word(port, b"isro") == "ro", what="it serves reads alone")
        remark = "\nREAD-ONLY mode; serving only read-only clients\n"
        eventually(lambda: remark in four_letter_word(port, b"srvr"), what="and says so")
        reader = KazooClient(members.members[1].address, timeout=10, read_only=True)
        reader.start(60)
        try:
            assert reader.get("/a")[0] == b"data"
            with pytest.raises(NotReadOnlyCallError):
                reader.create("/b", b"")
            writer = KazooClient(members.members[1].address, timeout=10)
            with pytest.raises(KazooTimeoutError):
                writer.start(3)
            writer.close()
            members.members[2].start()
            members.until_serving()
            assert create_until_acknowledged(reader, "/b") < 60
            assert four_letter_word(port, b"isro") == "rw"
        finally:
            reader.stop()
            reader.close()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">iqi", 11, 0, 2**31 - 1),
        struct.pack(">iqi", 11, 0, 20) + struct.pack(">qiq", 9, 0x10000, 0) + b"\xff" * 4,
        struct.pack(">iqi", 3, 1 << 32, -1) + b"\xff" * 4,
    ],
    ids=["silence", "http", "a length that lies", "a server that is not a member", "an acknowledgement of nothing"],
)
def test_an_uninvited_peer_of_the_leader_is_cut_off_within_a_second(tmp_path: Path, data: bytes) -> None:
    """And the clients notice nothing."""
    with ensemble(tmp_path) as members:
        members.until_serving()
        leader = eventually(members.leader, what="a member leads")
        quorum_port = int(leader.servers[f"server.{leader.server_id}"].split(":")[1])
        with members.client() as client, socket.create_connection(("127.0.0.1", quorum_port), 5) as stranger:
            stranger.sendall(data)
            with promptly(leader.process.pid, "the end of the connection"):
                assert read_to_the_end(stranger) == b""
            client.create("/a", b"")
            assert members.leader() is leader
