"""OffsetCommit (key 8), versions 2 to 10.

Stores a group's offsets; answered when they are committed.

- 2: the retention time of the offsets, which only this version to 4 have.
- 6: the leader epoch of each offset (KIP-320).
- 7: static members (KIP-345).
- 10: topic ids instead of names (KIP-848).

Errors: COORDINATOR_NOT_AVAILABLE, COORDINATOR_LOAD_IN_PROGRESS, NOT_COORDINATOR, INVALID_GROUP_ID, UNKNOWN_MEMBER_ID,
FENCED_INSTANCE_ID, ILLEGAL_GENERATION, REBALANCE_IN_PROGRESS, OFFSET_METADATA_TOO_LARGE, UNKNOWN_TOPIC_OR_PARTITION,
UNKNOWN_TOPIC_ID.
"""

from barnabas.base.slices import Sliced
from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.first_updates import when_topics_known
from barnabas.broker.apis.later import serve
from barnabas.broker.apis.services import Services
from barnabas.broker.requests.request import Request
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)

_TOPIC_IDS_SINCE_VERSION = 10


def handle(services: Services, request: Request) -> None:
    """Answer when the offsets are committed.

    librdkafka gives up a commit that was refused because of its topic, so that waits until the controller has named it.
    """
    metadata = services.metadata
    if metadata.is_loading:
        names = [metadata.topic_name(topic.topic_id) or topic.name for topic in request.message.topics]
        when_topics_known(services, request, names, lambda: _commit(services, request))
    else:
        _commit(services, request)


def _commit(services: Services, request: Request) -> None:
    if request.version < _TOPIC_IDS_SINCE_VERSION:
        serve(services, request, services.groups.commit_offsets(request.message, request.reply))
        return

    def reply(response: OffsetCommitResponse) -> None:
        for topic in response.topics:
            if not topic.name:
                for partition in topic.partitions:
                    partition.error_code = ErrorCode.UNKNOWN_TOPIC_ID
        request.reply(response)

    def commit() -> Sliced[None]:
        for topic in request.message.topics:
            yield None
            topic.name = services.metadata.topic_name(topic.topic_id) or ""  # which no topic is called
        yield from services.groups.commit_offsets(request.message, reply)

    serve(services, request, commit())


def fail(message: OffsetCommitRequest, _version: int, code: ErrorCode) -> OffsetCommitResponse:
    """The response for a request that failed as a whole."""
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                topic_id=topic.topic_id,
                partitions=[
                    OffsetCommitResponsePartition(partition_index=partition.partition_index, error_code=code)
                    for partition in topic.partitions
                ],
            )
            for topic in message.topics
        ]
    )


API = ApiHandler(ApiKey.OFFSET_COMMIT, 2, 10, handle, fail)
