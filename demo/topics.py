"""Producing and consuming for the demo, with librdkafka's Python client: any Kafka
client would do."""

import threading
import time
from collections import Counter
from collections.abc import Iterable
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # its stubs forget NewTopic

__all__ = ["GroupMember", "Loader", "create", "in_sync", "leaders", "partition_sizes", "read_latest"]

REPLICAS = 3
Records = Iterable[tuple[bytes, bytes]]


def create(bootstrap: str, names: dict[str, dict[str, str]], partitions: int) -> None:
    """Topics with three replicas, and these settings."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    wanted = [NewTopic(name, partitions, REPLICAS, config=config) for name, config in names.items()]
    for future in admin.create_topics(wanted).values():
        future.result(30)


def leaders(bootstrap: str, topic: str) -> dict[int, int]:
    """The leader of each partition; -1 where there is none."""
    return {number: found.leader for number, found in _partitions(bootstrap, topic).items()}


def in_sync(bootstrap: str, topic: str) -> dict[int, list[int]]:
    """The in-sync replicas of each partition."""
    return {number: sorted(found.isrs) for number, found in _partitions(bootstrap, topic).items()}


def _partitions(bootstrap: str, topic: str) -> dict[int, Any]:
    found = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}).list_topics(topic, 10).topics[topic]
    return dict(sorted(found.partitions.items()))


def partition_sizes(bootstrap: str, topic: str) -> list[int]:
    """Records in each partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "demo-sizes"})
    try:
        sizes = []
        for partition in sorted(leaders(bootstrap, topic)):
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, partition), 10)
            sizes.append(high - low)
        return sizes
    finally:
        consumer.close()


def read_latest(bootstrap: str, topic: str) -> dict[bytes, bytes]:
    """The last value of each key: what a compacted topic comes to."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "demo-reader", "enable.partition.eof": True})
    parts = leaders(bootstrap, topic)
    consumer.assign([TopicPartition(topic, each, 0) for each in parts])
    latest: dict[bytes, bytes] = {}
    ended = 0
    deadline = time.monotonic() + 30
    while ended < len(parts):
        if time.monotonic() > deadline:
            raise TimeoutError(f"{topic} did not end within 30 s")
        for message in consumer.consume(5000, 0.5):
            if message.error():
                ended += 1
            else:
                latest[message.key() or b""] = message.value() or b""
    consumer.close()
    return latest


class Loader:
    """An idempotent producer that knows how much brokers have acknowledged."""

    def __init__(self, bootstrap: str) -> None:
        self.sent = 0
        self.failures: list[str] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 20,
                "compression.type": "lz4",
                "queue.buffering.max.messages": 1_000_000,
                "delivery.timeout.ms": 180_000,
                "delivery.report.only.error": True,
                "on_delivery": self._failed,
                "log_level": 0,  # a stopped broker is part of the demo
            }
        )

    @property
    def acknowledged(self) -> int:
        """Records that brokers have; the client keeps all others."""
        return self.sent - len(self._producer) - len(self.failures)

    def send(self, topic: str, records: Records) -> None:
        """Hands the records to the client, which sends them in the background."""
        for key, value in records:
            while True:
                try:
                    self._producer.produce(topic, value, key)
                    break
                except BufferError:
                    self._producer.poll(0.1)
            self.sent += 1

    def wait(self, timeout_s: float) -> int:
        """Wait for acknowledgements; how many are still missing."""
        return int(self._producer.flush(timeout_s))

    def _failed(self, error: Any, _: Any) -> None:
        self.failures.append(str(error))


class GroupMember:
    """A consumer of a group on a thread of its own, which counts what it gets from
    each partition."""

    def __init__(self, name: str, bootstrap: str, group: str, topic: str) -> None:
        self.name = name
        self.partitions: set[int] = set()
        self.counts: Counter[int] = Counter()
        self.joined = threading.Event()
        self._stopping = threading.Event()
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": group,
                "client.id": name,
                "auto.offset.reset": "earliest",
                "heartbeat.interval.ms": 500,
                "log_level": 0,
            }
        )
        self._consumer.subscribe([topic], on_assign=self._assigned, on_revoke=self._revoked)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def _assigned(self, _: Any, partitions: list[Any]) -> None:
        self.partitions = {each.partition for each in partitions}
        self.joined.set()

    def _revoked(self, _: Any, __: list[Any]) -> None:
        self.partitions = set()
        self.joined.clear()

    def _run(self) -> None:
        while not self._stopping.is_set():
            messages: list[Any] = self._consumer.consume(5000, 0.2)
            for message in messages:
                if not message.error():
                    self.counts[message.partition()] += 1
        self._consumer.close()

    def stop(self) -> None:
        """Leave the group."""
        self._stopping.set()
        self._thread.join(30)
