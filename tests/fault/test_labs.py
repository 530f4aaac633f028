"""The labs do what they say: each runs as a student runs it, and what it shows is
looked at here once more."""

import ast
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from support.pages import DOCS, commands
from support.servers import command_of
from support.waiting import eventually

pytestmark = [pytest.mark.interop, pytest.mark.fault]

LABS = Path(__file__).parents[2] / "examples" / "labs"
_TIMEOUT_S = 240


def start(lab: str, folder: Path, *, prefix: str = "") -> "subprocess.Popen[str]":
    """A lab on free ports, its data in a folder of ours; a shell runs ``prefix`` first."""
    environment = {**os.environ, "PORT": "0", "TMPDIR": str(folder)}
    return subprocess.Popen(
        ["bash", "-c", f'{prefix} exec "$0" "$1"', sys.executable, str(LABS / f"{lab}.py")],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=environment,
        start_new_session=True,
    )


def assert_nothing_is_left(text: str, folder: Path) -> None:
    """The cluster's processes are gone, and so are its files."""
    pids = [int(pid) for pid in re.findall(r":(\d+)(?=,|$)", re.search(r"pids=(\S+)", text)[1])]
    # Recipes have no brokers, and a mirror's source has one broker.
    fewer = {"Seven recipes": 1, "second cluster": 2, "--brokers 2": 3}
    assert len(pids) >= next((count for words, count in fewer.items() if words in text), 4)
    assert not [pid for pid in pids if str(folder) in command_of(pid)]
    assert list(folder.iterdir()) == []


def isr_after(text: str, heading: str, partition: int = 0) -> set[str]:
    """The in-sync set that ``topics --describe`` first shows under a heading."""
    shown = text[text.index(f"\n{heading}") :]
    return set(re.search(rf"Partition: {partition} .*?Isr: (\S+)", shown)[1].split(","))


def disk(text: str) -> None:
    digests = re.findall(r"kafka-logs\d?/topic1-(\d) .*sha256 (\w+)", text)
    assert len(digests) == 9
    assert len(set(digests)) == 3


def stopped(text: str) -> None:
    assert "  [0, 1, 2]\n" in text
    assert "  [1, 2]\n" in text
    assert isr_after(text, "1.") == {"0", "1", "2"}
    assert isr_after(text, "2.") == {"1", "2"}
    assert isr_after(text, "4.") == {"0", "1", "2"}
    assert "each of the three brokers, asked alone, describes the topic like this" in text
    # Which partitions it names is left open: a new controller elects preferred leaders after 5 s,
    # before the lab asks for it on a busy machine, and what needs no election is not in the answer.
    assert "$ barnabas leader-election --election-type preferred" in text
    assert re.search(r"ok broker 0 leads partition \d again, in a later leader epoch still", text)


def controller(text: str) -> None:
    ids = re.findall(r'"brokerid":(\d)', text)  # before, after, and with the old one back
    assert ids[0] != ids[1] == ids[2]
    epochs = re.findall(r"/controller_epoch\n  (\d+)", text)
    assert int(epochs[1]) == int(epochs[0]) + 1


def behind(text: str) -> None:
    rows = dict(re.findall(r"^(\S+) +(?:all|1) +\d+ +(\d+)$", text, re.MULTILINE))
    assert rows["committed"] == "100"
    assert rows["hasty"] == "0"
    assert rows["careful"] == "10"


def minimum(text: str) -> None:
    assert text.count("Not enough in-sync replicas") == 1
    assert len(isr_after(text, "3.")) == 1
    assert len(isr_after(text, "5.")) == 2


def rejoined(text: str) -> None:
    epochs = [int(epoch) for epoch in re.findall(r'"leader_epoch":(\d+)', text)]
    assert epochs[0] < epochs[1] == epochs[2]
    assert re.search(r"Truncating orders-0 .*1[01]", text)
    logs = [re.findall(r"baseOffset.*", part) for part in text.split("$ barnabas dump-log")[1:]]
    assert len(logs) == 3
    assert logs[0] != logs[1] == logs[2]


