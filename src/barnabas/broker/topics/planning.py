"""Plans the creation of topics and partitions: the checks, and the assignments that follow.

Kafka's `ZkAdminManager.createTopics` and `createPartitions`, as far as they decide.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from barnabas.base.errors import ConfigError
from barnabas.base.ids import ZERO_UUID, Uuid
from barnabas.base.randomness import Random
from barnabas.base.tasks import Task
from barnabas.broker.cluster.znodes import MAX_ASSIGNMENT_BYTES, ReplicaAssignment
from barnabas.broker.topics.placement import assign_replicas
from barnabas.log.settings import LogConfig
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.create_topics import CreatableTopic

__all__ = [
    "MAX_REPLICAS_A_PARTITION",
    "MAX_REPLICAS_A_REQUEST",
    "MAX_TOPICS_A_REQUEST",
    "CreationPlan",
    "TakenNames",
    "collides",
    "plan_creation",
    "plan_growth",
    "validate_topic_name",
]

_UNSET = -1
_MAX_NAME_LENGTH = 249
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")
MAX_REPLICAS_A_REQUEST = 100_000
"""A request of a few hundred bytes could ask for more, and each replica takes about a
hundred bytes of memory."""

MAX_TOPICS_A_REQUEST = 10_000
"""The answer has a kilobyte of settings for each, however short its name is."""

MAX_REPLICAS_A_PARTITION = 100
"""Each of them is sent all others, so the work grows with the square: 99,000 held a
controller for 40 s."""


@dataclass(slots=True)
class CreationPlan:
    """A topic that may be created."""

    name: str
    assignment: dict[int, tuple[int, ...]]
    configs: dict[str, str] = field(default_factory=dict)
    topic_id: Uuid = ZERO_UUID


def validate_topic_name(name: str) -> None:
    """Raises `KafkaError` INVALID_TOPIC_EXCEPTION with Kafka's words."""
    if not name:
        wrong = "the empty string is not allowed"
    elif name in (".", ".."):
        wrong = f"'{name}' is not allowed"
    elif len(name) > _MAX_NAME_LENGTH:
        wrong = f"the length of '{name}' is longer than the max allowed length {_MAX_NAME_LENGTH}"
    elif not _LEGAL_NAME.fullmatch(name):
        wrong = f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    else:
        return
    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {wrong}")


def collides(name: str, other: str) -> bool:
    """Whether two names are one where ``.`` becomes ``_``, as in names of metrics."""
    return name.replace(".", "_") == other.replace(".", "_")


class TakenNames:
    """The names of topics that there are, for the checks of one request."""

    def __init__(self, names: Iterable[str]) -> None:
        self._names = frozenset(names)
        self._by_metric: dict[str, list[str]] | None = None

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def colliding(self, name: str) -> list[str]:
        """The names that `collides` with a name: found by a key, because a request may
        name as many as there are."""
        if self._by_metric is None:
            self._by_metric = {}
            for taken in self._names:
                self._by_metric.setdefault(taken.replace(".", "_"), []).append(taken)
        return self._by_metric.get(name.replace(".", "_"), [])


def plan_creation(
    topic: CreatableTopic,
    racks: Mapping[int, str | None],
    rng: Random,
    *,
    existing: TakenNames,
    default_partitions: int,
    default_replication_factor: int,
    config_defaults: Mapping[str, str],
    max_replicas: int = MAX_REPLICAS_A_REQUEST,
) -> Task[CreationPlan]:
    """Check one topic of a CreateTopics request and place its replicas.

    Raises `KafkaError` with Kafka's words. The topics before it in the request have
    left ``max_replicas``.
    """
    if topic.name in existing:  # whatever else is wrong with the request
        raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists.")
    missing = [config.name for config in topic.configs if config.value is None]
    if missing:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(missing)}")
    if topic.assignments and (topic.num_partitions != _UNSET or topic.replication_factor != _UNSET):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "Both numPartitions or replicationFactor and replicasAssignments were set. Both cannot be used at the same "
            "time.",
        )
    if topic.assignments:
        assignment = {}
        for entry in topic.assignments:
            yield None
            assignment[entry.partition_index] = tuple(entry.broker_ids)
    else:
        partitions = default_partitions if topic.num_partitions == _UNSET else topic.num_partitions
        factor = default_replication_factor if topic.replication_factor == _UNSET else topic.replication_factor
        if partitions * max(factor, 1) > max_replicas:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                f"The request asks for more than {MAX_REPLICAS_A_REQUEST} replicas in all: split it.",
            )
        _require_storable(partitions, factor, racks)
        assignment = yield from assign_replicas(racks, partitions, factor, rng)
    _validate_name(topic.name, existing)
    highest_broker = yield from _validate_assignment(assignment, len(topic.assignments or ()))
    if topic.assignments:
        _require_storable(len(assignment), len(assignment[0]), [highest_broker])
    configs = {config.name: config.value or "" for config in topic.configs}
    try:
        if configs:
            LogConfig(configs, config_defaults)
    except ConfigError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
    return CreationPlan(topic.name, assignment, configs)


