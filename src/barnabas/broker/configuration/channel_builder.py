"""What each connection becomes: the handler of a client's frames, behind SASL where its listener
has it, and the login of this broker's connections to others.

A listener with TLS and without SASL names its clients by their certificates.

In Kafka: `ChannelBuilders`, `SaslChannelBuilder`, `SslChannelBuilder`.
"""

from collections.abc import Iterable, Mapping
from functools import partial

from barnabas.base.clock import CallLater
from barnabas.base.network import Connection, FrameHandler
from barnabas.base.randomness import Random
from barnabas.broker.cluster.channels import ChannelLogin
from barnabas.broker.configuration.listener_security import BrokerLogin, ListenerSecurity, SaslSettings
from barnabas.broker.configuration.scram_credentials import ScramCredentials
from barnabas.broker.requests.authentication_failures import AuthenticationFailures
from barnabas.broker.requests.dispatch import ClientConnection, Dispatcher
from barnabas.broker.requests.sasl_connection import SaslConnection
from barnabas.broker.requests.sasl_server_authenticator import SaslMechanism, SaslServerAuthenticator
from barnabas.net.tls_layer import TlsLink
from barnabas.security.mechanisms import PLAIN, SCRAM_MECHANISMS
from barnabas.security.plain import PlainServer
from barnabas.security.principals import subject_name
from barnabas.security.sasl_client import login_of_broker
from barnabas.security.scram import ScramServer

__all__ = ["ChannelBuilder", "channel_login", "enables_scram"]

_NONCE_BYTES = 24


def enables_scram(listeners: Iterable[ListenerSecurity]) -> bool:
    """Whether a listener has a mechanism of SCRAM, so that the credentials of users are needed."""
    return any(listener.sasl and SCRAM_MECHANISMS.keys() & listener.sasl.mechanisms for listener in listeners)


def channel_login(login: BrokerLogin | None, rng: Random) -> ChannelLogin | None:
    """How connections to other brokers authenticate; None where they do not. Raises `SaslError`."""
    if login is None:
        return None
    begin = login_of_broker(login.mechanism, login.username, login.password, partial(_nonce, rng))
    return ChannelLogin(login.mechanism, begin)


class ChannelBuilder:
    """Makes the handlers of new connections, by their listeners."""

    def __init__(
        self,
        security: Mapping[str, ListenerSecurity],
        credentials: ScramCredentials,
        dispatcher: Dispatcher,
        call_later: CallLater,
        rng: Random,
    ) -> None:
        """``security`` is by the names of listeners, ``credentials`` those of SCRAM."""
        self._security = security
        self._credentials = credentials
        self._dispatcher = dispatcher
        self._call_later = call_later
        self._failures = AuthenticationFailures(call_later)
        self._rng = rng

    def accept(self, listener: str, connection: Connection) -> FrameHandler:
        """The frame handler of a new connection."""
        opened = self._dispatcher.accept(listener, connection)
        security = self._security[listener]
        sasl = security.sasl
        if sasl is not None:
            return SaslConnection(
                self._dispatcher,
                opened,
                connection,
                SaslServerAuthenticator(sasl.mechanisms, partial(self._mechanism, sasl), sasl.max_reauth_ms),
                self._call_later,
                self._failures,
                max_receive_bytes=sasl.max_receive_bytes,
                failure_delay_ms=sasl.failure_delay_ms,
                member=None if security.login is None else security.login.username,
            )
        if isinstance(connection, TlsLink):
            connection.on_secured = partial(_take_principal, connection, opened)
        return opened

    def close(self) -> None:
        """Write what was counted of failed authentications."""
        self._failures.close()

    def _mechanism(self, sasl: SaslSettings, name: str) -> SaslMechanism:
        """The server's side of a mechanism that is enabled."""
        if name == PLAIN:
            return PlainServer(sasl.plain_users)
        credentials = self._credentials
        return ScramServer(
            name, partial(credentials.find, name), partial(credentials.stand_ins.make, name), _nonce(self._rng)
        )


def _take_principal(connection: TlsLink, opened: ClientConnection) -> None:
    certificate = connection.peer_certificate
    if certificate and (name := subject_name(certificate)) is not None:
        opened.client.principal = f"User:{name}"


def _nonce(rng: Random) -> str:
    return rng.randbytes(_NONCE_BYTES).hex()
