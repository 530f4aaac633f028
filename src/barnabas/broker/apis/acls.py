"""The response of the three ACL APIs while there is no authorizer: SECURITY_DISABLED,
as Kafka's `AclApis` does."""

from collections.abc import Callable
from typing import Any

from barnabas.broker.apis.api_handler import ApiHandler, no_parts
from barnabas.broker.requests.request import Request
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode

__all__ = ["without_authorizer"]

_Answer = Callable[[Any, ErrorCode, str], Any]
"""Makes a response from the request, a code and a text."""


def without_authorizer(key: ApiKey, text: str, answer: _Answer) -> ApiHandler[None]:
    """Serve versions 1 to 3 of an API with ``answer``."""

    def handle(_: None, request: Request) -> None:
        request.reply(answer(request.message, ErrorCode.SECURITY_DISABLED, text))

    def fail(message: Any, _version: int, code: ErrorCode) -> Any:
        return answer(message, code, code.message)

    return ApiHandler(key, 1, 3, handle, no_parts, fail)
