"""What fails in a run: each fault is a function that does it to some machine now and plans its end.

It returns False when there is nothing to do it to. A machine that lost its power or its disk comes back later than a
session ends, as real ones boot: the controller has taken it from the in-sync sets by then (`losses` says why that
matters). A killed process comes back at any moment.
"""

import errno
from collections.abc import Callable
from typing import TYPE_CHECKING

from barnabas.broker.cluster.channels import ChannelError
from barnabas.broker.replication.partition import Partition
from barnabas.testing.simulation.clients import ClusterClient
from barnabas.testing.simulation.disk import DiskFault
from barnabas.testing.simulation.simulation import COORDINATION, Machine, broker_name
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from barnabas.wire.kafka.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.wire.kafka.messages.update_metadata import UpdateMetadataRequest

if TYPE_CHECKING:
    from barnabas.testing.simulation.scenario import Scenario

__all__ = ["FAULTS"]

_BOOT_S = (7.0, 12.0)
_CUT_S = (0.2, 12.0)


def _kill(scenario: "Scenario") -> bool:
    """kill -9, at once or in the middle of a file operation."""
    machine = scenario.server()
    if machine is None:
        return False
    if scenario.rng.random() < 0.5:
        scenario.simulation.kill(machine)
        scenario.restart_later(machine)
    else:
        scenario.simulation.kill_within(machine, scenario.rng.randrange(40), power=False)
        scenario.later(0.5, 3.0, lambda: scenario.simulation.kill(machine))
        scenario.later(3.1, 6.0, lambda: _start(scenario, machine))
    return True


def _power(scenario: "Scenario") -> bool:
    """A machine's power fails, at once or in the middle of a file operation."""
    machine = scenario.server()
    if machine is None:
        return False
    if scenario.rng.random() < 0.5:
        scenario.simulation.power_off(machine)
    else:
        scenario.simulation.kill_within(machine, scenario.rng.randrange(40), power=True)
        scenario.later(0.5, 1.0, lambda: scenario.simulation.power_off(machine))
    scenario.restart_later(machine, _BOOT_S)
    return True


def _pause(scenario: "Scenario") -> bool:
    """SIGSTOP, for less than a session's time-out or for longer."""
    machine = scenario.server()
    if machine is None:
        return False
    scenario.simulation.pause(machine)
    scenario.later(*scenario.rng.choice(((0.1, 2.0), (7.0, 15.0))), lambda: scenario.simulation.resume(machine))
    return True


def _partition(scenario: "Scenario") -> bool:
    """A server is cut off from all, from one, or in one direction."""
    machine = scenario.server()
    if machine is None:
        return False
    rng = scenario.rng
    others = [name for name in scenario.simulation.machines if name != machine.name]
    cut = rng.choice((others, [rng.choice(others)], [COORDINATION]))
    inward, outward = rng.choice(((True, True), (True, False), (False, True)))
    _cut_off(scenario, [machine.name], cut, _CUT_S, inward=inward, outward=outward)
    return True


def _split(scenario: "Scenario") -> bool:
    """The brokers fall apart into two parts; the coordination service is in reach of one of them."""
    simulation, rng = scenario.simulation, scenario.rng
    names = [machine.name for machine in simulation.brokers]
    if len(names) < 2:
        return False
    part = rng.sample(names, rng.randint(1, len(names) - 1))
    other = [name for name in names if name not in part]
    rng.choice((part, other)).append(COORDINATION)
    _cut_off(scenario, part, other, _CUT_S)
    return True


def _controller(scenario: "Scenario") -> bool:
    """The controller is killed, paused past its session, or cut off from the coordination service."""
    simulation, rng = scenario.simulation, scenario.rng
    active = [m for m in simulation.brokers if m.is_serving and m.server.parts.controller.is_active]
    if not active:
        return False
    _hit(scenario, rng.choice(active))
    return True


def _leader(scenario: "Scenario") -> bool:
    """As `_controller`, for the leader of some partition."""
    led = [
        machine
        for machine in scenario.simulation.brokers
        if machine.is_serving and any(partition.is_leader for partition in machine.server.parts.replicas)
    ]
    if not led:
        return False
    _hit(scenario, scenario.rng.choice(led))
    return True


def _hit(scenario: "Scenario", machine: Machine) -> None:
    simulation, rng = scenario.simulation, scenario.rng
    how = rng.randrange(3)
    if how == 0:
        simulation.kill(machine)
        scenario.restart_later(machine)
    elif how == 1:
        simulation.pause(machine)
        scenario.later(6.5, 10.0, lambda: simulation.resume(machine))
    else:
        _cut_off(scenario, [machine.name], [COORDINATION], (4.0, 10.0))


