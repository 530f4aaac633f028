"""Brokers' log dirs over an `AdminConnection`: what lies in them, and moves of
replicas between them (KIP-113).

In Kafka: `Admin.describeLogDirs`.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from barnabas.base.ids import TopicPartition
from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.client.cluster.each_broker import ask_each, raise_first
from barnabas.client.errors import ClientError, refusal
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from barnabas.wire.kafka.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)

__all__ = [
    "LogDirContents",
    "Replica",
    "ReplicaPlace",
    "StoredReplica",
    "alter_replica_log_dirs",
    "describe_log_dirs",
    "find_replicas",
    "replicas_in_part",
]


class Replica(NamedTuple):
    """One broker's replica of a partition; sorted as Kafka's tools list them, by broker first."""

    broker_id: int
    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}-{self.broker_id}"


@dataclass(frozen=True, slots=True)
class StoredReplica:
    """A replica in a log dir.

    ``is_future``: it is being copied here from another log dir of the same broker."""

    size_bytes: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class LogDirContents:
    """A log dir; with an error (KAFKA_STORAGE_ERROR: it is offline) nothing is known
    of what lies in it."""

    path: str
    error: ErrorCode
    replicas: dict[TopicPartition, StoredReplica]
    total_bytes: int | None
    usable_bytes: int | None


@dataclass(slots=True)
class ReplicaPlace:
    """The log dir in which a replica lies, and the one it is moving to; None for neither."""

    current: str | None = None
    future: str | None = None


def describe_log_dirs(
    connection: AdminConnection, broker_id: int, partitions: Iterable[TopicPartition] | None = None
) -> list[LogDirContents]:
    """A broker's log dirs with its replicas of all, or of these partitions; raises `KafkaError`."""
    topics: dict[str, DescribableLogDirTopic] | None = None if partitions is None else {}
    for name, partition in partitions or ():
        assert topics is not None
        topics.setdefault(name, DescribableLogDirTopic(topic=name)).partitions.append(partition)
    request = DescribeLogDirsRequest(topics=None if topics is None else list(topics.values()))
    response = connection.send(request, DescribeLogDirsResponse, broker_id)
    if response.error_code:
        raise refusal(response.error_code)
    # Before version 3 of this API a refusal looks like this; every broker has a log dir.
    if not response.results:
        raise refusal(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    return [
        LogDirContents(
            result.log_dir,
            ErrorCode.of(result.error_code),
            {
                TopicPartition(topic.name, item.partition_index): StoredReplica(
                    item.partition_size, item.offset_lag, item.is_future_key
                )
                for topic in result.topics
                for item in topic.partitions
            },
            result.total_bytes if result.total_bytes >= 0 else None,
            result.usable_bytes if result.usable_bytes >= 0 else None,
        )
        for result in response.results
    ]


def find_replicas(connection: AdminConnection, replicas: Iterable[Replica]) -> dict[Replica, ReplicaPlace]:
    """The log dir of each of these replicas, from its broker."""
    return raise_first(replicas_in_part(connection, replicas))


def replicas_in_part(
    connection: AdminConnection, replicas: Iterable[Replica]
) -> dict[Replica, ReplicaPlace | ClientError]:
    """The same for a reader that does not wait: all brokers are asked at once, and errors
    stand in place of answers."""
    by_broker: dict[int, list[Replica]] = {}
    for replica in sorted(set(replicas)):
        by_broker.setdefault(replica.broker_id, []).append(replica)

    def ask(asking: AdminConnection, broker_id: int) -> dict[Replica, ReplicaPlace]:
        places = {replica: ReplicaPlace() for replica in by_broker[broker_id]}
        mine = [TopicPartition(replica.topic, replica.partition) for replica in places]
        for log_dir in describe_log_dirs(asking, broker_id, mine):
            for (topic, partition), stored in log_dir.replicas.items():
                place = places.get(Replica(broker_id, topic, partition))
                if place is None:
                    continue
                if stored.is_future:
                    place.future = log_dir.path
                else:
                    place.current = log_dir.path
        return places

    found: dict[Replica, ReplicaPlace | ClientError] = {}
    for broker_id, answer in ask_each(connection, by_broker, ask).items():
        found.update(dict.fromkeys(by_broker[broker_id], answer) if isinstance(answer, ClientError) else answer)
    return found


def alter_replica_log_dirs(connection: AdminConnection, moves: Mapping[Replica, str]) -> dict[Replica, ErrorCode]:
    """Ask each broker to move replicas to these paths; where a replica is not yet, it
    is to be made there later.

    REPLICA_NOT_AVAILABLE says just that. Returns each replica's error; raises `KafkaError`
    as `AdminConnection.send`.
    """
    codes: dict[Replica, ErrorCode] = {}
    for broker_id in sorted({replica.broker_id for replica in moves}):
        dirs: dict[str, dict[str, AlterReplicaLogDirTopic]] = {}
        for replica, path in moves.items():
            if replica.broker_id == broker_id:
                topics = dirs.setdefault(path, {})
                topics.setdefault(replica.topic, AlterReplicaLogDirTopic(name=replica.topic)).partitions.append(
                    replica.partition
                )
        request = AlterReplicaLogDirsRequest(
            dirs=[AlterReplicaLogDir(path=path, topics=list(topics.values())) for path, topics in dirs.items()]
        )
        response = connection.send(request, AlterReplicaLogDirsResponse, broker_id)
        for topic in response.results:
            for item in topic.partitions:
                codes[Replica(broker_id, topic.topic_name, item.partition_index)] = ErrorCode.of(item.error_code)
    return codes
