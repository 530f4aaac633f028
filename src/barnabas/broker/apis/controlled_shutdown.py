"""ControlledShutdown: a broker asks the controller to move leadership away before it stops.

Versions 1 to 3. The answer lists the partitions that no other broker can lead; the broker stops all the same.
"""

from barnabas.broker.apis.api_handler import ApiHandler
from barnabas.broker.apis.services import Services
from barnabas.broker.requests.request import Request
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode, KafkaError
from barnabas.wire.kafka.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)


def handle(node: Services, request: Request) -> None:
    """Have the controller do it."""
    node.spawn(_shut_down(node, request))


async def _shut_down(node: Services, request: Request) -> None:
    message: ControlledShutdownRequest = request.message
    try:
        remaining = await node.controller.shut_down_broker(message.broker_id, message.broker_epoch)
    except KafkaError as error:
        request.fail(error.code)
    except BaseException:
        request.fail(ErrorCode.UNKNOWN_SERVER_ERROR)
        raise
    else:
        request.reply(
            ControlledShutdownResponse(
                remaining_partitions=[
                    RemainingPartition(topic_name=name.topic, partition_index=name.partition) for name in remaining
                ]
            )
        )


API = ApiHandler(ApiKey.CONTROLLED_SHUTDOWN, 1, 3, handle, inter_broker=True)
