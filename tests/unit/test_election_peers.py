"""Elections over real sockets: whole ensembles, restarts, and what malformed and
uninvited peers get."""

import asyncio
import contextlib
import logging
import os
import socket
import struct
import tracemalloc
from collections.abc import Awaitable, Callable

import pytest

from barnabas.base.clock import SystemClock
from barnabas.base.errors import ConfigError
from barnabas.coordination.election.fast_leader_election import FastLeaderElection
from barnabas.coordination.election.messages import (
    MessageStream,
    Notification,
    encode_greeting,
    encode_notification,
)
from barnabas.coordination.election.peers import ElectionPeers
from barnabas.coordination.election.vote import PeerState, Vote
from barnabas.coordination.quorum.configuration import QuorumConfiguration
from barnabas.net.sockets import SocketNetwork
from support.ports import free_ports
from support.promptness import promptly

HOST = "127.0.0.1"
BEST = Notification(PeerState.LOOKING, Vote(5, 9, 3), 1)


def a_configuration(servers: int = 3) -> QuorumConfiguration:
    ports = free_ports(2 * servers)
    return QuorumConfiguration.parse(
        {f"server.{n + 1}": f"{HOST}:{ports[2 * n]}:{ports[2 * n + 1]}" for n in range(servers)}
    )


def peers_of(my_id: int, configuration: QuorumConfiguration) -> ElectionPeers:
    election = FastLeaderElection(my_id, configuration)
    return ElectionPeers(election, network=SocketNetwork(), clock=SystemClock(), bind_tries=1)


def run(test: Callable[[QuorumConfiguration, list[ElectionPeers]], Awaitable[None]], servers: int = 3) -> None:
    """Run a test with an ensemble that listens and does not elect yet."""

    async def running() -> None:
        configuration = a_configuration(servers)
        peers = [peers_of(my_id, configuration) for my_id in configuration.servers]
        try:
            for each in peers:
                await each.start()
            async with asyncio.timeout(30):
                await test(configuration, peers)
        finally:
            for each in peers:
                await each.close()
            await asyncio.sleep(0)

    asyncio.run(running())


def test_an_ensemble_elects_the_server_that_knows_most_and_logs_each_step(caplog: pytest.LogCaptureFixture) -> None:
    """All agree; the log has the lines that ZooKeeper's has."""
    caplog.set_level(logging.INFO)

    async def elect(_: QuorumConfiguration, peers: list[ElectionPeers]) -> None:
        zxids = [5, 7, 6]
        found = await asyncio.gather(*(each.elect(zxid, 1) for each, zxid in zip(peers, zxids, strict=True)))
        assert found == [2, 2, 2]
        states = [each.election.state for each in peers]
        assert states == [PeerState.FOLLOWING, PeerState.LEADING, PeerState.FOLLOWING]

    run(elect)
    assert "New election. My id = 2, proposed zxid=0x7" in caplog.messages
    assert any(line.startswith("Have smaller server identifier, so dropping the") for line in caplog.messages)
    assert any("n.leader: 2, n.round: 0x1, n.peerEpoch: 0x1, n.zxid: 0x7" in line for line in caplog.messages)
    assert any(line.endswith("message format version: 0x2, n.config version: 0x0") for line in caplog.messages)
    for name in ("following", "leading"):
        assert caplog.messages.index(f"Peer state changed: {name}") < caplog.messages.index(name.upper())


def test_a_server_that_restarts_finds_the_leader_and_a_new_election_replaces_a_dead_one() -> None:
    """The connections of the dead server are replaced, in both directions."""

    async def restart(configuration: QuorumConfiguration, peers: list[ElectionPeers]) -> None:
        assert await asyncio.gather(*(each.elect(0, 0) for each in peers)) == [3, 3, 3]
        for my_id in (1, 2):
            await peers[my_id - 1].close()
            peers[my_id - 1] = peers_of(my_id, configuration)
            await peers[my_id - 1].start()
            assert await peers[my_id - 1].elect(99, 99) == 3
        await peers[2].close()
        assert await asyncio.gather(*(each.elect(0, 0) for each in peers[:2])) == [2, 2]
        peers[2] = peers_of(3, configuration)
        await peers[2].start()
        assert await peers[2].elect(99, 99) == 2

    run(restart)


def test_a_server_that_starts_later_completes_the_quorum() -> None:
    """The first one waits, and is answered at once."""

    async def late(_: QuorumConfiguration, peers: list[ElectionPeers]) -> None:
        first = asyncio.create_task(peers[0].elect(0, 0))
        await asyncio.sleep(0.3)
        assert not first.done()
        assert await peers[1].elect(0, 0) == 2
        assert await first == 2

    run(late)


def test_the_election_port_that_is_taken_is_reported_with_its_line() -> None:
    """After the tries that are configured."""

    async def start_twice(configuration: QuorumConfiguration, _: list[ElectionPeers]) -> None:
        with pytest.raises(ConfigError, match=r"cannot listen on .* \(the election port of server.1\)"):
            await peers_of(1, configuration).start()

    run(start_twice)


