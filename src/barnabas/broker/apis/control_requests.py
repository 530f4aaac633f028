"""What the controller's requests have in common: LeaderAndIsr, StopReplica, UpdateMetadata.

In Kafka: `KafkaApis.isBrokerEpochStale` and the check of the controller epoch in `ReplicaManager`.
"""

from collections.abc import Callable
from dataclasses import dataclass

from barnabas.base.tasks import Lane, Task
from barnabas.broker.apis.later import answer_failure
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.requests.request import Request
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = ["ControlRequests"]

_NO_EPOCH = -1


@dataclass(frozen=True, slots=True)
class ControlRequests:
    """Serves them in their order, and refuses those that are outdated."""

    lane: Lane
    broker_epoch: Callable[[], int]
    """The czxid of this broker's znode in /brokers/ids; -1 while it is not registered."""
    replicas: ReplicaManager

    def serve(self, request: Request, work: Task[None]) -> None:
        """Do work that answers ``request`` when the work of those before it is done."""
        self.lane.start(work, failed=answer_failure, about=request)

    def check_epochs(self, broker_epoch: int, controller_epoch: int) -> None:
        """Reject a request meant for an earlier life of this broker (KIP-380), or sent by a
        replaced controller.

        Raises `KafkaError`: STALE_BROKER_EPOCH, STALE_CONTROLLER_EPOCH.
        """
        if broker_epoch != _NO_EPOCH and broker_epoch < self.broker_epoch():
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH)
        if not self.replicas.accept_controller_epoch(controller_epoch):
            raise KafkaError(ErrorCode.STALE_CONTROLLER_EPOCH)
