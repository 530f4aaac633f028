"""FastStream on aiokafka: copies a topic in transactions.

FastStream consumes and publishes; it has the producer's transactional.id, but no calls for
transactions, so that these are the calls of the producer that it made.
"""

import asyncio
import sys

from aiokafka import TopicPartition
from faststream import AckPolicy, FastStream
from faststream.kafka import KafkaBroker, KafkaMessage

bootstrap, name, source, target = sys.argv[1:5]
broker = KafkaBroker(bootstrap.split(","), transactional_id=name, enable_idempotence=True)


@broker.subscriber(
    source,
    group_id=name,
    batch=True,
    max_records=20,
    ack_policy=AckPolicy.MANUAL,
    auto_offset_reset="earliest",
    isolation_level="read_committed",
    session_timeout_ms=6000,
)
async def copy(values: list[int], message: KafkaMessage) -> None:
    """One transaction for a batch, with the offset behind its last record."""
    last = message.raw_message[-1]
    producer = broker.config.producer._producer.producer
    async with producer.transaction():
        for value in values:
            await broker.publish(str(value), target, partition=0)
        offsets = {TopicPartition(last.topic, last.partition): last.offset + 1}
        await producer.send_offsets_to_transaction(offsets, name)


asyncio.run(FastStream(broker).run())
