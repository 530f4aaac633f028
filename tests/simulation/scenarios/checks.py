"""What must hold after a run: the invariants of a simulated cluster that can only be
seen at its end.

What clients see is checked as they see it (`barnabas.testing.simulation.history`). Here: every
acknowledged record is in its partition once, in its producer's order; the bytes on the brokers'
disks are whole batches of rising offsets; the coordination service's tree holds all that was
acknowledged, and its log replays to the same tree.
"""

from barnabas.base.errors import CorruptDataError
from barnabas.base.ids import TopicPartition
from barnabas.coordination.storage.storage import Storage
from barnabas.testing.simulation.disk import SimulatedFiles
from barnabas.testing.simulation.history import History, PartitionHistory, key_of, producer_of
from barnabas.testing.simulation.simulation import Machine, Simulation
from barnabas.wire.kafka.errors import KafkaError
from barnabas.wire.kafka.records.batch_header import check_batch
from simulation.scenarios.coordination_clients import CoordinationFacts
from simulation.scenarios.logs_on_disk import partitions_on_disk

__all__ = ["check_acknowledged_records", "check_coordination", "check_disks", "check_sessions"]


def check_acknowledged_records(history: History) -> None:
    """Every acknowledged record is in its partition, exactly once, in its producer's order."""
    for topic_partition, partition in history.partitions.items():
        _check_partition(history, topic_partition, partition)


def _check_partition(history: History, topic_partition: TopicPartition, partition: PartitionHistory) -> None:
    if partition.is_unclean:
        return
    places: dict[bytes, list[int]] = {}
    for offset, value in sorted(partition.seen.items()):
        places.setdefault(value, []).append(offset)
    for value, offsets in places.items():
        if len(offsets) > 1 and not partition.losses and producer_of(value) not in history.repeating:
            history.violation(f"{topic_partition}: {value!r} is at offsets {offsets}")
    missing = [
        value
        for value, offset in partition.acknowledged.items()
        if value not in places and value not in partition.may_be_lost and not _may_be_gone(partition, value, offset)
    ]
    if missing:
        history.violation(
            f"{topic_partition}: {len(missing)} acknowledged records are lost, the first is {missing[0]!r}"
        )
    for producer, values in partition.acknowledged_in_order.items():
        offsets = [places[value][0] for value in values if value in places and value not in partition.may_be_lost]
        if offsets != sorted(offsets):
            history.violation(f"{topic_partition}: records of producer {producer} stand in another order than sent")
    beyond = [offset for offset in partition.seen if offset >= partition.final_end_offset]
    if beyond:
        history.violation(
            f"{topic_partition}: ends at {partition.final_end_offset}, though offset {max(beyond)} was acknowledged or read"
        )
    is_whole = not partition.is_compacted and not partition.start_offset
    if is_whole and partition.seen and sorted(partition.seen) != list(range(max(partition.seen) + 1)):
        history.violation(f"{topic_partition}: the offsets read have gaps")


def _may_be_gone(partition: PartitionHistory, value: bytes, offset: int) -> bool:
    """Whether retention or compaction may have taken a record before anyone read it."""
    if partition.start_offset and offset < partition.start_offset:
        return True
    if not partition.is_compacted:
        return False
    key = key_of(value)
    return any(at > offset and known == key for at, known in partition.keys.items())


def check_disks(simulation: Simulation) -> None:
    """All batches on all brokers are whole, with rising offsets, and no epoch after a later one."""
    for machine in simulation.brokers:
        for topic_partition, segments in partitions_on_disk(machine.disk).items():
            next_offset = epoch = -1
            for base_offset, path in sorted(segments):
                data = bytes(SimulatedFiles(machine.disk).read(path))
                where = f"{machine.name} {topic_partition}"
                next_offset, epoch = _check_segment(simulation.history, where, data, next_offset, epoch)
                if base_offset < 0:
                    simulation.history.violation(f"{path} has a negative base offset")


def _check_segment(history: History, where: str, data: bytes, next_offset: int, epoch: int) -> tuple[int, int]:
    position = 0
    while position < len(data):
        try:
            header = check_batch(data, position, len(data))
        except KafkaError as error:
            history.violation(f"{where}: at byte {position} of {len(data)}: {error}")
            return next_offset, epoch
        if header.base_offset < next_offset:
            history.violation(f"{where}: offset {header.base_offset} follows {next_offset - 1}")
        if header.leader_epoch < epoch:
            history.violation(f"{where}: offset {header.base_offset} of epoch {header.leader_epoch} after {epoch}")
        next_offset, epoch = header.last_offset + 1, header.leader_epoch
        position += header.size_bytes
    return next_offset, epoch


def check_sessions(simulation: Simulation) -> None:
    """When everyone is gone and the timeouts are over, no session is left, and no
    ephemeral node."""
    for machine in simulation.coordination:
        if not machine.is_serving:
            continue
        database = machine.server.processor.database
        for session_id in database.session_timeouts_ms:
            simulation.history.violation(f"{machine.name}: session 0x{session_id:x} is alive though its client is gone")
        for path, node in database.tree.nodes.items():
            if node.is_ephemeral:
                simulation.history.violation(f"{machine.name}: {path} outlived its session 0x{node.owner:x}")
        if simulation.layout.is_ensemble and database.tree.digest != simulation.ensemble.database.tree.digest:
            simulation.history.violation(f"{machine.name} has another tree than was committed")


def check_coordination(simulation: Simulation, facts: CoordinationFacts) -> None:
    """What was acknowledged is in the tree that the files of each server give, whose digests
    agree with the live one's."""
    for machine in simulation.coordination:
        _check_coordination_files(simulation, machine, facts)


def _check_coordination_files(simulation: Simulation, machine: Machine, facts: CoordinationFacts) -> None:
    storage = Storage(SimulatedFiles(machine.disk), "/data", "/data", preallocate_bytes=0)
    history = simulation.history
    try:
        database, _ = storage.load()
    except CorruptDataError as error:
        history.violation(f"the files of {machine.name}: {error}")
        return
    if database.digest_mismatches:
        history.violation(f"{database.digest_mismatches} transactions replay to another tree than they were made on")
    if simulation.layout.is_ensemble and database.tree.digest != simulation.ensemble.database.tree.digest:
        history.violation(f"the files of {machine.name} give another tree than was committed")
    for path, version in facts.versions:
        node = database.tree.nodes.get(path)
        if node is None or node.version < version:
            history.violation(f"{path}: version {version} was acknowledged, {machine.name} has {node}")
    for path in facts.names:
        if path not in database.tree.nodes and path not in facts.deleted:
            history.violation(f"{path} was acknowledged and is gone from {machine.name}")
    for path, node in database.tree.nodes.items():
        if node.is_ephemeral and node.owner not in database.session_timeouts_ms:
            history.violation(f"{path} belongs to session 0x{node.owner:x}, which is over")
