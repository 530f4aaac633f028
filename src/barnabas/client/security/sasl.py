"""SASL on a connection to a broker, by librdkafka's properties: the user, the mechanism, and the
conversation with a broker.

In Kafka: `SaslClientAuthenticator`.
"""

import secrets
from collections.abc import Callable, Mapping
from typing import Protocol, TypeVar

from barnabas.base.excerpts import beginning, some_of
from barnabas.client.errors import AuthenticationError, ConfigurationError, LibrdkafkaOnlyError
from barnabas.client.properties.translation import refuse_other_names
from barnabas.security.errors import SaslError
from barnabas.security.mechanisms import SASL_MECHANISMS
from barnabas.security.sasl_client import converse
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas.wire.kafka.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from barnabas.wire.kafka.schema import Message

__all__ = ["Exchange", "LinkSasl"]

ResponseType = TypeVar("ResponseType", bound=Message)

_OF_LIBRDKAFKA = ("GSSAPI", "OAUTHBEARER")
_SASL_NAMES = frozenset(("sasl.mechanisms", "sasl.username", "sasl.password"))
_NONCE_BYTES = 24


class Exchange(Protocol):
    """Sends a request on the connection that is being opened, and returns the response."""

    def __call__(self, request: Message, answer: type[ResponseType], /) -> ResponseType: ...


class LinkSasl:
    """The identity with which all connections of one client authenticate."""

    def __init__(self, given: Mapping[str, str], protocol: str) -> None:
        """``protocol`` is for errors. Raises `ConfigurationError` for what cannot be done."""
        self._protocol = protocol
        self._mechanism = given.get("sasl.mechanisms", "").upper()
        if self._mechanism not in SASL_MECHANISMS:
            wrong = (
                f"sasl.mechanism={self._mechanism} is not supported by"
                if self._mechanism
                else "sasl.mechanism is missing for"
            )
            message = f"{wrong} this client: it has {', '.join(SASL_MECHANISMS)}"
            if self._mechanism in _OF_LIBRDKAFKA:
                raise LibrdkafkaOnlyError(message)
            raise ConfigurationError(message)
        refuse_other_names(given, "sasl.", _SASL_NAMES)
        self._username, self._password = given.get("sasl.username", ""), given.get("sasl.password", "")
        for name, value in (("sasl.username", self._username), ("sasl.password", self._password)):
            if not value:
                raise ConfigurationError(f"{name} is missing (or sasl.jaas.config with it): {self._protocol} needs it")
            if "\0" in value:
                raise ConfigurationError(f"{name} holds a NUL character, which SASL has no place for")

    def authenticate(self, exchange: Exchange, name: str) -> float | None:
        """Prove who this is; returns for how many seconds that holds, None for ever.

        Raises `AuthenticationError` for credentials or a mechanism that the broker does not accept.
        """
        answer = exchange(SaslHandshakeRequest(mechanism=self._mechanism), SaslHandshakeResponse)
        if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            offered = some_of(answer.mechanisms) or "none"
            raise AuthenticationError(
                f"{name} does not offer sasl.mechanism={self._mechanism}: it offers {offered}",
                code=int(ErrorCode.UNSUPPORTED_SASL_MECHANISM),
                name="UNSUPPORTED_SASL_MECHANISM",
            )
        if answer.error_code:
            raise AuthenticationError(
                f"{name} does not authenticate on this port: {ErrorCode.of(answer.error_code).message}",
                code=answer.error_code,
                name=ErrorCode.of(answer.error_code).name,
                remedy=f"check security.protocol={self._protocol}",
            )

        def step(token: bytes) -> SaslAuthenticateResponse:
            response = exchange(SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse)
            if response.error_code:
                code = ErrorCode.of(response.error_code)
                raise AuthenticationError(
                    f"{name} does not accept the credentials of {self._username}: {beginning(response.error_message or code.message)}",
                    code=int(code),
                    name=code.name,
                    remedy="check sasl.mechanism, the user's name and the password",
                )
            return response

        last = self._prove(step, name)
        return last.session_lifetime_ms / 1000 or None

    def _prove(self, step: Callable[[bytes], SaslAuthenticateResponse], name: str) -> SaslAuthenticateResponse:
        conversation = converse(self._mechanism, self._username, self._password, secrets.token_hex(_NONCE_BYTES))
        try:
            last = step(next(conversation))
            while True:
                last = step(conversation.send(last.auth_bytes))
        except StopIteration:
            return last
        except SaslError as error:
            raise AuthenticationError(f"{name}: {error}", name="SASL_AUTHENTICATION_FAILED") from error
