"""Whole flows through ``barnabas pipeline run``: results, replays, drivers and
workers that are killed.

BARNABAS_KILLS and BARNABAS_RECORDS make the tests with kills longer
(``tests/trials.py pipelines``).
"""

import contextlib
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

pq = pytest.importorskip("pyarrow.parquet")

from barnabas.base.ids import TopicPartition  # noqa: E402
from barnabas.pipelines.checkpoints.checkpoint import Checkpoint  # noqa: E402
from barnabas.pipelines.connector.lost_records import lost_file  # noqa: E402
from barnabas.pipelines.specification.spec import load  # noqa: E402
from support.flow_runs import (  # noqa: E402
    TIMEOUT_S,
    end_started,
    epoch,
    kill_a_worker,
    kill_session,
    members,
    select,
    sleep_into_batch,
    start,
    wait,
    wait_for_epoch,
)
from support.needs import ROOT  # noqa: E402

# Five drivers in one test, each with a JVM of its own; more in a trial.
pytestmark = [pytest.mark.spark, pytest.mark.timeout(1200 + 360 * int(os.environ.get("BARNABAS_KILLS", "0")))]

_RECORDS = int(os.environ.get("BARNABAS_RECORDS", "60000"))
SEED = 5
OLDEST = ROOT / "build" / "pyspark-4.2"

FLOW = """\
name = "{name}"
checkpoint = "checkpoint"

[source]
bootstrap_servers = "{bootstrap}"
topics = ["{topic}"]
max_offsets_per_trigger = {limit}
group = "{name}"
{extra}

[source.format]
type = "csv"
columns = {{ id = "bigint", carrier = "string", at = "timestamp", delay = "int" }}
required = ["id"]
"""
AGGREGATE = """
[aggregate]
time = "at"
window = "1 hour"
watermark = "2 days"
group_by = ["carrier"]
compute = { flights = "count(*)", delay = "sum(delay)" }

[[sinks]]
type = "sqlite"
path = "out.db"
table = "by_hour"
"""
ROWS = """
[[sinks]]
type = "sqlite"
path = "out.db"
table = "rows_seen"
"""
FILES = """
[[sinks]]
type = "parquet"
path = "lake"
"""
TOPIC = """
[[sinks]]
type = "topic"
topic = "%s"
"""


def line(number: int) -> bytes:
    """One event, its time, carrier and delay given by its number."""
    return b"%d,%s,2013-01-01 %02d:00:00,%d" % (number, b"AA" if number % 3 else b"UA", number % 24, number % 7)


def expected(count: int) -> dict[tuple[str, str], tuple[int, int]]:
    """The figures that a dumb count gives."""
    result: dict[tuple[str, str], tuple[int, int]] = {}
    for number in range(count):
        key = (f"2013-01-01T{number % 24:02d}:00:00.000000Z", "AA" if number % 3 else "UA")
        flights, delay = result.get(key, (0, 0))
        result[key] = (flights + 1, delay + number % 7)
    return result


def write_flow(folder: Path, *parts: str, **fields: Any) -> Path:
    path = folder / "flow.toml"
    path.write_text(FLOW.format(**{"name": "flow", "limit": 1000, "extra": "", **fields}) + "".join(parts))
    return path


@pytest.fixture(autouse=True)
def nothing_runs_on() -> Iterator[None]:
    """Flows of a test that failed end with it."""
    yield
    end_started()


def run(path: Path, *options: str, packages: Path | None = None) -> dict[str, Any]:
    """A run to its end; its summary."""
    process = start(path, *options, packages=packages)
    output, errors = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, errors
    summary: dict[str, Any] = json.loads(output)
    return summary


def figures(folder: Path) -> dict[tuple[str, str], tuple[int, int]]:
    rows = select(folder, "SELECT window_start, carrier, flights, delay FROM by_hour")
    assert len({row[:2] for row in rows}) == len(rows)
    return {(row[0], row[1]): (row[2], row[3]) for row in rows}


def test_a_flow_brings_figures_to_a_database_and_a_topic(cluster: Any, tmp_path: Path) -> None:
    """Bad rows go to their topic, and the position to the group."""
    brings_figures(cluster, tmp_path, None)


def test_a_checkpoint_of_the_oldest_pyspark_goes_on_with_todays(cluster: Any, tmp_path: Path) -> None:
    """The same flow on the oldest PySpark that is accepted; a second run, on the one
    installed here, adds nothing."""
    if not (OLDEST / "pyspark").is_dir():
        pytest.skip(f"needs PySpark 4.2: make {OLDEST.relative_to(ROOT)}/installed")
    version = [sys.executable, "-c", "import pyspark; print(pyspark.__version__)"]
    environment = {**os.environ, "PYTHONPATH": str(OLDEST)}
    assert subprocess.run(version, env=environment, check=True, capture_output=True).stdout.startswith(b"4.2.")
    path = brings_figures(cluster, tmp_path, OLDEST)
    again = run(path, "--once")
    assert again["rows"] == 0
    assert figures(tmp_path) == expected(3000)


