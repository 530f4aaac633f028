"""How listeners are secured by properties: each listener's own first, and an error
for whatever is missing."""

import re

import pytest

from barnabas.base.errors import ConfigError
from barnabas.base.settings import Kind
from barnabas.broker.configuration.definitions import DEFINITIONS, UPDATE_MODES, settings_without_effect
from barnabas.broker.configuration.listener_security import ListenerSecurity, read_listener_security
from barnabas.broker.configuration.rules import check_protection, validate_broker_config
from barnabas.broker.configuration.security_settings import SECURITY_SETTINGS, listener_setting

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"
STORE = {"ssl.keystore.type": "PEM", "ssl.keystore.location": "/broker.pem"}
TWO = {
    "listeners": "CLIENTS://h:1,BROKERS://h:2",
    "listener.security.protocol.map": "CLIENTS:SASL_SSL,BROKERS:SSL",
    "inter.broker.listener.name": "BROKERS",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.clients.plain.sasl.jaas.config": f'{PLAIN} user_ann="a, \\"b\\"";',
    **STORE,
}
EVERYTHING = {
    **TWO,
    "listeners": "CLIENTS://h:1,BROKERS://h:2,OPEN://h:3",
    "listener.security.protocol.map": "CLIENTS:SASL_SSL,BROKERS:SSL,OPEN:PLAINTEXT",
    "connections.max.reauth.ms": "5000",
    "ssl.client.auth": "required",
    "ssl.enabled.protocols": "TLSv1.3",
    "ssl.endpoint.identification.algorithm": "",
    "ssl.key.password": "geheim",
    "ssl.truststore.type": "PKCS12",
    "ssl.truststore.location": "/ca.p12",
    "ssl.truststore.password": "geheim",
    "listener.name.clients.ssl.truststore.type": "PEM",
    "listener.name.clients.ssl.truststore.location": "/clients.pem",
    "listener.name.clients.plain.connections.max.reauth.ms": "7000",
}
ONE = {
    "listeners": "SASL_SSL://h:1",
    "inter.broker.listener.name": "SASL_SSL",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
    "listener.name.sasl_ssl.plain.sasl.jaas.config": f'{PLAIN} username="b" password="geheim" user_b="geheim";',
    **STORE,
}


def read(texts: dict[str, str | None], jaas: str | None = None) -> dict[str, ListenerSecurity]:
    given = {name: text for name, text in texts.items() if text is not None}
    return read_listener_security(DEFINITIONS.parse({"zookeeper.connect": "z:1", **given}), jaas)


def test_each_listener_has_its_own_values_before_those_of_all() -> None:
    """The prefix is the listener's name in small letters, then the mechanism's."""
    own = {
        "listener.name.brokers.ssl.client.auth": "required",
        "listener.name.brokers.ssl.truststore.type": "PEM",
        "listener.name.brokers.ssl.truststore.location": "/ca.pem",
        "listener.name.clients.ssl.enabled.protocols": "TLSv1.3",
        "listener.name.clients.connections.max.reauth.ms": "5000",
        "listener.name.clients.plain.connections.max.reauth.ms": "7000",
        "connection.failed.authentication.delay.ms": "9",
    }
    found = read({**TWO, **own})
    clients, brokers = found["CLIENTS"], found["BROKERS"]
    assert (brokers.sasl, brokers.login, clients.login) == (None, None, None)
    assert (brokers.stores.client_auth, brokers.stores.trust_store.location) == ("required", "/ca.pem")
    assert (clients.stores.client_auth, clients.stores.trust_store) == ("none", None)
    assert (clients.stores.protocols, brokers.stores.protocols) == (("TLSv1.3",), ("TLSv1.2", "TLSv1.3"))
    assert clients.stores.name("ssl.enabled.protocols") == "listener.name.clients.ssl.enabled.protocols"
    assert brokers.stores.name("ssl.truststore") == "listener.name.brokers.ssl.truststore"
    assert (clients.stores.name("ssl.keystore"), clients.stores.key_store.type) == ("ssl.keystore", "PEM")
    assert clients.sasl.plain_users == {"ann": 'a, "b"'}
    assert (clients.sasl.max_reauth_ms, clients.sasl.failure_delay_ms) == ({"PLAIN": 7000}, 9)
    assert "a, " not in repr(found)
    parsed = DEFINITIONS.parse({"zookeeper.connect": "z:1", **TWO, **own})
    assert settings_without_effect(parsed) == {}


