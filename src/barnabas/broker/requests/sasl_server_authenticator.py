"""The authentication of one connection by SASL, as a state machine without I/O.

    INITIAL_REQUEST --- a request ---> HANDSHAKE_OR_VERSIONS_REQUEST
    HANDSHAKE_OR_VERSIONS_REQUEST --- ApiVersions ---> HANDSHAKE_REQUEST
    any of the three --- SaslHandshake ---> AUTHENTICATE --- the mechanism is done ---> COMPLETE
    COMPLETE --- SaslHandshake, where sessions end (KIP-368) ---> HANDSHAKE_REQUEST

`admit` says what to do with a frame in the present state, and the modules of SaslHandshake and
SaslAuthenticate ask for the rest. After SaslHandshake in version 0 the frames are tokens without a
header. What fails stays failed.

In Kafka: `SaslServerAuthenticator`.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from typing import Protocol

from barnabas.security.errors import SaslError
from barnabas.wire.kafka.api import ApiKey
from barnabas.wire.kafka.errors import ErrorCode

__all__ = ["AuthenticationFailedError", "FrameVerdict", "SaslMechanism", "SaslServerAuthenticator", "SaslState"]

_MIN_REAUTH_INTERVAL_MS = 1000


class SaslMechanism(Protocol):
    """The server's side of one authentication."""

    user: str
    """The client's name, once it is proven."""

    @property
    def is_complete(self) -> bool: ...
    def evaluate(self, token: bytes) -> bytes:
        """The answer to the client's message. Raises `SaslError`."""
        ...


class SaslState(Enum):
    """How far an authentication is."""

    INITIAL_REQUEST = auto()
    HANDSHAKE_OR_VERSIONS_REQUEST = auto()
    HANDSHAKE_REQUEST = auto()
    AUTHENTICATE = auto()
    REAUTH_BAD_MECHANISM = auto()
    COMPLETE = auto()
    FAILED = auto()


class FrameVerdict(Enum):
    """What to do with a frame."""

    SERVE = auto()
    REFUSE = auto()
    """Answer with ILLEGAL_SASL_STATE, and close."""
    FAIL = auto()
    """Close as after a failed authentication: after the delay."""
    CLOSE = auto()
    """Close at once."""


class AuthenticationFailedError(SaslError):
    """The message is for the client; ``reason`` is for this broker's log."""

    def __init__(self, message: str, reason: str) -> None:
        super().__init__(message)
        self.reason = reason


_BEFORE_HANDSHAKE = frozenset(
    (SaslState.INITIAL_REQUEST, SaslState.HANDSHAKE_OR_VERSIONS_REQUEST, SaslState.HANDSHAKE_REQUEST)
)


