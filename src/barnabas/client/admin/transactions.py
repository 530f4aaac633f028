"""Transactions over an `AdminConnection`: list, describe, fence, and abort those
that hang (KIP-664).

In Kafka: `Admin.listTransactions`, `describeTransactions`, `abortTransaction` and `fenceProducers`.
"""

import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from barnabas.base.ids import TopicPartition
from barnabas.client.admin.active_producers import leader_of
from barnabas.client.cluster.admin_connection import TRANSACTIONAL_ID, AdminConnection
from barnabas.client.cluster.each_broker import ask_each, raise_first
from barnabas.client.errors import ClientError, refusal
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from barnabas.wire.kafka.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.wire.kafka.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from barnabas.wire.kafka.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

__all__ = [
    "FencedProducer",
    "TransactionDescription",
    "TransactionListing",
    "abort_transaction",
    "describe_transaction",
    "describe_transactions",
    "fence_producer",
    "fence_producers",
    "list_transactions",
    "transactions_in_part",
]

_DURATIONS_FROM = 1  # the version of ListTransactions with durations
_PATTERNS_FROM = 2
_FENCE_PAUSE_S = 0.1


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id as its coordinator lists it."""

    transactional_id: str
    coordinator: int
    producer_id: int
    state: str


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transactional id and its last transaction.

    ``start_time_ms`` is None before the first one."""

    transactional_id: str
    coordinator: int
    producer_id: int
    producer_epoch: int
    state: str
    timeout_ms: int
    start_time_ms: int | None
    partitions: list[TopicPartition] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class FencedProducer:
    """The producer id of a transactional id and its new epoch, which fences older ones."""

    producer_id: int
    epoch: int


def list_transactions(
    connection: AdminConnection,
    *,
    states: Iterable[str] = (),
    producer_ids: Iterable[int] = (),
    duration_ms: int = -1,
    pattern: str | None = None,
) -> list[TransactionListing]:
    """The transactional ids of all coordinators, by name; raises when a broker does not answer.

    A ``duration_ms`` of 0 or more selects those whose transaction has been open for
    longer than that.
    """
    found = raise_first(_ask(connection, _request(connection, states, producer_ids, duration_ms, pattern)))
    return _by_name(listing for listings in found.values() for listing in listings)


def transactions_in_part(
    connection: AdminConnection, *, duration_ms: int = -1, pattern: str | None = None
) -> list[TransactionListing]:
    """The same for a reader that does not wait: the connection names the brokers
    that did not answer.

    Raises what a broker refuses, and `ConnectError` when none answers.
    """
    answers = _ask(connection, _request(connection, (), (), duration_ms, pattern))
    listings: list[TransactionListing] = []
    for broker_id, answer in answers.items():
        if not isinstance(answer, ClientError):
            listings += answer
        elif broker_id not in connection.unreachable or len(connection.unreachable) == len(answers):
            raise answer
    return _by_name(listings)


def _request(
    connection: AdminConnection,
    states: Iterable[str],
    producer_ids: Iterable[int],
    duration_ms: int,
    pattern: str | None,
) -> ListTransactionsRequest:
    version = connection.negotiated(ListTransactionsRequest)
    if duration_ms >= 0 and version < _DURATIONS_FROM:
        raise refusal(ErrorCode.UNSUPPORTED_VERSION, "the brokers cannot filter transactions by their duration")
    if pattern is not None and version < _PATTERNS_FROM:
        raise refusal(ErrorCode.UNSUPPORTED_VERSION, "the brokers cannot filter transactional ids by a pattern")
    return ListTransactionsRequest(
        state_filters=list(states),
        producer_id_filters=list(producer_ids),
        duration_filter=duration_ms,
        transactional_id_pattern=pattern,
    )


def _ask(
    connection: AdminConnection, request: ListTransactionsRequest
) -> dict[int, list[TransactionListing] | ClientError]:
    brokers = [broker.id for broker in connection.describe_cluster(fresh=True).brokers]
    return ask_each(connection, brokers, lambda asking, broker_id: _list_of(asking, broker_id, request))


