"""A client's connection on a listener with SASL: before it is authenticated, requests pass a gate.

ApiVersions and SaslHandshake are served first, then SaslAuthenticate; its API modules ask the
`Authentication` in the client's facts. An answer that says that the authentication failed, and the
end of the connection, come after a delay (connection.failed.authentication.delay.ms), during which
nothing is read. Afterwards a request costs one call more here than on other listeners.

In Kafka: `SaslServerAuthenticator`, with `Selector.DelayedAuthenticationFailureClose`.
"""

from collections.abc import Callable, Sequence

from barnabas.base.clock import CallLater, Timer
from barnabas.base.network import Connection, Part, Standing
from barnabas.broker.requests.authentication_failures import AuthenticationFailures
from barnabas.broker.requests.dispatch import ClientConnection, Dispatcher
from barnabas.broker.requests.sasl_server_authenticator import (
    AuthenticationFailedError,
    FrameVerdict,
    SaslServerAuthenticator,
)
from barnabas.wire.kafka.api import ApiKey, api
from barnabas.wire.kafka.codec import reader
from barnabas.wire.kafka.errors import ErrorCode, KafkaError, MalformedMessageError
from barnabas.wire.kafka.frames import decode_request_header, encode_response

__all__ = ["SaslConnection"]

_LARGE_BYTES = 16 * 1024
"""A request of a stranger is not decoded from this size on."""


