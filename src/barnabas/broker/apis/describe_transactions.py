"""DescribeTransactions (key 65), version 0.

Transactional ids with the state of their transactions (KIP-664), from the broker that coordinates
them.

Errors: INVALID_REQUEST, TRANSACTIONAL_ID_NOT_FOUND, NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS,
COORDINATOR_NOT_AVAILABLE.
"""

from typing import NamedTuple

from barnabas.base.tasks import Runner, Task
from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.later import serve
from barnabas.broker.requests.request import Request
from barnabas.broker.transactions.queries import describe_transaction
from barnabas.broker.transactions.service import TransactionService
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
    TransactionState,
)


class Parts(NamedTuple):
    """What the handler uses."""

    runner: Runner
    transactions: TransactionService


def handle(parts: Parts, request: Request) -> None:
    """Answer from memory."""
    serve(parts.runner, request, _describe_all(parts, request))


def _describe_all(parts: Parts, request: Request) -> Task[None]:
    described = []
    # Each is described once, however often it is named: it may have thousands of partitions.
    for transactional_id in dict.fromkeys(request.message.transactional_ids):
        yield None
        described.append((yield from describe_transaction(parts.transactions.coordinator, transactional_id)))
    request.reply(DescribeTransactionsResponse(transaction_states=described))


def fail(message: DescribeTransactionsRequest, _version: int, code: ErrorCode) -> DescribeTransactionsResponse:
    """The response for a request that failed as a whole."""
    return DescribeTransactionsResponse(
        transaction_states=[
            TransactionState(transactional_id=each, error_code=code) for each in message.transactional_ids
        ]
    )


API = ApiHandler(
    ApiKey.DESCRIBE_TRANSACTIONS,
    0,
    0,
    handle,
    lambda services: Parts(services.runner, services.transactions),
    fail,
)
