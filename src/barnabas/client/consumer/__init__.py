"""The consumer: records that were fetched, rebalances of its group, rights that it lacks.

In Kafka: `KafkaConsumer`; the package `org.apache.kafka.clients.consumer`.
"""

from typing import TYPE_CHECKING

from barnabas.base.lazy_names import import_lazily

if TYPE_CHECKING:
    from barnabas.client.consumer.consumer import CLOSE_CONSUMER_TIMEOUT_S, Consumer, OnCommit

__all__ = ["CLOSE_CONSUMER_TIMEOUT_S", "Consumer", "OnCommit"]

if not TYPE_CHECKING:
    __getattr__ = import_lazily(
        __name__, {"CLOSE_CONSUMER_TIMEOUT_S": "consumer", "Consumer": "consumer", "OnCommit": "consumer"}
    )
