"""A program that copies a number of records from topic to topic, in transactions.

``python copy_program.py SERVERS PARTITIONS RECORDS A_TRANSACTION`` copies ``copy-in`` to
``copy-out`` and ends with 0. It prints how many are copied, by the group's offsets, and what it is
about to do. It may be killed at each moment and started again.
"""

import sys
import time
from collections.abc import Callable
from functools import partial

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

__all__ = ["COMMITS", "INPUT", "NAME", "OUTPUT", "STEPS", "repeated"]

COMMITS = "commits"
STEPS = ("waits", "sends offsets", COMMITS)
"""What the program prints before each step."""

INPUT, OUTPUT = "copy-in", "copy-out"
NAME = "copy"
"""The group and the transactional id."""
_PATIENCE_S = 60.0
_QUICK = {"reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "log_level": 0}


class _Copy:
    def __init__(self, servers: str, partitions: int, records: int, a_transaction: int) -> None:
        self._servers = servers
        self._partitions = [TopicPartition(INPUT, number) for number in range(partitions)]
        self._records = records
        self._a_transaction = a_transaction
        self._copied = 0

    def run(self) -> None:
        """Copy all; errors that end a producer are followed by the next one."""
        while self._copied < self._records:
            settings = {"group.id": NAME, "isolation.level": "read_committed", "enable.auto.commit": False, **_QUICK}
            # Small fetches: a transaction has records of all partitions.
            settings |= {"auto.offset.reset": "earliest", "max.partition.fetch.bytes": 5 * self._a_transaction}
            consumer = Consumer({"bootstrap.servers": self._servers, **settings})
            try:
                self._copy(consumer)
            except KafkaException as error:
                print(f"another producer, after {error.args[0].name()}", flush=True)
            finally:
                consumer.close()

    def _copy(self, consumer: Consumer) -> None:
        producer = Producer({"bootstrap.servers": self._servers, "transactional.id": NAME, **_QUICK})
        # It ends a transaction that an earlier producer left open, so that its offsets are known.
        repeated(partial(producer.init_transactions, _PATIENCE_S))
        while True:
            committed = consumer.committed(self._partitions, timeout=_PATIENCE_S)
            starts = [TopicPartition(each.topic, each.partition, max(each.offset, 0)) for each in committed]
            self._has_copied(sum(each.offset for each in starts))
            if self._copied >= self._records:
                return
            consumer.assign(starts)
            try:
                self._copy_from_here(consumer, producer)
            except KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    raise
                print(f"abort, after {error.args[0].name()}", flush=True)
                repeated(partial(producer.abort_transaction, _PATIENCE_S))

    def _copy_from_here(self, consumer: Consumer, producer: Producer) -> None:
        while self._copied < self._records:
            messages = [each for each in consumer.consume(self._a_transaction, timeout=0.2) if each.error() is None]
            if not messages:
                print("waits", flush=True)
                continue
            producer.begin_transaction()
            for message in messages:
                producer.produce(OUTPUT, message.value(), partition=message.partition())
            offsets = {message.partition(): message.offset() + 1 for message in messages}
            print("sends offsets", flush=True)
            positions = [TopicPartition(INPUT, partition, offset) for partition, offset in offsets.items()]
            group = consumer.consumer_group_metadata()
            repeated(partial(producer.send_offsets_to_transaction, positions, group, _PATIENCE_S))
            print(COMMITS, flush=True)
            repeated(partial(producer.commit_transaction, _PATIENCE_S))
            self._has_copied(self._copied + len(messages))

    def _has_copied(self, count: int) -> None:
        self._copied = count
        print(f"copied {count}", flush=True)


def repeated(call: Callable[[], object]) -> None:
    """Call again after errors that pass."""
    end = time.monotonic() + _PATIENCE_S
    while True:
        try:
            call()
            return
        except KafkaException as error:
            if not error.args[0].retriable() or time.monotonic() > end:
                raise


if __name__ == "__main__":
    _Copy(sys.argv[1], *map(int, sys.argv[2:5])).run()
