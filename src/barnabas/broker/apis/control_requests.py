"""Checks of requests that the controller sends: LeaderAndIsr, StopReplica, UpdateMetadata.

In Kafka: `KafkaApis.isBrokerEpochStale` and the check of the controller epoch in `ReplicaManager`.
"""

from barnabas.broker.apis.services import Services
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = ["check_epochs"]

_NO_EPOCH = -1


def check_epochs(services: Services, broker_epoch: int, controller_epoch: int) -> None:
    """Reject a request meant for an earlier life of this broker (KIP-380), or sent
    by a replaced controller.

    Raises `KafkaError`: STALE_BROKER_EPOCH, STALE_CONTROLLER_EPOCH.
    """
    if broker_epoch != _NO_EPOCH and broker_epoch < services.broker_epoch():
        raise KafkaError(ErrorCode.STALE_BROKER_EPOCH)
    if not services.replicas.accept_controller_epoch(controller_epoch):
        raise KafkaError(ErrorCode.STALE_CONTROLLER_EPOCH)
