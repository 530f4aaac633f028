"""AllocateProducerIds (key 67), version 0.

A broker asks the controller for its next block of producer ids (KIP-730). Our own brokers claim
their blocks themselves; Apache's brokers beside them ask.

Rights: CLUSTER_ACTION.

Errors: CLUSTER_AUTHORIZATION_FAILED, NOT_CONTROLLER, BROKER_ID_NOT_REGISTERED, STALE_BROKER_EPOCH,
UNKNOWN_SERVER_ERROR (all ids are used up).
"""

from typing import NamedTuple

from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.later import LaterAnswers, reply_once
from barnabas.broker.cluster.steps import Steps
from barnabas.broker.controller.service import Controller
from barnabas.broker.requests.request import Request
from barnabas.broker.transactions.producer_id_blocks import allocate_block
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse

__all__ = ["API"]


class Parts(NamedTuple):
    """What the handler uses."""

    later: LaterAnswers
    controller: Controller


def _handle(parts: Parts, request: Request) -> None:
    message: AllocateProducerIdsRequest = request.message
    if not parts.controller.is_active:
        request.fail(ErrorCode.NOT_CONTROLLER)
        return
    broker = parts.controller.context.brokers.get(message.broker_id)
    if broker is None:
        request.fail(ErrorCode.BROKER_ID_NOT_REGISTERED)
    elif broker.epoch != message.broker_epoch:
        request.fail(ErrorCode.STALE_BROKER_EPOCH)
    else:
        parts.later.answer(request, _allocate(parts, request, message.broker_id))


def _allocate(parts: Parts, request: Request, broker: int) -> Steps[None]:
    parts.controller.commands.require_active()
    block = yield from allocate_block(broker)
    reply_once(
        request,
        AllocateProducerIdsResponse(producer_id_start=block.first, producer_id_len=block.last - block.first + 1),
    )


API = ApiHandler(
    ApiKey.ALLOCATE_PRODUCER_IDS,
    0,
    0,
    _handle,
    lambda services: Parts(services.later, services.controller),
    inter_broker=True,
)
