"""Handlers that wait for the coordination service or other brokers: whatever goes wrong there,
the client gets an answer.

In Kafka: the callbacks of `KafkaApis`, and `DelayedCreatePartitions` and its like
for the time limit.
"""

import logging
from typing import Any

from barnabas.base.tasks import Task
from barnabas.broker.apis.first_updates import at_controller
from barnabas.broker.apis.services import Services
from barnabas.broker.cluster.steps import Steps
from barnabas.broker.requests.request import Request
from barnabas.wire.jute.errors import ErrorCode as Keeper
from barnabas.wire.jute.errors import KeeperError
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = [
    "answer_at_controller",
    "answer_later",
    "answer_when_done",
    "keeper_failure",
    "reply_once",
    "serve",
    "serve_in_order",
]

logger = logging.getLogger(__name__)

_GRACE_MS = 500  # the work's own timeout, which can say more, comes first


def keeper_failure(error: KeeperError) -> KafkaError:
    """The answer to a client when the coordination service cannot be reached: it
    should try again."""
    if error.code in (Keeper.SESSION_EXPIRED, Keeper.CONNECTION_LOSS):
        return KafkaError(ErrorCode.REQUEST_TIMED_OUT, "The coordination service could not be reached; ask again.")
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"The coordination service refused: {error}")


def answer_later(services: Services, request: Request, steps: Steps[None], timeout_ms: int | None = None) -> None:
    """Perform ``steps``, which answer ``request``; if they fail before that, the
    answer carries the error.

    ``timeout_ms`` is what the client grants (request.timeout.ms unless given). Work that waits
    longer, because the coordination service is away, is answered with REQUEST_TIMED_OUT and
    continues: the change may still be made.
    """
    granted_ms = services.config["request.timeout.ms"] if timeout_ms is None else max(timeout_ms, 0)
    if request.timer is None:
        request.timer = services.call_later(granted_ms + _GRACE_MS, lambda: _fail(request, ErrorCode.REQUEST_TIMED_OUT))
    services.start(_with_timeout(request, steps))


def answer_at_controller(services: Services, request: Request, steps: Steps[None]) -> None:
    """As `answer_later` with the timeout in the request, if this broker is the
    active controller."""
    at_controller(services, request, lambda: answer_later(services, request, steps, request.message.timeout_ms))


def answer_when_done(services: Services, request: Request, steps: Steps[None]) -> None:
    """As `answer_later`, without a timeout: for requests whose sender has one of its own."""
    services.start(_with_errors(request, steps))


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


def serve(services: Services, request: Request, work: Task[None]) -> None:
    """Do work that answers ``request``; if it fails before, the answer carries the error."""
    services.runner.start(work, None, _failed, request)


def serve_in_order(services: Services, request: Request, work: Task[None]) -> None:
    """As `serve`, for requests of the controller: each begins when those before it are done."""
    services.control_requests.start(work, failed=_failed, about=request)


def _failed(request: Request, error: Exception) -> None:
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
