"""The faults of a run: each is a function that injects one into some machine now and plans its end.

It returns False when there is no machine for it. A machine that lost its power or its disk comes
back after its session has expired, as real machines boot: the controller has removed it from the
in-sync sets by then (see `losses` for why that matters). A killed process comes back at any moment.
"""

import asyncio
import errno
from collections.abc import Callable

from barnabas.broker.cluster.channels import ChannelError
from barnabas.broker.replication.partition import Follower, Partition
from barnabas.testing.simulation.disk import DiskFault
from barnabas.testing.simulation.simulation import Machine, broker_name
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from barnabas.wire.kafka.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.wire.kafka.messages.update_metadata import UpdateMetadataRequest
from simulation.scenarios.clients import ClusterClient
from simulation.scenarios.fault_injector import FaultInjector
from simulation.scenarios.log_damage import damage_some_log

__all__ = ["FAULTS", "TARGETED_FAULTS", "cut_off", "hit"]

_BOOT_S = (7.0, 12.0)
_SOON_S = 0.0001
_HAND_OVER_S = 5.0
_CUT_S = (0.2, 12.0)


def _kill(faults: FaultInjector) -> bool:
    """kill -9, at once or in the middle of a file operation."""
    machine = faults.server()
    if machine is None:
        return False
    if faults.rng.random() < 0.5:
        faults.simulation.kill(machine)
        faults.restart_later(machine)
    else:
        faults.simulation.kill_within(machine, faults.rng.randrange(40), power=False)
        faults.later(0.5, 3.0, lambda: faults.simulation.kill(machine))
        faults.later(3.1, 6.0, lambda: _start(faults, machine))
    return True


def _power(faults: FaultInjector) -> bool:
    """A machine's power fails, at once or in the middle of a file operation."""
    machine = faults.server()
    if machine is None:
        return False
    if faults.rng.random() < 0.5:
        faults.simulation.power_off(machine)
    else:
        faults.simulation.kill_within(machine, faults.rng.randrange(40), power=True)
        faults.later(0.5, 1.0, lambda: faults.simulation.power_off(machine))
    faults.restart_later(machine, _BOOT_S)
    return True


def _pause(faults: FaultInjector) -> bool:
    """SIGSTOP, for less than a session's timeout or for longer."""
    machine = faults.server()
    if machine is None:
        return False
    faults.simulation.pause(machine)
    faults.later(*faults.rng.choice(((0.1, 2.0), (7.0, 15.0))), lambda: faults.simulation.resume(machine))
    return True


def _partition(faults: FaultInjector) -> bool:
    """A server is cut off from all, from one, or in one direction."""
    machine = faults.server()
    if machine is None:
        return False
    rng = faults.rng
    others = [name for name in faults.simulation.machines if name != machine.name]
    cut = rng.choice((others, [rng.choice(others)], faults.simulation.layout.names))
    inward, outward = rng.choice(((True, True), (True, False), (False, True)))
    cut_off(faults, [machine.name], cut, _CUT_S, inward=inward, outward=outward)
    return True


def _split(faults: FaultInjector) -> bool:
    """A network partition divides the brokers, and an ensemble.

    One part can reach a coordination service of one server."""
    simulation, rng = faults.simulation, faults.rng
    names = [machine.name for machine in simulation.brokers]
    if len(names) < 2:
        return False
    part = rng.sample(names, rng.randint(1, len(names) - 1))
    other = [name for name in names if name not in part]
    if simulation.layout.is_ensemble:
        for name in simulation.layout.names:
            rng.choice((part, other)).append(name)
    else:
        rng.choice((part, other)).extend(simulation.layout.names)
    cut_off(faults, part, other, _CUT_S)
    return True


def _controller(faults: FaultInjector) -> bool:
    """The controller is killed, paused past its session, or cut off from the
    coordination service."""
    simulation, rng = faults.simulation, faults.rng
    active = [m for m in simulation.brokers if m.is_serving and m.server.components.controller.is_active]
    if not active:
        return False
    hit(faults, rng.choice(active))
    return True


