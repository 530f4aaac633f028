"""A request of a client, and what is known of the client (Kafka's
`RequestChannel.Request` and `RequestContext`).

A handler is a synchronous function that answers with `Request.reply`, at once or later.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from barnabas.base.clock import Timer
from barnabas.broker.requests.purgatory import DelayedOperation
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode

__all__ = ["ANONYMOUS", "Authentication", "ClientFacts", "Request"]

ANONYMOUS = "User:ANONYMOUS"
_SHOWN_CHARACTERS = 255
"""How much of a client's name is shown in log lines; it may have 32,767 characters."""


class Authentication(Protocol):
    """The authentication of a connection with SASL."""

    @property
    def mechanisms(self) -> Sequence[str]:
        """The SASL mechanisms that the listener has enabled."""
        ...

    @property
    def is_complete(self) -> bool: ...
    def versions_answered(self) -> None:
        """ApiVersions was answered without an error."""
        ...

    def handshake(self, mechanism: str, version: int) -> ErrorCode:
        """Take the client's mechanism; the error of the answer."""
        ...

    def authenticate(self, token: bytes) -> tuple[bytes, int]:
        """The answer to a token, and how long it holds in milliseconds.

        Raises `AuthenticationFailedError`."""
        ...

    def fail(self, answer: Callable[[], None] | None) -> None:
        """Answer, if there is an answer, and close the connection, after the delay
        of failed authentications."""
        ...


class ClientFacts:
    """Who is on the other side of a connection."""

    __slots__ = (
        "authentication",
        "host",
        "is_this_broker",
        "listener",
        "port",
        "principal",
        "produce_rights",
        "software_name",
        "software_version",
    )

    def __init__(self, listener: str, host: str, port: int, *, is_this_broker: bool = False) -> None:
        self.listener = listener
        self.host = host
        self.port = port
        self.principal = ANONYMOUS
        self.is_this_broker = is_this_broker
        """Whether it is this broker itself, without a connection; it needs no rights."""
        self.authentication: Authentication | None = None
        """None on listeners without SASL."""
        self.produce_rights: Any = None
        """What the client may write to, as far as it was asked (`apis.produce.rights_of`)."""
        self.software_name = "unknown"
        self.software_version = "unknown"


class Request:
    """One request of a client: the decoded message, who sent it, and the way back.

    Exactly one of `reply`, `no_reply` and `fail` must follow, now or later; until then the
    connection delivers no further request, so answers leave in order.
    """

    __slots__ = (
        "_answer",
        "_note",
        "administrative_actions",
        "api_key",
        "client",
        "client_id",
        "correlation_id",
        "is_abandoned",
        "message",
        "received_ms",
        "timer",
        "version",
        "waiter",
    )

    def __init__(
        self,
        api_key: ApiKey,
        version: int,
        correlation_id: int,
        client_id: str | None,
        message: Any,
        client: ClientFacts,
        received_ms: int,
        answer: "Callable[[Request, Any, ErrorCode | None], None]",
    ) -> None:
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.message = message
        self.client = client
        self.received_ms = received_ms
        """On the monotonic clock."""
        self.is_abandoned = False
        """Whether the client is gone."""
        self.waiter: DelayedOperation | None = None
        """The operation in which the request waits; completed without effect when
        the client goes away."""
        self.timer: Timer | None = None
        """The timeout of a later answer (`apis.later`); cancelled when the request is answered
        or its client disconnects."""
        self.administrative_actions: list[Any] | None = None
        """What the client of an administrative request may do, for the audit log; None for other
        requests."""
        self._note: Callable[[Request, Any, ErrorCode | None], None] | None = None
        self._answer: Callable[[Request, Any, ErrorCode | None], None] | None = answer

    def abandon(self) -> None:
        """The client is gone: its operation completes without effect, and none need begin."""
        self.is_abandoned = True
        if self.waiter is not None:
            self.waiter.force_complete()
        if self.timer is not None:
            self.timer.cancel()
        if self._note is not None:
            note, self._note = self._note, None
            note(self, None, None)

    def wait_in(self, operation: DelayedOperation | None) -> None:
        """The request waits in an operation, unless it is None.

        It is completed at once if the client is gone."""
        self.waiter = operation
        if operation is not None and self.is_abandoned:
            operation.force_complete()

    def when_answered(self, note: "Callable[[Request, Any, ErrorCode | None], None]") -> None:
        """Call ``note`` once: with the response, or with the error of the whole request, before the
        answer is sent; or with neither when the client goes away first."""
        answer = self._answer
        if answer is None:
            raise RuntimeError(f"{self!r} was answered before")

        def noted(request: Request, response: Any, code: ErrorCode | None) -> None:
            if request._note is not None:
                request._note = None
                note(request, response, code)
            answer(request, response, code)

        self._answer = noted
        self._note = note

    @property
    def is_answered(self) -> bool:
        return self._answer is None

    def reply(self, response: Any) -> None:
        """Send ``response``; raises RuntimeError when an answer was given before."""
        answer, self._answer = self._answer, None
        if answer is None:
            raise RuntimeError(f"{self!r} was answered before")
        answer(self, response, None)

    def no_reply(self) -> None:
        """Send no response (Produce with acks 0), and serve the connection's next request."""
        self.reply(None)

    def fail(self, code: ErrorCode) -> None:
        """Answer with the API's own response that carries ``code``; where the API has
        none, close the connection."""
        answer, self._answer = self._answer, None
        if answer is None:
            raise RuntimeError(f"{self!r} was answered before")
        answer(self, None, code)

    def __repr__(self) -> str:
        return (
            f"Request({self.api_key.name} v{self.version} correlation_id={self.correlation_id} "
            f"client_id={self.client_id and self.client_id[:_SHOWN_CHARACTERS]!r} from {self.client.host}:{self.client.port})"
        )
