"""`AsyncAdmin` under the path that programs may import it from.

It is defined in `barnabas.client.aio.admin`.

In Kafka: `KafkaAdminClient`, whose methods return futures.
"""

from barnabas.client.aio.admin import AsyncAdmin

__all__ = ["AsyncAdmin"]
