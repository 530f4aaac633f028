"""The history of lag: since when, bounded by size, after kills and damage, in two processes."""

import itertools
import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas.base.errors import ConfigError
from barnabas.base.ids import TopicPartition
from barnabas.cli.main import main
from barnabas.lag.history import HistoryError, LagHistory
from barnabas.lag.offset_times import TimePoint
from barnabas.lag.samples import WindowRecord
from barnabas.lag.values import GroupKind, GroupLag, LagReport, LagState, PartitionLag, TimeSource

MB = 1 << 20
AT_MS = 1_800_000_000_000
MINUTE_MS = 60_000


def report(at_ms: int, states: dict[str, LagState], lag: int = 7) -> LagReport:
    """A report of groups in these states."""
    return LagReport(at_ms, "cluster-1", [group(name, state, lag) for name, state in states.items()])


def group(name: str, state: LagState, lag: int) -> GroupLag:
    """A group with one partition."""
    part = PartitionLag(
        "orders", 0, 0, 0, lag, lag, 1000 * lag, None, TimeSource.RECORD, 0, 1.0, 1.0, None, state, None, ""
    )
    return GroupLag(name, GroupKind.CLASSIC, "Stable", 1, [part], state)


@pytest.fixture
def history(tmp_path: Path) -> Iterator[LagHistory]:
    """One that is empty."""
    opened = LagHistory(str(tmp_path / "lag.db"), 2 * MB)
    yield opened
    opened.close()


def test_a_state_has_a_begin_and_the_last_zero_is_known_in_the_next_process(tmp_path: Path) -> None:
    """The begin is that of the state, however often the process starts; an unknown state ends
    nothing."""
    path = str(tmp_path / "lag.db")
    steps = [(LagState.WELL, 0), (LagState.STALLED, 5), (LagState.UNKNOWN, 5), (LagState.STALLED, 9)]
    found = None
    for number, (state, lag) in enumerate(steps):
        opened = LagHistory(path, 2 * MB)
        (found,) = opened.add(report(AT_MS + number * MINUTE_MS, {"a": state}, lag)).groups
        opened.close()
    assert found is not None
    assert (found.since_ms, found.last_zero_ms) == (AT_MS + MINUTE_MS, AT_MS)


