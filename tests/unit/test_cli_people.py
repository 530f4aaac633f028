"""What commands do for people: contexts, completion, hints, times, readable records."""

import json
import os
import subprocess
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from barnabas.base.errors import ConfigError
from barnabas.cli.connection.contexts import Context, current_context
from barnabas.cli.connection.properties import properties_file
from barnabas.cli.console.formatters import formatter
from barnabas.cli.main import main
from barnabas.cli.options.times import parse_time_ms
from barnabas.cli.options.tool_parser import ToolParser, add_connection_options
from barnabas.cli.output.readable import json_line, readable, record_text
from barnabas.cli.output.watching import show_repeatedly
from barnabas.cli.setup import completion
from barnabas.cli.trials.java_dates import java_date
from barnabas.client.errors import AuthorizationError, ConnectError
from barnabas.client.records import Record
from barnabas.wire.kafka.errors import ErrorCode
from support.needs import needs

NOW = datetime(2026, 11, 22, 9, 30, tzinfo=timezone(timedelta(hours=1)))


@pytest.fixture(autouse=True)
def configuration(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A configuration folder of the test's own, and no context."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.delenv("BARNABAS_CONTEXT", raising=False)


def parser() -> ToolParser:
    """A tool with the usual options."""
    made = ToolParser("tool", "A tool.")
    add_connection_options(made)
    made.add_argument("--topic")
    made.add_argument("--num-streams", type=int, default=3, help="how many streams")
    return made


def test_a_context_takes_the_place_of_bootstrap_server(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The one in use; BARNABAS_CONTEXT is stronger, an option strongest."""
    assert parser().parse_args([]).bootstrap_server is None
    config = tmp_path / "c.properties"
    config.write_text("client.id=mine\n")
    assert main(["context", "add", "staging", "--bootstrap-servers", "a:1,b:2", "--config", str(config)]) == 0
    assert main(["context", "add", "local", "--bootstrap-servers", "localhost:9092"]) == 0
    given = parser().parse_args([])
    assert (given.bootstrap_server, properties_file(given.command_config)) == ("a:1,b:2", {"client.id": "mine"})
    monkeypatch.setenv("BARNABAS_CONTEXT", "local")
    assert parser().parse_args([]).bootstrap_server == "localhost:9092"
    assert parser().parse_args(["--bootstrap-server", "x:1"]).bootstrap_server == "x:1"
    monkeypatch.delenv("BARNABAS_CONTEXT")
    assert main(["context", "remove", "staging"]) == 0
    assert current_context() is None
    capsys.readouterr()
    assert main(["context", "use", "local"]) == 0
    assert current_context() == Context("local", "localhost:9092")
    assert main(["context", "list", "--output", "json"]) == 0
    (listed,) = json.loads(capsys.readouterr().out.partition("\n")[2])
    known = {"name": "local", "bootstrap_servers": "localhost:9092", "config": None, "properties": {}, "secrets": {}}
    assert listed == {**known, "used": True}


def test_a_context_that_does_not_exist_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A typing error in the variable must not lead to another cluster."""
    monkeypatch.setenv("BARNABAS_CONTEXT", "stagign")
    with pytest.raises(Exception, match=r"there is no context stagign \(BARNABAS_CONTEXT\)"):
        parser().parse_args([])


def test_an_unknown_option_is_answered_with_the_one_that_may_be_meant(capsys: pytest.CaptureFixture[str]) -> None:
    """One line more than argparse has."""
    with pytest.raises(SystemExit):
        parser().parse_args(["--tpoic=x"])
    assert "unrecognized arguments: --tpoic=x; did you mean --topic?" in capsys.readouterr().err


def test_help_shows_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    """Those that the help of the option does not have anyway."""
    with pytest.raises(SystemExit):
        parser().parse_args(["--help"])
    shown = " ".join(capsys.readouterr().out.split())
    assert "how many streams (default 3)" in shown
    assert "with what is known by then (default: 5) --" in shown


def test_completion_offers_commands_and_options() -> None:
    """Names of clusters need a cluster, and are tried in tests/interop."""
    assert completion.words(["conso"]) == ["console-producer", "console-consumer"]
    assert "--max-messages" in completion.words(["console-consumer", "--max"])
    assert completion.words(["no-such-command", "--"]) == []
    assert completion.words(["topics", "--bootstrap-server", "127.0.0.1:1", "--topic", ""]) == []


@pytest.mark.parametrize(
    ("typed", "offered"),
    [
        (["topics", "--output", ""], ["text", "json"]),
        (["topics", "--output", "j"], ["json"]),
        (["leader-election", "--election-type", "p"], ["preferred"]),
        (["groups", ""], ["list", "seek"]),
        (["completion", ""], ["bash", "zsh", "fish"]),
        (["pipeline", "dr"], ["dry-run"]),
        (["pipeline", "run", "--mas"], ["--master"]),
        (["context", "use", "st"], ["staging"]),
        (["topics", "--partitions", ""], []),
    ],
    ids=" ".join,
)
def test_completion_offers_values_actions_and_contexts(typed: list[str], offered: list[str]) -> None:
    """Where the help lists what may stand there, and the names of contexts."""
    assert main(["context", "add", "staging", "--bootstrap-servers", "127.0.0.1:1"]) == 0
    assert completion.words(typed) == offered


# Each shell asks the same command: what it would offer is printed by a script of its own.
TRIALS = {
    "bash": 'eval "$(barnabas completion bash)"; COMP_WORDS=(barnabas {words}); COMP_CWORD={last}; _barnabas; '
    'printf "%s\\n" "${{COMPREPLY[@]}}"',
    "zsh": "compdef() {{ :; }}; _files() {{ :; }}; compadd() {{ print -l -- ${{(P)2}}; }}; "
    'eval "$(barnabas completion zsh)"; words=(barnabas {words}); CURRENT=$(({last} + 1)); _barnabas',
    "fish": 'barnabas completion fish | source; complete -C "barnabas {words}"',
}
PLAIN = {"bash": ["--norc"], "zsh": ["-f"], "fish": ["--no-config"]}


@pytest.mark.parametrize("shell", [pytest.param(shell, marks=needs(shell)) for shell in TRIALS])
@pytest.mark.parametrize(
    ("typed", "offered"),
    [("console-", ["console-consumer", "console-producer"]), ("topics --exc", ["--exclude-internal"])],
)
def test_shells_offer_what_the_command_prints(shell: str, typed: str, offered: list[str], tmp_path: Path) -> None:
    """No file of the folder is among the words."""
    barnabas = tmp_path / "barnabas"
    barnabas.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m barnabas "$@"\n')
    barnabas.chmod(0o755)
    (tmp_path / "console-file").touch()
    script = TRIALS[shell].format(words=typed, last=len(typed.split()))
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path)}
    done = subprocess.run(
        [shell, *PLAIN[shell], "-c", script],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        cwd=tmp_path,
        timeout=120,
    )
    assert sorted(line.partition("\t")[0] for line in done.stdout.splitlines()) == offered, done.stderr