def _leader(faults: FaultInjector) -> bool:
    """As `_controller`, for the leader of some partition."""
    led = [
        machine
        for machine in faults.simulation.brokers
        if machine.is_serving and any(partition.is_leader for partition in machine.server.components.replicas)
    ]
    if not led:
        return False
    hit(faults, faults.rng.choice(led))
    return True


def hit(faults: FaultInjector, machine: Machine) -> None:
    """A broker is killed, paused past its session, or cut off from the coordination service."""
    simulation, rng = faults.simulation, faults.rng
    how = rng.randrange(3)
    if how == 0:
        simulation.kill(machine)
        faults.restart_later(machine)
    elif how == 1:
        simulation.pause(machine)
        faults.later(6.5, 10.0, lambda: simulation.resume(machine))
    else:
        cut_off(faults, [machine.name], simulation.layout.names, (4.0, 10.0))


def cut_off(
    faults: FaultInjector,
    names: list[str],
    others: list[str],
    span_s: tuple[float, float],
    *,
    inward: bool = True,
    outward: bool = True,
) -> None:
    """Cut machines off from others, for some time."""
    simulation = faults.simulation
    for name in names:
        simulation.isolate(simulation.machine(name), others, inward=inward, outward=outward)

    def mend() -> None:
        for name in names:
            for other in others:
                simulation.fabric.unblock(name, other)
                simulation.fabric.unblock(other, name)

    faults.later(*span_s, mend)


def _wipe(faults: FaultInjector) -> bool:
    """A broker gets an empty disk, and comes back under its id when its session is over."""
    machines = [machine for machine in faults.simulation.brokers if machine.is_serving]
    if len(machines) < 2:
        return False
    machine = faults.rng.choice(machines)
    faults.simulation.kill(machine)
    faults.wiping(machine)
    machine.disk.wipe()
    faults.restart_later(machine, _BOOT_S)
    return True


def _damage(faults: FaultInjector) -> bool:
    """All brokers are killed at once. One of them finds a log cut or damaged, and starts first."""
    simulation = faults.simulation
    serving = [machine for machine in simulation.brokers if machine.is_serving]
    if len(serving) < 2 or faults.is_rolling:
        return False
    machine = faults.rng.choice(serving)
    for each in simulation.brokers:
        simulation.kill(each)
    damaged = damage_some_log(machine.disk, faults.rng)
    if damaged is not None:
        faults.damaged(machine, *damaged)
    _start(faults, machine)
    for each in simulation.brokers:
        if each is not machine:
            faults.restart_later(each)
    return damaged is not None


def _roll(faults: FaultInjector) -> bool:
    """All brokers are stopped in order and started again, one after the other."""
    if faults.is_rolling:
        return False
    faults.is_rolling = True

    async def roll() -> None:
        for machine in faults.simulation.brokers:
            if machine.is_serving and not faults.is_over:
                await faults.simulation.stop(machine)
                if not machine.is_running:
                    faults.simulation.start(machine)
        faults.is_rolling = False

    faults.simulation.loop.create_task(roll())  # the run outlives it, or does not
    return True


def _loss(faults: FaultInjector) -> bool:
    """Connections break again and again, answers are slow."""
    fabric = faults.simulation.fabric
    fabric.loss = faults.rng.choice((0.002, 0.01, 0.05))
    fabric.latency_factor = faults.rng.choice((1.0, 10.0, 100.0))

    def calm() -> None:
        fabric.loss = 0.0
        fabric.latency_factor = 1.0

    faults.later(0.5, 4.0, calm)
    return True


def _disk_error(faults: FaultInjector) -> bool:
    """A write or a sync fails once; the server takes its disk offline and is restarted."""
    machine = faults.server()
    if machine is None:
        return False
    operation = faults.rng.choice(("sync", "append", "write", "sync_dir", "open", "rename"))
    machine.disk.faults.append(DiskFault(operation, errno.EIO))
    faults.later(3.0, 6.0, lambda: _restart(faults, machine))
    return True


