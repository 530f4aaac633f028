"""What others chose reaches a terminal with escapes, and files and pipes as it is,
whatever the command."""

import io
import logging
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stdout
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("confluent_kafka")

from confluent_kafka import Consumer, Producer, TopicPartition

from barnabas.base.errors import BarnabasError, ConfigError
from barnabas.cli.console.formatters import formatter
from barnabas.cli.main import main
from barnabas.cli.output import terminal
from barnabas.cli.output.log_lines import LogFormatter
from barnabas.cli.output.readable import record_text
from barnabas.cli.output.tables import aligned, print_json
from barnabas.cli.setup.completion import words
from barnabas.client.records import Record
from barnabas.coordination.core.audit import audit_line
from barnabas.testing import Cluster
from support.terminals import on_terminal
from support.waiting import eventually

EVIL = "\x1b]0;title\x07\x1b[31m\nforged\r\b\x7f\x9b2J\u202eend"
SHOWN = r"\x1b]0;title\x07\x1b[31m\nforged\r\x08\x7f\x9b2J\u202eend"


def controls(shown: str) -> set[str]:
    """What a terminal must not receive.

    Lines of a value may end with a newline, columns be apart by a tab."""
    return {each for each in shown if not each.isprintable() and each not in "\n\t"}


@pytest.fixture(autouse=True)
def no_colours(monkeypatch: pytest.MonkeyPatch) -> None:
    """Colours have tests of their own: test_cli_colours.py."""
    monkeypatch.setenv("NO_COLOR", "1")


# The function


@given(st.text() | st.text(alphabet="\x1b\n\r\t\x9b\u202ea\\"))
def test_an_escaped_text_has_no_control_and_says_which_ones_it_had(text: str) -> None:
    """Printable letters stay; escaping twice changes nothing; without backslashes
    the text can be read back."""
    shown = terminal.escaped(text)
    assert shown.isprintable()
    assert terminal.escaped(shown) == shown
    if "\\" not in text:
        assert shown.encode("ascii", "backslashreplace").decode("unicode_escape") == text


@pytest.mark.parametrize("text", ["日本語", "e\u0301", "👍🏽", "plain text"])
def test_letters_of_all_scripts_stay(text: str) -> None:
    """Wide letters, combining marks and emoji are no controls."""
    assert terminal.escaped(text) == text


@pytest.mark.parametrize(("text", "columns"), [("ab", 2), ("日本", 4), ("e\u0301", 1), ("\N{WARNING SIGN}\ufe0f", 1)])
def test_columns_are_those_that_the_terminal_uses(text: str, columns: int) -> None:
    """Wide letters take two, combining marks none."""
    assert terminal.columns(text) == columns


# The stream


def test_all_that_is_written_to_a_terminal_is_escaped_whoever_writes() -> None:
    """Text and bytes; a letter whose bytes come in two pieces is one letter."""

    def write() -> None:
        sys.stdout.write(f"a{EVIL}\n")
        sys.stdout.buffer.write("é\x1b".encode()[:1])
        sys.stdout.buffer.write("é\x1b".encode()[1:] + b"\xff\n")
        sys.stdout.buffer.flush()

    assert on_terminal(write) == "a" + SHOWN.replace(r"\n", "\n") + "\né\\x1b\\xff\n"


_PIECES = st.sampled_from(
    [
        b"a",
        b"\\",
        b"\\x80",
        b"\\n",
        b"\n",
        b"\t",
        b"\r",
        b"\x1b",
        b"\x80",
        b"\xc2",
        b"\xc2\x80",
        b"\xed\xa0\x80",
        "é".encode(),
    ]
)


@given(st.lists(_PIECES, max_size=5), st.lists(_PIECES, max_size=5), st.sampled_from(["", "\n\t"]))
def test_different_bytes_look_different(one: list[bytes], other: list[bytes], keep: str) -> None:
    """Also bytes that are not UTF-8, and texts that read like their escapes."""
    first, second = (terminal.shown_bytes(b"".join(each), keep) for each in (one, other))
    assert (first == second) == (b"".join(one) == b"".join(other))
    assert all(each.isprintable() or each in keep for each in first)


