"""DeleteRecords (key 21), versions 0 to 2.

Moves the log start offset of partitions (KIP-107). An offset of -1 stands for the high watermark. The response waits
until every living replica begins there, or for the request's time-out, and has the low watermark: the least log start
offset among them.

Errors: INVALID_TOPIC_EXCEPTION (an internal topic), OFFSET_OUT_OF_RANGE, POLICY_VIOLATION (a topic that is only
compacted), UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR, REQUEST_TIMED_OUT.
"""

from typing import Any

from barnabas.base.ids import TopicPartition
from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.services import Services
from barnabas.broker.metadata.cache import INTERNAL_TOPICS
from barnabas.broker.requests.request import Request
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.delete_records import (
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopicResult,
)


def handle(services: Services, request: Request) -> None:
    """Move the log start offsets, then wait for the replicas."""
    message: DeleteRecordsRequest = request.message
    response = DeleteRecordsResponse(topics=[])
    pending: dict[TopicPartition, tuple[DeleteRecordsPartitionResult, int]] = {}
    for topic in message.topics:
        results = []
        for wanted in topic.partitions:
            name = TopicPartition(topic.name, wanted.partition_index)
            result = DeleteRecordsPartitionResult(partition_index=name.partition, low_watermark=-1)
            try:
                if name.topic in INTERNAL_TOPICS:
                    raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION)
                pending[name] = result, services.replicas.delete_records(name, wanted.offset)
            except KafkaError as error:
                result.error_code = error.code
            results.append(result)
        response.topics.append(DeleteRecordsTopicResult(name=topic.name, partitions=results))

    def attempt(_: Any) -> bool:
        alive = {broker.broker_id for broker in services.metadata.alive_brokers()}
        for name, (result, offset) in tuple(pending.items()):
            try:
                low = services.replicas.partition(name).low_watermark(alive)
            except KafkaError as error:
                result.error_code = error.code
                del pending[name]
            else:
                if low >= offset:
                    result.low_watermark = low
                    del pending[name]
        if not pending:
            request.reply(response)
        return not pending

    def expire() -> None:
        for result, _ in pending.values():
            result.error_code = ErrorCode.REQUEST_TIMED_OUT
        request.reply(response)

    if not attempt(None):
        request.waiter = services.purgatory.watch(tuple(pending), attempt, expire, message.timeout_ms)


def fail(message: DeleteRecordsRequest, _: int, code: ErrorCode) -> DeleteRecordsResponse:
    """An error of the whole request, told for each partition."""
    return DeleteRecordsResponse(
        topics=[
            DeleteRecordsTopicResult(
                name=topic.name,
                partitions=[
                    DeleteRecordsPartitionResult(
                        partition_index=wanted.partition_index, low_watermark=-1, error_code=code
                    )
                    for wanted in topic.partitions
                ],
            )
            for topic in message.topics
        ]
    )


API = ApiHandler(ApiKey.DELETE_RECORDS, 0, 2, handle, fail)