@pytest.mark.parametrize(
    ("text", "when"),
    [
        ("09:00", "2026-11-22T09:00:00+01:00"),
        ("10:00", "2026-11-21T10:00:00+01:00"),
        ("15m", "2026-11-22T09:15:00+01:00"),
        ("2d", "2026-11-20T09:30:00+01:00"),
        ("2026-11-01", "2026-11-01T00:00:00+01:00"),
        ("2026-11-01T08:00:00Z", "2026-11-01T09:00:00+01:00"),
    ],
)
def test_times_are_read_as_people_type_them(text: str, when: str) -> None:
    """A time of day that is still to come was yesterday's."""
    assert parse_time_ms(text, NOW, "--since") == round(datetime.fromisoformat(when).timestamp() * 1000)


@pytest.mark.parametrize("text", ["25:00", "soon", "10", ""])
def test_a_time_that_cannot_be_read_is_an_error(text: str) -> None:
    """It says what is expected."""
    with pytest.raises(ConfigError, match="--since"):
        parse_time_ms(text, NOW, "--since")


def test_javas_date_letters_are_understood() -> None:
    """ConsumerPerformance's default, quotes, and a letter without a number."""
    assert java_date(NOW, "yyyy-MM-dd HH:mm:ss:SSS") == "2026-11-22 09:30:00:000"
    assert java_date(NOW, "HH 'h'") == "09 h"
    with pytest.raises(ConfigError, match="the letter G is not supported"):
        java_date(NOW, "G")