def _cut_off(
    scenario: "Scenario",
    names: list[str],
    others: list[str],
    span_s: tuple[float, float],
    *,
    inward: bool = True,
    outward: bool = True,
) -> None:
    """Cut machines off from others, for some time."""
    simulation = scenario.simulation
    for name in names:
        simulation.isolate(simulation.machine(name), others, inward=inward, outward=outward)

    def mend() -> None:
        for name in names:
            for other in others:
                simulation.fabric.unblock(name, other)
                simulation.fabric.unblock(other, name)

    scenario.later(*span_s, mend)


def _wipe(scenario: "Scenario") -> bool:
    """A broker gets an empty disk, and comes back under its id when its session is over."""
    machines = [machine for machine in scenario.simulation.brokers if machine.is_serving]
    if len(machines) < 2:
        return False
    machine = scenario.rng.choice(machines)
    scenario.simulation.kill(machine)
    scenario.wiped(machine)
    machine.disk.wipe()
    scenario.restart_later(machine, _BOOT_S)
    return True


def _roll(scenario: "Scenario") -> bool:
    """All brokers are stopped in order and started again, one after the other."""
    if scenario.is_rolling:
        return False
    scenario.is_rolling = True

    async def roll() -> None:
        for machine in scenario.simulation.brokers:
            if machine.is_serving and not scenario.is_over:
                await scenario.simulation.stop(machine)
                if not machine.is_running:
                    scenario.simulation.start(machine)
        scenario.is_rolling = False

    scenario.simulation.loop.create_task(roll())  # the run outlives it, or does not
    return True


def _loss(scenario: "Scenario") -> bool:
    """Connections break again and again, answers are slow."""
    fabric = scenario.simulation.fabric
    fabric.loss = scenario.rng.choice((0.002, 0.01, 0.05))
    fabric.latency_factor = scenario.rng.choice((1.0, 10.0, 100.0))

    def calm() -> None:
        fabric.loss = 0.0
        fabric.latency_factor = 1.0

    scenario.later(0.5, 4.0, calm)
    return True


def _disk_error(scenario: "Scenario") -> bool:
    """A write or a sync fails once; the server gives its disk up and is started anew."""
    machine = scenario.server()
    if machine is None:
        return False
    operation = scenario.rng.choice(("sync", "append", "write", "sync_dir", "open", "rename"))
    machine.disk.faults.append(DiskFault(operation, errno.EIO))
    scenario.later(3.0, 6.0, lambda: _restart(scenario, machine))
    return True


def _failed_sync(scenario: "Scenario") -> bool:
    """A sync fails, and soon the power: whoever believed a second sync is found out."""
    machine = scenario.server()
    if machine is None:
        return False
    machine.disk.faults.append(DiskFault("sync", errno.EIO))

    def power_off() -> None:
        machine.disk.faults.clear()
        scenario.simulation.power_off(machine)
        scenario.restart_later(machine, _BOOT_S)

    scenario.later(0.05, 0.6, power_off)
    return True


def _disk_full(scenario: "Scenario") -> bool:
    """The disk is full for a while; afterwards the server is started anew."""
    machine = scenario.server()
    if machine is None:
        return False
    machine.disk.capacity_bytes = machine.disk.used_bytes + scenario.rng.randrange(4096)

    def free() -> None:
        machine.disk.capacity_bytes = 1 << 40
        _restart(scenario, machine)

    scenario.later(0.5, 4.0, free)
    return True


def _start(scenario: "Scenario", machine: Machine) -> None:
    if not machine.is_running:
        scenario.simulation.start(machine)


def _restart(scenario: "Scenario", machine: Machine) -> None:
    machine.disk.faults.clear()
    scenario.simulation.kill(machine)
    scenario.simulation.start(machine)


def _slow_disk(scenario: "Scenario") -> bool:
    """Syncs take long."""
    machine = scenario.server()
    if machine is None:
        return False
    machine.disk.slowness = scenario.rng.choice((10.0, 100.0, 1000.0))
    scenario.later(0.5, 6.0, lambda: setattr(machine.disk, "slowness", 1.0))
    return True


def _clock_jump(scenario: "Scenario") -> bool:
    """A machine's wall clock is set wrong."""
    machine = scenario.server()
    if machine is None:
        return False
    machine.clock.skew_ms += scenario.rng.choice((-3_600_000, -1000, 1000, 3_600_000))
    return True


def _stop_and_start(scenario: "Scenario") -> bool:
    """A server is stopped in order and started again."""
    machine = scenario.server()
    if machine is None or not machine.is_serving:
        return False

    async def restart() -> None:
        await scenario.simulation.stop(machine)
        if scenario.is_over and not machine.is_running:
            scenario.simulation.start(machine)
        scenario.restart_later(machine)

    scenario.simulation.loop.create_task(restart())  # the run outlives it, or does not
    return True


