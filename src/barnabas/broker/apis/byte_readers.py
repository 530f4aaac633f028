"""The APIs whose common requests are read from their bytes, without the general decoder.

In Kafka: nothing; each request goes through `KafkaApis`.
"""

from collections.abc import Mapping
from typing import Any

from barnabas.broker.apis import produce
from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.offset_commit_columns import CommitsByColumns
from barnabas.broker.apis.produce_together import ProduceTogether
from barnabas.broker.apis.services import Services
from barnabas.broker.requests.dispatch import FastPath
from barnabas.wire.kafka.api import ApiKey

__all__ = ["byte_readers"]


def byte_readers(services: Services, handlers: Mapping[int, ApiHandler[Any]]) -> dict[ApiKey, FastPath]:
    """Those of the APIs that are served."""
    found: dict[ApiKey, FastPath] = {}
    if ApiKey.PRODUCE in handlers:
        found[ApiKey.PRODUCE] = ProduceTogether(produce.API.parts(services), handlers[ApiKey.PRODUCE].versions)
    if ApiKey.OFFSET_COMMIT in handlers:
        found[ApiKey.OFFSET_COMMIT] = CommitsByColumns(
            services.auth_helper, services.groups, services.metadata, handlers[ApiKey.OFFSET_COMMIT].versions
        )
    return found
