"""The simulated network keeps the contract of the real one, and fails as real ones do."""

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

import pytest

from barnabas.base.network import Connection, Network
from barnabas.testing.simulation.loop import Process, SimulatedLoop
from barnabas.testing.simulation.network import Fabric, SimulatedNetwork
from support.network_contract import LIMIT, NetworkContract, Recorder, framed


class TestSimulationKeepsTheContract(NetworkContract):
    """The simulated network, both ends in one process."""

    def run(self, test: Callable[[Network], Awaitable[None]]) -> None:
        world = World("a")
        world.run_in("a", test(world.networks["a"]))


class World:
    """Hosts of one process each, on one loop."""

    def __init__(self, *names: str) -> None:
        self.loop = SimulatedLoop()
        self.fabric = Fabric(self.loop, Random(1))
        self.processes = {name: Process(self.loop, name, Random(name)) for name in names}
        self.networks = {
            name: SimulatedNetwork(self.fabric, self.fabric.host(name), self.processes[name]) for name in names
        }

    def run_in(self, name: str, work) -> object:
        task = self.processes[name].context.run(self.loop.create_task, work)
        try:
            return self.loop.run_until_complete(task)
        finally:
            self.loop.close()


async def joined(world: World) -> tuple[Recorder, list[Recorder]]:
    """A client in process a, connected to an echo in process b."""
    servers: list[Recorder] = []
    clients: list[Recorder] = []

    def accept(connection: Connection) -> Recorder:
        servers.append(Recorder(connection, echo=True))
        return servers[-1]

    def connected(connection: Connection) -> Recorder:
        clients.append(Recorder(connection))
        return clients[-1]

    listening = world.processes["b"].context.run(
        world.loop.create_task, world.networks["b"].listen("", 9, accept, max_frame_bytes=LIMIT)
    )
    await listening
    await world.networks["a"].connect("b", 9, connected, max_frame_bytes=LIMIT, timeout_ms=1000)
    clients[0].connection.send([framed(b"hello")])
    await clients[0].until(lambda r: r.frames)
    return clients[0], servers


def test_a_killed_process_ends_its_connections_and_refuses_new_ones() -> None:
    """The peer hears the end at once, as the system of the dead process closes its sockets."""
    world = World("a", "b")

    async def run() -> None:
        client, _ = await joined(world)
        world.processes["b"].die()
        world.fabric.process_died(world.fabric.host("b"), world.processes["b"])
        await client.until(lambda r: r.ended)
        with pytest.raises(ConnectionRefusedError):
            await world.networks["a"].connect("b", 9, Recorder, max_frame_bytes=LIMIT, timeout_ms=1000)

    world.run_in("a", run())


def test_nothing_arrives_behind_a_reset_though_the_process_has_not_seen_it_yet() -> None:
    """A paused process finds what came, then the reset: never later bytes without
    those that were lost."""
    world = World("a", "b")

    async def run() -> None:
        client, servers = await joined(world)
        world.processes["b"].pause()
        client.connection.send([framed(b"one")])
        world.fabric.loss = 1.0
        client.connection.send([framed(b"two")])
        world.fabric.loss = 0.0
        client.connection.send([framed(b"three")])
        await asyncio.sleep(1)
        world.processes["b"].resume()
        await servers[0].until(lambda r: r.ended)
        assert b"three" not in servers[0].frames
        assert isinstance(servers[0].ended[0], ConnectionResetError)

    world.run_in("a", run())


def test_a_machine_without_power_is_silent_and_later_resets() -> None:
    """Its peers are not informed; when it is up again, bytes of old connections are
    answered with a reset."""
    world = World("a", "b")

    async def run() -> None:
        client, _ = await joined(world)
        host = world.fabric.host("b")
        world.processes["b"].die()
        world.fabric.power_lost(host)
        await asyncio.sleep(30)
        assert not client.ended
        with pytest.raises(TimeoutError):
            await world.networks["a"].connect("b", 9, Recorder, max_frame_bytes=LIMIT, timeout_ms=1000)
        host.is_up = True
        client.connection.send([framed(b"anyone there")])
        await client.until(lambda r: r.ended)
        assert isinstance(client.ended[0], ConnectionResetError)

    world.run_in("a", run())


def test_bytes_of_a_blocked_direction_arrive_in_order_when_it_opens() -> None:
    """Only one direction is blocked; nothing is lost by it."""
    world = World("a", "b")

    async def run() -> None:
        client, servers = await joined(world)
        world.fabric.block("b", "a")
        for n in range(3):
            client.connection.send([framed(str(n).encode())])
        await asyncio.sleep(5)
        assert (servers[0].frames, client.frames) == ([b"hello", b"0", b"1", b"2"], [b"hello"])
        world.fabric.unblock("b", "a")
        await client.until(lambda r: len(r.frames) == 4)
        assert client.frames == [b"hello", b"0", b"1", b"2"]

    world.run_in("a", run())


def test_a_direction_that_stays_blocked_fails_the_sender_in_the_end() -> None:
    """TCP gives up when nothing is acknowledged for long; the other side hears nothing."""
    world = World("a", "b")

    async def run() -> None:
        client, servers = await joined(world)
        world.fabric.block("a", "b")
        client.connection.send([framed(b"lost")])
        await asyncio.sleep(100)
        assert isinstance(client.ended[0], TimeoutError)
        assert not servers[0].ended

    world.run_in("a", run())


def test_a_lost_chunk_resets_both_sides() -> None:
    """Loss that TCP cannot mend is a broken connection."""
    world = World("a", "b")

    async def run() -> None:
        client, servers = await joined(world)
        world.fabric.loss = 1.0
        client.connection.send([framed(b"lost")])
        await client.until(lambda r: r.ended)
        await servers[0].until(lambda r: r.ended)
        assert isinstance(client.ended[0], ConnectionResetError)

    world.run_in("a", run())


def test_a_paused_process_is_connected_to_and_reads_when_it_goes_on() -> None:
    """Its system takes the connection and the bytes; the sender is slowed when the
    window is full."""
    world = World("a", "b")

    async def run() -> None:
        client, servers = await joined(world)
        world.processes["b"].pause()
        client.connection.send([framed(bytes(1_000_000))])
        await asyncio.sleep(1)
        assert client.connection.unsent_bytes > 500_000
        assert len(servers[0].frames) == 1
        world.processes["b"].resume()
        await client.until(lambda r: len(r.frames) == 2)

    world.run_in("a", run())
