"""Plans of moving replicas: read, checked, written, proposed, and the throttles that go with them.

A plan is Kafka's JSON: ``{"version": 1, "partitions": [{"topic":
"foo", "partition": 1, "replicas": [1, 2, 3], "log_dirs": ["any", "/data/kafka", "any"]}]}``, where
``log_dirs`` may be left out.

Throttles are named as Kafka's tool names them: a topic's ``leader.replication.throttled.replicas``
lists the replicas that are copied from and ``follower.replication.throttled.replicas`` those that
are copied to, each as ``partition:broker``; brokers get a rate for either side. All of it is pure.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.base.ids import TopicPartition
from barnabas.base.tasks import done_here
from barnabas.broker.topics.placement import Choices, assign_replicas
from barnabas.cli.options.json_files import compact, duplicates, items, text, topic_partition
from barnabas.client.admin.log_dirs import Replica
from barnabas.client.admin.reassignments import Reassignment
from barnabas.client.cluster.admin_connection import Broker

__all__ = [
    "FOLLOWER_THROTTLED_RATE",
    "FOLLOWER_THROTTLED_REPLICAS",
    "LEADER_THROTTLED_RATE",
    "LEADER_THROTTLED_REPLICAS",
    "LOG_DIR_THROTTLED_RATE",
    "Move",
    "ReassignmentPlan",
    "ReplicaLists",
    "as_document",
    "check_for_execution",
    "moves_of",
    "parse_reassignment_plan",
    "parse_topics",
    "propose",
    "racks_of",
    "topic_throttles",
]

LEADER_THROTTLED_RATE = "leader.replication.throttled.rate"
FOLLOWER_THROTTLED_RATE = "follower.replication.throttled.rate"
LOG_DIR_THROTTLED_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"
LEADER_THROTTLED_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_THROTTLED_REPLICAS = "follower.replication.throttled.replicas"

_ANY = "any"

ReplicaLists = dict[TopicPartition, list[int]]
"""Replicas by partition, the preferred leader first."""


@dataclass(frozen=True, slots=True)
class ReassignmentPlan:
    """What a file asks for: entries in its order, as it may name a partition twice, and
    log dirs other than "any"."""

    entries: list[tuple[TopicPartition, list[int]]]
    log_dirs: dict[Replica, str]

    @property
    def assignment(self) -> ReplicaLists:
        """The replicas by partition."""
        return dict(self.entries)

    @property
    def topics(self) -> list[str]:
        """The topics named, sorted."""
        return sorted({topic_partition.topic for topic_partition, _ in self.entries})


class Move(NamedTuple):
    """Brokers that a partition is copied from and to."""

    sources: frozenset[int]
    destinations: frozenset[int]


# Files


def parse_reassignment_plan(document: dict[str, Any]) -> ReassignmentPlan:
    """A plan's document; raises `ConfigError`."""
    plan = ReassignmentPlan([], {})
    for item in items(document, "partitions"):
        partition = topic_partition(item)
        replicas = _list_of(item, "replicas", int)
        if replicas is None:
            raise ConfigError(f'a list of integers "replicas" is expected in {compact(item)}')
        paths = _list_of(item, "log_dirs", str)
        if paths is not None and len(paths) != len(replicas):
            raise ConfigError(
                f"Size of replicas list {replicas} is different from size of log dirs list {paths} "
                f"for partition {partition}"
            )
        plan.entries.append((partition, replicas))
        for broker_id, path in zip(replicas, paths or (), strict=False):
            if path != _ANY:
                plan.log_dirs[Replica(broker_id, *partition)] = path
    return plan


def _list_of(item: dict[str, Any], name: str, kind: type) -> list[Any] | None:
    values = item.get(name)
    if values is None:
        return None
    if not isinstance(values, list) or not all(type(value) is kind for value in values):
        raise ConfigError(f'"{name}" must be a list of {"integers" if kind is int else "strings"} in {compact(item)}')
    return values


