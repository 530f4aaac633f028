"""Ensembles that change while they run: ours, and ours with Apache ZooKeeper's, through kazoo, zkCli and our shell."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from kazoo.client import KazooClient

from support.ensemble import HOST, Ensemble, Member
from support.needs import needs_reference
from support.ports import free_ports
from support.waiting import eventually

pytestmark = [pytest.mark.interop]

java = [pytest.mark.java, needs_reference]
SUPER_DIGEST = "super:D/InIHSb7yEEbrWz8b9l71RjZJU="  # of the password "test"


def line(ports: list[int], role: str = "participant") -> str:
    """The value of a server line with a client port."""
    return f"{HOST}:{ports[0]}:{ports[1]}:{role};{HOST}:{ports[2]}"


@contextmanager
def growing_ensemble(directory: Path, apaches: tuple[int, ...] = (), *, count: int = 4) -> Iterator[Ensemble]:
    """Servers 1 and 2 are the ensemble; each of the others knows itself and them, and is not started."""
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


def until_role(ensemble: Ensemble, server_id: int, *roles: str) -> None:
    """Wait until a member serves in a role."""
    member = ensemble.members[server_id]
    eventually(lambda: member.mode() in roles, timeout_s=40, what=f"server {server_id} is {' or '.join(roles)}")


@pytest.mark.parametrize(
    "apaches",
    [
        pytest.param((), id="ours"),
        pytest.param((1, 3), id="ours leads, one of Apache's joins", marks=java),
        pytest.param((2, 4), id="Apache's leads, one of ours joins", marks=java),
    ],
)
def test_servers_join_and_the_leader_leaves(tmp_path: Path, apaches: tuple[int, ...]) -> None:
    """A new server follows without a vote, joins, votes; the leader is removed, and a write follows on all others."""
    with growing_ensemble(tmp_path, apaches) as ensemble, super_user(ensemble) as client:
        client.create("/a", b"")
        first = client.get("/zookeeper/config")[0].decode()
        assert first.endswith("version=100000000")
        seen: list[object] = []
        client.get("/zookeeper/config", watch=seen.append)
        for server_id in (3, 4):
            ensemble.members[server_id].start()
            until_role(ensemble, server_id, "follower")
            text, stat = client.reconfig(joining(ensemble, server_id), None, None)
            version = int(text.decode().rpartition("version=")[2], 16)
            assert f"server.{server_id}={ensemble.members[server_id].servers[f'server.{server_id}']}" in text.decode()
            assert (stat.version, stat.mzxid) == (-1, version)
            client.create(f"/joined{server_id}", b"")
        eventually(lambda: len(seen) == 1, timeout_s=10, what="the watch of the configuration fires")
        leader = ensemble.leader()
        assert leader is not None
        removed = leader.server_id
        text, _ = client.reconfig(None, str(removed), None)
        assert f"server.{removed}=" not in text.decode()
        eventually(
            lambda: any(each.mode() == "leader" for each in ensemble.members.values() if each is not leader),
            timeout_s=40,
            what="another one leads",
        )
        leader.stop()
        rest = [n for n in ensemble.members if n != removed]
        with super_user(ensemble, *rest) as other:
            other.create("/without", b"")
        for n in rest:
            until_role(ensemble, n, "follower", "leader")
            with ensemble.client(n) as one:
                one.sync("/")
                assert sorted(one.get_children("/")) == ["a", "joined3", "joined4", "without", "zookeeper"]
                assert one.get("/zookeeper/config")[0] == text
        check_files(ensemble, rest, text.decode())


def check_files(ensemble: Ensemble, server_ids: list[int], text: str) -> None:
    """Every member's files have the configuration in force, in the form of Apache's servers."""
    *lines, version = text.split("\n")
    for n in server_ids:
        directory = ensemble.members[n].directory
        dynamic = directory / f"zoo.cfg.dynamic.{version.removeprefix('version=')}"
        eventually(dynamic.exists, timeout_s=10, what=str(dynamic))
        assert dynamic.read_text() == "\n".join(sorted(lines))
        settings = (directory / "zoo.cfg").read_text()
        assert f"dynamicConfigFile={dynamic}\n" in settings
        assert "server." not in settings
        assert "clientPort=" not in settings
        assert not (directory / "zoo.cfg.dynamic.next").exists()
        assert "server.1=" in (directory / "zoo.cfg.bak").read_text()
