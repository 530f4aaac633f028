"""Every command of the how-to pages about pipelines, in this process, on the Spark
session of all tests.

What a command does is its own; only the session that it would open, for seconds
each, is there already.
"""

import contextlib
import json
import os
import shlex
import signal
import sqlite3
import statistics
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.cli.main import main
from barnabas.pipelines.dashboard.server import Dashboard
from barnabas.pipelines.models.registry import ModelFolder
from barnabas.pipelines.specification import spec
from support.needs import ROOT
from support.pages import DOCS, Command, blocks
from support.ports import free_ports
from support.reader import Reader
from support.waiting import eventually

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
pytest.importorskip("deltalake")
EXAMPLES = ROOT / "examples" / "pipelines"
PAYMENTS = ["1,2026-01-01T00:10:00Z", "3,2026-02-03T00:30:00Z"]


class OpenSession:
    """The session of all tests, for commands that would open and close one of their own."""

    def __init__(self, spark: Any) -> None:
        self.spark = spark
        self.jvm = SimpleNamespace(has_open_callbacks=False)

    def close(self, *_: Any) -> None:
        """It stays."""


class PipelineReader:
    """A reader whose ``barnabas pipeline`` runs in this process."""

    def __init__(self, folder: Path, cluster: Any, spark: Any, monkeypatch: Any, capfd: Any) -> None:
        self.folder = folder
        self.cluster = cluster
        self.reader = Reader(folder, {"localhost:9092": cluster.bootstrap})
        self.reader.instead["barnabas pipeline"] = self.pipeline
        self.spark = spark
        self._capfd = capfd
        monkeypatch.chdir(folder)
        for name in ("session", "spark.session"):
            monkeypatch.setattr(f"barnabas.pipelines.{name}.open_session", lambda *_, **__: OpenSession(spark))
        for name in ("REPORTS_PASSWORD", "OPENSEARCH_PASSWORD"):
            monkeypatch.setenv(name, "secret")

    def send(self, topic: str, values: list[str]) -> None:
        """Records to a topic, which is made with them."""
        self.cluster.produce(topic, [(None, value.encode()) for value in values])

    def example(self, name: str, path: str = "flow.toml") -> None:
        """One of the examples as the reader's own flow."""
        (self.folder / path).write_text(self.reader.here((EXAMPLES / name).read_text()))

    def pipeline(self, command: Command) -> str:
        words = shlex.split(self.reader.here(command.line), comments=True)
        if words[2] == "dashboard":
            return self.dashboard(words)
        self._capfd.readouterr()
        code = main(words[1:])
        shown = self._capfd.readouterr()
        only_shows = words[2] == "rewind" and "--yes" not in words
        fails = any(line.startswith("FAILED") for line in command.output)
        assert code == (2 if only_shows else 1 if fails else 0), f"{command.line}\n{shown.out}{shown.err}"
        return shown.out + shown.err

    def dashboard(self, words: list[str]) -> str:
        """In a process, until its page answers; that page, and what the command printed."""
        (port,) = free_ports(1)
        words = [word for word in words if word not in ("--port", "8050")]
        command = [sys.executable, "-m", "barnabas", *words[1:], "--port", str(port)]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
            try:

                def page() -> str:
                    try:
                        with urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10) as answer:
                            return answer.read().decode()
                    except OSError:
                        return ""

                shown = eventually(page, timeout_s=60, what="the dashboard answers")
            finally:
                process.send_signal(signal.SIGINT)
                printed, _ = process.communicate(timeout=30)
            return f"{printed}\n{shown}"

    def run_until(self, command: Command, condition: Callable[[], object]) -> str:
        """The command, with a Ctrl-C as soon as this holds."""
        ended = threading.Event()

        def wait() -> None:
            while not ended.wait(0.1):
                if condition():
                    os.kill(os.getpid(), signal.SIGINT)
                    return

        thread = threading.Thread(target=wait)
        thread.start()
        try:
            return self.pipeline(command)
        finally:
            ended.set()
            thread.join()


@pytest.fixture
def person(tmp_path: Path, cluster: Any, spark: Any, monkeypatch: Any, capfd: Any) -> PipelineReader:
    """Who follows the page."""
    return PipelineReader(tmp_path, cluster, spark, monkeypatch, capfd)


def rows(database: Path, table: str) -> list[Any]:
    """What a sink has; nothing, as long as there is none."""
    if not database.exists():
        return []
    connection = sqlite3.connect(database)
    try:
        return connection.execute(f"SELECT * FROM {table}").fetchall()
    except sqlite3.OperationalError:
        return []
    finally:
        connection.close()


