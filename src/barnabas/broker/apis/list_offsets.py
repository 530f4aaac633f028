"""ListOffsets (key 2), versions 1 to 9.

The first, last or timestamped offset of partitions. Timestamp -1 asks for the end (as far as
the isolation level lets the reader see), -2 for the start; any other finds the first record
that is not older. Right after an election, while the high watermark has not reached the new
epoch, the end is not known.

- 2: the isolation level.
- 4: leader epochs in request and response (KIP-320).
- 5: OFFSET_NOT_AVAILABLE instead of LEADER_NOT_AVAILABLE.
- 7: timestamp -3 asks for the record with the highest timestamp (KIP-734).
- 8: timestamp -4 asks for the first offset that is kept locally, which is the start (KIP-405).
- 9: timestamp -5 asks for the last offset in remote storage; there is none, so
  nothing is found (KIP-1005).

Rights: DESCRIBE on each topic.

Errors: TOPIC_AUTHORIZATION_FAILED, INVALID_REQUEST (a partition named twice), UNSUPPORTED_VERSION
(a timestamp of a later version), OFFSET_NOT_AVAILABLE, UNKNOWN_TOPIC_OR_PARTITION,
NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH, KAFKA_STORAGE_ERROR.
"""

from collections import Counter
from typing import NamedTuple

from barnabas.base.ids import TopicPartition
from barnabas.base.tasks import Runner, Task
from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.later import serve
from barnabas.broker.authorizer.auth_helper import AuthHelper
from barnabas.broker.replication.list_offsets import offset_for_timestamp
from barnabas.broker.replication.reads import LOG_END, READ_COMMITTED, READ_UNCOMMITTED, Isolation
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.requests.request import Request
from barnabas.log.timestamps import EARLIEST, EARLIEST_LOCAL, LATEST, LATEST_TIERED, MAX_TIMESTAMP
from barnabas.security.acls import AclOperation, ResourceType
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

_SINCE_VERSION = {LATEST: 1, EARLIEST: 1, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}
_CONSUMER, _DEBUGGING_REPLICA = -1, -2
_LEADER_EPOCHS_FROM = 4
_OFFSET_NOT_AVAILABLE_FROM = 5


class Parts(NamedTuple):
    """What the handler uses."""

    runner: Runner
    auth_helper: AuthHelper
    replicas: ReplicaManager


def handle(parts: Parts, request: Request) -> None:
    """Look every partition up."""
    serve(parts.runner, request, _look_up(parts, request))


def _look_up(parts: Parts, request: Request) -> Task[None]:
    message: ListOffsetsRequest = request.message
    asked = (topic.name for topic in message.topics)
    allowed = yield from parts.auth_helper.filter_by_authorized(
        request, AclOperation.DESCRIBE, ResourceType.TOPIC, asked
    )
    counts = yield from _count(message)
    isolation = _isolation(message)
    topics: list[ListOffsetsTopicResponse] = []
    for topic in message.topics:
        if topics:
            yield None
        answers: list[ListOffsetsPartitionResponse] = []
        is_allowed = topic.name in allowed
        for partition in topic.partitions:
            if answers:
                yield None
            name = TopicPartition(topic.name, partition.partition_index)
            answer = ListOffsetsPartitionResponse(partition_index=name.partition, timestamp=-1, offset=-1)
            try:
                if not is_allowed:
                    raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                if counts[name] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST)
                if partition.timestamp < 0 and request.version < _SINCE_VERSION.get(partition.timestamp, 99):
                    raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
                found = yield from offset_for_timestamp(
                    parts.replicas.partition(name),
                    partition.timestamp,
                    current_leader_epoch=partition.current_leader_epoch,
                    isolation=isolation,
                    only_leader=message.replica_id != _DEBUGGING_REPLICA,
                )
                if found is not None:
                    answer.timestamp, answer.offset, epoch = found
                    if request.version >= _LEADER_EPOCHS_FROM:
                        answer.leader_epoch = epoch
            except KafkaError as error:
                code = error.code
                if code is ErrorCode.OFFSET_NOT_AVAILABLE and request.version < _OFFSET_NOT_AVAILABLE_FROM:
                    code = ErrorCode.LEADER_NOT_AVAILABLE
                answer.error_code = code
            answers.append(answer)
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=answers))
    request.reply(ListOffsetsResponse(topics=topics))


def _count(message: ListOffsetsRequest) -> Task[Counter[TopicPartition]]:
    """How often each partition is named."""
    counts: Counter[TopicPartition] = Counter()
    for topic in message.topics:
        if counts:
            yield None  # a topic may be named without partitions
        for partition in topic.partitions:
            if counts:
                yield None
            counts[TopicPartition(topic.name, partition.partition_index)] += 1
    return counts


def _isolation(message: ListOffsetsRequest) -> Isolation:
    if message.replica_id != _CONSUMER:
        return LOG_END
    return READ_COMMITTED if message.isolation_level == READ_COMMITTED else READ_UNCOMMITTED


def fail(message: ListOffsetsRequest, _: int, code: ErrorCode) -> ListOffsetsResponse:
    """An error of the whole request, for each partition."""
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(
                        partition_index=partition.partition_index, error_code=code, timestamp=-1, offset=-1
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in message.topics
        ]
    )


API = ApiHandler(
    ApiKey.LIST_OFFSETS,
    1,
    9,
    handle,
    lambda services: Parts(services.runner, services.auth_helper, services.replicas),
    fail,
)