def brings_figures(cluster: Any, folder: Path, packages: Path | None) -> Path:
    """Runs a flow with windows, two sinks, a group and dead letters, and looks at all of them.

    The flow's file."""
    topic, target, bad = cluster.topic(3), cluster.topic(1), cluster.topic(1)
    cluster.produce(topic, [(str(n).encode(), line(n)) for n in range(3000)])
    cluster.produce(topic, [(b"bad", b"what is this?")])
    extra = f'bad_rows_topic = "{bad}"'
    path = write_flow(
        folder, AGGREGATE, TOPIC % target, bootstrap=cluster.bootstrap, topic=topic, extra=extra, name=topic
    )
    summary = run(path, "--once", packages=packages)
    assert (summary["status"], summary["rows"], summary["bad_rows"], summary["late_rows"]) == ("done", 3001, 1, 0)
    assert figures(folder) == expected(3000)
    assert [each.value() for each in cluster.read(bad)] == [b"what is this?"]
    last = {each.key(): json.loads(each.value()) for each in cluster.read(target)}
    assert len(last) == len(expected(3000))
    assert sum(row["flights"] for row in last.values()) == 3000
    assert sum(cluster.committed(topic, topic, 3)) == 3001
    return path


def test_lost_records_are_counted_and_an_exit_status_on_request(cluster: Any, tmp_path: Path) -> None:
    """In the summary and in what status reads; what the run before has lost does not count."""
    topic, target = cluster.topic(1), cluster.topic(1)
    cluster.produce(topic, [(None, line(n)) for n in range(200)])
    extra = "fail_on_data_loss = false"
    path = write_flow(tmp_path, TOPIC % target, bootstrap=cluster.bootstrap, topic=topic, extra=extra, name=topic)
    checkpoint = tmp_path / "checkpoint"
    checkpoint.mkdir()
    (checkpoint / "start.json").write_text(json.dumps({topic: {"0": 0}}))
    lost_file(checkpoint).write_text('["source", "t", 0, 0, 7]\n')
    cluster.delete_records(topic, 140)
    process = start(path, "--once", "--fail-on-loss")
    out, errors = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 1, errors
    summary = json.loads(out)
    assert (summary["status"], summary["rows"], summary["lost_records"]) == ("done", 60, 140)
    assert summary["lost"] == {f"{topic}-0": 140}
    assert "warning: lost: 140 records were gone before they were read" in errors
    assert Checkpoint(load(path)).last_run()["lost_records"] == 140


def test_a_stopped_flow_ends_well(cluster: Any, tmp_path: Path) -> None:
    """SIGTERM: exit code 0, a summary, and nothing left running.

    Dead letters came behind the first results."""
    topic, bad = cluster.topic(1), cluster.topic(1)
    cluster.produce(topic, [(None, line(n)) for n in range(500)])
    cluster.produce(topic, [(None, b"what is this?")])
    extra = f'bad_rows_topic = "{bad}"'
    process = start(write_flow(tmp_path, ROWS, bootstrap=cluster.bootstrap, topic=topic, extra=extra))
    wait_for_rows(tmp_path, "rows_seen", 500, process)
    deadline = time.monotonic() + TIMEOUT_S
    while not (letters := cluster.read(bad)):
        assert process.poll() is None, "the flow has ended"
        assert time.monotonic() < deadline, "no dead letter"
    assert [each.value() for each in letters] == [b"what is this?"]
    process.send_signal(signal.SIGTERM)
    output, errors = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 0, errors
    assert json.loads(output)["status"] == "stopped"
    assert members(process.pid) == []


def test_a_flow_that_cannot_work_says_why_with_line_and_field(cluster: Any, tmp_path: Path) -> None:
    """A column that does not exist."""
    topic = cluster.topic(1)
    path = write_flow(tmp_path, '[transform]\nwhere = "dealy > 3"\n', ROWS, bootstrap=cluster.bootstrap, topic=topic)
    process = start(path, "--once")
    _, errors = process.communicate(timeout=TIMEOUT_S)
    assert process.returncode == 1
    assert errors.splitlines()[-1].endswith("transform.where: there is no column dealy; did you mean delay?")
    assert f"{path}:" in errors.splitlines()[-1]
    assert "Traceback" not in errors
    assert "Py4J" not in errors


