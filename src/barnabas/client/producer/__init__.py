"""The producer, and what stands between it and librdkafka: partitioners, limits of
batches, transactions.

In Kafka: `KafkaProducer`; the package `org.apache.kafka.clients.producer`.
"""

from typing import TYPE_CHECKING

from barnabas.base.lazy_names import import_lazily

if TYPE_CHECKING:
    from barnabas.client.producer.producer import Producer, Receipt

__all__ = ["Producer", "Receipt"]

if not TYPE_CHECKING:
    __getattr__ = import_lazily(__name__, {"Producer": "producer", "Receipt": "producer"})