def majority(text: str) -> None:
    rows = re.findall(r"^(\w+ lives?) +(\w+) +(\w+) +(\w+)", text, re.MULTILINE)
    yes, no = "acknowledged", "refused"
    assert [row[1:] for row in rows] == [(yes, yes, yes), (yes, yes, yes), (yes, no, yes)]
    assert re.search(r"^one more lost +refused", text, re.MULTILINE)
    assert "Leader: none" in text
    prices = {row[0]: row[1:] for row in re.findall(r"^(first|next) +(?:([\d.]+) s)? +([\d.]+) s$", text, re.MULTILINE)}
    (on_two, first), (_, after) = prices["first"], prices["next"]
    assert float(on_two) < float(first)
    assert float(after) < float(first) / 2


def lost(text: str) -> None:
    rows = re.findall(r"^(sync|async) +(\S+) +\d+ +\d+ +(\d+)", text, re.MULTILINE)
    assert [row[:2] for row in rows] == [(mode, acks) for mode in ("sync", "async") for acks in ("0", "1", "-1")]
    assert [count for mode, acks, count in rows if mode == "sync" and acks != "0"] == ["0", "0"]
    assert all(int(count) >= 200 for mode, _, count in rows if mode == "async")
    by_acks = dict(re.findall(r"^ +(0|1|-1) +\d+ +\d+ +(\d+)", text, re.MULTILINE))
    assert by_acks["-1"] == "0"
    assert int(by_acks["0"]) > 0
    assert int(by_acks["1"]) > 0


def placed(text: str) -> None:
    leaders = [cell.split() for cell in re.split(r" {2,}", re.search(r"^leader +(.*)$", text, re.MULTILINE)[1].strip())]
    assert sorted(len(cell) for cell in leaders) == [1, 1, 2, 2, 2, 2]
    assert re.findall(r"^  (P\d) +\S+ +\S+ +differs$", text, re.MULTILINE) == ["P6", "P7", "P8", "P9"]
    assert len(re.findall(r"Topic: unsafe.*Leader: none", text)) == 6  # in two reports


def lost_and_copied_again(text: str) -> None:
    states = re.findall(r'"leader":(-?\d),.*"isr":\[([\d,]+)\]', text)
    assert [leader for leader, _ in states][1] == "-1"
    assert "0" not in states[1][1].split(",")
    assert isr_after(text, "4.") == {"0", "1", "2"}
    assert "2000 of 2000 acknowledged records" in text


def elected(text: str) -> None:
    parts = re.split(r"^(?=\d\. )", text, flags=re.MULTILINE)
    for part in parts[1:4]:
        assert "LOOKING" in part
        assert re.search(r"New election\. My id = \d, proposed zxid=0x\w+", part)
        assert re.search(r"n\.leader: \d, n\.round: 0x\w+, n\.peerEpoch: 0x\w+, n\.zxid: 0x\w+", part)
        assert part.count("Mode: leader") == 1
    leaders = [re.search(r"Server (\d) (?:leads|led)", part)[1] for part in parts[1:3]]
    assert leaders[0] != leaders[1]
    assert "FOLLOWING" in parts[3]
    assert "This ZooKeeper instance is not currently serving requests" in parts[4]


def recipes(text: str) -> None:
    assert len(re.findall(r"^ok ", text, re.MULTILINE)) == 11
    assert "  alice: serving, bob: serving\n" in text
    assert re.search(r"alice: serving, carol-\d{10}: mortal\n  alice: serving\n", text)


def shared(text: str) -> None:
    processed = [int(count) for count in re.findall(r"Processed a total of (\d+) messages", text)]
    assert sorted(processed[:2]) == [4145, 8290]
    by_batches, of_five = processed[2:4], processed[4:]
    assert sum(by_batches) == sum(of_five) == 12435
    assert by_batches != [8290, 4145]
    assert len(of_five) == 5
    assert of_five.count(0) == 2
    assert "8,432 and 4,002" in text


