"""What all requests have in common: bodies with limits, content types, errors, and who asks.

In Confluent's proxy: its package `io.confluent.rest`.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Protocol

from aiohttp import web

from barnabas.net.web_access import UnauthorizedError
from barnabas.rest.clients.admin_pool import AdminPool
from barnabas.rest.clients.consumer_instances import ConsumerInstances
from barnabas.rest.clients.record_producer import RecordProducer
from barnabas.rest.clients.schema_codecs import SchemaCodecs
from barnabas.rest.clients.topic_events import TopicEvents
from barnabas.rest.core.embedded import EmbeddedFormat
from barnabas.rest.core.json_stream import json_bytes, json_of
from barnabas.rest.core.limits import Allowance
from barnabas.rest.core.settings import RestSettings
from barnabas.rest.errors import RestCode, RestError, error_of

__all__ = [
    "Backend",
    "BackendsOfUsers",
    "accepted_format",
    "answers_errors",
    "backend_of",
    "base_url",
    "body_parts",
    "content_format",
    "has_backend",
    "json_answer",
    "read_json_body",
    "whole_body",
]

logger = logging.getLogger("barnabas.rest")

VERSION_2 = "application/vnd.kafka.v2+json"
_JSON = "application/json"
_OF_FORMAT: dict[str, EmbeddedFormat] = {
    f"application/vnd.kafka.{form.lower()}.v2+json": form for form in EmbeddedFormat if form != EmbeddedFormat.STRING
}
_TYPE_OF = {form: name for name, form in _OF_FORMAT.items()}

_Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(slots=True)
class Backend:
    """What requests work with."""

    settings: RestSettings
    admin: AdminPool
    producer: RecordProducer
    schemas: SchemaCodecs
    events: TopicEvents
    consumers: ConsumerInstances
    bodies: Allowance
    produce_requests: Allowance
    event_streams: Allowance
    closing: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when streams are to end."""
    requests: int = 0
    """Those under way."""
    used_s: float = 0.0
    """When the last one ended."""

    async def close(self) -> None:
        """Leave the groups, wait for records under way, and close all connections."""
        await asyncio.gather(self.consumers.close(), self.producer.close(), self.events.close())
        self.schemas.close()
        await self.admin.close()


class BackendsOfUsers(Protocol):
    """Finds what a request works with."""

    async def enter(self, authorization: str | None) -> Backend:
        """The backend of the user with this header, which does not end before `leave`.

        Raises `UnauthorizedError`, and what keeps the user from the cluster."""

    def leave(self, backend: Backend) -> None:
        """A request has ended."""


_BACKEND: ContextVar[Backend] = ContextVar("backend of a request")
_TAKEN: ContextVar[list[int]] = ContextVar("bytes that a request holds")


def backend_of(_: web.Request) -> Backend:
    """What a request works with: each has a context of its own."""
    return _BACKEND.get()


def base_url(request: web.Request) -> str:
    """What addresses in answers begin with."""
    for listener in backend_of(request).settings.advertised:
        if listener.scheme == request.scheme:
            return str(listener)
    return f"{request.scheme}://{request.host}"


# Bodies


async def body_parts(request: web.Request, idle_s: float | None) -> AsyncIterator[bytes]:
    """The body as it comes. Raises `RestError` when nothing comes for so long."""
    while True:
        try:
            async with asyncio.timeout(idle_s):
                part = await request.content.readany()
        except TimeoutError:
            raise RestError(RestCode.REQUEST_TIMEOUT, "the body of the request does not come") from None
        except (ValueError, web.HTTPException, OSError) as error:  # wrong chunks, or a connection that broke
            raise RestError(RestCode.BAD_REQUEST, f"the body of the request is cut off: {error}") from None
        if not part:
            return
        yield part
        await asyncio.sleep(0)  # what is unpacked may be there for seconds: others have their turns


