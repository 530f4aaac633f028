"""Handlers that must wait for the coordination service: whatever goes wrong there, the client gets an answer."""

import logging
from collections.abc import Coroutine
from typing import Any

from barnabas.broker.node import Node, Request
from barnabas.wire.jute.errors import ErrorCode as Keeper
from barnabas.wire.jute.errors import KeeperError
from barnabas.wire.kafka.errors import ErrorCode, KafkaError

__all__ = ["answer_later", "keeper_failure"]

log = logging.getLogger(__name__)


def keeper_failure(error: KeeperError) -> KafkaError:
    """What a client is told of trouble with the coordination service: to try again."""
    if error.code in (Keeper.SESSION_EXPIRED, Keeper.CONNECTION_LOSS):
        return KafkaError(ErrorCode.REQUEST_TIMED_OUT, "The coordination service could not be reached; ask again.")
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"The coordination service refused: {error}")


def answer_later(node: Node, request: Request, work: Coroutine[Any, Any, None]) -> None:
    """Run ``work``, which answers ``request``; if it fails before that, the answer carries the error."""
    node.spawn(_guard(request, work))


async def _guard(request: Request, work: Coroutine[Any, Any, None]) -> None:
    try:
        await work
    except KafkaError as error:
        failure = error.code
    except KeeperError as error:
        log.warning("%r failed: %s", request, error)
        failure = keeper_failure(error).code
    except Exception:
        log.exception("%r failed", request)
        failure = ErrorCode.UNKNOWN_SERVER_ERROR
    else:
        return
    if not request.answered:
        request.fail(failure)
