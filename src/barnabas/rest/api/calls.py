"""A request about the cluster's state, its answer, and what their functions have in common.

In Confluent's proxy: `AbstractConfigManager` and `Entities`.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from barnabas.client.cluster.admin_connection import AdminConnection
from barnabas.rest.core.links import ResourceLinks
from barnabas.rest.errors import RestCode, RestError

__all__ = ["ApiAnswer", "ApiCall", "ApiRoute", "flag", "needed_object", "number_in_path", "text_field"]

_LARGEST = (1 << 31) - 1
_MOST_DIGITS = 10


@dataclass(frozen=True, slots=True)
class ApiCall:
    """What a request asks, and with what it is answered."""

    connection: AdminConnection
    links: ResourceLinks
    path: Mapping[str, str]
    query: Mapping[str, str]
    body: Any = None
    """The JSON of the request; None for none."""


@dataclass(frozen=True, slots=True)
class ApiAnswer:
    """A status and a document; None for no content."""

    document: Any = None
    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)


ApiRoute = tuple[str, str, Callable[[ApiCall], ApiAnswer]]
"""A method, a path below the cluster's with names in braces, and what answers it. It may block."""


def needed_object(body: Any) -> Mapping[str, Any]:
    """The object of a request that needs one. Raises `RestError`."""
    if body is None:
        raise RestError(RestCode.INVALID_PAYLOAD, "Payload error. Request body is empty. Data is required.")
    if not isinstance(body, dict):
        raise RestError(RestCode.BAD_REQUEST, "Error processing JSON: an object is expected")
    return body


def text_field(given: Any, name: str) -> str:
    """A text that an object must have. Raises `RestError`."""
    value = given.get(name) if isinstance(given, dict) else None
    if not isinstance(value, str) or not value:
        raise RestError(RestCode.BAD_REQUEST, f"{name}: a text is expected")
    return value


def flag(given: Mapping[str, Any], name: str) -> bool:
    """A field that is true or false, false by default. Raises `RestError`."""
    value = given.get(name)
    if value is not None and not isinstance(value, bool):
        raise RestError(RestCode.BAD_REQUEST, f"{name}: true or false is expected")
    return bool(value)


def number_in_path(call: ApiCall, name: str) -> int:
    """A number of the path; another text is the name of nothing. Raises `RestError`."""
    text = call.path[name]
    if not (text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS and int(text) <= _LARGEST):
        raise RestError(RestCode.NOT_FOUND, "HTTP 404 Not Found")
    return int(text)
