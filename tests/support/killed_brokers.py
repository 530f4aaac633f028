"""Kills of the broker that a client depends on: a partition's leader, a group's coordinator."""

import contextlib
from collections.abc import Iterator

from confluent_kafka.admin import AdminClient

from barnabas.testing import ProcessCluster
from support.waiting import eventually

__all__ = ["coordinator_killed", "leader_killed"]

_LIMIT_S = 60


@contextlib.contextmanager
def leader_killed(cluster: ProcessCluster, topic: str, partition: int = 0) -> Iterator[None]:
    """SIGKILL to the partition's leader; after the block it is started again, and gets in sync."""
    admin = _admin(cluster)
    with _killed(cluster, admin.list_topics(topic, _LIMIT_S).topics[topic].partitions[partition].leader):
        yield


@contextlib.contextmanager
def coordinator_killed(cluster: ProcessCluster, group: str) -> Iterator[None]:
    """SIGKILL to the group's coordinator; after the block it is started again, and gets in sync."""
    admin = _admin(cluster)

    def coordinator() -> int | None:
        found = admin.describe_consumer_groups([group])[group].result(_LIMIT_S).coordinator
        return None if found is None else found.id + 1

    with _killed(cluster, eventually(coordinator, timeout_s=_LIMIT_S, what=f"a coordinator of {group}") - 1):
        yield


@contextlib.contextmanager
def _killed(cluster: ProcessCluster, broker_id: int) -> Iterator[None]:
    cluster.kill_broker(broker_id)
    try:
        yield
    finally:
        cluster.start_broker(broker_id)
    admin = _admin(cluster)

    def is_in_sync() -> bool:
        metadata = admin.list_topics(timeout=_LIMIT_S)
        partitions = [each for topic in metadata.topics.values() for each in topic.partitions.values()]
        return broker_id in metadata.brokers and all(len(each.isrs) == len(each.replicas) for each in partitions)

    eventually(is_in_sync, timeout_s=_LIMIT_S, what=f"broker {broker_id} in all in-sync sets")


def _admin(cluster: ProcessCluster) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
