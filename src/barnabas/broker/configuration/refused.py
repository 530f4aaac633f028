"""Properties that ask for protection which this version does not have: a value other
than the default is refused.

A broker that ignored them would look protected and be open. So the start ends with an error that
names the property, and a dynamic change is answered with the same error. Names and defaults are
Kafka 3.9's. What listeners can have is in `security_settings`.

Kafka has no counterpart.
"""

from difflib import get_close_matches
from functools import partial

from barnabas.base.errors import ConfigError
from barnabas.base.settings import Setting, ValueCheck
from barnabas.broker.configuration.authorizer_settings import AUTHORIZER_NAMES
from barnabas.broker.configuration.security_settings import SECURITY_SETTINGS, listener_setting
from barnabas.broker.configuration.table import BrokerRow, read_broker_table

__all__ = ["ROWS_REFUSED", "asks_for_protection", "is_refused", "refuse_protection", "wrong_unlisted"]

_TABLES = {
    "no listener opens before the authorizer is ready": """
early.start.listeners string - - -
    Listeners that open before the authorizer is ready.
""",
    "clients authenticate by PLAIN and SCRAM only": """
principal.builder.class class - cluster org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder
    Class that makes a principal of a connection.
sasl.mechanism.controller.protocol string - - GSSAPI
    SASL mechanism towards KRaft controllers.
sasl.server.callback.handler.class class - - -
    Class that checks credentials.
sasl.client.callback.handler.class class - - -
    Class that provides credentials.
sasl.login.class class - - -
    Class that logs in.
sasl.login.callback.handler.class class - - -
    Class that provides credentials for the login.
sasl.login.connect.timeout.ms int - - -
    Time limit for connecting to an external authentication provider.
sasl.login.read.timeout.ms int - - -
    Time limit for an answer of that provider.
sasl.login.retry.backoff.ms long - - 100
    First pause between attempts to log in.
sasl.login.retry.backoff.max.ms long - - 10000
    Longest pause between attempts to log in.
sasl.login.refresh.window.factor double - broker 0.8
    Share of a credential's lifetime after which it is refreshed.
sasl.login.refresh.window.jitter double - broker 0.05
    Random part of that share.
sasl.login.refresh.min.period.seconds short - broker 60
    Least time between two refreshes.
sasl.login.refresh.buffer.seconds short - broker 300
    Time before the end of a credential that a refresh leaves.
sasl.kerberos.service.name string - broker -
    Kerberos name of the service.
sasl.kerberos.kinit.cmd string - broker /usr/bin/kinit
    Path of kinit.
sasl.kerberos.ticket.renew.window.factor double - broker 0.8
    Share of a ticket's lifetime after which it is renewed.
sasl.kerberos.ticket.renew.jitter double - broker 0.05
    Random part of that share.
sasl.kerberos.min.time.before.relogin long - broker 60000
    Least time between two Kerberos logins.
sasl.kerberos.principal.to.local.rules list - broker DEFAULT
    Rules that make short names of Kerberos principals.
sasl.oauthbearer.token.endpoint.url string - - -
    Address that gives OAuth tokens.
sasl.oauthbearer.jwks.endpoint.url string - - -
    Address of the keys that verify tokens.
sasl.oauthbearer.jwks.endpoint.refresh.ms long - - 3600000
    How often these keys are read again.
sasl.oauthbearer.jwks.endpoint.retry.backoff.ms long - - 100
    First pause between attempts to read the keys.
sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms long - - 10000
    Longest pause between attempts to read the keys.
sasl.oauthbearer.clock.skew.seconds int - - 30
    Difference of clocks that is tolerated in tokens.
sasl.oauthbearer.expected.audience list - - -
    Audiences that a token may have.
sasl.oauthbearer.expected.issuer string - - -
    Issuer that a token must have.
sasl.oauthbearer.scope.claim.name string - - scope
    Claim that holds the scope.
sasl.oauthbearer.sub.claim.name string - - sub
    Claim that holds the subject.
""",
    "znodes are written without ACLs": """
zookeeper.set.acl boolean - - false
    Whether znodes are written with ACLs so that only brokers may change them.
""",
    "there are no policies for topics and configurations": """
create.topic.policy.class.name class - - -
    Class that decides whether a topic may be created.
alter.config.policy.class.name class - - -
    Class that decides whether configurations may be changed.
""",
    "this limit does not exist": """
client.quota.callback.class class - - -
    Class that decides the quotas of clients.
max.connection.creation.rate int - cluster 2147483647
    Connections a second that the broker accepts.
""",
    "the controller uses the same listener as the other brokers": """
control.plane.listener.name string - - -
    Listener that only the controller uses.
""",
    "this option of TLS does not exist": """
security.providers string - - -
    Java security providers.
ssl.principal.mapping.rules string - - DEFAULT
    Rules that make a principal's name of a certificate's.
ssl.protocol string - broker TLSv1.3
    TLS version that is preferred.
ssl.cipher.suites list - broker ''
    Cipher suites that are enabled.
ssl.provider string - broker -
    Java security provider for TLS.
ssl.keymanager.algorithm string - broker SunX509
    Java algorithm of the key manager.
ssl.trustmanager.algorithm string - broker PKIX
    Java algorithm of the trust manager.
ssl.secure.random.implementation string - broker -
    Java source of random numbers for TLS.
ssl.engine.factory.class class - broker -
    Class that makes TLS engines.
ssl.allow.dn.changes boolean - - false
    Whether a new certificate may have another distinguished name.
ssl.allow.san.changes boolean - - false
    Whether a new certificate may lack alternative names of the old one.
""",
    "there are no delegation tokens": """
delegation.token.secret.key password - - -
    Key that signs delegation tokens.
delegation.token.master.key password - - -
    Deprecated: the same as delegation.token.secret.key.
delegation.token.max.lifetime.ms long - - 604800000
    Longest lifetime of a delegation token.
delegation.token.expiry.time.ms long - - 86400000
    Time until a delegation token must be renewed.
delegation.token.expiry.check.interval.ms long - - 3600000
    How often expired delegation tokens are removed.
""",
    "passwords are not kept in the coordination service": """
password.encoder.secret password - - -
    Secret with which dynamic passwords are encrypted.
password.encoder.old.secret password - - -
    The secret before it was changed.
password.encoder.keyfactory.algorithm string - - -
    Algorithm that derives the key from the secret.
password.encoder.cipher.algorithm string - - AES/CBC/PKCS5Padding
    Cipher for dynamic passwords.
password.encoder.key.length int - - 128
    Length of that cipher's key.
password.encoder.iterations int - - 4096
    Iterations of the key derivation.
""",
    "connections to the coordination service are plain TCP": """
zookeeper.clientCnxnSocket string - - -
    Java class of the connection to ZooKeeper; TLS needs the one that uses Netty.
zookeeper.ssl.client.enable boolean - - false
    Whether the connection to ZooKeeper uses TLS.
zookeeper.ssl.keystore.location string - - -
    Key store for TLS to ZooKeeper.
zookeeper.ssl.keystore.password password - - -
    Password of that key store.
zookeeper.ssl.keystore.type string - - -
    Type of that key store.
zookeeper.ssl.truststore.location string - - -
    Trust store for TLS to ZooKeeper.
zookeeper.ssl.truststore.password password - - -
    Password of that trust store.
zookeeper.ssl.truststore.type string - - -
    Type of that trust store.
zookeeper.ssl.protocol string - - TLSv1.2
    TLS version that is proposed to ZooKeeper.
zookeeper.ssl.enabled.protocols list - - -
    TLS versions that are enabled for ZooKeeper.
zookeeper.ssl.cipher.suites list - - -
    Cipher suites that are enabled for ZooKeeper.
zookeeper.ssl.endpoint.identification.algorithm string - - HTTPS
    How the host name of a ZooKeeper server is verified.
zookeeper.ssl.crl.enable boolean - - false
    Whether certificate revocation lists are checked for ZooKeeper.
zookeeper.ssl.ocsp.enable boolean - - false
    Whether certificates are checked by OCSP for ZooKeeper.
""",
}

