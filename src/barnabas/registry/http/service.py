"""`HttpService`: the registry's REST API on aiohttp.

A request passes these in turn: its credentials, its operation, the user's rights, the media types,
its body. The core then answers from memory, or decides what is to be written: the leader writes it,
any other instance hands the request to the leader. Nothing is decided here.

In Confluent's registry: `SchemaRegistryRestApplication`.
"""

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from functools import partial
from typing import Protocol

from aiohttp import web

from barnabas import __version__
from barnabas.net.prometheus import lines_of
from barnabas.net.web_access import UnauthorizedError, WebAccess, WebListener
from barnabas.net.web_figures import WebMetrics
from barnabas.net.web_server import WebServer
from barnabas.registry.core.decisions import Answer, Decision
from barnabas.registry.errors import ErrorCode, RegistryError
from barnabas.registry.http.content import (
    DEFAULT_TYPE,
    HttpError,
    answer_type,
    check_content_type,
    error_body,
    json_body,
    read_body,
)
from barnabas.registry.http.context_paths import PREFIX, has_paths_in_contexts
from barnabas.registry.http.deliberation import Deliberation, Deliberations
from barnabas.registry.http.forwarding import FORWARDED, READ_POSITION, LeaderAbsentError, LeaderForwarding
from barnabas.registry.http.operations import OPERATIONS, Call, RestOperation
from barnabas.registry.http.settings import HttpSettings
from barnabas.registry.storage.service import SchemaStore

__all__ = ["HttpService", "RequestRights"]

logger = logging.getLogger(__name__)

_user: ContextVar[str | None] = ContextVar("user", default=None)
"""The user of the request that the running task serves."""
_WITH_BODY = frozenset(("POST", "PUT"))
_BODY_TIMEOUT_S = 30.0


class RequestRights(Protocol):
    """Who may do what."""

    def check(self, operation: RestOperation, call: Call, user: str | None, host: str) -> None:
        """Raise `HttpError` 403 for what the user has no right to."""
        ...

    def visible(self, operation: RestOperation, answer: Answer, user: str | None, host: str) -> Answer:
        """What the user may see of an answer."""
        ...


