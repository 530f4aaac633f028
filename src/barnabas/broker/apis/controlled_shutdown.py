"""ControlledShutdown (key 7), versions 1 to 3.

A broker that stops asks the controller to move leadership away first. The response lists the
partitions that no other broker can lead; the broker stops all the same.

- 2: the broker epoch (KIP-380).

Rights: CLUSTER_ACTION.

Errors: CLUSTER_AUTHORIZATION_FAILED, NOT_CONTROLLER, STALE_BROKER_EPOCH, BROKER_NOT_AVAILABLE.
"""

from typing import NamedTuple

from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.later import LaterAnswers, reply_once
from barnabas.broker.cluster.steps import Steps
from barnabas.broker.controller.service import Controller
from barnabas.broker.requests.request import Request
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)


class Parts(NamedTuple):
    """What the handler uses."""

    later: LaterAnswers
    controller: Controller


def handle(parts: Parts, request: Request) -> None:
    """Pass the request to the controller."""
    parts.later.answer_when_done(request, _shut_down(parts, request))


def _shut_down(parts: Parts, request: Request) -> Steps[None]:
    message: ControlledShutdownRequest = request.message
    remaining = yield from parts.controller.commands.shut_down_broker(message.broker_id, message.broker_epoch)
    reply_once(
        request,
        ControlledShutdownResponse(
            remaining_partitions=[
                RemainingPartition(topic_name=topic_partition.topic, partition_index=topic_partition.partition)
                for topic_partition in remaining
            ]
        ),
    )


API = ApiHandler(
    ApiKey.CONTROLLED_SHUTDOWN,
    1,
    3,
    handle,
    lambda services: Parts(services.later, services.controller),
    inter_broker=True,
)