def _validate_name(name: str, existing: TakenNames) -> None:
    validate_topic_name(name)
    if "." not in name and "_" not in name:
        return
    colliding = existing.colliding(name)
    if colliding:
        raise KafkaError(
            ErrorCode.INVALID_TOPIC_EXCEPTION,
            f"Topic '{name}' collides with existing topics: {', '.join(sorted(colliding))}",
        )


def _validate_assignment(assignment: Mapping[int, Sequence[int]], given: int) -> Task[int]:
    """Returns the highest of its broker ids."""
    bad = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    factors = set()
    highest_broker = 0
    has_duplicates = False
    for replicas in assignment.values():
        yield None
        factors.add(len(replicas))
        highest_broker = max((highest_broker, *replicas))
        has_duplicates = has_duplicates or len(replicas) != len(set(replicas))
    if len(factors) != 1:
        raise KafkaError(bad, "All partitions should have the same number of replicas")
    factor = factors.pop()
    if factor > MAX_REPLICAS_A_PARTITION:
        raise KafkaError(
            bad, f"A partition would have {factor} replicas, but at most {MAX_REPLICAS_A_PARTITION} are possible."
        )
    if has_duplicates or not factor:
        raise KafkaError(bad, f"Duplicate replica assignment found: {_text(assignment)}")
    if given > len(assignment) or any(index not in assignment for index in range(len(assignment))):
        raise KafkaError(bad, "partitions should be a consecutive 0-based integer sequence")
    return highest_broker


def _require_storable(partitions: int, factor: int, brokers: Iterable[int]) -> None:
    """Raises `KafkaError` when a topic's znode could be too large, as it would be if all
    its numbers were long ones."""
    broker_digits = len(str(max(brokers, default=0)))
    entry_bytes = len(str(partitions)) + len('"":[],') + factor * (broker_digits + len(","))
    if partitions * entry_bytes > MAX_ASSIGNMENT_BYTES:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The coordination service cannot store the assignment of {partitions} partitions with {factor} replicas each in "
            f"one znode of {MAX_ASSIGNMENT_BYTES} bytes: use several topics.",
        )


def _text(assignment: Mapping[int, Sequence[int]]) -> str:
    return ", ".join(f"{index} -> ({', '.join(map(str, replicas))})" for index, replicas in assignment.items())


def plan_growth(
    name: str,
    existing: Mapping[int, ReplicaAssignment],
    racks: Mapping[int, str | None],
    count: int,
    assignments: Sequence[Sequence[int]] | None,
    rng: Random,
) -> Task[dict[int, ReplicaAssignment]]:
    """The new partitions of a topic that is to have ``count``.

    Raises `KafkaError` with Kafka's words."""
    current = len(existing)
    if not existing:
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    if any(assignment.is_reassigning for assignment in existing.values()):
        raise KafkaError(
            ErrorCode.REASSIGNMENT_IN_PROGRESS, f"A partition reassignment is in progress for the topic '{name}'."
        )
    if count < current:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"Topic currently has {current} partitions, which is higher than the requested {count}.",
        )
    if count == current:
        raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {current} partitions.")
    first = existing[min(existing)].replicas
    if (count - current) * max(len(first), 1) > MAX_REPLICAS_A_REQUEST:
        raise KafkaError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic '{name}' would get more than {MAX_REPLICAS_A_REQUEST} new replicas at once: add its partitions in "
            f"several requests.",
        )
    _require_storable(count, len(first), (*racks, *first))
    if assignments is None:
        ids = sorted(racks)
        start = max(0, next((index for index, broker in enumerate(ids) if broker >= first[0]), -1))
        placed = yield from assign_replicas(
            racks, count - current, len(first), rng, fixed_start=start, first_partition=current
        )
        return {index: ReplicaAssignment(replicas) for index, replicas in placed.items()}
    return _given_replicas(assignments, racks, current, count, len(first))


def _given_replicas(
    assignments: Sequence[Sequence[int]], racks: Mapping[int, str | None], current: int, count: int, factor: int
) -> dict[int, ReplicaAssignment]:
    unknown = {broker for replicas in assignments for broker in replicas} - racks.keys()
    bad = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    if unknown:
        raise KafkaError(bad, f"Unknown broker(s) in replica assignment: {', '.join(map(str, sorted(unknown)))}.")
    if len(assignments) != count - current:
        raise KafkaError(
            bad,
            f"Increasing the number of partitions by {count - current} but {len(assignments)} assignments provided.",
        )
    for index, replicas in enumerate(assignments, current):
        if not replicas:
            raise KafkaError(bad, f"Cannot have replication factor of 0 for partition id {index}.")
        if len(replicas) != len(set(replicas)):
            raise KafkaError(
                bad,
                f"Duplicate brokers not allowed in replica assignment: {', '.join(map(str, replicas))} for partition id "
                f"{index}.",
            )
    odd = {index: len(replicas) for index, replicas in enumerate(assignments, current) if len(replicas) != factor}
    if odd:
        raise KafkaError(
            bad,
            f"Inconsistent replication factor between partitions, partition 0 has {factor} while partitions "
            f"[{', '.join(map(str, odd))}] have replication factors [{', '.join(map(str, odd.values()))}], respectively.",
        )
    return {index: ReplicaAssignment(tuple(replicas)) for index, replicas in enumerate(assignments, current)}
