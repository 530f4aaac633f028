"""OffsetDelete (key 47), version 0.

Removes offsets of a group for topics to which no member subscribes (KIP-496); answered when the
tombstones are committed.

Errors: COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR, INVALID_GROUP_ID,
GROUP_ID_NOT_FOUND, GROUP_SUBSCRIBED_TO_TOPIC, UNKNOWN_TOPIC_OR_PARTITION.
"""

from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.first_updates import when_topics_known
from barnabas.broker.apis.later import serve
from barnabas.broker.apis.services import Services
from barnabas.broker.requests.request import Request
from barnabas.wire.kafka.api import ApiKey


def handle(services: Services, request: Request) -> None:
    """Answer when the tombstones are committed."""
    names = [topic.name for topic in request.message.topics]
    when_topics_known(services, request, names, lambda: _delete(services, request))


def _delete(services: Services, request: Request) -> None:
    serve(services, request, services.groups.delete_offsets(request.message, request.reply))


API = ApiHandler(ApiKey.OFFSET_DELETE, 0, 0, handle)