def test_the_file_stays_within_its_bound_and_what_is_old_becomes_coarser(tmp_path: Path) -> None:
    """A day of minutes does not fit: the first and the last minute are still there, the newest
    ones all, and what is remembered of the groups too."""
    path = tmp_path / "lag.db"
    history = LagHistory(str(path), MB)
    names = {f"group-{number}": LagState.LAGGING for number in range(40)}
    count = 1_500
    for number in range(count):
        history.add(report(AT_MS + number * MINUTE_MS, names))
        if number % 100 == 0:
            assert path.stat().st_size <= MB
    (found,) = [
        each for each in history.add(report(AT_MS + count * MINUTE_MS, names)).groups if each.group == "group-3"
    ]
    minutes = [each.at_ms for each in history.minutes(0) if each.group == "group-3"]
    history.close()
    assert found.since_ms == AT_MS
    first_minute, last_minute = AT_MS - AT_MS % MINUTE_MS, AT_MS + count * MINUTE_MS
    assert minutes[0] == first_minute
    assert minutes[-1] == last_minute - last_minute % MINUTE_MS
    distances = [(after - before) // MINUTE_MS for before, after in itertools.pairwise(minutes)]
    assert distances[-1] == 1
    assert distances[0] >= 2
    assert path.stat().st_size <= MB


def test_points_and_windows_give_way_when_there_is_no_room(tmp_path: Path) -> None:
    """More of them than the bound allows: the file stays within it, and the history works on."""
    path = tmp_path / "lag.db"
    history = LagHistory(str(path), MB)
    noise = [[int.from_bytes(os.urandom(6)) for _ in range(100)] for _ in range(10)]
    window = WindowRecord(list(range(10)), [("orders", number) for number in range(100)], noise, noise)
    refused = 0
    for number in range(100):
        try:
            history.save("cluster-1", AT_MS + number, {}, {f"group-{number}-{each}": window for each in range(5)})
        except HistoryError:
            refused += 1
    assert refused < 50
    assert history.add(report(AT_MS, {"a": LagState.WELL})).groups
    history.close()
    assert path.stat().st_size <= MB


def test_points_and_windows_come_back(history: LagHistory) -> None:
    """For the cluster that they are of."""
    points = [TimePoint(5, AT_MS, AT_MS - 1), TimePoint(9, AT_MS + 4, AT_MS + 3)]
    window = WindowRecord([1, 2], [("orders", 0)], [[3], [4]], [[5], [6]])
    history.save("cluster-1", AT_MS, {TopicPartition("orders", 0): points}, {"a": window})
    assert history.points("cluster-1") == {TopicPartition("orders", 0): points}
    assert history.windows("cluster-1", AT_MS) == {"a": window}
    assert history.windows("cluster-1", AT_MS + 1) == {}
    assert history.points("cluster-2") == {}


WRITER = """
import sys
sys.path.insert(0, sys.argv[3])
from test_lag_history import AT_MS, MINUTE_MS, MB, report
from barnabas.lag.history import LagHistory
from barnabas.lag.values import LagState
history = LagHistory(sys.argv[1], MB)
names = {f"{sys.argv[2]}-{each}": LagState.STOPPED for each in range(100)}
for number in range(1_000_000):
    history.add(report(AT_MS + number * MINUTE_MS, names))
    if number in (50, 120):
        print(number, flush=True)
"""


def writer(path: Path, name: str) -> "subprocess.Popen[str]":
    """A process that writes as fast as it can; it has written a little when this returns."""
    command = [sys.executable, "-c", WRITER, str(path), name, str(Path(__file__).parent)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "50\n"
    return process


def test_a_kill_while_two_processes_write_leaves_a_history_that_goes_on(tmp_path: Path) -> None:
    """kill -9 at any moment: what was committed is there, nothing is set aside, the bound holds."""
    path = tmp_path / "lag.db"
    processes = [writer(path, name) for name in ("one", "two")]
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        process.wait()
        process.stdout.close()
    history = LagHistory(str(path), MB)
    assert history.set_aside is None
    far = {"one-5": LagState.STOPPED, "two-5": LagState.STOPPED}
    found = {each.group: each.since_ms for each in history.add(report(AT_MS + 10**9, far)).groups}
    assert found == {"one-5": AT_MS, "two-5": AT_MS}
    history.close()
    assert path.stat().st_size <= MB


@pytest.mark.parametrize("place", [200, 4096 * 2 + 7])
def test_a_damaged_history_is_set_aside_and_said_so(tmp_path: Path, place: int) -> None:
    """The file stays beside, and a new history begins."""
    path = tmp_path / "lag.db"
    history = LagHistory(str(path), MB)
    for number in range(20):
        history.add(report(AT_MS + number * MINUTE_MS, {f"g{each}": LagState.WELL for each in range(50)}))
    history.close()
    data = bytearray(path.read_bytes())
    for at in range(place, len(data)):
        data[at] = 0xA5
    path.write_bytes(data)
    history = LagHistory(str(path), MB)
    assert history.set_aside is not None
    assert "lag.db.damaged" in history.set_aside
    assert (tmp_path / "lag.db.damaged").read_bytes() == data
    assert history.add(report(AT_MS, {"a": LagState.WELL})).groups[0].since_ms == AT_MS
    history.close()


def test_a_file_of_something_else_is_refused_and_left_alone(tmp_path: Path) -> None:
    """A text, and a database of another program."""
    text = tmp_path / "notes.txt"
    text.write_text("my notes\n")
    with pytest.raises(ConfigError, match="no history of lag"):
        LagHistory(str(text), MB)
    assert text.read_text() == "my notes\n"
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as connection:
        connection.execute("CREATE TABLE customers (name TEXT)")
    connection.close()
    before = other.read_bytes()
    with pytest.raises(ConfigError, match="database of something else"):
        LagHistory(str(other), MB)
    assert other.read_bytes() == before
    with pytest.raises(ConfigError, match="there is no folder"):
        LagHistory(str(tmp_path / "nowhere" / "lag.db"), MB)


def test_a_history_that_another_process_holds_is_an_error_and_no_loss(tmp_path: Path, history: LagHistory) -> None:
    """The report is not remembered, and the next one is."""
    history.add(report(AT_MS, {"a": LagState.STALLED}))
    history._connection.execute("PRAGMA busy_timeout = 10")
    other = sqlite3.connect(tmp_path / "lag.db", isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(HistoryError, match="locked"):
        history.add(report(AT_MS + MINUTE_MS, {"a": LagState.STALLED}))
    other.execute("COMMIT")
    other.close()
    assert history.add(report(AT_MS + 2 * MINUTE_MS, {"a": LagState.STALLED})).groups[0].since_ms == AT_MS


def test_a_damaged_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    """It and its write-ahead log stay where they are."""
    path = tmp_path / "theirs.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE customers (name TEXT)")
    connection.close()
    damaged = path.read_bytes()[:100] + b"\xff" * 100
    path.write_bytes(damaged)
    log = tmp_path / "theirs.db-wal"
    log.write_bytes(b"theirs")
    with pytest.raises(ConfigError, match="of something else"):
        LagHistory(str(path), MB)
    assert (path.read_bytes(), log.read_bytes()) == (damaged, b"theirs")


def test_rows_that_are_damaged_do_not_stop_a_process(history: LagHistory) -> None:
    """A window begins again, and a state that is not known is unknown."""
    window = WindowRecord([AT_MS], [("orders", 0)], [[1]], [[2]])
    history.add(report(AT_MS, {"a": LagState.STALLED}))
    history.save("cluster-1", AT_MS, {}, {"a": window, "b": window})
    with sqlite3.connect(history._path) as other:
        other.execute("UPDATE windows SET data = x'0011' WHERE group_id = 'a'")
        other.execute("UPDATE standing SET state = 'resting'")
        other.execute("UPDATE minutes SET state = 'resting'")
    other.close()
    assert list(history.windows("cluster-1", 0)) == ["b"]
    assert [minute.state for minute in history.minutes(0)] == [LagState.UNKNOWN]
    assert history.add(report(AT_MS + 1, {"a": LagState.STALLED})).groups[0].since_ms == AT_MS + 1


def test_the_past_of_no_file_is_an_error_and_makes_none(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A name that was mistyped looks like no lag otherwise."""
    path = tmp_path / "lga.db"
    assert main(["lag", "--history", str(path), "--past", "3600"]) == 1
    assert "there is no history" in capsys.readouterr().err
    assert not path.exists()


def test_a_pipe_is_no_history(tmp_path: Path) -> None:
    """It is refused at once, rather than waited for."""
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(ConfigError, match="no file"):
        LagHistory(str(tmp_path / "pipe"), MB)
