"""What the controller's requests have in common: LeaderAndIsr, StopReplica, UpdateMetadata.

A broker refuses requests with a controller epoch below the highest that it has accepted. So a
forged request with a very high epoch would lock the real controller out until the broker restarts.
Therefore a higher epoch is accepted only if ``/controller_epoch`` is at least that high. The znode
is read once for each new controller; requests of the previous one are served meanwhile. If the
znode does not confirm the epoch, the connection is closed without an answer. A controller then
sends the request again, so nothing is lost if this broker's member of an ensemble is behind. It
would not do so after an error: controllers, ours and Apache's, take any error as an answer.

Forged requests cost little: after a reading that refused some, the next one waits for a moment, and
their lines in the log are summed up. What waits for a reading is bounded while coordination is
away: requests whose sender has gone are dropped, and so are those that are older than the time for
which a controller waits for an answer. This broker's own controller has no connection that ends
when it gives up. Either kind of controller sends again what was not answered, so a dropped request
is never the last of its kind.

In Kafka: `KafkaApis.isBrokerEpochStale` and the check of the controller epoch in `ReplicaManager`.
Its brokers accept any higher epoch.
"""

import logging
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple

from barnabas.base.clock import CallLater
from barnabas.base.repeated_events import WITHIN_INTERVAL, EventCount, RepeatedEvents
from barnabas.base.tasks import Lane, Task
from barnabas.broker.apis.later import answer_failure
from barnabas.broker.cluster.steps import Pause, Read, Steps, Znode
from barnabas.broker.cluster.znodes import CONTROLLER_EPOCH, ZnodeFormatError, decode_controller_epoch
from barnabas.broker.replication.replica_manager import ReplicaManager
from barnabas.broker.requests.request import Request
from barnabas.wire.jute.errors import KeeperError
from barnabas.wire.kafka.api import api
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = ["ControlRequests", "error_response"]

logger = logging.getLogger(__name__)

_NO_EPOCH = -1
_PAUSE_MS = 100


class _Waiting(NamedTuple):
    """A request with a higher epoch than those that were read."""

    readings: int
    """How many had begun when it came."""
    request: Request
    work: Task[None]


class ControlRequests:
    """Serves them in order; refuses old ones, and those of a controller that was never elected."""

    def __init__(
        self,
        lane: Lane,
        broker_epoch: Callable[[], int],
        replicas: ReplicaManager,
        start: Callable[[Steps[None]], object],
        *,
        now_ms: Callable[[], int],
        timeout_ms: int,
        call_later: CallLater,
    ) -> None:
        """``broker_epoch`` gives the czxid of this broker's znode in /brokers/ids, -1 while it is
        not registered. ``start`` performs steps in the background. ``now_ms`` is the monotonic
        clock by which requests have come, ``timeout_ms`` how long a controller waits for an
        answer."""
        self._lane = lane
        self._broker_epoch = broker_epoch
        self._replicas = replicas
        self._start = start
        self._addressed_epoch = _NO_EPOCH
        self._elected_epoch = _NO_EPOCH
        """The highest epoch that was read from ``/controller_epoch``."""
        self._unconfirmed: deque[_Waiting] = deque()
        """In order."""
        self._readings = 0
        self._is_reading = False
        self._has_refused = False
        self._now_ms = now_ms
        self._timeout_ms = timeout_ms
        self._refusals = RepeatedEvents[str, str](_write_refusal, call_later)

    def serve(self, request: Request, work: Task[None]) -> None:
        """Do work that answers ``request`` when the work of those before it is done."""
        if request.message.controller_epoch <= self._elected_epoch:
            self._begin(request, work)
            return
        self._drop_given_up()
        self._unconfirmed.append(_Waiting(self._readings, request, work))
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
        self._addressed_epoch = max(self._addressed_epoch, broker_epoch)

    @property
    def has_addressed(self) -> bool:
        """Whether the controller has sent a request since the broker registered last."""
        broker_epoch = self._broker_epoch()
        return broker_epoch != _NO_EPOCH and self._addressed_epoch >= broker_epoch

    def _begin(self, request: Request, work: Task[None]) -> None:
        self._lane.start(work, failed=answer_failure, about=request)

    def _is_given_up(self, request: Request) -> bool:
        """Whether its sender waits for it no longer: it may have sent it again."""
        return request.is_abandoned or self._now_ms() - request.received_ms > self._timeout_ms

    def _drop_given_up(self) -> None:
        """A reading lasts while coordination is away: what waits for it must not be more than what
        controllers wait for."""
        if any(self._is_given_up(request) for _, request, _ in self._unconfirmed):
            waiting, self._unconfirmed = self._unconfirmed, deque()
            for each in waiting:
                if self._is_given_up(each.request):
                    self._drop(each)
                else:
                    self._unconfirmed.append(each)

    def _drop(self, waiting: _Waiting) -> None:
        waiting.work.close()
        if not waiting.request.is_abandoned:
            waiting.request.fail(ErrorCode.NETWORK_EXCEPTION)

    def _confirm(self) -> Steps[None]:
        """Read the epoch for the requests that wait, then for those that have arrived meanwhile."""
        try:
            while self._unconfirmed:
                self._readings += 1
                self._has_refused = False
                self._elected_epoch = max(self._elected_epoch, (yield from _read_epoch()))
                waiting, self._unconfirmed = self._unconfirmed, deque()
                for each in waiting:
                    self._decide(each)
                if self._has_refused:  # what comes meanwhile waits for the next reading
                    yield Pause(_PAUSE_MS)
        finally:
            self._is_reading = False

    def _decide(self, waiting: _Waiting) -> None:
        request, epoch = waiting.request, waiting.request.message.controller_epoch
        if self._is_given_up(request):  # its sender may have sent later requests over another connection
            self._drop(waiting)
        elif epoch <= self._elected_epoch:
            self._begin(request, waiting.work)
        elif waiting.readings == self._readings:  # it came during this reading
            self._unconfirmed.append(waiting)
        else:
            self._has_refused = True
            self._refusals.add(
                request.client.host,
                f"{request.api_key.name} of controller epoch {epoch} from {request.client.host} is refused: "
                f"{CONTROLLER_EPOCH} is at most {self._elected_epoch}",
            )
            self._drop(waiting)


def _write_refusal(event: EventCount[str, str]) -> None:
    host, text, times = event
    if text is None:
        sender = f"from {host}" if host is not None else "from others"
        logger.warning(
            "%d further requests %s with other controller epochs are refused %s", times, sender, WITHIN_INTERVAL
        )
    elif times:
        logger.warning("%s, again %d times %s", text, times, WITHIN_INTERVAL)
    else:
        logger.warning("%s", text)


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
