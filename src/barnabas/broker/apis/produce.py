"""Produce (key 0), versions 3 to 13.

Appends batches to partitions that this broker leads. acks 0 gets no response (an error closes the connection, which
is the only sign there is), 1 is answered after the append (and its sync, where the topic's settings ask for one), -1
when all in-sync replicas have the records or at the request's timeout. Errors, offsets and messages are those of
each partition. Advertised from version 0, as Apache Kafka 4 does: librdkafka takes the lowest version as a sign of
which codecs a broker knows. Of a partition that is named twice the last records count.

- 3: one batch of format 2 for each partition (KIP-98).
- 5: the log start offset.
- 7: zstd (KIP-110).
- 8: which records are wrong, and why (KIP-467).
- 10: the new leader in tagged fields (KIP-951).
- 13: topic ids instead of names (KIP-516).

Errors: INVALID_REQUIRED_ACKS, INVALID_TOPIC_EXCEPTION (an internal topic), INVALID_RECORD, CORRUPT_MESSAGE,
INVALID_TIMESTAMP, MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE, UNSUPPORTED_COMPRESSION_TYPE, UNKNOWN_TOPIC_ID,
UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR, NOT_ENOUGH_REPLICAS,
NOT_ENOUGH_REPLICAS_AFTER_APPEND, OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, REQUEST_TIMED_OUT;
TRANSACTIONAL_ID_AUTHORIZATION_FAILED for transactional batches, which no coordinator here could end.
"""

from collections.abc import Mapping

from barnabas.base.files import FileSlice
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.base.slices import Beside, Sliced
from barnabas.base.tuples import new_tuple
from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.later import serve
from barnabas.broker.apis.leader_hints import LeaderHints
from barnabas.broker.apis.services import Services
from barnabas.broker.replication.delayed_produce import acknowledgement, wait_for_acknowledgements
from barnabas.broker.replication.produce_rules import validate_request
from barnabas.broker.requests.request import Request
from barnabas.log.conversion import RejectedRecordsError
from barnabas.log.record_checks import SHORT_CHECKS, LongCheckError
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.frames import encode_response
from barnabas.wire.kafka.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

PRODUCE_TOPIC_IDS = 13
"""The first version that names topics by their ids."""
PRODUCE_FLEXIBLE = 9
"""The first flexible version."""
PRODUCE_ZSTD = 7
"""The first version that takes batches in zstd."""
_LEADER_HINTS = 10
_MOVED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)
_NOT_COUNTED = (
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.KAFKA_STORAGE_ERROR,
)
"""Errors that Kafka does not count as failed requests."""

_Waiting = tuple[TopicPartition, PartitionProduceResponse, int]
"""An append with its answer and its last offset."""


def handle(services: Services, request: Request) -> None:
    """Append what the request carries, then answer as its acks ask."""
    message: ProduceRequest = request.message
    if message.transactional_id is not None:
        raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    serve(services, request, _append(services, request))


def _append(services: Services, request: Request) -> Sliced[None]:
    message: ProduceRequest = request.message
    acks, now_ms = message.acks, services.clock.wall_ms()
    topics = []
    waiting: list[_Waiting] = []
    failed = False
    for topic_data in (yield from _without_repeats(message.topic_data)):
        yield None  # it may have no partitions
        name: str | None = topic_data.name
        if request.version >= PRODUCE_TOPIC_IDS:
            name = services.metadata.topic_name(topic_data.topic_id)
        partitions = []
        for data in topic_data.partition_data:
            yield None
            answer = PartitionProduceResponse(index=data.index)
            partitions.append(answer)
            if name is None:
                refuse(answer, KafkaError(ErrorCode.UNKNOWN_TOPIC_ID))
                failed = True
                continue
            topic_partition = new_tuple(TopicPartition, (name, data.index))
            services.replicas.topic_stats.find(name).total_produce_requests += 1
            try:
                records = validate_request(name, data.records, acks, request.client_id, request.version)
                append = services.replicas.append
                try:
                    info = append(topic_partition, records, acks=acks, now_ms=now_ms, checks=SHORT_CHECKS)
                except LongCheckError as unchecked:
                    yield Beside(unchecked.check.run)
                    info = append(topic_partition, records, acks=acks, now_ms=now_ms, checks=unchecked.check)
            except KafkaError as error:
                _refuse_append(services, name, answer, error)
                failed = True
                continue
            answer.base_offset = info.first_offset
            answer.log_append_time_ms = info.log_append_time_ms
            answer.log_start_offset = info.log_start_offset
            code = acknowledgement(services.replicas, topic_partition, info.last_offset, acks)
            if code is None:
                waiting.append((topic_partition, answer, info.last_offset))
            elif code is not ErrorCode.NONE:
                refuse(answer, KafkaError(code))
                failed = True
        topics.append(
            TopicProduceResponse(name=topic_data.name, topic_id=topic_data.topic_id, partition_responses=partitions)
        )
    response = ProduceResponse(responses=topics)
    if len(waiting) > 1:
        # Others have had their turn since the first append: what is committed by now wakes none that begins to wait.
        waiting, some_failed = _still_waiting(services, waiting, acks)
        failed = failed or some_failed
    if acks == 0:
        if failed:
            request.fail(ErrorCode.NONE)
        else:
            request.no_reply()
    elif waiting:
        _wait(services, request, response, waiting, failed)
    else:
        _reply(services, request, response, failed)


