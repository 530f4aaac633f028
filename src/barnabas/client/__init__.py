"""Clients for Python programs: `Producer`, `Consumer` and `Admin`, on librdkafka; their asyncio twins in `aio`.

They take properties under today's names of the Java clients, under librdkafka's, and under those of Kafka's first clients
(see `barnabas.client.properties`), and add what librdkafka lacks: ``producer.type``, ``queue.enqueue.timeout.ms``,
``serializer.class``, ``partitioner.class`` in Python, ``buffer.memory`` with ``max.block.ms``.

>>> with Producer({"bootstrap.servers": "localhost:9092"}) as producer:
...     producer.send("orders", "one espresso", key="table-7")
>>> with Consumer({"bootstrap.servers": "localhost:9092", "group.id": "kitchen"}) as consumer:
...     consumer.subscribe(["orders"])
...     for record in consumer:
...         print(record.value)

Names are imported at first use: the tools that only need `barnabas.client.admin_connection` do not load librdkafka.
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.client.admin import Admin
    from barnabas.client.aio import AsyncAdmin, AsyncConsumer, AsyncProducer
    from barnabas.client.consumer import Consumer
    from barnabas.client.errors import BufferFullError, ClientError, DeliveryError, DroppedError
    from barnabas.client.producer import Producer, Receipt
    from barnabas.client.records import Delivery, Record

__all__ = [
    "Admin",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncProducer",
    "BufferFullError",
    "ClientError",
    "Consumer",
    "Delivery",
    "DeliveryError",
    "DroppedError",
    "Producer",
    "Receipt",
    "Record",
]

_HOMES = {
    "Admin": "admin",
    "AsyncAdmin": "aio",
    "AsyncConsumer": "aio",
    "AsyncProducer": "aio",
    "BufferFullError": "errors",
    "ClientError": "errors",
    "Consumer": "consumer",
    "Delivery": "records",
    "DeliveryError": "errors",
    "DroppedError": "errors",
    "Producer": "producer",
    "Receipt": "producer",
    "Record": "records",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{home}"), name)
    globals()[name] = value
    return value