def gathered(text: str) -> None:
    rates = dict(re.findall(r"^ +(1|10) +\d+ +[\d.]+ +([\d,]+)$", text, re.MULTILINE))
    assert int(rates["10"].replace(",", "")) > int(rates["1"].replace(",", ""))
    assert "in the topic: 490 of 497 records" in text


def semantics(text: str) -> None:
    rows = re.findall(
        r"^(retries=0|retries|enable\.\S+)(?: \(the default\))? +100 +(\d+) +(\d+) +(\d+)$", text, re.MULTILINE
    )
    (late_at_most, late_at_least, late_once, killed_at_most, killed_at_least, killed_once) = [
        tuple(map(int, row[1:])) for row in rows
    ]
    assert late_at_most[2] == killed_at_most[2] == 0
    assert killed_at_most[1] > 0
    assert late_at_least[2] > 0
    assert late_at_least[1] == killed_at_least[1] == 0
    assert late_once == killed_once == (100, 0, 0)


def committed(text: str) -> None:
    states = [re.findall(r"^  state=(\w+)$", part, re.MULTILINE) for part in text.split("| grep -o 'state=")[1:]]
    first = ["Empty", "Ongoing", "Ongoing", "PrepareCommit", "CompleteCommit"]
    second = [*first, "Ongoing", "Ongoing", "PrepareCommit"]
    assert states == [second, [*second, "CompleteCommit", "Ongoing", "Ongoing", "PrepareAbort"]]
    markers = re.findall(r"^  endTxnMarker: (\w+) coordinatorEpoch: \d+$", text, re.MULTILINE)
    assert markers == ["COMMIT", "COMMIT", "COMMIT", "COMMIT", "ABORT", "COMMIT"]
    assert "without transactions 25 have two" in text


def buffered(text: str) -> None:
    plots = re.findall(r"^ +(\d+) ms  #+ +([\d,.]+)$", text, re.MULTILINE)
    assert [wait for wait, _ in plots] == ["0", "5", "50", "500"] * 3
    latencies = [float(figure.replace(",", "")) for _, figure in plots[8:]]
    assert latencies[3] > 450 > latencies[0]
    assert text.count("ok queue.enqueue.timeout.ms=") == 3


def mirrored(text: str) -> None:
    assert text.count("is at the target: 300 records") == 3
    assert text.count("is at the target: 600 records") == 3
    assert "Mirrored a total of" in text


def lagging(text: str) -> None:
    assert len(isr_after(text, "1.")) == 2
    assert len(isr_after(text, "3.")) == 1
    assert len(isr_after(text, "4.")) == 2


def crowded(text: str) -> None:
    assert "500 consumers read one record each, 1 had nothing to read" in text
    assert "the group has 501 members" in text


def znodes(text: str) -> None:
    assert text.count("WatchedEvent state:SyncConnected type:NodeDataChanged path:/app") == 1
    assert "version No is not valid : /app" in text


FINDINGS: dict[str, Callable[[str], None]] = {
    "replicas_on_disk": disk,
    "stop_a_broker": stopped,
    "kill_the_controller": controller,
    "followers_behind": behind,
    "min_insync": minimum,
    "rejoin": rejoined,
    "backup_or_majority": majority,
    "lost_by_acks": lost,
    "lost_records": lost_and_copied_again,
    "ensemble_election": elected,
    "racks": placed,
    "recipes": recipes,
    "customers_group": shared,
    "batch_by_hand": gathered,
    "delivery_semantics": semantics,
    "kill_in_a_commit": committed,
    "batches_and_buffers": buffered,
    "mirror_two_clusters": mirrored,
    "shell": znodes,
    "lag_in_messages": lagging,
    "one_partition_each": crowded,
}