@pytest.mark.parametrize(
    ("texts", "is_compared"),
    [
        ({}, True),
        ({"ssl.endpoint.identification.algorithm": "HTTPS"}, True),
        ({"ssl.endpoint.identification.algorithm": ""}, False),
        ({"listener.name.brokers.ssl.endpoint.identification.algorithm": ""}, False),
    ],
)
def test_the_names_of_other_brokers_are_compared_unless_that_is_switched_off(
    texts: dict[str, str], is_compared: bool
) -> None:
    """A certificate of another host is not enough."""
    stores = read({**TWO, **texts})["BROKERS"].stores
    assert stores is not None
    assert stores.verifies_host == is_compared


def test_a_client_certificate_is_not_asked_of_clients_with_sasl_unless_their_listener_says_so() -> None:
    """As in Kafka: the property of all listeners is for those with SSL."""
    trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": "/ca.pem", "ssl.client.auth": "required"}
    found = read({**TWO, **trust})
    assert (found["CLIENTS"].stores.client_auth, found["BROKERS"].stores.client_auth) == ("none", "required")
    own = {"listener.name.clients.ssl.client.auth": "requested"}
    assert read({**TWO, **trust, **own})["CLIENTS"].stores.client_auth == "requested"


def test_users_and_the_brokers_own_name_come_from_the_jaas_file_where_no_property_has_them() -> None:
    """A section of the listener goes before that of all."""
    file = f"""
    KafkaServer {{ {PLAIN} username="b" password="1" user_b="1"; {SCRAM} username="s" password="2"; }};
    clients.KafkaServer {{ {PLAIN} user_c="3"; }};
    """
    path = {"java.security.auth.login.config": "/jaas.conf", "listener.name.sasl_ssl.plain.sasl.jaas.config": None}
    found = read({**ONE, **path}, file)["SASL_SSL"]
    assert (found.sasl.plain_users, found.login.username, found.login.password) == ({"b": "1"}, "b", "1")
    scram = read({**ONE, **path, "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256"}, file)["SASL_SSL"]
    assert (scram.login.mechanism, scram.login.username) == ("SCRAM-SHA-256", "s")
    own = {**TWO, "listener.name.clients.plain.sasl.jaas.config": None, "java.security.auth.login.config": "/jaas.conf"}
    assert read(own, file)["CLIENTS"].sasl.plain_users == {"c": "3"}