def check_for_execution(plan: ReassignmentPlan) -> None:
    """Raise `ConfigError` where a plan is empty, or names a partition or a replica twice."""
    if not plan.entries:
        raise ConfigError("Partition reassignment list cannot be empty")
    if not all(replicas for _, replicas in plan.entries):
        raise ConfigError("Partition replica list cannot be empty")
    twice = duplicates(partition for partition, _ in plan.entries)
    if twice:
        raise ConfigError(f"Partition reassignment contains duplicate topic partitions: {_joined(twice)}")
    repeated = [
        f"{partition} contains multiple entries for {_joined(duplicates(replicas))}"
        for partition, replicas in plan.entries
        if duplicates(replicas)
    ]
    if repeated:
        raise ConfigError(f"Partition replica lists may not contain duplicate entries: {'. '.join(repeated)}")


def parse_topics(document: dict[str, Any]) -> list[str]:
    """The topics of ``{"topics": [{"topic": "foo"}], "version": 1}``; raises `ConfigError`."""
    topics = [text(item, "topic") for item in items(document, "topics")]
    twice = duplicates(topics)
    if twice:
        raise ConfigError(f"List of topics to reassign contains duplicate entries: {_joined(twice)}")
    return topics


def as_document(assignment: Mapping[TopicPartition, Sequence[int]]) -> dict[str, Any]:
    """A plan's document, in which any log dir will do; partitions in order."""
    return {
        "version": 1,
        "partitions": [
            {
                "topic": topic_partition.topic,
                "partition": topic_partition.partition,
                "replicas": list(assignment[topic_partition]),
                "log_dirs": [_ANY] * len(assignment[topic_partition]),
            }
            for topic_partition in sorted(assignment)
        ],
    }


def _joined(values: Iterable[object]) -> str:
    return ",".join(map(str, values))


# Proposals


def racks_of(brokers: Iterable[Broker], *, rack_aware: bool) -> dict[int, str | None]:
    """Racks by broker as placement takes them.

    Raises `BarnabasError` where only some brokers have one."""
    racks = {broker.id: broker.rack if rack_aware else None for broker in brokers}
    if len({rack is None for rack in racks.values()}) > 1:
        raise BarnabasError(
            "Not all brokers have rack information. Add --disable-rack-aware in command line to make replica "
            "assignment without rack information."
        )
    return racks


def propose(current: ReplicaLists, racks: Mapping[int, str | None], rng: Choices) -> ReplicaLists:
    """A new placement of every topic on these brokers, with as many replicas as its
    first partition has now."""
    topics: dict[str, list[int]] = {}
    for topic, partition in sorted(current):
        topics.setdefault(topic, []).append(partition)
    return {
        TopicPartition(topic, number): list(replicas)
        for topic, numbers in topics.items()
        for number, replicas in done_here(
            assign_replicas(racks, len(numbers), len(current[TopicPartition(topic, numbers[0])]), rng)
        ).items()
    }


# Throttles


def moves_of(
    under_way: Mapping[TopicPartition, Reassignment], proposed: ReplicaLists, current: ReplicaLists
) -> dict[TopicPartition, Move]:
    """All copying there will be: of reassignments under way, and of those proposed (from
    what was there before them)."""
    moves = {
        partition: Move(frozenset(item.replicas) - frozenset(item.adding), frozenset(item.adding))
        for partition, item in under_way.items()
    }
    for partition, replicas in proposed.items():
        sources = moves[partition].sources if partition in moves else frozenset(current[partition])
        moves[partition] = Move(sources, frozenset(replicas) - sources)
    return moves


def topic_throttles(moves: Mapping[TopicPartition, Move]) -> dict[str, dict[str, str | None]]:
    """The properties that name each topic's throttled replicas."""
    leaders: dict[str, set[str]] = {}
    followers: dict[str, set[str]] = {}
    for (topic, number), move in moves.items():
        leaders.setdefault(topic, set()).update(f"{number}:{broker}" for broker in move.sources)
        followers.setdefault(topic, set()).update(f"{number}:{broker}" for broker in move.destinations)
    return {
        topic: {
            LEADER_THROTTLED_REPLICAS: _joined(sorted(leaders[topic])),
            FOLLOWER_THROTTLED_REPLICAS: _joined(sorted(followers[topic])),
        }
        for topic in sorted(leaders)
    }
