"""Queries about transactions: a transactional id's state, a list of them.

Nothing here changes state.

In Kafka: `handleDescribeTransactions` and `handleListTransactions` of
`TransactionCoordinator` (KIP-664).
"""

from collections.abc import Sequence

from barnabas.base.re2 import Re2Error, Re2Pattern
from barnabas.base.tasks import Task
from barnabas.broker.transactions.coordinator import TransactionCoordinator
from barnabas.broker.transactions.states import TransactionState, state_of_text
from barnabas.broker.transactions.transaction import TransactionMetadata
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.describe_transactions import TopicData
from barnabas.wire.kafka.messages.describe_transactions import TransactionState as DescribedTransaction
from barnabas.wire.kafka.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from barnabas.wire.kafka.messages.list_transactions import TransactionState as ListedTransaction

__all__ = ["describe_transaction", "list_transactions"]


def describe_transaction(coordinator: TransactionCoordinator, transactional_id: str) -> Task[DescribedTransaction]:
    """The state of a transactional id, with the partitions of its transaction, as it
    is when this begins."""
    error = coordinator.check(transactional_id)
    transaction = None if error else coordinator.find(transactional_id)
    if transaction is None or transaction.pending is TransactionState.DEAD:
        return DescribedTransaction(
            error_code=error or ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, transactional_id=transactional_id, topics=[]
        )
    described = DescribedTransaction(
        transactional_id=transactional_id,
        transaction_state=transaction.state.value,
        transaction_timeout_ms=transaction.timeout_ms,
        transaction_start_time_ms=transaction.start_ms,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        topics=[],
    )
    for topic, numbers in tuple(transaction.partitions.items()):
        described.topics.append(TopicData(topic=topic, partitions=sorted(numbers)))
        yield None
    return described


def list_transactions(
    coordinator: TransactionCoordinator, request: ListTransactionsRequest, wall_ms: int
) -> Task[ListTransactionsResponse]:
    """The transactional ids of this coordinator that all filters let through.

    A filter that names nothing does not filter. Each is listed as it is when its turn comes.
    """
    states, unknown = yield from _states(request.state_filters)
    response = ListTransactionsResponse(unknown_state_filters=unknown, transaction_states=[])
    if not coordinator.is_active or coordinator.is_loading:
        response.unknown_state_filters = []
        response.error_code = (
            ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if coordinator.is_active else ErrorCode.COORDINATOR_NOT_AVAILABLE
        )
        return response
    try:
        pattern = Re2Pattern(request.transactional_id_pattern) if request.transactional_id_pattern else None
    except Re2Error:
        return ListTransactionsResponse(
            error_code=ErrorCode.INVALID_REGULAR_EXPRESSION, unknown_state_filters=[], transaction_states=[]
        )
    producer_ids = set(request.producer_id_filters)
    listed = response.transaction_states
    for transaction in coordinator.transactions():
        yield None
        if pattern is not None and not (yield from pattern.matches(transaction.transactional_id)):
            continue
        if (
            transaction.pending is not TransactionState.DEAD
            and (not producer_ids or transaction.producer_id in producer_ids)
            and (not request.state_filters or transaction.state in states)
            and (request.duration_filter < 0 or wall_ms - transaction.start_ms > request.duration_filter)
        ):
            listed.append(_listed(transaction))
    return response


def _states(names: Sequence[str]) -> Task[tuple[set[TransactionState], list[str]]]:
    """The states with some names, and the names that are none."""
    states: set[TransactionState] = set()
    unknown: dict[str, None] = {}
    for name in names:
        yield None
        state = state_of_text(name)
        if state is None:
            unknown[name] = None
        else:
            states.add(state)
    return states, list(unknown)


def _listed(transaction: TransactionMetadata) -> ListedTransaction:
    return ListedTransaction(
        transactional_id=transaction.transactional_id,
        producer_id=transaction.producer_id,
        transaction_state=transaction.state.value,
    )