_HARMLESS = {
    "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNIO",
}
"""Values that ask for nothing, besides the default."""

_PREFIXES = {
    "ssl.": "this option of TLS does not exist",
    "sasl.": "this option of SASL does not exist",
    "zookeeper.ssl.": "connections to the coordination service are plain TCP",
    "delegation.token.": "there are no delegation tokens",
    "password.encoder.": "passwords are not kept in the coordination service",
    "listener.name.": "single listeners have settings of TLS and SASL only",
    "listener.names.": "there are no such settings of listeners",
    "listeners.name": "there are no such settings of listeners",
    "zookeeper.sasl.": "brokers do not authenticate to the coordination service",
    "authorizer.": "this option of the authorizer does not exist",
    "super.user": "this option of the authorizer does not exist",
    "allow.everyone": "this option of the authorizer does not exist",
    "principal.": "principals are not mapped",
    "security.": "there is no such setting of security",
}
"""The reasons for names that no table has."""

_ADVICE = (
    "{missing} in this version. Remove {name} to start without this protection, and protect the broker by other means, "
    "such as a firewall or a private network"
)


def refuse_protection(name: str, missing: str, *harmless: object) -> ValueCheck:
    """A check that takes no value but the harmless ones and the empty one."""

    def check(value: object) -> str | None:
        if value in harmless or value in ("", []):
            return None
        return _ADVICE.format(missing=missing, name=name)

    return check


