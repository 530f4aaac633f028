"""The settings of zoo.cfg that protect the connections between the members of an
ensemble: TLS, and SASL.

What is asked for and not possible ends the start. In ZooKeeper: QuorumX509Util, QuorumAuth, and the
checks of QuorumPeerConfig.
"""

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

from barnabas.base.errors import ConfigError
from barnabas.base.settings import Kind, Setting, Values, at_least, one_of
from barnabas.coordination.quorum.authentication import QuorumAuthentication
from barnabas.coordination.server.access_settings import (
    read_jaas,
    read_tls_options,
)
from barnabas.net.ssl_contexts import TLS_PROTOCOLS, SslSettings
from barnabas.security.digest_md5 import DigestMd5Client, DigestMd5Server
from barnabas.security.jaas import JAAS_FILE, digest_credentials, digest_users
from barnabas.security.key_stores import check_store_type

__all__ = [
    "QUORUM_SECURITY_SETTINGS",
    "QuorumTlsOptions",
    "check_quorum_authentication",
    "quorum_authentication",
    "quorum_tls_options",
]

_SERVICE, _SERVER_NAME = "zookeeper-quorum", "zk-quorum-sasl-md5"  # those of ZooKeeper's servers
_ENABLED, _LEARNER, _SERVER = (
    f"quorum.auth.{name}" for name in ("enableSasl", "learnerRequireSasl", "serverRequireSasl")
)

QUORUM_SECURITY_SETTINGS = [
    Setting(
        "sslQuorum", Kind.BOOLEAN, "false",
        "Whether members connect with TLS to each other, on the quorum ports and the election ports.",
    ),
    Setting(
        "portUnification", Kind.BOOLEAN, "false",
        "Whether these ports accept connections with TLS and without: for the restart of an ensemble, server by server.",
    ),
    Setting(
        "ssl.quorum.keyStore.location", Kind.STRING, "",
        "The server's key with its certificate and their chain for other members: one PEM file, JKS, or PKCS12.",
    ),
    Setting("ssl.quorum.keyStore.password", Kind.PASSWORD, "", "The password of the store and of its key."),
    Setting("ssl.quorum.keyStore.passwordPath", Kind.STRING, "", "A file with that password."),
    Setting("ssl.quorum.keyStore.type", Kind.STRING, "", "PEM, JKS or PKCS12; empty for what the file is.", check_store_type),
    Setting(
        "ssl.quorum.trustStore.location", Kind.STRING, "",
        "The certificates with which other members' are verified: PEM, JKS, or PKCS12.",
    ),
    Setting("ssl.quorum.trustStore.password", Kind.PASSWORD, "", "The password of that store; PEM needs none."),
    Setting("ssl.quorum.trustStore.passwordPath", Kind.STRING, "", "A file with that password."),
    Setting("ssl.quorum.trustStore.type", Kind.STRING, "", "PEM, JKS or PKCS12; empty for what the file is.", check_store_type),
    Setting(
        "ssl.quorum.clientAuth", Kind.STRING, "need",
        "Whether a member that connects must show a certificate, may, or is not asked.", one_of("need", "want", "none"),
    ),
    Setting(
        "ssl.quorum.hostnameVerification", Kind.BOOLEAN, "true",
        "Whether a member's certificate must be for its host: that of its server.N line, or the address it connects from.",
    ),
    Setting(
        "ssl.quorum.clientHostnameVerification", Kind.BOOLEAN, "true",
        "false to check this for members that are connected to, and not for those that connect.",
    ),
    Setting(
        "ssl.quorum.protocol", Kind.STRING, "", "The protocol, if ssl.quorum.enabledProtocols is not set.",
        one_of("", *TLS_PROTOCOLS),
    ),
    Setting(
        "ssl.quorum.enabledProtocols", Kind.LIST, "", "TLSv1.2, TLSv1.3, or both; empty for both.", one_of(*TLS_PROTOCOLS)
    ),
    Setting(
        "ssl.quorum.handshakeDetectionTimeoutMillis", Kind.INT, "5000",
        "Ms that a connection has for its TLS handshake.", at_least(1),
    ),
    Setting(
        _ENABLED, Kind.BOOLEAN, "false",
        "Whether members authenticate each other with SASL, DIGEST-MD5; their users are in java.security.auth.login.config.",
    ),
    Setting(_LEARNER, Kind.BOOLEAN, "false", "Whether this server authenticates when it connects to another member."),
    Setting(_SERVER, Kind.BOOLEAN, "false", "Whether a member that connects to this server must authenticate."),
    Setting(
        "quorum.auth.learner.saslLoginContext", Kind.STRING, "QuorumLearner",
        "The section of the JAAS file with this server's username and password.",
    ),
    Setting(
        "quorum.auth.server.saslLoginContext", Kind.STRING, "QuorumServer",
        "The section of the JAAS file with the users that may connect.",
    ),
]  # fmt: skip
"""Merged into the table of all settings."""