def _failed_sync(faults: FaultInjector) -> bool:
    """A sync fails, and soon the power: a server that trusts a second sync loses data."""
    machine = faults.server()
    if machine is None:
        return False
    machine.disk.faults.append(DiskFault("sync", errno.EIO))

    def power_off() -> None:
        machine.disk.faults.clear()
        faults.simulation.power_off(machine)
        faults.restart_later(machine, _BOOT_S)

    faults.later(0.05, 0.6, power_off)
    return True


def _disk_full(faults: FaultInjector) -> bool:
    """The disk is full for a while; afterwards the server is restarted."""
    machine = faults.server()
    if machine is None:
        return False
    machine.disk.capacity_bytes = machine.disk.used_bytes + faults.rng.randrange(4096)

    def free() -> None:
        machine.disk.capacity_bytes = 1 << 40
        _restart(faults, machine)

    faults.later(0.5, 4.0, free)
    return True


def _start(faults: FaultInjector, machine: Machine) -> None:
    if not machine.is_running:
        faults.simulation.start(machine)


def _restart(faults: FaultInjector, machine: Machine) -> None:
    machine.disk.faults.clear()
    faults.simulation.kill(machine)
    faults.simulation.start(machine)


def _slow_disk(faults: FaultInjector) -> bool:
    """Syncs take long."""
    machine = faults.server()
    if machine is None:
        return False
    machine.disk.slowness = faults.rng.choice((10.0, 100.0, 1000.0))
    faults.later(0.5, 6.0, lambda: setattr(machine.disk, "slowness", 1.0))
    return True


def _clock_jump(faults: FaultInjector) -> bool:
    """A machine's wall clock is set wrong."""
    machine = faults.server()
    if machine is None:
        return False
    machine.clock.skew_ms += faults.rng.choice((-3_600_000, -1000, 1000, 3_600_000))
    return True


def _stop_and_start(faults: FaultInjector) -> bool:
    """A server is stopped in order and started again."""
    machine = faults.server()
    if machine is None or not machine.is_serving:
        return False

    async def restart() -> None:
        await faults.simulation.stop(machine)
        if faults.is_over and not machine.is_running:
            faults.simulation.start(machine)
        faults.restart_later(machine)

    faults.simulation.loop.create_task(restart())  # the run outlives it, or does not
    return True


def _zombie_controller(faults: FaultInjector) -> bool:
    """A controller of an old epoch sends a request to every broker; none may accept it."""
    zombie = faults.zombie
    if zombie is None:
        return False
    request = UpdateMetadataRequest(controller_id=99, controller_epoch=0, broker_epoch=-1)

    async def send(broker: int) -> None:
        machine = faults.simulation.machine(broker_name(broker))
        if not machine.is_serving:
            return  # it may not know any controller yet, as with Kafka
        life = machine.lives
        try:
            response = await zombie.channels.send(broker, request)
        except ChannelError:
            return
        if response.error_code != ErrorCode.STALE_CONTROLLER_EPOCH and machine.lives == life:
            name = ErrorCode.of(response.error_code).name
            faults.history.violation(f"broker {broker} answered a controller of epoch 0 with {name}")

    for broker in zombie.brokers:
        zombie.spawn(send(broker))
    return True


def _stale_orders(faults: FaultInjector) -> bool:
    """Requests of the controller come late: for an earlier leader epoch, or an
    earlier life of the broker."""
    zombie = faults.zombie
    if zombie is None:
        return False

    async def send(broker: int) -> None:
        machine = faults.simulation.machine(broker_name(broker))
        if not machine.is_serving:
            return
        life, node = machine.lives, machine.server.components
        await _ask_in_earlier_epochs(faults, zombie, machine)
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
            unchanged = {
                (partition.topic_id, partition.topic_partition.partition)
                for partition in late
                # Its topic is not deleted meanwhile.
                if node.replicas.get(partition.topic_partition) is partition
            }
            obeyed = [
                entry.partition_index
                for topic in response.topics
                for entry in topic.partition_errors
                if not entry.error_code and (topic.topic_id, entry.partition_index) in unchanged
            ]
            if machine.lives == life and (obeyed or (is_early_life and not response.error_code)):
                what = "its earlier life" if is_early_life else "earlier leader epochs"
                faults.history.violation(f"broker {broker} obeyed LeaderAndIsr meant for {what}")

    for broker in zombie.brokers:
        zombie.spawn(send(broker))
    return True


