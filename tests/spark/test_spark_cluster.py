"""A flow on Spark's own cluster, started as docs/how-to/pipeline-cluster.md does: a
master with two workers."""

import contextlib
import os
import re
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]
pyspark = pytest.importorskip("pyspark")

from barnabas.pipelines.spark.jvm import find_java, prepare_home  # noqa: E402
from barnabas.pipelines.spark.session import cache_dir  # noqa: E402
from support.pages import DOCS, commands  # noqa: E402
from support.ports import free_ports  # noqa: E402

PAGE = DOCS / "how-to" / "pipeline-cluster.md"
FLOW = """\
name = "{topic}"
checkpoint = "state"
[source]
bootstrap_servers = "{bootstrap}"
topics = ["{topic}"]
max_offsets_per_trigger = 1000
format = {{ type = "csv", columns = {{ id = "int", kind = "string" }} }}
[[steps]]
name = "placed"
function = "functions.py:placed"
[[sinks]]
type = "sqlite"
path = "out.db"
table = "rows"
[resources.spark]
"spark.authenticate.secret" = "${{SPARK_SECRET}}"
"""
SECRET = "geheim-4711"
FUNCTIONS = """\
from pyspark.sql.functions import udf
from pyspark.sql.types import StringType


@udf(StringType())
def place():
    import os

    import barnabas
    import helper

    return f"{os.getcwd()} {barnabas.__file__} {helper.WORD}"


def placed(rows):
    return rows.withColumn("place", place())
"""


def wait_for(path: Path, text: str, process: "subprocess.Popen[bytes]") -> None:
    deadline = time.monotonic() + 120
    while text not in path.read_text():
        assert process.poll() is None, path.read_text()
        assert time.monotonic() < deadline, path.read_text()
        time.sleep(0.1)


@pytest.fixture
def master(tmp_path: Path) -> Iterator[str]:
    """The URL of a master with two workers of one core, that know nothing of this source tree."""
    home = prepare_home(find_java(os.environ), cache_dir())
    environ = {each: text for each, text in os.environ.items() if each != "PYTHONPATH"}
    environ |= {
        "JAVA_HOME": str(home),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    environ |= {"SPARK_DAEMON_MEMORY": "256m", "SPARK_DAEMON_JAVA_OPTS": "-XX:+UseSerialGC"}
    processes: list[subprocess.Popen[bytes]] = []

    exported, *lines = (each.line for each in commands(PAGE) if "SPARK_HOME" in each.line)
    master_line, worker_line = lines
    (port,) = free_ports(1)
    (properties,) = (each for each in re.findall(r"```properties\n(.*?)```", PAGE.read_text(), re.DOTALL))
    assert "CHANGE-ME" in properties
    (tmp_path / "spark.properties").write_text(properties.replace("CHANGE-ME", SECRET))
    places = {"spark1": "127.0.0.1", "7077": str(port), "--port": "--webui-port 0 --port"}
    sizes = "--cores 4 --memory 8g"
    assert sizes in worker_line

    def start(name: str, line: str, places: dict[str, str]) -> Path:
        """A line of the page, with the names of this machine."""
        log = tmp_path / f"{name}.log"
        for here, there in places.items():
            line = line.replace(here, there)
        with log.open("wb") as output:
            process = subprocess.Popen(
                ["bash", "-c", f"{exported}; exec {line}"],
                stdout=output, stderr=output, cwd=tmp_path, env=environ, start_new_session=True,
            )  # fmt: skip
        processes.append(process)
        return log

    url = f"spark://127.0.0.1:{port}"
    try:
        wait_for(start("master", master_line, places), "I have been elected leader", processes[-1])
        logs = []
        for number in range(2):
            (tmp_path / f"work-{number}").mkdir()
            options = f"--host 127.0.0.1 --webui-port 0 --cores 1 --memory 1g --work-dir {tmp_path}/work-{number}"
            logs.append(start(f"worker-{number}", worker_line, {**places, sizes: options}))
        for log, process in zip(logs, processes[1:], strict=True):
            wait_for(log, "Successfully registered with master", process)
        yield url
    finally:
        for process in processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait(30)


def test_a_flow_runs_on_two_workers_with_the_code_of_this_machine(cluster: Any, master: str, tmp_path: Path) -> None:
    """The workers get the package and the flow's modules; each record is in the database once."""
    topic = cluster.topic(2)
    for partition in range(2):
        rows = [(None, b"%d,a" % number) for number in range(partition, 2000, 2)]
        cluster.produce(topic, rows, partition)
    (tmp_path / "flow.toml").write_text(FLOW.format(topic=topic, bootstrap=cluster.bootstrap))
    (tmp_path / "functions.py").write_text(FUNCTIONS)
    (tmp_path / "helper.py").write_text("WORD = 'shipped'\n")
    (page,) = (each for each in commands(PAGE) if each.line.endswith("--master spark://spark1:7077"))
    words = page.line.replace("spark://spark1:7077", master).replace("orders.toml", "flow.toml").split()
    assert words == ["barnabas", "pipeline", "run", "flow.toml", "--master", master]
    done = subprocess.run(
        [sys.executable, "-m", *words, "--once",
         "--set", 'resources.py_files=["helper.py"]', "--set", "resources.memory=512m"],
        cwd=tmp_path, capture_output=True, text=True, timeout=500, check=False, env={**os.environ, "SPARK_SECRET": SECRET},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"starting Spark for {topic} on {master}" in done.stderr
    with contextlib.closing(sqlite3.connect(tmp_path / "out.db")) as database:
        assert database.execute("SELECT count(*), count(DISTINCT id), sum(id) FROM rows").fetchone() == (
            2000,
            2000,
            sum(range(2000)),
        )
        places = [each[0].split() for each in database.execute("SELECT DISTINCT place FROM rows")]
    assert {Path(folder).parts[-3] for folder, _, _ in places} == {"work-0", "work-1"}
    modules = [os.path.normpath(os.path.join(folder, module)) for folder, module, _ in places]
    zipped = [os.path.join(folder, "barnabas.zip", "barnabas", "__init__.py") for folder, _, _ in places]
    assert modules == zipped, "the executors have the package that this machine sent"
    assert {word for _, _, word in places} == {"shipped"}
