"""Produce (key 0), versions 3 to 13.

Appends batches to partitions that this broker leads. acks 0 gets no response (an error closes the
connection, which is the only sign there is), 1 is answered after the append (and its sync, where
the topic's settings ask for one), -1 when all in-sync replicas have the records or at the request's
timeout. Errors, offsets and messages are those of each partition. Advertised from version 0, as
Apache Kafka 4 does: librdkafka takes the lowest version as a sign of which codecs a broker knows.
If a request names a partition twice, the last records count.

- 3: one batch of format 2 for each partition (KIP-98).
- 5: the log start offset.
- 7: zstd (KIP-110).
- 8: which records are wrong, and why (KIP-467).
- 10: the new leader in tagged fields (KIP-951).
- 11: TRANSACTION_ABORTABLE for a partition that is not part of the transaction (KIP-890).
- 12: the broker adds partitions to the transaction, where transaction.version 2 is finalized
  (KIP-890).
- 13: topic ids instead of names (KIP-516).

Rights: WRITE on each topic; WRITE on the transactional id where a batch is transactional. A request
without the latter fails as a whole.

Errors: TOPIC_AUTHORIZATION_FAILED, INVALID_REQUIRED_ACKS, INVALID_TOPIC_EXCEPTION (an internal
topic), INVALID_RECORD, CORRUPT_MESSAGE, INVALID_TIMESTAMP, MESSAGE_TOO_LARGE,
RECORD_LIST_TOO_LARGE, UNSUPPORTED_COMPRESSION_TYPE, UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION,
NOT_LEADER_OR_FOLLOWER, KAFKA_STORAGE_ERROR, NOT_ENOUGH_REPLICAS, NOT_ENOUGH_REPLICAS_AFTER_APPEND,
OUT_OF_ORDER_SEQUENCE_NUMBER, INVALID_PRODUCER_EPOCH, REQUEST_TIMED_OUT; of transactions:
INVALID_PRODUCER_ID_MAPPING (records of several producers), INVALID_TXN_STATE and
TRANSACTION_ABORTABLE (a partition that is not part of the transaction), CONCURRENT_TRANSACTIONS
(version 12: the transaction before is not over), TRANSACTIONAL_ID_AUTHORIZATION_FAILED (also
transactional batches without a transactional id).
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from barnabas.base.clock import Clock
from barnabas.base.files import FileSlice
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.base.tasks import Runner, Task
from barnabas.base.tuples import new_tuple
from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.later import serve
from barnabas.broker.apis.leader_hints import LeaderHints
from barnabas.broker.apis.request_sizes import LIMIT_OF_ALL
from barnabas.broker.authorizer.auth_helper import AuthHelper
from barnabas.broker.metadata.cache import MetadataCache
from barnabas.broker.replication.delayed_produce import DelayedProduce
from barnabas.broker.replication.produce_append import (
    NO_HEADER,
    PRODUCE_TOPIC_IDS,
    AppendTask,
    Batch,
    Produce,
    ProduceHead,
    ProduceOptions,
    ProduceTopic,
    append,
    perform_wait,
)
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.replication.topic_rights import TopicRights
from barnabas.broker.replication.transaction_verification import AddPartitionsToTxnManager
from barnabas.broker.requests.purgatory import Purgatory
from barnabas.broker.requests.request import ClientFacts, Request
from barnabas.log.conversion import RejectedRecordsError
from barnabas.security.acls import AclOperation
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
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
from barnabas.wire.kafka.records.batch_header import HEADER, HEADER_BYTES
from barnabas.wire.kafka.schema import Records

_LEADER_HINTS = 10
_MOVED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH)


class Parts(NamedTuple):
    """What the handler uses."""

    clock: Clock
    runner: Runner
    auth_helper: AuthHelper
    purgatory: Purgatory
    metadata: MetadataCache
    replicas: ReplicaManager
    transaction_verifier: AddPartitionsToTxnManager


def handle(parts: Parts, request: Request) -> None:
    """Append what the request carries, then answer as its acks ask."""
    serve(parts.runner, request, _produce(parts, request), perform_wait)


def _produce(parts: Parts, request: Request) -> AppendTask[None]:
    produce = yield from read_message(request.message, request.version, request.client_id, parts.metadata.topic_name)
    rights = rights_of(parts.auth_helper, request.client)
    yield from append(parts.replicas, [produce], parts.clock.wall_ms(), parts.clock, parts.transaction_verifier, rights)
    delayed = DelayedProduce(parts.replicas)
    reply = partial(_reply, parts, request, produce)
    if delayed.add_request(produce):
        reply()
    elif not request.is_abandoned:
        request.waiter = delayed.wait(
            parts.purgatory, produce.options.timeout_ms, lambda: None if produce.waiting else reply()
        )


def rights_of(auth_helper: AuthHelper, client: ClientFacts) -> TopicRights | None:
    """What a client may write to; None if that is everything."""
    if not auth_helper.is_enabled:
        return None
    valid_for = auth_helper.rights_version, client.principal
    rights: TopicRights | None = client.produce_rights
    if rights is None or rights.valid_for != valid_for:
        is_authorized = partial(auth_helper.authorize_client, client, ApiKey.PRODUCE, AclOperation.WRITE)
        client.produce_rights = rights = TopicRights(is_authorized, valid_for)
    rights.begin(caches_allowed=auth_helper.caches_allowed)
    return rights


def _reply(parts: Parts, request: Request, produce: Produce) -> None:
    if produce.options.acks:
        serve(parts.runner, request, _answer(parts, request, produce))
    elif produce.has_failed:
        request.fail(ErrorCode.NONE)
    else:
        request.no_reply()


def _answer(parts: Parts, request: Request, produce: Produce) -> Task[None]:
    request.reply((yield from response_to(parts, request.client.listener, produce)))


def read_message(
    message: ProduceRequest, version: int, client_id: str | None, topic_name: Callable[[Uuid], str | None]
) -> Task[Produce]:
    """The third reader: what a decoded request asks for."""
    topics: list[ProduceTopic] = []
    partitions: list[TopicPartition] = []
    topic_ids: list[Uuid] = []
    batches: list[Batch] = []
    for topic in (yield from _without_repeats(message.topic_data)):
        yield None  # it may have no partitions
        name = (topic_name(topic.topic_id) or "") if version >= PRODUCE_TOPIC_IDS else topic.name
        topics.append(new_tuple(ProduceTopic, (topic.name, topic.topic_id, len(topic.partition_data))))
        for data in topic.partition_data:
            yield None
            partitions.append(new_tuple(TopicPartition, (name, data.index)))
            topic_ids.append(topic.topic_id)
            batches.append(_batch(data.records))
    options = ProduceOptions(version, client_id, message.transactional_id, message.acks, message.timeout_ms)
    return Produce(ProduceHead(options, topics, partitions, topic_ids), batches, borrows=False)


def _batch(records: Records) -> Batch:
    if records is None or isinstance(records, FileSlice):
        return memoryview(b""), NO_HEADER
    view = memoryview(records)
    if view.readonly:
        view = memoryview(bytearray(view))
    return view, HEADER.unpack_from(view) if len(view) >= HEADER_BYTES else NO_HEADER


def _without_repeats(topics: list[TopicProduceData]) -> Task[list[TopicProduceData]]:
    """As Apache's brokers do it: where a request names a partition twice, only the
    last records are appended."""
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


def _refuse(answer: PartitionProduceResponse, error: KafkaError) -> None:
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
    # Apache's brokers send no text beside most codes; where we have one that says more than
    # the code, clients show it.
    answer.error_message = None if error.message == error.code.message else error.message


def response_to(parts: Parts, listener: str, produce: Produce) -> Task[ProduceResponse]:
    """The message that says what became of a request."""
    response = ProduceResponse(responses=[])
    outcomes = zip(produce.partitions, produce.outcomes, strict=True)
    has_failed = False
    for topic in produce.head.topics:
        yield None  # it may have no partitions
        answers = []
        for _ in range(topic.partitions):
            yield None
            (_, index), (appended, first_offset, _) = next(outcomes)
            answer = PartitionProduceResponse(
                index=index,
                base_offset=first_offset,
                log_append_time_ms=appended.log_append_time_ms,
                log_start_offset=appended.log_start_offset,
            )
            if appended.error is not None:
                has_failed = True
                _refuse(answer, appended.error)
            answers.append(answer)
        response.responses.append(
            TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)
        )
    if has_failed:
        _add_leader_hints(parts, listener, produce.options.version, response)
    return response


def _add_leader_hints(parts: Parts, listener: str, version: int, response: ProduceResponse) -> None:
    """Add the current leaders of partitions that this broker does not lead (KIP-951)."""
    if version < _LEADER_HINTS:
        return
    hints = LeaderHints(parts.replicas, parts.metadata, listener)
    for topic in response.responses:
        for partition in topic.partition_responses:
            name = topic.name or parts.metadata.topic_name(topic.topic_id)
            if partition.error_code in _MOVED and name:
                leader = hints.leader(TopicPartition(name, partition.index))
                if leader is not None:
                    partition.current_leader = LeaderIdAndEpoch(leader_id=leader[0], leader_epoch=leader[1])
    response.node_endpoints = [
        NodeEndpoint(node_id=node_id, host=host, port=port, rack=rack)
        for node_id, host, port, rack in hints.endpoints()
    ]


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


API = ApiHandler(
    ApiKey.PRODUCE,
    3,
    13,
    handle,
    lambda services: Parts(
        services.clock,
        services.runner,
        services.auth_helper,
        services.purgatory,
        services.metadata,
        services.replicas,
        services.transaction_verifier,
    ),
    fail,
    max_request_bytes=LIMIT_OF_ALL,
)
