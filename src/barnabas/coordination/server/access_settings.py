"""The settings of zoo.cfg that say who may do what (identities, the super user, quotas),
and what operators may see.

In ZooKeeper: system properties of DigestAuthenticationProvider, AuthenticationHelper,
ZooKeeperServer and JettyAdminServer; MetricsProviderBootstrap.
"""

import hashlib
from collections.abc import Callable

from barnabas.base.errors import ConfigError
from barnabas.base.settings import Kind, Setting, Values, at_least, between, one_of
from barnabas.net.ssl_contexts import TLS_PROTOCOLS, SslSettings
from barnabas.net.zookeeper_tls import read_named_file, read_zookeeper_tls
from barnabas.security.jaas import JAAS_FILE
from barnabas.security.key_stores import check_store_type

__all__ = [
    "AUTHENTICATION_PROVIDERS",
    "CLIENT_ACCESS_SETTINGS",
    "OPERATOR_SETTINGS",
    "PROMETHEUS_PROVIDER",
    "TLS_SETTINGS",
    "hash_name",
    "read_jaas",
    "read_tls_options",
]

AUTHENTICATION_PROVIDERS = {
    f"org.apache.zookeeper.server.auth.{name}AuthenticationProvider": scheme
    for name, scheme in (("Digest", "digest"), ("IP", "ip"), ("SASL", "sasl"), ("X509", "x509"))
}
"""The classes that authProvider.N may name, and their schemes."""


def _digest_algorithm(value: str) -> str | None:
    try:
        hashlib.new(hash_name(value))
    except ValueError:
        return "it must be the name of a hash algorithm, such as SHA1 or SHA3-256"
    return None


def hash_name(algorithm: str) -> str:
    """Python's name for one of Java's: sha1 for SHA1 and SHA-1, sha3_256 for SHA3-256."""
    name = algorithm.lower()
    return name.replace("-", "_") if name.startswith("sha3-") else name.replace("-", "")


def read_jaas(settings: Values, read_text: Callable[[str], str]) -> str:
    """The text of the JAAS file. Raises `ConfigError`."""
    return read_named_file(settings, JAAS_FILE, read_text)


def read_tls_options(settings: Values, prefix: str, why: str, read_text: Callable[[str], str]) -> SslSettings:
    """The settings with a prefix: ssl for clients, ssl.quorum for members.

    ``why`` says what asks for TLS. ``read_text`` reads a file, and raises OSError.
    Raises `ConfigError`.
    """
    if not settings[f"{prefix}.keyStore.location"]:
        raise ConfigError(f"{why}, and {prefix}.keyStore.location does not name the server's key")
    return read_zookeeper_tls(settings, prefix, read_text, client_auth=settings[f"{prefix}.clientAuth"])


def _digest_or_empty(value: str) -> str | None:
    user, _, digest = value.strip().partition(":")
    return None if not value.strip() or (user and digest) else "user:base64(hash(user:password)) is expected"


CLIENT_ACCESS_SETTINGS = [
    Setting("skipACL", Kind.STRING, "no", "yes lets every client do everything.", one_of("yes", "no")),
    Setting("enforceQuota", Kind.BOOLEAN, "false", "Whether writes beyond the hard limit of a quota are refused."),
    Setting("DigestAuthenticationProvider.enabled", Kind.BOOLEAN, "true", "Whether the digest scheme exists."),
    Setting(
        "DigestAuthenticationProvider.digestAlg", Kind.STRING, "SHA1",
        "How passwords of the digest scheme are hashed: SHA1, SHA-256, SHA3-256 ...", _digest_algorithm,
    ),
    Setting(
        "DigestAuthenticationProvider.superDigest", Kind.PASSWORD, "",
        "The super user, which no ACL restricts, as user:base64(hash(user:password)): see `zookeeper-shell HOST digest`.",
        _digest_or_empty,
    ),
    Setting(
        "enforce.auth.enabled", Kind.BOOLEAN, "false",
        "Whether clients must authenticate before their first request.",
    ),
    Setting("enforce.auth.schemes", Kind.LIST, "", "The schemes of which one is needed with enforce.auth.enabled."),
    Setting("requireClientAuthScheme", Kind.STRING, "", "The same for one scheme, as ZooKeeper 3.5 had it."),
    Setting(
        JAAS_FILE, Kind.STRING, "",
        "A JAAS file with the users of SASL, whose mechanism is DIGEST-MD5; a Java system property of this name.",
    ),
    Setting("sasl.serverconfig", Kind.STRING, "Server", "The section of that file with this server's users."),
    Setting("superUser", Kind.STRING, "", "The SASL user that is a super user."),
    Setting("X509AuthenticationProvider.superUser", Kind.STRING, "", "The certificate subject that is a super user."),
    Setting("SASLAuthenticationProvider.superPassword", Kind.PASSWORD, "", "The password of the SASL user super."),
    Setting(
        "allowSaslFailedClients", Kind.BOOLEAN, "false",
        "Whether clients stay connected, without the identity, when their SASL authentication fails.",
    ),
    Setting("sessionRequireClientSASLAuth", Kind.BOOLEAN, "false", "The same for the scheme sasl."),
]  # fmt: skip
"""Merged into the table of all settings."""