async def closed_within(port: int, data: bytes, limit_s: float = 1.0) -> bytes:
    """Send bytes; what came back until the end of the connection, which must come in time."""
    reader, writer = await asyncio.open_connection(HOST, port)
    try:
        writer.write(data)
        with promptly(os.getpid(), "the end of the connection", limit_s=limit_s):
            async with asyncio.timeout(60):
                try:
                    got = await reader.read()
                except ConnectionResetError:
                    got = b""
        return got
    finally:
        writer.close()


MALFORMED = {
    "http": b"GET / HTTP/1.1\r\n\r\n",
    "four-letter word": b"srvr",
    "nothing": b"",
    "half a greeting": encode_greeting(3, "x:1")[:13],
    "negative id": struct.pack(">qqi", -65536, -5, 3) + b"x:1",
    "huge address": struct.pack(">qqi", -65536, 3, 2**31 - 1),
    "greeting of this server": encode_greeting(2, "x:1"),
    "smaller stranger": encode_greeting(0, "x:1"),
    "silent stranger": encode_greeting(99, "x:1"),
    "huge notification": encode_greeting(3, "x:1") + struct.pack(">i", 2**31 - 1),
    "negative notification": encode_greeting(3, "x:1") + struct.pack(">i", -1) + bytes(100),
    "half a notification": encode_greeting(3, "x:1") + encode_notification(BEST)[:20],
    "impossible state": encode_greeting(3, "x:1") + struct.pack(">iiqqqqii", 44, 9, 3, 0, 1, 0, 2, 0),
    "configuration without sense": encode_greeting(3, "x:1")
    + encode_notification(Notification(PeerState.LOOKING, Vote(0, 0, 3), 1, b"server.1=nonsense")),
}


@pytest.mark.parametrize("data", MALFORMED.values(), ids=MALFORMED.keys())
def test_a_peer_that_sends_nonsense_is_closed_within_a_second(data: bytes) -> None:
    """Before and after an election, which goes on meanwhile."""

    async def attack(configuration: QuorumConfiguration, peers: list[ElectionPeers]) -> None:
        port = configuration.servers[2].election_port
        await closed_within(port, data)
        assert await asyncio.gather(*(each.elect(0, 0) for each in peers)) == [3, 3, 3]
        await closed_within(port, data)

    run(attack)


def test_a_stranger_gets_an_answer_and_changes_nothing() -> None:
    """Its vote would win, and it is not counted."""

    async def ask(configuration: QuorumConfiguration, peers: list[ElectionPeers]) -> None:
        assert await asyncio.gather(*(each.elect(0, 0) for each in peers)) == [3, 3, 3]
        request = encode_greeting(99, "x:1") + encode_notification(BEST)
        got = await closed_within(configuration.servers[2].election_port, request)
        (answer,) = MessageStream(expects_greeting=False).feed(got)
        assert isinstance(answer, Notification)
        assert (answer.state, answer.vote.leader) == (PeerState.FOLLOWING, 3)

    run(ask)


def test_many_connections_that_say_little_cost_little_and_members_are_served() -> None:
    """A flood of half greetings and half notifications: memory stays bounded, and an
    election succeeds beside it."""

    async def flood(configuration: QuorumConfiguration, peers: list[ElectionPeers]) -> None:
        port = configuration.servers[2].election_port
        half = struct.pack(">iiqqqqii", 500_000, 0, 3, 0, 1, 0, 2, 500_000 - 44) + b"x" * 30_000
        tracemalloc.start()
        flooding = []
        for number in range(300):
            data = encode_greeting(1000 + number, "x:1") + half if number % 2 else encode_greeting(3, "x:1")[:11]
            flooding.append(asyncio.create_task(closed_within(port, data, limit_s=3)))
        assert await asyncio.gather(*(each.elect(0, 0) for each in peers)) == [3, 3, 3]
        await asyncio.gather(*flooding, return_exceptions=True)
        assert tracemalloc.get_traced_memory()[1] < 16 << 20
        tracemalloc.stop()

    run(flood)


def test_a_member_that_does_not_read_does_not_fill_the_memory() -> None:
    """It asks without end and never reads: it is cut off, or no longer read from."""

    async def ask(configuration: QuorumConfiguration, peers: list[ElectionPeers]) -> None:
        await peers[2].close()
        assert await asyncio.gather(*(each.elect(0, 0) for each in peers[:2])) == [2, 2]
        loop = asyncio.get_running_loop()
        with socket.socket() as client:
            client.setblocking(False)
            await loop.sock_connect(client, (HOST, configuration.servers[1].election_port))
            await loop.sock_sendall(client, encode_greeting(3, "x:1"))
            with contextlib.suppress(ConnectionError, TimeoutError):
                async with asyncio.timeout(3):
                    while True:
                        await loop.sock_sendall(client, encode_notification(BEST) * 500)
            assert sum(link.connection.unsent_bytes for link in peers[0]._open) < 4 << 20

    run(ask)
