"""The entry point: commands, help, exit codes."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.base.errors import BarnabasError
from barnabas.cli.commands import COMMANDS
from barnabas.cli.connection.properties import client_properties_file, key_values, properties_file
from barnabas.cli.main import main
from barnabas.cli.output.standard_streams import prepare_streams
from barnabas.cli.output.tables import aligned
from barnabas.cli.zookeeper import shell as zookeeper_shell
from barnabas.client import ConfigurationError, Producer


def test_help_lists_each_command_that_exists(capsys: pytest.CaptureFixture[str]) -> None:
    """One line a command."""
    assert main(["--help"]) == 0
    lines = capsys.readouterr().out.splitlines()
    for name in ("topics", "console-producer", "console-consumer", "consumer-groups", "zookeeper-shell"):
        assert any(line.startswith(f"  {name} ") for line in lines)


def test_no_command_or_an_unknown_one_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    """Exit 2, and a near name is offered."""
    assert main([]) == 2
    assert main(["kafka-topics.sh"]) == 2
    assert "did you mean topics?" in capsys.readouterr().err
    assert main(["tpoics"]) == 2
    assert "did you mean topics?" in capsys.readouterr().err


def test_version_is_the_packages(capsys: pytest.CaptureFixture[str]) -> None:
    """``barnabas --version``."""
    assert main(["--version"]) == 0
    assert capsys.readouterr().out.startswith("barnabas ")


@pytest.mark.parametrize(
    ("raised", "code", "shown"),
    [
        (BarnabasError("no such thing"), 1, "Error: no such thing\n"),
        (KeyboardInterrupt(), 130, ""),
        (SystemExit(2), 2, ""),
    ],
)
def test_a_command_that_fails_ends_in_one_line_and_its_code(
    raised: BaseException,
    code: int,
    shown: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """No traceback for an error that a person is meant to read."""

    def fail(_: list[str]) -> int:
        raise raised

    monkeypatch.setattr(zookeeper_shell, "main", fail)
    assert main(["zookeeper-shell"]) == code
    assert capsys.readouterr().err == shown


@pytest.mark.parametrize("name", COMMANDS)
def test_each_command_has_help(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """``--help`` works without a server."""
    assert main([name, "--help"]) == 0
    assert f"barnabas {name}" in capsys.readouterr().out


def test_tools_that_do_not_produce_or_consume_do_not_load_librdkafka() -> None:
    """Start-up time is spent on what the command needs."""
    script = (
        "import sys; from barnabas.cli.main import main; main(['topics', '--help']); "
        "sys.exit('confluent_kafka' in sys.modules or 'asyncio' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_help_of_the_console_consumer_loads_no_compression() -> None:
    """Only a batch that cannot be read needs it there."""
    script = (
        "import sys; from barnabas.cli.main import main; main(['console-consumer', '--help']); "
        "sys.exit('cramjam' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_reader_that_goes_away_ends_the_output_quietly() -> None:
    """``| head`` is no error."""
    script = f"{sys.executable} -m barnabas --help | head -n 1"
    done = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=False)
    assert done.stdout.startswith("Usage")
    assert done.stderr == ""


@pytest.mark.parametrize(
    ("redirections", "code", "said"),
    [
        (">/dev/full", 1, "Error: No space left on device\n"),
        (">&-", 0, ""),
        ("<&- >&- 2>&-", 0, ""),
    ],
)
def test_output_that_cannot_be_written_ends_without_a_traceback(redirections: str, code: int, said: str) -> None:
    """A full disk is an error of one line; a closed stream is nothing to write to."""
    command = f"{sys.executable} -m barnabas completion bash {redirections}"
    done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (code, said)


def test_letters_that_the_encoding_lacks_are_written_as_json_has_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also the two halves of one beyond the first plane, and a byte of an argument
    that is not UTF-8."""
    monkeypatch.setenv("PYTHON_COLORS", "0")  # which the streams set for this process
    prepare_streams()
    text = "k\u00e4se \N{CHEESE WEDGE} \udcff"
    written = f'"{text}"'.encode("ascii", "barnabas.escapes").decode("ascii")
    assert written == r'"k\u00e4se \ud83e\uddc0 \udcff"'
    assert json.loads(written) == text


def test_property_options_may_hold_equals_signs_and_nothing() -> None:
    """name=value, where the value is taken as it stands."""
    assert key_values(["a=b=c", "d="], "--property") == {"a": "b=c", "d": ""}
    with pytest.raises(BarnabasError, match="--property x: NAME=VALUE is expected"):
        key_values(["x"], "--property")


def test_a_properties_file_that_is_not_there_is_named(tmp_path: object) -> None:
    """The path and the reason."""
    with pytest.raises(BarnabasError, match="cannot read .*nothing.properties: No such file"):
        properties_file(f"{tmp_path}/nothing.properties")


def test_a_name_of_a_file_that_clients_do_not_know_is_left_out_with_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """As Kafka's tools go on with it; what librdkafka alone knows, and what is
    refused for a reason, stays."""
    file = tmp_path / "client.properties"
    file.write_text(
        "compression_type=none\nenable.random.seed=true\nlinger.ms=1\ninterceptor.classes=a.B\nerror_cb=x\n"
    )
    kept = {"enable.random.seed": "true", "linger.ms": "1", "interceptor.classes": "a.B", "error_cb": "x"}
    assert client_properties_file(str(file)) == kept
    expected = "is not a property of clients, and has no effect; did you mean compression.type?"
    assert capsys.readouterr().err == f"warning: compression_type in {file} {expected}\n"


@pytest.mark.parametrize("name", ["securty.protocol", "sasl_mechanism", "ssl.keystore.pasword", "Security.Protocol"])
def test_a_typing_error_in_what_protects_is_never_left_out(name: str, tmp_path: Path) -> None:
    """The connection would have less protection than is meant."""
    file = tmp_path / "client.properties"
    file.write_text(f"{name}=SASL_SSL\n")
    properties = {**client_properties_file(str(file)), "bootstrap.servers": "127.0.0.1:1"}
    with pytest.raises(ConfigurationError, match=name):
        Producer(properties)


def test_tables_are_aligned_to_their_widest_cell() -> None:
    """Left aligned, one blank apart, none at the end."""
    assert aligned(["A", "BB"], [["long cell", 1], ["x", 22]]) == "A         BB\nlong cell 1\nx         22"
