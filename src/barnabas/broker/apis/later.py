"""Handlers that wait for the coordination service or other brokers: whatever goes wrong there,
the client gets an answer.

In Kafka: the callbacks of `KafkaApis`, and `DelayedCreatePartitions` and its like
for the time limit.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from barnabas.base.clock import CallLater
from barnabas.base.tasks import AnyTask, Perform, Runner
from barnabas.broker.apis.first_updates import FirstUpdates
from barnabas.broker.cluster.steps import Steps
from barnabas.broker.configuration.broker_config import BrokerConfig
from barnabas.broker.requests.request import Request
from barnabas.wire.jute.errors import ErrorCode as Keeper
from barnabas.wire.jute.errors import KeeperError
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = ["AtController", "LaterAnswers", "answer_failure", "keeper_failure", "reply_once", "serve"]

logger = logging.getLogger(__name__)

_GRACE_MS = 500  # the work's own timeout, which can say more, comes first


def keeper_failure(error: KeeperError) -> KafkaError:
    """The answer to a client when the coordination service cannot be reached: it
    should try again."""
    if error.code in (Keeper.SESSION_EXPIRED, Keeper.CONNECTION_LOSS):
        return KafkaError(ErrorCode.REQUEST_TIMED_OUT, "The coordination service could not be reached; ask again.")
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"The coordination service refused: {error}")


@dataclass(frozen=True, slots=True)
class LaterAnswers:
    """Performs steps that answer requests."""

    start: Callable[[Steps[None]], None]
    """Performs steps in the background: what waits for the coordination service or another
    broker."""
    call_later: CallLater
    config: BrokerConfig

    def answer(self, request: Request, steps: Steps[None], timeout_ms: int | None = None) -> None:
        """Perform ``steps``, which answer ``request``; if they fail before that, the answer carries
        the error.

        ``timeout_ms`` is what the client grants (request.timeout.ms unless given). Work that waits
        longer, because the coordination service is away, is answered with REQUEST_TIMED_OUT and
        continues: the change may still be made.
        """
        granted_ms = self.config["request.timeout.ms"] if timeout_ms is None else max(timeout_ms, 0)
        if request.timer is None:
            request.timer = self.call_later(granted_ms + _GRACE_MS, lambda: _fail(request, ErrorCode.REQUEST_TIMED_OUT))
        self.start(_with_timeout(request, steps))

    def answer_when_done(self, request: Request, steps: Steps[None]) -> None:
        """Like `answer`, without a timeout: for requests whose sender has one of its own."""
        self.start(_with_errors(request, steps))


@dataclass(frozen=True, slots=True)
class AtController:
    """Serves requests that only the active controller serves; the others get NOT_CONTROLLER."""

    first_updates: FirstUpdates
    later: LaterAnswers
    is_active: Callable[[], bool]

    def do(self, request: Request, work: Callable[[], None]) -> None:
        """Do ``work``. A broker that has just started waits to learn which broker is the
        controller.

        It may be the one that a client knows from before. librdkafka's AdminClient does not ask
        again after NOT_CONTROLLER.
        """

        def attempt() -> None:
            if self.is_active():
                work()
            else:
                request.fail(ErrorCode.NOT_CONTROLLER)

        self.first_updates.when_loaded(
            request, attempt, lambda: self.is_active() or self.first_updates.metadata.has_brokers
        )

    def answer(self, request: Request, steps: Steps[None]) -> None:
        """Like `LaterAnswers.answer` with the timeout in the request."""
        self.do(request, lambda: self.later.answer(request, steps, request.message.timeout_ms))


def _with_timeout(request: Request, steps: Steps[None]) -> Steps[None]:
    yield from _with_errors(request, steps)
    if request.is_answered:  # else `reply_once` will, when the metadata shows the result
        _stop_timer(request)


def _stop_timer(request: Request) -> None:
    if request.timer is not None:
        request.timer.cancel()
        request.timer = None


def _with_errors(request: Request, steps: Steps[None]) -> Steps[None]:
    try:
        yield from steps
    except KafkaError as error:
        _fail(request, error.code)
    except KeeperError as error:
        logger.warning("%r failed: %s", request, error)
        _fail(request, keeper_failure(error).code)
    except Exception:
        logger.exception("%r failed", request)
        _fail(request, ErrorCode.UNKNOWN_SERVER_ERROR)


def _fail(request: Request, code: ErrorCode) -> None:
    if not request.is_answered:
        request.fail(code)


def serve(runner: Runner, request: Request, work: AnyTask[None], perform: Perform | None = None) -> None:
    """Do work that answers ``request``; if it fails before, the answer carries the error.

    ``perform`` does its effects.
    """
    runner.start(work, perform, answer_failure, request)


def answer_failure(request: Request, error: Exception) -> None:
    """Answer a request whose work has failed, unless it has its answer."""
    if isinstance(error, KafkaError):
        _fail(request, error.code)
    else:
        logger.error("%r failed", request, exc_info=error)
        _fail(request, ErrorCode.UNKNOWN_SERVER_ERROR)


def reply_once(request: Request, response: Any) -> None:
    """Answer, unless the time was up before."""
    if not request.is_answered:
        _stop_timer(request)
        request.reply(response)