class SaslConnection:
    """The frame handler of a connection with SASL, and the `Authentication` of its client."""

    __slots__ = (
        "_authenticator",
        "_call_later",
        "_connection",
        "_dispatcher",
        "_failure_delay_ms",
        "_failures",
        "_max_request_bytes",
        "_member",
        "_opened",
        "_standing",
        "_timer",
    )

    def __init__(
        self,
        dispatcher: Dispatcher,
        opened: ClientConnection,
        connection: Connection,
        authenticator: SaslServerAuthenticator,
        call_later: CallLater,
        failures: AuthenticationFailures,
        *,
        max_receive_bytes: int,
        failure_delay_ms: int,
        member: str | None = None,
    ) -> None:
        """``opened`` serves the requests that pass. ``failures`` are noted in the log.

        ``max_receive_bytes`` limits what comes before the authentication. ``member`` is the user as
        which the brokers of the cluster authenticate, None if they do not do it on this listener.
        """
        self._dispatcher = dispatcher
        self._opened = opened
        self._connection = connection
        self._authenticator = authenticator
        self._call_later = call_later
        self._failures = failures
        self._failure_delay_ms = failure_delay_ms
        self._timer: Timer | None = None
        self._max_request_bytes = connection.max_frame_bytes
        connection.max_frame_bytes = min(max_receive_bytes, self._max_request_bytes)
        opened.client.authentication = self
        self._member = member
        self._standing = connection.standing
        connection.standing = Standing.STRANGER

    @property
    def work(self) -> str:
        """Like `ClientConnection.work`."""
        return self._opened.work

    # From the connection

    def take_from(self, data: memoryview, position: int) -> int:
        return self._opened.take_from(data, position) if self._authenticator.needs_no_gate else position

    def frame(self, data: memoryview) -> None:
        authenticator = self._authenticator
        if authenticator.needs_no_gate:
            self._opened.frame(data)
            return
        now_ms = self._opened.last_active_ms = self._dispatcher.clock.monotonic_ms()
        if self._timer is not None:
            return  # it has failed
        if authenticator.expects_token:
            self._take_token(bytes(data))
            return
        try:
            api_key = _api_key(decode_request_header(data)[0])
        except (MalformedMessageError, KafkaError):
            api_key = None
        match authenticator.admit(api_key, now_ms):
            case FrameVerdict.SERVE:
                self._opened.frame(data)
            case FrameVerdict.REFUSE:
                self._log(f"a request with API key {api_key} instead of SaslAuthenticate")
                refusal = self._refusal(data)
                self.fail(None if refusal is None else lambda: self._connection.send(refusal))
            case FrameVerdict.FAIL:
                self._log("its bytes are no request that begins an authentication")
                self.fail(None)
            case FrameVerdict.CLOSE:
                self._log("its authentication has ended, or this request cannot come now")
                self._connection.close()

    def drops(self, head: bytes, frame_bytes: int) -> bool:
        return self._authenticator.is_complete and self._opened.drops(head, frame_bytes)

    def dropped(self, head: bytes) -> None:
        authenticator = self._authenticator
        if not authenticator.needs_no_gate:
            now_ms = self._opened.last_active_ms = self._dispatcher.clock.monotonic_ms()
            if (
                authenticator.admit(_api_key(int.from_bytes(head[:2], "big", signed=True)), now_ms)
                is not FrameVerdict.SERVE
            ):
                self._log("its authentication has ended")
                self._connection.close()
                return
        self._opened.dropped(head)

    def bad_length(self, prefix: bytes) -> None:
        if self._authenticator.is_complete:
            self._opened.bad_length(prefix)
        elif self._timer is None:
            self._log(f"{int.from_bytes(prefix[:4], 'big', signed=True)} is not the length of a SASL message")
            self.fail(None)

    def closed(self, error: Exception | None) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._opened.client.authentication = None
        self._opened.closed(error)

    # For the API modules

    @property
    def mechanisms(self) -> Sequence[str]:
        return self._authenticator.mechanisms

    @property
    def is_complete(self) -> bool:
        return self._authenticator.is_complete

    def versions_answered(self) -> None:
        self._authenticator.versions_answered()

    def handshake(self, mechanism: str, version: int) -> ErrorCode:
        code = self._authenticator.handshake(mechanism, version)
        if code is ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            self._log("it asks for a SASL mechanism that is not enabled")
        return code

    def authenticate(self, token: bytes) -> tuple[bytes, int]:
        try:
            answer = self._authenticator.authenticate(token, self._dispatcher.clock.monotonic_ms())
        except AuthenticationFailedError as error:
            self._log(error.reason)
            raise
        if self._authenticator.is_complete:
            self._opened.client.principal = f"User:{self._authenticator.user}"
            self._connection.max_frame_bytes = self._max_request_bytes
            is_member = self._authenticator.user == self._member
            self._connection.standing = Standing.MEMBER if is_member else self._standing
        return answer

    def fail(self, answer: Callable[[], None] | None) -> None:
        """Answer, if there is an answer, and close: after the delay."""

        def end() -> None:
            if answer is not None:
                answer()
            self._connection.close(after_sending=True)

        self._connection.pause()
        self._timer = self._call_later(self._failure_delay_ms, end)

    # Parts

    def _take_token(self, token: bytes) -> None:
        """A token without a header, after SaslHandshake in version 0.

        Its answer has none either."""
        try:
            answer, _ = self.authenticate(token)
        except AuthenticationFailedError:
            self.fail(None)
        else:
            self._connection.send([len(answer).to_bytes(4, "big"), answer])

    def _refusal(self, data: memoryview) -> Sequence[Part] | None:
        """The API's own response with ILLEGAL_SASL_STATE.

        None for a request that cannot be read, or is large."""
        if len(data) >= _LARGE_BYTES:
            return None
        try:
            key, version, correlation_id, _, offset = decode_request_header(data)
            handler = self._dispatcher.handlers.get(key)
            if handler is None or not handler.min_version <= version <= handler.max_version:
                return None
            message = reader(api(key).request, version)(data, offset)[0]
            response = handler.error_response(message, version, ErrorCode.ILLEGAL_SASL_STATE)
            return None if response is None else encode_response(response, version, correlation_id)
        except (MalformedMessageError, KafkaError, ValueError):
            return None

    def _log(self, reason: str) -> None:
        self._failures.add(self._opened.client, reason)


def _api_key(number: int) -> ApiKey | None:
    try:
        return ApiKey(number)
    except ValueError:
        return None