async def whole_body(request: web.Request) -> bytes:
    """The whole body. Raises `RestError` for one that is too large, or does not come."""
    backend = backend_of(request)
    most = backend.settings["max.request.bytes"]
    if (request.content_length or 0) > most:
        raise _too_large(most)
    made = bytearray()
    async for part in body_parts(request, backend.settings.seconds("request.idle.timeout.ms")):
        if len(made) + len(part) > most:
            raise _too_large(most)
        backend.bodies.take(len(part))
        _TAKEN.get().append(len(part))  # until the request is answered
        made += part
    return bytes(made)


def _too_large(most: int) -> RestError:
    return RestError(RestCode.TOO_LARGE, f"the request has more than {most} bytes (max.request.bytes)")


async def read_json_body(request: web.Request) -> Any:
    """The JSON of the body, None for an empty one. Raises `RestError`."""
    data = await whole_body(request)
    return json_of(data) if data.strip() else None


# Content types


def content_format(request: web.Request) -> EmbeddedFormat | None:
    """The format that a request of version 2 has, None for one of no format. Raises `RestError`."""
    kind = request.content_type
    if kind in _OF_FORMAT:
        return _OF_FORMAT[kind]
    if kind == VERSION_2:
        return None
    raise unsupported_type()


def unsupported_type() -> RestError:
    """The answer to a content type that is not expected."""
    return RestError(RestCode.UNSUPPORTED_MEDIA_TYPE, "HTTP 415 Unsupported Media Type")


def accepted_format(request: web.Request) -> EmbeddedFormat | None:
    """The format that a reader of version 2 wants, None for any. Raises `RestError`."""
    wanted = [part.partition(";")[0].strip() for part in request.headers.get("Accept", "*/*").split(",")]
    for kind in wanted:
        if kind in _OF_FORMAT:
            return _OF_FORMAT[kind]
    if any(kind in (VERSION_2, _JSON, "*/*", "application/*", "") for kind in wanted):
        return None
    raise RestError(RestCode.NOT_ACCEPTABLE, "HTTP 406 Not Acceptable")


def records_type(form: EmbeddedFormat) -> str:
    """The content type of records in a format."""
    return _TYPE_OF[form]


# Answers


def json_answer(
    document: Any, status: int = 200, *, content_type: str = _JSON, headers: dict[str, str] | None = None
) -> web.Response:
    """An answer with a document."""
    return web.Response(body=json_bytes(document), status=status, content_type=content_type, headers=headers)


def _type_of_answers(request: web.Request) -> str:
    return _JSON if request.path.startswith("/v3") else VERSION_2


@web.middleware
async def answers_errors(request: web.Request, handler: _Handler) -> web.StreamResponse:
    """Every error is an answer with a code and a text."""
    try:
        return await handler(request)
    except web.HTTPException as error:
        if error.status < RestCode.BAD_REQUEST:
            raise
        message = f"HTTP {error.status} {error.reason}"
        answer = json_answer(
            {"error_code": error.status, "message": message}, error.status, content_type=_type_of_answers(request)
        )
        if "Allow" in error.headers:
            answer.headers["Allow"] = error.headers["Allow"]
        return answer
    except Exception as error:  # a request must not end the server
        found = error_of(error)
        if found.code == RestCode.INTERNAL:
            logger.exception("A request failed: %s %s", request.method, request.path)
        return json_answer(found.document, found.status, content_type=_type_of_answers(request))


def has_backend(backends: BackendsOfUsers) -> Any:
    """A middleware that lets only requests through whose credentials are right."""

    @web.middleware
    async def check(request: web.Request, handler: _Handler) -> web.StreamResponse:
        try:
            backend = await backends.enter(request.headers.get("Authorization"))
        except UnauthorizedError as error:
            document = {"error_code": int(RestCode.UNAUTHORIZED), "message": "Unauthorized"}
            headers = {"WWW-Authenticate": error.challenge}
            return json_answer(document, 401, content_type=_type_of_answers(request), headers=headers)
        _BACKEND.set(backend)
        taken: list[int] = []
        _TAKEN.set(taken)
        try:
            return await handler(request)
        finally:
            backend.bodies.give_back(sum(taken))
            backends.leave(backend)

    return check
