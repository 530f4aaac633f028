"""How a connection to a broker is protected: TLS around it, and SASL on it, by the properties of the Java clients or of librdkafka.

`AdminConnection` works with ``PLAINTEXT``, ``SSL``, ``SASL_PLAINTEXT`` and ``SASL_SSL``, and with the mechanisms
PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512. What else a property asks for is refused before anything is sent: a connection is
never less protected than its properties say.

In Kafka: `SslFactory`, `SaslClientAuthenticator`.
"""

import os
import socket
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Protocol, TypeVar

from barnabas.base.hints import did_you_mean
from barnabas.client.errors import (
    AuthenticationError,
    ClientError,
    ConfigurationError,
    ConnectError,
    LibrdkafkaOnlyError,
)
from barnabas.client.properties import renamed_for_all, translate_login
from barnabas.security.errors import SaslError
from barnabas.security.key_stores import Identity
from barnabas.wire.kafka.errors import ErrorCode
from barnabas.wire.kafka.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas.wire.kafka.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from barnabas.wire.kafka.schema import Message

if TYPE_CHECKING:  # imported where a connection is protected: most are not, and the tools are to start fast
    import ssl

__all__ = ["LinkSecurity"]

ResponseType = TypeVar("ResponseType", bound=Message)


class Exchange(Protocol):
    """Sends a request on the connection that is being opened, and returns the response."""

    def __call__(self, request: Message, answer: type[ResponseType], /) -> ResponseType: ...


_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_PLAIN = "PLAIN"
_MECHANISMS = (_PLAIN, "SCRAM-SHA-256", "SCRAM-SHA-512")
_OF_LIBRDKAFKA = ("GSSAPI", "OAUTHBEARER")
_SASL_NAMES = frozenset(("sasl.mechanisms", "sasl.username", "sasl.password"))
_SSL_NAMES = frozenset(
    (
        *("ssl.ca.location", "ssl.ca.pem", "ssl.certificate.location", "ssl.key.location", "ssl.key.password"),
        *("ssl.certificate.pem", "ssl.key.pem", "ssl.cipher.suites", "ssl.endpoint.identification.algorithm"),
    )
)
_NONCE_BYTES = 24
_VERIFICATION = "enable.ssl.certificate.verification"


class LinkSecurity:
    """The protection of all connections of one client. Raises `ConfigurationError` for what cannot be done."""

    def __init__(self, properties: Mapping[str, str]) -> None:
        given = renamed_for_all(properties)
        translate_login(given)
        self.protocol = given.get("security.protocol", "PLAINTEXT").upper()
        if self.protocol not in _PROTOCOLS:
            raise ConfigurationError(
                f"Invalid value {self.protocol} for configuration security.protocol: {', '.join(_PROTOCOLS)} are expected"
            )
        self._tls = _tls_context(given) if self.protocol.endswith("SSL") else None
        self._mechanism = ""
        if self.protocol.startswith("SASL"):
            self._take_credentials(given)

    def _take_credentials(self, given: Mapping[str, str]) -> None:
        self._mechanism = given.get("sasl.mechanisms", "").upper()
        if self._mechanism not in _MECHANISMS:
            wrong = (
                f"sasl.mechanism={self._mechanism} is not supported by"
                if self._mechanism
                else "sasl.mechanism is missing for"
            )
            message = f"{wrong} this client: it has {', '.join(_MECHANISMS)}"
            if self._mechanism in _OF_LIBRDKAFKA:
                raise LibrdkafkaOnlyError(message)
            raise ConfigurationError(message)
        _refuse_others(given, "sasl.", _SASL_NAMES)
        self._username, self._password = given.get("sasl.username", ""), given.get("sasl.password", "")
        for name, value in (("sasl.username", self._username), ("sasl.password", self._password)):
            if not value:
                raise ConfigurationError(f"{name} is missing (or sasl.jaas.config with it): {self.protocol} needs it")
            if "\0" in value:
                raise ConfigurationError(f"{name} holds a NUL character, which SASL has no place for")

    def encrypt(self, plain: socket.socket, host: str, name: str) -> socket.socket:
        """The socket that talks through TLS, where the properties ask for it; the time limit of ``plain`` holds.

        Raises `AuthenticationError` for a certificate that is not accepted, `ConnectError` for a server without TLS.
        """
        if self._tls is None:
            return plain
        import ssl

        try:
            return self._tls.wrap_socket(plain, server_hostname=host)
        except ssl.SSLCertVerificationError as error:
            raise AuthenticationError(
                f"{name}: the broker's certificate is not accepted: {error.verify_message}",
                name="_SSL",
                remedy="check ssl.truststore.location (ssl.ca.location), and that the certificate names this host",
            ) from None
        except TimeoutError:
            raise ConnectError(f"{name} did not answer the TLS handshake in time: does it speak TLS?") from None
        except OSError as error:
            raise self.certificate_error(error, name) or ConnectError(
                f"{name}: no TLS handshake ({_reason(error)})", remedy=f"check security.protocol={self.protocol}"
            ) from None

    def certificate_error(self, error: OSError, name: str) -> ClientError | None:
        """The error of a broker that does not accept this side's certificate, or has none of its own, if it is one.

        With TLS 1.3 a client learns of it at its first read.
        """
        reason = getattr(error, "reason", None) or ""
        if "ALERT" not in reason or not ("CERTIFICATE" in reason or "UNKNOWN_CA" in reason):
            return None
        return AuthenticationError(
            f"{name} does not accept this client's certificate, or the lack of one ({_reason(error)})",
            name="_SSL",
            remedy="check ssl.keystore.location (ssl.certificate.location and ssl.key.location)",
        )

    def is_idle(self, error: OSError) -> bool:
        """Whether a read that does not wait failed because there is nothing to read."""
        if self._tls is None:
            return isinstance(error, BlockingIOError)
        import ssl

        return isinstance(error, ssl.SSLWantReadError)

    def authenticate(self, exchange: Exchange, name: str) -> float | None:
        """Prove who this is, where the properties ask for it; returns for how many seconds that holds, None for ever.

        Raises `AuthenticationError` for credentials or a mechanism that the broker does not accept.
        """
        if not self._mechanism:
            return None
        answer = exchange(SaslHandshakeRequest(mechanism=self._mechanism), SaslHandshakeResponse)
        if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            offered = ", ".join(answer.mechanisms) or "none"
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
                remedy=f"check security.protocol={self.protocol}",
            )

        def step(token: bytes) -> SaslAuthenticateResponse:
            response = exchange(SaslAuthenticateRequest(auth_bytes=token), SaslAuthenticateResponse)
            if response.error_code:
                code = ErrorCode.of(response.error_code)
                raise AuthenticationError(
                    f"{name} does not accept the credentials of {self._username}: {response.error_message or code.message}",
                    code=int(code),
                    name=code.name,
                    remedy="check sasl.mechanism, the user's name and the password",
                )
            return response

        last = self._prove(step, name)
        return last.session_lifetime_ms / 1000 or None

    def _prove(self, step: Callable[[bytes], SaslAuthenticateResponse], name: str) -> SaslAuthenticateResponse:
        import secrets

        from barnabas.security.sasl_client import converse

        conversation = converse(self._mechanism, self._username, self._password, secrets.token_hex(_NONCE_BYTES))
        try:
            last = step(next(conversation))
            while True:
                last = step(conversation.send(last.auth_bytes))
        except StopIteration:
            return last
        except SaslError as error:
            raise AuthenticationError(f"{name}: {error}", name="SASL_AUTHENTICATION_FAILED") from error


