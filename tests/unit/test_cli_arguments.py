"""What a command says when it is called in a wrong way, and where help is."""

import json
from pathlib import Path

import pytest

from barnabas.cli.commands import COMMANDS
from barnabas.cli.machine import clusters as local_clusters
from barnabas.cli.machine.clusters import LocalCluster
from barnabas.cli.machine.server_names import SERVICES
from barnabas.cli.main import main
from barnabas.cli.setup import completion

WITHOUT_BROKERS = [
    ["acls", "--list"],
    ["broker-api-versions"],
    ["cat", "-L"],
    ["cluster", "cluster-id"],
    ["configs", "--describe", "--entity-type", "topics"],
    ["console-consumer", "--topic", "t"],
    ["console-producer", "--topic", "t"],
    ["consumer-groups", "--list"],
    ["consumer-perf-test", "--topic", "t", "--messages", "1"],
    ["delete-records", "--offset-json-file", "f"],
    ["doctor"],
    ["features", "describe"],
    ["get-offsets", "--topic", "t"],
    ["groups", "list"],
    ["lag"],
    ["leader-election", "--election-type", "preferred", "--all-topic-partitions"],
    ["log-dirs", "--describe"],
    ["overview"],
    ["producer-perf-test", "--topic", "t", "--num-records", "1", "--record-size", "1", "--throughput", "1"],
    ["reassign-partitions", "--list"],
    ["replica-verification"],
    ["tail", "t"],
    ["top"],
    ["topics", "--list"],
    [
        *("transactional-message-copier", "--input-topic", "t", "--input-partition", "0"),
        *("--output-topic", "u", "--transactional-id", "x"),
    ],
    ["transactions", "list"],
    ["verifiable-consumer", "--topic", "t", "--group-id", "g"],
    ["verifiable-producer", "--topic", "t"],
]


@pytest.fixture(autouse=True)
def no_settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither contexts nor clusters of the person who runs the tests."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.delenv("BARNABAS_CONTEXT", raising=False)


