"""A simulated cluster of brokers that starts from stored, damaged disks, and what consumers
get from it; see `damage`."""

import asyncio
from dataclasses import dataclass, field

from barnabas.base.ids import TopicPartition
from barnabas.broker.cluster.channels import ChannelError
from barnabas.testing.simulation.simulation import Machine, Simulation, broker_name
from barnabas.testing.virtual.sending import produce_request
from barnabas.wire.kafka.errors import KafkaError
from barnabas.wire.kafka.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from barnabas.wire.kafka.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.wire.kafka.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.wire.kafka.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.wire.kafka.offset_specs import EARLIEST
from barnabas.wire.kafka.records.batch_header import check_batch
from barnabas.wire.kafka.records.records import Record, build_batch, read_records
from simulation.scenarios.clients import ClusterClient
from simulation.scenarios.logs_on_disk import partitions_on_disk
from support.damage import Damage, Disks, Outcome, Reports, disks_of, fill

__all__ = ["PARTITION", "StoredCluster", "start_damaged_cluster", "store_cluster"]

PARTITION = TopicPartition("orders", 0)
RECORDS = 120
DELETED = 37
_BATCHES_AN_EPOCH = 30
_SETTINGS = {
    "log.segment.bytes": "3000",
    "log.index.interval.bytes": "300",
    "min.insync.replicas": "1",
    "log.flush.start.offset.checkpoint.interval.ms": "1000",
}
_CHECKPOINTS_S = 10
_SERVES_S = 60
_ELECTED_S = 25
_WITHOUT_S = 15


@dataclass
class StoredCluster:
    """What the disks of a cluster hold after its servers stopped, and what was acknowledged."""

    brokers: int
    disks: Disks = field(default_factory=dict)
    acknowledged: dict[int, bytes] = field(default_factory=dict)
    """Values by offset, without the deleted ones."""


def _simulation(seed: int, brokers: int) -> Simulation:
    simulation = Simulation(seed)
    simulation.broker_settings.update(_SETTINGS)
    simulation.broker_settings["offsets.topic.replication.factor"] = str(brokers)
    return simulation


def _machines(simulation: Simulation, brokers: int) -> list[Machine]:
    return [*simulation.coordination, *(simulation.machine(broker_name(broker)) for broker in range(brokers))]


def store_cluster(brokers: int, *, clean: bool, seed: int = 1) -> StoredCluster:
    """Records in segments of two leader epochs, the first of them deleted; then all stop
    in order, or are killed."""
    stored = StoredCluster(brokers)
    with _simulation(seed, brokers) as simulation:
        simulation.run(_store(simulation, stored, clean=clean))
        assert not simulation.history.violations, simulation.history.violations
        stored.disks = disks_of(_machines(simulation, brokers))
    return stored


async def _store(simulation: Simulation, stored: StoredCluster, *, clean: bool) -> None:
    brokers = stored.brokers
    await _start_all(simulation, brokers)
    client = ClusterClient(simulation, "client", range(brokers))
    await client.spawn(_create(client))
    await client.spawn(_produce(client, stored, RECORDS // 2))
    first = simulation.machine(broker_name(0))
    simulation.kill(first, restart=True)  # another leader epoch begins
    await asyncio.sleep(_WITHOUT_S)
    simulation.start(first)
    await simulation.until(lambda: first.is_serving, _SERVES_S, "broker 0 serves")
    await asyncio.sleep(_ELECTED_S)
    await client.spawn(_produce(client, stored, RECORDS))
    await client.spawn(_delete(client))
    stored.acknowledged = {offset: value for offset, value in stored.acknowledged.items() if offset >= DELETED}
    await asyncio.sleep(_CHECKPOINTS_S)
    if clean:
        for machine in reversed(_machines(simulation, brokers)):
            await simulation.stop(machine)
    else:
        for machine in _machines(simulation, brokers):
            simulation.kill(machine, restart=False)


async def _start_all(simulation: Simulation, brokers: int) -> None:
    simulation.start_coordination()
    for broker in range(brokers):
        simulation.start_broker(broker)
    machines = _machines(simulation, brokers)
    await simulation.until(lambda: all(each.is_serving for each in machines), _SERVES_S, "the cluster starts")


async def _create(client: ClusterClient) -> None:
    assignment = CreatableReplicaAssignment(partition_index=0, broker_ids=list(client.brokers))
    topic = CreatableTopic(
        name=PARTITION.topic, num_partitions=-1, replication_factor=-1, assignments=[assignment], configs=[]
    )
    while client.controller_id < 0:
        await client.refresh([])
    response = await client.channels.send(client.controller_id, CreateTopicsRequest(topics=[topic], timeout_ms=5000))
    assert not response.topics[0].error_code, response


async def _produce(client: ClusterClient, stored: StoredCluster, upto: int) -> None:
    """Batches of one record, one after the other."""
    deadline = client.simulation.loop.time() + _SERVES_S
    while len(stored.acknowledged) < upto:
        assert client.simulation.loop.time() < deadline, "the brokers do not take records"
        number = len(stored.acknowledged)
        value = b"%d %s" % (number, b"v" * 40)
        batch = build_batch([Record(0, client.machine.clock.wall_ms(), None, value)])
        leader = await client.leader(PARTITION)
        request = produce_request({PARTITION: bytes(batch)}, client.topic_ids, acks=-1, timeout_ms=3000)
        try:
            response = await client.channels.send(leader, request)
        except ChannelError:
            client.forget_leader(PARTITION)
            await client.pause()
            continue
        answer = response.responses[0].partition_responses[0]
        if answer.error_code:
            client.forget_leader(PARTITION)
            await client.pause()
            continue
        stored.acknowledged[answer.base_offset] = value


async def _delete(client: ClusterClient) -> None:
    partition = DeleteRecordsPartition(partition_index=0, offset=DELETED)
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=PARTITION.topic, partitions=[partition])], timeout_ms=5000
    )
    response = await client.channels.send(await client.leader(PARTITION), request)
    assert not response.topics[0].partitions[0].error_code, response