def test_bytes_are_shown_as_text_where_they_are_one() -> None:
    """A backslash is two only where it could be of an escape."""
    shown = [
        terminal.shown_bytes(each)
        for each in (b"C:\\temp", "é".encode(), b"\xe9\\", rb"\xe9", b"a\n", "\u200b".encode())
    ]
    assert shown == [r"C:\\temp", "é", r"\xe9\\", r"\\xe9", r"a\n", r"\xe2\x80\x8b"]


def test_a_key_or_a_header_has_no_line_of_its_own_on_a_terminal() -> None:
    """Only a record's value may have; a pipe gets the bytes."""
    record = Record(
        "t", 0, 0, key=b"k\nforged", value=b"v\nw", timestamp_ms=0, timestamp_type=0, headers=[("h\n", b"x\ny")]
    )
    options = dict.fromkeys(("print.key", "print.headers"), "true")

    def write() -> None:
        sys.stdout.buffer.write(formatter("default", options)(record))
        sys.stdout.buffer.flush()
        terminal.print_lines(record_text(record, pretty=True).split("k", 1)[1])

    assert on_terminal(write) == "h\\n:x\\ny\tk\\nforged\tv\nw\n\\nforged \nv\nw\n"
    assert formatter("default", options)(record) == b"h\n:x\ny\tk\nforged\tv\nw\n"


def test_sequences_of_ours_reach_the_terminal_and_take_no_column() -> None:
    """Alone, within a line and in a table; for a pipe there are none."""

    def write() -> None:
        red, plain = (terminal.own(sys.stdout, each) for each in ("\x1b[31m", "\x1b[0m"))
        terminal.print(f"{red}{EVIL}{plain}")
        terminal.print_lines(aligned(("A", "B"), [(f"{red}x{plain}", "y")], {"A": 3}))

    assert on_terminal(write) == f"\x1b[31m{SHOWN}\x1b[0m\nA   B\n\x1b[31mx\x1b[0m   y\n"
    assert terminal.own(io.StringIO(), "\x1b[31m") == ""


def test_arguments_of_print_stay_within_their_lines() -> None:
    """What stands between them and at the end is ours."""
    assert on_terminal(lambda: terminal.print("a\nb", "c\td", sep="\n\t", end=".\n")) == "a\\nb\n\tc\\td.\n"


def test_columns_of_a_table_are_as_wide_as_their_escaped_cells() -> None:
    """A name with a newline is one row."""
    shown = on_terminal(lambda: terminal.print_lines(aligned(("A", "B"), [("a\nb", 1), ("日本", 2)])))
    assert shown == "A    B\na\\nb 1\n日本 2\n"


