"""Values of clients' properties that stand in files, in the environment and in the keyring."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import keyring
import pytest
from keyrings.alt.file import PlaintextKeyring

from barnabas.cli.connection.properties import properties_file
from barnabas.cli.main import main
from barnabas.cli.options.tool_parser import ToolParser, add_connection_options
from barnabas.client import Admin
from barnabas.client.errors import AuthenticationError, ConfigurationError
from barnabas.client.properties.config_providers import KEYRING, resolved
from barnabas.client.properties.translation import plan_consumer, plan_producer
from barnabas.mirror import MirrorMaker, MirrorSettings, TopicFilter
from barnabas.mirror.replication_policy import ReplicationPolicy
from barnabas.mirror.settings import LinkSettings
from barnabas.testing import Cluster

OF_KAFKA = "org.apache.kafka.common.config.provider."
CLASSES = {
    "file": f"{OF_KAFKA}FileConfigProvider",
    "dir": f"{OF_KAFKA}DirectoryConfigProvider",
    "env": f"{OF_KAFKA}EnvVarConfigProvider",
    "ring": KEYRING,
}
PROVIDERS = {
    "config.providers": ",".join(CLASSES),
    **{f"config.providers.{name}.class": each for name, each in CLASSES.items()},
}
LOGIN = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "ann"}


@pytest.fixture(autouse=True)
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A file, a folder, the environment and a keyring, each with a secret."""
    (tmp_path / "secrets.properties").write_text("password=in a file\nother=x\n", encoding="utf-8")
    (tmp_path / "password").write_text("in a folder")
    monkeypatch.setenv("KAFKA_PASSWORD", "in the environment")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("BARNABAS_CONTEXT", raising=False)
    before = keyring.get_keyring()
    keyring.set_keyring(PlaintextKeyring())
    keyring.set_password("kafka", "ann", "in the keyring")
    yield
    keyring.set_keyring(before)


def with_providers(**properties: str) -> dict[str, str]:
    return PROVIDERS | {name.replace("_", "."): text for name, text in properties.items()}


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("${file:FOLDER/secrets.properties:password}", "in a file"),
        ("${dir:FOLDER:password}", "in a folder"),
        ("${env:KAFKA_PASSWORD}", "in the environment"),
        ("${ring:kafka:ann}", "in the keyring"),
        ("a ${env:KAFKA_PASSWORD} b ${ring:kafka:ann} c", "a in the environment b in the keyring c"),
        ("${other:KAFKA_PASSWORD}", "${other:KAFKA_PASSWORD}"),
        ("$env:X {env:X} ${env", "$env:X {env:X} ${env"),
    ],
)
def test_a_variable_has_the_value_of_its_place(tmp_path: Path, variable: str, value: str) -> None:
    """The providers' own properties are gone; a text that names none of them stays as it is."""
    given = with_providers(sasl_password=variable.replace("FOLDER", str(tmp_path)))
    assert resolved(given) == {"sasl.password": value}


def test_without_providers_nothing_is_a_variable() -> None:
    """As for Java's clients; what is no text stays, too."""
    given: dict[str, Any] = {"sasl.password": "${env:KAFKA_PASSWORD}", "error_cb": print}
    assert resolved(given) == given