class SaslServerAuthenticator:
    """One connection's authentication, and those that follow it."""

    __slots__ = (
        "_expires_ms",
        "_has_headers",
        "_make_mechanism",
        "_max_reauth_ms",
        "_mechanism",
        "_mechanism_name",
        "_reauthenticated_ms",
        "mechanisms",
        "state",
        "user",
    )

    def __init__(
        self, mechanisms: Sequence[str], make: Callable[[str], SaslMechanism], max_reauth_ms: Mapping[str, int]
    ) -> None:
        """``make`` makes the server's side of a mechanism.

        ``max_reauth_ms`` is by mechanism, 0 for no limit."""
        self.mechanisms = mechanisms
        self.state = SaslState.INITIAL_REQUEST
        self.user = ""
        """Who the client is, once it is proven."""
        self._make_mechanism = make
        self._max_reauth_ms = max_reauth_ms
        self._mechanism: SaslMechanism | None = None
        self._mechanism_name = ""
        self._has_headers = False
        self._expires_ms: int | None = None
        self._reauthenticated_ms: int | None = None  # the last authentication but the first

    @property
    def is_complete(self) -> bool:
        return self.state is SaslState.COMPLETE

    @property
    def needs_no_gate(self) -> bool:
        """Whether every request is served from now on."""
        return self.state is SaslState.COMPLETE and self._expires_ms is None

    @property
    def expects_token(self) -> bool:
        """Whether the next frame is a token without a header."""
        return self.state is SaslState.AUTHENTICATE and not self._has_headers

    def admit(self, api_key: int | None, now_ms: int) -> FrameVerdict:
        """What to do with a request; None for bytes that are none."""
        match self.state:
            case SaslState.COMPLETE:
                return self._admit_when_complete(api_key, now_ms)
            case SaslState.AUTHENTICATE:
                if api_key is None:
                    return self._ended(FrameVerdict.CLOSE)
                return FrameVerdict.SERVE if api_key == ApiKey.SASL_AUTHENTICATE else self._ended(FrameVerdict.REFUSE)
            case SaslState.REAUTH_BAD_MECHANISM | SaslState.FAILED:
                return self._ended(FrameVerdict.FAIL)
        if api_key is None:
            # Before Kafka 0.10 the first packet was a token of GSSAPI, which is not supported.
            first = self.state is SaslState.INITIAL_REQUEST
            return self._ended(FrameVerdict.FAIL if first else FrameVerdict.CLOSE)
        if self.state is SaslState.INITIAL_REQUEST:
            self.state = SaslState.HANDSHAKE_OR_VERSIONS_REQUEST
        if api_key == ApiKey.API_VERSIONS:
            return (
                FrameVerdict.SERVE if self.state is not SaslState.HANDSHAKE_REQUEST else self._ended(FrameVerdict.CLOSE)
            )
        return FrameVerdict.SERVE if api_key == ApiKey.SASL_HANDSHAKE else self._ended(FrameVerdict.FAIL)

    def _admit_when_complete(self, api_key: int | None, now_ms: int) -> FrameVerdict:
        if self._expires_ms is None:
            return FrameVerdict.SERVE
        if api_key == ApiKey.SASL_HANDSHAKE and (
            self._reauthenticated_ms is None or now_ms - self._reauthenticated_ms >= _MIN_REAUTH_INTERVAL_MS
        ):
            self._reauthenticated_ms = now_ms
            self.state = SaslState.HANDSHAKE_REQUEST
            return FrameVerdict.SERVE
        return FrameVerdict.SERVE if now_ms < self._expires_ms else FrameVerdict.CLOSE

    def _ended(self, verdict: FrameVerdict) -> FrameVerdict:
        self.state = SaslState.FAILED
        return verdict

    def versions_answered(self) -> None:
        """ApiVersions was answered without an error."""
        if self.state is SaslState.HANDSHAKE_OR_VERSIONS_REQUEST:
            self.state = SaslState.HANDSHAKE_REQUEST

    def handshake(self, mechanism: str, version: int) -> ErrorCode:
        """Take the client's mechanism; the error of the answer."""
        if self.state not in _BEFORE_HANDSHAKE:
            return ErrorCode.ILLEGAL_SASL_STATE
        if mechanism not in self.mechanisms:
            self.state = SaslState.FAILED
            return ErrorCode.UNSUPPORTED_SASL_MECHANISM
        self._has_headers = version >= 1
        if self.user and mechanism != self._mechanism_name:
            self.state = SaslState.REAUTH_BAD_MECHANISM
        else:
            self._mechanism_name = mechanism
            self._mechanism = self._make_mechanism(mechanism)
            self.state = SaslState.AUTHENTICATE
        return ErrorCode.NONE

    def authenticate(self, token: bytes, now_ms: int) -> tuple[bytes, int]:
        """The answer to a client's token, and for how many milliseconds the authentication holds
        (0 for ever, or not yet).

        Raises `AuthenticationFailedError`.
        """
        mechanism = self._mechanism
        assert mechanism is not None
        try:
            answer = mechanism.evaluate(token)
            if mechanism.is_complete and self.user not in ("", mechanism.user):
                raise SaslError(
                    f"Cannot change principals during re-authentication from User:{self.user}: User:{mechanism.user}",
                    is_for_client=True,
                )
        except SaslError as error:
            self.state = SaslState.FAILED
            self._mechanism = None
            what = "re-authentication" if self.user else "authentication"
            raise AuthenticationFailedError(
                str(error)
                if error.is_for_client
                else f"Authentication failed during {what} due to invalid credentials with SASL mechanism "
                f"{self._mechanism_name}",
                str(error),
            ) from None
        if not mechanism.is_complete:
            return answer, 0
        self.user = mechanism.user
        self._mechanism = None
        self.state = SaslState.COMPLETE
        lifetime_ms = self._max_reauth_ms.get(self._mechanism_name, 0)
        self._expires_ms = now_ms + lifetime_ms if lifetime_ms else None
        return answer, lifetime_ms
