"""DescribeProducers (key 61), version 0.

The producers that a partition's log knows, with their open transactions (KIP-664). Any replica
answers from its own log; a producer is known until it was idle for `producer.id.expiration.ms`.
Without an open transaction the offset at which it began is -1.

Rights: READ on each topic.

Errors: INVALID_TOPIC_EXCEPTION, TOPIC_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION,
NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR.
"""

from typing import NamedTuple

from barnabas.base.ids import NO_LEADER_EPOCH, TopicPartition
from barnabas.base.tasks import Runner, Task
from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.later import serve
from barnabas.broker.authorizer.auth_helper import AuthHelper
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.requests.request import Request
from barnabas.broker.topics.planning import validate_topic_name
from barnabas.log.partition_log import refresh_producers
from barnabas.security.acls import AclOperation, ResourceType
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    ProducerState,
    TopicResponse,
)


class Parts(NamedTuple):
    """What the handler uses."""

    runner: Runner
    auth_helper: AuthHelper
    replicas: ReplicaManager


def handle(parts: Parts, request: Request) -> None:
    """Ask each partition's log."""
    serve(parts.runner, request, _describe_all(parts, request))


def _describe_all(parts: Parts, request: Request) -> Task[None]:
    message: DescribeProducersRequest = request.message
    names = (topic.name for topic in message.topics)
    allowed = yield from parts.auth_helper.filter_by_authorized(request, AclOperation.READ, ResourceType.TOPIC, names)
    # A partition is described once, however often it is named: it may have thousands of producers.
    described: set[TopicPartition] = set()
    topics = []
    for topic in message.topics:
        yield None  # it may be named without partitions
        partitions: list[PartitionResponse] = []
        for index in topic.partition_indexes:
            yield None
            topic_partition = TopicPartition(topic.name, index)
            if topic_partition not in described:
                described.add(topic_partition)
                answer = yield from _describe(parts, topic_partition, is_allowed=topic.name in allowed)
                if partitions and answer.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION:
                    # The message quotes the name, up to 4,000 characters of it: once is enough.
                    answer.error_message = None
                partitions.append(answer)
        topics.append(TopicResponse(name=topic.name, partitions=partitions))
    request.reply(DescribeProducersResponse(topics=topics))


def _describe(parts: Parts, topic_partition: TopicPartition, *, is_allowed: bool) -> Task[PartitionResponse]:
    try:
        validate_topic_name(topic_partition.topic)
        if not is_allowed:
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        log = parts.replicas.partition(topic_partition).readable_log(NO_LEADER_EPOCH, only_leader=False)
        refresh_producers(log)
    except KafkaError as error:
        return PartitionResponse(
            partition_index=topic_partition.partition, error_code=error.code, error_message=error.message
        )
    producers = []
    for entry in tuple(log.producers.entries.values()):
        yield None
        producers.append(
            ProducerState(
                producer_id=entry.producer_id,
                producer_epoch=entry.epoch,
                last_sequence=entry.last_sequence,
                last_timestamp=entry.timestamp_ms,
                coordinator_epoch=entry.coordinator_epoch,
                current_txn_start_offset=entry.transaction_first_offset,
            )
        )
    return PartitionResponse(partition_index=topic_partition.partition, active_producers=producers)


def fail(message: DescribeProducersRequest, _: int, code: ErrorCode) -> DescribeProducersResponse:
    """An error of the whole request, for each partition."""
    return DescribeProducersResponse(
        topics=[
            TopicResponse(
                name=topic.name,
                partitions=[
                    PartitionResponse(partition_index=index, error_code=code) for index in topic.partition_indexes
                ],
            )
            for topic in message.topics
        ]
    )


API = ApiHandler(
    ApiKey.DESCRIBE_PRODUCERS,
    0,
    0,
    handle,
    lambda services: Parts(services.runner, services.auth_helper, services.replicas),
    fail,
)
