"""Handlers that must wait for the coordination service: whatever goes wrong there, the client gets an answer."""

import logging
from collections.abc import Callable, Coroutine
from typing import Any

from barnabas.broker.apis.services import Services
from barnabas.broker.requests.request import Request
from barnabas.wire.jute.errors import ErrorCode as Keeper
from barnabas.wire.jute.errors import KeeperError
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = ["answer_later", "keeper_failure", "reply_once"]

log = logging.getLogger(__name__)

_GRACE_MS = 500  # the work's own time-out, which can say more, comes first


def keeper_failure(error: KeeperError) -> KafkaError:
    """What a client is told of trouble with the coordination service: to try again."""
    if error.code in (Keeper.SESSION_EXPIRED, Keeper.CONNECTION_LOSS):
        return KafkaError(ErrorCode.REQUEST_TIMED_OUT, "The coordination service could not be reached; ask again.")
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"The coordination service refused: {error}")


Work = Callable[[], Coroutine[Any, Any, None]]


def answer_later(node: Services, request: Request, work: Work, timeout_ms: int | None = None) -> None:
    """Run ``work()``, which answers ``request``; if it fails before that, the answer carries the error.

    It is a function, so that a broker that stops before the work began leaves no coroutine behind.

    ``timeout_ms`` is what the client grants (request.timeout.ms unless given). Work that waits longer, because the
    coordination service is away, is answered with REQUEST_TIMED_OUT and goes on: what it began may still be done.
    """
    granted_ms = node.config["request.timeout.ms"] if timeout_ms is None else max(timeout_ms, 0)
    node.spawn(_guard(node, request, work, granted_ms + _GRACE_MS))


async def _guard(node: Services, request: Request, work: Work, timeout_ms: int) -> None:
    timer = node.call_later(timeout_ms, lambda: _fail(request, ErrorCode.REQUEST_TIMED_OUT))
    try:
        await work()
    except KafkaError as error:
        timer.cancel()
        _fail(request, error.code)
    except KeeperError as error:
        timer.cancel()
        log.warning("%r failed: %s", request, error)
        _fail(request, keeper_failure(error).code)
    except Exception:
        timer.cancel()
        log.exception("%r failed", request)
        _fail(request, ErrorCode.UNKNOWN_SERVER_ERROR)
    if request.answered:
        timer.cancel()


def _fail(request: Request, code: ErrorCode) -> None:
    if not request.answered:
        request.fail(code)


def reply_once(request: Request, response: Any) -> None:
    """Answer, unless the time was up before."""
    if not request.answered:
        request.reply(response)
