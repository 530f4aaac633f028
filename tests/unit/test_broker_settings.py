"""Broker settings: listeners, log dirs, caps, and what is said about mistakes."""

import contextlib
import inspect
import re
from pathlib import Path

import pytest

import barnabas
from barnabas.base.errors import ConfigError
from barnabas.base.network import Standing
from barnabas.base.settings import Values
from barnabas.broker.configuration import definitions as settings
from barnabas.broker.configuration.authorizer_settings import super_users
from barnabas.broker.configuration.definitions import DEFINITIONS, UPDATE_MODES
from barnabas.broker.configuration.listeners import (
    ListenerAddress,
    advertised_listeners,
    inter_broker_listener,
    listeners,
)
from barnabas.broker.configuration.refused import ROWS_REFUSED
from barnabas.broker.configuration.rules import check_protection, validate_broker_config
from barnabas.broker.configuration.security_settings import ROWS_SECURITY
from barnabas.broker.configuration.waiting_limits import DEFAULT_WAITING_BYTES, STRANGERS_BYTES, waiting_limits
from barnabas.broker.configuration.without_effect import ROWS_WITHOUT_EFFECT
from barnabas.log.settings import BROKER_SYNONYMS


def values(**texts: str) -> Values:
    return DEFINITIONS.parse({"zookeeper.connect": "z:2181", **{k.replace("_", "."): v for k, v in texts.items()}})


def advertised(found: Values) -> list[str]:
    return [str(end) for end in advertised_listeners(found, listeners(found), lambda: "me.example")]


def test_kafkas_default_listener_is_advertised_under_this_hosts_name() -> None:
    """An address of all interfaces is of no use to clients."""
    assert listeners(values()) == [ListenerAddress("PLAINTEXT", "PLAINTEXT", "", 9092)]
    assert advertised(values()) == ["PLAINTEXT://me.example:9092"]


def test_several_listeners_have_names_and_one_of_them_is_for_brokers() -> None:
    """The map gives each name its protocol."""
    found = values(
        listeners="IN://127.0.0.1:1,OUT://[::1]:2",
        listener_security_protocol_map="IN:PLAINTEXT,OUT:PLAINTEXT",
        inter_broker_listener_name="in",
        advertised_listeners="OUT://out.example:9,IN://in.example:8",
    )
    assert [str(end) for end in listeners(found)] == ["IN://127.0.0.1:1", "OUT://[::1]:2"]
    assert inter_broker_listener(found) == "IN"
    assert advertised(found) == ["OUT://out.example:9", "IN://in.example:8"]


def test_port_0_is_advertised_as_the_real_one() -> None:
    """Any free port is fine for tests."""
    found = values(listeners="PLAINTEXT://127.0.0.1:0")
    bound = [ListenerAddress("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 4711)]
    assert [end.port for end in advertised_listeners(found, bound, lambda: "x")] == [4711]


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ({"listeners": "9092"}, "is not NAME://host:port"),
        ({"listeners": "PLAINTEXT://h:70000"}, "is not NAME://host:port"),
        ({"listener_security_protocol_map": "PLAINTEXT:PLAIN"}, "listener.security.protocol.map: PLAINTEXT uses PLAIN"),
        ({"listeners": "OTHER://h:1"}, "names no security protocol for OTHER"),
        ({"listeners": "PLAINTEXT://a:1,PLAINTEXT://b:2"}, "a name of its own"),
        ({"listeners": ""}, "names no listener"),
        ({"listeners": "PLAINTEXT://0.0.0.0:1"}, "set advertised.listeners"),
        ({"advertised_listeners": "PLAINTEXT://0.0.0.0:1"}, "clients cannot connect"),
        ({"security_inter_broker_protocol": "SSL"}, "no listener SSL"),
        ({"security_inter_broker_protocol": "TLS"}, "must be one of"),
        (
            {
                "security_inter_broker_protocol": "SSL",
                "listeners": "SSL://h:1",
                "listener_security_protocol_map": "SSL:PLAINTEXT",
            },
            "the listener SSL has the protocol PLAINTEXT",
        ),
        ({"listener_security_protocol_map": "PLAINTEXT:SSL,plaintext:PLAINTEXT"}, "is there twice"),
        ({"inter_broker_listener_name": "SSL"}, "no listener SSL"),
        ({"log_dirs": " , "}, "At least one log directory"),
        ({"max_connections_per_ip_overrides": "localhost"}, "is not host:count"),
    ],
)
def test_a_mistake_is_named_with_its_property(texts: dict[str, str], words: str) -> None:
    """The message says what to change."""

    def use() -> None:
        found = values(**texts)
        advertised(found)
        inter_broker_listener(found)
        settings.log_dirs(found)

    with pytest.raises(ConfigError, match=words):
        use()