SUBJECTS = [
    *("Coordination", "The cluster", "Storage", "Producers", "Consumers", "Mirroring", "Pipelines", "Around it"),
]


@pytest.mark.parametrize("lab", FINDINGS)
def test_a_lab_shows_what_it_says_and_leaves_nothing_behind(lab: str, tmp_path: Path) -> None:
    """Exit code 0, what it printed bears it out, and neither a process nor a file is left.

    It runs as a script's job in the background, which ignores Ctrl-C: it ends others
    by Ctrl-C nevertheless.
    """
    process = start(lab, tmp_path, prefix="trap '' INT;")
    try:
        text, _ = process.communicate(timeout=_TIMEOUT_S)
    finally:
        process.terminate()
    assert process.returncode == 0, text[-4000:]
    assert "checks held. Nothing is left running." in text
    FINDINGS[lab](text)
    assert_nothing_is_left(text, tmp_path)


def test_every_lab_is_tested() -> None:
    """No script of the folder is left out, but what they share and what runs them."""
    assert {path.stem for path in LABS.glob("*.py")} - {"lab", "run_all"} == set(FINDINGS)


def test_no_lab_claims_what_it_does_not_look_at() -> None:
    """Each `Lab.check` has a condition that can be false."""
    checks = [
        (path.name, node)
        for path in LABS.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "check"
    ]
    conditions = [(name, keyword.value) for name, node in checks for keyword in node.keywords if keyword.arg == "holds"]
    assert len(conditions) == len(checks) > 100
    assert [ast.unparse(value) for _, value in conditions if isinstance(value, ast.Constant)] == []


def test_the_page_lists_every_lab_and_its_commands_run_labs() -> None:
    """docs/tutorial/labs.md."""
    page = DOCS / "tutorial" / "labs.md"
    listed = set(re.findall(r"^\|.*\[`(\w+)\.py`\]", page.read_text(), re.MULTILINE))
    assert listed == set(FINDINGS)
    assert {command.line for command in commands(page)} <= {f"python examples/labs/{lab}.py" for lab in FINDINGS}


def test_every_statement_of_the_course_is_shown_by_labs_and_tests_that_are_there() -> None:
    """The table at the end of docs/tutorial/labs.md, in the course's order."""
    table = (DOCS / "tutorial" / "labs.md").read_text().partition("## Statement by statement")[2]
    assert re.findall(r"^\| \*\*(.+)\*\*", table, re.MULTILINE) == SUBJECTS
    rows = [line.rpartition(" | ")[2] for line in table.splitlines() if re.match(r"\| [^*-]", line)][1:]
    assert len(rows) > 90
    for row in rows:
        links = dict(re.findall(r"\[`(test_\w+)`\]\(\.\./\.\./(\S+)\)", row))
        labs = set(re.findall(r"`(\w+)\.py`", row))
        assert links or labs, row
        assert labs <= set(FINDINGS), row
        for name, path in links.items():
            assert f"def {name}(" in (LABS.parents[1] / path).read_text(), row


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_lab_that_is_stopped_in_the_middle_leaves_nothing_behind(number: signal.Signals, tmp_path: Path) -> None:
    """Ctrl-C while brokers are paused and one is killed: exit code 130, and all of them end."""
    process = start("rejoin", tmp_path)
    lines: list[str] = []
    try:
        while not lines or not lines[-1].startswith("2. "):
            lines.append(process.stdout.readline())
            assert lines[-1], lines
        process.stdout.readline()  # the first command while the followers stand still
        process.send_signal(number)
        rest, _ = process.communicate(timeout=90)
    finally:
        process.kill()
    assert process.returncode == 130, rest
    assert rest.endswith("\nstopped\n")
    eventually(lambda: list(tmp_path.iterdir()) == [], what="the folder is gone")
    assert_nothing_is_left("".join(lines), tmp_path)
