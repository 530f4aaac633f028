"""What an API module registers: its key, the versions that it serves, and its functions."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from barnabas.broker.requests.request import Node, Request
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode

__all__ = ["ApiHandler"]


@dataclass(frozen=True, slots=True)
class ApiHandler:
    """An API key, the versions served, and the function that serves them."""

    key: ApiKey
    min_version: int
    max_version: int
    handle: Callable[[Node, Request], None]
    fail: Callable[[Any, int, ErrorCode], Any] | None = None
    """Makes the response that carries an error, from the request's message, its version and the code.

    None for APIs whose response has a field ``error_code`` of its own: that is then all that is set.
    """
    inter_broker: bool = False
    """Whether only brokers may ask (it needs ClusterAction once there is an authorizer)."""