def test_the_first_flow_and_its_dead_letters(person: PipelineReader) -> None:
    """pipelines.md and pipeline-flows.md, one after the other, in one folder."""
    person.send("payments", PAYMENTS)
    is_done = partial(rows, person.folder / "orders.db", "orders_by_country")
    until_ctrl_c = {"run orders.toml   ": lambda command: person.run_until(command, is_done)}
    person.reader.instead = until_ctrl_c | person.reader.instead
    page = blocks(DOCS / "how-to" / "pipelines.md")
    person.reader.follow(page)
    (program,) = [block.text for block in page if block.language == "python"]
    exec(person.reader.here(program), {"spark": person.spark})
    (person.folder / "customers.csv").write_text("customer,country\n7,DE\n")
    person.reader.follow(blocks(DOCS / "how-to" / "pipeline-flows.md"))


def test_the_tutorial_from_an_empty_folder_to_a_chart(person: PipelineReader) -> None:
    """first-pipeline.md with 3,000 flights in place of all, in an environment that
    has what the page installs."""
    typed: list[str] = []

    def is_there(command: Command) -> str:
        """What the command would bring: the environment and the cluster of all tests."""
        typed.append(command.line)
        return person.reader.here("\n".join(command.output))

    for part in ("python3 -m venv", "pip install", "cd ~/flights", "barnabas up", "barnabas down"):
        person.reader.instead[part] = is_there
    person.reader.instead["python flights.py"] = lambda command: person.reader.run(
        command._replace(
            line=command.line.replace("python flights.py", "(python flights.py 2>&- || true) | head -n 3000")
        )
    )
    page = blocks(DOCS / "tutorial" / "first-pipeline.md")
    person.reader.follow(page)
    assert len(typed) == 5
    (flow,) = [block.text for block in page if block.file == "delays.toml"]
    assert len(flow.splitlines()) == 5
    flights = {airline: (count, delay) for airline, count, delay, *_ in rows(person.folder / "delays.db", "delays")}
    assert sum(count for count, _ in flights.values()) == 3000
    (chart,) = json.loads(Dashboard(spec.load(person.folder / "delays.toml")).state().figures)["charts"]
    (bars,) = chart["figure"]["data"]
    assert dict(zip(bars["x"], bars["y"], strict=True)) == {airline: delay for airline, (_, delay) in flights.items()}
    assert bars["y"] == sorted(bars["y"], reverse=True)


def test_the_first_pipeline_of_the_readme(person: PipelineReader) -> None:
    """A new flow, one record, its row in the database."""
    flow = person.folder / "payments.toml"
    person.reader.before["pipeline run"] = lambda: flow.write_text(person.reader.here(flow.read_text()))
    person.reader.follow([block for block in blocks(ROOT / "README.md") if block.section == "A first pipeline"])


def test_the_outputs_of_flights(person: PipelineReader) -> None:
    """pipeline-outputs.md with 3,000 flights in place of all: KPIs in a Delta table and charts, a
    search, a model with scores."""
    target = person.folder / "examples" / "pipelines"
    target.mkdir(parents=True)
    for name in ("kpis.toml", "feed.py"):
        person.example(name, f"examples/pipelines/{name}")
    (person.folder / "demo").symlink_to(ROOT / "demo")
    person.reader.instead["feed.py flights"] = lambda command: person.reader.run(
        command._replace(line=f"{command.line} --limit 3000")
    )

    def prepare_search() -> None:
        person.example("log-aggregation.toml")
        line = "[2026-01-01 00:00:00,000] INFO the controller failed (barnabas)"
        person.send("cluster-logs", [line])
        person.pipeline(Command("", "barnabas pipeline run flow.toml --once", []))

    def prepare_model() -> None:
        person.example("delay-model.toml")
        flow = person.folder / "flow.toml"
        # The first 3,000 flights are of January.
        flow.write_text(flow.read_text().replace("month > 6", "day > 2"))

    person.reader.before["pipeline search"] = prepare_search
    person.reader.before["pipeline train"] = prepare_model
    person.reader.follow(blocks(DOCS / "how-to" / "pipeline-outputs.md"))

    charts = json.loads(Dashboard(spec.load(target / "kpis.toml")).state().figures)["charts"]
    delays, by_day = ([trace["y"] for trace in chart["figure"]["data"]] for chart in charts)
    assert delays[0] == sorted(delays[0], reverse=True)
    assert sum(by_day[0]) == 3000  # each flight once
    model = spec.load(person.folder / "flow.toml").model
    assert model is not None
    (version,) = ModelFolder(model.path).versions()
    assert version.metrics["auc"] > 0.85
    scores: dict[bool, list[float]] = {False: [], True: []}
    with contextlib.closing(sqlite3.connect(person.folder / "state" / "delays.db")) as connection:
        for late, probability in connection.execute("SELECT dep_delay > 60, late_probability FROM flights"):
            scores[bool(late)].append(probability)
    # A flight's delay at departure says most about its delay at arrival.
    assert statistics.mean(scores[True]) > 0.9 > 0.5 > statistics.mean(scores[False])