def test_log_dirs_win_over_log_dir_and_each_counts_once() -> None:
    """As in Kafka."""
    assert settings.log_dirs(values(log_dirs="/a, /b,/a", log_dir="/c")) == ["/a", "/b"]
    assert settings.log_dirs(values(log_dir="/c")) == ["/c"]


def test_caps_are_by_address() -> None:
    """IPv6 addresses have colons of their own."""
    found = settings.connection_caps(values(max_connections_per_ip_overrides="1.2.3.4:5, ::1:7"))
    assert found == {"1.2.3.4": 5, "::1": 7}


def test_every_property_has_one_definition() -> None:
    """Update modes and the tables of `without_effect` and `refused` agree with the definitions."""
    assert [name for name in UPDATE_MODES if name not in DEFINITIONS] == []
    in_tables = [row.setting.name for row in (*ROWS_WITHOUT_EFFECT, *ROWS_SECURITY, *ROWS_REFUSED)]
    assert len(set(in_tables)) == len(in_tables)
    for row in (*ROWS_WITHOUT_EFFECT, *ROWS_SECURITY, *ROWS_REFUSED):
        assert DEFINITIONS[row.setting.name] is row.setting
        assert row.setting.doc


def test_every_property_that_is_not_marked_as_without_effect_is_read_somewhere() -> None:
    """A property that the code never names cannot have an effect."""
    package = Path(barnabas.__file__).parent
    tables = package / "broker" / "configuration"
    others = ("service.py", "listeners.py", "listener_security.py", "security_settings.py")
    sources = [path for path in package.rglob("*.py") if path.parent != tables or path.name in others]
    code = "".join(path.read_text() for path in sources) + inspect.getsource(settings).partition("_check_all")[2]
    not_working = {row.setting.name for row in (*ROWS_WITHOUT_EFFECT, *ROWS_REFUSED)}
    topic_defaults = {synonym.name for synonyms in BROKER_SYNONYMS.values() for synonym in synonyms}
    working = [s.name for s in DEFINITIONS if s.name not in not_working | topic_defaults]
    assert [name for name in working if f'"{name}"' not in code] == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("zookeeper.set.acl", "true"),
        ("principal.builder.class", "com.example.Builder"),
        ("create.topic.policy.class.name", "com.example.Policy"),
        ("alter.config.policy.class.name", "com.example.Policy"),
        ("zookeeper.ssl.client.enable", "true"),
        ("zookeeper.clientCnxnSocket", "org.apache.zookeeper.ClientCnxnSocketNetty"),
        ("delegation.token.secret.key", "secret"),
        ("early.start.listeners", "CONTROLLER"),
        ("control.plane.listener.name", "CONTROLLER"),
        ("client.quota.callback.class", "com.example.Quota"),
        ("max.connection.creation.rate", "10"),
        ("listener.name.internal.max.connections", "5"),
        ("ssl.some.new.setting", "1"),
        ("authorizer.class", "x"),
        ("super.user", "User:a"),
        ("principal.builder", "x"),
        ("zookeeper.sasl.client", "true"),
        ("listener.names.internal.ssl.client.auth", "required"),
        ("SSL.Some.New.Setting", "1"),
        ("ZOOKEEPER.CLIENTCNXNSOCKET", "org.apache.zookeeper.ClientCnxnSocketNetty"),
    ],
)
def test_a_value_that_asks_for_missing_protection_is_refused(name: str, text: str) -> None:
    """Neither the start nor a dynamic change takes it, and the error says what to do
    without showing secrets."""
    with pytest.raises(ConfigError, match=f"configuration {re.escape(name)}: .* in this version. Remove") as error:
        DEFINITIONS.parse({"zookeeper.connect": "z:2181", name: text})
    assert "secret" not in str(error.value).replace(name, "")
    with pytest.raises(ConfigError):
        validate_broker_config(values(), {name: text}, per_broker=True)
    with pytest.raises(ConfigError, match=re.escape(name)):
        check_protection("0", values(), {name: text})


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("ssl.client.auth", "requested", "no listener has TLS"),
        ("ssl.keystore.location", "/etc/keys.jks", "no listener has TLS"),
        ("ssl.keystore.password", "secret", "no listener has TLS"),
        ("sasl.enabled.mechanisms", "GSSAPI,PLAIN", "no listener has SASL"),
        ("sasl.jaas.config", "secret", "listener.name.LISTENER.MECHANISM.sasl.jaas.config"),
        ("plain.sasl.jaas.config", "secret", "listener.name.LISTENER.plain.sasl.jaas.config"),
        ("listener.name.internal.ssl.client.auth", "required", "there is no listener INTERNAL with TLS"),
        ("listener.name.internal.ssl.client.auth", "always", "must be one of"),
        ("listener.name.plaintext.ssl.client.auth", "required", "there is no listener PLAINTEXT with TLS"),
        ("listener.name.internal.scram-sha-256.sasl.jaas.config", "secret", "there is no listener INTERNAL with SASL"),
        ("Listener.Name.INTERNAL.SSL.Client.Auth", "required", "write listener.name.internal.ssl.client.auth"),
        ("SSL.Client.Auth", "none", "write ssl.client.auth"),
        ("Authorizer.Class.Name", "com.example.Authorizer", "write authorizer.class.name"),
        ("listener.name.INTERNAL.ssl.client.auth", "none", "write listener.name.internal.ssl.client.auth"),
        ("connections.max.reauth.mss", "5", "looks like connections.max.reauth.ms"),
        ("inter.broker.listener.nam", "SSL", "looks like inter.broker.listener.name"),
        ("plain_sasl_jaas_config", "secret", "listener.name.LISTENER.MECHANISM.sasl.jaas.config"),
        ("ssl_client_auth", "required", "looks like ssl.client.auth"),
        ("SSL-Client-Auth", "required", "looks like ssl.client.auth"),
        ("ssl_client_auht", "required", "this option of TLS does not exist"),
        ("inter_broker_listener_nam", "SSL", "looks like inter.broker.listener.name"),
        ("authorizer_class_name", "a.B", "looks like authorizer.class.name"),
        ("authorizer-class", "a.B", "this option of the authorizer does not exist"),
        ("super_users", "User:secret", "looks like super.users"),
        ("sasl_enabled_mechanisms", "PLAIN", "looks like sasl.enabled.mechanisms"),
        ("sasl-enabled-mechanisms", "PLAIN", "looks like sasl.enabled.mechanisms"),
        ("listener_security_protocol_map", "PLAINTEXT:SSL", "looks like listener.security.protocol.map"),
        ("listeners.name.internal.ssl.client.auth", "required", "there are no such settings of listeners"),
        ("listener-name.internal.ssl.client.auth", "required", "single listeners have settings of TLS and SASL only"),
    ],
)
def test_a_property_that_secures_no_listener_is_refused(name: str, text: str, words: str) -> None:
    """Who sets it expects protection; and none of these changes while a broker runs."""
    with pytest.raises(ConfigError, match=re.escape(name)) as error:
        DEFINITIONS.parse({"zookeeper.connect": "z:2181", name: text})
    assert words in str(error.value)
    assert "secret" not in str(error.value)
    with pytest.raises(ConfigError):
        validate_broker_config(values(), {name: text}, per_broker=True)
    with pytest.raises(ConfigError, match=re.escape(name)):
        check_protection("0", values(), {name: text})


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("authorizer.class.name", ""),
        ("super.users", ""),
        ("allow.everyone.if.no.acl.found", "true"),
        ("zookeeper.set.acl", "FALSE"),
        ("ssl.client.auth", "none"),
        ("sasl.enabled.mechanisms", "GSSAPI"),
        ("ssl.enabled.protocols", "TLSv1.2, TLSv1.3"),
        ("zookeeper.ssl.client.enable", "false"),
        ("security.inter.broker.protocol", "PLAINTEXT"),
        ("listener.name.internal.ssl.client.auth", "none"),
    ],
)
def test_a_harmless_value_of_a_refused_property_is_accepted(name: str, text: str) -> None:
    """Defaults that stand in a file change nothing."""
    assert DEFINITIONS.parse({"zookeeper.connect": "z:2181", name: text}).is_set(name)
    check_protection("0", values(), {name: text})


