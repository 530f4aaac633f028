"""WriteTxnMarkers (key 27), versions 0 to 2.

A transaction coordinator ends transactions in the partitions that this broker leads. Answered when
all markers are replicated, or after request.timeout.ms. A marker in ``__consumer_offsets`` commits
or drops the offsets of its transaction before the answer.

- 2: the version of the transaction (KIP-1228).

Rights: ALTER on the cluster, or CLUSTER_ACTION.

Errors: CLUSTER_AUTHORIZATION_FAILED, UNKNOWN_TOPIC_OR_PARTITION, NOT_LEADER_OR_FOLLOWER,
NOT_ENOUGH_REPLICAS, NOT_ENOUGH_REPLICAS_AFTER_APPEND, REQUEST_TIMED_OUT, KAFKA_STORAGE_ERROR,
INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED, INVALID_REQUEST (an id or epoch that no
coordinator gives).
"""

from collections.abc import Callable
from typing import NamedTuple

from barnabas.base.ids import TopicPartition
from barnabas.base.tasks import Runner, Task
from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.later import serve
from barnabas.broker.configuration.broker_config import BrokerConfig
from barnabas.broker.groups.service import GroupService
from barnabas.broker.metadata.internal_topics import OFFSETS_TOPIC
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.replication.transaction_markers import TransactionMarker, TransactionMarkers
from barnabas.broker.requests.purgatory import Purgatory
from barnabas.broker.requests.request import Request
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.write_txn_markers import (
    WritableTxnMarkerPartitionResult,
    WritableTxnMarkerResult,
    WritableTxnMarkerTopicResult,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)


class Parts(NamedTuple):
    """What the handler uses."""

    config: BrokerConfig
    wall_ms: Callable[[], int]
    runner: Runner
    purgatory: Purgatory
    replicas: ReplicaManager
    groups: GroupService


def handle(parts: Parts, request: Request) -> None:
    """Append the markers, then wait for the replicas."""
    serve(parts.runner, request, _write(parts, request))


def _write(parts: Parts, request: Request) -> Task[None]:
    message: WriteTxnMarkersRequest = request.message
    groups = parts.groups

    def replicated(marker: TransactionMarker, topic_partition: TopicPartition, offset: int) -> None:
        topic, number = topic_partition
        if topic == OFFSETS_TOPIC:
            groups.transaction_ended(number, marker.producer_id, offset, is_commit=marker.is_commit)

    markers = TransactionMarkers(parts.replicas, replicated)
    for asked in message.markers:
        marker = TransactionMarker(
            asked.producer_id,
            asked.producer_epoch,
            asked.transaction_result,
            asked.coordinator_epoch,
            asked.transaction_version,
        )
        yield None  # it may name no partitions
        for topic in asked.topics:
            yield None
            for index in topic.partition_indexes:
                yield None
                markers.append(marker, TopicPartition(topic.name, index), parts.wall_ms())

    def respond() -> None:
        serve(parts.runner, request, _respond(request, markers))

    if markers.are_written:
        yield from _respond(request, markers)
    else:
        request.wait_in(markers.wait(parts.purgatory, parts.config["request.timeout.ms"], respond))


def _respond(request: Request, markers: TransactionMarkers) -> Task[None]:
    response = WriteTxnMarkersResponse(markers=[])
    for producer_id, codes in markers.codes.items():
        topics: dict[str, WritableTxnMarkerTopicResult] = {}
        for (name, index), code in codes.items():
            yield None
            topic = topics.get(name)
            if topic is None:
                topic = topics[name] = WritableTxnMarkerTopicResult(name=name, partitions=[])
            topic.partitions.append(WritableTxnMarkerPartitionResult(partition_index=index, error_code=code))
        response.markers.append(WritableTxnMarkerResult(producer_id=producer_id, topics=list(topics.values())))
    request.reply(response)


def fail(message: WriteTxnMarkersRequest, _: int, code: ErrorCode) -> WriteTxnMarkersResponse:
    """An error of the whole request, for each partition."""
    return WriteTxnMarkersResponse(
        markers=[
            WritableTxnMarkerResult(
                producer_id=marker.producer_id,
                topics=[
                    WritableTxnMarkerTopicResult(
                        name=topic.name,
                        partitions=[
                            WritableTxnMarkerPartitionResult(partition_index=index, error_code=code)
                            for index in topic.partition_indexes
                        ],
                    )
                    for topic in marker.topics
                ],
            )
            for marker in message.markers
        ]
    )


API = ApiHandler(
    ApiKey.WRITE_TXN_MARKERS,
    0,
    2,
    handle,
    lambda services: Parts(
        services.config,
        services.clock.wall_ms,
        services.runner,
        services.purgatory,
        services.replicas,
        services.groups,
    ),
    fail,
    inter_broker=True,
    or_alter=True,
)
