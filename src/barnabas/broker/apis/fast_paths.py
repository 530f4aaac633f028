"""The APIs whose usual requests have a fast path.

In Kafka: nothing; each request takes the way of `KafkaApis`.
"""

from collections.abc import Mapping

from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.fast_offset_commit import FastOffsetCommit
from barnabas.broker.apis.produce_together import ProduceTogether
from barnabas.broker.apis.services import Services
from barnabas.broker.requests.dispatch import FastPath
from barnabas.wire.kafka.api import ApiKey

__all__ = ["fast_paths"]


def fast_paths(services: Services, handlers: Mapping[int, ApiHandler]) -> dict[ApiKey, FastPath]:
    """The fast paths of the APIs that are served."""
    found: dict[ApiKey, FastPath] = {}
    if ApiKey.PRODUCE in handlers:
        found[ApiKey.PRODUCE] = ProduceTogether(services, handlers[ApiKey.PRODUCE].versions)
    if ApiKey.OFFSET_COMMIT in handlers:
        found[ApiKey.OFFSET_COMMIT] = FastOffsetCommit(services, handlers[ApiKey.OFFSET_COMMIT].versions)
    return found
