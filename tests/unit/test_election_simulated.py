"""Elections of the production code in a simulated network: kills, cuts in one or both
directions, loss, slow answers.

Each server elects, then checks now and then whether a quorum is with the leader it found, as Zab's
synchronization does; if not, it elects again.
"""

import asyncio
from random import Random

import pytest

from barnabas.coordination.election.fast_leader_election import FastLeaderElection
from barnabas.coordination.election.peers import ElectionPeers
from barnabas.coordination.election.vote import PeerState
from barnabas.coordination.quorum.configuration import QuorumConfiguration
from barnabas.testing.simulation.loop import Process, SimulatedClock, SimulatedLoop
from barnabas.testing.simulation.network import Fabric, SimulatedNetwork

HEALED_WITHIN_S = 15.0


class Ensemble:
    """Servers on hosts of their own."""

    def __init__(self, seed: int, servers: int) -> None:
        self.rng = Random(seed)
        self.errors: list[object] = []
        self.loop = SimulatedLoop(lambda _process, context: self.errors.append(context))
        self.fabric = Fabric(self.loop, Random(seed), None)
        self.configuration = QuorumConfiguration.parse(
            {f"server.{n}": f"zk-{n}:2888:3888" for n in range(1, servers + 1)}
        )
        self.zxids = {n: self.rng.randrange(3) for n in self.configuration.servers}
        self.peers: dict[int, ElectionPeers] = {}
        self.processes: dict[int, Process] = {}
        self.lives = 0
        for server_id in self.configuration.servers:
            self.start(server_id)

    def start(self, server_id: int) -> None:
        """Boot a server that does not run."""
        self.lives += 1
        host = self.fabric.host(f"zk-{server_id}")
        host.is_up = True
        process = self.processes[server_id] = Process(self.loop, host.address, Random(f"{server_id} {self.lives}"))
        network = SimulatedNetwork(self.fabric, host, process)
        election = FastLeaderElection(server_id, self.configuration)
        self.peers[server_id] = ElectionPeers(election, network=network, clock=SimulatedClock(self.loop))
        process.call_soon(lambda: self.loop.create_task(self._run(server_id, self.peers[server_id])))

    async def _run(self, server_id: int, peers: ElectionPeers) -> None:
        await peers.start()
        while True:
            leader = await peers.elect(self.zxids[server_id], 0)
            for _ in range(2):  # a leader may be elected a moment after its followers
                await asyncio.sleep(1.0)
            while self.is_supported(leader) and self.can_talk(server_id, leader):  # noqa: ASYNC110  # no event says so
                await asyncio.sleep(0.2)

    def following(self, leader: int) -> list[int]:
        """The running servers that have this leader."""
        return [
            server_id
            for server_id, peers in self.peers.items()
            if self.processes[server_id].is_alive
            and peers.election.state is not PeerState.LOOKING
            and peers.election.vote.leader == leader
            and self.can_talk(server_id, leader)
        ]

    def can_talk(self, one: int, other: int) -> bool:
        """Whether the network lets both directions through."""
        names = f"zk-{one}", f"zk-{other}"
        return not self.fabric.is_blocked(*names) and not self.fabric.is_blocked(*reversed(names))

    def is_supported(self, leader: int) -> bool:
        """Whether a quorum is with a leader that leads."""
        leads = self.peers[leader].election.state is PeerState.LEADING and self.processes[leader].is_alive
        return leads and self.configuration.verifier.contains_quorum(self.following(leader))

    def kill(self, server_id: int) -> None:
        """kill -9."""
        process = self.processes[server_id]
        if process.is_alive:
            process.die()
            self.fabric.process_died(self.fabric.host(f"zk-{server_id}"), process)

    async def trouble(self, duration_s: float) -> None:
        """Faults for a while, then none."""
        rng, end_s = self.rng, self.loop.time() + duration_s
        ids = list(self.configuration.servers)
        while self.loop.time() < end_s:
            await asyncio.sleep(rng.expovariate(1.0))
            server_id, other = rng.sample(ids, 2)
            match rng.randrange(5):
                case 0:
                    self.kill(server_id)
                case 1 if not self.processes[server_id].is_alive:
                    self.start(server_id)
                case 2:
                    self.fabric.block(f"zk-{server_id}", f"zk-{other}")
                case 3:
                    for each in ids:
                        self.fabric.block(f"zk-{server_id}", f"zk-{each}")
                        self.fabric.block(f"zk-{each}", f"zk-{server_id}")
                case 4:
                    self.fabric.loss, self.fabric.latency_factor = rng.choice(((0.05, 1.0), (0.0, 100.0)))
            if rng.random() < 0.3:
                self.fabric.heal()
        self.fabric.heal()
        for server_id in ids:
            if not self.processes[server_id].is_alive:
                self.start(server_id)

    async def agreed(self, limit_s: float) -> int:
        """The leader that all follow; fails when there is none in time."""
        deadline_s = self.loop.time() + limit_s
        while self.loop.time() < deadline_s:
            for server_id in self.configuration.servers:
                if self.is_supported(server_id) and len(self.following(server_id)) == len(self.configuration.servers):
                    return server_id
            await asyncio.sleep(0.05)
        states = {n: (p.election.state.name, p.election.vote, p.election.round) for n, p in self.peers.items()}
        raise AssertionError(f"no agreement within {limit_s} s: {states}")


@pytest.mark.parametrize("seed", range(40))
def test_after_any_trouble_all_servers_find_one_leader_within_seconds(seed: int) -> None:
    """However long they were apart: retries do not wait for the growing intervals of the votes."""
    ensemble = Ensemble(seed, 3 if seed % 2 else 5)

    async def run() -> None:
        await ensemble.agreed(5.0)
        await ensemble.trouble(60.0 if seed % 5 else 200.0)
        await ensemble.agreed(HEALED_WITHIN_S)

    try:
        ensemble.loop.run_until_complete(run())
        assert ensemble.errors == []
    finally:
        for process in ensemble.processes.values():
            process.die()
        ensemble.loop.close()