async def _ask_in_earlier_epochs(faults: FaultInjector, client: ClusterClient, machine: Machine) -> None:
    """A leader rejects requests with another leader epoch (KIP-320)."""
    node = machine.server.components
    for partition in list(node.replicas):
        if not partition.is_leader or partition.leader_epoch < 1:
            continue
        wanted = ListOffsetsPartition(
            partition_index=partition.topic_partition.partition,
            current_leader_epoch=partition.leader_epoch - 1,
            timestamp=-1,
        )
        topic = ListOffsetsTopic(name=partition.topic_partition.topic, partitions=[wanted])
        try:
            response = await client.channels.send(
                node.broker_id, ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=[topic])
            )
        except ChannelError:
            return
        if not response.topics[0].partitions[0].error_code:
            faults.history.violation(
                f"{machine.name} answered a question about {partition.topic_partition} of an earlier epoch"
            )


def _earlier_role(partition: Partition, broker: int) -> LeaderAndIsrTopicState:
    """What the controller may have sent about a partition one leader epoch ago."""
    state = LeaderAndIsrPartitionState(
        partition_index=partition.topic_partition.partition,
        controller_epoch=1,
        leader=broker,
        leader_epoch=partition.leader_epoch - 1,
        isr=list(partition.replicas),
        partition_epoch=max(partition.partition_epoch - 1, 0),
        replicas=list(partition.replicas),
    )
    return LeaderAndIsrTopicState(
        topic_name=partition.topic_partition.topic, topic_id=partition.topic_id, partition_states=[state]
    )


def _two_leaders(faults: FaultInjector) -> bool:
    """A leader is stopped in order, and the next one is killed before its followers have fetched.

    Only where all are up and in sync. Both come back when their sessions are over."""
    simulation, rng = faults.simulation, faults.rng
    brokers = simulation.brokers
    if faults.is_rolling or not all(machine.is_serving for machine in brokers):
        return False
    led = [
        (machine, partition)
        for machine in brokers
        for partition in machine.server.components.replicas
        if partition.is_leader and len(partition.leading().isr) == len(partition.replicas) > 2
    ]
    if not led:
        return False
    first, partition = rng.choice(led)
    followers = [simulation.machine(broker_name(each)) for each in partition.leading().isr]
    followers.remove(first)
    known_epoch = partition.leader_epoch

    def next_leader() -> int | None:
        for machine in followers:
            found = machine.server.components.replicas.get(partition.topic_partition) if machine.is_serving else None
            if found is not None and found.leader_epoch > known_epoch and isinstance(found.role, Follower):
                return found.role.leader
        return None

    async def kill_the_next() -> None:
        end_s = simulation.now_s + _HAND_OVER_S
        while (leader := next_leader()) is None and simulation.now_s < end_s:  # noqa: ASYNC110  # no event says so
            await asyncio.sleep(_SOON_S)
        if leader is not None and leader >= 0 and not faults.is_over:
            second = simulation.machine(broker_name(leader))
            simulation.kill(second)
            faults.restart_later(second, _BOOT_S)

    async def stop() -> None:
        await simulation.stop(first)
        faults.restart_later(first, _BOOT_S)

    simulation.loop.create_task(stop())  # the run outlives them, or does not
    simulation.loop.create_task(kill_the_next())
    return True


FAULTS: dict[str, Callable[[FaultInjector], bool]] = {
    "kill": _kill,
    "power": _power,
    "pause": _pause,
    "partition": _partition,
    "split": _split,
    "controller": _controller,
    "leader": _leader,
    "wipe": _wipe,
    "damage": _damage,
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

TARGETED_FAULTS: dict[str, Callable[[FaultInjector], bool]] = {"two leaders": _two_leaders}
"""Those that a seed does not draw. A plan names them."""
