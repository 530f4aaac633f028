"""Ensembles that change while they run: ours, and ours with Apache ZooKeeper's, through
kazoo, zkCli and our shell."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import (
    BadArgumentsError,
    BadVersionError,
    ConnectionLoss,
    MarshallingError,
    NewConfigNoQuorumError,
    NoAuthError,
    NodeExistsError,
    UnimplementedError,
)
from kazoo.retry import KazooRetry

from support.ensemble import HOST, Ensemble, Member, four_letter_word
from support.needs import needs_reference
from support.ports import free_ports
from support.reference import apache_command
from support.waiting import eventually

pytestmark = [pytest.mark.interop]

java = [pytest.mark.java, needs_reference]
KAZOO_RETRY = KazooRetry(max_tries=-1, delay=0.05, max_delay=0.5, deadline=60)
SUPER_DIGEST = "super:D/InIHSb7yEEbrWz8b9l71RjZJU="  # of the password "test"


def line(ports: list[int], role: str = "participant") -> str:
    """The value of a server line with a client port."""
    return f"{HOST}:{ports[0]}:{ports[1]}:{role};{HOST}:{ports[2]}"


@contextmanager
def growing_ensemble(directory: Path, apaches: tuple[int, ...] = (), *, count: int = 4) -> Iterator[Ensemble]:
    """Servers 1 and 2 are the ensemble.

    Each of the others knows itself and them, and is not started."""
    ports = free_ports(3 * count)
    lines = {n: line(ports[3 * n - 3 : 3 * n]) for n in range(1, count + 1)}
    settings: dict[str, object] = {"reconfigEnabled": "true", "DigestAuthenticationProvider.superDigest": SUPER_DIGEST}
    members = {}
    for n in range(1, count + 1):
        known = {f"server.{each}": lines[each] for each in sorted({1, 2, n})}
        folder = directory / f"member{n}"
        folder.mkdir()
        members[n] = Member(n, folder, ports[3 * n - 1], known, dict(settings), n in apaches)
    try:
        for n in (1, 2):
            members[n].start()
        ensemble = Ensemble(members)
        ensemble.until_serving()
        yield ensemble
    finally:
        for member in members.values():
            member.stop()


@contextmanager
def super_user(ensemble: Ensemble, *server_ids: int) -> Iterator[KazooClient]:
    """A client that may change the ensemble."""
    with ensemble.client(*server_ids) as client:
        client.add_auth("digest", "super:test")
        yield client


def joining(ensemble: Ensemble, *server_ids: int) -> str:
    """The argument of a reconfig that adds servers."""
    return ",".join(f"server.{n}={ensemble.members[n].servers[f'server.{n}']}" for n in server_ids)


def config_without(client: KazooClient, server_id: int) -> bytes:
    """Remove the leader.

    Its followers close their clients' connections, Apache's sometimes before the
    response is sent."""
    try:
        text = bytes(client.reconfig(None, str(server_id), None)[0])
    except ConnectionLoss:
        eventually(
            lambda: f"server.{server_id}=".encode() not in KAZOO_RETRY.copy()(client.get, "/zookeeper/config")[0],
            timeout_s=60,
            what="the configuration is without the leader",
        )
        text = KAZOO_RETRY.copy()(client.get, "/zookeeper/config")[0]
    assert f"server.{server_id}=".encode() not in text
    return text


def until_role(ensemble: Ensemble, server_id: int, *roles: str) -> None:
    """Wait until a member serves in a role."""
    member = ensemble.members[server_id]
    eventually(lambda: member.mode() in roles, timeout_s=90, what=f"server {server_id} is {' or '.join(roles)}")


@pytest.mark.parametrize(
    ("apaches", "joiners"),
    [
        pytest.param((), (3, 4), id="ours"),
        pytest.param((1, 3), (3,), id="ours leads, one of Apache's joins", marks=java),
        pytest.param((2,), (3,), id="Apache's leads, one of ours joins", marks=java),
    ],
)
def test_servers_join_and_the_leader_leaves(tmp_path: Path, apaches: tuple[int, ...], joiners: tuple[int, ...]) -> None:
    """A new server follows without a vote, joins, votes; the leader is removed, and a
    write follows on all others."""
    with (
        growing_ensemble(tmp_path, apaches, count=2 + len(joiners)) as ensemble,
        super_user(ensemble, 1, 2) as client,
    ):
        client.create("/a", b"")
        first = client.get("/zookeeper/config")[0].decode()
        assert first.endswith("version=100000000")
        seen: list[object] = []
        client.get("/zookeeper/config", watch=seen.append)
        for server_id in joiners:
            ensemble.members[server_id].start()
            until_role(ensemble, server_id, "follower")
            text, stat = client.reconfig(joining(ensemble, server_id), None, None)
            version = int(text.decode().rpartition("version=")[2], 16)
            assert f"server.{server_id}={ensemble.members[server_id].servers[f'server.{server_id}']}" in text.decode()
            assert (stat.version, stat.mzxid) == (-1, version)
            client.create(f"/joined{server_id}", b"")
        eventually(lambda: len(seen) == 1, timeout_s=60, what="the watch of the configuration fires")
        if apaches:
            check_names_of_figures(ensemble)
        leader = eventually(ensemble.leader, what="a member leads")
        removed = leader.server_id
        text = config_without(client, removed)
        eventually(
            lambda: any(each.mode() == "leader" for each in ensemble.members.values() if each is not leader),
            timeout_s=90,
            what="another one leads",
        )
        leader.stop()
        rest = [n for n in ensemble.members if n != removed]
        # That it exists already says that an earlier try had its answer lost.
        with super_user(ensemble, *rest) as other, suppress(NodeExistsError):
            other.retry(other.create, "/without", b"")
        for n in rest:
            until_role(ensemble, n, "follower", "leader")
            with ensemble.client(n) as one:
                one.retry(one.sync, "/")
                assert sorted(one.retry(one.get_children, "/")) == [
                    "a",
                    *(f"joined{each}" for each in joiners),
                    "without",
                    "zookeeper",
                ]
                assert one.retry(one.get, "/zookeeper/config")[0] == text
        check_files(ensemble, rest, text.decode())


def check_names_of_figures(ensemble: Ensemble) -> None:
    """What mntr shows of one kind of server, the other shows too, but for what only a
    leader has, and namespaces."""
    shown: dict[bool, set[str]] = {}
    for member in ensemble.members.values():
        if member.process is not None and (member.is_apache not in shown or member.mode() == "leader"):
            lines = four_letter_word(member.client_port, b"mntr").splitlines()
            shown[member.is_apache] = {line.partition("\t")[0].removeprefix("zk_") for line in lines}
    missing = {
        name
        for name in shown[True] - shown[False]
        if not name.endswith("_per_namespace") and "_learner_handler_" not in name
    }
    of_leaders = {"learners", "pending_syncs", "leader_uptime", "synced_followers", "synced_non_voting_followers"}
    of_leaders |= {f"{which}_proposal_size" for which in ("last", "min", "max")}
    assert missing <= of_leaders


def check_files(ensemble: Ensemble, server_ids: list[int], text: str) -> None:
    """Every member's files have the configuration in force, in the form of Apache's servers."""
    *lines, version = text.split("\n")
    for n in server_ids:
        directory = ensemble.members[n].directory
        dynamic = directory / f"zoo.cfg.dynamic.{version.removeprefix('version=')}"
        eventually(dynamic.exists, timeout_s=60, what=str(dynamic))
        assert dynamic.read_text() == "\n".join(sorted(lines))
        settings = (directory / "zoo.cfg").read_text()
        assert f"dynamicConfigFile={dynamic}\n" in settings
        assert "server." not in settings
        assert "clientPort=" not in settings
        assert not (directory / "zoo.cfg.dynamic.next").exists()
        assert "server.1=" in (directory / "zoo.cfg.bak").read_text()


def refused(client: KazooClient, error: type[Exception], **arguments: object) -> None:
    """A reconfig that must end with an error."""
    given = {"joining": None, "leaving": None, "new_members": None, **arguments}
    with pytest.raises(error):
        client.reconfig(**given)


@pytest.mark.parametrize("apaches", [pytest.param((), id="ours"), pytest.param((1, 2), id="Apache's", marks=java)])
def test_a_reconfig_that_cannot_be_is_refused_with_the_errors_of_apache_zookeeper(
    tmp_path: Path, apaches: tuple[int, ...]
) -> None:
    """Bad lines, a bad version, too few voters, a quorum that is not there, and a client
    that is not the super user."""
    with growing_ensemble(tmp_path, apaches) as ensemble, super_user(ensemble) as client:
        before = client.get("/zookeeper/config")[0]
        stranger = "server.3=127.0.0.1:1:2;3"
        for line_text in ("garbage", "server.3=127.0.0.1:1:2", "server.3=127.0.0.1:1:2:wrong;4", "server.x=h:1:2;3"):
            refused(client, MarshallingError if ".x" in line_text else BadArgumentsError, joining=line_text)
        refused(client, BadArgumentsError, joining="server.3=10.1.2.3:1:2;3,server.4=10.1.2.3:2:4;5")
        refused(client, BadArgumentsError, leaving="2")
        refused(client, MarshallingError, leaving="x")
        refused(client, BadArgumentsError, new_members="server.1=foo")
        refused(client, BadVersionError, joining=stranger, from_config=5)
        refused(client, NewConfigNoQuorumError, new_members=f"{stranger},server.4=127.0.0.1:4:5;6")
        with ensemble.client() as anyone:
            refused(anyone, NoAuthError, leaving="7")
        assert client.get("/zookeeper/config")[0] == before
        text, _ = client.reconfig(None, None, None, from_config=int(before.decode().rpartition("=")[2], 16))
        assert text.decode().split("\n")[:-1] == before.decode().split("\n")[:-1]


def test_a_voter_becomes_an_observer_and_votes_again(tmp_path: Path) -> None:
    """Its role changes without a restart, and it takes writes in each; its client
    port moves with its line."""
    with growing_ensemble(tmp_path, count=3) as ensemble, super_user(ensemble, 1, 2) as client:
        third = ensemble.members[3]
        third.start()
        until_role(ensemble, 3, "follower")
        client.reconfig(joining(ensemble, 3), None, None)
        own = third.servers["server.3"]
        port = free_ports(1)[0]
        moved = f"{own.rpartition(':')[0]}:{port}"
        for role, text in (("observer", own.replace("participant", "observer")), ("follower", moved)):
            client.reconfig(f"server.3={text}", None, None)
            third.client_port = int(text.rpartition(":")[2])
            until_role(ensemble, 3, role, "leader" if role == "follower" else role)
            with ensemble.client(3) as one, suppress(NodeExistsError):
                one.retry(one.create, f"/{role}", b"")
        client.retry(client.sync, "/")
        assert sorted(client.retry(client.get_children, "/")) == ["follower", "observer", "zookeeper"]


@pytest.mark.java
@needs_reference
def test_zkcli_and_our_shell_change_the_ensemble(tmp_path: Path) -> None:
    """zkCli adds a server and shows the configuration, the shell removes it."""
    with growing_ensemble(tmp_path, count=3) as ensemble:
        ensemble.members[3].start()
        until_role(ensemble, 3, "follower")
        address = ensemble.members[1].address
        added = joining(ensemble, 3).removeprefix("server.")
        zkcli = apache_command("tool", "org.apache.zookeeper.ZooKeeperMain", "-server", address)
        shown = run(zkcli, f"addauth digest super:test\nreconfig -add {added}\nconfig\nquit\n")
        assert "Committed new configuration" in shown
        assert shown.count(f"server.{added}") == 2
        shell = [sys.executable, "-m", "barnabas", "zookeeper-shell", address]
        shown = run(shell, "addauth digest super:test\nreconfig -remove 3\nconfig -c\nquit\n")
        assert "Committed new configuration" in shown
        assert f"server.{added}" not in shown
        assert f"{address},{ensemble.members[2].address}" in shown


def run(command: list[str], text: str) -> str:
    """What a shell prints for lines on its standard input."""
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=120, check=False)
    return done.stdout + done.stderr


def test_a_server_alone_refuses_a_reconfig(tmp_path: Path) -> None:
    """As Apache's: unimplemented."""
    folder = tmp_path / "member1"
    folder.mkdir()
    port = free_ports(1)[0]
    member = Member(1, folder, port, {}, {"reconfigEnabled": "true"}, is_apache=False)
    member.start()
    try:
        client = KazooClient(member.address)
        client.start(60)
        refused(client, UnimplementedError, leaving="3")
        client.stop()
        client.close()
    finally:
        member.stop()