def _refuse_others(given: Mapping[str, str], prefix: str, known: Collection[str]) -> None:
    """What is not done must not be taken for done; librdkafka refuses what it does not know either."""
    for name in given:
        if name.startswith(prefix) and name not in known:
            raise LibrdkafkaOnlyError(
                f"{name} is not supported by this client{did_you_mean(name, known)}", remedy="leave it out"
            )


def _tls_context(given: Mapping[str, str]) -> "ssl.SSLContext":
    import ssl

    _refuse_others(given, "ssl.", _SSL_NAMES)
    algorithm = given.get("ssl.endpoint.identification.algorithm", "https").lower()
    if algorithm not in ("https", "none"):
        raise ConfigurationError(
            f"Invalid value {algorithm} for configuration ssl.endpoint.identification.algorithm: https or none is expected"
        )
    verifies = given.get(_VERIFICATION, "true").lower()
    if verifies not in ("true", "false"):
        raise ConfigurationError(
            f"Invalid value {verifies} for configuration {_VERIFICATION}: true or false is expected"
        )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)  # TLS 1.2 or later, with a certificate that is valid
    context.check_hostname = algorithm == "https" and verifies == "true"
    if verifies == "false":
        context.verify_mode = ssl.CERT_NONE
    _load_trusted_certificates(context, given)
    _load_own_certificate(context, given)
    if ciphers := given.get("ssl.cipher.suites"):
        _load("ssl.cipher.suites", ciphers, lambda: context.set_ciphers(ciphers))
    return context


def _load_trusted_certificates(context: "ssl.SSLContext", given: Mapping[str, str]) -> None:
    """The certificates with which brokers are verified: those named, or the system's."""
    import ssl

    location, text = given.get("ssl.ca.location"), given.get("ssl.ca.pem")
    if location:
        store = {"capath": location} if os.path.isdir(location) else {"cafile": location}
        _load("ssl.truststore.location (ssl.ca.location)", location, lambda: context.load_verify_locations(**store))
    if text:
        _load("ssl.ca.pem", "the text", lambda: context.load_verify_locations(cadata=text))
    if not location and not text:
        context.load_default_certs()
    else:
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # as for Java: any certificate of the chain will do


def _load_own_certificate(context: "ssl.SSLContext", given: Mapping[str, str]) -> None:
    """This side's certificate, for brokers that ask for one."""
    certificate, key = given.get("ssl.certificate.location"), given.get("ssl.key.location")
    chain_text, key_text = given.get("ssl.certificate.pem"), given.get("ssl.key.pem")
    password = given.get("ssl.key.password", "")
    if key and not certificate:
        raise ConfigurationError("ssl.key.location is given without ssl.certificate.location")
    if bool(chain_text) != bool(key_text):
        raise ConfigurationError("ssl.certificate.pem and ssl.key.pem are given together, or neither")
    if chain_text and key_text:
        from barnabas.net.ssl_contexts import load_identity

        identity = Identity(key_text, chain_text)
        _load("ssl.certificate.pem and ssl.key.pem", "the text", lambda: load_identity(context, identity, password))
    if certificate:
        _load(
            "ssl.keystore.location (ssl.certificate.location, ssl.key.location)",
            certificate if key in (None, certificate) else f"{certificate} and {key}",
            lambda: context.load_cert_chain(certificate, key or None, password=lambda: password),
        )


def _load(name: str, what: str, load: Callable[[], None]) -> None:
    import ssl

    try:
        load()
    except ssl.SSLError as error:
        raise ConfigurationError(
            f"{name}: {what} cannot be used ({_reason(error)}): is it whole, is its password right?"
        ) from None
    except (OSError, ValueError) as error:
        raise ConfigurationError(
            f"{name}: {what} cannot be read: {getattr(error, 'strerror', None) or error}"
        ) from None


def _reason(error: OSError) -> str:
    return (getattr(error, "reason", None) or error.strerror or str(error)).lower().replace("_", " ")
