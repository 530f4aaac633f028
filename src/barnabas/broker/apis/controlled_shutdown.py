"""ControlledShutdown (key 7), versions 1 to 3.

A broker that stops asks the controller to move leadership away first. The response lists the
partitions that no other broker can lead; the broker stops all the same.

- 2: the broker epoch (KIP-380).

Errors: NOT_CONTROLLER, STALE_BROKER_EPOCH, BROKER_NOT_AVAILABLE.
"""

from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.later import answer_when_done, reply_once
from barnabas.broker.apis.services import Services
from barnabas.broker.cluster.steps import Steps
from barnabas.broker.requests.request import Request
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)


def handle(services: Services, request: Request) -> None:
    """Pass the request to the controller."""
    answer_when_done(services, request, _shut_down(services, request))


def _shut_down(services: Services, request: Request) -> Steps[None]:
    message: ControlledShutdownRequest = request.message
    remaining = yield from services.controller.commands.shut_down_broker(message.broker_id, message.broker_epoch)
    reply_once(
        request,
        ControlledShutdownResponse(
            remaining_partitions=[
                RemainingPartition(topic_name=topic_partition.topic, partition_index=topic_partition.partition)
                for topic_partition in remaining
            ]
        ),
    )


API = ApiHandler(ApiKey.CONTROLLED_SHUTDOWN, 1, 3, handle, inter_broker=True)