ROWS_REFUSED: list[BrokerRow] = []
"""The properties of Kafka's list."""

_MISSING: dict[str, str] = {}


def _check(missing: str, setting: Setting) -> ValueCheck:
    harmless: list[object] = [setting.parse(_HARMLESS[setting.name])] if setting.name in _HARMLESS else []
    if setting.default is not None:
        harmless.append(setting.parse(setting.default))
    return refuse_protection(setting.name, missing, *harmless)


def _refused_rows(missing: str, text: str) -> list[BrokerRow]:
    rows = list(read_broker_table(text, check_of=partial(_check, missing)))
    _MISSING.update((row.setting.name, missing) for row in rows)
    return rows


for _missing, _text in _TABLES.items():
    ROWS_REFUSED += _refused_rows(_missing, _text)

_SETTINGS = {row.setting.name: row.setting for row in ROWS_REFUSED}
_NAMES_BY_LOWER = {name.lower(): name for name in _SETTINGS}
_OTHERS = ("security.inter.broker.protocol", "inter.broker.listener.name", "listener.security.protocol.map")
_PROTECTING = [*_NAMES_BY_LOWER, *SECURITY_SETTINGS, *_OTHERS, *AUTHORIZER_NAMES]
_NEAR_MISS = 0.92


def wrong_unlisted(name: str, text: str) -> str | None:
    """The error of a property that is in no table, if its name shows that it asks for protection.

    None otherwise. A name with capitals, or with _ or - for a dot as environment variables
    and YAML have it, is no property of Kafka's, which ignores it. Here it is refused as the
    one that was meant.
    """
    lower = name.lower()
    dotted = lower.replace("_", ".").replace("-", ".")
    secured = SECURITY_SETTINGS.get(lower)
    if secured is None and (found := listener_setting(lower)) is not None:
        secured = found.setting
    if secured is not None:
        return _wrong_security(name, lower, text, secured)
    if lower in AUTHORIZER_NAMES:
        return f"write {lower}"
    if lower in _NAMES_BY_LOWER:
        meant = _NAMES_BY_LOWER[lower]
        return refuse_protection(name, _MISSING[meant])(text.strip()) if asks_for_protection(meant, text) else None
    if dotted.endswith(".sasl.jaas.config") and not dotted.startswith(("listener.name.", "listeners.name")):
        inner = lower if lower.endswith(".sasl.jaas.config") else "MECHANISM.sasl.jaas.config"
        return f"the property of a listener is listener.name.LISTENER.{inner}"
    if dotted in _PROTECTING and text.strip():
        return f"it is no setting, and looks like {dotted}: write that"
    for prefix, missing in _PREFIXES.items():
        if dotted.startswith(prefix):
            inner = lower.split(".", 3)[3] if lower.startswith("listener.name.") and name.count(".") > 2 else ""
            if inner in _NAMES_BY_LOWER and not asks_for_protection(_NAMES_BY_LOWER[inner], text):
                return None
            return refuse_protection(name, missing)(text.strip())
    close = get_close_matches(dotted, _PROTECTING, 1, _NEAR_MISS)
    return f"it is no setting, and looks like {close[0]}: write that" if close and text.strip() else None


def _wrong_security(name: str, lower: str, text: str, secured: Setting) -> str | None:
    """What is wrong with a property of listeners under a name that no table has."""
    if name != lower:
        return f"write {lower}"
    try:
        secured.parse(text)
    except ConfigError as error:
        return str(error).partition(f"{secured.name}: ")[2]
    return None


def is_refused(name: str) -> bool:
    """Whether a property is in one of the tables here."""
    return name in _SETTINGS


def asks_for_protection(name: str, text: str) -> bool:
    """Whether a property that listeners do not have cannot have this value because
    it asks for protection."""
    if name not in _SETTINGS:
        return wrong_unlisted(name, text) is not None
    try:
        _SETTINGS[name].parse(text)
    except ConfigError:
        return True
    return False
