"""What requests work with, by who asks: one set of clients for all, or one for each user.

With ``authentication.propagate`` the brokers authenticate the user of a request, and see what the
user does under the user's own name: access control lists hold for requests as they do for clients.
A user's clients live until no request came for a while.

In Confluent's proxy: DefaultKafkaRestContext and its security plugins.
"""

import asyncio
import hashlib
import logging

from barnabas.client.errors import AuthenticationError
from barnabas.net.web_access import UnauthorizedError, WebAccess, basic_login
from barnabas.rest.clients.admin_pool import AdminPool
from barnabas.rest.clients.consumer_instances import ConsumerInstances
from barnabas.rest.clients.record_producer import RecordProducer
from barnabas.rest.clients.schema_codecs import SchemaCodecs, registry_requests
from barnabas.rest.clients.topic_events import TopicEvents
from barnabas.rest.core.limits import Allowance
from barnabas.rest.core.settings import RestSettings
from barnabas.rest.errors import RestCode, RestError
from barnabas.rest.http.exchange import Backend

__all__ = ["Backends"]

logger = logging.getLogger("barnabas.rest")

_LOOKS = 4
_MOST_LOGINS = 16
"""How many users the brokers are asked about at once."""


class Backends:
    """The one of all requests, or those of users."""

    def __init__(self, settings: RestSettings, access: WebAccess | None) -> None:
        """``access`` None: the brokers authenticate users. Raises `ConfigError`."""
        self._settings, self._access = settings, access
        self._bodies = Allowance(settings["request.memory.bytes"], "bytes of requests that are being received")
        self._produce_requests = Allowance(settings["produce.requests.max"], "requests with records at once")
        self._event_streams = Allowance(settings["event.streams.max"], "open event streams")
        self._loop = asyncio.get_running_loop()
        self._of_users: dict[tuple[str, bytes], Backend] = {}
        self._logins: dict[tuple[str, bytes], asyncio.Lock] = {}
        self._turns = asyncio.Semaphore(_MOST_LOGINS)
        self._of_all = self._made(settings) if access is not None else None
        self._expiring = self._loop.create_task(self._expire()) if access is None else None

    def _made(self, settings: RestSettings) -> Backend:
        admin = AdminPool(settings.clients["admin"], settings.seconds("client.timeout.ms"))
        schemas = SchemaCodecs(registry_requests(settings.registry, settings.login))
        return Backend(
            settings,
            admin,
            RecordProducer(settings.clients["producer"], admin),
            schemas,
            TopicEvents(settings.clients["consumer"], admin),
            ConsumerInstances(settings, schemas),
            self._bodies,
            self._produce_requests,
            self._event_streams,
        )

    async def enter(self, authorization: str | None) -> Backend:
        """What a request works with, which does not end before `leave`.

        Raises `UnauthorizedError`, and what keeps the user from the cluster."""
        if self._access is not None:
            self._access.user_of(authorization)
            assert self._of_all is not None, "it is made with the access"
            return self._of_all
        login = basic_login(authorization)
        if login is None:
            raise self._unauthorized()
        found = await self._of_user(*login)
        found.requests += 1
        return found

    def leave(self, backend: Backend) -> None:
        """A request has ended."""
        if self._access is None:
            backend.requests -= 1
            backend.used_s = self._loop.time()

    def _unauthorized(self) -> UnauthorizedError:
        return UnauthorizedError(f'Basic realm="{self._settings["authentication.realm"]}"')

    async def _of_user(self, user: str, password: str) -> Backend:
        """A user's clients; the first request with this password asks the brokers whether it is
        right."""
        key = user, hashlib.sha256(password.encode("utf-8", "surrogatepass")).digest()
        found = self._of_users.get(key)
        if found is not None:
            return found
        lock = self._logins.setdefault(key, asyncio.Lock())
        try:
            async with lock, self._turns:
                return self._of_users.get(key) or await self._log_in(key, user, password)
        finally:
            if not lock.locked():
                self._logins.pop(key, None)

    async def _log_in(self, key: tuple[str, bytes], user: str, password: str) -> Backend:
        if len(self._of_users) >= self._settings["authentication.users.max"]:
            raise RestError(RestCode.TOO_MANY_REQUESTS, "too many users at once: try again later")
        made = self._made(self._settings.of_user(user, password))
        try:
            await made.admin.run(lambda connection: connection.describe_cluster(fresh=True))
        except AuthenticationError:
            await made.close()
            raise self._unauthorized() from None
        except BaseException:
            await made.close()
            raise
        made.used_s = self._loop.time()
        self._of_users[key] = made
        return made

    async def _expire(self) -> None:
        idle_s = self._settings.seconds("authentication.users.idle.ms")
        while True:
            await asyncio.sleep(idle_s / _LOOKS)
            now_s = self._loop.time()
            for key, backend in list(self._of_users.items()):
                if not backend.requests and not len(backend.consumers) and backend.used_s + idle_s < now_s:
                    del self._of_users[key]
                    await backend.close()

    def _all(self) -> list[Backend]:
        return [*([] if self._of_all is None else [self._of_all]), *self._of_users.values()]

    def end_streams(self) -> None:
        """Event streams end, as the server does."""
        for backend in self._all():
            backend.closing.set()
            for waker in backend.events.wakers():
                waker.set()

    async def close(self) -> None:
        """Close all clients."""
        if self._expiring is not None:
            self._expiring.cancel()
        await asyncio.gather(*(backend.close() for backend in self._all()))