@pytest.mark.parametrize(
    ("data", "shown"),
    [(None, "null"), (b"\xff\x00a", r"\xff\x00a"), ("ä\x1b".encode(), "ä\\x1b"), (b'{"a":1}', '{\n  "a": 1\n}')],
)
def test_values_are_shown_readably(data: bytes | None, shown: str) -> None:
    """A terminal gets no control characters, and JSON in lines."""
    assert readable(data, pretty=True) == shown


def test_a_record_is_a_line_for_people_or_for_scripts() -> None:
    """Place, time, key, value; or one JSON document."""
    record: Record[bytes, bytes] = Record("t", 1, 2, b"k", b"v", None, 0, [("h", None)])
    assert record_text(record, pretty=False) == "1:2 ----------------------- k v"
    assert json.loads(json_line(record))["headers"] == [["h", None]]


def test_bytes_that_are_not_utf8_stand_in_a_document_as_they_are_too() -> None:
    """Their escapes may be a text, and so a key of another record."""
    text = r"\xff"
    of_text: Record[bytes, bytes] = Record("t", 0, 0, text.encode(), b"v", None, 0, [("h", b"x")])
    of_bytes: Record[bytes, bytes] = Record("t", 0, 0, b"\xff", None, None, 0, [("h", b"\xfe"), ("i", None)])
    found = [json.loads(json_line(each)) for each in (of_text, of_bytes)]
    assert [each["key"] for each in found] == [text, text]
    assert not [name for name in found[0] if name.endswith("base64")]
    assert (found[1]["key_base64"], found[1]["headers_base64"]) == ("/w==", [["h", "/g=="], ["i", None]])
    assert "value_base64" not in found[1]
    assert json.loads(formatter("json", {})(of_bytes)) == {**found[1], "timestamp_type": "CreateTime"}


@pytest.mark.parametrize(
    "command",
    [["console-consumer", "--topic", "t"], ["console-producer", "--topic", "t"], ["tail", "t"], ["cat", "-L"]],
)
def test_without_a_broker_every_command_ends_with_a_clear_error(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """At once where the connection is refused."""
    assert main([*command, "--bootstrap-server", "127.0.0.1:1"]) == 1
    assert "127.0.0.1:1 refused the connection: is a broker running there?" in capsys.readouterr().err


@pytest.mark.parametrize("text", ["0", "-1", "nan", "inf", "1e400", "soon"])
@pytest.mark.parametrize(
    "words",
    [
        "overview --bootstrap-server h:1 --watch",
        "consumer-groups --bootstrap-server h:1 --describe --all-groups --watch",
        "down --timeout",
        "zookeeper-server-stop --timeout",
    ],
)
def test_a_time_that_is_none_is_wrong_usage(words: str, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing could wait for so long."""
    assert main([*words.split()[:-1], f"{words.split()[-1]}={text}"]) == 2
    assert f"{text}: a number of seconds above 0 is expected" in capsys.readouterr().err


def test_only_a_description_of_groups_is_watched(capsys: pytest.CaptureFixture[str]) -> None:
    """With another action the option would have no effect."""
    assert main(["consumer-groups", "--bootstrap-server", "h:1", "--list", "--watch"]) == 2
    assert "Option [watch] is only for [describe]" in capsys.readouterr().err


def test_a_watch_goes_on_when_brokers_are_away_for_a_while(capsys: pytest.CaptureFixture[str]) -> None:
    """The first time an error ends it: there is no broker at all."""
    outcomes: list[Exception | str] = ["first", ConnectError("no broker answers"), "again", KeyboardInterrupt()]

    def show() -> None:
        outcome = outcomes.pop(0)
        if not isinstance(outcome, str):
            raise outcome
        print(outcome)

    with pytest.raises(KeyboardInterrupt):
        show_repeatedly(show, 0.0, lambda: None)
    shown = capsys.readouterr()
    assert (shown.out, shown.err) == ("first\nagain\n", "Error: no broker answers\n")
    outcomes = [ConnectError("no broker answers"), "never"]
    with pytest.raises(ConnectError):
        show_repeatedly(show, 0.0, lambda: None)
    outcomes = ["first", AuthorizationError(ErrorCode.GROUP_AUTHORIZATION_FAILED), "never"]
    with pytest.raises(AuthorizationError):
        show_repeatedly(show, 0.0, lambda: None)