class HttpService:
    """From `start` to `close`, on one event loop."""

    def __init__(
        self,
        store: SchemaStore,
        access: WebAccess,
        settings: HttpSettings,
        leader_tls: ssl.SSLContext,
        rights: RequestRights | None = None,
    ) -> None:
        """``leader_tls`` is for the connections to the leader, if it has https."""
        self._store = store
        self._access = access
        self._settings = settings
        self._rights = rights
        self._forwarding = LeaderForwarding(settings, leader_tls)
        self._deliberations = Deliberations(store.registry)
        self._server = WebServer(self._application(), settings.connection_limit, settings.idle_timeout_ms / 1000)

    def bind(self, listeners: Sequence[WebListener]) -> list[int]:
        """Take the addresses, at which nothing is answered yet; returns the port of each listener.

        Raises OSError."""
        return self._server.bind(listeners)

    async def listen(self, tls: ssl.SSLContext | None) -> None:
        """Answer requests."""
        await self._server.listen(tls)

    async def open_metrics(self, address: str) -> None:
        """Show metrics to Prometheus. Raises `BarnabasError`."""
        await self._server.open_metrics(address, self._own_metrics)

    @property
    def metrics_port(self) -> int | None:
        """The port of the metrics page; None without one."""
        return self._server.metrics_port

    def _own_metrics(self) -> list[str]:
        return [
            *lines_of(WebMetrics.SCHEMAS, [("", self._store.registry.schema_count)]),
            *lines_of(WebMetrics.LEADS, [("", int(self._store.leads))]),
        ]

    async def close(self) -> None:
        """Answer what is under way, and end."""
        await self._server.close()
        self._deliberations.close()
        await self._forwarding.close()

    def _application(self) -> web.Application:
        application = web.Application(client_max_size=self._settings.max_body_bytes, middlewares=[self._middleware])
        add = application.router.add_route
        for operation in OPERATIONS:
            handler = partial(self._serve, operation)
            add(operation.method, operation.path, handler)
            add(operation.method, f"{operation.path}/", handler)
            if has_paths_in_contexts(operation.path):
                add(operation.method, f"{PREFIX}{operation.path}", handler)
            if operation.path in ("/config/{subject}", "/mode/{subject}"):
                add(operation.method, f"{PREFIX}{operation.path.removesuffix('/{subject}')}", handler)
        for path, answer in (
            ("/", dict),
            ("/v1/metadata/id", self._cluster),
            ("/v1/metadata/version", lambda: {"version": __version__, "commitId": ""}),
        ):
            add("GET", path, partial(self._about, answer))
        return application

    # Around each request

    @web.middleware
    async def _middleware(
        self, request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
    ) -> web.StreamResponse:
        """Check the credentials first, and word every error."""
        try:
            _user.set(self._access.user_of(request.headers.get("Authorization")))
            async with asyncio.timeout(self._settings.request_timeout_ms / 1000):
                return await handler(request)
        except UnauthorizedError as error:
            answer = _error(401, 401, "HTTP 401 Unauthorized")
            answer.headers["WWW-Authenticate"] = error.challenge
            return answer
        except RegistryError as error:
            if error.code >= ErrorCode.STORE_ERROR:
                logger.warning("%s %s: %s", request.method, request.rel_url, error.message)
            return _error(error.status, int(error.code), error.message)
        except HttpError as error:
            return _error(error.status, error.code, error.message)
        except TimeoutError:
            message = f"the request was not answered within request.timeout.ms={self._settings.request_timeout_ms}"
            return _error(500, int(ErrorCode.OPERATION_TIMED_OUT), message)
        except web.HTTPException as error:
            answer = _error(error.status, error.status, f"HTTP {error.status} {error.reason}")
            if isinstance(error, web.HTTPMethodNotAllowed):
                answer.headers["Allow"] = ", ".join(sorted(error.allowed_methods))
            return answer
        except Exception:
            logger.exception("%s %s failed", request.method, request.rel_url)
            return _error(500, 500, "Internal Server Error")

    # One request

    async def _serve(self, operation: RestOperation, request: web.Request) -> web.Response:
        content_type = answer_type(request.headers.get("Accept"))
        self._check_read_only(operation)
        body = await self._body(request) if request.method in _WITH_BODY else b""
        call = Call.meant(
            self._store.registry,
            operation,
            request.match_info,
            {name: request.query.getall(name) for name in request.query},
            read_body(body) if request.method in _WITH_BODY else None,
        )
        user, host = _user.get(), request.remote or ""
        if self._rights is not None:
            self._rights.check(operation, call, user, host)
        if not operation.right.writes:
            answer = await self._deliberations.about(partial(operation.handle, self._store.registry, call)).decided()
            if self._rights is not None:
                answer = self._rights.visible(operation, answer, user, host)
            return _answer(operation, answer, content_type)
        return await self._write(operation, call, request, body, content_type)

    async def _write(
        self, operation: RestOperation, call: Call, request: web.Request, body: bytes, content_type: str
    ) -> web.Response:
        def decide() -> Decision:
            decision = operation.handle(self._store.registry, call)
            assert isinstance(decision, Decision)
            return decision

        deliberation = self._deliberations.about(decide)
        try:
            decision = await deliberation.decided()
        except RegistryError:
            pass  # the leader knows the end of the topic
        else:
            if not decision.records:
                return _answer(operation, decision.answer(), content_type)
        return await self._lead_or_forward(
            request, body, lambda written: _answer(operation, written, content_type), deliberation, may_wait=True
        )

    async def _lead_or_forward(
        self,
        request: web.Request,
        body: bytes,
        respond: Callable[[Answer], web.Response],
        deliberation: Deliberation[Decision],
        *,
        may_wait: bool,
    ) -> web.Response:
        store = self._store
        if store.leads:
            answer = respond(await deliberation.carried_out(lambda: store.write(deliberation.decide)))
            if FORWARDED in request.headers:
                answer.headers[READ_POSITION] = str(store.position)
            return answer
        former = store.leadership.leader
        try:
            return await self._forward(request, body)
        except LeaderAbsentError:
            if not may_wait or former is None:
                raise
            # It may have stopped a moment ago. Nothing was sent, so it can be sent once more.
            await store.wait_for_other_leader(former)
        return await self._lead_or_forward(request, body, respond, deliberation, may_wait=False)

    async def _forward(self, request: web.Request, body: bytes) -> web.Response:
        store = self._store
        leader = store.leadership.leader
        if leader is None or store.leadership.is_self or FORWARDED in request.headers:
            raise RegistryError(ErrorCode.UNKNOWN_LEADER, f"{request.method} request failed since leader is unknown")
        found = await self._forwarding.forward(
            leader, request.method, request.rel_url.raw_path_qs, request.headers, body
        )
        if found.position is not None:
            await store.catch_up(found.position)
        return web.Response(status=found.status, body=found.body, headers={"Content-Type": found.content_type})

    def _check_read_only(self, operation: RestOperation) -> None:
        if not operation.right.writes:
            return
        if self._settings.is_read_only:
            raise HttpError(403, "this instance is read-only (read.only)")
        if _user.get() in self._settings.read_only_users:
            raise HttpError(403, f"the user {_user.get()} may only read (authentication.read.only.users)")

    async def _body(self, request: web.Request) -> bytes:
        check_content_type(request.headers.get("Content-Type"))
        try:
            async with asyncio.timeout(_BODY_TIMEOUT_S):
                return await request.read()
        except TimeoutError:
            raise HttpError(408, "the body of the request did not come in time") from None

    # About this server

    async def _about(self, answer: Callable[[], object], request: web.Request) -> web.Response:
        return _response(200, json_body(answer()), answer_type(request.headers.get("Accept")))

    def _cluster(self) -> dict[str, object]:
        """As Confluent's `ServerClusterId`."""
        clusters = {"kafka-cluster": self._store.cluster_id, "schema-registry-cluster": self._settings.group_id}
        return {"scope": {"path": [], "clusters": clusters}, "id": ""}


def _answer(operation: RestOperation, answer: Answer, content_type: str) -> web.Response:
    if answer is None:
        return web.Response(status=204)
    body = str(answer).encode("utf-8", "backslashreplace") if operation.is_text else json_body(answer)
    return _response(200, body, content_type)


def _error(status: int, code: int, message: str) -> web.Response:
    return _response(status, error_body(code, message), DEFAULT_TYPE)


def _response(status: int, body: bytes, content_type: str) -> web.Response:
    return web.Response(status=status, body=body, headers={"Content-Type": content_type})
