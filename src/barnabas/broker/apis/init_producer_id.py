"""InitProducerId (key 22), versions 0 to 5.

An id for an idempotent producer (KIP-98). Every request without a transactional id gets a new id
with epoch 0; such a producer raises its epoch (KIP-360) itself. A producer with a transactional id
gets the id's producer id and the next epoch, which fences its predecessors; what these have left
open is aborted first.

- 3: the id and epoch that the producer has, if it continues after an error (KIP-360).
- 4: PRODUCER_FENCED, INVALID_PRODUCER_EPOCH before.

Rights: WRITE on the transactional id; without one, IDEMPOTENT_WRITE on the cluster or WRITE on any
topic (KIP-679).

Errors: TRANSACTIONAL_ID_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED, INVALID_REQUEST,
INVALID_TRANSACTION_TIMEOUT, NOT_COORDINATOR, COORDINATOR_NOT_AVAILABLE,
COORDINATOR_LOAD_IN_PROGRESS (also: no block of ids can be had now), CONCURRENT_TRANSACTIONS,
PRODUCER_FENCED, UNKNOWN_SERVER_ERROR (all ids are used up).
"""

from typing import NamedTuple

from barnabas.base.tasks import Runner, Task
from barnabas.broker.apis.add_partitions_to_txn import old_fencing_error
from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.later import LaterAnswers, reply_once, serve
from barnabas.broker.authorizer.auth_helper import AuthHelper
from barnabas.broker.cluster.steps import Steps
from barnabas.broker.requests.request import Request
from barnabas.broker.transactions.effects import InitProducerId, ProducerAnswer
from barnabas.broker.transactions.producer_ids import ProducerIds
from barnabas.broker.transactions.service import TransactionService
from barnabas.broker.transactions.transaction import ProducerIdAndEpoch
from barnabas.security.acls import CLUSTER_NAME, AclOperation, ResourceType
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.wire.kafka.records.batch_header import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

_FENCED_SINCE_VERSION = 4


class Parts(NamedTuple):
    """What the handler uses."""

    runner: Runner
    later: LaterAnswers
    producer_ids: ProducerIds
    transactions: TransactionService
    auth_helper: AuthHelper


def handle(parts: Parts, request: Request) -> None:
    """Take an id of this broker's block, or ask the transaction coordinator."""
    serve(parts.runner, request, _init(parts, request))


def _init(parts: Parts, request: Request) -> Task[None]:
    message: InitProducerIdRequest = request.message
    refusal = yield from _refusal(parts.auth_helper, request, message.transactional_id)
    if refusal is not None:
        request.fail(refusal)
        return
    has_id, has_epoch = message.producer_id != NO_PRODUCER_ID, message.producer_epoch != NO_PRODUCER_EPOCH
    if has_id != has_epoch:
        request.fail(ErrorCode.INVALID_REQUEST)
    elif message.transactional_id is not None:
        _init_transactional(parts.transactions, request, message.transactional_id)
    elif (producer_id := parts.producer_ids.take()) is not None:
        request.reply(InitProducerIdResponse(producer_id=producer_id, producer_epoch=0))
    else:
        parts.later.answer_when_done(request, _after_refill(parts, request))


def _refusal(auth_helper: AuthHelper, request: Request, transactional_id: str | None) -> Task[ErrorCode | None]:
    """Why the client gets no id; None if it may have one."""
    if transactional_id is not None:
        if not auth_helper.authorize(request, AclOperation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
            return ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    elif not auth_helper.authorize(
        request, AclOperation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME, log_if_denied=False
    ) and not (yield from auth_helper.authorize_by_resource_type(request, AclOperation.WRITE, ResourceType.TOPIC)):
        return ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    return None


def _init_transactional(transactions: TransactionService, request: Request, transactional_id: str) -> None:
    message: InitProducerIdRequest = request.message
    has = ProducerIdAndEpoch(message.producer_id, message.producer_epoch)

    def decided(answer: ProducerAnswer) -> None:
        request.reply(
            InitProducerIdResponse(
                error_code=old_fencing_error(answer.error, request.version, _FENCED_SINCE_VERSION),
                producer_id=answer.producer_id,
                producer_epoch=answer.producer_epoch,
            )
        )

    expected = None if has.producer_id == NO_PRODUCER_ID else has
    transactions.init_producer_id(InitProducerId(transactional_id, message.transaction_timeout_ms, expected), decided)


def _after_refill(parts: Parts, request: Request) -> Steps[None]:
    producer_id = yield from parts.producer_ids.next()
    reply_once(request, InitProducerIdResponse(producer_id=producer_id, producer_epoch=0))


def fail(_: InitProducerIdRequest, __: int, code: ErrorCode) -> InitProducerIdResponse:
    """No id."""
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)


API = ApiHandler(
    ApiKey.INIT_PRODUCER_ID,
    0,
    5,
    handle,
    lambda services: Parts(
        services.runner, services.later, services.producer_ids, services.transactions, services.auth_helper
    ),
    fail,
)
