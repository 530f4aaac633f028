"""The tools' options: what they refuse, and how their texts are read."""

from pathlib import Path

import pytest

from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.base.ids import TopicPartition
from barnabas.cli.configs import configs
from barnabas.cli.configs.changes import parse_changes
from barnabas.cli.console import tail
from barnabas.cli.groups import consumer_groups
from barnabas.cli.groups.reset_offsets import duration_ms, parse_reset_plan, timestamp_ms
from barnabas.cli.servers import mirror_maker
from barnabas.cli.topics import get_offsets, topics
from barnabas.cli.topics.get_offsets import _rules
from barnabas.cli.trials import producer_perf_test
from barnabas.cli.zookeeper import shell as zookeeper_shell
from barnabas.cli.zookeeper.znode_commands import SHELL_COMMANDS, CommandError
from barnabas.client.errors import ConnectError
from barnabas.testing import Cluster

PERF = ("--topic", "t", "--num-records", "1", "--throughput", "1")
BROKER = ["--bootstrap-server", "localhost:1"]


@pytest.mark.parametrize(
    ("tool", "argv", "message"),
    [
        (topics, [*BROKER], "exactly one action"),
        (topics, [*BROKER, "--list", "--create", "--topic", "t"], "exactly one action"),
        (topics, ["--list"], 'Missing required argument "[bootstrap-server]"'),
        (topics, ["--create", "--topic", "t", "--zookeeper", "localhost:2181"], "--zookeeper is gone"),
        (topics, [*BROKER, "--create"], 'Missing required argument "[topic]"'),
        (topics, [*BROKER, "--alter", "--topic", "t"], 'Missing required argument "[partitions]"'),
        (topics, [*BROKER, "--alter", "--topic", "t", "--config", "a=b"], "use barnabas configs"),
        (
            topics,
            [*BROKER, "--describe", "--partitions", "3"],
            '"[partitions]" can\'t be used with option "[describe]"',
        ),
        (
            topics,
            [*BROKER, "--create", "--topic", "t", "--replica-assignment", "0", "--partitions", "1"],
            "can't be used",
        ),
        (topics, [*BROKER, "--list", "--if-exists"], "can't be used"),
        (
            topics,
            [*BROKER, "--describe", "--under-replicated-partitions", "--topics-with-overrides"],
            "can't be used",
        ),
        (configs, [*BROKER, "--entity-type", "topics"], "exactly one action"),
        (configs, [*BROKER, "--describe"], "At least one entity type"),
        (configs, [*BROKER, "--describe", "--entity-type", "planets"], "Invalid entity type planets"),
        (configs, [*BROKER, "--describe", "--entity-type", "topics", "--broker", "0"], "in conjunction"),
        (configs, [*BROKER, "--describe", "--broker", "one"], "must be a valid integer broker id"),
        (configs, [*BROKER, "--describe", "--broker", "1", "--topic", "t"], "may be specified together"),
        (configs, [*BROKER, "--alter", "--entity-type", "topics", "--add-config", "a=b"], "entity name must be"),
        (configs, [*BROKER, "--alter", "--topic", "t"], "At least one of --add-config"),
        (configs, [*BROKER, "--describe", "--topic", "t", "--add-config", "a=b"], "can't be used"),
        (consumer_groups, [*BROKER], "exactly one action"),
        (consumer_groups, [*BROKER, "--describe"], "one of --group and --all-groups"),
        (consumer_groups, [*BROKER, "--describe", "--group", "g", "--members", "--offsets"], "at most one of"),
        (consumer_groups, [*BROKER, "--describe", "--group", "g", "--state", "Stable"], "does not take a value"),
        (consumer_groups, [*BROKER, "--list", "--group", "g"], "can't be used"),
        (consumer_groups, [*BROKER, "--delete", "--group", "g", "--topic", "t"], "use --delete-offsets"),
        (consumer_groups, [*BROKER, "--delete-offsets", "--group", "g"], "at least one [topic]"),
        (
            consumer_groups,
            [*BROKER, "--reset-offsets", "--group", "g", "--topic", "t"],
            "one of the following scenarios",
        ),
        (consumer_groups, [*BROKER, "--reset-offsets", "--group", "g", "--to-latest"], "One of the reset scopes"),
        (
            consumer_groups,
            [*BROKER, "--reset-offsets", "--group", "g", "--topic", "t", "--to-latest", "--to-offset", "3"],
            "can't be used",
        ),
        (
            consumer_groups,
            [*BROKER, "--reset-offsets", "--group", "g", "--topic", "t", "--to-latest", "--execute", "--dry-run"],
            "can't be used",
        ),
        (get_offsets, [*BROKER, "--topic", "t", "--topic-partitions", "t:0"], "cannot be used with --topic"),
        (get_offsets, ["--topic", "t"], 'Missing required argument "[bootstrap-server]"'),
        (tail, ["t", "--last", "-5"], "-5 is not a number of records"),
        (producer_perf_test, [*PERF, "--record-size", "0"], "0 is not a number above 0"),
        (producer_perf_test, [*PERF, "--record-size", "9" * 20], f"{'9' * 20} is not a number above 0"),
        (producer_perf_test, [*PERF, "--record-size", "2147483648"], "more than the 2147483647 bytes"),
    ],
)
def test_a_command_line_that_makes_no_sense_ends_with_2(
    tool: object, argv: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Before anything is connected to, with the reason on standard error."""
    with pytest.raises(SystemExit) as stop:
        tool.main(argv)
    assert stop.value.code == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("tool", "argv", "message"),
    [
        (topics, ["--create", "--topic", "t", "--partitions", "0"], "The partitions must be greater than 0"),
        (get_offsets, ["--time", "soon"], "Malformed time argument soon"),
        (get_offsets, ["--partitions", "a"], "--partitions expects a comma separated list"),
        (get_offsets, ["--topic-partitions", "a:b"], "Invalid rule specification: a:b"),
        (get_offsets, ["--topic", "("], "not a regular expression"),
    ],
)
def test_a_value_that_cannot_be_used_is_named(tool: object, argv: list[str], message: str) -> None:
    """An error of one line, and nothing is sent."""
    with pytest.raises(BarnabasError, match=message):
        tool.main([*BROKER, *argv])


@pytest.mark.parametrize(
    ("added", "deleted", "expected"),
    [
        ("a=1,b=2", [], {"a": "1", "b": "2"}),
        ("a=[x,y],b=z", [], {"a": "x,y", "b": "z"}),
        ("a=", [], {"a": ""}),
        (None, ["a,b", "c"], {"a": None, "b": None, "c": None}),
        ("a=k=v", ["b"], {"a": "k=v", "b": None}),
    ],
)
def test_configuration_changes_are_read_as_kafkas_tool_reads_them(
    added: str | None, deleted: list[str], expected: dict
) -> None:
    """Brackets keep commas, an empty value is a value."""
    assert parse_changes(added, None, deleted) == expected


@pytest.mark.parametrize(("added", "deleted"), [("a", []), ("a b=1", []), ("a=1", ["a"])])
def test_configuration_changes_that_make_no_sense_are_refused(added: str, deleted: list[str]) -> None:
    """No equals sign, a name with a blank, one name added and deleted."""
    with pytest.raises(ConfigError):
        parse_changes(added, None, deleted)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("t", {("t", 0), ("t", 1), ("t", 2)}),
        ("t:1", {("t", 1)}),
        (":1", {("t", 1), ("u", 1)}),
        ("t:1-", {("t", 1), ("t", 2)}),
        ("t:-2", {("t", 0), ("t", 1)}),
        ("t:0-1,u:2", {("t", 0), ("u", 2)}),
        (".:2", {("t", 2), ("u", 2)}),
    ],
)
def test_rules_choose_topics_and_partitions(text: str, expected: set) -> None:
    """A number, a range without its end, half a range, or nothing after the colon."""
    rule = _rules(text)
    everything = [TopicPartition(topic, number) for topic in "tu" for number in range(3)]
    assert set(filter(rule, everything)) == expected


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("P1D", 86_400_000), ("PT1H30M", 5_400_000), ("PT0.5S", 500), ("P1DT1S", 86_401_000), ("-PT1S", -1000)],
)
def test_durations_are_isos(text: str, milliseconds: int) -> None:
    """As java.time.Duration reads them."""
    assert duration_ms(text) == milliseconds


@pytest.mark.parametrize("text", ["1D", "P", "PT", "P1M", "soon"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    """Months have no fixed length, so there are none."""
    with pytest.raises(ConfigError, match="PnDTnHnMnS is expected"):
        duration_ms(text)


def test_times_without_a_zone_are_utc() -> None:
    """As Kafka's tool takes them."""
    assert timestamp_ms("1970-01-01T00:00:01.500") == 1500
    assert timestamp_ms("1970-01-01T01:00:01.500+01:00") == 1500
    with pytest.raises(ConfigError):
        timestamp_ms("yesterday")


def test_a_plan_file_has_lines_with_or_without_the_group() -> None:
    """Three columns belong to the one group that is named."""
    assert parse_reset_plan("t,0,5\nt,1,6\n", ["g"], "plan.csv") == {
        "g": {TopicPartition("t", 0): 5, TopicPartition("t", 1): 6}
    }
    assert parse_reset_plan("g,t,0,5\nh,t,0,7\n", [], "plan.csv") == {
        "g": {TopicPartition("t", 0): 5},
        "h": {TopicPartition("t", 0): 7},
    }
    with pytest.raises(ConfigError, match=r"plan\.csv, line 2"):
        parse_reset_plan("t,0,5\nt,zero,5\n", ["g"], "plan.csv")


@pytest.mark.parametrize(
    ("name", "words", "given", "rest"),
    [
        ("ls", ["-s", "-R", "/a"], {"s": "", "R": ""}, ["/a"]),
        ("ls", ["-sR", "/a"], {"s": "", "R": ""}, ["/a"]),
        ("set", ["/a", "data", "-v", "3"], {"v": "3"}, ["/a", "data"]),
        ("set", ["/a", "-5"], {}, ["/a", "-5"]),
        ("create", ["-e", "-s", "/a", "d"], {"e": "", "s": ""}, ["/a", "d"]),
    ],
)
def test_shell_commands_take_zkclis_flags(name: str, words: list[str], given: dict, rest: list[str]) -> None:
    """Anywhere in the line, alone or together; negative numbers are data."""
    assert SHELL_COMMANDS[name].parse(name, words) == (given, rest)


def test_a_shell_command_without_its_words_shows_its_usage() -> None:
    """And a flag that it does not have is named."""
    with pytest.raises(CommandError, match=r"ls \[-s\] \[-w\] \[-R\] path"):
        SHELL_COMMANDS["ls"].parse("ls", [])
    with pytest.raises(CommandError, match="Unrecognized option: -x"):
        SHELL_COMMANDS["ls"].parse("ls", ["-x", "/"])


@pytest.mark.parametrize(
    ("argv", "expected"),
    [
        (["localhost:2181", "ls", "-R", "/"], (["localhost:2181"], ["ls", "-R", "/"])),
        (["-server", "a:1", "get", "-s", "/x"], (["-server", "a:1"], ["get", "-s", "/x"])),
        (["-timeout", "5", "a:1", "ls", "/"], (["-timeout", "5", "a:1"], ["ls", "/"])),
        (["a:1"], (["a:1"], [])),
        (["--help"], (["--help"], [])),
        ([], ([], [])),
    ],
)
def test_the_shells_options_end_where_its_command_begins(argv: list[str], expected: tuple) -> None:
    """The command's flags are its own."""
    assert zookeeper_shell._split(argv) == expected


def test_quotes_count_at_a_words_start_only() -> None:
    """JSON passes as it is typed."""
    assert zookeeper_shell._words("""set /a {"b":"c"}  'x y' "z" """) == ["set", "/a", '{"b":"c"}', "x y", "z"]


@pytest.mark.parametrize("dead", ["consumer", "producer"])
def test_a_mirror_without_one_of_its_clusters_says_so(dead: str, barnabas_cluster: Cluster, tmp_path: Path) -> None:
    """Either side, before a thread starts that cannot be interrupted."""
    argv = ["--whitelist", "t"]
    for side in ("consumer", "producer"):
        path = tmp_path / f"{side}.properties"
        servers = "localhost:1" if side == dead else barnabas_cluster.bootstrap_servers
        path.write_text(f"metadata.broker.list={servers}\n" + ("group.id=mirror\n" if side == "consumer" else ""))
        argv += [f"--{side}.config", str(path)]
    with pytest.raises(ConnectError, match="localhost:1 refused the connection"):
        mirror_maker.main(argv)
