"""Which brokers hold the replicas of new partitions, decided as Apache Kafka decides it.

First replicas go round the list of brokers from a start index; the others follow at a shift that
grows by one each time the list is used up, so that two brokers do not always share the same
partitions. With racks the list alternates between racks, and a replica goes to a rack that has none
of the partition's replicas while there is one:

    racks R1 = 0, 1, 2 and R2 = 3, 4, 5 give the order 0, 3, 1, 4, 2, 5

Start index and shift are drawn from the given generator, or fixed (tests, and
partitions added to a topic).

In Kafka: `AdminUtils.assignReplicasToBrokers`.
"""

from collections.abc import Mapping, Sequence
from typing import Protocol

from barnabas.base.tasks import Task
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = ["Choices", "assign_replicas", "rack_alternated"]


class Choices(Protocol):
    """The part of a random generator that placement draws from."""

    def randrange(self, stop: int, /) -> int: ...


def assign_replicas(
    racks: Mapping[int, str | None],
    partitions: int,
    replication_factor: int,
    rng: Choices,
    *,
    fixed_start: int = -1,
    first_partition: int = 0,
) -> Task[dict[int, tuple[int, ...]]]:
    """Replicas by partition number, the preferred leader first.

    ``racks`` maps broker ids to racks: either every broker has one or none is used. ``fixed_start``
    of zero or more replaces both random choices. Numbers begin at ``first_partition``. Raises
    `KafkaError` for numbers that cannot be.
    """
    if partitions <= 0:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, "Number of partitions must be larger than 0.")
    if replication_factor <= 0:
        raise KafkaError(ErrorCode.INVALID_REPLICATION_FACTOR, "Replication factor must be larger than 0.")
    if replication_factor > len(racks):
        raise KafkaError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"Replication factor: {replication_factor} larger than available brokers: {len(racks)}.",
        )
    known = {broker: rack for broker, rack in racks.items() if rack is not None}
    if known and len(known) < len(racks):
        raise KafkaError(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            "Not all brokers have rack information for replica rack aware assignment.",
        )
    brokers = rack_alternated(known) if known else sorted(racks)
    start = fixed_start if fixed_start >= 0 else rng.randrange(len(brokers))
    shift = fixed_start if fixed_start >= 0 else rng.randrange(len(brokers))
    assignment: dict[int, tuple[int, ...]] = {}
    for partition in range(first_partition, first_partition + partitions):
        yield None
        if partition > 0 and partition % len(brokers) == 0:
            shift += 1
        first = (partition + start) % len(brokers)
        if known:
            assignment[partition] = _spread_over_racks(brokers, known, first, shift, replication_factor)
        else:
            assignment[partition] = (
                brokers[first],
                *(brokers[_follower(first, shift, k, len(brokers))] for k in range(replication_factor - 1)),
            )
    return assignment


def _spread_over_racks(
    brokers: Sequence[int], racks: Mapping[int, str], first: int, shift: int, replication_factor: int
) -> tuple[int, ...]:
    rack_count = len(set(racks.values()))
    replicas = [brokers[first]]
    used_racks = {racks[brokers[first]]}
    candidate = 0
    while len(replicas) < replication_factor:
        broker = brokers[_follower(first, shift * rack_count, candidate, len(brokers))]
        candidate += 1
        if broker not in replicas and (racks[broker] not in used_racks or len(used_racks) == rack_count):
            replicas.append(broker)
            used_racks.add(racks[broker])
    return tuple(replicas)


def _follower(first: int, shift: int, nth: int, brokers: int) -> int:
    """The index in the list of follower number ``nth``; never the first replica's."""
    return (first + 1 + (shift + nth) % (brokers - 1)) % brokers


def rack_alternated(racks: Mapping[int, str]) -> list[int]:
    """The brokers, one of each rack in turn: racks by name, brokers of a rack by id."""
    by_rack: dict[str, list[int]] = {}
    for broker in sorted(racks):
        by_rack.setdefault(racks[broker], []).append(broker)
    members = [by_rack[rack] for rack in sorted(by_rack)]
    longest = max(map(len, members), default=0)
    return [rack[turn] for turn in range(longest) for rack in members if turn < len(rack)]
