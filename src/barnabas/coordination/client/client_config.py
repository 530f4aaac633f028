"""The properties with which ZooKeeper's clients and tools are configured: TLS, and SASL.

They are those of ``zkCli.sh -client-configuration FILE``; the names that Kafka's tools have for the
same (``zookeeper-shell.sh -zk-tls-config-file FILE``) mean the same. The file with SASL's user is
named here as well, because there is no JVM to which a system property could be given. What asks for
protection and cannot be done is an error.

In ZooKeeper: ZKClientConfig, ClientX509Util, and the properties of ZooKeeperSaslClient.
"""

from collections.abc import Callable, Mapping

from barnabas.base.errors import ConfigError
from barnabas.base.settings import Definitions, Kind, Setting, Values, invalid_value, one_of
from barnabas.net.ssl_contexts import TLS_PROTOCOLS, SslSettings
from barnabas.net.zookeeper_tls import read_named_file, read_zookeeper_tls
from barnabas.security.digest_md5 import DigestMd5Client
from barnabas.security.jaas import JAAS_FILE, digest_credentials
from barnabas.security.key_stores import check_store_type

__all__ = ["client_sasl", "client_tls", "read_client_config"]

_NETTY, _NIO = (f"org.apache.zookeeper.ClientCnxnSocket{name}" for name in ("Netty", "NIO"))
_SECURE, _SOCKET = "zookeeper.client.secure", "zookeeper.clientCnxnSocket"
_VERIFIES_HOSTS = "zookeeper.ssl.hostnameVerification"
_KAFKA_VERIFIES_HOSTS = "zookeeper.ssl.endpoint.identification.algorithm"
_KAFKA_NAMES = {
    "zookeeper.ssl.client.enable": _SECURE,
    **{
        f"zookeeper.ssl.{store.lower()}.{what}": f"zookeeper.ssl.{store}.{what}"
        for store in ("keyStore", "trustStore")
        for what in ("location", "password", "type")
    },
    "zookeeper.ssl.enabled.protocols": "zookeeper.ssl.enabledProtocols",
}
_REALM = "zk-sasl-md5"  # that of ZooKeeper's servers

_WITHOUT_EFFECT = {"jute.maxbuffer", "zookeeper.disableAutoWatchReset", "zookeeper.request.timeout"}


def _unknown(name: str, _text: str) -> str | None:
    if name in _WITHOUT_EFFECT:
        return None
    return (
        "this is not a property of ZooKeeper's clients that is known here: it may be misspelled, or ask for protection that is "
        "not supported"
    )


_DEFINITIONS = Definitions(
    [
        Setting(_SECURE, Kind.BOOLEAN, "false", "Whether the connection uses TLS."),
        Setting(_SOCKET, Kind.STRING, "", "With TLS, ZooKeeper's own client needs the one of Netty.", one_of("", _NETTY, _NIO)),
        Setting("zookeeper.ssl.keyStore.location", Kind.STRING, "", "The client's key and certificate: PEM, JKS, or PKCS12."),
        Setting("zookeeper.ssl.keyStore.password", Kind.PASSWORD, "", "The password of the store and of its key."),
        Setting("zookeeper.ssl.keyStore.passwordPath", Kind.STRING, "", "A file with that password."),
        Setting("zookeeper.ssl.keyStore.type", Kind.STRING, "", "PEM, JKS or PKCS12; empty for what the file is.", check_store_type),
        Setting("zookeeper.ssl.trustStore.location", Kind.STRING, "", "The certificates with which servers are verified."),
        Setting("zookeeper.ssl.trustStore.password", Kind.PASSWORD, "", "The password of that store; PEM needs none."),
        Setting("zookeeper.ssl.trustStore.passwordPath", Kind.STRING, "", "A file with that password."),
        Setting("zookeeper.ssl.trustStore.type", Kind.STRING, "", "PEM, JKS or PKCS12; empty for what the file is.", check_store_type),
        Setting("zookeeper.ssl.protocol", Kind.STRING, "", "The protocol, if no list is set.", one_of("", *TLS_PROTOCOLS)),
        Setting("zookeeper.ssl.enabledProtocols", Kind.LIST, "", "TLSv1.2, TLSv1.3, or both; empty for both.", one_of(*TLS_PROTOCOLS)),
        Setting(_VERIFIES_HOSTS, Kind.BOOLEAN, "true", "Whether a server's certificate must be for its host."),
        Setting("zookeeper.sasl.client", Kind.BOOLEAN, "true", "Whether the client authenticates, if there is a user for it."),
        Setting("zookeeper.sasl.clientconfig", Kind.STRING, "Client", "The section of the JAAS file with the user."),
        Setting("zookeeper.sasl.client.username", Kind.STRING, "zookeeper", "The service that the user authenticates for."),
        Setting(JAAS_FILE, Kind.STRING, "", "The JAAS file with the user's name and password."),
    ],
    check_unknown=_unknown,
)  # fmt: skip


def read_client_config(texts: Mapping[str, str]) -> Values:
    """The typed values of a file's properties; `Values.unknown` has the names without effect.

    Raises `ConfigError`."""
    values = _DEFINITIONS.parse(_with_zookeepers_names(texts))
    if values[_SECURE] and values[_SOCKET] == _NIO:
        raise ConfigError(f"{_SECURE} is true, and {_SOCKET} names the connection without TLS: name {_NETTY}, or none")
    stores = [name for name in values.texts if name.startswith("zookeeper.ssl.")]
    if stores and not values[_SECURE]:
        raise ConfigError(f"{stores[0]} is set, and {_SECURE} is not true: the connection would not be protected")
    return values


def _with_zookeepers_names(texts: Mapping[str, str]) -> dict[str, str]:
    """The texts by ZooKeeper's names. Two names for one setting must not contradict each other."""
    found: dict[str, tuple[str, str]] = {}
    for given, text in texts.items():
        name, meant = _KAFKA_NAMES.get(given, given), text
        if given == _KAFKA_VERIFIES_HOSTS:
            if text.strip().lower() not in ("", "https"):
                raise invalid_value(given, text, "HTTPS is expected, or nothing for no verification")
            name, meant = _VERIFIES_HOSTS, "true" if text.strip() else "false"
        other, value = found.setdefault(name, (given, meant))
        if value.strip() != meant.strip():
            raise ConfigError(f"{other} and {given} contradict each other: set one of them")
    return {name: meant for name, (_, meant) in found.items()}


def client_tls(values: Values, read_text: Callable[[str], str]) -> SslSettings | None:
    """For TLS; None without.

    ``read_text`` reads a file, and raises OSError. Raises `ConfigError`."""
    if not values[_SECURE]:
        return None
    return read_zookeeper_tls(
        values, "zookeeper.ssl", read_text, client_auth="none", verifies_host=values[_VERIFIES_HOSTS]
    )


def client_sasl(
    values: Values, read_text: Callable[[str], str], random_bytes: Callable[[int], bytes]
) -> Callable[[], DigestMd5Client] | None:
    """What makes the SASL client of each connection; None without SASL. Raises `ConfigError`."""
    if not (values["zookeeper.sasl.client"] and values[JAAS_FILE]):
        return None
    text = read_named_file(values, JAAS_FILE, read_text)
    user, password = digest_credentials(text, values[JAAS_FILE], values["zookeeper.sasl.clientconfig"])
    service = values["zookeeper.sasl.client.username"]
    return lambda: DigestMd5Client(user, password, service, _REALM, random_bytes)