def start_damaged_cluster(stored: StoredCluster, damage: Damage | None, *, seed: int = 2) -> Outcome:
    """Start the cluster with one file damaged; None leaves the disks as they are."""
    outcome = Outcome()
    with (
        Reports(outcome, damage.machine if damage else "") as reports,
        _simulation(seed, stored.brokers) as simulation,
    ):
        for machine in _machines(simulation, stored.brokers):
            fill(machine, stored.disks, damage)
        simulation.run(_start_and_read(simulation, stored, damage, outcome))
        reports.take(simulation)
    return outcome


async def _start_and_read(
    simulation: Simulation, stored: StoredCluster, damage: Damage | None, outcome: Outcome
) -> None:
    simulation.start_coordination()
    await asyncio.sleep(5)
    for broker in range(stored.brokers):
        simulation.start_broker(broker)
    await asyncio.sleep(_ELECTED_S)
    client = ClusterClient(simulation, "client", range(stored.brokers))
    found = await client.spawn(_read_all(client, stored))
    sound = _machines(simulation, stored.brokers)
    if damage is not None and damage.machine.startswith("broker-") and stored.brokers > 1:
        damaged = simulation.machine(damage.machine)
        sound.remove(damaged)
        if all(machine.is_serving for machine in sound):
            simulation.kill(damaged, restart=False)
            await asyncio.sleep(_WITHOUT_S)
            # The sound replicas still have all.
            found = await client.spawn(_read_all(client, stored))
    outcome.missing = [offset for offset in stored.acknowledged if offset not in found]
    on_disks = {offset for machine in sound for offset in _offsets_on(machine)}
    outcome.lost = [offset for offset in outcome.missing if offset not in on_disks]
    outcome.wrong = [offset for offset, value in found.items() if stored.acknowledged.get(offset, value) != value]
    outcome.revived = [offset for offset in found if offset < DELETED]


def _offsets_on(machine: Machine) -> set[int]:
    """The offsets of the partition's records on a disk."""
    offsets = set()
    for _, path in partitions_on_disk(machine.disk).get(PARTITION, ()):
        inode = machine.disk.inode(path)
        assert inode is not None
        data, at = bytes(inode.data), 0
        while at < len(data):
            try:
                header = check_batch(data, at, len(data))
            except KafkaError:
                break
            offsets.update(range(header.base_offset, header.last_offset + 1))
            at += header.size_bytes
    return offsets


async def _read_all(client: ClusterClient, stored: StoredCluster) -> dict[int, bytes]:
    """What a consumer gets from the beginning to the end, and within a minute."""
    loop = client.simulation.loop
    deadline = loop.time() + 60
    values: dict[int, bytes] = {}
    position: int | None = None
    last = max(stored.acknowledged)
    while loop.time() < deadline and last not in values:
        await client.refresh([PARTITION.topic])
        leader = client.link.leader(PARTITION)
        if leader < 0 or PARTITION.topic not in client.topic_ids:
            await client.pause(0.2)
            continue
        try:
            if position is None:
                position = await _earliest(client, leader)
                continue
            answer = await _fetch(client, leader, position)
        except ChannelError:
            await client.pause(0.2)
            continue
        if answer.error_code:
            await client.pause(0.2)
            continue
        data, at = bytes(answer.records or b""), 0
        while at < len(data) and (size := 12 + int.from_bytes(data[at + 8 : at + 12], "big")) <= len(data) - at:
            header = check_batch(data, at, len(data))
            values.update(
                (each.offset, each.value or b"") for each in read_records(data, at) if each.offset >= position
            )
            position = header.last_offset + 1
            at += size
        if not data:
            if position >= answer.high_watermark and deadline - loop.time() < 50:
                break  # the end, by the leader's account, for ten seconds
            await client.pause(0.2)
    return values


async def _earliest(client: ClusterClient, leader: int) -> int | None:
    wanted = ListOffsetsPartition(partition_index=0, current_leader_epoch=-1, timestamp=EARLIEST)
    request = ListOffsetsRequest(
        replica_id=-1, topics=[ListOffsetsTopic(name=PARTITION.topic, partitions=[wanted])], isolation_level=0
    )
    answer = (await client.channels.send(leader, request)).topics[0].partitions[0]
    if answer.error_code:
        await client.pause(0.2)
        return None
    return int(answer.offset)


async def _fetch(client: ClusterClient, leader: int, position: int):  # type: ignore[no-untyped-def]  # a response's part
    wanted = FetchPartition(partition=0, fetch_offset=position, partition_max_bytes=1 << 20, current_leader_epoch=-1)
    topic = FetchTopic(topic=PARTITION.topic, topic_id=client.topic_ids[PARTITION.topic], partitions=[wanted])
    request = FetchRequest(
        replica_id=-1, max_wait_ms=100, min_bytes=1, max_bytes=1 << 20, session_epoch=-1, topics=[topic]
    )
    return (await client.channels.send(leader, request)).responses[0].partitions[0]
