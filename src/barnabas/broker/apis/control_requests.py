"""What the controller's requests have in common: LeaderAndIsr, StopReplica, UpdateMetadata.

A broker refuses requests with a controller epoch below the highest that it has accepted. So a
forged request with a very high epoch would lock the real controller out until the broker restarts.
Therefore a higher epoch is accepted only if ``/controller_epoch`` is at least that high. The znode
is read once for each new controller; requests of the previous one are served meanwhile. If the
znode does not confirm the epoch, the connection is closed without an answer. A controller then
sends the request again, so nothing is lost if this broker's member of an ensemble is behind. It
would not do so after an error: controllers, ours and Apache's, take any error as an answer.

In Kafka: `KafkaApis.isBrokerEpochStale` and the check of the controller epoch in `ReplicaManager`.
Its brokers accept any higher epoch.
"""

import logging
from collections import deque
from collections.abc import Callable
from typing import Any

from barnabas.base.tasks import Lane, Task
from barnabas.broker.apis.later import answer_failure
from barnabas.broker.cluster.steps import Read, Steps, Znode
from barnabas.broker.cluster.znodes import CONTROLLER_EPOCH, ZnodeFormatError, decode_controller_epoch
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.requests.request import Request
from barnabas.wire.jute.errors import KeeperError
from barnabas.wire.kafka.api import api
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = ["ControlRequests", "error_response"]

logger = logging.getLogger(__name__)

_NO_EPOCH = -1


class ControlRequests:
    """Serves them in order; refuses old ones, and those of a controller that was never elected."""

    def __init__(
        self,
        lane: Lane,
        broker_epoch: Callable[[], int],
        replicas: ReplicaManager,
        start: Callable[[Steps[None]], object],
    ) -> None:
        """``broker_epoch`` gives the czxid of this broker's znode in /brokers/ids, -1 while it is
        not registered. ``start`` performs steps in the background."""
        self._lane = lane
        self._broker_epoch = broker_epoch
        self._replicas = replicas
        self._start = start
        self._elected_epoch = _NO_EPOCH
        """The highest epoch that was read from ``/controller_epoch``."""
        self._unconfirmed: deque[tuple[int, Request, Task[None]]] = deque()
        """Requests with higher epochs, in order, with the number of readings begun before them."""
        self._readings = 0
        self._is_reading = False

    def serve(self, request: Request, work: Task[None]) -> None:
        """Do work that answers ``request`` when the work of those before it is done."""
        if request.message.controller_epoch <= self._elected_epoch:
            self._begin(request, work)
            return
        self._forget_abandoned()
        self._unconfirmed.append((self._readings, request, work))
        if not self._is_reading:
            self._is_reading = True
            self._start(self._confirm())

    def check_epochs(self, broker_epoch: int, controller_epoch: int) -> None:
        """Reject a request meant for an earlier life of this broker (KIP-380), or sent by a
        replaced controller.

        Raises `KafkaError`: STALE_BROKER_EPOCH, STALE_CONTROLLER_EPOCH.
        """
        if broker_epoch != _NO_EPOCH and broker_epoch < self._broker_epoch():
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH)
        if not self._replicas.accept_controller_epoch(controller_epoch):
            raise KafkaError(ErrorCode.STALE_CONTROLLER_EPOCH)

    def _begin(self, request: Request, work: Task[None]) -> None:
        self._lane.start(work, failed=answer_failure, about=request)

    def _forget_abandoned(self) -> None:
        """A reading lasts while coordination is away: what waits for it must not be more than what
        the open connections sent."""
        if any(request.is_abandoned for _, request, _ in self._unconfirmed):
            waiting, self._unconfirmed = self._unconfirmed, deque()
            for number, request, work in waiting:
                if request.is_abandoned:
                    work.close()
                else:
                    self._unconfirmed.append((number, request, work))

    def _confirm(self) -> Steps[None]:
        """Read the epoch for the requests that wait, then for those that have arrived meanwhile."""
        try:
            while self._unconfirmed:
                self._readings += 1
                self._elected_epoch = max(self._elected_epoch, (yield from _read_epoch()))
                waiting, self._unconfirmed = self._unconfirmed, deque()
                for number, request, work in waiting:
                    self._decide(number, request, work)
        finally:
            self._is_reading = False

    def _decide(self, number: int, request: Request, work: Task[None]) -> None:
        epoch = request.message.controller_epoch
        if request.is_abandoned:  # its sender may have sent later requests over another connection
            work.close()
        elif epoch <= self._elected_epoch:
            self._begin(request, work)
        elif number == self._readings:  # it came during this reading
            self._unconfirmed.append((number, request, work))
        else:
            logger.warning(
                "%r is of controller epoch %d, but %s is at most %d",
                request,
                epoch,
                CONTROLLER_EPOCH,
                self._elected_epoch,
            )
            work.close()
            request.fail(ErrorCode.NETWORK_EXCEPTION)


def _read_epoch() -> Steps[int]:
    """The epoch in ``/controller_epoch``; -1 if it cannot be read."""
    try:
        znodes: list[Znode | None] = yield Read([CONTROLLER_EPOCH])
        return _NO_EPOCH if znodes[0] is None else decode_controller_epoch(znodes[0].data)
    except (KeeperError, ZnodeFormatError) as error:
        logger.warning("The controller epoch could not be read: %s", error)
        return _NO_EPOCH


def error_response(message: Any, _version: int, code: ErrorCode) -> Any:
    """The response with an error of the whole request. None closes the connection: the controller
    must send the request again."""
    return None if code is ErrorCode.NETWORK_EXCEPTION else api(message.API_KEY).response(error_code=code)