@pytest.mark.parametrize(
    ("base", "change", "words"),
    [
        (ONE, {"sasl.enabled.mechanisms": None}, "sasl.enabled.mechanisms=GSSAPI (the default)"),
        (
            ONE,
            {"sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER"},
            "sasl.enabled.mechanisms=PLAIN,OAUTHBEARER: the listener",
        ),
        (ONE, {"sasl.enabled.mechanisms": ""}, "sasl.enabled.mechanisms="),
        (
            ONE,
            {"sasl.mechanism.inter.broker.protocol": None},
            "sasl.mechanism.inter.broker.protocol=GSSAPI must be one of",
        ),
        (
            ONE,
            {"sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256"},
            "listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config is not set",
        ),
        (
            ONE,
            {"listener.name.sasl_ssl.plain.sasl.jaas.config": None},
            "listener.name.sasl_ssl.plain.sasl.jaas.config is not set: PLAIN needs the users",
        ),
        (
            ONE,
            {"listener.name.sasl_ssl.plain.sasl.jaas.config": f'{PLAIN} user_b="geheim";'},
            "has no username and password",
        ),
        (ONE, {"listener.name.sasl_ssl.plain.sasl.jaas.config": "geheim"}, "is not a JAAS configuration"),
        (
            ONE,
            {"listener.name.sasl_ssl.plain.sasl.jaas.config": f'{SCRAM} username="geheim";'},
            "another login module: PLAIN has",
        ),
        (ONE, {"listener.name.sasl_ssl.plain.sasl.jaas.config": f'{PLAIN} user="geheim";'}, "not supported, number 1:"),
        (
            ONE,
            {"listener.name.sasl_ssl.plain.sasl.jaas.config": f'{PLAIN} a=b geheim="x";'},
            "not supported, number 1:",
        ),
        (
            ONE,
            {"listener.name.sasl_ssl.plain.sasl.jaas.config": f'{PLAIN} user_b="geheim" user_b="geheim";'},
            "gives an option twice, number 2",
        ),
        (
            ONE,
            {"listener.name.sasl_ssl.plain.sasl.jaas.config": f'{PLAIN.replace("required", "geheim")} user_b="x";'},
            "one of required, requisite",
        ),
        (ONE, {"connection.failed.authentication.delay.ms": "600000"}, "must be less than connections.max.idle.ms"),
        (ONE, {"listener.name.sasl_ssl.plain.sasl.jaas.config": f'{PLAIN} user_b="";'}, "an empty password"),
        (
            ONE,
            {"listener.name.sasl_ssl.scram-sha-256.sasl.jaas.config": f'{SCRAM} tokenauth="true";'},
            "not supported, number 1",
        ),
        (ONE, {"ssl.keystore.type": "BCFKS"}, "ssl.keystore.type=BCFKS: PEM, JKS and PKCS12"),
        (ONE, {"ssl.keystore.password": "geheim"}, "ssl.keystore.password is not for PEM"),
        (ONE, {"ssl.keystore.key": "geheim"}, "ssl.keystore.location and ssl.keystore.key are both set"),
        (
            ONE,
            {"ssl.keystore.location": None, "ssl.keystore.key": "geheim"},
            "ssl.keystore.certificate.chain is not set",
        ),
        (ONE, {"ssl.truststore.certificates": "-"}, "ssl.truststore.type=JKS: ssl.truststore.certificates is PEM"),
        (TWO, {"sasl.mechanism.inter.broker.protocol": "PLAIN"}, "the listener of the brokers, BROKERS, has no SASL"),
        (TWO, {"inter.broker.listener.name": None}, "There is no listener PLAINTEXT"),
        (ONE, {"ssl.client.auth": "required"}, "listeners with SASL ignore it unless it is their own"),
    ],
)
def test_what_is_missing_or_cannot_be_done_is_named_and_no_secret_is(
    base: dict[str, str], change: dict[str, str | None], words: str
) -> None:
    """A listener is never less secure than its protocol says: the start ends."""
    with pytest.raises(ConfigError) as error:
        read({**base, **change})
    assert words in str(error.value)
    assert "geheim" not in str(error.value)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ssl.keystore.location", "/other.pem"),
        ("ssl.client.auth", "required"),
        ("listener.name.sasl_ssl.plain.sasl.jaas.config", "geheim"),
        ("sasl.enabled.mechanisms", "GSSAPI"),
        ("listener.name.sasl_ssl.ssl.client.auth", "required"),
        ("listener.name.other.ssl.client.auth", "required"),
    ],
)
def test_security_does_not_change_while_a_broker_runs(name: str, text: str) -> None:
    """Even to the default, which would be less than the properties file says."""
    parsed = DEFINITIONS.parse({"zookeeper.connect": "z:1", **ONE})
    with pytest.raises(ConfigError, match=f"{name} cannot be changed while the broker runs") as error:
        validate_broker_config(parsed, {name: text}, per_broker=True)
    assert "geheim" not in str(error.value)


def test_a_listeners_dynamic_value_is_compared_with_what_holds_for_it() -> None:
    """The default would be less than what the properties file says for all listeners."""
    trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": "/ca.pem", "ssl.client.auth": "required"}
    parsed = DEFINITIONS.parse({"zookeeper.connect": "z:1", **TWO, **trust})
    name = "listener.name.brokers.ssl.client.auth"
    with pytest.raises(ConfigError, match="cannot be changed"):
        validate_broker_config(parsed, {name: "none"}, per_broker=True)
    with pytest.raises(ConfigError, match=re.escape(name)):
        check_protection("0", parsed, {name: "none"})
    validate_broker_config(parsed, {name: "required"}, per_broker=True)
    check_protection("0", parsed, {name: "required"})


def test_a_listener_with_sasl_does_not_have_the_client_authentication_of_all_listeners() -> None:
    """What is equal to the property of all listeners would still be a change, without effect."""
    parsed = DEFINITIONS.parse({"zookeeper.connect": "z:1", **EVERYTHING})
    name = "listener.name.clients.ssl.client.auth"
    with pytest.raises(ConfigError, match="cannot be changed"):
        validate_broker_config(parsed, {name: "required"}, per_broker=True)
    with pytest.raises(ConfigError, match=re.escape(name)):
        check_protection("0", parsed, {name: "required"})