AUTHORIZER = "kafka.security.authorizer.AclAuthorizer"


@pytest.mark.parametrize("text", ["org.apache.kafka.metadata.authorizer.StandardAuthorizer", "AclAuthorizer"])
def test_another_authorizer_ends_the_start(text: str) -> None:
    """A broker without it would look protected and be open."""
    with pytest.raises(ConfigError, match="configuration authorizer.class.name: the only authorizer"):
        values(authorizer_class_name=text)
    with pytest.raises(ConfigError, match=r"authorizer\.class\.name"):
        check_protection("0", values(), {"authorizer.class.name": text})


@pytest.mark.parametrize(("name", "text"), [("super.users", "User:admin"), ("allow.everyone.if.no.acl.found", "false")])
def test_a_setting_of_the_authorizer_asks_for_one(name: str, text: str) -> None:
    """In the file as in the dynamic configuration."""
    with pytest.raises(ConfigError, match=re.escape(name)):
        DEFINITIONS.parse({"zookeeper.connect": "z:2181", name: text})
    with pytest.raises(ConfigError, match=re.escape(name)):
        validate_broker_config(values(), {name: text}, per_broker=False)
    with pytest.raises(ConfigError, match=re.escape(name)):
        check_protection("0", values(), {name: text})
    secured = values(authorizer_class_name=AUTHORIZER)
    assert validate_broker_config(secured, {name: text}, per_broker=False).is_set(name)
    check_protection("0", secured, {name: text})


