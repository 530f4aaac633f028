"""What must hold of transactions on the brokers, while they run and on their disks at the end."""

from barnabas.base.ids import TopicPartition
from barnabas.log.partition_log import PartitionLog
from barnabas.testing.simulation.cluster_view import ClusterView
from barnabas.testing.simulation.disk import SimulatedFiles
from barnabas.testing.simulation.simulation import Machine, Simulation, broker_name
from barnabas.wire.kafka.records.batch_header import read_headers
from barnabas.wire.kafka.records.control import read_end_marker
from barnabas.wire.kafka.records.records import read_records
from simulation.scenarios.logs_on_disk import partitions_on_disk
from simulation.scenarios.transaction_facts import Outcome, TransactionFacts

__all__ = ["check_bounds", "check_markers", "partitions_held_back"]


def check_bounds(simulation: Simulation) -> None:
    """Log start <= last stable offset <= high watermark <= log end offset, on every replica."""
    for machine in simulation.brokers:
        if not machine.is_serving:
            continue
        for partition in machine.server.components.replicas:
            log = partition.log
            if log is None or partition.offline:
                continue
            bounds = log.log_start_offset, log.last_stable_offset, log.high_watermark, log.log_end_offset
            if list(bounds) != sorted(bounds):
                simulation.history.violation(f"{machine.name} {partition.topic_partition}: bounds {bounds}")


def leader_log(simulation: Simulation, view: ClusterView, topic_partition: TopicPartition) -> PartitionLog | None:
    """The log of a partition at its leader; None while none serves."""
    leader = view.leader(topic_partition)
    machine = simulation.machine(broker_name(leader)) if leader >= 0 else None
    if machine is None or not machine.is_serving:
        return None
    partition = machine.server.components.replicas.get(topic_partition)
    return partition.log if partition is not None and partition.is_leader else None


def partitions_held_back(simulation: Simulation, view: ClusterView) -> list[str]:
    """Partitions whose last stable offset is behind the high watermark at their leader."""
    found = []
    for topic_partition in view.partitions():
        log = leader_log(simulation, view, topic_partition)
        if log is None:
            found.append(f"{topic_partition} has no leader")
        elif log.last_stable_offset < log.high_watermark:
            found.append(
                f"{topic_partition}: last stable offset {log.last_stable_offset}, high watermark {log.high_watermark}"
            )
    return found


def check_markers(simulation: Simulation, facts: TransactionFacts, topics: set[str]) -> None:
    """Every marker on a disk ends a transaction of its partition, in the way its producer knows.

    A broker may have what is left of a replica that has moved away while the broker was down.
    """
    view = ClusterView(simulation)
    for broker_id, machine in enumerate(simulation.brokers):
        for topic_partition, segments in partitions_on_disk(machine.disk).items():
            if topic_partition.topic in topics and broker_id in view.replicas(topic_partition):
                _check_partition(simulation, machine, facts, topic_partition, sorted(segments))


def _check_partition(
    simulation: Simulation,
    machine: Machine,
    facts: TransactionFacts,
    topic_partition: TopicPartition,
    segments: list[tuple[int, str]],
) -> None:
    history = simulation.history
    open_values: dict[int, list[bytes]] = {}
    where = f"{machine.name} {topic_partition}"
    for _, path in segments:
        data = bytes(SimulatedFiles(machine.disk).read(path))
        for at, header in read_headers(data):
            if not header.record_count:
                continue  # compaction took its records
            if not header.is_control:
                if header.is_transactional:
                    values = [record.value or b"" for record in read_records(data, at)]
                    open_values.setdefault(header.producer_id, []).extend(values)
                continue
            marker = read_end_marker(data, at)
            if marker is None:
                continue
            history.count("markers")
            if (header.producer_id, topic_partition) not in facts.added:
                history.violation(f"{where}: a marker at {header.base_offset} without a transaction")
            ended = {
                id(facts.of_value[value]): facts.of_value[value] for value in open_values.pop(header.producer_id, [])
            }
            if len(ended) > 1:
                names = ", ".join(each.name for each in ended.values())
                history.violation(f"{where}: the marker at {header.base_offset} ends {names} together")
            wrong = Outcome.COMMITTED if marker.is_abort else Outcome.ABORTED
            for transaction in ended.values():
                if transaction.outcome is wrong:
                    history.violation(
                        f"{where}: {transaction.name} was {wrong.value}, and the marker at {header.base_offset} says the opposite"
                    )
    for producer_id, values in open_values.items():
        history.violation(f"{where}: {values[0]!r} of producer {producer_id} is in a transaction without an end")
