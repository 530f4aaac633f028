"""Elections among our servers and those of Apache ZooKeeper: each accepts the other's votes,
and all find one leader."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from types import MappingProxyType

import pytest

from barnabas.base.clock import SystemClock
from barnabas.coordination.election.fast_leader_election import ElectionEffect, FastLeaderElection
from barnabas.coordination.election.messages import Notification
from barnabas.coordination.election.peers import ElectionPeers
from barnabas.coordination.election.vote import PeerState
from barnabas.coordination.quorum.configuration import QuorumConfiguration
from barnabas.net.sockets import SocketNetwork
from support.apache_ensemble import ApacheMember, apache_member
from support.needs import needs_reference
from support.ports import free_ports

pytestmark = [pytest.mark.interop, pytest.mark.java, needs_reference]

HOST = "127.0.0.1"


Test = Callable[[dict[int, ApacheMember], dict[int, ElectionPeers], list[int]], Awaitable[None]]


def run(
    directory: Path,
    ours: tuple[int, ...],
    apaches: tuple[int, ...],
    test: Test,
    lines: Mapping[str, str] = MappingProxyType({}),
) -> None:
    """Three servers, with more ``lines`` about them.

    The list has the quorum ports of ours to which an elected leader's followers have connected."""
    ports = free_ports(9)
    servers = {f"server.{n + 1}": f"{HOST}:{ports[3 * n]}:{ports[3 * n + 1]}" for n in range(3)}
    servers |= lines
    configuration = QuorumConfiguration.parse(servers)
    followed: list[int] = []

    async def running() -> None:
        network = SocketNetwork()
        async with contextlib.AsyncExitStack() as stack:
            peers = {}
            for my_id in ours:
                election = FastLeaderElection(my_id, configuration)
                peers[my_id] = ElectionPeers(election, network=network, clock=SystemClock())
                await peers[my_id].start()
                stack.push_async_callback(peers[my_id].close)

                def accept(_: asyncio.StreamReader, writer: asyncio.StreamWriter, my_id: int = my_id) -> None:
                    """Says nothing: followers wait for as long as their initLimit says."""
                    followed.append(my_id)
                    stack.callback(writer.close)

                server = await asyncio.start_server(accept, HOST, configuration.servers[my_id].quorum_port)
                stack.callback(server.close)
            members = {
                n: stack.enter_context(
                    apache_member(directory / f"apache{n}", n, servers, ports[3 * n - 1], initLimit=30)
                )
                for n in apaches
            }
            async with asyncio.timeout(120):
                await test(members, peers, followed)

    asyncio.run(running())


async def logged(member: ApacheMember, text: str) -> None:
    while text not in member.log():  # noqa: ASYNC110  # a file has no event
        await asyncio.sleep(0.1)


async def heard(peers: dict[int, ElectionPeers], *server_ids: int) -> None:
    """Wait until each of ours, which does not elect yet, has a vote of these servers."""
    while not all(each.election._early.keys() >= set(server_ids) for each in peers.values()):  # noqa: ASYNC110  # no event
        await asyncio.sleep(0.05)


def test_two_apaches_elect_their_own_and_ours_follows(tmp_path: Path) -> None:
    """All know nothing, so the greatest id wins; ours hears of it whenever it comes,
    and after a restart."""

    async def elect(members: dict[int, ApacheMember], peers: dict[int, ElectionPeers], _: list[int]) -> None:
        await heard(peers, 2, 3)  # with the second alone, ours would elect that one
        assert await peers[1].elect(0, 0) == 3
        await logged(members[3], "LEADING - LEADER ELECTION TOOK")
        await logged(members[2], "FOLLOWING - LEADER ELECTION TOOK")
        assert await peers[1].elect(0x500000000, 5) == 3
        assert peers[1].election.state is PeerState.FOLLOWING

    run(tmp_path, (1,), (2, 3), elect)


def test_two_apaches_accept_our_better_vote_and_follow_us(tmp_path: Path) -> None:
    """Ours has the smallest id and the greatest zxid; both connect to its quorum port."""

    async def elect(members: dict[int, ApacheMember], peers: dict[int, ElectionPeers], followed: list[int]) -> None:
        assert await peers[1].elect(0x100000007, 1) == 1
        assert peers[1].election.state is PeerState.LEADING
        for number in (2, 3):
            await logged(members[number], "FOLLOWING - LEADER ELECTION TOOK")
            assert "n.zxid:0x100000007" in members[number].log()
        while len(followed) < 2:  # noqa: ASYNC110  # the list has no event
            await asyncio.sleep(0.05)

    run(tmp_path, (1,), (2, 3), elect)


@pytest.mark.parametrize(("zxids", "leader"), [({1: 0, 2: 0}, 3), ({1: 0x100000001, 2: 0x100000001}, 2)])
def test_two_of_ours_and_one_apache_agree(tmp_path: Path, zxids: dict[int, int], leader: int) -> None:
    """By id when nothing is known, else by zxid and then by id."""

    async def elect(members: dict[int, ApacheMember], peers: dict[int, ElectionPeers], _: list[int]) -> None:
        epoch = 1 if any(zxids.values()) else 0
        await heard(peers, 3)  # else the two of ours, which are a majority, would elect one of them
        found = await asyncio.gather(*(peers[n].elect(zxid, epoch) for n, zxid in zxids.items()))
        assert found == [leader, leader]
        await logged(members[3], f"{'LEADING' if leader == 3 else 'FOLLOWING'} - LEADER ELECTION TOOK")

    run(tmp_path, (1, 2), (3,), elect)


def test_a_server_whose_vote_weighs_nothing_is_elected_by_neither_kind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Server 3 has the greatest id and no weight; both kinds write the groups and
    weights in the same bytes."""

    async def elect(members: dict[int, ApacheMember], peers: dict[int, ElectionPeers], _: list[int]) -> None:
        notified: list[bytes] = []
        election = peers[1].election
        receive = election.receive

        def received(sender: int, notification: Notification, now_ms: int) -> list[ElectionEffect]:
            notified.append(notification.configuration)
            return receive(sender, notification, now_ms)

        monkeypatch.setattr(FastLeaderElection, "receive", lambda _self, *rest: received(*rest))
        assert await peers[1].elect(0, 0) == 2
        await logged(members[2], "LEADING - LEADER ELECTION TOOK")
        assert set(notified) == {peers[1].election.configuration.text().encode()}

    run(tmp_path, (1,), (2, 3), elect, {"group.1": "1:2:3", "weight.1": "1", "weight.2": "2", "weight.3": "0"})
