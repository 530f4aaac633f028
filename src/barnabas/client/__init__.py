"""Clients for Python programs: `Producer`, `Consumer` and `Admin`, on librdkafka; the
same for asyncio in `aio`.

They take properties under today's names of the Java clients, under librdkafka's, and under those of
Kafka's first clients (see `barnabas.client.properties`), and add what librdkafka lacks:
``producer.type``, ``queue.enqueue.timeout.ms``, ``serializer.class``, ``partitioner.class`` in
Python, ``buffer.memory`` with ``max.block.ms``. Keys and values are ``str`` unless a codec is
given. Every error is a `ClientError`.

>>> with Producer({"bootstrap.servers": "localhost:9092"}) as producer:
...     producer.send("orders", "one espresso", key="table-7")
>>> with Consumer({"bootstrap.servers": "localhost:9092", "group.id": "kitchen"}) as consumer:
...     consumer.subscribe(["orders"])
...     for record in consumer:
...         print(record.value)

Names are imported at first use: the tools that only need
`barnabas.client.cluster.admin_connection` do not load librdkafka.
"""

from typing import TYPE_CHECKING

from barnabas.base.ids import TopicPartition
from barnabas.base.lazy_names import import_lazily, keep_modules

if TYPE_CHECKING:
    from barnabas.client.admin.admin import Admin
    from barnabas.client.aio.admin import AsyncAdmin
    from barnabas.client.aio.consumer import AsyncConsumer
    from barnabas.client.aio.producer import AsyncProducer
    from barnabas.client.codecs import BYTES, DOUBLE, INTEGER, JSON, LONG, STRING, Codec, Deserializer, Serializer
    from barnabas.client.consumer.consumer import Consumer
    from barnabas.client.errors import (
        AuthenticationError,
        AuthorizationError,
        BufferFullError,
        ClientError,
        ClosedError,
        CommitError,
        ConfigurationError,
        ConnectError,
        DamagedBatchError,
        DeliveryError,
        DeserializationError,
        DroppedError,
        FencedError,
        LibrdkafkaOnlyError,
        ProtocolError,
        RefusedError,
        SerializationError,
        TimedOutError,
        TransactionError,
        UndeliveredError,
        UnknownHostError,
        UnknownTopicError,
        UnsupportedError,
    )
    from barnabas.client.producer.producer import Producer, Receipt
    from barnabas.client.records import Delivery, Headers, Record
    from barnabas.client.registry.registry import SchemaRegistry, UnknownSchemaError, UnsupportedSchemaError

__all__ = [
    "BYTES",
    "DOUBLE",
    "INTEGER",
    "JSON",
    "LONG",
    "STRING",
    "Admin",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncProducer",
    "AuthenticationError",
    "AuthorizationError",
    "BufferFullError",
    "ClientError",
    "ClosedError",
    "Codec",
    "CommitError",
    "ConfigurationError",
    "ConnectError",
    "Consumer",
    "DamagedBatchError",
    "Delivery",
    "DeliveryError",
    "DeserializationError",
    "Deserializer",
    "DroppedError",
    "FencedError",
    "Headers",
    "LibrdkafkaOnlyError",
    "Producer",
    "ProtocolError",
    "Receipt",
    "Record",
    "RefusedError",
    "SchemaRegistry",
    "SerializationError",
    "Serializer",
    "TimedOutError",
    "TopicPartition",
    "TransactionError",
    "UndeliveredError",
    "UnknownHostError",
    "UnknownSchemaError",
    "UnknownTopicError",
    "UnsupportedError",
    "UnsupportedSchemaError",
]

_HOMES = {
    "Admin": "admin.admin",
    "AsyncAdmin": "aio.admin",
    "AsyncConsumer": "aio.consumer",
    "AsyncProducer": "aio.producer",
    "AuthenticationError": "errors",
    "AuthorizationError": "errors",
    "BYTES": "codecs",
    "BufferFullError": "errors",
    "ClientError": "errors",
    "ClosedError": "errors",
    "Codec": "codecs",
    "CommitError": "errors",
    "ConfigurationError": "errors",
    "ConnectError": "errors",
    "Consumer": "consumer.consumer",
    "DOUBLE": "codecs",
    "Delivery": "records",
    "DeliveryError": "errors",
    "DamagedBatchError": "errors",
    "DeserializationError": "errors",
    "Deserializer": "codecs",
    "DroppedError": "errors",
    "FencedError": "errors",
    "Headers": "records",
    "INTEGER": "codecs",
    "JSON": "codecs",
    "LONG": "codecs",
    "Producer": "producer.producer",
    "ProtocolError": "errors",
    "Receipt": "producer.producer",
    "Record": "records",
    "LibrdkafkaOnlyError": "errors",
    "RefusedError": "errors",
    "STRING": "codecs",
    "SchemaRegistry": "registry.registry",
    "SerializationError": "errors",
    "Serializer": "codecs",
    "TimedOutError": "errors",
    "TransactionError": "errors",
    "UndeliveredError": "errors",
    "UnknownHostError": "errors",
    "UnknownSchemaError": "registry.registry",
    "UnknownTopicError": "errors",
    "UnsupportedError": "errors",
    "UnsupportedSchemaError": "registry.registry",
}

# A type checker sees only the imports above, so it reports names that do not exist.
if not TYPE_CHECKING:
    __getattr__ = import_lazily(__name__, _HOMES)

# Pickles name the modules in which results of `Admin` were defined at first.
keep_modules(
    __name__,
    {
        **{
            name: f"admin.{name}"
            for name in (
                *("acls", "active_producers", "client_quotas", "configurations", "elections", "groups", "log_dirs"),
                *("offsets", "reassignments", "scram_users", "topics"),
            )
        },
        "admin_connection": "cluster.admin_connection",
    },
)