def names_of(name: str) -> list[str]:
    """The property of all listeners, and those of each, of one that does not exist,
    and of a mechanism."""
    listeners = [f"listener.name.{each}.{name}" for each in ("clients", "brokers", "open", "other")]
    given = [name, *listeners, f"listener.name.clients.plain.{name}"]
    return [each for each in given if each == name or listener_setting(each) is not None]


@pytest.mark.parametrize("name", [full for name in SECURITY_SETTINGS for full in names_of(name)])
def test_what_is_taken_while_a_broker_runs_lets_it_start_again(name: str) -> None:
    """Otherwise one request keeps all brokers from starting.

    What is taken is what holds already."""
    parsed = DEFINITIONS.parse({"zookeeper.connect": "z:1", **EVERYTHING})
    setting = SECURITY_SETTINGS[name] if name in SECURITY_SETTINGS else listener_setting(name).setting
    others = ["", "none", "required", "PEM", "JKS", "PLAIN", "https", "TLSv1.2", "5000", "0", "100", "524288", "GSSAPI"]
    taken = []
    for text in {*EVERYTHING.values(), setting.default or "", *others}:
        for per_broker in (True, False):
            try:
                validate_broker_config(parsed, {name: text}, per_broker=per_broker)
            except ConfigError:
                continue
            check_protection("0", parsed, {name: text})
            taken.append((text, per_broker))
    is_secret_or_file = setting.kind is Kind.PASSWORD or name.endswith("store.location")
    if is_secret_or_file or (name == setting.name and name not in UPDATE_MODES):
        assert taken == []
    else:
        assert [per_broker for _, per_broker in taken] == [True]


@pytest.mark.parametrize("name", ["ssl.truststore.password", "listener.name.clients.plain.sasl.jaas.config"])
def test_a_guessed_password_is_answered_as_a_wrong_one(name: str) -> None:
    """A client would otherwise find secrets by asking, and the right one would be
    written to a znode."""
    parsed = DEFINITIONS.parse({"zookeeper.connect": "z:1", **EVERYTHING})
    answers = set()
    for text in (EVERYTHING[name], "wrong", ""):
        with pytest.raises(ConfigError) as error:
            validate_broker_config(parsed, {name: text}, per_broker=True)
        answers.add(str(error.value))
    assert len(answers) == 1


def test_no_property_of_a_listener_is_for_all_brokers() -> None:
    """What is no change to one broker is a change to another."""
    parsed = DEFINITIONS.parse({"zookeeper.connect": "z:1", **EVERYTHING})
    with pytest.raises(ConfigError, match="Cannot update these configs at default cluster level"):
        validate_broker_config(parsed, {"listener.name.brokers.ssl.client.auth": "required"}, per_broker=False)


PLAINTEXT = {"zookeeper.connect": "h:1", "listeners": "PLAINTEXT://h:1"}


@pytest.mark.parametrize("name", [full for name in SECURITY_SETTINGS for full in names_of(name)])
@pytest.mark.parametrize("empty", [True, False], ids=["empty", "default"])
def test_what_asks_for_nothing_is_reported_where_no_listener_can_use_it(name: str, empty: bool) -> None:
    """GSSAPI, an empty algorithm: the value is that of a broker without the property, and a line
    says that it does nothing."""
    found = listener_setting(name)
    text = "" if empty else (SECURITY_SETTINGS[name] if found is None else found.setting).default
    try:
        values = DEFINITIONS.parse({**PLAINTEXT, name: text or ""})
    except ConfigError:
        assert empty  # no number, or a value that the property cannot have
        return
    assert list(settings_without_effect(values)) == [name]


@pytest.mark.parametrize(
    ("texts", "named"),
    [
        ({"listeners": "SSL://h:1,PLAINTEXT://h:2"}, ["ssl.endpoint.identification.algorithm"]),
        ({"listeners": "SSL://h:1,PLAINTEXT://h:2", "security.inter.broker.protocol": "SSL"}, []),
    ],
)
def test_the_host_names_of_brokers_are_verified_on_their_own_listener_only(
    texts: dict[str, str], named: list[str]
) -> None:
    """Elsewhere the algorithm has no effect."""
    values = DEFINITIONS.parse({**PLAINTEXT, **texts, "ssl.endpoint.identification.algorithm": ""})
    assert list(settings_without_effect(values)) == named