def test_json_on_a_terminal_stays_json() -> None:
    """Its own escapes are used."""
    assert (
        on_terminal(lambda: print_json(["\x9b\x7f\u202e\U000e0001"]))
        == '[\n  "\\u009b\\u007f\\u202e\\udb40\\udc01"\n]\n'
    )


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (ConfigError(f"topic {EVIL}"), f"Error: topic {SHOWN}\n"),
        (BarnabasError.of_lines("two lines:", f"  {EVIL}"), f"Error: two lines:\n  {SHOWN}\n"),
    ],
)
def test_an_error_has_the_lines_that_it_was_made_of(
    error: BarnabasError, shown: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A newline in a name or in a broker's message is none of them."""

    def fail(_: list[str]) -> int:
        raise error

    monkeypatch.setattr("barnabas.cli.local.status.main", fail)
    assert on_terminal(lambda: main(["status"])) == shown


def test_each_stream_of_a_process_is_judged_by_itself(tmp_path: Path) -> None:
    """Standard error is a terminal here, standard output a file."""
    program = (
        "import sys; from barnabas.cli.output.standard_streams import prepare_streams; prepare_streams();"
        "from barnabas.cli.output.terminal import print; print('a\\x1b\\nb'); print('a\\x1b\\nb', file=sys.stderr);"
        "import logging; logging.warning('a\\x1b\\nb'); raise ValueError('a\\x1b')"
    )
    ours, theirs = os.openpty()
    with (tmp_path / "out").open("wb") as out:
        code = subprocess.run([sys.executable, "-c", program], stdout=out, stderr=theirs, check=False).returncode
    os.close(theirs)
    shown = b""
    try:
        while data := os.read(ours, 65536):
            shown += data
    except OSError:  # the end of a terminal
        pass
    os.close(ours)
    assert code == 1
    assert (tmp_path / "out").read_bytes() == b"a\x1b\nb\n"
    assert shown.startswith(rb"a\x1b\nb" + b"\r\n")
    assert b"Traceback (most recent call last):\r\n" in shown
    assert shown.endswith(rb"ValueError: a\x1b" + b"\r\n")


# Logs


def test_an_event_is_one_line_of_a_log_and_no_line_of_a_traceback_looks_like_one() -> None:
    """In files too: a client's name must not forge a line."""
    log = io.StringIO()
    handler = logging.StreamHandler(log)
    handler.setFormatter(LogFormatter("[%(levelname)s] %(message)s"))
    logger = logging.Logger("test")
    logger.addHandler(handler)
    try:
        raise ValueError("wrong\n[INFO] forged\x1b")
    except ValueError:
        logger.exception("client %s", f"x{EVIL}\n[INFO] forged")
    lines = log.getvalue().splitlines()
    assert lines[0] == rf"[ERROR] client x{SHOWN}\n[INFO] forged"
    assert all(line.startswith("  ") for line in lines[1:])
    assert not controls(log.getvalue())


def test_the_fields_of_an_audit_line_stay_apart_by_tabs_and_none_can_be_forged() -> None:
    """Programs that read the log split it at tabs, as in ZooKeeper's audit log."""
    record = logging.makeLogRecord({"msg": audit_line(znode="/a\tresult=success", result="failure")})
    assert LogFormatter("%(message)s").format(record) == "znode=/a\\tresult=success\tresult=failure"


# The commands


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A broker whose rack, folder, groups, members and records have hostile names."""
    folder = tmp_path_factory.mktemp("hostile") / f"data{EVIL}"
    folder.mkdir()
    with Cluster(settings={"broker.rack": f"rack{EVIL}"}, data_dir=folder) as made:
        made.create_topic("t")
        servers = {"bootstrap.servers": made.bootstrap_servers}
        producer = Producer(servers)
        producer.produce("t", f"value{EVIL}", f"key{EVIL}", headers={f"header{EVIL}": f"{EVIL}"})
        assert producer.flush(60) == 0
        consumer = Consumer(
            servers
            | {
                "group.id": f"group{EVIL}",
                "client.id": f"client{EVIL}",
                "group.instance.id": f"instance{EVIL}",
                "auto.offset.reset": "earliest",
            }
        )
        try:
            consumer.subscribe(["t"])
            eventually(lambda: consumer.poll(0.5) is not None, timeout_s=60)
            consumer.commit(asynchronous=False)
            idle = Consumer(servers | {"group.id": f"idle{EVIL}"})
            idle.commit(offsets=[TopicPartition("t", 0, 1)], asynchronous=False)
            idle.close()
            assert quietly("zookeeper-shell", made.zookeeper_connect, "create", "/hostile", f"data{EVIL}") == 0
            assert quietly("zookeeper-shell", made.zookeeper_connect, "create", "/hostile/x\u202ey", "") == 0
            yield made
        finally:
            consumer.close()


def quietly(*words: str) -> int:
    """Run a command and drop what it prints."""
    with redirect_stdout(io.StringIO()):
        return main(words)


COMMANDS = [
    (r"group\x1b", ("consumer-groups", "--list")),
    (r"group\x1b", ("consumer-groups", "--list", "--state")),
    (r"client\x1b", ("consumer-groups", "--describe", "--all-groups")),
    (r"instance\x1b", ("consumer-groups", "--describe", "--all-groups", "--members", "--verbose")),
    (r"group\x1b", ("consumer-groups", "--describe", "--all-groups", "--state")),
    (r"group\x1b", ("consumer-groups", "--delete", "--group", f"group{EVIL}")),
    (r"absent\x1b", ("consumer-groups", "--describe", "--group", f"absent{EVIL}")),
    (r"group\x1b", ("consumer-groups", "--reset-offsets", "--to-earliest", "--all-topics", "--group", f"group{EVIL}")),
    (r"idle\x1b", ("consumer-groups", "--reset-offsets", "--to-earliest", "--all-topics", "--all-groups", "--export")),
    (r"idle\x1b", ("consumer-groups", "--reset-offsets", "--to-earliest", "--all-topics", "--all-groups")),
    (r"group\x1b", ("groups", "list")),
    (r"rack\x1b", ("overview",)),
    (r"rack\x1b", ("top",)),
    (r"rack\x1b", ("broker-api-versions",)),
    (r"rack\x1b", ("cluster", "list-endpoints")),
    (r"data\u001b", ("log-dirs", "--describe")),
    (r"rack\x1b", ("configs", "--describe", "--all", "--entity-type", "brokers", "--entity-name", "0")),
    (r"absent\x1b", ("topics", "--describe", "--topic", f"absent{EVIL}")),
    (r"absent\x1b", ("topics", "--create", "--topic", f"absent{EVIL}")),
    (r"absent\x1b", ("get-offsets", "--topic", f"absent{EVIL}")),
    (r"absent\x1b", ("delete-records", "--offset-json-file", f"absent{EVIL}")),
    (r"--wrong\x1b", ("topics", f"--wrong{EVIL}")),
    (r"value\x1b", ("tail", "t", "--no-follow")),
    (r"value\u001b", ("tail", "t", "--no-follow", "--output", "json")),
    (r"header\x1b", ("console-consumer", *["--topic", "t", "--from-beginning", "--max-messages", "1", "--property", "print.headers=true"])),
]  # fmt: skip


@pytest.mark.parametrize(("expected", "words"), COMMANDS, ids=[" ".join(words)[:40] for _, words in COMMANDS])
def test_a_hostile_name_cannot_control_the_terminal_nor_forge_a_line(
    expected: str, words: tuple[str, ...], cluster: Cluster
) -> None:
    """Each command against a cluster whose names are all hostile."""
    shown = on_terminal(lambda: main([*words, "--bootstrap-server", cluster.bootstrap_servers]))
    assert expected in shown
    assert not controls(shown), shown
    has_lines = words[0] in ("tail", "console-consumer")  # a record's value may have lines
    assert has_lines or not any(line.startswith("forged") for line in shown.split("\n")), shown


@pytest.mark.parametrize("words", [("get", "/hostile"), ("ls", "/hostile"), ("stat", "/no\x1b[31m"), ("ls", "-R", "/")])
def test_what_znodes_hold_cannot_control_the_terminal(words: tuple[str, ...], cluster: Cluster) -> None:
    """Names, data, and paths in errors."""
    shown = on_terminal(lambda: main(["zookeeper-shell", cluster.zookeeper_connect, *words]))
    assert any(each in shown for each in (r"\x1b", r"\u202e"))
    assert not controls(shown), shown


def test_files_and_pipes_get_each_byte_of_a_name(cluster: Cluster) -> None:
    """Scripts compare names."""
    with redirect_stdout(io.StringIO()) as out:
        assert main(["consumer-groups", "--list", "--bootstrap-server", cluster.bootstrap_servers]) == 0
    assert f"group{EVIL}\n" in out.getvalue()


def test_a_shell_is_offered_no_name_that_one_line_cannot_hold(cluster: Cluster) -> None:
    """Else a part of it would be taken for a word of its own, or control the terminal."""
    at = ("--bootstrap-server", cluster.bootstrap_servers)
    assert all(each.isprintable() for each in words(["consumer-groups", *at, "--group", ""]))
    assert "t" in words(["topics", *at, "--topic", ""])


def test_segments_on_a_terminal_are_shown_with_escapes(cluster: Cluster) -> None:
    """``dump-log`` prints keys and values as they are stored."""
    segment = next(cluster.data_dir.glob("**/t-0/*.log"))
    shown = on_terminal(lambda: main(["dump-log", "--print-data-log", "--files", str(segment)]))
    assert r"value\x1b" in shown
    assert not controls(shown)
    assert not any(line.startswith("forged") for line in shown.split("\n"))
