"""ListOffsets (key 2), versions 1 to 9.

The first, last or timestamped offset of partitions. Timestamp -1 asks for the end (as far as the isolation level lets
the reader see), -2 for the start; any other finds the first record that is not older. Right after an election, while
the high watermark has not reached the new epoch, the end is not known.

- 2: the isolation level.
- 4: leader epochs in request and response (KIP-320).
- 5: OFFSET_NOT_AVAILABLE instead of LEADER_NOT_AVAILABLE.
- 7: timestamp -3 asks for the record with the highest timestamp (KIP-734).
- 8: timestamp -4 asks for the first offset that is kept locally, which is the start (KIP-405).
- 9: timestamp -5 asks for the last offset in remote storage; there is none, so nothing is found (KIP-1005).

Errors: INVALID_REQUEST (a partition named twice), UNSUPPORTED_VERSION (a timestamp of a later version),
OFFSET_NOT_AVAILABLE, UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, FENCED_LEADER_EPOCH, UNKNOWN_LEADER_EPOCH,
KAFKA_STORAGE_ERROR.
"""

from collections import Counter

from barnabas.base.ids import TopicPartition
from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.services import Services
from barnabas.broker.replication.partition import Leader
from barnabas.broker.requests.request import Request
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)

LATEST, EARLIEST, MAX_TIMESTAMP, EARLIEST_LOCAL, LATEST_TIERED = -1, -2, -3, -4, -5
_SINCE_VERSION = {LATEST: 1, EARLIEST: 1, MAX_TIMESTAMP: 7, EARLIEST_LOCAL: 8, LATEST_TIERED: 9}
_CONSUMER, _DEBUGGING_REPLICA = -1, -2
_READ_COMMITTED = 1
_LEADER_EPOCHS_FROM = 4
_OFFSET_NOT_AVAILABLE_FROM = 5


def handle(services: Services, request: Request) -> None:
    """Look every partition up."""
    message: ListOffsetsRequest = request.message
    counts = Counter(
        TopicPartition(topic.name, partition.partition_index)
        for topic in message.topics
        for partition in topic.partitions
    )
    topics = []
    for topic in message.topics:
        answers = []
        for partition in topic.partitions:
            name = TopicPartition(topic.name, partition.partition_index)
            answer = ListOffsetsPartitionResponse(partition_index=name.partition, timestamp=-1, offset=-1)
            try:
                if counts[name] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST)
                if partition.timestamp < 0 and request.version < _SINCE_VERSION.get(partition.timestamp, 99):
                    raise KafkaError(ErrorCode.UNSUPPORTED_VERSION)
                found = _find(services, name, message, partition)
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


def _find(
    services: Services, name: TopicPartition, message: ListOffsetsRequest, wanted: ListOffsetsPartition
) -> tuple[int, int, int] | None:
    """(timestamp, offset, leader epoch), or None when no record fits."""
    partition = services.replicas.partition(name)
    log = partition.readable_log(wanted.current_leader_epoch, only_leader=message.replica_id != _DEBUGGING_REPLICA)
    client = message.replica_id == _CONSUMER
    if not client:
        end = log.log_end_offset
    else:
        end = log.last_stable_offset if message.isolation_level == _READ_COMMITTED else log.high_watermark
    role = partition.role
    lagging = client and isinstance(role, Leader) and role.epoch_start_offset > log.high_watermark
    timestamp = wanted.timestamp
    if timestamp == LATEST:
        if lagging:
            raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
        return -1, end, partition.leader_epoch
    if timestamp == LATEST_TIERED:
        return None
    found = log.offset_for_timestamp(timestamp)
    if found is not None and (timestamp in (EARLIEST, EARLIEST_LOCAL) or found.offset < end):
        return found.timestamp_ms, found.offset, found.leader_epoch
    if lagging:
        raise KafkaError(ErrorCode.OFFSET_NOT_AVAILABLE)
    return None


def fail(message: ListOffsetsRequest, _: int, code: ErrorCode) -> ListOffsetsResponse:
    """An error of the whole request, told for each partition."""
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


API = ApiHandler(ApiKey.LIST_OFFSETS, 1, 9, handle, fail)
