"""What must hold after a run: the invariants of a simulated cluster that can only be seen at its end.

What clients see is checked as they see it (`barnabas.testing.simulation.history`). Here: every acknowledged record
stands in its partition once, in its producer's order; the bytes on the brokers' disks are whole batches of rising
offsets; the coordination service's tree holds all that was acknowledged, and its log replays to the same tree.
"""

import re

from barnabas.base.errors import CorruptDataError
from barnabas.base.ids import TopicPartition
from barnabas.coordination.storage import Storage
from barnabas.testing.simulation.coordination_clients import CoordinationFacts
from barnabas.testing.simulation.disk import Disk, SimulatedFiles
from barnabas.testing.simulation.history import History, PartitionHistory
from barnabas.testing.simulation.simulation import COORDINATION, Machine, Simulation
from barnabas.wire.kafka.batch import check_batch
from barnabas.wire.kafka.errors import KafkaError

__all__ = [
    "Observer",
    "check_coordination",
    "check_disks",
    "check_records",
    "check_sessions",
    "forgive_failed_syncs",
    "forgive_unsynced",
    "partitions_on_disk",
]

_FOLDER = re.compile(r"/logs/([a-zA-Z0-9._-]+)-(\d+)/(\d{20})\.log")


def check_records(history: History) -> None:
    """Every acknowledged record is in its partition, exactly once, in its producer's order."""
    for name, partition in history.partitions.items():
        _check_partition(history, name, partition)


def _check_partition(history: History, name: TopicPartition, partition: PartitionHistory) -> None:
    places: dict[bytes, list[int]] = {}
    for offset, value in sorted(partition.seen.items()):
        places.setdefault(value, []).append(offset)
    for value, offsets in places.items():
        if len(offsets) > 1 and not partition.losses:
            history.violation(f"{name}: {value!r} stands at offsets {offsets}")
    missing = [value for value in partition.acknowledged if value not in places and value not in partition.forgiven]
    if missing:
        history.violation(f"{name}: {len(missing)} acknowledged records are lost, the first is {missing[0]!r}")
    for producer, values in partition.acknowledged_in_order.items():
        offsets = [places[value][0] for value in values if value in places and value not in partition.forgiven]
        if offsets != sorted(offsets):
            history.violation(f"{name}: records of producer {producer} stand in another order than sent")
    if partition.seen and sorted(partition.seen) != list(range(max(partition.seen) + 1)):
        history.violation(f"{name}: the offsets read have gaps")


def partitions_on_disk(disk: Disk) -> dict[TopicPartition, list[tuple[int, str]]]:
    """Segments' base offsets and paths, in order."""
    found: dict[TopicPartition, list[tuple[int, str]]] = {}
    for path, _ in disk.walk():
        match = _FOLDER.fullmatch(path)
        if match:
            name = TopicPartition(match[1], int(match[2]))
            found.setdefault(name, []).append((int(match[3]), path))
    return found


def synced_end_offset(disk: Disk, segments: list[tuple[int, str]]) -> int:
    """The offset before which a power loss now leaves everything."""
    end_offset = 0
    for base_offset, path in sorted(segments):
        inode = disk.survives(path)
        if inode is None or (base_offset != end_offset and end_offset):
            return end_offset
        synced = inode.synced_bytes()
        end_offset = _end_offset(inode.data, synced, end_offset)
        if synced < len(inode.data):
            return end_offset
    return end_offset


def _end_offset(data: bytearray, end: int, end_offset: int) -> int:
    """The offset after the last valid batch; an earlier power loss may have left a torn end."""
    position = 0
    while position < end:
        try:
            header = check_batch(data, position, end)
        except KafkaError:
            break
        end_offset = header.last_offset + 1
        position += header.size_bytes
    return end_offset


def forgive_unsynced(simulation: Simulation, machine: Machine) -> None:
    """Before a broker's power loss: note what it may take."""
    for name, segments in partitions_on_disk(machine.disk).items():
        simulation.history.forgive(name, synced_end_offset(machine.disk, segments))


def forgive_failed_syncs(simulation: Simulation, machine: Machine) -> None:
    """At a broker's death: what a failed sync left in memory alone is gone."""
    for path, inode in machine.disk.walk():
        match = _FOLDER.fullmatch(path)
        if match and inode.lost:
            end_offset = int(match[3])
            end_offset = _end_offset(inode.data, inode.readable_bytes(), end_offset)
            simulation.history.forgive(TopicPartition(match[1], int(match[2])), end_offset)