def _zombie_controller(scenario: "Scenario") -> bool:
    """A controller of an epoch long over speaks to every broker; nobody may listen."""
    zombie = scenario.zombie
    if zombie is None:
        return False
    request = UpdateMetadataRequest(controller_id=99, controller_epoch=0, broker_epoch=-1)

    async def speak(broker: int) -> None:
        machine = scenario.simulation.machine(broker_name(broker))
        if not machine.is_serving:
            return  # it may not have heard of any controller yet, as with Kafka
        life = machine.lives
        try:
            response = await zombie.channels.send(broker, request)
        except ChannelError:
            return
        if response.error_code != ErrorCode.STALE_CONTROLLER_EPOCH and machine.lives == life:
            name = ErrorCode.of(response.error_code).name
            scenario.history.violation(f"broker {broker} answered a controller of epoch 0 with {name}")

    for broker in zombie.brokers:
        zombie.spawn(speak(broker))
    return True


def _stale_orders(scenario: "Scenario") -> bool:
    """Orders of the controller come late: for an earlier leader epoch, or an earlier life of the broker."""
    zombie = scenario.zombie
    if zombie is None:
        return False

    async def speak(broker: int) -> None:
        machine = scenario.simulation.machine(broker_name(broker))
        if not machine.is_serving:
            return
        life, node = machine.lives, machine.server.parts
        await _ask_in_earlier_epochs(scenario, zombie, machine)
        late = [partition for partition in node.replicas if partition.leader_epoch > 0]
        for is_early_life in (True, False):
            request = LeaderAndIsrRequest(
                controller_id=node.metadata.controller_id,
                controller_epoch=max(node.replicas.controller_epoch, 1),
                broker_epoch=node.broker_epoch - is_early_life,
                topic_states=[_earlier_role(partition, broker) for partition in late],
            )
            try:
                response = await zombie.channels.send(broker, request)
            except ChannelError:
                return
            obeyed = [
                entry.partition_index
                for topic in response.topics
                for entry in topic.partition_errors
                if not entry.error_code
            ]
            if machine.lives == life and (obeyed or (is_early_life and not response.error_code)):
                what = "its earlier life" if is_early_life else "earlier leader epochs"
                scenario.history.violation(f"broker {broker} obeyed LeaderAndIsr meant for {what}")

    for broker in zombie.brokers:
        zombie.spawn(speak(broker))
    return True


async def _ask_in_earlier_epochs(scenario: "Scenario", client: ClusterClient, machine: Machine) -> None:
    """A leader turns away who believes in another leader epoch (KIP-320)."""
    node = machine.server.parts
    for partition in list(node.replicas):
        if not partition.is_leader or partition.leader_epoch < 1:
            continue
        wanted = ListOffsetsPartition(
            partition_index=partition.name.partition, current_leader_epoch=partition.leader_epoch - 1, timestamp=-1
        )
        topic = ListOffsetsTopic(name=partition.name.topic, partitions=[wanted])
        try:
            response = await client.channels.send(
                node.broker_id, ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=[topic])
            )
        except ChannelError:
            return
        if not response.topics[0].partitions[0].error_code:
            scenario.history.violation(f"{machine.name} answered a question about {partition.name} of an earlier epoch")


def _earlier_role(partition: Partition, broker: int) -> LeaderAndIsrTopicState:
    """What the controller might have said about a partition one leader epoch ago."""
    state = LeaderAndIsrPartitionState(
        partition_index=partition.name.partition,
        controller_epoch=1,
        leader=broker,
        leader_epoch=partition.leader_epoch - 1,
        isr=list(partition.replicas),
        partition_epoch=max(partition.partition_epoch - 1, 0),
        replicas=list(partition.replicas),
    )
    return LeaderAndIsrTopicState(
        topic_name=partition.name.topic, topic_id=partition.topic_id, partition_states=[state]
    )


FAULTS: dict[str, Callable[["Scenario"], bool]] = {
    "kill": _kill,
    "power": _power,
    "pause": _pause,
    "partition": _partition,
    "split": _split,
    "controller": _controller,
    "leader": _leader,
    "wipe": _wipe,
    "roll": _roll,
    "loss": _loss,
    "disk error": _disk_error,
    "disk full": _disk_full,
    "failed sync": _failed_sync,
    "slow disk": _slow_disk,
    "clock jump": _clock_jump,
    "restart": _stop_and_start,
    "zombie controller": _zombie_controller,
    "stale orders": _stale_orders,
}
