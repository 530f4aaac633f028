"""Runs of ``barnabas pipeline run`` as processes of their own, with an SQLite table in ``out.db``,
and kills of what belongs to them."""

import contextlib
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

__all__ = [
    "TIMEOUT_S",
    "end_started",
    "epoch",
    "kill_a_worker",
    "kill_session",
    "members",
    "select",
    "sleep_into_batch",
    "start",
    "wait",
    "wait_for_epoch",
]

TIMEOUT_S = 600 + int(os.environ.get("BARNABAS_RECORDS", "0")) // 1000
"""For a run, and for each wait; a trial with many records has more."""
_BRIEF = {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1"}
"""For JVMs that end before Java's optimizing compiler has paid for itself: it takes a third
of their processor time."""
_STARTED: "list[subprocess.Popen[str]]" = []


def start(path: Path, *options: str, packages: Path | None = None) -> "subprocess.Popen[str]":
    """A run of the flow; ``packages`` is a folder of packages that go before those
    of this environment."""
    command = [sys.executable, "-m", "barnabas", "pipeline", "run", str(path), "--output", "json", *options]
    places = os.pathsep.join(filter(None, [str(packages or ""), os.environ.get("PYTHONPATH", "")]))
    _STARTED.append(
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            env={**os.environ, **_BRIEF, **({"PYTHONPATH": places} if places else {})},
        )
    )
    return _STARTED[-1]


def end_started() -> None:
    """Flows of a test that failed end with it."""
    while _STARTED:
        process = _STARTED.pop()
        if process.poll() is None:
            kill_session(process)


def select(folder: Path, query: str) -> list[tuple[Any, ...]]:
    """Rows of ``out.db`` in the folder."""
    connection = sqlite3.connect(folder / "out.db")
    try:
        return connection.execute(query).fetchall()
    finally:
        connection.close()


def sleep_into_batch(folder: Path, rng: random.Random) -> None:
    """Wait for a moment of the batch that runs now: a part of what the one before it took, which
    differs between machines."""
    main = folder / "checkpoint" / "main"
    last = max(int(each.name) for each in (main / "commits").iterdir() if each.name.isdecimal())
    begun, ended = ((main / name / str(last)).stat().st_mtime for name in ("offsets", "commits"))
    time.sleep(rng.uniform(0, 1) * max(0.0, ended - begun))


def kill_a_worker(session: int, rng: random.Random) -> int:
    """SIGKILL to one of Spark's Python workers, if there is one now; how many were killed."""
    workers = []
    for each in members(session):
        with contextlib.suppress(OSError):
            # Comm: the name of a fork.
            names = [Path(f"/proc/{each}/{name}").read_bytes() for name in ("cmdline", "comm")]
            if any(b"pyspark.worker" in name for name in names):
                workers.append(each)
    if workers:
        os.kill(rng.choice(workers), signal.SIGKILL)
    return min(1, len(workers))


def kill_session(process: "subprocess.Popen[str]") -> None:
    """SIGKILL to the driver, its JVM and its Python workers at once."""
    os.killpg(process.pid, signal.SIGKILL)
    for left in members(process.pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(left, signal.SIGKILL)
    process.communicate(timeout=30)


def members(session: int) -> list[int]:
    """The living processes of a session."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            with contextlib.suppress(OSError):
                state, _, _, of_session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
                if int(of_session) == session and state != "Z":
                    found.append(int(entry.name))
    return found


def epoch(folder: Path) -> int:
    """The last micro-batch in the database; -1 for none."""
    with contextlib.suppress(sqlite3.Error):
        rows = select(folder, "SELECT epoch FROM barnabas_epochs")
        return int(rows[0][0]) if rows else -1
    return -1


def wait_for_epoch(folder: Path, wanted: int, process: "subprocess.Popen[str]") -> None:
    """Until this micro-batch is in the database."""
    wait(lambda: epoch(folder) >= wanted, process)


def wait(condition: Any, process: "subprocess.Popen[str]") -> None:
    """Until the condition holds; fails if the flow ends before that."""
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline, "the flow made no progress"
        time.sleep(0.05)
