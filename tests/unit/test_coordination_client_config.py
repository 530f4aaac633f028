"""The properties of ZooKeeper's clients: what asks for protection is applied, or refused."""

import pytest

from barnabas.base.errors import ConfigError
from barnabas.coordination.client.client_config import client_sasl, client_tls, read_client_config

SECURE = {"zookeeper.client.secure": "true"}
FILES = {
    "password": "secret\n",
    "jaas": 'Client { org.apache.zookeeper.server.auth.DigestLoginModule required username="bob" password="pw"; };',
}


def read_text(path: str) -> str:
    if path not in FILES:
        raise FileNotFoundError(path)
    return FILES[path]


def test_names_of_kafkas_tools_mean_what_zookeepers_mean() -> None:
    """zookeeper.ssl.client.enable, stores in lower case, and no verification of
    hosts for an empty algorithm."""
    values = read_client_config(
        {
            "zookeeper.ssl.client.enable": "true",
            "zookeeper.ssl.keystore.location": "key.p12",
            "zookeeper.ssl.keystore.password": "pw",
            "zookeeper.ssl.enabled.protocols": "TLSv1.3",
            "zookeeper.ssl.endpoint.identification.algorithm": "",
        }
    )
    tls = client_tls(values, read_text)
    assert tls is not None
    assert tls.key_store is not None
    assert (tls.key_store.location, tls.key_store.password) == ("key.p12", "pw")
    assert (list(tls.protocols), tls.verifies_host, tls.trust_store) == (["TLSv1.3"], False, None)


def test_a_password_comes_from_its_file() -> None:
    """zookeeper.ssl.keyStore.passwordPath; a file that is not there is an error that names it."""
    store = {**SECURE, "zookeeper.ssl.keyStore.location": "key.p12"}
    tls = client_tls(read_client_config({**store, "zookeeper.ssl.keyStore.passwordPath": "password"}), read_text)
    assert tls is not None
    assert tls.key_store is not None
    assert tls.key_store.password == "secret"
    missing = read_client_config({**store, "zookeeper.ssl.keyStore.passwordPath": "none"})
    with pytest.raises(ConfigError, match=r"none \(zookeeper.ssl.keyStore.passwordPath\) cannot be read"):
        client_tls(missing, read_text)


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        ({"zookeeper.ssl.trustStore.location": "ca.pem"}, "would not be protected"),
        ({**SECURE, "zookeeper.clientCnxnSocket": "org.apache.zookeeper.ClientCnxnSocketNIO"}, "without TLS"),
        ({**SECURE, "zookeeper.ssl.crl": "true"}, "not supported"),
        ({"zookeeper.client.secured": "true"}, "misspelled"),
        ({"client.secure": "true"}, "misspelled"),
        ({"zookeeper.ssl.client.enable": "true", "zookeeper.client.secure": "false"}, "contradict each other"),
        (
            {
                **SECURE,
                "zookeeper.ssl.endpoint.identification.algorithm": "HTTPS",
                "zookeeper.ssl.hostnameVerification": "false",
            },
            "contradict each other",
        ),
        ({**SECURE, "zookeeper.ssl.trustStore.locaton": "ca.pem"}, "misspelled"),
        ({**SECURE, "zookeeper.ssl.endpoint.identification.algorithm": "LDAPS"}, "HTTPS is expected"),
        ({"zookeeper.sasl.clientConfig": "Client"}, "misspelled"),
        ({**SECURE, "zookeeper.ssl.protocol": "TLSv1"}, "must be one of"),
    ],
)
def test_what_would_leave_a_connection_unprotected_is_refused(texts: dict[str, str], reason: str) -> None:
    """An error, rather than a connection with less than was asked for."""
    with pytest.raises(ConfigError, match=reason):
        read_client_config(texts)


def test_each_connection_has_a_sasl_client_of_its_own() -> None:
    """From the section Client; none with zookeeper.sasl.client=false, and an error
    without the section."""
    texts = {"java.security.auth.login.config": "jaas"}
    new = client_sasl(read_client_config(texts), read_text, bytes)
    assert new is not None
    assert new() is not new()
    disabled = read_client_config({**texts, "zookeeper.sasl.client": "false"})
    assert client_sasl(disabled, read_text, bytes) is None
    other = read_client_config({**texts, "zookeeper.sasl.clientconfig": "Other"})
    with pytest.raises(ConfigError, match="has no section Other"):
        client_sasl(other, read_text, bytes)
    assert client_tls(disabled, read_text) is None
