"""Where a context's secrets go: a real backend of the keyring library, or a file
that only the user can read."""

import io
import json
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import keyring
import pytest
from keyring.backends.fail import Keyring as NoKeyring
from keyring.backends.null import Keyring as ForgetfulKeyring
from keyrings.alt.file import PlaintextKeyring

from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.cli.connection.contexts import Context, contexts_file, load_contexts
from barnabas.cli.connection.properties import properties_file
from barnabas.cli.console import cat, console_consumer
from barnabas.cli.main import main
from barnabas.cli.options.tool_parser import ToolParser, add_connection_options
from barnabas.cli.topics import topics
from barnabas.cli.trials import producer_perf_test

LOGIN = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "ann"}
ADD = ["context", "add", "staging", "--bootstrap-servers", "127.0.0.1:1"]
PROPERTIES = [word for name, value in LOGIN.items() for word in ("--property", f"{name}={value}")]
SECRET = "es=presso, black"


@pytest.fixture(autouse=True)
def folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Folders of the test's own, no context, and the keyring as it was afterwards."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("BARNABAS_CONTEXT", raising=False)
    before = keyring.get_keyring()
    keyring.set_keyring(PlaintextKeyring())
    yield
    keyring.set_keyring(before)


@pytest.fixture
def typed(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Standard input of a command."""
    return lambda text: monkeypatch.setattr("sys.stdin", io.StringIO(text))


def settings() -> dict[str, str]:
    """What a command that gives no options connects with."""
    parser = ToolParser("tool", "A tool.")
    add_connection_options(parser)
    return properties_file(parser.parse_args([]).command_config)


def service_of_staging() -> str:
    """Where the keyring has its secrets."""
    return load_contexts()[0]["staging"].service


def test_a_secret_is_in_the_keyring_and_in_no_file_of_ours(
    typed: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """Commands have it; the list names its place; with the context it goes."""
    typed(f"{SECRET}\n")
    assert main([*ADD, *PROPERTIES, "--secret", "sasl.password"]) == 0
    assert "sasl.password: kept in the keyring (" in capsys.readouterr().err
    assert SECRET not in contexts_file().read_text()
    assert settings() == {**LOGIN, "sasl.password": SECRET}
    assert main(["context", "list", "--output", "json"]) == 0
    (listed,) = json.loads(capsys.readouterr().out)
    assert (listed["properties"], listed["secrets"]) == (LOGIN, {"sasl.password": "keyring"})
    service = listed["keyring_service"]
    assert keyring.get_password(service, "sasl.password") == SECRET
    assert main(["context", "remove", "staging"]) == 0
    assert keyring.get_password(service, "sasl.password") is None


@pytest.mark.parametrize("backend", [NoKeyring, ForgetfulKeyring])
def test_without_a_keyring_the_file_is_the_users_alone_and_the_command_says_so(
    backend: type, typed: Callable[[str], None], capsys: pytest.CaptureFixture[str]
) -> None:
    """Where the library finds no backend, or one that keeps nothing."""
    keyring.set_keyring(backend())
    contexts_file().parent.mkdir(parents=True)
    contexts_file().write_text('{"used": null, "contexts": {}}')
    contexts_file().chmod(0o644)
    typed(f"{SECRET}\n")
    assert main([*ADD, *PROPERTIES, "--secret", "sasl.password"]) == 0
    shown = capsys.readouterr()
    assert f"sasl.password: kept in {contexts_file()}, which only you can read; there is no keyring" in shown.err
    assert stat.S_IMODE(contexts_file().stat().st_mode) == 0o600
    assert settings() == {**LOGIN, "sasl.password": SECRET}
    assert main(["context", "list"]) == 0
    shown = capsys.readouterr()
    assert "sasl.password=(file)" in shown.out
    assert SECRET not in shown.out


def test_a_secret_among_the_properties_goes_to_the_keyring_too(capsys: pytest.CaptureFixture[str]) -> None:
    """Unless the file is asked for."""
    given = [*ADD, *PROPERTIES, "--property", f"sasl.password={SECRET}"]
    assert main(given) == 0
    assert SECRET not in contexts_file().read_text()
    service = service_of_staging()
    assert main([*given, "--no-keyring"]) == 0
    assert json.loads(contexts_file().read_text())["contexts"]["staging"]["properties"]["sasl.password"] == SECRET
    assert keyring.get_password(service, "sasl.password") is None
    assert settings()["sasl.password"] == SECRET


def test_contexts_of_one_name_in_two_files_have_secrets_of_their_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A password must not go to another context's brokers, nor go with it."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "first"))
    assert main([*ADD, *PROPERTIES, "--property", "sasl.password=first"]) == 0
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "second"))
    assert main([*ADD, *PROPERTIES, "--property", "sasl.password=second"]) == 0
    assert settings()["sasl.password"] == "second"
    assert main(["context", "remove", "staging"]) == 0
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "first"))
    assert settings()["sasl.password"] == "first"


def test_a_context_that_cannot_be_saved_leaves_the_one_before_it_with_its_secret() -> None:
    """The keyring forgets the old secret when the file names the new one, and not before."""
    given = [*ADD, *PROPERTIES, "--property"]
    assert main([*given, "sasl.password=old"]) == 0
    old = service_of_staging()
    draft = contexts_file().with_suffix(".new")
    draft.mkdir()
    assert main([*given, "sasl.password=new"]) == 1
    assert settings()["sasl.password"] == "old"
    draft.rmdir()
    assert main([*given, "sasl.password=new"]) == 0
    assert settings()["sasl.password"] == "new"
    assert service_of_staging() != old
    assert keyring.get_password(old, "sasl.password") is None


def test_the_mechanism_of_a_context_is_stronger_than_that_of_its_file_under_either_name(tmp_path: Path) -> None:
    """Or one client would send the password with one mechanism, and the next with another."""
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=SASL_PLAINTEXT\nsasl.mechanisms=PLAIN\nsasl.username=ann\n")
    stronger = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.password": SECRET}
    merged = properties_file(Context("prod", "b:9092", str(file), stronger))
    assert merged == {"security.protocol": "SASL_PLAINTEXT", "sasl.username": "ann", **stronger}


def test_a_contexts_text_has_no_secret() -> None:
    """As tracebacks and logs show it."""
    assert SECRET not in repr(Context("prod", "b:9092", None, {"sasl.password": SECRET}))


def test_a_secret_that_the_keyring_lost_is_an_error_with_a_remedy(typed: Callable[[str], None]) -> None:
    """Never a connection without it."""
    typed(f"{SECRET}\n")
    assert main([*ADD, *PROPERTIES, "--secret", "sasl.password"]) == 0
    keyring.delete_password(service_of_staging(), "sasl.password")
    with pytest.raises(
        BarnabasError, match="no sasl.password of context staging: give it again with barnabas context add"
    ):
        settings()
    keyring.set_keyring(NoKeyring())
    with pytest.raises(BarnabasError, match="no keyring can be used here"):
        settings()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--property", "sasl.pasword=x"], "sasl.pasword is not a setting of clients; did you mean sasl.password"),
        (["--property", "security.protocol=SASL_PLAINTEXT"], "sasl.mechanism is missing"),
        (["--property", "security.protocol=TLS"], "Invalid value TLS"),
        (["--property", "bootstrap.servers=a:1"], "give the brokers with --bootstrap-servers"),
        (["--secret", "sasl.username"], "--secret sasl.username: give it with --property"),
        (["--config", "/no/such/file"], "cannot read /no/such/file"),
    ],
)
def test_a_context_that_no_command_could_use_is_not_added(
    options: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """The error comes where it can be corrected."""
    assert main([*ADD, *options]) == 1
    assert message in capsys.readouterr().err
    assert not contexts_file().exists()


@pytest.mark.parametrize(
    ("tool", "arguments"),
    [
        (topics, ["--list", "--bootstrap-server", "127.0.0.1:2"]),
        (cat, ["-L", "-b", "127.0.0.1:2"]),
        (cat, ["-L", "-X", "bootstrap.servers=127.0.0.1:2"]),
        (cat, ["-L", "-X", "metadata.broker.list=127.0.0.1:2"]),
        (
            producer_perf_test,
            [
                *("--topic", "t", "--num-records", "1", "--record-size", "1", "--throughput", "-1"),
                *("--producer-props", "acks=1", "bootstrap.servers=127.0.0.1:2"),
            ],
        ),
    ],
)
def test_brokers_on_the_command_line_are_stronger_and_get_no_credentials_of_the_context(
    tool: object, arguments: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever option names them: a password must not go to other brokers."""
    assert main([*ADD, *PROPERTIES, "--property", f"sasl.password={SECRET}"]) == 0
    asked = []

    def properties_of(self: object) -> dict[str, str]:
        asked.append(self)
        return {}

    monkeypatch.setattr("barnabas.cli.connection.contexts.Context.secrets", properties_of)
    with pytest.raises(BarnabasError, match="127.0.0.1:2 refused"):
        tool.main(arguments)
    assert asked == []


def test_a_console_without_brokers_does_not_read_a_context_for_brokers_of_a_property(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Kafka's tool asks for --bootstrap-server, so does this one."""
    assert main(ADD) == 0
    with pytest.raises(SystemExit):
        console_consumer.main(["--topic", "t", "--consumer-property", "bootstrap.servers=127.0.0.1:2"])
    assert 'Missing required argument "[bootstrap-server]"' in capsys.readouterr().err


def test_an_empty_secret_is_refused(typed: Callable[[str], None]) -> None:
    """As when standard input is at its end."""
    typed("")
    with pytest.raises(ConfigError, match="sasl.password is empty"):
        main_of_context([*PROPERTIES, "--secret", "sasl.password"])


def main_of_context(options: list[str]) -> int:
    """The command itself, with its errors."""
    from barnabas.cli.setup import context

    return context.main([*ADD[1:], *options])
