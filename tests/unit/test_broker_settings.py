"""Broker settings: listeners, log dirs, caps, and what is said about mistakes."""

import pytest

from barnabas.base.errors import ConfigError
from barnabas.base.settings import Values
from barnabas.broker.configuration import definitions as settings
from barnabas.broker.configuration.definitions import DEFINITIONS, UPDATE_MODES, WITHOUT_EFFECT, ListenerAddress


def values(**texts: str) -> Values:
    return DEFINITIONS.parse({"zookeeper.connect": "z:2181", **{k.replace("_", "."): v for k, v in texts.items()}})


def told(found: Values) -> list[str]:
    return [str(end) for end in settings.advertised_listeners(found, settings.listeners(found), lambda: "me.example")]


def test_kafkas_default_listener_is_advertised_under_this_hosts_name() -> None:
    """An address of all interfaces cannot be told to clients."""
    assert settings.listeners(values()) == [ListenerAddress("PLAINTEXT", "PLAINTEXT", "", 9092)]
    assert told(values()) == ["PLAINTEXT://me.example:9092"]


def test_several_listeners_have_names_and_one_of_them_is_for_brokers() -> None:
    """The map gives each name its protocol."""
    found = values(
        listeners="IN://127.0.0.1:1,OUT://[::1]:2",
        listener_security_protocol_map="IN:PLAINTEXT,OUT:PLAINTEXT",
        inter_broker_listener_name="in",
        advertised_listeners="OUT://out.example:9,IN://in.example:8",
    )
    assert [str(end) for end in settings.listeners(found)] == ["IN://127.0.0.1:1", "OUT://[::1]:2"]
    assert settings.inter_broker_listener(found) == "IN"
    assert told(found) == ["OUT://out.example:9", "IN://in.example:8"]


def test_port_0_is_advertised_as_the_real_one() -> None:
    """Any free port is fine for tests."""
    found = values(listeners="PLAINTEXT://127.0.0.1:0")
    bound = [ListenerAddress("PLAINTEXT", "PLAINTEXT", "127.0.0.1", 4711)]
    assert [end.port for end in settings.advertised_listeners(found, bound, lambda: "x")] == [4711]


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        ({"listeners": "9092"}, "is not NAME://host:port"),
        ({"listeners": "PLAINTEXT://h:70000"}, "is not NAME://host:port"),
        ({"listeners": "SSL://h:1"}, "does not speak"),
        ({"listeners": "OTHER://h:1"}, "names no security protocol for OTHER"),
        ({"listeners": "PLAINTEXT://a:1,PLAINTEXT://b:2"}, "a name of its own"),
        ({"listeners": ""}, "names no listener"),
        ({"listeners": "PLAINTEXT://0.0.0.0:1"}, "set advertised.listeners"),
        ({"advertised_listeners": "PLAINTEXT://0.0.0.0:1"}, "nobody can connect"),
        ({"security_inter_broker_protocol": "SSL"}, "no listener SSL"),
        ({"log_dirs": " , "}, "At least one log directory"),
        ({"max_connections_per_ip_overrides": "localhost"}, "is not host:count"),
    ],
)
def test_a_mistake_is_named_with_its_property(texts: dict[str, str], words: str) -> None:
    """Whoever reads the message knows what to change."""

    def use() -> None:
        found = values(**texts)
        told(found)
        settings.inter_broker_listener(found)
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


def test_what_can_change_while_running_is_defined() -> None:
    """Update modes and properties without effect name no property twice."""
    assert [name for name in UPDATE_MODES if name not in DEFINITIONS] == []
    assert [name for name in WITHOUT_EFFECT if name in DEFINITIONS] == []
