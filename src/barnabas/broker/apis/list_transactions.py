"""ListTransactions (key 66), versions 0 to 2.

The transactional ids that this broker coordinates (KIP-664), by state and by producer id.

- 1: transactions that began longer ago than a duration (KIP-994).
- 2: ids that match a regular expression of RE2, as a whole (KIP-1152).

Rights: DESCRIBE on each transactional id; those without are left out.

Errors: COORDINATOR_LOAD_IN_PROGRESS, COORDINATOR_NOT_AVAILABLE, INVALID_REGULAR_EXPRESSION.
"""

from collections.abc import Callable
from typing import NamedTuple

from barnabas.base.tasks import Runner, Task, list_of
from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.later import serve
from barnabas.broker.authorizer.auth_helper import AuthHelper
from barnabas.broker.requests.request import Request
from barnabas.broker.transactions.queries import list_transactions
from barnabas.broker.transactions.service import TransactionService
from barnabas.security.acls import AclOperation, ResourceType
from barnabas.wire.kafka.api import ApiKey


class Parts(NamedTuple):
    """What the handler uses."""

    runner: Runner
    wall_ms: Callable[[], int]
    transactions: TransactionService
    auth_helper: AuthHelper


def handle(parts: Parts, request: Request) -> None:
    """Answer from memory."""
    serve(parts.runner, request, _list(parts, request))


def _list(parts: Parts, request: Request) -> Task[None]:
    coordinator, wall_ms = parts.transactions.coordinator, parts.wall_ms()
    response = yield from list_transactions(coordinator, request.message, wall_ms)
    if parts.auth_helper.is_enabled:
        ids = yield from list_of(state.transactional_id for state in response.transaction_states)
        shown = yield from parts.auth_helper.filter_by_authorized(
            request, AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, ids
        )
        response.transaction_states = yield from list_of(
            state for state in response.transaction_states if state.transactional_id in shown
        )
    request.reply(response)


API = ApiHandler(
    ApiKey.LIST_TRANSACTIONS,
    0,
    2,
    handle,
    lambda services: Parts(services.runner, services.clock.wall_ms, services.transactions, services.auth_helper),
)
