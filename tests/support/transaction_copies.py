"""Copies in transactions, by clients of others: what is committed is there once and in order,
what is aborted never.

A job reads a partition, writes each record to the same partition of another topic, and commits the
group's offsets with it. Every third transaction is aborted, and its records are read again.
"""

import asyncio
from collections.abc import Callable

import aiokafka
import confluent_kafka
import kafka
from confluent_kafka.admin import AdminClient, NewTopic

from support.knowing import topic_known
from support.waiting import eventually

__all__ = ["CLIENTS", "RECORDS", "committed", "fill", "make", "read_committed", "repeat"]

RECORDS = 60
_SIZE = 10
_LIMIT_S = 120


def make(bootstrap: str, topic: str, partitions: int = 1, replicas: int = 1, **configs: str) -> str:
    """A topic that all brokers know."""
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for done in admin.create_topics([NewTopic(topic, partitions, replicas, config=configs)]).values():
        done.result(_LIMIT_S)
    topic_known(bootstrap, topic, partitions)
    return topic


def fill(bootstrap: str, topic: str, count: int = RECORDS, partition: int = 0) -> list[str]:
    """Numbers, outside of a transaction."""
    values = [str(number) for number in range(count)]
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True})
    for value in values:
        producer.produce(topic, value, partition=partition)
    assert producer.flush(_LIMIT_S) == 0
    return values


def read_committed(bootstrap: str, topic: str, partition: int = 0, isolation: str = "read_committed") -> list[str]:
    """The values up to the end that the leader reports at this isolation level."""
    reader = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reads",
            "enable.auto.commit": False,
            "isolation.level": isolation,
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 20,  # the end is known by an answer without records
        }
    )
    reader.assign([confluent_kafka.TopicPartition(topic, partition, 0)])
    values: list[str] = []

    def has_ended() -> bool:
        # One after the other: to take many would wait for all of them, beyond the end.
        while (message := reader.poll(0.5)) is not None:
            if message.error() is not None:
                return bool(message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF)
            values.append(message.value().decode())
        return False

    try:
        eventually(has_ended, timeout_s=_LIMIT_S, what=f"the end of {topic}-{partition}")
    finally:
        reader.close()
    return values


def committed(bootstrap: str, group: str, topic: str, partition: int = 0, isolation: str = "read_committed") -> int:
    """The group's offset; -1001 where there is none.

    At read_committed it waits for the end of an open transaction with offsets of the group."""
    reader = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False, "isolation.level": isolation}
    )
    try:
        (found,) = reader.committed([confluent_kafka.TopicPartition(topic, partition)], timeout=_LIMIT_S)
    finally:
        reader.close()
    assert found.error is None
    return int(found.offset)


def repeat(call: Callable[[], object]) -> None:
    """As applications do: again after an error that says so."""

    def succeeds() -> bool:
        try:
            call()
        except confluent_kafka.KafkaException as error:
            if not error.args[0].retriable():
                raise
            return False
        return True

    eventually(succeeds, timeout_s=_LIMIT_S, what="the call of a transactional producer")


def _is_aborted(attempt: int) -> bool:
    return attempt % 3 == 2


def _with_librdkafka(bootstrap: str, name: str, source: str, target: str) -> None:
    consumer = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": name,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
        }
    )
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": name, "linger.ms": 5})
    producer.init_transactions(_LIMIT_S)
    consumer.assign([confluent_kafka.TopicPartition(source, 0, 0)])
    done = attempt = 0
    while done < RECORDS:
        messages = consumer.consume(_SIZE, 5)
        if not messages:
            continue
        producer.begin_transaction()
        for message in messages:
            assert message.error() is None
            producer.produce(target, message.value(), partition=0)
        offsets = [confluent_kafka.TopicPartition(source, 0, messages[-1].offset() + 1)]
        producer.send_offsets_to_transaction(offsets, consumer.consumer_group_metadata(), _LIMIT_S)
        if _is_aborted(attempt):
            producer.flush(_LIMIT_S)
            producer.abort_transaction(_LIMIT_S)
            consumer.seek(confluent_kafka.TopicPartition(source, 0, done))
        else:
            producer.commit_transaction(_LIMIT_S)
            done += len(messages)
        attempt += 1
    consumer.close()