def _list_of(connection: AdminConnection, broker_id: int, request: ListTransactionsRequest) -> list[TransactionListing]:
    response = connection.retry(
        lambda: connection.send(request, ListTransactionsResponse, broker_id), lambda answer: [answer.error_code]
    )
    if response.error_code:
        raise refusal(response.error_code, about=f"transactions of broker {broker_id}")
    return [
        TransactionListing(each.transactional_id, broker_id, each.producer_id, each.transaction_state)
        for each in response.transaction_states
    ]


def _by_name(listings: Iterable[TransactionListing]) -> list[TransactionListing]:
    return sorted(listings, key=lambda listing: (listing.transactional_id, listing.coordinator))


def describe_transaction(connection: AdminConnection, transactional_id: str) -> TransactionDescription:
    """A transactional id.

    Raises TRANSACTIONAL_ID_NOT_FOUND, as a `RefusedError`, for one that is not known."""
    coordinator = -1

    def attempt() -> DescribeTransactionsResponse:
        nonlocal coordinator
        coordinator = connection.find_coordinator(transactional_id, TRANSACTIONAL_ID).id
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        return connection.send(request, DescribeTransactionsResponse, coordinator)

    response = connection.retry(attempt, lambda answer: [each.error_code for each in answer.transaction_states])
    (state,) = response.transaction_states
    if state.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        raise refusal(state.error_code, f"transactional id {transactional_id} is not known to its coordinator")
    if state.error_code:
        raise refusal(state.error_code, about=f"transactional id {transactional_id}")
    return TransactionDescription(
        transactional_id,
        coordinator,
        state.producer_id,
        state.producer_epoch,
        state.transaction_state,
        state.transaction_timeout_ms,
        state.transaction_start_time_ms if state.transaction_start_time_ms >= 0 else None,
        [TopicPartition(topic.topic, index) for topic in state.topics for index in topic.partitions],
    )


def describe_transactions(
    connection: AdminConnection, transactional_ids: Iterable[str]
) -> dict[str, TransactionDescription]:
    """Transactional ids; raises the first error, as `describe_transaction` does."""
    return {each: describe_transaction(connection, each) for each in dict.fromkeys(transactional_ids)}


def fence_producers(connection: AdminConnection, transactional_ids: Iterable[str]) -> dict[str, FencedProducer]:
    """Do `fence_producer` for each; raises the first error."""
    return {each: fence_producer(connection, each) for each in dict.fromkeys(transactional_ids)}


def fence_producer(connection: AdminConnection, transactional_id: str) -> FencedProducer:
    """Abort the open transaction of a transactional id, and fence its producer.

    Waits until that is done."""
    end = time.monotonic() + connection.api_timeout_ms / 1000
    while True:
        response = connection.send_to_coordinator(
            transactional_id,
            InitProducerIdRequest(
                transactional_id=transactional_id, transaction_timeout_ms=connection.request_timeout_ms
            ),
            InitProducerIdResponse,
            lambda answer: [answer.error_code],
            key_type=TRANSACTIONAL_ID,
        )
        if response.error_code != ErrorCode.CONCURRENT_TRANSACTIONS or time.monotonic() >= end:
            break
        time.sleep(_FENCE_PAUSE_S)  # the markers of the transaction are being written
    if response.error_code:
        raise refusal(response.error_code, about=f"transactional id {transactional_id}")
    return FencedProducer(response.producer_id, response.producer_epoch)


def abort_transaction(
    connection: AdminConnection,
    topic_partition: TopicPartition,
    *,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
) -> None:
    """Write an abort marker to one partition, around the coordinator: for
    transactions that hang there only."""
    name, index = topic_partition
    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transaction_result=False,
        topics=[WritableTxnMarkerTopic(name=name, partition_indexes=[index])],
        coordinator_epoch=coordinator_epoch,
    )

    def attempt() -> WriteTxnMarkersResponse:
        leader = leader_of(connection, topic_partition)
        return connection.send(WriteTxnMarkersRequest(markers=[marker]), WriteTxnMarkersResponse, leader)

    response = connection.retry(attempt, _marker_codes, changes=True)
    for code in _marker_codes(response):
        if code:
            raise refusal(code, about=f"partition {topic_partition}")


def _marker_codes(response: WriteTxnMarkersResponse) -> list[int]:
    return [
        partition.error_code for marker in response.markers for topic in marker.topics for partition in topic.partitions
    ]
