"""What a cluster with faults is asked: who leads, who is in sync, how long a record
takes, what is there."""

import re
import time
from pathlib import Path
from typing import Protocol

from confluent_kafka import Consumer, Producer, TopicPartition

from barnabas.base.errors import BarnabasError
from barnabas.client import Admin
from barnabas.client.admin.topics import describe_topics
from barnabas.client.cluster.admin_connection import AdminConnection
from support.dumped_logs import dump_log
from support.waiting import eventually

QUICK = {"zookeeper.session.timeout.ms": "6000", "replica.lag.time.max.ms": "1500", "min.insync.replicas": "2"}


class Addressed(Protocol):
    """A `Cluster` or a `ProcessCluster`."""

    @property
    def bootstrap_servers(self) -> str: ...


def state(cluster: Addressed, topic: str) -> tuple[int | None, set[int]]:
    """Leader and in-sync replicas of partition 0; (None, set()) while no broker answers."""
    return _state_at(cluster.bootstrap_servers, topic)


def _state_at(servers: str, topic: str) -> tuple[int | None, set[int]]:
    try:
        with AdminConnection(servers, {"request.timeout.ms": "1000"}) as admin:
            (partition,) = describe_topics(admin, [topic])[0].partitions
    except (BarnabasError, OSError):
        return None, set()
    return partition.leader, set(partition.isr)


def led_by(cluster: Addressed, topic: str, leader: int) -> str:
    """A topic with three replicas whose first one leads; every broker knows it.

    Until it knows the topic, a broker that is cut off answers its clients that there is none.
    """
    others = [n for n in range(3) if n != leader]
    with Admin({"bootstrap.servers": cluster.bootstrap_servers}) as admin:
        admin.create_topic(topic, assignment=[[leader, *others]])
    servers = cluster.bootstrap_servers.split(",")
    eventually(
        lambda: all(_state_at(server, topic) == (leader, {0, 1, 2}) for server in servers),
        what="all in sync, at every broker",
    )
    return topic


def send(cluster: Addressed, topic: str, *values: str) -> float:
    """Send with acks=all, and return how many seconds it took."""
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all", "log_level": 0})
    failed: list[object] = []
    began = time.monotonic()
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: failed.append(error) if error else None)
    assert producer.flush(60) == 0
    assert not failed
    return time.monotonic() - began


def read(cluster: Addressed, topic: str, count: int) -> list[tuple[str, int]]:
    """Values and timestamps from the beginning."""
    consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "none", "log_level": 0})
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        return [(each.value().decode(), each.timestamp()[1]) for each in consumer.consume(count, timeout=30)]
    finally:
        consumer.close()


def transaction_states(log_dir: Path, transactional_id: str) -> list[str]:
    """The states of a transactional id in a broker's log of ``__transaction_state``."""
    files = [path for path in log_dir.glob("__transaction_state-*/*.log") if path.stat().st_size]
    dumped = dump_log(files, "--transaction-log-decoder")
    return re.findall(rf"transactionalId={transactional_id} .*?state=(\w+)", dumped)