def check_disks(simulation: Simulation) -> None:
    """All batches on all brokers are whole, with rising offsets."""
    for machine in simulation.brokers:
        for name, segments in partitions_on_disk(machine.disk).items():
            next_offset = -1
            for base_offset, path in sorted(segments):
                data = bytes(SimulatedFiles(machine.disk).read(path))
                next_offset = _check_segment(simulation.history, f"{machine.name} {name}", data, next_offset)
                if base_offset < 0:
                    simulation.history.violation(f"{path} has a negative base offset")


def _check_segment(history: History, where: str, data: bytes, next_offset: int) -> int:
    position = 0
    while position < len(data):
        try:
            header = check_batch(data, position, len(data))
        except KafkaError as error:
            history.violation(f"{where}: at byte {position} of {len(data)}: {error}")
            return next_offset
        if header.base_offset < next_offset:
            history.violation(f"{where}: offset {header.base_offset} stands after {next_offset - 1}")
        next_offset = header.last_offset + 1
        position += header.size_bytes
    return next_offset


class Observer:
    """Looks at the living brokers now and then: what may never go back, and what may never be out of order."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self._highest: dict[tuple[object, ...], int] = {}

    def look(self) -> None:
        """Check all brokers that serve."""
        for machine in self._simulation.brokers:
            if machine.is_serving:
                self._look_at(machine)

    def _look_at(self, machine: Machine) -> None:
        node = machine.server.node
        self._never_back((machine.name, "broker epoch"), node.broker_epoch)
        self._never_back((machine.name, machine.lives, "controller epoch"), node.replicas.controller_epoch)
        for name, log in node.log_dirs.logs().items():
            start, stable, high = log.log_start_offset, log.last_stable_offset, log.high_watermark
            if not start <= stable <= high <= log.log_end_offset:
                self._simulation.history.violation(
                    f"{machine.name} {name}: start {start}, last stable {stable}, high {high}, end {log.log_end_offset}"
                )
            self._never_back((machine.name, machine.lives, name, "high watermark"), high)
        for partition in node.replicas:
            self._never_back((machine.name, machine.lives, partition.name, "leader epoch"), partition.leader_epoch)

    def _never_back(self, what: tuple[object, ...], value: int) -> None:
        before = self._highest.get(what, value)
        if value < before:
            self._simulation.history.violation(f"{' '.join(map(str, what))} went from {before} back to {value}")
        self._highest[what] = max(before, value)


def check_sessions(simulation: Simulation) -> None:
    """When everyone is gone and the time-outs are over, no session is left, and no ephemeral node."""
    server = simulation.machine(COORDINATION).server
    if server is None:
        return
    database = server._processor.database
    for session_id in database.session_timeouts_ms:
        simulation.history.violation(f"session 0x{session_id:x} lives on though nobody is heard of")
    for path, node in database.tree.nodes.items():
        if node.is_ephemeral:
            simulation.history.violation(f"{path} outlived its session 0x{node.owner:x}")


def check_coordination(simulation: Simulation, facts: CoordinationFacts) -> None:
    """What was acknowledged is in the tree that the files give, whose digests agree with the live one's."""
    machine = simulation.machine(COORDINATION)
    storage = Storage(SimulatedFiles(machine.disk), "/data", "/data", preallocate_bytes=0)
    history = simulation.history
    try:
        database, _ = storage.load()
    except CorruptDataError as error:
        history.violation(f"the coordination service's files: {error}")
        return
    if database.digest_mismatches:
        history.violation(f"{database.digest_mismatches} transactions replay to another tree than they were made on")
    for path, version in facts.versions:
        node = database.tree.nodes.get(path)
        if node is None or node.version < version:
            history.violation(f"{path}: version {version} was acknowledged, {node} is there")
    for path in facts.names:
        if path not in database.tree.nodes and path not in facts.deleted:
            history.violation(f"{path} was acknowledged and is gone")
    for path, node in database.tree.nodes.items():
        if node.is_ephemeral and node.owner not in database.session_timeouts_ms:
            history.violation(f"{path} belongs to session 0x{node.owner:x}, which is over")
