"""The clients for asyncio: `AsyncProducer`, `AsyncConsumer`, `AsyncAdmin`, with the
methods of the others.

Kafka has no counterpart; methods of `KafkaAdminClient` return a `KafkaFuture`.
"""

from typing import TYPE_CHECKING

from barnabas.base.lazy_names import import_lazily

if TYPE_CHECKING:
    from barnabas.client.aio.admin import AsyncAdmin
    from barnabas.client.aio.consumer import AsyncConsumer
    from barnabas.client.aio.producer import AsyncProducer

__all__ = ["AsyncAdmin", "AsyncConsumer", "AsyncProducer"]

if not TYPE_CHECKING:
    __getattr__ = import_lazily(
        __name__, {"AsyncAdmin": "admin", "AsyncConsumer": "consumer", "AsyncProducer": "producer"}
    )