def _with_kafka_python(bootstrap: str, name: str, source: str, target: str) -> None:
    consumer = kafka.KafkaConsumer(
        bootstrap_servers=bootstrap, group_id=name, enable_auto_commit=False, auto_offset_reset="earliest"
    )
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, transactional_id=name)
    producer.init_transactions()
    partition = kafka.TopicPartition(source, 0)
    consumer.assign([partition])
    consumer.seek(partition, 0)
    done = attempt = 0
    while done < RECORDS:
        records = consumer.poll(5000, max_records=_SIZE).get(partition, [])
        if not records:
            continue
        producer.begin_transaction()
        for record in records:
            producer.send(target, record.value, partition=0)
        offsets = {partition: kafka.structs.OffsetAndMetadata(records[-1].offset + 1, "", -1)}
        producer.send_offsets_to_transaction(offsets, name)
        if _is_aborted(attempt):
            producer.flush(_LIMIT_S)
            producer.abort_transaction()
            consumer.seek(partition, done)
        else:
            producer.commit_transaction()
            done += len(records)
        attempt += 1
    producer.close()
    consumer.close()


def _with_aiokafka(bootstrap: str, name: str, source: str, target: str) -> None:
    asyncio.run(_copy_with_aiokafka(bootstrap, name, source, target))


async def _copy_with_aiokafka(bootstrap: str, name: str, source: str, target: str) -> None:
    partition = aiokafka.TopicPartition(source, 0)
    consumer = aiokafka.AIOKafkaConsumer(
        bootstrap_servers=bootstrap, group_id=name, enable_auto_commit=False, isolation_level="read_committed"
    )
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=name)
    consumer.assign([partition])
    await consumer.start()
    await producer.start()
    try:
        consumer.seek(partition, 0)
        done = attempt = 0
        while done < RECORDS:
            records = (await consumer.getmany(timeout_ms=5000, max_records=_SIZE)).get(partition, [])
            if not records:
                continue
            await producer.begin_transaction()
            for record in records:
                await producer.send(target, record.value, partition=0)
            await producer.send_offsets_to_transaction({partition: records[-1].offset + 1}, name)
            if _is_aborted(attempt):
                await producer.flush()
                await producer.abort_transaction()
                consumer.seek(partition, done)
            else:
                await producer.commit_transaction()
                done += len(records)
            attempt += 1
    finally:
        await producer.stop()
        await consumer.stop()


def _with_ours(bootstrap: str, name: str, source: str, target: str) -> None:
    from barnabas.client import Consumer, Producer, TopicPartition

    partition = TopicPartition(source, 0)
    settings = {"bootstrap.servers": bootstrap, "group.id": name, "enable.auto.commit": "false"}
    with (
        Consumer({**settings, "auto.offset.reset": "earliest"}) as consumer,
        Producer({"bootstrap.servers": bootstrap, "transactional.id": name}) as producer,
    ):
        producer.init_transactions()
        consumer.assign({partition: 0})
        done = attempt = 0
        while done < RECORDS:
            records = consumer.consume(_SIZE, 5.0)
            if not records:
                continue
            try:
                with producer.transaction():
                    for record in records:
                        producer.send(target, record.value, partition=0)
                    offsets = {partition: records[-1].offset + 1}
                    producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
                    if _is_aborted(attempt):
                        producer.flush()
                        raise ArithmeticError
                done += len(records)
            except ArithmeticError:
                consumer.seek(*partition, done)
            attempt += 1


async def _copy_with_asyncio(bootstrap: str, name: str, source: str, target: str) -> None:
    from barnabas.client import AsyncConsumer, AsyncProducer, TopicPartition

    partition = TopicPartition(source, 0)
    settings = {"bootstrap.servers": bootstrap, "group.id": name, "enable.auto.commit": "false"}
    async with (
        AsyncConsumer({**settings, "auto.offset.reset": "earliest"}) as consumer,
        AsyncProducer({"bootstrap.servers": bootstrap, "transactional.id": name}) as producer,
    ):
        await producer.init_transactions()
        consumer.assign({partition: 0})
        done = attempt = 0
        while done < RECORDS:
            records = await consumer.consume(_SIZE, 5.0)
            if not records:
                continue
            try:
                async with producer.transaction():
                    await producer.send_many(target, [record.value for record in records])
                    offsets = {partition: records[-1].offset + 1}
                    await producer.send_offsets_to_transaction(offsets, await consumer.group_metadata())
                    if _is_aborted(attempt):
                        raise ArithmeticError
                done += len(records)
            except ArithmeticError:
                await consumer.seek(*partition, done)
            attempt += 1


def _with_asyncio(bootstrap: str, name: str, source: str, target: str) -> None:
    asyncio.run(_copy_with_asyncio(bootstrap, name, source, target))


CLIENTS: dict[str, Callable[[str, str, str, str], None]] = {
    "librdkafka": _with_librdkafka,
    "kafka-python": _with_kafka_python,
    "aiokafka": _with_aiokafka,
    "barnabas": _with_ours,
    "barnabas-asyncio": _with_asyncio,
}
"""By name: copy all `RECORDS` from a topic to another.

The group and the transactional id have one name."""
