"""The media types of the registry's API, and the words of its errors.

In Confluent's registry: `Versions`, and the exception mappers of `rest-utils`.
"""

import json
from collections.abc import Sequence

from barnabas.base.json_text import parse_json

__all__ = ["DEFAULT_TYPE", "HttpError", "answer_type", "check_content_type", "error_body", "json_body", "read_body"]

DEFAULT_TYPE = "application/vnd.schemaregistry.v1+json"
_ANSWERED = (
    DEFAULT_TYPE,
    "application/vnd.schemaregistry+json",
    "application/json",
)
_ACCEPTED = frozenset((*_ANSWERED, "application/octet-stream"))
_MOST_TYPES = 32


class HttpError(Exception):
    """A request that is no request of the API, or that the user has no right to.

    The status is the code, too, unless there is another one."""

    def __init__(self, status: int, message: str, *, code: int = 0) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code or status


def error_body(code: int, message: str) -> bytes:
    """The body of every answer that is an error."""
    return json_body({"error_code": code, "message": message})


def json_body(answer: object) -> bytes:
    """An answer as JSON."""
    return json.dumps(answer, ensure_ascii=False, separators=(",", ":")).encode("utf-8", "backslashreplace")


def answer_type(accept: str | None) -> str:
    """The media type of the answer, by the request's header Accept. Raises `HttpError` 406."""
    if not accept or not accept.strip():
        return DEFAULT_TYPE
    best, best_quality = None, 0.0
    for item in accept.split(",")[:_MOST_TYPES]:
        name, *parameters = (part.strip() for part in item.split(";"))
        quality = _quality(parameters)
        for offered in _ANSWERED:
            if quality > best_quality and _matches(name.lower(), offered):
                best, best_quality = offered, quality
                break
    if best is None:
        raise HttpError(406, "HTTP 406 Not Acceptable")
    return best


def _matches(name: str, offered: str) -> bool:
    return name in ("*/*", "*", "application/*") or name == offered


def _quality(parameters: Sequence[str]) -> float:
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "q":
            try:
                return float(value)
            except ValueError:
                return 0.0
    return 1.0


def check_content_type(content_type: str | None) -> None:
    """Raise `HttpError` 415 for a body of another kind than JSON; none stands for JSON."""
    if content_type and content_type.partition(";")[0].strip().lower() not in _ACCEPTED:
        raise HttpError(415, "HTTP 415 Unsupported Media Type")


def read_body(body: bytes) -> object:
    """The document of a body; raises `HttpError` 400, and 422 for none."""
    if not body.strip():
        raise HttpError(422, "the body of the request is empty")
    try:
        return parse_json(body, pairs=None)
    except (ValueError, UnicodeDecodeError) as error:
        raise HttpError(400, f"the body is not JSON: {error}") from None
