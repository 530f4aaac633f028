"""The properties of listeners with TLS and SASL, and the names under which a single
listener has its own values.

A property such as ``ssl.keystore.location`` is for all listeners;
``listener.name.internal.ssl.keystore.location`` for the one with the name INTERNAL;
``listener.name.internal.plain.sasl.jaas.config`` for one of its mechanisms. They are read at the
start. None changes while the broker runs.

In Kafka: `BrokerSecurityConfigs`, `SslConfigs`, `SaslConfigs`, `ListenerName.configPrefix`.
"""

from typing import NamedTuple

from barnabas.base.errors import ConfigError
from barnabas.base.settings import Kind, Setting, ValueCheck
from barnabas.broker.configuration.table import BrokerRow, read_broker_table
from barnabas.security.mechanisms import SASL_MECHANISMS

__all__ = [
    "LISTENER_PREFIX",
    "ROWS_SECURITY",
    "SECURITY_SETTINGS",
    "ListenerSetting",
    "asks_for_security",
    "listener_setting",
    "security_setting",
]

LISTENER_PREFIX = "listener.name."

_TABLE = """
connections.max.reauth.ms long - - 0
    Time after which SASL clients must authenticate again; 0 for never.
connection.failed.authentication.delay.ms int [0,...] - 100
    How long a connection stays open after it failed to authenticate.
sasl.enabled.mechanisms list - broker GSSAPI
    SASL mechanisms that clients may use: PLAIN, SCRAM-SHA-256, SCRAM-SHA-512. A listener with SASL
    needs it, because GSSAPI is not supported.
sasl.mechanism.inter.broker.protocol string - broker GSSAPI
    SASL mechanism among brokers, if their listener has SASL.
sasl.jaas.config password - broker -
    JAAS entry of a mechanism, as listener.name.LISTENER.MECHANISM.sasl.jaas.config: users of PLAIN
    (user_NAME="PASSWORD"), and this broker's own username and password towards other brokers.
sasl.server.max.receive.size int [1,...,2147483647] - 524288
    Largest SASL message before authentication, in bytes.
ssl.client.auth string [required,requested,none] broker none
    Whether clients must show a certificate: required, requested or none. A listener with SASL
    ignores this setting unless it has its own: `listener.name.LISTENER.ssl.client.auth`.
ssl.keystore.location string - broker -
    File with the broker's private key and certificate chain: PEM, JKS or PKCS12.
ssl.keystore.password password - broker -
    Password of the key store, if it is not PEM.
ssl.keystore.type string - broker JKS
    Type of the key store: JKS (PKCS12 too, as in Java), PKCS12 or PEM.
ssl.keystore.key password - broker -
    Private key as PEM text.
ssl.keystore.certificate.chain password - broker -
    Certificate chain as PEM text.
ssl.key.password password - broker -
    Password of the private key.
ssl.truststore.location string - broker -
    File with the certificates with which those of clients and of other brokers are verified: PEM,
    JKS or PKCS12.
ssl.truststore.password password - broker -
    Password of the trust store, if it is not PEM.
ssl.truststore.type string - broker JKS
    Type of the trust store: JKS (PKCS12 too, as in Java), PKCS12 or PEM.
ssl.truststore.certificates password - broker -
    Trusted certificates as PEM text.
ssl.enabled.protocols list [TLSv1.2,TLSv1.3] broker TLSv1.2,TLSv1.3
    TLS versions that are enabled.
ssl.endpoint.identification.algorithm string https broker https
    How the host names of other brokers are verified: https, or empty for not at all.
"""

_CHECKS: dict[str, ValueCheck] = {
    "https": lambda value: None if value.lower() in ("https", "") else "String must be https, or empty"
}
ROWS_SECURITY: list[BrokerRow] = list(read_broker_table(_TABLE, _CHECKS))
SECURITY_SETTINGS: dict[str, Setting] = {row.setting.name: row.setting for row in ROWS_SECURITY}
_PER_MECHANISM = frozenset(("sasl.jaas.config", "connections.max.reauth.ms"))
_OF_THE_BROKER = frozenset(("sasl.mechanism.inter.broker.protocol", "connection.failed.authentication.delay.ms"))
_MECHANISMS_BY_LOWER = {name.lower(): name for name in SASL_MECHANISMS}


class ListenerSetting(NamedTuple):
    """A name with a listener's prefix, taken apart."""

    listener: str
    """In capitals, as listeners are named."""
    mechanism: str | None
    setting: Setting


def listener_setting(name: str) -> ListenerSetting | None:
    """What a name with a prefix stands for; None for one that no listener can have."""
    if not name.startswith(LISTENER_PREFIX):
        return None
    listener, _, inner = name.removeprefix(LISTENER_PREFIX).partition(".")
    first, _, rest = inner.partition(".")
    mechanism = _MECHANISMS_BY_LOWER.get(first)
    if mechanism is not None and rest in _PER_MECHANISM:
        return ListenerSetting(listener.upper(), mechanism, SECURITY_SETTINGS[rest])
    if inner in SECURITY_SETTINGS and inner not in _OF_THE_BROKER and inner != "sasl.jaas.config":
        return ListenerSetting(listener.upper(), None, SECURITY_SETTINGS[inner])
    return None


def security_setting(name: str) -> Setting | None:
    """The property of listeners that a name stands for, with or without a prefix.

    None for another name."""
    found = listener_setting(name)
    return SECURITY_SETTINGS.get(name) if found is None else found.setting


def asks_for_security(setting: Setting, text: str) -> bool:
    """Whether a value is another than the default and the empty one."""
    if not text.strip():
        return setting.kind is Kind.PASSWORD and bool(text)
    if setting.default is None:
        return True
    try:
        return bool(setting.parse(text) != setting.parse(setting.default))
    except ConfigError:
        return True