def test_a_value_is_not_looked_through_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A password may look like a variable."""
    monkeypatch.setenv("ODD", "${env:KAFKA_PASSWORD}")
    assert resolved(with_providers(sasl_password="${env:ODD}")) == {"sasl.password": "${env:KAFKA_PASSWORD}"}


@pytest.mark.parametrize(
    ("variable", "reason"),
    [
        ("${file:FOLDER/secrets.properties:pasword}", "secrets.properties has no pasword"),
        ("${file:FOLDER/nothing:password}", "cannot read FOLDER/nothing: No such file or directory"),
        ("${file:password}", "it names no path"),
        ("${dir:FOLDER:nothing}", "has no file nothing"),
        ("${dir:FOLDER/config:../password}", "has no file ../password"),
        ("${env:NOTHING}", "there is no variable NOTHING in the environment"),
        ("${env:a:KAFKA_PASSWORD}", "a variable of the environment has no path"),
        ("${ring:kafka:eve}", "the keyring has no eve of the service kafka"),
    ],
)
def test_a_variable_without_a_value_is_an_error_that_names_both(tmp_path: Path, variable: str, reason: str) -> None:
    """Its own text as a password would only be a failed login."""
    variable, reason = (text.replace("FOLDER", str(tmp_path)) for text in (variable, reason))
    with pytest.raises(ConfigurationError) as error:
        resolved(with_providers(sasl_password=f"secret {variable}"))
    assert str(error.value).startswith(f"sasl.password: {variable} has no value: ")
    assert reason in str(error.value)
    assert "secret" not in str(error.value).replace("secrets.properties", "")


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"config.providers.file.class": f"{OF_KAFKA}FileConfigProvidor"}, "did you mean"),
        ({"config.providers.file.class": ""}, "config.providers.file.class= is not supported"),
        ({"config.providers.env.param.allowlist.patern": "A"}, "did you mean allowlist.pattern"),
        ({"config.providers.env.param.allowlist.pattern": "("}, "is not a regular expression"),
        ({"config.providers.env.allowlist.pattern": "A"}, "config.providers.env.allowlist.pattern is not known"),
        ({"config.providers.file.param.allowed.paths": "here"}, "here is not an absolute path"),
        ({"config.providers.vault.class": "x"}, "config.providers does not name its provider"),
        ({"config.providers": ""}, "config.providers does not name its provider"),
    ],
)
def test_a_provider_with_a_typing_error_is_refused(changes: dict[str, str], reason: str) -> None:
    """It might be one that keeps something from being read."""
    with pytest.raises(ConfigurationError, match=reason):
        resolved(PROVIDERS | changes)


def test_a_provider_reads_what_it_may_and_no_more(tmp_path: Path) -> None:
    """Links out of a folder lead out of it."""
    (tmp_path / "open").mkdir()
    (tmp_path / "open" / "a.properties").write_text("password=a\n")
    (tmp_path / "open" / "out.properties").symlink_to(tmp_path / "secrets.properties")
    (tmp_path / "open" / "password").symlink_to(tmp_path / "password")
    limits = {
        "config.providers.file.param.allowed.paths": f"{tmp_path}/open",
        "config.providers.dir.param.allowed.paths": f"{tmp_path}/open",
        "config.providers.env.param.allowlist.pattern": "KAFKA_.*",
    }
    allowed = {"x": f"${{file:{tmp_path}/open/a.properties:password}}", "y": "${env:KAFKA_PASSWORD}"}
    assert resolved({**PROVIDERS, **limits, **allowed}) == {"x": "a", "y": "in the environment"}
    assert os.environ["HOME"]
    for variable in (
        f"${{file:{tmp_path}/secrets.properties:password}}",
        f"${{file:{tmp_path}/open/../secrets.properties:password}}",
        f"${{file:{tmp_path}/open/out.properties:password}}",
        f"${{dir:{tmp_path}:password}}",
        f"${{dir:{tmp_path}/open:password}}",
        "${env:HOME}",
    ):
        with pytest.raises(ConfigurationError, match=r"is not among|does not allow"):
            resolved({**PROVIDERS, **limits, "x": variable})


def test_all_clients_and_commands_take_them(tmp_path: Path) -> None:
    """From a mapping, from a file, and from a context, whose properties may name the providers of
    its file."""
    given = {"bootstrap.servers": "127.0.0.1:1", **LOGIN, **with_providers(sasl_password="${env:KAFKA_PASSWORD}")}
    for plan in (plan_producer(given), plan_consumer(given)):
        assert plan.librdkafka["sasl.password"] == "in the environment"
        assert not any(name.startswith("config.providers") for name in plan.librdkafka)
    file = tmp_path / "client.properties"
    file.write_text("".join(f"{name}={text}\n" for name, text in (PROVIDERS | LOGIN).items()))
    assert properties_file(str(file)) == LOGIN
    add = ["context", "add", "c", "--bootstrap-servers", "127.0.0.1:1", "--config", str(file), "--no-keyring"]
    assert main([*add, "--property", "sasl.password=${ring:kafka:ann}"]) == 0
    parser = ToolParser("tool", "A tool.")
    add_connection_options(parser)
    assert properties_file(parser.parse_args([]).command_config) == {**LOGIN, "sasl.password": "in the keyring"}


def test_a_cluster_is_opened_with_a_password_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """And not with another one; a mirror and its link take the same properties."""
    with Cluster(security="SASL_PLAINTEXT", users={"ann": "her-password"}) as cluster:
        given = {**cluster.client_properties("ann", "PLAIN"), **with_providers(sasl_password="${env:KAFKA_PASSWORD}")}
        with Admin(given) as admin, pytest.raises(AuthenticationError):
            admin.list_topics()
        monkeypatch.setenv("KAFKA_PASSWORD", "her-password")
        with Admin(given) as admin:
            assert admin.list_topics() == []
        link = LinkSettings(ReplicationPolicy("a", "b", True))
        maker = MirrorMaker(MirrorSettings({**given, "group.id": "mirror"}, given, TopicFilter("x"), link=link))
        maker.start()
        maker.stop()
        maker.wait()
        with Admin(given) as admin:
            assert "heartbeats" in admin.list_topics()
