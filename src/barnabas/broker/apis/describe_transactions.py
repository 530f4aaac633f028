"""DescribeTransactions (key 65), version 0.

Transactional ids with the state of their transactions (KIP-664), from the broker that coordinates
them.

Rights: DESCRIBE on the transactional id. Of its transaction's partitions, those of topics are
listed on which the client has DESCRIBE.

Errors: TRANSACTIONAL_ID_AUTHORIZATION_FAILED, INVALID_REQUEST, TRANSACTIONAL_ID_NOT_FOUND,
NOT_COORDINATOR, COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE.
"""

from typing import NamedTuple

from barnabas.base.tasks import Runner, Task, list_of
from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.later import serve
from barnabas.broker.authorizer.auth_helper import AuthHelper
from barnabas.broker.requests.request import Request
from barnabas.broker.transactions.queries import describe_transaction
from barnabas.broker.transactions.service import TransactionService
from barnabas.security.acls import AclOperation, ResourceType
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
    auth_helper: AuthHelper


def handle(parts: Parts, request: Request) -> None:
    """Answer from memory."""
    serve(parts.runner, request, _describe_all(parts, request))


def _describe_all(parts: Parts, request: Request) -> Task[None]:
    described = []
    # Each is described once, however often it is named: it may have thousands of partitions.
    for transactional_id in dict.fromkeys(request.message.transactional_ids):
        yield None
        described.append((yield from _describe(parts, request, transactional_id)))
    request.reply(DescribeTransactionsResponse(transaction_states=described))


def _describe(parts: Parts, request: Request, transactional_id: str) -> Task[TransactionState]:
    auth_helper = parts.auth_helper
    if not auth_helper.authorize(request, AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id):
        return TransactionState(
            transactional_id=transactional_id, error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        )
    state = yield from describe_transaction(parts.transactions.coordinator, transactional_id)
    if auth_helper.is_enabled:
        topics = yield from list_of(topic.topic for topic in state.topics)
        shown = yield from auth_helper.filter_by_authorized(request, AclOperation.DESCRIBE, ResourceType.TOPIC, topics)
        state.topics = yield from list_of(topic for topic in state.topics if topic.topic in shown)
    return state


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
    lambda services: Parts(services.runner, services.transactions, services.auth_helper),
    fail,
)
