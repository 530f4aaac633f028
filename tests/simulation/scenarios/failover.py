"""One broker's death as a readable story: ``python -m simulation.scenarios.failover --seed 3``.

Three brokers, one partition with three replicas, three records with acks=all. The partition's
leader is killed, as by SIGKILL; a record is produced to the new leader; the old one comes back. The
lines say when a znode changed, when a replica changed its role, its log end offset or its high
watermark, and what the client was answered. The same seed gives the same lines:
docs/contributing/failover.txt is the output for `SEED`.
"""

import argparse
import asyncio
import sys
from collections.abc import Callable

from barnabas.base.ids import TopicPartition
from barnabas.broker.cluster.channels import ChannelError
from barnabas.broker.cluster.znodes import BROKER_IDS, CONTROLLER, decode_controller, partition_state_path
from barnabas.testing.simulation.cluster_view import ClusterView
from barnabas.testing.simulation.simulation import COORDINATION, Machine, Simulation
from barnabas.testing.virtual.sending import produce_request
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.records.records import Record, build_batch
from simulation.scenarios.admin import create_simulated_topic
from simulation.scenarios.clients import ClusterClient
from simulation.scenarios.plan import TopicPlan

__all__ = ["SEED", "failover_trace"]

SEED = 3
BROKERS = 3
ORDERS = TopicPartition("orders", 0)
_LOOK_S = 0.001
_TIMEOUT_S = 60
_CALM_S = 2.0


class _Storyteller:
    """Writes a line for each change that it sees."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._view = ClusterView(simulation)
        self._start_s = simulation.now_s
        self._roles: dict[str, str] = {}
        self._offsets: dict[str, str] = {}
        self.lines: list[str] = []
        simulation.on_commit.append(self._committed)

    def note(self, who: str, what: str) -> None:
        """Add a line with the virtual time since the start, in seconds."""
        line = f"{self._simulation.now_s - self._start_s:6.3f}  {who:<8}  {what}"
        if self.lines[-1:] != [line]:
            self.lines.append(line)

    def note_client(self, what: str) -> None:
        """Add a line of the client, after those of the replicas that led to it."""
        self.look()
        self.note("client", what)

    def _committed(self, paths: list[str]) -> None:
        tree = self._view.tree()
        for path in paths:
            node = None if tree is None else tree.nodes.get(path)
            if path.startswith(f"{BROKER_IDS}/"):
                self.note("znode", f"{path} {'removed' if node is None else f'created, broker epoch {node.czxid}'}")
            elif path == CONTROLLER:
                what = "removed" if node is None else f"created by broker {decode_controller(node.data)}"
                self.note("znode", f"{path} {what}")
            elif path == partition_state_path(ORDERS) and (state := self._view.state(ORDERS)) is not None:
                found = state.leader_and_isr
                self.note(
                    "znode", f"{path}: leader {found.leader}, ISR {list(found.isr)}, leader epoch {found.leader_epoch}"
                )

    def look(self) -> None:
        """See what became of the replicas since the last look."""
        for machine in self._simulation.brokers:
            role = offsets = ""
            partition = None
            if machine.is_running and machine.starting is not None and machine.starting.has_components:
                partition = machine.starting.components.replicas.get(ORDERS)
            if partition is not None:
                what = "leads" if partition.is_leader else "follows"
                role = f"{what} {ORDERS} in leader epoch {partition.leader_epoch}"
                offsets = (
                    f"log end offset {partition.log.log_end_offset}, high watermark {partition.log.high_watermark}"
                )
            self._note_change(machine, self._roles, role)
            self._note_change(machine, self._offsets, offsets)

    def _note_change(self, machine: Machine, known: dict[str, str], text: str) -> None:
        if text and known.get(machine.name) != text:
            self.note(machine.name, text)
        known[machine.name] = text

    async def watch(self) -> None:
        """Look again and again."""
        while True:
            self.look()
            await asyncio.sleep(_LOOK_S)


async def _produce(client: ClusterClient, story: _Storyteller, value: bytes) -> None:
    """Produce one record with acks=all, until it is acknowledged."""
    while True:
        leader = await client.leader(ORDERS)
        batch = build_batch([Record(0, 0, None, value, [])])
        request = produce_request({ORDERS: bytes(batch)}, client.topic_ids, acks=-1, timeout_ms=30_000)
        try:
            response = await client.channels.send(leader, request)
        except ChannelError:
            story.note_client(f"{value.decode()!r} to broker {leader}: no connection, look for the leader again")
            client.forget_leader(ORDERS)
            await asyncio.sleep(0.1)
            continue
        answer = response.responses[0].partition_responses[0]
        code = ErrorCode.of(answer.error_code)
        if code is ErrorCode.NONE:
            story.note_client(f"{value.decode()!r} to broker {leader}: acknowledged at offset {answer.base_offset}")
            return
        story.note_client(f"{value.decode()!r} to broker {leader}: {code.name}, look for the leader again")
        client.forget_leader(ORDERS)
        await asyncio.sleep(0.1)


async def _until(simulation: Simulation, condition: Callable[[], object], what: str) -> None:
    if not await simulation.until(condition, _TIMEOUT_S, what):
        raise TimeoutError(what)


async def _act(simulation: Simulation, story: _Storyteller) -> None:
    view = ClusterView(simulation)
    simulation.start_coordination()
    await _until(simulation, lambda: simulation.machine(COORDINATION).is_serving, "the coordination service starts")
    for broker_id in range(BROKERS):
        simulation.start_broker(broker_id)
    await _until(simulation, lambda: all(machine.is_serving for machine in simulation.brokers), "the brokers start")
    client = ClusterClient(simulation, "client", range(BROKERS))
    watching = simulation.loop.create_task(story.watch())
    story.note_client("creates topic orders: 1 partition, replication factor 3, min.insync.replicas 2")
    plan = TopicPlan(1, {"min.insync.replicas": "2"})
    await client.spawn(create_simulated_topic(client, ORDERS.topic, plan, BROKERS))
    for value in (b"one", b"two", b"three"):
        await client.spawn(_produce(client, story, value))
    await asyncio.sleep(_CALM_S)
    leader = view.broker(view.leader(ORDERS))
    story.note(leader.name, "KILLED")
    simulation.kill(leader, restart=False)
    await client.spawn(_produce(client, story, b"four"))
    await asyncio.sleep(_CALM_S)
    story.note(leader.name, "STARTED AGAIN")
    simulation.start(leader)

    def is_whole() -> bool:
        state = view.state(ORDERS)
        return state is not None and len(state.leader_and_isr.isr) == BROKERS

    await _until(simulation, is_whole, "the in-sync set is whole again")
    await asyncio.sleep(_CALM_S)
    watching.cancel()


def failover_trace(seed: int = SEED) -> list[str]:
    """The story of a seed, line by line."""
    with Simulation(seed) as simulation:
        story = _Storyteller(simulation)
        simulation.run(_act(simulation, story))
        if simulation.history.violations:
            raise AssertionError(simulation.history.violations)
        return story.lines


def main(arguments: list[str] | None = None) -> int:
    """Print the story; returns the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m simulation.scenarios.failover", description="Print one broker's death, step by step"
    )
    parser.add_argument("--seed", type=int, default=SEED)
    options = parser.parse_args(arguments)
    sys.stdout.write("\n".join(failover_trace(options.seed)) + "\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