PROMETHEUS_PROVIDER = "org.apache.zookeeper.metrics.prometheus.PrometheusMetricsProvider"
_PROVIDERS = (
    "org.apache.zookeeper.metrics.impl.DefaultMetricsProvider",
    "org.apache.zookeeper.metrics.impl.NullMetricsProvider",
    PROMETHEUS_PROVIDER,
)

_ALL = "0.0.0.0"  # noqa: S104  # ZooKeeper's default; both servers are off by default

TLS_SETTINGS = [
    Setting("secureClientPort", Kind.INT, None, "The port for clients with TLS; 0 takes any free one.", between(0, 65535)),
    Setting("secureClientPortAddress", Kind.STRING, "", "The address that it listens on; empty for all."),
    Setting(
        "ssl.keyStore.location", Kind.STRING, "",
        "The server's key with its certificate and their chain: one PEM file, JKS, or PKCS12.",
    ),
    Setting("ssl.keyStore.password", Kind.PASSWORD, "", "The password of the store and of its key."),
    Setting("ssl.keyStore.passwordPath", Kind.STRING, "", "A file with that password."),
    Setting("ssl.keyStore.type", Kind.STRING, "", "PEM, JKS or PKCS12; empty for what the file is.", check_store_type),
    Setting(
        "ssl.trustStore.location", Kind.STRING, "",
        "The certificates with which clients' are verified: PEM, JKS, or PKCS12.",
    ),
    Setting("ssl.trustStore.password", Kind.PASSWORD, "", "The password of that store; PEM needs none."),
    Setting("ssl.trustStore.passwordPath", Kind.STRING, "", "A file with that password."),
    Setting("ssl.trustStore.type", Kind.STRING, "", "PEM, JKS or PKCS12; empty for what the file is.", check_store_type),
    Setting(
        "ssl.clientAuth", Kind.STRING, "need",
        "Whether clients must show a certificate, may, or are not asked.", one_of("need", "want", "none"),
    ),
    Setting("ssl.protocol", Kind.STRING, "", "The protocol, if ssl.enabledProtocols is not set.", one_of("", *TLS_PROTOCOLS)),
    Setting("ssl.enabledProtocols", Kind.LIST, "", "TLSv1.2, TLSv1.3, or both; empty for both.", one_of(*TLS_PROTOCOLS)),
    Setting("ssl.handshakeDetectionTimeoutMillis", Kind.INT, "5000", "Has no effect: a handshake may take 10 s.", at_least(0)),
]  # fmt: skip
"""TLS for clients."""

OPERATOR_SETTINGS = [
    Setting("audit.enable", Kind.BOOLEAN, "false", "Whether each write is logged with its user, under the name barnabas.audit."),
    Setting(
        "audit.impl.class", Kind.STRING, "org.apache.zookeeper.audit.Slf4jAuditLogger",
        "That log is the only one.", one_of("org.apache.zookeeper.audit.Slf4jAuditLogger"),
    ),
    Setting(
        "admin.enableServer", Kind.BOOLEAN, "false",
        "Whether the commands of the four-letter words, and more, are offered as JSON over HTTP, to all who can connect.",
    ),
    Setting("admin.serverAddress", Kind.STRING, _ALL, "The address that the admin server listens on."),
    Setting(
        "admin.allowedHosts", Kind.LIST, "",
        "Names of hosts by which browsers may ask for the admin server, beside addresses, localhost and the names of this machine "
        "and of the ensemble's servers. ZooKeeper has no such setting.",
    ),
    Setting("admin.serverPort", Kind.INT, "8080", "Its port; 0 takes any free one.", between(0, 65535)),
    Setting("admin.commandURL", Kind.STRING, "/commands", "The path below which it has the commands."),
    Setting("admin.idleTimeout", Kind.INT, "30000", "Ms that each step of a request and its answer may take.", at_least(1)),
    Setting(
        "admin.snapshot.enabled", Kind.BOOLEAN, "true",
        "Whether the admin server gives a snapshot to users who have all permissions on the root node.",
    ),
    Setting(
        "admin.restore.enabled", Kind.BOOLEAN, "true",
        "Whether users who have all permissions on the root node may replace the state of a standalone server by a snapshot.",
    ),
    Setting(
        "admin.rateLimiterIntervalInMS", Kind.INT, "300000", "Ms between two snapshots, or two restores, of the admin server.",
        at_least(0),
    ),
    Setting(
        "metricsProvider.className", Kind.STRING, _PROVIDERS[0],
        f"{PROMETHEUS_PROVIDER} offers the figures of mntr over HTTP, in the path /metrics.", one_of(*_PROVIDERS),
    ),
    Setting("metricsProvider.httpHost", Kind.STRING, _ALL, "The address that it listens on."),
    Setting("metricsProvider.httpPort", Kind.INT, "7000", "Its port; 0 takes any free one.", between(0, 65535)),
]  # fmt: skip
"""Likewise."""