class QuorumTlsOptions(NamedTuple):
    """What TLS between members needs, read from the settings."""

    tls: SslSettings
    connects_with_tls: bool
    accepts_plain: bool
    verifies_server_hosts: bool
    verifies_client_hosts: bool
    handshake_timeout_ms: int


def quorum_tls_options(settings: Values, read_text: Callable[[str], str]) -> QuorumTlsOptions | None:
    """None without TLS. ``read_text`` reads a file, and raises OSError. Raises `ConfigError`."""
    if not (settings["sslQuorum"] or settings["portUnification"]):
        return None
    name = "sslQuorum" if settings["sslQuorum"] else "portUnification"
    verifies_hosts = settings["ssl.quorum.hostnameVerification"]
    return QuorumTlsOptions(
        read_tls_options(settings, "ssl.quorum", f"{name} is true", read_text),
        connects_with_tls=settings["sslQuorum"],
        accepts_plain=settings["portUnification"],
        verifies_server_hosts=verifies_hosts,
        verifies_client_hosts=verifies_hosts and settings["ssl.quorum.clientHostnameVerification"],
        handshake_timeout_ms=settings["ssl.quorum.handshakeDetectionTimeoutMillis"],
    )


def check_quorum_authentication(settings: Values) -> None:
    """Raises `ConfigError` for settings of SASL between members that contradict each other."""
    for name in (_LEARNER, _SERVER):
        if settings[name] and not settings[_ENABLED]:
            raise ConfigError(f"{_ENABLED} is disabled, so {name} cannot be enabled: set both, or none")
    if settings[_SERVER] and not settings[_LEARNER]:
        raise ConfigError(
            f"{_LEARNER} is disabled, so {_SERVER} cannot be enabled: the other members would refuse this server"
        )


def quorum_authentication(
    settings: Values, read_text: Callable[[str], str], random_bytes: Callable[[int], bytes]
) -> QuorumAuthentication | None:
    """None without SASL. ``read_text`` reads a file, and raises OSError. Raises `ConfigError`."""
    is_enabled, connects_with_sasl, is_required = (settings[name] for name in (_ENABLED, _LEARNER, _SERVER))
    if not is_enabled:
        return None
    if not settings[JAAS_FILE]:
        raise ConfigError(f"{_ENABLED} is true, and {JAAS_FILE} names no file with the users")
    text, path = read_jaas(settings, read_text), settings[JAAS_FILE]
    section = settings["quorum.auth.server.saslLoginContext"]
    users = digest_users(text, path, section)
    if not users:
        raise ConfigError(f'{path} has no users in its section {section}: write user_NAME="PASSWORD" for each')
    user, password = digest_credentials(text, path, settings["quorum.auth.learner.saslLoginContext"])
    return QuorumAuthentication(
        new_server=partial(DigestMd5Server, users, _SERVICE, _SERVER_NAME, random_bytes),
        is_required=is_required,
        new_learner=partial(DigestMd5Client, user, password, _SERVICE, _SERVER_NAME, random_bytes)
        if connects_with_sasl
        else None,
    )