def _refuse_append(services: Services, topic: str, answer: PartitionProduceResponse, error: KafkaError) -> None:
    if error.code not in _NOT_COUNTED:
        services.replicas.topic_stats.find(topic).failed_produce_requests += 1
    refuse(answer, error)


def _still_waiting(services: Services, waiting: list[_Waiting], acks: int) -> tuple[list[_Waiting], bool]:
    """The appends that are still to be acknowledged, and whether others failed meanwhile."""
    left = []
    failed = False
    for each in waiting:
        topic_partition, answer, last_offset = each
        code = acknowledgement(services.replicas, topic_partition, last_offset, acks)
        if code is None:
            left.append(each)
        elif code is not ErrorCode.NONE:
            refuse(answer, KafkaError(code))
            failed = True
    return left, failed


def _without_repeats(topics: list[TopicProduceData]) -> Sliced[list[TopicProduceData]]:
    """As Apache's brokers do it: where a request names a partition twice, only the last records are appended."""
    if len(topics) == 1 and len(topics[0].partition_data) == 1:
        return topics
    number = 0
    last: dict[tuple[str, Uuid, int], PartitionProduceData] = {}
    for topic in topics:
        yield None
        number += len(topic.partition_data)
        for data in topic.partition_data:
            yield None
            last[topic.name, topic.topic_id, data.index] = data
    if len(last) == number:
        return topics
    merged: dict[tuple[str, Uuid], TopicProduceData] = {}
    for (name, topic_id, _), data in last.items():
        yield None
        key = name, topic_id
        if key not in merged:
            merged[key] = TopicProduceData(name=name, topic_id=topic_id, partition_data=[])
        merged[key].partition_data.append(data)
    return list(merged.values())


def refuse(answer: PartitionProduceResponse, error: KafkaError) -> None:
    """Let an answer say that nothing is acknowledged, and why."""
    answer.error_code = error.code
    answer.base_offset = -1
    answer.log_append_time_ms = -1
    answer.log_start_offset = -1
    if isinstance(error, RejectedRecordsError):
        answer.record_errors = [
            BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=message)
            for index, message in error.record_errors
        ]
    # Apache's brokers send no text beside most codes; where we have one that says more than the code, clients show it.
    answer.error_message = None if error.message == error.code.message else error.message


def _reply(services: Services, request: Request, response: ProduceResponse, failed: bool) -> None:
    if failed:
        add_leader_hints(services, request.client.listener, request.version, response)
    request.reply(response)


def add_leader_hints(services: Services, listener: str, version: int, response: ProduceResponse) -> None:
    """Add the current leaders of partitions that this broker does not lead (KIP-951)."""
    if version < _LEADER_HINTS:
        return
    hints = LeaderHints(services.replicas, services.metadata, listener)
    for topic in response.responses:
        for partition in topic.partition_responses:
            name = topic.name or services.metadata.topic_name(topic.topic_id)
            if partition.error_code in _MOVED and name:
                leader = hints.leader(TopicPartition(name, partition.index))
                if leader is not None:
                    partition.current_leader = LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1])
    response.node_endpoints = [
        NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack)
        for node_id, host, port, rack in hints.endpoints()
    ]


def unacknowledged_response(
    services: Services, listener: str, version: int, topic: TopicProduceData, index: int, code: ErrorCode
) -> ProduceResponse:
    """The response to a request for one partition whose records were appended and are not acknowledged."""
    answer = PartitionProduceResponse(index=index)
    refuse(answer, KafkaError(code))
    refused = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=[answer])
    response = ProduceResponse(responses=[refused])
    add_leader_hints(services, listener, version, response)
    return response


def join_response(response: ProduceResponse, version: int, correlation_id: int) -> bytes:
    """The frame of a response."""
    parts = encode_response(response, version, correlation_id)
    return b"".join(bytes(part) for part in parts if not isinstance(part, FileSlice))


def _wait(
    services: Services,
    request: Request,
    response: ProduceResponse,
    waiting: list[_Waiting],
    failed: bool,
) -> None:
    """Reply when every partition's records are acknowledged, or will not be."""
    answers = {topic_partition: answer for topic_partition, answer, _ in waiting}

    def respond(errors: Mapping[TopicPartition, ErrorCode]) -> None:
        for topic_partition, code in errors.items():
            refuse(answers[topic_partition], KafkaError(code))
        _reply(services, request, response, failed or bool(errors))

    request.waiter = wait_for_acknowledgements(
        services.replicas,
        services.purgatory,
        {topic_partition: last_offset for topic_partition, _, last_offset in waiting},
        request.message.acks,
        respond,
        request.message.timeout_ms,
    )


def fail(message: ProduceRequest, _: int, code: ErrorCode) -> ProduceResponse | None:
    """An error of the whole request, for each partition; nothing for acks 0."""
    if message.acks == 0:
        return None
    return ProduceResponse(
        responses=[
            TopicProduceResponse(
                name=topic.name,
                topic_id=topic.topic_id,
                partition_responses=[
                    PartitionProduceResponse(index=data.index, error_code=code, base_offset=-1)
                    for data in topic.partition_data
                ],
            )
            for topic in message.topic_data
        ]
    )


API = ApiHandler(ApiKey.PRODUCE, 3, 13, handle, fail)
