"""An API as the dispatcher knows it: its key, the versions served, and its handler
(Kafka's `ApiRequestHandler`)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from barnabas.broker.requests.request import Request
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode

__all__ = ["RequestHandler"]


@dataclass(frozen=True, slots=True)
class RequestHandler:
    """One API of a broker, ready to serve requests."""

    key: ApiKey
    min_version: int
    max_version: int
    handle: Callable[[Request], None]
    error_response: Callable[[Any, int, ErrorCode], Any]
    """Makes the API's own response that carries an error, from the request's message,
    its version and the code.

    None means that the client expects no answer; the connection is closed then. Nor is there a
    message for a request that is larger than the API accepts."""
    max_request_bytes: int = (1 << 31) - 1
    """A larger request is answered with the error below, and not kept while it comes."""
    too_large: ErrorCode | None = None
    """None closes the connection when a larger request begins."""
    refusal: Callable[[memoryview, int, int], str | None] | None = None
    """Why a large request is not even decoded, None if it is: from its frame, the offset of its
    message, and its version. Its connection is closed. May raise `MalformedMessageError`."""
