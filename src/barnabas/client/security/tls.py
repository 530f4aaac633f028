"""TLS on a connection to a broker, by librdkafka's properties.

In Kafka: `SslFactory`, `SslTransportLayer`.
"""

import os
import socket
import ssl
from collections.abc import Callable, Mapping

from barnabas.client.errors import AuthenticationError, ClientError, ConfigurationError, ConnectError
from barnabas.client.properties.translation import refuse_other_names
from barnabas.security.key_stores import Identity

__all__ = ["LinkTls"]

_SSL_NAMES = frozenset(
    (
        *("ssl.ca.location", "ssl.ca.pem", "ssl.certificate.location", "ssl.key.location", "ssl.key.password"),
        *("ssl.certificate.pem", "ssl.key.pem", "ssl.cipher.suites", "ssl.endpoint.identification.algorithm"),
    )
)
_VERIFICATION = "enable.ssl.certificate.verification"


class LinkTls:
    """The TLS of all connections of one client."""

    def __init__(self, given: Mapping[str, str], protocol: str) -> None:
        """``protocol`` is for errors. Raises `ConfigurationError` for what cannot be done."""
        self._protocol = protocol
        self._context = _tls_context(given)

    def encrypt(self, plain: socket.socket, host: str, name: str) -> socket.socket:
        """The socket that talks through TLS; the time limit of ``plain`` holds.

        Raises `AuthenticationError` for a certificate that is not accepted, `ConnectError`
        for a server without TLS.
        """
        try:
            return self._context.wrap_socket(plain, server_hostname=host)
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
                f"{name}: no TLS handshake ({_reason(error)})", remedy=f"check security.protocol={self._protocol}"
            ) from None

    def certificate_error(self, error: OSError, name: str) -> ClientError | None:
        """The error of a broker that does not accept this side's certificate, or has none
        of its own, if it is one.

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
        return isinstance(error, ssl.SSLWantReadError)


def _tls_context(given: Mapping[str, str]) -> ssl.SSLContext:
    refuse_other_names(given, "ssl.", _SSL_NAMES)
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
    # TLS 1.2 or later, with a certificate that is valid.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = algorithm == "https" and verifies == "true"
    if verifies == "false":
        context.verify_mode = ssl.CERT_NONE
    _load_trusted_certificates(context, given)
    _load_own_certificate(context, given)
    if ciphers := given.get("ssl.cipher.suites"):
        _load("ssl.cipher.suites", ciphers, lambda: context.set_ciphers(ciphers))
    return context


def _load_trusted_certificates(context: ssl.SSLContext, given: Mapping[str, str]) -> None:
    """The certificates with which brokers are verified: those named, or the system's."""
    location, text = given.get("ssl.ca.location"), given.get("ssl.ca.pem")
    if location:
        store = {"capath": location} if os.path.isdir(location) else {"cafile": location}
        _load("ssl.truststore.location (ssl.ca.location)", location, lambda: context.load_verify_locations(**store))
    if text:
        _load("ssl.ca.pem", "the text", lambda: context.load_verify_locations(cadata=text))
    if not location and not text:
        context.load_default_certs()
    else:
        # As in Java, any certificate of the chain may be trusted.
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN


def _load_own_certificate(context: ssl.SSLContext, given: Mapping[str, str]) -> None:
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
