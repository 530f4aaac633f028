"""OffsetDelete (key 47), version 0.

Removes offsets of a group for topics to which no member subscribes (KIP-496); answered when the
tombstones are committed.

Errors: COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR, INVALID_GROUP_ID,
GROUP_ID_NOT_FOUND, GROUP_SUBSCRIBED_TO_TOPIC, UNKNOWN_TOPIC_OR_PARTITION.
"""

from typing import NamedTuple

from barnabas.base.tasks import Runner
from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.first_updates import FirstUpdates
from barnabas.broker.apis.later import serve
from barnabas.broker.groups.service import GroupService
from barnabas.broker.requests.request import Request
from barnabas.wire.kafka.api import ApiKey


class Parts(NamedTuple):
    """What the handler uses."""

    runner: Runner
    first_updates: FirstUpdates
    groups: GroupService


def handle(parts: Parts, request: Request) -> None:
    """Answer when the tombstones are committed."""
    names = [topic.name for topic in request.message.topics]
    parts.first_updates.when_topics_known(request, names, lambda: _delete(parts, request))


def _delete(parts: Parts, request: Request) -> None:
    serve(parts.runner, request, parts.groups.delete_offsets(request.message, request.reply))


API = ApiHandler(
    ApiKey.OFFSET_DELETE, 0, 0, handle, lambda services: Parts(services.runner, services.first_updates, services.groups)
)