@contextlib.contextmanager
def records_keep_coming(cluster: Any, topic: str, kills: int) -> Iterator[Callable[[], None]]:
    """Each call of what is yielded lets another share come, of one more than there are kills; at
    the end all of them are in the topic.

    A share has at least 5 micro-batches of `batch_limit`, so none waits for ever
    however fast the flow is.
    """
    hurry, allowed, step = threading.Event(), threading.Semaphore(0), max(3000, _RECORDS // 100)
    bounds = [_RECORDS * number // (kills + 1) for number in range(kills + 2)]

    def produce() -> None:
        for begin, end in pairwise(bounds):
            allowed.acquire()
            for first in range(begin, end, step):
                numbers = range(first, min(first + step, end))
                cluster.produce(topic, [(str(n).encode(), line(n)) for n in numbers])
                hurry.wait(1.0)

    producing = threading.Thread(target=produce)
    producing.start()
    try:
        yield allowed.release
    finally:
        hurry.set()
        allowed.release(kills + 1)
        producing.join()


def batch_limit(kills: int) -> int:
    """Records of a micro-batch, so that there are enough of them for the kills."""
    return max(1000, _RECORDS // (kills * 5 + 10))


def batches_before_kill(rng: random.Random) -> int:
    """Micro-batches from one kill to the next."""
    return rng.randint(2, 5)


@pytest.mark.fault
def test_after_kills_of_the_driver_nothing_is_twice_and_nothing_missing(cluster: Any, tmp_path: Path) -> None:
    """kill -9 of the driver and its JVM in the midst of batches, while records keep coming."""
    topic, kills = cluster.topic(3), int(os.environ.get("BARNABAS_KILLS", "4"))
    path = write_flow(tmp_path, AGGREGATE, bootstrap=cluster.bootstrap, topic=topic, limit=batch_limit(kills))
    epochs, rng = [-1], random.Random(SEED)
    with records_keep_coming(cluster, topic, kills) as more:
        for _ in range(kills):
            more()
            process = start(path)
            wait_for_epoch(tmp_path, epochs[-1] + batches_before_kill(rng), process)
            sleep_into_batch(tmp_path, rng)
            kill_session(process)
            epochs.append(epoch(tmp_path))
    summary = run(path, "--once")
    assert summary["status"] == "done"
    assert figures(tmp_path) == expected(_RECORDS)
    assert epochs == sorted(set(epochs)), "each run went further than the one before"


@pytest.mark.fault
def test_kills_of_drivers_and_workers_leave_rows_files_and_topics_whole(
    cluster: Any, tmp_path: Path, record_property: Any
) -> None:
    """The database and the files have each record once, the topic at least once, the group is
    where the checkpoint is."""
    topic, target, kills = cluster.topic(3), cluster.topic(1), int(os.environ.get("BARNABAS_KILLS", "2"))
    path = write_flow(
        tmp_path,
        ROWS,
        FILES,
        TOPIC % target,
        bootstrap=cluster.bootstrap,
        topic=topic,
        name=topic,
        limit=batch_limit(kills),
    )
    checkpoint = Checkpoint(load(path))
    last, killed_workers, rng = -1, 0, random.Random(SEED)
    with records_keep_coming(cluster, topic, kills) as more:
        process = start(path)
        for number in range(kills):
            more()
            wait_for_epoch(tmp_path, last + batches_before_kill(rng), process)
            sleep_into_batch(tmp_path, rng)
            if number % 2 == 0:
                kill_session(process)
                (position,) = checkpoint.position()
                process = start(path)
                wait(lambda: group_is_at(cluster, topic, position), process)  # noqa: B023  # called in this round
            else:
                killed_workers += kill_a_worker(process.pid, rng)
            last = epoch(tmp_path)
        more()
        wait_for_epoch(tmp_path, last + 1, process)
        process.send_signal(signal.SIGTERM)
        _, errors = process.communicate(timeout=TIMEOUT_S)
        assert process.returncode == 0, errors
    assert run(path, "--once")["status"] == "done"
    (position,) = checkpoint.position()
    assert cluster.committed(topic, topic, 3) == [position[TopicPartition(topic, each)] for each in range(3)]
    assert sum(position.values()) == _RECORDS

    count = (_RECORDS, _RECORDS, _RECORDS * (_RECORDS - 1) // 2)
    assert select(tmp_path, "SELECT count(*), count(DISTINCT id), sum(id) FROM rows_seen") == [count]
    ids = pq.read_table(tmp_path / "lake", columns=["id"])["id"].to_pylist()
    assert (len(ids), len(set(ids)), sum(ids)) == count
    messages = cluster.read(target)
    found: dict[bytes, bytes] = {}
    for message in messages:
        assert found.setdefault(message.key(), message.value()) == message.value(), "a repetition is equal"
    assert len(found) == _RECORDS
    record_property("records", _RECORDS)
    record_property("kills of the driver and its JVM", (kills + 1) // 2)
    record_property("kills of a Python worker", killed_workers)
    record_property("kills, their moments from seed", [kills, SEED])
    record_property("repetitions in the topic", len(messages) - len(found))


def group_is_at(cluster: Any, topic: str, position: Any) -> bool:
    """Whether the group, of the topic's name, has at least this position."""
    committed = cluster.committed(topic, topic, 3)
    return all(committed[each.partition] >= offset for each, offset in position.items())


def wait_for_rows(folder: Path, table: str, wanted: int, process: "subprocess.Popen[str]") -> None:
    def there() -> bool:
        with contextlib.suppress(sqlite3.Error):
            return bool(select(folder, f"SELECT count(*) FROM {table}")[0][0] >= wanted)
        return False

    wait(there, process)
