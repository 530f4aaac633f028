"""InitProducerId (key 22), versions 0 to 5.

An id for an idempotent producer (KIP-98). Every request without a transactional id gets a new id
with epoch 0; a producer that raises its epoch (KIP-360) does so itself. A transactional id gets
UNSUPPORTED_VERSION, which producers report as fatal: there are no transactions yet.

- 3: the id and epoch that the producer has (KIP-360).

Errors: INVALID_REQUEST, UNSUPPORTED_VERSION, COORDINATOR_LOAD_IN_PROGRESS (no block of ids can be
had now), UNKNOWN_SERVER_ERROR (all ids are used up).
"""

from typing import NamedTuple

from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.later import LaterAnswers, reply_once
from barnabas.broker.cluster.steps import Steps
from barnabas.broker.requests.request import Request
from barnabas.broker.transactions.producer_ids import ProducerIds
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


class Parts(NamedTuple):
    """What the handler uses."""

    later: LaterAnswers
    producer_ids: ProducerIds


def handle(parts: Parts, request: Request) -> None:
    """Take an id of this broker's block, or fetch a new block first."""
    message: InitProducerIdRequest = request.message
    if message.transactional_id is not None:
        request.fail(ErrorCode.UNSUPPORTED_VERSION if message.transactional_id else ErrorCode.INVALID_REQUEST)
        return
    if (message.producer_id == -1) != (message.producer_epoch == -1):
        request.fail(ErrorCode.INVALID_REQUEST)
        return
    producer_id = parts.producer_ids.take()
    if producer_id is not None:
        request.reply(InitProducerIdResponse(producer_id=producer_id, producer_epoch=0))
    else:
        parts.later.answer_when_done(request, _after_refill(parts, request))


def _after_refill(parts: Parts, request: Request) -> Steps[None]:
    producer_id = yield from parts.producer_ids.next()
    reply_once(request, InitProducerIdResponse(producer_id=producer_id, producer_epoch=0))


def fail(_: InitProducerIdRequest, __: int, code: ErrorCode) -> InitProducerIdResponse:
    """No id."""
    return InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)


API = ApiHandler(
    ApiKey.INIT_PRODUCER_ID, 0, 5, handle, lambda services: Parts(services.later, services.producer_ids), fail
)