@pytest.mark.parametrize(
    ("text", "users"),
    [
        ("User:admin", {"User:admin"}),
        (" User:a; User:CN=b,O=c;Group:d:e;", {"User:a", "User:CN=b,O=c", "Group:d:e"}),
        ("", set()),
        (";", set()),
    ],
)
def test_super_users_are_separated_by_semicolons(text: str, users: set[str]) -> None:
    """A name may have commas and colons."""
    found = values(authorizer_class_name=AUTHORIZER, super_users=text)
    assert super_users(found["super.users"]) == users


@pytest.mark.parametrize("text", ["admin", "User:a,b;c", "User:a;;User:b"])
def test_a_super_user_that_is_no_principal_ends_the_start(text: str) -> None:
    """It would have no rights, and the operator thinks that it has."""
    with pytest.raises(ConfigError, match=r"super\.users: expected a string in format principalType:principalName"):
        values(authorizer_class_name=AUTHORIZER, super_users=text)


def test_what_is_given_without_effect_is_reported_and_nothing_else() -> None:
    """Unknown names and Kafka's without effect here; not the level of a codec, which
    has an effect."""
    found = values(num_io_threads="16", log_preallocate="true", my_own="1", compression_zstd_level="5", broker_id="1")
    assert set(settings.settings_without_effect(found)) == {"num.io.threads", "log.preallocate", "my.own"}


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ({"log_cleaner_threads": "1000000"}, "at least 1MB per cleaner thread"),
        ({"max_connections_per_ip": "0"}, "can be set to zero only if"),
        ({"broker_id": "1", "node_id": "2"}, "node.id must be equal to broker.id"),
        (
            {"queued_max_request_bytes": "104857599"},
            "queued.max.request.bytes must be larger or equal to socket.request.max.bytes",
        ),
    ],
)
def test_values_that_cannot_stand_together_are_refused(texts: dict[str, str], words: str) -> None:
    """In Kafka's words where it has some."""
    with pytest.raises(ConfigError, match=words):
        values(**texts)


@pytest.mark.parametrize(
    ("name", "old", "new", "words"),
    [
        ("num.io.threads", 8, 16, None),
        ("num.io.threads", 8, 4, None),
        ("num.io.threads", 8, 17, "should not be greater than double the current value 8"),
        ("num.io.threads", 8, 3, "should be at least half the current value 8"),
        ("num.replica.fetchers", 1, 0, "should be at least 1"),
        ("log.cleaner.threads", 1, 2, None),
        ("log.cleaner.threads", 1, 3, "cannot be increased to more than double the current value 1"),
        ("log.cleaner.threads", 4, 1, "cannot be reduced to less than half the current value 4"),
        ("log.cleaner.threads", 1, 0, "should be at least 1"),
        ("offsets.retention.minutes", 1, 100, None),
    ],
)
def test_a_number_of_threads_changes_by_half_or_double_at_most(
    name: str, old: int, new: int, words: str | None
) -> None:
    """As in Kafka, also where threads have no effect here."""
    before, after = (DEFINITIONS.parse({"zookeeper.connect": "z:1", name: str(count)}) for count in (old, new))
    expected = contextlib.nullcontext() if words is None else pytest.raises(ConfigError, match=words)
    with expected:
        settings.check_thread_counts(before, after, [name])
    settings.check_thread_counts(before, after, [])


@pytest.mark.parametrize(
    ("text", "expected"), [("-1", DEFAULT_WAITING_BYTES), ("0", DEFAULT_WAITING_BYTES), ("300000000", 300_000_000)]
)
def test_what_waits_for_clients_and_for_brokers_has_the_limit_of_the_settings(text: str, expected: int) -> None:
    """Each its own, and strangers a small one."""
    limits = waiting_limits(values(queued_max_request_bytes=text))
    found = {standing: each.budget.limit_bytes for standing, each in limits.items()}
    assert found == {Standing.STRANGER: STRANGERS_BYTES, Standing.CLIENT: expected, Standing.MEMBER: expected}
    assert len({id(each) for each in limits.values()}) == 3