@pytest.mark.parametrize("command", WITHOUT_BROKERS, ids=lambda command: command[0])
def test_without_brokers_every_command_says_where_to_name_them(
    command: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    """One rule: the option, else the context, else an error that names both."""
    assert main(command) == 2
    first, second = capsys.readouterr().err.splitlines()
    assert first.endswith(
        "; give --bootstrap-server localhost:9092, or set it once for all commands: "
        "barnabas context add local --bootstrap-servers localhost:9092"
    )
    assert second in (f"See barnabas {command[0]} --help.", f"See barnabas {' '.join(command[:2])} --help.")


def test_every_command_with_the_option_is_among_them(capsys: pytest.CaptureFixture[str]) -> None:
    """`context` defines what the others take; servers have the brokers of their files."""
    others = {"context", *(service.command for service in SERVICES.values())}
    takers = {name for name in COMMANDS if name not in others and main(["help", name]) == 0 and _shows_option(capsys)}
    assert takers == {command[0] for command in WITHOUT_BROKERS}


def _shows_option(capsys: pytest.CaptureFixture[str]) -> bool:
    return "--bootstrap-server " in capsys.readouterr().out


@pytest.mark.parametrize("command", WITHOUT_BROKERS, ids=lambda command: command[0])
def test_every_command_takes_the_brokers_of_the_context(command: list[str], tmp_path: Path) -> None:
    """Nothing listens there, so each ends with 1, and doctor with 3: its arguments were right."""
    (tmp_path / "f").write_text(json.dumps({"partitions": [{"topic": "t", "partition": 0, "offset": 0}]}))
    assert main(["context", "add", "away", "--bootstrap-servers", "127.0.0.1:1"]) == 0
    assert main([str(tmp_path / "f") if word == "f" else word for word in command]) == (
        3 if command == ["doctor"] else 1
    )


def test_a_cluster_that_runs_here_is_the_example(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """`up` may have chosen other ports."""
    running = LocalCluster(
        **{**dict.fromkeys(LocalCluster.__annotations__, ""), "bootstrap_servers": "127.0.0.1:4711"}  # type: ignore[arg-type]
    )
    monkeypatch.setattr(local_clusters, "running_clusters", lambda: [running])
    assert main(["topics", "--list"]) == 2
    assert "--bootstrap-server 127.0.0.1:4711, or" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "meant"),
    [
        (["topics", "--list", "--bootstrap-servers", "h:1"], "--bootstrap-server"),
        (["topics", "--list", "--bootstrap_servers=h:1"], "--bootstrap-server"),
        (["overview", "--bootstrap_server", "h:1"], "--bootstrap-server"),
        (["console-consumer", "--topic", "t", "--from_beginning"], "--from-beginning"),
        (["cat", "--bootstrap.server", "h:1"], "--bootstrap-server"),
        (["up", "--data_dir", "d"], "--data-dir"),
        (["zookeeper-server-start", "zoo.cfg", "--overide", "a=b"], "--override"),
        (["mirror-maker", "--consumer_config", "f"], "--consumer.config"),
        (["pipeline", "run", "flow.toml", "--onec"], "--once"),
        (["pipeline", "run", "--bad", "--accept_bad_rows"], "--accept-bad-rows"),
        (["pipeline", "test", "flow.toml", "--bootstrap_servers", "h:1"], "--bootstrap-servers"),
        (["pipeline", "chekc", "flow.toml"], "check"),
        (["groups", "lst"], "list"),
        (["context", "ad", "x"], "add"),
        (["topics", "help"], "--help"),
        (["help", "tpoics"], "topics"),
        (["help", "pipeline", "rnu"], "run"),
    ],
    ids=" ".join,
)
def test_a_typing_error_is_answered_with_the_name_that_may_be_meant(
    arguments: list[str], meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Options, also with underscores, actions and commands."""
    assert main(arguments) == 2
    first, *rest = capsys.readouterr().err.splitlines()
    assert first.endswith(f"; did you mean {meant}?")
    assert len(rest) <= 1


def test_an_error_of_an_action_leads_to_the_help_of_the_action(capsys: pytest.CaptureFixture[str]) -> None:
    """One line for what is wrong, one for the help, as for a command."""
    assert main(["pipeline", "run"]) == 2
    expected = "the following arguments are required: FILE\nSee barnabas pipeline run --help.\n"
    assert capsys.readouterr().err == expected


@pytest.mark.parametrize("words", [[name] for name in COMMANDS] + [["pipeline", "run"]], ids=" ".join)
def test_help_of_a_command_is_what_its_option_prints(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    """``barnabas help topics``, ``barnabas help pipeline run``."""
    assert main(["help", *words]) == 0
    shown = capsys.readouterr().out
    assert shown.lower().startswith(f"usage: barnabas {' '.join(words)}")
    assert main([*words, "--help"]) == 0
    assert capsys.readouterr().out == shown


def test_help_without_a_command_lists_them(capsys: pytest.CaptureFixture[str]) -> None:
    """As ``--help`` does."""
    for words in (["help"], ["help", "help"], ["help", "--help"], ["--help"]):
        assert main(words) == 0
        assert capsys.readouterr().out.startswith("Usage: barnabas COMMAND")


def test_completion_knows_help() -> None:
    """Its commands, and pipeline's actions."""
    assert completion.words(["hel"]) == ["help"]
    assert completion.words(["help", "topi"]) == ["topics"]
    assert completion.words(["help", "hel"]) == []
    assert completion.words(["help", "pipeline", "dr"]) == ["dry-run"]
    assert completion.words(["help", "topics", ""]) == []


def test_a_new_flow_names_the_brokers_of_the_context(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its file is a start: without a context it has the usual address."""
    monkeypatch.chdir(tmp_path)
    assert main(["pipeline", "new", "first.toml"]) == 0
    assert main(["context", "add", "away", "--bootstrap-servers", "away:1"]) == 0
    assert main(["pipeline", "new", "second.toml"]) == 0
    assert main(["pipeline", "new", "third.toml", "--bootstrap-server", "other:1"]) == 0
    for name, servers in (("first", "localhost:9092"), ("second", "away:1"), ("third", "other:1")):
        assert f'bootstrap_servers = "{servers}"' in Path(f"{name}.toml").read_text()
