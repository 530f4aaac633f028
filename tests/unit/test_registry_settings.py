"""The registry's file, as Confluent's schema-registry.properties: what is understood, what has no
effect, and what stops the start."""

from collections.abc import Mapping

import pytest

from barnabas.base.errors import ConfigError
from barnabas.registry.settings import ServerSettings, parse_server_settings

SERVERS = {"kafkastore.bootstrap.servers": "PLAINTEXT://one:9092,two:9093"}


def parsed(**texts: str) -> ServerSettings:
    """With underscores for dots."""
    given = {name.replace("_", "."): text for name, text in texts.items()}
    return parse_server_settings({**SERVERS, **given}, read)


def read(path: str) -> Mapping[str, str]:
    return {"ann": f"password in {path}"}


class TestConfluentsFile:
    def test_file_of_the_quickstart_is_understood(self) -> None:
        """Its names mean what they do there."""
        settings = parsed(
            listeners="http://0.0.0.0:8081,http://[::1]:8082",
            kafkastore_topic="_other",
            kafkastore_topic_replication_factor="2",
            kafkastore_timeout_ms="500",
            schema_registry_group_id="group",
            host_name="sr1",
            leader_eligibility="false",
            schema_compatibility_level="full_transitive",
            mode_mutability="false",
            debug="false",
        )
        assert [str(each) for each in settings.listeners] == ["http://0.0.0.0:8081", "http://[::1]:8082"]
        store = settings.store
        assert (store.bootstrap_servers, store.topic, store.group_id) == ("one:9092,two:9093", "_other", "group")
        assert (store.replication_factor, store.timeout_ms, store.is_eligible) == (2, 500, False)
        assert settings.host_name == "sr1"
        assert settings.registry.compatibility_level == "FULL_TRANSITIVE"
        assert not settings.registry.mode_mutability
        assert settings.warnings == ("debug has no effect",)

    def test_defaults_are_confluents(self) -> None:
        """A file needs the brokers only."""
        settings = parsed()
        assert str(settings.listeners[0]) == "http://0.0.0.0:8081"
        assert (settings.store.topic, settings.store.group_id) == ("_schemas", "schema-registry")
        assert settings.registry.compatibility_level == "BACKWARD"
        assert settings.store.group_timeouts.session_ms == 10_000

    def test_protection_of_the_brokers_goes_to_the_clients(self) -> None:
        """Under the names that Kafka's clients have."""
        settings = parsed(kafkastore_security_protocol="SASL_SSL", kafkastore_sasl_jaas_config="x")
        assert settings.store.properties == {"security.protocol": "SASL_SSL", "sasl.jaas.config": "x"}

    def test_old_names_mean_the_same(self) -> None:
        """As older files have them."""
        settings = parsed(avro_compatibility_level="none", master_eligibility="false")
        assert settings.registry.compatibility_level == "NONE"
        assert not settings.store.is_eligible


@pytest.mark.parametrize(
    ("texts", "reason"),
    [
        ({"kafkastore.bootstrap.servers": ""}, "bootstrap.servers"),
        ({"kafkastore.securty.protocol": "SSL"}, "kafkastore.securty.protocol is not a setting"),
        ({"listeners": "ftp://x:1"}, "listeners"),
        ({"schema.compatibility.level": "sideways"}, "schema.compatibility.level"),
        ({"inter.instance.protocol": "https"}, "no listener is"),
        ({"resource.extension.class": "io.confluent.Security"}, "resource.extension.class is not supported"),
        ({"confluent.schema.registry.authorizer.class": "A"}, "authorizer.class is not supported"),
        ({"authentication.roles": "admin"}, "authentication.roles is not supported"),
        ({"authentication.skip.paths": "/"}, "authentication.skip.paths"),
        ({"authentication.method": "BASIC"}, "authentication.users.file is not set"),
        ({"authentication.read.only.users": "ann"}, "authentication.method is NONE"),
        ({"authorization.acls": "true"}, "authentication.method is NONE"),
        ({"authorization.super.users": "ann"}, "authorization.acls is not true"),
        ({"kafkastore.topic.skip.validation": "true"}, "always checked"),
        ({"metadata.encoder.secret": "s"}, "metadata is not encrypted"),
        ({"enable.fips": "true"}, "FIPS"),
        ({"csrf.prevention.enable": "true"}, "csrf.prevention.enable"),
        ({"kafkagroup.heartbeat.interval.ms": "10000"}, "is not below"),
    ],
)
def test_file_that_would_not_do_what_it_says_stops_the_start(texts: dict[str, str], reason: str) -> None:
    """A protection that is not there is never taken for one."""
    with pytest.raises(ConfigError, match=reason):
        parse_server_settings({**SERVERS, **texts}, read)


@pytest.mark.parametrize(
    "texts",
    [{"authentication.roles": "*"}, {"enable.fips": "false"}, {"kafkastore.topic.skip.validation": "false"}],
)
def test_value_that_asks_for_nothing_is_no_error(texts: dict[str, str]) -> None:
    """Files name defaults."""
    assert parse_server_settings({**SERVERS, **texts}, read).warnings == ()


def test_users_of_a_cluster_with_lists_are_principals() -> None:
    """A name alone is that of a user."""
    settings = parsed(
        authentication_method="BASIC",
        authentication_users_file="users",
        authorization_acls="true",
        authorization_super_users="ann,User:bob",
    )
    assert settings.acl_super_users == {"User:ann", "User:bob"}
    assert settings.access.user_of("Basic YW5uOnBhc3N3b3JkIGluIHVzZXJz") == "ann"
